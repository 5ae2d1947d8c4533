"""The numbers in the two articles, from the recorded runs and the registry of claims.

Between comments such as ``<!-- mnist: begin -->`` and ``<!-- mnist: end -->`` a page has what is computed
here; all else is written by hand, and has no number of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from compendium.claims.page import counts
from compendium.claims.registry import load_registry
from compendium.report import readme, results, tables

PAGES = ("article/rescience.md", "article/paper.md")


def _mnist() -> str:
    sentences = tables.mnist_findings(tables.mnist_regret(readme.only_run("mnist")), decimals=1)
    return "".join(f"- {sentence}\n" for sentence in sentences)


def _time() -> str:
    """The lines about time on MNIST, against each form of the full algorithm."""
    (found,) = (f for f in results.findings() if f.claim == "C32a")
    return "".join(f"- {one.name}: {one.figures}\n" for one in found.ours)


#: By the name in the comments.
BLOCKS: Mapping[str, Callable[[], str]] = {
    "verdicts": lambda: results.short_form(results.findings()),
    "mnist": _mnist,
    "time": _time,
    "claims": lambda: f"{counts(load_registry())}\n",
}


def write(check: bool = False, root: Path | None = None) -> None:
    """Write the blocks of the articles, or check that they are current.

    Parameters
    ----------
    check : bool
        Change nothing; raise if a block differs.
    root : Path, optional
        The project; found from the working folder by default.

    Raises
    ------
    FailureError
        If a block differs under `check`, or a run is missing.
    UsageError
        If a block has no end.
    """
    tables.write_blocks(PAGES, BLOCKS, check, root)
