"""The shrink of a sketch by a block reflector: see `curvature.frequent_directions`."""

from __future__ import annotations

import math

import numpy as np

from mlogb_core._validation import Array
from mlogb_core.compiled.kernel import exact_kernel, kernel
from mlogb_core.compiled.vectors import (
    BLOCK,
    add_combinations,
    add_products,
    add_rows,
    add_rows_twice,
    axpy,
    dot,
)


@kernel
def shrink(core: Array, removed: Array, kept: int, discarded: float) -> tuple[Array, Array]:
    r"""Remove k directions from the core and subtract the discarded amount.

    For the reflector :math:`I - M Y^\top` the columns of Y replace the k rows of `removed`, and those of M
    are returned beside the new core; `deflate` applies it to the basis. The reflected core is
    :math:`C - M V^\top - V M^\top` with :math:`V = C Y - \tfrac12 M Y^\top C Y`, symmetric to the bit.
    """
    k, n = removed.shape
    orthogonal, inverse = _polar(removed[:, kept:])
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
    return _reflected(core, scaled, image, kept, discarded), scaled


@kernel
def _polar(columns: Array) -> tuple[Array, Array]:
    """`_linalg.polar` for a matrix that is given by its columns.

    Jacobi's rotations make the columns orthogonal, so that their lengths are the singular values. For K from
    2 to 8 this takes a third to two thirds of the time of `numpy.linalg.svd`. The factors are accurate for
    small singular values too, as long as products of squares do not underflow.
    """
    k = columns.shape[0]
    orthogonal, inverse = np.zeros((k, k)), np.zeros((k, k))
    if k == 1:
        orthogonal[0, 0] = -1.0 if columns[0, 0] < 0.0 else 1.0
        inverse[0, 0] = 1.0 / (1.0 + abs(columns[0, 0]))
        return orthogonal, inverse
    W, V = columns.copy(), np.eye(k)
    for _ in range(40):
        largest = 0.0
        for p in range(k - 1):
            for q in range(p + 1, k):
                a, b, g = dot(W[p], W[p]), dot(W[q], W[q]), dot(W[p], W[q])
                if not g * g > 1e-32 * a * b:
                    continue
                largest = max(largest, g * g / (a * b))
                zeta = (b - a) / (2.0 * g)
                t = 1.0 / (abs(zeta) + math.sqrt(1.0 + zeta * zeta))
                if zeta < 0.0:
                    t = -t
                c = 1.0 / math.sqrt(1.0 + t * t)
                _rotate(W[p], W[q], c, c * t)
                _rotate(V[p], V[q], c, c * t)
        if largest <= 1e-30:
            break
    for p in range(k):
        singular = math.sqrt(dot(W[p], W[p]))
        if not singular > 1e-70:
            return _polar_by_svd(columns)
        for i in range(k):
            axpy(W[p, i] / singular, V[p], orthogonal[i])
            axpy(V[p, i] / (1.0 + singular), V[p], inverse[i])
    return orthogonal, inverse


@kernel
def _rotate(x: Array, y: Array, c: float, s: float) -> None:
    for i in range(x.size):
        x[i], y[i] = c * x[i] - s * y[i], s * x[i] + c * y[i]


@kernel
def _polar_by_svd(columns: Array) -> tuple[Array, Array]:
    left, singular, right = np.linalg.svd(columns.T.copy())
    scaled = right.T.copy()
    for i in range(singular.size):
        scaled[i] /= 1.0 + singular
    return np.dot(left, right), np.dot(scaled, right)


@exact_kernel
def _reflected(core: Array, scaled: Array, image: Array, kept: int, discarded: float) -> Array:
    """The new core; exact, so that both triangles are rounded alike, with the two summands exchanged."""
    shrunk = np.empty((kept, kept))
    for i in range(kept):
        row, old = shrunk[i], core[i]
        for j in range(row.size):
            row[j] = old[j]
        for c in range(scaled.shape[0]):
            p, q, x, y = scaled[c, i], image[c, i], image[c], scaled[c]
            for j in range(row.size):
                row[j] -= p * x[j] + q * y[j]
        row[i] -= discarded
    return shrunk


@kernel
def deflate(rows: Array, reflector: Array, scaled: Array, kept: int) -> None:
    """Apply the reflector to the basis in place; only the rows that are kept are computed."""
    k, weights = reflector.shape[0], -scaled.T.copy()
    for start in range(0, rows.shape[1], BLOCK):
        stop = min(start + BLOCK, rows.shape[1])
        product = np.zeros((k, stop - start))
        for c in range(0, k - 1, 2):
            add_rows_twice(reflector[c], reflector[c + 1], rows, start, stop, product[c], product[c + 1])
        if k % 2:
            add_rows(reflector[k - 1], rows, start, stop, product[k - 1])
        add_combinations(weights[:kept], product, rows, start, stop)
