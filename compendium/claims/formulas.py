r"""Statements with formulas between dollars: as plain text, and what a page would not show of them.

The registry writes ``$\lVert x\rVert_2 \le D$``. The book and code-hosting pages typeset it; the command
line and the tooltips, which cannot, show the same as ``‖x‖₂ ≤ D``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from itertools import pairwise

_FORMULA = re.compile(r"\$([^$]+)\$")
_TOKEN = re.compile(r"\\([A-Za-z]+) ?|\\(.)|([{}^_])|(\s+)|(.)", re.DOTALL)

_GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi "
    "chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"
)
_SIGNS = {
    "varepsilon": "ε", "varphi": "φ", "ell": "ℓ", "infty": "∞", "nabla": "∇", "partial": "∂", "top": "⊤",
    "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "ne": "≠", "neq": "≠", "lt": "<", "gt": ">", "approx": "≈",
    "equiv": "≡", "preceq": "⪯", "succeq": "⪰", "in": "∈", "notin": "∉", "subset": "⊂", "cap": "∩",
    "cup": "∪", "cdot": "·", "times": "×", "otimes": "⊗", "circ": "∘", "pm": "±", "ast": "*", "to": "→",
    "mapsto": "↦", "varpi": "ϖ",
    "rightarrow": "→", "Rightarrow": "⇒", "iff": "⇔", "sum": "∑", "prod": "∏", "int": "∫", "dots": "…",
    "ldots": "…", "cdots": "⋯", "langle": "⟨", "rangle": "⟩", "lVert": "‖", "rVert": "‖", "Vert": "‖",
    "lvert": "|", "rvert": "|", "vert": "|", "mid": "|", "lbrace": "{", "rbrace": "}", "lfloor": "⌊",
    "rfloor": "⌋", "lceil": "⌈", "rceil": "⌉", "prime": "′", "forall": "∀", "exists": "∃", "colon": ":",
    "quad": " ", "qquad": " ", "thinspace": " ", "enspace": " ", "perp": "⊥", "setminus": "∖", "sim": "∼",
}  # fmt: skip
_SIGNS |= {  # Unicode calls the letter lamda
    name: unicodedata.lookup(
        f"GREEK {'CAPITAL' if name[0].isupper() else 'SMALL'} LETTER {name.upper().replace('MBD', 'MD')}"
    )
    for name in _GREEK.split()
}
_SPACED = set("≤≥≠<>≈≡⪯⪰∈∉⊂∩∪→↦⇒⇔=+∼")
_ACCENTS = {"tilde": "\u0303", "hat": "\u0302", "bar": "\u0304", "dot": "\u0307",
            "widetilde": "\u0303", "widehat": "\u0302", "overline": "\u0304"}  # fmt: skip
_SIZES = re.compile(r"left|right|[Bb]igg?[lrm]?|displaystyle|textstyle|(?:no)?limits")
_LETTERS = re.compile(r"operatorname|math(?:rm|op|bf|sf|cal|it)|text(?:rm|bf)?|boldsymbol")
_DOUBLE = {"R": "ℝ", "E": "𝔼", "P": "ℙ", "N": "ℕ"}
_ABOVE = str.maketrans("0123456789+-⊤′*", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ᵀ′*")
_BELOW = str.maketrans("0123456789+-", "₀₁₂₃₄₅₆₇₈₉₊₋")

_LONGEST = 32  # signs of a formula that fit in a line of a table on a phone
_RELATIONS = {"=", "<", ">", r"\le", r"\ge", r"\lt", r"\gt", r"\ne", r"\preceq", r"\succeq", r"\propto"}
_OPENING, _CLOSING = {"(", "[", r"\lbrace"}, {")", "]", r"\rbrace"}
_BEFORE_A_SIGN = {*_RELATIONS, *_OPENING, ",", "+", "-"}
_WHOLE_FROM = {"{", r"\left", r"\langle", r"\lvert", r"\lVert", r"\lceil", r"\lfloor"}
_WHOLE_TO = {"}", r"\right", r"\rangle", r"\rvert", r"\rVert", r"\rceil", r"\rfloor"}

_NEEDLESS = re.compile(r"(?<=[a-z][a-z]) (?=[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻₀₁₂₃₄₅₆₇₈₉^_(])|(?<=[(\[]) ")  # spaces: ln ², ( ln

_NAMED = re.compile(r"`[^`]*`|\b[a-z]+:[\w-]+")  # code and labels of the paper
_UNTYPESET = re.compile(
    r"[\\^_=<>~|{}]|\+-|\b(?:sqrt|" + "|".join(sorted(_GREEK.split(), key=len, reverse=True)) + r")\b"
)


def plain(text: str) -> str:
    """A statement as text for those who see no typeset formula."""
    return unicodedata.normalize("NFC", _FORMULA.sub(lambda found: _Formula(found[1]).text(), text))


def outside_formulas(text: str, change: Callable[[str], str]) -> str:
    """The text with a change made everywhere but within its formulas."""
    pieces = _FORMULA.split(text)
    pieces[::2] = map(change, pieces[::2])
    pieces[1::2] = (f"${piece}$" for piece in pieces[1::2])
    return "".join(pieces)


def faults(text: str) -> list[str]:
    r"""What of a statement would not be shown as it is meant.

    A formula stands between dollars. In it a bar would end the cell of a table, and Markdown takes the
    backslash of a sign such as ``\,`` or ``\{`` away. Macros are not known on code-hosting pages.
    """
    prose = _FORMULA.sub("", text)
    found = ["a dollar without its partner"] if "$" in prose else []
    sign = _UNTYPESET.search(_NAMED.sub("", prose))
    found += [f"{sign[0]!r} outside of a formula"] if sign else []
    for formula in _FORMULA.findall(text):
        if "|" in formula:
            found.append(f"a bar in ${formula}$: write \\lvert, \\Vert or \\mid")
        for sign in re.findall(
            r"\\[^A-Za-z\s]|\\(?:operatorname|mbox|phantom|newcommand|tag)\b|\S<\S", formula
        ):
            found.append(f"{sign!r} in ${formula}$ is lost on a code-hosting page")
    return found


def breakable(text: str) -> str:
    r"""The text with each long formula cut into several, between which a line may end.

    No browser breaks a line within a formula, and the column of a table is narrow. So a formula that is
    longer than `_LONGEST` signs is cut before its relations and sums and after its commas, and a piece that
    is still too long likewise within its brackets. Groups, norms, absolute values and angle brackets stay
    whole.
    """
    return _FORMULA.sub(lambda found: " ".join(f"${piece}$" for piece in _pieces(found[1])), text)


def _pieces(formula: str) -> list[str]:
    """The pieces as formulas of their own; ``{}`` before a plus or minus that has a term on its left."""
    pieces = _cut(formula)
    sums = (piece[0] in "+-" and before[-1] != "," for before, piece in pairwise(pieces))
    marked = (f"{{}}{piece}" if added else piece for piece, added in zip(pieces[1:], sums, strict=True))
    return [pieces[0], *marked]


def _cut(formula: str) -> list[str]:
    """A formula that is short enough, or its pieces, cut as far outside of brackets as it can be."""
    breaks = list(_breaks(formula))
    if len(plain(f"${formula}$")) <= _LONGEST or not breaks:
        return [formula]
    outermost = min(depth for _, depth in breaks)
    places = [place for place, depth in breaks if depth == outermost]
    pieces = (formula[a:b].strip() for a, b in zip([0, *places], [*places, None], strict=True))
    return [short for piece in pieces for short in _cut(piece)]


def _breaks(formula: str) -> Iterator[tuple[int, int]]:
    """Where a formula may be cut, each with the depth of its brackets."""
    depth, whole, previous = 0, 0, "("
    inside = {r"\Vert": False, r"\vert": False}
    for token in re.finditer(r"\\[A-Za-z]+|\S", formula):
        sign = token[0]
        if sign in inside:
            inside[sign] = not inside[sign]
        whole += (sign in _WHOLE_FROM) - (sign in _WHOLE_TO)
        depth += (sign in _OPENING) - (sign in _CLOSING)
        related = sign in _RELATIONS or (sign in "+-" and previous not in _BEFORE_A_SIGN)
        place = token.start() if related else token.end() if sign == "," else 0
        if 0 < place < len(formula) and not whole and not any(inside.values()):
            yield place, depth
        previous = sign


class _Formula:
    """A reader of the part of TeX that statements use; what it does not know it shows by its name."""

    def __init__(self, source: str) -> None:
        self._tokens = list(_TOKEN.finditer(source))
        self._next = 0

    def text(self) -> str:
        """The whole formula, with single spaces."""
        parts = []
        while self._next < len(self._tokens):
            parts.append(self._item())
        return _NEEDLESS.sub("", re.sub(r"\s+", " ", "".join(parts)).strip())

    def _item(self) -> str:
        """The next token with its argument."""
        command, escaped, sign, space, character = self._take()
        if command:
            return self._command(command)
        if escaped:
            return escaped if escaped in "{}%&#$" else " "
        if sign == "{":
            return self._group()
        if sign in ("^", "_"):
            return _raised(self._item(), sign)
        return " " if space else f" {character} " if character in _SPACED else character

    def _command(self, name: str) -> str:
        if name in _ACCENTS:
            base = self._argument()
            return base[:1] + _ACCENTS[name] + base[1:]
        if name == "sqrt":
            return f"√{_single(self._argument())}"
        if name in ("frac", "tfrac", "dfrac"):
            above, below = self._argument(), self._argument()
            return f"{above if above.isalnum() else _single(above)}/{_single(below)}"
        if name == "mathbb":
            letter = self._argument()
            return _DOUBLE.get(letter, letter)
        if _LETTERS.fullmatch(name):
            return self._argument()
        if _SIZES.fullmatch(name):
            return ""
        shown = _SIGNS.get(name)
        if shown is None:  # ln, max, min, tr and the like
            return f" {name} "
        return f" {shown} " if shown in _SPACED else shown

    def _argument(self) -> str:
        while self._next < len(self._tokens) and self._tokens[self._next][4]:
            self._next += 1
        return self._item().strip() if self._next < len(self._tokens) else ""

    def _group(self) -> str:
        parts = []
        while self._next < len(self._tokens) and self._tokens[self._next][3] != "}":
            parts.append(self._item())
        self._next += 1
        return re.sub(r"\s+", " ", "".join(parts)).strip()

    def _take(self) -> tuple[str, ...]:
        self._next += 1
        return tuple(part or "" for part in self._tokens[self._next - 1].groups())


def _raised(text: str, sign: str) -> str:
    """An exponent or an index: small where all its characters can be, else after the sign."""
    text = text.replace(" ", "")
    small = text.translate(_ABOVE if sign == "^" else _BELOW)
    if not any(a == b for a, b in zip(text, small, strict=True)) or text in ("*", "′"):
        return small if text != "*" else f"{sign}*"
    return f"{sign}{text}" if len(text) == 1 else f"{sign}({text})"


def _single(text: str) -> str:
    """The text, in brackets unless it is one sign or a number."""
    return text if len(text) == 1 or re.fullmatch(r"[\d.]+", text) else f"({text})"
