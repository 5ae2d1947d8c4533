r"""Random play around the estimate of the library's Newton steps over a sketch, for any K.

A round draws its action from a distribution that depends on the estimated rewards
:math:`\hat r(x) = r^\top\sigma(W_tx)` alone. So the probability of every choice is known and can be
recorded for the evaluation of other policies. Subclasses choose the distribution.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import ArrayLike

from mlogb_core._state import as_generator
from mlogb_core._validation import Array, as_actions, as_integer, as_non_negative, as_positive, as_rewards
from mlogb_core.choice import TIE_TOLERANCE, Choice, choose
from mlogb_core.curvature import FrequentDirections
from mlogb_core.link import expected_reward, finite_probabilities
from mlogb_core.policies import NewtonPolicy
from mlogb_core.propensity import Propensities
from mlogb_core.radius import ConstantRadius, theorem_parameters
from mlogb_core.rivals.base import Unsaved, positive_or


class RandomizedPolicy(Unsaved, NewtonPolicy):
    r"""A policy that draws its action given the estimated rewards; subclasses implement `_distribution`.

    Parameters
    ----------
    n_features : int
        d >= 1.
    rewards : (K,) array
        Rewards >= 0 of the outcomes 1..K; that of outcome 0 is 0.
    sketch_size : int
        m >= 1; m >= Kd is exact.
    norm_bound : float
        S > 0.
    rng : numpy.random.Generator
        The stream of its draws, one number a round.
    regularization, step_size : float, optional
        :math:`\lambda` and :math:`\eta`, both positive; by default those of `theorem_parameters`.
    scale : float
        Factor >= 0 of how much is explored; at 0 the policy is greedy.
    feature_bound : float
        D > 0, the bound of the norm of the actions; the defaults depend on it.
    tie_tolerance : float
        Relative tolerance of `choose`.

    Raises
    ------
    ValueError
        If an argument is out of range; the message names it.
    """

    def __init__(
        self,
        n_features: int,
        rewards: ArrayLike,
        *,
        sketch_size: int,
        norm_bound: float,
        rng: np.random.Generator,
        regularization: float | None = None,
        step_size: float | None = None,
        scale: float = 1.0,
        feature_bound: float = 1.0,
        tie_tolerance: float = TIE_TOLERANCE,
    ) -> None:
        rewards, d = as_rewards(rewards), as_integer("n_features", n_features, minimum=1)
        S, D = as_positive("norm_bound", norm_bound), as_positive("feature_bound", feature_bound)
        ridge, eta = theorem_parameters(rewards.size, d, S, D)
        ridge = positive_or("regularization", regularization, ridge)
        super().__init__(
            FrequentDirections(rewards.size, d, ridge, sketch_size),
            rewards,
            step_size=positive_or("step_size", step_size, eta),
            norm_bound=S,
            radius=ConstantRadius(0.0),
            tie_tolerance=tie_tolerance,
        )
        self.scale = as_non_negative("scale", scale)
        self.rng = as_generator(rng)

    @np.errstate(under="ignore")
    def select(self, actions: ArrayLike) -> int:
        """Index of an action that is drawn from the distribution; `margin` is that of the best estimate.

        Raises
        ------
        ValueError
            If the actions have the wrong shape or are not finite.
        ArithmeticError
            If an estimate overflows; the message names the round.
        """
        choice, probability = self._round(actions)
        self.margin = choice.margin
        below = np.cumsum(probability[:-1])  # Without the last one, which roundoff may leave below 1.
        return int(np.searchsorted(below, self.rng.random(), side="right"))

    @np.errstate(under="ignore")
    def probabilities(self, actions: ArrayLike) -> Propensities:
        """With which probability each action is selected in this round, exactly; draws nothing.

        Raises
        ------
        ValueError
            If the actions have the wrong shape or are not finite.
        ArithmeticError
            If an estimate overflows; the message names the round.
        """
        return Propensities.exact(self._round(actions)[1])

    @abstractmethod
    def _distribution(self, gaps: Array, best: int) -> Array:
        """The probabilities of the actions.

        Parameters
        ----------
        gaps : (n,) array
            By how much each estimated reward is below the best one, as a share of the largest reward.
        best : int
            Index of the best action; of those that tie the lowest.

        Returns
        -------
        (n,) array
        """

    def _round(self, actions: ArrayLike) -> tuple[Choice, Array]:
        checked, _ = as_actions(actions, self.n_features)
        with np.errstate(over="ignore", invalid="ignore"):
            logits = np.dot(checked, self.parameter.T)
        try:
            estimates = expected_reward(finite_probabilities(logits), self.rewards)
            choice = choose(estimates, self.tie_tolerance)
        except ArithmeticError as error:
            raise self._named(error) from error
        gaps = np.maximum(estimates[choice.action] - estimates, 0.0) / (self.rewards.max() or 1.0)
        return choice, self._distribution(gaps, choice.action)
