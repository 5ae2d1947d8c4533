"""The registry as people read it: a page with one table and the evidence, and a graph of what uses what."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib as mpl
import networkx as nx
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from compendium import paths
from compendium.claims import CORRECTED, NOT_CHECKED, REFUTED, RESULTS, STATUSES, VERIFIED, Claim, Registry
from compendium.paths import FailureError

PAGE, GRAPH = "book/claims.md", "book/claims_graph.svg"

_PAGE = """\
# The claims and what became of them

Made by `mlogb claims --write` from `claims.yml` and from what the executed notebooks print; nothing
here is typed in. Numbers C are claims of the paper with its labels, R are results of this project.
[The errata](../ERRATA.md) have the counterexamples and the corrected statements in full.

{counts}

An inequality is *attained to 99.9 %* where the search came that close to its bound, and holds *with
a margin of 40 %* where the largest value found was 60 % of the bound.

| claim | where | statement | status | checked in |
|---|---|---|---|---|
{table}

## What depends on what

An arrow leads from a claim to those whose proof uses it. The mark and the border say the status:
✓ and a full line, verified; ✎ and dashes, corrected; ✗ and dashes with dots, refuted; ? and dots,
not checked. Claims that neither use nor serve another one stand in the rows below.

![Graph of the claims, coloured by status; the table above has the same in words.](claims_graph.svg)

## The evidence

{evidence}
"""


class _Look(NamedTuple):
    """How a status is drawn: colours, and a line style and a mark for those who see no colour."""

    fill: str
    edge: str
    line: Literal["-", "--", "-.", ":"]
    mark: str


_LOOKS: Mapping[str, _Look] = {
    VERIFIED: _Look("#CDE8DD", "#00664B", "-", "✓"),
    CORRECTED: _Look("#FBE3B5", "#8A5A00", "--", "✎"),
    REFUTED: _Look("#F4C9B0", "#9C3D00", "-.", "✗"),
    NOT_CHECKED: _Look("#FFFFFF", "#555555", ":", "?"),
}


def write(registry: Registry, root: Path | None = None) -> list[Path]:
    """Write the page and the graph; return their paths."""
    root = root or paths.project_root()
    written = []
    for name, content in _contents(registry).items():
        paths.write_atomically(root / name, content)
        written.append(root / name)
    return written


def check(registry: Registry, root: Path | None = None) -> None:
    """Raise if the page or the graph is not what the evidence of the notebooks gives.

    Raises
    ------
    FailureError
        Names the files; `mlogb claims --write` makes them.
    """
    root = root or paths.project_root()
    stale = [
        name
        for name, content in _contents(registry).items()
        if not (root / name).is_file() or (root / name).read_bytes() != content.encode()
    ]
    if stale:
        raise FailureError(
            f"{', '.join(stale)}: not what the evidence gives; `mlogb claims --write` makes it"
        )


def _contents(registry: Registry) -> dict[str, str]:
    return {PAGE: page(registry), GRAPH: graph(registry)}


def page(registry: Registry) -> str:
    """The page of the registry, Markdown."""
    text = _PAGE.format(
        counts=_counts(registry),
        table="\n".join(_table_row(registry, claim) for claim in registry.claims),
        evidence="\n".join(_section(registry, claim) for claim in registry.claims),
    )
    return text.rstrip("\n") + "\n"


def _counts(registry: Registry) -> str:
    numbers = [sum(registry.status(claim) == status for claim in registry.claims) for status in STATUSES]
    listed = ", ".join(
        f"{number} {status}" for number, status in zip(numbers, STATUSES, strict=True) if number
    )
    return f"{len(registry.claims)} entries: {listed}."


def _table_row(registry: Registry, claim: Claim) -> str:
    place = registry.labels.get(claim.label or "", "this project")
    cells = [
        f"[{claim.id}](#{claim.id.lower()})",
        place,
        claim.statement,
        f"{_LOOKS[registry.status(claim)].mark} {registry.verdict(claim)}",
        _notebook_link(claim) if registry.evidence(claim) else "",
    ]
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _section(registry: Registry, claim: Claim) -> str:
    label = f", `{claim.label}`" if claim.label else ""
    facts = {
        "Where": registry.labels.get(claim.label or "", "this project") + label,
        "Kind": claim.kind,
        "Assumes": "; ".join(claim.assumptions),
        "Status": registry.verdict(claim),
        "Holds instead": claim.corrected or "",
        "Not checked because": claim.reason or "",
        "Uses": ", ".join(f"[{name}](#{name.lower()})" for name in claim.depends_on),
        "Section": _notebook_link(claim),
        "Tests": ", ".join(f"`{test}`" for test in claim.tests),
    }
    lines = [f"### {claim.id}", "", _escaped(claim.statement), ""]
    lines += [f"- {name}: {text}" for name, text in facts.items() if text]
    if found := registry.evidence(claim):
        said = [f"{f.line.verdict}: {f.line.statement}: {f.line.figure}" for f in found]
        lines += ["", "```text", *said, "```"]
    return "\n".join([*lines, ""])


def _notebook_link(claim: Claim) -> str:
    if claim.notebook is None:
        return ""
    name, _, anchor = claim.notebook.partition("#")
    folder = "" if name == RESULTS else "notebooks/"
    return f"[{name}](../{folder}{name}.md#{anchor})"


def _escaped(text: str) -> str:
    """Text for a table cell: a bar would end the cell, and stars or underscores would be emphasis."""
    for character in ("|", "*", "_", "<", ">"):
        text = text.replace(character, f"\\{character}") if "](" not in text else text
    return text


def graph(registry: Registry) -> str:
    """The graph of dependencies, SVG; each box is a link to its section of the page."""
    places = _places(registry.graph())
    height = max(y for _, y in places.values()) + 1.6
    width = max(x for x, _ in places.values()) + 1.0
    settings: dict[Any, Any] = {"svg.hashsalt": "claims", "svg.fonttype": "none", "font.size": 8.0}
    with mpl.rc_context(settings):
        figure = Figure(figsize=(0.95 * width, 0.42 * height))
        FigureCanvasSVG(figure)
        axis = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axis.set(xlim=(-0.6, width - 0.4), ylim=(height - 0.6, -1.0))
        axis.set_axis_off()
        for used, user in registry.graph().edges:
            (x, y), (right, to) = places[used], places[user]
            arrow = FancyArrowPatch(
                (x + 0.34, y),
                (right - 0.34, to),
                arrowstyle="-|>",
                mutation_scale=7,
                color="#777777",
                linewidth=0.6,
            )
            axis.add_patch(arrow)
        for claim in registry.claims:
            x, y = places[claim.id]
            look = _LOOKS[registry.status(claim)]
            box = FancyBboxPatch(
                (x - 0.32, y - 0.28),
                0.64,
                0.56,
                boxstyle="round,pad=0.02",
                facecolor=look.fill,
                edgecolor=look.edge,
                linestyle=look.line,
                linewidth=1.2,
                url=f"#{claim.id.lower()}",
                zorder=2,
            )
            axis.add_patch(box)
            name = f"{look.mark} {claim.id}"
            axis.text(x, y, name, ha="center", va="center", zorder=3, url=f"#{claim.id.lower()}")
        handles = [
            Line2D([], [], color=look.edge, linestyle=look.line, label=f"{look.mark} {status}")
            for status, look in _LOOKS.items()
        ]
        axis.legend(handles=handles, loc="upper left", ncols=4, frameon=False)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def _places(graph: nx.DiGraph[str]) -> dict[str, tuple[float, float]]:
    """Columns by depth of the dependencies; the claims without any fill rows of their own below."""
    alone = [name for name in graph if graph.degree(name) == 0]
    joined = graph.subgraph(name for name in graph if graph.degree(name) > 0)
    columns = [sorted(column, key=list(graph).index) for column in nx.topological_generations(joined)]
    places = {name: (1.6 * x, float(y)) for x, column in enumerate(columns) for y, name in enumerate(column)}
    below = max((len(column) for column in columns), default=0) + 0.5
    per_row = max(2 * len(columns), 6)
    for index, name in enumerate(alone):
        places[name] = (0.8 * (index % per_row), below + index // per_row)
    return places
