"""Independent dense computations, streams of actions and deep comparison of states for the tests.

No computation here calls the functions under test or the library's own oracle: the formulas are
written again from the paper, in Decimal where accuracy is the question and with dense matrices
elsewhere. The last four functions only drive a policy or start a process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal, localcontext
from pathlib import Path

import numpy as np
from scipy.optimize import brentq

import mlogb_core

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
    """Probabilities of the outcomes 0..K as Decimals, from float64 or Decimal logits."""
    with localcontext() as context:
        context.prec = digits
        weights = [Decimal(1)] + [(z if isinstance(z, Decimal) else Decimal(float(z))).exp() for z in logits]
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


def shifted_softmax(logits):
    """Probabilities of the outcomes 0..K for logits of any size."""
    padded = np.concatenate(([0.0], logits))
    weights = np.exp(padded - padded.max())
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

    if not excess(0.0) > 0.0:  # The point was outside by its last bit.
        return point
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


def exact(array):
    """The float64 numbers as Decimals, without rounding."""
    return np.vectorize(lambda number: Decimal(float(number)), otypes=[object])(np.asarray(array))


def exact_hessian(W, x, digits=60):
    """The loss Hessian at W: the link's Jacobian kron xx', in Decimal."""
    with localcontext() as context:
        context.prec = digits
        p = np.array(exact_probabilities(exact(W) @ exact(x), digits)[1:], dtype=object)
        return np.kron(np.diag(p) - np.outer(p, p), np.outer(exact(x), exact(x)))


def exact_solve(matrix, vector):
    """Solution with a positive definite Decimal matrix, by elimination, at the context's precision."""
    A, b = matrix.copy(), vector.copy()
    for i in range(len(b)):
        weights = A[i + 1 :, i] / A[i, i]
        A[i + 1 :, i:] -= np.outer(weights, A[i, i:])
        b[i + 1 :] -= weights * b[i]
    for i in reversed(range(len(b))):
        b[i] = (b[i] - A[i, i + 1 :] @ b[i + 1 :]) / A[i, i]
    return b


def exact_step(Z, W, x, outcome, step_size, norm_bound, digits=60, roundoff=(0.0, 0.0, 0.0)):
    """The proximal Newton step from a Decimal Z, and how far outside the ball it ended before projection.

    The second number is |W'|/S; the projection is needed where it is above 1. `roundoff` says what
    is added to the residual, which share of its length to the point before projection, and which share of
    the summands' sizes to the product of the step's matrix with that point.
    """
    with localcontext() as context:
        context.prec = digits
        S, eta = Decimal(float(norm_bound)), Decimal(float(step_size))
        p = np.array(exact_probabilities(exact(W) @ exact(x), digits), dtype=object)
        residual = p[1:] - exact(np.eye(len(p))[outcome, 1:]) + exact(roundoff[0])
        tilde = Z + eta * exact_hessian(W, x, digits)
        point = exact(W).ravel() - eta * exact_solve(tilde, np.kron(residual, exact(x)))
        length = (point @ point).sqrt()
        excess = float(length / S)
        point = point + length * exact(roundoff[1])
        length = (point @ point).sqrt()
        image, nu, projected = tilde @ point, Decimal(0), point
        image = image + np.abs(tilde) @ np.abs(point) * exact(roundoff[2])
        while length > S:
            shifted = tilde + nu * exact(np.eye(len(point)))
            projected = exact_solve(shifted, image)
            length = (projected @ projected).sqrt()
            step = (length / S - 1) * length**2 / (projected @ exact_solve(shifted, projected))
            if step <= nu.scaleb(-digits // 2):
                break
            nu += step
        return projected.astype(np.float64).reshape(np.shape(W)), excess


def exact_low_rank(curvature, digits=60):
    """The ridge and B'CB of a sketch in Decimal: no rounding between the small and the large eigenvalues.

    A diagonal is exact as it is.
    """
    if not hasattr(curvature, "basis"):
        return exact(curvature.dense())
    with localcontext() as context:
        context.prec = digits
        B, C = exact(curvature.basis), exact(curvature.core)
        ridge = exact(curvature.ridge * np.eye(curvature.n_outcomes * curvature.n_features))
        return ridge + B.T @ C @ B if len(B) else ridge


def random_rounds(policy, rounds, seed, selected=None):
    """Rounds on generic actions with outcomes from no model; the actions chosen.

    The actions are integers over a power of two, so that no kernel rounds them differently. With
    `selected` the first round's action is chosen already, and only the update is to be done.
    """
    rng = np.random.default_rng(seed)
    chosen = []
    for _ in range(rounds):
        actions, outcomes = random_round(policy, rng)
        chosen.append(policy.select(actions) if selected is None else selected)
        policy.update(actions[chosen[-1]], int(outcomes[chosen[-1]]))
        selected = None
    return chosen


def random_round(policy, rng):
    """Five generic actions and the outcome that each of them would have."""
    K, d = policy.parameter.shape
    return rng.integers(-512, 513, size=(5, d)) / 512.0, rng.integers(K + 1, size=5)


def resume(path, rounds, seed, selected):
    """Go on from a state on disk, for a new process: prints the actions, the margin and the bytes of W."""
    from mlogb_core import OptimisticPolicy

    with np.load(path) as state:
        policy = OptimisticPolicy.from_state(state)
    print(*random_rounds(policy, rounds, seed, selected))
    print(policy.margin.hex(), policy.parameter.tobytes().hex())


def run_python(program, unset=(), **variables):
    """Run a program in a new process that can import the library and the tests, and return what it prints."""
    here = Path(__file__).parent
    paths = [Path(mlogb_core.__file__).parents[1], here, here / "core"]
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"PYTHONPATH": os.pathsep.join(map(str, paths))} | variables
    finished = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout
