"""The tables of symbols: what a letter means on the page of notation and in the notebooks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

# Indices that only count. One of them stands for all, and in front of a table's words they are one letter.
_INDEX = re.compile(r"_(?:\{(?:1:)?[stTijk](?:\+1)?\}|[stTijk1-9](?![\w]))")
_RELATION = re.compile(r"(?<!\\left)(?:=|<|>|\\(?:in|ge|le|succeq|preceq|colon)(?![A-Za-z]))")
_ARGUMENT = re.compile(r"\((?:[^()]|\([^()]*\))*\)|\[[^\[\]]*\]$")
_ARTICLE = re.compile(r"\b(?:the|a|an|its|their|number of)\s+")
_REFERENCE = re.compile(r"\bas (?:in|on) (?:the page of )?\[")


class Symbol(NamedTuple):
    """A letter of a table of symbols.

    Attributes
    ----------
    tex : str
        As the table shows it.
    letter : str
        The same without spaces and braces, arguments in parentheses shortened to ``()``.
    words : str
        With which its meaning begins, in a table in which it stands alone.
    meaning : str
        All that its row says.
    alone : bool
        Whether no other letter stands in the row.
    """

    tex: str
    letter: str
    words: str
    meaning: str
    alone: bool


def table(text: str, separators: str = r", and |[;,] ") -> list[Symbol]:
    """The letters of the tables of symbols in a Markdown text, in their order.

    Parameters
    ----------
    text : str
        The text of a notebook.
    separators : str
        A pattern of what stands between the meanings of the letters of one row. A row that does not have
        as many meanings as letters gives the whole of it to each.
    """
    found: list[Symbol] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("| symbol | meaning |"):
            inside = True
        elif inside and line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
            if not cells[0].startswith("---"):
                found += _row(cells[0], cells[1], separators)
        else:
            inside = False
    return found


def disagreements(page: str, notebooks: Mapping[str, str]) -> list[str]:
    """Where the tables of the notebooks disagree with the page of notation, or with each other.

    Parameters
    ----------
    page : str
        The text of the page of notation.
    notebooks : mapping
        The texts of the notebooks by their names.

    Returns
    -------
    list of str
        One line for each letter of a notebook that means another thing there.
    """
    known = _by_letter(table(page, separators="; "))
    own: dict[str, tuple[str, Symbol]] = {}
    problems = []
    for name, text in notebooks.items():
        for symbol in table(text):
            if _REFERENCE.search(symbol.meaning):  # the other page or notebook says what it means
                continue
            wanted = next((known[form] for form in _forms(symbol.letter) if form in known), None)
            if wanted is not None:
                if not any(_says(symbol, each.words) for each in wanted):
                    means = " or ".join(f'"{each.words}"' for each in wanted)
                    problems.append(
                        f'{name}: ${symbol.tex}$ is "{symbol.meaning}", on the page of notation {means}'
                    )
                continue
            key = _forms(symbol.letter)[-1]
            first, before = own.setdefault(key, (name, symbol))
            if before.words != symbol.words:
                problems.append(
                    f'{name}: ${symbol.tex}$ is "{symbol.words}", and in {first} it is "{before.words}"'
                )
    return problems


def unlisted(page: str, notebooks: Mapping[str, str], whole: Collection[str] = ()) -> list[str]:
    """Which letters of the notebooks' tables the page of notation should list, and does not.

    Parameters
    ----------
    page : str
        The text of the page of notation.
    notebooks : mapping
        The texts of the notebooks by their names.
    whole : collection of str
        Names of notebooks of which the page lists every letter, and not only those of two tables.

    Returns
    -------
    list of str
        One line for each letter, with the notebooks that have it.
    """
    known = _by_letter(table(page, separators="; "))
    users: dict[str, dict[str, None]] = {}
    for name, text in notebooks.items():
        for symbol in table(text):
            if not any(form in known for form in _forms(symbol.letter)):
                users.setdefault(_forms(symbol.letter)[-1], {})[name] = None
    return [
        f"${letter}$ of {', '.join(names)} is not on the page of notation"
        for letter, names in users.items()
        if len(names) > 1 or any(name in whole for name in names)
    ]


def repeated(page: str) -> list[str]:
    """Letters that a page of notation gives two meanings.

    An index that only counts makes no other letter, so that $Z$ and $Z_t$ have to begin with the same words.
    Three indices change a letter: the round makes of a parameter its estimate and of the sketch size $m$ the
    number of directions $m_t$ that are used of it, and $1:t$ makes of the terms of a sum the sum.

    Returns
    -------
    list of str
        One line for each letter of which two rows of the page, or two places of one row, say other things.
    """
    first: dict[str, Symbol] = {}
    problems = []
    for symbol in table(page, separators="; "):
        if symbol.words in ("estimate", "directions") or "1:" in symbol.letter:
            continue
        before = first.setdefault(_forms(symbol.letter)[2], symbol)
        if before is not symbol and (before.letter == symbol.letter or before.words != symbol.words):
            problems.append(f'${symbol.tex}$ is "{symbol.words}", and ${before.tex}$ is "{before.words}"')
    return problems


def _row(symbols: str, meaning: str, separators: str) -> Iterator[Symbol]:
    shown = [_RELATION.split(formula)[0].strip() for formula in re.findall(r"\$([^$]+)\$", symbols)]
    phrases = meaning.split("; ")
    if len(phrases) != len(shown):
        phrases = re.split(separators, meaning)
    for place, tex in enumerate(shown):
        words = _words(phrases[place] if len(phrases) == len(shown) else meaning)
        yield Symbol(tex, _letter(tex), words, meaning, alone=len(shown) == 1)


def _letter(tex: str) -> str:
    tex = re.sub(r"\\operatorname|\\mathop|\\nolimits|\\thinspace|\s", "", tex)
    tex = re.sub(r"\{+(\\mathrm\{\w+\})\}+", r"\1", tex)
    return _ARGUMENT.sub("()", re.sub(r"\{(\w)\}", r"\1", tex))


def _forms(letter: str) -> list[str]:
    """A letter as it stands, then without its arguments, without its counting index, without both."""
    counted = re.sub(r"(?<=_)[sTijk](?![\w])|(?<=[:{])[sTijk](?=[}+])", "t", letter)
    bare = counted.replace("()", "")
    return [counted, bare, _INDEX.sub("", counted), _INDEX.sub("", bare)]


def _by_letter(symbols: list[Symbol]) -> dict[str, list[Symbol]]:
    """The letters of the page, also without arguments and counting index where that is no other letter."""
    found: dict[str, list[Symbol]] = {}
    for symbol in symbols:
        found.setdefault(_forms(symbol.letter)[0], []).append(symbol)
    listed = set(found)
    for symbol in symbols:
        for form in _forms(symbol.letter)[1:]:
            if form not in listed and symbol not in found.get(form, []):
                found.setdefault(form, []).append(symbol)
    return found


def _says(symbol: Symbol, words: str) -> bool:
    meaning = _plain(symbol.meaning)
    return meaning.startswith(words) if symbol.alone else words in meaning


def _words(meaning: str) -> str:
    """What stands before the first comma, colon, semicolon or parenthesis outside of a formula."""
    masked = re.sub(r"\$[^$]*\$", lambda formula: "x" * len(formula[0]), meaning)
    end = re.search(r"[,;:(]", masked)
    return _plain(meaning[: end.start()] if end else meaning)


def _plain(meaning: str) -> str:
    """Words without articles and links; bars and counting letters are written in one way."""
    meaning = re.sub(r"\[([^\[\]]*)\]\([^()]*\)", r"\1", meaning)
    meaning = re.sub(r"\\[lr]?([vV]ert)(?![a-z])", r"\\\1", meaning)
    meaning = re.sub(r"\\mathbb\{(\w)\}", r"\\mathbb \1", meaning)
    meaning = re.sub(r"\$[si]\$", "$t$", meaning).replace(r"\thinspace", "")
    pieces = re.split(r"(\$[^$]*\$)", meaning)
    prose = [piece if place % 2 else piece.lower() for place, piece in enumerate(pieces)]
    return " ".join(_ARTICLE.sub("", "".join(prose)).split())
