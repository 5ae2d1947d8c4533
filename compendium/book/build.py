"""The book: a static site of the committed notebooks and pages, that asks no other host for anything.

Sphinx wants all its sources in one folder, so they are copied into one first; what has to be changed in
them is changed by `compendium.book.extension` while Sphinx reads them.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from compendium.book import citations, statements
from compendium.report import article
from compendium.system import locks, paths
from compendium.system.paths import FailureError, UsageError

#: Pages of the book that are not in the folder `book`.
PAGES = (
    "ERRATA.md",
    "RESULTS.md",
    "CONTRIBUTING.md",
    "benchmarks/README.md",
    *article.PAGES,
    "article/TO_FILL_IN.md",
)
MATHJAX = "tex-svg-full.js"


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
        If Sphinx is missing or warns, or a source is malformed.
    """
    try:
        from sphinx.cmd.build import build_main
    except ImportError:
        raise FailureError('the book needs Sphinx: pip install ".[compendium]"') from None
    root = paths.project_root()
    folder = root / "book" / "_build"
    target = target or folder / "html"
    statements.read(root)  # names all that is malformed at once, where Sphinx would stop at the first
    arguments = ["-b", "html", "-E", "-W", "--keep-going", "-q", "-d", str(target.parent / "doctrees")]
    with locks.one_at_a_time(folder):  # another build empties the folder of the sources
        source = gather(folder / "source")
        if build_main([*arguments, str(source), str(target)]) != 0:
            raise FailureError("the book has warnings; see above")
    return target / "index.html"


def main() -> None:
    """Build the book and print the path of its first page; a failure is one message, without a traceback."""
    try:
        print(build())
    except (UsageError, FailureError) as error:
        raise SystemExit(str(error)) from None


def gather(folder: Path) -> Path:
    """Copy everything that the book is made of into one folder; return it."""
    root = paths.project_root()
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root / "book", folder, ignore=shutil.ignore_patterns("_build", "*.tmp"))
    texts = shutil.ignore_patterns("*.md", ".ipynb_checkpoints")  # of the pairs, the executed notebooks
    shutil.copytree(root / "notebooks", folder / "notebooks", ignore=texts)
    shutil.copytree(root / "figures", folder / "figures", ignore=shutil.ignore_patterns("local", "*.pdf"))
    for name in PAGES:
        if (root / name).is_file():
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(root / name, folder / name)
    for name in article.PAGES:
        if (folder / name).is_file():
            text = (folder / name).read_text(encoding="utf-8")
            entries = citations.read_entries(root / "article" / "paper.bib")
            (folder / name).write_text(citations.resolved(text, entries), encoding="utf-8")
    (folder / "_static").mkdir(exist_ok=True)
    shutil.copyfile(_mathjax(), folder / "_static" / MATHJAX)
    return folder


def _mathjax() -> Path:
    spec = importlib.util.find_spec("mathjax")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        found = sorted(Path(folder).rglob(f"es5/{MATHJAX}"))  # not the sources, which are also there
        if found:
            return found[0]
    raise FailureError(f"the book needs {MATHJAX} of the package django-static-mathjax")


if __name__ == "__main__":
    main()
