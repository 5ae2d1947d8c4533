"""The instance-dependent bound: the reward's deviation, its change, and the terms of the regret."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compendium.theory import instance, reward
from mlogb_core import ConstantRadius, eofd, link


@given(st.integers(2, 5), st.integers(0, 10**6))
def test_excess_bound_is_above_every_distribution(n, seed):
    rng = np.random.default_rng(seed)
    p, v = rng.dirichlet(np.full(n, 0.3)), rng.uniform(size=n)
    v[:2] = 0.0, 1.0  # the ends of the interval
    centred = v - p @ v
    s = math.sqrt(p @ centred**2)
    excess = p @ np.maximum(centred**2 - s**2, 0.0)
    bound = instance.excess_bound(min(p @ v, 1.0), min(s, math.sqrt((p @ v) * max(1.0 - p @ v, 0.0))))
    assert excess <= bound + 1e-12
    assert bound <= s / 4 + 1e-12


def test_excess_bound_is_attained_by_two_values():
    for q in (0.05, 1 / 7, 0.3, 0.5):
        s = math.sqrt(q * (1 - q))
        assert instance.excess_bound(q, s) == pytest.approx(q * (1 - q) * (1 - 2 * q), abs=1e-12)
        assert instance.excess_bound(1 - q, s) == instance.excess_bound(q, s)


def test_excess_bound_names_what_is_out_of_range():
    with pytest.raises(ValueError, match="below must be at most 1"):
        instance.excess_bound(1.5, 0.1)
    with pytest.raises(ValueError, match=r"deviation must be at most 0\.3 for below=0\.1"):
        instance.excess_bound(0.1, 0.31)


@given(st.integers(1, 4), st.integers(0, 10**6))
def test_deviation_changes_slowly(K, seed):
    rng = np.random.default_rng(seed)
    r, z, h = rng.normal(size=K), rng.normal(size=K) * 3, rng.normal(size=K)
    before, after = (instance.reward_deviation(link.outcome_probabilities(v), r) for v in (z, z + h))
    assert abs(after - before) <= instance.deviation_change_bound(r, h) * (1 + 1e-9) + 1e-12


def test_deviation_is_that_of_the_reward():
    p = link.outcome_probabilities([[0.3, -1.0], [2.0, 0.0]])
    values = np.array([0.0, 0.5, 2.0])
    direct = np.sqrt(p @ values**2 - (p @ values) ** 2)
    assert instance.reward_deviation(p, values[1:]) == pytest.approx(direct)
    assert instance.reward_deviation(p[0], values[1:]).shape == ()


def played(K, m, seed, sharp, rounds=60, d=3):
    """A run with the least radius that covers the truth: regret, headroom and the arguments of the terms."""
    rng, rows = np.random.default_rng(seed), []
    truth, r = rng.normal(size=(K, d)), rng.uniform(0.2, 1.0, K)
    settings = {"regularization": 0.5, "step_size": 1.0, "norm_bound": 6.0, "radius": ConstantRadius(0.0)}
    policy = eofd(d, r, sketch_size=m, **settings)

    def distance():
        away = (truth - policy.parameter).ravel()
        return away @ policy.curvature.dense() @ away

    for _ in range(rounds):
        X, Z, W, beta = rng.normal(size=(4, d)), policy.curvature.dense(), policy.parameter.copy(), distance()
        bonus = reward.reward_bonus(W, X, r, policy.curvature.inverse_blocks(X), beta, sharp=sharp)
        i = (link.outcome_probabilities(X @ W.T)[:, 1:] @ r + bonus.total).argmax()
        p = link.outcome_probabilities(X @ truth.T)
        gain = p[:, 1:] @ r
        policy.update(X[i], int(rng.choice(K + 1, p=p[i])))
        wide, step = np.kron(np.eye(K), X[i][:, None]), (policy.parameter - W).ravel()
        A, later = (wide.T @ np.linalg.solve(matrix, wide) for matrix in (Z, policy.curvature.dense()))
        after = link.jacobian(link.outcome_probabilities(policy.parameter @ X[i]))
        variance = p[i, 1:] @ r**2 - gain[i] ** 2
        norms = np.linalg.norm(A, 2), np.linalg.norm(later, 2)
        row = math.sqrt(variance), beta, distance(), np.trace(after @ A), *norms, math.sqrt(step @ Z @ step)
        rows.append((gain.max() - gain[i], gain.max() * (r.max() - gain.max()), *row))
    return np.array(rows).T, r


@pytest.mark.parametrize("sharp", [False, True])
@pytest.mark.parametrize(("K", "m"), [(1, 2), (2, 2), (3, 9)])
def test_terms_bound_the_regret_of_a_run(K, m, sharp):
    (lost, room, *rest), r = played(K, m, 7 * K + m, sharp)
    assert (lost <= instance.instance_terms(r, *rest, sharp=sharp).total + 1e-12).all()
    _, beta, new_beta, trace, norm, new_norm, step = rest
    sums = {"trace": trace.sum(), "norm": norm.sum(), "new_norm": new_norm.sum(), "step": step.max()}
    bound = instance.instance_regret_bound(
        r, room.sum(), beta=max(beta.max(), new_beta.max()), sharp=sharp, **sums
    )
    assert lost.sum() <= bound


def test_terms_and_bound_by_hand():
    r, row = [0.5, 1.0], [[0.3], [4.0], [9.0], [0.25], [0.5], [0.4], [0.2]]
    terms = instance.instance_terms(r, *row)
    gamma = 1 / (3 * math.sqrt(3))
    assert terms.slope == pytest.approx([2 * 0.3 * 2 * 0.5])
    assert terms.cross == pytest.approx([0.25 * math.sqrt(2) * math.sqrt(36 * 0.4 * 0.25)])
    assert terms.change == pytest.approx([2 * gamma * 2 * 0.5 * 0.2])
    assert terms.curvature == pytest.approx([1.5 * 4 * 0.5])
    assert instance.instance_terms(r, *row, sharp=True).curvature == pytest.approx([gamma * 4 * 0.5])
    sums = {"trace": 2.0, "norm": 3.0, "new_norm": 2.5, "step": 0.1}
    R = instance.instance_regret_bound(r, 7.0, beta=4.0, **sums)
    rest = 0.25 * math.sqrt(2) * 4 * math.sqrt(5) + 2 * gamma * 0.1 * 2 * 3 + 1.5 * 4 * 3
    assert pytest.approx(2 * math.sqrt(8) * math.sqrt(R + 7.0) + rest) == R
    doubled = instance.instance_regret_bound([1.0, 2.0], 28.0, beta=4.0, **sums)
    assert doubled == pytest.approx(2 * R)  # the unit of the rewards does not matter


def test_terms_name_what_is_out_of_range():
    row = [[0.3], [4.0], [9.0], [0.25], [0.5], [0.4]]
    with pytest.raises(ValueError, match=r"steps must have the shape of deviations, \(1,\), got \(2,\)"):
        instance.instance_terms([1.0], *row, [0.1, 0.2])
    with pytest.raises(ValueError, match=r"steps must be at least 0, got -0\.1"):
        instance.instance_terms([1.0], *row, [-0.1])
