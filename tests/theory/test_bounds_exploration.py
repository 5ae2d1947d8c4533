"""Explore, then learn: the projections onto an ellipsoid, with and without the ball, and the constants."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compendium.theory import exploration, mixture
from compendium.theory.exploration import Ellipsoid, LowRank


def problem(seed, orthonormal=False):
    """Two low-rank matrices, an ellipsoid and a point outside of it, in 2 to 8 dimensions."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    parts = []
    for _ in range(2):
        vectors = rng.normal(size=(n, int(rng.integers(0, n + 1))))
        vectors = np.linalg.qr(vectors)[0] if orthonormal else vectors
        parts.append(
            LowRank(10.0 ** rng.uniform(-2, 2), vectors, 10.0 ** rng.uniform(-2, 2, vectors.shape[1]))
        )
    centre, point = rng.normal(size=(2, n))
    away = point - centre
    radius = float(rng.uniform(0.01, 0.9)) * float(away @ parts[1].dense() @ away)
    return parts[0], Ellipsoid(centre, parts[1], radius), point


@given(st.integers(0, 10**6))
def test_projection_meets_its_conditions(seed):
    matrix, ellipsoid, point = problem(seed)
    found, nu = exploration.project_onto_ellipsoid(matrix, point, ellipsoid)
    Z, Q, away = matrix.dense(), ellipsoid.matrix.dense(), found - ellipsoid.centre
    assert away @ Q @ away == pytest.approx(ellipsoid.radius, rel=1e-9)
    assert nu > 0.0
    slope = Z @ (found - point) + nu * Q @ away
    assert np.abs(slope).max() <= 1e-8 * np.abs(Z @ (point - ellipsoid.centre)).max()


def plain(n):
    """The identity."""
    return LowRank(1.0, np.zeros((n, 0)), [])


def test_a_point_inside_stays():
    ellipsoid = Ellipsoid([1.0, 0.0], LowRank(1.0, np.zeros((2, 0)), []), 4.0)
    found, nu = exploration.project_onto_ellipsoid(LowRank(2.0, np.zeros((2, 0)), []), [2.0, 0.5], ellipsoid)
    assert (found.tolist(), nu) == ([2.0, 0.5], 0.0)


@given(st.integers(0, 10**6))
def test_projection_onto_both_meets_its_conditions(seed):
    matrix, ellipsoid, point = problem(seed, orthonormal=True)
    only, _ = exploration.project_onto_ellipsoid(matrix, point, ellipsoid)
    S = 0.3 * np.linalg.norm(ellipsoid.centre) + 0.7 * np.linalg.norm(only)
    found, nu = exploration.project_onto_both(matrix, point, ellipsoid, S)
    Z, Q, away = matrix.dense(), ellipsoid.matrix.dense(), found - ellipsoid.centre
    assert np.linalg.norm(found) <= S * (1 + 1e-9)
    assert away @ Q @ away <= ellipsoid.radius * (1 + 1e-9)
    if nu == 0.0:
        assert found == pytest.approx(only)
        return
    assert np.linalg.norm(found) == pytest.approx(S, rel=1e-7)
    slope = Z @ (found - point) + nu * found  # must point against the ellipsoid's normal, or vanish
    normal = Q @ away
    active = away @ Q @ away > ellipsoid.radius * (1 - 1e-9)
    mu = max(-(slope @ normal) / (normal @ normal), 0.0) if active else 0.0
    assert np.abs(slope + mu * normal).max() <= 1e-5 * np.abs(Z @ (point - ellipsoid.centre)).max()


def test_sets_without_a_common_point_are_refused():
    with pytest.raises(ValueError, match="norm_bound must exceed the least length in the ellipsoid"):
        exploration.project_onto_both(plain(2), [9.0, 0.0], Ellipsoid([5.0, 0.0], plain(2), 1.0), 1.0)


def test_parameters_and_terms_by_hand():
    lam, eta = exploration.explored_parameters(1, variation=2.0, action_bound=3.0)
    assert (eta, lam) == (2.0, pytest.approx(2 * 2 * 9 * max(0.5, 2 / (6 * math.sqrt(3)))))
    terms = exploration.explored_radius_terms(
        1, 2.0, start=5.0, confidence=0.1, regularization=lam, step_size=eta, trace=3.0, logit_movement=0.5,
        hessian_movement=0.25, action_bound=3.0,
    )  # fmt: skip
    assert terms["start"] == 5.0
    assert terms["martingale"] == pytest.approx(4 * math.log(10))
    assert terms["sketch"] == pytest.approx(8 * math.expm1(1.0) * 3.0)
    assert terms["logit_movement"] == pytest.approx(2 * 2 * 0.5 / (6 * math.sqrt(3)))
    assert terms["hessian_movement"] == -0.125
    with pytest.raises(ValueError, match=r"step_size must be at least 1 \+ variation / 2 = 2, got 1\.9"):
        exploration.explored_radius_terms(
            1, 2.0, start=5.0, confidence=0.1, regularization=1.0, step_size=1.9, trace=1.0
        )


def test_a_small_variation_is_better_than_the_ball():
    assert exploration.explored_parameters(4, 1.0)[1] < mixture.ville_parameters(4, 1.0)[1]
    assert exploration.logit_variation(2, 0.5, 2.0) == pytest.approx(2 * math.sqrt(2))
    assert exploration.logit_variation(1, 0.5, 2.0) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LowRank(1.0, np.zeros(3), []), r"vectors must have shape \(n, k\), got \(3,\)"),
        (lambda: LowRank(1.0, np.zeros((2, 1)), [-1.0]), "values must be at least 0, got -1.0"),
        (lambda: LowRank(0.0, np.zeros((2, 1)), [1.0]), "ridge"),
        (lambda: Ellipsoid([0.0], LowRank(1.0, np.zeros((2, 0)), []), 1.0), "centre"),
        (
            lambda: exploration.project_onto_ellipsoid(
                plain(3), [0.0, 0.0], Ellipsoid([0.0, 0.0], plain(2), 1.0)
            ),
            "matrix must have 2 rows like the centre, got 3",
        ),
    ],
)  # fmt: skip
def test_what_is_out_of_range_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
