"""A synthetic problem whose actions have few non-zeros among many features."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from mlogb_core._validation import Array, as_integer, as_positive, as_rewards
from mlogb_core.environments.base import ActionSet
from mlogb_core.link import outcome_probabilities


class SparseEnvironment:
    r"""Unit vectors with few non-zeros, and a random parameter.

    Parameters
    ----------
    n_features : int
        d.
    rewards : (K,) array
        Rewards of the outcomes 1..K.
    parameter_norm : float
        The typical size of :math:`W_\star x`: the entries of :math:`W_\star` are independent normal numbers
        with this standard deviation, divided by :math:`\sqrt K`.
    n_nonzeros : int
        Number of non-zeros of an action, at most d.
    n_actions : int
        Size of the action sets.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Not in the paper. Each set of features is equally likely, so that actions share few of them: no policy can
    learn much, and one that plays in coordinates gains least. Its purpose is to measure time and memory.

    Examples
    --------
    >>> environment = SparseEnvironment(1000, [1.0], parameter_norm=2.0, n_nonzeros=5)
    >>> rng = np.random.default_rng(0)
    >>> environment.instance(rng).actions(rng).features.nnz
    100
    """

    def __init__(
        self,
        n_features: int,
        rewards: ArrayLike,
        *,
        parameter_norm: float,
        n_nonzeros: int = 50,
        n_actions: int = 20,
    ) -> None:
        self.n_features = as_integer("n_features", n_features, minimum=1)
        self.rewards = as_rewards(rewards)
        self.parameter_norm = as_positive("parameter_norm", parameter_norm)
        self.n_nonzeros = as_integer("n_nonzeros", n_nonzeros, minimum=1)
        self.n_actions = as_integer("n_actions", n_actions, minimum=1)
        if self.n_nonzeros > self.n_features:
            raise ValueError(f"n_nonzeros must be at most n_features = {n_features}, got {n_nonzeros}")

    def instance(self, rng: np.random.Generator) -> SparseInstance:
        r"""Draw :math:`W_\star`."""
        parameter = rng.standard_normal((self.rewards.size, self.n_features))
        parameter *= self.parameter_norm / np.sqrt(self.rewards.size)
        return SparseInstance(parameter, self.n_nonzeros, self.n_actions)


class SparseInstance:
    r"""A multinomial logit problem with sparse actions and a known parameter.

    Parameters
    ----------
    parameter : (K, d) array
        :math:`W_\star`.
    n_nonzeros, n_actions : int
        Number of non-zeros of an action, and of actions in a set.
    """

    def __init__(self, parameter: Array, n_nonzeros: int, n_actions: int) -> None:
        self.parameter, self.n_nonzeros, self.n_actions = parameter, n_nonzeros, n_actions

    def actions(self, rng: np.random.Generator) -> ActionSet:
        """Draw unit vectors as a CSR array, and their probabilities."""
        d, n, count = self.parameter.shape[1], self.n_actions, self.n_nonzeros
        indices = np.stack([rng.choice(d, count, replace=False, shuffle=False) for _ in range(n)])
        indices.sort(axis=1)
        values = rng.standard_normal((n, count))
        values /= np.linalg.norm(values, axis=1, keepdims=True)
        starts = np.arange(0, n * count + 1, count)
        features = csr_array((values.ravel(), indices.ravel(), starts), shape=(n, d))
        return ActionSet(features, outcome_probabilities(features @ self.parameter.T))
