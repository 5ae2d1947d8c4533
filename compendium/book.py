"""The book: a static site of the committed notebooks and pages, that asks no other host for anything.

Sphinx wants all its sources in one folder, so the parts are gathered first: executed notebooks, pages
and the API. A link between two notebooks leads to their texts; in the book it leads to their pages.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path

from compendium import paths
from compendium.paths import FailureError

PAGES = ("ERRATA.md", "RESULTS.md", "CONTRIBUTING.md", "benchmarks/README.md")
MATHJAX = "tex-svg-full.js"

_EXPERIMENTS = "mnist|mnist_validation|synthetic|parameter_grid|sketch_size|radius_scale|real_data|scale"
_TO_NOTEBOOK = re.compile(rf"\]\(((?:[\w.-]+/)*(?:\d\d_\w+|{_EXPERIMENTS}))\.md(#[^)]*)?\)")
_TO_BOOK = re.compile(r"\]\(((?:\.\./)*)book/")
_TO_FILE = re.compile(r"\[([^\]]+)\]\((?:\.\./)*(?:papermill_runs|mlogb_core|compendium|tests)/[^)]*\)")


def build(target: Path | None = None) -> Path:
    """Gather the sources and build the site; any warning is an error.

    Parameters
    ----------
    target : Path, optional
        Folder of the site; ``book/_build/html`` by default.

    Returns
    -------
    Path
        The first page.

    Raises
    ------
    FailureError
        If Sphinx is missing or warns.
    """
    try:
        from sphinx.cmd.build import build_main
    except ImportError:
        raise FailureError("the book needs Sphinx: pip install .[book]") from None
    root = paths.project_root()
    target = target or root / "book" / "_build" / "html"
    source = gather(root / "book" / "_build" / "source")
    arguments = ["-b", "html", "-W", "--keep-going", "-q", "-d", str(target.parent / "doctrees")]
    if build_main([*arguments, str(source), str(target)]) != 0:
        raise FailureError("the book has warnings; see above")
    return target / "index.html"


def gather(folder: Path) -> Path:
    """Put everything that the book is made of into one folder; return it."""
    root = paths.project_root()
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root / "book", folder, ignore=shutil.ignore_patterns("_build", "*.tmp"))
    for path in sorted((root / "notebooks").rglob("*.ipynb")):
        if ".ipynb_checkpoints" not in path.parts:
            _copy(path, folder / path.relative_to(root))
    for name in PAGES:
        if (root / name).is_file():
            _copy(root / name, folder / name)
    shutil.copytree(root / "figures", folder / "figures", ignore=shutil.ignore_patterns("local", "*.pdf"))
    for name in ("claims.md", "batches.md"):
        page = folder / name
        if page.is_file():
            text = page.read_text(encoding="utf-8").replace("](../", "](")
            page.write_text(_linked(text), encoding="utf-8")
    (folder / "_static").mkdir(exist_ok=True)
    shutil.copyfile(_mathjax(), folder / "_static" / MATHJAX)
    return folder


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(_linked(source.read_text(encoding="utf-8")), encoding="utf-8")


def _linked(text: str) -> str:
    """Links to notebook texts lead to their pages; those to files outside the book become plain text."""
    text = _TO_NOTEBOOK.sub(r"](\1.ipynb\2)", _TO_BOOK.sub(r"](\1", text))
    return _TO_FILE.sub(r"\1", text)


def _mathjax() -> Path:
    spec = importlib.util.find_spec("mathjax")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        # The package also has a source of this name that is a module of imports, which no browser runs so.
        found = sorted(Path(folder).rglob(f"es5/{MATHJAX}"))
        if found:
            return found[0]
    raise FailureError(f"the book needs {MATHJAX} of the package django-static-mathjax")
