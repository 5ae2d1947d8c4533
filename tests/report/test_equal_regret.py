"""Equal regret: intervals of paired differences, the smallest memory, and the sentence of the first page."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from compendium.report import equal_regret, readme
from compendium.report.equal_regret import (
    EQUAL,
    MORE,
    UNDECIDED,
    relative_regret,
    sentence,
    smallest_equal,
    spread_over_grid,
)
from compendium.system.paths import FailureError


def played(values):
    """Regret of policies by group, a list over trials each."""
    return pd.DataFrame(
        [
            {"group": group, "policy": policy, "trial": trial, "regret": regret}
            for (group, policy), regrets in values.items()
            for trial, regret in enumerate(regrets)
        ]
    )


def test_differences_are_paired_and_relative_to_the_mean_of_the_reference():
    full, sketch = np.array([10.0, 20.0, 60.0]), np.array([11.0, 22.0, 60.0])
    table = relative_regret(
        played({("alone", "oful"): full, ("m = 1", "eofd"): sketch}).sample(frac=1, random_state=1), "oful"
    )
    row = table[table["policy"] == "eofd"].iloc[0]
    expected = stats.ttest_1samp((sketch - full) / 30.0, 0.0).confidence_interval(0.95)
    assert (row["regret"], row["mean"]) == (31.0, pytest.approx(1.0 / 30.0))
    assert (row["low"], row["high"]) == (pytest.approx(expected.low), pytest.approx(expected.high))
    own = table[table["policy"] == "oful"].iloc[0]
    assert (own["mean"], own["low"], own["high"], own["verdict"]) == (0.0, 0.0, 0.0, EQUAL)


@pytest.mark.parametrize(
    ("shift", "verdict"), [(2.0, EQUAL), (-5.0, EQUAL), (3.2, UNDECIDED), (2.8, UNDECIDED), (4.0, MORE)]
)
def test_regret_is_equal_where_the_interval_lies_below_a_tenth(shift, verdict):
    full = np.array([29.0, 30.0, 31.0, 30.0])
    sketch = full + shift + np.array([0.2, -0.2, -0.2, 0.2])
    table = relative_regret(played({("alone", "oful"): full, ("m = 1", "eofd"): sketch}), "oful")
    assert table["verdict"].iloc[1] == verdict


def test_too_few_trials_decide_nothing():
    table = relative_regret(played({("alone", "oful"): [1.0, 1.0], ("m = 1", "eofd"): [1.0, 1.0]}), "oful")
    assert set(table["verdict"]) == {UNDECIDED}


@pytest.mark.parametrize("reference", ["first-order", "eofd"])
def test_the_reference_plays_once(reference):
    table = played({("alone", "oful"): [1.0], ("m = 1", "eofd"): [1.0], ("m = 2", "eofd"): [1.0]})
    with pytest.raises(ValueError, match=f"exactly one group, got '{reference}'"):
        relative_regret(table, reference)


@pytest.mark.parametrize(
    ("verdicts", "place"),
    [
        ([EQUAL, EQUAL], 0),
        ([MORE, UNDECIDED, EQUAL], 2),
        ([EQUAL, MORE, EQUAL], 2),
        ([MORE, EQUAL, UNDECIDED, EQUAL], 1),
        ([EQUAL, MORE], None),
        ([UNDECIDED], None),
        ([], None),
    ],
)
def test_the_smallest_memory_is_one_that_no_larger_one_contradicts(verdicts, place):
    assert smallest_equal(pd.DataFrame({"verdict": verdicts})) == place


def test_the_spread_is_of_means_over_trials_and_by_policy():
    rows = [
        {"group": "m = 1", "policy": "eofd", "point": point, "trial": trial, "regret": regret + 2 * trial}
        for point, regret in (("a", 3.0), ("b", 4.0), ("c", 11.0))
        for trial in range(2)
    ]
    (row,) = spread_over_grid(pd.DataFrame(rows), least=2.0).to_dict("records")
    assert row == {
        "group": "m = 1", "policy": "eofd", "best": 2.0, "median": 2.5, "worst": 6.0,
        "within": pytest.approx(2 / 3),
    }  # fmt: skip


def finding(problem, policy, smallest, share=0.3, verdict=None):
    verdict = verdict or (EQUAL if smallest else UNDECIDED)
    return {"problem": problem, "policy": policy, "smallest": smallest, "share": share, "verdict": verdict}


def test_one_number_that_does_as_well_is_said_first():
    rows = [
        finding("A", "growing-ridge", "without a sketch"), finding("A", "eofd", "m = 5"),
        finding("B", "growing-ridge", None), finding("B", "first-order", "without a sketch"),
        finding("B", "eofd", "m = 20"), finding("B", "robust-eofd", None, verdict=MORE),
        finding("C", "growing-ridge", None, share=0.95), finding("C", "eofd", "m = 1", share=0.95),
    ]  # fmt: skip
    text = sentence(rows)
    assert text.startswith("**One number does as well as any sketch**: on 2 problems")
    assert "at most 90% of random play's" in text
    assert "| the paper's sketch | 2 | 0 | 5 to 20 |" in text
    assert "half of $\\rho$ to λ | 0 | 1 | – |" in text
    assert "trace of the Hessian (its growth is tuned, too) | 1 | 0 | – |" in text
    assert text.endswith("no curvature: $\\lambda I$ alone | 1 | 0 | – |")


@pytest.mark.parametrize(
    ("verdicts", "head"),
    [
        ((MORE, MORE), "One number does not always replace a sketch"),
        ((MORE, UNDECIDED), "One number is not certain to replace a sketch"),
        ((UNDECIDED, UNDECIDED), "One number is not certain to replace a sketch"),
    ],
)
def test_a_sketch_that_does_more_is_told_from_one_that_may(verdicts, head):
    numbers = zip(("growing-ridge", "first-order"), verdicts, strict=True)
    rows = [finding("A", policy, None, verdict=verdict) for policy, verdict in numbers]
    text = sentence([*rows, finding("A", "robust-eofd", "m = 2"), finding("A", "budgeted-eofd", "ε = 1")])
    assert text.startswith(f"**{head}**: on 1 problems")
    assert "is added to λ | 1 | 0 | – |\n   | the paper's sketch | 0 | 0 | – |\n" in text
    assert "half of $\\rho$ to λ | 1 | 0 | 2 |" in text


@pytest.mark.parametrize(
    ("recorded", "count"),
    [(["synthetic", "real", "lectures"], 3), (["synthetic", "real"], None)],
)
def test_the_readme_takes_every_case_that_is_recorded(monkeypatch, recorded, count):
    def run(case):
        rows = [finding(case, "growing-ridge", "without a sketch")]
        return type("R", (), {"record": {"point": {"case": case}, "study": {"findings": {"smallest": rows}}}})

    monkeypatch.setattr(readme, "find_runs", lambda *asked: [run(case) for case in recorded])
    if count is None:
        with pytest.raises(FailureError, match="one run of equal_regret, lectures,"):
            readme._equal_regret()
        return
    assert f"on {count} problems" in readme._equal_regret()
    monkeypatch.setattr(equal_regret, "LEARNED", 0.1)
    assert "on 0 problems" in readme._equal_regret()
