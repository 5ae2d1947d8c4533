"""The ellipsoidal projection: optimality certificates and closed forms, near and far from the ball."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from helpers import EPS, ellipsoid_projection
from hypothesis import given
from hypothesis import strategies as st

from mlogb_core import ConstantRadius, eofd
from mlogb_core.curvature import FrequentDirections, low_rank
from mlogb_core.projection import project_onto_ball


def positive_definite(rng, n, condition, scale):
    """A matrix with eigenvalues spread evenly in the logarithm over the given condition number."""
    Q, _ = np.linalg.qr(rng.standard_normal((n, n)))
    values = scale * condition ** rng.random(n)
    values[0], values[-1] = scale, scale * condition ** (n > 1)
    return (Q * values) @ Q.T


def solver(Z, calls=None):
    """The resolvent of Z by dense solves; counts the factorisations in `calls`."""

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


@given(problems)
def test_the_optimality_conditions_hold(problem):
    n, condition, scale, S, distance, seed = problem
    rng = np.random.default_rng(seed)
    Z = positive_definite(rng, n, condition, scale)
    point = rng.standard_normal(n)
    point *= distance * S / np.linalg.norm(point)
    w, nu = project_onto_ball(solver(Z), point, Z @ point, S)

    gradient = Z @ (w - point)
    size = np.linalg.norm(Z, 2) * np.linalg.norm(point)  # what the products above are rounded at
    assert nu >= 0.0
    assert np.linalg.norm(w) <= S * (1 + 10 * EPS)
    assert nu * (S - np.linalg.norm(w)) <= 100 * EPS * size
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
    n, condition, scale, S, distance, seed = problem
    rng = np.random.default_rng(seed)
    Z = positive_definite(rng, n, condition, scale)
    point = rng.standard_normal(n)
    point *= distance * S / np.linalg.norm(point)
    w, _ = project_onto_ball(solver(Z), point, Z @ point, S)
    expected = ellipsoid_projection(Z, point, S)
    # The error of a solve grows with the condition number.
    np.testing.assert_allclose(w, expected, rtol=0, atol=100 * n * condition * EPS * S)


@given(problems)
def test_a_few_newton_steps_suffice(problem):
    n, condition, scale, S, distance, seed = problem
    rng = np.random.default_rng(seed)
    Z = positive_definite(rng, n, condition, scale)
    point = rng.standard_normal(n)
    point *= distance * S / np.linalg.norm(point)
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
def test_a_large_sketch_projects_by_lanczos_to_the_same_points(K, d, m, monkeypatch):
    settings = {"regularization": 2.0, "step_size": 2.0, "norm_bound": 0.7, "radius": ConstantRadius(0.1)}
    one, other = (eofd(d, np.ones(K), sketch_size=m, **settings) for _ in range(2))
    steps, project = [], low_rank.project_by_lanczos
    monkeypatch.setattr(low_rank, "project_by_lanczos", lambda *given: steps.append(1) or project(*given))
    rng = np.random.default_rng(K)
    for _ in range(120):
        action, outcome = rng.standard_normal(d), int(rng.integers(K + 1))
        action *= 0.6 / np.linalg.norm(action)
        for policy, large in ((one, 1), (other, 10**6)):
            monkeypatch.setattr(low_rank, "_LARGE", large)
            policy.update(action, outcome)
        np.testing.assert_allclose(one.parameter, other.parameter, rtol=0, atol=1e-13)
    assert 40 < len(steps) < 120  # rounds that stay in the ball do not project


def test_an_ill_conditioned_sketch_projects_by_cholesky(monkeypatch):
    monkeypatch.setattr(low_rank, "_LARGE", 1)
    sketch = FrequentDirections(1, 5, 1e-3, 3)
    small = np.full((1, 1), 1e-3)
    sketch.add(sketch.frame(np.eye(5)[0]), small)
    assert sketch._suits_lanczos(sketch.frame(np.eye(5)[1]), small)
    sketch.add(sketch.frame(np.eye(5)[1]), np.ones((1, 1)))
    assert not sketch._suits_lanczos(sketch.frame(np.eye(5)[1]), small)


def test_a_large_action_is_projected_by_cholesky(monkeypatch):
    """Its Hessian stretches space by 1e13, and Lanczos' method would lose all digits but four."""
    monkeypatch.setattr(low_rank, "_LARGE", 1)
    sketch, radius = FrequentDirections(1, 5, 1.0, 3), 1e-8
    action = np.linspace(-1.0, 2.0, 5)
    action *= 1e7 / np.linalg.norm(action)
    frame, factor = sketch.frame(action), np.full((1, 1), 0.5)
    assert not sketch._suits_lanczos(frame, factor)
    step = sketch.newton_step(frame, np.full((1, 5), radius), np.array([-1.0]), factor, 1.0, radius)
    assert abs(np.linalg.norm(step.parameter) / radius - 1.0) <= 1e-14
