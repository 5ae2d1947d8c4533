r"""A multiple of the identity plus a low-rank part, :math:`Z = \lambda I + B^\top C B`.

B has r orthonormal rows of length Kd and C is a small dense positive semidefinite matrix; the
paper's :math:`V\Lambda V^\top` is the case of diagonal C. No eigenbasis is needed: bonus, step and
projection use only the products of B with :math:`I \otimes x` and small matrices of order r + K.
Subclasses differ in what `add` does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, qr, solve_triangular

from mlogb_core._validation import Array, as_integer, as_positive
from mlogb_core.projection import Resolvent, project_onto_ball

# A direction whose part outside the sketch is below this share of the action's length is inside.
_RANK_TOLERANCE = 1e-13


class LowRankFrame(NamedTuple):
    r"""An action in an orthonormal basis: :math:`I \otimes x = B^\top G + E^\top T`.

    Attributes
    ----------
    inside : (r, K) array
        G, the coordinates in the rows of B.
    fresh : (k, Kd) array
        E, orthonormal rows orthogonal to those of B, k <= K.
    outside : (k, K) array
        T, the coordinates in the rows of E.
    """

    inside: Array
    fresh: Array
    outside: Array

    @property
    def coordinates(self) -> Array:
        """G above T: the coordinates in the joint basis, (r + k, K)."""
        return np.vstack((self.inside, self.outside))


class LowRankCurvature:
    r"""Shared part of the curvatures of the form :math:`Z = \lambda I + B^\top C B`.

    Parameters
    ----------
    n_outcomes, n_features : int
        K >= 1 and d >= 1.
    regularization : float
        :math:`\lambda > 0`.

    Attributes
    ----------
    basis : (r, Kd) array
        B, orthonormal rows. The rank r starts at 0.
    core : (r, r) array
        C, symmetric positive semidefinite.
    shrinkage : float
        :math:`\rho_{1:t}`, the accumulated sketching error.
    """

    def __init__(self, n_outcomes: int, n_features: int, regularization: float) -> None:
        self.n_outcomes = as_integer("n_outcomes", n_outcomes, minimum=1)
        self.n_features = as_integer("n_features", n_features, minimum=1)
        self.regularization = as_positive("regularization", regularization)
        self.basis: Array = np.empty((0, self.n_outcomes * self.n_features))
        self.core: Array = np.empty((0, 0))
        self.shrinkage = 0.0
        self.rank_bound = 0

    @property
    def rank(self) -> int:
        """Number of rows of the basis."""
        return len(self.basis)

    def spectrum(self) -> Array:
        r"""Eigenvalues of the low-rank part, decreasing, (r,): the paper's diagonal of :math:`\Lambda`."""
        return np.asarray(np.maximum(np.linalg.eigvalsh(self.core)[::-1], 0.0))

    def inverse_blocks(self, actions: Array) -> Array:
        r"""The K x K matrices A(x) of many actions at once.

        .. math:: A(x) = (I \otimes x)^\top Z^{-1} (I \otimes x)
                  = \tfrac1\lambda\bigl(\|x\|^2 I - G^\top G\bigr)
                  + G^\top (\lambda I + C)^{-1} G,
                  \qquad G = B (I \otimes x)

        Parameters
        ----------
        actions : (n, d) array
            The actions.

        Returns
        -------
        (n, K, K) array

        Notes
        -----
        Paper: `eq:fd-oful-mlogb-efficient-reward-A`, which is this with diagonal C. Both norms of
        the bonus are read off A(x): :math:`\|v \otimes x\|_{Z^{-1}}^2 = v^\top A(x) v`.
        """
        n, K = actions.shape[0], self.n_outcomes
        squares = np.einsum("nd,nd->n", actions, actions)
        blocks = squares[:, None, None] * np.eye(K)
        if self.rank == 0:
            return np.asarray(blocks / self.regularization)
        inside = self.basis.reshape(self.rank * K, self.n_features) @ actions.T
        inside = inside.reshape(self.rank, K * n)
        ridge = np.linalg.cholesky(self._shifted(self.core, 0.0))
        whitened = solve_triangular(ridge, inside, lower=True, check_finite=False)
        inside, whitened = (a.reshape(self.rank, K, n).transpose(2, 1, 0) for a in (inside, whitened))
        blocks -= inside @ inside.transpose(0, 2, 1)
        return np.asarray(blocks / self.regularization + whitened @ whitened.transpose(0, 2, 1))

    def frame(self, action: Array) -> LowRankFrame:
        r"""Coordinates of :math:`I \otimes x` in B and in fresh directions orthogonal to it.

        The residual is orthogonalised twice: once is not enough when the action lies almost in
        the span of the sketch. Directions below a relative tolerance are dropped, so an action in
        the span (or x = 0) brings none.
        """
        K, d = self.n_outcomes, self.n_features
        inside = self.basis.reshape(self.rank, K, d) @ action
        residual = np.kron(np.eye(K), action) - inside.T @ self.basis
        threshold = _RANK_TOLERANCE * float(np.linalg.norm(action))
        first, coordinates = _orthonormal_rows(residual, threshold)
        overlap = first @ self.basis.T
        fresh, correction = _orthonormal_rows(first - overlap @ self.basis, 0.5)
        return LowRankFrame(inside + overlap.T @ coordinates, fresh, correction @ coordinates)

    def newton_step(
        self,
        frame: LowRankFrame,
        parameter: Array,
        residual: Array,
        factor: Array,
        step_size: float,
        norm_bound: float,
    ) -> Array:
        r"""Proximal Newton step and projection inside the span of B and :math:`I \otimes x`.

        On the orthogonal complement of that span :math:`\tilde Z` is :math:`\lambda I`, so all of
        it enters as one more coordinate: the length of the parameter's part there.

        Notes
        -----
        Paper: `eq:oful-mlogb-W-gradient`, `lem:fd-oful-mlogb-efficient-W-update`. The paper takes
        an SVD of the Kd x (m+K) matrix first; here one matrix of order r + k is factored.
        """
        core = self._grown(frame, np.sqrt(step_size) * factor)
        flat = parameter.reshape(-1)
        solve = self._resolvent(core, 0.0)
        step = solve(np.append(frame.coordinates @ residual, 0.0))[:-1]
        point = flat - step_size * self._expand(frame, step)
        if np.linalg.norm(point) <= norm_bound:
            return point.reshape(parameter.shape)

        inside = np.concatenate((self.basis @ point, frame.fresh @ point))
        complement = point - self._expand(frame, inside)
        outside = float(np.linalg.norm(complement))
        local = np.append(inside, outside)
        image = np.append(self._shifted(core, 0.0) @ inside, self.regularization * outside)
        projected, _ = project_onto_ball(lambda nu: self._resolvent(core, nu), local, image, norm_bound)
        scale = projected[-1] / outside if outside > 0.0 else 0.0
        return (scale * complement + self._expand(frame, projected[:-1])).reshape(parameter.shape)

    def quadratic(self, direction: Array) -> float:
        r""":math:`\|\Delta\|_Z^2 = \lambda\|\Delta\|^2 + (B\Delta)^\top C (B\Delta)`."""
        flat = direction.reshape(-1)
        inside = self.basis @ flat
        return float(self.regularization * (flat @ flat) + inside @ self.core @ inside)

    def dense(self) -> Array:
        """Z as a (Kd, Kd) matrix, for checks and small problems."""
        identity = np.eye(self.n_outcomes * self.n_features)
        return np.asarray(self.regularization * identity + self.basis.T @ self.core @ self.basis)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on from here, as arrays and numbers."""
        return {
            "n_outcomes": self.n_outcomes,
            "n_features": self.n_features,
            "regularization": self.regularization,
            "basis": self.basis.copy(),
            "core": self.core.copy(),
            "shrinkage": self.shrinkage,
        }

    def _grown(self, frame: LowRankFrame, factor: Array) -> Array:
        """Core in the joint basis after adding (coordinates @ factor) times its transpose."""
        update = frame.coordinates @ factor
        core = update @ update.T
        core[: self.rank, : self.rank] += self.core
        return np.asarray(core)

    def _shifted(self, core: Array, multiplier: float) -> Array:
        shifted = core.copy()
        shifted.flat[:: core.shape[0] + 1] += self.regularization + multiplier
        return shifted

    def _resolvent(self, core: Array, multiplier: float) -> Resolvent:
        """Inverse of Z-tilde + nu I on (coordinates in the joint basis, length outside it)."""
        shifted = self._shifted(core, multiplier)
        factors = cho_factor(shifted, lower=True, overwrite_a=True, check_finite=False)
        ridge = self.regularization + multiplier

        def solve(vector: Array) -> Array:
            inside = cho_solve(factors, vector[:-1], check_finite=False)
            return np.append(inside, vector[-1] / ridge)

        return solve

    def _expand(self, frame: LowRankFrame, coordinates: Array) -> Array:
        """Vector of length Kd with the given coordinates in the joint basis."""
        r = self.rank
        return np.asarray(coordinates[:r] @ self.basis + coordinates[r:] @ frame.fresh)


def _orthonormal_rows(rows: Array, threshold: float) -> tuple[Array, Array]:
    """Orthonormal rows Q and coordinates R with rows.T = Q.T @ R, without directions below threshold."""
    factor, triangle, order = qr(rows.T, mode="economic", pivoting=True, check_finite=False)
    kept = int(np.count_nonzero(np.abs(np.diag(triangle)) > threshold))
    coordinates = np.zeros((kept, rows.shape[0]))
    coordinates[:, order] = triangle[:kept]
    return np.ascontiguousarray(factor[:, :kept].T), coordinates
