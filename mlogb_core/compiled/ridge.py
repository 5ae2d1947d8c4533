"""The step over a multiple of the identity: see `curvature.growing_ridge`."""

from __future__ import annotations

import math

import numpy as np

from mlogb_core._validation import Array
from mlogb_core.compiled.arguments import DONE, NOT_PROJECTED, OVERFLOW, Loss, Numbers, Settings
from mlogb_core.compiled.kernel import kernel
from mlogb_core.compiled.link import loss_at
from mlogb_core.compiled.projection import project_in_krylov_space
from mlogb_core.compiled.step import step_weights
from mlogb_core.compiled.vectors import add_rows, axpy, dot


@kernel
def step_by_ridge(
    parameter: Array, action: Array, outcome: int, numbers: Numbers
) -> tuple[int, Array, float, float, float]:
    """The projected step, in O(Kd), with the numbers of `Settings`.

    Outside the span of the K rows that hold the action, the matrix of the step is the ridge. A projection
    therefore needs the parameter's coordinates in these rows and the length of the rest.

    Returns the state, the new parameter, the multiplier, the trace of the Hessian there, and a lower bound of
    the larger one of the largest eigenvalues of the Hessians at the old and at the new parameter.
    """
    settings, K = Settings(*numbers), parameter.shape[0]
    square, multiplier = dot(action, action), 0.0
    scale = 1.0 / math.sqrt(square) if square > 0.0 else 0.0
    loss = loss_at(parameter, action, outcome)
    largest = largest_column(loss.factor) * square
    weights = step_weights(np.eye(K) * (square / settings.ridge), loss, settings.step_size)
    point = parameter.copy()
    for i in range(K):
        axpy(-settings.step_size * weights[i] / settings.ridge, action, point[i])
    vector = point.reshape(-1)
    total = dot(vector, vector)
    if not math.isfinite(total):
        return OVERFLOW, point, 0.0, 0.0, largest
    if math.sqrt(total) > settings.norm_bound:
        local = np.zeros(K)
        for i in range(K):
            local[i] = scale * dot(point[i], action)
        rest = math.sqrt(max(total - dot(local, local), 0.0))
        core = _hessian_of_logits(loss, settings.step_size * square)
        projection = project_in_krylov_space(core, local, rest, settings)
        if not projection.settled:
            return NOT_PROJECTED, point, 0.0, 0.0, largest
        multiplier = projection.multiplier
        kept = settings.ridge / (settings.ridge + multiplier)
        point *= kept
        for i in range(K):
            axpy(scale * (projection.point[i] - kept * local[i]), action, point[i])
    factor = loss_at(point, action, 0).factor
    trace = 0.0
    for i in range(K):
        trace += dot(factor[i], factor[i]) * square
    return DONE, point, multiplier, trace, max(largest, largest_column(factor) * square)


@kernel
def largest_column(factor: Array) -> float:
    """The largest squared length of a column."""
    K, largest = factor.shape[0], 0.0
    for k in range(K):
        total = 0.0
        for i in range(K):
            total += factor[i, k] ** 2
        largest = max(largest, total)
    return largest


@kernel
def _hessian_of_logits(loss: Loss, scale: float) -> Array:
    """A multiple of FF'."""
    K = loss.residual.size
    matrix, columns = np.zeros((K, K)), loss.factor.T.copy()
    for i in range(K):
        add_rows(scale * loss.factor[i], columns, 0, K, matrix[i])
    return matrix
