"""The paper's synthetic problem."""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeFloat

from compendium.experiments.problems.base import Drawn
from mlogb_core.environments import SyntheticEnvironment


class Synthetic(Drawn):
    """Actions on the sphere and a random parameter; see `mlogb_core.environments.SyntheticEnvironment`."""

    kind: Literal["synthetic"] = "synthetic"
    n_actions: tuple[int, int] = (10, 30)
    decay: NonNegativeFloat = 0.0

    def environment(self) -> SyntheticEnvironment:
        """The library's environment."""
        return SyntheticEnvironment(
            self.dimension,
            self.rewards,
            parameter_norm=self.parameter_norm,
            n_actions=self.n_actions,
            decay=self.decay,
        )
