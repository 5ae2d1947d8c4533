"""The round over a diagonal matrix, which is given as a (K, d) array: see `curvature.diagonal`."""

from __future__ import annotations

import math

import numpy as np

from mlogb_core._validation import Array
from mlogb_core.compiled.arguments import (
    DONE,
    NO_ACTION,
    NOT_PROJECTED,
    OVERFLOW,
    Bonus,
    Indices,
    Loss,
    Numbers,
    Projection,
    Settings,
)
from mlogb_core.compiled.choose import candidates_of, next_batch, score, start_search
from mlogb_core.compiled.kernel import kernel
from mlogb_core.compiled.link import loss_at
from mlogb_core.compiled.ridge import largest_column
from mlogb_core.compiled.step import step_weights
from mlogb_core.compiled.vectors import axpy, dot

#: Most steps of the root search. If they do not suffice, the NumPy form takes the step.
STEPS = 100


@kernel
def choose_by_diagonal(
    actions: Array, squares: Array, parameter: Array, rewards: Array, diagonal: Array, numbers: Numbers
) -> tuple[int, float, int, Array]:
    """`choose_by_sketch` over a diagonal matrix; the image of an action is the diagonal of A(x), (K, 1)."""
    bonus, (n, K) = Bonus(*numbers), (actions.shape[0], parameter.shape[0])
    candidates = candidates_of(actions, squares, parameter, rewards)
    search, images = start_search(candidates, bonus), np.zeros((n, K, 1))
    limit, action, margin, inverse = 2, NO_ACTION, np.inf, _inverse(diagonal, 0.0)
    while search.finite:
        index, action, margin = next_batch(candidates, search, bonus.tie_tolerance, limit)
        if index.size == 0:
            break
        blocks = _blocks(actions, index, inverse, images)
        score(candidates, search, bonus, index, blocks)
        limit *= 2
    return action, margin, search.known.sum(), images[max(action, 0)].copy()


@kernel
def _blocks(actions: Array, index: Indices, inverse: Array, images: Array) -> Array:
    """A(x) of some actions, whose images are written into `images`."""
    n, K = index.size, inverse.shape[0]
    blocks = np.zeros((n, K, K))
    for c in range(n):
        action = actions[index[c]]
        for i in range(K):
            row, total = inverse[i], 0.0
            for j in range(action.size):
                total += action[j] * action[j] * row[j]
            blocks[c, i, i] = images[index[c], i, 0] = total
    return blocks


@kernel
def step_by_diagonal(
    parameter: Array, diagonal: Array, action: Array, image: Array, outcome: int, numbers: Numbers
) -> tuple[int, Array, float, Array, float]:
    """The projected step, in O(Kd), with the numbers of `Settings`.

    Returns the state, the new parameter, the multiplier, the diagonal of the Jacobian at the new parameter,
    and a lower bound of the largest eigenvalue of the loss's Hessian at the old or at the new parameter,
    whichever is larger.
    """
    settings, (K, d), multiplier = Settings(*numbers), parameter.shape, 0.0
    loss, square = loss_at(parameter, action, outcome), dot(action, action)
    largest = largest_column(loss.factor) * square
    point, block, added = parameter.copy(), np.zeros((K, K)), np.zeros(K)
    for i in range(K):
        block[i, i] = image[i, 0]
    weights = step_weights(block, loss, settings.step_size)
    for i in range(K):
        scale, old, new = settings.step_size * weights[i], diagonal[i], point[i]
        for j in range(d):
            new[j] -= scale * action[j] / old[j]
    vector = point.reshape(-1)
    total = dot(vector, vector)
    if not math.isfinite(total):
        return OVERFLOW, point, 0.0, added, largest
    if math.sqrt(total) > settings.norm_bound:
        projection = _project(point, diagonal, action, loss.factor, settings)
        if not projection.settled:
            return NOT_PROJECTED, point, 0.0, added, largest
        point, multiplier = projection.point, projection.multiplier
    factor = loss_at(point, action, 0).factor
    for i in range(K):
        added[i] = dot(factor[i], factor[i])
    return DONE, point, multiplier, added, max(largest, largest_column(factor) * square)


@kernel
def _project(point: Array, diagonal: Array, action: Array, factor: Array, settings: Settings) -> Projection:
    """`projection.project_onto_ball` with Newton's steps only, each of which takes O(Kd).

    The search starts at the multiplier 0, whose point is the one that is to be projected.
    """
    K, d = point.shape
    image, inner = point.copy(), np.empty(K)
    for i in range(K):
        inner[i] = dot(point[i], action)
    pull = _hessian_product(factor, inner, settings.step_size)
    for i in range(K):
        for j in range(d):
            image[i, j] = diagonal[i, j] * point[i, j] + pull[i] * action[j]
    projected, multiplier = point, 0.0
    for _ in range(STEPS):
        inverse = _inverse(diagonal, multiplier)
        if multiplier > 0.0:
            projected = _solved(image, inverse, action, factor, settings.step_size)
        vector = projected.reshape(-1)
        square = dot(vector, vector)
        excess = math.sqrt(square) / settings.norm_bound - 1.0
        if abs(excess) <= settings.roundoff:
            return Projection(projected, multiplier, True)
        slope = dot(vector, _solved(projected, inverse, action, factor, settings.step_size).reshape(-1))
        if not slope > 0.0:
            break
        change = excess * square / slope
        if abs(change) <= settings.roundoff * multiplier:
            return Projection(projected, multiplier, True)
        multiplier = max(multiplier + change, 0.0)
    return Projection(point, multiplier, False)


@kernel
def _inverse(diagonal: Array, shift: float) -> Array:
    """The reciprocals of the entries plus a number."""
    K, d = diagonal.shape
    inverse = np.empty((K, d))
    for i in range(K):
        for j in range(d):
            inverse[i, j] = 1.0 / (diagonal[i, j] + shift)
    return inverse


@kernel
def _solved(rows: Array, inverse: Array, action: Array, factor: Array, step_size: float) -> Array:
    """Rows times the inverse of a diagonal plus the step's Hessian, given the inverse of the diagonal."""
    K, d = rows.shape
    block, inner, solved = np.zeros((K, K)), np.zeros(K), np.empty((K, d))
    for i in range(K):
        row, old, total, product = inverse[i], rows[i], 0.0, 0.0
        for j in range(d):
            scaled = action[j] * row[j]
            total += action[j] * scaled
            product += old[j] * scaled
        block[i, i], inner[i] = total, product
    weights = step_weights(block, Loss(_hessian_product(factor, inner, step_size), factor), step_size)
    for i in range(K):
        row, old, new = inverse[i], rows[i], solved[i]
        for j in range(d):
            new[j] = (old[j] - weights[i] * action[j]) * row[j]
    return solved


@kernel
def _hessian_product(factor: Array, vector: Array, scale: float) -> Array:
    """A multiple of FF' times a vector."""
    K = vector.size
    seen, product = np.zeros(K), np.empty(K)
    for i in range(K):
        axpy(vector[i], factor[i], seen)
    for i in range(K):
        product[i] = scale * dot(factor[i], seen)
    return product
