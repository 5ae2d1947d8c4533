"""The ellipsoidal projection: optimality certificates and closed forms, near and far from the ball."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from helpers import EPS, ellipsoid_projection
from hypothesis import given
from hypothesis import strategies as st

from compendium.claims.checks import sketch_cases
from mlogb_core import ConstantRadius, eofd, projection
from mlogb_core.curvature import FrequentDirections, low_rank
from mlogb_core.link import jacobian_factor, loss_residual, outcome_probabilities
from mlogb_core.projection import _by_series, project_onto_ball


def positive_definite(rng, n, condition, scale):
    """A matrix with eigenvalues spread evenly in the logarithm over the given condition number."""
    Q, _ = np.linalg.qr(rng.standard_normal((n, n)))
    values = scale * condition ** rng.random(n)
    values[0], values[-1] = scale, scale * condition ** (n > 1)
    return (Q * values) @ Q.T


def solver(Z, calls=None):
    """The resolvent of Z by dense solves; the multiplier of each factorisation is appended to `calls`."""

    def resolvent_at(multiplier):
        if calls is not None:
            calls.append(multiplier)
        shifted = Z + multiplier * np.eye(len(Z))
        return lambda vector: np.linalg.solve(shifted, vector)

    return resolvent_at


problems = st.tuples(
    st.integers(1, 12),
    st.sampled_from([1.0, 10.0, 1e4]),
    st.sampled_from([1e-6, 1e-3, 1.0, 1e5]),
    st.sampled_from([1e-6, 1.0, 30.0]),
    st.sampled_from([1.0 + 1e-9, 1.5, 1e3, 1e12]),
    st.integers(0, 10**6),
)


def drawn(problem):
    """Z, a point at the given multiple of the radius S, S, and the random stream."""
    n, condition, scale, S, distance, seed = problem
    rng = np.random.default_rng(seed)
    Z = positive_definite(rng, n, condition, scale)
    point = rng.standard_normal(n)
    return Z, point * (distance * S / np.linalg.norm(point)), S, rng


@given(problems)
def test_the_optimality_conditions_hold(problem):
    Z, point, S, rng = drawn(problem)
    w, nu = project_onto_ball(solver(Z), point, Z @ point, S)

    gradient = Z @ (w - point)
    size = np.linalg.norm(Z, 2) * np.linalg.norm(point)  # what the products above are rounded at
    assert nu >= 0.0
    assert np.linalg.norm(w) <= S * (1 + 10 * EPS)
    assert nu * (S - np.linalg.norm(w)) <= 100 * EPS * size
    n = len(point)
    assert np.linalg.norm(gradient + nu * w) <= 100 * n * EPS * size
    # The certificate: no feasible point lies on the descending side of the gradient.
    assert gradient @ w + S * np.linalg.norm(gradient) <= 100 * n * EPS * size * S
    for _ in range(20):
        v = rng.standard_normal(n)
        v *= S * rng.random() / np.linalg.norm(v)
        gain = (v - point) @ Z @ (v - point) - (w - point) @ Z @ (w - point)
        assert gain >= (v - w) @ Z @ (v - w) - 100 * n * EPS * size * np.linalg.norm(point)


@given(problems)
def test_it_equals_the_projection_by_an_eigendecomposition(problem):
    Z, point, S, _ = drawn(problem)
    w, _ = project_onto_ball(solver(Z), point, Z @ point, S)
    expected = ellipsoid_projection(Z, point, S)
    n, condition = problem[:2]  # The error of a solve grows with the condition number.
    np.testing.assert_allclose(w, expected, rtol=0, atol=100 * n * condition * EPS * S)


@given(problems)
def test_a_few_newton_steps_suffice(problem):
    Z, point, S, _ = drawn(problem)
    calls = []
    project_onto_ball(solver(Z, calls), point, Z @ point, S)
    assert calls[0] == 0.0
    assert all(a < b for a, b in pairwise(calls))
    assert len(calls) <= 10


@pytest.mark.parametrize("length", [0.0, 0.3, 1.0])
def test_points_in_the_ball_stay_and_nothing_is_factored(length):
    point = np.array([0.0, length])
    calls = []
    w, nu = project_onto_ball(solver(np.diag([1.0, 5.0]), calls), point, point, norm_bound=1.0)
    assert w is point
    assert nu == 0.0
    assert calls == []


@given(st.floats(1e-3, 1e3), st.floats(1e-6, 1e3), st.floats(1.0, 1e12), st.integers(0, 10**6))
def test_a_multiple_of_the_identity_scales_the_point(scale, S, distance, seed):
    point = np.random.default_rng(seed).standard_normal(5)
    point *= 1.01 * distance * S / np.linalg.norm(point)
    w, nu = project_onto_ball(solver(scale * np.eye(5)), point, scale * point, S)
    length = np.linalg.norm(point)
    np.testing.assert_allclose(w, S * point / length, rtol=20 * EPS)
    np.testing.assert_allclose(nu, scale * (length / S - 1.0), rtol=1e4 * EPS)


def test_two_dimensions_by_hand():
    # (Z + 2I) w = Z w' with Z = diag(1, 3), w = (3, 4)/5: w' = (9/5, 4/3).
    Z, w, nu = np.diag([1.0, 3.0]), np.array([0.6, 0.8]), 2.0
    point = np.array([1.8, 4.0 / 3.0])
    found, multiplier = project_onto_ball(solver(Z), point, Z @ point, 1.0)
    np.testing.assert_allclose(found, w, rtol=20 * EPS)
    np.testing.assert_allclose(multiplier, nu, rtol=40 * EPS)


def test_a_search_that_does_not_settle_says_so():
    def broken(multiplier):
        return lambda vector: np.full_like(vector, np.nan)

    with pytest.raises(ArithmeticError, match=r"radius 1\.0 did not settle"):
        project_onto_ball(broken, np.array([2.0, 0.0]), np.array([2.0, 0.0]), 1.0)


@pytest.mark.parametrize(("K", "d", "m"), [(1, 30, 12), (4, 20, 16), (3, 7, 40)])
def test_a_projection_takes_one_or_two_factors_and_more_give_the_same_point(K, d, m, monkeypatch):
    settings = {"regularization": 2.0, "step_size": 2.0, "norm_bound": 0.7, "radius": ConstantRadius(0.1)}
    one, other = (eofd(d, np.ones(K), sketch_size=m, **settings) for _ in range(2))
    factors, resolvent, projections = {one: 0, other: 0}, low_rank._resolvent, 0
    rng = np.random.default_rng(K)
    for _ in range(120):
        action, outcome = rng.standard_normal(d), int(rng.integers(K + 1))
        action *= 0.6 / np.linalg.norm(action)
        for policy, terms in ((one, 6), (other, -1)):
            taken = []
            monkeypatch.setattr(projection, "_MAX_TERMS", terms)
            monkeypatch.setattr(
                low_rank, "_resolvent", lambda *given, n=taken: n.append(1) or resolvent(*given)
            )
            policy.update(action, outcome)
            factors[policy] += len(taken)
        projections += bool(taken)
        np.testing.assert_allclose(one.parameter, other.parameter, rtol=0, atol=1e-13)
    assert 40 < projections < 120  # rounds that stay in the ball do not project
    assert factors[one] <= 1.8 * projections
    assert factors[other] >= 1.5 * factors[one]


def test_the_search_starts_below_the_root():
    rng, projections = np.random.default_rng(9), 0
    for sketch, x in sketch_cases(200, seed=9):
        W = rng.standard_normal((sketch.n_outcomes, sketch.n_features))
        p = outcome_probabilities(rng.standard_normal(sketch.n_outcomes))
        radius, starts, start = np.linalg.norm(W) * 10.0 ** rng.uniform(-3.0, 0.0), [], sketch._start
        sketch._start = lambda *given, kept=starts, f=start: kept.append(f(*given)) or kept[-1]
        new = sketch.newton_step(sketch.frame(x), W, loss_residual(p, 0), jacobian_factor(p), 1.0, radius)
        assert len(starts) == (new.multiplier > 0.0)
        assert all(0.0 < found <= new.multiplier * (1.0 + 1e-12) for found in starts)
        projections += len(starts)
    assert projections > 100


@pytest.mark.parametrize("excess", [1e-14, 1e-9, 1e-6, 1e-4])
def test_the_series_ends_at_the_root_to_roundoff(excess):
    rng = np.random.default_rng(3)
    values, point = np.linspace(1.0, 3.0, 8), rng.standard_normal(8)
    shifts = values + 0.5
    derivative = point / shifts
    radius = float(np.linalg.norm(point / (1.0 + excess / shifts)))
    step = (np.linalg.norm(point) / radius - 1.0) * (point @ point) / (point @ derivative)
    found, rest = _by_series(lambda vector: vector / shifts, point, derivative, step, radius)
    np.testing.assert_allclose(found, point / (1.0 + excess / shifts), rtol=40 * EPS, atol=0)
    assert rest == pytest.approx(excess, abs=40 * EPS)


def test_the_series_gives_up_far_from_the_root():
    point = np.array([1.0, 2.0])
    assert _by_series(lambda vector: vector, point, point, 0.1, 1.0) is None
    # Little of the point lies where the resolvent is large: the first terms promise too much.
    skew, shifts = np.array([1.0, 1e-4]), np.array([1.0, 1e-3])
    assert _by_series(lambda vector: vector / shifts, skew, skew / shifts, 1e-3, 0.9) is None


def test_the_series_is_right_to_roundoff_wherever_it_is_used():
    """This includes points with a small component for which the resolvent is large and terms fall slowly."""
    shifts, used = np.array([1.0, 1e-3]), 0
    for share in 10.0 ** -np.arange(6.0, 18.0, 0.5):
        for excess in (1e-5, 3e-5, 1e-4, 3e-4):
            point = np.array([1.0, share])
            radius, derivative = float(np.linalg.norm(point / (1.0 + excess / shifts))), point / shifts
            step = (np.linalg.norm(point) / radius - 1.0) * (point @ point) / (point @ derivative)
            near = _by_series(lambda vector: vector / shifts, point, derivative, step, radius)
            if near is not None:
                assert np.linalg.norm(near[0] - point / (1.0 + near[1] / shifts)) <= 2 * EPS
                used += 1
    assert used > 50


@pytest.mark.parametrize("size", [1.0, 1e-120, 1e-140, 1e-155, 1e-159, 1e-160])
def test_short_points_are_projected_as_long_as_their_squares_keep_digits(size):
    """Below 1e-150 squares of lengths lose digits to underflow, until the slope of the series is 0."""
    values = np.linspace(1.0, 3.0, 6)
    for share in np.arange(-1.0, 1.0, 0.11):  # Which squares underflow depends on the point.
        point = 1.5 * size * np.array([1.0, share, 0.1, -0.5, 0.3, share**2])

        def resolvent_at(multiplier):
            return lambda vector: vector / (values + multiplier)

        projected, _ = project_onto_ball(resolvent_at, point, values * point, size)
        assert np.linalg.norm(projected / size) == pytest.approx(1.0, abs=1e-14 if size >= 1e-140 else 0.5)


def test_a_large_action_keeps_its_digits():
    """The Hessian of this action has the eigenvalue 1e13 beside lambda = 1."""
    sketch, radius = FrequentDirections(1, 5, 1.0, 3), 1e-8
    action = np.linspace(-1.0, 2.0, 5)
    action *= 1e7 / np.linalg.norm(action)
    frame, factor = sketch.frame(action), np.full((1, 1), 0.5)
    step = sketch.newton_step(frame, np.full((1, 5), radius), np.array([-1.0]), factor, 1.0, radius)
    assert abs(np.linalg.norm(step.parameter) / radius - 1.0) <= 1e-14
