"""Tuning on one budget: who plays which point of the grid, and which point is kept."""

from __future__ import annotations

import pandas as pd
import pytest
from pydantic import ValidationError

from compendium.experiments.problems import Synthetic
from compendium.experiments.study import Study
from compendium.experiments.tuning import Group, Point, by_group, candidates, tuned

PROBLEM = Synthetic(dimension=6, rewards=(1.0,), parameter_norm=2.0)
GROUPS = [
    Group("alone", ("oful", "random")),
    Group("m = 2", ("eofd", "robust-eofd"), 2, {"eofd": {"buffer": 3}}),
]
POINTS = [Point(0.1, 1.0, 0.01), Point(1.0, 1.0, 0.01), Point(1.0, 0.5, 0.0)]


def grid():
    return candidates("small", PROBLEM, GROUPS, POINTS, norm_bound=2.0)


def regret_of(**best):
    """Regret of 9 everywhere, 1 at the point with the number that is given for a policy; two trials."""
    rows = [
        {"setting": one.setting.name, "policy": policy, "trial": trial,
         "regret": 1.0 + trial if POINTS.index(one.point) == best[policy.replace("-", "_")] else 9.0 + trial}
        for one in grid() for policy in one.group.policies for trial in range(2)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_every_group_plays_the_whole_grid_under_its_own_sizes():
    found = grid()
    assert [(one.group.label, one.point) for one in found] == [(g.label, p) for g in GROUPS for p in POINTS]
    one = found[4].setting
    assert one.name == "small, m = 2, λ = 1, η = 1, c = 0.01, tuning"
    assert (one.policies, one.sketch_size, one.norm_bound) == (("eofd", "robust-eofd"), 2, 2.0)
    assert (one.regularization, one.step_size, one.radius["scale"]) == POINTS[1]
    assert one.parameters == {"eofd": {"buffer": 3}}


def test_each_policy_keeps_the_point_of_its_own_least_mean():
    chosen = tuned(grid(), regret_of(oful=2, random=0, eofd=1, robust_eofd=2))
    assert {(one.point, one.setting.policies) for one in chosen} == {
        (POINTS[0], ("random",)), (POINTS[2], ("oful",)),
        (POINTS[1], ("eofd",)), (POINTS[2], ("robust-eofd",)),
    }  # fmt: skip
    (eofd,) = (one.setting for one in chosen if one.setting.policies == ("eofd",))
    assert (eofd.name, eofd.parameters) == ("small, m = 2, λ = 1, η = 1, c = 0.01", {"eofd": {"buffer": 3}})
    (robust,) = (one.setting for one in chosen if one.setting.policies == ("robust-eofd",))
    assert (robust.parameters, robust.step_size, robust.sketch_size) == ({}, 0.5, 2)


def test_policies_of_a_group_share_a_setting_only_where_they_chose_the_same_point():
    chosen = tuned(grid(), regret_of(oful=1, random=1, eofd=0, robust_eofd=0))
    assert [one.setting.policies for one in chosen] == [("oful", "random"), ("eofd", "robust-eofd")]


def test_a_tie_goes_to_the_first_point():
    flat = regret_of(oful=0, random=0, eofd=0, robust_eofd=0).assign(regret=1.0)
    assert {one.point for one in tuned(grid(), flat)} == {POINTS[0]}


def test_regret_is_read_by_group_and_point():
    table = by_group(regret_of(oful=2, random=0, eofd=1, robust_eofd=2), grid())
    assert list(table.columns) == ["group", "point", "policy", "trial", "regret"]
    best = table[table["regret"] < 5].groupby("policy")["point"].unique().map(list).to_dict()
    assert best == {"oful": [str(POINTS[2])], "random": [str(POINTS[0])], "eofd": [str(POINTS[1])],
                    "robust-eofd": [str(POINTS[2])]}  # fmt: skip
    assert set(table.loc[table["policy"] == "eofd", "group"]) == {"m = 2"}


def test_tuning_and_report_fit_into_one_run(tmp_path):
    """Settings of two studies need different names, and those of the report are valid as they are."""
    tried = grid()
    searched = Study(
        experiment="t", settings=[one.setting for one in tried], n_rounds=4, n_trials=1, seed=1
    ).run(folder=tmp_path)
    chosen = tuned(tried, searched.final_regret)
    reported = Study(
        experiment="r", settings=[one.setting for one in chosen], n_rounds=4, n_trials=2, seed=1
    ).run(folder=tmp_path)
    names = [one.setting.name for one in (*tried, *chosen)]
    assert len(set(names)) == len(names)
    table = by_group(reported.final_regret, chosen)
    assert table.groupby(["group", "policy"]).size().to_dict() == {
        (group.label, policy): 2 for group in GROUPS for policy in group.policies
    }
    assert reported.tables_only().frame is None
    pd.testing.assert_frame_equal(reported.tables_only().final_regret, reported.final_regret)


def test_a_group_is_checked_where_the_grid_is_made():
    with pytest.raises(ValidationError, match="policies must be distinct names"):
        candidates("small", PROBLEM, [Group("a", ("eofd", "ucb"))], POINTS, norm_bound=2.0)
