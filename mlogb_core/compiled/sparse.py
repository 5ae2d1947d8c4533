"""Products of sparse actions with the rows of `SparseFeatures`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlogb_core._validation import Array
from mlogb_core.compiled.arguments import Indices
from mlogb_core.compiled.kernel import kernel
from mlogb_core.compiled.vectors import axpy
from mlogb_core.sparse.features import SparseFeatures

Small = NDArray[np.int32]


class CompiledFeatures(SparseFeatures):
    """`SparseFeatures` with a kernel for the products, and for each feature the list of recent entries.

    A kernel follows these lists, so that its work is proportional to the non-zeros that a candidate shares
    with the recent actions.
    """

    def __init__(self, n_features: int, n_state: int, period: int) -> None:
        super().__init__(n_features, n_state, period)
        self._newest = np.full(0, -1, dtype=np.int32)
        self._older = np.zeros(0, dtype=np.int32)
        self._position = np.zeros(0, dtype=np.int32)
        self._listed = 0

    def _products(self, actions: csr_array) -> Array:
        self._list_recent()
        products = np.zeros((actions.shape[0], self.used))
        indptr, indices = actions.indptr.astype(np.intp), actions.indices.astype(np.intp)
        dense = np.flatnonzero(self._is_dense[: self.used])
        lists = self._newest, self._older, self._position, self._values
        middle = self._middle_place, self._middle_columns, self._base
        add_sparse_products(
            indptr, indices, actions.data, self._place, self._columns, dense, middle, lists, products
        )
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
        positions = np.flatnonzero(self._is_recent)
        for s in range(self._listed, self.recent):
            start, end = int(self._starts[s]), int(self._starts[s + 1])
            features = self._features[start:end]
            self._older[start:end] = self._newest[features]
            self._newest[features] = np.arange(start, end, dtype=np.int32)
            self._position[start:end] = positions[s]
        self._listed = self.recent

    def rebuild(self, directions: Array, n_state: int) -> Array:
        """Keep the given directions of the coordinates; see `SparseFeatures.rebuild`."""
        self._newest[self._features[: self._starts[self.recent]]] = -1
        self._listed = 0
        return super().rebuild(directions, n_state)


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
    for a in range(indptr.size - 1):
        sums[:] = 0.0
        later = products[a, base : base + n_middle]
        for entry in range(indptr[a], indptr[a + 1]):
            feature = place[indices[entry]]
            if feature < 0:
                continue
            axpy(data[entry], columns[feature, :k], sums)
            if n_middle > 0 and middle_place[feature] >= 0:
                axpy(data[entry], middle_columns[middle_place[feature]], later)
            recent = newest[feature]
            while recent >= 0:
                products[a, position[recent]] += data[entry] * values[recent]
                recent = older[recent]
        for i in range(k):
            products[a, dense[i]] = sums[i]
