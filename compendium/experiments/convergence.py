"""How far the parameter of a policy moves from round to round, and how far from the truth it ends."""

from __future__ import annotations

from collections.abc import Sequence

import joblib
import numpy as np
import pandas as pd

from compendium.experiments.action_sets import trial_environment
from compendium.experiments.execution import in_workers
from compendium.experiments.region import true_parameter
from compendium.experiments.setting import Setting
from compendium.experiments.trials import one_blas_thread
from mlogb_core.policies import NewtonPolicy
from mlogb_core.simulation import Round, run_trial, trial_streams


def movements(
    settings: Sequence[Setting], n_rounds: int, n_trials: int, *, seed: int, experiment: str
) -> pd.DataFrame:
    r"""Play the policies of the settings and follow their parameters.

    Parameters
    ----------
    settings : sequence of Setting
        Synthetic problems, whose true parameter :math:`W_\star` is known, with policies that take Newton
        steps.
    n_rounds, n_trials : int
        T and the number of trials.
    seed, experiment
        They choose the random streams, which are those of a `Study` of the same name and seed.

    Returns
    -------
    DataFrame
        One row per setting, policy and trial: `first_steps` and `last_steps`, the means of
        :math:`\|W_{t+1} - W_t\|` over the first and the last tenth of the rounds; `error`, the distance
        :math:`\|W_{T+1} - W_\star\|` at the end; `norm`, the norm :math:`\|W_{T+1}\|`; and `regret`.

    Raises
    ------
    ValueError
        If a problem is not synthetic.
    """
    for setting in settings:
        true_parameter(setting, seed, experiment, 0)  # raises the error before anything is played
    # The settings of a trial follow each other, since a worker keeps the trial's action sets.
    trials = [(setting, trial) for trial in range(n_trials) for setting in settings]
    played = in_workers(
        joblib.delayed(_rows)(setting, n_rounds, seed, experiment, trial) for setting, trial in trials
    )
    by_setting = [rows for place in range(len(settings)) for rows in played[place :: len(settings)]]
    return pd.DataFrame([row for rows in by_setting for row in rows])


def _rows(
    setting: Setting, n_rounds: int, seed: int, experiment: str, trial: int
) -> list[dict[str, str | int | float]]:
    """Play one trial and return its rows of the table, one for each policy."""
    environment = trial_environment(setting.problem, seed, experiment, trial)
    streams = trial_streams(seed, experiment, trial)
    policies = setting.build(environment, streams.policy)
    watched = {name: policy for name, policy in policies.items() if isinstance(policy, NewtonPolicy)}
    truth = true_parameter(setting, seed, experiment, trial)
    before = {name: np.zeros_like(policy.parameter) for name, policy in watched.items()}
    steps: dict[str, list[float]] = {name: [] for name in watched}

    def observe(_: Round) -> None:
        for name, policy in watched.items():
            steps[name].append(float(np.linalg.norm(policy.parameter - before[name])))
            before[name] = policy.parameter.copy()

    with one_blas_thread():
        played = run_trial(environment, policies, n_rounds, streams, observe)
    tenth = max(n_rounds // 10, 1)
    return [
        {
            "setting": setting.name,
            "policy": name,
            "trial": trial,
            "first_steps": float(np.mean(steps[name][:tenth])),
            "last_steps": float(np.mean(steps[name][-tenth:])),
            "error": float(np.linalg.norm(policy.parameter - truth)),
            "norm": float(np.linalg.norm(policy.parameter)),
            "regret": float(played.regret[:, played.policies.index(name)].sum()),
        }
        for name, policy in watched.items()
    ]
