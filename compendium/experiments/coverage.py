"""How large the radii of the confidence region are for one game, and how much of them the truth takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from compendium.experiments.region import squared_distance, true_parameter
from compendium.experiments.setting import Setting
from compendium.theory.mixture import ville_radius_terms
from compendium.theory.usable_radius import mix_loss_radius_terms
from mlogb_core.environments import Environment
from mlogb_core.link import jacobian, outcome_probabilities
from mlogb_core.observed import PlayedRound
from mlogb_core.policies import OptimisticPolicy
from mlogb_core.radius import LogDetRadius, ObservedRadius, Progress, Radius, TheoremRadius
from mlogb_core.simulation import Streams, run_trial, trial_streams


def radius_terms(
    setting: Setting, n_rounds: int, *, confidence: float, seed: int, experiment: str, policy: str = "eofd"
) -> pd.DataFrame:
    r"""The terms of every radius at the end of one trial, all of the same rounds.

    Parameters
    ----------
    setting : Setting
        A synthetic problem with actions of norm 1 at most, and the parameters; its radius plays.
    n_rounds : int
        T.
    confidence : float
        :math:`\delta` of all radii.
    seed, experiment
        They choose the random streams.
    policy : str
        Who plays, by its name in `compendium.experiments.policies`: an optimistic policy.

    Returns
    -------
    DataFrame
        One row per radius: `data`, the sum of its terms other than `ridge`, :math:`\lambda S^2`, and
        `confidence`, :math:`2\eta\ln\frac1\delta`; `beta`, all terms; and `distance`,
        :math:`\|W_{T+1} - W_\star\|_{Z_{T+1}}^2`. What the printed radius has in place of the second is in
        `data`.

    Raises
    ------
    ValueError
        If the problem is not synthetic.
    """
    environment, streams, player, truth = _opening(setting, seed, experiment, 0, policy)
    watched = _Watched(player.radius)
    player.radius = watched
    with threadpool_limits(limits=1):
        run_trial(environment, {policy: player}, n_rounds, streams)
    progress = player.progress
    repaired = ville_radius_terms(progress, confidence)
    ridge, certainty = repaired["ridge"], repaired["martingale"]
    seen = ville_radius_terms(progress, confidence, trace=watched.traces)
    mix_loss = mix_loss_radius_terms(
        watched.log_dets,
        regularization=progress.regularization,
        step_size=progress.step_size,
        norm_bound=progress.norm_bound,
        confidence=confidence,
    )
    wholes = {
        "repaired, traces seen": sum(seen.values()),
        "repaired": sum(repaired.values()),
        "mix loss": sum(mix_loss.values()),
        "printed": TheoremRadius(confidence).value(progress),
    }
    data = watched.sums | {name: whole - ridge - certainty for name, whole in wholes.items()}
    table = pd.DataFrame(
        {"radius": list(data), "ridge": ridge, "confidence": certainty, "data": data.values()}
    )
    table["beta"] = table["ridge"] + table["confidence"] + table["data"]
    return table.assign(distance=squared_distance(player, truth))


class _Watched:
    """A radius that plays as another one, and adds up what several would add."""

    needs_movement = True

    def __init__(self, played: Radius) -> None:
        self.played = played
        self.radii = {
            "observed": ObservedRadius(0.5),
            "observed, plug-in": ObservedRadius(0.5, forecast="plug-in"),
            "determinants": LogDetRadius(0.5),
        }
        self.sums = dict.fromkeys(self.radii, 0.0)
        self.traces = self.log_dets = 0.0

    def value(self, progress: Progress) -> float:
        return self.played.value(progress)

    def describe(self) -> dict[str, Any]:
        return self.played.describe()

    def increment(self, played: PlayedRound) -> float:
        seen = jacobian(outcome_probabilities(played.after)) @ played.block
        self.traces += float(np.trace(seen))
        self.log_dets += float(np.linalg.slogdet(np.eye(len(seen)) + seen)[1])
        for name, radius in self.radii.items():
            self.sums[name] += radius.increment(played)
        own = getattr(self.played, "increment", None)
        return float(own(played)) if own else 0.0


def _opening(
    setting: Setting, seed: int, experiment: str, trial: int, name: str
) -> tuple[Environment, Streams, OptimisticPolicy, np.ndarray]:
    """What a trial begins with: environment, streams, the policy of this name, and the true parameter."""
    truth = true_parameter(setting, seed, experiment, trial)
    environment, streams = setting.problem.environment(), trial_streams(seed, experiment, trial)
    policy = setting.policy(name, environment, streams.policy)
    assert isinstance(policy, OptimisticPolicy)
    return environment, streams, policy, truth
