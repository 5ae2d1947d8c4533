"""The book: a static site of the committed notebooks and pages, that asks no other host for anything.

Sphinx wants all its sources in one folder, so the parts are gathered first: executed notebooks, pages
and the API. A link between two notebooks leads to their texts; in the book it leads to their pages.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from compendium.book import claim_links, crossref, link_titles
from compendium.book import parts as book_parts
from compendium.claims import page as claims_page
from compendium.claims.registry import load_registry
from compendium.system import paths
from compendium.system.paths import FailureError, UsageError

PAGES = ("ERRATA.md", "RESULTS.md", "CONTRIBUTING.md", "benchmarks/README.md")
MATHJAX = "tex-svg-full.js"

_EXPERIMENTS = "mnist|mnist_validation|synthetic|parameter_grid|sketch_size|radius_scale|real_data|scale"
_TO_NOTEBOOK = re.compile(rf"\]\(((?:[\w.-]+/)*(?:\d\d_\w+|{_EXPERIMENTS}))\.md(#[^)]*)?\)")
_TO_BOOK = re.compile(r"\]\(((?:\.\./)*)book/")
_TO_API = re.compile(r"\]\((?:\.\./)*(mlogb_core(?:/\w+)+)\.py#([\w.]+)\)")
_TO_FILE = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)*(?:(?:papermill_runs|mlogb_core|compendium|tests|benchmarks/results)/[^)]*"
    r"|CITATION\.cff|LICENSE|claims\.yml|experiments\.yml)\)"
)


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
    folder = paths.project_root() / "book" / "_build"
    target = target or folder / "html"
    arguments = ["-b", "html", "-W", "--keep-going", "-q", "-d", str(target.parent / "doctrees")]
    with paths.locked(folder):  # another build empties the folder of the sources
        source = gather(folder / "source")
        with _without_notices_to_extensions():
            failed = build_main([*arguments, str(source), str(target)]) != 0
        if failed:
            raise FailureError("the book has warnings; see above")
        link_titles.add(target)
    return target / "index.html"


def main() -> None:
    """Build the book and print the path of its first page; a failure is one message, without a traceback."""
    try:
        print(build())
    except (UsageError, FailureError) as error:
        raise SystemExit(str(error)) from None


@contextmanager
def _without_notices_to_extensions() -> Iterator[None]:
    """Leave out what Sphinx tells the authors of these extensions about its version after next."""
    with warnings.catch_warnings():
        for module in ("myst_parser", "sphinx_book_theme", "sphinx_proof"):
            warnings.filterwarnings("ignore", category=PendingDeprecationWarning, module=rf"{module}\.")
        yield


def gather(folder: Path) -> Path:
    """Put everything that the book is made of into one folder; return it."""
    root = paths.project_root()
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root / "book", folder, ignore=shutil.ignore_patterns("_build", "*.tmp"))
    for path in sorted((root / "notebooks").rglob("*.ipynb")):
        if ".ipynb_checkpoints" not in path.parts:
            _copy(path, folder / path.relative_to(root))
    for path in sorted((folder / "notebooks" / "experiments").glob("*.ipynb")):
        book_parts.name_recorded_runs(path)
    for name in PAGES:
        if (root / name).is_file():
            _copy(root / name, folder / name)
    shutil.copytree(root / "figures", folder / "figures", ignore=shutil.ignore_patterns("local", "*.pdf"))
    for page in sorted(folder.glob("*.md")):
        if page.name not in PAGES:
            text = page.read_text(encoding="utf-8").replace("](../", "](")
            page.write_text(book_parts.filled(_linked(text), root), encoding="utf-8")
    _link_claims(folder)
    (folder / "_static").mkdir(exist_ok=True)
    shutil.copyfile(_mathjax(), folder / "_static" / MATHJAX)
    crossref.link_sources(folder, root)
    return folder


def _link_claims(folder: Path) -> None:
    """Mentions of claims in notebooks and errata lead to the page of the claims, with its graph set in."""
    known = load_registry().by_id
    for path in sorted(folder.rglob("*.ipynb")):
        claim_links.link_notebook(
            path, known, "../" * (len(path.relative_to(folder).parts) - 1) + "claims.md"
        )
    errata = folder / "ERRATA.md"
    text = claim_links.linked(errata.read_text(encoding="utf-8"), known, "claims.md")
    errata.write_text(claim_links.link_headings(text, known, "claims.md"), encoding="utf-8")
    page, graph = folder / "claims.md", folder / "claims_graph.svg"
    text = claims_page.with_graph(page.read_text(encoding="utf-8"), graph.read_text(encoding="utf-8"))
    page.write_text(text, encoding="utf-8")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(_linked(source.read_text(encoding="utf-8")), encoding="utf-8")


def _linked(text: str) -> str:
    """Links to notebook texts lead to their pages; those to files outside the book become plain text.

    A link to a source file with the name of something in it leads to its entry in the API reference.
    """
    text = _TO_NOTEBOOK.sub(r"](\1.ipynb\2)", _TO_BOOK.sub(r"](\1", text))
    text = _TO_API.sub(lambda found: f"](#{found[1].replace('/', '.')}.{found[2]})", text)
    return _TO_FILE.sub(r"\1", text)


def _mathjax() -> Path:
    spec = importlib.util.find_spec("mathjax")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        found = sorted(Path(folder).rglob(f"es5/{MATHJAX}"))  # not the sources, which are also there
        if found:
            return found[0]
    raise FailureError(f"the book needs {MATHJAX} of the package django-static-mathjax")


if __name__ == "__main__":
    main()
