"""The paper's synthetic problem."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from compendium.experiments.problems.base import Problem
from mlogb_core.environments import SyntheticEnvironment


class Synthetic(Problem):
    """Actions on the sphere and a random parameter; see `mlogb_core.environments.SyntheticEnvironment`."""

    kind: Literal["synthetic"] = "synthetic"
    dimension: PositiveInt
    rewards: tuple[float, ...]
    parameter_norm: PositiveFloat
    n_actions: tuple[int, int] = (10, 30)
    decay: NonNegativeFloat = 0.0

    @property
    def n_outcomes(self) -> int:
        """K."""
        return len(self.rewards)

    @property
    def n_features(self) -> int:
        """Dimension d of the actions."""
        return self.dimension

    def environment(self) -> SyntheticEnvironment:
        """The library's environment."""
        return SyntheticEnvironment(
            self.dimension,
            self.rewards,
            parameter_norm=self.parameter_norm,
            n_actions=self.n_actions,
            decay=self.decay,
        )
