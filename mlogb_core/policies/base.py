"""The interface between a policy and the simulation."""

from __future__ import annotations

from typing import Protocol

from numpy.typing import ArrayLike


class Policy(Protocol):
    """What the simulation calls of a policy.

    Attributes
    ----------
    margin : float
        Decision margin of the last `select`; infinite for a policy that has none.
    """

    margin: float

    def select(self, actions: ArrayLike) -> int:
        """Index of the action to play, of an (n, d) set; what the policy has learned stays the same."""

    def update(self, action: ArrayLike, outcome: int) -> None:
        """Learn from the outcome, in 0..K, of any action, (d,), selected or not."""
