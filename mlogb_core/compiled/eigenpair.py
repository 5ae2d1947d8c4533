r"""The smallest eigenpair of a core, for a shrink by one direction; LAPACK takes most of a round for it.

Write the matrix as :math:`M = \begin{pmatrix} C & b \\ b^\top & c\end{pmatrix}`, with its last row and column
set apart. An eigenvalue of M below those of C is a root of

.. math:: h(\mu) = c - \mu - b^\top (C - \mu I)^{-1} b

and has the eigenvector :math:`(-(C - \mu I)^{-1}b,\, 1)`. Below the eigenvalues of C the function h
decreases, so that it has at most one root there, and by interlacing this is the smallest eigenvalue of M.

The root is found with models of h. With a Cholesky factor of :math:`C - \sigma I`, j steps of Lanczos' method
from b give a rational function that has the first 2j derivatives of h at :math:`\sigma`. By Gauss' quadrature
this model is at least h, so that its root is at least :math:`\mu`. The model at :math:`\sigma = 0` is used to
find a second :math:`\sigma` near the root, where two or three steps reach roundoff. The second Cholesky
factor exists only if :math:`\sigma < \lambda_{\min}(C)`, which proves that no smaller eigenvalue was missed.
Finally the residual of the eigenvector is measured, and its Rayleigh quotient is compared with the root.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg.lapack import dpotrf

from mlogb_core._validation import Array
from mlogb_core.compiled.algebra import backward, cholesky, forward
from mlogb_core.compiled.kernel import kernel
from mlogb_core.compiled.vectors import add_products, add_rows, axpy, dot

#: From this order on LAPACK's blocked Cholesky factorisation is faster than the kernel's.
BLOCKED = 128
#: An eigenvalue, its unit vector, and whether it has been shown to be the smallest one.
Pair = tuple[float, Array, bool]
_ROUGHLY = 3e-3  # relative change of the root at which the first model's search ends
_STEPS = 24  # most steps of Lanczos' method
_EPS = float(np.finfo(np.float64).eps)


def smallest_eigenpair(matrix: Array) -> Pair:
    """Smallest eigenvalue and unit eigenvector of a positive semidefinite matrix, if they are certain."""
    if len(matrix) < BLOCKED:
        return smallest_by_kernel(matrix)
    n, shift = len(matrix) - 1, 0.0
    for enough in (_ROUGHLY, 0.0):  # the same search as in `smallest_by_kernel`, with LAPACK's factor
        leading = matrix[:n, :n].copy()
        leading.flat[:: n + 1] -= shift
        factor, info = dpotrf(leading.T, lower=1, clean=0, overwrite_a=1)
        if info != 0:
            break
        root, pair = _secular_root(factor.T, matrix, shift, enough)
        if pair[2]:
            return pair
        shift += root
    return 0.0, matrix[0], False


@kernel
def smallest_by_kernel(matrix: Array) -> Pair:
    """`smallest_eigenpair` with the kernel's own factor."""
    n, shift = matrix.shape[0] - 1, 0.0
    for enough in (_ROUGHLY, 0.0):
        upper, definite = cholesky(matrix, n, shift)
        if not definite:
            break
        root, pair = _secular_root(upper, matrix, shift, enough)
        if pair[2]:
            return pair
        shift += root
    return 0.0, matrix[0], False


@kernel
def _secular_root(upper: Array, matrix: Array, shift: float, enough: float) -> tuple[float, Pair]:
    """The root of the model at a shift, minus that shift, and the eigenpair if it is certain.

    `upper` is the Cholesky factor of the shifted leading block. Lanczos' vectors are added until the relative
    change of the root is at most `enough`, in which case the eigenvector is not computed, or until the
    residual is roundoff.
    """
    n, scale = upper.shape[0], 0.0
    for i in range(n + 1):
        scale = max(scale, matrix[i, i])
    right = matrix[n, :n].copy()
    corner = float(matrix[n, n]) - shift
    forward(upper, right)
    square = dot(right, right)
    vectors, vector = np.zeros((_STEPS + 1, n)), np.zeros(n + 1)
    diagonal, off_diagonal, overlap = np.empty(_STEPS), np.empty(_STEPS), np.empty(_STEPS)
    root = 0.0
    if not square > 0.0:
        return root, (0.0, vector, False)
    vectors[0] = right / math.sqrt(square)
    for j in range(_STEPS):
        new = vectors[j + 1]
        new[:] = vectors[j]
        backward(upper, new)
        forward(upper, new)
        diagonal[j] = dot(vectors[j], new)
        overlap[: j + 1] = 0.0
        add_products(vectors, 0, n, new, overlap[: j + 1])
        add_rows(-overlap[: j + 1], vectors, 0, n, new)
        off_diagonal[j] = math.sqrt(dot(new, new))
        old = root
        if j == 0:  # The model is a quadratic equation; its larger root lies beyond the pole.
            a = diagonal[0]
            root = math.sqrt((1.0 - a * corner) ** 2 + 4.0 * a * square)
            root = 2.0 * (corner - square) / (1.0 + a * corner + root)
        tolerance = max(0.1 * _EPS * scale, 0.01 * enough * abs(root))
        root, weights, slope = _model_root(diagonal[: j + 1], off_diagonal, square, corner, root, tolerance)
        residual = abs(root * off_diagonal[j] * weights[j]) * math.sqrt(square / slope)
        if residual <= _EPS * math.sqrt(scale):
            if root > 4.0 * _EPS * scale:
                break
            add_rows(-math.sqrt(square) * weights, vectors, 0, n, vector[:n])
            backward(upper, vector[:n])
            vector[n] = 1.0
            vector /= math.sqrt(dot(vector, vector))
            value, residual = _rayleigh(matrix, vector)
            # If the leading block is singular up to roundoff, a root at 0 may belong to another eigenvector.
            certain = residual <= 8.0 * _EPS * scale and value - shift <= 8.0 * _EPS * scale
            return root, (value, vector, certain)
        if j > 0 and abs(root - old) < enough * abs(root):  # The root may converge before the vector does.
            break
        new /= off_diagonal[j]
    return root, (0.0, vector, False)


@kernel
def _model_root(
    diagonal: Array, off_diagonal: Array, square: float, corner: float, start: float, tolerance: float
) -> tuple[float, Array, float]:
    r"""The root, below the pole, of `corner - x - square * g[0]`, where (I - x T) g is the first unit vector.

    T is the tridiagonal matrix. Let :math:`\varphi(x)` be the last summand. Its reciprocal is smooth beyond
    the pole too, and linear if there is no other pole. So :math:`1/\varphi` is replaced by its tangent, which
    makes the equation quadratic, until a step is at most the tolerance; a bracket safeguards the steps. Also
    returned are g and the negative of the derivative.
    """
    n, root = diagonal.size, start
    low, high = -np.inf, np.inf
    inverse, ratios, weights, slope = np.empty(n), np.empty(n), np.empty(n), 1.0
    for _ in range(60):
        poles = 0  # those below the point, by Sylvester's law
        for i in range(n):
            pivot, weights[i] = 1.0 - root * diagonal[i], 1.0
            if i > 0:
                pivot -= ratios[i - 1] * root * off_diagonal[i - 1]
                weights[i] = ratios[i - 1] * weights[i - 1]
            if not pivot > 0.0:
                poles += 1
            inverse[i] = 1.0 / pivot
            ratios[i] = root * off_diagonal[i] * inverse[i]
        growth = 0.0
        for i in range(n - 1, -1, -1):
            weights[i] *= inverse[i]
            if i + 1 < n:
                weights[i] += ratios[i] * weights[i + 1]
                growth += 2.0 * off_diagonal[i] * weights[i] * weights[i + 1]
            growth += diagonal[i] * weights[i] * weights[i]
        slope = 1.0 + square * growth
        step = _step_to_root(corner - root, square * weights[0], growth / weights[0])
        if poles == 0 and abs(step) <= tolerance:
            root += step  # Since the reciprocal is concave, this is not on the left of the root.
            break
        if poles == 0 and step > 0.0:
            low = root
        else:
            high = root
        root += step
        usable = poles == 0 or (poles == 1 and weights[0] < 0.0)
        if not (usable and low < root < high):
            root = 0.5 * (high + low) if low > -np.inf else min(0.5 * high, 2.0 * high)
    return root, weights, slope


@kernel
def _step_to_root(gap: float, value: float, growth: float) -> float:
    """The root t of gap - t = value / (1 - growth t) on the left of the pole 1 / growth.

    The quadratic formula has two forms, of which one does not cancel.
    """
    total = 1.0 + gap * growth
    root = math.sqrt((1.0 - gap * growth) ** 2 + 4.0 * growth * value)
    if growth < 0.0:
        root = -root
    return 2.0 * (gap - value) / (total + root) if total * root > 0.0 else 0.5 * (total - root) / growth


@kernel
def _rayleigh(matrix: Array, vector: Array) -> tuple[float, float]:
    """The Rayleigh quotient of a unit vector and the length of its residual."""
    image = np.zeros(vector.size)
    add_products(matrix, 0, vector.size, vector, image)
    value = dot(image, vector)
    axpy(-value, vector, image)
    return value, math.sqrt(dot(image, image))
