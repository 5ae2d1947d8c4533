r"""A multiple of the identity plus a low-rank part, :math:`Z = \lambda I + B^\top C B`.

B has r orthonormal rows of length Kd and C is a small dense positive semidefinite matrix; the
paper's :math:`V\Lambda V^\top` is the case of diagonal C. No eigenbasis is needed: bonus, step and
projection use only the products of B with :math:`I \otimes x` and small matrices of order r + K.
Subclasses differ in what `add` does.

A round reads B six times: for the images of the few actions that pruning leaves, for the fresh
directions, for their overlap with B, for the step, and twice for the shrink, which also writes it. A
projection adds two. Everything else is small.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError
from scipy.linalg.blas import dnrm2

from mlogb_core._linalg import (
    add_product,
    cholesky,
    cholesky_solve,
    invert_triangle,
    length,
    orthonormal_rows,
    orthonormalised,
    whiten,
)
from mlogb_core._validation import Array, as_integer, as_positive
from mlogb_core.curvature.base import Step, inverse_change, step_weights
from mlogb_core.projection import Resolvent, project_by_lanczos, project_onto_ball

# A direction whose part outside the sketch is below this share of the action's length is inside.
_RANK_TOLERANCE = 1e-13
# With at least this share of the squared length outside, one projection leaves an orthonormal frame.
_WELL_OUTSIDE = 0.1
_OVERLAP = 4.0 * float(np.finfo(np.float64).eps)
# From this rank on, steps of Lanczos' method take less time than Cholesky factors.
_LARGE = 150
_MILD = 100.0  # largest new Hessian over the ridge with which few steps suffice and digits are kept
# Squares of shorter actions lose digits to underflow.
_SMALLEST_SQUARE = 1e-250


class LowRankFrame(NamedTuple):
    r"""An action in an orthonormal basis: :math:`(I \otimes x)^\top = G B + T E`.

    Attributes
    ----------
    inside : (K, r) array
        G, the coordinates in the rows of B.
    fresh : (k, Kd) array
        E, orthonormal rows orthogonal to those of B, k <= K.
    outside : (K, k) array
        T, the coordinates in the rows of E.
    solved : (K, r) array
        :math:`G(\lambda I + C)^{-1}`.
    block : (K, K) array
        :math:`A(x) = G(\lambda I + C)^{-1}G^\top + TT^\top/\lambda`.
    """

    inside: Array
    fresh: Array
    outside: Array
    solved: Array
    block: Array

    @property
    def coordinates(self) -> Array:
        """G beside T: the coordinates in the joint basis, (K, r + k)."""
        return np.hstack((self.inside, self.outside))


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
        self._ridge: Array | None = None

    @property
    def rank(self) -> int:
        """Number of rows of the basis."""
        return len(self.core)

    @property
    def image_cost(self) -> int:
        """Multiplications that the image of one action takes, Kdr."""
        return self.n_outcomes * self.n_features * self.rank

    def spectrum(self) -> Array:
        r"""Eigenvalues of the low-rank part, decreasing, (r,): the paper's diagonal of :math:`\Lambda`."""
        return np.asarray(np.maximum(np.linalg.eigvalsh(self.core)[::-1], 0.0))

    def images(self, actions: Array) -> Array:
        r"""Coordinates :math:`G = (I \otimes x)^\top B^\top` of the actions in the basis.

        Parameters
        ----------
        actions : (n, d) array
            The actions.

        Returns
        -------
        (n, K, r) array
        """
        n, K, r = actions.shape[0], self.n_outcomes, self.rank
        products = actions @ self.basis.reshape(r * K, self.n_features).T
        return np.ascontiguousarray(products.reshape(n, r, K).transpose(0, 2, 1))

    def inverse_blocks(self, actions: Array, images: Array | None = None) -> Array:
        r"""The K x K matrices A(x) of many actions at once.

        .. math:: A(x) = (I \otimes x)^\top Z^{-1} (I \otimes x)
                  = \tfrac1\lambda\bigl(\|x\|^2 I - G G^\top\bigr)
                  + G (\lambda I + C)^{-1} G^\top,
                  \qquad G = (I \otimes x)^\top B^\top

        Parameters
        ----------
        actions : (n, d) array
            The actions.
        images : (n, K, r) array, optional
            Their images, if they are known.

        Returns
        -------
        (n, K, K) array

        Notes
        -----
        Paper: `eq:fd-oful-mlogb-efficient-reward-A`, which is this with diagonal C. Both norms of
        the bonus are read off A(x): :math:`\|v \otimes x\|_{Z^{-1}}^2 = v^\top A(x) v`.
        """
        n, K = actions.shape[0], self.n_outcomes
        inside = self.images(actions) if images is None else images
        blocks = inside @ -inside.transpose(0, 2, 1)
        blocks.reshape(n, K * K)[:, :: K + 1] += np.einsum("nd,nd->n", actions, actions)[:, None]
        blocks /= self.regularization
        if self.rank:
            whitened = whiten(self._ridge_factor(), inside.reshape(n * K, self.rank)).reshape(inside.shape)
            blocks += whitened @ whitened.transpose(0, 2, 1)
        return np.asarray(blocks)

    def frame(self, action: Array, image: Array | None = None) -> LowRankFrame:
        r"""Coordinates of :math:`I \otimes x` in B and in fresh directions orthogonal to it.

        Parameters
        ----------
        action : (d,) array
            x.
        image : (K, r) array, optional
            Its image, if it is known.

        Returns
        -------
        LowRankFrame
        """
        inside = self.images(action[None])[0] if image is None else image
        inside, fresh, outside = self._split(action, inside)
        solved = cholesky_solve(self._ridge_factor(), inside) if self.rank else inside
        block = solved @ inside.T + (outside @ outside.T) / self.regularization
        return LowRankFrame(inside, fresh, outside, solved, (block + block.T) / 2.0)

    def newton_step(
        self,
        frame: LowRankFrame,
        parameter: Array,
        residual: Array,
        factor: Array,
        step_size: float,
        norm_bound: float,
    ) -> Step:
        r"""Proximal Newton step and projection inside the span of B and :math:`I \otimes x`.

        On the orthogonal complement of that span :math:`\tilde Z` is :math:`\lambda I`, so all of
        it enters as one more coordinate: the length of the parameter's part there.

        Notes
        -----
        Paper: `eq:oful-mlogb-W-gradient`, `lem:fd-oful-mlogb-efficient-W-update`. The paper takes
        an SVD of the Kd x (m+K) matrix first. Here the step needs a K x K solve, and the
        projection, when there is one, a Cholesky factor of order r + k for each value of the
        multiplier, or in a large and well-conditioned sketch Lanczos' method with the factor at hand.
        """
        weights = step_weights(frame.block, residual, factor, step_size)
        direction = np.concatenate((weights @ frame.solved, weights @ frame.outside / self.regularization))
        direction *= -step_size
        point = self._expand(frame, direction)
        point += parameter.reshape(-1)
        if length(point) <= norm_bound:
            return Step(point.reshape(parameter.shape), 0.0)

        inside = np.concatenate((self.basis @ point, frame.fresh @ point))
        outside = np.sqrt(max(float(point @ point - inside @ inside), 0.0))
        local, scaled = np.append(inside, outside), np.sqrt(step_size) * factor
        if self._suits_lanczos(frame, scaled):
            projected, multiplier = project_by_lanczos(self._inverse(frame, scaled), local, norm_bound)
        else:
            core = self._grown(frame, scaled)
            image = np.append(self._shifted(core, 0.0) @ inside, self.regularization * outside)
            projected, multiplier = project_onto_ball(
                lambda nu: self._resolvent(core, nu), local, image, norm_bound
            )
        scale = self.regularization / (self.regularization + multiplier)
        point = scale * point + self._expand(frame, projected[:-1] - scale * inside)
        return Step(point.reshape(parameter.shape), multiplier)

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

    def _split(self, action: Array, inside: Array) -> tuple[Array, Array, Array]:
        """G, E and T with the rows of E orthonormal and orthogonal to those of B, to roundoff.

        Far from the span of B the lengths outside follow from those inside, and one projection is
        enough: its overlap with B is measured, and removed if it exceeds roundoff. Near the span
        the residual is orthonormalised by a pivoted QR factorisation without what is left of
        directions that lie inside (all of them for x = 0).
        """
        square = float(action @ action)
        triangle = self._triangle_outside(square, inside)
        if triangle is None:
            return self._split_carefully(action, inside)
        inverse = invert_triangle(triangle)
        fresh = (-(inverse @ inside)) @ self.basis
        fresh += (inverse[:, :, None] * action).reshape(fresh.shape)
        return self._without_overlap(inside, fresh, triangle)

    def _triangle_outside(self, square: float, inside: Array) -> Array | None:
        r"""T with :math:`TT^\top = \|x\|^2 I - GG^\top`, or None where that difference cancels."""
        if square < _SMALLEST_SQUARE:
            return None
        gram = inside @ -inside.T
        gram.flat[:: self.n_outcomes + 1] += square
        try:
            triangle = cholesky(gram)
        except LinAlgError:
            return None
        return triangle if triangle.diagonal().min() ** 2 > _WELL_OUTSIDE * square else None

    def _split_carefully(self, action: Array, inside: Array) -> tuple[Array, Array, Array]:
        residual = np.kron(np.eye(self.n_outcomes), action) - inside @ self.basis
        threshold = _RANK_TOLERANCE * float(dnrm2(action))
        first, outside = orthonormal_rows(residual, threshold)
        overlap = first @ self.basis.T
        if np.abs(overlap).max(initial=0.0) <= _OVERLAP:
            return inside, first, outside
        fresh, correction = orthonormal_rows(first - overlap @ self.basis, 0.5)
        return inside + outside @ overlap, fresh, outside @ correction

    def _without_overlap(self, inside: Array, fresh: Array, outside: Array) -> tuple[Array, Array, Array]:
        """Take the overlap with B out of E, and what the same error of B did to the lengths of E.

        Left in, that error would come back amplified in the next round that projects once.
        """
        overlap = fresh @ self.basis.T
        if np.abs(overlap).max(initial=0.0) <= _OVERLAP:
            return inside, fresh, outside
        inside = inside + outside @ overlap
        return inside, *orthonormalised(fresh - overlap @ self.basis, outside)

    def _grown(self, frame: LowRankFrame, factor: Array) -> Array:
        """Core in the joint basis after adding (F' coordinates)' (F' coordinates)."""
        update = np.concatenate((factor.T @ frame.inside, factor.T @ frame.outside), axis=1)
        core = np.zeros((update.shape[1], update.shape[1]))
        core[: self.rank, : self.rank] = self.core
        add_product(core, update.T, update)
        return core

    def _ridge_factor(self) -> Array:
        r"""Cholesky factor of :math:`\lambda I + C`, made once a round."""
        if self._ridge is None:
            self._ridge = cholesky(self._shifted(self.core, 0.0))
        return self._ridge

    def _shifted(self, core: Array, multiplier: float) -> Array:
        shifted = core.copy()
        shifted.flat[:: core.shape[0] + 1] += self.regularization + multiplier
        return shifted

    def _suits_lanczos(self, frame: LowRankFrame, factor: Array) -> bool:
        """Whether some Lanczos steps take less time than some Cholesky factors, by size and condition."""
        if self.rank < _LARGE or float(self.core.diagonal().max()) > self.regularization:
            return False
        first = frame.coordinates[0]  # as long as the action
        return float(first @ first) * float(np.vdot(factor, factor)) <= _MILD * self.regularization

    def _inverse(self, frame: LowRankFrame, factor: Array) -> Callable[[Array], Array]:
        """Inverse of Z with a Hessian added, on (coordinates in the joint basis, length outside it)."""
        solved = np.concatenate((frame.solved, frame.outside / self.regularization), axis=1)
        change, ridge = inverse_change(frame.block, solved, factor), self._ridge_factor()

        def apply(vector: Array) -> Array:
            solution = vector / self.regularization
            solution[: self.rank] = cholesky_solve(ridge, vector[None, : self.rank])[0]
            solution[:-1] -= (change @ vector[:-1]) @ change
            return solution

        return apply

    def _resolvent(self, core: Array, multiplier: float) -> Resolvent:
        """Inverse of Z-tilde + nu I on (coordinates in the joint basis, length outside it)."""
        factor = cholesky(self._shifted(core, multiplier))
        ridge = self.regularization + multiplier

        def solve(vector: Array) -> Array:
            solution = vector / ridge
            solution[:-1] = cholesky_solve(factor, vector[None, :-1])[0]
            return solution

        return solve

    def _expand(self, frame: LowRankFrame, coordinates: Array) -> Array:
        """Vector of length Kd with the given coordinates in the joint basis."""
        r = self.rank
        return np.asarray(coordinates[:r] @ self.basis + coordinates[r:] @ frame.fresh)
