"""Mentions of a claim become links to its section, when the sources of the book are gathered."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from compendium.claims.evidence import CLAIM

#: What stays as it is: fenced blocks of code, headings, directives, code, roles, formulas, links, comments.
_KEPT = re.compile(
    r"^(?P<fence>`{3,}).*?^(?P=fence)`*$|^#[^\n]*$|^:{3,}[^\n]*$|^:\w[^\n]*$|<!--.*?-->|\$\$.*?\$\$|\$[^$]*\$"
    r"|(?:\{[\w:]+\})?(?P<tick>`+).+?(?P=tick)|!?\[[^\]]*\]\([^)]*\)",
    re.DOTALL | re.MULTILINE,
)
_MENTION = re.compile(rf"(?<![\w/.-])({CLAIM})(?![\w/-]|\.\w)")
_HEADING = re.compile(r"^### .*\(([^()]*)\)$", re.MULTILINE)


def linked(text: str, known: Collection[str], page: str) -> str:
    """A Markdown text whose mentions of known claims lead to their sections.

    Parameters
    ----------
    text : str
        Markdown.
    known : collection of str
        The identifiers of the registry; anything else that looks like one stays as it is.
    page : str
        Path of the page of the claims from where the text is.
    """

    def link(found: re.Match[str]) -> str:
        name = found[1]
        return f"[{name}]({page}#{name.lower()})" if name in known else name

    parts, end = [], 0
    for kept in _KEPT.finditer(text):
        parts += [_MENTION.sub(link, text[end : kept.start()]), kept[0]]
        end = kept.end()
    return "".join([*parts, _MENTION.sub(link, text[end:])])


def link_notebook(notebook: Path, known: Collection[str], page: str) -> None:
    """The same for the Markdown cells of a notebook, in place."""
    content: dict[str, Any] = json.loads(notebook.read_text(encoding="utf-8"))
    for cell in content["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = linked("".join(cell["source"]), known, page)
    notebook.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def link_headings(text: str, known: Collection[str], page: str) -> str:
    """A text with a line of links below each heading that names claims in its last parenthesis."""

    def below(found: re.Match[str]) -> str:
        names = [name for name in re.findall(rf"\b{CLAIM}\b", found[1]) if name in known]
        links = ", ".join(f"[{name}]({page}#{name.lower()})" for name in names)
        return f"{found[0]}\n\n*In the registry:* {links}." if links else found[0]

    return _HEADING.sub(below, text)
