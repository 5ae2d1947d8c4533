"""Thompson sampling: draws against dense algebra, its stream in saved states, and its errors."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import assert_same_state, random_rounds, softmax

from mlogb_core import ConstantRadius, OptimisticPolicy, RidgeRadius, ThompsonPolicy, thompson
from mlogb_core.choice import choose
from mlogb_core.curvature import (
    DenseCurvature,
    DiagonalCurvature,
    FrequentDirections,
    GrowingRidge,
    NoCurvature,
    RobustFrequentDirections,
)

D = 6
SETTINGS = {"step_size": 1.5, "norm_bound": 1.0, "radius": RidgeRadius(0.3)}


def make(kind, K=2, seed=3, **changes):
    sizes = (3,) if issubclass(kind, FrequentDirections) else ()
    rewards = np.linspace(0.0, 1.0, K + 1)[1:]
    rng = np.random.default_rng(seed)
    return ThompsonPolicy(kind(K, D, 0.5, *sizes), rewards, rng=rng, **SETTINGS | changes)


def dense_root(policy):
    """The root of the inverse in a draw: a Cholesky factor for the full matrix, else symmetric."""
    values, Q = np.linalg.eigh(policy.curvature.dense())
    if isinstance(policy.curvature, DenseCurvature):
        return np.linalg.cholesky((Q / values) @ Q.T)
    return (Q / np.sqrt(values)) @ Q.T


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize(
    "kind",
    [
        DenseCurvature,
        FrequentDirections,
        NoCurvature,
        RobustFrequentDirections,
        DiagonalCurvature,
        GrowingRidge,
    ],
)
def test_it_plays_the_best_action_for_one_draw_a_round(kind, K):
    policy, rng, own = make(kind, K), np.random.default_rng(0), np.random.default_rng(3)
    chosen = set()
    for _ in range(40):
        actions = rng.standard_normal((7, D))
        noise = dense_root(policy) @ own.standard_normal(K * D)
        W = policy.parameter + np.sqrt(0.3 * 0.5) * noise.reshape(K, D)
        if K == 1:
            expected = choose(actions @ W[0])
        else:
            expected = choose(np.array([softmax(W @ x)[1:] @ policy.rewards for x in actions]))
        assert policy.select(actions) == expected.action
        assert policy.margin == pytest.approx(expected.margin, rel=1e-6)
        policy.update(actions[expected.action], int(rng.integers(K + 1)))
        chosen.add(expected.action)
    assert len(chosen) == 7


def test_without_a_radius_it_is_greedy():
    draws, none = (make(FrequentDirections, seed=s, radius=ConstantRadius(0.0)) for s in (1, 2))
    assert random_rounds(draws, 20, seed=0) == random_rounds(none, 20, seed=0)


@pytest.mark.parametrize("kind", [DenseCurvature, FrequentDirections])
def test_a_state_goes_on_with_the_same_stream(kind):
    policy = make(kind)
    random_rounds(policy, 12, seed=0)
    policy.select(np.eye(D))
    twin = ThompsonPolicy.from_state(policy.state_dict())
    assert random_rounds(policy, 20, seed=1) == random_rounds(twin, 20, seed=1)
    assert_same_state(policy.state_dict(), twin.state_dict())
    state = policy.state_dict()
    with pytest.raises(ValueError, match=r"policy must be 'OptimisticPolicy' .*, got 'ThompsonPolicy'"):
        OptimisticPolicy.from_state(state)
    with pytest.raises(ValueError, match="rng must be the state of one of"):
        ThompsonPolicy.from_state(state | {"rng": "{}"})
    with pytest.raises(ValueError, match="state has no entry 'rng'"):
        ThompsonPolicy.from_state({key: value for key, value in state.items() if key != "rng"})


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"rng must be a numpy\.random\.Generator, got 3"):
        thompson(D, [1.0], rng=3, regularization=0.5, **SETTINGS)
    policy = make(FrequentDirections)
    with pytest.raises(ValueError, match=rf"actions must have shape \(n, {D}\)"):
        policy.select(np.ones((4, D - 1)))
    policy = make(FrequentDirections, K=1, radius=ConstantRadius(1e300))
    for action in np.eye(D):
        policy.update(action, 1)
    with pytest.raises(ArithmeticError, match=rf"round {D + 1}: scores must be finite"):
        policy.select(np.full((2, D), 1e200))


def test_a_failed_factorisation_names_the_round(monkeypatch):
    def fail(*_):
        raise np.linalg.LinAlgError("did not converge")

    for kind, routine in ((FrequentDirections, "eigh"), (DenseCurvature, "cholesky")):
        policy = make(kind)
        random_rounds(policy, 2, seed=0)
        with monkeypatch.context() as patch:
            patch.setattr(np.linalg, routine, fail)
            with pytest.raises(ArithmeticError, match="round 3: did not converge"):
                policy.select(np.eye(D))


@pytest.mark.parametrize(("m", "kind"), [(None, DenseCurvature), (3, FrequentDirections)])
def test_the_constructor_takes_a_sketch_size_or_the_full_matrix(m, kind):
    rng = np.random.default_rng(0)
    policy = thompson(D, [0.5, 1.0], rng=rng, regularization=0.5, sketch_size=m, **SETTINGS)
    assert type(policy.curvature) is kind
    assert policy.rng is rng


@pytest.mark.parametrize("K", [1, 3])
def test_logits_that_overflow_name_the_round_and_change_nothing(K):
    policy, action = make(FrequentDirections, K), np.full(D, 1e308)
    policy.parameter = np.ones((K, D))
    before = policy.state_dict()
    with pytest.raises(ArithmeticError, match="round 1: the logits overflow"):
        policy.update(action, 1)
    assert_same_state(policy.state_dict(), before)
    with pytest.raises(ArithmeticError, match="round 1: "):
        policy.select([action, -action])
