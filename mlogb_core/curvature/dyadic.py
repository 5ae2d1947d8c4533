r"""Frequent Directions in blocks: a full block is frozen, and the next one has twice its size.

The blocks divide the stream in time. Each is a sketch of its own Hessians, and Z is the ridge plus all of
them. A block is frozen before the trace of its Hessians is so large that its error could exceed its share of
the budget. `DoublingFrequentDirections` keeps one sketch, in which old directions compete with new ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from mlogb_core._linalg import gram
from mlogb_core._validation import Array, as_finite, as_integer, as_non_negative, as_positive, take
from mlogb_core.curvature.base import check_regularization
from mlogb_core.curvature.frequent_directions import _block_reflector
from mlogb_core.curvature.low_rank import LowRankCurvature, LowRankFrame


class DyadicFrequentDirections(LowRankCurvature):
    r"""Sketches of sizes :math:`m_0, 2m_0, 4m_0, \dots` of consecutive parts of the stream, and their sum.

    Parameters
    ----------
    n_outcomes, n_features, regularization
        As in `Curvature`.
    sketch_size : int
        :math:`m_0 \ge 1`, the size of the first block.
    budget : float
        :math:`\varepsilon > 0`: :math:`\rho \le \varepsilon\lambda` on every stream.

    Attributes
    ----------
    block : int
        i, the number of the active block, from 0 on. Its size is :math:`2^i m_0`.
    mass : float
        The sum of the traces of the Hessians in the active block.
    frozen : (f, f) array
        The sum of the frozen blocks, in the first f rows of the basis.
    columns : (r, c) array
        R with :math:`RR^\top` the active block, in the coordinates of the basis; :math:`c \le 2^i m_0`.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Not in the paper; the rule of DBSLinUCB (Wen et al.) for blocks of Hessians. A block in which the trace is
    at most :math:`\theta` loses at most :math:`\theta/(2^i m_0 + 1)`. With
    :math:`\theta = \tfrac12\varepsilon\lambda m_0` all blocks together lose less than
    :math:`\varepsilon\lambda`. Once all sizes together reach Kd, everything is kept. The rule looks at the
    trace and not at what a shrink subtracts, so that it can freeze a block that has lost nothing.
    """

    grows = True
    arguments = (*LowRankCurvature.arguments, "sketch_size", "budget")

    def __init__(
        self, n_outcomes: int, n_features: int, regularization: float, sketch_size: int, budget: float
    ) -> None:
        super().__init__(n_outcomes, n_features, regularization)
        self.sketch_size = as_integer("sketch_size", sketch_size, minimum=1)
        self.budget = as_positive("budget", budget)
        self.block = 0
        self.mass = 0.0
        self.frozen: Array = np.empty((0, 0))
        self.columns: Array = np.empty((0, 0))
        self._reserve()

    @np.errstate(under="ignore")
    def add(self, frame: LowRankFrame, factor: Array, coordinates: Array | None = None) -> Array | None:
        r"""Add :math:`F F^\top \otimes x x^\top` to the active block, and shrink that if it is full.

        Raises
        ------
        ArithmeticError
            If the ridge is below the roundoff of the largest eigenvalue.
        """
        self.check_order(frame)
        grown = self._grown(frame, factor)
        check_regularization(self.ridge, float(np.maximum.reduce(grown.diagonal(), initial=0.0)))
        self._joint_rows(frame)
        return self._add_columns(np.dot(frame.coordinates.T, factor), coordinates)

    def _add_columns(self, update: Array, coordinates: Array | None = None) -> Array | None:
        r"""Add :math:`UU^\top` for columns U in the joint basis, whose fresh rows follow those of B."""
        trace, discarded = float(np.vdot(update, update)), 0.0
        block, mass, frozen, columns = self.block, self.mass, self.frozen, self.columns
        while self._is_full(block, columns) and mass + trace > self._largest_mass:
            block, mass, frozen, columns = block + 1, 0.0, self.core, np.empty((self.rank, 0))
        rows, joined = self._rows[: len(update)], _beside(columns, update)
        if self._is_full(block, columns):
            joined, discarded = _shrunk(joined, self._size(block))
            unused = _unused(joined, len(frozen))
            if unused.size:
                reflector, inverse = _block_reflector(unused, len(rows) - unused.shape[1])
                scaled = np.dot(reflector, inverse)
                joined = self._deflated(joined, reflector, scaled)
                self._deflate(rows, reflector, scaled)
                if coordinates is not None:
                    coordinates = self._deflated(coordinates, reflector, scaled)
        self._keep(frozen, joined)
        self.mass, self.shrinkage = mass + trace, self.shrinkage + discarded
        if block > self.block:
            self.block = block
            self._reserve()
        if self._is_exact(block):
            self.frozen, self.columns = self.core, np.empty((self.rank, 0))
        self.updates += 1
        return coordinates

    def state_dict(self) -> dict[str, Any]:
        """Everything that `from_state` needs, as arrays and numbers."""
        held = {name: getattr(self, name).copy() for name in ("basis", "frozen", "columns")}
        numbers = {name: getattr(self, name) for name in ("block", "mass", "shrinkage")}
        return super().state_dict() | held | numbers

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild the sketch from `state_dict`."""
        sketch = super().from_state(state)
        sketch.block = as_integer("block", take(state, "block"), minimum=0)
        sketch._reserve()
        basis, frozen, columns = (as_finite(n, take(state, n)) for n in ("basis", "frozen", "columns"))
        length = sketch._rows.shape[1]
        rank, f = (array.shape[0] if array.ndim else -1 for array in (basis, frozen))
        fits = basis.shape == (rank, length) and frozen.shape == (f, f) and f <= rank <= sketch.rank_bound
        if not fits or columns.ndim != 2 or len(columns) != rank:
            raise ValueError(
                f"basis, frozen and columns must have shapes (r, {length}), (f, f) and (r, c) with "
                f"f <= r <= {sketch.rank_bound}, got {basis.shape}, {frozen.shape} and {columns.shape}"
            )
        sketch._rows[:rank] = basis
        sketch._keep(frozen.copy(), columns.copy())
        sketch.mass = as_non_negative("mass", take(state, "mass"))
        sketch.shrinkage = as_non_negative("shrinkage", take(state, "shrinkage"))
        return sketch

    @property
    def _largest_mass(self) -> float:
        """The trace up to which a block may shrink."""
        return 0.5 * self.budget * self.regularization * self.sketch_size

    def _size(self, block: int) -> int:
        return int(2**block * self.sketch_size)

    def _is_exact(self, block: int) -> bool:
        """Whether the blocks up to this one have together room for all Kd directions."""
        return 2 * self._size(block) - self.sketch_size >= self.n_directions

    def _is_full(self, block: int, columns: Array) -> bool:
        """Whether the columns of one more round would exceed the size of the block.

        As in `FrequentDirections`, rounds are counted and not the numerical rank.
        """
        return not self._is_exact(block) and columns.shape[1] + self.n_outcomes > self._size(block)

    @np.errstate(under="ignore")
    def _keep(self, frozen: Array, columns: Array) -> None:
        """Keep the frozen blocks and the active one, and their sum as the core."""
        core = gram(columns.T)
        core[: len(frozen), : len(frozen)] += frozen
        self.frozen, self.columns, self.core, self._factor = frozen, columns, core, None

    def _reserve(self) -> None:
        """Move the basis to where there is room for the blocks up to the active one."""
        K, most = self.n_outcomes, self.n_directions
        self.rank_bound = min(2 * self._size(self.block) - self.sketch_size, most)
        rows = np.empty((min(self.rank_bound + K, most), K * self.n_features))
        rows[: self.rank] = self.basis
        self._rows = rows


def _beside(columns: Array, update: Array) -> Array:
    """The columns, with zeros in the fresh directions, and beside them those of an update."""
    rank, count = columns.shape
    joined = np.zeros((len(update), count + update.shape[1]))
    joined[:rank, :count] = columns
    joined[:, count:] = update
    return joined


def _shrunk(columns: Array, size: int) -> tuple[Array, float]:
    r"""Columns of the shrunk :math:`RR^\top`, as many as the size, and the amount that is subtracted."""
    values, vectors = np.linalg.eigh(gram(columns))
    amount = max(float(values[-size - 1]), 0.0)
    values, vectors = values[-size:], vectors[:, -size:]
    # The share of each eigenvalue that stays; nothing does of those that are no larger than the amount.
    share = np.where(values > amount, 1.0 - amount / np.where(values > amount, values, 1.0), 0.0)
    return np.asarray(columns @ (vectors * np.sqrt(share))), amount


def _unused(columns: Array, frozen: int) -> Array:
    """Orthonormal directions of the basis that neither the frozen rows nor the columns need."""
    own, count = columns[frozen:], columns.shape[1]
    unused = np.zeros((len(columns), max(len(own) - count, 0)))
    if unused.size:
        unused[frozen:] = np.linalg.qr(own, mode="complete")[0][:, count:]
    return unused
