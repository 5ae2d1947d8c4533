"""Bounds of self-normalised sums: against dense sums of streams, and against each other."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers import ReferenceSketch, link_jacobian

from compendium.theory import self_normalised as bounds
from mlogb_core import link


def dense_sums(actions, jacobians, ridge, m):
    """The sums T, T^H, A and A' of notebook 08 by their definitions, and the stream's shrinkage and kappa."""
    K, d = jacobians.shape[1], actions.shape[1]
    sketch, sums = ReferenceSketch(K, d, ridge, m), np.zeros(4)
    for x, J in zip(actions, jacobians, strict=True):
        square = np.outer(x, x)
        G, X = np.kron(J, square), np.kron(np.eye(K), square)
        Z = sketch.dense()
        sums[:3] += (
            np.trace(np.linalg.solve(Z, G)),
            np.trace(np.linalg.solve(sketch.full, G)),
            np.trace(np.linalg.solve(Z, X)),
        )
        sketch.add(J, x)
        sums[3] += np.trace(np.linalg.solve(sketch.dense(), X))
    return sums, sketch.rho, 1.0 / np.linalg.eigvalsh(jacobians)[:, 0].min()


def streams(seed, decades, n_cases=60):
    rng = np.random.default_rng(seed)
    for case in range(n_cases):
        K, d, t = (1, 2, 3)[case % 3], int(rng.integers(1, 5)), int(rng.integers(1, 25))
        m, D = int(rng.integers(1, K * d + 3)), 10.0 ** rng.uniform(-0.5, 1.0)
        X = rng.normal(size=(t, d))
        X *= D / np.linalg.norm(X, axis=1, keepdims=True)
        if case % 2:
            X = D * np.eye(d)[np.arange(t) % min(d, m + 1)]
        if case % 4 == 2:
            X[::3] = 0.0
        J = np.array([link_jacobian(z) for z in rng.normal(size=(t, K)) * 10.0 ** rng.uniform(-2, 0.5)])
        ridge = 2.0 * link.smoothness(K) * D**2 * 10.0 ** rng.uniform(*decades)
        sums, rho, kappa = dense_sums(X, J, ridge, m)
        yield sums, bounds.Stream(K, d, m, ridge, t, rho, D), kappa


def test_paper_sums_are_bounded_from_the_threshold_on():
    for (under_z, under_h, plain, updated), stream, kappa in streams(1, (0.0, 1.0)):
        assert under_h <= bounds.exact_sum_bound(stream)
        assert under_z <= bounds.sketched_sum_bound(stream)
        assert under_z <= bounds.sketched_sum_bound(stream, printed=True)
        assert plain <= bounds.uncertainty_sum_bound(stream, kappa)
        assert updated <= bounds.uncertainty_sum_bound(stream, kappa, updated=True)


@pytest.mark.parametrize("decades", [(0.0, 1.0), (-3.0, 0.0), (2.0, 4.0)])
def test_sharp_sums_are_bounded_for_every_ridge(decades):
    for (under_z, _, plain, updated), stream, kappa in streams(2, decades):
        assert under_z <= bounds.sharp_sum_bound(stream) * (1 + 1e-9)
        assert plain <= bounds.sharp_uncertainty_sum_bound(stream, kappa) * (1 + 1e-9)
        assert updated <= bounds.sharp_uncertainty_sum_bound(stream, kappa, updated=True) * (1 + 1e-9)
        assert updated <= bounds.uncertainty_sum_bound(stream, kappa, updated=True)


def test_sharp_bound_is_attained_by_orthogonal_actions_in_turn():
    sums, rho, _ = dense_sums(np.tile(np.eye(4), (10, 1)), np.full((40, 1, 1), 0.25), 20.0, 3)
    first_form = bounds.potential_slope(0.25 / 20.0) * 4 * rho / 20.0
    assert rho == pytest.approx(10 * 0.25)
    assert 0.99 * first_form <= sums[0] <= first_form
    assert bounds.sharp_sum_bound(bounds.Stream(1, 4, 3, 20.0, 40, rho)) == pytest.approx(sums[0])


def test_sharp_bound_is_attained_by_a_repeated_action():
    sums, _, _ = dense_sums(np.ones((2000, 1)), np.full((2000, 1, 1), 0.25), 5.0, 1)
    assert 0.98 <= sums[0] / bounds.sharp_sum_bound(bounds.Stream(1, 1, 1, 5.0, 2000)) <= 1.0


def test_sharp_bound_is_its_smallest_form():
    stream = bounds.Stream(2, 5, 3, 2.0, 50, 1.5, 1.5)
    g, trace = 0.5 * 1.5**2, 0.5 * 1.5**2 * 50
    kept, rank = trace - 4 * 1.5, 5
    first = g / 2 / math.log(1 + g / 2) * (3 * math.log(1 + kept / 6.0) + rank * 0.75)
    second = 3 * math.log(1 + kept / (3 * (2 - g))) + rank * 1.5 / (2 - g)
    assert bounds.sharp_sum_bound(stream) == pytest.approx(min(first, second, trace / 2))
    updated = 7.0 * (1 + g / 2) * (3 * math.log(1 + kept / 6.0) + rank * 0.75)
    most = 2 * 1.5**2 * 50 / 2
    found = bounds.sharp_uncertainty_sum_bound(stream, 7.0, updated=True)
    assert found == pytest.approx(min(updated, most))
    found = bounds.sharp_uncertainty_sum_bound(stream, 0.1, updated=True)
    assert found == pytest.approx(updated / 70)


def test_sharp_bound_never_exceeds_the_proved_one():
    rng = np.random.default_rng(3)
    for _ in range(2000):
        K, d, m, t = (int(v) for v in rng.integers(1, (6, 30, 40, 10**6)))
        ridge = 2 * link.smoothness(K) * 10.0 ** rng.uniform(0, 4)
        rho = min(10.0 ** rng.uniform(-3, 4), t / (m + 1)) if m < K * d else 0.0
        stream = bounds.Stream(K, d, m, ridge, t, rho)
        assert bounds.sharp_sum_bound(stream) <= bounds.sketched_sum_bound(stream) * (1 + 1e-12)


def test_statement_and_end_of_proof_are_their_formulas():
    stream = bounds.Stream(1, 2, 1, 0.5, 4, 0.5)
    assert bounds.exact_sum_bound(stream) == pytest.approx(2 * math.log(3) + math.log(17))
    assert bounds.sketched_sum_bound(stream) == pytest.approx(2 * (2 * math.log(3) + math.log(17)))
    printed = bounds.sketched_sum_bound(stream, printed=True)
    assert printed == pytest.approx(2 * (2 * math.log(4) + math.log(9)))
    assert printed < bounds.sketched_sum_bound(stream)
    assert bounds.uncertainty_sum_bound(stream, 5.0) == pytest.approx(10 * (2 * math.log(3) + math.log(17)))
    updated = bounds.uncertainty_sum_bound(stream, 5.0, updated=True)
    assert updated == pytest.approx(10 * (2 * math.log(2) + math.log(9)))


@pytest.mark.parametrize("K", [1, 2, 3, 7])
def test_trace_constant_is_the_supremum(K):
    best = 0.0
    for share in np.linspace(0.0, 1.0, 2001):
        p = np.full(K, share / K)
        best = max(best, np.trace(np.diag(p) - np.outer(p, p)))
    assert bounds.trace_constant(K) == pytest.approx(best, rel=1e-6)


def test_potential_slope_is_the_chord():
    assert bounds.potential_slope(0.0) == 1.0
    g = 0.7
    v = np.linspace(1e-6, g, 500)
    assert (v / np.log1p(v)).max() == pytest.approx(bounds.potential_slope(g))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bounds.Stream(0, 1, 1, 1.0, 1), "n_outcomes must be at least 1"),
        (lambda: bounds.Stream(1, 0, 1, 1.0, 1), "n_features must be at least 1"),
        (lambda: bounds.Stream(1, 1, 0, 1.0, 1), "sketch_size must be at least 1"),
        (lambda: bounds.Stream(1, 1, 1, 0.0, 1), "regularization must be positive"),
        (lambda: bounds.Stream(1, 1, 1, 1.0, -1), "n_rounds must be at least 0"),
        (lambda: bounds.Stream(1, 1, 1, 1.0, 1, -1.0), "shrinkage must be at least 0"),
        (lambda: bounds.Stream(1, 1, 1, 1.0, 1, 0.0, 0.0), "action_bound must be positive"),
        (lambda: bounds.exact_sum_bound(bounds.Stream(1, 1, 1, 0.4, 1)), r"at least 2 L D\^2 = 0.5"),
        (lambda: bounds.sketched_sum_bound(bounds.Stream(2, 1, 1, 0.9, 1)), r"at least 2 L D\^2 = 1"),
        (lambda: bounds.uncertainty_sum_bound(bounds.Stream(1, 1, 1, 1.0, 1), 0.0), "kappa must be positive"),
        (lambda: bounds.potential_slope(-1.0), "bound must be at least 0"),
    ],
)
def test_arguments_are_checked(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_condition_on_the_ridge_is_needed():
    sums, _, _ = dense_sums(np.ones((1, 1)), np.full((1, 1, 1), 0.25), 0.05, 1)
    assert sums[1] == pytest.approx(5.0)
    assert sums[1] > math.log(1 + 2 / 0.05)
