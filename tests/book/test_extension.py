"""The extension of the book: links of the sources, names in prose and docstrings, numbers and tooltips."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

pytest.importorskip("sphinx", reason='the book needs Sphinx: pip install ".[compendium]"')

from docutils import nodes
from docutils.core import publish_doctree
from myst_parser.parsers.docutils_ import Parser
from sphinx import addnodes

from compendium.book import extension, statements
from compendium.book.build import gather
from compendium.book.extension import Book, bound, implementations, modules, objects, tooltip
from compendium.book.statements import Label
from compendium.report import figures_page
from compendium.runs.run import find_runs
from compendium.system.paths import FailureError

#: It prepares all pages of the book.
SLOW_FIXTURES = ("sources",)
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def book() -> Book:
    return Book(ROOT)


def app(docname: str, **env) -> SimpleNamespace:
    return SimpleNamespace(env=SimpleNamespace(docname=docname, **env))


def parsed(text: str) -> nodes.document:
    """A Markdown text as docutils has it, without Sphinx."""
    settings = {
        "myst_enable_extensions": ["dollarmath"],
        "myst_suppress_warnings": ["myst"],
        "doctitle_xform": False,
    }
    return publish_doctree(text, parser=Parser(), settings_overrides=settings)


def links(doctree: nodes.document) -> list[tuple[str, str]]:
    """The links that were made: their texts and targets."""
    found = []
    for node in doctree.findall(lambda node: isinstance(node, (addnodes.pending_xref, nodes.reference))):
        if isinstance(node, nodes.reference):
            found.append((node.astext(), node.get("refuri", node.get("refid", ""))))
        else:
            anchor = node.get("reftargetid")
            found.append((node.astext(), node["reftarget"] + (f"#{anchor}" if anchor else "")))
    return found


# ---- the sources -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("docname", "text", "prepared"),
    [
        ("index", "[e](rerun.md)", "[e](rerun.md)"),
        ("index", "[f](../notebooks/01_model.md#x)", "[f](notebooks/01_model.ipynb#x)"),
        ("ERRATA", "[e](book/rerun.md)", "[e](rerun.md)"),
        ("benchmarks/README", "![a b](../figures/scale.png)", "![a b](../figures/scale.png)"),
        ("index", "![a b](../figures/scale.png)", "![a b](figures/scale.png)"),
        ("notebooks/01_model", "[f](../book/explorer.md) [g](02_woodbury_inverse.md#x)",
         "[f](../explorer.md) [g](02_woodbury_inverse.ipynb#x)"),
        ("notebooks/01_model", "[d](experiments/mnist.md) [r](../RESULTS.md#x)",
         "[d](experiments/mnist.ipynb) [r](../RESULTS.md#x)"),
        ("notebooks/01_model", "[a](../mlogb_core/link.py) b", "a b"),
        ("index", "[x](../CITATION.cff) [y](../benchmarks/results/bench.json)", "x y"),
        ("notation", "[`f`](../compendium/theory/sketch.py#f)", "[`f`](#compendium.theory.sketch.f)"),
        ("ERRATA", "[`g`](mlogb_core/link.py#A.g)", "[`g`](#mlogb_core.link.A.g)"),
        ("index", "$f[x](t)$ [u](https://a.org/b.md) [v](#here)", None),
        ("index", "```\n[x](../CITATION.cff)\n```", None),
    ],
)  # fmt: skip
def test_links_lead_to_pages_of_the_book_or_become_text(book, docname, text, prepared):
    assert book.prepared(docname, text) == (text if prepared is None else prepared)


def test_a_link_to_a_file_that_is_not_there_is_named(book):
    with pytest.raises(FailureError, match=r"ERRATA links to book/nothing\.md, which is not there"):
        book.prepared("ERRATA", "[x](book/nothing.md)")


@pytest.mark.slow
def test_parts_of_pages_are_computed_from_what_they_quote(book):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    page = (ROOT / "book" / "claims.md").read_text(encoding="utf-8")
    assert f"\n{book.prepared('index', '<!-- book: counts -->')}\n" in page
    result = book.prepared("index", "<!-- book: result -->").splitlines()
    assert len(result) > 8  # three sentences and a table
    assert "\n".join(result) in readme
    verdicts = book.prepared("index", "<!-- book: verdicts -->")
    page_of_results = (ROOT / "RESULTS.md").read_text(encoding="utf-8")
    rows = verdicts.strip().splitlines()[2:]
    assert len(rows) > 5
    assert all(f" {row.rstrip('|').strip()} |" in page_of_results for row in rows)
    assert verdicts.count("|") > 20
    citation = book.prepared("rerun", "<!-- book: citation -->")
    assert "author = {He, Linzhe and Zhang, Yu-Jie and Yang, Sifan and Zhang, Lijun}" in citation
    assert "version = {0." in citation
    with pytest.raises(FailureError, match="no part 'nothing'"):
        book.prepared("index", "<!-- book: nothing -->")


def test_an_entry_of_the_api_reference_is_a_directive(book):
    directive = "```{eval-rst}\n.. automodule:: mlogb_core.link\n   :members:\n```"
    assert book.prepared("api", "<!-- automodule mlogb_core.link -->") == directive


@pytest.fixture(scope="module")
def sources(book, tmp_path_factory) -> dict[str, str]:
    """All sources of the book as Sphinx gets them, by their paths; of notebooks, the prose."""
    folder = gather(tmp_path_factory.mktemp("book") / "source")
    found = {}
    for path in [*folder.rglob("*.ipynb"), *folder.rglob("*.md")]:
        name = path.relative_to(folder).as_posix()
        source = [path.read_text(encoding="utf-8")]
        docname = name.rpartition(".")[0]
        book.read_source(app(docname, doc2path=lambda _, path=path: path), docname, source)
        if path.suffix == ".ipynb":
            cells = [cell for cell in json.loads(source[0])["cells"] if cell["cell_type"] == "markdown"]
            source = ["\n\n".join(cell["source"] for cell in cells)]
        found[name] = source[0]
    return found


def test_the_sources_are_gathered_and_their_links_lead_to_pages(sources):
    listed = re.findall(r"^(?:notebooks/[\w/]+|[A-Za-z]\w+(?:/\w+)?)$", sources["index.md"], re.MULTILINE)
    assert len(listed) > 25
    pages = {name.rpartition(".")[0] for name in sources}
    assert pages - set(listed) == {"index"}
    assert set(listed) <= pages
    for name, text in sources.items():
        for target in re.findall(r"\]\(([\w./-]+\.(?:md|ipynb))(?:#[^)]*)?\)", statements.without_code(text)):
            assert str((Path("/") / name).parent.joinpath(target).resolve()).lstrip("/") in sources, (
                name,
                target,
            )


def test_notebooks_of_experiments_name_their_recorded_runs(sources):
    for run in find_runs(profile="paper"):
        page = sources[f"notebooks/experiments/{run.record['experiment']}.ipynb"]
        (said,) = [part for part in page.split("\n\n") if part.startswith("*Recorded runs:*")]
        assert f"[{run.path.name}](../../figures.md#{figures_page.anchor(run)})" in said


def test_a_cell_that_is_not_plain_python_is_named(book):
    cells = [{"cell_type": "code", "source": "%matplotlib inline"}]
    with pytest.raises(FailureError, match=r"notebooks/a: a code cell is not plain Python"):
        book.read_source(
            app("notebooks/a", doc2path=lambda _: "a.ipynb"), "notebooks/a", [json.dumps({"cells": cells})]
        )


# ---- the parsed pages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("*Claims:* C5 (a), C20a to C20b.", ["C5", "C20a", "C20b"]),
        ("(R24, C6).", ["R24", "C6"]),
        ("C99 and C5x, C5-like, a/C5", []),
        ("# On C5\n\n## C6 (C5)\nC5", ["C5"]),
        ("$C5$ and `C5` and [C5](#x) C6", ["C6"]),
        ("```\nC5\n```\nC5\n````\n```\nC6\n````\n", ["C5"]),
        ("$$\nC5\n$$\n\nC6", ["C6"]),
        ("![C5](x.png) C6", ["C6"]),
        ("| a |\n|---|\n| C5 |", ["C5"]),
    ],
)
def test_mentions_of_claims_in_prose_become_links(book, text, found):
    doctree = parsed(text)
    before = doctree.astext()
    book.link_prose(app("notebooks/a"), doctree)
    assert [link for link in links(doctree) if link[1] != "x"] == [(n, f"claims#{n.lower()}") for n in found]
    assert doctree.astext() == before


def test_pages_but_notebooks_and_errata_keep_their_mentions(book):
    doctree = parsed("C5 in a page of results")
    book.link_prose(app("RESULTS"), doctree)
    assert links(doctree) == []


def test_headings_of_errata_that_name_claims_get_a_line_of_links(book):
    doctree = parsed(
        "# Errata\n\n### Wrong (C5, C6, C99, `lem:fd-det-origin`)\n\nText\n\n### Right (lem:b)\n\nText\n"
    )
    book.link_prose(app("ERRATA"), doctree)
    assert links(doctree) == [("C5", "claims#c5"), ("C6", "claims#c6")]
    assert doctree.astext().count("In the registry: C5, C6.") == 1


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("the `jacobian` of", "mlogb_core.link.jacobian"),
        ("`link.jacobian(p)`", "mlogb_core.link.jacobian"),
        ("`mlogb_core/link.py`", "../_modules/mlogb_core/link.html"),
        ("`mlogb_core/yet_to_be_written.py`", None),
        ("`lem:fd-det-origin`", "claims#c"),
        ("`nothing_of_this_name`", None),
        ("# The `jacobian`\n\nText", None),
        ("[the `jacobian`](#x) and $`jacobian`$", "x"),
        ("```python\n`jacobian` C1\n```", None),
    ],
)
def test_inline_code_is_linked(book, text, target):
    doctree = parsed(text)
    before = doctree.astext()
    book.link_prose(app("notebooks/a"), doctree)
    found = [target for _, target in links(doctree)]
    assert len(found) == (target is not None)
    assert all(one.startswith(target) for one in found)
    assert doctree.astext() == before


def test_names_that_a_notebook_binds_are_its_own(book):
    code = [
        "from mlogb_core.link import jacobian\nfrom scipy import stats as s",
        "def f(a):\n    b = a",
        "for i in x: pass",
    ]
    assert bound(code) == {"s", "f", "a", "b", "i"}
    cells = [{"cell_type": "code", "source": "jacobian = 1"}]
    source = [json.dumps({"cells": cells})]
    book.read_source(app("notebooks/b", doc2path=lambda _: "b.ipynb"), "notebooks/b", source)
    doctree = parsed("`jacobian`")
    book.link_prose(app("notebooks/b"), doctree)
    assert links(doctree) == []


def test_the_picture_of_the_claims_becomes_the_graph_itself(book):
    doctree = parsed("![Graph](claims_graph.svg)\n")
    book.link_prose(app("claims"), doctree)
    assert not list(doctree.findall(nodes.image))
    (raw,) = doctree.findall(nodes.raw)
    assert raw.astext().startswith('<figure class="claims-graph">\n<svg')
    with pytest.raises(ValueError, match="not enough values"):
        book.link_prose(app("claims"), parsed("no picture"))


def test_a_table_of_symbols_has_a_class(book):
    doctree = parsed(
        "| symbol | meaning |\n|---|---|\n| a | b |\n\n| sign | meaning |\n|---|---|\n| a | b |\n"
    )
    book.link_prose(app("notebooks/a"), doctree)
    assert ["symbols" in table["classes"] for table in doctree.findall(nodes.table)] == [True, False]


def test_the_panel_of_a_derivation_has_a_class(book):
    row = "| a | b |\n|---|---|\n| 1 | 2 |\n\n"
    doctree = parsed(f"{row}<!-- panel: begin -->\n\n{row}<!-- panel: end -->\n\n{row}")
    book.link_prose(app("notebooks/a"), doctree)
    assert ["panel" in table["classes"] for table in doctree.findall(nodes.table)] == [False, True, False]


def test_a_place_that_the_paper_does_not_have_is_named(book):
    with pytest.raises(FailureError, match=r"a names 'lem:nothing', which is not a label of the paper"):
        book.link_prose(app("a"), parsed("by `lem:nothing`"))
    with pytest.raises(FailureError, match=r"docstring of f names 'lem:nothing'"):
        book.docstring(None, "", "f", None, None, ["By `lem:nothing`."])


# ---- the docstrings --------------------------------------------------------------------------------------


def test_docstrings_lead_to_claims_statements_and_sections(book):
    claim = next(claim for claim in book.registry.claims if claim.label == "lem:fd-det-origin")
    name, (label, *_) = next(iter(book.statements.items()))
    lines = ["As :math:`a` of `lem:fd-det-origin`, see `jacobian` and `other`."]
    book.docstring(None, "", name, None, None, lines)
    text = "\n".join(lines)
    linked = f":page:`{claim.id} <claims#{claim.id.lower()}>`"
    assert f"``lem:fd-det-origin`` (Lemma 6, Appendix A; {linked}" in text
    assert ":py:obj:`jacobian <mlogb_core.link.jacobian>` and `other`" in text
    assert f"*Proved about it:* :prf:ref:`{label}` ({book.labels[label].title})" in text
    page = claim.notebook.partition("#")[0]
    assert f"*Checked in* :page:`notebooks/{page}`: :page:`notebooks/{claim.notebook}`" in text
    assert lines[-1] == ""


def test_a_docstring_that_names_nothing_stays(book):
    lines = ["One line.", ""]
    book.docstring(None, "", "f", None, None, lines)
    assert lines == ["One line.", ""]


def test_objects_may_be_called_by_any_part_of_their_name():
    known = objects(["mlogb_core.link", "mlogb_core.curvature.dense", "mlogb_core.curvature.none"])
    assert known["jacobian"] == known["link.jacobian"] == "mlogb_core.link.jacobian"
    assert known["mlogb_core.curvature.DenseCurvature"] == "mlogb_core.curvature.dense.DenseCurvature"
    assert known["NoCurvature.add"] == "mlogb_core.curvature.none.NoCurvature.add"
    assert not {"Array", "np", "add", "state_dict"} & set(known)


def test_a_name_in_two_modules_leads_nowhere(monkeypatch):
    for name in ("first", "second"):
        module = ModuleType(name)
        exec("def shared():\n    'One.'\ndef undocumented(): ...", vars(module))
        monkeypatch.setitem(sys.modules, name, module)
    known = objects(["first", "second"])
    assert known == {n: n for n in ("first", "second", "first.shared", "second.shared")}


def test_statements_name_objects_of_the_library(book):
    assert len(book.statements) > 50
    label = Label("notebooks/a.md", 4, "Lemma", ("no_such_object",))
    with pytest.raises(FailureError, match=r"notebooks/a\.md:4: the library has no object 'no_such_object'"):
        implementations({"lem-a": label}, book.objects)


def test_the_api_reference_has_every_public_module():
    """Of the compiled form the package alone is public: its modules are kernels, which it calls."""
    api = (ROOT / extension.API).read_text(encoding="utf-8")
    found = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in [*(ROOT / "mlogb_core").rglob("*.py"), *(ROOT / "compendium/theory").glob("*.py")]
        if not path.name.startswith("_") and path.parent.name != "compiled"
    } | {"mlogb_core.compiled"}
    assert set(modules(api)) <= found
    assert {name for name in found if name.startswith("mlogb_core.")} <= set(modules(api))


# ---- numbers and tooltips --------------------------------------------------------------------------------


def test_statements_are_numbered_within_their_notebook():
    numbers = {
        "notebooks/05_projection": {
            "theorem": {"lem-b": (31,), "thm-a": (30,)},
            "displaymath": {"eq-a": (7,)},
        },
        "notebooks/four_lemmas": {"theorem": {"lem-d": (4,), "lem-c": (3,)}},
        "notebooks/experiments/mnist": {"figure": {"fig": (1,)}},
    }
    extension.number_by_notebook(numbers)
    assert numbers["notebooks/05_projection"] == {
        "theorem": {"lem-b": (5, 2), "thm-a": (5, 1)},
        "displaymath": {"eq-a": (5, 1)},
    }
    assert numbers["notebooks/four_lemmas"] == {"theorem": {"lem-d": (2,), "lem-c": (1,)}}
    assert numbers["notebooks/experiments/mnist"] == {"figure": {"fig": (1,)}}


@pytest.mark.parametrize(
    ("page", "title"),
    [("notebooks/05_projection", "# 05 · A title"), ("notebooks/four_lemmas", "# A title")],
)
def test_the_title_of_a_notebook_has_the_number_that_the_text_calls_it_by(book, page, title):
    cells = [{"cell_type": "markdown", "source": ["# A title\n", "\n", "# More\n"]}]
    source = [json.dumps({"cells": cells})]
    book.read_source(app(page, doc2path=lambda _: "b.ipynb"), page, source)
    assert json.loads(source[0])["cells"][0]["source"].splitlines() == [title, "", "# More"]


def test_a_quoted_line_of_code_is_a_link_to_the_line(book):
    lines = (ROOT / extension.LITERAL).read_text().splitlines()
    number = next(place for place, line in enumerate(lines, start=1) if line.startswith("class LiteralEOFD"))
    doctree = parsed(f"| paper | code |\n|---|---|\n| $x$ | `{lines[number - 1]}` |\n")
    book.link_prose(app("algorithm"), doctree)
    assert links(doctree) == [(lines[number - 1], f"_modules/mlogb_core/literal.html#L{number}")]


@pytest.mark.parametrize(
    ("name", "shown", "given", "title"),
    [
        ("Norms of x", "this section", "", "Norms of x"),
        ("Norms of\nx", "Norms of x", "", ""),
        ("Norms of x", "x", "as written", ""),
        ("Factor of it.", "f", "pkg.f", "pkg.f: Factor of it."),
        ("", "x", "", ""),
    ],
)
def test_a_tooltip_says_what_the_text_does_not(name, shown, given, title):
    assert tooltip(name, shown, given, "pkg.f") == title


def test_a_long_tooltip_ends_between_two_words():
    long = tooltip("word " * 100, "x", "", "a")
    assert long.endswith("word …")
    assert len(long) <= 302


def test_links_get_the_names_of_their_targets():
    book = Book.__new__(Book)
    book._names = {}
    target = nodes.document(None, None)
    target += nodes.section("", nodes.title("", "Norms"), ids=["norms", "older-name"])
    lemma = nodes.admonition(
        "", nodes.title("", " (The inverse)"), ids=["lem-a"], realtype="lemma", countertype="theorem"
    )
    signature = addnodes.desc_signature("", "f", ids=["pkg.f"])
    entry = addnodes.desc("", signature, addnodes.desc_content("", nodes.paragraph("", "Factor.")))
    target += [lemma, entry]
    numbers = {"sub/a": {"theorem": {"lem-a": (5, 1)}}}
    book.collect_names(app("sub/a"), target)
    page = nodes.document(None, None)
    given = {
        "a.html#norms": "Norms", "a.html#older-name": "Norms", "a.html#lem-a": "Lemma 5.1 (The inverse)",
        "a.html#pkg.f": "Factor.", "a.html#nothing": None, "../a.html#norms": None, "a.html": None,
    }  # fmt: skip
    page += [nodes.reference("", "here", refuri=uri, internal=True) for uri in given]
    page += nodes.reference("", "here", refuri="https://a.org/a.html#norms")
    book.add_tooltips(app("sub/b", toc_fignumbers=numbers), page, "sub/b")
    assert [link.get("reftitle") for link in page] == [*given.values(), None]
    own = nodes.document(None, None)
    own += nodes.reference("", "here", refid="norms", internal=True)
    book.add_tooltips(app("sub/a", toc_fignumbers=numbers), own, "sub/a")
    assert own[0]["reftitle"] == "Norms"
