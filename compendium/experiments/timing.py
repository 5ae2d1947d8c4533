"""Times of a round of several policies, each with its own setting, interleaved on one thread.

The policies play in blocks of rounds, as each would alone: the first rounds of a block bring its data into
the cache and are not timed. The order rotates from block to block, so that a slow spell of the machine meets
all of them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from compendium.experiments.failures import failure_of, unguarded
from compendium.experiments.memory import array_bytes, curvature_bytes
from compendium.experiments.setting import Setting
from mlogb_core.environments import ActionSet, Instance
from mlogb_core.policies import NewtonPolicy, Policy
from mlogb_core.simulation import Streams, play_round, trial_streams

Item = TypeVar("Item")
_LEAD_IN, _BLOCK = 2, 10  # rounds of a block before its timed ones, and timed ones


class Played(NamedTuple):
    """Who is timed: a setting, and the name of one policy."""

    setting: Setting
    policy: str


def round_times(
    contenders: Mapping[str, Played], n_rounds: int, *, warmup: int, seed: int, experiment: str
) -> dict[str, dict[str, Any]]:
    """Wall time of a whole round, and what is held from one to the next.

    Parameters
    ----------
    contenders : mapping of str to Played
        Who is timed, by any name. All have the same problem, and meet the same action sets and uniform
        numbers for the outcomes.
    n_rounds : int
        Rounds that are timed, a multiple of 10.
    warmup : int
        Rounds before, until sketches are full.
    seed, experiment
        Pick the random streams of trial 0.

    Returns
    -------
    dict
        By the name of each contender: the quartiles `q25`, `median` and `q75` and the `mean` of the time of a
        round in milliseconds, to four digits; in the mean a round in which the thread had to wait counts with
        its processor time, since a few such rounds would decide it; `bytes`, those of the arrays of its
        curvature in the end; `rank`, the number of directions that it then has, 0 where it has none; `held`,
        the bytes of all arrays that it then holds. One of a guarded setting that failed has its `failure`.

    Raises
    ------
    ValueError
        If the problems differ, or `n_rounds` is not a positive multiple of 10.
    """
    problems = {played.setting.problem for played in contenders.values()}
    if len(problems) != 1:
        raise ValueError(f"contenders must have one problem, got {len(problems)}")
    if n_rounds < 1 or n_rounds % _BLOCK:
        raise ValueError(f"n_rounds must be a positive multiple of {_BLOCK}, got {n_rounds}")
    (problem,) = problems
    with threadpool_limits(limits=1):
        environment, streams = problem.environment(), trial_streams(seed, experiment, 0)
        policies = {
            name: played.setting.policy(played.policy, environment, streams.policy)
            for name, played in contenders.items()
        }
        draws = Draws(environment.instance(streams.instance), streams)
        times: dict[str, list[float]] = {name: [] for name in policies}
        busy: dict[str, list[float]] = {name: [] for name in policies}
        for _ in range(warmup):
            (drawn,) = draws.take(1)
            for policy in policies.values():
                _play(policy, *drawn)
        for block in range(n_rounds // _BLOCK):
            lead_in, rounds = draws.take(_LEAD_IN), draws.take(_BLOCK)
            for name in rotated(list(policies), block):
                with no_collection():
                    for drawn in lead_in:
                        _play(policies[name], *drawn)
                    for drawn in rounds:
                        start = time.thread_time()
                        times[name].append(_play(policies[name], *drawn))
                        busy[name].append(min(times[name][-1], time.thread_time() - start))
    return {
        name: quartiles(times[name]) | {"mean": digits(float(np.mean(busy[name])) * 1e3)} | _held(policy)
        for name, policy in policies.items()
    }


class Draws:
    """The rounds of a game, some at a time."""

    def __init__(self, instance: Instance, streams: Streams) -> None:
        self._instance, self._streams = instance, streams

    def take(self, count: int) -> list[tuple[ActionSet, float]]:
        """The next action sets and uniform numbers."""
        return [
            (self._instance.actions(self._streams.actions), float(self._streams.outcomes.random()))
            for _ in range(count)
        ]


def _play(policy: Policy, candidates: ActionSet, uniform: float) -> float:
    """Seconds that a round takes, without the draw of the outcome."""
    *_, select_seconds, update_seconds = play_round(policy, candidates, uniform)
    return select_seconds + update_seconds


def rotated(items: Sequence[Item], block: int) -> list[Item]:
    """The order of some policies in a block: the first of one block is the last of the next.

    Examples
    --------
    >>> rotated("abc", 1)
    ['b', 'c', 'a']
    """
    start = block % len(items)
    return [*items[start:], *items[:start]]


def quartiles(seconds: Sequence[float]) -> dict[str, float]:
    """Lower quartile, median and upper quartile in milliseconds, to four digits.

    Examples
    --------
    >>> quartiles([0.001, 0.002, 0.003, 0.004, 0.005])
    {'q25': 2.0, 'median': 3.0, 'q75': 4.0}
    """
    values = 1e3 * np.quantile(seconds, (0.25, 0.5, 0.75))
    return dict(zip(("q25", "median", "q75"), map(digits, values), strict=True))


def digits(value: float) -> float:
    """The value to four significant digits, which is the accuracy of the measurements."""
    return float(f"{value:.4g}")


def _held(policy: Policy) -> dict[str, Any]:
    """Bytes and rank of a policy's curvature, the bytes of all that it holds, and its failure, if any."""
    failure, policy = failure_of(policy), unguarded(policy)
    held = {"bytes": 0, "rank": 0, "held": array_bytes(policy)} | ({"failure": failure} if failure else {})
    if not isinstance(policy, NewtonPolicy):
        return held
    curvature: Any = policy.curvature
    return held | {"bytes": curvature_bytes(curvature), "rank": int(getattr(curvature, "rank", 0))}


@contextmanager
def no_collection() -> Iterator[None]:
    """Switch the garbage collector off inside a block."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
