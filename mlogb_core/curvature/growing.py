r"""Frequent Directions whose size m grows; the base class of the sketches that control their error.

In the round of a shrink a subclass says how many directions are dropped, given the eigenvalues of those
beyond m. If it keeps more than m, then m grows to hold them, and the stored rows with it.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from mlogb_core._validation import Array
from mlogb_core.curvature.frequent_directions import FrequentDirections


class GrowingFrequentDirections(FrequentDirections):
    r"""Base class of sketches :math:`Z = \alpha I + B^\top C B` of at most m directions, where m grows.

    Parameters
    ----------
    n_outcomes, n_features, regularization
        As in `Curvature`.
    sketch_size : int
        m >= 1 at first. The attribute is the present m, and so is `rank_bound` (up to Kd).

    Notes
    -----
    A shrink follows every round, as in the paper's algorithm. Only the present m + K rows are stored, so that
    a larger m means another array into which the rows are copied.
    """

    grows = True
    arguments = tuple(name for name in FrequentDirections.arguments if name != "buffer")

    def __init__(self, n_outcomes: int, n_features: int, regularization: float, sketch_size: int) -> None:
        super().__init__(n_outcomes, n_features, regularization, sketch_size, buffer=1)

    @abstractmethod
    def _dropped(self, values: Array) -> int:
        """How many of the weakest directions are dropped; what is kept beyond m makes m grow."""

    def _grow(self, sketch_size: int, rank: int) -> None:
        """Raise m, and move the basis, of the given rank, to where there is room for m + K rows."""
        K, most = self.n_outcomes, self.n_directions
        rank_bound = min(sketch_size, most)
        rows = np.empty((min(rank_bound + K, most), K * self.n_features))
        rows[:rank] = self._rows[:rank]
        self._rows, self.sketch_size, self.rank_bound = rows, sketch_size, rank_bound
