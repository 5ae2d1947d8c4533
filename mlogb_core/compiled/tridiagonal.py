"""The few smallest eigenpairs of a core, for a shrink by several directions.

LAPACK's driver takes similar steps: a tridiagonal matrix by Householder's reflectors, its eigenvalues by
bisection, their vectors by inverse iteration. For one small matrix most of its time is spent between short
loops. Here a reflector is applied in the pass over the matrix that computes the product for the next one, and
bisection counts eigenvalues at `LANES` points at a time. Bisection is slow near the end; where the intervals
are narrow, Rayleigh quotient iteration takes three steps to roundoff, for all eigenvalues side by side.

Counts below the values show that they are the smallest ones, whichever the iteration has found. The residual
of the vectors is then measured with the matrix itself, so that pairs which are called certain do not depend
on the steps before.
"""

from __future__ import annotations

import math

import numpy as np

from mlogb_core._validation import Array
from mlogb_core.compiled.kernel import kernel
from mlogb_core.compiled.vectors import add_products, axpy, dot

#: Points at which eigenvalues are counted at a time, and most eigenvalues that are asked for.
LANES = 16
#: Eigenvalues, ascending, their orthonormal vectors as rows, and whether they are shown to be the smallest.
Pairs = tuple[Array, Array, bool]
_WIDTH = 8  # numbers in a step of a vectorised loop, to which rows are filled up
_EPS = float(np.finfo(np.float64).eps)
_ROUGHLY = 1e-6  # relative to the size, the intervals from which almost all iterations reach roundoff
#: The steps of the iteration, whose convergence is cubic, and how often their vectors are made orthogonal: in
#: the last one twice, which removes what cancellation has left.
_PASSES = (1, 1, 2)
_ROW = 4 * LANES  # numbers of one row of the equations that are solved side by side
_TINY = 1e-30  # relative to the trace, far below roundoff: what is smaller counts as 0, and a 0 as this


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
    # All others of the n are at least as large as the last of these.
    roundoff, bound = n * _EPS * size, trace / scale / (n - count + 1)
    low, high = np.empty(count), np.empty(count)
    for i in range(count):
        low[i], high[i] = -roundoff, bound + roundoff
    # Only eigenvalues of a cluster have to be separated by bisection up to roundoff.
    for tolerance in (_ROUGHLY, 2.0 * _EPS):
        _bisect(diagonal, off_diagonal, low, high, tolerance * size)
        values, vectors = _iterated(diagonal, off_diagonal, low, high, reflectors.shape[1])
        certain = values[0] >= -roundoff and _are_smallest(diagonal, off_diagonal, values, roundoff)
        if certain:
            _reflect(reflectors, vectors)
            values *= scale
            certain = _residual(matrix, values, vectors) <= 16.0 * _EPS * size * scale
        if certain:
            break
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
def _bisect(diagonal: Array, off_diagonal: Array, low: Array, high: Array, tolerance: float) -> None:
    """Narrow intervals around the smallest eigenvalues of a tridiagonal matrix, ascending, in place.

    Every sweep divides each interval into the same number of parts.
    """
    count, width, points = low.size, np.inf, np.zeros(LANES)
    share = LANES // count
    while width > tolerance:
        width = 0.0
        for i in range(count):
            step = (high[i] - low[i]) / (share + 1)
            for j in range(share):
                points[i * share + j] = low[i] + (j + 1) * step
        found = _count_below(diagonal, off_diagonal, points)
        for i in range(count):
            for c in range(count * share):
                if found[c] > i:
                    high[i] = min(high[i], points[c])
                else:
                    low[i] = max(low[i], points[c])
            width = max(width, high[i] - low[i])


@kernel
def _are_smallest(diagonal: Array, off_diagonal: Array, values: Array, roundoff: float) -> bool:
    """Whether ascending eigenvalues, of orthonormal vectors, are the smallest ones: none has been missed."""
    points, missed = np.zeros(LANES), 0.0
    for c in range(values.size):
        points[c] = values[c] - roundoff
    found = _count_below(diagonal, off_diagonal, points)
    for c in range(values.size):
        missed = max(missed, found[c] - c)
    return missed == 0.0


@kernel
def _count_below(diagonal: Array, off_diagonal: Array, points: Array) -> Array:
    """Numbers of eigenvalues below the points: the sign changes of the leading minors, two rows at a time.

    No square is 0, so that two successive minors are not, and small ones are scaled before they underflow.
    """
    n, least, last = diagonal.size, _TINY * _TINY, 0.0
    found, minor, before = np.zeros(LANES), np.ones(LANES), np.zeros(LANES)
    for i in range(0, n, 2):
        a, b, f, g = diagonal[i], 2.0, max(last * last, least), least
        if i + 1 < n:
            b, g, last = diagonal[i + 1], max(off_diagonal[i] ** 2, least), off_diagonal[i + 1]
        for c in range(LANES):
            p = minor[c]
            q = (a - points[c]) * p - f * before[c]
            r = (b - points[c]) * q - g * p
            found[c] += (1.0 if (q < 0.0) != (p < 0.0) else 0.0) + (1.0 if (r < 0.0) != (q < 0.0) else 0.0)
            scale = 2.0**400 if max(abs(q), abs(r)) < 2.0**-200 else 1.0
            before[c], minor[c] = scale * q, scale * r
    return found


@kernel
def _iterated(
    diagonal: Array, off_diagonal: Array, low: Array, high: Array, width: int
) -> tuple[Array, Array]:
    """Eigenvalues in intervals and orthonormal vectors as rows, by Rayleigh quotient iteration."""
    n, count = diagonal.size, low.size
    values, vectors = np.empty(count), np.zeros((count, width))
    for c in range(count):  # Vectors of a cluster start from different ones.
        values[c] = low[c] + 0.5 * (high[c] - low[c])
        for i in range(n):
            place = 0.6180339887 * (c + 1) * i
            vectors[c, i] = 1.0 + (place - math.floor(place))
    for passes in _PASSES:
        _solve(diagonal, off_diagonal, values, vectors)
        for c in range(count):
            vector = vectors[c]
            for _ in range(passes):
                for b in range(c):
                    axpy(-dot(vectors[b], vectors[c]), vectors[b], vectors[c])
                scale = 1.0 / math.sqrt(dot(vector, vector))
                for i in range(n):
                    vector[i] *= scale
            quotient = diagonal[n - 1] * vector[n - 1] ** 2
            for i in range(n - 1):
                quotient += vector[i] * (diagonal[i] * vector[i] + 2.0 * off_diagonal[i] * vector[i + 1])
            values[c] = quotient
    return values, vectors


@kernel
def _solve(diagonal: Array, off_diagonal: Array, values: Array, vectors: Array) -> None:
    """Solve with a tridiagonal matrix minus each of the values, one vector each, by elimination with pivots.

    The systems are solved side by side, so that their divisions overlap. One array holds, row by row, for all
    of them the reciprocal of the pivot, the two entries right of it and the right side: with fixed distances
    between them the loops are vectorised.
    """
    n, count = diagonal.size, values.size
    rows, shift = np.zeros((n + 2) * _ROW), np.zeros(LANES)
    for c in range(count):
        shift[c] = values[c]
        rows[c], rows[LANES + c] = diagonal[0] - values[c], off_diagonal[0]
        for i in range(n):
            rows[i * _ROW + 3 * LANES + c] = vectors[c, i]
    for i in range(n):
        row, below, entry, outer = rows[i * _ROW : (i + 2) * _ROW], off_diagonal[i], 0.0, 0.0
        if i + 1 < n:
            entry, outer = diagonal[i + 1], off_diagonal[i + 1]
        for c in range(LANES):
            pivot, right, other = row[c], row[LANES + c], entry - shift[c]
            one, two = row[3 * LANES + c], row[_ROW + 3 * LANES + c]
            swap = abs(below) > abs(pivot)
            inverse = 1.0 / (below if swap else (pivot if abs(pivot) > _TINY else _TINY))
            ratio = (pivot if swap else below) * inverse
            first, second = other if swap else right, outer if swap else 0.0
            row[c], row[LANES + c], row[2 * LANES + c] = inverse, first, second
            row[_ROW + c] = (right if swap else other) - ratio * first
            row[_ROW + LANES + c] = (0.0 if swap else outer) - ratio * second
            row[3 * LANES + c] = two if swap else one
            row[_ROW + 3 * LANES + c] = one - ratio * two if swap else two - ratio * one
    for i in range(n - 1, -1, -1):
        row = rows[i * _ROW : (i + 3) * _ROW]
        for c in range(LANES):
            one, two = row[_ROW + 3 * LANES + c], row[2 * _ROW + 3 * LANES + c]
            known = row[LANES + c] * one + row[2 * LANES + c] * two
            row[3 * LANES + c] = (row[3 * LANES + c] - known) * row[c]
    for c in range(count):
        for i in range(n):
            vectors[c, i] = rows[i * _ROW + 3 * LANES + c]


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
