"""The step over a sketch: `LowRankCurvature.frame` and `newton_step`, and the core that follows.

The basis is read once for the fresh directions, the step and what tells whether a projection follows; a
projection reads it once more.
"""

from __future__ import annotations

import math

import numpy as np

from mlogb_core._validation import Array
from mlogb_core.compiled.algebra import backward, cholesky, eliminate, forward
from mlogb_core.compiled.arguments import (
    DONE,
    NOT_PROJECTED,
    OVERFLOW,
    WITHOUT_FRAME,
    Frame,
    Loss,
    Numbers,
    Played,
    Settings,
    Sketch,
    Step,
)
from mlogb_core.compiled.kernel import kernel
from mlogb_core.compiled.link import loss_at
from mlogb_core.compiled.projection import project_in_krylov_space
from mlogb_core.compiled.vectors import (
    BLOCK,
    add_products,
    add_products_twice,
    add_rows,
    add_rows_twice,
    axpy,
    dot,
)


@kernel
def step(
    rows: Array,
    core: Array,
    ridge: Array,
    parameter: Array,
    action: Array,
    image: Array,
    outcome: int,
    numbers: Numbers,
) -> Step:
    """Frame and projected step over a `Sketch`, with the numbers of `Settings`.

    The fresh directions are written behind the basis. In one pass over it come, for each block of columns,
    the fresh directions, their overlap with the basis, the point before its projection and, if it may leave
    the ball, its coordinates.
    """
    sketch, played, settings = Sketch(rows, core, ridge), Played(action, image, outcome), Settings(*numbers)
    (K, d), rank = parameter.shape, core.shape[0]
    n, inside = rank + K, image
    triangle, definite = _outside(played, settings)
    # Without room for K more directions T is singular; should the basis have lost its orthonormality, no row
    # may be written that is not there.
    if not definite or n > rows.shape[0]:
        return Step(WITHOUT_FRAME, parameter, 0.0, sketch.core, 0.0)
    outside, inverse = triangle.T.copy(), _inverse_of_transpose(triangle)
    loss = loss_at(parameter, played.action, played.outcome)
    frame = Frame(inside, outside)
    direction = _direction(sketch, frame, loss, settings)
    weights, overlap = np.zeros((K, rank)), np.zeros((K, rank))
    for i in range(K):
        for j in range(i + 1):
            axpy(-inverse[i, j], inside[j], weights[i])
    point, leaves = parameter.reshape(-1).copy(), _may_leave(parameter, direction, settings)
    local = np.zeros(n if leaves else 0)
    for start in range(0, K * d, BLOCK):
        stop = min(start + BLOCK, K * d)
        part = point[start:stop]
        for i in range(K):
            fresh = rows[rank + i, start:stop]
            fresh[:] = 0.0
            for j in range(start // d, (stop - 1) // d + 1):
                first, last = max(start, j * d), min(stop, (j + 1) * d)
                axpy(
                    inverse[i, j],
                    action[first - j * d : last - j * d],
                    fresh[first - start : last - start],
                )
            if i == 0:
                add_rows_twice(weights[i], direction[:rank], rows, start, stop, fresh, part)
            else:
                add_rows(weights[i], rows, start, stop, fresh)
        add_rows(direction[rank:], rows[rank:n], start, stop, part)
        for i in range(K):
            fresh = rows[rank + i, start:stop]
            if i == 0 and leaves:
                add_products_twice(rows, start, stop, fresh, part, overlap[i], local[:rank])
            else:
                add_products(rows, start, stop, fresh, overlap[i])
        if leaves:
            add_products(rows[rank:n], start, stop, part, local[rank:])
    if rank > 0 and np.abs(overlap).max() > settings.overlap:
        frame, definite = _without_overlap(rows, frame, overlap)
        if not definite:
            return Step(WITHOUT_FRAME, parameter, 0.0, sketch.core, 0.0)
        return step_in_frame(sketch, frame, parameter, played, settings)
    return _finish(sketch, frame, point, local, played, loss, settings)


@kernel
def step_in_frame(sketch: Sketch, frame: Frame, parameter: Array, played: Played, settings: Settings) -> Step:
    """As `step`, with the frame given and its fresh directions in the rows behind the basis."""
    loss = loss_at(parameter, played.action, played.outcome)
    direction = _direction(sketch, frame, loss, settings)
    joint = sketch.rows[: direction.size]
    point, local = parameter.reshape(-1).copy(), np.zeros(0)
    _add_combination(direction, joint, point)
    if _may_leave(parameter, direction, settings):
        local = np.dot(joint, point)
    return _finish(sketch, frame, point, local, played, loss, settings)


@kernel
def _outside(played: Played, settings: Settings) -> tuple[Array, bool]:
    """The transpose of T with T T' = |x|^2 I - G G', and whether it is far enough from singular.

    Far enough is a question of time: what cancels in T shows in the overlap with the basis, which is
    measured and taken out.
    """
    inside, square = played.image, dot(played.action, played.action)
    K = inside.shape[0]
    gram = np.empty((K, K))
    for i in range(K):
        for j in range(i + 1):
            gram[i, j] = gram[j, i] = -dot(inside[i], inside[j])
        gram[i, i] += square
    upper, definite = cholesky(gram, K, 0.0)
    for j in range(K):
        definite = definite and upper[j, j] ** 2 > settings.well_outside * square
    return upper, definite and square >= settings.smallest_square


@kernel
def _inverse_of_transpose(upper: Array) -> Array:
    """The lower triangular inverse of a transposed upper triangle."""
    columns = np.eye(upper.shape[0])
    for j in range(upper.shape[0]):
        forward(upper, columns[j])
    return columns.T.copy()


@kernel
def _without_overlap(rows: Array, frame: Frame, overlap: Array) -> tuple[Frame, bool]:
    """Take the overlap with the basis out of the fresh rows, and what the same error did to their lengths.

    Left in, that error would come back amplified in the next round. The rows are made orthonormal by the
    Cholesky factor of their Gram matrix; also returned is whether there is one.
    """
    K, rank = overlap.shape
    inside, gram = frame.inside.copy(), np.empty((K, K))
    for i in range(K):
        for j in range(K):
            axpy(frame.outside[i, j], overlap[j], inside[i])
        for start in range(0, rows.shape[1], BLOCK):
            stop = min(start + BLOCK, rows.shape[1])
            add_rows(-overlap[i], rows, start, stop, rows[rank + i, start:stop])
        for j in range(i + 1):
            gram[i, j] = gram[j, i] = dot(rows[rank + i], rows[rank + j])
    upper, definite = cholesky(gram, K, 0.0)
    inverse = _inverse_of_transpose(upper)
    for i in range(K - 1, -1, -1):  # a row needs only those before it
        rows[rank + i] *= inverse[i, i]
        for j in range(i):
            axpy(inverse[i, j], rows[rank + j], rows[rank + i])
    return Frame(inside, np.dot(frame.outside, upper.T)), definite


@kernel
def _may_leave(parameter: Array, direction: Array, settings: Settings) -> bool:
    """Whether the triangle inequality leaves open if the step leads out of the ball."""
    vector = parameter.reshape(-1)
    longest = math.sqrt(dot(vector, vector)) + math.sqrt(dot(direction, direction))
    return not longest < settings.norm_bound


@kernel
def _finish(
    sketch: Sketch, frame: Frame, point: Array, local: Array, played: Played, loss: Loss, settings: Settings
) -> Step:
    """The projection, if it is needed, and the core with the Hessian at the new parameter.

    `local` has the point's coordinates in the joint basis, and is empty if it cannot have left the ball.
    """
    K, d, multiplier = frame.inside.shape[0], played.action.size, 0.0
    if local.size > 0:
        square = dot(point, point)
        if not math.isfinite(square):
            return Step(OVERFLOW, point.reshape((K, d)), 0.0, sketch.core, 0.0)
        if math.sqrt(square) > settings.norm_bound:
            core = grown(sketch.core, frame, math.sqrt(settings.step_size) * loss.factor)
            rest = math.sqrt(max(square - dot(local, local), 0.0))
            projection = project_in_krylov_space(core, local, rest, settings)
            if not projection.settled:
                return Step(NOT_PROJECTED, point.reshape((K, d)), 0.0, core, 0.0)
            multiplier = projection.multiplier
            scale = settings.regularization / (settings.regularization + multiplier)
            change = projection.point - scale * local
            point *= scale
            _add_combination(change, sketch.rows, point)
    parameter = point.reshape((K, d))
    factor = loss_at(parameter, played.action, 0).factor
    core, largest = grown(sketch.core, frame, factor), 0.0
    for i in range(core.shape[0]):
        largest = max(largest, core[i, i])
    return Step(DONE, parameter, multiplier, core, largest)


@kernel
def _add_combination(weights: Array, rows: Array, out: Array) -> None:
    """`out += weights @ rows`, in less time than `numpy.dot` in a kernel takes."""
    for start in range(0, out.size, BLOCK):
        stop = min(start + BLOCK, out.size)
        add_rows(weights, rows, start, stop, out[start:stop])


@kernel
def _direction(sketch: Sketch, frame: Frame, loss: Loss, settings: Settings) -> Array:
    """Coordinates of W' - W in the joint basis; see `base.step_weights`."""
    K, r = frame.inside.shape
    solved, block = frame.inside.copy(), np.empty((K, K))
    for i in range(K):
        forward(sketch.ridge, solved[i])
        for j in range(i + 1):
            entry = dot(solved[i], solved[j])
            entry += dot(frame.outside[i], frame.outside[j]) / settings.regularization
            block[i, j] = block[j, i] = entry
    for i in range(K):
        backward(sketch.ridge, solved[i])
    weights = step_weights(block, loss, settings.step_size)
    direction = np.zeros(r + frame.outside.shape[1])
    for i in range(K):
        scale = -settings.step_size * weights[i]
        axpy(scale, solved[i], direction[:r])
        axpy(scale / settings.regularization, frame.outside[i], direction[r:])
    return direction


@kernel
def step_weights(block: Array, loss: Loss, step_size: float) -> Array:
    """See `base.step_weights`.

    F (F' A), not (F F') A. Where A is large along the direction that F' nearly annuls, roundoff in F' A is
    harmless: F in front turns it into a direction that the inverse does not enlarge. Roundoff in F F' is
    enlarged by the condition number of the matrix.
    """
    K, factor = loss.residual.size, loss.factor
    columns, product = factor.T.copy(), np.zeros((K, K))
    for k in range(K):
        add_rows(columns[k], block, 0, K, product[k])
    matrix, weights = np.zeros((K, K)), loss.residual.copy()
    for i in range(K):
        add_rows(step_size * factor[i], product, 0, K, matrix[i])
        matrix[i, i] += 1.0
    eliminate(matrix, weights)
    return weights


@kernel
def grown(core: Array, frame: Frame, factor: Array) -> Array:
    """Core in the joint basis after adding the Hessian with the given factor, symmetric to the bit."""
    K, r = frame.inside.shape
    n = r + frame.outside.shape[1]
    update = np.zeros((K, n))
    for k in range(K):
        for i in range(K):
            axpy(factor[i, k], frame.inside[i], update[k, :r])
            axpy(factor[i, k], frame.outside[i], update[k, r:])
    result = np.zeros((n, n))
    result[:r, :r] = core
    for i in range(n):
        # Whole rows, not a triangle: the sums have the same order in both halves.
        add_rows(update[:, i].copy(), update, 0, n, result[i])
    return result


@kernel
def movement(
    old: Array, new: Array, action: Array, outcome: int, step_size: float, multiplier: float
) -> tuple[float, float]:
    """See `policies.movement`."""
    K, d = old.shape
    loss = loss_at(old, action, outcome)
    logits, hessian = np.zeros(K), 0.0
    for i in range(K):
        moved = pull = 0.0
        for j in range(d):
            change = new[i, j] - old[i, j]
            moved += change * action[j]
            pull += new[i, j] * change
        logits[i] = moved
        hessian -= multiplier * pull + step_size * loss.residual[i] * moved
    for k in range(K):
        seen = 0.0
        for i in range(K):
            seen += loss.factor[i, k] * logits[i]
        hessian -= step_size * seen * seen
    return dot(logits, logits), max(hessian, 0.0)
