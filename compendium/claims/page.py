"""The registry as people read it: a page with one table and the evidence, and a graph of what uses what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from compendium.claims.graph import LOOKS, graph
from compendium.claims.registry import RESULTS, STATUSES, Claim, Registry, errata, slug
from compendium.system import paths
from compendium.system.paths import FailureError

PAGE, GRAPH = "book/claims.md", "book/claims_graph.svg"

_PAGE = """\
# The claims and what became of them

Made by `mlogb claims --write` from `claims.yml` and from what the executed notebooks print; nothing
here is typed in. Numbers C are claims of the paper with its labels, R are results of this project.
[The errata](../ERRATA.md) have the counterexamples and the corrected statements in full. Below the table are
[a graph of what depends on what](#what-depends-on-what) and [the evidence](#the-evidence) of each.

{counts}

An inequality is *attained to 99.9 %* where the search came that close to its bound, and holds *with
a margin of 40 %* where the largest value found was 60 % of the bound.

| claim | where | kind | statement | status | checked in |
|---|---|---|---|---|---|
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
    """Write the page and the graph; return their paths."""
    root = root or paths.project_root()
    written = []
    for name, content in _contents(registry, root).items():
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
        for name, content in _contents(registry, root).items()
        if not (root / name).is_file() or (root / name).read_bytes() != content.encode()
    ]
    if stale:
        raise FailureError(
            f"{', '.join(stale)}: not what the evidence gives; `mlogb claims --write` makes it"
        )


def _contents(registry: Registry, root: Path) -> dict[str, str]:
    return {PAGE: page(registry, root), GRAPH: graph(registry)}


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
    cells = [
        f"[{claim.id}](#{claim.id.lower()})",
        registry.place(claim),
        claim.kind,
        claim.statement,
        f"{LOOKS[registry.status(claim)].mark} {registry.verdict(claim)}",
        _notebook_link(claim) if registry.evidence(claim) else "",
    ]
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _section(registry: Registry, claim: Claim, errata: Mapping[str, str]) -> str:
    label = f", `{claim.label}`" if claim.label else ""
    facts = {
        "Where": registry.place(claim) + label,
        "Kind": claim.kind,
        "Assumes": "; ".join(claim.assumptions),
        "Status": f"{LOOKS[registry.status(claim)].mark} {registry.verdict(claim)}",
        "Holds instead": claim.corrected or "",
        "Not checked because": claim.reason or "",
        "Uses": _claim_links(claim.depends_on),
        "Used by": _claim_links(other.id for other in registry.claims if claim.id in other.depends_on),
        "Section": _notebook_link(claim),
        "Erratum": _erratum_link(errata.get(claim.id)),
        "Tests": ", ".join(f"`{test}`" for test in claim.tests),
    }
    lines = [f"### {claim.id}", "", _escaped(claim.statement), ""]
    lines += [f"- {name}: {text}" for name, text in facts.items() if text]
    if found := registry.evidence(claim):
        said = [f"{f.line.verdict}: {f.line.statement}: {f.line.figure}" for f in found]
        lines += ["", "```text", *said, "```"]
    return "\n".join([*lines, ""])


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
    for character in ("|", "*", "_", "<", ">"):
        text = text.replace(character, f"\\{character}") if "](" not in text else text
    return text
