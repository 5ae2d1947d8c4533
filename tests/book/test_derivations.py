"""The derivations as a reader sees them: one letter means one thing, and prose has the room."""

from __future__ import annotations

import re
from pathlib import Path

import jupytext
import pytest
from symbol_tables import disagreements, repeated, table, unlisted

from compendium.runs.notebooks import FOLDED

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "book" / "notation.md").read_text(encoding="utf-8")
NOTEBOOKS = {
    path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "notebooks").glob("*.md"))
}
#: All but the guide and the explorer, which derive nothing.
DERIVATIONS = [name for name in NOTEBOOKS if name not in ("00_reading_guide", "17_explorer")]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_letter_means_the_same_here_as_everywhere(name):
    found = disagreements(PAGE, NOTEBOOKS)
    assert "\n".join(problem for problem in found if problem.startswith(f"{name}:")) == ""


def beyond_the_paper() -> list[str]:
    """The notebooks of that part of the book."""
    index = (ROOT / "book" / "index.md").read_text(encoding="utf-8")
    (part,) = re.findall(r":caption: Beyond the paper\n(.*?)^```", index, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"^notebooks/(\w+)$", part, flags=re.MULTILINE)


def test_the_page_of_notation_lists_what_two_notebooks_use_and_all_beyond_the_paper():
    whole = beyond_the_paper()
    assert len(whole) >= 6
    assert set(whole) <= set(NOTEBOOKS)
    assert unlisted(PAGE, NOTEBOOKS, whole) == []


@pytest.mark.parametrize(
    ("other", "whole", "told"),
    [
        ("| $h$ | change of the logits |", (), []),
        ("| $g$ | gradient |", (), ["$g$ of own, other"]),
        ("| $g_t$, $Z$ | gradient; accumulated matrix |", (), ["$g$ of own, other"]),
        ("| $h$ | change of the logits |", ("other",), ["$h$ of other"]),
        ("| $Z_t$, $A(y)$ | accumulated matrix; the matrix of the bonus |", ("other",), []),
    ],
)
def test_a_letter_that_the_page_should_list_is_noticed(other, whole, told):
    found = unlisted(SYMBOLS, {"own": rows("| $g$ | gradient |"), "other": rows(other)}, whole)
    assert [problem.removesuffix(" is not on the page of notation") for problem in found] == told


def test_the_page_of_notation_gives_each_letter_one_meaning():
    assert repeated(PAGE) == []


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("| $D$ | bound of the actions; before a function, the derivative |", 0),
        ("| $K$ | number of actions |", 1),
        ("| $K$ | outcomes, besides the reference |", 1),
        ("| $Z$ | the full Hessian |", 1),
        ("| $Z$ | accumulated matrix, of any round |", 0),
        ("| $A$ | sum of the traces |", 0),
        ("| $A(y)$ | sum of the traces |", 1),
    ],
)
def test_a_page_may_not_give_a_letter_two_meanings(row, told):
    page = SYMBOLS + row + " | [a](b.md) |\n"
    assert len(repeated(page)) == told


def test_the_derivations_have_tables_of_symbols():
    assert len(DERIVATIONS) >= 16
    assert [name for name in DERIVATIONS if len(table(NOTEBOOKS[name])) < 4] == []
    assert len(table(PAGE)) > 80


SYMBOLS = r"""
| symbol | meaning | in code | defined in |
|---|---|---|---|
| $K$, $d$ | outcomes, besides the reference; features | `n` | [a](b.md) |
| $Z_t$, $\lambda$ | accumulated matrix (a sketch); its ridge | | [a](b.md) |
| $\rho_t$, $\rho_{1:t}$ | what round $t$ subtracts; the sum | | [a](b.md) |
| $A(x)$ | the matrix of the bonus | | [a](b.md) |
| $M_K$ | constant of self-concordance: $1$ or $\sqrt2$ | | [a](b.md) |
"""


def rows(*lines: str) -> str:
    return "\n".join(["| symbol | meaning |", "|---|---|", *lines, "", "| other | table |"])


@pytest.mark.parametrize(
    "row",
    [
        "| $K$, $d$ | number of outcomes besides the reference, number of features |",
        r"| $Z = \lambda I + M$ | the accumulated matrix of the algorithm; here exact |",
        r"| $Z_s$, $\lambda > 0$ | accumulated matrix and its ridge |",
        r"| $\rho_s$, $\rho_{1:s}$ | what round $s$ subtracts, the sum |",
        r"| $A_t$ | matrix of the bonus, of the played action |",
        "| $M_K$, $K$ | as in [the model](01_model.md) |",
        "| $g$ | the gradient, a vector |",
    ],
)
def test_a_table_may_say(row):
    assert disagreements(SYMBOLS, {"own": rows("| $g$ | gradient |"), "other": rows(row)}) == []


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("| $K$ | number of actions |", '$K$ is "number of actions", on the page of notation "outcomes"'),
        ("| $K$, $d$ | features, outcomes |", ""),
        ("| $d$ | distance, not features |", "$d$ is"),
        (r"| $Z$ | the full Hessian |", "$Z$ is"),
        (r"| $\rho_t$ | the sum |", r"$\rho_t$ is"),
        (r"| $\rho_{1:s}$ | what round $s$ subtracts |", r"$\rho_{1:s}$ is"),
        (r"| $A$ | the sum of the blocks |", "$A$ is"),
        (r"| $M_K = 1$ | the best constant |", "$M_K$ is"),
        ("| $x$, $g$ | action, the Gram matrix |", '$g$ is "gram matrix", and in own it is "gradient"'),
    ],
)
def test_a_table_may_not_say(row, told):
    found = disagreements(SYMBOLS, {"own": rows("| $g$ | gradient |"), "other": rows(row)})
    if told:
        assert len(found) == 1
        assert found[0].startswith("other: ")
        assert told in found[0]
    else:  # a row of several letters is read as a whole: their order is free
        assert found == []


def test_a_letter_with_an_index_of_its_own_is_a_letter_of_its_own():
    page = SYMBOLS + "| $M_t$ | exact sum | | [a](b.md) |\n"
    assert (
        disagreements(page, {"a": rows("| $M$ | exact sum |", "| $M_K$ | constant of self-concordance |")})
        == []
    )
    assert len(disagreements(page, {"a": rows("| $M$ | constant of self-concordance |")})) == 1


def seen(text: str) -> tuple[int, int]:
    """How many characters of prose and of unfolded code a reader of a notebook's text sees."""
    prose = code = 0
    for cell in jupytext.reads(text, fmt="md:myst").cells:
        if cell.cell_type == "code":
            code += 0 if FOLDED in cell.metadata.get("tags", []) else len(cell.source)
        else:
            shown = re.sub(r"<!--.*?-->|<a id=[^>]*></a>", "", cell.source, flags=re.DOTALL)
            prose += len(re.sub(r"\]\([^()\s]*\)", "]", shown))
    return prose, code


@pytest.mark.parametrize("name", DERIVATIONS)
def test_code_is_at_most_a_third_of_what_a_reader_sees_unfolded(name):
    prose, code = seen(NOTEBOOKS[name])
    assert 3 * code <= prose + code, (
        f"{name}: {code} of {prose + code} characters are unfolded code, {code / (prose + code):.0%}; "
        f"searches, 50 digits, symbolic cells and plots take the tag {FOLDED}"
    )


def test_what_a_reader_sees():
    header = "---\nkernelspec:\n  display_name: a\n  language: python\n  name: python3\n---\n\n"
    prose = 'One [link](to/a.md#place) <!-- panel: begin --><a id="eq-a"></a>\n\n'
    unfolded, folded = (
        "```{code-cell} ipython3\n1 + 1\n```\n\n",
        "```{code-cell} ipython3\n:tags: [hide-input]\n\n2\n```\n",
    )
    assert seen(header + prose + unfolded + folded) == (len("One [link] "), len("1 + 1"))


def test_the_projection_is_read_in_an_hour():
    main = NOTEBOOKS["05_projection"].partition("\n## Appendix\n")[0]
    prose = re.sub(r"^```.*?^```|<!--.*?-->", "", main, flags=re.DOTALL | re.MULTILINE)
    words = re.sub(r"\$\$.*?\$\$|\$[^$]*\$", "formula", prose, flags=re.DOTALL).split()
    assert 1500 < len(words) <= 60 * 60, "sixty words a minute, each formula counted as one"
