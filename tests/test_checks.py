"""The helpers of the derivation notebooks: they must be right, and they must be able to fail."""

from __future__ import annotations

import numpy as np
import pytest

from compendium.checks import (
    bounded,
    caught,
    entrywise_error,
    evidence,
    logit_cases,
    precise,
    precise_block,
    precise_gradient,
    precise_hessian,
    precise_probabilities,
    relative_error,
    sketch_cases,
)


def test_relative_error_is_over_the_largest_entry():
    assert relative_error([1.0, 2.5], [1.0, 2.0]) == 0.25
    assert relative_error(np.zeros((2, 2)), np.zeros((2, 2))) == 0.0
    assert relative_error([np.nan], [1.0]) == np.inf
    with pytest.raises(ValueError, match="shapes differ"):
        relative_error([1.0], [1.0, 1.0])


def test_entrywise_error_sees_a_small_entry():
    assert relative_error([1.0, 2e-20], [1.0, 1e-20]) < 1e-19
    assert entrywise_error([1.0, 2e-20], [1.0, 1e-20]) == 1.0
    with pytest.raises(ValueError, match="zero entry"):
        entrywise_error([1.0], [0.0])


def test_evidence_prints_the_tolerance_not_the_error(capsys):
    evidence("C1", "a against b", error=3.7e-16, tolerance=1e-13, cases=20)
    assert capsys.readouterr().out == "C1 holds: a against b: error below 1e-13 (20 cases)\n"


@pytest.mark.parametrize(("error", "cases"), [(2e-13, 20), (np.nan, 20), (np.inf, 20), (0.0, 0)])
def test_evidence_can_fail(error, cases):
    with pytest.raises(AssertionError, match="C1 fails"):
        evidence("C1", "a against b", error=error, tolerance=1e-13, cases=cases)


def test_bounded(capsys):
    bounded("C4", "lambda", largest=0.2499999, limit=0.25, cases=5, reached=0.999)
    assert (
        capsys.readouterr().out == "C4 holds: lambda: at most 0.25, at least 99.9 % of it reached (5 cases)\n"
    )
    for largest, cases in [(0.2501, 5), (0.2, 5), (np.nan, 5), (0.25, 0)]:
        with pytest.raises(AssertionError, match="C4 fails"):
            bounded("C4", "lambda", largest=largest, limit=0.25, cases=cases, reached=0.999)


def test_caught_fails_when_the_variant_passes(capsys):
    caught("no ridge", error=0.31, tolerance=1e-13)
    assert capsys.readouterr().out == "caught: no ridge: 0.31 exceeds 1e-13\n"
    caught("no ridge", error=np.inf, tolerance=1e-13)
    assert capsys.readouterr().out == "caught: no ridge: a value above 100 exceeds 1e-13\n"
    with pytest.raises(AssertionError, match="not caught"):
        caught("no ridge", error=1e-14, tolerance=1e-13)


def test_differences_of_a_polynomial_and_an_exponential():
    def function(v):
        return v[0] ** 2 * v[1] + v[1].exp()

    x = np.array([1.5, -0.25])
    gradient = [2 * x[0] * x[1], x[0] ** 2 + np.exp(x[1])]
    hessian = [[2 * x[1], 2 * x[0]], [2 * x[0], np.exp(x[1])]]
    assert relative_error(precise_gradient(function, x), gradient) < 1e-15
    assert relative_error(precise_hessian(function, x), hessian) < 1e-15


def test_precise_probabilities_keep_small_outcomes():
    p = precise(precise_probabilities, np.array([60.0, -60.0]))
    assert entrywise_error(p, [np.exp(-60.0), 1.0, np.exp(-120.0)]) < 1e-13


def test_precise_block_matches_a_dense_solve():
    for sketch, x in sketch_cases(12, seed=4):
        X = np.kron(np.eye(sketch.n_outcomes), x[:, None])
        assert relative_error(precise_block(sketch, x), X.T @ np.linalg.solve(sketch.dense(), X)) < 1e-11


def test_cases_are_reproducible_and_varied():
    assert all((a == b).all() for a, b in zip(logit_cases(9, 1), logit_cases(9, 1), strict=True))
    cases = list(sketch_cases(200, seed=3))
    ranks = {(s.rank == 0, 0 < s.rank < s.sketch_size, s.rank == s.sketch_size) for s, _ in cases}
    assert len(ranks) == 3
    assert {s.n_outcomes for s, _ in cases} == {1, 2, 4}
    assert any(s.shrinkage > 0 for s, _ in cases)
    assert any(not x.any() for _, x in cases)
    assert max(np.linalg.cond(s.dense()) for s, _ in cases) < 1e5
