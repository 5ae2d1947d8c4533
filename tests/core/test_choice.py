"""Pruned choice: always that of scoring every action, with fewer of them scored."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from variants import is_available, make

from mlogb_core import RidgeRadius
from mlogb_core.choice import TIE_TOLERANCE, choose, choose_pruned


@st.composite
def scored_actions(draw):
    """Scores with exact and near ties and both signs, and bounds around them, some of them attained."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n = draw(st.integers(1, 25))
    levels = rng.standard_normal(draw(st.integers(1, 6))) * draw(st.sampled_from([1e-3, 1.0, 1e6]))
    scores = rng.choice(np.append(levels, draw(st.sampled_from([0.0, -3.0, 1.0]))), size=n)
    near = draw(st.sampled_from([0.0, 0.3, 0.9999, 1.0001, 40.0]))
    scores = scores + rng.choice([0.0, near], size=n) * TIE_TOLERANCE * (np.abs(scores).max() or 1.0)
    width = draw(st.sampled_from([0.0, 1e-9, 0.1, 10.0])) * (np.abs(scores).max() or 1.0)
    return scores, scores - width * rng.random(n), scores + width * rng.choice([0.0, 1.0], size=n)


@given(scored_actions(), st.sampled_from([2, 3, 100]))
def test_pruning_changes_neither_choice_nor_margin(case, batch_size):
    scores, lower, upper = case
    seen = []

    def score(index):
        assert (np.diff(index) > 0).all()
        seen.extend(index.tolist())
        return scores[index]

    choice, scored = choose_pruned(lower, upper, score, batch_size=batch_size)
    assert choice == choose(scores)
    assert scored == len(seen) == len(set(seen))


def test_pruning_leaves_out_what_cannot_matter():
    rng = np.random.default_rng(0)
    scores = rng.random(1000)
    _, scored = choose_pruned(scores - 1e-3, scores + 1e-3, lambda index: scores[index])
    assert scored <= 8
    # An action far below zero sets the scale of the tie rule and has to be scored.
    scores[17] = -50.0
    choice, scored = choose_pruned(scores - 1e-3, scores + 1e-3, lambda index: scores[index])
    assert choice == choose(scores)
    assert 3 <= scored <= 9


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_bounds_and_scores_must_be_finite(bad):
    with pytest.raises(ArithmeticError, match="scores must be finite"):
        choose_pruned(np.zeros(3), np.array([1.0, bad, 0.0]), lambda index: np.zeros(len(index)))
    with pytest.raises(ArithmeticError, match="scores must be finite"):
        choose_pruned(np.zeros(3), np.ones(3), lambda index: np.full(len(index), bad))


@pytest.mark.each_value
@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize(
    "kind",
    [
        *("eofd", "robust_eofd", "oful", "first_order", "budgeted_eofd", "growing_ridge", "diagonal"),
        *filter(is_available, ("diagonal compiled",)),
    ],
)
@pytest.mark.parametrize("scale", [1e-3, 1.0])
def test_select_is_the_choice_among_all_scores(kind, K, scale, monkeypatch):
    # The policy now prunes even where that costs more time than it saves.
    monkeypatch.setattr("mlogb_core.policies.optimistic._CHEAP", 0)
    d, rng = 12, np.random.default_rng(K)
    policy = make(kind, K, d, 5, step_size=1.0, norm_bound=4.0, radius=RidgeRadius(scale))
    scored = 0
    for _ in range(120):
        actions = rng.standard_normal((30, d)) * rng.choice([0.0, 0.1, 1.0], size=(30, 1))
        actions[1] = actions[0]
        expected = choose(policy.scores(actions))
        assert policy.select(actions) == expected.action
        assert policy.margin == pytest.approx(expected.margin, rel=1e-6, abs=1e-13)
        scored += policy.evaluated
        policy.update(actions[expected.action], int(rng.integers(K + 1)))
    assert scored < 120 * 30
    if scale == 1e-3:  # A small bonus allows much pruning.
        assert scored < 120 * 10
