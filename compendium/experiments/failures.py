"""Policies whose errors are results: what raised, and in which round, instead of a study that stops."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mlogb_core.policies import Policy


class Guarded:
    """A policy whose first error is kept instead of raised.

    From the round of the error on it plays the first action and learns nothing. The regret of such a game
    says nothing about the policy, so whoever reads it has to ask for the failure.

    Parameters
    ----------
    policy : Policy
        Who plays.

    Attributes
    ----------
    failure : str or None
        The round, the kind and the message of the error, in one line.
    margin : float
        That of the policy's last choice; infinite after a failure.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.failure: str | None = None
        self.margin: float = policy.margin
        self._rounds = 0

    def select(self, actions: ArrayLike) -> int:
        """What the policy selects; 0 if it raises, or selects what is not there."""
        if self.failure is None:
            self._rounds += 1
            try:
                action = int(self.policy.select(actions))
                if not 0 <= action < len(np.asarray(actions)):
                    raise ValueError(f"selected action {action} of {len(np.asarray(actions))}")
            except Exception as error:  # whatever a policy raises is what is recorded
                self._fail(error)
            else:
                self.margin = self.policy.margin
                return action
        return 0

    def update(self, action: ArrayLike, outcome: int) -> None:
        """Let the policy learn, unless it has failed."""
        if self.failure is None:
            try:
                self.policy.update(action, outcome)
            except Exception as error:
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.margin = np.inf
        self.failure = f"round {self._rounds}: {type(error).__name__}: {' '.join(str(error).split())}"


def failure_of(policy: Any) -> str | None:
    """The failure of a guarded policy; None for one that has not failed or is not guarded."""
    return policy.failure if isinstance(policy, Guarded) else None


def unguarded(policy: Any) -> Any:
    """The policy itself, without its guard."""
    return policy.policy if isinstance(policy, Guarded) else policy
