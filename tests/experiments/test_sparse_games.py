"""Games with sparse actions beside those with dense rows."""

from __future__ import annotations

import numpy as np
import pytest

from compendium.experiments import Rated, Setting, sparse_beside_dense
from compendium.experiments.problems import Source, rated
from compendium.experiments.ratings import Ratings
from compendium.experiments.trials import TrialSpec
from mlogb_core.sparse import SparsePolicy

POLICIES = ("eofd", "first-order")


@pytest.fixture
def setting(monkeypatch):
    """Ratings that are drawn, so that no package with data is needed."""
    rng = np.random.default_rng(5)
    indices = np.sort(rng.permuted(np.tile(np.arange(60, dtype=np.int32), (200, 1)), axis=1)[:, :4], axis=1)
    ratings = Ratings("x", indices, 60, rng.integers(1, 6, 200), np.repeat(np.arange(10), 20), "s", "l")
    monkeypatch.setattr(rated, "MOVIELENS", Source("x", lambda: ratings, "absent"))
    return Setting(
        name="films", problem=Rated(source="movielens"), sketch_size=3, regularization=1.0, step_size=1.0,
        norm_bound=5.0, radius={"kind": "ridge", "scale": 1e-4}, policies=POLICIES,
    )  # fmt: skip


def test_the_game_with_sparse_actions_is_trial_0_of_the_study(setting):
    found = sparse_beside_dense(setting, POLICIES, 25, seed=3, experiment="films")
    trial = TrialSpec(experiment="films", setting=setting, n_rounds=25, seed=3, trial=0).compute()
    regret = trial.groupby("policy", observed=True)["regret"].sum()
    assert found["rounds"] == 25
    # Ten actions: 60 doubles each, or 4 doubles and indices each and 11 starts, of 4 or 8 bytes.
    assert found["bytes"]["dense"] == 10 * 60 * 8
    assert found["bytes"]["sparse"] in (10 * 4 * 12 + 11 * 4, 10 * 4 * 16 + 11 * 8)
    for name in POLICIES:
        game = found["policies"][name]
        assert game["equal"] == 25
        assert game["regret"] == pytest.approx(dict.fromkeys(("dense", "sparse"), regret[name]), rel=1e-12)
        assert min(game["milliseconds"].values()) > 0
        assert game["coordinates"] == 60


def test_other_actions_of_the_sparse_form_are_counted(setting, monkeypatch):
    monkeypatch.setattr(SparsePolicy, "select", lambda self, actions: 9)
    game = sparse_beside_dense(setting, ("eofd",), 25, seed=3, experiment="films")["policies"]["eofd"]
    assert game["equal"] < 25
    assert game["regret"]["sparse"] != game["regret"]["dense"]
