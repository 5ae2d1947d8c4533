r"""Thompson sampling over a curvature: play the best action for a random parameter around the estimate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError

from mlogb_core._state import as_generator, generator_from, generator_state
from mlogb_core._validation import Array, as_actions, as_integer
from mlogb_core.choice import Choice, choose
from mlogb_core.link import expected_reward, finite_probabilities
from mlogb_core.policies.newton import NewtonPolicy
from mlogb_core.propensity import Propensities, difference_deviation


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
            choice = self._draw(actions, self.rng)
        except (ArithmeticError, LinAlgError) as error:
            raise self._named(error) from error
        self.margin = choice.margin
        return choice.action

    @np.errstate(over="ignore", under="ignore", invalid="ignore")
    def probabilities(
        self, actions: ArrayLike, *, n_draws: int = 1000, rng: np.random.Generator | None = None
    ) -> Propensities:
        r"""With which probability each action is selected in this round, exactly or by Monte Carlo.

        Parameters
        ----------
        actions : (n, d) array
            The action set, n >= 1.
        n_draws : int
            Draws of an estimate.
        rng : numpy.random.Generator, optional
            The stream that an estimate draws from; the policy's own stream stays as it is.

        Returns
        -------
        Propensities

        Raises
        ------
        ValueError
            If the probabilities need an estimate and `rng` is not given, or an argument is out of range.
        ArithmeticError
            If a score overflows or a factorisation fails; the message names the round.

        Notes
        -----
        A closed form is known for a single action, for a radius of 0, and for two actions with K = 1, where
        the difference of their logits is normal; the tolerance of ties is left out of it. In all other cases
        the result is the share of each action in independent draws, and carries its standard error. An action
        that no draw selected has the estimate 0, by which no estimator can divide: draw more often then.
        """
        actions, _ = as_actions(actions, self.curvature.n_features)
        try:
            if len(actions) == 1 or self.beta == 0.0:
                chosen = choose(self._scores(actions, self.parameter), self.tie_tolerance).action
                return Propensities.certain(chosen, len(actions))
            if len(actions) == 2 and self.curvature.n_outcomes == 1:
                difference = actions[:1] - actions[1:]
                deviation = difference_deviation(self.curvature.inverse_blocks(difference)[0], self.beta)
                return Propensities.of_two(float(difference[0] @ self.parameter[0]), deviation)
            if rng is None:
                raise ValueError(
                    f"the probabilities of {len(actions)} actions with K = {self.curvature.n_outcomes} have "
                    "no closed form: give `rng`, a stream of its own for a Monte Carlo estimate"
                )
            stream, draws = as_generator(rng), as_integer("n_draws", n_draws, minimum=1)
            return Propensities.counted(lambda: self._draw(actions, stream).action, len(actions), draws)
        except (ArithmeticError, LinAlgError) as error:
            raise self._named(error) from error

    def _draw(self, actions: Array, rng: np.random.Generator) -> Choice:
        """The choice for one draw of the parameter from a stream."""
        draw = self.curvature.sample(rng.standard_normal(self.parameter.shape))
        return choose(self._scores(actions, self.parameter + math.sqrt(self.beta) * draw), self.tie_tolerance)

    def _scores(self, actions: Array, parameter: Array) -> Array:
        """The expected rewards under a parameter, or the logits for K = 1, which order them alike."""
        logits = np.dot(actions, parameter.T)
        single = self.curvature.n_outcomes == 1
        return logits[:, 0] if single else expected_reward(finite_probabilities(logits), self.rewards)

    def _options(self) -> dict[str, Any]:
        return super()._options() | {"rng": generator_state(self.rng)}

    @classmethod
    def _options_from(cls, state: Mapping[str, Any]) -> dict[str, Any]:
        return super()._options_from(state) | {"rng": generator_from(state)}
