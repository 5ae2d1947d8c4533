"""What a round adds to the observed radius: see `mlogb_core.observed`."""

from __future__ import annotations

import math

import numpy as np

from mlogb_core._validation import Array
from mlogb_core.compiled.algebra import eliminate
from mlogb_core.compiled.kernel import kernel
from mlogb_core.compiled.link import jacobian, log_loss, probabilities
from mlogb_core.compiled.vectors import dot


@kernel
def observed_surplus(
    before: Array,
    after: Array,
    outcome: int,
    block: Array,
    length: float,
    hessian_movement: float,
    step_size: float,
    norm_bound: float,
) -> float:
    """`round_surplus` under `normalised_forecast`, from the fields of a `PlayedRound`."""
    K, bound, p = before.size, norm_bound * length, _at_logits(before)
    slope, exponents = jacobian(p), np.empty(p.size)
    for y in range(p.size):
        weights, matrix = p[1:].copy(), step_size * np.dot(slope, block)
        if y > 0:
            weights[y - 1] -= 1.0
        for i in range(K):
            matrix[i, i] += 1.0
        eliminate(matrix, weights)
        image = np.dot(block, weights)
        reached = before - step_size * image
        exponents[y] = _remainder(before, reached, p, slope, bound) - log_loss(reached, y)
        exponents[y] -= 0.5 * step_size * dot(weights, image)
    largest = exponents.max()
    log_forecast = exponents[outcome] - largest - math.log(np.exp(exponents - largest).sum())
    gained = -log_loss(after, outcome) - log_forecast
    left_out = _remainder(before, after, p, slope, bound)
    return float(2.0 * step_size * (gained + left_out) - hessian_movement)


@kernel
def _remainder(before: Array, after: Array, p: Array, slope: Array, bound: float) -> float:
    """`observed_remainder`, from the probabilities before the step, their Jacobian, and S |x|."""
    change = _at_logits(after)[1:] - p[1:] - np.dot(slope, after - before)
    return dot(change, after) + bound * math.sqrt(dot(change, change))


@kernel
def _at_logits(logits: Array) -> Array:
    """Probabilities of the outcomes 0..K, which are those at the action 1 of a parameter with one column."""
    return probabilities(logits.reshape((logits.size, 1)), np.ones(1))
