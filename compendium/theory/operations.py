r"""Floating-point operations of a round: counted while it runs, and derived from (K, d, m).

`counted` records every ``@``, ``np.dot``, BLAS and LAPACK call of a policy with the operations that its
shapes imply, so that the counts depend neither on chance nor on the machine. A multiplication and an addition
are two operations, and factorisations have the leading terms of the textbooks. Entrywise work is not counted
(sums, exponentials, ``einsum``, ``vecdot``, Kronecker products, copies), nor are the eigenvalues of Lanczos'
tridiagonal matrices, whose order is about ten. Compiled kernels cannot be counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np

from mlogb_core import ConstantRadius, OptimisticPolicy, _linalg, eofd
from mlogb_core.curvature import FrequentDirections, dense

Cost = Callable[..., float]


@dataclass
class Operations:
    """Counts by the name of the routine; ``matmul`` stands for ``@`` and ``np.dot``.

    Attributes
    ----------
    flops, calls : Counter
        Floating-point operations and number of calls.
    """

    flops: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> float:
        """The floating-point operations of all routines."""
        return float(sum(self.flops.values()))

    def enter(self, kernel: str, flops: float) -> None:
        """Add one call."""
        self.flops[kernel] += flops  # type: ignore[assignment]  # counts of thirds are no integers
        self.calls[kernel] += 1


def _cubic(factor: float) -> Cost:
    return lambda a, *_, **__: float(np.prod(a.shape[:-2])) * factor * a.shape[-1] ** 3


def _solve(a: Any, b: Any, **_: Any) -> float:
    return 2 / 3 * float(len(a)) ** 3 + 2 * len(a) * np.size(b)


def _dot(a: Any, b: Any) -> float:
    return 2.0 * np.size(a) * np.size(b) / (np.shape(a)[-1] or 1)


def _singular(tall: float, square: float) -> Cost:
    def cost(a: Any, *_: Any, **__: Any) -> float:
        short, long = sorted(a.shape)
        return float(tall * long * short**2 + square * short**3)

    return cost


_VALUES, _SVD = _singular(4, -4 / 3), _singular(6, 20)
_EIGEN = _cubic(14 / 3)  # to tridiagonal form 4/3, divide and conquer 4/3, back 2
_BLAS: dict[str, Cost] = {
    "dgemm": lambda _, a, b, **__: 2 * a.size * b.shape[1],
    "dger": lambda _, x, y, **__: 2 * len(x) * len(y),
    "dtrsm": lambda _, a, b, **__: len(a) * b.size,
    "dtrsv": lambda a, x, **_: len(a) * len(x),
    "dpotrf": _cubic(1 / 3),
    "dpotrs": lambda a, b, **_: 2 * len(a) * b.size,
    "dtrtri": _cubic(1 / 3),
    "dgesv": _solve,
    "dsyevr": lambda a, iu, **_: 4 / 3 * len(a) ** 3 + 2 * len(a) ** 2 * iu,
    "dsyevx": lambda a, iu, **_: 4 / 3 * len(a) ** 3 + 2 * len(a) ** 2 * iu,
    "eigh": _EIGEN,
    "qr": lambda a, **_: 4 * a.shape[0] * a.shape[1] ** 2 - 4 / 3 * a.shape[1] ** 3,
}
_DENSE: dict[str, Cost] = {
    "dsymm": lambda _, a, b, **__: 2 * len(a) * b.size,
    "dsymv": lambda _, a, x, **__: 2 * len(a) * len(x),
    "dsyrk": lambda _, a, **__: len(a) * (len(a) + 1) * a.shape[1],
}
_NUMPY: dict[str, Cost] = {
    "svd": _SVD,
    "eigh": _EIGEN,
    "eigvalsh": _cubic(4 / 3),
    "solve": _solve,
    "norm": lambda a, order=None, **_: _VALUES(a) if order == 2 and np.ndim(a) == 2 else 0.0,
}
_WATCHED: dict[Any, dict[str, Cost]] = {_linalg: _BLAS, dense: _DENSE, np.linalg: _NUMPY}
_COUNTING: list[Operations] = []


class _Watched(np.ndarray):
    """An array whose products are counted; its views and the results of operations with it are too."""

    __array_priority__ = 1.0  # Concatenation with plain arrays gives such an array too.

    def __matmul__(self, other: Any) -> Any:
        return _product(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _product(other, self)


def _product(left: Any, right: Any) -> Any:
    result = np.matmul(left, right)
    for operations in _COUNTING:
        operations.enter("matmul", 2 * left.shape[-1] * np.size(result))
    return result


def _viewed(value: Any, kind: type[Any]) -> Any:
    """The array, or the tuple of arrays, as arrays of a kind; anything else as it is."""
    if isinstance(value, tuple):
        parts = [_viewed(part, kind) for part in value]
        return value._make(parts) if hasattr(value, "_make") else tuple(parts)
    return value.view(kind) if isinstance(value, np.ndarray) and value.dtype == np.float64 else value


def _hold(owner: Any, kind: type[Any]) -> None:
    for name, value in vars(owner).items():
        setattr(owner, name, _viewed(value, kind))


@contextmanager
def counted(policy: Any) -> Iterator[Operations]:
    """Count what a policy, of the library or of `literal`, computes inside the block.

    Parameters
    ----------
    policy : OptimisticPolicy or LiteralPolicy
        Its arrays are replaced by counting ones inside the block and restored after it; results are the same.

    Yields
    ------
    Operations
    """
    operations = Operations()
    owners = [policy, policy.curvature] if hasattr(policy, "curvature") else [policy]

    def watching(function: Any, kernel: str = "", cost: Cost | None = None) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            flops = cost(*arguments, **options) if cost else 0.0
            if flops:
                operations.enter(kernel, flops)
            return _viewed(function(*arguments, **options), _Watched)

        return call

    with ExitStack() as stack:
        for module, costs in _WATCHED.items():
            for kernel, cost in costs.items():
                call = watching(getattr(module, kernel), kernel, cost)
                stack.enter_context(patch.object(module, kernel, call))
        stack.enter_context(patch.object(np, "dot", watching(np.dot, "matmul", _dot)))
        for name in ("asarray", "ascontiguousarray"):  # they would drop the subclass
            stack.enter_context(patch.object(np, name, watching(getattr(np, name))))
        _COUNTING.append(operations)
        stack.callback(_COUNTING.remove, operations)
        for owner in owners:
            _hold(owner, _Watched)
            stack.callback(_hold, owner, np.ndarray)
        yield operations


def eofd_flops(
    K: int,
    d: int,
    m: int,
    *,
    actions: float,
    scored: float,
    newton: float = 0,
    solves: float = 0,
    corrected: bool = False,
    tracked: bool = False,
) -> tuple[float, float]:
    """Operations of EOFD's `select` and `update` with a full sketch.

    Parameters
    ----------
    K, d, m : int
        Outcomes, features and sketch size.
    actions, scored : float
        Size of the action set, and how many of them pruning leaves.
    newton, solves : float
        Cholesky factors of the projection and solutions with them, each of two triangular systems; 0 if
        the step is not projected. `projection_counts` reads both off a counted update.
    corrected : bool
        Whether the fresh directions are made orthonormal once more.
    tracked : bool
        Whether an earlier projection has left the coordinates of the parameter in the basis.

    Returns
    -------
    select, update : float
    """
    N, g = K * d, m + K
    h = g + 1  # of the projection, with the length outside the frame
    select = 2 * actions * N + m**3 / 3 + scored * (2 * N * m + K * m**2 + 4 * K**2 * m + 4 / 3 * K**3)
    frame = 4 * K * N * m + 2 * K * m**2 + 6 * K**2 * m
    frame += 2 * K * N * (m + 2 * K) if corrected else 0
    step = 2 * N * g + newton * h**3 / 3 + solves * 2 * h**2
    step += m**2 + 2 * (K + 1) * h**2 if newton else 0
    if tracked:  # The coordinates in fresh directions are computed, and all are reflected in the shrink.
        step += 2 * (K + 1) * N + 4 * K * g
    elif newton:
        step += 4 * N * g
    core = 4 / 3 * g**3 + 6 * K * g**2 + max(2 * K, 4) * m**2
    return select, frame + step + core + 2 * K * N * (g + m)


def projection_counts(update: Operations, K: int) -> dict[str, float]:
    """`newton` and `solves` of `eofd_flops`, from the calls of a counted `update` that follows a `select`.

    A solution with a Cholesky factor is one call of LAPACK up to order 100, and two calls of `dtrsv` beyond.
    Other calls have to be subtracted: `dtrsv` is called twice by the frame at K = 1 and once by the start of
    the root search, and `dpotrf` once by the frame at K > 1. A correction of the fresh directions at K > 1
    calls `dpotrf` once more and would be counted as a Newton step.
    """
    newton = update.calls["dpotrf"] - (K > 1)
    triangular = update.calls["dtrsv"] - 2 * (K == 1) - (newton > 0)
    return {"newton": newton, "solves": update.calls["dpotrs"] + triangular / 2}


def oful_flops(
    K: int, d: int, *, actions: float, scored: float, few: float = 0, lanczos: float = 0
) -> tuple[float, float]:
    """Operations of OFUL's `select` and `update`; arguments as in `eofd_flops`.

    `few` is the number of scored actions that come in batches of up to four, see `scored_in_few`, and
    `lanczos` the number of steps of Lanczos' method in the projection, 0 if there is none.
    """
    N = K * d
    images = scored * 2 * N**2 + few * 2 * N * d * (K > 1)  # The triangle of a diagonal block is read twice.
    change, steps = K * N * (N + 1) + 6 * K**2 * N, lanczos * (2 * N**2 + 4 * K * N + 2 * lanczos * N)
    return 2 * actions * N + images + scored * 2 * K * N, change + 2 * K * N + steps


def scored_in_few(policy: OptimisticPolicy) -> int:
    """How many actions the last `select` has scored in batches of up to four; batches double in size."""
    few, scored, size = 0, 0, policy._batch_size()
    while scored < policy.evaluated:
        batch = min(size, policy.evaluated - scored)
        few += batch if batch <= dense._FEW else 0
        scored, size = scored + batch, 2 * size
    return few


def filled_eofd(K: int, d: int, m: int, *, beta: float = 0.01, norm_bound: float = 1e3) -> OptimisticPolicy:
    """EOFD with a full sketch whose basis is unit vectors, with the shapes of a policy after m/K rounds.

    With this basis no fresh direction has to be orthogonalised a second time, so that the counts equal those
    of `eofd_flops` on every machine.
    """
    policy = eofd(
        d,
        np.arange(1, K + 1) / K,
        sketch_size=m,
        regularization=1.0,
        step_size=1.0,
        norm_bound=norm_bound,
        radius=ConstantRadius(beta),
    )
    basis = np.zeros((m, K * d))
    basis[np.arange(m), np.arange(m) * (K * d) // m] = 1.0
    full = {"basis": basis, "core": np.diag(np.linspace(1.0, 2.0, m)), "reserved": m}
    policy.curvature = FrequentDirections.from_state(policy.curvature.state_dict() | full)
    return policy
