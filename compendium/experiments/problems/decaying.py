"""Contexts whose variances decay, with a parameter whose direction is uniform."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import NonNegativeFloat

from compendium.experiments.problems.base import Drawn
from mlogb_core.environments import SyntheticInstance


class DecayingEnvironment:
    r"""Unit contexts whose feature i has the variance :math:`i^{-a}` before they are scaled.

    In `mlogb_core.environments.SyntheticEnvironment` the parameter decays with the contexts, so that a few
    features decide and the full Hessian soon misses next to nothing. Here every direction of the parameter is
    equally likely, and features that vary little count too.
    """

    def __init__(
        self, n_features: int, rewards: tuple[float, ...], parameter_norm: float, decay: float
    ) -> None:
        self.n_features, self.rewards = n_features, np.array(rewards)
        self.parameter_norm = parameter_norm
        self.scales = np.arange(1.0, n_features + 1.0) ** (-decay / 2.0)

    def instance(self, rng: np.random.Generator) -> SyntheticInstance:
        """Draw the parameter, uniform on its sphere; a round then has 10 to 30 actions."""
        parameter = rng.standard_normal((self.rewards.size, self.n_features))
        parameter *= self.parameter_norm / np.linalg.norm(parameter)
        return SyntheticInstance(parameter, (10, 30), self.scales)


class Decaying(Drawn):
    """Contexts that decay and a parameter that does not; without decay, the paper's synthetic problem."""

    kind: Literal["decaying"] = "decaying"
    decay: NonNegativeFloat = 0.0

    def environment(self) -> DecayingEnvironment:
        """The environment."""
        return DecayingEnvironment(self.dimension, self.rewards, self.parameter_norm, self.decay)
