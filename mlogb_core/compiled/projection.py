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
_ROUGHLY = 1e-3  # relative tolerance of a multiplier that only decides whether the space has to grow


@kernel
def project_in_krylov_space(core: Array, local: Array, rest: float, settings: Settings) -> Projection:
    r"""Project a point, given by its n coordinates in the basis and the length of its component outside.

    In the space of Lanczos' vectors, Galerkin's solution of :math:`(\tilde Z + \nu I) w = \tilde Z w'` has
    length S for one multiplier. The space grows until the residual shows that the error is roundoff. If this
    takes more than `STEPS` vectors, the result is returned as not settled.
    """
    n, norm = local.size, math.sqrt(dot(local, local) + rest * rest)
    size = min(n + 1, STEPS)
    vectors, work = np.zeros((size + 1, n + 1)), np.empty((4, size))
    diagonal, off_diagonal, overlap = np.zeros(size), np.zeros(size), np.empty(size)
    axpy(1.0 / norm, local, vectors[0, :n])
    vectors[0, n] = rest / norm
    multiplier = 0.0
    for j in range(size):
        old, new = vectors[j], vectors[j + 1]
        axpy(settings.regularization, old, new)
        add_products(core, 0, n, old[:n], new[:n])
        diagonal[j] = dot(old, new)
        axpy(-diagonal[j], old, new)
        if j > 0:
            axpy(-off_diagonal[j - 1], vectors[j - 1], new)
        # The recurrence has removed almost all; what roundoff leaves is removed from the whole basis.
        overlap[: j + 1] = 0.0
        add_products(vectors, 0, n + 1, new, overlap[: j + 1])
        for i in range(j + 1):
            overlap[i] = -overlap[i]
        add_rows(overlap[: j + 1], vectors, 0, n + 1, new)
        length = math.sqrt(dot(new, new))
        complete = j == n or length <= settings.roundoff * diagonal[0]
        if complete or j >= 2:
            # A rough root shows whether the space is large enough, and only then is it refined.
            for tolerance in (_ROUGHLY, settings.roundoff):
                multiplier, settled = _tridiagonal_root(
                    diagonal[: j + 1], off_diagonal, norm, multiplier, settings.norm_bound, tolerance, work
                )
                if not settled:
                    return Projection(local, multiplier, False)
                bound = settings.roundoff * settings.norm_bound * (settings.regularization + multiplier)
                enough = complete or length * abs(work[0, j]) <= bound * (1.0 + tolerance)
                if not enough:
                    break
            if enough:
                projected = np.zeros(n)
                add_rows(work[0, : j + 1], vectors, 0, n, projected)
                return Projection(projected, multiplier, True)
        off_diagonal[j] = length
        for i in range(n + 1):
            new[i] /= length
    return Projection(local, multiplier, False)


@kernel
def _tridiagonal_root(
    diagonal: Array,
    off_diagonal: Array,
    norm: float,
    start: float,
    norm_bound: float,
    tolerance: float,
    work: Array,
) -> tuple[float, bool]:
    """The multiplier at which a projection has the length S up to a tolerance, and whether it was found.

    Projected is `norm` times the first unit vector, for a tridiagonal matrix, and the projection is left in
    the first row of `work`. Newton's method is applied to S over the length, as in `mlogb_core.projection`.
    """
    n, multiplier = diagonal.size, start
    solution, inverse, ratio, half = work[0], work[1], work[2], work[3]
    for _ in range(100):
        for i in range(n):
            pivot = diagonal[i] + multiplier
            solution[i] = 0.0
            if i == 0:
                solution[i] = norm * diagonal[0]
            elif i == 1:
                solution[i] = norm * off_diagonal[0]
            if i > 0:
                ratio[i] = off_diagonal[i - 1] * inverse[i - 1]
                pivot -= ratio[i] * off_diagonal[i - 1]
                solution[i] -= ratio[i] * solution[i - 1]
            if not pivot > 0.0:
                return multiplier, False
            inverse[i] = 1.0 / pivot
        square = slope = 0.0
        for i in range(n - 1, -1, -1):
            solution[i] *= inverse[i]
            if i + 1 < n:
                solution[i] -= ratio[i + 1] * solution[i + 1]
            square += solution[i] * solution[i]
        for i in range(n):
            half[i] = solution[i]
            if i > 0:
                half[i] -= ratio[i] * half[i - 1]
            slope += half[i] * half[i] * inverse[i]
        length = math.sqrt(square)
        if abs(length - norm_bound) <= tolerance * norm_bound:
            return multiplier, True
        step = (length / norm_bound - 1.0) * square / slope
        if abs(step) <= tolerance * multiplier:
            return multiplier, True
        multiplier = max(multiplier + step, 0.0)
    return multiplier, False
