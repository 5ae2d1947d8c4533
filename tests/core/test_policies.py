"""Policies: what select and update may do, bad input, resumption to the bit, scores by dense algebra."""

from __future__ import annotations

import numpy as np
import pytest
import variants
from helpers import EPS, assert_same_state, dense_newton_step, link_jacobian, softmax
from hypothesis import example, given
from hypothesis import strategies as st

from mlogb_core import ConstantRadius, OptimisticPolicy, RandomPolicy, RidgeRadius, TheoremRadius
from mlogb_core.choice import TIE_TOLERANCE, choose
from mlogb_core.curvature import FrequentDirections

KINDS = ("eofd", "robust_eofd", "oful", "first_order", "budgeted_eofd", "dyadic_eofd", "diagonal")
D = 6


def make(kind, K=2, d=D, **changes):
    return variants.make(kind, K, d, 3, **{"norm_bound": 1.0, "radius": RidgeRadius(0.1)} | changes)


def play(policy, rounds, seed):
    """Play rounds with random outcomes, and return the actions chosen."""
    rng = np.random.default_rng(seed)
    K, d = policy.parameter.shape
    chosen = []
    for _ in range(rounds):
        actions = rng.standard_normal((int(rng.integers(2, 9)), d))
        chosen.append(policy.select(actions))
        policy.update(actions[chosen[-1]], int(rng.integers(K + 1)))
    return chosen


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


# What select and update do -------------------------------------------------------------------------


@pytest.mark.parametrize("K", [1, 3])
def test_select_and_scores_change_nothing_but_the_margin(kind, K):
    policy = make(kind, K, radius=TheoremRadius(0.1, scale=1e-2))
    play(policy, 12, seed=1)
    before = policy.state_dict()
    actions = np.random.default_rng(2).standard_normal((7, D))
    first = policy.select(actions)
    policy.scores(actions)
    assert policy.select(actions) == first
    after = {key: value for key, value in policy.state_dict().items() if not key.startswith("selected.")}
    assert_same_state(before, after, ignore=["margin"])


def test_selecting_twice_does_not_change_what_follows(kind):
    once, twice = make(kind), make(kind)
    rng = np.random.default_rng(4)
    for _ in range(20):
        actions = rng.standard_normal((5, D))
        twice.select(rng.standard_normal((3, D)))
        assert once.select(actions) == twice.select(actions)
        once.update(actions[0], 1)
        twice.update(actions[0], 1)
    assert_same_state(once.state_dict(), twice.state_dict())


def test_update_takes_any_action(kind):
    policy, twin = make(kind), make(kind)
    actions = np.eye(D)
    assert policy.select(actions) == 0
    policy.update([0.0, 0.0, 0.3, 0.0, -2.0, 0.0], 2)
    twin.update(np.array([0.0, 0.0, 0.3, 0.0, -2.0, 0.0]), np.int64(2))  # It never selected.
    assert_same_state(policy.state_dict(), twin.state_dict(), ignore=["margin", "smallest_margin"])
    assert policy.rounds == 1
    assert policy.parameter[1, 2] > 0.0  # outcome 2 became more likely where x was positive
    assert policy.parameter[1, 4] < 0.0


@pytest.mark.parametrize("K", [1, 2, 4])
def test_round_one_on_the_unit_sphere_is_a_tie_for_the_first_action(kind, K):
    rng = np.random.default_rng(0)
    for d in (1, 2, 50, 400):
        actions = rng.standard_normal((30, d))
        actions /= np.linalg.norm(actions, axis=1, keepdims=True)
        assert make(kind, K, d).select(actions) == 0


def test_ties_go_to_the_lowest_index():
    assert choose(np.array([0.0, 2.0, 2.0 * (1 - 0.5e-10), 1.0])).action == 1
    assert choose(np.array([0.0, 2.0 * (1 - 0.5e-10), 2.0, 1.0])).action == 1
    assert choose(np.array([0.0, 2.0 * (1 - 1.5e-10), 2.0, 1.0])).action == 2
    assert choose(np.array([-2.0, -1.0, -1.0 - 1e-10])).action == 1
    assert choose(np.zeros(3)) == (0, TIE_TOLERANCE)
    # The tolerance is relative to the largest score in absolute value.
    assert choose(np.array([0.9e-10, -1.0, 1.8e-10])).action == 0
    assert choose(np.array([1.0, 1.1]), tolerance=0.5).action == 0
    assert choose(np.array([1.0, 1.1]), tolerance=0.0).action == 1


def test_the_margin_is_the_distance_from_the_edge_of_a_tie():
    just_out, just_in = 1.0 - 1.25e-10, 1.0 - 0.875e-10
    assert choose(np.array([1.0, just_out])).margin == pytest.approx(0.25e-10, rel=1e-5)
    assert choose(np.array([just_in, 1.0])).margin == pytest.approx(0.125e-10, rel=1e-5)
    assert choose(np.array([just_in, 1.0, just_out])).margin == pytest.approx(0.125e-10, rel=1e-5)
    assert choose(1e8 * np.array([1.0, just_out])).margin == pytest.approx(0.25e-10, rel=1e-5)
    assert choose(np.array([1.0, 0.2, -3.0])).margin == pytest.approx(0.8 / 3.0)
    assert choose(np.array([1.0, 1.0, 0.2])).margin == TIE_TOLERANCE
    assert choose(np.array([7.0])).margin == np.inf


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=6), st.floats(1e-6, 0.5), st.integers(0, 10**6))
@example([1.0, 0.9, 0.9, -1.0], 0.1, 0)
def test_perturbations_below_half_the_margin_do_not_change_the_choice(scores, tolerance, seed):
    scores = np.array(scores)
    choice = choose(scores, tolerance)
    scale = np.abs(scores).max()
    rng = np.random.default_rng(seed)
    for _ in range(10):
        # Noise changes the scale by as much as a score, so that a quarter of the margin is safe.
        noise = 0.24 * min(choice.margin, 1.0) * scale * rng.choice([-1.0, 1.0], size=scores.size)
        assert choose(scores + noise, tolerance).action == choice.action


def test_the_smallest_margin_is_that_of_the_rounds_that_were_played():
    policy = make("oful", 1, 2, radius=ConstantRadius(0.0), regularization=1.0)
    policy.update([1.0, 0.0], 1)
    assert policy.margin == policy.smallest_margin == np.inf
    w = policy.parameter[0, 0]
    actions = np.array([[1.0, 0.0], [1.0 - 1.25e-10, 0.0]])
    policy.select(actions)
    assert policy.margin == pytest.approx(0.25e-10, rel=1e-4)
    assert policy.smallest_margin == np.inf
    policy.update(actions[0], 1)
    smallest = policy.smallest_margin
    assert smallest == pytest.approx(0.25e-10, rel=1e-4)
    policy.select([[1.0, 0.0], [1.0 - 1.5e-10, 0.0]])
    policy.update(actions[0], 1)
    assert policy.margin > smallest
    assert policy.smallest_margin == smallest
    assert w > 0


# Scores --------------------------------------------------------------------------------------------


@pytest.mark.each_value
@pytest.mark.parametrize(
    "radius", [ConstantRadius(0.0), ConstantRadius(0.37), TheoremRadius(0.1, scale=1e-3)]
)
@pytest.mark.parametrize("K", [1, 2, 5])
def test_scores_match_the_dense_formula(kind, K, radius):
    rewards = np.random.default_rng(K).random(K) + 0.1
    policy = make(kind, K, radius=radius, rewards=rewards)
    play(policy, 15, seed=5)
    W, Z, beta = policy.parameter, policy.curvature.dense(), policy.beta
    assert beta == radius.value(policy.progress)
    inverse = np.linalg.inv(Z)
    root = np.linalg.cholesky(inverse).T
    actions = np.random.default_rng(6).standard_normal((9, D))
    expected = []
    for x in actions:
        if K == 1:
            expected.append(W[0] @ x + np.sqrt(beta * (x @ inverse @ x)))
            continue
        sigma, J = softmax(W @ x)[1:], link_jacobian(W @ x)
        slope = np.kron(J, x[:, None]) @ rewards
        spectral = np.linalg.norm(root @ np.kron(np.eye(K), x[:, None]), 2) ** 2
        bonus = np.sqrt(beta) * np.sqrt(slope @ inverse @ slope)
        expected.append(rewards @ sigma + bonus + 0.5 * np.abs(rewards).sum() * beta * spectral)
    tolerance = 50 * EPS * np.linalg.cond(Z)
    np.testing.assert_allclose(policy.scores(actions), expected, rtol=tolerance, atol=tolerance)
    assert policy.select(actions) == int(np.argmax(expected))


def test_parameters_match_a_dense_computation(kind):
    # The robust ridge grows and shortens the steps, so that the ball is smaller.
    K, S, eta = 3, 0.5 if kind == "robust_eofd" else 1.5, 0.4
    policy = make(kind, K, norm_bound=S, step_size=eta)
    rng = np.random.default_rng(8)
    projections = []
    for _ in range(40):
        W, Z = policy.parameter.copy(), policy.curvature.dense()
        x, y = rng.standard_normal(D), int(rng.integers(K + 1))
        residual = softmax(W @ x)[1:] - np.eye(K + 1)[y, 1:]
        expected, projected = dense_newton_step(Z, W, residual, link_jacobian(W @ x), x, eta, S)
        policy.update(x, y)
        np.testing.assert_allclose(policy.parameter, expected, rtol=0, atol=1e-12 * S)
        projections.append(projected)
        if kind == "oful":  # the Hessian that is added is taken at the new parameter
            added = np.kron(link_jacobian(expected @ x), np.outer(x, x))
            np.testing.assert_allclose(policy.curvature.dense(), Z + added, rtol=0, atol=1e-12)
    assert any(projections)
    assert not all(projections)


def test_a_sketch_of_full_size_plays_like_oful():
    for K in (1, 3):
        wide, full = make("eofd", K, sketch_size=K * D), make("oful", K)
        assert play(wide, 60, seed=9) == play(full, 60, seed=9)
        np.testing.assert_allclose(wide.parameter, full.parameter, rtol=0, atol=1e-12)


# Inputs --------------------------------------------------------------------------------------------


def test_a_policy_keeps_no_reference_to_the_callers_arrays(kind):
    rewards, action = np.array([0.5, 1.0]), np.ones(D)
    policy, twin = make(kind, rewards=rewards), make(kind, rewards=rewards.copy())
    policy.update(action, 1)
    twin.update(np.ones(D), 1)
    parameter = np.full((2, D), 0.1)
    policy.parameter, twin.parameter = parameter, parameter.copy()
    rewards[:] = 9.0
    action[:] = 9.0
    parameter[:] = 9.0
    assert_same_state(policy.state_dict(), twin.state_dict())
    assert play(policy, 5, seed=0) == play(twin, 5, seed=0)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.ones((D, 2)), rf"parameter must have shape \(2, {D}\)"),
        (np.full((2, D), np.inf), "parameter must be finite"),
        (None, "parameter must be an array of real numbers"),
    ],
)
def test_a_bad_parameter_is_refused(kind, value, message):
    policy = make(kind)
    with pytest.raises(ValueError, match=message):
        policy.parameter = value
    assert not policy.parameter.any()


bad_actions = {
    "NaN": (np.where(np.eye(4, D) > 0, np.nan, 1.0), r"actions must be finite, got nan at index \(0, 0\)"),
    "inf": (
        np.where(np.eye(4, D, 1) > 0, -np.inf, 1.0),
        r"actions must be finite, got -inf at index \(0, 1\)",
    ),
    "narrow": (np.ones((4, D - 1)), rf"actions must have shape \(n, {D}\).*got \(4, {D - 1}\).*bias column"),
    "wide": (
        np.ones((4, D + 1)),
        rf"actions must have shape \(n, {D}\).*got \(4, {D + 1}\).*n_features={D}$",
    ),
    "empty": (np.empty((0, D)), rf"actions must have shape \(n, {D}\) with n >= 1, got \(0, {D}\)"),
    "nothing": ([], r"actions must have shape .* got \(0,\)"),
    "one action": (np.ones(D), rf"actions must have shape .* got \({D},\)"),
    "three axes": (np.ones((2, 3, D)), rf"actions must have shape .* got \(2, 3, {D}\)"),
    "ragged": ([[1.0] * D, [1.0]], "actions must be an array of real numbers"),
    "text": ([["a"] * D], "actions must be an array of real numbers"),
    "complex": (np.ones((2, D)) * 1j, "actions must be an array of real numbers"),
    "none": (None, "actions must be an array of real numbers"),
}


@pytest.mark.each_value
@pytest.mark.parametrize("case", bad_actions)
def test_bad_actions_are_named_and_change_nothing(kind, case):
    policy = make(kind)
    play(policy, 5, seed=0)
    before = policy.state_dict()
    actions, message = bad_actions[case]
    for call in (policy.select, policy.scores):
        with pytest.raises(ValueError, match=message):
            call(actions)
    assert_same_state(before, policy.state_dict())


good = np.ones(D)
bad_updates = {
    "NaN": (np.where(np.arange(D) == 2, np.nan, 1.0), 1, r"action must be finite, got nan at index \(2,\)"),
    "inf": (np.full(D, np.inf), 1, "action must be finite, got inf"),
    "short": (np.ones(D - 1), 1, rf"action must have shape \({D},\), got \({D - 1},\)"),
    "long": (np.ones(D + 1), 1, rf"action must have shape \({D},\), got \({D + 1},\)"),
    "matrix": (np.ones((1, D)), 1, rf"action must have shape \({D},\), got \(1, {D}\)"),
    "empty": ([], 1, "action must have shape"),
    "text": (["a"] * D, 1, "action must be an array of real numbers"),
    "negative outcome": (good, -1, r"outcome must be in 0\.\.2, got -1"),
    "outcome K + 1": (good, 3, r"outcome must be in 0\.\.2, got 3"),
    "fraction": (good, 1.5, "outcome must be an integer, got 1.5"),
    "float": (good, 1.0, "outcome must be an integer"),
    "bool": (good, True, "outcome must be an integer"),
    "NaN outcome": (good, np.nan, "outcome must be an integer"),
    "text outcome": (good, "1", "outcome must be an integer"),
    "no outcome": (good, None, "outcome must be an integer"),
    "indicator": (good, [0, 1], "outcome must be an integer"),
}


@pytest.mark.each_value
@pytest.mark.parametrize("case", bad_updates)
def test_bad_updates_are_named_and_change_nothing(kind, case):
    policy = make(kind, radius=TheoremRadius(0.1))
    play(policy, 5, seed=0)
    before = policy.state_dict()
    action, outcome, message = bad_updates[case]
    with pytest.raises(ValueError, match=message):
        policy.update(action, outcome)
    assert_same_state(before, policy.state_dict())


@pytest.mark.each_value
@pytest.mark.parametrize("name", ["regularization", "step_size", "norm_bound"])
@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf, "1", None, True, [1.0]])
def test_parameters_have_to_be_positive_numbers(kind, name, value):
    with pytest.raises(ValueError, match=f"{name} must be (positive|finite|a number)"):
        make(kind, **{name: value})


def test_the_ball_is_large_enough_for_the_squares_of_lengths(kind):
    with pytest.raises(ValueError, match="norm_bound must be at least 1e-80, got 1e-81"):
        make(kind, norm_bound=1e-81)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("K", [1, 2])
def test_the_smallest_ball_keeps_the_digits_of_an_ordinary_one(K, compiled):
    """In so small a ball all logits are 0, so that the parameter is S times a vector without S."""
    if compiled:
        pytest.importorskip("numba", reason="the compiled form is the optional extra [fast]")
    policies = {
        (kind, S): make(
            kind, K, norm_bound=S, compiled=compiled, **({"sketch_size": K * D} if kind == "eofd" else {})
        )
        for kind in ("eofd", "oful")
        for S in (1e-30, 1e-80)
    }
    chosen = {case: play(policy, 40, seed=K) for case, policy in policies.items()}
    assert len({tuple(actions) for actions in chosen.values()}) == 1
    for (_, S), policy in policies.items():
        assert np.linalg.norm(policy.parameter / S) == pytest.approx(1.0, abs=1e-13)
        np.testing.assert_allclose(
            policy.parameter / S, policies["oful", 1e-30].parameter / 1e-30, atol=1e-11
        )


@pytest.mark.parametrize("value", [0, -3, 1.0, 2.5, np.nan, True, "3", None])
def test_the_sketch_size_has_to_be_a_positive_integer(value):
    with pytest.raises(ValueError, match=r"sketch_size must be (at least 1|an integer)"):
        make("eofd", sketch_size=value)


@pytest.mark.parametrize("value", [0, -1, 2.0, None])
def test_the_number_of_features_has_to_be_a_positive_integer(kind, value):
    with pytest.raises(ValueError, match=r"n_features must be (at least 1|an integer)"):
        make(kind, d=value)


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("rewards", "message"),
    [
        ([], r"rewards must have shape \(K,\) with K >= 1, got \(0,\)"),
        (1.0, r"rewards must have shape \(K,\)"),
        ([[1.0]], r"rewards must have shape \(K,\)"),
        ([0.5, -0.25], "rewards must be at least 0, got -0.25"),
        ([0.5, np.nan], r"rewards must be finite, got nan at index \(1,\)"),
        ([np.inf], "rewards must be finite"),
        (["a"], "rewards must be an array of real numbers"),
    ],
)
def test_bad_rewards_are_rejected(kind, rewards, message):
    with pytest.raises(ValueError, match=message):
        make(kind, rewards=rewards)


def test_rewards_have_to_fit_the_curvature():
    curvature = FrequentDirections(2, D, 1.0, 3)
    for rewards in ([1.0], [0.1, 0.2, 0.3]):
        with pytest.raises(ValueError, match=r"rewards must have shape \(2,\)"):
            OptimisticPolicy(curvature, rewards, step_size=1.0, norm_bound=1.0, radius=RidgeRadius(1.0))
    with pytest.raises(ValueError, match="tie_tolerance must be at least 0"):
        OptimisticPolicy(
            curvature, [0.1, 0.2], step_size=1.0, norm_bound=1.0, radius=RidgeRadius(1.0), tie_tolerance=-1.0
        )


# Resumption ----------------------------------------------------------------------------------------


def test_a_state_is_a_snapshot(kind):
    policy = make(kind)
    play(policy, 8, seed=0)
    state, again = policy.state_dict(), policy.state_dict()
    twin = OptimisticPolicy.from_state(state)
    play(policy, 8, seed=1)
    assert_same_state(state, again)
    play(twin, 8, seed=1)
    assert_same_state(state, again)
    assert_same_state(policy.state_dict(), twin.state_dict())


def test_every_entry_of_a_state_is_needed(kind):
    policy = make(kind)
    play(policy, 4, seed=0)
    state = policy.state_dict()
    for key in state:
        rest = {k: v for k, v in state.items() if k != key}
        with pytest.raises(ValueError, match=f"state has no entry '{key.removeprefix('curvature.')}'"):
            OptimisticPolicy.from_state(rest)


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("format", 1, "state has no entry 'format' with the value 2: another version of the library"),
        ("curvature", "Diagonal", r"curvature must be one of .*DenseCurvature.*, got 'Diagonal'"),
        ("curvature", "__class__", "curvature must be one of"),
        ("rewards", np.ones(3), r"rewards must have shape \(2,\)"),
        ("rewards", np.array([0.5, -1.0]), "rewards must be at least 0"),
        ("parameter", np.ones((D, 2)), rf"parameter must have shape \(2, {D}\)"),
        ("parameter", np.full((2, D), np.nan), "parameter must be finite"),
        ("rounds", -1, "rounds must be at least 0"),
        ("rounds", 1.5, "rounds must be an integer"),
        ("step_size", 0.0, "step_size must be positive"),
        ("norm_bound", np.nan, "norm_bound must be finite"),
        ("logit_movement", -1.0, "logit_movement must be at least 0"),
        ("hessian_movement", np.nan, "hessian_movement must be finite"),
        ("radius", '{"kind": "square"}', "radius kind must be one of"),
        ("radius", '{"kind": "ridge", "scale": -1}', "scale must be at least 0"),
    ],
)
def test_a_state_that_does_not_fit_is_rejected(kind, key, value, message):
    state = make(kind).state_dict()
    with pytest.raises(ValueError, match=message):
        OptimisticPolicy.from_state(state | {key: value})


def test_numpy_numbers_are_as_good_as_pythons(kind):
    """Parameters that come out of arrays or data frames must not spoil the state."""
    plain = make(kind, radius=ConstantRadius(0.5), norm_bound=2.0)
    other = make(kind, radius=ConstantRadius(np.float32(0.5)), norm_bound=np.int64(2))
    assert play(plain, 5, seed=0) == play(other, 5, seed=0)
    assert_same_state(plain.state_dict(), other.state_dict())


def test_random_play_is_uniform_and_learns_nothing():
    policy = RandomPolicy(np.random.default_rng(0))
    counts = np.bincount([policy.select(np.ones((5, 2))) for _ in range(5000)], minlength=5)
    # The limit is five binomial standard deviations of 28.
    assert np.abs(counts - 1000).max() < 142
    state = policy.state_dict()
    policy.update(np.ones(2), 1)
    assert policy.state_dict() == state
    assert policy.margin == np.inf
    with pytest.raises(ValueError, match="state has no entry 'rng'"):
        RandomPolicy.from_state({})
