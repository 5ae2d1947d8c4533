r"""The probability with which a policy plays an action.

A log that is to serve for the evaluation of other policies has to record it. Estimators of the value of
another policy divide by this probability. A policy that chooses without chance gives all other actions the
probability 0, and its log says nothing of what they would have brought.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from mlogb_core._validation import Array


class Propensities(NamedTuple):
    """The probabilities of all actions of a set.

    Attributes
    ----------
    probability : (n,) array
        Of each action; they sum to 1.
    standard_error : (n,) array
        Of a Monte Carlo estimate; 0 where the probabilities are exact.
    n_draws : int
        Draws behind the estimate; 0 where the probabilities are exact.
    """

    probability: Array
    standard_error: Array
    n_draws: int

    @classmethod
    def exact(cls, probability: Array) -> Propensities:
        """Probabilities that are known."""
        return cls(probability, np.zeros_like(probability), 0)

    @classmethod
    def certain(cls, action: int, n_actions: int) -> Propensities:
        """The probabilities of a choice without chance."""
        probability = np.zeros(n_actions)
        probability[action] = 1.0
        return cls.exact(probability)

    @classmethod
    def counted(cls, choose: Callable[[], int], n_actions: int, n_draws: int) -> Propensities:
        r"""The shares of the actions in so many choices, with the error :math:`\sqrt{p(1-p)/N}`."""
        shares = np.bincount([choose() for _ in range(n_draws)], minlength=n_actions) / n_draws
        return cls(shares, np.sqrt(shares * (1.0 - shares) / n_draws), n_draws)

    @classmethod
    def of_two(cls, mean: float, deviation: float) -> Propensities:
        r"""The first of two actions wins if a normal variable of this mean and deviation is positive.

        That has the probability :math:`\Phi(\mu/s)`.
        """
        if deviation == 0.0:
            return cls.certain(0 if mean >= 0.0 else 1, 2)
        return cls.exact(np.asarray(ndtr(np.array([mean, -mean]) / deviation)))


def difference_deviation(block: Array, beta: float) -> float:
    r"""Standard deviation of a logit's difference of two actions, :math:`\sqrt{\beta A(x_0 - x_1)}`."""
    return math.sqrt(beta * max(float(block[0, 0]), 0.0))
