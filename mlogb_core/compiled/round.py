"""The update of a sketch by a single kernel: the step, the weakest directions and the shrink."""

from __future__ import annotations

import numpy as np

from mlogb_core._validation import Array
from mlogb_core.compiled.arguments import DONE, NOT_SHRUNK, Numbers, Settings
from mlogb_core.compiled.eigenpair import smallest_by_kernel
from mlogb_core.compiled.kernel import kernel
from mlogb_core.compiled.shrink import deflate, shrink
from mlogb_core.compiled.step import step
from mlogb_core.compiled.tridiagonal import LANES, smallest_by_bisection

_EPS = float(np.finfo(np.float64).eps)


@kernel
def step_and_shrink(
    rows: Array,
    core: Array,
    upper: Array,
    parameter: Array,
    action: Array,
    image: Array,
    outcome: int,
    numbers: Numbers,
    size: int,
) -> tuple[int, Array, Array, float]:
    """`step`, and then a shrink to `size` directions if there are more.

    Returns the state, the new parameter, the new core, and what the shrink subtracts. Unless the state is
    `DONE`, the sketch is as it was, and the round is to be played in several parts: also where an error is to
    be raised, or where the weakest directions are not certain.
    """
    taken, settings = step(rows, core, upper, parameter, action, image, outcome, numbers), Settings(*numbers)
    n = taken.core.shape[0]
    if taken.state != DONE:
        return taken.state, taken.parameter, taken.core, 0.0
    if n > size + LANES or not _EPS * taken.largest <= settings.ridge:
        return NOT_SHRUNK, taken.parameter, taken.core, 0.0
    if n <= size:
        return DONE, taken.parameter, taken.core, 0.0
    if n == size + 1:
        value, vector, certain = smallest_by_kernel(taken.core)
        removed = vector.reshape((1, n))
    else:
        values, removed, certain = smallest_by_bisection(taken.core, n - size)
        value = values[n - size - 1]
    if not certain:
        return NOT_SHRUNK, taken.parameter, taken.core, 0.0
    discarded = max(value, 0.0)
    shrunk, scaled = shrink(taken.core, removed, size, discarded)
    deflate(rows[:n], removed, scaled, size)
    return DONE, taken.parameter, shrunk, discarded
