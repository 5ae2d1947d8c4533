"""The registry: the status follows from the evidence, and every disagreement is found."""

from __future__ import annotations

import json
import re
from pathlib import Path
from string import ascii_lowercase

import nbformat
import pytest
import yaml
from rich.cells import cell_len

from compendium import cli
from compendium.claims import page as claims_page
from compendium.claims.evidence import MIME, Line
from compendium.claims.registry import RESULTS, claims_in, faults, headings, load_registry, slug
from compendium.system.paths import FailureError, UsageError

ROOT = Path(__file__).resolve().parents[2]
#: What a section of the errata says of the number of its checks, and the counts of a line of evidence.
CHECKED = re.compile(
    r"(?:Checked[^.]*? (?:on|in)|EOFD and OFUL,) ([\d,]+) (?:random |sampled )?"
    r"(?:instances|rounds|runs|settings|sketches|streams|trials)\b"
)
COUNT = re.compile(r"\b(\d+) (?:cases?|trials)\b")
LABELS = {"lem:a": "Lemma 1, Section 3", "lem:b": "Lemma 2, Appendix A"}
LINES = (
    Line("C1", "holds", "one against two", "error below 1e-12 (3 cases)"),
    Line("C1", "caught", "no ridge", "0.3 exceeds 1e-12"),
    Line("C2", "holds", "left over right", "at most 1, largest found 43 % of it (9 cases)", largest=43),
    Line("C2", "holds", "the same for K = 1", "at most 1, largest found 12 % of it (9 cases)", largest=12),
    Line("C2", "caught", "half the constant", "0.86 exceeds 0.5"),
    Line("C3", "refuted", "printed form", "2 where 1 is claimed"),
    Line("C3", "holds", "corrected form", "at most 1, at least 99.9 % of it reached (9 cases)", reached=99.9),
    Line("C3", "caught", "smaller constant", "1 exceeds 0.5"),
    Line("C4", "refuted", "printed form", "2 where 1 is claimed"),
)
ENTRIES = [
    {"id": "C1", "label": "lem:a", "statement": "$1 = 1$", "kind": "identity", "notebook": "01_a#the-check",
     "tests": ["tests/test_a.py::test_one"]},
    {"id": "C2", "label": "lem:a", "statement": r"$a \le b_c$ for all* $a$", "kind": "inequality",
     "notebook": "01_a#the-check", "depends_on": ["C1"]},
    {"id": "C3", "label": "lem:b", "statement": r"$a \le c$", "kind": "inequality",
     "notebook": "01_a#the-check", "instead": r"$a \le \frac12c$", "depends_on": ["C2"]},
    {"id": "C4", "label": "lem:b", "statement": r"$a \le d$", "kind": "inequality",
     "notebook": "01_a#the-check", "instead": "nothing of this kind"},
    {"id": "C5", "label": "lem:b", "statement": "fast", "kind": "experiment", "reason": "no data"},
]  # fmt: skip


def make(root: Path, entries=ENTRIES, evidence=LINES, errata=("C3", "C4")) -> Path:
    """A project with one notebook, one test and the registry."""
    for name, text in {
        "claims.yml": yaml.safe_dump({"labels": LABELS, "claims": entries}),
        "notebooks/01_a.md": "# A\n\n## The check\n\n```{code-cell}\n## not a heading\n```\n",
        "tests/test_a.py": "def test_one():\n    pass\n",
        "ERRATA.md": "# Errata\n" + "".join(f"\n### Wrong constant ({name}, `lem:b`)\n" for name in errata),
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    cell = nbformat.v4.new_code_cell("1", execution_count=1)
    cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text="C9 holds: text: is not read\n")]
    cell.outputs += [nbformat.v4.new_output("display_data", data={MIME: line.fields}) for line in evidence]
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), root / "notebooks/01_a.ipynb")
    return root


def more(*lines: Line) -> tuple[Line, ...]:
    return (*LINES, *lines)


def changed(number: int, **fields) -> list[dict]:
    """The entries with fields of one changed; None removes a field."""
    entries = [dict(entry) for entry in ENTRIES]
    entries[number - 1].update(fields)
    return [{k: v for k, v in entry.items() if v is not None} for entry in entries]


def test_status_follows_from_the_evidence(tmp_path):
    registry = load_registry(make(tmp_path))
    assert [registry.verdict(claim) for claim in registry.claims] == [
        "verified", "verified with a margin of 57 %", "corrected", "refuted", "not checked",
    ]  # fmt: skip
    assert faults(registry, tmp_path) == []
    assert [claim.id for claim in registry.select(status="verified")] == ["C1", "C2"]
    assert [claim.id for claim in registry.select(label="lem:b", status="refuted")] == ["C4"]
    assert len(registry.select(notebook="01")) == 4


def test_attained_bounds_are_named(tmp_path):
    evidence = [
        Line("C2", "holds", "a", "b", reached=99.9),
        Line("C2", "holds", "a", "b", reached=99, largest=99),
    ]
    registry = load_registry(make(tmp_path, ENTRIES[1:2], evidence))
    assert registry.verdict(registry.claims[0]) == "verified, attained to 99.9 %"


def test_a_margin_that_rounds_to_nothing_is_not_said_to_be_none(tmp_path):
    registry = load_registry(make(tmp_path, ENTRIES[1:2], [Line("C2", "holds", "a", "b", largest=100)]))
    assert registry.verdict(registry.claims[0]) == "verified with a margin below 1 %"


@pytest.mark.parametrize(
    ("entries", "evidence", "errata", "problem"),
    [
        (changed(1, label="lem:c"), LINES, "34", "C1: the paper has no label 'lem:c'"),
        (changed(1, tests=["tests/test_a.py::test_two"]), LINES, "34", "C1: tests/test_a.py::test_two does"),
        (changed(1, tests=["tests/test_b.py::test_one"]), LINES, "34", "C1: tests/test_b.py::test_one does"),
        (changed(1, notebook="02_b#the-check"), LINES, "34", "C1: the notebook 02_b does not exist"),
        (changed(1, notebook="01_a#not-a-heading"), LINES, "34", "C1: 01_a has no section #not-a-heading"),
        (changed(1, notebook=None), LINES, "34", "C1: evidence, but no notebook"),
        (changed(1, reason="too hard"), LINES, "34", "C1: a reason why it is not checked"),
        (changed(1, instead="$1 = 2$"), LINES, "34", "C1: verified, but the entry says that something else"),
        (changed(3, instead=None), LINES, "34", "C3: corrected, but the entry does not say what holds"),
        (changed(4, instead=None), LINES, "34", "C4: refuted, but the entry does not say what holds"),
        (changed(1, statement="a <= 1"), LINES, "34", "C1: '<' outside of a formula: a <= 1"),
        (changed(2, assumptions=["b > 0"]), LINES, "34", "C2: '>' outside of a formula: b > 0"),
        (changed(3, instead="$|a|$"), LINES, "34", "C3: a bar in $|a|$"),
        (changed(5, reason=None), LINES, "34", "C5: no evidence, and no reason why"),
        (changed(2, depends_on=["C8"]), LINES, "34", "C2: depends on C8, which has no entry"),
        (changed(1, depends_on=["C3"]), LINES, "34", "depends_on goes in a circle: "),
        ([*ENTRIES, ENTRIES[4]], LINES, "34", "C5 is there twice"),
        (ENTRIES[:4], more(Line("C7", "holds", "a", "b")), "34", "C7: evidence in 01_a, but no entry"),
        (ENTRIES, [line for line in LINES if (line.claim, line.verdict) != ("C1", "caught")], "34",
          "C1: no wrong variant was caught"),
        (ENTRIES, LINES, "4", "C3: corrected, but ERRATA.md has no section on it"),
        (ENTRIES, LINES, "134", "C1: a section of ERRATA.md, but no counterexample is on record"),
    ],
)  # fmt: skip
def test_every_disagreement_is_named(tmp_path, entries, evidence, errata, problem):
    root = make(tmp_path, entries, evidence, [f"C{digit}" for digit in errata])
    found = faults(load_registry(root), root)
    assert len([line for line in found if line.startswith(problem)]) == 1, found


def test_results_of_the_project_have_no_label(tmp_path):
    ours = {"id": "R1", "statement": "fast", "kind": "rate", "notebook": "01_a#the-check"}
    evidence = more(Line("R1", "holds", "a", "b"), Line("R1", "caught", "c", "d"))
    root = make(tmp_path, [*ENTRIES, ours], evidence)
    assert faults(load_registry(root), root) == []
    root = make(tmp_path, [*ENTRIES, ours | {"label": "lem:a"}], evidence)
    assert faults(load_registry(root), root) == ["R1: a result of this project has no label of the paper"]


def test_evidence_of_the_recorded_runs_is_read_from_its_file(tmp_path):
    make(tmp_path, ENTRIES[:1], [])
    (tmp_path / f"{RESULTS}.json").write_text(json.dumps([LINES[0].fields]))
    (found,) = load_registry(tmp_path).found
    assert (found.line, found.notebook) == (LINES[0], RESULTS)


def test_page_and_graph_are_checked_against_the_evidence(tmp_path):
    registry = load_registry(make(tmp_path))
    with pytest.raises(FailureError, match=r"book/claims\.md, book/claims_graph\.svg: not what"):
        claims_page.check(registry, tmp_path)
    page, graph = claims_page.write(registry, tmp_path)
    claims_page.check(registry, tmp_path)
    assert "5 entries: 2 verified, 1 corrected, 1 refuted, 1 not checked." in page.read_text()
    assert r"| $a \le b_c$ for all\* $a$ |" in page.read_text()
    assert r"| ✎ corrected | $a \le \frac12c$ |" in page.read_text()
    assert r"- Holds instead: $a \le \frac12c$" in page.read_text()
    assert graph.read_text().count('<a href="#c') == 5
    other = load_registry(make(tmp_path, evidence=more(Line("C2", "holds", "a", "b", largest=44))))
    with pytest.raises(FailureError, match=r"book/claims\.md, book/claims_graph\.svg: not what"):
        claims_page.check(other, tmp_path)


def test_panels_are_filled_in_both_files_of_a_notebook_and_checked(tmp_path):
    root = make(tmp_path)
    text, pair = root / "notebooks/01_a.md", root / "notebooks/01_a.ipynb"
    before, after = "Before.\n\n<!-- panel: begin -->\n", "<!-- panel: end -->\n\nAfter.\n"
    text.write_text(f"{before}{after}{text.read_text()}")
    notebook = nbformat.read(pair, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_markdown_cell(before + after))
    nbformat.write(notebook, pair)
    registry = load_registry(root)
    claims_page.write(registry, root)
    claims_page.check(registry, root)
    table = text.read_text().removeprefix(before).partition(after)[0]
    assert table.split("\n")[:4] == [
        "",
        "| claim | as stated | verdict | holds instead |",
        "|---|---|---|---|".replace("---", " --- "),
        "| [C1](../book/claims.md#c1) | $1 = 1$ | ✓ verified |  |",
    ]
    assert r"| $a \le c$ | ✎ corrected | $a \le \frac12c$ |" in table
    filled = nbformat.read(pair, as_version=4)
    assert filled.cells[0].source == f"{before}{table}{after}"
    assert filled.cells[1:] == notebook.cells[1:]
    for file in (text, pair):
        written = file.read_text()
        file.write_text(written.replace("12c", "13c"))
        with pytest.raises(FailureError, match=rf"^notebooks/{file.name}: not what"):
            claims_page.check(registry, root)
        file.write_text(written)


def test_a_panel_of_claims_that_all_hold_has_no_column_for_what_holds_instead(tmp_path):
    registry = load_registry(make(tmp_path, ENTRIES[:2]))
    assert "instead" not in claims_page.panel(registry, "01_a")


def test_at_80_columns_a_statement_has_a_line_of_its_own(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        cli.main(["claims", "--notebook", "02"])
    lines = capsys.readouterr().out.splitlines()
    widths = [cell_len(line) for line in lines]  # which an accent does not widen
    assert 60 < max(widths) <= 80
    assert not any("$" in line or "\\" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("claims: [", "not valid YAML"),
        ("labels: {}\nclaims: [{id: X1, statement: a, kind: identity}]", r"claims\.0\.id"),
        (
            "labels: {}\nclaims: [{id: C1, statement: a, kind: identity, status: verified}]",
            r"claims\.0\.status",
        ),
        ("labels: {}\nclaims: [{id: C1, statement: a, kind: guess}]", r"claims\.0\.kind"),
    ],
)
def test_a_file_that_is_no_registry_is_refused(tmp_path, text, message):
    (tmp_path / "claims.yml").write_text(text)
    with pytest.raises(UsageError, match=message):
        load_registry(tmp_path)


def test_unknown_filters_name_what_there_is(tmp_path):
    registry = load_registry(make(tmp_path))
    for name, value in {"status": "proved", "label": "lem:c", "notebook": "07"}.items():
        with pytest.raises(UsageError, match=value):
            registry.select(**{name: value})


def test_headings_have_the_anchors_of_code_hosting_pages():
    assert slug("How large can the slope be?") == "how-large-can-the-slope-be"
    assert slug("The matrix A(x)") == "the-matrix-ax"
    assert headings("# One\n```python\n# two\n```\n### Three_3  \n") == {"one", "three_3"}


def test_command(capsys):
    for arguments in (["claims", "--label", "lem:fd-det-origin"], ["claims", "--status", "corrected"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        assert not ended.value.code
        assert "entries" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["claims", "--json", "--notebook", "01"])
    rows = json.loads(capsys.readouterr().out)
    assert {"C1", "C2", "C3", "C4"} <= {row["id"] for row in rows}
    with pytest.raises(SystemExit) as ended:
        cli.main(["claims", "--status", "proved"])
    assert ended.value.code == 2


def test_the_registry_of_this_project_is_in_order():
    registry = load_registry(ROOT)
    assert faults(registry, ROOT) == []
    claims_page.check(registry, ROOT)
    numbers = {int(claim.id[1:].rstrip(ascii_lowercase)) for claim in registry.claims if claim.id[0] == "C"}
    assert numbers == set(range(1, 35))


def test_the_errata_count_the_cases_of_the_evidence():
    registry, said = load_registry(ROOT), 0
    for section in (ROOT / "ERRATA.md").read_text(encoding="utf-8").split("\n### ")[1:]:
        title, _, text = section.partition("\n")
        lines = [found.line for found in registry.found if found.line.claim in claims_in(title)]
        counts = {number for line in lines for number in COUNT.findall(line.figure)}
        for number in CHECKED.findall(text):
            assert number.replace(",", "") in counts, f"{title}: {number} is not a count of its evidence"
            said += 1
    assert said >= 12
