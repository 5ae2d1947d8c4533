"""The observed radius against every sequence of outcomes, its determinants, and the mix-loss radius."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from compendium.theory import loss, usable_radius
from compendium.theory.self_normalised import Stream, log_det_sum_bound
from mlogb_core import LogDetRadius, ObservedRadius, eofd, link, oful
from mlogb_core.observed import (
    PlayedRound,
    log_det_surplus,
    mixture_precision,
    normalised_forecast,
    round_surplus,
)
from mlogb_core.radius import exponential_slope

TRUTH = {1: np.array([[1.2, -0.9]]), 2: np.array([[1.0, 0.2], [-0.9, 0.6]])}
FORECASTS = {
    "normalised": lambda s: normalised_forecast(s.before, s.block, s.length, s.step_size, s.norm_bound),
    "plug-in": lambda s: np.log(link.outcome_probabilities(s.before)),
}


class Kept(ObservedRadius):
    """An observed radius that keeps its rounds."""

    rounds: list

    def increment(self, played):
        self.rounds.append(played)
        return super().increment(played)


def kept(forecast):
    radius = Kept(0.1, forecast=forecast)
    object.__setattr__(radius, "rounds", [])
    return radius


@pytest.mark.slow
@pytest.mark.each_value
@pytest.mark.parametrize("K", [1, 2])
@pytest.mark.parametrize("forecast", FORECASTS)
@pytest.mark.parametrize("m", [0, 1])
def test_with_the_likelihood_ratio_it_covers_every_sequence(K, forecast, m):
    truth, S = TRUTH[K], 1.5
    eta = usable_radius.smallest_step_size(K, S)
    options = {"regularization": 0.4, "step_size": eta, "norm_bound": S}
    actions = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-0.8, 0.6], [1.0, 0.0]])
    for outcomes in itertools.product(range(K + 1), repeat=5):
        radius = kept(forecast)
        make = eofd(2, np.ones(K), sketch_size=1, radius=radius, **options) if m else None
        policy = make or oful(2, np.ones(K), radius=radius, **options)
        log_ratio = 0.0
        for x, y in zip(actions, outcomes, strict=True):
            policy.update(x, y)
            p = link.outcome_probabilities(truth @ x)[y]
            log_ratio += FORECASTS[forecast](radius.rounds[-1])[y] - math.log(p)
            error = (policy.parameter - truth).ravel()
            beta = 0.4 * S**2 + 2 * eta * log_ratio + policy.progress.surplus
            assert error @ policy.curvature.dense() @ error <= beta * (1 + 1e-9)


def test_step_size_is_half_of_the_smaller_constant():
    expected = loss.best_exp_concavity(loss.surprisal_bound(3, 1.5)) / 2
    assert usable_radius.smallest_step_size(3, 0.75, 2.0) == pytest.approx(expected)
    x = 2 * math.sqrt(2) * 0.1
    assert usable_radius.smallest_step_size(50, 0.1) == pytest.approx(x**2 / (math.exp(-x) + x - 1) / 2)


@pytest.mark.parametrize(
    ("K", "SD"),
    [
        (1, 1.0),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((1, 4.0), (2, 0.5), (8, 0.2))),
        (8, 2.0),
    ],
)
def test_the_step_size_keeps_the_concavity_of_points_in_the_ball(K, SD):
    rng, double = np.random.default_rng(K), 2 * usable_radius.smallest_step_size(K, SD)
    points = rng.normal(size=(2000, 2, K)) * SD
    points *= np.minimum(1.0, SD / np.linalg.norm(points, axis=2, keepdims=True))
    apart = np.linalg.norm(points[:, 0] - points[:, 1], axis=1) > 1e-3
    for first, second in points[apart]:
        square = (second - first) @ link.jacobian(link.outcome_probabilities(first)) @ (second - first)
        assert square <= double * loss.tangent_gap(first, second) * (1 + 1e-9)


@pytest.mark.parametrize("K", [1, 2])
def test_determinants_bound_the_surplus_of_the_mixture(K):
    rng = np.random.default_rng(K)
    for _ in range(40):
        root = rng.normal(size=(K, K)) * 10.0 ** rng.uniform(-1.5, -0.2)
        block = root @ root.T
        before, step = rng.normal(size=K), rng.normal(size=K) * 0.3
        movement = step @ np.linalg.solve(block, step)
        played = PlayedRound(before, before + step, int(rng.integers(K + 1)), block, 1.0, movement, 1.3, 4.0)
        c = mixture_precision(played)
        slope = exponential_slope(2 * link.smoothness(K) * np.linalg.eigvalsh(block)[-1] / c)
        bound = log_det_surplus(played, c, slope)
        assert round_surplus(played, usable_radius.gaussian_forecast(played, c)) <= bound + 1e-9
        assert LogDetRadius(0.1).increment(played) == pytest.approx(bound)


@pytest.mark.parametrize("K", [1, 3])
def test_the_sum_of_determinants_is_bounded(K):
    rng, m = np.random.default_rng(K), 2
    radius = kept("plug-in")
    policy = eofd(
        4, np.ones(K), sketch_size=m, regularization=0.7, step_size=2.0, norm_bound=3.0, radius=radius
    )
    for t in range(80):
        policy.update(np.eye(4)[t % 4], int(rng.integers(K + 1)))
    seen = [link.jacobian(link.outcome_probabilities(s.after)) @ s.block for s in radius.rounds]
    total = sum(np.linalg.slogdet(np.eye(K) + one)[1] for one in seen)
    bound = log_det_sum_bound(Stream(K, 4, m, 0.7, 80, policy.curvature.shrinkage))
    assert 0.3 * bound < total <= bound
    assert log_det_sum_bound(Stream(1, 2, 2, 0.5, 8, 0.0)) == pytest.approx(2 * math.log(3.0))


def test_bound_before_a_game_by_hand():
    stream = Stream(1, 2, 2, 0.5, 8, 0.0)
    terms = usable_radius.log_det_radius_bound(stream, step_size=1.2, norm_bound=1.0, confidence=0.1)
    rest = 1 - 2 * 1.2 / (6 * math.sqrt(3)) / 0.5
    v = 2 * 1.2 * 0.25 / (rest * 0.5)
    expected = math.expm1(v) / v * 1.44 / rest * 2 * math.log(3.0)
    assert terms == pytest.approx({"ridge": 0.5, "martingale": 2.4 * math.log(10), "sketch": expected})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step_size": 0.9}, "step_size must be at least 1"),
        ({"norm_bound": 3.0}, r"regularization must be above 0\.6"),
    ],
)
def test_bound_before_a_game_rejects(changes, message):
    numbers = {"step_size": 1.2, "norm_bound": 1.0, "confidence": 0.1} | changes
    with pytest.raises(ValueError, match=message):
        usable_radius.log_det_radius_bound(Stream(1, 2, 2, 0.5, 8, 0.0), **numbers)


def test_mix_loss_radius_by_hand_and_above_ours():
    ridge, eta = usable_radius.mix_loss_parameters(2, 3, 1.5, 2.0)
    M = math.sqrt(2) * 2.0
    assert eta == pytest.approx(1 + M * 1.5)
    assert ridge == pytest.approx(96 / 7 * 6 * eta * M**2)
    assert usable_radius.mix_loss_parameters(1, 1, 100.0, 2.0).regularization == pytest.approx(
        6 * 201 * 2 * 100
    )
    numbers = {"step_size": eta, "norm_bound": 1.5, "confidence": 0.1}
    terms = usable_radius.mix_loss_radius_terms(2.0, regularization=ridge, **numbers)
    assert terms["sketch"] == pytest.approx(2 * eta * (6 * eta + 1))
    stream = Stream(2, 3, 2, ridge, 50, 1.0, 2.0)
    ours = usable_radius.log_det_radius_bound(stream, **numbers)["sketch"]
    assert 6 * ours < eta * (6 * eta + 1) * log_det_sum_bound(stream) * 1.3


def test_smoothed_forecast_by_hand():
    played = PlayedRound(np.array([math.log(3)]), np.zeros(1), 0, np.eye(1), 1.0, 0.0, 1.0, 1.0)
    np.testing.assert_allclose(np.exp(usable_radius.smoothed_forecast(played, 0.1)), [0.275, 0.725])
    np.testing.assert_allclose(np.exp(usable_radius.gaussian_forecast(played, 1e9)), [0.25, 0.75], rtol=1e-6)
