r"""A multiple of the identity plus a low-rank part, :math:`Z = \lambda I + B^\top C B`.

B has r orthonormal rows of length Kd and C is a small dense positive semidefinite matrix; the
paper's :math:`V\Lambda V^\top` is the case of diagonal C. No eigenbasis is needed: bonus, step and
projection use only the products of B with :math:`I \otimes x` and small matrices of order r + K.
Subclasses differ in what `add` does.

A round reads B for the images of the few actions that pruning leaves, for the fresh directions, for
their overlap with B, for the step, and twice for the shrink, which also writes it. A projection adds
two, one that follows another none: where the parameter is in B is then known. Everything else is small.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError
from scipy.linalg.blas import dnrm2

from mlogb_core import _thresholds
from mlogb_core._linalg import (
    add_to_diagonal,
    cholesky,
    cholesky_solve,
    gram,
    invert_triangle,
    length,
    orthonormal_rows,
    orthonormalised,
    products_with_themselves,
    row_products,
    whiten,
)
from mlogb_core._ownership import Owned
from mlogb_core._validation import Array, as_integer, as_positive, squared_lengths
from mlogb_core.curvature.base import Step, step_weights
from mlogb_core.projection import Resolvent, project_onto_ball

# A direction whose part outside the sketch is below this share of the action's length is inside.
_RANK_TOLERANCE = 1e-13
# With this many numbers in the basis, two products with it take longer than to keep track of the parameter.
_TRACKED = 200_000


class LowRankFrame(NamedTuple):
    r"""An action in an orthonormal basis: :math:`(I \otimes x)^\top = G B + T E`.

    Attributes
    ----------
    coordinates : (K, r + k) array
        G beside T: the coordinates in the joint basis.
    fresh : (k, Kd) array
        E, orthonormal rows orthogonal to those of B, k <= K.
    solved : (K, r + k) array
        :math:`(I \otimes x)^\top Z^{-1}` in the joint basis: :math:`G(\lambda I + C)^{-1}` beside
        :math:`T/\lambda`.
    block : (K, K) array
        :math:`A(x) = G(\lambda I + C)^{-1}G^\top + TT^\top/\lambda`.
    """

    coordinates: Array
    fresh: Array
    solved: Array
    block: Array

    @property
    def inside(self) -> Array:
        """G, the coordinates in the rows of B, (K, r)."""
        return self.coordinates[:, : self.coordinates.shape[1] - len(self.fresh)]

    @property
    def outside(self) -> Array:
        """T, the coordinates in the rows of E, (K, k)."""
        return self.coordinates[:, self.coordinates.shape[1] - len(self.fresh) :]


class Located(NamedTuple):
    """A parameter, told by its bytes, and its coordinates in orthonormal rows."""

    parameter: bytes
    coordinates: Array


class LowRankCurvature(Owned):
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
        # Rows of the basis, and behind them room for the fresh directions of a round.
        self._rows: Array = np.empty((self.n_outcomes, self.n_outcomes * self.n_features))
        self.core: Array = np.empty((0, 0))
        self.shrinkage = 0.0
        self.rank_bound = 0
        self._ridge: Array | None = None
        self._located: Located | None = None  # the parameter in the basis
        self._moved: tuple[LowRankFrame, Located] | None = None  # a projection, in its frame's joint basis

    @property
    def basis(self) -> Array:
        """B, (r, Kd): a view, made anew each time, since a copy of a view is not a view of the copy."""
        return self._rows[: len(self.core)]

    @property
    def rank(self) -> int:
        """Number of rows of the basis."""
        return len(self.core)

    @property
    def image_cost(self) -> int:
        """Multiplications that the image of one action takes, Kdr."""
        return self.n_outcomes * self.n_features * self.rank

    @np.errstate(under="ignore")
    def spectrum(self) -> Array:
        r"""Eigenvalues of the low-rank part, decreasing, (r,): the paper's diagonal of :math:`\Lambda`."""
        return np.asarray(np.maximum(np.linalg.eigvalsh(self.core)[::-1], 0.0))

    @np.errstate(under="ignore")
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
        products = row_products(actions, self.basis.reshape(r * K, self.n_features).T)
        return (
            products[:, None]
            if K == 1
            else np.ascontiguousarray(products.reshape(n, r, K).transpose(0, 2, 1))
        )

    @np.errstate(under="ignore")
    def inverse_blocks(
        self, actions: Array, images: Array | None = None, squares: Array | None = None
    ) -> Array:
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
        squares : (n,) array, optional
            Their squared lengths, if they are known.

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
        blocks = -products_with_themselves(inside)
        squares = squared_lengths(actions) if squares is None else squares
        blocks.reshape(n, K * K)[:, :: K + 1] += squares[:, None]
        blocks /= self.regularization
        if self.rank:
            whitened = whiten(self._ridge_factor(), inside.reshape(n * K, self.rank))
            blocks += products_with_themselves(whitened.reshape(inside.shape))
        return blocks

    @np.errstate(under="ignore")
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
        coordinates = np.concatenate((inside, outside), axis=1)
        solved = coordinates / self.regularization
        block = np.dot(outside, outside.T)
        block /= self.regularization
        if self.rank:
            whitened = whiten(self._ridge_factor(), inside)
            solved[:, : self.rank] = whiten(self._ridge_factor(), whitened, transposed=True)
            block += np.dot(whitened, whitened.T)
        return LowRankFrame(coordinates, fresh, solved, block)

    @np.errstate(under="ignore")
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
        multiplier, of which one or two suffice.
        """
        weights = step_weights(frame.block, residual, factor, step_size)
        weights *= -step_size
        rows, change = self._joint_rows(frame), np.dot(weights, frame.solved)
        point, inside = parameter.reshape(-1), self._inside(frame, parameter)
        if inside is None:
            point = point + np.dot(change, rows)
            if length(point) <= norm_bound:
                return Step(point.reshape(parameter.shape), 0.0)
            inside = np.dot(rows, point)
            local = _with_length_outside(inside, point)
        else:
            local = _with_length_outside(inside, point)
            local[:-1] += change
            if length(local) <= norm_bound:
                return self._step_to(point + np.dot(change, rows), 0.0, frame, local[:-1])

        matrix = self._joint(frame, math.sqrt(step_size) * factor)
        projected, multiplier = project_onto_ball(
            lambda nu: _resolvent(matrix, nu),
            local,
            np.dot(matrix, local),
            norm_bound,
            self._start(local, norm_bound),
        )
        scale = self.regularization / (self.regularization + multiplier)
        new = np.dot(projected[:-1] - scale * inside, rows)
        new += scale * point
        return self._step_to(new, multiplier, frame, projected[:-1])

    @np.errstate(under="ignore")
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

    def _step_to(self, point: Array, multiplier: float, frame: LowRankFrame, coordinates: Array) -> Step:
        """The step to a point of known coordinates in the joint basis, which `add` needs to keep track."""
        if self._rows.size >= _TRACKED:
            self._moved = frame, Located(point.tobytes(), coordinates)
        return Step(point.reshape(self.n_outcomes, self.n_features), multiplier)

    def _inside(self, frame: LowRankFrame, parameter: Array) -> Array | None:
        """Coordinates of a parameter in the joint basis, if those in B are known."""
        located = self._located
        if located is None or located.parameter != parameter.tobytes():
            return None
        return np.concatenate((located.coordinates, np.dot(frame.fresh, parameter.reshape(-1))))

    def _split(self, action: Array, inside: Array) -> tuple[Array, Array, Array]:
        """G, E and T with the rows of E orthonormal and orthogonal to those of B, to roundoff.

        Far from the span of B the lengths outside follow from those inside, and one projection is
        enough: its overlap with B is measured, and removed if it exceeds roundoff. Near the span
        the residual is orthonormalised by a pivoted QR factorisation without what is left of
        directions that lie inside (all of them for x = 0).
        """
        square = float(np.dot(action, action))
        triangle = self._triangle_outside(square, inside)
        if triangle is None:
            return self._split_carefully(action, inside)
        inverse = invert_triangle(triangle)
        fresh = (inverse[:, :, None] * action).reshape(self.n_outcomes, -1)
        fresh -= row_products(np.dot(inverse, inside), self.basis)
        return self._without_overlap(inside, fresh, triangle)

    def _triangle_outside(self, square: float, inside: Array) -> Array | None:
        r"""T with :math:`TT^\top = \|x\|^2 I - GG^\top`, or None where that difference cancels."""
        if square < _thresholds.SMALLEST_SQUARE:
            return None
        if self.n_outcomes == 1:
            rest = square - float(np.vdot(inside, inside))
            return np.array([[math.sqrt(rest)]]) if rest > _thresholds.WELL_OUTSIDE * square else None
        outside = inside @ -inside.T
        add_to_diagonal(outside, square)
        try:
            triangle = cholesky(outside)
        except LinAlgError:
            return None
        return triangle if triangle.diagonal().min() ** 2 > _thresholds.WELL_OUTSIDE * square else None

    def _split_carefully(self, action: Array, inside: Array) -> tuple[Array, Array, Array]:
        rows = np.multiply.outer(np.eye(self.n_outcomes), action)  # np.kron takes ten times as long
        residual = rows.reshape(self.n_outcomes, -1) - inside @ self.basis
        threshold = _RANK_TOLERANCE * float(dnrm2(action))
        first, outside = orthonormal_rows(residual, threshold)
        overlap = first @ self.basis.T
        if _is_roundoff(overlap):
            return inside, first, outside
        fresh, correction = orthonormal_rows(first - overlap @ self.basis, 0.5)
        return inside + outside @ overlap, fresh, outside @ correction

    def _without_overlap(self, inside: Array, fresh: Array, outside: Array) -> tuple[Array, Array, Array]:
        """Take the overlap with B out of E, and what the same error of B did to the lengths of E.

        Left in, that error would come back amplified in the next round that projects once.
        """
        overlap = row_products(fresh, self.basis.T)
        if _is_roundoff(overlap):
            return inside, fresh, outside
        inside = inside + outside @ overlap
        return inside, *orthonormalised(fresh - overlap @ self.basis, outside)

    def _grown(self, frame: LowRankFrame, factor: Array) -> Array:
        """Core in the joint basis after adding (F' coordinates)' (F' coordinates)."""
        core = gram(np.dot(factor.T, frame.coordinates))
        core[: self.rank, : self.rank] += self.core
        return core

    def _ridge_factor(self) -> Array:
        r"""Cholesky factor of :math:`\lambda I + C`, made once a round."""
        if self._ridge is None:
            self._ridge = _shifted_factor(self.core, self.regularization)
        return self._ridge

    def _joint_rows(self, frame: LowRankFrame) -> Array:
        """The basis and, behind it in the same array, the frame's fresh rows."""
        size = self.rank + len(frame.fresh)
        self._rows[self.rank : size] = frame.fresh
        return self._rows[:size]

    def _joint(self, frame: LowRankFrame, factor: Array) -> Array:
        """Z with a Hessian added, on (coordinates in the joint basis, length outside it)."""
        core = self._grown(frame, factor)
        matrix = np.zeros((len(core) + 1, len(core) + 1))
        matrix[:-1, :-1] = core
        add_to_diagonal(matrix, self.regularization)
        return matrix

    def _start(self, local: Array, norm_bound: float) -> float:
        """Newton's first step to the multiplier with the slope for Z, which no added Hessian exceeds.

        So it stays below the root, and it takes no factor but the one at hand.
        """
        rank, norm = self.rank, length(local)
        slope = float(np.dot(local[rank:], local[rank:])) / self.regularization
        if rank:
            whitened = whiten(self._ridge_factor(), local[None, :rank])[0]
            slope += float(np.dot(whitened, whitened))
        return (norm / norm_bound - 1.0) * norm**2 / slope


def _shifted_factor(matrix: Array, shift: float) -> Array:
    """Cholesky factor of a symmetric matrix plus a multiple of the identity."""
    shifted = matrix.copy()
    add_to_diagonal(shifted, shift)
    return cholesky(shifted)


def _with_length_outside(coordinates: Array, point: Array) -> Array:
    """Coordinates of a vector in orthonormal rows, and the length of what is outside their span."""
    local = np.empty(len(coordinates) + 1)
    local[:-1] = coordinates
    rest = float(np.dot(point, point) - np.dot(coordinates, coordinates))
    local[-1] = math.sqrt(max(rest, 0.0))
    return local


def _resolvent(matrix: Array, multiplier: float) -> Resolvent:
    factor = _shifted_factor(matrix, multiplier)
    return lambda vector: cholesky_solve(factor, vector[None])[0]


def _is_roundoff(overlap: Array) -> bool:
    """Whether no entry exceeds roundoff; mostly the sum of their squares says so already."""
    entries = overlap.reshape(-1)
    return bool(
        np.dot(entries, entries) <= _thresholds.OVERLAP**2 or np.abs(entries).max() <= _thresholds.OVERLAP
    )
