r"""The diagonal of the accumulated Hessian: Kd numbers, and all of a round in O(Kd).

With a diagonal Z the K x K blocks A(x) are diagonal, and a draw is one division. The matrix of a step is Z
plus one of rank K, so that each value of the multiplier in a projection takes O(Kd) and a K x K solve.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from mlogb_core._linalg import add_to_diagonal, length, solve
from mlogb_core._validation import Array, as_matrix, take
from mlogb_core.curvature.base import Curvature, Step, check_hessian, step_weights
from mlogb_core.projection import Resolvent, project_onto_ball


class DiagonalFrame(NamedTuple):
    r"""An action and its block.

    Attributes
    ----------
    action : (d,) array
        x.
    block : (K, K) array
        :math:`A(x)`, a diagonal matrix.
    updates : int
        `Curvature.updates` when the frame was made.
    """

    action: Array
    block: Array
    updates: int


class DiagonalCurvature(Curvature[DiagonalFrame]):
    r"""The diagonal of the full Hessian, :math:`Z = \operatorname{diag}(H)`.

    Parameters
    ----------
    n_outcomes, n_features, regularization
        As in `Curvature`.

    Attributes
    ----------
    diagonal : (K, d) array
        The diagonal of Z, one row for each outcome.

    Notes
    -----
    Not in the paper. Z has the trace of H and bounds it on neither side. Unlike a sketch it depends on the
    coordinates: it is close to H where features and outcomes are nearly uncorrelated, and after a rotation it
    may be far from it. `TheoremRadius` is not a confidence radius for it.
    """

    def __init__(self, n_outcomes: int, n_features: int, regularization: float) -> None:
        super().__init__(n_outcomes, n_features, regularization)
        self.diagonal = np.full((self.n_outcomes, self.n_features), self.regularization)
        self.rank_bound = self.n_outcomes * self.n_features

    @property
    def image_cost(self) -> int:
        """Multiplications that the image of one action takes, Kd."""
        return self.n_outcomes * self.n_features

    @np.errstate(under="ignore")
    def images(self, actions: Array) -> Array:
        r"""The diagonals :math:`\sum_j x_j^2/z_{kj}` of A(x), as an (n, K, 1) array."""
        return np.asarray((np.square(actions) @ (1.0 / self.diagonal).T)[:, :, None])

    @np.errstate(under="ignore")
    def inverse_blocks(
        self, actions: Array, images: Array | None = None, squares: Array | None = None
    ) -> Array:
        """The (n, K, K) blocks A(x), which are diagonal; `squares` is not used."""
        inside = self.images(actions) if images is None else images
        return diagonal_matrices(inside[:, :, 0])

    @np.errstate(under="ignore")
    def sample(self, normal: Array) -> Array:
        r"""A draw from :math:`\mathcal N(0, Z^{-1})`: :math:`Z^{-1/2}\xi`."""
        return np.asarray(normal / np.sqrt(self.diagonal))

    @np.errstate(under="ignore")
    def frame(self, action: Array, image: Array | None = None) -> DiagonalFrame:
        """The action and its block, from its image if that is known."""
        images = None if image is None else image[None]
        return DiagonalFrame(action, self.inverse_blocks(action[None], images)[0], self.updates)

    @np.errstate(under="ignore")
    def newton_step(
        self,
        frame: DiagonalFrame,
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
        With :math:`X = I \otimes x` and :math:`J = \eta\nabla\sigma`, Woodbury's identity gives

        .. math:: (\tilde Z + \nu I)^{-1} = D - D X (I + J A_\nu)^{-1} J X^\top D, \qquad
                  D = (Z + \nu I)^{-1}, \quad A_\nu = X^\top D X,

        where :math:`A_\nu` is diagonal.
        """
        self.check_order(frame)
        check_hessian(self.ridge, factor, frame.action)
        action, diagonal = frame.action, self.diagonal
        weights = step_weights(frame.block, residual, factor, step_size)
        point = parameter - step_size * weights[:, None] * (action / diagonal)
        if length(point.reshape(-1)) <= norm_bound:
            return Step(point, 0.0)
        jacobian = step_size * (factor @ factor.T)

        def resolvent_at(multiplier: float) -> Resolvent:
            solved = action / (diagonal + multiplier)
            matrix = jacobian * (solved @ action)
            add_to_diagonal(matrix, 1.0)

            def apply(vector: Array) -> Array:
                rows = vector.reshape(parameter.shape) / (diagonal + multiplier)
                rows -= solve(matrix, jacobian @ (rows @ action))[:, None] * solved
                return np.asarray(rows.reshape(-1))

            return apply

        image = diagonal * point + np.multiply.outer(jacobian @ (point @ action), action)
        projected, multiplier = project_onto_ball(
            resolvent_at, point.reshape(-1), image.reshape(-1), norm_bound, self._start(point, norm_bound)
        )
        return Step(projected.reshape(parameter.shape), multiplier)

    @np.errstate(under="ignore")
    def add(self, frame: DiagonalFrame, factor: Array, coordinates: Array | None = None) -> None:
        r"""Add the diagonal of :math:`F F^\top \otimes x x^\top` to Z.

        Raises
        ------
        ArithmeticError
            If :math:`\lambda` is below the roundoff of the new Hessian.
        """
        self.check_order(frame)
        check_hessian(self.ridge, factor, frame.action)
        self._add_diagonal(np.square(factor).sum(axis=1), frame.action)

    @np.errstate(under="ignore")
    def dense(self) -> Array:
        """Z as a (Kd, Kd) matrix."""
        return np.diag(np.broadcast_to(self.diagonal, (self.n_outcomes, self.n_features)).reshape(-1))

    def spectrum(self) -> Array:
        r"""Eigenvalues of :math:`Z - \lambda I`, decreasing, (Kd,)."""
        return np.asarray(np.sort(self.diagonal - self.regularization, axis=None)[::-1])

    def state_dict(self) -> dict[str, Any]:
        """Everything that `from_state` needs, as arrays and numbers."""
        return super().state_dict() | {"diagonal": self.diagonal.copy()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild the curvature from `state_dict`."""
        curvature = super().from_state(state)
        diagonal = as_matrix("diagonal", take(state, "diagonal"), curvature.diagonal.shape)
        if not (diagonal > 0.0).all():
            raise ValueError(f"diagonal must be positive, got {diagonal.min()}")
        curvature.diagonal = diagonal.copy()
        return curvature

    def _add_diagonal(self, entries: Array, action: Array) -> None:
        r"""Add the diagonal of :math:`J \otimes x x^\top`, given that of J, and count the round."""
        self.diagonal += np.multiply.outer(entries, np.square(action))
        self.updates += 1

    def _start(self, point: Array, norm_bound: float) -> float:
        """A lower bound of the multiplier, as in `LowRankCurvature`: a Newton step with the slope of Z."""
        norm = length(point.reshape(-1))
        return (norm / norm_bound - 1.0) * norm**2 / float((np.square(point) / self.diagonal).sum())


def diagonal_matrices(entries: Array) -> Array:
    """The (n, K, K) diagonal matrices of (n, K) entries, which may be infinite."""
    n, K = entries.shape
    matrices = np.zeros((n, K, K))
    matrices.reshape(n, K * K)[:, :: K + 1] = entries
    return matrices
