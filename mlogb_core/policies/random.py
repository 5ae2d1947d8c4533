"""Uniformly random play."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from mlogb_core._ownership import Owned
from mlogb_core._state import as_generator, generator_from, generator_state
from mlogb_core._validation import is_sparse
from mlogb_core.propensity import Propensities


class RandomPolicy(Owned):
    """Uniformly random play, the baseline that learns nothing.

    Parameters
    ----------
    rng : numpy.random.Generator
        The stream of its draws.

    Raises
    ------
    ValueError
        If `rng` is something else.
    """

    margin = np.inf

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = as_generator(rng)

    def select(self, actions: ArrayLike) -> int:
        """Index of a uniformly random action of an (n, d) set, n >= 1."""
        return int(self.rng.integers(_number_of(actions)))

    def probabilities(self, actions: ArrayLike) -> Propensities:
        """With which probability each action is selected: 1/n, exactly."""
        n_actions = _number_of(actions)
        return Propensities.exact(np.full(n_actions, 1.0 / n_actions))

    def update(self, action: ArrayLike, outcome: int) -> None:
        """Learn nothing."""

    def state_dict(self) -> dict[str, Any]:
        """The state of the stream, as JSON."""
        return {"rng": generator_state(self.rng)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild the policy from `state_dict`, for any of NumPy's bit generators.

        Raises
        ------
        ValueError
            If the entry is missing, or is not the state of such a generator.
        """
        return cls(generator_from(state))


def _number_of(actions: ArrayLike) -> int:
    rows = actions if is_sparse(actions) else np.atleast_1d(np.asarray(actions))
    n_actions = int(rows.shape[0])
    if n_actions < 1:
        raise ValueError("actions must have shape (n, d) with n >= 1, got n = 0")
    return n_actions
