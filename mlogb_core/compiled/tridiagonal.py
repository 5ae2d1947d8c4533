"""The few smallest eigenpairs of a core, which a shrink needs for K > 1.

LAPACK's driver takes the same steps: a tridiagonal matrix by Householder's reflectors, its eigenvalues by
bisection, their vectors by inverse iteration. For one small matrix most of its time is spent between short
loops. Here a reflector is applied in the pass over the matrix that computes the product for the next one, and
bisection counts eigenvalues at `LANES` points at a time.

The counts show that the values are the smallest ones. The residual of the vectors is then measured with the
matrix itself, so that pairs which are called certain do not depend on the steps before.
"""

from __future__ import annotations

import math

import numpy as np

from mlogb_core._validation import Array
from mlogb_core.compiled.arguments import Flags
from mlogb_core.compiled.kernel import kernel
from mlogb_core.compiled.vectors import add_products, axpy, dot

#: Points at which eigenvalues are counted at a time, and most eigenvalues that are asked for.
LANES = 16
#: Eigenvalues, ascending, their orthonormal vectors as rows, and whether they are shown to be the smallest.
Pairs = tuple[Array, Array, bool]
_WIDTH = 8  # numbers in a step of a vectorised loop, to which rows are filled up
_EPS = float(np.finfo(np.float64).eps)
_TINY = 1e-30  # relative to the trace, far below roundoff: no reflector is needed, and a zero does no harm


@kernel
def smallest_by_bisection(matrix: Array, count: int) -> Pairs:
    """The smallest eigenpairs, at most `LANES`, of a positive semidefinite matrix, if they are certain."""
    n, trace = matrix.shape[0], 0.0
    for i in range(n):
        trace += matrix[i, i]
    if not (1e-250 < trace < 1e250 and count <= min(n, LANES)):
        return np.zeros(count), matrix[:count], False
    # The eigenvalues of the scaled matrix are at most 1. A power of two rounds nothing.
    scale = math.ldexp(1.0, math.frexp(trace)[1])
    diagonal, off_diagonal, reflectors = _tridiagonal(matrix, 1.0 / scale)
    size = 0.0
    for i in range(n):
        size = max(size, abs(diagonal[i]) + 2.0 * abs(off_diagonal[i]))
    values = _bisected(diagonal, off_diagonal, count, trace / scale, size)
    vectors = _vectors(diagonal, off_diagonal, values, reflectors.shape[1])
    _reflect(reflectors, vectors)
    values *= scale
    certain = _residual(matrix, values, vectors) <= 16.0 * _EPS * size * scale
    return values, vectors[:, :n].copy(), certain


@kernel
def _tridiagonal(matrix: Array, scale: float) -> tuple[Array, Array, Array]:
    """Diagonal and off-diagonal of a tridiagonal matrix similar to `scale * matrix`, and the reflectors.

    The reflector in row j is a vector u of squared length 2, or 0, with zeros from place j on. It annuls row
    j of the matrix left of the off-diagonal. The other rows change by -u w' - w u', and the next product with
    them is computed while they are in registers. Arrays are filled up with zeros, which change nothing.
    """
    n = matrix.shape[0]
    width = (n + _WIDTH - 1) // _WIDTH * _WIDTH
    rest, reflectors = np.zeros((width, width)), np.zeros((n, width))
    for i in range(n):
        for k in range(n):
            rest[i, k] = scale * matrix[i, k]
    diagonal, off_diagonal = np.empty(n), np.zeros(n)
    old, change, product = np.zeros(width), np.zeros(width), np.zeros(width)
    for j in range(n - 1, 0, -1):
        row, new = rest[j, : j + 1], reflectors[j]
        p, q, square, half = -old[j], -change[j], 0.0, 0.0
        for k in range(j + 1):
            row[k] += p * change[k] + q * old[k]
        diagonal[j], off_diagonal[j - 1] = row[j], row[j - 1]
        for k in range(j - 1):
            square += row[k] * row[k]
        if square > _TINY * _TINY:
            length = math.sqrt(square + row[j - 1] ** 2)
            if row[j - 1] > 0.0:
                length = -length
            off_diagonal[j - 1] = length
            factor = 1.0 / math.sqrt(length * (length - row[j - 1]))
            for k in range(j - 1):
                new[k] = factor * row[k]
            new[j - 1] = factor * (row[j - 1] - length)
        _update_and_multiply(rest, old, change, new, product, (j + _WIDTH - 1) // _WIDTH * _WIDTH)
        for k in range(j):
            half += 0.5 * product[k] * new[k]
        for k in range(j):
            change[k] = product[k] - half * new[k]
        change[j] = 0.0
        old = new
    diagonal[0] = rest[0, 0] - 2.0 * old[0] * change[0]
    return diagonal, off_diagonal, reflectors


@kernel
def _update_and_multiply(
    rest: Array, old: Array, change: Array, new: Array, product: Array, size: int
) -> None:
    """Subtract `old change' + change old'` from a leading block, and multiply the result with `new`.

    The product is a sum of rows, as the block is symmetric, which is faster than a dot product for each row.
    """
    x, y, z, total = old[:size], change[:size], new[:size], product[:size]
    total[:] = 0.0
    for i in range(0, size, 4):
        a, b, c, d = rest[i, :size], rest[i + 1, :size], rest[i + 2, :size], rest[i + 3, :size]
        # Sums with negative factors are two fused operations each, differences of sums three.
        p, q, r, s = -x[i], -x[i + 1], -x[i + 2], -x[i + 3]
        e, f, g, h = -y[i], -y[i + 1], -y[i + 2], -y[i + 3]
        t, u, v, w = z[i], z[i + 1], z[i + 2], z[i + 3]
        for k in range(size):
            one, two = a[k] + (p * y[k] + e * x[k]), b[k] + (q * y[k] + f * x[k])
            three, four = c[k] + (r * y[k] + g * x[k]), d[k] + (s * y[k] + h * x[k])
            a[k], b[k], c[k], d[k] = one, two, three, four
            total[k] += (t * one + u * two) + (v * three + w * four)


@kernel
def _reflect(reflectors: Array, vectors: Array) -> None:
    """Apply I - u u' for each reflector, from the shortest on, to vectors that are given as rows."""
    for j in range(1, reflectors.shape[0]):
        size = (j + _WIDTH - 1) // _WIDTH * _WIDTH
        for c in range(vectors.shape[0]):
            u, vector, product = reflectors[j, :size], vectors[c, :size], 0.0
            for k in range(size):
                product += u[k] * vector[k]
            for k in range(size):
                vector[k] -= product * u[k]


@kernel
def _bisected(diagonal: Array, off_diagonal: Array, count: int, trace: float, size: float) -> Array:
    """The smallest eigenvalues of a positive semidefinite tridiagonal matrix, to roundoff of its size.

    Each is enclosed in an interval, which every sweep divides into the same number of parts. All others of
    the n are at least as large as the last of these, so that it is at most the trace divided by their number.
    """
    n, share = diagonal.size, LANES // count
    even = (n + 1) // 2 * 2
    pivots, squares = np.empty(even), np.empty(even)
    pivots[n:] = 2.0  # a last row that adds no eigenvalue below 1
    for i in range(n):
        pivots[i] = diagonal[i]
    for i in range(even):
        squares[i] = max(off_diagonal[i - 1] ** 2 if i > 0 else 0.0, _TINY * _TINY)
    low, high, width = np.empty(count), np.empty(count), np.inf
    for i in range(count):
        low[i], high[i] = -n * _EPS * size, trace / (n - count + 1) + n * _EPS * size
    points, found, work = np.zeros(LANES), np.empty(LANES), np.empty((2, LANES))
    while width > 2.0 * _EPS * size:
        width = 0.0
        for i in range(count):
            step = (high[i] - low[i]) / (share + 1)
            for j in range(share):
                points[i * share + j] = low[i] + (j + 1) * step
        _count_below(pivots, squares, points, found, work[0], work[1])
        for i in range(count):
            for c in range(count * share):
                if found[c] > i:
                    high[i] = min(high[i], points[c])
                else:
                    low[i] = max(low[i], points[c])
            width = max(width, high[i] - low[i])
    for i in range(count):
        low[i] += 0.5 * (high[i] - low[i])
    return low


@kernel
def _count_below(
    diagonal: Array, squares: Array, points: Array, found: Array, minor: Array, before: Array
) -> None:
    """Numbers of eigenvalues below the points: the sign changes of the leading minors, two rows at a time.

    No square is 0, so that two successive minors are not, and small ones are scaled before they underflow.
    """
    for c in range(LANES):
        minor[c], before[c], found[c] = 1.0, 0.0, 0.0
    for i in range(0, diagonal.size, 2):
        a, b, f, g = diagonal[i], diagonal[i + 1], squares[i], squares[i + 1]
        for c in range(LANES):
            p = minor[c]
            q = (a - points[c]) * p - f * before[c]
            r = (b - points[c]) * q - g * p
            found[c] += (1.0 if (q < 0.0) != (p < 0.0) else 0.0) + (1.0 if (r < 0.0) != (q < 0.0) else 0.0)
            scale = 2.0**400 if max(abs(q), abs(r)) < 2.0**-200 else 1.0
            before[c], minor[c] = scale * q, scale * r


@kernel
def _vectors(diagonal: Array, off_diagonal: Array, values: Array, width: int) -> Array:
    """Orthonormal eigenvectors of a tridiagonal matrix as rows, by two steps of inverse iteration each."""
    n, count = diagonal.size, values.size
    vectors = np.zeros((count, width))
    for c in range(count):
        factor, swapped = _factored(diagonal, off_diagonal, values[c])
        vector = vectors[c, :n]
        for i in range(n):
            vector[i] = 1.0 + (i * (c + 2)) % 11  # vectors of a cluster start from different ones
        for _ in range(2):
            _solve(factor, swapped, vector)
            for _ in range(2):  # The second time removes what cancellation has left.
                for b in range(c):
                    axpy(-dot(vectors[b], vectors[c]), vectors[b], vectors[c])
                scale = 1.0 / math.sqrt(dot(vector, vector))
                for i in range(n):
                    vector[i] *= scale
    return vectors


@kernel
def _factored(diagonal: Array, off_diagonal: Array, value: float) -> tuple[Array, Flags]:
    """Gaussian elimination with row pivots for a tridiagonal matrix minus a multiple of the identity.

    The rows of the factor hold the reciprocal of the pivot, the two entries right of it and the multiplier.
    """
    n = diagonal.size
    factor, swapped = np.zeros((n, 4)), np.zeros(n, dtype=np.bool_)
    pivot, right = diagonal[0] - value, off_diagonal[0]
    for i in range(n):
        row, below = factor[i], off_diagonal[i]
        swapped[i] = abs(below) > abs(pivot)
        if i + 1 < n and swapped[i]:
            ratio, entry = pivot / below, diagonal[i + 1] - value
            row[0], row[1], row[2], row[3] = 1.0 / below, entry, off_diagonal[i + 1], ratio
            pivot, right = right - ratio * entry, -ratio * off_diagonal[i + 1]
        else:
            if abs(pivot) < _TINY:
                pivot = _TINY
            row[0], row[1] = 1.0 / pivot, right
            row[3] = below / pivot
            if i + 1 < n:
                pivot, right = diagonal[i + 1] - value - row[3] * right, off_diagonal[i + 1]
    return factor, swapped


@kernel
def _solve(factor: Array, swapped: Flags, vector: Array) -> None:
    """Solve with the matrix that `_factored` has factored, in place."""
    n = vector.size
    for i in range(n - 1):
        if swapped[i]:
            vector[i], vector[i + 1] = vector[i + 1], vector[i] - factor[i, 3] * vector[i + 1]
        else:
            vector[i + 1] -= factor[i, 3] * vector[i]
    first = second = 0.0
    for i in range(n - 1, -1, -1):
        first, second = (vector[i] - factor[i, 1] * first - factor[i, 2] * second) * factor[i, 0], first
        vector[i] = first


@kernel
def _residual(matrix: Array, values: Array, vectors: Array) -> float:
    """The longest residual of a pair, or infinity where the vectors are not orthonormal to roundoff."""
    n, longest = matrix.shape[0], 0.0
    image = np.empty(n)
    for c in range(values.size):
        vector = vectors[c, :n]
        for b in range(c + 1):
            if not abs(dot(vectors[b], vectors[c]) - (b == c)) <= 1e-14:
                return np.inf
        image[:] = 0.0
        add_products(matrix, 0, n, vector, image)
        axpy(-values[c], vector, image)
        longest = max(longest, dot(image, image))
    return math.sqrt(longest)
