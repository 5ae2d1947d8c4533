"""The balance of a round and the bounds of the confidence chain: against dense references and search."""

from __future__ import annotations

import math

import numpy as np
import pytest

from compendium.claims import checks
from compendium.theory import confidence
from mlogb_core import link
from mlogb_core.policies import eofd, oful
from mlogb_core.radius import ConstantRadius


def played_rounds(n_outcomes, n_rounds, seed, *, norm_bound=1.5, regularization=0.5):
    """Yield, for rounds of EOFD on random actions and outcomes: Z, W, W+, x, y, a point of the ball, eta."""
    K, d, rng = n_outcomes, 2, np.random.default_rng(seed)
    eta = 1.0 + norm_bound * 1.5 + 0.5 * math.log(K + 1)
    settings = {"regularization": regularization, "step_size": eta, "norm_bound": norm_bound}
    policy = eofd(d, np.ones(K), sketch_size=2, radius=ConstantRadius(0.0), **settings)
    for _ in range(n_rounds):
        x, y, u = rng.normal(size=d), int(rng.integers(K + 1)), rng.normal(size=(K, d))
        x *= 1.5 * rng.uniform() / np.linalg.norm(x)
        u *= norm_bound * rng.uniform() ** 0.3 / np.linalg.norm(u)
        Z, old = policy.curvature.dense(), policy.parameter
        policy.update(x, y)
        yield Z, old, policy.parameter, x, y, u, eta


def dense_terms(Z, old, new, x, y, u, eta):
    """The five terms from the loss's gradients and Hessians as Kd vectors and matrices."""

    def slope(W):
        return link.loss_gradient(W, x, y).ravel()

    def hessian(W):
        return np.kron(link.jacobian(link.outcome_probabilities(W @ x)), np.outer(x, x))

    w, v, p = old.ravel(), new.ravel(), u.ravel()
    surrogate = slope(old) + hessian(old) @ (v - w)
    H, regret = hessian(new), 2 * eta * (link.log_loss(u @ x, y) - link.log_loss(new @ x, y))
    drift = (p - v) @ (Z + H) @ (p - v) - (p - w) @ Z @ (p - w) + (v - w) @ Z @ (v - w)
    return (
        drift,
        regret,
        2 * eta * (slope(new) - surrogate) @ (v - p),
        regret - 2 * eta * slope(new) @ (p - v) - (p - v) @ H @ (p - v),
        2 * (eta * surrogate + Z @ (v - w)) @ (p - v),
    )


@pytest.mark.parametrize("K", [1, 2, 3])
def test_round_terms_are_the_dense_ones_and_balance(K):
    for case in played_rounds(K, 80, seed=K):
        terms = confidence.round_terms(*case[:6], step_size=case[6])
        np.testing.assert_allclose(terms, dense_terms(*case), rtol=1e-9, atol=1e-11)
        balance = terms.regret + terms.remainder - terms.concavity - terms.optimality
        assert terms.drift == pytest.approx(balance, abs=1e-10)


@pytest.mark.parametrize("K", [1, 2, 3])
def test_concavity_and_optimality_are_never_negative_in_a_run(K):
    touched = 0
    for case in played_rounds(K, 120, seed=10 + K):
        terms = confidence.round_terms(*case[:6], step_size=case[6])
        assert terms.concavity >= -1e-10
        assert terms.optimality >= -1e-10
        touched += terms.optimality > 1e-6
    assert touched > 5  # the projection was active


@pytest.mark.parametrize("K", [1, 2, 3])
def test_remainder_and_step_stay_within_their_bounds(K):
    for Z, old, new, x, y, u, eta in played_rounds(K, 120, seed=20 + K):
        terms = confidence.round_terms(Z, old, new, x, y, u, eta)
        logits, step = (new - old) @ x, (new - old).ravel()
        limit = 2 * eta * confidence.remainder_bound(K, 1.5, 1.5) * (logits @ logits)
        assert abs(terms.remainder) <= limit + 1e-12
        assert math.sqrt(step @ Z @ step) <= confidence.step_bound(K, eta, 0.5, 1.5)


@pytest.mark.parametrize("K", [1, 2, 3])
def test_remainder_constant_is_the_largest_third_derivative(K):
    def third(point):
        z, h, k = point.reshape(3, K)
        scale = np.linalg.norm(h) * (k @ k)
        D = link.reward_curvature(link.outcome_probabilities(np.clip(z, -20, 20)), h)
        return abs(k @ D @ k) / scale if scale > 0 else -np.inf

    found, _ = checks.worst_case(
        third, lambda rng: rng.normal(size=3 * K) * 3, starts=200, polished=6, seed=K
    )
    constant = confidence.remainder_constant(K)
    assert 0.999 * constant <= found <= constant * (1 + 1e-9)


def test_residual_bound_is_approached():
    assert abs(link.loss_residual(link.outcome_probabilities([-30.0]), 1)).max() == pytest.approx(1.0)
    lengths = [
        np.linalg.norm(link.loss_residual(link.outcome_probabilities([60.0, 0.0, 0.0]), y)) for y in range(4)
    ]
    assert max(lengths) == pytest.approx(confidence.residual_bound(3))
    assert confidence.residual_bound(1) == 1.0


@pytest.mark.parametrize("K", [1, 2])
def test_step_bound_is_approached_where_the_outcome_is_a_surprise(K):
    lam, eta, D = 4.0, 3.0, 2.0
    options = {"regularization": lam, "step_size": eta, "norm_bound": 50.0, "radius": ConstantRadius(0.0)}
    policy = oful(1, np.ones(K), **options)
    policy.parameter = np.array([[-10.0], [10.0]])[:K]
    old = policy.parameter
    policy.update([D], 1)
    length = math.sqrt(lam) * np.linalg.norm(policy.parameter - old)
    assert length == pytest.approx(confidence.step_bound(K, eta, lam, D), rel=1e-6)


def test_cancelling_regularization_is_where_the_movement_terms_vanish():
    K, eta, S, D, c = 2, 3.0, 0.7, 2.0, 0.1
    lam = confidence.cancelling_regularization(K, eta, S, D, precision=c)
    step = np.outer([0.3, -0.4], [0.6, 0.8])  # along the action, Z = lambda I
    x = D * np.array([0.6, 0.8])
    hessian, logits = lam * np.sum(step**2), np.sum((step @ x) ** 2)
    total = (eta * c - 1) * hessian + 2 * eta * confidence.remainder_bound(K, S, D) * logits
    assert total == pytest.approx(0.0, abs=1e-12 * hessian)


def test_bounds_name_what_does_not_fit():
    with pytest.raises(ValueError, match="precision must be below"):
        confidence.cancelling_regularization(1, 2.0, 1.0, precision=0.5)
    with pytest.raises(ValueError, match="n_outcomes must be at least 1"):
        confidence.residual_bound(0)
    good = {"hessian": np.eye(2), "old": np.zeros((1, 2)), "new": np.zeros((1, 2)), "action": [1.0, 0.0]}
    good |= {"outcome": 1, "point": np.zeros((1, 2)), "step_size": 1.0}
    for name, value in (
        ("old", np.zeros(2)),
        ("new", np.zeros((2, 2))),
        ("hessian", np.eye(3)),
        ("action", [1.0]),
        ("outcome", 2),
        ("step_size", 0.0),
    ):
        with pytest.raises(ValueError, match=name):
            confidence.round_terms(**(good | {name: value}))
