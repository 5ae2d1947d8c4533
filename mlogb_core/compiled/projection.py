"""Projection onto the ball, in coordinates of the joint basis and a Krylov space of the step's matrix."""

from __future__ import annotations

import math

import numpy as np

from mlogb_core._validation import Array
from mlogb_core.compiled.arguments import Projection, Settings
from mlogb_core.compiled.kernel import kernel
from mlogb_core.compiled.vectors import add_products, add_rows, axpy, dot

#: Most steps of Lanczos' method. If they do not suffice, the projection is computed by Cholesky factors.
STEPS = 24


@kernel
def project_in_krylov_space(core: Array, local: Array, rest: float, settings: Settings) -> Projection:
    r"""Project a point, given by its n coordinates in the basis and the length of its component outside.

    In the space of Lanczos' vectors, Galerkin's solution of :math:`(\tilde Z + \nu I) w = \tilde Z w'` has
    length S for one multiplier. The space grows until the residual shows that the error is roundoff. If this
    takes more than `STEPS` vectors, the result is returned as not settled.
    """
    n, norm = local.size, math.sqrt(dot(local, local) + rest * rest)
    size = min(n + 1, STEPS)
    vectors = np.zeros((size + 1, n + 1))
    diagonal, off_diagonal, weights = np.zeros(size), np.zeros(size), np.empty(size + 1)
    vectors[0, :n] = local / norm
    vectors[0, n] = rest / norm
    multiplier = 0.0
    for j in range(size):
        old, new = vectors[j], vectors[j + 1]
        axpy(settings.ridge, old, new)
        add_products(core, 0, n, old[:n], new[:n])
        diagonal[j] = dot(old, new)
        for _ in range(2):
            weights[: j + 1] = 0.0
            add_products(vectors, 0, n + 1, new, weights[: j + 1])
            add_rows(-weights[: j + 1], vectors, 0, n + 1, new)
        length = math.sqrt(dot(new, new))
        complete = j == n or length <= settings.roundoff * diagonal[0]
        if complete or j >= 2:
            root = _tridiagonal_root(diagonal[: j + 1], off_diagonal, norm, multiplier, settings)
            if not root.settled:
                break
            multiplier = root.multiplier
            bound = settings.roundoff * settings.norm_bound * (settings.ridge + multiplier)
            if complete or length * abs(root.point[j]) <= bound:
                projected = np.zeros(n)
                add_rows(root.point, vectors, 0, n, projected)
                return Projection(projected, multiplier, True)
        off_diagonal[j] = length
        new /= length
    return Projection(local, multiplier, False)


@kernel
def _tridiagonal_root(
    diagonal: Array, off_diagonal: Array, norm: float, start: float, settings: Settings
) -> Projection:
    """The multiplier and projection of `norm` times the first unit vector, for a tridiagonal matrix.

    Newton's method is applied to S over the length, as in `mlogb_core.projection`.
    """
    n, multiplier = diagonal.size, start
    pivot, ratio, solution, half = np.empty(n), np.zeros(n), np.empty(n), np.empty(n)
    for _ in range(100):
        for i in range(n):
            pivot[i] = diagonal[i] + multiplier
            solution[i] = 0.0
            if i == 0:
                solution[i] = norm * diagonal[0]
            elif i == 1:
                solution[i] = norm * off_diagonal[0]
            if i > 0:
                ratio[i] = off_diagonal[i - 1] / pivot[i - 1]
                pivot[i] -= ratio[i] * off_diagonal[i - 1]
                solution[i] -= ratio[i] * solution[i - 1]
            if not pivot[i] > 0.0:
                return Projection(solution, multiplier, False)
        for i in range(n - 1, -1, -1):
            solution[i] /= pivot[i]
            if i + 1 < n:
                solution[i] -= ratio[i + 1] * solution[i + 1]
        square = dot(solution, solution)
        length, slope = math.sqrt(square), 0.0
        for i in range(n):
            half[i] = solution[i]
            if i > 0:
                half[i] -= ratio[i] * half[i - 1]
            slope += half[i] * half[i] / pivot[i]
        if abs(length - settings.norm_bound) <= settings.roundoff * settings.norm_bound:
            return Projection(solution, multiplier, True)
        step = (length / settings.norm_bound - 1.0) * square / slope
        if abs(step) <= settings.roundoff * multiplier:
            return Projection(solution, multiplier, True)
        multiplier = max(multiplier + step, 0.0)
    return Projection(solution, multiplier, False)
