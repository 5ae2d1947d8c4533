"""Who plays the tournament at which points, and what becomes of a policy that raises an error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from compendium.experiments import policies
from compendium.experiments.failures import Guarded
from compendium.experiments.memory import array_bytes
from compendium.experiments.policies import POLICIES
from compendium.experiments.problems import Fixed, PooledClasses, Synthetic
from compendium.experiments.setting import Setting
from compendium.experiments.study import Study
from compendium.experiments.timing import Played, round_times
from compendium.experiments.tournament import (
    ENTRANTS,
    PROBLEMS,
    Entrant,
    Tournament,
    charged,
    problem_of,
    with_steps,
)
from compendium.experiments.trials import TrialSpec
from compendium.experiments.tuning import by_group, tuned
from mlogb_core.policies import RandomPolicy
from mlogb_core.radius import radius_from
from mlogb_core.simulation import trial_streams

GAMES = Tournament("binary", problem_of("binary", 6, 2.0), 10, 2.0, 2, 100)
ENTRANT = {entrant.policy: entrant for entrant in ENTRANTS}


class Breaking(RandomPolicy):
    """Random play that raises in its third round of a game with four actions or more in the first."""

    rounds, first = 0, 0

    def select(self, actions):
        self.rounds += 1
        self.first = self.first or len(actions)
        if self.rounds == 3 and self.first % 2:
            raise ZeroDivisionError("by\nzero")
        return super().select(actions)


@pytest.fixture
def breaking(monkeypatch):
    """A policy of the registry that fails in games whose first round has an odd number of actions."""
    entry = replace(POLICIES["random"], constructor=lambda d, r, *, rng: Breaking(rng))
    monkeypatch.setitem(policies.POLICIES, "breaking", entry)
    return GAMES.setting(Entrant("breaking", "peer", with_steps), with_steps()[0], "")


def test_everybody_with_parameters_has_as_many_points_and_one_grid_of_scales():
    for entrant in ENTRANTS:
        points = entrant.grid()
        assert len(set(map(str, points))) == len(points) == (1 if entrant.policy == "random" else 9)
        assert (
            len(GAMES.candidates(entrant, 4)) == min(4, len(points)) if entrant.policy in POLICIES else True
        )
    ridged = [
        e
        for e in ENTRANTS
        if e.grid()[0].regularization is not None and "exploration" not in dict(e.grid()[0].own)
    ]
    assert {tuple(sorted({p.regularization for p in e.grid()})) for e in ridged} == {(0.1, 1.0, 10.0)}
    scales = {p.scale for e in ridged for p in e.grid()} - {None}
    assert scales == {0.1, 0.01, 0.001}


def test_at_every_tuned_point_all_optimistic_policies_have_one_family_of_widths():
    """sqrt(beta) = scale * sqrt(lambda) * S, with the policy's own lambda and the scale of the point."""
    games, stream = GAMES._replace(problem=problem_of("fixed", 6, 2.0)), trial_streams(0, "t", 0).policy
    optimistic = [one for one in ENTRANTS if "radius" in POLICIES[one.policy].takes]
    assert [one.policy for one in optimistic if one.family == "paper"] == [
        "mnl-ucb", "mnl-ucb-2", "rs-mnl", "ol2m", "ecolog", "glb-omd", "ofuglb", "boudart", "soful", "cbscfd",
    ]  # fmt: skip
    for entrant in optimistic:
        for option in entrant.grid():
            setting = games.setting(entrant, option, "")
            policy = setting.policy(entrant.policy, games.problem.environment(), stream).policy
            assert policy.progress.regularization == option.regularization
            assert policy.radius.value(policy.progress) == pytest.approx(
                (option.scale * games.norm_bound) ** 2 * option.regularization
            )


def test_the_width_of_a_projects_policy_is_a_multiple_of_the_ball():
    option = with_steps()[1]
    setting = GAMES.setting(ENTRANT["eofd-compiled"], option, "")
    assert setting.radius == {"kind": "ridge", "scale": pytest.approx(option.scale**2)}
    assert (setting.regularization, setting.step_size, setting.guarded) == (option.regularization, 1.0, True)
    theory = GAMES.theory(ENTRANT["eofd-compiled"])
    assert radius_from(theory.radius).scale == 1.0
    assert theory.radius["kind"] == "log-det"
    assert GAMES.theory(ENTRANT["greedy"]) is GAMES.theory(ENTRANT["random"]) is None


def test_a_policy_of_another_paper_has_its_own_ridge_and_untuned_its_own_theory():
    setting = GAMES.setting(ENTRANT["ol2m"], ENTRANT["ol2m"].grid()[0], "")
    assert setting.parameters["ol2m"] == {"regularization": 0.1}
    assert setting.radius == {"kind": "ridge", "scale": pytest.approx(0.01)}
    theory = GAMES.theory(ENTRANT["ol2m"])
    assert (theory.radius, theory.parameters) == (None, {})  # the defaults are the theory's
    assert GAMES.theory(ENTRANT["rs-mnl"]).parameters == {"rs-mnl": {"horizon": 10}}


def test_a_policy_that_draws_its_actions_has_the_scale_of_its_exploration():
    setting = GAMES.setting(ENTRANT["squarecb"], ENTRANT["squarecb"].grid()[1], "")
    assert setting.parameters["squarecb"] == {"scale": 0.01}
    assert GAMES.theory(ENTRANT["squarecb"]).parameters == {}


def test_who_does_not_play_is_told_why():
    multinomial = GAMES._replace(
        name="multinomial", problem=problem_of("multinomial", 40, 2.0), largest_dense=30
    )
    assert multinomial.absent(ENTRANT["ol2m"]) == "for K = 1 only"
    assert multinomial.absent(ENTRANT["boudart"]) == "for one action set in all rounds only"
    assert multinomial.absent(ENTRANT["mnl-ucb"]) == "Kd = 40: a game takes too long"
    assert multinomial.absent(ENTRANT["eofd-compiled"]) is None
    assert "not in the registry" in GAMES.absent(Entrant("nobody", "peer", with_steps))


def test_every_problem_is_made_and_no_other_one():
    assert [problem_of(name, 40, 2.0).n_outcomes for name in PROBLEMS] == [4, 1, 4, 1, 9, 4, 1]
    with pytest.raises(ValueError, match=r"problem must be one of .*, got 'chess'"):
        problem_of("chess", 4, 1.0)


def test_one_action_set_serves_all_rounds_of_a_game_and_each_game_has_its_own():
    environment = Fixed(dimension=3, rewards=(1.0,), parameter_norm=2.0, n_actions=5).environment()
    rng = np.random.default_rng(0)
    one, other = environment.instance(rng), environment.instance(rng)
    first = one.actions(rng)
    assert first.features.shape == (5, 3)
    np.testing.assert_array_equal(first.features, one.actions(rng).features)
    assert not np.array_equal(first.features, other.actions(rng).features)


def test_pooled_images_are_the_means_of_their_blocks():
    problem = PooledClasses(source="mnist", block=7)
    pixels = problem.environment()._raw
    images = np.asarray(problem.data_source.data.features, dtype=float).reshape(-1, 28, 28)
    assert problem.n_features == pixels.shape[1] + 1 == 17
    np.testing.assert_allclose(pixels[3].reshape(4, 4)[1, 2], images[3, 7:14, 14:21].mean())


def test_a_policy_that_raises_has_failed_in_that_game_alone(breaking, tmp_path):
    study = Study(experiment="t", settings=[breaking], n_rounds=8, n_trials=6, seed=1)
    results = study.run(folder=tmp_path)
    first = results.frame[results.frame["round"] == 1]
    odd = set(first.loc[first["n_actions"] % 2 == 1, "trial"])
    assert 0 < len(odd) < 6
    assert set(results.failures["trial"]) == odd
    assert set(results.failures["failure"]) == {"round 3: ZeroDivisionError: by zero"}
    told = charged(results.final_regret, results.failures, np.nan)
    assert set(told.loc[told["regret"].isna(), "trial"]) == odd
    again = study.run(folder=tmp_path)  # a game that failed is stored like any other
    pd.testing.assert_frame_equal(again.failures, results.failures)


def test_an_unguarded_error_ends_the_trial_as_ever(breaking):
    unguarded = breaking.model_copy(update={"guarded": False})
    specs = [
        TrialSpec(experiment="t", setting=unguarded, n_rounds=8, seed=1, trial=trial) for trial in range(6)
    ]
    with pytest.raises(ZeroDivisionError):
        [spec.compute() for spec in specs]


def test_after_its_failure_a_policy_plays_the_first_action_and_learns_nothing():
    class Policy:
        margin, learned = 0.5, 0

        def select(self, actions):
            return len(actions)

        def update(self, action, outcome):
            self.learned += 1

    inner = Policy()
    guarded = Guarded(inner)
    assert guarded.margin == 0.5
    assert [guarded.select(np.eye(3)) for _ in range(2)] == [0, 0]
    guarded.update(np.ones(3), 1)
    assert (guarded.failure, inner.learned) == ("round 1: ValueError: selected action 3 of 3", 0)
    assert guarded.margin == np.inf


def test_a_point_whose_games_fail_is_not_chosen(breaking):
    tried = GAMES.candidates(ENTRANT["eofd-compiled"], 2)
    regret = pd.DataFrame(
        [{"setting": one.setting.name, "policy": "eofd-compiled", "trial": t, "regret": 1.0 + place}
         for place, one in enumerate(tried) for t in range(2)]
    )  # fmt: skip
    failures = pd.DataFrame([{"setting": tried[0].setting.name, "trial": 1}])
    assert tuned(tried, charged(regret, failures.iloc[:0], np.inf))[0].point == tried[0].point
    (chosen,) = tuned(tried, charged(regret, failures, np.inf))
    assert chosen.point == tried[1].point
    assert set(by_group(regret, tried)["group"]) == {"eofd-compiled"}


def test_times_of_a_guarded_policy_are_its_own_and_name_its_failure(breaking):
    eofd = GAMES.setting(ENTRANT["eofd-compiled"], with_steps()[0], "")
    for seed in range(6):
        found = round_times(
            {"a": Played(eofd, "eofd-compiled"), "b": Played(breaking, "breaking")}, 10, warmup=5, seed=seed,
            experiment="t",
        )  # fmt: skip
        assert found["a"]["rank"] == 2
        assert found["a"]["held"] >= found["a"]["bytes"] > 0
        if "failure" in found["b"]:
            break
    assert found["b"]["failure"].startswith("round 3: ZeroDivisionError")


def test_arrays_are_counted_once_wherever_they_are_held():
    class Part:
        __slots__ = ("array",)

    part, array = Part(), np.zeros(10)
    part.array = array[2:]
    holder = type("Holder", (), {})()
    holder.lists, holder.table, holder.part, holder.me = [array, np.ones(3)], {"x": array}, part, holder
    assert array_bytes(holder) == 80 + 24


def test_a_setting_is_described_without_its_guard_where_it_has_none():
    given = {
        "name": "a", "problem": Synthetic(dimension=3, rewards=(1.0,), parameter_norm=1.0), "sketch_size": 1,
        "regularization": 1.0, "step_size": 1.0, "norm_bound": 1.0, "radius": {"kind": "ridge", "scale": 0.1},
    }  # fmt: skip
    assert "guarded" not in Setting(**given).model_dump()
    assert Setting.model_validate(Setting(**given, guarded=True).model_dump()).guarded
