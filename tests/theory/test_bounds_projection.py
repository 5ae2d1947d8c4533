"""The bracket of the projection's multiplier and the count of Newton steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compendium.theory.projection import multiplier_bracket, newton_steps, sharp_bracket
from mlogb_core.projection import project_onto_ball

problems = st.tuples(
    st.integers(1, 8),
    st.sampled_from([1.0, 10.0, 1e4]),
    st.sampled_from([1.0 + 1e-6, 1.5, 1e3, 1e9]),
    st.integers(0, 10**6),
)


def drawn(problem):
    n, condition, ratio, seed = problem
    rng = np.random.default_rng(seed)
    values = condition ** rng.random(n)
    point = rng.standard_normal(n)
    S = np.linalg.norm(point) / ratio
    _, nu = project_onto_ball(lambda nu: lambda v: v / (values + nu), point, values * point, S)
    return values, point, S, nu


@given(problems)
def test_the_brackets_hold_the_multiplier_and_are_nested(problem):
    values, point, S, nu = drawn(problem)
    low, high = multiplier_bracket(values.min(), values.max(), np.linalg.norm(point), S)
    inner_low, inner_high = sharp_bracket(point, values * point, point / values, S)
    slack = 1e-8  # nu is the root up to the cancellation of |w'| / S - 1
    assert low * (1 - slack) <= inner_low
    assert inner_low * (1 - slack) <= nu <= inner_high * (1 + slack)
    assert inner_high <= high * (1 + slack)


def test_the_ends_are_attained_by_eigenvectors():
    values = np.array([1.0, 9.0])
    for axis in range(2):
        point = 5.0 * np.eye(2)[axis]
        _, nu = project_onto_ball(lambda nu: lambda v: v / (values + nu), point, values * point, 2.0)
        assert nu == pytest.approx(multiplier_bracket(1.0, 9.0, 5.0, 2.0)[axis], rel=1e-14)
        both = sharp_bracket(point, values * point, point / values, 2.0)
        np.testing.assert_allclose(both, nu, rtol=1e-14)


def test_the_sharp_ends_are_approached():
    values, point = np.array([1.0, 4.0]), np.array([1.0, 1.0])

    def quotient(ratio):
        S = np.sqrt(2.0) / ratio
        _, nu = project_onto_ball(lambda nu: lambda v: v / (values + nu), point, values * point, S)
        low, high = sharp_bracket(point, values * point, point / values, S)
        return nu / low, nu / high

    assert quotient(1.0 + 1e-6)[0] == pytest.approx(1.0, abs=1e-5)
    assert quotient(1e6)[1] == pytest.approx(1.0, abs=1e-5)


def test_a_point_in_the_ball_has_multiplier_zero():
    assert multiplier_bracket(1.0, 2.0, 0.5, 1.0) == (0.0, 0.0)
    assert sharp_bracket([0.5], [1.0], [0.25], 0.5) == (0.0, 0.0)


@given(problems, st.sampled_from([1e-2, 1e-6, 1e-12]))
def test_newton_on_the_square_takes_no_more_steps(problem, tolerance):
    values, point, S, root = drawn(problem)
    lowest, nu, steps = values.min(), 0.0, 0
    while lowest + nu < (1 - tolerance) * (lowest + root):
        w = values * point / (values + nu)
        nu += (w @ w - S**2) / (2 * (w / (values + nu)) @ w)
        steps += 1
    start = lowest / (lowest + root)
    # The root is known only up to roundoff, for which the tolerance leaves room.
    assert steps <= newton_steps(min(start, 1 - 1e-15), tolerance * (1 - 1e-3))


def test_newton_steps_by_hand():
    # 1/2 -> 11/16 -> 0.8687... -> 0.9753...
    assert newton_steps(0.5, 0.4) == 1
    assert newton_steps(0.5, 0.2) == 2
    assert newton_steps(0.5, 0.1) == 3
    assert newton_steps(0.95, 0.1) == 0


def test_newton_steps_end_at_roundoff():
    assert newton_steps(0.9, 1e-300) <= 10
    assert newton_steps(np.nextafter(1.0, 0.0), 1e-300) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: multiplier_bracket(0.0, 1.0, 1.0, 1.0), "lowest must be positive"),
        (lambda: multiplier_bracket(2.0, 1.0, 1.0, 1.0), "lowest must not exceed highest"),
        (lambda: multiplier_bracket(1.0, 1.0, -1.0, 1.0), "length must be at least 0"),
        (lambda: multiplier_bracket(1.0, 1.0, 1.0, 0.0), "norm_bound must be positive"),
        (lambda: sharp_bracket([0.0], [1.0], [1.0], 1.0), "point must be a vector that is not zero"),
        (lambda: sharp_bracket([1.0], [1.0, 2.0], [1.0], 1.0), "image must have shape"),
        (lambda: sharp_bracket([1.0], [1.0], [-1.0], 1.0), "not definite"),
        (lambda: newton_steps(1.0, 0.1), "start must lie strictly between 0 and 1"),
        (lambda: newton_steps(0.5, 0.0), "tolerance must lie strictly between 0 and 1"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
