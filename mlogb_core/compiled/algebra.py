"""Cholesky factors and triangular systems of up to some hundred unknowns, four rows at a time.

Inside a kernel, `numpy.linalg.cholesky` takes 1.5 to 2 times as long at orders from 40 to 130. NumPy has no
solver for triangular systems, and one that works row by row takes 2 to 3 times as long as this one.
"""

from __future__ import annotations

import math

import numpy as np

from mlogb_core._validation import Array
from mlogb_core.compiled.kernel import kernel
from mlogb_core.compiled.vectors import add_rows, dot


@kernel
def cholesky(matrix: Array, n: int, shift: float) -> tuple[Array, bool]:
    """Upper Cholesky factor of the leading block of order n minus `shift` times the identity.

    The second value says whether that matrix is positive definite; otherwise the factor is incomplete.
    """
    upper = np.zeros((n, n))
    for i in range(n):
        row, given = upper[i, i:], matrix[i, i:n]
        for k in range(row.size):
            row[k] = given[k]
        row[0] -= shift
    whole = n // 4 * 4
    for j in range(0, whole, 4):
        if not _factor_four(upper, j):
            return upper, False
    for j in range(whole, n):
        if not _factor_one(upper, j):
            return upper, False
    return upper, True


@kernel
def _factor_four(upper: Array, j: int) -> bool:
    """Compute four rows of a Cholesky factor in place, and return whether all four pivots are positive."""
    # Slices of one row each, from the diagonal on: numba knows them to be contiguous and vectorises the
    # loops.
    a, b, c, d = upper[j, j:], upper[j + 1, j:], upper[j + 2, j:], upper[j + 3, j:]
    for k in range(0, j, 2):
        u, v = upper[k, j:], upper[k + 1, j:]
        p, q, r, s = u[0], u[1], u[2], u[3]
        e, f, g, h = v[0], v[1], v[2], v[3]
        for i in range(a.size):
            x, y = u[i], v[i]
            a[i] -= p * x + e * y
            b[i] -= q * x + f * y
            c[i] -= r * x + g * y
            d[i] -= s * x + h * y
    # The 4 x 4 corner comes first: its entries right of the diagonal, and the reciprocals of those on it.
    p = 1.0 / math.sqrt(a[0])
    ab, ac, ad = a[1] * p, a[2] * p, a[3] * p
    q = 1.0 / math.sqrt(b[1] - ab * ab)
    bc, bd = (b[2] - ab * ac) * q, (b[3] - ab * ad) * q
    r = 1.0 / math.sqrt(c[2] - ac * ac - bc * bc)
    cd = (c[3] - ac * ad - bc * bd) * r
    s = 1.0 / math.sqrt(d[3] - ad * ad - bd * bd - cd * cd)
    if not (p < np.inf and q < np.inf and r < np.inf and s < np.inf):
        return False
    for i in range(a.size):
        w = a[i] * p
        x = (b[i] - ab * w) * q
        y = (c[i] - ac * w - bc * x) * r
        z = (d[i] - ad * w - bd * x - cd * y) * s
        a[i], b[i], c[i], d[i] = w, x, y, z
    b[0] = c[0] = c[1] = d[0] = d[1] = d[2] = 0.0  # below the diagonal
    return True


@kernel
def _factor_one(upper: Array, j: int) -> bool:
    """`_factor_four` for one row."""
    row, weights = upper[j, j:], np.empty(j)
    for k in range(j):
        weights[k] = -upper[k, j]
    add_rows(weights, upper, j, upper.shape[0], row)
    pivot = row[0]
    if not pivot > 0.0:
        return False
    for i in range(row.size):
        row[i] /= math.sqrt(pivot)
    return True


@kernel
def forward(upper: Array, vector: Array) -> None:
    """Solve with the transpose of an upper triangle, in place, four rows at a time."""
    n = vector.size
    whole = n // 4 * 4
    for j in range(0, whole, 4):
        p = vector[j] / upper[j, j]
        q = (vector[j + 1] - p * upper[j, j + 1]) / upper[j + 1, j + 1]
        r = vector[j + 2] - p * upper[j, j + 2] - q * upper[j + 1, j + 2]
        r /= upper[j + 2, j + 2]
        s = vector[j + 3] - p * upper[j, j + 3] - q * upper[j + 1, j + 3] - r * upper[j + 2, j + 3]
        s /= upper[j + 3, j + 3]
        vector[j], vector[j + 1], vector[j + 2], vector[j + 3] = p, q, r, s
        rest, k = vector[j + 4 :], j + 4
        a, b, c, d = upper[j, k:], upper[j + 1, k:], upper[j + 2, k:], upper[j + 3, k:]
        for i in range(rest.size):
            rest[i] -= (p * a[i] + q * b[i]) + (r * c[i] + s * d[i])
    for j in range(whole, n):
        vector[j] /= upper[j, j]
        for i in range(j + 1, n):
            vector[i] -= vector[j] * upper[j, i]


@kernel
def backward(upper: Array, vector: Array) -> None:
    """Solve with an upper triangle, in place, four rows at a time."""
    n = vector.size
    for j in range(n - 4, -1, -4):
        rest, k = vector[j + 4 :], j + 4
        a, b, c, d = upper[j, k:], upper[j + 1, k:], upper[j + 2, k:], upper[j + 3, k:]
        p, q, r, s = vector[j], vector[j + 1], vector[j + 2], vector[j + 3]
        for i in range(rest.size):
            x = rest[i]
            p -= a[i] * x
            q -= b[i] * x
            r -= c[i] * x
            s -= d[i] * x
        s /= upper[j + 3, j + 3]
        r = (r - s * upper[j + 2, j + 3]) / upper[j + 2, j + 2]
        q = (q - s * upper[j + 1, j + 3] - r * upper[j + 1, j + 2]) / upper[j + 1, j + 1]
        p = (p - s * upper[j, j + 3] - r * upper[j, j + 2] - q * upper[j, j + 1]) / upper[j, j]
        vector[j], vector[j + 1], vector[j + 2], vector[j + 3] = p, q, r, s
    for j in range(n % 4 - 1, -1, -1):
        vector[j] = (vector[j] - dot(upper[j, j + 1 :], vector[j + 1 :])) / upper[j, j]


@kernel
def eliminate(matrix: Array, right: Array) -> None:
    """Gaussian elimination with row pivots, in place: the solution replaces the right side.

    For K from 2 to 8 `numpy.linalg.solve` in a kernel takes 3 to 4 times as long.
    """
    K = right.size
    for j in range(K):
        pivot = j
        for i in range(j + 1, K):
            if abs(matrix[i, j]) > abs(matrix[pivot, j]):
                pivot = i
        if pivot != j:
            for k in range(K):
                matrix[j, k], matrix[pivot, k] = matrix[pivot, k], matrix[j, k]
            right[j], right[pivot] = right[pivot], right[j]
        for i in range(j + 1, K):
            ratio = matrix[i, j] / matrix[j, j]
            for k in range(j, K):
                matrix[i, k] -= ratio * matrix[j, k]
            right[i] -= ratio * right[j]
    for j in range(K - 1, -1, -1):
        for k in range(j + 1, K):
            right[j] -= matrix[j, k] * right[k]
        right[j] /= matrix[j, j]
