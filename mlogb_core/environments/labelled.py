"""Classification data as a bandit problem."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mlogb_core._validation import Array, as_rewards
from mlogb_core.environments.base import ActionSet

NORMALISATIONS = ("unit", "max")


class LabelledEnvironment:
    """Classification data as a bandit: a round offers one row of every label, and its label is the outcome.

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
        "unit": each row is scaled to Euclidean norm 1, a bias feature 1 is appended, and the result is
        divided by the square root of 2, so that every action has norm 1. "max": the data are divided by
        their largest absolute value, and a bias feature 1 is appended.

    Raises
    ------
    ValueError
        If shapes or ranges do not fit, or a label does not occur.

    Notes
    -----
    Paper: section `sec:experiment`, in which a round offers ten digits with distinct labels in random order.
    A row may be drawn again in a later round. The paper says "normalized" and leaves open how.
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
        # np.abs(raw) would overflow for the smallest signed integer.
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
