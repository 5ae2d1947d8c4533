"""Extreme regularizations, balls, steps and logits, against 60 digits and the literal algorithm."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import EPS, assert_same_state, exact, exact_hessian, exact_low_rank, exact_step
from variants import (
    ALL,
    BUFFERED,
    EXACT,
    SKETCHES,
    Run,
    action_sets,
    follow,
    literal_of,
    make,
    round_in,
    tried,
    unit_rows,
)

from mlogb_core import ConstantRadius, OptimisticPolicy


def exact_identity(policy):
    return exact(policy.curvature.regularization * np.eye(policy.parameter.size))


@pytest.mark.each_value
@pytest.mark.parametrize("exponent", range(-8, 9, 4))
@pytest.mark.parametrize("K", [1, 2])
@pytest.mark.parametrize("kind", ALL)
def test_regularization_from_1e_8_to_1e8(kind, K, exponent):
    """Every step is compared with the same step in 60 digits from the same W."""
    d = 4 // K
    policy = make(kind, K, d, 2, regularization=10.0**exponent)
    full = exact_identity(policy)
    rng = np.random.default_rng(exponent + 20)
    outside = 0
    for t in range(12):
        actions = unit_rows(rng, 3, d)
        chosen = policy.select(actions)
        x, outcome, W = actions[chosen], int(rng.integers(K + 1)), policy.parameter.copy()
        Z = full if kind in EXACT else exact_low_rank(policy.curvature)
        expected, excess = exact_step(Z, W, x, outcome, 1.5, 2.0)
        policy.update(x, outcome)
        full = full + exact_hessian(policy.parameter, x)
        condition = 1.0 + (t + 1.5) / policy.curvature.regularization
        length = min(2.0, 2.0 * excess)
        np.testing.assert_allclose(policy.parameter, expected, rtol=0, atol=30 * EPS * condition * length)
        outside += excess > 1.0
    assert outside > 0 if exponent < 0 else exponent == 0 or outside == 0


@pytest.mark.parametrize("kind", [*SKETCHES, *BUFFERED, *EXACT])
def test_a_regularization_that_double_precision_cannot_carry(kind):
    """If it is too small beside the largest eigenvalue, the error says so and the policy is unchanged."""
    policy = make(kind, 2, 4, 5, regularization=1e-20)
    rng = np.random.default_rng(0)
    error = None
    while error is None:
        assert policy.rounds < 60
        x, outcome, before = unit_rows(rng, 1, 4)[0], int(rng.integers(3)), policy.state_dict()
        _, error = tried(policy.update, x, outcome)
    assert "regularization" in str(error)
    assert round_in(error) in (policy.rounds, policy.rounds + 1)
    assert_same_state(before, policy.state_dict())


@pytest.mark.each_value
@pytest.mark.parametrize("exponent", [-300, -30, -20, -16, -14, -12, -10, 12, 30])
@pytest.mark.parametrize("kind", ALL)
def test_any_regularization_is_carried_or_refused(kind, exponent):
    policy = make(kind, 2, 4, 5, regularization=10.0**exponent)
    run = Run(policy)
    for actions in action_sets("generic", 40, 4, 4, seed=1):
        before = policy.state_dict()
        chosen, error = tried(policy.select, actions)
        if error is None:
            before = policy.state_dict()
            _, error = tried(run.round, actions, chosen)
        if error is not None:
            assert exponent < -12, error
            assert "regularization" in str(error)
            assert_same_state(before, policy.state_dict())
            return
        run.check()


def warmed(kind, K, d, m, **changes):
    """A policy after ten rounds, and its Z in Decimal."""
    policy = make(kind, K, d, m, **changes)
    full = exact_identity(policy)
    rng = np.random.default_rng(21)
    for x in unit_rows(rng, 10, d):
        policy.update(x, int(rng.integers(K + 1)))
        full = full + exact_hessian(policy.parameter, x)
    return policy, full if kind in EXACT else exact_low_rank(policy.curvature)


@pytest.mark.each_value
@pytest.mark.parametrize("excess", [1e-15, 1e-12, 1e-8, 1e-3, 1.0, 1e3, 1e6, 1e12])
@pytest.mark.parametrize("kind", ALL)
def test_a_step_that_ends_outside_the_ball(kind, excess):
    """Steps to |W'| = (1 + excess) S, from one bit above S to 1e12 times S, against 60 digits."""
    policy, Z = warmed(kind, 2, 3, 4, norm_bound=1e3)
    start = policy.parameter if excess < 1.0 else np.zeros_like(policy.parameter)
    x = np.array([0.3, -0.8, 0.5])
    S = exact_step(Z, start, x, 1, 1.5, 1.0)[1] / (1.0 + excess)
    expected, ratio = exact_step(Z, start, x, 1, 1.5, S)
    assert ratio == pytest.approx(1.0 + excess, rel=1e-14)
    policy = OptimisticPolicy.from_state(policy.state_dict() | {"norm_bound": S, "parameter": start})
    policy.update(x, 1)
    # The condition number of Z is at most 12.
    np.testing.assert_allclose(policy.parameter, expected, rtol=0, atol=12 * 10 * EPS * S)
    assert np.linalg.norm(policy.parameter) <= S * (1.0 + 1e-14)


@pytest.mark.each_value
@pytest.mark.parametrize("S", [1e-6, 1e-3, 1e4])
@pytest.mark.parametrize("kind", [*SKETCHES, *EXACT])
@pytest.mark.parametrize(("K", "d", "m"), [(1, 8, 3), (3, 4, 5)])
def test_small_and_large_balls_play_the_literal_algorithm(K, d, m, kind, S):
    policy = make(kind, K, d, m, norm_bound=S)
    result = follow(policy, literal_of(kind, policy), action_sets("generic", 150, 5, d, seed=2))
    assert result.rounds == 150
    assert result.parameter <= 1e-11 * min(S, 10.0)


@pytest.mark.each_value
@pytest.mark.parametrize("logits", [[1e3], [-1e3], [1e3, -1e3], [1e3, 1e3], [-1e3, -1e3], [1e3, 1e3 - 1.0]])
@pytest.mark.parametrize("kind", ALL)
def test_saturated_logits(kind, logits):
    K = len(logits)
    x = np.array([0.6, 0.0, -0.8])
    for outcome in range(K + 1):
        policy, Z = warmed(kind, K, 3, 4, norm_bound=3e3)
        W = np.outer(logits, x)
        policy = OptimisticPolicy.from_state(policy.state_dict() | {"parameter": W})
        assert np.isfinite(policy.scores([x, -x, 0 * x])).all()
        expected, _ = exact_step(Z, W, x, outcome, 1.5, 3e3)
        policy.update(x, outcome)
        np.testing.assert_allclose(policy.parameter, expected, rtol=0, atol=20 * EPS * 1e3)
        assert np.isfinite(policy.scores([x, -x, 0 * x])).all()


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("kind", ALL)
def test_logits_that_overflow_name_the_round_and_change_nothing(kind, K):
    policy, action = make(kind, K, 3, 4, norm_bound=10.0), np.full(3, 1e308)
    policy.parameter = np.ones((K, 3))
    before = policy.state_dict()
    with np.errstate(invalid="ignore"):
        with pytest.raises(ArithmeticError, match="round 1: "):
            policy.select([action, -action])
        with pytest.raises(ArithmeticError, match="round 1: "):
            policy.update(action, 1)
    assert_same_state(policy.state_dict(), before)


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("kind", [*SKETCHES, *EXACT])
def test_saturated_logits_play_the_literal_algorithm(kind, K):
    """Actions of length 300 in a ball of radius 4 give logits up to 1,200 and curvatures from 0 to 1e4.

    A difference in W is multiplied by 300 in the logits, and grows from round to round even in exact
    arithmetic. Therefore the game is short, the parameters agree to 1e-6 only, and all actions are equal.
    """
    policy = make(kind, K, 5, 4, norm_bound=4.0, radius=ConstantRadius(1e-2))
    sets = (300.0 * actions for actions in action_sets("generic", 45, 5, 5, seed=8))
    result = follow(policy, literal_of(kind, policy), sets)
    assert result.rounds == 45
    assert result.parameter <= 1e-6
