r"""Which action has the best score, and how far that is from being decided by roundoff.

The paper leaves ties open. In round 1 all actions of the same norm tie exactly, and a plain argmax
there is decided by the last bit; so ties have a stated tolerance and go to the lowest index.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlogb_core._validation import Array

TIE_TOLERANCE = 1e-10

# What roundoff may do to a bound that is attained, as it is for actions that were never explored.
_SLACK = 1e-12


class Choice(NamedTuple):
    """An action's index and how far the choice is from another one.

    Attributes
    ----------
    action : int
        Index of the chosen action.
    margin : float
        Relative change of scores below which the choice stays the same.
    """

    action: int
    margin: float


def choose(scores: Array, tolerance: float = TIE_TOLERANCE) -> Choice:
    r"""Index of the best score; ties go to the lowest index.

    Scores within `tolerance` times the largest absolute score of the best one are ties. The
    margin is the smallest distance of any other score from that boundary, on the same scale: if
    all scores are computed to an accuracy below a quarter of the margin, on that scale, the choice
    does not depend on roundoff. It is the tolerance where actions tie exactly, and infinite for a
    single action.

    Parameters
    ----------
    scores : (n,) array
        One score per action.
    tolerance : float
        Relative tolerance of a tie.

    Returns
    -------
    Choice

    Raises
    ------
    ArithmeticError
        If a score is not finite, which takes actions or parameters that double precision cannot
        carry.

    Examples
    --------
    >>> choose(np.array([1.0, 1.0 + 1e-15, 0.5])).action
    0
    """
    return _choose(_finite(scores), tolerance)


def choose_pruned(
    lower: Array,
    upper: Array,
    score: Callable[[NDArray[np.intp]], Array],
    tolerance: float = TIE_TOLERANCE,
    batch_size: int = 2,
) -> tuple[Choice, int]:
    r"""The choice of `choose` among all scores, without computing all of them.

    Actions are scored in the order of their upper bounds, in batches that double in size, until no
    other one can change the choice, its margin or the scale of the tie rule.

    Parameters
    ----------
    lower, upper : (n,) array
        Bounds of the scores.
    score : callable
        Maps an increasing array of indices to the scores of these actions.
    tolerance : float
        Relative tolerance of a tie.
    batch_size : int
        Size of the first batch, at least 2: the margin needs a runner-up.

    Returns
    -------
    choice : Choice
    scored : int
        How many actions were scored.

    Raises
    ------
    ArithmeticError
        If a bound or a score is not finite.

    Examples
    --------
    >>> scores = np.array([0.3, 0.9, 0.1, 0.8])
    >>> choice, scored = choose_pruned(scores - 0.05, scores + 0.05, lambda index: scores[index])
    >>> choice.action, round(choice.margin, 3), scored
    (1, 0.111, 2)
    """
    highest, lowest = _finite(upper), _finite(lower)
    reach = [high + _SLACK * (abs(low) + abs(high)) for low, high in zip(lowest, highest, strict=True)]
    order = sorted(range(len(reach)), key=reach.__getitem__, reverse=True)
    scores: dict[int, float] = {}
    batch = order[:batch_size]
    while True:
        batch.sort()
        scores |= zip(batch, _finite(score(np.array(batch))), strict=True)
        known = sorted(scores)
        values = [scores[action] for action in known]
        choice = _choose(values, tolerance)
        scale = _scale(values)
        threshold = max(values) - scale * (tolerance + choice.margin)
        matters = (a for a in order if reach[a] >= threshold or -lowest[a] > scale)
        batch_size *= 2
        batch = list(islice((a for a in matters if a not in scores), batch_size))
        if not batch:
            return Choice(known[choice.action], choice.margin), len(known)


def _choose(scores: list[float], tolerance: float) -> Choice:
    best, scale = max(scores), _scale(scores)
    gaps = [(best - score) / scale for score in scores]
    action = next(a for a, gap in enumerate(gaps) if gap <= tolerance)
    del gaps[scores.index(best)]  # the best score itself has no distance from the boundary
    return Choice(action, min((abs(gap - tolerance) for gap in gaps), default=np.inf))


def _scale(scores: list[float]) -> float:
    return max(max(scores), -min(scores)) or 1.0


def _finite(scores: Array) -> list[float]:
    """The scores as a list: for some thirty of them Python's own loops take less time than NumPy's calls."""
    values: list[float] = scores.tolist()
    if not math.isfinite(sum(values)) and not np.isfinite(scores).all():
        raise ArithmeticError(f"scores must be finite, got {scores[~np.isfinite(scores)][0]}: overflow")
    return values
