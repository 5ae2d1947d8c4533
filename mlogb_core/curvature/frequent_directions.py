r"""The Frequent Directions sketch of the accumulated Hessian (EOFD-MLogB).

At most m directions are kept. A round adds up to K directions. When there are more than m, the weakest are
dropped, and the largest dropped eigenvalue is subtracted from all eigenvalues that remain: the sketch
*shrinks*. The subtracted amounts add up to :math:`\rho`, and :math:`Z \preceq H \preceq Z + \rho I` for
the full Hessian H.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from mlogb_core._linalg import (
    add_to_diagonal,
    polar,
    smallest_eigenpairs,
    symmetric_product,
)
from mlogb_core._validation import Array, as_finite, as_integer, as_non_negative, take
from mlogb_core.curvature.base import check_regularization
from mlogb_core.curvature.low_rank import LowRankCurvature, LowRankFrame


class FrequentDirections(LowRankCurvature):
    r"""Sketch :math:`Z = \lambda I + B^\top C B`, Algorithm 1 of the paper.

    Parameters
    ----------
    n_outcomes, n_features, regularization
        As in `Curvature`.
    sketch_size : int
        m >= 1. With m >= Kd no direction is ever dropped and the sketch is exact.
    buffer : int
        b >= 1, the number of rounds between two shrinks. b = 1 is the paper's algorithm.

    Attributes
    ----------
    reserved : int
        Rows of the basis that the rounds so far have reserved, K per round: an upper bound of the rank. A
        shrink sets it to m.

    Raises
    ------
    ValueError
        If a size is below 1 or the regularization is not positive.

    Notes
    -----
    Paper: Algorithm 1 (`algo:adpfd`), which keeps the sketch in its eigenbasis by an SVD of a Kd x (m+K)
    matrix in every round. Only Z and :math:`\rho` enter the policy, and a shrink needs no more than the
    smallest eigenpairs of the small core. Therefore B may be any orthonormal basis and C a dense matrix, and
    the iterates are those of Algorithm 1. The basis is empty at first; the paper starts with an arbitrary
    one, which makes no difference as :math:`\Lambda_1 = 0`.

    With a buffer (not in the paper) the basis holds up to m + (b-1)K directions, and one shrink back to m
    serves b rounds. Each shrink still takes its amount from more than m directions, so that the bounds of
    :math:`\rho` keep their m. The rank of :math:`Z - \lambda I`, on which the radius depends, is at most
    m + (b-1)K.

    The round of a shrink is found by counting rounds and not by the rank. Whether an action in the span of
    the basis, up to roundoff, adds a direction may differ from one BLAS kernel to another, and a shrink in
    another round would change the iterates by far more than roundoff. So each round reserves K rows, and the
    sketch shrinks in the round in which the reserved rows exceed m + (b-1)K. Once m is reached this is every
    b-th round; if m + (b-1)K >= Kd, the sketch never shrinks. A shrink with at most m directions changes
    nothing, and one in which a direction of roundoff size exceeds m subtracts that roundoff.

    Examples
    --------
    >>> sketch = FrequentDirections(n_outcomes=1, n_features=3, regularization=1.0, sketch_size=1)
    >>> for x in np.array([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]]):
    ...     sketch.add(sketch.frame(x), factor=np.ones((1, 1)))
    >>> sketch.spectrum(), sketch.shrinkage
    (array([3.]), 1.0)
    """

    arguments = (*LowRankCurvature.arguments, "sketch_size", "buffer")

    def __init__(
        self, n_outcomes: int, n_features: int, regularization: float, sketch_size: int, buffer: int = 1
    ) -> None:
        super().__init__(n_outcomes, n_features, regularization)
        self.sketch_size = as_integer("sketch_size", sketch_size, minimum=1)
        self.buffer = as_integer("buffer", buffer, minimum=1)
        self.reserved = 0
        self._make_room()

    @np.errstate(under="ignore")
    def add(self, frame: LowRankFrame, factor: Array, coordinates: Array | None = None) -> Array | None:
        r"""Add :math:`F F^\top \otimes x x^\top` to the sketch; shrink it in its round.

        Raises
        ------
        ArithmeticError
            If the ridge is below the roundoff of the largest eigenvalue.
        """
        self.check_order(frame)
        core = self._grown(frame, factor)
        size = len(core)
        check_regularization(self.ridge, float(np.maximum.reduce(core.diagonal(), initial=0.0)))
        rows = self._joint_rows(frame)
        if size <= self.sketch_size or not self._is_due():
            self._end_round(core)
            return coordinates
        values, weakest = smallest_eigenpairs(core, size - self.sketch_size)
        dropped = self._dropped(values)
        if not dropped:
            self._end_round(core)
            return coordinates
        values, weakest, kept = values[:dropped], weakest[:, :dropped], size - dropped
        reflector, inverse = _block_reflector(weakest, kept)
        scaled = np.dot(reflector, inverse)
        core = _reflected(core, reflector, scaled, kept)
        discarded = max(float(values[-1]), 0.0)
        add_to_diagonal(core, -discarded)
        self._deflate(rows, reflector, scaled)
        if coordinates is not None:
            coordinates = self._deflated(coordinates, reflector, scaled)
        self._end_round(core, discarded)
        return coordinates

    def state_dict(self) -> dict[str, Any]:
        """Everything that `from_state` needs, as arrays and numbers."""
        held = {"basis": self.basis.copy(), "core": self.core.copy()}
        return super().state_dict() | held | {"shrinkage": self.shrinkage, "reserved": self.reserved}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild the sketch from `state_dict`."""
        sketch = super().from_state(state)
        basis, core = as_finite("basis", take(state, "basis")), as_finite("core", take(state, "core"))
        rank, length = basis.shape[0] if basis.ndim else -1, sketch.n_outcomes * sketch.n_features
        if basis.shape != (rank, length) or core.shape != (rank, rank) or rank > sketch.rank_bound:
            raise ValueError(
                f"basis and core must have shapes (r, {length}) and (r, r) with r <= {sketch.rank_bound}, "
                f"got {basis.shape} and {core.shape}"
            )
        reserved = as_integer("reserved", take(state, "reserved"), minimum=0)
        if not rank <= reserved <= sketch.rank_bound:
            raise ValueError(
                f"reserved must be in {rank}..{sketch.rank_bound}, from the rank of the sketch to the "
                f"largest one that it can have, got {reserved}"
            )
        sketch._rows[:rank] = basis
        sketch.core = core.copy()
        sketch.reserved = reserved
        sketch.shrinkage = as_non_negative("shrinkage", take(state, "shrinkage"))
        return sketch

    def _make_room(self) -> None:
        """Bound the rank, and store as many rows as a round can need."""
        K, most = self.n_outcomes, self.n_directions
        self.rank_bound = min(self.sketch_size + (self.buffer - 1) * K, most)
        self._rows = np.empty((min(self.rank_bound + K, most), K * self.n_features))

    def _is_due(self) -> bool:
        """Whether the rows of one more round would exceed those that are kept between rounds.

        A sketch with room for all Kd directions never shrinks.
        """
        full = self.rank_bound == self.n_directions
        return not full and self.reserved + self.n_outcomes > self.rank_bound

    def _dropped(self, values: Array) -> int:
        """How many of the weakest directions a shrink drops, from the ascending eigenvalues of the excess.

        All of them here. A sketch whose m grows may keep the strongest ones.
        """
        return len(values)

    def _end_round(self, core: Array, discarded: float = 0.0) -> None:
        """Keep the new core, add up what the shrink subtracted, and count the round."""
        due, size = self._is_due(), min(self.reserved + self.n_outcomes, self.rank_bound)
        self.core, self._factor = core, None
        self.reserved = self.sketch_size if due else size
        self.shrinkage += discarded
        self.updates += 1


def _block_reflector(removed: Array, kept: int) -> tuple[Array, Array]:
    r"""Y and :math:`(I + P)^{-1}` of the block reflector that maps k directions onto the last k coordinates.

    Let U have orthonormal columns, and let :math:`Q P` be the polar decomposition of its last k rows. Then
    :math:`I - Y (I + P)^{-1} Y^\top` with :math:`Y = U + (0, Q)` is orthogonal and maps the span of U onto
    that of the last k coordinates. The eigenvalues of :math:`I + P` lie between 1 and 2.

    Parameters
    ----------
    removed : (n, k) array
        U.
    kept : int
        n - k.

    Returns
    -------
    Y : (n, k) array
    inverse : (k, k) array
    """
    orthogonal, inverse = polar(removed[kept:])
    reflector = removed.copy()
    reflector[kept:] += orthogonal
    return reflector, inverse


def _reflected(core: Array, reflector: Array, scaled: Array, kept: int) -> Array:
    r"""The leading block of the quadratic form `core` in reflected coordinates.

    With :math:`M = Y(I + P)^{-1}`, which is `scaled`, the reflected form is
    :math:`C - M V^\top - V M^\top` for :math:`V = C Y - \tfrac12 M Y^\top C Y`: symmetric to the bit.
    """
    image = np.dot(core, reflector)
    image -= np.dot(scaled, 0.5 * np.dot(reflector.T, image))
    return np.asarray(core[:kept, :kept] - symmetric_product(scaled[:kept], image[:kept]))
