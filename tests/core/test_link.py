"""The multinomial logit link against Decimal arithmetic, finite differences and the paper's sums."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from helpers import EPS, exact_probabilities, fifth_order, link_jacobian, softmax
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import minimize

from mlogb_core.link import (
    expected_reward,
    jacobian,
    jacobian_factor,
    log_loss,
    log_losses,
    loss_gradient,
    loss_hessian_factor,
    loss_residual,
    outcome_probabilities,
    reward_curvature,
    smoothness,
)

SMALLEST = 1e-300  # below this, products of probabilities lose digits to underflow
wide_logits = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=6)
moderate_logits = st.lists(st.floats(-6.0, 6.0), min_size=1, max_size=6)
# Five-point differences with h = 1e-3: truncation h^4/30 times a fifth derivative below 30, and
# roundoff eps * |f| / h.
DIFFERENCES = 2e-12


def exact_jacobian(probabilities):
    """Jacobian entries, in exact arithmetic, from probabilities of the outcomes 0..K taken as they are."""
    probabilities = [Fraction(float(a)) for a in probabilities]
    p = probabilities[1:]
    return np.array(
        [
            [float(a * (sum(probabilities) - a) if i == j else -a * b) for j, b in enumerate(p)]
            for i, a in enumerate(p)
        ]
    )


@given(wide_logits)
@example([1e3])
@example([-1e3])
@example([1e3, 1e3 - 1e-9, -1e3])
@example([0.0, -745.0, 745.0])
@example([-1e3, -1e3, -1e3, -1e3])
def test_probabilities_have_relative_accuracy(logits):
    p = outcome_probabilities(logits)
    exact = exact_probabilities(logits)
    shift = max(0.0, *logits)
    for value, truth, z in zip(p, exact, [0.0, *logits], strict=True):
        # exp magnifies the rounding of its argument z - shift by |z - shift|
        tolerance = EPS * (len(p) + 4 + abs(z - shift)) * float(truth)
        assert abs(value - float(truth)) <= tolerance + SMALLEST


def test_probabilities_of_many_rows_are_those_of_each_row():
    logits = np.random.default_rng(1).normal(scale=20.0, size=(4, 5, 3))
    together = outcome_probabilities(logits)
    assert together.shape == (4, 5, 4)
    for index in np.ndindex(4, 5):
        np.testing.assert_array_equal(together[index], outcome_probabilities(logits[index]))


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        ([np.nan], "logits must be finite"),
        ([0.0, np.inf], r"logits must be finite, got inf at index \(1,\)"),
        (1.0, "logits must have shape"),
        (np.empty((3, 0)), "logits must have shape"),
        (["a"], "logits must be an array of real numbers"),
    ],
)
def test_logits_that_are_none_are_rejected(logits, message):
    for function in (outcome_probabilities, log_losses, lambda z: log_loss(z, 0)):
        with pytest.raises(ValueError, match=message):
            function(logits)


def test_the_loss_of_one_outcome_is_that_of_one_row():
    with pytest.raises(ValueError, match=r"logits must have shape \(K,\) with K >= 1, got \(2, 3\)"):
        log_loss(np.zeros((2, 3)), 0)


@given(moderate_logits)
def test_jacobian_is_the_derivative_of_the_probabilities(logits):
    differences = fifth_order(lambda z: softmax(z)[1:], logits)
    J = jacobian(outcome_probabilities(logits))
    np.testing.assert_allclose(J, differences, rtol=0, atol=DIFFERENCES)
    np.testing.assert_allclose(J, link_jacobian(logits), rtol=0, atol=4 * EPS)


@given(wide_logits)
@example([40.0])
@example([700.0, 0.0])
@example([30.0, -30.0, 29.0])
@example([-300.0, -310.0])
def test_jacobian_and_its_factor_keep_relative_accuracy_when_saturated(logits):
    p = outcome_probabilities(logits)
    exact = exact_jacobian(p)
    lengths = np.sqrt(np.diag(exact))
    scale = np.outer(lengths, lengths)
    # Each row of F has the length sqrt(J_ii), so a product of 2K roundings is relative to the scale.
    tolerance = 2 * EPS * len(p) * scale + SMALLEST
    assert (np.abs(jacobian(p) - exact) <= tolerance).all()
    F = jacobian_factor(p)
    assert F.shape == exact.shape
    assert (np.abs(F @ F.T - exact) <= tolerance).all()


def test_jacobian_of_many_rows_is_that_of_each_row():
    p = outcome_probabilities(np.random.default_rng(2).normal(scale=5.0, size=(3, 4, 5)))
    together = jacobian(p)
    assert together.shape == (3, 4, 5, 5)
    for index in np.ndindex(3, 4):
        np.testing.assert_array_equal(together[index], jacobian(p[index]))


def rewards_for(logits):
    return st.tuples(logits, st.lists(st.floats(0.0, 3.0), min_size=6, max_size=6))


@given(rewards_for(moderate_logits))
def test_reward_curvature_is_the_second_derivative_and_the_papers_sum(case):
    logits, rewards = case
    r = np.array(rewards[: len(logits)])
    D2 = reward_curvature(outcome_probabilities(logits), r)
    differences = fifth_order(lambda z: link_jacobian(z) @ r, logits)
    np.testing.assert_allclose(D2, differences, rtol=0, atol=DIFFERENCES * max(1.0, r.sum()))

    sigma = softmax(logits)[1:]
    total = np.zeros((r.size, r.size))
    for k, e in enumerate(np.eye(r.size)):
        total += (r[k] * sigma[k]) * (
            2 * np.outer(sigma, sigma)
            - np.diag(sigma)
            - np.outer(e, sigma)
            - np.outer(sigma, e)
            + np.outer(e, e)
        )
    np.testing.assert_allclose(D2, total, rtol=0, atol=8 * EPS * max(r.sum(), SMALLEST))
    np.testing.assert_array_equal(D2, D2.T)


def test_expected_reward_gives_the_reference_no_reward():
    p = np.array([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]])
    np.testing.assert_array_equal(expected_reward(p, np.array([1.0, 3.0])), [1.0, 0.0])


@given(wide_logits, st.data())
@example([-800.0], None)
def test_loss_is_minus_the_log_of_the_probability(logits, data):
    outcomes = range(len(logits) + 1) if data is None else [data.draw(st.integers(0, len(logits)))]
    for y in outcomes:
        truth = float(-exact_probabilities(logits)[y].ln())
        assert abs(log_loss(logits, y) - truth) <= 4 * EPS * (truth + len(logits))


@given(wide_logits)
@example([50.0])
@example([-50.0])
def test_loss_residual_keeps_relative_accuracy(logits):
    p = outcome_probabilities(logits)
    for y in range(len(p)):
        residual = loss_residual(p, y)
        for k in range(1, len(p)):
            exact = [Fraction(float(a)) for a in p]
            truth = float(exact[k] if k != y else exact[k] - sum(exact))
            assert abs(residual[k - 1] - truth) <= EPS * len(p) * abs(truth) + SMALLEST


def test_loss_residual_leaves_its_argument_alone():
    p = outcome_probabilities([0.3, -0.2])
    before = p.copy()
    loss_residual(p, 1)
    np.testing.assert_array_equal(p, before)


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 10**6))
def test_loss_gradient_and_hessian_are_derivatives_in_row_wise_order(K, d, seed):
    rng = np.random.default_rng(seed)
    W, x, y = rng.standard_normal((K, d)), rng.standard_normal(d), int(rng.integers(K + 1))
    gradient = loss_gradient(W, x, y)
    assert gradient.shape == (K, d)
    # The fifth derivative in one entry of W carries the fifth power of one entry of x.
    tolerance = DIFFERENCES * max(1.0, np.abs(x).max() ** 5)
    slopes = fifth_order(lambda V: log_loss(V @ x, y), W)
    np.testing.assert_allclose(gradient.ravel(), slopes, rtol=0, atol=10 * tolerance)

    B = loss_hessian_factor(W, x)
    assert B.shape == (K * d, K)
    H = np.kron(link_jacobian(W @ x), np.outer(x, x))
    np.testing.assert_allclose(B @ B.T, H, rtol=0, atol=8 * EPS * (x @ x))
    slopes = fifth_order(lambda V: loss_gradient(V, x, y).ravel(), W)
    np.testing.assert_allclose(B @ B.T, slopes, rtol=0, atol=10 * tolerance)


@pytest.mark.parametrize("outcome", [-1, 3, 1.0, True, "1", None])
def test_loss_rejects_outcomes_outside_the_range(outcome):
    with pytest.raises(ValueError, match="outcome"):
        log_loss([0.0, 1.0], outcome)


@pytest.mark.parametrize("K", [1, 2, 3, 6])
def test_smoothness_is_attained_and_never_exceeded(K):
    L = smoothness(K)

    def largest(logits):
        return np.linalg.eigvalsh(jacobian(outcome_probabilities(logits)))[-1]

    rng = np.random.default_rng(K)
    found = [largest(rng.normal(scale=s, size=K)) for s in (0.3, 3.0, 30.0) for _ in range(500)]
    for _ in range(5):
        result = minimize(lambda z: -largest(z), rng.normal(scale=3.0, size=K), method="Nelder-Mead")
        found.append(-result.fun)
    pair = np.full(K, -60.0)
    pair[: min(K, 2)] = 0.0 if K == 1 else 60.0
    found.append(largest(pair))
    assert max(found) <= L * (1 + 4 * EPS)
    assert largest(pair) >= L * (1 - 4 * EPS)
