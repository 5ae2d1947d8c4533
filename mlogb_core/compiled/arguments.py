r"""What the kernels take and give, as named tuples: numba knows their fields by name.

K is the number of outcomes, d that of features, r the rank of the sketch and n its rank with the fresh
directions of a round. All arrays are row-major, writable and of float64 unless it says otherwise.

To recognise a named tuple that comes from Python takes numba half a microsecond, and a plain one a tenth. So
the kernels of every round take `Bonus` and `Settings` as plain tuples, and name their fields first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlogb_core._validation import Array

Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]
Numbers = tuple[float, ...]

#: In place of an action's index: a score overflows.
NO_ACTION = -1


#: What a kernel has done of a step: all of it;
DONE = 0
#: all but the frame, as the action is nearly in the span of the basis;
WITHOUT_FRAME = 1
#: all but the projection, as its Krylov space has not settled: the core is that of the step's own matrix;
NOT_PROJECTED = 2
#: nothing, as the step overflows.
OVERFLOW = 3


class Sketch(NamedTuple):
    r"""The low-rank part of :math:`Z = \lambda I + B^\top C B`, and room for the directions of a round."""

    rows: Array  #: (at least r, Kd): B, and behind it the room
    core: Array  #: (r, r): C
    ridge: Array  #: (r, r): the upper triangular R with R'R = lambda I + C


class Candidates(NamedTuple):
    """Scores of n actions without the bonus, and what the bonus depends on besides A(x)."""

    actions: Array  #: (n, d)
    squares: Array  #: (n,): squared lengths
    value: Array  #: (n,)
    slopes: Array  #: (n, K): the Jacobian times the rewards; ones for K = 1, where the score is the logit


class Bonus(NamedTuple):
    """The numbers in the bonus and in the rule of the choice."""

    beta: float  #: the squared radius
    half_sum: float  #: half the sum of the rewards
    regularization: float
    tie_tolerance: float
    slack: float  #: the share that roundoff may add to a bound that is attained


class Search(NamedTuple):
    """What is known so far of the scores of n actions; the arrays change as actions are scored."""

    upper: Array  #: (n,): upper bounds of the scores
    order: Indices  #: (n,): the actions by falling upper bounds
    scores: Array  #: (n,)
    known: Flags  #: (n,): whether the action has been scored
    finite: bool  #: whether all bounds are


class Batch(NamedTuple):
    """The actions to score next; if there are none, the choice."""

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
    regularization: float
    norm_bound: float
    roundoff: float
    smallest_square: float
    well_outside: float
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
    """A projected step over a sketch, as far as it has been taken."""

    state: int  #: `DONE`, `WITHOUT_FRAME`, `NOT_PROJECTED` or `OVERFLOW`
    parameter: Array  #: (K, d)
    multiplier: float
    core: Array  #: (n, n): in the joint basis, with the Hessian at the new parameter
    largest: float  #: the largest entry on the diagonal of the core


class Projection(NamedTuple):
    """A point in coordinates of the joint basis, the multiplier, and whether roundoff alone is left."""

    point: Array
    multiplier: float
    settled: bool
