"""The helpers of the derivation notebooks: they must be right, and they must be able to fail."""

from __future__ import annotations

import numpy as np
import pytest

from compendium.claims.checks import (
    beside,
    entrywise_error,
    logit_cases,
    precise,
    precise_block,
    precise_gradient,
    precise_hessian,
    precise_probabilities,
    relative_error,
    sketch_cases,
    worst_case,
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


def test_matrices_stand_side_by_side():
    shown = beside(("computed", [[1.0, -2.25], [-1e-9, 10.0]]), ("dense", np.array([0.5, -0.125])), digits=2)
    assert shown.splitlines() == [
        "computed        dense",
        " 1.00  -2.25     0.50",
        " 0.00  10.00    -0.12",
    ]
    with pytest.raises(ValueError, match="shorter"):
        beside(("a", [1.0, 2.0]), ("b", [1.0]))


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


def test_worst_case_finds_a_kinked_maximum():
    def objective(v):
        return np.nan if v[0] > 2.0 else 3.0 - abs(v[0] - 1.0) - abs(v[1])

    value, point = worst_case(objective, lambda rng: rng.normal(size=2) * 3.0, starts=50, polished=2, seed=1)
    assert value == pytest.approx(3.0, abs=1e-6)
    assert point == pytest.approx([1.0, 0.0], abs=1e-6)


def test_worst_case_keeps_what_its_second_method_loses():
    def objective(v):  # a ridge along a parabola: Powell's lines leave it and do not come back
        off = abs(v[1] - v[0] ** 2) / 0.1
        return 1.0 - off if off < 1.0 else -1.0

    search = {"starts": 1, "polished": 1, "seed": 1, "bounds": [(-1.0, 1.0)] * 2}
    value, point = worst_case(objective, lambda rng: np.array([0.3, 0.15]), **search)
    assert value == objective(point) == pytest.approx(1.0, abs=1e-6)
