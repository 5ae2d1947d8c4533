"""The book: its sources fit together, and what it quotes is what the code says."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from pathlib import Path

import pytest

from compendium.system.paths import FailureError, UsageError

ROOT = Path(__file__).resolve().parents[2]


def test_quoted_lines_are_in_the_files_that_are_named():
    page = (ROOT / "book" / "algorithm.md").read_text()
    literal = (ROOT / "mlogb_core" / "literal.py").read_text()
    rows = [row for row in page.splitlines() if row.startswith("|") and "`" in row and "---" not in row]
    quoted = 0
    for row in rows:
        cells = row.strip("|").split(" | ")
        for cell in cells:
            code = re.findall(r"`([^`]+)`", cell)
            if len(code) == 2 and code[0].endswith(".py"):
                assert code[1] in (ROOT / code[0]).read_text(), code
                quoted += 1
            elif len(code) == 1 and not code[0].endswith(".py"):
                assert code[0] in literal, code
                quoted += 1
    assert quoted == 32


def test_the_sources_are_gathered_and_their_links_lead_to_pages(tmp_path):
    from compendium.book import build as book
    from compendium.book.statements import without_code

    folder = book.gather(tmp_path / "source")
    listed = re.findall(
        r"^(?:notebooks/[\w/]+|[A-Za-z]\w+(?:/\w+)?)$", (folder / "index.md").read_text(), re.MULTILINE
    )
    assert len(listed) > 25
    for name in listed:
        assert list(folder.glob(f"{name}.*")), name
    gathered = {
        path.relative_to(folder).with_suffix("").as_posix() for path in folder.glob("notebooks/**/*.ipynb")
    }
    assert gathered <= set(listed), gathered - set(listed)
    for page in [*folder.rglob("*.ipynb"), *folder.rglob("*.md")]:
        prose = without_code(page.read_text())
        for target in re.findall(r"\]\(([\w./-]+\.(?:md|ipynb|png|svg))(?:#[^)]*)?\)", prose):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_mathjax_is_the_bundle_that_browsers_run(tmp_path):
    """The package has a module of imports under the same name, with which no formula is typeset."""
    from compendium.book import build as book

    program = (book.gather(tmp_path / "source") / "_static" / book.MATHJAX).read_text()
    assert len(program) > 1_000_000
    assert not program.startswith("import ")


def test_links_out_of_the_book_become_text():
    from compendium.book.build import _linked

    assert _linked("[e](book/rerun.md) [f](../book/explorer.md)") == "[e](rerun.md) [f](../explorer.md)"

    assert (
        _linked("[a](../mlogb_core/link.py) [b](02_woodbury_inverse.md#x)")
        == "a [b](02_woodbury_inverse.ipynb#x)"
    )
    assert (
        _linked("[c](../experiments/mnist.md) [d](claims.md)")
        == "[c](../experiments/mnist.ipynb) [d](claims.md)"
    )


def test_links_to_names_in_the_library_lead_to_the_api_reference():
    from compendium.book.build import _linked

    assert _linked("[`f`](../compendium/theory/sketch.py#f)") == "[`f`](#compendium.theory.sketch.f)"
    assert _linked("[`g`](mlogb_core/link.py#A.g)") == "[`g`](#mlogb_core.link.A.g)"
    assert _linked("[x](../CITATION.cff) [y](../benchmarks/results/bench.json)") == "x y"


def test_parts_of_pages_are_computed_from_what_they_quote():
    from compendium.book.parts import filled
    from compendium.system.paths import FailureError

    readme = (ROOT / "README.md").read_text()
    assert re.fullmatch(r"\d+ entries: \d+ verified.*", filled("<!-- book: counts -->", ROOT))
    result = filled("<!-- book: result -->", ROOT).splitlines()
    assert len(result) >= 2
    assert all(line in readme for line in result)
    assert filled("a <!-- book: verdicts --> b", ROOT).count("|") > 20
    citation = filled("<!-- book: citation -->", ROOT)
    assert "author = {He, Linzhe and Zhang, Yu-Jie and Yang, Sifan and Zhang, Lijun}" in citation
    assert "version = {0." in citation
    with pytest.raises(FailureError, match="no part 'nothing'"):
        filled("<!-- book: nothing -->", ROOT)


def test_notebooks_of_experiments_name_their_recorded_runs(tmp_path):
    import json

    from compendium.book import build as book
    from compendium.claims.registry import headings
    from compendium.report import figures_page
    from compendium.runs.run import find_runs

    folder = book.gather(tmp_path / "source")
    anchors = headings((folder / "figures.md").read_text())
    for run in find_runs(profile="paper"):
        page = json.loads(
            (folder / "notebooks/experiments" / f"{run.record['experiment']}.ipynb").read_text()
        )
        (said,) = [cell["source"] for cell in page["cells"] if cell.get("id") == "recorded-runs"]
        assert f"[{run.path.name}](../../figures.md#{figures_page.anchor(run)})" in said
        assert figures_page.anchor(run) in anchors


def test_only_notices_to_the_authors_of_extensions_are_left_out():
    import warnings

    from compendium.book import build as book

    def warn(module: str, category: type[Warning]) -> None:
        warnings.warn_explicit("old", category, "file.py", 1, module=module)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with book._without_notices_to_extensions():
            warn("sphinx_proof.domain", PendingDeprecationWarning)
            for module, category in {
                "compendium.book.build": PendingDeprecationWarning,
                "sphinx_proof.domain": DeprecationWarning,
            }.items():
                with pytest.raises(category):
                    warn(module, category)


@pytest.mark.parametrize("failure", [FailureError("no Sphinx"), UsageError("no project")])
def test_a_failure_is_said_in_one_line(failure, monkeypatch):
    from compendium.book import build as book

    def fail():
        raise failure

    monkeypatch.setattr(book, "build", fail)
    with pytest.raises(SystemExit, match=f"^{failure}$"):
        book.main()


def test_two_builds_at_once_wait_for_each_other(tmp_path, monkeypatch):
    """Each empties the folder in which the sources are gathered."""
    pytest.importorskip("sphinx", reason="the book needs Sphinx: pip install .[book]")
    from compendium.book import build as book

    inside, seen = [], []

    def gather(folder):
        inside.append(folder)
        seen.append(len(inside))
        time.sleep(0.2)
        inside.pop()
        raise FailureError("gathered")

    def one_build():
        with contextlib.suppress(FailureError):
            book.build()

    (tmp_path / "experiments.yml").touch()
    monkeypatch.setenv("MLOGB_ROOT", str(tmp_path))
    monkeypatch.setattr(book, "gather", gather)
    builds = [threading.Thread(target=one_build) for _ in range(3)]
    for build in builds:
        build.start()
    for build in builds:
        build.join()
    assert seen == [1, 1, 1]
