"""Terms of the regret bound: transcriptions, runs, and the horizon from which the bound counts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers import link_jacobian

from compendium.theory import regret, reward
from compendium.theory.self_normalised import (
    Stream,
    sharp_sum_bound,
    sharp_uncertainty_sum_bound,
    sketched_sum_bound,
    uncertainty_sum_bound,
)
from mlogb_core import ConstantRadius, TheoremRadius, eofd, link
from mlogb_core.radius import Progress, theorem_parameters


def played(K, m, seed, sharp, rounds=80, d=3, ridge=1.0, eta=1.0):
    """A run with the smallest radius that covers the true parameter.

    Returns one row each for regret, both parts of the bonus, beta, both traces and the length of the step;
    the stream; the rewards; and eta.
    """
    rng, rows = np.random.default_rng(seed), []
    truth, r = rng.normal(size=(K, d)), rng.uniform(0.2, 1.0, K)
    settings = {"regularization": ridge, "step_size": eta, "norm_bound": 6.0, "radius": ConstantRadius(0.0)}
    policy = eofd(d, r, sketch_size=m, **settings)
    for _ in range(rounds):
        X, Z, W = rng.normal(size=(5, d)), policy.curvature.dense(), policy.parameter.copy()
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        beta = (truth - W).ravel() @ Z @ (truth - W).ravel()
        bonus = reward.reward_bonus(W, X, r, policy.curvature.inverse_blocks(X), beta, sharp=sharp)
        i = (link.outcome_probabilities(X @ W.T)[:, 1:] @ r + bonus.total).argmax()
        gain = link.outcome_probabilities(X @ truth.T)[:, 1:] @ r
        policy.update(X[i], int(rng.integers(K + 1)))
        wide, step = np.kron(np.eye(K), X[i][:, None]), (policy.parameter - W).ravel()
        A = wide.T @ np.linalg.solve(Z, wide)
        traces = np.trace(link_jacobian(policy.parameter @ X[i]) @ A), np.trace(A)
        length = math.sqrt(step @ Z @ step)
        rows.append((gain.max() - gain[i], bonus.first[i], bonus.second[i], beta, *traces, length))
    return np.array(rows).T, Stream(K, d, m, ridge, rounds, policy.curvature.shrinkage), r, eta


@pytest.mark.parametrize("sharp", [False, True])
@pytest.mark.parametrize(("K", "m"), [(1, 1), (1, 3), (2, 2), (3, 4)])
def test_terms_bound_the_sums_of_a_run(K, m, sharp):
    (lost, first, second, beta, trace, plain, step), stream, r, eta = played(K, m, 10 * K + m, sharp)
    recorded = {"beta": beta.max(), "trace": trace.sum(), "uncertainty": plain.sum()}
    terms = regret.regret_terms(stream, r, step_size=eta, sharp=sharp, **recorded)
    assert 2 * first.sum() <= terms["slope"] + terms["change"]
    assert 2 * second.sum() <= terms["curvature"]
    assert lost.sum() <= sum(terms.values())
    assert step.max() <= regret.movement_bound(stream, eta, sharp=sharp)


def test_terms_are_their_formulas():
    stream, r = Stream(2, 4, 3, 5.0, 100, 2.0, 1.5), np.array([0.3, 0.4])
    given = {"beta": 7.0, "step_size": 2.0, "trace": 3.0, "uncertainty": 11.0}
    paper = regret.regret_terms(stream, r, **given)
    assert paper["slope"] == pytest.approx(2 * 0.5 * math.sqrt(7 * 100 * 3))
    assert paper["change"] == pytest.approx(0.7 * 4 * 2 * 1.5 / math.sqrt(5) * math.sqrt(7) * 11)
    assert paper["curvature"] == pytest.approx(0.7 * 7 * 11)
    sharp, gamma = regret.regret_terms(stream, r, sharp=True, **given), 1 / (3 * math.sqrt(3))
    assert sharp["slope"] == pytest.approx(0.4 * math.sqrt(7 * 100 * 3))
    change = 2 * math.sqrt(2) * 2 * 1.5 / math.sqrt(5) * gamma * 0.4 * math.sqrt(7) * 11
    assert sharp["change"] == pytest.approx(change)
    assert sharp["curvature"] == pytest.approx(gamma * 0.4 * 7 * 11)
    assert regret.movement_bound(Stream(1, 4, 3, 4.0, 1), 2.0, sharp=True) == pytest.approx(1.0)


@pytest.mark.parametrize("sharp", [False, True])
def test_sums_are_bounded_by_default(sharp):
    stream, r = Stream(2, 4, 3, 5.0, 100, 2.0), [1.0, 0.5]
    trace = sharp_sum_bound(stream) if sharp else sketched_sum_bound(stream)
    plain = (sharp_uncertainty_sum_bound if sharp else uncertainty_sum_bound)(stream, 9.0)
    options = {"beta": 3.0, "step_size": 1.0, "sharp": sharp}
    expected = regret.regret_terms(stream, r, trace=trace, uncertainty=plain, **options)
    assert regret.regret_terms(stream, r, kappa=9.0, **options) == pytest.approx(expected)
    with pytest.raises(ValueError, match="kappa must be finite"):
        regret.regret_terms(stream, r, **options)


@pytest.mark.parametrize("K", [1, 2])
def test_radius_bound_is_monotone_and_bounds_the_radius(K):
    ridge, eta = theorem_parameters(K, 2, 1.0, 2.0)
    rng = np.random.default_rng(K)
    settings = {
        "regularization": ridge,
        "step_size": eta,
        "norm_bound": 1.0,
        "radius": TheoremRadius(0.1, 2.0),
    }
    policy = eofd(2, np.ones(K), sketch_size=1, **settings)
    last = 0.0
    for t in range(1, 60):
        stream = Stream(K, 2, 1, ridge, t, policy.curvature.shrinkage, 2.0)
        terms = regret.radius_bound_terms(stream, step_size=eta, norm_bound=1.0, confidence=0.1)
        assert last <= sum(terms.values())
        assert policy.beta <= sum(terms.values()) * (1 + 1e-12)
        last = sum(terms.values())
        x = rng.normal(size=2)
        x *= 2.0 / np.linalg.norm(x)
        policy.update(x, int(link.outcome_probabilities(policy.parameter @ x).argmin()))
    sharp = regret.radius_bound_terms(stream, step_size=eta, norm_bound=1.0, confidence=0.1, sharp=True)
    factor = math.sqrt(6) * eta * ridge / (24 * K)
    assert sharp["sketch"] == pytest.approx(factor * sharp_sum_bound(stream))
    assert sharp | {"sketch": 0.0} == terms | {"sketch": 0.0}


def test_last_radius_need_not_be_the_largest():
    ridge, eta = theorem_parameters(1, 1, 0.1, 16.0)
    numbers = {"n_outcomes": 1, "n_features": 1, "rank_bound": 1, "regularization": 2 * ridge}
    numbers |= {"step_size": eta, "norm_bound": 0.1}
    move = eta * 0.5 * 16.0 / (2 * ridge + eta * 64.0)
    before = Progress(**numbers, rounds=2999)
    after = Progress(
        **numbers, rounds=3000, logit_movement=(16 * move) ** 2, hessian_movement=2 * ridge * move**2
    )
    radius = TheoremRadius(0.1, 16.0)
    assert radius.value(after) < radius.value(before) - 0.1


def test_binary_bound_solves_its_inequality():
    stream, beta, kappa = Stream(1, 5, 2, 3.0, 1000, 1.0), 4.0, 6.0
    before = uncertainty_sum_bound(stream, kappa)
    after = uncertainty_sum_bound(stream, kappa, updated=True)
    value = regret.binary_regret_bound(stream, beta=beta, kappa=kappa)
    a = 2 * math.sqrt(beta * sketched_sum_bound(stream))
    b = beta * (math.sqrt(before * after) / 8 + before / (3 * math.sqrt(3)))
    assert value == pytest.approx(a * math.sqrt(value + 250) + b)
    assert regret.binary_regret_bound(stream, beta=beta, kappa=kappa, sharp=True) < value
    with pytest.raises(ValueError, match="n_outcomes must be 1"):
        regret.binary_regret_bound(Stream(2, 5, 2, 3.0, 10), beta=1.0, kappa=9.0)


def test_first_useful_horizon_is_the_crossing():
    assert regret.first_useful_horizon(lambda T: 1e4 * math.sqrt(T), 1.0) == pytest.approx(1e8, rel=1e-4)
    assert regret.first_useful_horizon(lambda T: 1e4 * math.sqrt(T), 2.0) == pytest.approx(2.5e7, rel=1e-4)
    assert regret.first_useful_horizon(lambda T: 0.5 * T, 1.0) == 1.0
    assert regret.first_useful_horizon(lambda T: 2.0 * T, 1.0) == math.inf


def radius_terms(ridge, confidence):
    stream = Stream(1, 4, 1, ridge, 5)
    return regret.radius_bound_terms(stream, step_size=2.0, norm_bound=1.0, confidence=confidence)


def terms_of(K, beta):
    return regret.regret_terms(Stream(K, 4, 1, 10.0, 5), [1.0], beta=beta, step_size=1.0, kappa=1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: radius_terms(10.0, 0.1), "regularization must be at least"),
        (lambda: radius_terms(1e4, 1.0), "confidence must lie strictly"),
        (lambda: terms_of(2, 1.0), r"rewards must have shape \(2,\)"),
        (lambda: terms_of(1, -1.0), "beta must be at least 0"),
        (lambda: regret.movement_bound(Stream(1, 1, 1, 1.0, 1), 0.0), "step_size must be positive"),
        (lambda: regret.first_useful_horizon(lambda T: 1.0, 0.0), "largest_reward must be positive"),
    ],
)
def test_arguments_are_checked(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_radius_bound_starts_at_its_threshold():
    least = 2.0 * (24 * 4 + 2 * math.sqrt(6) * 0.25 * 1.5 * 1.2**2)
    options = {"step_size": 2.0, "norm_bound": 1.5, "confidence": 0.1}
    regret.radius_bound_terms(Stream(1, 4, 1, 1.0001 * least, 5, 0.0, 1.2), **options)
    with pytest.raises(ValueError, match="the movements may enlarge the radius"):
        regret.radius_bound_terms(Stream(1, 4, 1, 0.9999 * least, 5, 0.0, 1.2), **options)
