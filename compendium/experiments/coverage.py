"""How often the confidence region contains the true parameter while a policy plays."""

from __future__ import annotations

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from compendium.experiments.problems import Synthetic
from compendium.experiments.setting import Setting
from mlogb_core.environments import SyntheticInstance
from mlogb_core.policies import OptimisticPolicy
from mlogb_core.simulation import Round, run_trial, trial_streams


def distances(setting: Setting, n_rounds: int, n_trials: int, *, seed: int, experiment: str) -> pd.DataFrame:
    r"""Play trials and divide the distance between truth and estimate by the radius in every round.

    Parameters
    ----------
    setting : Setting
        A synthetic problem, whose true parameter is known, and the parameters; EOFD-MLogB plays.
    n_rounds, n_trials : int
        T and the number of trials.
    seed, experiment
        They choose the random streams.

    Returns
    -------
    DataFrame
        One row per trial: `largest`, the maximum over t <= T of
        :math:`\|W_t - W_\star\|_{Z_t}^2/\beta_t` (infinite for a radius of 0); `last`, its value
        at the end; `regret`. The truth was covered in all rounds where `largest` is at most 1.

    Raises
    ------
    ValueError
        If the problem is not synthetic.
    """
    true_parameter(setting, seed, experiment, 0)  # raises the error before anything is played
    with threadpool_limits(limits=1):
        return pd.DataFrame([_row(setting, n_rounds, seed, experiment, trial) for trial in range(n_trials)])


def true_parameter(setting: Setting, seed: int, experiment: str, trial: int) -> np.ndarray:
    """Return the true parameter of a trial; raise a ValueError if the problem of the setting has none."""
    if not isinstance(setting.problem, Synthetic):
        raise ValueError(
            f"the true parameter must be known, so the problem synthetic, got {setting.problem!r} in "
            f"{setting.name!r}"
        )
    # A second copy of the instance's stream gives the same instance as `run_trial` draws.
    instance = setting.problem.environment().instance(trial_streams(seed, experiment, trial).instance)
    assert isinstance(instance, SyntheticInstance)
    return instance.parameter


def _row(setting: Setting, n_rounds: int, seed: int, experiment: str, trial: int) -> dict[str, float]:
    """Play one trial and return its row of the table."""
    environment = setting.problem.environment()
    streams = trial_streams(seed, experiment, trial)
    policy = setting.policy("eofd", environment, streams.policy)
    assert isinstance(policy, OptimisticPolicy)
    truth = true_parameter(setting, seed, experiment, trial)
    ratios = [_ratio(policy, truth)]

    def observe(_: Round) -> None:
        ratios.append(_ratio(policy, truth))

    played = run_trial(environment, {"eofd": policy}, n_rounds, streams, observe)
    regret = float(np.cumsum(played.regret)[-1])
    return {"trial": trial, "largest": max(ratios), "last": ratios[-1], "regret": regret}


def _ratio(policy: OptimisticPolicy, truth: np.ndarray) -> float:
    error = (policy.parameter - truth).reshape(-1)
    squared = float(error @ policy.curvature.dense() @ error)
    return squared / policy.beta if policy.beta > 0.0 else np.inf
