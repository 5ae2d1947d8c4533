"""What the pages of the book quote, computed from the registry, the runs and CITATION.cff."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from compendium.claims import page as claims_page
from compendium.claims.registry import load_registry
from compendium.report import figures_page, readme, results
from compendium.runs.run import find_runs


def recorded_runs(experiment: str) -> str:
    """Where the recorded runs of an experiment are, for its notebook; empty if there are none."""
    links = [
        f"[{run.path.name}](../../book/figures.md#{figures_page.anchor(run)})"
        for run in find_runs(experiment, "paper")
    ]
    if not links:
        return ""
    return (
        "*Recorded runs:* what is shown here is the small run that the notebook makes when it is executed as "
        f"it stands. The figures with the paper's sizes, and the records of their runs: {', '.join(links)}."
    )


def _counts(root: Path) -> str:
    """How many claims there are of each status."""
    return claims_page.counts(load_registry(root))


def _result(_: Path) -> str:
    """The result of the project: the sentences and the table of the README."""
    return readme.block()


def _verdicts(_: Path) -> str:
    """The table of the paper's statements about its experiments."""
    return results.short_form(results.findings())


def _citation(root: Path) -> str:
    """CITATION.cff as BibTeX: the paper, and this companion with its version."""
    entry = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    (paper,) = entry["references"]
    return f"""\
```bibtex
@misc{{eofd-mlogb,
  title = {{{paper["title"]}}},
  author = {{{_authors(paper)}}},
}}

@software{{eofd-mlogb-companion,
  title = {{{entry["title"]}}},
  author = {{{_authors(entry)}}},
  version = {{{entry["version"]}}},
  note = {{Licence: {entry["license"]}}},
}}
```"""


def _authors(entry: Mapping[str, Any]) -> str:
    names = [
        f"{{{author['name']}}}" if "name" in author else f"{author['family-names']}, {author['given-names']}"
        for author in entry["authors"]
    ]
    return " and ".join(names)


#: By the name in a comment such as ``<!-- book: counts -->``, which a code-hosting page does not show.
PARTS: Mapping[str, Callable[[Path], str]] = {
    "counts": _counts,
    "result": _result,
    "verdicts": _verdicts,
    "citation": _citation,
}
