"""Kernels for the rounds of `SparseFeatures`: checks, products with its rows, and one more row.

With some fifty non-zeros an action takes so few operations that most of the time of NumPy's form are the
calls themselves, of which the check of an action alone needs some twenty.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from mlogb_core._thresholds import WELL_OUTSIDE
from mlogb_core._validation import Array
from mlogb_core.compiled.arguments import Indices
from mlogb_core.compiled.kernel import kernel
from mlogb_core.compiled.vectors import add_products, add_rows, axpy, dot
from mlogb_core.sparse.features import SparseFeatures

Small = NDArray[np.int32]
#: Rows of a triangle that are used twice while they are in the cache.
BAND = 16


class CompiledFeatures(SparseFeatures):
    """`SparseFeatures` with kernels, and for each feature the list of recent entries.

    A kernel follows these lists, so that its work is proportional to the non-zeros that a candidate shares
    with the recent actions.
    """

    def __init__(self, n_features: int, n_state: int, period: int) -> None:
        super().__init__(n_features, n_state, period)
        self._newest = np.full(0, -1, dtype=np.int32)
        self._older = np.zeros(0, dtype=np.int32)
        self._position = np.zeros(0, dtype=np.int32)
        self._listed = 0

    def checked_actions(self, actions: ArrayLike | csr_array) -> tuple[csr_array, Array]:
        """`as_sparse_actions` for these features."""
        squares = self._squares(actions)
        return super().checked_actions(actions) if squares is None else (actions, squares)

    def checked_action(self, action: ArrayLike | csr_array) -> tuple[csr_array, float]:
        """`as_sparse_action` for these features."""
        squares = self._squares(action)
        if squares is None or len(squares) != 1:
            return super().checked_action(action)
        return action, float(squares[0])

    def _squares(self, actions: Any) -> Array | None:
        """Squared lengths of actions in canonical form, or None.

        For what is not in this form the checks in NumPy follow, which put it in order or say what is wrong.
        """
        if type(actions) is not csr_array or actions.ndim != 2:
            return None
        n, width = actions.shape
        data, kinds = actions.data, actions.indptr.dtype.kind + actions.indices.dtype.kind
        if n < 1 or width != self.n_features or len(actions.indptr) != n + 1 or kinds != "ii":
            return None
        if data.dtype != np.float64 or not (data.flags.behaved and data.flags.c_contiguous):
            return None
        squares, is_canonical = canonical_squares(*_index_arrays(actions), data, width)
        return squares if is_canonical else None

    def _products(self, actions: csr_array) -> Array:
        self._list_recent()
        products = np.zeros((actions.shape[0], self.used))
        dense = np.flatnonzero(self._is_dense[: self.used])
        lists = self._newest, self._older, self._position, self._values
        middle = self._middle_place, self._middle_columns, self._base
        arrays = *_index_arrays(actions), actions.data, self._place, self._columns
        add_sparse_products(*arrays, dense, middle, lists, products)
        return products

    def _list_recent(self) -> None:
        """Put the entries of actions that came after the last call at the head of their features' lists."""
        if self._newest.size < self._touched:
            newest = np.full(len(self._columns), -1, dtype=np.int32)
            newest[: self._newest.size] = self._newest
            self._newest = newest
        if self._older.size < self._values.size:
            self._older = np.resize(self._older, self._values.size)
            self._position = np.resize(self._position, self._values.size)
        if self._listed == self.recent:
            return
        starts, positions = self._starts[self._listed :], np.flatnonzero(self._is_recent)[self._listed :]
        list_entries(starts, self._features, positions, self._newest, self._older, self._position)
        self._listed = self.recent

    def _join(self, products: Array) -> tuple[Array, float, float]:
        """Write the last row of F and of R R'; see `SparseFeatures._join`."""
        joined: tuple[Array, float, float] = join(self._rows, self._gram, products, WELL_OUTSIDE)
        return joined

    def rebuild(self, directions: Array, n_state: int) -> Array:
        """Keep the given directions of the coordinates; see `SparseFeatures.rebuild`."""
        listed = self._features[: self._starts[self._listed]]
        self._newest[listed] = -1
        self._listed = 0
        return super().rebuild(directions, n_state)


def _index_arrays(rows: csr_array) -> tuple[Indices, Indices]:
    """The index arrays of a CSR array in the one type for which the kernels are compiled."""
    return np.ascontiguousarray(rows.indptr, np.intp), np.ascontiguousarray(rows.indices, np.intp)


@kernel
def canonical_squares(indptr: Indices, indices: Indices, data: Array, width: int) -> tuple[Array, bool]:
    """Squared lengths of the rows of a CSR matrix, and whether it is canonical and they are finite.

    It is canonical if its arrays fit each other, and each row has increasing indices in 0..width-1 and no
    zeros. Nothing is read outside of the arrays where they do not fit.
    """
    n, size, total = indptr.size - 1, data.size, 0.0
    squares = np.zeros(n)
    if indptr[0] != 0 or indptr[n] != size or indices.size != size:
        return squares, False
    for a in range(n):
        start, stop = indptr[a], indptr[a + 1]
        if stop < start or stop > size:
            return squares, False
        last, increasing = -1, True
        for entry in range(start, stop):
            increasing &= indices[entry] > last and data[entry] != 0.0
            last = indices[entry]
        if last >= width or not increasing:
            return squares, False
        squares[a] = dot(data[start:stop], data[start:stop])
        total += squares[a]
    return squares, math.isfinite(total)


@kernel
def add_sparse_products(
    indptr: Indices,
    indices: Indices,
    data: Array,
    place: Small,
    columns: Array,
    dense: Indices,
    middle: tuple[Small, Array, int],
    lists: tuple[Small, Small, Small, Array],
    products: Array,
) -> None:
    """Add the products of the rows of a CSR matrix with dense, middle and recent rows to `products`."""
    newest, older, position, values = lists
    middle_place, middle_columns, base = middle
    k, n_middle = dense.size, middle_columns.shape[1]
    sums = np.zeros(k)
    known, weights = np.empty(indices.size, dtype=np.intp), np.empty(indices.size)
    for a in range(indptr.size - 1):
        count = 0
        for entry in range(indptr[a], indptr[a + 1]):
            feature = place[indices[entry]]
            if feature >= 0:
                known[count], weights[count] = feature, data[entry]
                count += 1
        sums[:] = 0.0
        add_chosen_rows(weights[:count], known, columns, sums)
        for i in range(k):
            products[a, dense[i]] = sums[i]
        later = products[a, base : base + n_middle]
        for entry in range(count):
            feature, weight = known[entry], weights[entry]
            if n_middle > 0 and middle_place[feature] >= 0:
                axpy(weight, middle_columns[middle_place[feature]], later)
            recent = newest[feature]
            while recent >= 0:
                products[a, position[recent]] += weight * values[recent]
                recent = older[recent]


@kernel
def add_chosen_rows(weights: Array, chosen: Indices, rows: Array, out: Array) -> None:
    """`out += weights @ rows[chosen]` over the first columns, four rows at a time.

    Most of the rows are not in the cache, and the processor waits for four of them at once.
    """
    n, k = weights.size, 0
    while k + 4 <= n:
        a, b, c, d = rows[chosen[k]], rows[chosen[k + 1]], rows[chosen[k + 2]], rows[chosen[k + 3]]
        p, q, r, s = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
        for i in range(out.size):
            out[i] += (p * a[i] + q * b[i]) + (r * c[i] + s * d[i])
        k += 4
    while k < n:
        axpy(weights[k], rows[chosen[k], : out.size], out)
        k += 1


@kernel
def list_entries(
    starts: Indices, features: Small, positions: Indices, newest: Small, older: Small, position: Small
) -> None:
    """Put the entries of actions, with these positions among the coordinates, at the head of the lists."""
    for s in range(positions.size):
        for entry in range(starts[s], starts[s + 1]):
            feature = features[entry]
            older[entry], newest[feature], position[entry] = newest[feature], entry, positions[s]


@kernel
def join(rows: Array, gram: Array, products: Array, well_outside: float) -> tuple[Array, float, float]:
    """`SparseFeatures._join`, with the triangle F and the symmetric matrix R R' read by halves."""
    u = products.size
    inside, row = np.zeros(u), np.zeros(u)
    _subtract_inside(rows, products, inside, row)
    if 1.0 - dot(inside, inside) <= well_outside:
        return inside, 0.0, 0.0
    image = products.copy()
    _add_symmetric(gram, row, image)
    _subtract_inside(rows, image, inside, row)
    image[:] = products
    _add_symmetric(gram, row, image)
    outside = math.sqrt(1.0 + dot(products, row) + dot(image, row))
    longest = 1.0
    for i in range(u):
        gram[u, i] = gram[i, u] = products[i]
        rows[u, i] = row[i] / outside
        longest += abs(row[i])
    gram[u, u], rows[u, u] = 1.0, 1.0 / outside
    return inside, outside, longest / outside


@kernel
def _subtract_inside(rows: Array, products: Array, inside: Array, row: Array) -> None:
    """Add `F @ products` to the coordinates and subtract its product with F from the row, in one pass."""
    u = products.size
    for start in range(0, u, BAND):
        stop = min(start + BAND, u)
        band, found = rows[start:stop], np.zeros(stop - start)
        add_products(band, 0, stop, products[:stop], found)
        inside[start:stop] += found
        add_rows(-found, band, 0, stop, row[:stop])


@kernel
def _add_symmetric(matrix: Array, vector: Array, out: Array) -> None:
    """Add the product of a symmetric matrix, of which the lower half is read, with a vector."""
    u = vector.size
    for start in range(0, u, BAND):
        stop = min(start + BAND, u)
        band = matrix[start:stop]
        add_products(band, 0, stop, vector[:stop], out[start:stop])
        add_rows(vector[start:stop], band, 0, start, out[:start])
