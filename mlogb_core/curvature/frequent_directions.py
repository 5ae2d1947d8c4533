r"""The Frequent Directions sketch of the accumulated Hessian (EOFD-MLogB).

At most m directions are kept. A round brings up to K new ones; when there are more than m, the
weakest are dropped and the square of the strongest dropped singular value is subtracted from all
that remain. What was subtracted accumulates in :math:`\rho`, so that
:math:`Z \preceq H \preceq Z + \rho I` for the full Hessian H.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, eigh

from mlogb_core._validation import Array, as_finite, as_integer, as_non_negative, take
from mlogb_core.curvature.low_rank import LowRankCurvature, LowRankFrame


class FrequentDirections(LowRankCurvature):
    r"""Sketch :math:`Z = \lambda I + B^\top C B` of rank at most m, Algorithm 1 of the paper.

    Parameters
    ----------
    n_outcomes, n_features : int
        K >= 1 and d >= 1.
    regularization : float
        :math:`\lambda > 0`.
    sketch_size : int
        m >= 1. With m >= Kd nothing is ever dropped and the sketch is exact.

    Raises
    ------
    ValueError
        If a size is below 1 or the regularization is not positive.

    Notes
    -----
    The paper keeps the sketch in its eigenbasis by an SVD of a Kd x (m+K) matrix every round.
    Only Z and :math:`\rho` enter the algorithm, and the shrink needs no more than the bottom
    eigenpairs of the small core, so B stays any orthonormal basis and C a dense matrix. The
    iterates are those of Algorithm 1. The initial basis is empty instead of arbitrary: with
    :math:`\Lambda_1 = 0` it does not matter.

    Examples
    --------
    >>> sketch = FrequentDirections(n_outcomes=1, n_features=3, regularization=1.0, sketch_size=1)
    >>> for x in np.array([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]]):
    ...     sketch.add(sketch.frame(x), factor=np.ones((1, 1)))
    >>> sketch.spectrum(), sketch.shrinkage
    (array([3.]), 1.0)
    """

    def __init__(self, n_outcomes: int, n_features: int, regularization: float, sketch_size: int) -> None:
        super().__init__(n_outcomes, n_features, regularization)
        self.sketch_size = as_integer("sketch_size", sketch_size, minimum=1)
        self.rank_bound = min(self.sketch_size, self.n_outcomes * self.n_features)

    def add(self, frame: LowRankFrame, factor: Array) -> None:
        r"""Add :math:`F F^\top \otimes x x^\top` to the sketch and shrink it back to m directions."""
        core = self._grown(frame, factor)
        excess = core.shape[0] - self.sketch_size
        if excess <= 0:
            self.basis, self.core = np.vstack((self.basis, frame.fresh)), core
            return
        values, weakest = _weakest_directions(core, excess)
        discarded = max(float(values[-1]), 0.0)
        self.basis, self.core = _deflate(np.vstack((self.basis, frame.fresh)), core, weakest)
        self.core.flat[:: self.sketch_size + 1] -= discarded
        self.shrinkage += discarded

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on from here, as arrays and numbers."""
        return super().state_dict() | {"sketch_size": self.sketch_size}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> FrequentDirections:
        """Rebuild the sketch from `state_dict`."""
        sketch = cls(*(take(state, k) for k in ("n_outcomes", "n_features", "regularization", "sketch_size")))
        basis, core = as_finite("basis", take(state, "basis")), as_finite("core", take(state, "core"))
        rank, length = basis.shape[0] if basis.ndim else -1, sketch.n_outcomes * sketch.n_features
        if basis.shape != (rank, length) or core.shape != (rank, rank) or rank > sketch.sketch_size:
            raise ValueError(
                f"basis and core must have shapes (r, {length}) and (r, r) with r <= {sketch.sketch_size}, "
                f"got {basis.shape} and {core.shape}"
            )
        sketch.basis, sketch.core = basis.copy(), core.copy()
        sketch.shrinkage = as_non_negative("shrinkage", take(state, "shrinkage"))
        return sketch


def _weakest_directions(core: Array, count: int) -> tuple[Array, Array]:
    """Smallest eigenvalues, ascending, and their eigenvectors.

    LAPACK's driver for a few eigenpairs does not converge on some small cores with clustered
    eigenvalues (seen at K >= 9 with m < K); the one for all of them, divide and conquer, does.
    """
    try:
        values, vectors = eigh(core, subset_by_index=[0, count - 1], check_finite=False)
    except LinAlgError:
        values, vectors = eigh(core, driver="evd", check_finite=False)
    return values[:count], vectors[:, :count]


def _deflate(basis: Array, core: Array, removed: Array) -> tuple[Array, Array]:
    r"""Restrict a form to the orthogonal complement of k of its eigenvectors U.

    The block reflector :math:`I - Y (I + P)^{-1} Y^\top` with :math:`Y = U + (0, Q)` and the
    polar decomposition :math:`Q P` of the last k rows of U maps the span of U onto the last k
    coordinates; the others are what remains. It changes the basis by a rank-k update instead of
    a rotation of all its rows, and :math:`I + P` is as well conditioned as can be.
    """
    kept = core.shape[0] - removed.shape[1]
    left, singular, right = np.linalg.svd(removed[kept:])
    reflector = removed.copy()
    reflector[kept:] += left @ right
    inverse = (right.T / (1.0 + singular)) @ right

    basis = basis[:kept] - (reflector[:kept] @ inverse) @ (reflector.T @ basis)
    half = core - (reflector @ inverse) @ (reflector.T @ core)
    core = half[:kept, :kept] - (half[:kept] @ reflector) @ (inverse @ reflector[:kept].T)
    return basis, (core + core.T) / 2.0
