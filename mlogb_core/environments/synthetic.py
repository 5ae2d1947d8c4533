"""The paper's synthetic problem: actions on the unit sphere and a random parameter."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mlogb_core._validation import Array, as_integer, as_non_negative, as_positive, as_rewards
from mlogb_core.environments.base import ActionSet
from mlogb_core.link import outcome_probabilities


class SyntheticEnvironment:
    r"""The paper's synthetic problem: actions on the unit sphere, a random parameter of norm S.

    Parameters
    ----------
    n_features : int
        d.
    rewards : (K,) array
        Rewards of the outcomes 1..K, for instance (.25, .5, .75, 1).
    parameter_norm : float
        :math:`\|W_\star\|_F`; the direction is uniform. The paper does not say what it used.
    n_actions : (int, int)
        Smallest and largest size of an action set; each size is equally likely.
    decay : float
        :math:`a \ge 0`. Before actions are scaled to norm 1, feature i has the variance :math:`i^{-a}`. The
        direction of the parameter is drawn with the same variances, so that the features that vary matter
        for the reward. a = 0 is the paper's problem, in which all directions are alike.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Paper: section `sec:experiment`, with :math:`|\mathcal A_t|` in 10..30. The decay is not in the paper. The
    regret bound of the sketch gains from a spectrum that decays, and on the sphere it does not.

    Examples
    --------
    >>> environment = SyntheticEnvironment(3, [1.0], parameter_norm=2.0)
    >>> rng = np.random.default_rng(0)
    >>> instance = environment.instance(rng)
    >>> bool(10 <= len(instance.actions(rng).features) <= 30)
    True
    """

    def __init__(
        self,
        n_features: int,
        rewards: ArrayLike,
        *,
        parameter_norm: float,
        n_actions: tuple[int, int] = (10, 30),
        decay: float = 0.0,
    ) -> None:
        self.n_features = as_integer("n_features", n_features, minimum=1)
        self.rewards = as_rewards(rewards)
        self.parameter_norm = as_positive("parameter_norm", parameter_norm)
        if np.shape(n_actions) != (2,):
            raise ValueError(f"n_actions must be a pair of integers, got {n_actions!r}")
        smallest = as_integer("n_actions[0]", n_actions[0], minimum=1)
        self.n_actions = smallest, as_integer("n_actions[1]", n_actions[1], minimum=smallest)
        self.decay = as_non_negative("decay", decay)

    def instance(self, rng: np.random.Generator) -> SyntheticInstance:
        r"""Draw :math:`W_\star` on the sphere of radius `parameter_norm`, uniformly without decay."""
        parameter = rng.standard_normal((self.rewards.size, self.n_features))
        scales = np.arange(1.0, self.n_features + 1.0) ** np.float64(-self.decay / 2.0)
        parameter *= scales
        parameter *= self.parameter_norm / np.linalg.norm(parameter)
        return SyntheticInstance(parameter, self.n_actions, scales)


class SyntheticInstance:
    r"""A multinomial logit problem with a known parameter.

    Parameters
    ----------
    parameter : (K, d) array
        :math:`W_\star`.
    n_actions : (int, int)
        Smallest and largest size of an action set.
    scales : (d,) array, optional
        Standard deviations of the features before they are scaled to norm 1; equal ones by default.
    """

    def __init__(self, parameter: Array, n_actions: tuple[int, int], scales: Array | None = None) -> None:
        self.parameter = parameter
        self.n_actions = n_actions
        self.scales = np.ones(parameter.shape[1]) if scales is None else scales
        self._equal = bool((self.scales == 1.0).all())

    def actions(self, rng: np.random.Generator) -> ActionSet:
        """Draw unit vectors, uniform on the sphere if the scales are equal, and their probabilities."""
        low, high = self.n_actions
        features = rng.standard_normal((int(rng.integers(low, high + 1)), self.parameter.shape[1]))
        if not self._equal:
            features *= self.scales
        features /= np.sqrt(np.add.reduce(features * features, axis=1, keepdims=True))
        return ActionSet(features, outcome_probabilities(features @ self.parameter.T))
