r"""Coordinates of sparse actions in the small space that a policy's state occupies.

A sketch of rank r and the parameter W depend on the features through few directions: the span of the K r + K
vectors of length d that the basis and W consist of. Between two *rebuilds* the only directions that are new
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

Where d is large, most rebuilds are *short* ones. They keep the directions of D as they are and multiply out
only what the other needed directions have of the actions: *middle* columns, which are zero outside the
features of the actions since the last whole rebuild. R then holds D, the middle columns and the recent
actions. A whole rebuild follows when the short ones have cost as much.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from mlogb_core._linalg import cholesky, invert_triangle
from mlogb_core._ownership import Owned
from mlogb_core._thresholds import WELL_OUTSIDE
from mlogb_core._validation import (
    Array,
    as_finite,
    as_integer,
    as_non_negative,
    as_sparse_action,
    as_sparse_actions,
    take,
)

# A direction in which less than this share of an action's length remains counts as part of the others.
_RANK_TOLERANCE = 1e-13
# A rebuild follows when the sizes of the coefficients in a row of F add up to more than this. The inner
# products of the columns of U can be wrong by the square of that sum, in units of roundoff.
_LONGEST = 100.0
# A whole rebuild takes the place of a short one after which they would add up to more than this share of it.
_SHORT_SHARE = 0.25
# A feature of a middle column costs as much in a short rebuild as this many features in a whole one.
_MIDDLE_COST = 6
# Middle columns are used where there are this many times more features than coordinates without them.
_WIDE = 8
# A rebuild goes over blocks of about this many numbers, which stay in the cache, and writes products into one
# work array: an array made anew for each block can cost several times as much as the product that it holds.
_BLOCK = 20_000


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
    rebuilds, short, careful : int
        Number of rebuilds, of the short ones among them, and of actions so near to the span of U that the
        part outside was computed from all their numbers.
    """

    def __init__(self, n_features: int, n_state: int, period: int) -> None:
        self.n_features, self.n_state, self.period = n_features, n_state, period
        self.spare = self._spare_columns()
        self.size = min(self._most_coordinates(), n_features)
        self.is_identity = self.size == n_features
        self.used = self.dense = self.middle = self.recent = 0
        self.rebuilds = self.short = self.careful = 0
        # Number of dense columns since the last whole rebuild, before the careful path has added any.
        self._base = 0
        self._longest = self._work = 0.0
        self._place = np.full(n_features, -1, dtype=np.int32)
        self._touched = 0
        self._columns = np.zeros((0, n_state + self.spare))
        self._rows = np.zeros((self.size, self.size))  # F
        self._gram = np.zeros((self.size, self.size))  # R R'
        self._is_dense = np.zeros(self.size, dtype=bool)
        self._starts = np.zeros(period + 1, dtype=np.int64)
        self._features = np.zeros(0, dtype=np.int32)
        self._values = np.zeros(0)
        self._middle_place = np.zeros(0, dtype=np.int32)
        self._middle_features = np.zeros(0, dtype=np.int32)
        self._middle_columns = np.zeros((0, 0))
        self._middle_work = 0

    @property
    def _has_middle(self) -> bool:
        """Whether there are so many features that middle columns pay."""
        return self.n_features > _WIDE * (self.n_state + self.period)

    def _spare_columns(self) -> int:
        """Number of dense columns for actions near the span, of which many features leave little memory."""
        return max(1, self.n_state // (20 if self._has_middle else 2))

    def _most_coordinates(self) -> int:
        return self.n_state * (2 if self._has_middle else 1) + self.spare + self.period

    @property
    def _is_recent(self) -> Any:
        """Which rows of R are recent actions, (u,)."""
        result = ~self._is_dense[: self.used]
        result[self._middle_rows] = False
        return result

    @property
    def _middle_rows(self) -> slice:
        """Which rows of R are middle columns."""
        return slice(self._base, self._base + self.middle)

    # -- checks
    def checked_actions(self, actions: ArrayLike | csr_array) -> tuple[csr_array, Array]:
        """`as_sparse_actions` for these features."""
        return as_sparse_actions(actions, self.n_features)

    def checked_action(self, action: ArrayLike | csr_array) -> tuple[csr_array, float]:
        """`as_sparse_action` for these features."""
        return as_sparse_action(action, self.n_features)

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
        if self.middle:
            chosen = local[:, self._middle_features]
            products[:, self._middle_rows] = chosen @ self._middle_columns
        if self.recent:
            products[:, self._is_recent] = self._recent_products(data, columns, counts)
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
        if self.recent == self.period:
            return self._extend_carefully(action, norm)
        inside, outside, longest = self._join(self._products(action)[0] / norm)
        if outside == 0.0:
            return self._extend_carefully(action, norm)
        self._is_dense[u] = False
        self._longest = max(self._longest, longest)
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
        self._longest = max(self._longest, float(np.abs(self._rows[u, : u + 1]).sum()))
        self._is_dense[u] = True
        self.dense += 1
        self.used += 1
        result[u] = norm * outside
        return result

    def _join(self, products: Array) -> tuple[Array, float, float]:
        """Write the last row of F and of R R' for a unit action with these products, (u,).

        Returns its coordinates in U, (u,), the length outside and the sum of the absolute values of the row
        of F. For an action near the span of U nothing is written and both numbers are 0.
        """
        u = self.used
        inside = self._rows[:u, :u] @ products
        if 1.0 - float(inside @ inside) <= WELL_OUTSIDE:
            return inside, 0.0, 0.0
        row = np.zeros(u + 1)
        row[:u] = -(inside @ self._rows[:u, :u])
        row[u] = 1.0
        self._gram[u, :u] = self._gram[:u, u] = products
        self._gram[u, u] = 1.0
        overlap = self._rows[:u, :u] @ (self._gram[:u, : u + 1] @ row)
        row[:u] -= overlap @ self._rows[:u, :u]
        inside += overlap
        outside = math.sqrt(float(row @ (self._gram[: u + 1, : u + 1] @ row)))
        row /= outside
        self._rows[u, : u + 1] = row
        return inside, outside, float(np.abs(row).sum())

    def _touch(self, features: Any) -> None:
        """Give a place to features that no played action has had before."""
        new = features[self._place[features] < 0]
        if not new.size:
            return
        self._place[new] = np.arange(self._touched, self._touched + new.size, dtype=np.int32)
        self._touched += new.size
        if self._touched > len(self._columns):
            room = min(max(self._touched, len(self._columns) * 6 // 5, 256), self.n_features)
            # In place, so that old and new columns are not in memory together; no view of them is kept.
            self._columns.resize((room, self._columns.shape[1]), refcheck=False)
            places = np.full(room, -1, dtype=np.int32)
            places[: self._middle_place.size] = self._middle_place
            self._middle_place = places

    def _raw(self) -> csr_array:
        """The recent actions as the columns of a matrix, (touched, recent)."""
        end = self._starts[self.recent]
        rows = self._values[:end], self._features[:end], self._starts[: self.recent + 1]
        return csr_array(rows, shape=(self.recent, self._touched)).T.tocsr()

    def _against(self, vector: Array) -> Array:
        """Products of a vector over the touched features with the rows of R, (u,)."""
        products, is_dense = np.empty(self.used), self._is_dense[: self.used]
        products[is_dense] = (vector @ self._columns[: self._touched])[: self.dense]
        products[self._middle_rows] = vector[self._middle_features] @ self._middle_columns
        products[self._is_recent] = self._raw().T @ vector
        return products

    def _combination(self, coefficients: Array) -> Array:
        """Combinations of the rows of R, multiplied out over the touched features, (touched, k)."""
        is_dense = self._is_dense[: self.used]
        out = self._columns[: self._touched, : self.dense] @ coefficients[:, is_dense].T
        out[self._middle_features] += self._middle_columns @ coefficients[:, self._middle_rows].T
        features, numbers = self._recent_part(coefficients)
        out[features] += numbers
        return np.asarray(out)

    def _recent_part(self, coefficients: Array) -> tuple[Any, Array]:
        """Combinations of the recent actions: the places of their features, ascending, and (n, k) numbers."""
        end = self._starts[self.recent]
        features, columns = np.unique(self._features[:end], return_inverse=True)
        entries = self._values[:end], columns, self._starts[: self.recent + 1]
        actions = csr_array(entries, shape=(self.recent, features.size))
        return features, np.asarray(actions.T @ coefficients[:, self._is_recent].T)

    # -- rebuilds
    def is_due(self) -> bool:
        """Whether a rebuild should come before the next action."""
        if self.is_identity:
            return False
        if self.recent == self.period or 0 < self.dense == self._columns.shape[1]:
            return True
        if not self.recent:
            return False
        if self._longest > _LONGEST:
            return True
        return self._work >= 2.0 * self._touched * self.used * self.n_state

    def rebuild(self, directions: Array, n_state: int) -> Array:
        r"""Keep the given directions of the coordinates, and after a short rebuild also those of D.

        Parameters
        ----------
        directions : (u, k) array
            Orthonormal columns, k <= n_state.
        n_state : int
            The largest number of directions that the state needs from here on; where it has grown, so has the
            number of coordinates.

        Returns
        -------
        (u, k') array
            The directions that are kept, whose span contains the given ones: an action with the coordinates q
            has the coordinates :math:`V^\top q` from here on.
        """
        self.rebuilds += 1
        self._work = 0.0
        if n_state <= self.n_state:
            kept = self._rebuild_shortly(directions)
            if kept is not None:
                self.short += 1
                return kept
        self._rebuild_wholly(directions, n_state)
        return directions

    def _rebuild_wholly(self, directions: Array, n_state: int) -> None:
        """Multiply out the given directions over all features that have been played."""
        k, dense = directions.shape[1], self.dense
        coefficients = directions.T @ self._rows[: self.used, : self.used]
        dense_part = np.ascontiguousarray(coefficients[:, self._is_dense[: self.used]].T)
        middle_part = coefficients[:, self._middle_rows].T
        order = np.argsort(self._middle_features)
        middle = self._middle_features[order]
        recent, numbers = self._recent_part(coefficients)
        self._make_room(max(n_state, k))
        gram, work = np.zeros((k, k)), _work_array(k)
        for start, stop in _blocks(self._touched, len(work)):
            columns = self._columns[start:stop]
            block = np.matmul(columns[:, :dense], dense_part, out=work[: stop - start])
            first, last = np.searchsorted(middle, (start, stop))
            block[middle[first:last] - start] += self._middle_columns[order[first:last]] @ middle_part
            first, last = np.searchsorted(recent, (start, stop))
            block[recent[first:last] - start] += numbers[first:last]
            columns[:, :k] = block
            columns[:, k:] = 0.0
            gram += block.T @ block
        self._middle_place[self._middle_features] = -1
        self._middle_features, self._middle_columns = self._middle_features[:0], np.zeros((0, 0))
        self._middle_work = 0
        self._restart(gram, k)

    def _rebuild_shortly(self, directions: Array) -> Array | None:
        """Multiply out only what the directions have of middle columns and recent actions.

        None if a whole rebuild is to be preferred, or if coefficients would become too long. The latter is
        found from the products of the rows before any of them changes.
        """
        base, u, end = self._base, self.used, self._starts[self.recent]
        if not self._has_middle or not base or self.dense > base:
            return None
        work = self._middle_work + _MIDDLE_COST * (self._middle_features.size + int(end))
        if work > self._touched:
            return None
        outside = np.linalg.qr(directions[base:])[0]
        coefficients = outside.T @ self._rows[base:u, :u]
        coefficients[:, :base] = 0.0
        products = coefficients @ self._gram[:u, :u]
        lengths = np.sqrt(np.vecdot(products, coefficients))[:, None]
        coefficients /= lengths
        products /= lengths
        inner = products @ coefficients.T
        rows = _triangle(
            np.block([[self._gram[:base, :base], products[:, :base].T], [products[:, :base], inner]])
        )
        if np.abs(rows).sum(axis=1).max() > _SHORT_SHARE * _LONGEST:
            return None
        self._turn_middle(coefficients)
        self._middle_work = work
        self._restart(self._short_gram(), base)
        kept = np.zeros((u, base + outside.shape[1]))
        kept[:base, :base] = np.eye(base)
        kept[base:, base:] = outside
        return kept

    def _turn_middle(self, coefficients: Array) -> None:
        """Let the middle columns be combinations of those so far and of the recent actions."""
        k, turn = len(coefficients), coefficients[:, self._middle_rows].T
        recent, numbers = self._recent_part(coefficients)
        count, old, place = self._middle_features.size, self._middle_columns, self._middle_place
        new = recent[place[recent] < 0]
        place[new] = np.arange(count, count + new.size, dtype=np.int32)
        self._middle_features = np.concatenate((self._middle_features, new))
        if old.shape[1] == k:
            columns = old
            columns.resize((self._middle_features.size, k), refcheck=False)
        else:
            columns = np.zeros((self._middle_features.size, k))
        work = _work_array(k)
        for start, stop in _blocks(count, len(work)):
            columns[start:stop] = np.matmul(old[start:stop], turn, out=work[: stop - start])
        for start, stop in _blocks(recent.size, len(work)):
            columns[place[recent[start:stop]]] += numbers[start:stop]
        self._middle_columns = columns

    def _short_gram(self) -> Array:
        """Inner products of the dense columns since the last whole rebuild and of the middle columns."""
        base, k, width = self._base, self._middle_columns.shape[1], self._columns.shape[1]
        gram = np.zeros((base + k, base + k))
        gram[:base, :base] = self._gram[:base, :base]
        work = _work_array(width)
        for start, stop in _blocks(self._middle_features.size, len(work)):
            features, middle = self._middle_features[start:stop], self._middle_columns[start:stop]
            # No index is out of range; with the mode "raise" NumPy would fill another array first.
            dense = np.take(self._columns, features, axis=0, out=work[: stop - start], mode="clip")
            gram[base:, :base] += middle.T @ dense[:, :base]
            gram[base:, base:] += middle.T @ middle
        gram[:base, base:] = gram[base:, :base].T
        return gram

    def _restart(self, gram: Array, base: int) -> None:
        """Begin with the dense and the middle columns that have these inner products, without actions."""
        k = len(gram)
        self._rows[:], self._gram[:], self._is_dense[:] = 0.0, 0.0, False
        self._gram[:k, :k] = gram
        if k:
            self._rows[:k, :k] = _triangle(gram)
        self._longest = float(np.abs(self._rows[:k, :k]).sum(axis=1).max(initial=0.0))
        self._is_dense[:base] = True
        self.dense = self._base = base
        self.used, self.middle, self.recent = k, k - base, 0

    def _make_room(self, n_state: int) -> None:
        """Make the arrays large enough for a state of so many directions."""
        if n_state <= self.n_state:
            return
        self.n_state = n_state
        self.spare = self._spare_columns()
        self.size = min(self._most_coordinates(), self.n_features)
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
            "short": self.short,
            "careful": self.careful,
            "base": self._base,
            "work": self._work,
            "middle_work": self._middle_work,
            "middle_features": self._middle_features.copy(),
            "middle_columns": self._middle_columns.copy(),
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
        names = "rebuilds", "short", "careful", "base", "middle_work"
        result.rebuilds, result.short, result.careful, result._base, result._middle_work = (
            as_integer(name, take(state, name), 0) for name in names
        )
        result._work = as_non_negative("work", take(state, "work"))
        touched = _as_places("touched", take(state, "touched"), result.n_features)
        middle = _as_places("middle_features", take(state, "middle_features"), touched.size)
        played = _as_places("recent_features", take(state, "recent_features"), touched.size)
        starts = _as_places("starts", take(state, "starts"), played.size + 1)
        if not starts.size or starts[0] != 0 or starts[-1] != played.size or (np.diff(starts) < 0).any():
            raise ValueError(f"starts must rise from 0 to {played.size}, got {starts}")
        is_dense = np.asarray(take(state, "is_dense"))
        if is_dense.ndim != 1 or is_dense.dtype.kind != "b":
            raise ValueError(f"is_dense must be a vector of truth values, got {is_dense!r}")
        u, recent, dense = is_dense.size, starts.size - 1, int(is_dense.sum())
        n_middle = u - dense - recent
        expected = {
            "columns": (touched.size, dense),
            "rows": (u, u),
            "gram": (u, u),
            "recent_values": (played.size,),
            "middle_columns": (middle.size, n_middle),
        }
        arrays = {name: as_finite(name, take(state, name)) for name in expected}
        for name, shape in expected.items():
            if arrays[name].shape != shape:
                raise ValueError(f"{name} must have shape {shape}, got {arrays[name].shape}")
        if u > result.size or recent > result.period or dense > result._columns.shape[1]:
            raise ValueError(f"is_dense and starts must fit {result.size} coordinates, got {u} and {recent}")
        base, end = result._base, result._base + n_middle
        if end > u or not is_dense[:base].all() or is_dense[base:end].any():
            raise ValueError(f"base must be the number of dense rows before the middle ones, got {base}")
        # Only coordinates that are not the features themselves have places of features. They can be as many
        # as the features, after a growth of the state.
        result.is_identity = result.is_identity and not touched.size
        result._touch(touched)
        result._columns[: touched.size, :dense] = arrays["columns"]
        result._rows[:u, :u], result._gram[:u, :u] = arrays["rows"], arrays["gram"]
        result._is_dense[:u] = is_dense
        result._starts[: recent + 1] = starts
        result._features, result._values = played, arrays["recent_values"].copy()
        result._middle_features, result._middle_columns = middle, arrays["middle_columns"].copy()
        result._middle_place[middle] = np.arange(middle.size, dtype=np.int32)
        result._longest = float(np.abs(result._rows[:u, :u]).sum(axis=1).max(initial=0.0))
        result.used, result.dense, result.middle, result.recent = u, dense, n_middle, recent
        return result


def _as_places(name: str, value: Any, count: int) -> NDArray[np.int32]:
    """Return an entry of a state as a vector of integers in 0..count-1, or raise."""
    places = np.asarray(value)
    if places.ndim != 1 or places.dtype.kind not in "iu":
        raise ValueError(f"{name} must be a vector of integers, got {places!r}")
    if places.size and not (places.min() >= 0 and places.max() < count):
        raise ValueError(f"{name} must be in 0..{count - 1}, got {places.min()} and {places.max()}")
    return places.astype(np.int32)


def _triangle(gram: Array) -> Array:
    """F for rows with these inner products: the inverse of their Cholesky factor."""
    return invert_triangle(cholesky(gram.copy()))


def _work_array(width: int) -> Array:
    """An array of that width for one block of rows."""
    return np.empty((max(_BLOCK // max(width, 1), 1), width))


def _blocks(count: int, size: int) -> Iterator[tuple[int, int]]:
    """Where the blocks of so many rows start and stop."""
    return ((start, min(start + size, count)) for start in range(0, count, size))
