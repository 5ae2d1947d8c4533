r"""Budgeted Frequent Directions: m grows where a shrink would subtract more than the budget allows.

The budget of a round is :math:`b_t \le \varepsilon\lambda`. While :math:`\rho` and the next amount together
exceed it, m grows by one direction. So :math:`\rho \le \varepsilon\lambda` on every stream, and with it
:math:`H \preceq (1 + \varepsilon) Z`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from mlogb_core._validation import Array, as_flag, as_integer, as_non_negative, as_positive, take
from mlogb_core.curvature.growing import GrowingFrequentDirections


class BudgetedFrequentDirections(GrowingFrequentDirections):
    r"""Sketch :math:`Z = (\lambda + \alpha) I + B^\top C B` whose error stays within a budget.

    Parameters
    ----------
    n_outcomes, n_features, regularization, sketch_size
        As in `GrowingFrequentDirections`; m = 1 at first wastes nothing.
    budget : float
        :math:`\varepsilon > 0`.
    horizon : int
        T >= 1. In round t the budget is :math:`b_t = \varepsilon\lambda\min(t/T, 1)`.
    open_ended : bool
        If the number of rounds is not known: :math:`b_t = \varepsilon\lambda\,t/(t + T)`, where T is a guess.
    largest_size : int, optional
        The largest m, at least `sketch_size`. By default m may grow to Kd, where the sketch is exact.
    compensate : bool
        What happens once m is the largest and a shrink would exceed the budget. If false, the sketch loses
        more than the budget, which `error` tells. If true, such a shrink adds all that it subtracts to the
        ridge, so that the bound by the budget still holds.

    Attributes
    ----------
    rounds : int
        t, the number of rounds so far.
    returned : float
        :math:`\alpha`, the part of `shrinkage` that is in the ridge.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Not in the paper, which leaves the choice of m open. A shrink from m directions takes at least m + 1 times
    its amount from the trace. Without a largest size
    :math:`\rho \le b_t \le \varepsilon\lambda`; with one and `compensate`
    :math:`\frac{\lambda}{\lambda + \alpha} Z \preceq H \preceq (1 + \varepsilon) Z`.
    """

    arguments = (
        *GrowingFrequentDirections.arguments,
        "budget",
        "horizon",
        "open_ended",
        "largest_size",
        "compensate",
    )

    def __init__(
        self,
        n_outcomes: int,
        n_features: int,
        regularization: float,
        sketch_size: int,
        budget: float,
        horizon: int,
        open_ended: bool = False,
        largest_size: int | None = None,
        compensate: bool = False,
    ) -> None:
        super().__init__(n_outcomes, n_features, regularization, sketch_size)
        self.budget = as_positive("budget", budget)
        self.horizon = as_integer("horizon", horizon, minimum=1)
        self.open_ended = as_flag("open_ended", open_ended)
        if largest_size is None:
            largest_size = max(self.n_outcomes * self.n_features, self.sketch_size)
        self.largest_size = as_integer("largest_size", largest_size, minimum=1)
        if self.largest_size < self.sketch_size:
            raise ValueError(
                f"largest_size must be at least sketch_size = {self.sketch_size}, got {largest_size}"
            )
        self.compensate = as_flag("compensate", compensate)
        self.rounds = 0
        self.returned = 0.0

    @property
    def ridge(self) -> float:
        r""":math:`\lambda + \alpha`."""
        return self.regularization + self.returned

    @property
    def error(self) -> float:
        r""":math:`\rho - \alpha`, what is not returned: :math:`H \preceq Z + (\rho - \alpha) I`."""
        return self.shrinkage - self.returned

    @property
    def allowance(self) -> float:
        r""":math:`b_t`, the budget up to and including the coming round."""
        t, T = self.rounds + 1, self.horizon
        share = t / (t + T) if self.open_ended else min(t / T, 1.0)
        return self.budget * self.regularization * share

    def state_dict(self) -> dict[str, Any]:
        """Everything that `from_state` needs, as arrays and numbers."""
        return super().state_dict() | {"rounds": self.rounds, "returned": self.returned}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild the sketch from `state_dict`."""
        sketch = super().from_state(state)
        sketch.rounds = as_integer("rounds", take(state, "rounds"), minimum=0)
        sketch.returned = as_non_negative("returned", take(state, "returned"))
        return sketch

    def _dropped(self, values: Array) -> int:
        room = self.largest_size - self.sketch_size
        count, fewest = len(values), max(len(values) - room, 0)
        while count > fewest and self._exceeds(float(values[count - 1])):
            count -= 1
        return count

    def _exceeds(self, amount: float) -> bool:
        """Whether one more shrink, by this amount, would exceed the budget."""
        return self.error + amount > self.allowance

    def _end_round(self, core: Array, discarded: float = 0.0) -> None:
        """Keep the new core, let m grow to its order, and return a shrink beyond the budget."""
        goes_back = self.compensate and self._exceeds(discarded)
        if len(core) > self.sketch_size:
            self._grow(len(core), rank=len(core))
        super()._end_round(core, discarded)
        self.returned += discarded if goes_back else 0.0
        self.rounds += 1
