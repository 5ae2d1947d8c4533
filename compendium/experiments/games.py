"""Regret alone, for sizes at which the final state of a policy takes far longer than its game.

A trial of a `Study` ends with the summary of each policy, and with it the spectrum of its curvature: minutes
for a full matrix of order 10,000, whose rounds take a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Mapping

import joblib

from compendium.experiments.action_sets import trial_environment
from compendium.experiments.execution import in_workers
from compendium.experiments.timing import Played
from compendium.experiments.trials import one_blas_thread
from mlogb_core.simulation import run_trial, trial_streams


def play_regret(
    contenders: Mapping[str, Played], n_rounds: int, n_trials: int, *, seed: int, experiment: str
) -> dict[str, list[float]]:
    """Cumulative regret at the end, by contender, a list over trials.

    Parameters
    ----------
    contenders : mapping of str to Played
        Who plays, by any name, each game alone; all meet the same random numbers.
    n_rounds, n_trials : int
        T and the number of trials.
    seed, experiment
        Pick the random streams: those of a `Study` of the same name and seed.

    Returns
    -------
    dict
        Plain values, which `measured` can keep: a run is executed again without these games.
    """
    # The contenders of a trial follow each other, since a worker keeps the trial's action sets.
    games = [(name, trial) for trial in range(n_trials) for name in contenders]
    found = in_workers(
        joblib.delayed(_game)(contenders[name], n_rounds, seed, experiment, trial) for name, trial in games
    )
    regret: dict[str, list[float]] = {name: [] for name in contenders}
    for (name, _), value in zip(games, found, strict=True):
        regret[name].append(value)
    return regret


def _game(played: Played, n_rounds: int, seed: int, experiment: str, trial: int) -> float:
    """Regret of one policy in one trial, with one BLAS thread as in every trial."""
    streams = trial_streams(seed, experiment, trial)
    with one_blas_thread():
        environment = trial_environment(played.setting.problem, seed, experiment, trial)
        policy = played.setting.policy(played.policy, environment, streams.policy)
        trial_played = run_trial(environment, {played.policy: policy}, n_rounds, streams)
    return float(trial_played.regret.sum())
