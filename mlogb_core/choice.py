r"""Which action has the best score, and how far that is from being decided by roundoff.

The paper leaves ties open. In round 1 all actions of the same norm tie exactly, and a plain argmax
there is decided by the last bit; so ties have a stated tolerance and go to the lowest index.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlogb_core import _thresholds
from mlogb_core._validation import Array

TIE_TOLERANCE = 1e-10


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


@np.errstate(under="ignore")
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


@np.errstate(under="ignore")
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
    order = sorted(range(len(highest)), key=highest.__getitem__, reverse=True)
    lowest_of_all = min(lowest)
    slack = 2.0 * _thresholds.SLACK * max(highest[order[0]], -lowest_of_all)
    scores: dict[int, float] = {}
    batch = order[:batch_size]
    while True:
        batch.sort()
        scores.update(zip(batch, _finite(score(np.array(batch))), strict=True))
        known = sorted(scores)
        values = [scores[action] for action in known]
        choice, scale = _choose(values, tolerance), _scale(values)
        threshold = max(values) - scale * (tolerance + choice.margin) - slack
        batch_size *= 2
        batch = []
        for action in order:
            if len(batch) == batch_size or (highest[action] < threshold and -lowest_of_all <= scale):
                break
            if action not in scores and (highest[action] >= threshold or -lowest[action] > scale):
                batch.append(action)
        if not batch:
            return Choice(known[choice.action], choice.margin), len(known)


def _choose(scores: list[float], tolerance: float) -> Choice:
    best, scale = max(scores), _scale(scores)
    action, margin, own = -1, math.inf, scores.index(best)
    for a, score in enumerate(scores):
        gap = (best - score) / scale
        if action < 0 and gap <= tolerance:
            action = a
        if a != own:  # The margin compares the best score with the other ones.
            margin = min(margin, abs(gap - tolerance))
    return Choice(action, margin)


def _scale(scores: list[float]) -> float:
    return max(max(scores), -min(scores)) or 1.0


def _finite(scores: Array) -> list[float]:
    """The scores as a list, since for some thirty numbers Python's loops are faster than calls of NumPy."""
    values: list[float] = scores.tolist()
    if not math.isfinite(sum(values)) and not np.isfinite(scores).all():
        raise ArithmeticError(f"scores must be finite, got {scores[~np.isfinite(scores)][0]}: overflow")
    return values
