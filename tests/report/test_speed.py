"""Whether a goal for the time of a round is met: the model of the time, and what is said of each problem."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from compendium.report.equal_regret import EQUAL, MORE, UNDECIDED
from compendium.report.speed import RoundTime, fit_round_time, obstacle, reach

FULL, ONE, SKETCH = "oful-compiled", "growing-ridge", "eofd-compiled"
LABELS = {FULL: "the full Hessian", ONE: "one number", SKETCH: "the sketch"}


@pytest.mark.parametrize("model", [(0.05, 0.002, 1e-5), (0.05, 0.003, 0.0), (0.02, 0.0, 1e-4)])
def test_the_fit_returns_the_model_that_made_the_times(model):
    ranks = [2, 5, 10, 20, 40]
    fitted = fit_round_time(ranks, [RoundTime(*model).at(m) for m in ranks])
    np.testing.assert_allclose(fitted, model, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("model", [(0.05, 0.002, 1e-5), (0.05, 0.003, 0.0), (0.02, 0.0, 1e-4)])
def test_a_round_of_the_largest_rank_takes_what_is_allowed(model):
    model = RoundTime(*model)
    assert model.at(model.largest_rank(0.09)) == pytest.approx(0.09, rel=1e-12)
    assert model.largest_rank(0.01) < 0


def test_a_time_that_does_not_grow_allows_any_rank():
    assert RoundTime(0.1, 0.0, 0.0).largest_rank(0.1) == np.inf


@pytest.mark.parametrize(("ranks", "times"), [([], []), ([1, 2], [0.1, 0.0]), ([1, 2], [0.1])])
def test_times_that_cannot_be_fitted_are_refused(ranks, times):
    with pytest.raises(ValueError, match="times must be above 0, one for each rank"):
        fit_round_time(ranks, times)


def contenders(one, small, large, share=0.3):
    """Time and verdict of one number and of two sketches; the full Hessian takes 0.2 ms, the goal is 2."""
    rows = [
        (FULL, "none", 0.2, EQUAL), (ONE, "none", *one), (SKETCH, "m = 2", *small), (SKETCH, "m = 40", *large)
    ]  # fmt: skip
    table = pd.DataFrame(rows, columns=["policy", "memory", "ms", "verdict"])
    return table.assign(target=2.0, share=share)


SLOW = (0.25, EQUAL)


@pytest.mark.parametrize(
    ("rows", "outcome", "said"),
    [
        (contenders((0.03, MORE), (0.09, EQUAL), SLOW), "reached", "equal regret by the sketch, m = 2."),
        (contenders((0.03, MORE), (0.11, EQUAL), SLOW), "too much regret", "none of the curvatures tried"),
        (
            contenders((0.03, MORE), (0.09, MORE), SLOW),
            "too much regret",
            "Of the 2 contenders that are fast",
        ),
        (contenders((0.03, MORE), (0.09, UNDECIDED), SLOW), "open", "not certain (the sketch, m = 2)"),
        (contenders((0.11, EQUAL), (0.15, EQUAL), SLOW), "too slow", "no curvature meets the goal"),
        (contenders((0.03, EQUAL), (0.09, EQUAL), SLOW, 0.95), "silent", "nothing can be said"),
    ],
)
def test_what_is_said_of_a_goal(rows, outcome, said):
    found = reach(rows, full=FULL, single=ONE, sketches={SKETCH: RoundTime(0.08, 0.004, 0.0)})
    assert found["outcome"] == outcome
    assert (found["allowed"], found["rank"]) == (0.1, {SKETCH: 5.0})
    text = obstacle("A", found, LABELS)
    assert text.startswith("- A, a round may take 0.1 ms to meet the goal (2 times as fast)")
    assert said in text


def test_a_sketch_that_is_too_slow_at_any_rank_is_named():
    rows = contenders((0.03, MORE), (0.13, EQUAL), SLOW)
    found = reach(rows, full=FULL, single=ONE, sketches={SKETCH: RoundTime(0.12, 0.004, 0.0)})
    assert found["rank"] == {SKETCH: None}
    assert "the sketch takes 0.12 ms whatever its rank, which is too long already." in obstacle(
        "A", found, LABELS
    )
