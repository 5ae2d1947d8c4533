r"""The round in plain loops, compiled by numba: the same algorithm, the same iterates to roundoff.

The NumPy form is the one to read; this one is for speed, and `policies.eofd` and `policies.oful`
take it with `compiled=True`. State, validation, radius and error handling are the policy's own, so
that a saved state can go on in either form. A round of the sketch has five kernels: the Cholesky factor,
the choice, the step, for K = 1 the bottom eigenpair, and the shrink. Large factorisations, the other
eigenpairs and what a kernel is not certain of stay with SciPy's LAPACK, called between them.

A kernel goes over the basis in column blocks that stay in the cache, four rows at a time, so that a
round reads it three times and writes it once; a projection reads it once more. All kernels are in this
one file, and constants of other modules are their arguments, because numba's cache on disk looks for
changes nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dsymv, dsyrk
from scipy.linalg.lapack import dpotrf

from mlogb_core._linalg import (
    add_product,
    cholesky,
    cholesky_solve,
    orthonormalised,
    polar,
    smallest_eigenpairs,
)
from mlogb_core._validation import Array
from mlogb_core.choice import _SLACK, Choice
from mlogb_core.curvature import DenseCurvature, FrequentDirections
from mlogb_core.curvature.base import check_regularization
from mlogb_core.curvature.low_rank import _OVERLAP, _SMALLEST_SQUARE, _WELL_OUTSIDE
from mlogb_core.policies.newton import Learned
from mlogb_core.policies.optimistic import Estimate, OptimisticPolicy, Selected
from mlogb_core.projection import _ROUNDOFF, Resolvent, project_by_lanczos, project_onto_ball
from mlogb_core.radius import ConstantRadius

try:
    from numba import njit
except ImportError as error:
    raise ImportError("compiled=True needs numba: pip install .[fast]") from error

_BLOCK = 1024  # columns: loops that long start seldom, and some sixty rows fit into the second-level cache
_WIDE = 100_000  # numbers in a basis from which on, for K > 1, the products are BLAS' business
_TINY = 3  # features of the problem on which the kernels are compiled
_KRYLOV = 24  # steps of Lanczos' method, after which Cholesky factors or LAPACK take over
_LARGE = 20  # order of the core from which on its bottom eigenpair is found faster than by LAPACK's driver
_BLOCKED = 128  # order from which on LAPACK's Cholesky factor, by blocks, takes less time than a kernel's
_ROUGHLY = 3e-3  # how well a root is known where the next shift is taken
_EPS = float(np.finfo(np.float64).eps)
# In place of a multiplier, what a kernel has left undone: the projection; nothing can be done; the frame is
# for the careful way; its fresh rows are orthogonal to the basis but not orthonormal.
_UNSETTLED, _OVERFLOW, _CAREFUL, _SKEW = -1.0, -2.0, -3.0, -4.0

Function = TypeVar("Function", bound=Callable[..., Any])
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]


def _kernel(function: Function) -> Function:
    """Compile; sums may be reordered and fused, infinities and NaN keep their meaning."""
    return _compiled(function, {"reassoc", "contract"})


def _symmetric(function: Function) -> Function:
    """Compile as it is written: of two products in a fused sum only one would be rounded."""
    return _compiled(function, set())


def _compiled(function: Function, fastmath: set[str]) -> Function:
    options: dict[str, Any] = {"fastmath": fastmath, "error_model": "numpy"}
    try:
        return cast(Function, njit(cache=True, **options)(function))
    except RuntimeError:  # neither the package's folder nor the user's can be written
        return cast(Function, njit(**options)(function))


class CompiledPolicy(OptimisticPolicy):
    """`OptimisticPolicy` over `FrequentDirections` or `DenseCurvature` with compiled kernels.

    Parameters
    ----------
    curvature, rewards, step_size, norm_bound, radius, tie_tolerance
        As in `OptimisticPolicy`.

    Raises
    ------
    ValueError
        If the curvature is of another class, a subclass included; the message names it.

    Notes
    -----
    A subclass may override `select`, `scores` and `update`. What they are made of (names with an underscore)
    are kernels here, and an `OptimisticPolicy` that changes one of these has to be played without
    `compiled=True`.
    """

    compiled = True

    def __init__(self, curvature: Any, rewards: Any, **settings: Any) -> None:
        super().__init__(curvature, rewards, **settings)
        self._total = 0.5 * float(self.rewards.sum())
        if curvature.n_features != _TINY:
            _compile_kernels()

    @property
    def curvature(self) -> Any:
        """The accumulated Hessian, whose arrays the kernels read and write."""
        return self._curvature

    @curvature.setter
    def curvature(self, curvature: Any) -> None:
        # Exactly these: of a subclass the kernels would leave out what it does otherwise.
        if type(curvature) not in (FrequentDirections, DenseCurvature):
            raise ValueError(
                "curvature must be a sketch or the full Hessian, of the class FrequentDirections or "
                f"DenseCurvature itself, got {type(curvature).__qualname__}: without compiled=True it is "
                "played by its own code"
            )
        self._curvature = curvature

    def _estimate(self, actions: Array, squares: Array) -> Estimate:
        actions = _writable(actions)
        value, slopes = _estimates(actions, self.parameter, self.rewards)
        return Estimate(actions, squares, value, slopes)

    def _best(self, estimate: Estimate) -> tuple[Choice, int, Selected | None]:
        beta = self.beta
        if beta == 0.0:
            return super()._best(estimate)
        curvature, common = self.curvature, (beta, self._total, self.curvature.regularization)
        if isinstance(curvature, DenseCurvature):
            action, margin, scored, image = _choose_by_inverse(
                *estimate,
                curvature.inverse,
                *common,
                self.tie_tolerance,
                _SLACK,
            )
        elif self._is_wide():
            return self._best_by_blas(estimate, common)
        else:
            action, margin, scored, image = _choose_by_sketch(
                *estimate,
                curvature.basis,
                self._ridge(),
                *common,
                self.tie_tolerance,
                _SLACK,
            )
        if action < 0:
            return super()._best(estimate)  # which tells overflow from a large sum
        return Choice(action, margin), scored, Selected(estimate.actions[action].copy(), image)

    def _best_by_blas(
        self, estimate: Estimate, common: tuple[float, float, float]
    ) -> tuple[Choice, int, Selected | None]:
        """As `_choose_by_sketch`, with the products left to BLAS."""
        (actions, squares, value, slopes), sketch = estimate, self.curvature
        upper, finite = _upper_bounds(squares, value, slopes, *common, _SLACK)
        if not finite:
            return super()._best(estimate)
        n, limit = len(value), 2
        scores, known, batch = np.zeros(n), np.zeros(n, dtype=np.bool_), np.empty(n, dtype=np.intp)
        images = np.empty((n, *slopes.shape[1:], sketch.rank))
        while True:
            count, action, margin = _next_batch(value, upper, scores, known, self.tie_tolerance, limit, batch)
            if not count:
                selected = Selected(actions[action].copy(), images[action].copy())
                return Choice(action, margin), int(known.sum()), selected
            index = batch[:count]
            part = actions[index]
            images[index] = image = sketch.images(part)
            _scores(value, slopes, sketch.inverse_blocks(part, image), index, *common[:2], scores, known)
            limit *= 2

    def _batch_size(self) -> int:
        return 2  # choosing takes no time here

    def _ridge(self) -> Array:
        """The transposed Cholesky factor, whose rows are contiguous."""
        sketch = self.curvature
        if sketch._factor is None and 0 < sketch.rank < _BLOCKED:
            upper, definite = _cholesky(sketch.core, sketch.rank, -sketch.regularization)
            if definite:  # else LAPACK has the last word, and the message
                sketch._factor = upper.T
        return sketch._ridge_factor().T if sketch.rank else np.empty((0, 0))

    def _is_wide(self) -> bool:
        """Whether products with K vectors at once pay for the call of BLAS."""
        curvature = self.curvature
        return bool(curvature.n_outcomes > 1 and curvature.image_cost >= _WIDE)

    def _image_of(self, action: Array) -> Array | None:
        selected = self._selected
        return selected.image if selected is not None and _equal(selected.action, action) else None

    def _learn(self, action: Array, outcome: int) -> Learned:
        if isinstance(self.curvature, DenseCurvature):
            return self._learn_exactly(_writable(action), outcome)
        sketch, rank, rows = self.curvature, self.curvature.rank, self.curvature._rows
        action = _writable(action)
        image = self._image_of(action)
        inside = sketch.images(action[None])[0] if image is None else image
        point = (self.parameter, action, outcome, self._ridge(), sketch.core)
        settings = (self.step_size, sketch.regularization, self.norm_bound, _ROUNDOFF)
        multiplier = _CAREFUL
        if not self._is_wide():
            limits = (_SMALLEST_SQUARE, _WELL_OUTSIDE, _OVERLAP)
            step = _step(rows, rank, inside, *point, *settings, *limits)
            parameter, multiplier, n, inside, outside, residual, factor, grown = step
        if multiplier == _SKEW:
            rows[rank:n], outside = orthonormalised(rows[rank:n], outside)
        elif multiplier == _CAREFUL:
            split = sketch._split if self._is_wide() else sketch._split_carefully
            inside, fresh, outside = split(action, inside)
            n = rank + len(fresh)
            rows[rank:n] = fresh
        if multiplier in (_SKEW, _CAREFUL):
            step = _step_in_frame(rows[:n], inside, np.ascontiguousarray(outside), *point, *settings)
            parameter, multiplier, n, inside, outside, residual, factor, grown = step
        if multiplier == _OVERFLOW:
            raise ArithmeticError("the step overflows")
        if multiplier == _UNSETTLED:
            parameter, multiplier = self._project(rows[:n], grown, parameter)
            _, factor_there = _residual_and_factor(parameter, action, 0)
            grown = _grown(sketch.core, inside, outside, factor_there)
        moved = 0.0, 0.0
        if self.radius.needs_movement:
            moved = _movement(self.parameter, parameter, action, residual, factor, self.step_size, multiplier)
        self._add(grown)
        return Learned(parameter, moved)

    def _learn_exactly(self, action: Array, outcome: int) -> Learned:
        """What `DenseCurvature` does, with the inverse left to BLAS."""
        hessian, image = self.curvature, self._image_of(action)
        solved = hessian.images(action[None])[0] if image is None else image
        point, residual, factor, change, largest = _step_by_inverse(
            solved, self.parameter, action, outcome, self.step_size
        )
        self._check(largest)
        multiplier = 0.0
        if not math.sqrt(_dot(point, point)) <= self.norm_bound:
            rows = math.sqrt(self.step_size) * change

            def apply_inverse(vector: Array) -> Array:
                return np.asarray(dsymv(1.0, hessian.inverse, vector, lower=1) - (rows @ vector) @ rows)

            point, multiplier = project_by_lanczos(apply_inverse, point, self.norm_bound)
        parameter = point.reshape(self.parameter.shape)
        moved = 0.0, 0.0
        if self.radius.needs_movement:
            moved = _movement(self.parameter, parameter, action, residual, factor, self.step_size, multiplier)
        _, _, _, change, largest = _step_by_inverse(solved, parameter, action, 0, 1.0)
        self._check(largest)
        dsyrk(-1.0, change.T, beta=1.0, c=hessian.inverse, lower=1, overwrite_c=1)
        return Learned(parameter, moved)

    def _check(self, largest: float) -> None:
        if largest < 0.0:
            raise ArithmeticError(f"a matrix of order {self.rewards.size} is not positive definite")
        check_regularization(self.curvature.regularization, largest)

    def _project(self, rows: Array, core: Array, parameter: Array) -> tuple[Array, float]:
        """As in `LowRankCurvature.newton_step`, by Cholesky factors: for an ill-conditioned core."""
        lam, point = self.curvature.regularization, parameter.reshape(-1)
        local = _products(rows, point)
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
        point = _combine(rows, projected[:-1] - scale * local, point, scale)
        return point.reshape(parameter.shape), multiplier

    def _add(self, core: Array) -> None:
        """What `FrequentDirections.add` does, with the grown core at hand."""
        sketch = self.curvature
        n, kept = len(core), sketch.sketch_size
        check_regularization(sketch.regularization, float(core.diagonal().max(initial=0.0)))
        if n <= kept or not sketch._is_due():
            sketch._end_round(core)
            return
        pair = _bottom_pair(core) if n - kept == 1 and n >= _LARGE else None
        if pair is None:
            values, weakest = smallest_eigenpairs(core, n - kept)
            reflector, largest = np.ascontiguousarray(weakest.T), float(values[-1])
        else:
            largest, reflector = pair[0], pair[1][None]
        discarded = max(largest, 0.0)
        rows, wide = sketch._rows[:n], self._is_wide()
        settings = (kept, discarded, not wide)
        core, scaled, certain = _shrink(rows, core, reflector, *settings)
        if not certain:
            orthogonal, inverse = map(np.ascontiguousarray, polar(reflector[:, kept:].T))
            core, scaled = _reflect(rows, core, reflector, orthogonal, inverse, *settings)
        if wide:
            add_product(rows[:kept], scaled[:, :kept].T, reflector @ rows, scale=-1.0)
        sketch._end_round(core)
        sketch.shrinkage += discarded


def _bottom_pair(matrix: Array) -> tuple[float, Array] | None:
    r"""Smallest eigenvalue and unit eigenvector of a positive semidefinite matrix; None if uncertain.

    With the last row and column set apart, :math:`M = \begin{pmatrix} C & b \\ b^\top & c\end{pmatrix}`,
    an eigenvalue below those of C is a root of

    .. math:: h(\mu) = c - \mu - b^\top (C - \mu I)^{-1} b,

    with the eigenvector :math:`(-(C - \mu I)^{-1}b,\, 1)`. There h is decreasing, so that it has at most
    one root, and by interlacing that is the smallest eigenvalue of M. With a Cholesky factor of
    :math:`C - \sigma I`, j steps of Lanczos' method from b give a rational function with the first 2j
    derivatives of h in :math:`\sigma`. By Gauss' quadrature it exceeds h, and so does its root exceed
    :math:`\mu`. A few steps from 0 lead near enough that at the next :math:`\sigma` two or three reach
    roundoff. That this second Cholesky factor exists proves :math:`\mu \le \sigma < \lambda_{\min}(C)`:
    no smaller eigenvalue was missed. The residual is measured, and that the vector's value is this root.
    """
    if len(matrix) < _BLOCKED:
        value, vector, certain = _bottom_pair_in_loops(matrix, _ROUGHLY, _KRYLOV, _EPS)
        return (value, vector) if certain else None
    n, shift = len(matrix) - 1, 0.0
    for enough in (_ROUGHLY, 0.0):  # as in loops, with LAPACK's factor
        leading = matrix[:n, :n].copy()
        if shift:
            leading.flat[:: n + 1] -= shift
        factor, info = dpotrf(leading.T, lower=1, clean=0, overwrite_a=1)
        if info != 0:
            return None
        root, value, vector, certain = _secular_root(factor.T, matrix, shift, enough, _KRYLOV, _EPS)
        if certain:
            return value, vector
        shift += root
    return None


def _writable(array: Array) -> Array:
    """The array, or its copy if it is read-only or not aligned: numba would compile each kernel again."""
    return array if array.flags.behaved else array.copy()


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
            for actions in np.eye(_TINY)[np.arange(2 * _TINY)[:, None] % _TINY - np.arange(2)]:
                policy.update(actions[policy.select(actions)], 0)
            policy.update(np.zeros(_TINY), 0)  # the careful way
            if isinstance(curvature, FrequentDirections):  # and those that so small a problem never takes
                policy._best_by_blas(policy._estimate(np.eye(_TINY), np.ones(_TINY)), (0.1, 0.5, 1.0))
                residual, factor = _residual_and_factor(policy.parameter, np.ones(_TINY), 0)
                _movement(policy.parameter, policy.parameter, np.ones(_TINY), residual, factor, 1.0, 0.0)
                inside = np.zeros((n_outcomes, curvature.rank))
                core = _grown(curvature.core, inside, np.zeros((n_outcomes, 0)), factor)
                policy._project(curvature.basis, core, 2.0 * policy.parameter)
                for order in (_TINY, _BLOCKED):
                    _bottom_pair(np.eye(order) + 0.1)
                reflector, one = np.eye(2)[:1], np.eye(1)
                _reflect(np.eye(2, _TINY), np.eye(2), reflector, one, one, 1, 0.0, True)


@_kernel
def _dot(a: Array, b: Array) -> float:
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@_kernel
def _axpy(scale: float, x: Array, y: Array) -> None:
    for i in range(x.size):
        y[i] += scale * x[i]


@_kernel
def _equal(a: Array, b: Array) -> bool:
    different = 0
    for i in range(a.size):
        different += a[i] != b[i]
    return different == 0


@_kernel
def _add_rows(weights: Array, rows: Array, start: int, stop: int, out: Array) -> None:
    """`out += weights @ rows[:, start:stop]`, four rows at a time."""
    n = weights.size
    k = 0
    while k + 4 <= n:
        a, b = rows[k, start:stop], rows[k + 1, start:stop]
        c, d = rows[k + 2, start:stop], rows[k + 3, start:stop]
        p, q, r, s = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
        for i in range(out.size):
            out[i] += (p * a[i] + q * b[i]) + (r * c[i] + s * d[i])
        k += 4
    while k < n:
        _axpy(weights[k], rows[k, start:stop], out)
        k += 1


@_kernel
def _add_products(rows: Array, start: int, stop: int, vector: Array, out: Array) -> None:
    """`out += rows[:, start:stop] @ vector`, four rows at a time."""
    n = out.size
    k = 0
    while k + 4 <= n:
        a, b = rows[k, start:stop], rows[k + 1, start:stop]
        c, d = rows[k + 2, start:stop], rows[k + 3, start:stop]
        p = q = r = s = 0.0
        for i in range(vector.size):
            x = vector[i]
            p += a[i] * x
            q += b[i] * x
            r += c[i] * x
            s += d[i] * x
        out[k] += p
        out[k + 1] += q
        out[k + 2] += r
        out[k + 3] += s
        k += 4
    while k < n:
        out[k] += _dot(rows[k, start:stop], vector)
        k += 1


@_kernel
def _add_rows_twice(
    weights: Array, others: Array, rows: Array, start: int, stop: int, out: Array, other: Array
) -> None:
    """`_add_rows` with two sets of weights, one pass over the rows."""
    n = weights.size
    k = 0
    while k + 4 <= n:
        a, b = rows[k, start:stop], rows[k + 1, start:stop]
        c, d = rows[k + 2, start:stop], rows[k + 3, start:stop]
        p, q, r, s = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
        t, u, v, w = others[k], others[k + 1], others[k + 2], others[k + 3]
        for i in range(out.size):
            out[i] += (p * a[i] + q * b[i]) + (r * c[i] + s * d[i])
            other[i] += (t * a[i] + u * b[i]) + (v * c[i] + w * d[i])
        k += 4
    while k < n:
        _axpy(weights[k], rows[k, start:stop], out)
        _axpy(others[k], rows[k, start:stop], other)
        k += 1


@_kernel
def _add_products_twice(
    rows: Array, start: int, stop: int, vector: Array, second: Array, out: Array, other: Array
) -> None:
    """`_add_products` with two vectors, one pass over the rows."""
    n = out.size
    k = 0
    while k + 4 <= n:
        a, b = rows[k, start:stop], rows[k + 1, start:stop]
        c, d = rows[k + 2, start:stop], rows[k + 3, start:stop]
        p = q = r = s = 0.0
        t = u = v = w = 0.0
        for i in range(vector.size):
            x, y = vector[i], second[i]
            p += a[i] * x
            q += b[i] * x
            r += c[i] * x
            s += d[i] * x
            t += a[i] * y
            u += b[i] * y
            v += c[i] * y
            w += d[i] * y
        out[k] += p
        out[k + 1] += q
        out[k + 2] += r
        out[k + 3] += s
        other[k] += t
        other[k + 1] += u
        other[k + 2] += v
        other[k + 3] += w
        k += 4
    while k < n:
        out[k] += _dot(rows[k, start:stop], vector)
        other[k] += _dot(rows[k, start:stop], second)
        k += 1


@_kernel
def _products(rows: Array, vector: Array) -> Array:
    """`rows @ vector`."""
    out = np.zeros(rows.shape[0])
    _add_products(rows, 0, vector.size, vector, out)
    return out


@_kernel
def _combine(rows: Array, weights: Array, vector: Array, scale: float) -> Array:
    """`scale * vector + weights @ rows`."""
    out = scale * vector
    for start in range(0, vector.size, _BLOCK):
        stop = min(start + _BLOCK, vector.size)
        _add_rows(weights, rows, start, stop, out[start:stop])
    return out


@_kernel
def _choose_by_sketch(
    actions: Array,
    squares: Array,
    value: Array,
    slopes: Array,
    basis: Array,
    ridge: Array,
    beta: float,
    total: float,
    lam: float,
    tolerance: float,
    slack: float,
) -> tuple[int, float, int, Array]:
    """The choice, its margin, how many actions were scored, and the image; action -1 on overflow.

    See `choice.choose_pruned`. The number of actions to score doubles from 2.
    """
    n, K = slopes.shape
    upper, finite = _upper_bounds(squares, value, slopes, beta, total, lam, slack)
    images = np.zeros((n, K, basis.shape[0]))
    scores, known, batch = np.zeros(n), np.zeros(n, dtype=np.bool_), np.empty(n, dtype=np.intp)
    limit, scored, action, margin = 2, 0, -1, 0.0
    while finite:
        count, action, margin = _next_batch(value, upper, scores, known, tolerance, limit, batch)
        if count == 0:
            break
        index = batch[:count]
        blocks = _sketch_blocks(actions, index, basis, ridge, lam, images)
        _scores(value, slopes, blocks, index, beta, total, scores, known)
        scored += count
        limit *= 2
    return action, margin, scored, images[max(action, 0)].copy()


@_kernel
def _choose_by_inverse(
    actions: Array,
    squares: Array,
    value: Array,
    slopes: Array,
    inverse: Array,
    beta: float,
    total: float,
    lam: float,
    tolerance: float,
    slack: float,
) -> tuple[int, float, int, Array]:
    """As `_choose_by_sketch`."""
    n, K = slopes.shape
    upper, finite = _upper_bounds(squares, value, slopes, beta, total, lam, slack)
    images = np.empty((n, K, inverse.shape[0]))
    scores, known, batch = np.zeros(n), np.zeros(n, dtype=np.bool_), np.empty(n, dtype=np.intp)
    limit, scored, action, margin = 2, 0, -1, 0.0
    while finite:
        count, action, margin = _next_batch(value, upper, scores, known, tolerance, limit, batch)
        if count == 0:
            break
        index = batch[:count]
        blocks = _dense_blocks(actions, index, inverse, images)
        _scores(value, slopes, blocks, index, beta, total, scores, known)
        scored += count
        limit *= 2
    return action, margin, scored, images[max(action, 0)].copy()


@_kernel
def _sketch_blocks(
    actions: Array, index: Indices, basis: Array, ridge: Array, lam: float, images: Array
) -> Array:
    """A(x) from the images in the basis, one pass over it for all actions; see `inverse_blocks`."""
    n, K, r = index.size, images.shape[1], basis.shape[0]
    d = actions.shape[1]
    for i in range(K):
        for start in range(0, d, _BLOCK):
            stop = min(start + _BLOCK, d)
            first, last = i * d + start, i * d + stop
            for c in range(0, n - 1, 2):
                a, b = index[c], index[c + 1]
                x, y = actions[a, start:stop], actions[b, start:stop]
                _add_products_twice(basis, first, last, x, y, images[a, i], images[b, i])
            if n % 2:
                a = index[n - 1]
                _add_products(basis, first, last, actions[a, start:stop], images[a, i])
    blocks = np.empty((n, K, K))
    whitened = np.empty((K, r))
    for c in range(n):
        a = index[c]
        square = _dot(actions[a], actions[a])
        for i in range(K):
            whitened[i] = images[a, i]
            _forward(ridge, whitened[i])
            for j in range(i + 1):
                outside = -_dot(images[a, i], images[a, j])
                if i == j:
                    outside += square
                blocks[c, i, j] = outside / lam + _dot(whitened[i], whitened[j])
                blocks[c, j, i] = blocks[c, i, j]
    return blocks


@_kernel
def _forward(upper: Array, vector: Array) -> None:
    """Solve with the transpose of an upper triangle, in place, four rows at a time."""
    n = vector.size
    j = 0
    while j + 4 <= n:
        p = vector[j] / upper[j, j]
        q = (vector[j + 1] - p * upper[j, j + 1]) / upper[j + 1, j + 1]
        r = vector[j + 2] - p * upper[j, j + 2] - q * upper[j + 1, j + 2]
        r /= upper[j + 2, j + 2]
        s = vector[j + 3] - p * upper[j, j + 3] - q * upper[j + 1, j + 3] - r * upper[j + 2, j + 3]
        s /= upper[j + 3, j + 3]
        vector[j], vector[j + 1], vector[j + 2], vector[j + 3] = p, q, r, s
        j += 4
        rest = vector[j:]
        a, b, c, d = upper[j - 4, j:], upper[j - 3, j:], upper[j - 2, j:], upper[j - 1, j:]
        for i in range(rest.size):
            rest[i] -= (p * a[i] + q * b[i]) + (r * c[i] + s * d[i])
    while j < n:
        vector[j] /= upper[j, j]
        _axpy(-vector[j], upper[j, j + 1 :], vector[j + 1 :])
        j += 1


@_kernel
def _backward(upper: Array, vector: Array) -> None:
    """Solve with an upper triangle, in place, four rows at a time."""
    n = vector.size
    j = n
    while j >= 4:
        rest = vector[j:]
        a, b, c, d = upper[j - 4, j:], upper[j - 3, j:], upper[j - 2, j:], upper[j - 1, j:]
        j -= 4
        p, q, r, s = vector[j], vector[j + 1], vector[j + 2], vector[j + 3]
        for i in range(rest.size):
            x = rest[i]
            p -= a[i] * x
            q -= b[i] * x
            r -= c[i] * x
            s -= d[i] * x
        s /= upper[j + 3, j + 3]
        r = (r - s * upper[j + 2, j + 3]) / upper[j + 2, j + 2]
        q = (q - s * upper[j + 1, j + 3] - r * upper[j + 1, j + 2]) / upper[j + 1, j + 1]
        p = (p - s * upper[j, j + 3] - r * upper[j, j + 2] - q * upper[j, j + 1]) / upper[j, j]
        vector[j], vector[j + 1], vector[j + 2], vector[j + 3] = p, q, r, s
    while j > 0:
        j -= 1
        vector[j] = (vector[j] - _dot(upper[j, j + 1 :], vector[j + 1 :])) / upper[j, j]


@_kernel
def _cholesky(matrix: Array, n: int, shift: float) -> tuple[Array, bool]:
    """Upper factor of the leading block of order n less the shift, and if that is positive definite."""
    upper = np.zeros((n, n))
    for i in range(n):
        upper[i, i:] = matrix[i, i:n]
        upper[i, i] -= shift
    j = 0
    while j + 4 <= n:
        if not _factor_four(upper, j):
            return upper, False
        j += 4
    while j < n:
        if not _factor_one(upper, j):
            return upper, False
        j += 1
    return upper, True


@_kernel
def _factor_four(upper: Array, j: int) -> bool:
    """Four rows of a Cholesky factor in place, from those above; whether all four pivots are positive."""
    # A row from its diagonal on; one that numba does not know to be contiguous would not be vectorised.
    a, b, c, d = upper[j, j:], upper[j + 1, j:], upper[j + 2, j:], upper[j + 3, j:]
    for k in range(0, j, 2):
        u, v = upper[k, j:], upper[k + 1, j:]
        p, q, r, s = u[0], u[1], u[2], u[3]
        e, f, g, h = v[0], v[1], v[2], v[3]
        for i in range(a.size):
            x, y = u[i], v[i]
            a[i] -= p * x + e * y
            b[i] -= q * x + f * y
            c[i] -= r * x + g * y
            d[i] -= s * x + h * y
    # Their corner first: its entries right of the diagonal, and one over those on it.
    p = 1.0 / math.sqrt(a[0])
    ab, ac, ad = a[1] * p, a[2] * p, a[3] * p
    q = 1.0 / math.sqrt(b[1] - ab * ab)
    bc, bd = (b[2] - ab * ac) * q, (b[3] - ab * ad) * q
    r = 1.0 / math.sqrt(c[2] - ac * ac - bc * bc)
    cd = (c[3] - ac * ad - bc * bd) * r
    s = 1.0 / math.sqrt(d[3] - ad * ad - bd * bd - cd * cd)
    if not (p < np.inf and q < np.inf and r < np.inf and s < np.inf):
        return False
    for i in range(a.size):
        w = a[i] * p
        x = (b[i] - ab * w) * q
        y = (c[i] - ac * w - bc * x) * r
        z = (d[i] - ad * w - bd * x - cd * y) * s
        a[i], b[i], c[i], d[i] = w, x, y, z
    b[0] = c[0] = c[1] = d[0] = d[1] = d[2] = 0.0  # below the diagonal
    return True


@_kernel
def _factor_one(upper: Array, j: int) -> bool:
    """As `_factor_four`, for one row."""
    row = upper[j, j:]
    for k in range(j):
        _axpy(-upper[k, j], upper[k, j:], row)
    pivot = row[0]
    if not pivot > 0.0:
        return False
    row /= math.sqrt(pivot)
    return True


@_kernel
def _triangle(
    inside: Array, action: Array, smallest_square: float, well_outside: float
) -> tuple[Array, bool]:
    """T with T T' = |x|^2 I - G G', and whether it is far enough from singular.

    Far enough is a question of time: what cancels in T shows in the overlap with the basis, which is
    measured, and `_SKEW` mends it.
    """
    K = inside.shape[0]
    square = _dot(action, action)
    T = np.zeros((K, K))
    if square < smallest_square:
        return T, False
    for j in range(K):
        for i in range(j, K):
            entry = -_dot(inside[i], inside[j])
            if i == j:
                entry += square
            for k in range(j):
                entry -= T[i, k] * T[j, k]
            if i == j:
                if not entry > well_outside * square:
                    return T, False
                T[j, j] = math.sqrt(entry)
            else:
                T[i, j] = entry / T[j, j]
    return T, True


@_kernel
def _step(
    rows: Array,
    rank: int,
    inside: Array,
    parameter: Array,
    action: Array,
    outcome: int,
    ridge: Array,
    core: Array,
    step_size: float,
    lam: float,
    norm_bound: float,
    roundoff: float,
    smallest_square: float,
    well_outside: float,
    most_overlap: float,
) -> tuple[Array, float, int, Array, Array, Array, Array, Array]:
    """Frame and projected step, with one pass over the basis before the projection.

    Returns W, the multiplier or what was left undone, the number of rows of the joint basis, G, T, the
    residual, F, and the core of the joint basis: at the new W, or that of the step if the projection was
    left undone.
    """
    K, d = parameter.shape
    outside, well = _triangle(inside, action, smallest_square, well_outside)
    residual, factor = _residual_and_factor(parameter, action, outcome)
    # Without room for K more directions T is singular; should the basis have lost its orthonormality, no row
    # may be written that is not there.
    if not well or rank + K > rows.shape[0]:
        return parameter, _CAREFUL, rank, inside, outside, residual, factor, core
    direction = _direction(inside, outside, ridge, residual, factor, step_size, lam)
    inverse = np.zeros((K, K))
    for j in range(K):
        inverse[j, j] = 1.0 / outside[j, j]
        for i in range(j + 1, K):
            total = 0.0
            for k in range(j, i):
                total -= outside[i, k] * inverse[k, j]
            inverse[i, j] = total / outside[i, i]
    weights, overlap = np.zeros((K, rank)), np.zeros((K, rank))
    for i in range(K):
        for j in range(i + 1):
            _axpy(-inverse[i, j], inside[j], weights[i])
    n = rank + K
    joint = rows[:n]
    old = parameter.reshape(-1)
    point, leaves = old.copy(), _may_leave(old, direction, norm_bound)
    local = np.zeros(n if leaves else 0)
    for start in range(0, K * d, _BLOCK):
        stop = min(start + _BLOCK, K * d)
        part = point[start:stop]
        for i in range(K):
            fresh = rows[rank + i, start:stop]
            fresh[:] = 0.0
            for j in range(start // d, (stop - 1) // d + 1):
                first, last = max(start, j * d), min(stop, (j + 1) * d)
                _axpy(
                    inverse[i, j], action[first - j * d : last - j * d], fresh[first - start : last - start]
                )
            if i == 0:
                _add_rows_twice(weights[i], direction[:rank], rows, start, stop, fresh, part)
            else:
                _add_rows(weights[i], rows, start, stop, fresh)
        _add_rows(direction[rank:], rows[rank:n], start, stop, part)
        for i in range(K):
            fresh = rows[rank + i, start:stop]
            if i == 0 and leaves:
                _add_products_twice(rows, start, stop, fresh, part, overlap[i], local[:rank])
            else:
                _add_products(rows, start, stop, fresh, overlap[i])
        if leaves:
            _add_products(rows[rank:n], start, stop, part, local[rank:])
    largest = 0.0
    for i in range(K):
        for k in range(rank):
            largest = max(largest, abs(overlap[i, k]))
    if largest > most_overlap:
        inside = inside.copy()
        for i in range(K):
            for j in range(K):
                _axpy(outside[i, j], overlap[j], inside[i])
            for start in range(0, K * d, _BLOCK):
                stop = min(start + _BLOCK, K * d)
                _add_rows(-overlap[i], rows, start, stop, rows[rank + i, start:stop])
        return parameter, _SKEW, n, inside, outside, residual, factor, core
    return _finish(
        joint,
        inside,
        outside,
        point,
        local,
        action,
        residual,
        factor,
        core,
        K,
        step_size,
        lam,
        norm_bound,
        roundoff,
    )


@_kernel
def _step_in_frame(
    joint: Array,
    inside: Array,
    outside: Array,
    parameter: Array,
    action: Array,
    outcome: int,
    ridge: Array,
    core: Array,
    step_size: float,
    lam: float,
    norm_bound: float,
    roundoff: float,
) -> tuple[Array, float, int, Array, Array, Array, Array, Array]:
    """As `_step`, with the joint basis at hand."""
    residual, factor = _residual_and_factor(parameter, action, outcome)
    direction = _direction(inside, outside, ridge, residual, factor, step_size, lam)
    old = parameter.reshape(-1)
    point = _combine(joint, direction, old, 1.0)
    local = np.zeros(0)
    if _may_leave(old, direction, norm_bound):
        local = _products(joint, point)
    return _finish(
        joint,
        inside,
        outside,
        point,
        local,
        action,
        residual,
        factor,
        core,
        parameter.shape[0],
        step_size,
        lam,
        norm_bound,
        roundoff,
    )


@_kernel
def _may_leave(vector: Array, direction: Array, norm_bound: float) -> bool:
    """Whether the triangle inequality leaves open if the step leads out of the ball."""
    longest = math.sqrt(_dot(vector, vector)) + math.sqrt(_dot(direction, direction))
    return not longest < norm_bound


@_kernel
def _finish(
    joint: Array,
    inside: Array,
    outside: Array,
    point: Array,
    local: Array,
    action: Array,
    residual: Array,
    factor: Array,
    core: Array,
    K: int,
    step_size: float,
    lam: float,
    norm_bound: float,
    roundoff: float,
) -> tuple[Array, float, int, Array, Array, Array, Array, Array]:
    """The projection, if it is needed, and the core with the Hessian at the new parameter."""
    n, d, multiplier = joint.shape[0], action.size, 0.0
    if local.size > 0:
        square = _dot(point, point)
        if not math.isfinite(square):
            return point.reshape((K, d)), _OVERFLOW, n, inside, outside, residual, factor, core
        if math.sqrt(square) > norm_bound:
            tilde = _grown(core, inside, outside, math.sqrt(step_size) * factor)
            rest = math.sqrt(max(square - _dot(local, local), 0.0))
            projected, multiplier = _project(tilde, local, rest, lam, norm_bound, roundoff)
            if multiplier < 0.0:
                return point.reshape((K, d)), multiplier, n, inside, outside, residual, factor, tilde
            scale = lam / (lam + multiplier)
            point = _combine(joint, projected - scale * local, point, scale)
    parameter = point.reshape((K, d))
    _, factor_there = _residual_and_factor(parameter, action, 0)
    grown = _grown(core, inside, outside, factor_there)
    return parameter, multiplier, n, inside, outside, residual, factor, grown


@_kernel
def _movement(
    old: Array,
    new: Array,
    action: Array,
    residual: Array,
    factor: Array,
    step_size: float,
    multiplier: float,
) -> tuple[float, float]:
    """See `policies.movement`."""
    K, d = old.shape
    logits, hessian = np.zeros(K), 0.0
    for i in range(K):
        moved = pull = 0.0
        for j in range(d):
            step = new[i, j] - old[i, j]
            moved += step * action[j]
            pull += new[i, j] * step
        logits[i] = moved
        hessian -= multiplier * pull + step_size * residual[i] * moved
    for k in range(K):
        seen = 0.0
        for i in range(K):
            seen += factor[i, k] * logits[i]
        hessian -= step_size * seen * seen
    return _dot(logits, logits), max(hessian, 0.0)


@_kernel
def _direction(
    inside: Array, outside: Array, ridge: Array, residual: Array, factor: Array, step_size: float, lam: float
) -> Array:
    """Coordinates of W' - W in the joint basis; see `base.step_weights`."""
    K, r = inside.shape
    k = outside.shape[1]
    solved, block = inside.copy(), np.empty((K, K))
    for i in range(K):
        _forward(ridge, solved[i])
        for j in range(i + 1):
            entry = _dot(solved[i], solved[j])
            block[i, j] = block[j, i] = entry + _dot(outside[i], outside[j]) / lam
    for i in range(K):
        _backward(ridge, solved[i])
    weights = _step_weights(block, residual, factor, step_size)
    direction = np.zeros(r + k)
    for i in range(K):
        _axpy(-step_size * weights[i], solved[i], direction[:r])
        _axpy(-step_size * weights[i] / lam, outside[i], direction[r:])
    return direction


@_kernel
def _step_weights(block: Array, residual: Array, factor: Array, step_size: float) -> Array:
    """See `base.step_weights`.

    F (F' A), not (F F') A. Where A is large along the direction that F' nearly annuls, roundoff in F' A is
    harmless: F in front turns it into a direction that the inverse does not enlarge. Roundoff in F F' is
    enlarged by the condition number of the matrix.
    """
    K = residual.size
    columns, product = factor.T.copy(), np.zeros((K, K))
    for k in range(K):
        _add_rows(columns[k], block, 0, K, product[k])
    matrix, weights = np.zeros((K, K)), residual.copy()
    for i in range(K):
        _add_rows(step_size * factor[i], product, 0, K, matrix[i])
        matrix[i, i] += 1.0
    _eliminate(matrix, weights)
    return weights


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
    weights = np.empty(K)
    for i in range(n):
        for k in range(K):
            weights[k] = update[k, i]
        # Whole rows, not a triangle: the sums have the same order in both halves.
        _add_rows(weights, update, 0, n, grown[i])
    return grown


@_kernel
def _project(
    core: Array, local: Array, rest: float, lam: float, norm_bound: float, roundoff: float
) -> tuple[Array, float]:
    """Projection in the joint basis and one coordinate for what is outside it, in a Krylov space.

    Galerkin's solution of (Z + nu I) w = Z w' in the space of Lanczos' vectors has length S by the choice
    of nu; the space grows until the residual bounds the error by roundoff. Gives up after some steps.
    """
    n, norm = local.size, math.sqrt(_dot(local, local) + rest * rest)
    size = min(n + 1, _KRYLOV)
    vectors = np.zeros((size + 1, n + 1))
    diagonal, off_diagonal, weights = np.zeros(size), np.zeros(size), np.empty(size + 1)
    vectors[0, :n] = local / norm
    vectors[0, n] = rest / norm
    multiplier = 0.0
    for j in range(size):
        old, new = vectors[j], vectors[j + 1]
        _axpy(lam, old, new)
        _add_products(core, 0, n, old[:n], new[:n])
        diagonal[j] = _dot(old, new)
        for _ in range(2):
            weights[: j + 1] = 0.0
            _add_products(vectors, 0, n + 1, new, weights[: j + 1])
            _add_rows(-weights[: j + 1], vectors, 0, n + 1, new)
        length = math.sqrt(_dot(new, new))
        complete = j == n or length <= roundoff * diagonal[0]
        if complete or j >= 2:
            solution, multiplier = _tridiagonal_root(
                diagonal[: j + 1], off_diagonal, norm, norm_bound, multiplier, roundoff
            )
            if multiplier < 0.0:
                break
            if complete or length * abs(solution[j]) <= roundoff * norm_bound * (lam + multiplier):
                projected = np.zeros(n)
                _add_rows(solution, vectors, 0, n, projected)
                return projected, multiplier
        off_diagonal[j] = length
        new /= length
    return local, _UNSETTLED


@_kernel
def _tridiagonal_root(
    diagonal: Array, off_diagonal: Array, norm: float, norm_bound: float, start: float, roundoff: float
) -> tuple[Array, float]:
    """The multiplier for a tridiagonal matrix and the first unit vector times a length; see `projection`."""
    n, multiplier = diagonal.size, start
    pivot, ratio, solution, half = np.empty(n), np.zeros(n), np.empty(n), np.empty(n)
    for _ in range(100):
        for i in range(n):
            pivot[i] = diagonal[i] + multiplier
            solution[i] = 0.0
            if i == 0:
                solution[i] = norm * diagonal[0]
            elif i == 1:
                solution[i] = norm * off_diagonal[0]
            if i > 0:
                ratio[i] = off_diagonal[i - 1] / pivot[i - 1]
                pivot[i] -= ratio[i] * off_diagonal[i - 1]
                solution[i] -= ratio[i] * solution[i - 1]
            if not pivot[i] > 0.0:
                return solution, _UNSETTLED
        for i in range(n - 1, -1, -1):
            solution[i] /= pivot[i]
            if i + 1 < n:
                solution[i] -= ratio[i + 1] * solution[i + 1]
        square = _dot(solution, solution)
        length = math.sqrt(square)
        slope = 0.0
        for i in range(n):
            half[i] = solution[i]
            if i > 0:
                half[i] -= ratio[i] * half[i - 1]
            slope += half[i] * half[i] / pivot[i]
        if abs(length - norm_bound) <= roundoff * norm_bound:
            return solution, multiplier
        step = (length / norm_bound - 1.0) * square / slope
        if abs(step) <= roundoff * multiplier:
            return solution, multiplier
        multiplier = max(multiplier + step, 0.0)
    return solution, _UNSETTLED


@_kernel
def _polar(columns: Array) -> tuple[Array, Array, bool]:
    """`_linalg.polar` of a matrix given by its columns, and whether it is far enough from singular.

    By Jacobi's rotations of the columns, whose lengths become the singular values. The factors are as
    accurate with small singular values as with large ones, as long as products of squares do not underflow.
    """
    k = columns.shape[0]
    W, V = columns.copy(), np.eye(k)
    for _ in range(40):
        largest = 0.0
        for p in range(k - 1):
            for q in range(p + 1, k):
                a, b, g = _dot(W[p], W[p]), _dot(W[q], W[q]), _dot(W[p], W[q])
                if not g * g > 1e-32 * a * b:
                    continue
                largest = max(largest, g * g / (a * b))
                zeta = (b - a) / (2.0 * g)
                t = 1.0 / (abs(zeta) + math.sqrt(1.0 + zeta * zeta))
                if zeta < 0.0:
                    t = -t
                c = 1.0 / math.sqrt(1.0 + t * t)
                s = c * t
                for i in range(k):
                    x, y = W[p, i], W[q, i]
                    W[p, i], W[q, i] = c * x - s * y, s * x + c * y
                    x, y = V[p, i], V[q, i]
                    V[p, i], V[q, i] = c * x - s * y, s * x + c * y
        if largest <= 1e-30:
            break
    orthogonal, inverse, certain = np.zeros((k, k)), np.zeros((k, k)), True
    for p in range(k):
        singular = math.sqrt(_dot(W[p], W[p]))
        if k > 1 and not singular > 1e-70:
            certain = False
        sign = -1.0 if k == 1 and W[0, 0] < 0.0 else 1.0
        for i in range(k):
            if k > 1:
                _axpy(W[p, i] / singular, V[p], orthogonal[i])
            else:
                orthogonal[0, 0] = sign
            _axpy(V[p, i] / (1.0 + singular), V[p], inverse[i])
    return orthogonal, inverse, certain


@_kernel
def _bottom_pair_in_loops(matrix: Array, roughly: float, most: int, eps: float) -> tuple[float, Array, bool]:
    """`_bottom_pair` without leaving the kernel: eigenvalue, vector, and if they are certain."""
    n, shift = matrix.shape[0] - 1, 0.0
    for enough in (roughly, 0.0):
        upper, definite = _cholesky(matrix, n, shift)
        if not definite:
            break
        root, value, vector, certain = _secular_root(upper, matrix, shift, enough, most, eps)
        if certain:
            return value, vector, True
        shift += root
    return 0.0, np.empty(0), False


@_kernel
def _secular_root(
    upper: Array, matrix: Array, shift: float, enough: float, most: int, eps: float
) -> tuple[float, float, Array, bool]:
    """The root of `_bottom_pair`'s model less the shift; eigenvalue and vector, and if they are certain.

    `upper` is the Cholesky factor of the leading block less the shift. Lanczos' vectors are added until
    the root changes by no more than the share `enough` of itself, which leaves the vector undone, or until
    the residual is roundoff.
    """
    n, scale = upper.shape[0], 0.0
    for i in range(n + 1):
        scale = max(scale, matrix[i, i])
    right = matrix[n, :n].copy()
    corner = float(matrix[n, n]) - shift
    _forward(upper, right)
    square = _dot(right, right)
    vectors, vector = np.zeros((most + 1, n)), np.zeros(n + 1)
    diagonal, off_diagonal, overlap = np.empty(most), np.empty(most), np.empty(most)
    if not square > 0.0:
        return 0.0, 0.0, vector, False
    vectors[0] = right / math.sqrt(square)
    root = 0.0
    for j in range(most):
        new = vectors[j + 1]
        new[:] = vectors[j]
        _backward(upper, new)
        _forward(upper, new)
        diagonal[j] = _dot(vectors[j], new)
        overlap[: j + 1] = 0.0
        _add_products(vectors, 0, n, new, overlap[: j + 1])
        _add_rows(-overlap[: j + 1], vectors, 0, n, new)
        off_diagonal[j] = math.sqrt(_dot(new, new))
        old = root
        if j == 0:  # the larger root of a quadratic equation lies behind the pole
            a = diagonal[0]
            root = math.sqrt((1.0 - a * corner) ** 2 + 4.0 * a * square)
            root = 2.0 * (corner - square) / (1.0 + a * corner + root)
        root, weights, slope = _model_root(diagonal[: j + 1], off_diagonal, square, corner, root)
        residual = abs(root * off_diagonal[j] * weights[j]) * math.sqrt(square / slope)
        if residual <= eps * math.sqrt(scale):
            if root > 4.0 * eps * scale:
                break
            _add_rows(-math.sqrt(square) * weights, vectors, 0, n, vector[:n])
            _backward(upper, vector[:n])
            vector[n] = 1.0
            vector /= math.sqrt(_dot(vector, vector))
            value, residual = _rayleigh(matrix, vector)
            # A leading block that is singular to roundoff may have a root at 0 and a vector of another pair.
            certain = residual <= 8.0 * eps * scale and value - shift <= 8.0 * eps * scale
            return root, value, vector, certain
        if j > 0 and abs(root - old) < enough * abs(root):  # a root can stand still before its vector
            break
        new /= off_diagonal[j]
    return root, 0.0, vector, False


@_kernel
def _model_root(
    diagonal: Array, off_diagonal: Array, square: float, corner: float, start: float
) -> tuple[float, Array, float]:
    """The root below the pole of `corner - x - square * g[0]`, with (I - x T) g the first unit vector.

    By Newton's method, kept in a bracket. Also returns g and the negative of the derivative.
    """
    n, root = diagonal.size, start
    low, high = -np.inf, np.inf
    inverse, ratios, weights, slope = np.empty(n), np.empty(n), np.empty(n), 1.0
    for _ in range(60):
        positive = True
        for i in range(n):
            pivot, weights[i] = 1.0 - root * diagonal[i], 1.0
            if i > 0:
                pivot -= ratios[i - 1] * root * off_diagonal[i - 1]
                weights[i] = ratios[i - 1] * weights[i - 1]
            if not pivot > 0.0:
                positive = False
                break
            inverse[i] = 1.0 / pivot
            ratios[i] = root * off_diagonal[i] * inverse[i]
        step = 0.0
        if positive:
            slope = 0.0
            for i in range(n - 1, -1, -1):
                weights[i] *= inverse[i]
                if i + 1 < n:
                    weights[i] += ratios[i] * weights[i + 1]
                    slope += 2.0 * off_diagonal[i] * weights[i] * weights[i + 1]
                slope += diagonal[i] * weights[i] * weights[i]
            slope = 1.0 + square * slope
            step = (corner - root - square * weights[0]) / slope
            if abs(step) <= 4e-16 * abs(root):
                break
        if positive and step > 0.0:
            low = root
        else:
            high = root
        root += step
        if not (positive and root < high):
            root = 0.5 * (high + low) if low > -np.inf else min(0.5 * high, 2.0 * high)
    return root, weights, slope


@_kernel
def _rayleigh(matrix: Array, vector: Array) -> tuple[float, float]:
    """The Rayleigh quotient of a unit vector and the length of its residual."""
    image = np.zeros(vector.size)
    _add_products(matrix, 0, vector.size, vector, image)
    value = _dot(image, vector)
    _axpy(-value, vector, image)
    return value, math.sqrt(_dot(image, image))


@_kernel
def _shrink(
    rows: Array, core: Array, reflector: Array, kept: int, discarded: float, deflate: bool
) -> tuple[Array, Array, bool]:
    """`_reflect` with `_polar`; if that is uncertain, nothing is done."""
    orthogonal, inverse, certain = _polar(reflector[:, kept:])
    if not certain:
        return core, reflector, False
    core, scaled = _reflect(rows, core, reflector, orthogonal, inverse, kept, discarded, deflate)
    return core, scaled, True


@_kernel
def _reflect(
    rows: Array,
    core: Array,
    reflector: Array,
    orthogonal: Array,
    inverse: Array,
    kept: int,
    discarded: float,
    deflate: bool,
) -> tuple[Array, Array]:
    """The core behind the block reflector, less the discarded amount; the basis too, in place, if asked.

    See `frequent_directions`. The reflector's columns are rows here; those scaled by (I + P)^-1 are
    returned.
    """
    k, n = reflector.shape
    for c in range(k):
        for i in range(k):
            reflector[c, kept + i] += orthogonal[i, c]
    left, image, inner = np.zeros((k, n)), np.zeros((k, n)), np.zeros((k, k))
    for c in range(k):
        _add_rows(inverse[c], reflector, 0, n, left[c])
        _add_products(core, 0, n, reflector[c], image[c])
    for a in range(k):
        for b in range(k):
            inner[a, b] = 0.5 * _dot(reflector[a], image[b])
    for b in range(k):
        for a in range(k):
            _axpy(-inner[a, b], left[a], image[b])
    out, weights = np.empty((kept, kept)), np.empty(k)
    for i in range(kept):
        out[i] = core[i, :kept]
        for c in range(k):
            _subtract_pair(left[c, i], image[c, :kept], image[c, i], left[c, :kept], out[i])
        out[i, i] -= discarded
    if deflate:
        product = np.empty((k, _BLOCK))
        for start in range(0, rows.shape[1], _BLOCK):
            stop = min(start + _BLOCK, rows.shape[1])
            for c in range(k):
                product[c] = 0.0
                _add_rows(reflector[c], rows, start, stop, product[c, : stop - start])
            for i in range(kept):
                for c in range(k):
                    weights[c] = -left[c, i]
                _add_rows(weights, product, 0, stop - start, rows[i, start:stop])
    return out, left


@_symmetric
def _subtract_pair(p: float, x: Array, q: float, y: Array, out: Array) -> None:
    """`out -= p x + q y`; the same to the bit with the two summands exchanged, as in the other half."""
    for i in range(out.size):
        out[i] -= p * x[i] + q * y[i]


@_kernel
def _dense_blocks(actions: Array, index: Indices, inverse: Array, images: Array) -> Array:
    """A(x) from the lower triangle of the inverse, which is read once for all actions.

    A column's part in block row i gives an entry of row i of the image by a dot product, and by
    symmetry a multiple of that part to the image's row of the column's own block. Two columns and two
    actions at a time: what is loaded once then serves up to eight multiplications.
    """
    n, K, d = index.size, images.shape[1], actions.shape[1]
    for c in range(n):
        images[index[c]] = 0.0
    for j in range(K):
        for b in range(0, d, 2):
            column, pair = j * d + b, b + 1 < d
            other = column + 1 if pair else column
            for i in range(j, K):
                # In the diagonal block, below the two columns' 2 x 2 corner, which follows.
                first = b + 1 + pair if i == j else 0
                p, q = (
                    inverse[i * d + first : (i + 1) * d, column],
                    inverse[i * d + first : (i + 1) * d, other],
                )
                for c in range(0, n, 2):
                    s, t = index[c], index[min(c + 1, n - 1)]
                    x, y = actions[s], actions[t]
                    xs, ys = x[first:], y[first:]
                    to_x = images[s, j, i * d + first : (i + 1) * d]
                    to_y = images[t, j, i * d + first : (i + 1) * d]
                    if not pair:
                        images[s, i, column] += _dot(p, xs)
                        _axpy(x[b], p, to_x)
                        if t != s:
                            images[t, i, column] += _dot(p, ys)
                            _axpy(y[b], p, to_y)
                    elif t == s:
                        one, two = _dot_and_add(p, q, xs, to_x, x[b], x[b + 1])
                        images[s, i, column] += one
                        images[s, i, other] += two
                    else:
                        one, two, three, four = _dots_and_add(
                            p, q, xs, ys, to_x, to_y, x[b], x[b + 1], y[b], y[b + 1]
                        )
                        images[s, i, column] += one
                        images[s, i, other] += two
                        images[t, i, column] += three
                        images[t, i, other] += four
            for c in range(n):
                x, image = actions[index[c]], images[index[c], j]
                image[column] += inverse[column, column] * x[b]
                if pair:
                    image[column] += inverse[other, column] * x[b + 1]
                    image[other] += inverse[other, column] * x[b] + inverse[other, other] * x[b + 1]
    blocks = np.empty((n, K, K))
    for c in range(n):
        blocks[c] = _block_of(images[index[c]], actions[index[c]])
    return blocks


@_kernel
def _dot_and_add(p: Array, q: Array, x: Array, out: Array, a: float, b: float) -> tuple[float, float]:
    """Dot products of x with p and q; `out += a p + b q`."""
    one = two = 0.0
    for i in range(p.size):
        one += p[i] * x[i]
        two += q[i] * x[i]
        out[i] += a * p[i] + b * q[i]
    return one, two


@_kernel
def _dots_and_add(
    p: Array,
    q: Array,
    x: Array,
    y: Array,
    to_x: Array,
    to_y: Array,
    a: float,
    b: float,
    c: float,
    d: float,
) -> tuple[float, float, float, float]:
    """`_dot_and_add` for two vectors at once."""
    one = two = three = four = 0.0
    for i in range(p.size):
        u, v = p[i], q[i]
        one += u * x[i]
        two += v * x[i]
        three += u * y[i]
        four += v * y[i]
        to_x[i] += a * u + b * v
        to_y[i] += c * u + d * v
    return one, two, three, four


@_kernel
def _block_of(image: Array, action: Array) -> Array:
    """A(x), symmetric to the bit, from the image under the inverse."""
    K, d = image.shape[0], action.size
    block = np.empty((K, K))
    for i in range(K):
        for j in range(i + 1):
            one = _dot(image[i, j * d : (j + 1) * d], action)
            other = _dot(image[j, i * d : (i + 1) * d], action)
            block[i, j] = block[j, i] = (one + other) / 2.0
    return block


@_kernel
def _step_by_inverse(
    image: Array, parameter: Array, action: Array, outcome: int, step_size: float
) -> tuple[Array, Array, Array, Array, float]:
    """The step before its projection, with the image under the inverse at hand.

    Returns W', the residual, F, rows R with (H + s XFF'X')^-1 = H^-1 - s R'R for the step size s, and a
    lower bound of the largest eigenvalue of the new Hessian, -1 if I + s F'AF is not positive definite.
    """
    K, square = parameter.shape[0], _dot(action, action)
    residual, factor = _residual_and_factor(parameter, action, outcome)
    block = _block_of(image, action)
    weights = _step_weights(block, residual, factor, step_size)
    point = parameter.reshape(-1).copy()
    for i in range(K):
        _axpy(-step_size * weights[i], image[i], point)
    columns, largest = factor.T.copy(), 0.0
    for k in range(K):
        largest = max(largest, _dot(columns[k], columns[k]))
    lower, change = np.zeros((K, K)), np.zeros(image.shape)
    for i in range(K):
        for j in range(i + 1):
            entry = 1.0 if i == j else 0.0
            for k in range(K):
                entry += step_size * columns[i, k] * _dot(block[k], columns[j])
            entry -= _dot(lower[i, :j], lower[j, :j])
            if i == j and not entry > 0.0:
                return point, residual, factor, change, -1.0
            lower[i, j] = math.sqrt(entry) if i == j else entry / lower[j, j]
        for k in range(K):
            _axpy(columns[i, k] / lower[i, i], image[k], change[i])
        for j in range(i):
            _axpy(-lower[i, j] / lower[i, i], change[j], change[i])
    return point, residual, factor, change, largest * square


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
def _estimates(actions: Array, parameter: Array, rewards: Array) -> tuple[Array, Array]:
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
    return value, slopes


@_kernel
def _upper_bounds(
    squares: Array, value: Array, slopes: Array, beta: float, total: float, lam: float, slack: float
) -> tuple[Array, bool]:
    """Score with the bonus of A(x) = |x|^2 I / lambda, what roundoff may add, and whether all are finite."""
    n, K = slopes.shape
    upper, checksum = np.empty(n), 0.0
    for a in range(n):
        square = squares[a] / lam
        bonus = math.sqrt(beta * square * _dot(slopes[a], slopes[a]))
        if K > 1:
            bonus += total * beta * square
        upper[a] = value[a] + bonus
        upper[a] += slack * (abs(value[a]) + abs(upper[a]))
        checksum += upper[a]
    return upper, math.isfinite(checksum)


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
