r"""Which action has the best score, and how far that is from being decided by roundoff.

The paper leaves ties open. In round 1 all actions of the same norm tie exactly, and a plain argmax
there is decided by the last bit; so ties have a stated tolerance and go to the lowest index.
"""

from __future__ import annotations

from collections.abc import Callable
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
    _check_finite(scores)
    best = float(scores.max())
    scale = max(best, -float(scores.min())) or 1.0
    gaps = (best - scores) / scale
    action = int((gaps <= tolerance).argmax())
    distances = np.abs(gaps - tolerance)
    distances[gaps.argmin()] = np.inf
    return Choice(action, float(distances.min()))


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
    _check_finite(upper)
    _check_finite(lower)
    reach = upper + _SLACK * (np.abs(lower) + np.abs(upper))
    order = np.argsort(-reach, kind="stable")
    scores = np.empty(len(order))
    open_, batch = np.ones(len(order), dtype=bool), order[:batch_size]
    while True:
        batch = np.sort(batch)
        scores[batch] = score(batch)
        open_[batch] = False
        known = np.flatnonzero(~open_)
        choice = choose(scores[known], tolerance)
        if len(known) == len(order):
            break
        best, scale = scores[known].max(), float(np.abs(scores[known]).max()) or 1.0
        matters = (reach >= best - scale * (tolerance + choice.margin)) | (-lower > scale)
        batch_size *= 2
        batch = order[(matters & open_)[order]][:batch_size]
        if not batch.size:
            break
    return Choice(int(known[choice.action]), choice.margin), len(known)


def _check_finite(scores: Array) -> None:
    if not np.isfinite(scores).all():
        raise ArithmeticError(f"scores must be finite, got {scores[~np.isfinite(scores)][0]}: overflow")
