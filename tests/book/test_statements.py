"""Statements, proofs, formulas and references: plain in the sources, directives and links in the book."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compendium.book import statements
from compendium.book.statements import Label, check, to_myst
from compendium.system.paths import FailureError

ROOT = Path(__file__).resolve().parents[2]

FIRST = r"""# First

<!-- statement -->
<a id="lem-even"></a>
**Lemma (Squares of even (whole) numbers).** With $n = 2k$ it is
<a id="eq-square"></a>

$$
n^2 = 4k^2. \qquad \text{(square)}
$$

*In code:* `link.jacobian`, `sketch_factor`.
<!-- /statement -->

<!-- proof -->
*Proof.* Multiply.

```text
<!-- proof --> $$ (eq-none)
```

So [(square)](#eq-square). ∎
<!-- /proof -->
"""

SECOND = """# Second

By [Lemma "Squares of even
(whole) numbers"](a.md#lem-even), by the [lemma on squares](a.md#lem-even), and [(square)](a.md#eq-square).
"""

TEXTS = {"notebooks/a.md": FIRST, "notebooks/b.md": SECOND}


def wrong(**changes: tuple[str, str]) -> str:
    """What is said of the two texts with one part of one of them replaced."""
    texts = dict(TEXTS)
    for name, (old, new) in changes.items():
        assert old in texts[f"notebooks/{name}.md"]
        texts[f"notebooks/{name}.md"] = texts[f"notebooks/{name}.md"].replace(old, new, 1)
    with pytest.raises(FailureError) as caught:
        check(texts)
    return str(caught.value)


def test_labels_have_names_places_and_code():
    assert check(TEXTS) == {
        "lem-even": Label(
            "notebooks/a.md", 4, 'Lemma "Squares of even (whole) numbers"', ("link.jacobian", "sketch_factor")
        ),
        "eq-square": Label("notebooks/a.md", 6, "(square)"),
    }
    assert check(TEXTS)["lem-even"].title == "Squares of even (whole) numbers"


def test_a_text_becomes_directives():
    written = to_myst(FIRST, check(TEXTS))
    assert (
        written
        == r"""# First

:::{prf:lemma} Squares of even (whole) numbers
:label: lem-even

With $n = 2k$ it is

$$
n^2 = 4k^2.
$$ (eq-square)

*In code:* `link.jacobian`, `sketch_factor`.
:::

:::{prf:proof}
Multiply.

```text
<!-- proof --> $$ (eq-none)
```

So {eq}`eq-square`. ∎
:::
"""
    )


def test_references_become_numbers_and_keep_their_words():
    written = to_myst(SECOND, check(TEXTS))
    assert written.endswith(
        "By {prf:ref}`lem-even`, by the lemma on squares ({prf:ref}`lem-even`), and {eq}`eq-square`.\n"
    )


def test_a_title_or_a_proof_may_stand_alone():
    text = FIRST.replace("numbers).** With $n = 2k$ it is", "numbers).**").replace(
        "*Proof.* Multiply.", "*Proof.*"
    )
    written = to_myst(text, check({"notebooks/a.md": text}))
    assert ":label: lem-even\n\n\n$$" in written
    assert ":::{prf:proof}\n\n```text" in written


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<!-- /statement -->\n", "", "a.md:14: <!-- proof --> inside of a statement (line 3)"),
        ("<!-- /statement -->", "<!-- /proof -->", "a.md:13: <!-- /proof --> closes nothing but a statement"),
        ("<!-- /proof -->\n", "", "a.md:15: this proof is not closed by <!-- /proof -->"),
        ("# First", "<!-- /proof -->", "a.md:1: <!-- /proof --> closes nothing"),
        ("<!-- proof -->", "<!--proof-->", "a.md:15: '<!--proof-->' is not a delimiter"),
        ("<!-- proof -->", "> <!-- proof -->", "a.md:15: '> <!-- proof -->' is not a delimiter"),
        ("```text", "```{code-cell}", "a.md:18: a new cell inside of a proof (line 15)"),
        ('<a id="lem-even"></a>\n', "", "a.md:4: a statement begins with its label"),
        ("**Lemma (Squares", "**Lemma Squares", "a.md:5: after the label of a statement comes its title"),
        ("**Lemma", "**Theorem", "a.md:4: the label of a Theorem begins with thm-"),
        ("*Proof.*", "*A proof.*", "a.md:16: a proof begins with *Proof.*"),
        (" ∎", "", "a.md:23: a proof ends with ∎"),
        ("\n\n$$\nn^2", "\n\nNow\n\n$$\nn^2", "a.md:6: the anchor 'eq-square' must be followed by a formula"),
        (r"\text{(square)}", r"\text{(cube)}", "a.md:9: the formula 'eq-square' must end with its name"),
        ("# First", ":::{prf:lemma} Old", "a.md:1: ':::' is raw text outside the book"),
        ("# First", "By {eq}`eq-square`", "a.md:1: '{eq}`' is raw text"),
        ("(square)}\n$$", "(square)}\n$$ (eq-square)", "a.md:10: '$$ (eq-square)' is raw text"),
    ],
)  # fmt: skip
def test_what_is_malformed_is_named_with_its_line(old, new, message):
    assert f"notebooks/{message}" in wrong(a=(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("#lem-even", "#lem-odd", "b.md:3: no statement or formula has the label 'lem-odd'"),
        ("a.md#lem-even", "#lem-even", "b.md:3: 'lem-even' is in notebooks/a.md, the link leads"),
        ('"Squares', '"Cubes', "b.md:3: the link calls 'lem-even' Lemma \"Cubes"),
        ("[(square)]", "[(cube)]", "b.md:4: the link calls 'eq-square' (cube), its name is (square)"),
        ("# Second", '<!-- statement -->\n<a id="lem-even"></a>\n**Lemma (B).** C.\n<!-- /statement -->',
         "b.md:2: label 'lem-even' is also in notebooks/a.md:4"),
    ],
)  # fmt: skip
def test_a_bad_reference_is_named_with_its_line(old, new, message):
    assert f"notebooks/{message}" in wrong(b=(old, new))


def test_all_problems_are_said_at_once():
    assert len(wrong(a=(" ∎", ""), b=("#lem-even", "#lem-odd")).splitlines()) == 2


def test_the_sources_are_well_formed():
    assert sum(not label.startswith("eq-") for label in statements.read(ROOT)) > 80


TYPED = (
    "notebooks/**/*.md",
    "ERRATA.md",
    "README.md",
    "CONTRIBUTING.md",
    "book/index.md",
    "book/algorithm.md",
)


@pytest.mark.parametrize("path", [path for pattern in TYPED for path in sorted(ROOT.glob(pattern))], ids=str)
def test_formulas_survive_a_code_hosting_page(path):
    prose = re.sub(r"`[^`]+`", "", statements.without_code(path.read_text(encoding="utf-8")))
    for formula in re.findall(r"\$\$.*?\$\$|\$[^$]+\$", prose, re.DOTALL):
        assert not re.search(r"\\(operatorname|mbox|phantom|newcommand|tag)\b", formula), formula
        assert not re.search(r"\\[^A-Za-z\s\\]|\\\\(?!\n)|\S<\S", formula), (
            f"Markdown eats a part of {formula}"
        )
        assert not re.search(r"\n {0,3}([-+*#]\s|\d+\.\s|=+\n)", formula), (
            f"a line begins a list in {formula}"
        )
    for row in re.findall(r"^\|.*\|$", prose, re.MULTILINE):
        for formula in re.findall(r"\$[^$]+\$", row):
            assert "|" not in formula, f"a bar ends the cell in {formula}"


def test_a_source_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "01_a.md").write_bytes(b"\xff")
    with pytest.raises(FailureError, match=r"01_a\.md is not UTF-8"):
        statements.read(tmp_path)
