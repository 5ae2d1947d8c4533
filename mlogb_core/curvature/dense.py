r"""The full Kd x Kd accumulated Hessian (OFUL-MLogB), stored as its inverse.

The Hessian of a round has rank K, so that the inverse changes by one symmetric product of rank K. Bonus and
step are products with the inverse, and the projection takes some ten more of them by Lanczos' method. No
operation of order :math:`(Kd)^3` is needed. One triangle of :math:`H^{-1}` is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.blas import dsymm, dsymv, dsyrk
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from mlogb_core._linalg import length
from mlogb_core._validation import Array, as_matrix, take
from mlogb_core.curvature.base import Curvature, Step, check_hessian, inverse_change, step_weights
from mlogb_core.projection import project_by_lanczos

# Up to this many vectors are multiplied one at a time, reading one triangle, which is faster than all at
# once.
_FEW = 4
# Up to this many parameters all eigenvalues take a fraction of a second.
_ALL = 1000
# An inverse with this many entries is read in part where at most one feature in so many differs from 0.
_LARGE, _SPARSE = 1_000_000, 8


class DenseFrame(NamedTuple):
    r"""An action and its products with the inverse.

    Attributes
    ----------
    action : (d,) array
        x.
    solved : (K, Kd) array
        :math:`(I \otimes x)^\top H^{-1}`.
    block : (K, K) array
        :math:`A(x) = (I \otimes x)^\top H^{-1} (I \otimes x)`.
    updates : int
        `Curvature.updates` when the frame was made.
    """

    action: Array
    solved: Array
    block: Array
    updates: int


class DenseCurvature(Curvature[DenseFrame]):
    r"""The exact accumulated Hessian :math:`H = \lambda I + \sum_s \nabla^2\ell_s(W_{s+1})`.

    Parameters
    ----------
    n_outcomes, n_features, regularization
        As in `Curvature`.

    Attributes
    ----------
    inverse : (Kd, Kd) array
        The lower triangle of :math:`H^{-1}`, column-major; the upper triangle is 0.

    Notes
    -----
    Paper: section `ssec:logistic-bandit-setting`, which counts a full eigendecomposition for each use. This
    class has the same iterates at :math:`O(K (Kd)^2)` per round. It is the strongest OFUL known here, so
    that times of the sketch are compared with those of a good implementation.
    """

    def __init__(self, n_outcomes: int, n_features: int, regularization: float) -> None:
        super().__init__(n_outcomes, n_features, regularization)
        self.rank_bound = self.n_outcomes * self.n_features
        self.inverse: Array = np.zeros((self.rank_bound, self.rank_bound), order="F")
        np.fill_diagonal(self.inverse, 1.0 / self.regularization)

    @property
    def image_cost(self) -> int:
        r"""Multiplications that the image of one action takes, :math:`(Kd)^2`."""
        return self.rank_bound**2

    @np.errstate(under="ignore")
    def images(self, actions: Array) -> Array:
        r"""The (n, K, Kd) rows :math:`(I \otimes x)^\top H^{-1}` of (n, d) actions."""
        n, K, d = actions.shape[0], self.n_outcomes, self.n_features
        used = self.few_features(actions)
        if used is not None:
            return self._images_from_columns(actions, used)
        products = np.empty((n, K, K, d))
        blocks = self.inverse.reshape((d, K, d, K), order="F")
        for j in range(K):
            products[:, j, j] = _symmetric_products(blocks[:, j, :, j], actions)
            for i in range(j + 1, K):
                products[:, j, i] = actions @ blocks[:, i, :, j].T
                products[:, i, j] = actions @ blocks[:, i, :, j]
        return products.reshape(n, K, K * d)

    @np.errstate(under="ignore")
    def inverse_blocks(
        self, actions: Array, images: Array | None = None, squares: Array | None = None
    ) -> Array:
        r"""The (n, K, K) blocks :math:`A(x) = (I \otimes x)^\top H^{-1} (I \otimes x)`.

        `squares` is not used, since the blocks do not depend on the squared lengths of the actions.
        """
        n, K, d = actions.shape[0], self.n_outcomes, self.n_features
        solved = self.images(actions) if images is None else images
        blocks = (solved.reshape(n, K * K, d) @ actions[:, :, None]).reshape(n, K, K)
        return np.asarray((blocks + blocks.transpose(0, 2, 1)) / 2.0)

    @np.errstate(under="ignore")
    def frame(self, action: Array, image: Array | None = None) -> DenseFrame:
        """The products of the action with the inverse, from its image if that is known."""
        solved = self.images(action[None])[0] if image is None else image
        block = self.inverse_blocks(action[None], solved[None])[0]
        return DenseFrame(action, solved, block, self.updates)

    @np.errstate(under="ignore")
    def sample(self, normal: Array) -> Array:
        r"""A draw from :math:`\mathcal N(0, H^{-1})`, by the Cholesky factor of :math:`H^{-1}`.

        Parameters
        ----------
        normal : (K, d) array
            Independent standard normal numbers.

        Returns
        -------
        (K, d) array
        """
        factor = np.linalg.cholesky(self.inverse)  # It reads the lower triangle alone.
        return np.asarray((factor @ normal.reshape(-1)).reshape(normal.shape))

    @np.errstate(under="ignore")
    def newton_step(
        self,
        frame: DenseFrame,
        parameter: Array,
        residual: Array,
        factor: Array,
        step_size: float,
        norm_bound: float,
        coordinates: Array | None = None,
    ) -> Step:
        r"""Proximal Newton step and projection.

        Notes
        -----
        With :math:`X = I \otimes x`, :math:`\tilde H^{-1} = H^{-1} - \eta U U^\top` with
        :math:`U = H^{-1} X F (I + \eta F^\top A F)^{-1/2}` up to rotation.
        """
        self.check_order(frame)
        check_hessian(self.regularization, factor, frame.action)
        weights = step_weights(frame.block, residual, factor, step_size)
        point = parameter.reshape(-1) - step_size * (weights @ frame.solved)
        if length(point) <= norm_bound:
            return Step(point.reshape(parameter.shape), 0.0)
        change = inverse_change(frame.block, frame.solved, np.sqrt(step_size) * factor)

        def apply_inverse(vector: Array) -> Array:
            return np.asarray(dsymv(1.0, self.inverse, vector, lower=1) - (change @ vector) @ change)

        point, multiplier = project_by_lanczos(apply_inverse, point, norm_bound)
        return Step(point.reshape(parameter.shape), multiplier)

    @np.errstate(under="ignore")
    def add(self, frame: DenseFrame, factor: Array, coordinates: Array | None = None) -> None:
        r"""Add :math:`F F^\top \otimes x x^\top` to H: subtract a rank-K product from the inverse.

        Raises
        ------
        ArithmeticError
            If :math:`\lambda` is below the roundoff of the new Hessian.
        """
        self.check_order(frame)
        check_hessian(self.regularization, factor, frame.action)
        change = inverse_change(frame.block, frame.solved, factor)
        dsyrk(-1.0, change.T, beta=1.0, c=self.inverse, lower=1, overwrite_c=1)
        self.updates += 1

    @np.errstate(under="ignore")
    def dense(self) -> Array:
        """H as a (Kd, Kd) matrix."""
        matrix = np.linalg.inv(self._symmetric())
        return np.asarray((matrix + matrix.T) / 2.0)

    @np.errstate(under="ignore")
    def few_features(self, actions: Array) -> NDArray[np.intp] | None:
        """The features that differ from 0 in some action, or None if reading their columns saves no time."""
        if self.image_cost < _LARGE or np.count_nonzero(actions[0]) * _SPARSE > self.n_features:
            return None
        used = np.flatnonzero(actions.any(axis=0))
        return used if used.size * _SPARSE <= self.n_features else None

    @np.errstate(under="ignore")
    def spectrum(self) -> Array:
        r"""Eigenvalues of :math:`H - \lambda I`, decreasing, (Kd,)."""
        values = np.linalg.eigvalsh(self._symmetric())
        return np.asarray(np.maximum(1.0 / values - self.regularization, 0.0))

    @np.errstate(under="ignore")
    def largest_eigenvalue(self) -> float:
        r"""The largest eigenvalue of :math:`H - \lambda I`, by Lanczos' method if H is large.

        Notes
        -----
        Lanczos' method multiplies by H, which is done by solving with a Cholesky factor of
        :math:`H^{-1}`. The factorisation takes a quarter of the operations that all eigenvalues take, and
        does them in products of matrices, which are fast. In :math:`H^{-1}` itself the wanted eigenvalue is
        the smallest, where the others lie close together, so that the method would converge slowly.
        """
        size = self.rank_bound
        if size <= _ALL:
            return super().largest_eigenvalue()
        try:
            factor = cho_factor(self.inverse, lower=True, check_finite=False)
            hessian = LinearOperator(
                (size, size), lambda v: cho_solve(factor, v, check_finite=False), dtype=float
            )
            start = np.random.default_rng(0).standard_normal(size)  # always the same, as is the result
            (value,) = eigsh(hessian, k=1, which="LA", v0=start, return_eigenvectors=False)
        except (LinAlgError, ArpackNoConvergence):
            return super().largest_eigenvalue()
        return max(float(value) - self.regularization, 0.0)

    def state_dict(self) -> dict[str, Any]:
        """Everything that `from_state` needs, as arrays and numbers."""
        return super().state_dict() | {"inverse": self._symmetric()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild the curvature from `state_dict`."""
        curvature = super().from_state(state)
        size = curvature.rank_bound
        curvature.inverse[...] = np.tril(as_matrix("inverse", take(state, "inverse"), (size, size)))
        return curvature

    def _images_from_columns(self, actions: Array, used: NDArray[np.intp]) -> Array:
        """`images`, from the columns of the inverse for the features that are used."""
        K, d = self.n_outcomes, self.n_features
        places = (np.arange(K)[:, None] * d + used).reshape(-1)
        # A column of the symmetric matrix is one of the lower triangle and, transposed, one of its rows.
        columns = self.inverse.T[places] + self.inverse.T.take(places, axis=1).T
        columns[np.arange(places.size), places] *= 0.5  # The diagonal is in both.
        products = actions[:, used] @ columns.reshape(K, used.size, K * d)
        return np.asarray(products.transpose(1, 0, 2))

    def _symmetric(self) -> Array:
        lower = np.tril(self.inverse)
        return np.asarray(lower + np.tril(lower, -1).T)


def _symmetric_products(lower: Array, rows: Array) -> Array:
    """`rows` times the symmetric matrix that has the given lower triangle; the upper triangle is given as 0.

    BLAS' products with a symmetric matrix read half the matrix, but they first copy a matrix that is part of
    a larger one, which few rows are not worth.
    """
    if len(rows) > _FEW:
        return np.asarray(dsymm(1.0, lower, rows.T, lower=1).T)
    if lower.flags.f_contiguous:
        return np.array([dsymv(1.0, lower, row, lower=1) for row in rows])
    return np.asarray(rows @ lower + rows @ lower.T - rows * np.diag(lower))
