"""Bounds of the mixture forecaster against integration, exact identities and transcribed formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from compendium.theory import mixture
from compendium.theory.loss import best_exp_concavity, surprisal_bound
from mlogb_core import TheoremRadius, eofd, link
from mlogb_core.radius import Progress, theorem_parameters

PLAYED = {"rounds": 70, "shrinkage": 4.0, "logit_movement": 0.3, "hessian_movement": 2.0}
PROGRESS = Progress(2, 5, 3, regularization=40.0, step_size=3.0, norm_bound=1.5, **PLAYED)


def block(rng, K, scale):
    root = rng.normal(size=(K, K))
    return scale * root @ root.T


@pytest.mark.parametrize(("mean", "deviation"), [(0.3, 0.5), (-4.0, 1.0), (2.0, 1.5)])
def test_expected_probabilities_are_the_integral(mean, deviation):
    def integrand(t):
        return math.exp(-t * t / 2) / math.sqrt(2 * math.pi) / (1 + math.exp(-mean - deviation * t))

    value = quad(integrand, -12, 12, epsabs=1e-13)[0]
    found = mixture.expected_probabilities([mean], [[deviation**2]])
    np.testing.assert_allclose(found, [1 - value, value], rtol=1e-7)


def test_expected_probabilities_of_two_outcomes_follow_the_order_of_the_logits():
    covariance = np.array([[0.5, 0.2], [0.2, 0.1]])
    found = mixture.expected_probabilities([1.0, -0.5], covariance)
    swapped = mixture.expected_probabilities([-0.5, 1.0], covariance[::-1, ::-1])
    np.testing.assert_allclose(found[[0, 2, 1]], swapped, rtol=1e-12)


def test_expected_probabilities_of_a_batch_are_those_of_its_members():
    rng = np.random.default_rng(2)
    means, covariances = rng.normal(size=(5, 2)), np.array([block(rng, 2, 0.3) for _ in range(5)])
    alone = [mixture.expected_probabilities(*pair) for pair in zip(means, covariances, strict=True)]
    np.testing.assert_allclose(mixture.expected_probabilities(means, covariances), alone, rtol=1e-12)


def test_expected_probabilities_of_three_outcomes_are_the_mean_of_draws():
    covariance = np.array([[2.0, 0.7, -0.3], [0.7, 0.5, 0.1], [-0.3, 0.1, 0.7]])
    found = mixture.expected_probabilities([1.0, -0.5, 0.5], covariance, n_nodes=20)
    draws = np.random.default_rng(1).multivariate_normal([1.0, -0.5, 0.5], covariance, size=200_000)
    np.testing.assert_allclose(found, link.outcome_probabilities(draws).mean(axis=0), atol=2e-3)


@pytest.mark.parametrize(
    ("logits", "covariance", "message"),
    [
        (np.zeros(4), np.eye(4), "K from 1 to 3"),
        ([0.0], np.eye(2), "covariance must have shape"),
        ([0.0, 0.0], np.diag([1.0, -1.0]), "positive semidefinite"),
    ],
)
def test_expected_probabilities_reject(logits, covariance, message):
    with pytest.raises(ValueError, match=message):
        mixture.expected_probabilities(logits, covariance)


@pytest.mark.parametrize("K", [1, 2])
def test_a_round_is_bounded(K):
    rng = np.random.default_rng(K)
    for _ in range(60):
        A, c = block(rng, K, 10.0 ** rng.uniform(-2, 0.3)), 10.0 ** rng.uniform(-0.3, 1)
        before = rng.normal(size=K) * 3
        after = before + rng.normal(size=K) * 10.0 ** rng.uniform(-3, 0)
        movement = (after - before) @ np.linalg.solve(A, after - before)
        p, q = link.outcome_probabilities(after), mixture.expected_probabilities(before, A / c)
        gap = mixture.mixture_loss_bound(p, A, c)
        assert np.log(p / q).max() <= gap + c / 2 * movement + 1e-6
        ridge = 1.0 / np.linalg.eigvalsh(A)[-1]  # |x| = 1
        trace = np.trace(link.jacobian(p) @ A)
        assert gap <= mixture.shifted_mixture_loss_bound(trace, 0.0, c, ridge, K) * (1 + 1e-12)
        assert gap + c / 2 * movement <= mixture.shifted_mixture_loss_bound(trace, movement, c, ridge, K)


def test_mixture_loss_bound_by_hand():
    # K = 1, p = 1/2: both outcomes are half a unit away.
    assert mixture.mixture_loss_bound([0.5, 0.5], [[8.0]], 2.0) == pytest.approx(0.5)
    expected = math.log(0.75 * math.exp(0.25**2 / 2) + 0.25 * math.exp(0.75**2 / 2))
    assert mixture.mixture_loss_bound([0.75, 0.25], [[1.0]], 1.0) == pytest.approx(expected)
    with pytest.raises(ValueError, match="probabilities must have shape"):
        mixture.mixture_loss_bound([1.0], [[1.0]], 1.0)


def test_shifted_mixture_loss_bound_is_the_formula():
    v = 2 * 0.5 * 2.0**2 / (0.7 * 9.0)
    expected = (math.exp(v) - 1) / v / 1.4 * 0.3 + 0.35 * 0.6
    found = mixture.shifted_mixture_loss_bound(0.3, 0.6, 0.7, 9.0, 3, action_bound=2.0)
    assert found == pytest.approx(expected)
    one = mixture.shifted_mixture_loss_bound(0.3, 0.6, 0.7, 9.0, 3, action_bound=2.0, smoothness=1.0)
    assert one > found
    with pytest.raises(ValueError, match=r"smoothness must be at least 0\.5"):
        mixture.shifted_mixture_loss_bound(0.3, 0.6, 0.7, 9.0, 3, smoothness=0.25)


@given(st.floats(0.0, 20.0), st.floats(0.0, 1.0))
def test_exponential_slope_is_a_chord(top, share):
    v = top * share
    assert math.exp(v) <= (1 + mixture.exponential_slope(top) * v) * (1 + 1e-9)
    assert mixture.exponential_slope(0.0) == 1.0


def test_exponential_moment():
    assert mixture.exponential_moment(0.25, 1) == pytest.approx(math.sqrt(2))
    assert mixture.exponential_moment(0.25, 2) == pytest.approx(2.0)
    assert math.isinf(mixture.exponential_moment(0.5, 1))


def test_quartic_moment_by_hand():
    assert mixture.quartic_moment([2.0]) == 12.0
    assert mixture.quartic_moment([1.0, 1.0]) == 8.0


def test_smoothing_constants_belong_to_a_certain_outcome():
    smoothed = 0.9 * np.array([1.0, 0.0, 0.0]) + 0.1 / 3
    logit = math.log(smoothed[0] / smoothed[1])
    assert mixture.smoothed_logit_bound(2, 0.1) == pytest.approx(logit)
    assert mixture.smoothed_constant(2, 0.1) == pytest.approx(math.log(3) + 2 * (logit + 1))


@pytest.mark.parametrize(("K", "S", "D"), [(1, 1.0, 1.0), (1, 9.0, 2.0), (3, 1.0, 1.0), (3, 4.0, 0.5)])
def test_parameters_make_the_movement_terms_negative_and_phi_small(K, S, D):
    ridge, eta = mixture.ville_parameters(K, S, D)
    assert eta == theorem_parameters(K, 7, S, D)[1]
    one = {"logit_movement": D**2, "hessian_movement": ridge}  # the worst case of a unit step
    progress = Progress(K, 4, 2, ridge, eta, S, rounds=1, **one)
    terms = mixture.ville_radius_terms(progress, 0.1, D, trace=1.0)
    assert terms["logit_movement"] + terms["hessian_movement"] <= 1e-12 * ridge
    assert terms["sketch"] <= 2 * eta**2 * (math.e - 1) * (1 + 1e-12)
    used = terms["logit_movement"] / -terms["hessian_movement"]
    slope = terms["sketch"] / (2 * eta**2 * (math.e - 1))
    assert max(used, slope) == pytest.approx(1.0)


def test_radius_terms_are_the_formula():
    terms = mixture.ville_radius_terms(PROGRESS, 0.05, action_bound=2.0)
    v = 4 * 3.0 * 0.5 * 4.0 / 40.0
    rank = 3 * math.log(1 + 2 * 4.0 * 70 / (3 * 40.0))
    traces = (1 + 4.0 / 40.0) * (10 * math.log(1 + 4.0 / 20.0) + rank)
    assert terms["ridge"] == 40.0 * 1.5**2
    assert terms["martingale"] == pytest.approx(6.0 * math.log(20.0))
    assert terms["sketch"] == pytest.approx(18.0 * (math.exp(v) - 1) / v * traces)
    assert terms["logit_movement"] == pytest.approx(6.0 * math.sqrt(2) / (3 * math.sqrt(3)) * 1.5 * 2.0 * 0.3)
    assert terms["hessian_movement"] == -1.0
    recorded = mixture.ville_radius_terms(PROGRESS, 0.05, action_bound=2.0, trace=traces / 2)
    assert recorded["sketch"] == pytest.approx(terms["sketch"] / 2)


def test_radius_at_the_start_is_ridge_and_confidence():
    progress = Progress(1, 3, 2, 5.0, 2.0, 1.0)
    assert sum(mixture.ville_radius_terms(progress, 0.1).values()) == pytest.approx(5.0 - 4.0 * math.log(0.1))


def test_radius_needs_a_ridge_or_a_trace():
    progress = Progress(1, 3, 2, 0.4, 2.0, 1.0)
    with pytest.raises(ValueError, match="regularization must be at least 2 L D"):
        mixture.ville_radius_terms(progress, 0.1)
    assert mixture.ville_radius_terms(progress, 0.1, trace=1.0)["sketch"] > 0
    with pytest.raises(ValueError, match="confidence"):
        mixture.ville_radius_terms(progress, 1.0, trace=1.0)


def test_radius_is_below_the_printed_one_at_its_parameters():
    ridge, eta = theorem_parameters(2, 5, 1.0)
    progress = Progress(2, 5, 3, ridge, eta, 1.0, rounds=400, shrinkage=3.0)
    new = mixture.ville_radius_terms(progress, 0.05)
    printed = TheoremRadius(confidence=0.05).terms(progress)
    for name, value in new.items():
        assert value <= printed[name]


def test_parameters_take_a_smaller_constant_of_exp_concavity():
    best = best_exp_concavity(surprisal_bound(1, 1.0))
    (printed_ridge, printed_step), (ridge, step) = (
        mixture.ville_parameters(1, 1.0, concavity=constant) for constant in (None, best)
    )
    assert step == best / 2
    assert ridge / step == pytest.approx(printed_ridge / printed_step)
    assert printed_step > 2.2 * step
    with pytest.raises(ValueError, match="at least 2"):
        mixture.ville_parameters(1, 1.0, concavity=1.9)


@pytest.mark.parametrize("concavity", [None, best_exp_concavity(surprisal_bound(1, 1.0))])
@pytest.mark.parametrize("outcome", [0, 1])
def test_radius_with_the_likelihood_ratio_covers_every_sequence(outcome, concavity):
    ridge, eta = mixture.ville_parameters(1, 1.0, concavity=concavity)
    radius = TheoremRadius(confidence=0.1)
    policy = eofd(2, [1.0], sketch_size=1, regularization=ridge, step_size=eta, norm_bound=1.0, radius=radius)
    rng, truth, log_ratio, trace = np.random.default_rng(4), np.array([0.6, -0.8]), 0.0, 0.0
    for _ in range(80):
        x = rng.normal(size=2)
        x /= np.linalg.norm(x)
        A = policy.curvature.inverse_blocks(x[None])[0]
        q = mixture.expected_probabilities(policy.parameter @ x, 2 * eta * A)
        policy.update(x, outcome)
        log_ratio += math.log(q[outcome] / link.outcome_probabilities([truth @ x])[outcome])
        trace += float(link.jacobian(link.outcome_probabilities(policy.parameter @ x))[0, 0] * A[0, 0])
        terms = mixture.ville_radius_terms(policy.progress, 0.1, trace=trace)
        error = policy.parameter[0] - truth
        assert error @ policy.curvature.dense() @ error <= (
            sum(terms.values()) - terms["martingale"] + 2 * eta * log_ratio
        )
