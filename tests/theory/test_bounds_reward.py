"""Bounds of the reward's error and of the binary regret: against search, roots and transcriptions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from compendium.claims.checks import sketch_cases
from compendium.theory import reward
from mlogb_core import link

amounts = st.floats(0.0, 1e3)


def logistic(z):
    return 1.0 / (1.0 + np.exp(-np.asarray(z)))


def slope(z):
    return logistic(z) * logistic(-np.asarray(z))


def bend(z):
    return slope(z) * (logistic(-np.asarray(z)) - logistic(z))


@pytest.mark.parametrize(
    ("function", "bound"),
    [
        (slope, reward.SLOPE_BOUND),
        (bend, reward.BEND_BOUND),
        (lambda z: bend(z) / (2 * np.sqrt(slope(z))), reward.ROOT_SLOPE_BOUND),
    ],
)
def test_scalar_bounds_are_the_maxima(function, bound):
    found = minimize_scalar(
        lambda z: -function(z), bounds=(-6.0, 2.0), method="bounded", options={"xatol": 1e-9}
    )
    assert -found.fun == pytest.approx(bound, rel=1e-9)


def test_curvature_constant_depends_on_one_or_more_outcomes():
    assert reward.curvature_constant(1) == reward.BEND_BOUND
    assert (
        reward.curvature_constant(2) == reward.curvature_constant(7) == pytest.approx(1 / (3 * math.sqrt(3)))
    )
    with pytest.raises(ValueError, match="n_outcomes must be at least 1"):
        reward.curvature_constant(0)


@pytest.mark.parametrize(
    ("rewards", "spread"), [([0.5, 2.0], 2.0), ([-1.0, 2.0], 3.0), ([-1.0], 1.0), ([0.0], 0.0)]
)
def test_reward_spread_counts_the_reference(rewards, spread):
    assert reward.reward_spread(rewards) == spread


def random_members(n_cases, seed):
    """Yield sketches with an action, rewards, a centre W, a point of the ellipsoid's surface, and beta."""
    rng = np.random.default_rng(seed)
    for sketch, x in sketch_cases(n_cases, seed):
        K, d = sketch.n_outcomes, sketch.n_features
        r, W = rng.uniform(size=K), rng.normal(size=(K, d)) * 10.0 ** rng.uniform(-1.0, 1.0)
        beta, direction = 10.0 ** rng.uniform(-2.0, 2.0), rng.normal(size=K * d)
        change = np.linalg.solve(np.linalg.cholesky(sketch.dense()).T, direction / np.linalg.norm(direction))
        yield sketch, x, r, W, W + np.sqrt(beta) * change.reshape(K, d), beta


@pytest.mark.parametrize("sharp", [False, True])
def test_bonus_bounds_the_error_in_the_ellipsoid(sharp):
    for sketch, x, r, W, other, beta in random_members(200, seed=1):
        p, q = (link.outcome_probabilities(V @ x)[1:] for V in (W, other))
        bonus = reward.reward_bonus(W, x[None], r, sketch.inverse_blocks(x[None]), beta, sharp=sharp)
        assert abs(r @ (p - q)) <= bonus.total[0] * (1 + 1e-9) + 1e-15


def test_bonus_is_the_printed_formula():
    for sketch, x, r, W, _, beta in random_members(60, seed=2):
        values, Q = np.linalg.eigh(sketch.dense())
        root = (Q / np.sqrt(values)) @ Q.T
        v = np.kron(link.jacobian(link.outcome_probabilities(W @ x)), x[:, None]) @ r
        first = np.sqrt(beta) * np.linalg.norm(root @ v)
        spectral = np.linalg.norm(root @ np.kron(np.eye(r.size), x[:, None]), 2) ** 2
        blocks = sketch.inverse_blocks(x[None])
        bonus = reward.reward_bonus(W, x[None], r, blocks, beta)
        sharp = reward.reward_bonus(W, x[None], r, blocks, beta, sharp=True)
        assert bonus.first[0] == pytest.approx(first, rel=1e-9, abs=1e-14)
        assert bonus.second[0] == pytest.approx(0.5 * r.sum() * beta * spectral, rel=1e-9)
        factor = reward.curvature_constant(r.size) * r.max() / r.sum()
        assert sharp.second[0] == pytest.approx(factor * bonus.second[0], rel=1e-12)


def test_bonus_names_what_does_not_fit():
    good = {"parameter": np.zeros((2, 3)), "actions": np.ones((1, 3)), "rewards": [1.0, 0.5]}
    good |= {"blocks": np.eye(2)[None], "beta": 1.0}
    for name, value in (
        ("beta", -1.0),
        ("parameter", np.zeros(3)),
        ("actions", np.ones((1, 2))),
        ("rewards", [1.0]),
        ("blocks", np.eye(2)),
    ):
        with pytest.raises(ValueError, match=name):
            reward.reward_bonus(**(good | {name: value}))


def test_logit_reach_is_the_furthest_point_of_the_image():
    rng = np.random.default_rng(3)
    for sketch, x, _, _, _, beta in random_members(60, seed=3):
        K, d = sketch.n_outcomes, sketch.n_features
        block, u = sketch.inverse_blocks(x[None])[0], rng.normal(size=K)
        h = reward.logit_reach(block, u, beta)
        change = np.sqrt(beta) * rng.normal(size=(200, K * d))
        Z = sketch.dense()
        change /= np.sqrt(np.einsum("ni,ij,nj->n", change, Z, change))[:, None] / np.sqrt(beta)
        assert (change.reshape(-1, K, d) @ x @ u).max() <= u @ h + 1e-12
        if x.any():
            assert h @ np.linalg.solve(block, h) == pytest.approx(beta, rel=1e-9)
        else:
            assert not h.any()


@given(st.tuples(*[st.floats(0.0, 0.25)] * 2, *[amounts] * 4))
def test_binary_terms_are_the_formula(values):
    s, t, beta, after, square, later = values
    terms = reward.binary_terms(*([value] for value in values))
    assert terms.first[0] == pytest.approx(
        2 * math.sqrt(beta) * math.sqrt(s * t) * math.sqrt(square), abs=1e-12
    )
    cross = math.sqrt(beta) * math.sqrt(after) * math.sqrt(square) * math.sqrt(later) / 8
    assert terms.cross[0] == pytest.approx(cross, rel=1e-12, abs=1e-12)
    assert terms.second[0] == pytest.approx(beta * square / (3 * math.sqrt(3)), rel=1e-12, abs=1e-12)
    assert terms.total[0] == pytest.approx(sum(term[0] for term in terms))


def test_binary_terms_bound_a_round_in_one_dimension():
    rng = np.random.default_rng(4)
    for _ in range(2000):
        Z, x, beta = 10.0 ** rng.uniform(-1, 1), 10.0 ** rng.uniform(-1, 1), 10.0 ** rng.uniform(-2, 1)
        w, new, later = rng.normal(), rng.normal(), Z * rng.uniform(1, 2)
        truth = w + rng.choice([-1.0, 1.0, rng.uniform(-1, 1)]) * math.sqrt(beta / Z)
        regret = logistic(w * x + math.sqrt(beta / Z) * x) - logistic(truth * x)
        after = later * (truth - new) ** 2
        terms = reward.binary_terms(
            *([v] for v in (slope(truth * x), slope(new * x), beta, after, x * x / Z, x * x / later))
        )
        assert regret <= terms.total[0] + 1e-12


def test_binary_terms_name_what_does_not_fit():
    with pytest.raises(ValueError, match="radii must be at least 0"):
        reward.binary_terms([0.1], [0.1], [-1.0], [1.0], [1.0], [1.0])
    with pytest.raises(ValueError, match="new_squares must have the shape of slopes"):
        reward.binary_terms([0.1], [0.1], [1.0], [1.0], [1.0], [1.0, 2.0])


@given(amounts, amounts, amounts)
def test_self_bounding_solves_its_equation(a, b, c):
    root = reward.self_bounding(a, b, c)
    assert root == pytest.approx(a * math.sqrt(root + c) + b, rel=1e-9, abs=1e-12)
    beyond = root + 1.0
    assert a * math.sqrt(beyond + c) + b < beyond * (1 + 1e-9)
    assert root <= (a * math.sqrt(c) + 1.5 * (a * a + b)) * (1 + 1e-12)


def test_self_bounding_refuses_negative_numbers():
    with pytest.raises(ValueError, match="b must be at least 0"):
        reward.self_bounding(1.0, -1.0, 1.0)
