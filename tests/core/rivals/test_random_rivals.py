"""SGD-TS, epsilon-greedy and SquareCB against their formulas, with streams of their own."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from helpers import softmax
from scipy.optimize import minimize
from scipy.special import expit

from mlogb_core import ConstantRadius, eofd
from mlogb_core.choice import choose
from mlogb_core.rivals import SGDTS, EpsilonGreedy, SquareCB
from mlogb_core.rivals.sgd_ts import ridge_estimate

D = 4


def ridge_loss(w, X, y, ridge):
    return np.logaddexp(0.0, X @ w).sum() - y @ (X @ w) + ridge / 2 * w @ w


# SGD-TS


@pytest.mark.parametrize("ridge", [1e-3, 1.0, 50.0])
def test_the_estimate_minimises_the_regularised_loss(ridge):
    rng = np.random.default_rng(1)
    X = 3.0 * rng.standard_normal((12, D))
    y = (rng.random(12) < expit(2.0 * X[:, 0])).astype(float)
    w = ridge_estimate(X, y, ridge)
    assert np.linalg.norm((expit(X @ w) - y) @ X + ridge * w) <= 1e-7 * ridge
    found = minimize(ridge_loss, np.zeros(D), args=(X, y, ridge), method="BFGS", tol=1e-9)
    assert ridge_loss(w, X, y, ridge) <= found.fun + 1e-12


@pytest.mark.parametrize("eta", [0.5, 20.0])
def test_sgd_ts_is_its_formula(eta):
    """The large step size makes the steps leave the ball around the estimate."""
    scale, g1, g2, ridge = 0.5, 0.1, 1.0, 2.0
    policy = SGDTS(
        D, [1.0], rng=np.random.default_rng(3), scale=scale, step_size=eta, regularization=ridge,
        exploration=1.5, horizon=30, deviations=(g1, g2),
    )  # fmt: skip
    own, rng, tau = np.random.default_rng(3), np.random.default_rng(8), 6
    X, y, tilde, history, draw, outside = [], [], None, [], None, 0
    for t in range(1, 31):
        actions = rng.standard_normal((5, D))
        expected = own.integers(5) if draw is None else choose(actions @ draw).action
        chosen = policy.select(actions)
        assert chosen == expected
        X.append(actions[chosen])
        y.append(int(rng.random() < expit(actions[chosen, 0])))
        policy.update(X[-1], y[-1])
        if t % tau:
            continue
        j, last, labels = t // tau, np.array(X[-tau:]), np.array(y[-tau:])
        if j == 1:
            center = ridge_estimate(last, labels, ridge)  # checked above
            tilde = center
        tilde = tilde - eta / j * (expit(last @ tilde) - labels) @ last
        away = np.linalg.norm(tilde - center)
        outside += away > 2
        tilde = center + (tilde - center) * (2 / away if away > 2 else 1.0)
        history.append(tilde)
        mean = sum(history) / j
        draw = mean + scale * math.sqrt((2 * g1**2 + 2 * g2**2) / j) * own.standard_normal(D)
        np.testing.assert_allclose(policy.drawn, draw, rtol=1e-9)
    assert outside in (range(1) if eta == 0.5 else range(2, 6))


def test_sgd_ts_explores_at_least_for_the_logarithm_of_the_horizon():
    def batch(**options):
        return SGDTS(D, [1.0], rng=np.random.default_rng(0), **options).batch

    assert (batch(), batch(horizon=10**9), batch(exploration=2.5)) == (6, 20, 17)


# Random play around the estimate


def estimates(actions, W, rewards):
    return np.array([softmax(W @ x)[1:] @ rewards for x in actions])


def formula(kind, values, t, scale, K, largest):
    """The probabilities, action by action."""
    n, best = len(values), int(np.argmax(values))
    if kind is EpsilonGreedy:
        epsilon = min(1.0, scale / t ** (1 / 3))
        return [epsilon / n + (1 - epsilon) * (a == best) for a in range(n)]
    gamma = math.sqrt(n * t / (K * D)) / scale
    others = [1 / (n + gamma * (values[best] - value) / largest) for value in values]
    return [1 - sum(others) + others[best] if a == best else p for a, p in enumerate(others)]


@pytest.mark.parametrize("rewards", [[3.0], [0.5, 2.0]])
@pytest.mark.parametrize("kind", [EpsilonGreedy, SquareCB])
def test_random_play_follows_its_distribution_around_the_librarys_estimate(kind, rewards):
    options = {"sketch_size": 3, "regularization": 0.5, "step_size": 1.5, "norm_bound": 2.0}
    scale, K = 0.1, len(rewards)
    policy = kind(D, rewards, rng=np.random.default_rng(4), scale=scale, **options)
    twin = eofd(D, rewards, radius=ConstantRadius(0.0), **options)
    own, rng, chosen_best = np.random.default_rng(4), np.random.default_rng(9), 0
    for t in range(1, 41):
        actions = rng.standard_normal((5, D))
        values = estimates(actions, twin.parameter, rewards)
        if t == 1:
            assert len(set(values)) == 1
        expected = formula(kind, values, t, scale, K, max(rewards))
        given = policy.probabilities(actions)
        np.testing.assert_allclose(given.probability, expected, rtol=1e-9)
        assert given.n_draws == 0
        chosen = policy.select(actions)
        assert chosen == np.flatnonzero(own.random() < np.cumsum(expected))[0]
        assert policy.margin == pytest.approx(choose(values).margin)
        chosen_best += chosen == np.argmax(values)
        outcome = int(rng.integers(K + 1))
        policy.update(actions[chosen], outcome)
        twin.update(actions[chosen], outcome)
    assert 5 < chosen_best < 40


@pytest.mark.parametrize("kind", [EpsilonGreedy, SquareCB])
def test_without_exploration_random_play_is_greedy(kind):
    policy = kind(D, [1.0], sketch_size=2, norm_bound=1.0, rng=np.random.default_rng(0), scale=0.0)
    np.testing.assert_array_equal(policy.probabilities(np.eye(D)).probability, [1, 0, 0, 0])
    policy.update(np.eye(D)[0], 0)
    np.testing.assert_array_equal(policy.probabilities(np.eye(D)).probability, [0, 1, 0, 0])
    assert policy.select(np.eye(D)) == 1


def test_greedy_play_among_many_actions_takes_little_memory():
    policy = SquareCB(2, [1.0], sketch_size=1, norm_bound=2.0, scale=0.0, rng=np.random.default_rng(3))
    tracemalloc.start()
    policy.select(np.ones((2000, 2)))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1_000_000


@pytest.mark.parametrize("kind", [EpsilonGreedy, SquareCB])
def test_without_rewards_all_actions_are_alike(kind):
    policy = kind(D, [0.0], sketch_size=2, norm_bound=1.0, rng=np.random.default_rng(0))
    np.testing.assert_allclose(policy.probabilities(np.eye(D)).probability, 0.25)
