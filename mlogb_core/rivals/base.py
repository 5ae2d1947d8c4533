"""What the policies of other papers have in common: checked arguments, the rule for ties, named failures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError

from mlogb_core._ownership import Owned
from mlogb_core._validation import (
    Array,
    as_actions,
    as_integer,
    as_non_negative,
    as_outcome,
    as_positive,
    as_probability,
    as_rewards,
    as_vector,
)
from mlogb_core.choice import TIE_TOLERANCE, choose
from mlogb_core.radius import Progress, Radius, is_radius


class ScoringPolicy(Owned, ABC):
    """A policy that scores every action and plays the best; subclasses implement `_scores` and `_learn`.

    Parameters
    ----------
    n_features : int
        d >= 1.
    rewards : (K,) array
        Rewards >= 0 of the outcomes 1..K; that of outcome 0 is 0.
    tie_tolerance : float
        Relative tolerance of `choose`.

    Attributes
    ----------
    n_outcomes : int
        K.
    rounds : int
        Number of updates so far.
    margin : float
        Decision margin of the last `select`.

    Raises
    ------
    ValueError
        If an argument is out of range; the message names it.
    """

    #: Whether the method is for two outcomes (K = 1) alone.
    binary: ClassVar[bool] = False

    def __init__(self, n_features: int, rewards: ArrayLike, *, tie_tolerance: float = TIE_TOLERANCE) -> None:
        self.n_features = as_integer("n_features", n_features, minimum=1)
        self.rewards = binary_rewards(type(self).__name__, rewards) if self.binary else as_rewards(rewards)
        self.n_outcomes = self.rewards.size
        self.tie_tolerance = as_non_negative("tie_tolerance", tie_tolerance)
        self.rounds = 0
        self.margin = np.inf

    @np.errstate(over="ignore", under="ignore", invalid="ignore")
    def scores(self, actions: ArrayLike) -> Array:
        """The scores of all the actions, (n,): in units of the reward or, as a rule for K = 1, in logits.

        Raises
        ------
        ValueError
            If the actions have the wrong shape or are not finite.
        ArithmeticError
            If the logits overflow, for K >= 2.
        """
        return self._scores(as_actions(actions, self.n_features)[0])

    # NumPy's warnings of overflow are off, since the scores are checked for it.
    @np.errstate(over="ignore", under="ignore", invalid="ignore")
    def select(self, actions: ArrayLike) -> int:
        """Index of the action with the best score; ties go to the lowest index.

        Raises
        ------
        ValueError
            If the actions have the wrong shape or are not finite.
        ArithmeticError
            If a score overflows or a factorisation fails; the message names the round.
        """
        actions, _ = as_actions(actions, self.n_features)
        try:
            choice = choose(self._scores(actions), self.tie_tolerance)
        except (ArithmeticError, LinAlgError) as error:
            raise self._named(error) from error
        self.margin = choice.margin
        return choice.action

    @np.errstate(over="ignore", under="ignore")
    def update(self, action: ArrayLike, outcome: int) -> None:
        """Learn from the outcome, in 0..K, of any action, (d,), selected or not.

        Raises
        ------
        ValueError
            If the action has the wrong shape or is not finite, or the outcome is out of range.
        ArithmeticError
            If a factorisation fails; the message names the round. The policy must not be used any further:
            unlike a `NewtonPolicy` it may have kept part of the round.
        """
        action, outcome = as_vector("action", action, self.n_features), as_outcome(outcome, self.n_outcomes)
        try:
            self._learn(action, outcome)
        except (ArithmeticError, LinAlgError) as error:
            raise self._named(error) from error
        self.rounds += 1

    @abstractmethod
    def _scores(self, actions: Array) -> Array:
        """The scores, (n,), of checked actions, (n, d)."""

    @abstractmethod
    def _learn(self, action: Array, outcome: int) -> None:
        """Learn from a checked round; `rounds` is the number of rounds before it."""

    def _named(self, error: Exception) -> ArithmeticError:
        """The arithmetic failure that ended a round, with the round's number."""
        return ArithmeticError(f"round {self.rounds + 1}: {error}")


class Rival(ScoringPolicy):
    r"""A policy that scores every action by means of a confidence set.

    Parameters
    ----------
    n_features, rewards, tie_tolerance
        As in `ScoringPolicy`, which also says what a subclass implements.
    norm_bound : float
        S > 0, the bound of the norm of the true parameter.
    confidence : float
        :math:`\delta \in (0, 1)`, the probability that the confidence set of the theory fails.
    scale : float
        Factor >= 0 of the theory's width :math:`\sqrt{\beta_t}`; 1 is the theory.
    radius : Radius, optional
        A rule for :math:`\beta_t`, the same for policies that are compared; by default the policy's own
        theory. It has a scale of its own, so that `scale` must be 1 beside it.
    feature_bound : float
        D > 0, the bound of the norm of the actions.

    Raises
    ------
    ValueError
        If an argument is out of range, or the rule adds up something over the rounds; the message names it.
    """

    def __init__(
        self,
        n_features: int,
        rewards: ArrayLike,
        *,
        norm_bound: float,
        confidence: float,
        scale: float = 1.0,
        radius: Radius | None = None,
        feature_bound: float = 1.0,
        tie_tolerance: float = TIE_TOLERANCE,
    ) -> None:
        super().__init__(n_features, rewards, tie_tolerance=tie_tolerance)
        self.norm_bound = as_positive("norm_bound", norm_bound)
        self.confidence = as_probability("confidence", confidence)
        self.scale = as_non_negative("scale", scale)
        self.radius = None if radius is None else as_rule(type(self).__name__, radius, self.scale)
        self.feature_bound = as_positive("feature_bound", feature_bound)

    @property
    @abstractmethod
    def progress(self) -> Progress:
        """What a given `radius` may depend on; the step size is NaN, as rules that are accepted need none."""


class Unsaved:
    """Mixin for a rival over a policy that saves its state, from which this rival could not be made again.

    Its constructor takes other arguments, which the state does not hold.
    """

    def state_dict(self) -> dict[str, Any]:
        """Raise an error that names what to do."""
        raise NotImplementedError(f"{type(self).__name__} has no saved state: pickle or copy the policy")

    @classmethod
    def from_state(cls, state: Any) -> Any:
        """Raise an error that names what to do."""
        raise NotImplementedError(f"{cls.__name__} has no saved state: unpickle or copy the policy")


def as_rule(
    method: str, radius: Any, scale: float, *, observes_movement: bool = False, adds_up: bool = False
) -> Radius:
    """Return the rule for the radius that was given in place of a policy's own theory, or raise an error.

    Parameters
    ----------
    method : str
        Name of the policy, for messages.
    radius : Radius
        The rule.
    scale : float
        The policy's own scale, which multiplies the width of its theory and no other one.
    observes_movement, adds_up : bool
        Whether the policy adds up the movements of its steps, and what the rule's `increment` returns.

    Raises
    ------
    ValueError
        If it is no rule, if the scale is not 1, or if the rule needs sums that the policy does not have.
    """
    if not is_radius(radius):
        raise ValueError(f"radius must be a Radius such as RidgeRadius(0.01), or None, got {radius!r}")
    if scale != 1.0:
        raise ValueError(
            f"scale must be 1 where a radius is given, which has a scale of its own, got {scale}"
        )
    increments = callable(getattr(radius, "increment", None))
    if (radius.needs_movement and not observes_movement) or (increments and not adds_up):
        raise ValueError(
            f"radius must not be a {type(radius).__name__} for {method}, which does not add up what this "
            "rule depends on; a ConstantRadius or a RidgeRadius depends on nothing that is added up"
        )
    rule: Radius = radius
    return rule


def binary_rewards(method: str, rewards: ArrayLike) -> Array:
    """Return the reward of a method for two outcomes as a (1,) array, or raise if there are more."""
    checked = as_rewards(rewards)
    if checked.size != 1:
        raise ValueError(
            f"rewards must have shape (1,) for {method}, which is a method for two outcomes (K = 1), "
            f"got {checked.shape}"
        )
    return checked


def positive_or(name: str, value: float | None, theory: float) -> float:
    """Return an argument as a float > 0, or the value of the theory where it is None."""
    return theory if value is None else as_positive(name, value)
