"""Problems on which the printed ridge costs the root of the dimension: radii, thresholds, reduced game."""

from __future__ import annotations

import math

import numpy as np
import pytest

from compendium.theory import dimension
from mlogb_core import TheoremRadius, eofd, link
from mlogb_core.radius import Progress, theorem_parameters


def played(d, m, idle, rounds, seed):
    """A game by the library's policy: policy, plays, truth, draws, and the radii and errors of all rounds."""
    rng = np.random.default_rng(seed)
    truth, draws = 0.4 * rng.normal(size=m), rng.random(rounds)
    ridge, eta = theorem_parameters(1, d, norm_bound=1.0)
    settings = {"regularization": ridge, "step_size": eta, "norm_bound": 1.0, "radius": TheoremRadius(0.1)}
    policy = eofd(d, [1.0], sketch_size=m, **settings)
    actions, padded = np.vstack((np.eye(d)[:m], np.zeros((int(idle), d)))), np.append(truth, 0.0)
    plays, radii, errors = np.zeros(len(actions)), [], []
    for draw in draws:
        away = np.append(truth, np.zeros(d - m)) - policy.parameter[0]
        radii.append(policy.beta)
        errors.append(away @ policy.curvature.dense() @ away)
        i = policy.select(actions)
        plays[i] += 1
        policy.update(actions[i], int(draw < link.outcome_probabilities(padded[i : i + 1])[1]))
    return policy, plays, truth, draws, np.array(radii), np.array(errors)


@pytest.mark.parametrize(("d", "m", "idle"), [(2, 2, False), (4, 3, False), (3, 1, True), (4, 4, True)])
def test_the_reduced_game_is_the_librarys(d, m, idle):
    policy, plays, truth, draws, radii, errors = played(d, m, idle, rounds=150, seed=10 * d + m)
    ridge, failure = policy.curvature.regularization, 0.01
    horizons = np.array([50, 150])
    game = dimension.play_unit_vectors(d, truth, idle, draws, horizons, 0.1, ridge, failure)
    assert game.plays[1].tolist() == plays[:m].tolist()
    best = max(truth.max(), 0.0) if idle else truth.max()
    padded = np.append(truth, 0.0)[: len(plays)]
    assert game.wrong[1] == plays[padded < best].sum()
    assert game.parameter[1] == pytest.approx(policy.parameter[0, :m], rel=1e-9, abs=1e-12)
    diagonal = 1.0 / policy.curvature.inverse_blocks(np.eye(d)[:m])[:, 0, 0]
    assert game.hessian[1] + ridge == pytest.approx(diagonal, rel=1e-12)
    assert game.radius[0] == pytest.approx(radii[50], rel=1e-12)
    assert game.radius[1] == pytest.approx(policy.beta, rel=1e-12)
    length = np.linalg.norm(truth)
    high = [dimension.error_radius(d, m, t, length, failure) for t in range(150)]
    low = [dimension.radius_floor(d, m, t) for t in range(150)]
    assert game.error_share[0] == pytest.approx((errors[:51] / high[:51]).max(), rel=1e-9)
    assert game.floor_share[0] == pytest.approx((low / radii)[:51].max(), rel=1e-9)


def test_the_reduced_game_stops_where_the_projection_would_couple_the_coordinates():
    draws = np.zeros(40)  # always the outcome 1
    game = dimension.play_unit_vectors(1, np.array([0.5]), False, draws, np.array([1, 40]), 0.1, 1.0, 0.1)
    assert np.isfinite(game.radius[0])
    assert np.isnan(game.radius[1])
    assert np.isnan(game.wrong[1])


@pytest.mark.parametrize(("d", "m"), [(1, 1), (3, 3), (50, 7), (10**5, 1)])
@pytest.mark.parametrize("t", [0, 10, 10**5, 10**12])
def test_the_error_is_a_quarter_of_the_radius_at_most(d, m, t):
    failure = math.exp(-3.0 * min(d, 200))
    low = dimension.radius_floor(d, m, t)
    alpha = 4.0 + math.log(2.0)
    assert low >= 24.0 * alpha * d + 2.09 * alpha**2 * dimension.information_bound(m, t, 24.0 * alpha * d)
    assert dimension.error_radius(d, m, t, math.sqrt(0.125), failure) <= low / 4 * (1 + 1e-12)


def test_the_floor_is_the_printed_radius_less_what_it_does_not_need():
    d, m, t = 10, 3, 5000
    ridge, eta = theorem_parameters(1, d, norm_bound=1.0)
    terms = TheoremRadius(0.1).terms(Progress(1, d, m, ridge, eta, 1.0, rounds=t))
    top = 1.0 / (1.0 + math.exp(-1.0))
    moved = eta**2 * top**2 / (2.0 * top * (1.0 - top)) * m * math.log1p(t / (4 * m * ridge))
    assert dimension.radius_floor(d, m, t) == pytest.approx(
        terms["ridge"] + terms["sketch"] - moved, rel=1e-3
    )


def test_truths_and_floors_by_hand():
    lam = 24.0 * (4.0 + math.log(2.0)) * 5
    T = math.ceil(16 * lam)
    truth = dimension.hard_truth(5, 2, T, idle=True)
    assert truth == pytest.approx([-math.sqrt(lam / T)] * 2)
    floor = dimension.regret_floor(5, 2, T, idle=True)
    assert floor == pytest.approx(T * (0.5 - link.outcome_probabilities([truth[0]])[1]))
    assert floor >= 0.16 * math.sqrt(lam * 2 * T)
    T = math.ceil(312 * lam)
    truth = dimension.hard_truth(5, 2, T, idle=False)
    assert truth == pytest.approx([math.sqrt(2 * lam / T), 0.0])
    assert dimension.regret_floor(5, 2, T, idle=False) >= 0.003 * math.sqrt(lam * 2 * T)


@pytest.mark.parametrize(
    ("arguments", "idle", "message"),
    [
        ((5, 6, 10**6), True, "n_directions must be at most n_features = 5, got 6"),
        ((5, 1, 10**6), False, "n_directions must be at least 2 without the action 0"),
        ((5, 2, 100), True, "n_rounds must be at least"),
        ((5, 2, 10**5), False, "n_rounds must be at least"),
    ],
)
def test_truths_ask_for_enough_rounds(arguments, idle, message):
    with pytest.raises(ValueError, match=message):
        dimension.hard_truth(*arguments, idle=idle)


def test_a_truth_outside_of_the_ball_is_refused():
    with pytest.raises(ValueError, match="length must be at most 1"):
        dimension.error_radius(3, 2, 10, 1.5, 0.1)


def test_the_better_action_is_never_played():
    d, m = 2, 1
    T = math.ceil(4 * theorem_parameters(1, d, norm_bound=1.0)[0])
    truth = dimension.hard_truth(d, m, T, idle=True)
    ridge = theorem_parameters(1, d, norm_bound=1.0)[0]
    draws = np.random.default_rng(5).random(T)
    game = dimension.play_unit_vectors(d, truth, True, draws, np.array([T]), 0.1, ridge, math.exp(-6.0))
    assert game.wrong[0] == T
    plain, draws = np.array([-0.7]), np.random.default_rng(6).random(60_000)
    game = dimension.play_unit_vectors(d, plain, True, draws, np.array([60_000]), 0.1, ridge, 0.1)
    assert 1000 < game.wrong[0] < 60_000  # a difference this large is found
