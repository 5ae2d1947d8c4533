"""OL2M, ECOLog and GLB-OMD against their formulas on dense matrices, with the projection active."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers import dense_newton_step, ellipsoid_projection
from scipy.optimize import minimize
from scipy.special import expit

from mlogb_core.choice import choose
from mlogb_core.rivals import GLBOMD, OL2M, ECOLog

D, S, DELTA, SCALE, BOUND = 4, 1.5, 0.1, 0.3, 2.0
OPTIONS = {"norm_bound": S, "confidence": DELTA, "scale": SCALE, "feature_bound": BOUND}


def rounds_of(policy, n_rounds=30, seed=5):
    """Rounds for the policy to learn from: actions, their scores, the choice and its outcome."""
    rng = np.random.default_rng(seed)
    for _ in range(n_rounds):
        actions = rng.standard_normal((6, D))
        actions *= BOUND * rng.random((6, 1)) / np.linalg.norm(actions, axis=1, keepdims=True)
        scores = policy.scores(actions)
        chosen = policy.select(actions)
        assert chosen == choose(scores).action
        outcome = int(rng.random() < expit(3.0 * actions[chosen, 0]))
        yield actions, scores, actions[chosen], outcome


def index(actions, w, matrix, beta):
    """w'x + scale sqrt(beta) |x| in the norm of the inverse, action by action."""
    widths = [math.sqrt(x @ np.linalg.solve(matrix, x)) for x in actions]
    return actions @ w + SCALE * math.sqrt(beta) * np.array(widths)


def log_det(matrix, ridge):
    return np.linalg.slogdet(matrix / ridge)[1]


def test_ol2m_is_its_formula():
    lam = 1.0
    policy, w, Z, outside = OL2M(D, [1.0], regularization=lam, **OPTIONS), np.zeros(D), lam * np.eye(D), 0
    bound = 1.0 / (2.0 * (1.0 + math.exp(S * BOUND)))
    for t, (actions, scores, x, y) in enumerate(rounds_of(policy)):
        gamma = lam * S**2
        if t:
            tau = math.log(2 * max(1, math.ceil(2 * math.log2(t))) * t**2 / DELTA)
            gamma += 8 * S * BOUND + (8 / bound + 16 * S * BOUND / 3) * tau + 2 / bound * log_det(Z, lam)
        assert policy.beta == pytest.approx(SCALE**2 * gamma, rel=1e-9)
        np.testing.assert_allclose(scores, index(actions, w, Z, gamma), rtol=1e-8)
        Z = Z + bound / 2 * np.outer(x, x)
        point = w - np.linalg.solve(Z, (expit(w @ x) - y) * x)
        outside += np.linalg.norm(point) > S
        w = ellipsoid_projection(Z, point, S) if np.linalg.norm(point) > S else point
        policy.update(x, y)
    np.testing.assert_allclose(policy.parameter[0], w, rtol=1e-8)
    assert 5 < outside < 30


def test_glb_omd_is_its_formula():
    lam, eta = 0.5, 2.5
    policy = GLBOMD(D, [1.0], regularization=lam, step_size=eta, **OPTIONS)
    w, H, outside = np.zeros(D), lam * np.eye(D), 0
    for actions, scores, x, y in rounds_of(policy):
        beta = lam * S**2 + 2 * eta * math.log(1 / DELTA) + eta * (6 * eta + 1) * log_det(H, lam)
        assert policy.beta == pytest.approx(SCALE**2 * beta, rel=1e-9)
        np.testing.assert_allclose(scores, index(actions, w, H, beta), rtol=1e-8)
        p = expit(w @ x)
        residual, J = np.array([p - y]), np.array([[p * (1 - p)]])
        w, left = dense_newton_step(H, w[None], residual, J, x, eta, S)
        w, outside = np.ravel(w), outside + left
        p = expit(w @ x)
        H = H + p * (1 - p) * np.outer(x, x)
        policy.update(x, y)
    np.testing.assert_allclose(policy.parameter[0], w, rtol=1e-8)
    assert 5 < outside < 30


@pytest.mark.parametrize(("lam", "on_spheres"), [(1.0, range(5, 30)), (30.0, range(1))])
def test_ecolog_minimises_the_loss_near_the_last_iterate_in_the_ball(lam, on_spheres):
    policy, W, outside = ECOLog(D, [1.0], regularization=lam, **OPTIONS), lam * np.eye(D), 0
    spread = 2 * S * BOUND
    for actions, scores, x, y in rounds_of(policy):
        w = policy.parameter[0].copy()
        learned = math.log(1 / DELTA) + (spread + 2.5) * log_det(W, lam)
        beta = lam * S**2 + (2 + spread) * learned
        assert policy.beta == pytest.approx(SCALE**2 * beta, rel=1e-9)
        np.testing.assert_allclose(scores, index(actions, w, W, beta), rtol=1e-8)

        def objective(v, w=w, W=W, x=x, y=y):
            return (v - w) @ W @ (v - w) / (2 + spread) + np.logaddexp(0.0, v @ x) - y * (v @ x)

        def gradient(v, w=w, W=W, x=x, y=y):
            return 2 * W @ (v - w) / (2 + spread) + (expit(v @ x) - y) * x

        found = minimize(
            objective, w, jac=gradient, method="SLSQP", options={"ftol": 1e-15},
            constraints={"type": "ineq", "fun": lambda v: S**2 - v @ v, "jac": lambda v: -2 * v},
        )  # fmt: skip
        policy.update(x, y)
        new = policy.parameter[0]
        np.testing.assert_allclose(new, found.x, atol=2e-6)
        assert np.linalg.norm(new) <= S * (1 + 1e-12)
        # The gradient vanishes inside the ball, and on the sphere it points to its centre.
        slope, on_sphere = gradient(new), np.linalg.norm(new) > S * (1 - 1e-9)
        outside += on_sphere
        tangent = slope - (slope @ new) / (new @ new) * new if on_sphere else slope
        assert np.linalg.norm(tangent) <= 1e-8
        assert not on_sphere or slope @ new <= 0
        W = W + expit(new @ x) * expit(-new @ x) * np.outer(x, x)
    assert outside in on_spheres
