r"""The interface of bandit problems.

An environment describes a problem. Its `instance` draws one realisation for a trial, and the instance draws
an action set in each round. An action set carries the outcome probabilities of its actions. Therefore one
uniform number decides the outcomes of all policies of a trial, each for its own action, and the expected
regret is exact.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from scipy.sparse import csr_array

from mlogb_core._validation import Array, is_sparse


class ActionSet(NamedTuple):
    """The candidates of one round.

    Attributes
    ----------
    features : (n, d) array or csr_array
        One action a row.
    probabilities : (n, K+1) array
        Outcome probabilities of each action, reference outcome first.
    """

    features: Array | csr_array
    probabilities: Array

    def row(self, action: int) -> Array | csr_array:
        """Features of an action as a policy learns from them: (d,), or (1, d) where they are sparse.

        Examples
        --------
        >>> ActionSet(csr_array(np.eye(3)), np.full((3, 2), 0.5)).row(1).toarray()
        array([[0., 1., 0.]])
        """
        return self.features[[action]] if is_sparse(self.features) else self.features[action]

    def outcome(self, action: int, uniform: float) -> int:
        """Outcome of an action for a uniform number in [0, 1), by inversion.

        Examples
        --------
        >>> ActionSet(np.eye(1), np.array([[0.25, 0.75]])).outcome(0, uniform=0.3)
        1
        """
        cumulative, last = 0.0, 0
        for outcome, probability in enumerate(self.probabilities[action].tolist()):
            cumulative += probability
            if uniform < cumulative:
                return outcome
            last = outcome if probability > 0.0 else last
        # Roundoff may leave the last cumulative sum below 1; a larger uniform number gives the last outcome.
        return last


class Instance(Protocol):
    """One realisation of an environment."""

    def actions(self, rng: np.random.Generator) -> ActionSet:
        """Draw the action set of the next round."""


class Environment(Protocol):
    """A bandit problem.

    Attributes
    ----------
    rewards : (K,) array
        Rewards of the outcomes 1..K; that of outcome 0 is 0.
    n_features : int
        d.
    """

    @property
    def rewards(self) -> Array:
        """Rewards of the outcomes 1..K."""

    @property
    def n_features(self) -> int:
        """Dimension of the actions."""

    def instance(self, rng: np.random.Generator) -> Instance:
        """Draw the realisation that one trial plays."""
