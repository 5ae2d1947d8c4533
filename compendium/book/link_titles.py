"""What a link leads to, as its tooltip: the built pages tell each other, without any script or request.

The title of a link to a section is the section's heading, to a claim its status and statement, to a
theorem its name, to an entry of the API the first sentence of its docstring.
"""

from __future__ import annotations

import html
import os
import re
from pathlib import Path

_NAMED = (
    re.compile(
        r'<section id="([^"]+)">\s*(?:<span id="[^"]*"></span>)*\s*<h\d>(.*?)<a class="headerlink"', re.DOTALL
    ),
    re.compile(r'<div class="proof [^"]*" id="([^"]+)">\s*<p class="admonition-title">(.*?)</p>', re.DOTALL),
    re.compile(r'<dt class="sig [^"]*" id="([^"]+)">(?:(?!<dt ).)*?</dt>\s*<dd><p>(.*?)</p>', re.DOTALL),
    re.compile(r'<a href="#([^"]+)" data-claim="[^"]+"[^>]*><title>(.*?)</title>', re.DOTALL),
)
_LINK = re.compile(
    r'<a class="(?P<class>reference internal[^"]*)" href="(?P<page>[^"#:]*)#(?P<id>[^"]+)"'
    r'(?: title="(?P<given>[^"]*)")?>(?P<text>.*?)</a>',
    re.DOTALL,
)
_LONGEST = 300


def add(folder: Path) -> int:
    """Give the links of all pages in a folder a title, in place; return how many got one.

    Parameters
    ----------
    folder : Path
        The built site.
    """
    pages = {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.html"))}
    names = {path: names_of(text) for path, text in pages.items()}
    given = 0
    for path, text in pages.items():

        def titled(found: re.Match[str], path: Path = path) -> str:
            target = path if not found["page"] else Path(os.path.normpath(path.parent / found["page"]))
            title = names.get(target, {}).get(found["id"], "")
            given = found["given"] or ""
            if not title or title == _plain(found["text"]) or given not in ("", found["id"]):
                return found[0]
            if given:  # Sphinx gives the name of a function: keep it, and say what it does
                title = f"{given}: {title}"
            return (
                f'<a class="{found["class"]}" href="{found["page"]}#{found["id"]}"'
                f' title="{html.escape(title)}">{found["text"]}</a>'
            )

        after = _LINK.sub(titled, text)
        if after != text:
            given += after.count(' title="') - text.count(' title="')
            path.write_text(after, encoding="utf-8")
    return given


def names_of(page: str) -> dict[str, str]:
    """What the places of a page are called, by their identifiers; a later pattern knows better."""
    names = {}
    for pattern in _NAMED:
        for identifier, name in pattern.findall(page):
            text = _plain(name)
            names[identifier] = text if len(text) <= _LONGEST else text[:_LONGEST].rsplit(" ", 1)[0] + " …"
    return names


def _plain(markup: str) -> str:
    text = html.unescape(re.sub(r"<[^>]+>", "", markup))
    return " ".join(text.replace(r"\(", "").replace(r"\)", "").split())
