"""Ratings as a bandit problem."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from mlogb_core._validation import Array, as_flag, as_integer, as_rewards
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
    sparse : bool
        Whether the features of an action set are a CSR array, whose numbers are those of the dense one.

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
        sparse: bool = False,
    ) -> None:
        self._indices, outcomes, groups = np.asarray(indices), np.asarray(outcomes), np.asarray(groups)
        self.n_features = as_integer("n_features", n_features, minimum=1)
        self.rewards = as_rewards(rewards)
        self.n_candidates = as_integer("n_candidates", n_candidates, minimum=1)
        n = self._indices.shape[:1]
        if self._indices.ndim != 2 or outcomes.shape != n or groups.shape != n or not self._indices.size:
            raise ValueError(
                "indices, outcomes and groups must have shapes (n, p), (n,) and (n,) with n, p >= 1, "
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
        self._sparse_rows = self._all_sparse_rows() if as_flag("sparse", sparse) else None

    def instance(self, rng: np.random.Generator) -> RatedEnvironment:
        """The data themselves: there is nothing to draw."""
        return self

    def actions(self, rng: np.random.Generator) -> ActionSet:
        """Draw a rater and some of the rater's rows, without replacement."""
        rows = rng.choice(self._rows[rng.integers(len(self._rows))], self.n_candidates, replace=False)
        return ActionSet(self._features(rows), self._probabilities[rows])

    def _features(self, rows: NDArray[np.intp]) -> Array | csr_array:
        if self._sparse_rows is not None:
            return self._sparse_rows[rows]
        indices = self._indices[rows]
        # The index -1, which stands for no feature, writes into an extra last column, which is dropped.
        features = np.zeros((len(rows), self.n_features + 1))
        np.put_along_axis(features, indices, 1.0, axis=1)
        features = features[:, :-1]
        return np.asarray(features / np.linalg.norm(features, axis=1, keepdims=True))

    def _all_sparse_rows(self) -> csr_array:
        """The rows of all data in CSR format, a feature that a row names twice once."""
        indices = np.sort(self._indices, axis=1)
        is_feature = indices >= 0
        is_feature[:, 1:] &= indices[:, 1:] != indices[:, :-1]
        counts = is_feature.sum(axis=1)
        starts = np.concatenate(([0], np.cumsum(counts)))
        values = np.repeat(1.0 / np.sqrt(counts), counts)
        return csr_array((values, indices[is_feature], starts), shape=(len(indices), self.n_features))
