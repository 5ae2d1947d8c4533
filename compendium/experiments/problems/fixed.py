"""One action set for all rounds of a game, for policies that need one."""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import PositiveInt

from compendium.experiments.problems.base import Drawn
from mlogb_core.environments import ActionSet, SyntheticEnvironment


class FixedInstance:
    """A game in which every round offers the same actions."""

    def __init__(self, actions: ActionSet) -> None:
        self._actions = actions

    def actions(self, rng: np.random.Generator) -> ActionSet:
        """The actions of the game; nothing is drawn."""
        return self._actions


class FixedEnvironment:
    """The paper's synthetic problem with the actions of one round in all rounds of a game."""

    def __init__(
        self, n_features: int, rewards: tuple[float, ...], parameter_norm: float, n_actions: int
    ) -> None:
        self._synthetic = SyntheticEnvironment(
            n_features, rewards, parameter_norm=parameter_norm, n_actions=(n_actions, n_actions)
        )
        self.n_features, self.rewards = self._synthetic.n_features, self._synthetic.rewards

    def instance(self, rng: np.random.Generator) -> FixedInstance:
        """Draw the parameter and the actions."""
        return FixedInstance(self._synthetic.instance(rng).actions(rng))


class Fixed(Drawn):
    """Actions on the sphere that stay the same in all rounds of a game, and a random parameter."""

    kind: Literal["fixed"] = "fixed"
    n_actions: PositiveInt = 50

    def environment(self) -> FixedEnvironment:
        """The environment."""
        return FixedEnvironment(self.dimension, self.rewards, self.parameter_norm, self.n_actions)
