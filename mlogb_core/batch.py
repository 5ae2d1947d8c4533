"""Many contexts at once: the choices of a policy that learns nothing in between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mlogb_core._validation import as_actions
from mlogb_core.choice import choose
from mlogb_core.policies.base import Policy
from mlogb_core.policies.optimistic import OptimisticPolicy


def select_many(policy: Policy, action_sets: Sequence[ArrayLike]) -> NDArray[np.intp]:
    """Index of the action to play in each of many contexts, from what the policy knows now.

    Parameters
    ----------
    policy : Policy
        An optimistic policy scores the actions of all contexts in one product; any other one selects for one
        context after the other, so that a policy that draws makes a draw for each.
    action_sets : sequence of (n_i, d) arrays
        The actions of each context; their numbers may differ.

    Returns
    -------
    (n_contexts,) int array
        What `select` would return for each. The `margin` of the policy is then the smallest of all contexts.

    Raises
    ------
    ValueError
        If an action set has the wrong shape or is not finite; the message names the context.
    ArithmeticError
        If a score overflows.

    Notes
    -----
    The products of all actions are in memory together, K m numbers for each with a sketch of m directions.
    """
    if not isinstance(policy, OptimisticPolicy):
        return _one_by_one(policy, action_sets)
    checked = []
    for context, actions in enumerate(action_sets):
        with _named(context):
            checked.append(as_actions(actions, policy.curvature.n_features)[0])
    if not checked:
        return np.empty(0, dtype=np.intp)
    scores = np.split(policy.scores(np.concatenate(checked)), np.cumsum([len(a) for a in checked])[:-1])
    choices = [choose(part, policy.tie_tolerance) for part in scores]
    policy.margin = min(choice.margin for choice in choices)
    return np.array([choice.action for choice in choices], dtype=np.intp)


def _one_by_one(policy: Policy, action_sets: Sequence[ArrayLike]) -> NDArray[np.intp]:
    chosen, margin = [], np.inf
    for context, actions in enumerate(action_sets):
        with _named(context):
            chosen.append(policy.select(actions))
        margin = min(margin, policy.margin)
    if chosen and np.isfinite(margin):
        policy.margin = margin
    return np.array(chosen, dtype=np.intp)


@contextmanager
def _named(context: int) -> Iterator[None]:
    """Let the message of a ValueError name the context."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"context {context}: {error}") from error
