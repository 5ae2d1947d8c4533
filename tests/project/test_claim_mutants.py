"""The faults behind the claims: each claim has one, each still applies, and only the claims are asked."""

from __future__ import annotations

import ast
from pathlib import Path

import claim_evidence
import mutation
import pytest

from compendium.claims.registry import CORRECTED, REFUTED, RESULTS, VERIFIED, load_registry

ROOT = Path(__file__).resolve().parents[2]
MUTANTS = mutation.load_claim_mutants()
HEAD = "from compendium.claims.evidence import bounded, caught\n"


def test_there_is_a_fault_behind_every_claim_of_a_notebook():
    registry = load_registry(ROOT)
    settled = {
        claim.id
        for claim in registry.claims
        if registry.status(claim) in (VERIFIED, CORRECTED, REFUTED)
        and (claim.notebook or "").partition("#")[0] != RESULTS
    }
    assert settled - {name for mutant in MUTANTS for name in mutant.claims} == set()
    assert {name for mutant in MUTANTS for name in mutant.claims} - set(registry.by_id) == set()
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", [m for m in MUTANTS if not m.without], ids=lambda mutant: mutant.name)
def test_each_fault_still_applies(mutant):
    changed = mutant.apply(ROOT)
    assert ast.dump(ast.parse(changed)) != mutation.syntax_tree(ROOT / mutant.file)


def test_the_evidence_of_each_claim_is_asked():
    cells = [
        HEAD + "bounded('C1', 'a', largest=2.0, limit=1.0, cases=1)",
        "bounded('C2', 'b', largest=2, limit=1, cases=1)\nbounded('C3', 'c', largest=0, limit=1, cases=2)",
    ]
    found = claim_evidence.noticed(cells, ["C2", "C3"])
    assert list(found) == ["C2"]
    assert found["C2"].startswith("cell 2: C2 fails: b")


def test_the_run_ends_when_all_have_noticed():
    cells = [HEAD + "caught('C1', 'a', error=0.0, tolerance=1.0)", "1 / 0"]
    assert claim_evidence.noticed(cells, ["C1"]) == {
        "C1": "cell 1: C1, not caught: a: error 0 is within the tolerance 1"
    }


def test_an_error_hides_no_evidence_of_later_cells():
    later = HEAD + "bounded('C1', 'a', largest=2.0, limit=1.0, cases=1)"
    found = claim_evidence.noticed(["1 / 0", later, "unknown"], ["C1", "C2"])
    assert found["C1"].startswith("cell 2: C1 fails: a")
    assert found["C2"] == "cell 1 stops: ZeroDivisionError: division by zero"


def test_the_functions_of_evidence_are_themselves_again():
    from compendium.claims import evidence

    before = evidence.bounded
    claim_evidence.noticed([HEAD + "raise KeyError('a')"], ["C1"])
    assert evidence.bounded is before


def test_a_row_names_the_claims_that_noticed_nothing():
    mutant = MUTANTS[0].model_copy(update={"claims": ["C1", "C2"]})
    row = mutation.claim_row(mutant, {"C1": "cell 3: C1 fails: |a|"}, "0123abcd")
    assert row.endswith(r"| survived | not noticed: C2; C1: cell 3: C1 fails: \|a\| | 0123abcd |")
    table = mutation.claim_table({mutant.name: row}, MUTANTS)
    assert row in table
    assert "1 of " in table
    assert "1 of them survived" in table


def test_the_head_of_the_table_names_what_an_error_alone_noticed():
    mutant = MUTANTS[0].model_copy(update={"claims": ["C1"]})
    stopped = mutation.claim_row(mutant, {"C1": "cell 3 stops: KeyError: 'a'"}, "0")
    assert f"By an error alone were noticed: {mutant.name}." in mutation.claim_table(
        {mutant.name: stopped}, MUTANTS
    )
    said = mutation.claim_row(mutant, {"C1": "cell 3: C1 fails: it stops: here"}, "0")
    assert "All by a line of evidence." in mutation.claim_table({mutant.name: said}, MUTANTS)


def test_a_row_of_another_fault_is_not_kept(tmp_path, monkeypatch):
    first, second = (m for m in MUTANTS[:2])
    rows = {
        first.name: mutation.claim_row(first, {}, f"{mutation.fault_digest(first)}, 0"),
        second.name: mutation.claim_row(second, {}, f"{mutation.fault_digest(first)}, 0"),
    }
    table = tmp_path / "table.md"
    table.write_text(mutation.claim_table(rows, MUTANTS))
    monkeypatch.setattr(mutation, "CLAIM_TABLE", table)
    assert mutation._kept_rows(MUTANTS) == {first.name: rows[first.name]}


def test_the_committed_table_has_a_row_for_each_of_the_present_faults_and_none_survived():
    lines = mutation.CLAIM_TABLE.read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| `")]
    tried = {row[0].split("`")[1]: (row[1].split(", "), row[2], row[-1].split(", ")[0]) for row in rows}
    asked = {m.name: (m.claims, "noticed", mutation.fault_digest(m)) for m in MUTANTS if not m.without}
    assert tried == asked
    assert sum(line.startswith("- ") for line in lines) == len(MUTANTS) - len(asked)
