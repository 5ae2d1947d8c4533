"""What the derivation notebooks share: errors, random instances, a search for the worst, 50-digit oracles.

A check compares a function of `mlogb_core` with a computation that shares no code with it; what it
found is said by `compendium.claims.evidence`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal, localcontext
from functools import lru_cache
from operator import itemgetter

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from mlogb_core._validation import Array
from mlogb_core.curvature import FrequentDirections
from mlogb_core.link import jacobian_factor, outcome_probabilities

DIGITS = 50

Scalar = Callable[[Sequence[Decimal]], Decimal]


def relative_error(computed: ArrayLike, reference: ArrayLike) -> float:
    """Largest entry of the difference over the largest entry of the reference; inf if NaN occurs."""
    computed, reference = np.asarray(computed, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    if computed.shape != reference.shape:
        raise ValueError(f"shapes differ: {computed.shape} and {reference.shape}")
    difference = np.abs(computed - reference).max(initial=0.0)
    if np.isnan(difference):
        return np.inf
    return float(difference / np.abs(reference).max(initial=0.0)) if difference > 0 else 0.0


def entrywise_error(computed: ArrayLike, reference: ArrayLike) -> float:
    """Largest relative error of a single entry; the reference must have no zero."""
    reference = np.asarray(reference, dtype=np.float64)
    if not reference.all():
        raise ValueError("the reference has a zero entry")
    return relative_error(np.asarray(computed, dtype=np.float64) / reference, np.ones(reference.shape))


def beside(*matrices: tuple[str, ArrayLike], digits: int = 3) -> str:
    """Matrices with their titles side by side, rounded, to be compared by eye.

    Parameters
    ----------
    *matrices : (str, (n, k) or (n,) array)
        Title and matrix; a vector becomes a column. All must have the same number of rows.
    digits : int, optional
        Digits after the point.

    Returns
    -------
    str
    """
    blocks = []
    for title, matrix in matrices:
        values = np.asarray(matrix, dtype=np.float64)
        rounded = (values[:, None] if values.ndim == 1 else values).round(digits) + 0.0  # no minus zero
        cells = [[f"{value:.{digits}f}" for value in row] for row in rounded]
        width = max(len(cell) for row in cells for cell in row)
        lines = [title, *("  ".join(cell.rjust(width) for cell in row) for row in cells)]
        blocks.append([line.ljust(max(map(len, lines))) for line in lines])
    return "\n".join("    ".join(parts).rstrip() for parts in zip(*blocks, strict=True))


def worst_case(
    objective: Callable[[Array], float],
    draw: Callable[[np.random.Generator], Array],
    *,
    starts: int,
    polished: int,
    seed: int,
    bounds: Sequence[tuple[float, float]] | None = None,
    evaluations: int = 50,
) -> tuple[float, Array]:
    """Search for the largest value of a function: random starts, then optimisation of the best ones.

    Parameters
    ----------
    objective : callable
        From an (n,) array to a number; -inf or NaN marks a point that is not admissible.
    draw : callable
        From a random generator to a starting point. It should reach the corners, too.
    starts, polished : int
        Number of random points, and of the best of them from which the optimiser (Nelder and Mead's,
        which needs no derivative and goes through kinks, then Powell's) goes on. What the second one
        loses, as it may beside points that are not admissible, is kept.
    seed : int
        Of the random points.
    bounds : sequence of pairs, optional
        Range of each coordinate.
    evaluations : int, optional
        How many each method may make for each coordinate.

    Returns
    -------
    value : float
        The largest value found: a lower bound of the supremum.
    point : (n,) array
        Where.
    """
    rng = np.random.default_rng(seed)

    def cost(point: Array) -> float:
        value = objective(point)
        return -value if np.isfinite(value) else np.inf

    points = [np.asarray(draw(rng), dtype=np.float64) for _ in range(starts)]
    reached = sorted(((cost(point), point) for point in points), key=itemgetter(0))
    for _, start in reached[:polished]:
        options = {"maxfev": evaluations * start.size}
        for method in ("Nelder-Mead", "Powell"):
            with np.errstate(invalid="ignore"):  # differences of infinities, where a point is not admissible
                found = minimize(cost, start, method=method, bounds=bounds, options=options)
            start = found.x
            reached.append((float(found.fun), start))
    least, best = min(reached, key=itemgetter(0))
    return -least, best


def logit_cases(n_cases: int, seed: int, sizes: Sequence[int] = (1, 2, 3, 5)) -> Iterator[Array]:
    """Yield logit vectors from nearly uniform to saturated: scales 0.01 to 30, sizes in turn."""
    rng = np.random.default_rng(seed)
    for case in range(n_cases):
        yield rng.normal(size=sizes[case % len(sizes)]) * 10.0 ** rng.uniform(-2.0, 1.5)


def sketch_cases(n_cases: int, seed: int) -> Iterator[tuple[FrequentDirections, Array]]:
    """Yield sketches with an action each: empty, growing, full and shrunk ones; old and new actions.

    K is 1, 2 or 4, the sketch size from 1 to more than Kd, the action new, one that the sketch has
    seen, or zero. Z has condition numbers up to about 1e4. The streams of a number and a seed are
    played once; each call yields copies of its own.
    """
    yield from pickle.loads(_played_sketches(n_cases, seed))


@lru_cache(maxsize=8)
def _played_sketches(n_cases: int, seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    cases = []
    for case in range(n_cases):
        K, d = (1, 2, 4)[case % 3], int(rng.integers(2, 7))
        sketch = FrequentDirections(K, d, 10.0 ** rng.uniform(-1.0, 1.0), int(rng.integers(1, K * d + 3)))
        action = rng.normal(size=d)
        for _ in range(int(rng.integers(0, 2 * K * d))):
            action = rng.normal(size=d) * 10.0 ** rng.uniform(-0.5, 0.5)
            sketch.add(sketch.frame(action), jacobian_factor(outcome_probabilities(rng.normal(size=K))))
        kind = rng.uniform()
        cases.append((sketch, action if kind < 0.3 else rng.normal(size=d) if kind < 0.95 else np.zeros(d)))
    return pickle.dumps(cases)


def precise_probabilities(logits: Sequence[Decimal]) -> list[Decimal]:
    """Probabilities of the outcomes 0..K by their definition, in the caller's decimal context."""
    weights = [Decimal(1), *(z.exp() for z in logits)]
    total = sum(weights, Decimal(0))
    return [weight / total for weight in weights]


def precise_reward(rewards: Array) -> Scalar:
    """Expected reward as a function of the logits."""
    weights = _exact(rewards)

    def reward(logits: Sequence[Decimal]) -> Decimal:
        probabilities = precise_probabilities(logits)[1:]
        return sum((r * p for r, p in zip(weights, probabilities, strict=True)), Decimal(0))

    return reward


def precise_loss(action: Array, outcome: int) -> Scalar:
    """Loss of one outcome as a function of the entries of W, row after row."""
    x = _exact(action)

    def loss(entries: Sequence[Decimal]) -> Decimal:
        rows = [entries[start : start + len(x)] for start in range(0, len(entries), len(x))]
        logits = [sum((w * v for w, v in zip(row, x, strict=True)), Decimal(0)) for row in rows]
        return -precise_probabilities(logits)[outcome].ln()

    return loss


def precise(function: Callable[[Sequence[Decimal]], Sequence[Decimal]], point: Array) -> Array:
    """Values of a function of decimals in 50 digits, rounded to floats."""
    with localcontext() as context:
        context.prec = DIGITS
        return np.array([float(value) for value in function(_exact(point))])


def precise_gradient(function: Scalar, point: Array) -> Array:
    """Gradient by central differences in 50 digits with step 1e-16: right to about 30 digits.

    Parameters
    ----------
    function : callable
        From a list of decimals to a decimal.
    point : (n,) array
        Where.

    Returns
    -------
    (n,) array
    """
    with localcontext() as context:
        context.prec = DIGITS
        x, h = _exact(point), Decimal("1e-16")
        slopes = [
            (function(_moved(x, (i, h))) - function(_moved(x, (i, -h)))) / (2 * h) for i in range(len(x))
        ]
        return np.array([float(slope) for slope in slopes])


def precise_hessian(function: Scalar, point: Array) -> Array:
    """Hessian by central differences in 50 digits with step 1e-12: right to about 24 digits.

    Parameters
    ----------
    function : callable
        From a list of decimals to a decimal.
    point : (n,) array
        Where.

    Returns
    -------
    (n, n) array
    """
    with localcontext() as context:
        context.prec = DIGITS
        x, h = _exact(point), Decimal("1e-12")
        matrix = np.empty((len(x), len(x)))
        for i in range(len(x)):
            for j in range(i + 1):
                ahead = function(_moved(x, (i, h), (j, h))) - function(_moved(x, (i, h), (j, -h)))
                behind = function(_moved(x, (i, -h), (j, h))) - function(_moved(x, (i, -h), (j, -h)))
                matrix[i, j] = matrix[j, i] = float((ahead - behind) / (4 * h * h))
        return matrix


def precise_block(sketch: FrequentDirections, action: Array) -> Array:
    """A(x) of a sketch in 50 digits: Z formed from lambda, B and C, and solved by elimination.

    Parameters
    ----------
    sketch : FrequentDirections
        Holds B, C and lambda as floats, which are taken as exact.
    action : (d,) array
        x.

    Returns
    -------
    (K, K) array
    """
    K, d = sketch.n_outcomes, sketch.n_features
    with localcontext() as context:
        context.prec = DIGITS
        B, C = _decimals(sketch.basis), _decimals(sketch.core)
        Z = Decimal(sketch.regularization) * _decimals(np.eye(K * d))
        if sketch.rank > 0:
            Z = Z + B.T @ (C @ B)
        columns = _decimals(np.asarray(np.kron(np.eye(K), action[:, None])))
        stacked = np.hstack((Z, columns))
        for row in range(K * d):  # forward elimination; Z is positive definite, so no pivoting
            below = stacked[row + 1 :, row] / stacked[row, row]
            stacked[row + 1 :, row:] -= np.outer(below, stacked[row, row:])
        pivots, reduced = np.diag(stacked), stacked[:, K * d :]
        return np.asarray(reduced.T @ (reduced / pivots[:, None]), dtype=np.float64)


def _exact(point: Array) -> list[Decimal]:
    return [Decimal(float(value)) for value in point.reshape(-1)]


def _decimals(matrix: Array) -> NDArray[np.object_]:
    return np.array(_exact(matrix), dtype=np.object_).reshape(matrix.shape)


def _moved(point: list[Decimal], *steps: tuple[int, Decimal]) -> list[Decimal]:
    moved = list(point)
    for place, step in steps:
        moved[place] += step
    return moved
