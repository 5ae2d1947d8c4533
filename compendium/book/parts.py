"""Parts of the book's pages that are computed when its sources are gathered.

A page holds a comment such as ``<!-- book: counts -->``, which a code-hosting page does not show; the
book has the part of that name in its place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from compendium.report import figures_page
from compendium.runs.run import find_runs
from compendium.system.paths import FailureError

_MARK = re.compile(r"<!-- book: (\w+) -->")


def filled(text: str, root: Path) -> str:
    """A page with its computed parts.

    Raises
    ------
    FailureError
        If it asks for a part that there is not.
    """

    def part(found: re.Match[str]) -> str:
        if found[1] not in _PARTS:
            raise FailureError(f"the book has no part {found[1]!r}; there are {', '.join(_PARTS)}")
        return _PARTS[found[1]](root)

    return _MARK.sub(part, text)


def name_recorded_runs(notebook: Path) -> None:
    """Say below the title of an experiment's notebook where its recorded runs are."""
    runs = find_runs(notebook.stem, "paper")
    links = [f"[{run.path.name}](../../figures.md#{figures_page.anchor(run)})" for run in runs]
    if not links:
        return
    content: dict[str, Any] = json.loads(notebook.read_text(encoding="utf-8"))
    text = (
        "*Recorded runs:* what is shown here is the small run that the notebook makes when it is executed as "
        f"it stands. The figures with the paper's sizes, and the records of their runs: {', '.join(links)}."
    )
    cell = {"cell_type": "markdown", "id": "recorded-runs", "metadata": {}, "source": text}
    first = next(place for place, cell in enumerate(content["cells"]) if cell["cell_type"] == "markdown")
    content["cells"].insert(first + 1, cell)
    notebook.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _counts(root: Path) -> str:
    """How many claims there are of each status, as the page of the claims says it."""
    page = (root / "book" / "claims.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^\d+ entries: .*\.$", page, re.MULTILINE)
    return str(line)


def _result(root: Path) -> str:
    """The two sentences of the README that compare the algorithms on MNIST."""
    found = re.findall(r"^- In the \w+(?:'s)? setting .*$", _block(root, "results"), re.MULTILINE)
    return "\n".join(found)


def _verdicts(root: Path) -> str:
    """The table of the paper's statements about its experiments."""
    return _block(root, "verdicts")


def _block(root: Path, name: str) -> str:
    readme = (root / "README.md").read_text(encoding="utf-8")
    (text,) = re.findall(rf"<!-- {name}: begin -->\n(.*?)\n<!-- {name}: end -->", readme, re.DOTALL)
    return str(text)


def _citation(root: Path) -> str:
    """CITATION.cff as BibTeX: the paper, and this companion with its version."""
    entry = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    (paper,) = entry["references"]
    return "\n".join(
        [
            "```bibtex",
            *_bibtex("misc", "eofd-mlogb", title=paper["title"], author=_authors(paper)),
            "",
            *_bibtex(
                "software",
                "eofd-mlogb-companion",
                title=entry["title"],
                author=_authors(entry),
                version=entry["version"],
                note=f"Licence: {entry['license']}",
            ),
            "```",
        ]
    )


def _bibtex(kind: str, key: str, **fields: str) -> list[str]:
    return [f"@{kind}{{{key},", *(f"  {name} = {{{value}}}," for name, value in fields.items()), "}"]


def _authors(entry: Mapping[str, Any]) -> str:
    names = [
        f"{{{author['name']}}}" if "name" in author else f"{author['family-names']}, {author['given-names']}"
        for author in entry["authors"]
    ]
    return " and ".join(names)


_PARTS: Mapping[str, Callable[[Path], str]] = {
    "counts": _counts,
    "result": _result,
    "verdicts": _verdicts,
    "citation": _citation,
}
