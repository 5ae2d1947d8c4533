r"""The few dense kernels that a round consists of, called from LAPACK and BLAS without detours.

SciPy's high-level functions check, copy and dispatch for about as long as these small
factorisations take. Every function here raises `LinAlgError` instead of returning a status.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import LinAlgError, eigh, qr
from scipy.linalg.blas import dgemm, dnrm2, dtrsm
from scipy.linalg.lapack import dgesv, dpotrf, dpotrs, dsyevr, dtrtri

from mlogb_core._validation import Array


def cholesky(matrix: Array) -> Array:
    r"""Lower factor L of a symmetric positive definite matrix :math:`LL^\top`, in whose place it is made."""
    factor, info = dpotrf(matrix.T, lower=1, clean=1, overwrite_a=1)
    if info != 0:
        raise LinAlgError(f"a matrix of order {len(matrix)} is not positive definite (minor {info})")
    return np.asarray(factor)


def cholesky_solve(factor: Array, rows: Array) -> Array:
    r"""Rows :math:`b_i^\top (LL^\top)^{-1}` for the rows :math:`b_i` of a (k, n) array."""
    if rows.size == 0:
        return rows
    solution, info = dpotrs(factor, rows.T, lower=1)
    if info != 0:
        raise LinAlgError(f"argument {-info} of dpotrs is invalid")
    return np.asarray(solution.T)


def whiten(factor: Array, rows: Array) -> Array:
    r"""Rows :math:`L^{-1} b_i` for the rows :math:`b_i` of a (k, n) array."""
    return np.asarray(dtrsm(1.0, factor, rows.T, side=0, lower=1).T)


def invert_triangle(factor: Array) -> Array:
    """Inverse of a lower triangular matrix."""
    inverse, info = dtrtri(factor, lower=1)
    if info != 0:
        raise LinAlgError(f"a triangular matrix of order {len(factor)} is singular (entry {info})")
    return np.asarray(inverse)


def solve(matrix: Array, right: Array) -> Array:
    """Solution of a small general system, by elimination with pivots."""
    _, _, solution, info = dgesv(matrix, right)
    if info != 0:
        raise LinAlgError(f"a matrix of order {len(matrix)} is singular (pivot {info})")
    return np.asarray(solution)


def length(vector: Array) -> float:
    """Euclidean length of a vector whose square neither under- nor overflows."""
    return math.sqrt(float(vector @ vector))


def smallest_eigenpairs(matrix: Array, count: int) -> tuple[Array, Array]:
    """Smallest eigenvalues, ascending, and their eigenvectors as columns.

    LAPACK's driver for a few eigenpairs does not converge on some small matrices with clustered
    eigenvalues (seen at K >= 9 with m < K); the one for all of them, divide and conquer, does.
    """
    values, vectors, found, _, info = dsyevr(matrix.T, range="I", il=1, iu=count, lower=1)
    if info != 0 or found != count:
        values, vectors = eigh(matrix, driver="evd", check_finite=False)
    return values[:count], vectors[:, :count]


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
        norm = float(dnrm2(rows[0]))  # scaled, so that squares do not underflow
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
    if target.size:
        dgemm(scale, right.T, left.T, beta=1.0, c=target.T, overwrite_c=1)


def polar(matrix: Array) -> tuple[Array, Array]:
    """Orthogonal Q and inverse of I + P for the polar decomposition Q P of a square matrix."""
    if matrix.shape == (1, 1):
        entry = float(matrix[0, 0])
        return np.full((1, 1), -1.0 if entry < 0.0 else 1.0), np.full((1, 1), 1.0 / (1.0 + abs(entry)))
    left, singular, right = np.linalg.svd(matrix)
    return left @ right, (right.T / (1.0 + singular)) @ right
