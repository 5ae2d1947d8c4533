"""What a curvature holds along a trial, beside the spectrum of the Hessian that it stands for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from compendium.experiments.setting import Setting
from compendium.theory.controlled_error import least_rank, smallest_size
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

    def describe(policy: OptimisticPolicy, values: np.ndarray) -> dict[str, float]:
        rho = policy.curvature.shrinkage
        return {
            "rho": rho,
            "bound": tail_bound(values, setting.sketch_size, sharp=True),
            "printed bound": tail_bound(values, setting.sketch_size),
            "factor": sketch_factor(rho, setting.regularization),
            "largest": values[0],
        }

    return _watched(setting, "eofd", n_rounds, (seed, experiment), checkpoints, describe)


def track_curvature(
    setting: Setting,
    policy: str,
    n_rounds: int,
    *,
    seed: int,
    experiment: str,
    checkpoints: Sequence[int],
    budget: float,
) -> tuple[pd.DataFrame, np.ndarray]:
    r"""Follow the rank and the ridge of a policy's curvature, beside the ranks that a budget asks for.

    Parameters
    ----------
    setting : Setting
        The problem and the parameters.
    policy : str
        Name of a policy with a curvature of low rank.
    n_rounds : int
        T.
    seed, experiment
        Pick the random streams of trial 0.
    checkpoints : sequence of int
        Rounds at which the spectrum :math:`\mu_1 \ge \mu_2 \ge \dots` of the accumulated Hessian M is taken.
    budget : float
        :math:`\varepsilon\lambda`, what a sketch may lose.

    Returns
    -------
    table : DataFrame
        Columns round; rank of the curvature; ridge, its multiple of the identity; rho; factor
        (:math:`\Delta`); `least rank`, the number of eigenvalues above the budget, without
        which no sketch :math:`0 \preceq M - V\Lambda V^\top \preceq \varepsilon\lambda I` exists (Weyl); and
        `fixed rank`, the smallest m whose bound by the spectral tail stays within the budget.
    spectrum : (Kd,) array
        Eigenvalues of the accumulated Hessian at the end, decreasing.
    """

    def describe(played: OptimisticPolicy, values: np.ndarray) -> dict[str, float]:
        rho = played.curvature.shrinkage
        return {
            "rank": int(getattr(played.curvature, "rank", 0)),
            "ridge": played.curvature.ridge,
            "rho": rho,
            "factor": sketch_factor(rho, setting.regularization),
            "least rank": least_rank(values, budget),
            "fixed rank": smallest_size(values, budget),
        }

    return _watched(setting, policy, n_rounds, (seed, experiment), checkpoints, describe)


def _watched(
    setting: Setting,
    name: str,
    n_rounds: int,
    stream: tuple[int, str],
    checkpoints: Sequence[int],
    describe: Callable[[OptimisticPolicy, np.ndarray], dict[str, float]],
) -> tuple[pd.DataFrame, np.ndarray]:
    """Play trial 0, and at the checkpoints and the end describe the policy beside its Hessian's spectrum."""
    streams = trial_streams(*stream, 0)
    environment = setting.problem.environment()
    policy = setting.policy(name, environment, streams.policy)
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
            rows.append({"round": played.number, **describe(policy, values)})

    with threadpool_limits(limits=1):
        run_trial(environment, {name: policy}, n_rounds, streams, observe)
    return pd.DataFrame(rows), values
