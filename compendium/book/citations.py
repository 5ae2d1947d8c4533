"""Citations of the articles: ``[@key]`` becomes names and year, and the list of references is written out.

The journals' own tools do this with BibTeX; the book does it here, since it has two pages that cite.
"""

from __future__ import annotations

import re
from pathlib import Path

from compendium.system.paths import FailureError

_ENTRY = re.compile(r"^@\w+\{([\w-]+),\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^\s*(\w+) = \{(.*)\},$", re.MULTILINE)
_CITED = re.compile(r"\[@([\w-]+)\]")


def read_entries(path: Path) -> dict[str, dict[str, str]]:
    """The fields of each entry of a BibTeX file that has one field a line, by key."""
    text = path.read_text(encoding="utf-8")
    return {key: dict(_FIELD.findall(body)) for key, body in _ENTRY.findall(text)}


def resolved(text: str, entries: dict[str, dict[str, str]]) -> str:
    """The text with its citations in words and, below its last heading, the references that it cites.

    Raises
    ------
    FailureError
        If it cites what is not there.
    """
    cited = sorted(set(_CITED.findall(text)))
    if missing := [key for key in cited if key not in entries]:
        raise FailureError(f"cited, but not in the bibliography: {', '.join(missing)}")
    words = _CITED.sub(lambda match: f"({_short(entries[match[1]])})", text).rstrip("\n")
    return "\n".join([words, "", *(f"- {_long(entries[key])}" for key in cited), ""])


def _names(entry: dict[str, str]) -> list[str]:
    return [name.partition(",")[0].strip("{}") for name in entry["author"].split(" and ")]


def _short(entry: dict[str, str]) -> str:
    names = _names(entry)
    who = names[0] if len(names) == 1 else " and ".join(names) if len(names) == 2 else f"{names[0]} et al."
    return f"{who}, {entry['year']}"


def _long(entry: dict[str, str]) -> str:
    authors = "; ".join(name.strip("{}") for name in entry["author"].split(" and "))
    authors = authors.replace("; others", " et al.")
    where = entry.get("journal") or entry.get("booktitle")
    where = where or (f"arXiv:{entry['eprint']}" if "eprint" in entry else f"<{entry['url']}>")
    volume = f" {entry['volume']}" if "volume" in entry else ""
    pages = f", {entry['pages'].replace('--', '–')}" if "pages" in entry else ""
    emphasised = where if where.startswith("<") else f"*{where}*"
    return f"{authors} ({entry['year']}). {entry['title']}. {emphasised}{volume}{pages}."
