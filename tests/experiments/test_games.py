"""Regret without the final state, against the trials of a study."""

from __future__ import annotations

import pytest

from compendium.experiments.games import play_regret
from compendium.experiments.problems import Synthetic
from compendium.experiments.setting import Setting
from compendium.experiments.study import Study
from compendium.experiments.timing import Played

SETTING = Setting(
    name="small", problem=Synthetic(dimension=6, rewards=(0.5, 1.0), parameter_norm=2.0), sketch_size=2,
    regularization=0.5, step_size=1.0, norm_bound=2.0, radius={"kind": "ridge", "scale": 0.05},
    policies=("eofd", "oful", "random"),
)  # fmt: skip


@pytest.mark.parametrize("seed", [1, 2])
def test_regret_is_that_of_the_trials_of_a_study(tmp_path, seed):
    study = Study(experiment="games", settings=[SETTING], n_rounds=9, n_trials=2, seed=seed)
    final = study.run(folder=tmp_path).final_regret
    contenders = {name: Played(SETTING, name) for name in SETTING.policies}
    found = play_regret(contenders, 9, 2, seed=seed, experiment="games")
    assert list(found) == ["eofd", "oful", "random"]
    for name, regrets in found.items():
        assert regrets == pytest.approx(final.loc[final["policy"] == name, "regret"].to_list())
        assert regrets[0] != regrets[1]


def test_a_sketch_with_room_for_all_rounds_has_the_regret_of_the_full_matrix():
    n_rounds, problem = 6, Synthetic(dimension=30, rewards=(0.5, 1.0), parameter_norm=2.0)
    roomy = SETTING.model_copy(update={"problem": problem, "sketch_size": 2 * n_rounds})
    small = roomy.model_copy(update={"sketch_size": 1})
    contenders = {"full": Played(roomy, "oful"), "room": Played(roomy, "eofd"), "none": Played(small, "eofd")}
    found = play_regret(contenders, n_rounds, 10, seed=3, experiment="room")
    assert found["room"] == found["full"] != found["none"]
