"""Times of a round: who plays how many rounds in which order, and what is counted as time."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from compendium.experiments import timing as module
from compendium.experiments.memory import curvature_bytes
from compendium.experiments.problems import Synthetic
from compendium.experiments.setting import Setting
from compendium.experiments.timing import Played, round_times
from mlogb_core.simulation import run_trial, trial_streams

SETTING = Setting(
    name="small", problem=Synthetic(dimension=30, rewards=(0.5, 1.0), parameter_norm=2.0), sketch_size=4,
    regularization=0.5, step_size=1.0, norm_bound=2.0, radius={"kind": "ridge", "scale": 0.05},
)  # fmt: skip
CONTENDERS = {"sketch": Played(SETTING, "eofd"), "full": Played(SETTING, "oful")}


def test_quartiles_are_of_whole_rounds_and_only_the_timed_ones_count(monkeypatch):
    """The n-th timed round takes n ticks; select and update take one tick of a clock each, drawing none."""
    clock = iter(range(10**6))
    monkeypatch.setattr("mlogb_core.simulation.time.perf_counter", lambda: next(clock))
    found = round_times(CONTENDERS, 20, warmup=3, seed=1, experiment="times")
    assert [one["median"] for one in found.values()] == [2000.0, 2000.0]
    assert list(found) == ["sketch", "full"]
    assert found["sketch"]["q25"] <= found["sketch"]["median"] <= found["sketch"]["q75"]


def test_a_round_in_which_the_thread_waits_counts_in_the_mean_with_its_processor_time(monkeypatch):
    """Ten rounds of a millisecond, two of processor time each, and in the last one a second of waiting."""
    monkeypatch.setattr(module, "_LEAD_IN", 0)
    seconds, clock = iter([1e-3] * 9 + [1.0]), iter(range(0, 100, 2))
    monkeypatch.setattr(module, "_play", lambda *_: next(seconds))
    monkeypatch.setattr(module.time, "thread_time", lambda: 1e-3 * next(clock))
    found = round_times({"a": Played(SETTING, "random")}, 10, warmup=0, seed=1, experiment="times")["a"]
    assert (found["median"], found["mean"]) == (1.0, pytest.approx(1.1))


def test_all_play_the_same_rounds_in_rotating_blocks(monkeypatch):
    calls = []
    play = module._play
    monkeypatch.setattr(
        module, "_play", lambda policy, candidates, uniform: (
            calls.append((id(policy), uniform, gc.isenabled())), play(policy, candidates, uniform))[1],
    )  # fmt: skip
    round_times(CONTENDERS, 20, warmup=3, seed=1, experiment="times")
    assert len(calls) == 2 * (3 + 2 * 12)
    blocks = [{who for who, _, _ in calls[start : start + 12]} for start in range(6, 54, 12)]
    assert all(len(block) == 1 for block in blocks)
    order = [block.pop() for block in blocks]
    assert order == [order[0], order[1], order[1], order[0]]
    heard = {who: [uniform for one, uniform, _ in calls if one == who] for who in order}
    assert len({tuple(numbers) for numbers in heard.values()}) == 1
    assert [enabled for _, _, enabled in calls] == [True] * 6 + [False] * 48
    assert gc.isenabled()


def test_what_is_held_is_that_of_the_policy_in_the_end():
    found = round_times(CONTENDERS, 10, warmup=5, seed=1, experiment="times")
    environment, streams = SETTING.problem.environment(), trial_streams(1, "times", 0)
    policies = SETTING.model_copy(update={"policies": ("eofd", "oful")}).build(environment, streams.policy)
    run_trial(environment, policies, 17, streams)
    assert [one["bytes"] for one in found.values()] == [
        curvature_bytes(p.curvature) for p in policies.values()
    ]
    assert [one["rank"] for one in found.values()] == [4, 0]
    random = round_times({"a": Played(SETTING, "random")}, 10, warmup=0, seed=1, experiment="times")["a"]
    assert (random["bytes"], random["rank"]) == (0, 0)
    assert np.isfinite(random["median"])


@pytest.mark.parametrize(
    ("contenders", "n_rounds", "message"),
    [
        ({}, 10, "contenders must have one problem, got 0"),
        (CONTENDERS, 15, "n_rounds must be a positive multiple of 10, got 15"),
        (CONTENDERS, 0, "n_rounds must be a positive multiple of 10, got 0"),
    ],
)
def test_what_cannot_be_timed_is_refused(contenders, n_rounds, message):
    with pytest.raises(ValueError, match=message):
        round_times(contenders, n_rounds, warmup=0, seed=1, experiment="times")


def test_two_problems_are_refused():
    other = SETTING.model_copy(update={"problem": Synthetic(dimension=5, rewards=(1.0,), parameter_norm=2.0)})
    with pytest.raises(ValueError, match="one problem, got 2"):
        round_times(CONTENDERS | {"x": Played(other, "eofd")}, 10, warmup=0, seed=1, experiment="times")
