"""SOFUL and CBSCFD against ridge regression on a dense sketch."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers import ReferenceSketch

from mlogb_core.choice import choose
from mlogb_core.rivals import CBSCFD, SOFUL

D, M, LAM, S, DELTA, SCALE, BOUND = 5, 2, 0.5, 3.0, 0.1, 0.2, 2.0


@pytest.mark.parametrize("rewards", [[1.0], [0.5, 2.0]])
@pytest.mark.parametrize("kind", [SOFUL, CBSCFD])
def test_the_sketched_linear_bandits_are_their_formulas(kind, rewards):
    policy = kind(
        D, rewards, sketch_size=M, regularization=LAM, norm_bound=S, confidence=DELTA, scale=SCALE,
        feature_bound=BOUND,
    )  # fmt: skip
    rng, K = np.random.default_rng(2), len(rewards)
    sketch, played, earned = ReferenceSketch(1, D, LAM, M), [], []
    for t in range(30):
        Z, rho = sketch.dense(), sketch.rho
        if kind is CBSCFD:
            Z = Z + rho * np.eye(D)
        iota = (
            2 * math.log(1 / DELTA) + D * math.log(1 + rho / LAM) + M * math.log(1 + t * BOUND**2 / M / LAM)
        )
        noise = max(rewards) / 2 * math.sqrt(iota)
        width = {
            SOFUL: noise * math.sqrt(1 + rho / LAM) + S * math.sqrt(LAM) * (1 + rho / LAM),
            CBSCFD: noise + S * math.sqrt(LAM + rho),
        }[kind]
        excess = np.array(earned) - sum(rewards) / (K + 1)
        theta = np.linalg.solve(Z, np.reshape(played, (-1, D)).T @ excess)
        actions = rng.standard_normal((6, D)) / 2
        expected = [x @ theta + SCALE * width * math.sqrt(x @ np.linalg.solve(Z, x)) for x in actions]
        np.testing.assert_allclose(policy.scores(actions), expected, rtol=1e-9)
        chosen = policy.select(actions)
        assert chosen == choose(np.array(expected)).action
        outcome = int(rng.integers(K + 1))
        policy.update(actions[chosen], outcome)
        played.append(actions[chosen])
        earned.append([0.0, *rewards][outcome])
        sketch.add(np.eye(1), actions[chosen])
    assert sketch.rho > LAM
    assert policy.curvature.shrinkage == pytest.approx(sketch.rho, rel=1e-9)
    assert policy.width == pytest.approx(SCALE * width, rel=0.2)


def test_without_a_shrink_both_are_ridge_regression_with_the_same_width():
    both = [
        kind(D, [1.0], sketch_size=D, norm_bound=S, confidence=DELTA, feature_bound=BOUND)
        for kind in (SOFUL, CBSCFD)
    ]
    rng = np.random.default_rng(0)
    for _ in range(12):
        x, y = rng.standard_normal(D), int(rng.integers(2))
        for policy in both:
            policy.update(x, y)
    actions = rng.standard_normal((4, D))
    np.testing.assert_allclose(both[0].scores(actions), both[1].scores(actions), rtol=1e-12)
    assert both[0].curvature.regularization == BOUND**2
