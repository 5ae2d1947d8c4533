"""The registry as people read it: a page with one table and the evidence, and a graph of what uses what.

The same files hold the panels: each derivation opens with a table of its claims, between two comments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from compendium.claims.formulas import breakable, outside_formulas
from compendium.claims.graph import LOOKS, graph
from compendium.claims.registry import RESULTS, STATUSES, Claim, Registry, errata, slug
from compendium.system import paths
from compendium.system.paths import FailureError

PAGE, GRAPH = "book/claims.md", "book/claims_graph.svg"

_PANEL = re.compile(r"(?<=<!-- panel: begin -->\n).*?(?=<!-- panel: end -->)", re.DOTALL)

_PAGE = """\
# The claims and what became of them

Made by `mlogb claims --write` from `claims.yml` and from what the executed notebooks print; nothing
here is typed in. Numbers C are claims of the paper with its labels, R are results of this project. Beside
a statement that does not hold as printed stands what holds instead; [the errata](../ERRATA.md) have its
counterexample. Below the table are [a graph of what depends on what](#what-depends-on-what) and
[the evidence](#the-evidence) of each.

{counts}

An inequality is *attained to 99.9 %* where the search came that close to its bound, and holds *with
a margin of 40 %* where the largest value found was 60 % of the bound.

| claim | where | kind | statement | status | holds instead | checked in |
|---|---|---|---|---|---|---|
{table}

## What depends on what

An arrow leads from a claim to those whose proof uses it. The mark and the border say the status:
✓ and a full line, verified; ✎ and dashes, corrected; ✗ and dashes with dots, refuted; ? and dots,
not checked. Claims that neither use nor serve another one stand in the rows below. In the book each box
leads to the claim's section.

![Graph of the claims by status; the sections below say what each uses and what uses it.](claims_graph.svg)

## The evidence

{evidence}
"""


def write(registry: Registry, root: Path | None = None) -> list[Path]:
    """Write the page, the graph and the panels that differ from what is there; return their paths."""
    root = root or paths.project_root()
    stale = _stale(registry, root)
    for name, content in stale.items():
        paths.write_atomically(root / name, content)
    return [root / name for name in stale]


def check(registry: Registry, root: Path | None = None) -> None:
    """Raise if the page, the graph or a panel is not what registry and evidence give.

    Raises
    ------
    FailureError
        Names the files; `mlogb claims --write` makes them.
    """
    stale = _stale(registry, root or paths.project_root())
    if stale:
        raise FailureError(
            f"{', '.join(stale)}: not what the evidence gives; `mlogb claims --write` makes it"
        )


def _stale(registry: Registry, root: Path) -> dict[str, str]:
    """What the files that are not up to date should hold, by their names."""
    contents = {PAGE: page(registry, root), GRAPH: graph(registry)} | dict(_with_panels(registry, root))
    return {
        name: content
        for name, content in contents.items()
        if not (root / name).is_file() or (root / name).read_bytes() != content.encode()
    }


def _with_panels(registry: Registry, root: Path) -> Iterator[tuple[str, str]]:
    """The texts of the derivations and the notebooks paired with them, with their panels filled."""
    for text in sorted((root / "notebooks").glob("*.md")):
        source, table = text.read_text(encoding="utf-8"), panel(registry, text.stem)
        if not _PANEL.search(source):
            continue
        yield text.relative_to(root).as_posix(), _PANEL.sub(lambda _: table, source)  # noqa: B023
        pair = text.with_suffix(".ipynb")
        notebook = json.loads(pair.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            filled = _PANEL.sub(lambda _: table, "".join(cell["source"]))  # noqa: B023
            if cell["cell_type"] == "markdown":
                cell["source"] = filled.splitlines(keepends=True)
        yield pair.relative_to(root).as_posix(), json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def panel(registry: Registry, notebook: str) -> str:
    """The table that opens a derivation: its claims, what became of each, and what holds instead."""
    claims = [claim for claim in registry.claims if (claim.notebook or "").partition("#")[0] == notebook]
    titles = ["claim", "as stated", "verdict"]
    rows = [
        [_claim_link(claim, "../"), breakable(claim.statement), _verdict(registry, claim)] for claim in claims
    ]
    if any(claim.instead for claim in claims):
        titles.append("holds instead")
        rows = [[*row, breakable(claim.instead or "")] for row, claim in zip(rows, claims, strict=True)]
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n" + "\n".join(_row(cells) for cells in lines) + "\n\n"


def page(registry: Registry, root: Path | None = None) -> str:
    """The page of the registry, Markdown."""
    sections = errata(root)
    text = _PAGE.format(
        counts=counts(registry),
        table="\n".join(_table_row(registry, claim) for claim in registry.claims),
        evidence="\n".join(_section(registry, claim, sections) for claim in registry.claims),
    )
    return text.rstrip("\n") + "\n"


def counts(registry: Registry) -> str:
    """How many claims there are of each status, in a sentence."""
    numbers = [sum(registry.status(claim) == status for claim in registry.claims) for status in STATUSES]
    listed = ", ".join(
        f"{number} {status}" for number, status in zip(numbers, STATUSES, strict=True) if number
    )
    return f"{len(registry.claims)} entries: {listed}."


def _table_row(registry: Registry, claim: Claim) -> str:
    return _row(
        [
            _claim_link(claim),
            registry.place(claim),
            claim.kind,
            breakable(claim.statement),
            _verdict(registry, claim),
            breakable(claim.instead or ""),
            _notebook_link(claim) if registry.evidence(claim) else "",
        ]
    )


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _verdict(registry: Registry, claim: Claim) -> str:
    return f"{LOOKS[registry.status(claim)].mark} {registry.verdict(claim)}"


def _section(registry: Registry, claim: Claim, errata: Mapping[str, str]) -> str:
    label = f", `{claim.label}`" if claim.label else ""
    facts = {
        "Where": registry.place(claim) + label,
        "Kind": claim.kind,
        "Assumes": "; ".join(claim.assumptions),
        "Status": _verdict(registry, claim),
        "Holds instead": claim.instead or "",
        "Not checked because": claim.reason or "",
        "Uses": _claim_links(claim.depends_on),
        "Used by": _claim_links(other.id for other in registry.claims if claim.id in other.depends_on),
        "Section": _notebook_link(claim),
        "Erratum": _erratum_link(errata.get(claim.id)),
        "Tests": ", ".join(f"`{test}`" for test in claim.tests),
    }
    lines = [f"### {claim.id}", "", _escaped(claim.statement), ""]
    lines += [f"- {name}: {_escaped(text)}" for name, text in facts.items() if text]
    if found := registry.evidence(claim):
        said = [f"{f.line.verdict}: {f.line.statement}: {f.line.figure}" for f in found]
        lines += ["", "```text", *said, "```"]
    return "\n".join([*lines, ""])


def _claim_link(claim: Claim, folder: str = "") -> str:
    page = f"{folder}{PAGE}" if folder else ""
    return f"[{claim.id}]({page}#{claim.id.lower()})"


def _claim_links(names: Iterable[str]) -> str:
    return ", ".join(f"[{name}](#{name.lower()})" for name in names)


def _erratum_link(title: str | None) -> str:
    if title is None:
        return ""
    return f"[{title.rpartition(' (')[0]}](../ERRATA.md#{slug(title)})"


def _notebook_link(claim: Claim) -> str:
    if claim.notebook is None:
        return ""
    name, _, anchor = claim.notebook.partition("#")
    folder = "" if name == RESULTS else "notebooks/"
    return f"[{name}](../{folder}{name}.md#{anchor})"


def _escaped(text: str) -> str:
    """Text for a table cell: a bar would end the cell, and stars or underscores would be emphasis."""
    if "](" in text or "`" in text:
        return text
    return outside_formulas(text, lambda prose: re.sub(r"[|*_<>]", r"\\\g<0>", prose))
