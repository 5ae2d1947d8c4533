"""The shrink of a sketch, behind a block reflector: see `curvature.frequent_directions`."""

from __future__ import annotations

import numpy as np

from mlogb_core._validation import Array
from mlogb_core.compiled.kernel import exact_kernel, kernel
from mlogb_core.compiled.vectors import BLOCK, add_products, add_rows, axpy, dot


@kernel
def shrink(
    rows: Array, core: Array, removed: Array, kept: int, discarded: float, deflate: bool
) -> tuple[Array, Array]:
    r"""The core without k directions and less the discarded amount; the basis too, in place, if asked.

    Of the reflector :math:`I - M Y^\top` the columns of Y take the place of the k rows of `removed`, and
    those of M are returned. The reflected core is :math:`C - M V^\top - V M^\top` for
    :math:`V = C Y - \tfrac12 M Y^\top C Y`, symmetric to the bit.
    """
    k, n = removed.shape
    orthogonal, inverse = _polar(removed[:, kept:].T.copy())
    removed[:, kept:] += orthogonal.T
    scaled, image, inner = np.zeros((k, n)), np.zeros((k, n)), np.empty((k, k))
    for c in range(k):
        add_rows(inverse[c], removed, 0, n, scaled[c])
        add_products(core, 0, n, removed[c], image[c])
    for a in range(k):
        for b in range(k):
            inner[a, b] = 0.5 * dot(removed[a], image[b])
    for b in range(k):
        for a in range(k):
            axpy(-inner[a, b], scaled[a], image[b])
    shrunk = core[:kept, :kept].copy()
    for i in range(kept):
        for c in range(k):
            _subtract_two(scaled[c, i], image[c, :kept], image[c, i], scaled[c, :kept], shrunk[i])
        shrunk[i, i] -= discarded
    if deflate:
        _deflate(rows, removed, scaled, kept)
    return shrunk, scaled


@kernel
def _polar(matrix: Array) -> tuple[Array, Array]:
    """See `_linalg.polar`."""
    k = matrix.shape[0]
    if k == 1:
        sign = -1.0 if matrix[0, 0] < 0.0 else 1.0
        return np.full((1, 1), sign), np.full((1, 1), 1.0 / (1.0 + abs(matrix[0, 0])))
    left, singular, right = np.linalg.svd(matrix)
    scaled = right.T.copy()
    for i in range(k):
        scaled[i] /= 1.0 + singular
    return np.dot(left, right), np.dot(scaled, right)


@exact_kernel
def _subtract_two(p: float, x: Array, q: float, y: Array, out: Array) -> None:
    """`out -= p x + q y`; the same to the bit with the two summands exchanged, as in the other half."""
    for i in range(out.size):
        out[i] -= p * x[i] + q * y[i]


@kernel
def _deflate(rows: Array, reflector: Array, scaled: Array, kept: int) -> None:
    """Apply the reflector to the basis, as far as its first rows that are kept."""
    k, weights = reflector.shape[0], -scaled.T.copy()
    product = np.empty((k, BLOCK))
    for start in range(0, rows.shape[1], BLOCK):
        stop = min(start + BLOCK, rows.shape[1])
        for c in range(k):
            product[c] = 0.0
            add_rows(reflector[c], rows, start, stop, product[c, : stop - start])
        for i in range(kept):
            add_rows(weights[i], product, 0, stop - start, rows[i, start:stop])
