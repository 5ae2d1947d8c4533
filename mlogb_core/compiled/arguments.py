r"""The arguments and results of kernels, as named tuples, whose fields numba knows by name.

K is the number of outcomes, d the number of features, r the rank of the sketch, and n the rank together with
the fresh directions of a round. Arrays are row-major, writable and of float64 unless stated otherwise.

Passing a named tuple from Python to a kernel costs numba half a microsecond, and a plain tuple a tenth of
that. So the kernels that are called in every round take `Bonus` and `Settings` as plain tuples and convert
them first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlogb_core._validation import Array

Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]
Numbers = tuple[float, ...]

#: Returned in place of an action's index if a score overflows.
NO_ACTION = -1

# The states in which a kernel leaves a step.
#: The step is complete.
DONE = 0
#: The action is nearly in the span of the basis, so that the frame has to be computed with more care.
WITHOUT_FRAME = 1
#: The step is projected by other means, as its Krylov space is too small. The core is that of the step's
#: matrix.
NOT_PROJECTED = 2
#: The step overflows.
OVERFLOW = 3
#: The step is complete and the shrink that follows is not.
NOT_SHRUNK = 4


class Sketch(NamedTuple):
    r"""The low-rank part of :math:`Z = \lambda I + B^\top C B`, and room for the directions of a round."""

    rows: Array  #: (at least r, Kd): B, followed by the room for fresh directions
    core: Array  #: (r, r): C
    upper: Array  #: (r, r): the upper triangular R with R'R = lambda I + C


class Candidates(NamedTuple):
    """Scores of n actions without the bonus, and all that the bonus depends on other than A(x)."""

    actions: Array  #: (n, d)
    squares: Array  #: (n,): squared lengths
    value: Array  #: (n,)
    slopes: Array  #: (n, K): the Jacobian times the rewards; ones for K = 1, where the score is the logit


class Bonus(NamedTuple):
    """The numbers in the bonus and in the rule of the choice."""

    beta: float  #: the squared radius
    half_sum: float  #: half the sum of the rewards
    ridge: float  #: the ridge of Z, lambda or what it has grown to
    tie_tolerance: float
    slack: float  #: `_thresholds.SLACK`


class Search(NamedTuple):
    """The state of the search for the best of n actions; its arrays change as actions are scored."""

    upper: Array  #: (n,): upper bounds of the scores
    order: Indices  #: (n,): the actions by falling upper bounds
    scores: Array  #: (n,)
    known: Flags  #: (n,): whether the action has been scored
    finite: bool  #: whether all upper bounds are finite


class Batch(NamedTuple):
    """The actions to score next and, if there are none, the choice."""

    actions: Indices
    action: int
    margin: float


class Played(NamedTuple):
    """A round: the action, its image under the curvature, and the outcome."""

    action: Array  #: (d,)
    image: Array  #: (K, r) in the basis of a sketch, (K, Kd) for the full matrix
    outcome: int


class Settings(NamedTuple):
    """The numbers of a step over a sketch, and the thresholds of `mlogb_core._thresholds`."""

    step_size: float
    ridge: float  #: the ridge of Z, lambda or what it has grown to
    norm_bound: float
    roundoff: float
    smallest_square: float
    well_outside: float
    outside: float
    overlap: float


class Frame(NamedTuple):
    r"""Coordinates :math:`(I \otimes x)^\top = G B + T E` in the basis and in k fresh directions."""

    inside: Array  #: (K, r): G
    outside: Array  #: (K, k): T


class Loss(NamedTuple):
    """Derivatives of the loss in the logits: the gradient, and F with the Hessian FF'."""

    residual: Array  #: (K,)
    factor: Array  #: (K, K)


class Step(NamedTuple):
    """A projected step over a sketch, complete or not."""

    state: int  #: `DONE`, `WITHOUT_FRAME`, `NOT_PROJECTED` or `OVERFLOW`
    parameter: Array  #: (K, d)
    multiplier: float
    core: Array  #: (n, n): in the joint basis, with the Hessian at the new parameter
    largest: float  #: the largest entry on the diagonal of the core


class Projection(NamedTuple):
    """A point in coordinates of the joint basis, the multiplier, and whether the error is only roundoff."""

    point: Array
    multiplier: float
    settled: bool
