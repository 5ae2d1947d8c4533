"""Statements, proofs, formulas and references: plain in the sources, directives and links in the book."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from compendium.book import crossref, statements
from compendium.book.statements import Label, check, to_myst
from compendium.claims.registry import load_registry
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


def test_the_sources_are_well_formed_and_name_what_there_is():
    labels = statements.read(ROOT)
    known = crossref.objects(crossref.modules((ROOT / crossref.API).read_text(encoding="utf-8")))
    assert sum(not label.startswith("eq-") for label in labels) > 80
    assert len(crossref.implementations(labels, known)) > 50


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


def test_the_api_reference_has_every_public_module():
    api = (ROOT / crossref.API).read_text(encoding="utf-8")
    found = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "mlogb_core").rglob("*.py")
        if not path.name.startswith("_")
    }
    assert set(crossref.modules(api)) == found


KNOWN = {"jacobian": "mlogb_core.link.jacobian", "link.jacobian": "mlogb_core.link.jacobian"}


@pytest.fixture(scope="module")
def registry():
    return load_registry(ROOT)


@pytest.mark.parametrize(
    ("text", "linked"),
    [
        ("the `jacobian` of", "the {py:obj}`jacobian <mlogb_core.link.jacobian>` of"),
        ("`link.jacobian(p)`", "{py:obj}`link.jacobian(p) <mlogb_core.link.jacobian>`"),
        ("`hessian` ``jacobian`` {eq}`jacobian`", None),
        ("# The `jacobian`", None),
        ("[the `jacobian`](x.md) and $`jacobian`$", None),
        ("```python\n`jacobian` C1\n```", None),
        (
            "`mlogb_core/link.py`",
            '<a href="../_modules/mlogb_core/link.html"><code>mlogb_core/link.py</code></a>',
        ),
        ("`lem:fd-det-origin`", "[`lem:fd-det-origin`](../claims.md#c"),
    ],
)
def test_prose_is_linked(text, linked, registry):
    written = crossref.link_prose(text, "notebooks/a.ipynb", KNOWN, registry)
    assert written.startswith(linked) if linked else written == text


def test_a_place_that_the_paper_does_not_have_is_named(registry):
    with pytest.raises(FailureError, match=r"a\.md names 'lem:nothing', which is not a label of the paper"):
        crossref.link_prose("by `lem:nothing`", "a.md", {}, registry)
    with pytest.raises(FailureError, match=r"docstring of f names 'lem:nothing'"):
        crossref.annotate(["By `lem:nothing`."], "f", registry, {})


def test_docstrings_lead_to_claims_statements_and_sections(registry):
    claim = next(claim for claim in registry.claims if claim.label == "lem:fd-det-origin")
    lines = ["As :math:`a` of `lem:fd-det-origin`, see `jacobian` and `other`."]
    crossref.annotate(
        lines, "f", registry, KNOWN, {"lem-a": "Title"}, {claim.notebook: "Sketch: Determinant"}
    )
    text = "\n".join(lines)
    assert (
        f"``lem:fd-det-origin`` (Lemma 6, Appendix A; `{claim.id} <claims.html#{claim.id.lower()}>`__" in text
    )
    assert ":py:obj:`jacobian <mlogb_core.link.jacobian>` and `other`" in text
    assert "*Proved about it:* :prf:ref:`lem-a` (Title)." in text
    assert f"`Sketch: Determinant <notebooks/{claim.notebook.replace('#', '.html#')}>`__" in text


def test_a_docstring_that_names_nothing_stays(registry):
    lines = ["One line.", ""]
    crossref.annotate(lines, "f", registry, KNOWN)
    assert lines == ["One line.", ""]


def test_objects_may_be_called_by_any_part_of_their_name():
    known = crossref.objects(["mlogb_core.link", "mlogb_core.curvature.dense", "mlogb_core.curvature.none"])
    assert known["jacobian"] == known["link.jacobian"] == "mlogb_core.link.jacobian"
    assert known["mlogb_core.curvature.DenseCurvature"] == "mlogb_core.curvature.dense.DenseCurvature"
    assert known["NoCurvature.add"] == "mlogb_core.curvature.none.NoCurvature.add"
    assert not {"Array", "np", "add", "state_dict"} & set(known)


def test_a_name_in_two_modules_leads_nowhere(monkeypatch):
    for name in ("first", "second"):
        module = ModuleType(name)
        exec("def shared():\n    'One.'\ndef undocumented(): ...", vars(module))
        monkeypatch.setitem(sys.modules, name, module)
    known = crossref.objects(["first", "second"])
    assert known == {n: n for n in ("first", "second", "first.shared", "second.shared")}


def test_a_statement_must_name_an_object_of_the_library():
    label = Label("notebooks/a.md", 4, "Lemma", ("hessian",))
    with pytest.raises(FailureError, match=r"notebooks/a\.md:4: the library has no object 'hessian'"):
        crossref.implementations({"lem-a": label}, KNOWN)


def test_names_that_a_notebook_binds_are_its_own():
    code = [
        "from mlogb_core.link import jacobian\nfrom scipy import stats as s",
        "def f(a):\n    b = a",
        "for i in x: pass",
    ]
    assert crossref.bound(code) == {"s", "f", "a", "b", "i"}


def test_a_source_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "notebooks").mkdir()
    page = tmp_path / "notebooks" / "01_a.md"
    page.write_bytes(b"\xff")
    with pytest.raises(FailureError, match=r"01_a\.md is not UTF-8"):
        statements.read(tmp_path)
    page.write_text("No title.\n")
    with pytest.raises(FailureError, match=r"notebooks/01_a\.md: there is no heading"):
        crossref.section_titles(tmp_path)


def test_a_cell_that_is_not_plain_python_is_named(tmp_path):
    notebook = {"cells": [{"cell_type": "code", "source": "%matplotlib inline"}]}
    (tmp_path / "a.ipynb").write_text(json.dumps(notebook))
    with pytest.raises(FailureError, match=r"a\.ipynb: a code cell is not plain Python"):
        crossref.link_sources(tmp_path, ROOT)


def test_statements_are_numbered_within_their_notebook():
    numbers = {
        "notebooks/05_projection": {
            "theorem": {"lem-b": (31,), "thm-a": (30,)},
            "displaymath": {"eq-a": (7,)},
        },
        "notebooks/experiments/mnist": {"figure": {"fig": (1,)}},
    }
    crossref.number_by_notebook(numbers)
    assert numbers["notebooks/05_projection"] == {
        "theorem": {"lem-b": (5, 2), "thm-a": (5, 1)},
        "displaymath": {"eq-a": (5, 1)},
    }
    assert numbers["notebooks/experiments/mnist"] == {"figure": {"fig": (1,)}}
