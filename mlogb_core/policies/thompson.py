r"""Thompson sampling over a curvature: play the best action for a random parameter around the estimate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError

from mlogb_core._state import as_generator, generator_from, generator_state
from mlogb_core._validation import as_actions
from mlogb_core.choice import choose
from mlogb_core.link import expected_reward, outcome_probabilities
from mlogb_core.policies.newton import NewtonPolicy


class ThompsonPolicy(NewtonPolicy):
    r"""Thompson sampling: one draw of the parameter a round, and the action with the best reward under it.

    .. math:: \tilde W = W_t + \sqrt{\beta_t}\, Z_t^{-1/2}\xi, \quad \xi \sim \mathcal N(0, I), \qquad
              x_t = \arg\max_x\ r^\top\sigma(\tilde W x)

    Parameters
    ----------
    curvature, rewards, step_size, norm_bound, radius, tie_tolerance
        As in `NewtonPolicy`, which also says what is learned.
    rng : numpy.random.Generator
        The stream of its draws; each `select` takes Kd normal numbers.

    Notes
    -----
    Not in the paper. One draw serves all actions of a round, so that their scores are correlated in the same
    way as their rewards. For K = 1 the score is the logit, which ranks the actions as the reward does.
    """

    def __init__(
        self, curvature: Any, rewards: ArrayLike, *, rng: np.random.Generator, **options: Any
    ) -> None:
        super().__init__(curvature, rewards, **options)
        self.rng = as_generator(rng)

    # NumPy's warnings of overflow are off, since the scores are checked for it.
    @np.errstate(over="ignore", under="ignore", invalid="ignore")
    def select(self, actions: ArrayLike) -> int:
        """Index of the action with the best reward under a draw; ties go to the lowest index.

        Raises
        ------
        ValueError
            If the actions have the wrong shape or are not finite.
        ArithmeticError
            If a score overflows or a factorisation fails; the message names the round.
        """
        actions, _ = as_actions(actions, self.curvature.n_features)
        try:
            draw = self.curvature.sample(self.rng.standard_normal(self.parameter.shape))
            logits = np.dot(actions, (self.parameter + math.sqrt(self.beta) * draw).T)
            single = self.curvature.n_outcomes == 1
            scores = logits[:, 0] if single else expected_reward(outcome_probabilities(logits), self.rewards)
            choice = choose(scores, self.tie_tolerance)
        except (ArithmeticError, LinAlgError) as error:
            raise self._named(error) from error
        self.margin = choice.margin
        return choice.action

    def _options(self) -> dict[str, Any]:
        return super()._options() | {"rng": generator_state(self.rng)}

    @classmethod
    def _options_from(cls, state: Mapping[str, Any]) -> dict[str, Any]:
        return super()._options_from(state) | {"rng": generator_from(state)}
