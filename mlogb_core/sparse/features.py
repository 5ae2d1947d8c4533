r"""Coordinates of sparse actions in the small space that a policy's state occupies.

A sketch of rank r and the parameter W depend on the features through few directions: the span of the rows of
the K r + K vectors of length d that they consist of. Between two *rebuilds* the only directions that are new
there are the actions which have been played. Let the columns of U, u orthonormal vectors of length d, span
all of these. A policy that plays :math:`q = U^\top x` in place of x, with :math:`\|x\|^2` beside it for the
part outside, computes what it would compute with x: scores, step and sketch are the same numbers.

U is never formed. Its columns are combinations of k dense columns D and of the actions played since the last
rebuild, each divided by its length,

.. math:: U^\top = F R, \qquad R = (D, x_1/\|x_1\|, \ldots, x_p/\|x_p\|)^\top,

with F triangular of order u = k + p. So q takes the products of x with the rows of R, in which zeros of x
cost nothing, and a product with F. Only a rebuild costs a multiple of d, and of d only the features that a
played action has had: it multiplies out the directions that the state still needs, which become the columns
D, and forgets the actions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from mlogb_core._linalg import cholesky, invert_triangle
from mlogb_core._ownership import Owned
from mlogb_core._thresholds import WELL_OUTSIDE
from mlogb_core._validation import Array, as_finite, as_integer, as_non_negative, take

# A direction in which less than this share of an action's length remains counts as part of the others.
_RANK_TOLERANCE = 1e-13
# A rebuild follows when the coefficients in a row of F add up to more: the inner products of the columns of U
# are then wrong by up to the square of this, in units of roundoff.
_LONGEST = 100.0
# Number of features that a rebuild treats at once.
_BLOCK = 4096


class SparseFeatures(Owned):
    r"""The map of sparse actions to coordinates, :math:`x \mapsto U^\top x`.

    Parameters
    ----------
    n_features : int
        d.
    n_state : int
        The largest number of directions of the features that the state needs.
    period : int
        The largest number of rounds between two rebuilds.

    Attributes
    ----------
    size : int
        Number of coordinates; those that are not in use are 0.
    used : int
        u, the number of coordinates in use.
    rebuilds, careful : int
        Number of rebuilds, and of actions so near to the span of U that the part outside was computed from
        all their numbers.
    """

    def __init__(self, n_features: int, n_state: int, period: int) -> None:
        self.n_features, self.n_state, self.period = n_features, n_state, period
        self.spare = max(1, n_state // 10)
        self.size = min(n_state + self.spare + period, n_features)
        self.is_identity = self.size == n_features
        self.used = self.dense = self.recent = self.rebuilds = self.careful = 0
        self._work = 0.0
        self._place = np.full(n_features, -1, dtype=np.int32)
        self._touched = 0
        self._columns = np.zeros((0, n_state + self.spare))
        self._rows = np.zeros((self.size, self.size))  # F
        self._gram = np.zeros((self.size, self.size))  # R R'
        self._is_dense = np.zeros(self.size, dtype=bool)
        self._starts = np.zeros(period + 1, dtype=np.int64)
        self._features = np.zeros(0, dtype=np.int32)
        self._values = np.zeros(0)

    # -- the map
    def coordinates(self, actions: csr_array) -> Array:
        """Coordinates of n actions, (n, size)."""
        if self.is_identity:
            return np.asarray(actions.toarray())
        self._work += actions.shape[0] * self.used * self.used
        result = np.zeros((actions.shape[0], self.size))
        if self.used:
            u = self.used
            result[:, :u] = self._products(actions) @ self._rows[:u, :u].T
        return result

    def _products(self, actions: csr_array) -> Array:
        """Products of n actions with the rows of R, (n, u)."""
        n = actions.shape[0]
        products = np.zeros((n, self.used))
        places = self._place[actions.indices]
        known = places >= 0
        counts = np.concatenate(([0], np.cumsum(known)))[actions.indptr]
        data, columns = actions.data[known], places[known]
        if not data.size:
            return products
        local = csr_array((data, columns, counts), shape=(n, self._touched))
        is_dense = self._is_dense[: self.used]
        products[:, is_dense] = (local @ self._columns[: self._touched])[:, : self.dense]
        if self.recent:
            products[:, ~is_dense] = self._recent_products(data, columns, counts)
        return products

    def _recent_products(self, data: Array, columns: Any, counts: Any) -> Array:
        """Products with the recent actions, of which only the features that a candidate has matter."""
        used, inverse = np.unique(columns, return_inverse=True)
        lookup = np.full(self._touched, -1, dtype=np.int32)
        lookup[used] = np.arange(used.size, dtype=np.int32)
        end = self._starts[self.recent]
        hits = lookup[self._features[:end]]
        shared = hits >= 0
        starts = np.concatenate(([0], np.cumsum(shared)))[self._starts[: self.recent + 1]]
        few = csr_array((self._values[:end][shared], hits[shared], starts), shape=(self.recent, used.size))
        candidates = csr_array((data, inverse, counts), shape=(len(counts) - 1, used.size)).toarray()
        return np.asarray(few @ candidates.T).T

    def vectors(self, coordinates: Array) -> Array:
        """Vectors of length d with the given coordinates, (k, d) for a (k, size) array."""
        if self.is_identity:
            return coordinates.copy()
        u, result = self.used, np.zeros((len(coordinates), self.n_features))
        touched = np.flatnonzero(self._place >= 0)
        numbers = self._combination(coordinates[:, :u] @ self._rows[:u, :u])
        result[:, touched] = numbers[self._place[touched]].T
        return result

    # -- the growing span
    def extend(self, action: csr_array, square: float) -> Array:
        """Coordinates of an action after its direction has joined those of U, (size,)."""
        if self.is_identity:
            return np.asarray(action.toarray()[0])
        u, norm = self.used, math.sqrt(square)
        result = np.zeros(self.size)
        if norm == 0.0:
            return result
        self._touch(action.indices)
        products = self._products(action)[0] / norm
        inside = self._rows[:u, :u] @ products
        rest = 1.0 - float(inside @ inside)
        if rest <= WELL_OUTSIDE or self.recent == self.period:
            return self._extend_carefully(action, norm)
        row = np.zeros(u + 1)
        row[:u] = -(inside @ self._rows[:u, :u])
        row[u] = 1.0
        self._gram[u, :u] = self._gram[:u, u] = products
        self._gram[u, u] = 1.0
        self._is_dense[u] = False
        overlap = self._rows[:u, :u] @ (self._gram[:u, : u + 1] @ row)
        row[:u] -= overlap @ self._rows[:u, :u]
        inside += overlap
        outside = math.sqrt(float(row @ (self._gram[: u + 1, : u + 1] @ row)))
        self._rows[u, : u + 1] = row / outside
        s = self.recent
        start, end = int(self._starts[s]), int(self._starts[s]) + action.nnz
        if end > self._values.size:
            more = max(end, 2 * self._values.size)
            self._values, self._features = np.resize(self._values, more), np.resize(self._features, more)
        self._values[start:end] = action.data / norm
        self._features[start:end] = self._place[action.indices]
        self._starts[s + 1] = end
        self.recent += 1
        self.used += 1
        result[:u] = norm * inside
        result[u] = norm * outside
        return result

    def _extend_carefully(self, action: csr_array, norm: float) -> Array:
        """`extend` for an action near the span of U: what is outside is computed from all numbers."""
        u, t = self.used, self._touched
        self.careful += 1
        vector = np.zeros(t)
        vector[self._place[action.indices]] = action.data / norm
        inside = np.zeros(u)
        for _ in range(3):
            change = self._rows[:u, :u] @ self._against(vector)
            vector -= self._combination((change @ self._rows[:u, :u])[None])[:, 0]
            inside += change
        outside = math.sqrt(float(vector @ vector))
        result = np.zeros(self.size)
        result[:u] = norm * inside
        if outside <= _RANK_TOLERANCE:
            return result
        vector /= outside
        self._columns[:t, self.dense] = vector
        products = self._against(vector)
        self._gram[u, :u] = self._gram[:u, u] = products
        self._gram[u, u] = 1.0
        self._rows[u, :u] = -(self._rows[:u, :u] @ products) @ self._rows[:u, :u]
        self._rows[u, u] = 1.0
        self._is_dense[u] = True
        self.dense += 1
        self.used += 1
        result[u] = norm * outside
        return result

    def _touch(self, features: Any) -> None:
        """Give a place to features that no played action has had before."""
        new = features[self._place[features] < 0]
        if not new.size:
            return
        self._place[new] = np.arange(self._touched, self._touched + new.size, dtype=np.int32)
        self._touched += new.size
        if self._touched > len(self._columns):
            room = min(max(self._touched, len(self._columns) * 6 // 5, 256), self.n_features)
            columns = np.zeros((room, self._columns.shape[1]))
            columns[: len(self._columns)] = self._columns
            self._columns = columns

    def _raw(self) -> csr_array:
        """The recent actions as the columns of a matrix, (touched, recent)."""
        end = self._starts[self.recent]
        rows = self._values[:end], self._features[:end], self._starts[: self.recent + 1]
        return csr_array(rows, shape=(self.recent, self._touched)).T.tocsr()

    def _against(self, vector: Array) -> Array:
        """Products of a vector over the touched features with the rows of R, (u,)."""
        products, is_dense = np.empty(self.used), self._is_dense[: self.used]
        products[is_dense] = (vector @ self._columns[: self._touched])[: self.dense]
        products[~is_dense] = self._raw().T @ vector
        return products

    def _combination(self, coefficients: Array) -> Array:
        """Combinations of the rows of R, multiplied out over the touched features, (touched, k)."""
        is_dense = self._is_dense[: self.used]
        out = self._columns[: self._touched, : self.dense] @ coefficients[:, is_dense].T
        out += self._raw() @ coefficients[:, ~is_dense].T
        return np.asarray(out)

    # -- rebuilds
    def is_due(self) -> bool:
        """Whether a rebuild should come before the next action."""
        if self.is_identity:
            return False
        if self.recent == self.period or 0 < self.dense == self._columns.shape[1]:
            return True
        if not self.recent:
            return False
        u = self.used
        if np.abs(self._rows[:u, :u]).sum(axis=1).max() > _LONGEST:
            return True
        return self._work >= 2.0 * self._touched * u * self.n_state

    def rebuild(self, directions: Array, n_state: int) -> None:
        """Keep only the given directions of the coordinates.

        Parameters
        ----------
        directions : (u, k) array
            Orthonormal columns, k <= n_state.
        n_state : int
            The largest number of directions that the state needs from here on; where it has grown, so has the
            number of coordinates.
        """
        k, t = directions.shape[1], self._touched
        coefficients = directions.T @ self._rows[: self.used, : self.used]
        is_dense, raw = self._is_dense[: self.used], self._raw()
        dense_part, raw_part = coefficients[:, is_dense].T, coefficients[:, ~is_dense].T
        dense = self.dense
        self._make_room(max(n_state, k))
        gram = np.zeros((k, k))
        for start in range(0, t, _BLOCK):
            stop = min(start + _BLOCK, t)
            block = self._columns[start:stop, :dense] @ dense_part
            block += raw[start:stop] @ raw_part
            self._columns[start:stop, :k] = block
            self._columns[start:stop, k:] = 0.0
            gram += block.T @ block
        self._rows[:], self._gram[:], self._is_dense[:] = 0.0, 0.0, False
        self._gram[:k, :k] = gram
        if k:
            self._rows[:k, :k] = invert_triangle(cholesky(gram.copy()))
        self._is_dense[:k] = True
        self.used = self.dense = k
        self.recent = 0
        self.rebuilds += 1
        self._work = 0.0

    def _make_room(self, n_state: int) -> None:
        """Make the arrays large enough for a state of so many directions."""
        if n_state <= self.n_state:
            return
        self.n_state, self.spare = n_state, max(1, n_state // 10)
        self.size = n_state + self.spare + self.period
        self._rows, self._gram = np.zeros((self.size, self.size)), np.zeros((self.size, self.size))
        self._is_dense = np.zeros(self.size, dtype=bool)
        more = n_state + self.spare - self._columns.shape[1]
        self._columns = np.pad(self._columns, ((0, 0), (0, more)))

    # -- states
    def state_dict(self) -> dict[str, Any]:
        """Everything that `from_state` needs, as arrays and numbers."""
        u, t, end = self.used, self._touched, int(self._starts[self.recent])
        features = np.empty(t, dtype=np.int64)
        known = np.flatnonzero(self._place >= 0)
        features[self._place[known]] = known
        return {
            "n_features": self.n_features,
            "n_state": self.n_state,
            "period": self.period,
            "rebuilds": self.rebuilds,
            "careful": self.careful,
            "work": self._work,
            "touched": features,
            "columns": self._columns[:t, : self.dense].copy(),
            "rows": self._rows[:u, :u].copy(),
            "gram": self._gram[:u, :u].copy(),
            "is_dense": self._is_dense[:u].copy(),
            "starts": self._starts[: self.recent + 1].copy(),
            "recent_features": self._features[:end].copy(),
            "recent_values": self._values[:end].copy(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild the coordinates from `state_dict`.

        Raises
        ------
        ValueError
            If an entry is missing or does not fit.
        """
        sizes = (as_integer(name, take(state, name), 1) for name in ("n_features", "n_state", "period"))
        result = cls(*sizes)
        result.rebuilds, result.careful = int(take(state, "rebuilds")), int(take(state, "careful"))
        result._work = as_non_negative("work", take(state, "work"))
        touched, columns = np.asarray(take(state, "touched")), as_finite("columns", take(state, "columns"))
        is_dense, starts = np.asarray(take(state, "is_dense")), np.asarray(take(state, "starts"))
        u, recent, dense = len(is_dense), len(starts) - 1, int(is_dense.sum())
        expected = {
            "columns": (len(touched), dense),
            "rows": (u, u),
            "gram": (u, u),
            "recent_features": (int(starts[-1]),),
            "recent_values": (int(starts[-1]),),
        }
        for name, shape in expected.items():
            if np.shape(take(state, name)) != shape:
                raise ValueError(f"{name} must have shape {shape}, got {np.shape(state[name])}")
        if u > result.size or recent > result.period or u - dense != recent:
            raise ValueError(f"is_dense and starts must fit {result.size} coordinates, got {u} and {recent}")
        result._touch(touched)
        result._columns[: len(touched), :dense] = columns
        result._rows[:u, :u], result._gram[:u, :u] = state["rows"], state["gram"]
        result._is_dense[:u] = is_dense
        result._starts[: recent + 1] = starts
        result._features = np.array(state["recent_features"], dtype=np.int32)
        result._values = np.array(state["recent_values"], dtype=np.float64)
        result.used, result.dense, result.recent = u, dense, recent
        return result
