"""What a sketch loses in a game, beside the spectrum of the Hessian that it stands for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from compendium.experiments.trials import Setting
from compendium.theory.sketch import sketch_factor, tail_bound
from mlogb_core.link import jacobian, outcome_probabilities
from mlogb_core.policies import OptimisticPolicy
from mlogb_core.simulation import trial_streams


def track_sketch(
    setting: Setting, n_rounds: int, *, seed: int, experiment: str, checkpoints: Sequence[int]
) -> tuple[pd.DataFrame, np.ndarray]:
    """Play EOFD-MLogB and compare its sketching error with the bound by the spectral tail.

    Parameters
    ----------
    setting : Setting
        The problem and the parameters.
    n_rounds : int
        T.
    seed, experiment
        Pick the random streams of trial 0.
    checkpoints : sequence of int
        Rounds at which the spectrum of the accumulated Hessian is taken.

    Returns
    -------
    table : DataFrame
        Columns round, rho, bound (the sharp one), printed bound, factor (Delta), largest (eigenvalue
        of the accumulated Hessian).
    spectrum : (Kd,) array
        Eigenvalues of the accumulated Hessian at the end, decreasing.
    """
    streams = trial_streams(seed, experiment, 0)
    environment = setting.problem.environment()
    policy = setting.model_copy(update={"policies": ("eofd",)}).build(environment, streams.policy)["eofd"]
    assert isinstance(policy, OptimisticPolicy)
    instance = environment.instance(streams.instance)
    size = environment.rewards.size * environment.n_features
    hessian, rows, values = np.zeros((size, size)), [], np.zeros(size)
    with threadpool_limits(limits=1):
        for t in range(1, n_rounds + 1):
            candidates = instance.actions(streams.actions)
            chosen = policy.select(candidates.features)
            x = candidates.features[chosen]
            policy.update(x, candidates.outcome(chosen, float(streams.outcomes.random())))
            slope = jacobian(outcome_probabilities(policy.parameter @ x))
            hessian += np.kron(slope, np.outer(x, x))
            if t in checkpoints or t == n_rounds:
                values = np.maximum(np.linalg.eigvalsh(hessian)[::-1], 0.0)
                rho = policy.curvature.shrinkage
                rows.append(
                    {
                        "round": t,
                        "rho": rho,
                        "bound": tail_bound(values, setting.sketch_size, sharp=True),
                        "printed bound": tail_bound(values, setting.sketch_size),
                        "factor": sketch_factor(rho, setting.regularization),
                        "largest": values[0],
                    }
                )
    return pd.DataFrame(rows), values
