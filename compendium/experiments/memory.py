"""Memory that a policy holds from round to round: the arrays of its curvature, counted while it plays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from compendium.experiments.setting import Setting
from mlogb_core.curvature import Curvature, FrequentDirections
from mlogb_core.environments import SyntheticEnvironment
from mlogb_core.policies import NewtonPolicy
from mlogb_core.simulation import run_trial, trial_streams


def held_bytes(setting: Setting, policy: str = "eofd") -> int:
    """Bytes of the arrays of a policy's curvature after a round with a full sketch.

    The sketch need not be filled by playing m rounds: its size depends on its rank alone, so the
    policy is given a state of full rank and plays one round from it. Memory that a round uses and
    releases again is not counted; `benchmarks/` measures the peak.

    Parameters
    ----------
    setting : Setting
        The problem and the sketch size m.
    policy : str
        Name of a policy with a curvature, such as "eofd" or "oful".

    Returns
    -------
    int
        About 8 Kd(m+K) for the sketch (with its core, 8m^2 twice) and 8 (Kd)^2 for the full matrix.

    Raises
    ------
    ValueError
        If the policy has no curvature, or one whose rank depends on the stream: `curvature_bytes` counts that
        one in a game.
    """
    # The arrays have the same sizes for every problem of this K and d, so a synthetic one can stand for it.
    rewards = np.linspace(0.0, 1.0, setting.problem.n_outcomes + 1)[1:]
    environment = SyntheticEnvironment(setting.problem.n_features, rewards, parameter_norm=1.0)
    streams = trial_streams(0, "memory", 0)
    built = setting.policy(policy, environment, streams.policy)
    if not isinstance(built, NewtonPolicy):
        raise ValueError(f"policy must be one with a curvature, such as 'eofd' or 'oful', got {policy!r}")
    if built.curvature.grows:
        raise ValueError(
            f"policy must be one whose memory does not depend on the stream, got {policy!r}: its rank grows, "
            "and curvature_bytes counts what it holds during a game"
        )
    if isinstance(built.curvature, FrequentDirections):
        rank, size = built.curvature.rank_bound, built.parameter.size
        full: dict[str, Any] = {"curvature.basis": np.eye(rank, size), "curvature.core": np.eye(rank)}
        built = type(built).from_state(built.state_dict() | full | {"curvature.reserved": rank})
    run_trial(environment, {policy: built}, 1, streams)
    return curvature_bytes(built.curvature)


def held_after(
    setting: Setting, policy: str, n_rounds: int, *, seed: int, experiment: str
) -> tuple[int, int]:
    """Bytes of the arrays of a policy's curvature, and its rank, when a game has ended.

    For a curvature whose rank depends on the game, which `held_bytes` cannot know.

    Parameters
    ----------
    setting : Setting
        The problem and the parameters.
    policy : str
        Name of a policy with a curvature.
    n_rounds : int
        T.
    seed, experiment
        Pick the random streams of trial 0.

    Raises
    ------
    ValueError
        If the policy has no curvature.
    """
    environment, streams = setting.problem.environment(), trial_streams(seed, experiment, 0)
    built = setting.policy(policy, environment, streams.policy)
    if not isinstance(built, NewtonPolicy):
        raise ValueError(f"policy must be one with a curvature, such as 'eofd' or 'oful', got {policy!r}")
    with threadpool_limits(limits=1):
        run_trial(environment, {policy: built}, n_rounds, streams)
    return curvature_bytes(built.curvature), int(getattr(built.curvature, "rank", 0))


def curvature_bytes(curvature: Curvature[Any]) -> int:
    """Bytes of the arrays that a curvature holds now; for one whose rank grows, it grows as well.

    Parameters
    ----------
    curvature : Curvature
        That of a policy between two rounds.

    Returns
    -------
    int
        Of the arrays as they are allocated, with the rows that are not in use yet.
    """
    arrays = [value for value in vars(curvature).values() if isinstance(value, np.ndarray)]
    owners = {id(owner): owner for owner in map(_owner, arrays)}
    return sum(owner.nbytes for owner in owners.values())


def array_bytes(policy: Any) -> int:
    """Bytes of all arrays that a policy holds, in its attributes and in whatever these hold.

    Parameters
    ----------
    policy : object
        A policy between two rounds.

    Returns
    -------
    int
        Arrays that share their memory count once. What compiled code of other packages holds is not seen.
    """
    owners = {id(owner): owner for owner in map(_owner, _arrays(policy, set()))}
    return sum(owner.nbytes for owner in owners.values())


def _arrays(value: Any, seen: set[int]) -> Iterator[np.ndarray]:
    """The arrays that can be reached from a value, without those that belong to modules and classes."""
    if id(value) in seen or isinstance(value, (type, str, bytes, int, float, np.random.Generator)):
        return
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _arrays(part, seen)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for part in value:
            yield from _arrays(part, seen)
    elif type(value).__module__ not in ("builtins", "types", "functools"):
        slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
        held = [getattr(value, name, None) for name in slots if isinstance(name, str)]
        for part in (*getattr(value, "__dict__", {}).values(), *held):
            yield from _arrays(part, seen)


def _owner(array: np.ndarray) -> np.ndarray:
    """The array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
