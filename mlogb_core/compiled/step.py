"""The step over a sketch: `LowRankCurvature.frame` and `newton_step`, and the new core.

One pass over the basis gives the fresh directions, the step and whether a projection is needed; a projection
takes a second pass.
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
    add_combinations,
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
    upper: Array,
    parameter: Array,
    action: Array,
    image: Array,
    outcome: int,
    numbers: Numbers,
) -> Step:
    """Frame and projected step over a `Sketch`, with the numbers of `Settings`.

    The fresh directions are written into the rows after the basis. In one pass, block of columns by block of
    columns, the kernel computes the fresh directions, their overlap with the basis, the point before its
    projection and, if that may lie outside the ball, its coordinates.
    """
    sketch, played, settings = Sketch(rows, core, upper), Played(action, image, outcome), Settings(*numbers)
    (K, d), rank = parameter.shape, core.shape[0]
    n, inside = rank + K, image
    triangle, share = _outside(played, settings)
    # If there is no room for K more rows, T is singular in exact arithmetic. The second condition protects
    # the memory should the basis have lost its orthonormality.
    if not share > settings.outside or n > rows.shape[0]:
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
    local, fresh = np.zeros(n if leaves else 0), rows[rank:n]
    for start in range(0, K * d, BLOCK):
        stop = min(start + BLOCK, K * d)
        part = point[start:stop]
        for i in range(K):
            row = fresh[i, start:stop]
            row[:] = 0.0
            for j in range(start // d, (stop - 1) // d + 1):
                first, last = max(start, j * d), min(stop, (j + 1) * d)
                axpy(inverse[i, j], action[first - j * d : last - j * d], row[first - start : last - start])
        one = fresh[0, start:stop]
        add_rows_twice(weights[0], direction[:rank], rows, start, stop, one, part)
        for i in range(1, K - 1, 2):
            one, two = fresh[i, start:stop], fresh[i + 1, start:stop]
            add_rows_twice(weights[i], weights[i + 1], rows, start, stop, one, two)
        if K % 2 == 0:
            add_rows(weights[K - 1], rows, start, stop, fresh[K - 1, start:stop])
        add_rows(direction[rank:], fresh, start, stop, part)
        for i in range(K % 2, K, 2):
            one, two = fresh[i, start:stop], fresh[i + 1, start:stop]
            add_products_twice(rows, start, stop, one, two, overlap[i], overlap[i + 1])
        if K % 2 and leaves:
            add_products_twice(rows, start, stop, fresh[0, start:stop], part, overlap[0], local[:rank])
        elif K % 2:
            add_products(rows, start, stop, fresh[0, start:stop], overlap[0])
        elif leaves:
            add_products(rows, start, stop, part, local[:rank])
        if leaves:
            add_products(fresh, start, stop, part, local[rank:])
    if rank > 0 and (share <= settings.well_outside or np.abs(overlap).max() > settings.overlap):
        frame, definite = _without_overlap(rows, frame, overlap)
        if not definite:
            return Step(WITHOUT_FRAME, parameter, 0.0, sketch.core, 0.0)
        point, local = _moved(sketch, frame, parameter, loss, settings)
    return _finish(sketch, frame, point, local, played, loss, settings)


@kernel
def step_in_frame(sketch: Sketch, frame: Frame, parameter: Array, played: Played, settings: Settings) -> Step:
    """`step` for a given frame, whose fresh directions are in the rows after the basis."""
    loss = loss_at(parameter, played.action, played.outcome)
    point, local = _moved(sketch, frame, parameter, loss, settings)
    return _finish(sketch, frame, point, local, played, loss, settings)


@kernel
def _moved(
    sketch: Sketch, frame: Frame, parameter: Array, loss: Loss, settings: Settings
) -> tuple[Array, Array]:
    """The point before its projection, and what `_finish` needs of its coordinates."""
    direction = _direction(sketch, frame, loss, settings)
    joint = sketch.rows[: direction.size]
    point, local = parameter.reshape(-1).copy(), np.zeros(0)
    _add_combination(direction, joint, point)
    if _may_leave(parameter, direction, settings):
        local = np.dot(joint, point)
    return point, local


@kernel
def _outside(played: Played, settings: Settings) -> tuple[Array, float]:
    """The transpose of T with T T' = |x|^2 I - G G', and how far that is from singular.

    That is the smallest share of the squared length which lies outside the basis, for the outcomes one after
    the other, or 0 if there is no such T. Its value affects the time and not the result: digits that cancel
    in T reappear in the overlap with the basis and in the lengths of the fresh rows, which are measured and
    removed.
    """
    inside, square = played.image, dot(played.action, played.action)
    K = inside.shape[0]
    gram = np.empty((K, K))
    for i in range(K):
        for j in range(i + 1):
            gram[i, j] = gram[j, i] = -dot(inside[i], inside[j])
        gram[i, i] += square
    upper, definite = cholesky(gram, K, 0.0)
    if not definite or not square >= settings.smallest_square:
        return upper, 0.0
    share = 1.0
    for j in range(K):
        share = min(share, upper[j, j] ** 2 / square)
    return upper, share


@kernel
def _inverse_of_transpose(upper: Array) -> Array:
    """The lower triangular inverse of a transposed upper triangle."""
    columns = np.eye(upper.shape[0])
    for j in range(upper.shape[0]):
        forward(upper, columns[j])
    return columns.T.copy()


@kernel
def _without_overlap(rows: Array, frame: Frame, overlap: Array) -> tuple[Frame, bool]:
    """Remove the overlap with the basis from the fresh rows, and make them orthonormal again.

    An overlap that stays would be amplified in the next round. The Cholesky factor of the rows' Gram matrix
    makes them orthonormal; the second value says whether it exists.
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
    # From the last row on, since a row needs the old values of those before it.
    for i in range(K - 1, -1, -1):
        rows[rank + i] *= inverse[i, i]
        for j in range(i):
            axpy(inverse[i, j], rows[rank + j], rows[rank + i])
    return Frame(inside, np.dot(frame.outside, upper.T)), definite


@kernel
def _may_leave(parameter: Array, direction: Array, settings: Settings) -> bool:
    """Whether the triangle inequality does not exclude that the step ends outside the ball."""
    vector = parameter.reshape(-1)
    longest = math.sqrt(dot(vector, vector)) + math.sqrt(dot(direction, direction))
    return not longest < settings.norm_bound


@kernel
def _finish(
    sketch: Sketch, frame: Frame, point: Array, local: Array, played: Played, loss: Loss, settings: Settings
) -> Step:
    """The projection, if it is needed, and the core with the Hessian at the new parameter.

    `local` holds the point's coordinates in the joint basis, and is empty if the point must be in the ball.
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
            scale = settings.ridge / (settings.ridge + multiplier)
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
    """`out += weights @ rows`, which is faster than `numpy.dot` in a kernel."""
    for start in range(0, out.size, BLOCK):
        stop = min(start + BLOCK, out.size)
        add_rows(weights, rows, start, stop, out[start:stop])


@kernel
def _direction(sketch: Sketch, frame: Frame, loss: Loss, settings: Settings) -> Array:
    """Coordinates of W' - W in the joint basis: see `base.step_weights`."""
    K, r = frame.inside.shape
    solved, block = frame.inside.copy(), np.empty((K, K))
    for i in range(K):
        forward(sketch.upper, solved[i])
        for j in range(i + 1):
            entry = dot(solved[i], solved[j])
            entry += dot(frame.outside[i], frame.outside[j]) / settings.ridge
            block[i, j] = block[j, i] = entry
    for i in range(K):
        backward(sketch.upper, solved[i])
    weights = step_weights(block, loss, settings.step_size)
    direction = np.zeros(r + frame.outside.shape[1])
    for i in range(K):
        scale = -settings.step_size * weights[i]
        axpy(scale, solved[i], direction[:r])
        axpy(scale / settings.ridge, frame.outside[i], direction[r:])
    return direction


@kernel
def step_weights(block: Array, loss: Loss, step_size: float) -> Array:
    """`base.step_weights`, with the product F (F' A) and not (F F') A.

    The order matters where A is large along a direction that F' nearly annuls. Roundoff in F' A is then
    multiplied by F and stays small, whereas roundoff in F F' would be multiplied by the condition number of
    the matrix.
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
    """The core in the joint basis with the Hessian of the given factor added, symmetric to the bit."""
    K, r = frame.inside.shape
    n = r + frame.outside.shape[1]
    update = np.zeros((K, n))
    for k in range(K):
        for i in range(K):
            axpy(factor[i, k], frame.inside[i], update[k, :r])
            axpy(factor[i, k], frame.outside[i], update[k, r:])
    result = np.zeros((n, n))
    for i in range(r):
        row, old = result[i], core[i]
        for j in range(r):
            row[j] = old[j]
    # Both triangles are computed, with sums in the same order, so that they are equal to the bit.
    add_combinations(update.T.copy(), update, result, 0, n)
    return result


@kernel
def movement(
    old: Array, new: Array, action: Array, outcome: int, step_size: float, multiplier: float
) -> tuple[float, float]:
    """`policies.movement` with the loss computed here."""
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
