"""The graph of what depends on what, as an SVG that works alone and, set into a page, as navigation.

Each box is a link to the claim's section and carries its statement as a tooltip. Colours are plain
attributes, so that a page's style sheet can replace them, and every arrow names its two ends, so that
a script can follow the dependencies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

import networkx as nx

from compendium.claims.formulas import plain
from compendium.claims.registry import CORRECTED, NOT_CHECKED, REFUTED, VERIFIED, Claim, Registry

BOX, ROW, COLUMN, MARGIN, LEGEND = (62.0, 25.0), 33.0, 92.0, 8.0, 34.0


class Look(NamedTuple):
    """How a status is drawn: colours, and a dash pattern and a mark for those who see no colour."""

    fill: str
    edge: str
    dashes: str
    mark: str


LOOKS: Mapping[str, Look] = {
    VERIFIED: Look("#CDE8DD", "#00664B", "", "✓"),
    CORRECTED: Look("#FBE3B5", "#8A5A00", "6 3", "✎"),
    REFUTED: Look("#F4C9B0", "#9C3D00", "8 3 2 3", "✗"),
    NOT_CHECKED: Look("#FFFFFF", "#555555", "2 3", "?"),
}

LABEL = "Graph of the claims: an arrow leads from each claim to those whose proof uses it"


def graph(registry: Registry) -> str:
    """The graph of dependencies, SVG.

    Parameters
    ----------
    registry : Registry
        As `compendium.claims.registry.load_registry` returns it.

    Returns
    -------
    str
        One element a line, so that a change shows as one.
    """
    places = _places(registry.graph())
    width = max(x for x, _ in places.values()) + BOX[0] + MARGIN
    height = max(y for _, y in places.values()) + BOX[1] + MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}"'
            f' height="{height:g}" role="group" aria-label={quoteattr(LABEL)} font-family="sans-serif"'
            ' font-size="13">',
            '<defs><marker id="claims-arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7"'
            ' markerHeight="7" orient="auto"><path d="M0 1 8 4 0 7z" fill="#777777"/></marker></defs>',
            f'<rect class="ground" width="{width:g}" height="{height:g}" fill="#FFFFFF"/>',
            *_legend(),
            '<g class="arrows" fill="none" stroke="#777777" stroke-width="0.8">',
            *(_arrow(used, user, places) for used, user in registry.graph().edges),
            "</g>",
            *(_box(registry, claim, *places[claim.id]) for claim in registry.claims),
            "</svg>\n",
        ]
    )


def _legend() -> list[str]:
    return [
        f"<g {_status(status)}>{_frame(x, MARGIN, 18.0, 16.0, look)}"
        f'<text x="{x + 24:g}" y="{MARGIN + 13:g}" fill="#222222">{look.mark} {status}</text></g>'
        for x, (status, look) in zip((MARGIN + 130.0 * i for i in range(4)), LOOKS.items(), strict=True)
    ]


def _arrow(used: str, user: str, places: Mapping[str, tuple[float, float]]) -> str:
    (x, y), (to_x, to_y) = places[used], places[user]
    x, y, to_y, bend = x + BOX[0], y + BOX[1] / 2, to_y + BOX[1] / 2, (COLUMN - BOX[0]) * 0.75
    curve = f"M{x:g} {y:g}C{x + bend:g} {y:g} {to_x - bend:g} {to_y:g} {to_x:g} {to_y:g}"
    return f'<path data-from="{used}" data-to="{user}" d="{curve}" marker-end="url(#claims-arrow)"/>'


def described(registry: Registry, claim: Claim) -> str:
    """A claim in a line: its identifier, what became of it, what it states and what holds instead."""
    instead = f". Holds instead: {plain(claim.instead)}" if claim.instead else ""
    return f"{claim.id}, {registry.verdict(claim)}: {plain(claim.statement)}{instead}"


def _box(registry: Registry, claim: Claim, x: float, y: float) -> str:
    status = registry.status(claim)
    look = LOOKS[status]
    return (
        f'<a href="#{claim.id.lower()}" data-claim="{claim.id}" {_status(status)}>'
        f"<title>{escape(described(registry, claim))}</title>{_frame(x, y, *BOX, look)}"
        f'<text x="{x + BOX[0] / 2:g}" y="{y + BOX[1] / 2 + 4.5:g}" text-anchor="middle" fill="#222222">'
        f"{look.mark} {claim.id}</text></a>"
    )


def _frame(x: float, y: float, width: float, height: float, look: Look) -> str:
    dashes = f' stroke-dasharray="{look.dashes}"' if look.dashes else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" fill="{look.fill}"'
        f' stroke="{look.edge}" stroke-width="1.5"{dashes}/>'
    )


def _status(status: str) -> str:
    return f'data-status="{status}"'


def _places(graph: nx.DiGraph[str]) -> dict[str, tuple[float, float]]:
    """Upper left corners: columns by depth of the dependencies; the claims without any in rows below."""
    alone = [name for name in graph if graph.degree(name) == 0]
    joined = graph.subgraph(name for name in graph if graph.degree(name) > 0)
    columns = _ordered(graph, [list(column) for column in nx.topological_generations(joined)])
    tallest = max((len(column) for column in columns), default=0)
    places = {}
    for x, column in enumerate(columns):
        for y, name in enumerate(column):
            places[name] = (x * COLUMN, ROW * (y + (tallest - len(column)) / 2))
    per_row = max(len(columns), 6)
    for index, name in enumerate(alone):
        places[name] = (COLUMN * (index % per_row), ROW * (tallest + 0.7 + index // per_row))
    return {name: (round(x + MARGIN, 1), round(y + LEGEND, 1)) for name, (x, y) in places.items()}


def _ordered(graph: nx.DiGraph[str], columns: list[list[str]]) -> list[list[str]]:
    """Each column by the mean height of its neighbours, swept to and fro: fewer arrows cross."""
    order = {name: place for place, name in enumerate(graph)}
    columns = [sorted(column, key=order.__getitem__) for column in columns]
    heights = {name: y - len(column) / 2 for column in columns for y, name in enumerate(column)}
    for sweep in range(8):
        neighbours = graph.predecessors if sweep % 2 == 0 else graph.successors
        for column in columns if sweep % 2 == 0 else reversed(columns):
            means = {}
            for name in column:
                near = [heights[other] for other in neighbours(name)]
                means[name] = sum(near) / len(near) if near else heights[name]
            column.sort(key=lambda name, means=means: (means[name], order[name]))  # type: ignore[misc]
            heights |= {name: y - len(column) / 2 for y, name in enumerate(column)}
    return columns
