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
    whole = weights.size // 4 * 4
    for k in range(0, whole, 4):
        a, b = rows[k, start:stop], rows[k + 1, start:stop]
        c, d = rows[k + 2, start:stop], rows[k + 3, start:stop]
        p, q, r, s = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
        for i in range(out.size):
            out[i] += (p * a[i] + q * b[i]) + (r * c[i] + s * d[i])
    for k in range(whole, weights.size):
        a, p = rows[k, start:stop], weights[k]
        for i in range(out.size):
            out[i] += p * a[i]


@kernel
def add_products(rows: Array, start: int, stop: int, vector: Array, out: Array) -> None:
    """`out += rows[:, start:stop] @ vector`, four rows at a time."""
    whole = out.size // 4 * 4
    for k in range(0, whole, 4):
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
    for k in range(whole, out.size):
        a, p = rows[k, start:stop], 0.0
        for i in range(vector.size):
            p += a[i] * vector[i]
        out[k] += p


@kernel
def add_rows_twice(
    weights: Array, others: Array, rows: Array, start: int, stop: int, out: Array, other: Array
) -> None:
    """`add_rows` with two sets of weights, one pass over the rows."""
    whole = weights.size // 4 * 4
    for k in range(0, whole, 4):
        a, b = rows[k, start:stop], rows[k + 1, start:stop]
        c, d = rows[k + 2, start:stop], rows[k + 3, start:stop]
        p, q, r, s = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
        t, u, v, w = others[k], others[k + 1], others[k + 2], others[k + 3]
        for i in range(out.size):
            out[i] += (p * a[i] + q * b[i]) + (r * c[i] + s * d[i])
            other[i] += (t * a[i] + u * b[i]) + (v * c[i] + w * d[i])
    for k in range(whole, weights.size):
        a, p, t = rows[k, start:stop], weights[k], others[k]
        for i in range(out.size):
            out[i] += p * a[i]
            other[i] += t * a[i]


@kernel
def add_products_twice(
    rows: Array, start: int, stop: int, vector: Array, second: Array, out: Array, other: Array
) -> None:
    """`add_products` with two vectors, one pass over the rows."""
    whole = out.size // 4 * 4
    for k in range(0, whole, 4):
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
    for k in range(whole, out.size):
        a, p, t = rows[k, start:stop], 0.0, 0.0
        for i in range(vector.size):
            p += a[i] * vector[i]
            t += a[i] * second[i]
        out[k] += p
        other[k] += t


@kernel
def add_combinations(weights: Array, product: Array, rows: Array, start: int, stop: int) -> None:
    """`rows[: len(weights), start:stop] += weights @ product`, for few rows of the product."""
    k, whole = product.shape[0], product.shape[0] // 4 * 4
    for i in range(weights.shape[0]):
        row = rows[i, start:stop]
        for c in range(0, whole, 4):
            x, y, z, w = product[c], product[c + 1], product[c + 2], product[c + 3]
            p, q, r, s = weights[i, c], weights[i, c + 1], weights[i, c + 2], weights[i, c + 3]
            for j in range(row.size):
                row[j] += (p * x[j] + q * y[j]) + (r * z[j] + s * w[j])
        for c in range(whole, k):
            x, p = product[c], weights[i, c]
            for j in range(row.size):
                row[j] += p * x[j]
