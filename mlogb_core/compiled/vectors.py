"""Sums over the rows of a basis, which take most of the time of a round.

A kernel goes over the basis in blocks of columns that stay in the cache, and within a block over four rows at
a time. Each number of the vector with which the rows are combined is then loaded once for four
multiplications.
"""

from __future__ import annotations

from mlogb_core._validation import Array
from mlogb_core.compiled.kernel import kernel

#: Columns of a block, for which loops are long and some sixty rows fit into the second-level cache.
BLOCK = 1024


@kernel
def dot(a: Array, b: Array) -> float:
    """The product of two vectors."""
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@kernel
def axpy(scale: float, x: Array, y: Array) -> None:
    """`y += scale * x`."""
    for i in range(x.size):
        y[i] += scale * x[i]


@kernel
def add_rows(weights: Array, rows: Array, start: int, stop: int, out: Array) -> None:
    """`out += weights @ rows[:, start:stop]`, four rows at a time."""
    n = weights.size
    k = 0
    while k + 4 <= n:
        a, b = rows[k, start:stop], rows[k + 1, start:stop]
        c, d = rows[k + 2, start:stop], rows[k + 3, start:stop]
        p, q, r, s = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
        for i in range(out.size):
            out[i] += (p * a[i] + q * b[i]) + (r * c[i] + s * d[i])
        k += 4
    while k < n:
        axpy(weights[k], rows[k, start:stop], out)
        k += 1


@kernel
def add_products(rows: Array, start: int, stop: int, vector: Array, out: Array) -> None:
    """`out += rows[:, start:stop] @ vector`, four rows at a time."""
    n = out.size
    k = 0
    while k + 4 <= n:
        a, b = rows[k, start:stop], rows[k + 1, start:stop]
        c, d = rows[k + 2, start:stop], rows[k + 3, start:stop]
        p = q = r = s = 0.0
        for i in range(vector.size):
            x = vector[i]
            p += a[i] * x
            q += b[i] * x
            r += c[i] * x
            s += d[i] * x
        out[k] += p
        out[k + 1] += q
        out[k + 2] += r
        out[k + 3] += s
        k += 4
    while k < n:
        out[k] += dot(rows[k, start:stop], vector)
        k += 1


@kernel
def add_rows_twice(
    weights: Array, others: Array, rows: Array, start: int, stop: int, out: Array, other: Array
) -> None:
    """`add_rows` with two sets of weights, one pass over the rows."""
    n = weights.size
    k = 0
    while k + 4 <= n:
        a, b = rows[k, start:stop], rows[k + 1, start:stop]
        c, d = rows[k + 2, start:stop], rows[k + 3, start:stop]
        p, q, r, s = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
        t, u, v, w = others[k], others[k + 1], others[k + 2], others[k + 3]
        for i in range(out.size):
            out[i] += (p * a[i] + q * b[i]) + (r * c[i] + s * d[i])
            other[i] += (t * a[i] + u * b[i]) + (v * c[i] + w * d[i])
        k += 4
    while k < n:
        axpy(weights[k], rows[k, start:stop], out)
        axpy(others[k], rows[k, start:stop], other)
        k += 1


@kernel
def add_products_twice(
    rows: Array, start: int, stop: int, vector: Array, second: Array, out: Array, other: Array
) -> None:
    """`add_products` with two vectors, one pass over the rows."""
    n = out.size
    k = 0
    while k + 4 <= n:
        a, b = rows[k, start:stop], rows[k + 1, start:stop]
        c, d = rows[k + 2, start:stop], rows[k + 3, start:stop]
        p = q = r = s = 0.0
        t = u = v = w = 0.0
        for i in range(vector.size):
            x, y = vector[i], second[i]
            p += a[i] * x
            q += b[i] * x
            r += c[i] * x
            s += d[i] * x
            t += a[i] * y
            u += b[i] * y
            v += c[i] * y
            w += d[i] * y
        out[k] += p
        out[k + 1] += q
        out[k + 2] += r
        out[k + 3] += s
        other[k] += t
        other[k + 1] += u
        other[k + 2] += v
        other[k + 3] += w
        k += 4
    while k < n:
        out[k] += dot(rows[k, start:stop], vector)
        other[k] += dot(rows[k, start:stop], second)
        k += 1
