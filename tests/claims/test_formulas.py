"""Formulas as plain text, and what of them a page would lose."""

from __future__ import annotations

import pytest

from compendium.claims.formulas import outside_formulas, plain, problems


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
    assert any(found.startswith(problem) for found in problems(text)), problems(text)


def test_a_statement_that_is_typeset_has_no_problems():
    assert problems(r"with $K \ge 2$ (Lemma 1), $\lvert a\rvert \le \mathrm{tr}(A)$; in the ball") == []


def test_a_change_leaves_formulas_alone():
    assert outside_formulas(r"a_b $c_d$ e_f", lambda prose: prose.replace("_", "-")) == "a-b $c_d$ e-f"
