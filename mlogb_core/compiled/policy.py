"""The policy that plays its rounds with kernels; the only module here that uses policies and curvatures.

State, checks, radius and errors are those of `OptimisticPolicy`, so that a saved state can be continued in
either form. Between the kernels BLAS and LAPACK compute large factorisations, products with several vectors
at once, the eigenpairs of large cores, and the cases that a kernel leaves open.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError
from scipy.linalg.blas import dsymv, dsyrk

from mlogb_core import _thresholds
from mlogb_core._linalg import add_product, add_to_diagonal, cholesky, cholesky_solve, smallest_eigenpairs
from mlogb_core._validation import Array, is_plain
from mlogb_core.choice import Choice
from mlogb_core.compiled import algebra
from mlogb_core.compiled.arguments import (
    DONE,
    NO_ACTION,
    NOT_PROJECTED,
    OVERFLOW,
    WITHOUT_FRAME,
    Bonus,
    Candidates,
    Frame,
    Numbers,
    Played,
    Settings,
    Sketch,
    Step,
)
from mlogb_core.compiled.choose import choose_by_inverse, choose_by_sketch, next_batch, score, start_search
from mlogb_core.compiled.dense import change_of_inverse, step_by_inverse
from mlogb_core.compiled.diagonal import choose_by_diagonal, step_by_diagonal
from mlogb_core.compiled.eigenpair import BLOCKED, smallest_eigenpair
from mlogb_core.compiled.link import estimates, loss_at
from mlogb_core.compiled.observed import observed_surplus
from mlogb_core.compiled.ridge import step_by_ridge
from mlogb_core.compiled.round import step_and_shrink
from mlogb_core.compiled.shrink import deflate, shrink
from mlogb_core.compiled.step import grown, movement, step, step_in_frame
from mlogb_core.compiled.tridiagonal import LANES, smallest_by_bisection
from mlogb_core.curvature import (
    BudgetedFrequentDirections,
    CompensatedFrequentDirections,
    DenseCurvature,
    DiagonalCurvature,
    DoublingFrequentDirections,
    DyadicFrequentDirections,
    FrequentDirections,
    GrowingRidge,
    NoCurvature,
    RobustFrequentDirections,
)
from mlogb_core.curvature.base import check_hessian, check_regularization
from mlogb_core.curvature.low_rank import LowRankCurvature
from mlogb_core.observed import PlayedRound
from mlogb_core.policies.newton import Learned
from mlogb_core.policies.optimistic import Estimate, OptimisticPolicy, Selected
from mlogb_core.projection import Resolvent, project_by_lanczos, project_onto_ball
from mlogb_core.radius import ConstantRadius, ObservedRadius

#: The curvatures that the kernels can play.
PLAYED = (
    FrequentDirections,
    RobustFrequentDirections,
    CompensatedFrequentDirections,
    BudgetedFrequentDirections,
    DoublingFrequentDirections,
    DyadicFrequentDirections,
    DenseCurvature,
    DiagonalCurvature,
    GrowingRidge,
    NoCurvature,
)
#: If the basis holds this many numbers and K > 1, BLAS computes the products with it.
WIDE = 100_000
_NO_ROWS = np.empty((0, 0))  # of a basis, and of the factor of a core
_NO_SQUARES = np.empty(0)
_TINY = 3  # number of features of the problem on which the kernels are compiled


class CompiledPolicy(OptimisticPolicy):
    """`OptimisticPolicy` with compiled kernels, over one of the curvatures in `PLAYED`.

    Parameters
    ----------
    curvature, rewards, step_size, norm_bound, radius, tie_tolerance
        As in `OptimisticPolicy`.

    Raises
    ------
    ValueError
        If the curvature is of another class, any other subclass included; the message names it.

    Notes
    -----
    A subclass may override `select`, `scores` and `update`. The methods with an underscore are replaced by
    kernels here, so that a change of one of those in `OptimisticPolicy` needs the NumPy form.
    """

    compiled = True
    #: Whether the constructor waits until all kernels are compiled.
    _waits = True

    def __init__(self, curvature: Any, rewards: Any, **settings: Any) -> None:
        super().__init__(curvature, rewards, **settings)
        self._half_sum = 0.5 * float(self.rewards.sum())
        if self._waits:
            compile_kernels()

    @property
    def curvature(self) -> Any:
        """The accumulated Hessian, whose arrays the kernels read and write."""
        return self._curvature

    @curvature.setter
    def curvature(self, curvature: Any) -> None:
        # The kernels would ignore what a subclass changes, so that other subclasses are refused.
        if type(curvature) not in PLAYED:
            raise ValueError(
                f"curvature must be of one of the classes {', '.join(kind.__name__ for kind in PLAYED)} "
                f"itself, got {type(curvature).__qualname__}: without compiled=True it is played by its own "
                "code"
            )
        self._curvature = curvature

    def _estimate(self, actions: Array, squares: Array) -> Estimate:
        actions = _writable(actions)
        value, slopes = estimates(actions, self.parameter, self.rewards)
        return Estimate(actions, squares, value, slopes)

    @np.errstate(over="ignore", under="ignore")
    def select(self, actions: ArrayLike) -> int:
        """`OptimisticPolicy.select`, where a single kernel also checks a plain array of finite numbers."""
        action, width = NO_ACTION, self._curvature.n_features
        if is_plain(actions) and actions.ndim == 2 and len(actions) and actions.shape[1] == width:
            action = self._select_by_kernel(actions, _NO_SQUARES)
        return super().select(actions) if action == NO_ACTION else action

    @np.errstate(over="ignore", under="ignore")
    def select_among(self, actions: Array, squares: Array) -> int:
        """`OptimisticPolicy.select_among` by a single kernel."""
        action = self._select_by_kernel(actions, squares)
        return super().select_among(actions, squares) if action == NO_ACTION else action

    def _select_by_kernel(self, actions: Array, squares: Array) -> int:
        """The choice, or `NO_ACTION` if the kernel cannot make it, as where a sum overflows."""
        try:
            beta = self.beta
            if beta == 0.0 or self._is_wide() or self._is_sparse(actions):
                return NO_ACTION
            actions = _writable(actions)
            action, margin, scored, image = self._choose(actions, squares, beta)
        except (ArithmeticError, LinAlgError) as error:
            raise self._named(error) from error
        if action != NO_ACTION:
            self.margin, self.evaluated = margin, scored
            self._selected = Selected(actions[action].copy(), image)
        return action

    def _choose(self, actions: Array, squares: Array, beta: float) -> tuple[int, float, int, Array]:
        """The action, its margin, the number of actions scored, and the image of the chosen one."""
        curvature, kind = self.curvature, type(self.curvature)  # of the classes themselves: see the setter
        given, numbers = (actions, squares, self._parameter, self.rewards), self._bonus_numbers(beta)
        if kind is DenseCurvature:
            return choose_by_inverse(*given, curvature.inverse, numbers)
        if kind is GrowingRidge or kind is NoCurvature:
            return choose_by_sketch(*given, _NO_ROWS, _NO_ROWS, _NO_ROWS, numbers)[:4]
        if kind is DiagonalCurvature:
            return choose_by_diagonal(*given, curvature.diagonal, numbers)
        # The kernel computes the factor if it is not known, unless LAPACK is faster.
        is_known = curvature._factor is not None or len(curvature.core) >= BLOCKED
        view = curvature._rows, curvature.core, self._upper() if is_known else _NO_ROWS
        action, margin, scored, image, upper = choose_by_sketch(*given, *view, numbers)
        if upper.size:
            curvature._factor = upper.T
        return action, margin, scored, image

    def _bonus_numbers(self, beta: float) -> Numbers:
        """The numbers of `Bonus`."""
        return beta, self._half_sum, self._curvature.ridge, self.tie_tolerance, _thresholds.SLACK

    def _best(self, estimate: Estimate) -> tuple[Choice, int, Selected | None]:
        beta = self.beta
        if beta > 0.0 and self._is_wide():
            return self._best_by_blas(estimate, Bonus(*self._bonus_numbers(beta)))
        return super()._best(estimate)

    def _best_by_blas(self, estimate: Estimate, bonus: Bonus) -> tuple[Choice, int, Selected | None]:
        """`choose_by_sketch` with the products computed by BLAS."""
        sketch, candidates, limit = self.curvature, Candidates(*estimate), 2
        search = start_search(candidates, bonus)
        if not search.finite:
            return super()._best(estimate)
        images = np.empty((*candidates.slopes.shape, sketch.rank))
        while True:
            index, action, margin = next_batch(candidates, search, bonus.tie_tolerance, limit)
            if not index.size:
                selected = Selected(candidates.actions[action].copy(), images[action].copy())
                return Choice(action, margin), int(search.known.sum()), selected
            part = candidates.actions[index]
            images[index] = image = sketch.images(part)
            blocks = sketch.inverse_blocks(part, image, candidates.squares[index])
            score(candidates, search, bonus, index, blocks)
            limit *= 2

    def _batch_size(self) -> int:
        return 2  # Pruning costs nothing in a kernel.

    def _is_wide(self) -> bool:
        """Whether products of a basis with K vectors at once are faster by BLAS than in a kernel."""
        sketch = self._curvature
        return sketch.n_outcomes > 1 and isinstance(sketch, LowRankCurvature) and sketch.image_cost >= WIDE

    def _is_sparse(self, actions: Array) -> bool:
        """Whether actions have so few features that their products with a full matrix need no kernel."""
        curvature = self._curvature
        return type(curvature) is DenseCurvature and curvature.few_features(actions) is not None

    def _upper(self) -> Array:
        """The upper Cholesky factor R of `Sketch`, with contiguous rows: the transpose of the stored one."""
        sketch = self.curvature
        if sketch._factor is None:
            rank = len(sketch.core)
            if rank == 0:
                return np.empty((0, 0))
            if rank < BLOCKED:
                upper, definite = algebra.cholesky(sketch.core, rank, -sketch.ridge)
                if definite:  # Otherwise LAPACK tries below, and raises if it fails too.
                    sketch._factor = upper.T
        factor: Array = sketch._ridge_factor().T if sketch._factor is None else sketch._factor.T
        return factor

    def _learn(self, action: Array, outcome: int) -> Learned:
        action, image = _writable(action), self._image_of(action)
        if image is None:
            image = self.curvature.images(action[None])[0]
        if self._is_single():
            learned = self._learn_by_kernel(action, image, outcome)
            if learned is not None:
                return learned
        parameter, multiplier, add = self._stepped(action, image, outcome)
        moved = 0.0, 0.0
        if self.radius.needs_movement:
            moved = movement(self.parameter, parameter, action, outcome, self.step_size, multiplier)
        surplus = self._surplus_of(action, outcome, parameter, moved[1])
        add()
        return Learned(parameter, moved, surplus=surplus)

    def _increment(self, played: PlayedRound) -> float:
        """What the round adds, by a kernel for the forecast that makes it the same for all outcomes."""
        radius = self.radius
        if type(radius) is ObservedRadius and radius.forecast == "normalised":
            surplus = observed_surplus(*played)
            if math.isfinite(surplus):
                return surplus
        return super()._increment(played)

    def _is_single(self) -> bool:
        """Whether one kernel can play an update: it drops few directions, and the radius asks for no more."""
        sketch = self.curvature
        if getattr(type(sketch), "_dropped", None) is not FrequentDirections._dropped:
            return False
        most = sketch.rank_bound + sketch.n_outcomes
        return (
            most < BLOCKED
            and most - sketch.sketch_size <= LANES
            and not self._is_wide()
            and not self.radius.needs_movement
            and not self._adds_up
        )

    def _learn_by_kernel(self, action: Array, image: Array, outcome: int) -> Learned | None:
        """The update by a single kernel, or None if it has to be done in several parts."""
        sketch = self.curvature
        size = sketch.sketch_size if sketch._is_due() else sketch.rank_bound + 1
        view = sketch._rows, sketch.core, self._upper()
        state, parameter, core, discarded = step_and_shrink(
            *view, self._parameter, action, image, outcome, self._numbers(), size
        )
        if state != DONE:
            return None
        sketch._end_round(core, discarded)
        return Learned(parameter, (0.0, 0.0))

    def _stepped(self, action: Array, image: Array, outcome: int) -> tuple[Array, float, Callable[[], None]]:
        """The new parameter, the multiplier, and what adds the Hessian there to the curvature."""
        curvature = self.curvature
        if isinstance(curvature, DenseCurvature):
            parameter, multiplier = self._step_by_inverse(action, image, outcome)
            return parameter, multiplier, partial(self._change_inverse, parameter, action, image)
        if isinstance(curvature, GrowingRidge):
            parameter, multiplier, trace = self._step_by_ridge(action, outcome)
            return parameter, multiplier, partial(curvature._end_round, trace)
        if isinstance(curvature, NoCurvature):
            return (*self._step_without_curvature(action, outcome), curvature._end_round)
        if isinstance(curvature, DiagonalCurvature):
            parameter, multiplier, entries = self._step_by_diagonal(action, image, outcome)
            return parameter, multiplier, partial(curvature._add_diagonal, entries, action)
        _, parameter, multiplier, core, largest = self._step(action, image, outcome)
        if isinstance(curvature, DyadicFrequentDirections):
            add = partial(self._add_block, parameter, action, image, len(core), largest)
            return parameter, multiplier, add
        return parameter, multiplier, partial(self._add, core, largest)

    def _step(self, action: Array, image: Array, outcome: int) -> Step:
        """The projected step, with the new core in the joint basis."""
        sketch, wide, parameter = self.curvature, self._is_wide(), self.parameter
        view, numbers = (sketch._rows, sketch.core, self._upper()), self._numbers()
        taken = None if wide else step(*view, parameter, action, image, outcome, numbers)
        if taken is None or taken.state in (WITHOUT_FRAME, NOT_PROJECTED):
            inside, fresh, outside = (sketch._split if wide else sketch._split_carefully)(action, image)
            sketch._rows[sketch.rank : sketch.rank + len(fresh)] = fresh
            given = Sketch(*view), Frame(inside, np.ascontiguousarray(outside))
            taken = step_in_frame(*given, parameter, Played(action, image, outcome), Settings(*numbers))
            if taken.state == NOT_PROJECTED:
                taken = self._projected(*given, taken, action)
        if taken.state == OVERFLOW:
            raise ArithmeticError("the step overflows")
        return taken

    def _numbers(self) -> Numbers:
        """The numbers of `Settings`."""
        return (
            self.step_size,
            self.curvature.ridge,
            self.norm_bound,
            _thresholds.ROUNDOFF,
            _thresholds.SMALLEST_SQUARE,
            _thresholds.WELL_OUTSIDE,
            _thresholds.OUTSIDE,
            _thresholds.OVERLAP,
        )

    def _projected(self, view: Sketch, frame: Frame, taken: Step, action: Array) -> Step:
        """The projection by Cholesky factors, for ill-conditioned cores; `LowRankCurvature.newton_step`."""
        lam, point, n = self.curvature.ridge, taken.parameter.reshape(-1), len(taken.core)
        rows = view.rows[:n]
        local = rows @ point
        rest = math.sqrt(max(float(point @ point - local @ local), 0.0))
        image = np.append(taken.core @ local + lam * local, lam * rest)

        def resolvent_at(multiplier: float) -> Resolvent:
            shifted = taken.core.copy()
            add_to_diagonal(shifted, lam + multiplier)
            factor = cholesky(shifted)

            def solve(vector: Array) -> Array:
                solution: Array = vector / (lam + multiplier)
                solution[:-1] = cholesky_solve(factor, vector[None, :-1])[0]
                return solution

            return solve

        start = np.append(local, rest)
        projected, multiplier = project_onto_ball(resolvent_at, start, image, self.norm_bound)
        scale = lam / (lam + multiplier)
        point = scale * point + (projected[:-1] - scale * local) @ rows
        parameter = point.reshape(taken.parameter.shape)
        core = grown(view.core, frame, loss_at(parameter, action, 0).factor)
        return Step(DONE, parameter, multiplier, core, float(core.diagonal().max(initial=0.0)))

    def _add(self, core: Array, largest: float) -> None:
        """`FrequentDirections.add`, from the core in the joint basis that the step has computed."""
        sketch, n = self.curvature, len(core)
        check_regularization(sketch.ridge, largest)
        if n <= sketch.sketch_size or not sketch._is_due():
            sketch._end_round(core)
            return
        values, removed = _smallest(core, n - sketch.sketch_size)
        dropped = sketch._dropped(values)
        if not dropped:
            sketch._end_round(core)
            return
        removed, kept, discarded = removed[:dropped], n - dropped, max(float(values[dropped - 1]), 0.0)
        rows, (core, scaled) = sketch._rows[:n], shrink(core, removed, kept, discarded)
        if self._is_wide():
            add_product(rows[:kept], scaled[:, :kept].T, removed @ rows, scale=-1.0)
        else:
            deflate(rows, removed, scaled, kept)
        sketch._end_round(core, discarded)

    def _add_block(self, parameter: Array, action: Array, image: Array, n: int, largest: float) -> None:
        """`DyadicFrequentDirections.add`, from the image and the n rows of the joint basis."""
        sketch = self.curvature
        check_regularization(sketch.ridge, largest)
        fresh = sketch._rows[sketch.rank : n].reshape(-1, *parameter.shape)
        outside = fresh @ action
        coordinates = np.concatenate((image.T, outside))
        sketch._add_columns(np.dot(coordinates, loss_at(parameter, action, 0).factor))

    def _step_by_ridge(self, action: Array, outcome: int) -> tuple[Array, float, float]:
        """`GrowingRidge.newton_step` with a kernel, and the trace of the Hessian at the new parameter."""
        taken = step_by_ridge(self.parameter, action, outcome, self._numbers())
        state, parameter, multiplier, trace, largest = taken
        if self._is_open(state, largest):
            parameter, multiplier, factor = self._step_by_numpy(action, outcome)
            trace = float(np.square(factor).sum() * (action @ action))
        return parameter, multiplier, trace

    def _step_without_curvature(self, action: Array, outcome: int) -> tuple[Array, float]:
        """`NoCurvature.newton_step` with the kernel for a ridge."""
        state, parameter, multiplier, *_ = step_by_ridge(self.parameter, action, outcome, self._numbers())
        if state != DONE:
            parameter, multiplier, _ = self._step_by_numpy(action, outcome)
        return _writable(parameter), multiplier

    def _step_by_diagonal(self, action: Array, image: Array, outcome: int) -> tuple[Array, float, Array]:
        """`DiagonalCurvature.newton_step` with a kernel, and the diagonal of the Jacobian after it."""
        diagonal, numbers = self.curvature.diagonal, self._numbers()
        taken = step_by_diagonal(self.parameter, diagonal, action, image, outcome, numbers)
        state, parameter, multiplier, entries, largest = taken
        if self._is_open(state, largest):
            parameter, multiplier, factor = self._step_by_numpy(action, outcome)
            entries = np.square(factor).sum(axis=1)
        return parameter, multiplier, entries

    def _is_open(self, state: int, largest: float) -> bool:
        """Whether a kernel has left the projection open; raises if the step cannot be taken at all."""
        check_regularization(self.curvature.ridge, largest)
        if state == OVERFLOW:
            raise ArithmeticError("the step overflows")
        return state == NOT_PROJECTED

    def _step_by_numpy(self, action: Array, outcome: int) -> tuple[Array, float, Array]:
        """The step by the curvature's own code, and the factor of the Jacobian after it."""
        curvature, (residual, factor) = self.curvature, loss_at(self.parameter, action, outcome)
        frame, numbers = curvature.frame(action), (self.step_size, self.norm_bound)
        parameter, multiplier, _ = curvature.newton_step(frame, self.parameter, residual, factor, *numbers)
        factor = loss_at(parameter, action, 0).factor
        if isinstance(curvature, DiagonalCurvature):
            check_hessian(curvature.ridge, factor, action)
        return parameter, multiplier, factor

    def _step_by_inverse(self, action: Array, image: Array, outcome: int) -> tuple[Array, float]:
        """`DenseCurvature.newton_step` with kernels."""
        taken = step_by_inverse(self.parameter, action, image, outcome, self.step_size, self.norm_bound)
        parameter, largest, rows, definite = taken
        self._check(largest, definite)
        if not len(rows):
            return parameter, 0.0

        def apply_inverse(vector: Array) -> Array:
            return np.asarray(dsymv(1.0, self.curvature.inverse, vector, lower=1) - (rows @ vector) @ rows)

        point, multiplier = project_by_lanczos(apply_inverse, parameter.reshape(-1), self.norm_bound)
        return point.reshape(parameter.shape), multiplier

    def _change_inverse(self, parameter: Array, action: Array, image: Array) -> None:
        """`DenseCurvature.add` with kernels."""
        largest, rows, definite = change_of_inverse(parameter, action, image)
        self._check(largest, definite)
        dsyrk(-1.0, rows.T, beta=1.0, c=self.curvature.inverse, lower=1, overwrite_c=1)
        self.curvature.updates += 1

    def _check(self, largest: float, definite: bool) -> None:
        check_regularization(self.curvature.regularization, largest)
        if not definite:
            raise ArithmeticError(f"a matrix of order {self.rewards.size} is not positive definite")


def _smallest(core: Array, count: int) -> tuple[Array, Array]:
    """The smallest eigenvalues of a core, ascending, and their eigenvectors as rows."""
    if count == 1:
        value, vector, certain = smallest_eigenpair(core)
        if certain:
            return np.array([value]), vector[None]
    elif count <= LANES and len(core) < BLOCKED:
        values, vectors, certain = smallest_by_bisection(core, count)
        if certain:
            return values, vectors
    values, vectors = smallest_eigenpairs(core, count)
    return values, np.ascontiguousarray(vectors.T)


def _writable(array: Array) -> Array:
    """The array, or a copy if it is read-only or not aligned, for which numba would compile anew."""
    return array if array.flags.behaved else array.copy()


class _Compiling(CompiledPolicy):
    """The policy whose rounds compile the kernels."""

    _waits = False


@cache
def compile_kernels() -> None:
    """Compile the kernels by playing a tiny problem, so that no later round waits for the compiler.

    Those of sparse actions are not among them: they are compiled when the first such action is played.
    """
    settings: dict[str, Any] = {"step_size": 5.0, "norm_bound": 0.5, "radius": ConstantRadius(0.1)}
    identity = np.eye(_TINY)
    for n_outcomes in (1, 2):
        for curvature in (
            DenseCurvature(n_outcomes, _TINY, 1.0),
            GrowingRidge(n_outcomes, _TINY, 1.0),
            DiagonalCurvature(n_outcomes, _TINY, 1.0),
            FrequentDirections(n_outcomes, _TINY, 1.0, sketch_size=2),
        ):
            policy = _Compiling(curvature, np.ones(n_outcomes), **settings)
            for actions in identity[np.arange(2 * _TINY)[:, None] % _TINY - np.arange(2)]:
                policy.update(actions[policy.select(actions)], 0)
            policy.update(np.zeros(_TINY), 0)  # an action for which a kernel finds no frame
    # The calls below compile what so small a problem does not use.
    estimate = policy._estimate(identity, np.ones(_TINY))
    policy._best_by_blas(estimate, Bonus(0.1, 0.5, 1.0, 0.0, 0.0))
    movement(policy.parameter, policy.parameter, identity[0], 0, 1.0, 0.0)
    observed_surplus(np.zeros(2), np.zeros(2), 0, np.eye(2), 1.0, 0.0, 1.0, 1.0)
    sketch = policy.curvature
    view = Sketch(sketch._rows, sketch.core, policy._upper())
    frame = Frame(np.zeros_like(view.core[:2]), np.empty((2, 0)))
    taken = Step(NOT_PROJECTED, 2.0 * policy.parameter, 0.0, view.core, 0.0)
    policy._projected(view, frame, taken, identity[0])
    for order in (_TINY, BLOCKED):
        smallest_eigenpair(np.eye(order) + 0.1)
    smallest_by_bisection(identity, 2)
