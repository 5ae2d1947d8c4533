r"""The dense linear algebra of a round, by direct calls of LAPACK and BLAS.

SciPy's high-level functions spend about as much time on checks and copies as these small factorisations
take, and for small products `np.dot` takes half the time of `@`. LAPACK reports a failure by a status
number; the functions here raise `LinAlgError` instead.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import LinAlgError, eigh, qr
from scipy.linalg.blas import dgemm, dger, dnrm2, dtrsm, dtrsv
from scipy.linalg.lapack import dgesv, dpotrf, dpotrs, dsyevr, dsyevx, dtrtri

from mlogb_core._validation import Array

# Up to this many rows are multiplied with a large matrix one at a time, which is faster than all at once.
_FEW = 3
# If LAPACK's eigenvectors are less orthogonal than this, another driver computes them again.
_ORTHONORMAL = 1e-13
# From this order on, two triangular solves of one right-hand side are faster than LAPACK's routine for many.
_LONG = 100


def cholesky(matrix: Array) -> Array:
    r"""Lower Cholesky factor L of a symmetric positive definite matrix, which is overwritten."""
    if len(matrix) == 1:
        return np.array([[_root(float(matrix[0, 0]))]])
    factor, info = dpotrf(matrix.T, lower=1, clean=1, overwrite_a=1)
    if info != 0:
        raise LinAlgError(f"a matrix of order {len(matrix)} is not positive definite (minor {info})")
    return np.asarray(factor)


def cholesky_solve(factor: Array, rows: Array) -> Array:
    r"""Rows :math:`b_i^\top (LL^\top)^{-1}` for the rows :math:`b_i` of a (k, n) array."""
    if rows.size == 0:
        return rows
    if len(rows) == 1 and len(factor) >= _LONG:
        return whiten(factor, whiten(factor, rows), transposed=True)
    solution, info = dpotrs(factor, rows.T, lower=1)
    if info != 0:
        raise LinAlgError(f"argument {-info} of dpotrs is invalid")
    return np.asarray(solution.T)


def whiten(factor: Array, rows: Array, transposed: bool = False) -> Array:
    r"""Rows :math:`L^{-1} b_i`, or :math:`L^{-\top} b_i`, for the rows :math:`b_i` of a (k, n) array."""
    if len(rows) == 1:
        return np.asarray(dtrsv(factor, rows[0], lower=1, trans=int(transposed)))[None]
    return np.asarray(dtrsm(1.0, factor, rows.T, lower=1, trans_a=int(transposed)).T)


def invert_triangle(factor: Array) -> Array:
    """Inverse of a lower triangular matrix."""
    if len(factor) == 1:
        return 1.0 / factor
    inverse, info = dtrtri(factor, lower=1)
    if info != 0:
        raise LinAlgError(f"a triangular matrix of order {len(factor)} is singular (entry {info})")
    return np.asarray(inverse)


def solve(matrix: Array, right: Array) -> Array:
    """Solution of a small general system, by elimination with pivots."""
    if len(matrix) == 1 and matrix[0, 0] != 0.0:
        return np.asarray(right / matrix[0])
    _, _, solution, info = dgesv(matrix, right)
    if info != 0:
        raise LinAlgError(f"a matrix of order {len(matrix)} is singular (pivot {info})")
    return np.asarray(solution)


def length(vector: Array) -> float:
    """Euclidean length, for vectors so scaled that the sum of squares neither under- nor overflows."""
    return math.sqrt(np.dot(vector, vector))


def add_to_diagonal(matrix: Array, value: float) -> None:
    """Add a number to the diagonal of a square C-contiguous matrix, in place."""
    matrix.reshape(-1)[:: len(matrix) + 1] += value


def row_products(rows: Array, matrix: Array) -> Array:
    """`rows @ matrix`, where two or three rows are multiplied one at a time.

    For a product of two matrices BLAS first copies the large one into blocks, which takes longer than to
    read it once for each row.
    """
    if 1 < len(rows) <= _FEW:
        return np.asarray((rows[:, None] @ matrix)[:, 0])
    return np.asarray(np.dot(rows, matrix))


def smallest_eigenpairs(matrix: Array, count: int) -> tuple[Array, Array]:
    """Smallest eigenvalues, ascending, and their eigenvectors as columns.

    Three of LAPACK's drivers are used. `dsyevx` (bisection and inverse iteration) is the fastest for one
    pair, but its vectors for nearly equal eigenvalues are orthogonal only to some 1e-13, so that `dsyevr`
    (relatively robust representations) computes several pairs. On some small matrices with clustered
    eigenvalues (seen at K >= 9 with m < K) neither converges, and where entries differ by thirty decades
    `dsyevr` may report success with nearly parallel vectors. Then `dsyevd` (divide and conquer), which has
    neither fault, computes all eigenpairs.
    """
    driver = dsyevx if count == 1 else dsyevr
    values, vectors, found, _, info = driver(matrix.T, range="I", il=1, iu=count, lower=1)
    if info != 0 or found != count or not _are_orthonormal(vectors):
        values, vectors = eigh(matrix, driver="evd", check_finite=False)
    return values[:count], vectors[:, :count]


def _are_orthonormal(columns: Array) -> bool:
    """Whether a few columns are orthonormal to some hundred times the roundoff."""
    if columns.shape[1] == 1:
        return True  # The driver for a single eigenvector normalises it.
    error = np.dot(columns.T, columns)
    add_to_diagonal(error, -1.0)
    return bool(np.abs(error).max() <= _ORTHONORMAL)


def gram(rows: Array) -> Array:
    """`rows.T @ rows`, symmetric to the bit."""
    return np.asarray(np.dot(rows.T, rows))


def products_with_themselves(stack: Array) -> Array:
    """`rows @ rows.T` for each (K, r) array `rows` of an (n, K, r) array."""
    if stack.shape[1] == 1:
        return np.asarray(np.vecdot(stack, stack)[:, :, None])
    return np.asarray(stack @ stack.transpose(0, 2, 1))


def symmetric_product(left: Array, right: Array) -> Array:
    """`left @ right.T + right @ left.T`, symmetric to the bit."""
    product = np.dot(left, right.T)
    if left.shape[1] > 1:
        return np.asarray(product + product.T)
    product += np.dot(right, left.T)  # For one column this is faster than to transpose the product.
    return np.asarray(product)


def orthonormal_rows(rows: Array, threshold: float) -> tuple[Array, Array]:
    r"""Orthonormal rows Q and coordinates R with `rows = R @ Q`, without directions below a length.

    Parameters
    ----------
    rows : (k, n) array
        Vectors to orthonormalise.
    threshold : float
        Directions in which no more than this is left are dropped.

    Returns
    -------
    Q : (q, n) array
        Orthonormal rows, q <= k.
    R : (k, q) array
        Coordinates.
    """
    if len(rows) == 1:
        norm = float(dnrm2(rows[0]))  # BLAS scales the sum, so that no square underflows.
        if not norm > threshold:
            return rows[:0], np.zeros((1, 0))
        return rows / norm, np.full((1, 1), norm)
    factor, triangle, order = qr(rows.T, mode="economic", pivoting=True, check_finite=False)
    kept = int(np.count_nonzero(np.abs(np.diag(triangle)) > threshold))
    coordinates = np.zeros((rows.shape[0], kept))
    coordinates[order] = triangle[:kept].T
    return np.ascontiguousarray(factor[:, :kept].T), coordinates


def orthonormalised(rows: Array, coordinates: Array) -> tuple[Array, Array]:
    """Nearly orthonormal rows made orthonormal by their Gram matrix, with `coordinates @ rows` kept."""
    factor = cholesky(rows @ rows.T)
    return invert_triangle(factor) @ rows, coordinates @ factor


def add_product(target: Array, left: Array, right: Array, scale: float = 1.0) -> None:
    """`target += scale * left @ right` without a temporary array; `target` is C-contiguous."""
    if left.shape[1] == 1 and target.size:
        dger(scale, right[0], left[:, 0], a=target.T, overwrite_a=1)
    elif target.size:
        dgemm(scale, right.T, left.T, beta=1.0, c=target.T, overwrite_c=1)


def polar(matrix: Array) -> tuple[Array, Array]:
    r"""The orthogonal Q and :math:`(I + P)^{-1}`, for the polar decomposition QP of a square matrix."""
    if matrix.shape == (1, 1):
        entry = float(matrix[0, 0])
        return np.array([[-1.0 if entry < 0.0 else 1.0]]), np.array([[1.0 / (1.0 + abs(entry))]])
    left, singular, right = np.linalg.svd(matrix)
    return left @ right, (right.T / (1.0 + singular)) @ right


def _root(pivot: float) -> float:
    if not pivot > 0.0:
        raise LinAlgError("a matrix of order 1 is not positive definite (minor 1)")
    return math.sqrt(pivot)
