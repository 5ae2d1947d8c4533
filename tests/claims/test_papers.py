"""The registry of another paper: the same tool on another folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from compendium import cli
from compendium.claims.registry import CORRECTED, VERIFIED, faults, load_registry
from compendium.runs import notebooks

ROOT = Path(__file__).resolve().parents[2]
PAPERS = sorted(path.parent for path in (ROOT / "papers").glob("*/claims.yml"))


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: path.name)
def test_registry_evidence_and_errata_agree(paper):
    assert faults(load_registry(paper), paper) == []
    assert notebooks.check([paper]) == []


def test_what_became_of_the_three_claims():
    registry = load_registry(ROOT / "papers" / "rs_mnl")
    assert {claim.id: registry.status(claim) for claim in registry.claims} == {
        "C1": VERIFIED,
        "C2": VERIFIED,
        "C3": CORRECTED,
    }


@pytest.mark.parametrize(
    ("name", "old", "new", "problem"),
    [
        ("ERRATA.md", "(C3, rs-mnl:estimate)", "", "C3: corrected, but ERRATA.md has no section on it"),
        ("claims.yml", "#how-often-it-refits", "#elsewhere", "C1: 01_rs_mnl has no section #elsewhere"),
        ("claims.yml", "id: C2", "id: C4", "C2: evidence in 01_rs_mnl, but no entry"),
    ],
)
def test_what_does_not_agree_is_named(tmp_path, name, old, new, problem):
    copy = shutil.copytree(ROOT / "papers" / "rs_mnl", tmp_path / "paper")
    text = (copy / name).read_text(encoding="utf-8")
    assert old in text
    (copy / name).write_text(text.replace(old, new), encoding="utf-8")
    assert problem in faults(load_registry(copy), copy)


def test_the_command_line_shows_it(capsys):
    paper = ROOT / "papers" / "rs_mnl"
    with pytest.raises(SystemExit) as stopped:
        cli.main(["claims", "--paper", str(paper), "--check"])
    assert stopped.value.code == 0
    assert "registry, evidence and errata agree" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stopped:
        cli.main(["claims", "--paper", str(paper), "--write"])
    assert stopped.value.code
    assert "about one paper" in capsys.readouterr().err
