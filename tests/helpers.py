"""Independent dense computations, streams of actions and deep comparison of states for the tests.

Nothing here calls the functions under test or the library's own oracle: the formulas are written
again from the paper, in Decimal where accuracy is the question and with dense matrices elsewhere.
"""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
from scipy.optimize import brentq

EPS = np.finfo(np.float64).eps
STREAMS = (
    "random",
    "repeated",
    "low_rank",
    "almost_low_rank",
    "mixed_scale",
    "with_zeros",
    "axes",
    "tiny",
)


def exact_probabilities(logits, digits=60):
    """Probabilities of the outcomes 0..K as Decimals, from float64 logits."""
    with localcontext() as context:
        context.prec = digits
        weights = [Decimal(1)] + [Decimal(float(z)).exp() for z in logits]
        total = sum(weights)
        return [w / total for w in weights]


def fifth_order(function, point, h=1e-3):
    """Five-point central differences along every coordinate, stacked first; error about h^4/30."""
    point = np.asarray(point, dtype=float)
    slopes = []
    for i in range(point.size):
        e = np.zeros(point.size)
        e[i] = h
        e = e.reshape(point.shape)
        far = function(point - 2 * e) - function(point + 2 * e)
        near = function(point + e) - function(point - e)
        slopes.append((far + 8 * near) / (12 * h))
    return np.array(slopes)


def softmax(logits):
    """Probabilities of the outcomes 0..K by the textbook formula (moderate logits only)."""
    weights = np.exp(np.concatenate(([0.0], logits)))
    return weights / weights.sum()


def link_jacobian(logits):
    """diag(p) - pp' over the outcomes 1..K by the textbook formula."""
    p = softmax(logits)[1:]
    return np.diag(p) - np.outer(p, p)


def action_stream(kind, rounds, d, seed):
    """Rows of actions: generic or degenerate in a named way."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rounds, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    few = X[: max(1, min(3, d - 1))]
    if kind == "repeated":
        X = few[rng.integers(len(few), size=rounds)]
    elif kind in ("low_rank", "almost_low_rank"):
        noise = 1e-9 * X if kind == "almost_low_rank" else 0.0
        X = rng.standard_normal((rounds, len(few))) @ few + noise
    elif kind == "mixed_scale":
        X[1::2] *= 1e-4
    elif kind == "with_zeros":
        X[rng.random(rounds) < 0.5] = 0.0
        X[0] = 0.0
    elif kind == "axes":
        X = np.eye(d)[rng.integers(d, size=rounds)]
    elif kind == "tiny":
        X[::3] *= 1e-160
    return np.ascontiguousarray(X)


class ReferenceSketch:
    """Algorithm 1 line by line on full Kd x Kd matrices; m >= Kd keeps everything."""

    def __init__(self, K, d, lam, m):
        self.K, self.d, self.lam, self.m = K, d, lam, m
        self.V, self.Lambda, self.rho = np.zeros((K * d, 0)), np.zeros(0), 0.0
        self.full = lam * np.eye(K * d)

    def add(self, J, x):
        D, P = np.linalg.eigh(J)
        B = np.kron(P * np.sqrt(np.maximum(D, 0.0)), x[:, None])
        stacked = np.hstack((self.V * np.sqrt(self.Lambda), B))
        V, sigma, _ = np.linalg.svd(stacked, full_matrices=False)
        squares = np.append(sigma**2, np.zeros(self.m + 1))
        kept = min(self.m, sigma.size)
        self.V, self.Lambda = V[:, :kept], squares[:kept] - squares[self.m]
        self.rho += squares[self.m]
        self.full += np.kron(J, np.outer(x, x))

    def dense(self):
        return self.lam * np.eye(self.K * self.d) + (self.V * self.Lambda) @ self.V.T


def dense_blocks(Z, actions, K):
    """(I kron x)' Z^-1 (I kron x) for every action, by a dense solve."""
    blocks = []
    for x in actions:
        X = np.kron(np.eye(K), x[:, None])
        blocks.append(X.T @ np.linalg.solve(Z, X))
    return np.array(blocks)


def dense_newton_step(Z, W, residual, J, x, step_size, norm_bound):
    """The proximal Newton step by dense linear algebra: the new parameter and whether it was projected."""
    tilde = Z + step_size * np.kron(J, np.outer(x, x))
    point = W.ravel() - step_size * np.linalg.solve(tilde, np.kron(residual, x))
    if np.linalg.norm(point) <= norm_bound:
        return point.reshape(W.shape), False
    return ellipsoid_projection(tilde, point, norm_bound).reshape(W.shape), True


def ellipsoid_projection(Z, point, norm_bound):
    """Projection onto the ball in the norm of Z, by an eigendecomposition and Brent's method."""
    values, Q = np.linalg.eigh(Z)
    inner = Q.T @ point

    def excess(nu):
        return np.linalg.norm(inner * values / (values + nu)) / norm_bound - 1.0

    upper = 2.0 * values[-1] * (np.linalg.norm(point) / norm_bound)
    nu = brentq(excess, 0.0, upper, xtol=1e-300, rtol=4 * EPS, maxiter=1000)
    return Q @ (inner * values / (values + nu))


def assert_same_state(left, right, ignore=()):
    """Two state dictionaries agree in every key, dtype, shape and byte."""
    assert left.keys() == right.keys()
    for key in left.keys() - set(ignore):
        a, b = np.asarray(left[key]), np.asarray(right[key])
        assert a.dtype == b.dtype, key
        assert a.shape == b.shape, key
        assert a.tobytes() == b.tobytes(), key
