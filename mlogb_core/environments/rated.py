"""Ratings as a bandit problem."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlogb_core._validation import Array, as_integer, as_rewards
from mlogb_core.environments.base import ActionSet


class RatedEnvironment:
    """Ratings as a bandit: a round offers rows of one rater, and the rating of a row is its outcome.

    Parameters
    ----------
    indices : (n, p) array of int
        The features of each row that are 1, in 0..d-1; the entry -1 stands for no feature.
    n_features : int
        d.
    outcomes : (n,) array of int
        The outcome 0..K of each row.
    groups : (n,) array of int
        The rater of each row. Raters with fewer than `n_candidates` rows are left out.
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
    Not in the paper, which speaks of "additional real datasets". An action is the indicator vector of its
    row's features, scaled to norm 1; all raters that are not left out are equally likely.
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
        # The index -1, which stands for no feature, writes into an extra last column, which is dropped.
        features = np.zeros((len(rows), self.n_features + 1))
        np.put_along_axis(features, indices, 1.0, axis=1)
        features = features[:, :-1]
        return np.asarray(features / np.linalg.norm(features, axis=1, keepdims=True))
