"""The book: its sources fit together, and what it quotes is what the code says."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


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
    from compendium import book

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
        for target in re.findall(r"\]\(([\w./-]+\.(?:md|ipynb|png|svg))(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_mathjax_is_the_bundle_that_browsers_run(tmp_path):
    """The package has a module of imports under the same name, with which no formula is typeset."""
    from compendium import book

    program = (book.gather(tmp_path / "source") / "_static" / book.MATHJAX).read_text()
    assert len(program) > 1_000_000
    assert not program.startswith("import ")


def test_links_out_of_the_book_become_text():
    from compendium.book import _linked

    assert _linked("[e](book/rerun.md) [f](../book/explorer.md)") == "[e](rerun.md) [f](../explorer.md)"

    assert (
        _linked("[a](../mlogb_core/link.py) [b](02_woodbury_inverse.md#x)")
        == "a [b](02_woodbury_inverse.ipynb#x)"
    )
    assert (
        _linked("[c](../experiments/mnist.md) [d](claims.md)")
        == "[c](../experiments/mnist.ipynb) [d](claims.md)"
    )
