"""Every picture has words for those who do not see it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jupytext
import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
PAIRS = sorted(
    path for path in (ROOT / "notebooks").rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts
)
PAGES = [
    *sorted(ROOT.glob("*.md")),
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "book").glob("*.md")),
    *sorted(p for p in (ROOT / "notebooks").rglob("*.md") if ".ipynb_checkpoints" not in p.parts),
]
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")


def problem(text: str | None) -> str | None:
    """What keeps a text from standing in for a picture, if anything."""
    if not text:
        return "no alternative text"
    if re.search(r"\.(png|svg|jpe?g|gif)\b|_images/", text):
        return f"a file's name instead of words: {text}"
    if "$" in text or "\\" in text:
        return f"source that is read out character by character: {text}"
    if len(text.split()) < 6:
        return f"too few words to say what is seen: {text}"
    return None


def words(cell) -> str | None:
    """The alternative text of a code cell's picture, where the book looks for it."""
    return cell.metadata.get("mystnb", {}).get("image", {}).get("alt")


@pytest.mark.parametrize("pair", PAIRS, ids=lambda path: path.stem)
def test_a_cell_that_draws_says_what_is_seen(pair):
    stored = nbformat.read(pair, as_version=4)
    for number, cell in enumerate(stored.cells, start=1):
        drawn = [output for output in cell.get("outputs", []) if "image/png" in output.get("data", {})]
        if drawn:
            assert problem(words(cell)) is None, f"{pair.name}, cell {number}: {problem(words(cell))}"
            assert len(drawn) == 1, f"{pair.name}, cell {number}: one text cannot stand for several pictures"
        elif cell.cell_type == "code":
            assert words(cell) is None, (
                f"{pair.name}, cell {number} draws nothing that its text could stand for"
            )
    text = jupytext.read(pair.with_suffix(".md"), fmt="md:myst")
    assert list(map(words, text.cells)) == list(map(words, stored.cells))


def test_no_two_pictures_of_a_notebook_are_told_by_the_same_words():
    for pair in PAIRS:
        told = [text for cell in nbformat.read(pair, as_version=4).cells if (text := words(cell))]
        assert len(set(told)) == len(told), pair.name


def test_images_of_the_pages_have_words():
    found = [(page, *image) for page in PAGES for image in IMAGE.findall(page.read_text(encoding="utf-8"))]
    assert len(found) > 5
    for page, text, target in found:
        assert problem(text) is None, f"{page.name}, {target}: {problem(text)}"
        sidecar = (page.parent / target).resolve().with_suffix(".json")
        if sidecar.parent == ROOT / "figures":
            assert text == json.loads(sidecar.read_text(encoding="utf-8"))["alt"], f"{page.name}, {target}"


def test_figures_have_words_in_their_sidecars():
    for picture in (ROOT / "figures").glob("*.png"):
        sidecar = json.loads(picture.with_suffix(".json").read_text(encoding="utf-8"))
        assert problem(sidecar.get("alt")) is None, f"{picture.name}: {problem(sidecar.get('alt'))}"


@pytest.mark.parametrize(
    "text", ["", None, "../_images/0f3a.png", "figure of $\\rho$ over the rounds t", "A plot"]
)
def test_what_does_not_count_as_words(text):
    assert problem(text)
