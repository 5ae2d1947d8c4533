r"""Statements, proofs and labelled formulas: plain Markdown in the sources, directives in the book.

The sources read well in plain JupyterLab and on a code-hosting page, where HTML comments are invisible
and anchors work. A statement and a proof stand between comments, a formula with a label follows its
anchor and shows its name, and a reference is a link::

    <!-- statement -->
    <a id="lem-even"></a>
    **Lemma (Squares).** The square of an even number $n = 2k$ is
    <a id="eq-square"></a>

    $$
    n^2 = 4k^2. \qquad \text{(square)}
    $$

    *In code:* `link.square`.
    <!-- /statement -->

    <!-- proof -->
    *Proof.* Multiply. ∎
    <!-- /proof -->

    By [Lemma "Squares"](#lem-even), or the [lemma on squares](#lem-even), and by
    [(square)](#eq-square).

In the book the first reference becomes "Lemma 1.1", the second "lemma on squares (Lemma 1.1)" and the
third "(1.1)". `read` finds what is wrong in all sources at once, with file and line.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from compendium.system.paths import FailureError

SOURCES = ("notebooks/**/*.md", "book/*.md", "*.md", "benchmarks/*.md")
KINDS = {"Lemma": "lem", "Theorem": "thm", "Corollary": "cor", "Proposition": "prop"}

_PREFIXES = "|".join([*KINDS.values(), "eq"])
_DELIMITER = re.compile(r"<!-- (/?)(statement|proof) -->")
_ALMOST_DELIMITER = re.compile(r"<!--\W*(statement|proof)\W*-->", re.IGNORECASE)
_ANCHOR = re.compile(rf'<a id="((?:{_PREFIXES})-[\w-]+)"></a>')
_TITLE = re.compile(rf"\*\*({'|'.join(KINDS)}) \((.+)\)\.\*\*(?: (.*))?")
_PROOF = re.compile(r"\*Proof\.\*(?: (.*))?")
_NAME = re.compile(r"\s*\\qquad\s*\\text\{\(([\w-]+)\)\}$")
_CODE = re.compile(r"\*In code:\* `([^`]+(?:`, `[^`]+)*)`\.")
_CELL = re.compile(r"```\{code-cell\}|\+\+\+")
_REFERENCE = re.compile(rf"\[([^\][]+)\]\(([\w./-]*)#((?:{_PREFIXES})-[\w-]+)\)")
_ONLY_MYST = re.compile(r"^:{3,}|\{(?:prf:\w+|eq|ref|numref|doc|math)\}`|^\$\$ *\([\w-]+\)", re.MULTILINE)
_FENCE = re.compile(r"(^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\2[^\S\n]*$|\Z))", re.DOTALL | re.MULTILINE)
_QED = "∎"


class Label(NamedTuple):
    """What a label names.

    Attributes
    ----------
    file, line : str, int
        Where its anchor is.
    name : str
        What the text calls it: ``Lemma "Squares"`` or ``(square)``.
    code : tuple of str
        The objects of the library that the last paragraph of a statement names after *In code:*.
    """

    file: str
    line: int
    name: str
    code: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The name without its kind."""
        return self.name.partition('"')[2].removesuffix('"')


@dataclass
class _Page:
    """What a Markdown text holds; lines are numbered from 0, in `labels` and `faults` from 1."""

    lines: list[str]
    labels: dict[str, tuple[int, str]] = field(default_factory=dict)  # line and name
    code: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by label
    edits: dict[int, str | None] = field(default_factory=dict)  # lines of the book; None leaves one out
    faults: list[tuple[int, str]] = field(default_factory=list)

    def problem(self, line: int, message: str) -> None:
        """Note what is wrong in a line."""
        self.faults.append((line + 1, message))

    def label(self, label: str, line: int, name: str) -> None:
        """Note a label, its line and what the text calls it."""
        if label in self.labels:
            self.problem(line, f"label {label!r} is also in line {self.labels[label][0]}")
        self.labels.setdefault(label, (line + 1, name))


def read(root: Path) -> dict[str, Label]:
    """Check the texts of the notebooks and pages and return their labels.

    Parameters
    ----------
    root : Path
        The project.

    Raises
    ------
    FailureError
        Names file and line of everything that is malformed, and of every reference without a target.
    """
    found = [path for pattern in SOURCES for path in sorted(root.glob(pattern))]
    files = [path for path in found if ".ipynb_checkpoints" not in path.parts]
    return check({path.relative_to(root).as_posix(): _text(path) for path in files})


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FailureError(f"{path} is not UTF-8: {error}") from None


def check(texts: Mapping[str, str]) -> dict[str, Label]:
    """Return the labels of some texts, given by their file names, as `read` does for a project.

    Raises
    ------
    FailureError
        As `read`.
    """
    labels: dict[str, Label] = {}
    faults = []
    pages = {file: _parse(text) for file, text in texts.items()}
    for file, page in pages.items():
        faults += [f"{file}:{line}: {fault}" for line, fault in page.faults]
        for label, (line, name) in page.labels.items():
            if label in labels:
                first = labels[label]
                faults.append(f"{file}:{line}: label {label!r} is also in {first.file}:{first.line}")
            labels.setdefault(label, Label(file, line, name, page.code.get(label, ())))
    for file, text in texts.items():
        faults += [f"{file}:{line}: {fault}" for line, fault in _bad_references(file, text, labels)]
    if faults:
        raise FailureError("\n".join(faults))
    return labels


def to_myst(text: str, labels: Mapping[str, Label]) -> str:
    """Return a text of the sources as MyST Markdown with the directives and roles of sphinx-proof.

    Parameters
    ----------
    text : str
        A whole Markdown text or one cell of a notebook, as `check` accepts it.
    labels : mapping
        From `check` or `read`.
    """
    page = _parse(text)
    lines = [page.edits.get(number, line) for number, line in enumerate(page.lines)]
    written = "\n".join(line for line in lines if line is not None)
    return outside_code(written, lambda prose: _roles(prose, labels))


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Apply a function to a Markdown text but its fenced code."""
    parts = _FENCE.split(text)  # prose, code, its fence, prose, ...
    return "".join(
        change(part) if index % 3 == 0 else part for index, part in enumerate(parts) if index % 3 != 2
    )


def without_code(text: str) -> str:
    """The text with empty lines for its fenced code, so that lines keep their numbers."""
    return _FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)


def _roles(prose: str, labels: Mapping[str, Label]) -> str:
    def role(match: re.Match[str]) -> str:
        words, _, label = match.groups()
        if label.startswith("eq-"):
            return f"{{eq}}`{label}`"
        number = f"{{prf:ref}}`{label}`"
        return number if _plain(words) == labels[label].name else f"{words} ({number})"

    return _REFERENCE.sub(role, prose)


def _bad_references(file: str, text: str, labels: Mapping[str, Label]) -> Iterator[tuple[int, str]]:
    prose = without_code(text)
    for match in _REFERENCE.finditer(prose):
        words, path, label = match.groups()
        line = prose.count("\n", 0, match.start()) + 1
        if label not in labels:
            yield line, f"no statement or formula has the label {label!r}"
            continue
        home = posixpath.normpath(posixpath.join(posixpath.dirname(file), path)) if path else file
        target = labels[label]
        if home != target.file:
            yield line, f"{label!r} is in {target.file}, the link leads to {home}"
        named = _plain(words).startswith((*(f'{kind} "' for kind in KINDS), "("))
        if named and _plain(words) != target.name:
            yield line, f"the link calls {label!r} {_plain(words)}, its name is {target.name}"


def _parse(text: str) -> _Page:
    page, prose = _Page(text.split("\n")), without_code(text)
    for match in _ONLY_MYST.finditer(prose):
        line = prose.count("\n", 0, match.start())
        page.problem(line, f"{match[0]!r} is raw text outside the book; CONTRIBUTING.md has the plain form")
    _find_blocks(page, prose.split("\n"))
    _find_formulas(page, prose.split("\n"))
    return page


def _find_blocks(page: _Page, lines: list[str]) -> None:
    """Find statements and proofs, which do not stand in each other and do not reach over a cell."""
    opened: tuple[str, int, str] | None = None  # kind, line and label
    for number, line in enumerate(lines):
        delimiter = _DELIMITER.fullmatch(line)
        if delimiter is None:
            if _ALMOST_DELIMITER.search(line):
                page.problem(number, f"{line.strip()!r} is not a delimiter: <!-- statement --> stands alone")
            if opened and _CELL.match(page.lines[number]):
                page.problem(number, f"a new cell inside of a {opened[0]} (line {opened[1] + 1})")
            continue
        slash, kind = delimiter.groups()
        if not slash:
            if opened:
                page.problem(number, f"{line} inside of a {opened[0]} (line {opened[1] + 1})")
            label = _open_statement(page, lines, number) if kind == "statement" else _open_proof(page, number)
            opened = kind, number, label
        elif opened and opened[0] == kind:
            _close(page, lines, kind, opened[2], number)
            opened = None
        else:
            page.problem(number, f"{line} closes nothing" + (f" but a {opened[0]}" if opened else ""))
    if opened:
        page.problem(opened[1], f"this {opened[0]} is not closed by <!-- /{opened[0]} -->")


def _open_proof(page: _Page, number: int) -> str:
    begun = _PROOF.fullmatch("".join(page.lines[number + 1 : number + 2]))
    if begun is None:
        page.problem(number + 1, "a proof begins with *Proof.*")
    page.edits |= {number: ":::{prf:proof}", number + 1: begun[1] if begun else None}
    return ""


def _open_statement(page: _Page, lines: list[str], number: int) -> str:
    """Note a statement and return its label; empty where it is malformed."""
    first, second = [*lines[number + 1 : number + 3], "", ""][:2]
    anchor, title = _ANCHOR.fullmatch(first), _TITLE.fullmatch(second)
    if anchor is None:
        page.problem(number + 1, 'a statement begins with its label, as <a id="lem-name"></a>')
    elif title is None:
        page.problem(number + 2, "after the label of a statement comes its title, as **Lemma (Title).**")
    elif not anchor[1].startswith(f"{KINDS[title[1]]}-"):
        page.problem(number + 1, f"the label of a {title[1]} begins with {KINDS[title[1]]}-")
    else:
        page.label(anchor[1], number + 1, f'{title[1]} "{title[2]}"')
        directive = f":::{{prf:{title[1].lower()}}} {title[2]}"
        page.edits |= {number: directive, number + 1: f":label: {anchor[1]}\n", number + 2: title[3]}
        return anchor[1]
    return ""


def _close(page: _Page, lines: list[str], kind: str, label: str, end: int) -> None:
    page.edits[end] = ":::"
    last = next(line for line in reversed(lines[:end]) if line.strip())
    if kind == "proof" and not last.endswith(_QED):
        page.problem(end, f"a proof ends with {_QED}")
    if label and (code := _CODE.fullmatch(last)):
        page.code[label] = tuple(code[1].split("`, `"))


def _find_formulas(page: _Page, lines: list[str]) -> None:
    """Find the formulas with a label, each after its anchor and with its name at the end."""
    for number, line in enumerate(lines):
        anchor = _ANCHOR.fullmatch(line)
        if anchor is None or not anchor[1].startswith("eq-"):
            continue
        label = anchor[1]
        start = next((n for n in range(number + 1, len(lines)) if lines[n].strip()), None)
        if start is None or lines[start] != "$$":
            page.problem(number, f"the anchor {label!r} must be followed by a formula between lines $$")
            continue
        end = next((n for n in range(start + 1, len(lines)) if lines[n] == "$$"), start)
        name = _NAME.search(lines[end - 1])
        if end == start:
            page.problem(start, "this formula is not closed by a line $$")
        elif name is None or f"eq-{name[1]}" != label:
            shown = rf"\qquad \text{{({label[3:]})}}"
            page.problem(end - 1, f"the formula {label!r} must end with its name, as {shown}")
        else:
            page.label(label, number, f"({name[1]})")
            page.edits |= {number: None, end - 1: _NAME.sub("", lines[end - 1]), end: f"$$ ({label})"}


def _plain(words: str) -> str:
    """Words on one line: a link's text may be broken where the paragraph is."""
    return " ".join(words.split())
