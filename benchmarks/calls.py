"""Where a compiled round goes at small sizes: in kernels, in the checks of the input, and between the calls.

The functions that a round calls are replaced by the same ones with a clock around them. The time between the
calls is that of the round less that of all these functions; a kernel's time includes what numba takes to read
its arguments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.plan import SEED, Size, problem, settings
from compendium.experiments.timing import digits
from mlogb_core.policies import eofd, newton, optimistic

#: Sizes at which a round takes many times its limit from counted operations and bytes.
SIZES = (Size(4, 100, 40), Size(1, 400, 40), Size(1, 785, 78))
CHECKS = ("as_actions", "as_vector")
KERNELS = ("choose_by_sketch", "step_and_shrink", "step", "step_in_frame", "shrink", "deflate", "_smallest")


def rows(sizes: Sequence[Size] = SIZES, warmup: int = 100, n_rounds: int = 400) -> list[dict[str, Any]]:
    """One row for each size; needs numba.

    Parameters
    ----------
    sizes : sequence of Size
        (K, d, m), in the tuned setting.
    warmup, n_rounds : int
        Rounds until the sketch is full, and rounds whose parts are timed.

    Returns
    -------
    list of dict
        Medians over the rounds in microseconds: `round_us`; `kernels_us`, which includes the Cholesky factor
        of the core; `checks_us`; and `between_us`.
    """
    return [_row(size, warmup, n_rounds) for size in sizes]


def _row(size: Size, warmup: int, n_rounds: int) -> dict[str, Any]:
    # Imported only here, since numba is optional.
    from mlogb_core.compiled import algebra
    from mlogb_core.compiled import policy as compiled

    K, d, m = size
    environment, rng = problem("tuned", K, d), np.random.default_rng(SEED)
    arguments = settings("tuned", K, d)
    player = eofd(d, environment.rewards, sketch_size=m, compiled=True, **arguments)
    instance = environment.instance(rng)
    spent: dict[str, float] = {}
    found = []
    homes = {"as_actions": optimistic, "as_vector": newton, "cholesky": algebra}
    with _clocked([(homes.get(name, compiled), name) for name in (*CHECKS, *KERNELS, "cholesky")], spent):
        for t in range(warmup + n_rounds):
            candidates, uniform = instance.actions(rng), float(rng.random())
            spent.clear()
            start = time.perf_counter()
            action = player.select(candidates.features)
            selected = time.perf_counter() - start
            outcome = candidates.outcome(action, uniform)
            start = time.perf_counter()
            player.update(candidates.row(action), outcome)
            whole = selected + time.perf_counter() - start
            if t >= warmup:
                checks = sum(spent.get(name, 0.0) for name in CHECKS)
                found.append((whole, checks, whole - sum(spent.values())))
    whole, checks, between = (float(f"{1e6 * value:.4g}") for value in np.median(found, axis=0))
    return {
        "K": K, "d": d, "m": m, "rounds": n_rounds, "round_us": whole,
        "checks_us": checks, "between_us": between, "kernels_us": digits(whole - checks - between),
    }  # fmt: skip


@contextmanager
def _clocked(places: Sequence[tuple[Any, str]], spent: dict[str, float]) -> Iterator[None]:
    """Add up the seconds in functions, each given by its module and name, while the context is open."""
    with ExitStack() as stack:
        for module, name in places:
            stack.enter_context(patch.object(module, name, _with_clock(getattr(module, name), name, spent)))
        yield


def _with_clock(function: Callable[..., Any], name: str, spent: dict[str, float]) -> Callable[..., Any]:
    def clocked(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = function(*args, **kwargs)
        spent[name] = spent.get(name, 0.0) + time.perf_counter() - start
        return result

    return clocked
