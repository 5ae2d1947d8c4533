"""Whether the confidence region holds the truth while a policy plays."""

from __future__ import annotations

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from compendium.experiments.problems import Synthetic
from compendium.experiments.trials import Setting
from mlogb_core.environments import SyntheticInstance
from mlogb_core.policies import OptimisticPolicy
from mlogb_core.simulation import trial_streams


def distances(setting: Setting, n_rounds: int, n_trials: int, *, seed: int, experiment: str) -> pd.DataFrame:
    r"""Distance of the truth from the estimate, over the radius, in every game.

    Parameters
    ----------
    setting : Setting
        A synthetic problem, whose true parameter is known, and the parameters; EOFD-MLogB plays.
    n_rounds, n_trials : int
        T and the number of games.
    seed, experiment
        Pick the random streams.

    Returns
    -------
    DataFrame
        One row per trial: `largest`, the maximum over t <= T of
        :math:`\|W_t - W_\star\|_{Z_t}^2/\beta_t` (infinite for a radius of 0); `last`, its value
        at the end; `regret`. The truth was covered in all rounds where `largest` is at most 1.
    """
    if not isinstance(setting.problem, Synthetic):
        raise ValueError(
            f"the true parameter must be known, so the problem synthetic, got {setting.problem!r}"
        )
    rows = []
    with threadpool_limits(limits=1):
        for trial in range(n_trials):
            streams = trial_streams(seed, experiment, trial)
            environment = setting.problem.environment()
            eofd = setting.model_copy(update={"policies": ("eofd",)})
            policy = eofd.build(environment, streams.policy)["eofd"]
            instance = environment.instance(streams.instance)
            assert isinstance(policy, OptimisticPolicy)
            assert isinstance(instance, SyntheticInstance)
            ratios, regret = [], 0.0
            for _ in range(n_rounds):
                ratios.append(_ratio(policy, instance.parameter))
                candidates = instance.actions(streams.actions)
                values = candidates.probabilities[:, 1:] @ environment.rewards
                chosen = policy.select(candidates.features)
                regret += float(values.max() - values[chosen])
                outcome = candidates.outcome(chosen, float(streams.outcomes.random()))
                policy.update(candidates.features[chosen], outcome)
            ratios.append(_ratio(policy, instance.parameter))
            rows.append({"trial": trial, "largest": max(ratios), "last": ratios[-1], "regret": regret})
    return pd.DataFrame(rows)


def _ratio(policy: OptimisticPolicy, truth: np.ndarray) -> float:
    error = (policy.parameter - truth).reshape(-1)
    squared = float(error @ policy.curvature.dense() @ error)
    return squared / policy.beta if policy.beta > 0.0 else np.inf
