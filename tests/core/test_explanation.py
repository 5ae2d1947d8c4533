"""Explanations, probabilities of actions and many contexts, against dense algebra."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from helpers import dense_blocks, link_jacobian, random_rounds, softmax
from scipy.special import ndtr

from mlogb_core import (
    ConstantRadius,
    Propensities,
    RandomPolicy,
    RidgeRadius,
    eofd,
    first_order,
    oful,
    robust_eofd,
    select_many,
    thompson,
)

D = 6
SETTINGS = {"regularization": 0.5, "step_size": 1.5, "norm_bound": 3.0, "radius": RidgeRadius(0.6)}
BETA = 0.6 * 0.5 * 3.0**2
MAKERS = {
    "eofd": lambda *a, **k: eofd(*a, sketch_size=4, **k),
    "robust": lambda *a, **k: robust_eofd(*a, sketch_size=4, **k),
    "oful": oful,
    "first": first_order,
}


def played(kind, K, **changes):
    policy = MAKERS[kind](D, np.linspace(0.0, 1.0, K + 1)[1:], **SETTINGS | changes)
    random_rounds(policy, 30, seed=1)
    return policy, np.random.default_rng(2).standard_normal((7, D))


def drawn(K, radius=0.6, n=30):
    policy = thompson(D, np.linspace(0.0, 1.0, K + 1)[1:], rng=np.random.default_rng(5),
                      **SETTINGS | {"radius": RidgeRadius(radius)})  # fmt: skip
    random_rounds(policy, n, seed=1)
    return policy


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("kind", MAKERS)
def test_the_parts_are_those_of_dense_algebra(kind, K):
    policy, actions = played(kind, K)
    shown = policy.explain(actions)
    blocks = dense_blocks(policy.curvature.dense(), actions, K)
    beta = BETA
    for i, (x, A) in enumerate(zip(actions, blocks, strict=True)):
        z = policy.parameter @ x
        assert shown.probabilities[i] == pytest.approx(softmax(z), rel=1e-12)
        assert shown.reward[i] == pytest.approx(softmax(z)[1:] @ policy.rewards, rel=1e-12)
        v = link_jacobian(z) @ policy.rewards if K > 1 else np.ones(1)
        assert shown.estimate[i] == pytest.approx(shown.reward[i] if K > 1 else z[0], rel=1e-12)
        assert shown.first_bonus[i] == pytest.approx(np.sqrt(beta * v @ A @ v), rel=1e-9)
        second = 0.5 * policy.rewards.sum() * beta * np.linalg.eigvalsh(A)[-1] if K > 1 else 0.0
        assert shown.second_bonus[i] == pytest.approx(second, rel=1e-9)
    np.testing.assert_allclose(shown.score, policy.scores(actions), rtol=1e-14)
    assert shown.chosen == policy.select(actions)


@pytest.mark.parametrize("K", [1, 2, 4])
def test_every_parameter_of_the_region_lies_within_the_bounds(K):
    """Points of the sphere of the ellipsoid, by a dense root; for K = 1 its two ends attain the bounds."""
    policy, actions = played("oful", K)
    beta = 2.5
    shown = policy.explain(actions, interval_beta=beta)
    inverse = np.linalg.inv(policy.curvature.dense())
    root = np.linalg.cholesky(inverse)
    rng = np.random.default_rng(0)
    points = [root @ (g / np.linalg.norm(g)) for g in rng.standard_normal((500, K * D))]
    for i, x in enumerate(actions):
        X = np.kron(np.eye(K), x[:, None])
        for j in range(K + 1):  # the points where a difference of two logits moves furthest
            for k in range(j):
                e = np.eye(K + 1)[j, 1:] - np.eye(K + 1)[k, 1:]
                far = inverse @ X @ e
                points += [far / np.sqrt(e @ X.T @ far), -far / np.sqrt(e @ X.T @ far)]
        values = np.array([softmax((policy.parameter + np.sqrt(beta) * p.reshape(K, D)) @ x) for p in points])
        assert (values >= shown.lower[i] - 1e-12).all()
        assert (values <= shown.upper[i] + 1e-12).all()
        if K == 1:
            assert values.min(0) == pytest.approx(shown.lower[i], rel=1e-10)
            assert values.max(0) == pytest.approx(shown.upper[i], rel=1e-10)
        elif K == 2:  # valid, and not much wider than what the region has
            assert ((shown.upper[i] - shown.lower[i]) < 2.5 * np.ptp(values, axis=0)).all()


def test_the_bounds_are_the_pairwise_formula_and_shrink_to_the_estimate():
    policy, actions = played("eofd", 3)
    shown = policy.explain(actions)
    x, A = actions[0], dense_blocks(policy.curvature.dense(), actions[:1], 3)[0]
    z, e = np.append(0.0, policy.parameter @ x), np.vstack([np.zeros(3), np.eye(3)])
    for k in range(4):
        s = [np.sqrt(BETA * (e[j] - e[k]) @ A @ (e[j] - e[k])) for j in range(4)]
        for sign, bound in ((1, shown.lower), (-1, shown.upper)):
            total = sum(np.exp(z[j] - z[k] + sign * s[j]) for j in range(4) if j != k)
            assert bound[0, k] == pytest.approx(1 / (1 + total), rel=1e-9)
    certain = policy.explain(actions, interval_beta=0.0)
    for bound in (certain.lower, certain.upper):
        assert bound == pytest.approx(certain.probabilities, rel=1e-12)


def test_explaining_changes_nothing_and_refuses_what_select_refuses():
    policy, actions = played("eofd", 2)
    before, margin = {k: np.copy(v) for k, v in policy.state_dict().items()}, policy.margin
    policy.explain(actions)
    assert all(np.array_equal(before[k], v) for k, v in policy.state_dict().items())
    assert policy.margin == margin
    with pytest.raises(ValueError, match="actions must have shape"):
        policy.explain(actions[:, 1:])
    with pytest.raises(ValueError, match="interval_beta"):
        policy.explain(actions, interval_beta=-1.0)


def test_far_logits_have_bounds_without_a_warning():
    policy, actions = played("oful", 2, radius=ConstantRadius(1e9))
    shown = policy.explain(1e4 * actions)
    assert np.isfinite([shown.lower, shown.upper]).all()
    assert ((shown.lower <= shown.probabilities) & (shown.probabilities <= shown.upper)).all()


def test_it_prints_as_a_table():
    policy, actions = played("eofd", 2)
    lines = repr(policy.explain(actions)).splitlines()
    heading = ["action", "reward", "bonus", "1", "bonus", "2", "score", "P(0)", "P(1)", "P(2)"]
    assert lines[0].split() == heading
    assert len(lines) == 8
    assert len({len(line) for line in lines}) == 1
    marked = [line.split()[1] for line in lines if "*" in line]
    assert marked == [str(policy.select(actions))]
    shown = policy.explain(actions)
    low, value, high = shown.lower[0, 0], shown.probabilities[0, 0], shown.upper[0, 0]
    assert f"{100 * value:.0f}% [{100 * low:.0f}, {100 * high:.0f}]" in lines[1]


@pytest.mark.compiled
def test_the_compiled_form_explains_and_decides_alike():
    pytest.importorskip("numba")
    for K in (1, 3):
        plain, actions = played("eofd", K)
        compiled, _ = played("eofd", K, compiled=True)
        assert compiled.explain(actions).score == pytest.approx(plain.explain(actions).score, rel=1e-9)
        sets = list(np.random.default_rng(6).standard_normal((8, 5, D)))
        assert select_many(compiled, sets).tolist() == [compiled.select(one) for one in sets]
        assert select_many(plain, sets).tolist() == select_many(compiled, sets).tolist()


# The probabilities of the actions -------------------------------------------------------------------


def test_random_play_has_equal_probabilities():
    shown = RandomPolicy(np.random.default_rng(0)).probabilities(np.eye(5))
    assert shown.probability.tolist() == [0.2] * 5
    assert shown.n_draws == 0
    with pytest.raises(ValueError, match="n >= 1"):
        RandomPolicy(np.random.default_rng(0)).probabilities(np.empty((0, 3)))


def test_an_optimistic_choice_is_certain():
    policy, actions = played("eofd", 3)
    assert np.flatnonzero(policy.probabilities(actions).probability).tolist() == [policy.select(actions)]


def test_a_certain_choice_among_many_actions_takes_little_memory():
    tracemalloc.start()
    shown = Propensities.certain(3, 2000)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.flatnonzero(shown.probability).tolist() == [3]
    assert shown.probability.sum() == 1.0
    assert most < 10 * shown.probability.nbytes


def test_thompson_with_two_actions_and_two_outcomes_is_exact():
    policy, actions = drawn(1), np.random.default_rng(3).standard_normal((2, D)) * 0.4
    shown = policy.probabilities(actions)
    difference = actions[0] - actions[1]
    deviation = np.sqrt(BETA * difference @ np.linalg.solve(policy.curvature.dense(), difference))
    expected = ndtr(policy.parameter[0] @ difference / deviation)
    assert shown.probability == pytest.approx([expected, 1 - expected], rel=1e-9)
    assert shown.n_draws == 0
    plays = np.mean([policy.select(actions) == 0 for _ in range(1000)])
    assert abs(plays - expected) < 4 * np.sqrt(expected * (1 - expected) / 1000)
    assert policy.probabilities(np.stack([actions[0]] * 2)).probability.tolist() == [1.0, 0.0]


def test_thompson_otherwise_is_a_stated_estimate_that_leaves_the_own_stream():
    policy, actions = drawn(2), np.random.default_rng(3).standard_normal((4, D)) * 0.4
    with pytest.raises(ValueError, match="no closed form: give `rng`"):
        policy.probabilities(actions)
    stream = policy.rng.bit_generator.state
    shown = policy.probabilities(actions, n_draws=1000, rng=np.random.default_rng(9))
    assert policy.rng.bit_generator.state == stream
    assert shown.n_draws == 1000
    assert shown.probability.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(
        shown.standard_error, np.sqrt(shown.probability * (1 - shown.probability) / 1000)
    )
    plays = np.bincount([policy.select(actions) for _ in range(1000)], minlength=4) / 1000
    assert (np.abs(plays - shown.probability) < 6 * shown.standard_error + 1e-3).all()
    assert 0.1 < shown.probability.max() < 0.95
    with pytest.raises(ValueError, match="n_draws"):
        policy.probabilities(actions, n_draws=0, rng=np.random.default_rng(9))


def test_thompson_without_radius_or_choice_is_certain():
    actions = np.random.default_rng(3).standard_normal((4, D))
    greedy = drawn(2, radius=0.0)
    assert greedy.probabilities(actions).probability[greedy.select(actions)] == 1.0
    assert drawn(2).probabilities(actions[:1]).probability.tolist() == [1.0]


# Many contexts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("kind", MAKERS)
def test_many_contexts_are_those_of_select(kind, K):
    policy, _ = played(kind, K)
    rng = np.random.default_rng(4)
    sets = [rng.standard_normal((int(rng.integers(1, 9)), D)) for _ in range(20)]
    chosen = select_many(policy, sets)
    margin, single, margins = policy.margin, [], []
    for actions in sets:
        single.append(policy.select(actions))
        margins.append(policy.margin)
    assert chosen.tolist() == single
    assert margin == pytest.approx(min(margins), rel=1e-6)
    assert select_many(policy, []).shape == (0,)


def test_a_policy_that_draws_makes_a_draw_for_each_context():
    sets = list(np.random.default_rng(4).standard_normal((9, 5, D)) * 0.3)
    one, other = drawn(2), drawn(2)
    assert select_many(one, sets).tolist() == [other.select(actions) for actions in sets]


def test_a_wrong_context_is_named():
    policy, actions = played("oful", 2)
    with pytest.raises(ValueError, match=r"^context 1: actions must have shape"):
        select_many(policy, [actions, actions[:, 1:]])
    with pytest.raises(ValueError, match=r"^context 1: actions must have shape"):
        select_many(drawn(2), [actions, actions[:, 1:]])
