r"""Where actions, outcomes and rewards come from.

An environment describes a problem; `instance` draws one realisation of it for a trial, and the
instance draws action sets round by round. An action set carries the outcome probabilities of its
actions, so that every policy of a trial can be given the outcome that the same uniform number
yields for its own action, and the expected regret is known exactly.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlogb_core._validation import Array, as_integer, as_non_negative, as_positive, as_rewards
from mlogb_core.link import outcome_probabilities

NORMALISATIONS = ("unit", "max")


class ActionSet(NamedTuple):
    """The candidates of one round.

    Attributes
    ----------
    features : (n, d) array
        One action a row.
    probabilities : (n, K+1) array
        Outcome probabilities of each action, reference outcome first.
    """

    features: Array
    probabilities: Array

    def outcome(self, action: int, uniform: float) -> int:
        """Outcome of an action for a uniform number in [0, 1), by inversion.

        Examples
        --------
        >>> ActionSet(np.eye(1), np.array([[0.25, 0.75]])).outcome(0, uniform=0.3)
        1
        """
        cumulative = np.cumsum(self.probabilities[action])
        # A uniform number above a last cumulative sum of 1 - eps still yields a possible outcome.
        last = int(np.flatnonzero(self.probabilities[action])[-1])
        return min(int(np.searchsorted(cumulative, uniform, side="right")), last)


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
        :math:`a \ge 0`: before they are scaled to norm 1, the features have the variances
        :math:`i^{-a}`, and the parameter's direction is drawn with the same ones, so that the features
        that vary decide. 0 is the paper's problem, without preferred directions.

    Notes
    -----
    Paper: section `sec:experiment`, with :math:`|\mathcal A_t|` in 10..30. The decay is ours: the
    regret bound of the sketch is about spectra that decay, and on the sphere none does.

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

    def actions(self, rng: np.random.Generator) -> ActionSet:
        """Draw unit vectors, uniform on the sphere if the scales are equal, and their probabilities."""
        low, high = self.n_actions
        features = rng.standard_normal((int(rng.integers(low, high + 1)), self.parameter.shape[1]))
        features *= self.scales
        features /= np.linalg.norm(features, axis=1, keepdims=True)
        return ActionSet(features, outcome_probabilities(features @ self.parameter.T))


class LabelledEnvironment:
    """Classification data as a bandit: one candidate of every label, the label decides the outcome.

    Parameters
    ----------
    features : (n, p) array
        Raw features of the data, any numeric type; rows are normalised when they are drawn.
    labels : (n,) array of int
        Labels 0..L-1, each of which occurs.
    outcomes : (L,) array of int
        The outcome 0..K that each label yields.
    rewards : (K,) array
        Rewards of the outcomes 1..K.
    normalisation : {"unit", "max"}
        "unit": each row is scaled to Euclidean norm 1, a bias feature 1 is appended and the whole
        divided by the square root of 2, so that every action has norm 1. "max": the data are
        divided by their largest absolute value and a bias feature 1 is appended.

    Notes
    -----
    Paper: section `sec:experiment`; each round offers ten digits of distinct labels in random
    order. Candidates are drawn with replacement between rounds. The paper says "normalized" and
    leaves open how.
    """

    def __init__(
        self,
        features: ArrayLike,
        labels: ArrayLike,
        *,
        outcomes: ArrayLike,
        rewards: ArrayLike,
        normalisation: str = "unit",
    ) -> None:
        self._raw = np.asarray(features)
        labels, outcomes = np.asarray(labels), np.asarray(outcomes)
        self.rewards = as_rewards(rewards)
        if normalisation not in NORMALISATIONS:
            raise ValueError(f"normalisation must be one of {NORMALISATIONS}, got {normalisation!r}")
        if self._raw.ndim != 2 or labels.shape != self._raw.shape[:1] or not len(labels):
            raise ValueError(
                f"features and labels must have shapes (n, p) and (n,) with n >= 1, "
                f"got {self._raw.shape} and {labels.shape}"
            )
        if self._raw.dtype.kind not in "biuf" or not np.isfinite(self._raw).all():
            raise ValueError("features must be finite numbers")
        if outcomes.ndim != 1 or outcomes.dtype.kind not in "iu" or not outcomes.size:
            raise ValueError(f"outcomes must be a vector of integers, one for each label, got {outcomes!r}")
        if outcomes.min() < 0 or outcomes.max() > self.rewards.size:
            raise ValueError(f"outcomes must be a vector with entries in 0..{self.rewards.size}")
        self._rows = [np.flatnonzero(labels == label) for label in range(outcomes.size)]
        if sum(map(len, self._rows)) != len(labels) or not all(map(len, self._rows)):
            raise ValueError(f"labels must take each value in 0..{outcomes.size - 1} and no other")
        self._probabilities = np.eye(self.rewards.size + 1)[outcomes]
        self.normalisation = normalisation
        self.n_features = self._raw.shape[1] + 1
        # Not |raw|: the absolute value of the smallest signed integer overflows.
        self._largest = max(abs(float(self._raw.max())), abs(float(self._raw.min()))) or 1.0

    def instance(self, rng: np.random.Generator) -> LabelledEnvironment:
        """The data themselves: there is nothing to draw."""
        return self

    def actions(self, rng: np.random.Generator) -> ActionSet:
        """Draw one row of every label, in random order."""
        rows = np.array([indices[rng.integers(len(indices))] for indices in self._rows])
        order = rng.permutation(len(rows))
        return ActionSet(self._normalise(self._raw[rows[order]]), self._probabilities[order])

    def _normalise(self, raw: ArrayLike) -> Array:
        rows = np.asarray(raw, dtype=np.float64)
        bias = np.ones((len(rows), 1))
        if self.normalisation == "max":
            return np.hstack((rows / self._largest, bias))
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(np.hstack((rows / np.where(lengths > 0.0, lengths, 1.0), bias)) / np.sqrt(2.0))


class RatedEnvironment:
    """Ratings as a bandit: the candidates of a round are rows of one rater, whose rating is the outcome.

    Parameters
    ----------
    indices : (n, p) array of int
        The features of each row that are 1, in 0..d-1; -1 stands for none.
    n_features : int
        d.
    outcomes : (n,) array of int
        The outcome 0..K of each row.
    groups : (n,) array of int
        Who rated. Raters with fewer than `n_candidates` rows take no part.
    rewards : (K,) array
        Rewards of the outcomes 1..K.
    n_candidates : int
        Size of the action sets.

    Raises
    ------
    ValueError
        If shapes or ranges do not fit, or no rater has enough rows.

    Notes
    -----
    Not in the paper, which speaks of "additional real datasets". An action is its row's indicator
    vector scaled to norm 1; each rater who takes part is equally likely.
    """

    def __init__(
        self,
        indices: ArrayLike,
        n_features: int,
        *,
        outcomes: ArrayLike,
        groups: ArrayLike,
        rewards: ArrayLike,
        n_candidates: int = 10,
    ) -> None:
        self._indices, outcomes, groups = np.asarray(indices), np.asarray(outcomes), np.asarray(groups)
        self.n_features = as_integer("n_features", n_features, minimum=1)
        self.rewards = as_rewards(rewards)
        self.n_candidates = as_integer("n_candidates", n_candidates, minimum=1)
        n = len(self._indices)
        if self._indices.ndim != 2 or outcomes.shape != (n,) or groups.shape != (n,) or not n:
            raise ValueError(
                "indices, outcomes and groups must have shapes (n, p), (n,) and (n,) with n >= 1, "
                f"got {self._indices.shape}, {outcomes.shape} and {groups.shape}"
            )
        for name, array, low, high in (
            ("indices", self._indices, -1, self.n_features - 1),
            ("outcomes", outcomes, 0, self.rewards.size),
        ):
            if array.dtype.kind not in "iu" or array.min() < low or array.max() > high:
                raise ValueError(f"{name} must be integers in {low}..{high}")
        if (self._indices < 0).all(axis=1).any():
            raise ValueError("indices must name at least one feature in every row")
        order = np.argsort(groups, kind="stable")
        starts = np.flatnonzero(np.diff(groups[order])) + 1
        self._rows = [rows for rows in np.split(order, starts) if len(rows) >= self.n_candidates]
        if not self._rows:
            raise ValueError(f"groups must have one with at least {self.n_candidates} rows (n_candidates)")
        self._probabilities = np.eye(self.rewards.size + 1)[outcomes]

    def instance(self, rng: np.random.Generator) -> RatedEnvironment:
        """The data themselves: there is nothing to draw."""
        return self

    def actions(self, rng: np.random.Generator) -> ActionSet:
        """Draw a rater and some of the rater's rows, without replacement."""
        rows = rng.choice(self._rows[rng.integers(len(self._rows))], self.n_candidates, replace=False)
        return ActionSet(self._features(rows), self._probabilities[rows])

    def _features(self, rows: NDArray[np.intp]) -> Array:
        indices = self._indices[rows]
        features = np.zeros((len(rows), self.n_features + 1))  # -1 writes into the last column
        np.put_along_axis(features, indices, 1.0, axis=1)
        features = features[:, :-1]
        return np.asarray(features / np.linalg.norm(features, axis=1, keepdims=True))
