r"""A multiple of the identity plus a low-rank part, :math:`Z = \alpha I + B^\top C B`.

The ridge :math:`\alpha` is :math:`\lambda`, unless a subclass lets it grow. B has r orthonormal rows of
length Kd, and C is a small dense positive semidefinite matrix; the paper's :math:`V\Lambda V^\top` is the
case of diagonal C. Bonus, step and projection use only the products of B with :math:`I \otimes x` and
matrices of order r + K, so that no eigenbasis is needed. Subclasses differ in `add`.

The time of a round is that of reading B: once for the images of the few actions that pruning leaves, once
each for the fresh directions, their overlap with B and the step, and twice for the shrink, which also writes
B. A projection reads it two more times, to find the parameter's coordinates in the basis. In a large problem
the step returns these coordinates, and with them the next projection does without.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.linalg import LinAlgError
from scipy.linalg.blas import dnrm2

from mlogb_core import _thresholds
from mlogb_core._linalg import (
    add_product,
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
from mlogb_core._validation import Array, as_integer, squared_lengths
from mlogb_core.curvature.base import Curvature, Step, step_weights
from mlogb_core.projection import Resolvent, project_onto_ball

# A direction counts as inside the span of B if less than this share of the action's length lies outside.
_RANK_TOLERANCE = 1e-13
# If the basis holds this many numbers, updating the parameter's coordinates is faster than computing them.
_TRACKED = 200_000
# Saved coordinates must equal the products of basis and parameter to this relative error. Updated ones do so
# to far more digits.
_SAME = 1e-8


class LowRankFrame(NamedTuple):
    r"""An action in an orthonormal basis: :math:`X = I \otimes x = B^\top\hat X + N^\top\hat X_N`.

    The arrays hold the transposed matrices, one row for each outcome. With r rows in B and k <= K in N:

    Attributes
    ----------
    coordinates : (K, r + k) array
        :math:`\hat X^\top` beside :math:`\hat X_N^\top`: the coordinates in the joint basis.
    fresh : (k, Kd) array
        N, orthonormal rows orthogonal to those of B.
    solved : (K, r + k) array
        :math:`X^\top Z^{-1}` in the joint basis: :math:`\hat X^\top(\alpha I + C)^{-1}` beside
        :math:`\hat X_N^\top/\alpha`, with the ridge :math:`\alpha`.
    block : (K, K) array
        :math:`A(x) = \hat X^\top(\alpha I + C)^{-1}\hat X + \hat X_N^\top\hat X_N/\alpha`.
    updates : int
        `Curvature.updates` when the frame was made.
    """

    coordinates: Array
    fresh: Array
    solved: Array
    block: Array
    updates: int

    @property
    def inside(self) -> Array:
        r""":math:`\hat X^\top`, the coordinates in the rows of B, (K, r)."""
        return self.coordinates[:, : self.coordinates.shape[1] - len(self.fresh)]

    @property
    def outside(self) -> Array:
        r""":math:`\hat X_N^\top`, the coordinates in the rows of N, (K, k)."""
        return self.coordinates[:, self.coordinates.shape[1] - len(self.fresh) :]


class LowRankCurvature(Curvature[LowRankFrame]):
    r"""Base class of the curvatures of the form :math:`Z = \alpha I + B^\top C B`.

    Parameters
    ----------
    n_outcomes, n_features, regularization
        As in `Curvature`.

    Attributes
    ----------
    basis : (r, Kd) array
        B, orthonormal rows. The rank r starts at 0.
    core : (r, r) array
        C, symmetric positive semidefinite.
    n_directions : int
        Kd, the largest rank that the basis can need. Where actions are given in coordinates, `n_features` is
        the number of these, and d here is that of the features, which `change_features` leaves as it is.
    """

    def __init__(self, n_outcomes: int, n_features: int, regularization: float) -> None:
        super().__init__(n_outcomes, n_features, regularization)
        self.n_directions = self.n_outcomes * self.n_features
        # The basis is the first r rows; the rows after them are room for the fresh directions of a round.
        self._rows: Array = np.empty((self.n_outcomes, self.n_outcomes * self.n_features))
        self.core: Array = np.empty((0, 0))
        self.rank_bound = 0
        # The Cholesky factor of alpha I + C, computed when a round first needs it.
        self._factor: Array | None = None

    @property
    def basis(self) -> Array:
        """B, (r, Kd): a view of the stored rows, made at each call, as copying the object would detach it."""
        return self._rows[: len(self.core)]

    @property
    def rank(self) -> int:
        """Number of rows of the basis."""
        return len(self.core)

    @property
    def image_cost(self) -> int:
        """Multiplications that the image of one action takes, Kdr."""
        return self.n_outcomes * self.n_features * self.rank

    def change_features(self, directions: Array, n_features: int) -> None:
        r"""Express the basis in other coordinates of the features, :math:`B \leftarrow B (I_K \otimes V)`.

        Parameters
        ----------
        directions : (u, k) array
            V: orthonormal columns that span the rows of length d that the basis consists of. Of the old
            features only the first u are used.
        n_features : int
            The new number of features, at least k; those after the first k are 0.
        """
        K, r = self.n_outcomes, self.rank
        old = self.basis.reshape(r * K, self.n_features)[:, : len(directions)]
        new = np.zeros((r * K, n_features))
        new[:, : directions.shape[1]] = old @ directions
        self.n_features = n_features
        self._rows = np.empty((len(self._rows), K * n_features))
        self._rows[:r] = new.reshape(r, K * n_features)

    def state_dict(self) -> dict[str, Any]:
        """Everything that `from_state` needs, as arrays and numbers."""
        is_whole = self.n_directions == self.n_outcomes * self.n_features
        return super().state_dict() | ({} if is_whole else {"n_directions": self.n_directions})

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild the curvature from `state_dict`."""
        curvature = super().from_state(state)
        if "n_directions" in state:
            smallest = curvature.n_directions
            curvature.n_directions = as_integer("n_directions", state["n_directions"], smallest)
            curvature._make_room()
        return curvature

    def _make_room(self) -> None:
        """Set what depends on the number of directions; here nothing does."""

    @np.errstate(under="ignore")
    def spectrum(self) -> Array:
        r"""Eigenvalues of the low-rank part, decreasing, (r,): the paper's diagonal of :math:`\Lambda`."""
        return np.asarray(np.maximum(np.linalg.eigvalsh(self.core)[::-1], 0.0))

    @np.errstate(under="ignore")
    def images(self, actions: Array) -> Array:
        r"""Coordinates :math:`\hat X^\top = (I \otimes x)^\top B^\top` of the actions in the basis.

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
                  = \tfrac1\alpha\bigl(\|x\|^2 I - \hat X^\top\hat X\bigr)
                  + \hat X^\top (\alpha I + C)^{-1} \hat X,
                  \qquad \hat X = B (I \otimes x)

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
        blocks /= self.ridge
        if self.rank:
            whitened = whiten(self._ridge_factor(), inside.reshape(n * K, self.rank))
            blocks += products_with_themselves(whitened.reshape(inside.shape))
        return blocks

    @np.errstate(under="ignore")
    def sample(self, normal: Array) -> Array:
        r"""A draw from :math:`\mathcal N(0, Z^{-1})`, by the symmetric root of :math:`Z^{-1}`.

        .. math:: Z^{-1/2}\xi = \tfrac{1}{\sqrt\alpha}\,\xi
                  + B^\top\bigl[(\alpha I + C)^{-1/2} - \alpha^{-1/2} I\bigr] B\,\xi

        Parameters
        ----------
        normal : (K, d) array
            :math:`\xi`, independent standard normal numbers.

        Returns
        -------
        (K, d) array

        Notes
        -----
        The Cholesky factor of :math:`\alpha I + C` is known and would give a root as well, but one that
        depends on the basis, which roundoff may rotate. The symmetric root depends on Z alone.
        """
        point = normal.reshape(-1)
        scale = 1.0 / math.sqrt(self.ridge)
        draw = scale * point
        if self.rank:
            values, vectors = np.linalg.eigh(self.core)
            change = 1.0 / np.sqrt(self.ridge + np.maximum(values, 0.0)) - scale
            inside = np.dot(vectors.T, np.dot(self.basis, point))
            draw += np.dot(np.dot(vectors, change * inside), self.basis)
        return np.asarray(draw.reshape(normal.shape))

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
        ridge = self.ridge
        solved = coordinates / ridge
        block = np.dot(outside, outside.T)
        block /= ridge
        if self.rank:
            whitened = whiten(self._ridge_factor(), inside)
            solved[:, : self.rank] = whiten(self._ridge_factor(), whitened, transposed=True)
            block += np.dot(whitened, whitened.T)
        return LowRankFrame(coordinates, fresh, solved, block, self.updates)

    @np.errstate(under="ignore")
    def dense(self) -> Array:
        """Z as a (Kd, Kd) matrix, for checks and small problems."""
        identity = np.eye(self.n_outcomes * self.n_features)
        return np.asarray(self.ridge * identity + self.basis.T @ self.core @ self.basis)

    def check_coordinates(self, parameter: Array, coordinates: Array) -> None:
        """Raise unless the coordinates are the products of the basis with the parameter."""
        if coordinates.shape != (self.rank,):
            raise ValueError(f"coordinates must have shape ({self.rank},), got {coordinates.shape}")
        point = parameter.reshape(-1)
        if not length(self.basis @ point - coordinates) <= _SAME * length(point):
            raise ValueError("coordinates must be the products of curvature.basis with parameter")

    @np.errstate(under="ignore")
    def newton_step(
        self,
        frame: LowRankFrame,
        parameter: Array,
        residual: Array,
        factor: Array,
        step_size: float,
        norm_bound: float,
        coordinates: Array | None = None,
    ) -> Step:
        r"""Proximal Newton step and projection inside the span of B and :math:`I \otimes x`.

        On the orthogonal complement of that span :math:`\tilde Z` is :math:`\alpha I`. The complement
        therefore enters as one more coordinate, the length of the parameter's component in it.

        Notes
        -----
        Paper: `eq:oful-mlogb-W-gradient`, `lem:fd-oful-mlogb-efficient-W-update`, where an SVD of a
        Kd x (m+K) matrix comes first. Here the step needs a K x K solve, and a projection takes a Cholesky
        factor of order r + k + 1 for each of the one or two values of the multiplier that are tried.
        """
        self.check_order(frame)
        weights = step_weights(frame.block, residual, factor, step_size)
        weights *= -step_size
        rows, change = self._joint_rows(frame), np.dot(weights, frame.solved)
        point = parameter.reshape(-1)
        inside = None if coordinates is None else np.concatenate((coordinates, np.dot(frame.fresh, point)))
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
                return self._step_to(point + np.dot(change, rows), 0.0, local[:-1])

        matrix = self._joint(frame, math.sqrt(step_size) * factor)
        projected, multiplier = project_onto_ball(
            lambda nu: _resolvent(matrix, nu),
            local,
            np.dot(matrix, local),
            norm_bound,
            self._start(local, norm_bound),
        )
        scale = self.ridge / (self.ridge + multiplier)
        new = np.dot(projected[:-1] - scale * inside, rows)
        new += scale * point
        return self._step_to(new, multiplier, projected[:-1])

    def _step_to(self, point: Array, multiplier: float, coordinates: Array) -> Step:
        """The step to a point, with its coordinates in the joint basis where keeping them saves time."""
        parameter = point.reshape(self.n_outcomes, self.n_features)
        if self._rows.size < _TRACKED:
            return Step(parameter, multiplier)
        parameter.flags.writeable = False
        return Step(parameter, multiplier, coordinates)

    def _split(self, action: Array, inside: Array) -> tuple[Array, Array, Array]:
        r""":math:`\hat X^\top`, N and :math:`\hat X_N^\top`; the rows of N orthonormal and orthogonal to B.

        Far from the span of B the coordinates outside follow from those inside, and one projection gives N;
        its overlap with B is measured, and removed if it exceeds roundoff. Near the span a pivoted QR
        factorisation orthonormalises the residual and drops directions that lie inside the span, which for
        x = 0 are all.
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
        r""":math:`\hat X_N^\top` from :math:`\hat X_N^\top\hat X_N = \|x\|^2 I - \hat X^\top\hat X`.

        None where that difference cancels.
        """
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
        rows = np.multiply.outer(np.eye(self.n_outcomes), action)  # np.kron would take ten times as long.
        residual = rows.reshape(self.n_outcomes, -1) - inside @ self.basis
        threshold = _RANK_TOLERANCE * float(dnrm2(action))
        first, outside = orthonormal_rows(residual, threshold)
        overlap = first @ self.basis.T
        if _is_roundoff(overlap):
            return inside, first, outside
        fresh, correction = orthonormal_rows(first - overlap @ self.basis, 0.5)
        return inside + outside @ overlap, fresh, outside @ correction

    def _without_overlap(self, inside: Array, fresh: Array, outside: Array) -> tuple[Array, Array, Array]:
        """Make the rows of N orthonormal and orthogonal to those of B, if roundoff has left an overlap.

        An overlap that stays would be amplified in a later round that takes a single projection.
        """
        overlap = row_products(fresh, self.basis.T)
        if _is_roundoff(overlap):
            return inside, fresh, outside
        inside = inside + outside @ overlap
        return inside, *orthonormalised(fresh - overlap @ self.basis, outside)

    def _grown(self, frame: LowRankFrame, factor: Array) -> Array:
        """The core in the joint basis with the frame's Hessian added."""
        core = gram(np.dot(factor.T, frame.coordinates))
        core[: self.rank, : self.rank] += self.core
        return core

    def _ridge_factor(self) -> Array:
        r"""Cholesky factor of :math:`\alpha I + C`, computed once per round."""
        if self._factor is None:
            self._factor = _shifted_factor(self.core, self.ridge)
        return self._factor

    def _joint_rows(self, frame: LowRankFrame) -> Array:
        """The joint basis: the rows of B, followed in the same array by the frame's fresh rows."""
        size = self.rank + len(frame.fresh)
        self._rows[self.rank : size] = frame.fresh
        return self._rows[:size]

    def _joint(self, frame: LowRankFrame, factor: Array) -> Array:
        """Z with a Hessian added, for vectors of coordinates in the joint basis and the length outside it."""
        core = self._grown(frame, factor)
        matrix = np.zeros((len(core) + 1, len(core) + 1))
        matrix[:-1, :-1] = core
        add_to_diagonal(matrix, self.ridge)
        return matrix

    def _deflate(self, rows: Array, reflector: Array, scaled: Array) -> None:
        """Apply a block reflector to the basis in place; only the rows that are kept are computed."""
        kept = len(reflector) - reflector.shape[1]
        add_product(rows[:kept], scaled[:kept], row_products(reflector.T, rows), scale=-1.0)

    def _deflated(self, coordinates: Array, reflector: Array, scaled: Array) -> Array:
        """Coordinates, or columns of them, in the reflected basis."""
        kept = len(reflector) - reflector.shape[1]
        return np.asarray(coordinates[:kept] - np.dot(scaled[:kept], np.dot(reflector.T, coordinates)))

    def _start(self, local: Array, norm_bound: float) -> float:
        """A lower bound of the multiplier, where the root search starts: a Newton step with the slope of Z.

        The Hessian that the step adds to Z makes the slope smaller, so that the bound stays below the root.
        Its computation needs the Cholesky factor of the bonus only, which is known.
        """
        rank, norm = self.rank, length(local)
        slope = float(np.dot(local[rank:], local[rank:])) / self.ridge
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
    """Whether no entry exceeds roundoff; in most cases the sum of squares, which is cheaper, shows it."""
    entries = overlap.reshape(-1)
    return bool(
        np.dot(entries, entries) <= _thresholds.OVERLAP**2 or np.abs(entries).max() <= _thresholds.OVERLAP
    )
