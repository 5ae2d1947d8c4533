"""Coordinates of the parameter that the sketch keeps track of between projections."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from helpers import assert_same_state, random_rounds

from mlogb_core import OptimisticPolicy, RidgeRadius, eofd
from mlogb_core.curvature import DenseCurvature, frequent_directions, low_rank

TRACKED_CASES = [(1, 9, 4, 1), (2, 6, 5, 1), (3, 4, 7, 1), (2, 6, 4, 3), (1, 5, 9, 1)]


def projecting_policy(K, d, m, buffer):
    settings = {"regularization": 0.5, "step_size": 3.0, "norm_bound": 0.7, "radius": RidgeRadius(0.05)}
    return eofd(d, np.arange(1, K + 1) / K, sketch_size=m, buffer=buffer, **settings)


def distance_from_products(policy):
    return np.abs(policy.curvature.basis @ policy.parameter.reshape(-1) - policy.coordinates).max()


@pytest.mark.parametrize(("K", "d", "m", "buffer"), TRACKED_CASES)
@pytest.mark.slow
def test_coordinates_that_are_tracked_are_those_of_the_parameter(K, d, m, buffer, monkeypatch):
    tracked, plain = (projecting_policy(K, d, m, buffer) for _ in range(2))
    rng, projected, apart = np.random.default_rng(K + d), 0, 0.0
    for number in range(600):
        actions = rng.standard_normal((6, d)) * (number % 50 > 0)  # Every 50th round has actions of 0.
        monkeypatch.setattr(low_rank, "_TRACKED", 0)
        chosen = tracked.select(actions)
        # Every seventh outcome is the likeliest one, so that some steps end inside the ball.
        outcome = (
            int(rng.integers(K + 1))
            if number % 7
            else int(np.argmax(tracked.parameter @ actions[chosen])) + 1
        )
        tracked.update(actions[chosen], outcome)
        monkeypatch.setattr(low_rank, "_TRACKED", np.inf)
        assert chosen == plain.select(actions)
        plain.update(actions[chosen], outcome)
        assert plain.coordinates is None
        projected += np.linalg.norm(plain.parameter) > 0.7 * (1 - 1e-12)
        np.testing.assert_allclose(tracked.parameter, plain.parameter, rtol=0, atol=1e-13)
        if tracked.coordinates is not None:
            apart = max(apart, distance_from_products(tracked))
    assert 20 < projected < 600
    assert apart < 2e-14  # This is the accuracy of the products, so that errors do not accumulate.


@pytest.fixture
def tracking(monkeypatch):
    """A policy that has coordinates of its parameter."""
    monkeypatch.setattr(low_rank, "_TRACKED", 0)
    policy = projecting_policy(2, 6, 5, 1)
    random_rounds(policy, 40, seed=3)
    assert policy.coordinates is not None
    return policy


def test_coordinates_are_those_of_the_parameter_for_which_they_were_computed(tracking):
    """The parameter cannot be changed in place, and a newly assigned one has no coordinates."""
    twin = OptimisticPolicy.from_state(tracking.state_dict())
    for policy in (tracking, twin, copy.copy(tracking)):
        with pytest.raises(ValueError, match="read-only"):
            policy.parameter[0] *= -1.0
    tracking.parameter = twin.parameter[::-1].copy()
    assert tracking.coordinates is None
    plain = OptimisticPolicy.from_state(tracking.state_dict())
    for policy in (tracking, plain):
        policy.update(np.full(6, 0.5), 1)
    assert_same_state(tracking.state_dict(), plain.state_dict())
    twin.curvature = tracking.curvature
    assert twin.coordinates is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"coordinates": np.ones(4)}, r"coordinates must have shape \(5,\), got \(4,\)"),
        ({"coordinates": np.ones(5)}, "coordinates must be the products of curvature.basis with parameter"),
        ({"coordinates": np.full(5, np.nan)}, "coordinates must be finite"),
    ],
)
def test_a_state_with_other_coordinates_is_rejected(change, message, tracking):
    with pytest.raises(ValueError, match=message):
        OptimisticPolicy.from_state(tracking.state_dict() | change)
    exact = OptimisticPolicy(
        DenseCurvature(2, 6, 1.0), [0.5, 1.0], step_size=1.0, norm_bound=1.0, radius=RidgeRadius(0.1)
    )
    with pytest.raises(ValueError, match="coordinates must be left out: DenseCurvature keeps none"):
        OptimisticPolicy.from_state(exact.state_dict() | {"coordinates": np.ones(5)})


def test_a_tracking_policy_goes_on_from_its_state_to_the_byte(tracking):
    twin = OptimisticPolicy.from_state(tracking.state_dict())
    assert twin.coordinates is not None
    random_rounds(tracking, 40, seed=4)
    random_rounds(twin, 40, seed=4)
    assert_same_state(tracking.state_dict(), twin.state_dict())


def test_a_failed_round_keeps_the_coordinates(tracking, monkeypatch):
    before = tracking.state_dict()

    def fail(*args, **kwargs):
        raise np.linalg.LinAlgError("did not converge")

    with monkeypatch.context() as patch:
        patch.setattr(frequent_directions, "_reflected", fail)
        with pytest.raises(ArithmeticError, match="round 41"):
            tracking.update(np.full(6, 0.5), 1)
    assert_same_state(before, tracking.state_dict())
