"""The sketching error along a trial, beside the spectrum of the Hessian that the sketch approximates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from compendium.experiments.setting import Setting
from compendium.theory.sketch import sketch_factor, tail_bound
from mlogb_core.link import jacobian, outcome_probabilities
from mlogb_core.policies import OptimisticPolicy
from mlogb_core.simulation import Round, run_trial, trial_streams


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
        They choose the random streams, of which those of trial 0 are used.
    checkpoints : sequence of int
        Rounds at which the spectrum of the accumulated Hessian is taken.

    Returns
    -------
    table : DataFrame
        Columns `round`, `rho`, `bound` (the sharp one), `printed bound`, `factor` (Delta) and `largest`,
        the largest eigenvalue of the accumulated Hessian; one row per checkpoint, and one for the last round.
    spectrum : (Kd,) array
        Eigenvalues of the accumulated Hessian at the end, decreasing.
    """
    streams = trial_streams(seed, experiment, 0)
    environment = setting.problem.environment()
    policy = setting.policy("eofd", environment, streams.policy)
    assert isinstance(policy, OptimisticPolicy)
    size = environment.rewards.size * environment.n_features
    hessian, rows, values = np.zeros((size, size)), [], np.zeros(size)

    def observe(played: Round) -> None:
        nonlocal hessian, values
        x = played.candidates.features[played.action[0]]
        slope = jacobian(outcome_probabilities(policy.parameter @ x))
        hessian += np.kron(slope, np.outer(x, x))
        if played.number in checkpoints or played.number == n_rounds:
            values = np.maximum(np.linalg.eigvalsh(hessian)[::-1], 0.0)
            rho = policy.curvature.shrinkage
            rows.append(
                {
                    "round": played.number,
                    "rho": rho,
                    "bound": tail_bound(values, setting.sketch_size, sharp=True),
                    "printed bound": tail_bound(values, setting.sketch_size),
                    "factor": sketch_factor(rho, setting.regularization),
                    "largest": values[0],
                }
            )

    with threadpool_limits(limits=1):
        run_trial(environment, {"eofd": policy}, n_rounds, streams, observe)
    return pd.DataFrame(rows), values
