"""What the simulation asks of a policy."""

from __future__ import annotations

from typing import Protocol

from numpy.typing import ArrayLike


class Policy(Protocol):
    """What the simulation asks of a policy."""

    margin: float

    def select(self, actions: ArrayLike) -> int:
        """Index of the action to play; does not change what the policy has learned."""

    def update(self, action: ArrayLike, outcome: int) -> None:
        """Learn from the outcome of any action, selected or not."""
