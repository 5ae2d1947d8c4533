"""The list of deliberate faults: each still applies, and the judge can tell the three results apart."""

from __future__ import annotations

import ast
from pathlib import Path

import mutation
import pytest

ROOT = Path(__file__).resolve().parents[2]
MUTANTS = mutation.load_mutants()


def test_names_are_unique_and_there_are_enough():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 40


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_fault_still_applies(mutant):
    changed = mutant.apply(ROOT)
    assert ast.dump(ast.parse(changed)) != mutation.syntax_tree(ROOT / mutant.file)


def test_a_fault_that_no_longer_applies_is_named(tmp_path):
    mutant = MUTANTS[0].model_copy(update={"find": "no such text"})
    with pytest.raises(ValueError, match="occurs 0 times in mlogb_core"):
        mutant.apply(ROOT)


def test_the_committed_table_is_that_of_the_committed_faults():
    table = mutation.TABLE.read_text()
    assert table.count(" | killed | ") == len(MUTANTS)
    assert all(f"| {mutant.fault} | `{mutant.file}` | killed |" in table for mutant in MUTANTS)


@pytest.mark.slow
@pytest.mark.parametrize(("code", "verdict"), [("1 == 1", "survived"), ("1 == 2", "killed")])
def test_judge(tmp_path, monkeypatch, code, verdict):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(f"def test_one():\n    assert {code}\n")
    monkeypatch.setattr(mutation, "suite", lambda: ["tests/test_a.py"])
    outcome = mutation._judge(tmp_path)
    assert outcome.verdict == verdict
    assert outcome.by == ("test_a.py::test_one" if verdict == "killed" else "")


@pytest.mark.slow
def test_judge_names_a_run_without_tests(tmp_path, monkeypatch):
    (tmp_path / "tests").mkdir()
    monkeypatch.setattr(mutation, "suite", lambda: ["tests"])
    assert mutation._judge(tmp_path).verdict == "error"
