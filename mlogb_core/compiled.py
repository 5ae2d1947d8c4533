r"""The round in plain loops, compiled by numba: the same algorithm, the same iterates to roundoff.

The NumPy form is the one to read; this one is for speed, and `policies.eofd` and `policies.oful`
take it with `compiled=True`. State, validation, radius and error handling are the policy's own, so
that a saved state can go on in either form. Factorisations and eigenvalues stay with SciPy's LAPACK,
called between the kernels. A kernel goes over the basis in column blocks that stay in the cache, so
that a round reads it three times and writes it once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from mlogb_core._linalg import cholesky, cholesky_solve, orthonormalised, polar, smallest_eigenpairs
from mlogb_core._validation import Array
from mlogb_core.choice import _SLACK, Choice
from mlogb_core.confidence import ConstantRadius
from mlogb_core.curvature import DenseCurvature, FrequentDirections
from mlogb_core.curvature.base import check_regularization
from mlogb_core.curvature.low_rank import _OVERLAP, _SMALLEST_SQUARE, _WELL_OUTSIDE
from mlogb_core.policies import OptimisticPolicy, _Estimate, _Selected, movement
from mlogb_core.projection import Resolvent, project_onto_ball

try:
    from numba import njit
except ImportError as error:
    raise ImportError("compiled=True needs numba: pip install .[fast]") from error

_BLOCK = 512  # columns: with some hundred rows they fit into the second-level cache
_WIDE = 100_000  # numbers in a basis from which on, for K > 1, the products are BLAS' business
_TINY = 3  # features of the problem on which the kernels are compiled
_SMALL = 48  # up to this order a Cholesky factorisation in loops beats the call of LAPACK


Function = TypeVar("Function", bound=Callable[..., Any])
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]


def _kernel(function: Function) -> Function:
    """Compile; sums may be reordered and fused, infinities and NaN keep their meaning."""
    compile_ = njit(cache=True, fastmath={"reassoc", "contract"}, error_model="numpy")
    return cast(Function, compile_(function))


class CompiledPolicy(OptimisticPolicy):
    """`OptimisticPolicy` over `FrequentDirections` or `DenseCurvature` with compiled kernels.

    Parameters
    ----------
    curvature, rewards, step_size, norm_bound, radius, tie_tolerance
        As in `OptimisticPolicy`.

    Raises
    ------
    ValueError
        If the curvature is of another kind.
    """

    compiled = True
    curvature: Any  # its arrays are the kernels' business, whichever it is

    def __init__(self, curvature: Any, rewards: Any, **settings: Any) -> None:
        if not isinstance(curvature, FrequentDirections | DenseCurvature):
            raise ValueError(f"curvature must be a sketch or the full Hessian, got {curvature!r}")
        super().__init__(curvature, rewards, **settings)
        if curvature.n_features != _TINY:
            _compile_kernels()

    def _estimate(self, actions: Array) -> _Estimate:
        value, slopes, _ = _estimates(actions, self.parameter, self.rewards)
        return _Estimate(actions, value, slopes)

    def _best(self, estimate: _Estimate) -> tuple[Choice, int, _Selected | None]:
        beta = self.beta
        if beta == 0.0:
            return super()._best(estimate)
        actions, value, slopes = estimate
        total = 0.5 * float(self.rewards.sum())
        upper = _upper_bounds(actions, value, slopes, beta, total, self.curvature.regularization)
        if not math.isfinite(upper.sum()):
            return super()._best(estimate)  # which tells overflow from a large sum
        n = len(value)
        scores, known, batch = np.zeros(n), np.zeros(n, dtype=np.bool_), np.empty(n, dtype=np.intp)
        images = np.empty((n, *self._image_shape()))
        limit = self._batch_size()
        while True:
            count, action, margin = _next_batch(value, upper, scores, known, self.tie_tolerance, limit, batch)
            if not count:
                selected = _Selected(actions[action].copy(), images[action].copy())
                return Choice(int(action), float(margin)), int(known.sum()), selected
            index = batch[:count]
            blocks = self._blocks(actions, index, images)
            _scores(value, slopes, blocks, index, beta, total, scores, known)
            limit *= 2

    def _batch_size(self) -> int:
        return 2  # choosing takes no time here

    def _image_shape(self) -> tuple[int, int]:
        curvature = self.curvature
        width = curvature.rank if isinstance(curvature, FrequentDirections) else curvature.rank_bound
        return curvature.n_outcomes, width

    def _blocks(self, actions: Array, index: Indices, images: Array) -> Array:
        """A(x) of some actions; their images are written into `images`."""
        curvature = self.curvature
        if self._is_wide():
            part = actions[index]
            images[index] = curvature.images(part)
            blocks = curvature.inverse_blocks(part, images[index])
        elif isinstance(curvature, FrequentDirections):
            blocks = _sketch_blocks(
                actions, index, curvature.basis, curvature._ridge_factor(), curvature.regularization, images
            )
        else:
            blocks = _dense_blocks(actions, index, curvature.inverse, images)
        return np.asarray(blocks)

    def _is_wide(self) -> bool:
        """Whether products with K vectors at once pay for the call of BLAS."""
        curvature = self.curvature
        is_sketch = isinstance(curvature, FrequentDirections)
        return is_sketch and curvature.n_outcomes > 1 and curvature.image_cost >= _WIDE

    def _learn(self, action: Array, outcome: int) -> tuple[Array, tuple[float, float]]:
        if isinstance(self.curvature, DenseCurvature):
            return super()._learn(action, outcome)
        sketch = self.curvature
        rank, rows = sketch.rank, sketch._rows
        inside, fresh, outside = self._split(action)
        n = rank + fresh
        residual, factor = _residual_and_factor(self.parameter, action, outcome)
        solved = cholesky_solve(sketch._ridge_factor(), inside) if rank else inside
        direction = _direction(
            inside, outside, solved, residual, factor, self.step_size, sketch.regularization
        )
        point = _combine(rows[:n], direction, self.parameter.reshape(-1), 1.0, -self.step_size)
        multiplier = 0.0
        square = _dot(point, point)
        if not math.isfinite(square):
            raise ArithmeticError("the step overflows")
        if math.sqrt(square) > self.norm_bound:
            point, multiplier = self._project(rows[:n], inside, outside, factor, point)
        parameter = point.reshape(self.parameter.shape)
        moved = 0.0, 0.0
        if self.radius.needs_movement:
            moved = movement(self.parameter, parameter, action, residual, factor, self.step_size, multiplier)
        _, factor = _residual_and_factor(parameter, action, 0)
        self._add(_grown(sketch.core, inside, outside, factor))
        return parameter, moved

    def _split(self, action: Array) -> tuple[Array, int, Array]:
        """G, the number of fresh directions, written behind the basis, and T."""
        sketch = self.curvature
        rank, rows = sketch.rank, sketch._rows
        image = self._image_of(action)
        inside = sketch.images(action[None])[0] if image is None else image
        if self._is_wide():
            inside, fresh, outside = sketch._split(action, inside)
            rows[rank : rank + len(fresh)] = fresh
            return inside, len(fresh), np.ascontiguousarray(outside)
        outside, well = _triangle(inside, action)
        K = sketch.n_outcomes
        if well and rank + K <= len(rows):
            overlap = _fresh_rows(rows, rank, inside, outside, action)
            largest = float(np.abs(overlap).max(initial=0.0))
            if largest > _OVERLAP:
                inside = inside + outside @ overlap
                _remove_overlap(rows, rank, overlap)
                rows[rank : rank + K], outside = orthonormalised(rows[rank : rank + K], outside)
            return inside, K, outside
        inside, fresh, outside = sketch._split_carefully(action, inside)
        rows[rank : rank + len(fresh)] = fresh
        return inside, len(fresh), outside

    def _project(
        self, rows: Array, inside: Array, outside: Array, factor: Array, point: Array
    ) -> tuple[Array, float]:
        lam = self.curvature.regularization
        core = _grown(self.curvature.core, inside, outside, math.sqrt(self.step_size) * factor)
        local = _products(rows, point)
        if len(core) <= _SMALL:
            projected, multiplier = _project_small(core, local, point, lam, self.norm_bound)
            if multiplier >= 0.0:
                scale = lam / (lam + multiplier)
                return _combine(rows, projected - scale * local, point, scale, 1.0), float(multiplier)
        rest = math.sqrt(max(float(point @ point - local @ local), 0.0))
        image = np.append(core @ local + lam * local, lam * rest)

        def resolvent_at(multiplier: float) -> Resolvent:
            nu, shifted = multiplier, core.copy()
            shifted.flat[:: len(core) + 1] += lam + nu
            ridge = cholesky(shifted)

            def solve(vector: Array) -> Array:
                solution: Array = vector / (lam + nu)
                solution[:-1] = cholesky_solve(ridge, vector[None, :-1])[0]
                return solution

            return solve

        projected, multiplier = project_onto_ball(
            resolvent_at, np.append(local, rest), image, self.norm_bound
        )
        scale = lam / (lam + multiplier)
        return _combine(rows, projected[:-1] - scale * local, point, scale, 1.0), multiplier

    def _add(self, core: Array) -> None:
        """What `FrequentDirections.add` does, with the grown core at hand."""
        sketch = self.curvature
        n = len(core)
        check_regularization(sketch.regularization, float(core.diagonal().max(initial=0.0)))
        if n <= sketch.rank_bound:
            sketch._hold(core)
            return
        kept = sketch.sketch_size
        values, weakest = smallest_eigenpairs(core, n - kept)
        orthogonal, inverse = polar(weakest[kept:])
        reflector = np.ascontiguousarray(weakest)
        reflector[kept:] += orthogonal
        discarded = max(float(values[-1]), 0.0)
        scaled = reflector @ inverse
        core = _reflected(core, reflector, scaled, kept, discarded)
        if self._is_wide():
            sketch._deflate(sketch._rows[:n], reflector, inverse)
        else:
            _deflate(sketch._rows[:n], reflector, scaled, kept)
        sketch._hold(core)
        sketch.shrinkage += discarded


@cache
def _compile_kernels() -> None:
    """Play a few rounds of a tiny problem, so that no round of a larger one waits for the compiler."""
    for n_outcomes in (1, 2):
        settings: dict[str, Any] = {"step_size": 5.0, "norm_bound": 0.5, "radius": ConstantRadius(0.1)}
        for curvature in (
            FrequentDirections(n_outcomes, _TINY, 1.0, sketch_size=2),
            DenseCurvature(n_outcomes, _TINY, 1.0),
        ):
            policy = CompiledPolicy(curvature, np.ones(n_outcomes), **settings)
            _remove_overlap(np.eye(_TINY), 1, np.zeros((1, 1)))
            for actions in np.eye(_TINY)[np.arange(2 * _TINY)[:, None] % _TINY - np.arange(2)]:
                policy.update(actions[policy.select(actions)], 0)


@_kernel
def _dot(a: Array, b: Array) -> float:
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@_kernel
def _probabilities(parameter: Array, action: Array) -> Array:
    """Probabilities of the outcomes 0..K, exponents shifted by the largest logit."""
    K = parameter.shape[0]
    p = np.zeros(K + 1)
    shift = 0.0
    for i in range(K):
        p[i + 1] = _dot(parameter[i], action)
        shift = max(shift, p[i + 1])
    total = 0.0
    for i in range(K + 1):
        p[i] = math.exp(p[i] - shift)
        total += p[i]
    for i in range(K + 1):
        p[i] /= total
    return p


@_kernel
def _others(p: Array, i: int) -> float:
    total = 0.0
    for j in range(p.size):
        if j != i:
            total += p[j]
    return total


@_kernel
def _estimates(actions: Array, parameter: Array, rewards: Array) -> tuple[Array, Array, int]:
    """Scores without the bonus and the slopes, Jacobian times rewards."""
    n, K = actions.shape[0], parameter.shape[0]
    value, slopes = np.empty(n), np.ones((n, K))
    for a in range(n):
        if K == 1:
            value[a] = _dot(parameter[0], actions[a])
            continue
        p = _probabilities(parameter, actions[a])
        value[a] = _dot(p[1:], rewards)
        for i in range(K):
            total = 0.0
            for j in range(K):
                if j != i:
                    total -= p[j + 1] * rewards[j]
            slopes[a, i] = p[i + 1] * (_others(p, i + 1) * rewards[i] + total)
    return value, slopes, n


@_kernel
def _upper_bounds(
    actions: Array, value: Array, slopes: Array, beta: float, total: float, lam: float
) -> Array:
    """Score with the bonus of A(x) = |x|^2 I / lambda, and what roundoff may add."""
    n, K = slopes.shape
    upper = np.empty(n)
    for a in range(n):
        square = _dot(actions[a], actions[a]) / lam
        bonus = math.sqrt(beta * square * _dot(slopes[a], slopes[a]))
        if K > 1:
            bonus += total * beta * square
        upper[a] = value[a] + bonus
        upper[a] += _SLACK * (abs(value[a]) + abs(upper[a]))
    return upper


@_kernel
def _next_batch(
    value: Array, upper: Array, scores: Array, known: Flags, tolerance: float, limit: int, batch: Indices
) -> tuple[int, int, float]:
    """The actions to score next, and the choice if there are none: see `choice.choose_pruned`."""
    n = value.size
    best, scale, count = -np.inf, 0.0, 0
    for a in range(n):
        if known[a]:
            best, scale, count = max(best, scores[a]), max(scale, abs(scores[a])), count + 1
    action, margin, first = 0, np.inf, True
    if scale == 0.0:
        scale = 1.0
    nearest = True
    for a in range(n):
        if known[a]:
            gap = (best - scores[a]) / scale
            if first and gap <= tolerance:
                action, first = a, False
            if nearest and gap == 0.0:
                nearest = False  # the best score itself has no distance from the boundary
            else:
                margin = min(margin, abs(gap - tolerance))
    if count == n:
        return 0, action, margin
    order = np.argsort(-upper, kind="mergesort")
    reach = best - scale * (tolerance + margin)
    size = 0
    for a in order:
        if size == limit:
            break
        if not known[a] and (count == 0 or upper[a] >= reach or -value[a] > scale):
            batch[size] = a
            size += 1
    batch[:size].sort()
    return size, action, margin


@_kernel
def _scores(
    value: Array,
    slopes: Array,
    blocks: Array,
    index: Indices,
    beta: float,
    total: float,
    scores: Array,
    known: Flags,
) -> None:
    K = slopes.shape[1]
    for c in range(index.size):
        a = index[c]
        first = 0.0
        for i in range(K):
            first += slopes[a, i] * _dot(blocks[c, i], slopes[a])
        scores[a] = value[a] + math.sqrt(beta * max(first, 0.0))
        if K > 1:
            scores[a] += total * beta * _largest_eigenvalue(blocks[c].copy())
        known[a] = True


@_kernel
def _largest_eigenvalue(A: Array) -> float:
    """By Jacobi's rotations, which overwrite A: for K x K matrices the shortest way."""
    K = A.shape[0]
    scale = 0.0  # squares of the entries must neither over- nor underflow
    for i in range(K):
        for j in range(K):
            scale = max(scale, abs(A[i, j]))
    if scale == 0.0:
        return 0.0
    for i in range(K):
        for j in range(K):
            A[i, j] /= scale
    for _ in range(40):
        off, diagonal = 0.0, 0.0
        for i in range(K):
            diagonal += A[i, i] * A[i, i]
            for j in range(i):
                off += A[i, j] * A[i, j]
        if off <= 1e-34 * diagonal:
            break
        for i in range(K - 1):
            for j in range(i + 1, K):
                if A[i, j] == 0.0:
                    continue
                theta = (A[j, j] - A[i, i]) / (2.0 * A[i, j])
                t = 1.0 / (abs(theta) + math.sqrt(theta * theta + 1.0))
                if theta < 0.0:
                    t = -t
                c = 1.0 / math.sqrt(t * t + 1.0)
                s = t * c
                for k in range(K):
                    x, y = A[k, i], A[k, j]
                    A[k, i], A[k, j] = c * x - s * y, s * x + c * y
                for k in range(K):
                    x, y = A[i, k], A[j, k]
                    A[i, k], A[j, k] = c * x - s * y, s * x + c * y
    largest: float = A[0, 0]
    for i in range(1, K):
        largest = max(largest, A[i, i])
    return largest * scale


@_kernel
def _sketch_blocks(
    actions: Array, index: Indices, basis: Array, ridge: Array, lam: float, images: Array
) -> Array:
    """A(x) from the images in the basis, one pass over it for all actions; see `inverse_blocks`."""
    n, K, r = index.size, images.shape[1], basis.shape[0]
    d = actions.shape[1]
    for k in range(r):
        for i in range(K):
            row = basis[k, i * d : (i + 1) * d]
            for c in range(n):
                images[index[c], i, k] = _dot(row, actions[index[c]])
    blocks = np.empty((n, K, K))
    whitened = np.empty((K, r))
    for c in range(n):
        a = index[c]
        square = _dot(actions[a], actions[a])
        for i in range(K):
            _forward(ridge, images[a, i], whitened[i])
            for j in range(i + 1):
                outside = -_dot(images[a, i], images[a, j])
                if i == j:
                    outside += square
                blocks[c, i, j] = outside / lam + _dot(whitened[i], whitened[j])
                blocks[c, j, i] = blocks[c, i, j]
    return blocks


@_kernel
def _forward(lower: Array, right: Array, solution: Array) -> None:
    """Forward substitution with a column-major lower triangle."""
    n = right.size
    solution[:] = right
    for j in range(n):
        solution[j] /= lower[j, j]
        x = solution[j]
        for i in range(j + 1, n):
            solution[i] -= x * lower[i, j]


@_kernel
def _dense_blocks(actions: Array, index: Indices, inverse: Array, images: Array) -> Array:
    """A(x) from the lower triangle of the inverse, which is read once for all actions.

    A column's part in block row i gives an entry of row i of the image by a dot product, and by
    symmetry a multiple of that part to the image's row of the column's own block.
    """
    n, K, d = index.size, images.shape[1], actions.shape[1]
    for c in range(n):
        images[index[c]] = 0.0
    for column in range(K * d):
        j, b = column // d, column % d
        for i in range(j, K):
            start = column if i == j else i * d
            part = inverse[start : (i + 1) * d, column]
            offset = start - i * d
            for c in range(n):
                a = index[c]
                x = actions[a]
                images[a, i, column] += _dot(part, x[offset:])
                if i == j:  # the diagonal entry has been counted
                    _axpy(x[b], part[1:], images[a, j, start + 1 : (i + 1) * d])
                else:
                    _axpy(x[b], part, images[a, j, start : (i + 1) * d])
    blocks = np.empty((n, K, K))
    for c in range(n):
        a = index[c]
        for i in range(K):
            for j in range(i + 1):
                one = _dot(images[a, i, j * d : (j + 1) * d], actions[a])
                other = _dot(images[a, j, i * d : (i + 1) * d], actions[a])
                blocks[c, i, j] = blocks[c, j, i] = (one + other) / 2.0
    return blocks


@_kernel
def _axpy(scale: float, x: Array, y: Array) -> None:
    for i in range(x.size):
        y[i] += scale * x[i]


@_kernel
def _triangle(inside: Array, action: Array) -> tuple[Array, bool]:
    """T with T T' = |x|^2 I - G G', and whether it is far enough from singular."""
    K = inside.shape[0]
    square = _dot(action, action)
    T = np.zeros((K, K))
    if square < _SMALLEST_SQUARE:
        return T, False
    for j in range(K):
        for i in range(j, K):
            entry = -_dot(inside[i], inside[j])
            if i == j:
                entry += square
            for k in range(j):
                entry -= T[i, k] * T[j, k]
            if i == j:
                if not entry > _WELL_OUTSIDE * square:
                    return T, False
                T[j, j] = math.sqrt(entry)
            else:
                T[i, j] = entry / T[j, j]
    return T, True


@_kernel
def _fresh_rows(rows: Array, rank: int, inside: Array, outside: Array, action: Array) -> Array:
    """Write E behind the basis and return its overlap with it, in one pass."""
    K, d = outside.shape[0], action.size
    inverse = np.zeros((K, K))
    for j in range(K):
        inverse[j, j] = 1.0 / outside[j, j]
        for i in range(j + 1, K):
            total = 0.0
            for k in range(j, i):
                total -= outside[i, k] * inverse[k, j]
            inverse[i, j] = total / outside[i, i]
    weights = np.zeros((K, rank))
    for i in range(K):
        for j in range(i + 1):
            _axpy(-inverse[i, j], inside[j], weights[i])
    overlap = np.zeros((K, rank))
    for start in range(0, K * d, _BLOCK):
        stop = min(start + _BLOCK, K * d)
        for i in range(K):
            fresh = rows[rank + i, start:stop]
            for c in range(start, stop):
                fresh[c - start] = inverse[i, c // d] * action[c % d]
            for k in range(rank):
                _axpy(weights[i, k], rows[k, start:stop], fresh)
            for k in range(rank):
                overlap[i, k] += _dot(rows[k, start:stop], fresh)
    return overlap


@_kernel
def _remove_overlap(rows: Array, rank: int, overlap: Array) -> None:
    for i in range(overlap.shape[0]):
        for k in range(rank):
            _axpy(-overlap[i, k], rows[k], rows[rank + i])


@_kernel
def _residual_and_factor(parameter: Array, action: Array, outcome: int) -> tuple[Array, Array]:
    """The loss's gradient in the logits and the factor F of the Jacobian."""
    p = _probabilities(parameter, action)
    K = p.size - 1
    residual, factor = p[1:].copy(), np.empty((K, K))
    if outcome > 0:
        residual[outcome - 1] = -_others(p, outcome)
    root = math.sqrt(p[0])
    for i in range(K):
        for j in range(K):
            factor[i, j] = -p[i + 1] * math.sqrt(p[j + 1]) / (1.0 + root)
        factor[i, i] = math.sqrt(p[i + 1]) * (root + _others(p, i + 1)) / (1.0 + root)
    return residual, factor


@_kernel
def _direction(
    inside: Array,
    outside: Array,
    solved: Array,
    residual: Array,
    factor: Array,
    step_size: float,
    lam: float,
) -> Array:
    """Coordinates of the inverse of the step's matrix times u (x) x in the joint basis."""
    K, r = inside.shape
    k = outside.shape[1]
    block = np.empty((K, K))
    for i in range(K):
        for j in range(i + 1):
            entry = 0.5 * (_dot(solved[i], inside[j]) + _dot(solved[j], inside[i]))
            block[i, j] = block[j, i] = entry + _dot(outside[i], outside[j]) / lam
    jacobian = np.zeros((K, K))
    for i in range(K):
        for j in range(K):
            jacobian[i, j] = _dot(factor[i], factor[j])
    matrix, weights = np.zeros((K, K)), residual.copy()
    for i in range(K):
        for j in range(K):
            matrix[i, j] = step_size * _dot(jacobian[i], block[j])
        matrix[i, i] += 1.0
    _eliminate(matrix, weights)
    direction = np.zeros(r + k)
    for i in range(K):
        _axpy(weights[i], solved[i], direction[:r])
        _axpy(weights[i] / lam, outside[i], direction[r:])
    return direction


@_kernel
def _eliminate(matrix: Array, right: Array) -> None:
    """Gaussian elimination with row pivots; the solution replaces the right side."""
    K = right.size
    for j in range(K):
        pivot = j
        for i in range(j + 1, K):
            if abs(matrix[i, j]) > abs(matrix[pivot, j]):
                pivot = i
        if pivot != j:
            for k in range(K):
                matrix[j, k], matrix[pivot, k] = matrix[pivot, k], matrix[j, k]
            right[j], right[pivot] = right[pivot], right[j]
        for i in range(j + 1, K):
            ratio = matrix[i, j] / matrix[j, j]
            for k in range(j, K):
                matrix[i, k] -= ratio * matrix[j, k]
            right[i] -= ratio * right[j]
    for j in range(K - 1, -1, -1):
        for k in range(j + 1, K):
            right[j] -= matrix[j, k] * right[k]
        right[j] /= matrix[j, j]


@_kernel
def _combine(rows: Array, weights: Array, vector: Array, scale: float, factor: float) -> Array:
    """`scale * vector + factor * weights @ rows`."""
    out = np.empty(vector.size)
    for start in range(0, vector.size, _BLOCK):
        stop = min(start + _BLOCK, vector.size)
        part = out[start:stop]
        for c in range(stop - start):
            part[c] = 0.0
        for k in range(weights.size):
            _axpy(weights[k], rows[k, start:stop], part)
        for c in range(stop - start):
            part[c] = scale * vector[start + c] + factor * part[c]
    return out


@_kernel
def _products(rows: Array, vector: Array) -> Array:
    out = np.empty(rows.shape[0])
    for k in range(rows.shape[0]):
        out[k] = _dot(rows[k], vector)
    return out


@_kernel
def _grown(core: Array, inside: Array, outside: Array, factor: Array) -> Array:
    """Core in the joint basis after adding the Hessian with the given factor."""
    K, r = inside.shape
    n = r + outside.shape[1]
    update = np.zeros((K, n))
    for k in range(K):
        for i in range(K):
            _axpy(factor[i, k], inside[i], update[k, :r])
            _axpy(factor[i, k], outside[i], update[k, r:])
    grown = np.zeros((n, n))
    grown[:r, :r] = core
    for i in range(n):
        for k in range(K):
            # Whole rows, not a triangle: a product does not depend on the order of its factors.
            _axpy(update[k, i], update[k], grown[i])
    return grown


@_kernel
def _project_small(
    core: Array, local: Array, point: Array, lam: float, norm_bound: float
) -> tuple[Array, float]:
    """`projection.project_onto_ball` with a Cholesky factorisation in loops; -1 if it fails."""
    n = local.size
    rest = max(_dot(point, point) - _dot(local, local), 0.0)
    image, projected, solved = lam * local, local.copy(), np.empty(n)
    for i in range(n):
        image[i] += _dot(core[i], local)
    lower = np.empty((n, n))
    multiplier, roundoff = 0.0, 8.0 * 2.220446049250313e-16
    for step_number in range(200):
        scale = lam / (lam + multiplier)
        if not _factor(core, lam + multiplier, lower):
            return projected, -1.0
        if step_number > 0:
            _forward_rows(lower, image, projected)
            _backward_rows(lower, projected)
        square = _dot(projected, projected) + scale * scale * rest
        norm = math.sqrt(square)
        if norm <= norm_bound * (1.0 + roundoff):
            return projected, multiplier
        _forward_rows(lower, projected, solved)
        slope = _dot(solved, solved) + scale * scale * rest / (lam + multiplier)
        if not slope > 0.0:
            return projected, -1.0
        step = (norm / norm_bound - 1.0) * square / slope
        if step <= roundoff * multiplier:
            return projected, multiplier
        multiplier += step
    return projected, -1.0


@_kernel
def _factor(core: Array, shift: float, lower: Array) -> bool:
    """Row-wise Cholesky factor of core + shift I."""
    n = core.shape[0]
    for i in range(n):
        for j in range(i):
            lower[i, j] = (core[i, j] - _dot(lower[i, :j], lower[j, :j])) / lower[j, j]
        pivot = core[i, i] + shift - _dot(lower[i, :i], lower[i, :i])
        if not pivot > 0.0:
            return False
        lower[i, i] = math.sqrt(pivot)
    return True


@_kernel
def _forward_rows(lower: Array, right: Array, solution: Array) -> None:
    for i in range(right.size):
        solution[i] = (right[i] - _dot(lower[i, :i], solution[:i])) / lower[i, i]


@_kernel
def _backward_rows(lower: Array, solution: Array) -> None:
    for i in range(solution.size - 1, -1, -1):
        solution[i] /= lower[i, i]
        _axpy(-solution[i], lower[i, :i], solution[:i])


@_kernel
def _reflected(core: Array, reflector: Array, scaled: Array, kept: int, discarded: float) -> Array:
    """The form behind the block reflector, less the discarded amount; see `frequent_directions`."""
    n, k = reflector.shape
    image, columns = np.zeros((k, n)), reflector.T.copy()
    left = scaled.T.copy()
    for c in range(k):
        for i in range(n):
            image[c, i] = _dot(core[i], columns[c])
    inner = np.empty((k, k))
    for a in range(k):
        for b in range(k):
            inner[a, b] = _dot(columns[a], image[b])
    for b in range(k):
        for a in range(k):
            _axpy(-0.5 * inner[a, b], left[a], image[b])
    out = np.empty((kept, kept))
    for i in range(kept):
        out[i] = core[i, :kept]
        for c in range(k):
            for j in range(kept):
                out[i, j] -= left[c, i] * image[c, j] + image[c, i] * left[c, j]
        out[i, i] -= discarded
    for i in range(kept):
        for j in range(i):
            out[i, j] = out[j, i]
    return out


@_kernel
def _deflate(rows: Array, reflector: Array, scaled: Array, kept: int) -> None:
    """Apply the reflector to the first rows of the basis, in place, block by block."""
    n, k = reflector.shape
    product = np.empty((k, _BLOCK))
    for start in range(0, rows.shape[1], _BLOCK):
        stop = min(start + _BLOCK, rows.shape[1])
        for c in range(k):
            part = product[c, : stop - start]
            part[:] = 0.0
            for i in range(n):
                _axpy(reflector[i, c], rows[i, start:stop], part)
        for i in range(kept):
            row = rows[i, start:stop]
            for c in range(k):
                _axpy(-scaled[i, c], product[c, : stop - start], row)
