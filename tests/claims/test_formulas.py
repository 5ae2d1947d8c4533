"""Formulas as plain text, and what of them a page would lose."""

from __future__ import annotations

import re

import pytest

from compendium.claims.formulas import breakable, faults, outside_formulas, plain
from compendium.claims.registry import load_registry


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r"for $\lVert x\rVert_2 \le D$", "for ‖x‖₂ ≤ D"),
        (r"$\lVert Z^{-1/2}(I\otimes x)\rVert_2^2$", "‖Z^(-1/2)(I⊗x)‖₂²"),
        (r"$\tilde Z^{-1} = \frac1\lambda(I - \tilde V\tilde V^\top)$", "Z̃⁻¹ = 1/λ(I - ṼṼᵀ)"),
        (r"$\frac{a + b}{Kd}$, $\sqrt6$, $\sqrt{Kd}$", "(a + b)/(Kd), √6, √(Kd)"),
        (r"$O(\ln^2 K\thinspace\ln(t) \max_k \mu_k)$", "O(ln² K ln(t) max_k μ_k)"),
        (r"$W_*$, $W_{t+1}$ and $\mathbb R^{Kd}$", "W_*, W_(t+1) and ℝ^(Kd)"),
        (r"$\bigl\lbrace 1, \sqrt2\bigr\rbrace$", "{1, √2}"),
        ("no formula", "no formula"),
    ],
)
def test_a_formula_can_be_read_as_text(text, shown):
    assert plain(text) == shown


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a <= b", "'<' outside of a formula"),
        ("for lambda large", "'lambda' outside of a formula"),
        ("$a$ and $b", "a dollar without its partner"),
        ("$|a|$", "a bar in $|a|$"),
        (r"$a\,b$", r"'\\,' in $a\,b$"),
        (r"$\operatorname{tr}A$", r"'\\operatorname' in"),
    ],
)
def test_what_would_not_be_typeset_is_named(text, problem):
    assert any(found.startswith(problem) for found in faults(text)), faults(text)


def test_a_statement_that_is_typeset_has_no_problems():
    assert faults("$x$ of eq:cr-beta and `mlogb_core.link`") == []
    assert faults(r"with $K \ge 2$ (Lemma 1), $\lvert a\rvert \le \mathrm{tr}(A)$; in the ball") == []


def test_a_change_leaves_formulas_alone():
    assert outside_formulas(r"a_b $c_d$ e_f", lambda prose: prose.replace("_", "-")) == "a-b $c_d$ e-f"


LONG = (
    r"w = \bigl(\frac\lambda{\lambda+\nu}I + \frac\nu{\lambda+\nu}V\Lambda"
    r"((\lambda + \nu)I + \Lambda)^{-1}V^\top\bigr)w'"
)


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("so $a + b = c$ holds", "so $a + b = c$ holds"),
        (
            r"$\Vert w - v\Vert_Z^2 \le \lambda S^2 + 2\eta\ln\frac1\delta - \beta_{t+1}$, and $x$",
            r"$\Vert w - v\Vert_Z^2$ $\le \lambda S^2$ ${}+ 2\eta\ln\frac1\delta$ ${}- \beta_{t+1}$, and $x$",
        ),
        (
            r"$\frac{a + b + c + d + e + f + g + h}{a + b + c + d + e + f + g + h}$",
            r"$\frac{a + b + c + d + e + f + g + h}{a + b + c + d + e + f + g + h}$",
        ),
        (
            r"$-aaaaaaaaaaaaaaaaaa \ge -bbbbbbbbbbbbbbbbbbbbbbbbb$",
            r"$-aaaaaaaaaaaaaaaaaa$ $\ge -bbbbbbbbbbbbbbbbbbbbbbbbb$",
        ),
        (
            r"$x \min\lbrace(aaaaaaa + bbbbbbbb)^2, -(ccccccc + ddddddd)/e\rbrace$",
            r"$x \min\lbrace(aaaaaaa + bbbbbbbb)^2,$ $-(ccccccc + ddddddd)/e\rbrace$",
        ),
        (
            f"${LONG}$",
            r"$w$ $= \bigl(\frac\lambda{\lambda+\nu}I$ ${}+ \frac\nu{\lambda+\nu}V\Lambda((\lambda + \nu)I$ "
            r"${}+ \Lambda)^{-1}V^\top\bigr)w'$",
        ),
    ],
)
def test_a_line_may_end_within_a_long_formula(text, broken):
    assert breakable(text) == broken


def test_a_formula_that_is_cut_loses_nothing():
    registry = load_registry()
    for claim in registry.claims:
        for text in (claim.statement, claim.instead or ""):
            broken = breakable(text)
            whole = re.sub(r"\$ \$(?:\{\})?", "", broken)
            assert whole.replace(" ", "") == re.sub(r"\$ \$", "", text).replace(" ", "")
            assert all(piece.count("{") == piece.count("}") for piece in re.findall(r"\$([^$]+)\$", broken))
