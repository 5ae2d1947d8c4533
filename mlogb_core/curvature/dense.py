r"""The full Kd x Kd accumulated Hessian (OFUL-MLogB).

The matrix is stored and factored once a round by Cholesky's method; bonus and gradient step are
triangular solves with that factor, the step's own Hessian entering by a K x K Woodbury identity.
A projection factors :math:`\tilde H + \nu I` once for each of its few Newton steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from mlogb_core._validation import Array, as_integer, as_matrix, as_positive, take
from mlogb_core.projection import Resolvent, project_onto_ball


class DenseFrame(NamedTuple):
    r"""An action and what the inverse makes of it.

    Attributes
    ----------
    action : (d,) array
        x.
    solved : (Kd, K) array
        :math:`H^{-1}(I \otimes x)`.
    block : (K, K) array
        :math:`A(x) = (I \otimes x)^\top H^{-1} (I \otimes x)`.
    """

    action: Array
    solved: Array
    block: Array


class DenseCurvature:
    r"""The exact accumulated Hessian :math:`H = \lambda I + \sum_s \nabla^2\ell_s(W_{s+1})`.

    Parameters
    ----------
    n_outcomes, n_features : int
        K >= 1 and d >= 1.
    regularization : float
        :math:`\lambda > 0`.

    Notes
    -----
    Paper: section `ssec:logistic-bandit-setting`. The paper counts a full eigendecomposition for
    each use; one Cholesky factorisation a round gives the same iterates for about a twentieth of
    the work, so a comparison of times with this class is not one with a straw man.
    """

    def __init__(self, n_outcomes: int, n_features: int, regularization: float) -> None:
        self.n_outcomes = as_integer("n_outcomes", n_outcomes, minimum=1)
        self.n_features = as_integer("n_features", n_features, minimum=1)
        self.regularization = as_positive("regularization", regularization)
        self.rank_bound = self.n_outcomes * self.n_features
        self.shrinkage = 0.0
        self.matrix: Array = self.regularization * np.eye(self.n_outcomes * self.n_features)
        self._factor: Array | None = None

    def inverse_blocks(self, actions: Array) -> Array:
        r"""The (n, K, K) blocks :math:`A(x) = (I \otimes x)^\top H^{-1} (I \otimes x)`."""
        n, K, d = actions.shape[0], self.n_outcomes, self.n_features
        columns = np.zeros((K, d, n, K))
        for i in range(K):
            columns[i, :, :, i] = actions.T
        whitened = solve_triangular(
            self._cholesky(), columns.reshape(K * d, n * K), lower=True, check_finite=False
        )
        whitened = whitened.reshape(K * d, n, K).transpose(1, 2, 0)
        return np.asarray(whitened @ whitened.transpose(0, 2, 1))

    def frame(self, action: Array) -> DenseFrame:
        """What the inverse makes of the action."""
        K, d = self.n_outcomes, self.n_features
        solved = cho_solve((self._cholesky(), True), np.kron(np.eye(K), action[:, None]), check_finite=False)
        block = solved.T.reshape(K, K, d) @ action
        return DenseFrame(action, solved, (block + block.T) / 2.0)

    def newton_step(
        self,
        frame: DenseFrame,
        parameter: Array,
        residual: Array,
        factor: Array,
        step_size: float,
        norm_bound: float,
    ) -> Array:
        r"""Proximal Newton step and projection; see `Curvature.newton_step`.

        Notes
        -----
        Paper: `eq:oful-mlogb-W-gradient` and `eq:oful-mlogb-W-projection`. With
        :math:`X = I \otimes x`, :math:`\tilde H^{-1} X = H^{-1} X (I - \eta F (I + \eta F^\top A
        F)^{-1} F^\top A)`.
        """
        K = self.n_outcomes
        inner = np.eye(K) + step_size * factor.T @ frame.block @ factor
        reduced = factor.T @ (frame.block @ residual)
        weights = residual - step_size * factor @ np.linalg.solve(inner, reduced)
        point = parameter.reshape(-1) - step_size * (frame.solved @ weights)
        if np.linalg.norm(point) > norm_bound:
            matrix = self.matrix + step_size * self._update(frame, factor)
            point, _ = project_onto_ball(
                lambda nu: _dense_resolvent(matrix, nu), point, matrix @ point, norm_bound
            )
        return np.asarray(point.reshape(parameter.shape))

    def add(self, frame: DenseFrame, factor: Array) -> None:
        r"""Add :math:`F F^\top \otimes x x^\top` to the matrix."""
        self.matrix += self._update(frame, factor)
        self._factor = None

    def quadratic(self, direction: Array) -> float:
        r""":math:`\|\Delta\|_H^2` of a (K, d) direction."""
        flat = direction.reshape(-1)
        return float(flat @ (self.matrix @ flat))

    def dense(self) -> Array:
        """H as a (Kd, Kd) matrix."""
        return self.matrix.copy()

    def spectrum(self) -> Array:
        r"""Eigenvalues of :math:`H - \lambda I`, decreasing, (Kd,)."""
        return np.asarray(np.maximum(np.linalg.eigvalsh(self.matrix)[::-1] - self.regularization, 0.0))

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on from here, as arrays and numbers."""
        return {
            "n_outcomes": self.n_outcomes,
            "n_features": self.n_features,
            "regularization": self.regularization,
            "matrix": self.matrix.copy(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> DenseCurvature:
        """Rebuild the curvature from `state_dict`."""
        curvature = cls(*(take(state, k) for k in ("n_outcomes", "n_features", "regularization")))
        size = curvature.n_outcomes * curvature.n_features
        curvature.matrix = as_matrix("matrix", take(state, "matrix"), (size, size)).copy()
        return curvature

    def _cholesky(self) -> Array:
        if self._factor is None:
            self._factor = np.asarray(np.linalg.cholesky(self.matrix))
        return self._factor

    def _update(self, frame: DenseFrame, factor: Array) -> Array:
        return np.asarray(np.kron(factor @ factor.T, np.outer(frame.action, frame.action)))


def _dense_resolvent(matrix: Array, multiplier: float) -> Resolvent:
    shifted = matrix.copy()
    shifted.flat[:: matrix.shape[0] + 1] += multiplier
    factors = cho_factor(shifted, lower=True, overwrite_a=True, check_finite=False)

    def solve(vector: Array) -> Array:
        return np.asarray(cho_solve(factors, vector, check_finite=False))

    return solve
