r"""Frequent Directions in phases: m doubles where a phase would lose more than its budget.

The rule needs no number of rounds. A phase of size m loses at most the sum of the eigenvalues beyond the m-th
of the sum of all Hessians, so that it ends only if they add up to more than its budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from mlogb_core._validation import Array, as_flag, as_integer, as_non_negative, as_positive, take
from mlogb_core.curvature.growing import GrowingFrequentDirections


class DoublingFrequentDirections(GrowingFrequentDirections):
    r"""Sketch :math:`Z = \lambda I + B^\top C B` of m directions, where m doubles from phase to phase.

    Parameters
    ----------
    n_outcomes, n_features, regularization, sketch_size
        As in `GrowingFrequentDirections`.
    budget : float
        :math:`\varepsilon > 0`.
    falling : bool
        If true, phase j = 0, 1, ... has the budget
        :math:`\frac{\varepsilon\lambda}{(j+1)(j+2)}`, so that :math:`\rho \le \varepsilon\lambda` at all
        times. If false, every phase has :math:`\varepsilon\lambda`, so that
        :math:`\rho \le (j + 1)\varepsilon\lambda`.

    Attributes
    ----------
    phase : int
        j, the number of doublings so far.
    phase_start : float
        :math:`\rho` at the start of the phase.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Not in the paper. Let :math:`m_*` be the smallest size such that the eigenvalues of the sum of all
    Hessians beyond the :math:`m_*`-th add up to at most the budget of a phase. Without `falling`, m is its
    first value or less than :math:`2m_*`.
    """

    arguments = (*GrowingFrequentDirections.arguments, "budget", "falling")

    def __init__(
        self,
        n_outcomes: int,
        n_features: int,
        regularization: float,
        sketch_size: int,
        budget: float,
        falling: bool = False,
    ) -> None:
        super().__init__(n_outcomes, n_features, regularization, sketch_size)
        self.budget = as_positive("budget", budget)
        self.falling = as_flag("falling", falling)
        self.phase = 0
        self.phase_start = 0.0

    def allowance(self, phase: int) -> float:
        """The budget of a phase."""
        share = 1.0 / ((phase + 1) * (phase + 2)) if self.falling else 1.0
        return self.budget * self.regularization * share

    def state_dict(self) -> dict[str, Any]:
        """Everything that `from_state` needs, as arrays and numbers."""
        return super().state_dict() | {"phase": self.phase, "phase_start": self.phase_start}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild the sketch from `state_dict`."""
        sketch = super().from_state(state)
        sketch.phase = as_integer("phase", take(state, "phase"), minimum=0)
        sketch.phase_start = as_non_negative("phase_start", take(state, "phase_start"))
        return sketch

    def _dropped(self, values: Array) -> int:
        count, size, phase = len(values), self.sketch_size, self.phase
        lost = self.shrinkage - self.phase_start
        while count and lost + values[count - 1] > self.allowance(phase):
            count, size, phase, lost = max(count - size, 0), 2 * size, phase + 1, 0.0
        return count

    def _end_round(self, core: Array, discarded: float = 0.0) -> None:
        """Keep the new core. Until there is room for its order, m doubles and another phase begins."""
        size, phase = self.sketch_size, self.phase
        while len(core) > size:
            size, phase = 2 * size, phase + 1
        if phase > self.phase:
            self._grow(size, rank=len(core))
            self.phase, self.phase_start = phase, self.shrinkage
        super()._end_round(core, discarded)
