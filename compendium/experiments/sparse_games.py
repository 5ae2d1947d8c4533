"""A game played again with sparse actions: whether it is the same game, and what it saves.

A policy whose curvature has few directions plays sparse actions in a form of its own,
`mlogb_core.sparse.SparsePolicy`. Both forms meet the same action sets, once as dense rows and once as CSR
arrays, and the same uniform numbers for the outcomes, in interleaved blocks on one thread.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from compendium.experiments.setting import Setting
from mlogb_core.environments import ActionSet
from mlogb_core.link import expected_reward
from mlogb_core.policies import Policy
from mlogb_core.simulation import play_round, trial_streams
from mlogb_core.sparse import SparsePolicy

_BLOCK = 10  # rounds that one form plays before the other one plays them


def sparse_beside_dense(
    setting: Setting, policies: Sequence[str], n_rounds: int, *, seed: int, experiment: str
) -> dict[str, Any]:
    """Play trial 0 of a setting with dense rows and with sparse actions.

    Parameters
    ----------
    setting : Setting
        Its problem must have sparse actions, as `Rated` does.
    policies : sequence of str
        Names of policies whose curvature is a `LowRankCurvature`.
    n_rounds : int
        T >= 1.
    seed, experiment
        They determine the random streams: those of trial 0 of a `Study` of the same name and seed.

    Returns
    -------
    dict
        Plain values, which `measured` can keep. `rounds`; `bytes`, those of an action set in each form, the
        mean over the rounds; and `policies`, by name: `equal`, the number of rounds in which both forms
        played the same action; `regret`, the cumulative regret of each form; `milliseconds`, the mean time of
        a round in each form, rebuilds of the coordinates included; `coordinates`, the number of coordinates
        in which the sparse form plays, which is d where it plays the features themselves.

    Notes
    -----
    A round in which the thread had to wait counts with its processor time, as in `round_times`.
    """
    found = {}
    for name in policies:
        with threadpool_limits(limits=1):
            found[name], sizes = _compared(setting, name, n_rounds, seed, experiment)
    return {"rounds": n_rounds, "bytes": sizes, "policies": found}


def _compared(
    setting: Setting, name: str, n_rounds: int, seed: int, experiment: str
) -> tuple[dict[str, Any], dict[str, int]]:
    """What one policy's two games have in common, and the bytes of an action set."""
    environment, streams = setting.problem.environment(sparse=True), trial_streams(seed, experiment, 0)  # type: ignore[call-arg]
    sparse = SparsePolicy(lambda d: _built(setting, name, environment, streams), environment.n_features)
    forms = {"dense": _built(setting, name, environment, streams), "sparse": sparse}
    instance = environment.instance(streams.instance)
    actions: dict[str, list[int]] = {form: [] for form in forms}
    regret, seconds, sizes = (dict.fromkeys(forms, 0.0) for _ in range(3))
    for start in range(0, n_rounds, _BLOCK):
        drawn = [
            (instance.actions(streams.actions), float(streams.outcomes.random()))
            for _ in range(min(_BLOCK, n_rounds - start))
        ]
        for form in forms if start // _BLOCK % 2 else reversed(forms):
            for candidates, uniform in drawn:
                given = candidates if form == "sparse" else _with_dense_rows(candidates)
                action, busy = _play(forms[form], given, uniform)
                value = expected_reward(candidates.probabilities, environment.rewards)
                actions[form].append(action)
                regret[form] += float(value.max() - value[action])
                seconds[form] += busy
                sizes[form] += _bytes(given)
    game = {
        "equal": int(np.equal(actions["dense"], actions["sparse"]).sum()),
        "regret": regret,
        "milliseconds": {form: float(f"{1e3 * value / n_rounds:.4g}") for form, value in seconds.items()},
        "coordinates": sparse.features.size,
    }
    return game, {form: round(value / n_rounds) for form, value in sizes.items()}


def _built(setting: Setting, name: str, environment: Any, streams: Any) -> Any:
    return setting.policy(name, environment, streams.policy)


def _with_dense_rows(candidates: ActionSet) -> ActionSet:
    return candidates._replace(features=candidates.features.toarray())  # type: ignore[union-attr]


def _play(policy: Policy, candidates: ActionSet, uniform: float) -> tuple[int, float]:
    """The action of a round, and the seconds of its two calls."""
    start = time.thread_time()
    action, _, select_seconds, update_seconds = play_round(policy, candidates, uniform)
    return action, min(select_seconds + update_seconds, time.thread_time() - start)


def _bytes(candidates: ActionSet) -> int:
    """Bytes of the arrays of an action set's features."""
    features = candidates.features
    if isinstance(features, np.ndarray):
        return features.nbytes
    return int(sum(array.nbytes for array in (features.data, features.indices, features.indptr)))
