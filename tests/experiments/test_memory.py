"""The memory that a policy holds, compared with the paper's count and with what Python allocates."""

from __future__ import annotations

import tracemalloc

import pytest

from compendium.experiments.memory import curvature_bytes, held_after, held_bytes
from compendium.experiments.problems import Synthetic
from compendium.experiments.setting import Setting
from mlogb_core.simulation import run_trial, trial_streams


def setting(dimension, sketch_size, rewards=(1.0,)):
    return Setting(
        name="a", problem=Synthetic(dimension=dimension, rewards=rewards, parameter_norm=1.0),
        sketch_size=sketch_size, regularization=1.0, step_size=1.0, norm_bound=1.0,
        radius={"kind": "ridge", "scale": 0.1},
    )  # fmt: skip


@pytest.mark.parametrize(("K", "d", "m"), [(1, 200, 1), (1, 200, 50), (4, 100, 40), (1, 60, 60), (2, 20, 45)])
def test_the_sketch_holds_the_papers_count_and_two_small_matrices(K, d, m):
    kept = min(m, K * d)
    rows = min(kept + K, K * d)
    held = held_bytes(setting(d, m, rewards=(1.0,) * K))
    assert 8 * (K * d * rows + kept**2) <= held <= 8 * (K * d * rows + 3 * (kept + K) ** 2)


def test_a_buffer_needs_more_rows_and_other_sketched_policies_as_many():
    one = setting(200, 50)
    buffered = one.model_copy(update={"parameters": {"eofd": {"buffer": 21}}})
    assert held_bytes(buffered) - held_bytes(one) >= 8 * 200 * 20
    assert held_bytes(one) == held_bytes(one, "robust-eofd") == held_bytes(one, "thompson")


def test_the_full_matrix_is_held_once():
    assert 8 * 150**2 <= held_bytes(setting(150, 5), "oful") <= 1.05 * 8 * 150**2 + 8 * 150 * 10


@pytest.mark.parametrize("policy", ["eofd", "oful"])
def test_python_allocates_at_least_what_is_counted(policy):
    one = setting(400, 100)
    held_bytes(one, policy)
    tracemalloc.start()
    try:
        held = held_bytes(one, policy)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert held <= peak


@pytest.mark.parametrize("policy", ["budgeted-eofd", "doubling-eofd", "dyadic-eofd"])
def test_what_grows_is_counted_in_a_game(policy):
    one = setting(40, 2)
    with pytest.raises(ValueError, match=f"does not depend on the stream, got '{policy}': its rank grows"):
        held_bytes(one, policy)
    environment, streams = one.problem.environment(), trial_streams(0, "memory", 0)
    built, held = one.policy(policy, environment, streams.policy), []
    for _ in range(3):
        run_trial(environment, {policy: built}, 12, streams)
        held.append(curvature_bytes(built.curvature))
        rows = min(built.curvature.rank_bound + 1, 40)
        assert 8 * 40 * rows <= held[-1] <= 8 * (40 * rows + 6 * rows**2)
    assert held[0] < held[-1]


def test_other_policies_are_refused():
    with pytest.raises(
        ValueError, match="policy must be one with a curvature, such as 'eofd' or 'oful', got 'random'"
    ):
        held_bytes(setting(10, 2), "random")


def test_after_a_game_a_sketch_that_is_full_holds_what_is_counted_beforehand():
    one = setting(30, 4, rewards=(0.5, 1.0))
    assert held_after(one, "eofd", 12, seed=1, experiment="memory") == (held_bytes(one), 4)
    assert held_after(one, "eofd", 1, seed=1, experiment="memory")[1] == 2
    assert held_after(one, "oful", 3, seed=1, experiment="memory") == (held_bytes(one, "oful"), 0)
    with pytest.raises(ValueError, match="policy must be one with a curvature"):
        held_after(one, "random", 3, seed=1, experiment="memory")
