"""The action sets that a process keeps of the last trial."""

from __future__ import annotations

import numpy as np
import pytest

from compendium.experiments import action_sets
from compendium.experiments.action_sets import trial_environment
from compendium.experiments.problems import Fixed, Synthetic
from mlogb_core.policies import RandomPolicy
from mlogb_core.simulation import run_trial, trial_streams

PROBLEM = Synthetic(dimension=5, rewards=(0.5, 1.0), parameter_norm=2.0)
OTHER = (3, "here", 0)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(action_sets, "_last", None)


def played(environment, n_rounds, stream=OTHER):
    """A game of random play, and the features that it met."""
    seen = []
    streams = trial_streams(*stream)
    policies = {"random": RandomPolicy(streams.policy("random"))}
    trial = run_trial(
        environment, policies, n_rounds, streams, lambda one: seen.append(one.candidates.features)
    )
    return trial.regret, seen


@pytest.mark.parametrize("limit", [0, 2_000, 2**27])
def test_games_on_kept_sets_are_those_on_sets_that_are_drawn(limit, monkeypatch):
    """Shorter and longer games follow each other, whatever part of the sets fits."""
    monkeypatch.setattr(action_sets, "LIMIT", limit)
    expected, features = played(PROBLEM.environment(), 30)
    for n_rounds in (10, 30, 20, 30):
        regret, seen = played(trial_environment(PROBLEM, *OTHER), n_rounds)
        np.testing.assert_array_equal(regret, expected[:n_rounds])
        assert all(np.array_equal(one, other) for one, other in zip(seen, features, strict=False))


def test_the_next_game_of_a_trial_meets_the_very_arrays():
    _, first = played(trial_environment(PROBLEM, *OTHER), 5)
    _, second = played(trial_environment(PROBLEM, *OTHER), 5)
    assert all(one is other for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("problem", "stream"),
    [
        (PROBLEM, (4, "here", 0)),
        (PROBLEM, (3, "there", 0)),
        (PROBLEM, (3, "here", 1)),
        (PROBLEM.model_copy(update={"parameter_norm": 3.0}), OTHER),
        (Fixed(dimension=5, rewards=(1.0,), parameter_norm=1.0), OTHER),
    ],
)
def test_another_trial_has_its_own_sets(problem, stream):
    played(trial_environment(PROBLEM, *OTHER), 5)
    expected, _ = played(problem.environment(), 5, stream)
    regret, _ = played(trial_environment(problem, *stream), 5, stream)
    np.testing.assert_array_equal(regret, expected)
