"""Self-concordance, exp-concavity and the Taylor factor: against 50 digits, definitions and search."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest

from compendium.claims import checks
from compendium.theory import loss
from mlogb_core import link


def variance(probabilities, logits):
    values = np.append(0.0, logits)
    return probabilities @ (values - probabilities @ values) ** 2


def pairs(n_cases, seed):
    """Pairs of logit vectors, close ones and far ones, saturated ones too."""
    rng = np.random.default_rng([seed, 1])  # not the stream of the starts
    for start in checks.logit_cases(n_cases, seed):
        yield start, start + rng.normal(size=start.size) * 10.0 ** rng.uniform(-4.0, 1.0)


def precise_gap(start, end):
    with localcontext() as context:
        context.prec = checks.DIGITS
        p, q = (checks.precise_probabilities([Decimal(float(v)) for v in z]) for z in (start, end))
        return float(sum((a * (a / b).ln() for a, b in zip(p, q, strict=True)), Decimal(0)))


def test_taylor_factor_has_full_accuracy_everywhere():
    x = np.concatenate([sign * np.geomspace(1e-12, 700.0, 150) for sign in (-1.0, 1.0)])
    with localcontext() as context:
        context.prec = 60
        exact = [(Decimal(float(v)).exp() - Decimal(float(v)) - 1) / Decimal(float(v)) ** 2 for v in x]
    assert checks.entrywise_error(loss.taylor_factor(x), [float(v) for v in exact]) < 1e-14
    assert loss.taylor_factor(0.0) == 0.5
    assert loss.taylor_factor(0.0).shape == ()
    assert np.isinf(loss.taylor_factor([800.0])).all()


def test_tangent_gap_has_full_accuracy_for_close_and_far_points():
    for start, end in pairs(120, seed=1):
        assert loss.tangent_gap(start, end) == pytest.approx(precise_gap(start, end), rel=1e-7)
    assert loss.tangent_gap([700.0], [-700.0]) == pytest.approx(700.0)
    assert loss.tangent_gap([1.0, 2.0], [1.0, 2.0]) == 0.0


def test_tangent_gap_is_the_distance_of_the_loss_from_its_tangent():
    start, end = np.array([0.4, -1.2]), np.array([1.5, 0.3])
    for outcome in range(3):
        slope = link.loss_residual(link.outcome_probabilities(start), outcome)
        gap = link.log_loss(end, outcome) - link.log_loss(start, outcome) - slope @ (end - start)
        assert loss.tangent_gap(start, end) == pytest.approx(gap, rel=1e-12)


def test_gap_lies_between_its_two_bounds():
    for start, end in pairs(300, seed=2):
        p, q = link.outcome_probabilities(start), link.outcome_probabilities(end)
        if p.min() < 1e-280 or q.min() < 1e-280:
            continue
        values = np.append(0.0, end - start)
        square, gap = variance(p, end - start), loss.tangent_gap(start, end)
        assert gap >= loss.taylor_factor(-np.log(p / q).max()) * square * (1 - 1e-9)
        assert gap <= loss.taylor_factor((values - p @ values).max()) * square * (1 + 1e-9)
        assert square <= loss.exp_concavity(-math.log(q.min())) * gap * (1 + 1e-9)
        assert square <= loss.best_exp_concavity(-math.log(q.min())) * gap * (1 + 1e-6)


@pytest.mark.parametrize("n_outcomes", [1, 2, 3])
def test_self_concordance_is_approached_and_not_exceeded(n_outcomes):
    K, limit = n_outcomes, loss.self_concordance(n_outcomes)
    rng, unit = np.random.default_rng(3), np.eye(n_outcomes)[0]
    for z in checks.logit_cases(100, seed=3, sizes=(K,)):
        p = link.outcome_probabilities(np.clip(z, -20, 20))
        u, v, w = rng.normal(size=(3, K))
        third = v @ link.reward_curvature(p, u) @ w
        assert abs(third) <= limit * np.linalg.norm(u) * math.sqrt(variance(p, v) * variance(p, w))
    z = np.array([-10.0]) if K == 1 else np.array([5.0, 15.0] + [0.0] * (K - 2))
    u = unit if K == 1 else (unit - np.eye(K)[1]) / math.sqrt(2)
    p = link.outcome_probabilities(z)
    assert u @ link.reward_curvature(p, u) @ u > 0.998 * limit * variance(p, u)


def test_surprisal_bound_is_attained_or_not_exceeded():
    rng = np.random.default_rng(4)
    for K in (1, 2, 3, 5):
        for bound in (0.0, 0.5, 3.0, 40.0):
            z = rng.normal(size=(500, K))
            ball = z * bound / np.linalg.norm(z, axis=1, keepdims=True)
            cube = z * bound / np.abs(z).max(axis=1, keepdims=True)
            cube[0] = [-bound] + [bound] * (K - 1)
            for points, norm in ((ball, "euclidean"), (cube, "max")):
                largest = -np.log(link.outcome_probabilities(points).min())
                assert largest <= loss.surprisal_bound(K, bound, norm=norm) + 1e-12
            assert largest == pytest.approx(loss.surprisal_bound(K, bound, norm="max"))
    assert loss.surprisal_bound(1, 3.0) == pytest.approx(math.log1p(math.exp(3.0)))


def test_best_exp_concavity_is_found_by_a_search_over_all_start_points():
    rng = np.random.default_rng(5)
    for K in (1, 2, 3):
        q = rng.dirichlet(np.full(K + 1, 0.5))
        end = np.log(q[1:] / q[0])

        def share(start, end=end):
            gap = loss.tangent_gap(start, end)
            return variance(link.outcome_probabilities(start), end - start) / gap if gap > 1e-9 else 0.0

        def draw(r, end=end):
            return end + r.normal(size=end.size) * 10.0 ** r.uniform(-1.0, 1.0)

        found = checks.worst_case(share, draw, starts=300, polished=6, seed=K)[0]
        best = loss.best_exp_concavity(-math.log(q.min()))
        assert 0.9999 * best <= found <= best * (1 + 1e-7)


def test_best_exp_concavity_falls_with_the_probability_and_stays_below_the_simple_one():
    levels = np.concatenate(([math.log(2.0)], math.log(2.0) + np.geomspace(1e-4, 500.0, 40)))
    best = np.array([loss.best_exp_concavity(level) for level in levels])
    assert best[0] == 2.0
    assert (np.diff(best) >= -1e-9).all()
    assert (best <= [loss.exp_concavity(level) for level in levels]).all()
    odds = np.log(np.expm1(levels[-20:]))
    assert (best[-20:] >= odds / (1 + odds) * (odds - np.log(odds))).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: loss.tangent_gap([[1.0]], [1.0]), "start must have shape"),
        (lambda: loss.tangent_gap([1.0], [1.0, 2.0]), "end must have shape"),
        (lambda: loss.taylor_factor([np.nan]), "x must be finite"),
        (lambda: loss.self_concordance(0), "n_outcomes must be at least 1"),
        (lambda: loss.surprisal_bound(2, -1.0), "logit_bound must be at least 0"),
        (lambda: loss.surprisal_bound(2, 1.0, norm="two"), "norm must be"),
        (lambda: loss.exp_concavity(0.5), "surprisal must be at least ln 2"),
        (lambda: loss.best_exp_concavity(-1.0), "surprisal must be at least 0"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
