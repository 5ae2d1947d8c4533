"""The multinomial logit model at one action: probabilities, expected reward and derivatives of the loss."""

from __future__ import annotations

import math

import numpy as np

from mlogb_core._validation import Array
from mlogb_core.compiled.arguments import Loss
from mlogb_core.compiled.kernel import kernel
from mlogb_core.compiled.vectors import dot


@kernel
def probabilities(parameter: Array, action: Array) -> Array:
    """Probabilities of the outcomes 0..K, with the exponents shifted by the largest logit."""
    K = parameter.shape[0]
    p = np.zeros(K + 1)
    shift = 0.0
    for i in range(K):
        p[i + 1] = dot(parameter[i], action)
        shift = max(shift, p[i + 1])
    total = 0.0
    for i in range(K + 1):
        p[i] = math.exp(p[i] - shift)
        total += p[i]
    for i in range(K + 1):
        p[i] /= total
    return p


@kernel
def _others(p: Array, i: int) -> float:
    """1 - p_i without cancellation."""
    total = 0.0
    for j in range(p.size):
        if j != i:
            total += p[j]
    return total


@kernel
def jacobian(p: Array) -> Array:
    """`link.jacobian` at the probabilities of the outcomes 0..K."""
    K = p.size - 1
    matrix = np.empty((K, K))
    for i in range(K):
        for j in range(K):
            matrix[i, j] = -p[i + 1] * p[j + 1]
        matrix[i, i] = p[i + 1] * _others(p, i + 1)
    return matrix


@kernel
def log_loss(logits: Array, outcome: int) -> float:
    """`link.log_loss` of one outcome."""
    shift, total = max(0.0, logits.max()), 0.0
    for logit in logits:
        total += math.exp(logit - shift)
    own = logits[outcome - 1] if outcome > 0 else 0.0
    return float(math.log(total + math.exp(-shift)) + (shift - own))


@kernel
def estimates(actions: Array, parameter: Array, rewards: Array) -> tuple[Array, Array]:
    """Scores without the bonus, (n,), and the slopes, Jacobian times rewards, (n, K)."""
    n, K = actions.shape[0], parameter.shape[0]
    value, slopes = np.empty(n), np.ones((n, K))
    for a in range(n):
        if K == 1:
            value[a] = dot(parameter[0], actions[a])
            continue
        p = probabilities(parameter, actions[a])
        value[a] = dot(p[1:], rewards)
        for i in range(K):
            total = 0.0
            for j in range(K):
                if j != i:
                    total -= p[j + 1] * rewards[j]
            slopes[a, i] = p[i + 1] * (_others(p, i + 1) * rewards[i] + total)
    return value, slopes


@kernel
def loss_at(parameter: Array, action: Array, outcome: int) -> Loss:
    """Gradient of the loss in the logits, and the factor F of the Jacobian: see `link.jacobian_factor`."""
    p = probabilities(parameter, action)
    K = p.size - 1
    residual, factor = p[1:].copy(), np.empty((K, K))
    if outcome > 0:
        residual[outcome - 1] = -_others(p, outcome)
    root = math.sqrt(p[0])
    for i in range(K):
        for j in range(K):
            factor[i, j] = -p[i + 1] * math.sqrt(p[j + 1]) / (1.0 + root)
        factor[i, i] = math.sqrt(p[i + 1]) * (root + _others(p, i + 1)) / (1.0 + root)
    return Loss(residual, factor)
