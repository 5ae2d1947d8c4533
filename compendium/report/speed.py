"""Whether a goal for the time of a round can be met at equal regret, and what stands in its way.

A round that holds one number in place of the Hessian is the cheapest of the optimistic ones: it scores
actions, computes probabilities and takes a step, and nothing else. If that is too slow, no curvature meets
the goal. A sketch takes longer the more directions it has, so that the goal bounds its rank; whether it is
met then depends on the regret of the sketches up to that rank.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from compendium.report.equal_regret import EQUAL, LEARNED, MORE, UNDECIDED


class RoundTime(NamedTuple):
    r"""The time of a sketch's round as a function of its rank, :math:`t(m) = a + b m + c m^2`.

    Attributes
    ----------
    fixed : float
        a: scores, probabilities and step, the K x K blocks of the bonus, and one call of each LAPACK routine.
    per_direction : float
        b: passes over the m x Kd basis.
    per_pair : float
        c: factors and eigenpairs of matrices of order m + K. Their cubic cost does not show at small orders.
    """

    fixed: float
    per_direction: float
    per_pair: float

    def at(self, rank: float) -> float:
        """The time at a rank."""
        return self.fixed + self.per_direction * rank + self.per_pair * rank**2

    def largest_rank(self, limit: float) -> float:
        """The largest rank, not rounded, whose round takes no longer than a limit; negative if none does."""
        if limit < self.fixed:
            return -1.0
        if self.per_direction == self.per_pair == 0:
            return math.inf
        room = limit - self.fixed  # the root that keeps its digits if c is small or 0
        return 2 * room / (self.per_direction + math.sqrt(self.per_direction**2 + 4 * self.per_pair * room))


def fit_round_time(ranks: Sequence[float], times: Sequence[float]) -> RoundTime:
    """Fit `RoundTime` to measured times; every coefficient is at least 0.

    Parameters
    ----------
    ranks, times : sequence of float
        Ranks, and the time of a round at each, above 0. The sum of squared relative errors is minimised.

    Raises
    ------
    ValueError
        If there are no times, or one of them is not above 0.
    """
    m, t = np.asarray(ranks, dtype=float), np.asarray(times, dtype=float)
    if t.size == 0 or m.shape != t.shape or not (t > 0).all():
        raise ValueError(f"times must be above 0, one for each rank, got {list(times)} for {list(ranks)}")
    (fixed, slope, square), _ = nnls(
        np.stack([np.ones_like(m), m, m**2], axis=1) / t[:, None], np.ones_like(t)
    )
    return RoundTime(float(fixed), float(slope), float(square))


#: What can be said of a goal.
REACHED, SILENT, TOO_SLOW, TOO_MUCH, OPEN = "reached", "silent", "too slow", "too much regret", "open"


def reach(rows: pd.DataFrame, *, full: str, single: str, sketches: Mapping[str, RoundTime]) -> dict[str, Any]:
    """What can be said of the goal on one problem.

    Parameters
    ----------
    rows : DataFrame
        One row per contender of one problem: `policy`, `memory`, `ms` of a round, `target`, how many times as
        fast as the full Hessian a round is meant to be, the `verdict` on its regret, and the `share` of the
        regret of random play that the full Hessian has.
    full, single : str
        The policy with the full Hessian, and the one that holds one number in its place.
    sketches : mapping of str to RoundTime
        The model of the time of each policy with a sketch.

    Returns
    -------
    dict
        Plain values: `target`; `allowed`, the milliseconds that a round may take; `single`, those of the
        fastest round with one number; `fixed` and `rank`, by sketch, the milliseconds of a round as the rank
        goes to 0, and the largest rank that is fast enough (None if none is); `equal`, `undecided` and
        `more`, the contenders that are fast enough, by the verdict on their regret; and `outcome`:

        - ``silent``: the full Hessian has hardly learned, so that equal regret says nothing;
        - ``reached``: a contender that is fast enough has equal regret;
        - ``too slow``: a round with one number takes longer than that, so that no curvature meets the goal;
        - ``too much regret``: all that are fast enough have certainly more regret;
        - ``open``: for some of them neither is certain.
    """
    own = rows[rows["policy"] != full]
    target, share = float(rows["target"].iloc[0]), float(rows["share"].iloc[0])
    allowed = float(rows.loc[rows["policy"] == full, "ms"].iloc[0]) / target
    cheapest = float(own.loc[own["policy"] == single, "ms"].min())
    fast = own[own["ms"] <= allowed]
    places = fast["policy"] + ", " + fast["memory"]
    names = {one: places[fast["verdict"] == one].tolist() for one in (EQUAL, UNDECIDED, MORE)}
    if share > LEARNED:
        outcome = SILENT
    elif names[EQUAL]:
        outcome = REACHED
    elif cheapest > allowed:
        outcome = TOO_SLOW
    else:
        outcome = OPEN if names[UNDECIDED] else TOO_MUCH
    ranks = {policy: model.largest_rank(allowed) for policy, model in sketches.items()}
    within = {policy: round(rank, 1) if 0 <= rank < math.inf else None for policy, rank in ranks.items()}
    return {
        "target": target, "allowed": _digits(allowed), "single": _digits(cheapest),
        "fixed": {policy: _digits(model.fixed) for policy, model in sketches.items()},
        "rank": within, **names, "outcome": outcome,
    }  # fmt: skip


def obstacle(name: str, found: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    """One item of a list: what stands in the way of the goal on a problem, from what `reach` returns.

    Parameters
    ----------
    name : str
        The problem.
    found : mapping
        What `reach` returns.
    labels : mapping of str to str
        What the policies are called.
    """

    def listed(verdict: str) -> str:
        parts = (one.partition(", ") for one in found[verdict])
        return "; ".join(f"{labels[policy]}, {memory}" for policy, _, memory in parts)

    goal = f"the goal ({found['target']:g} times as fast)"
    head = f"- {name}, a round may take {found['allowed']:.3g} ms to meet {goal}"
    if found["outcome"] == SILENT:
        return f"{head}: nothing can be said, since the full Hessian itself has hardly learned."
    if found["outcome"] == REACHED:
        return f"{head}: it is met at equal regret by {listed(EQUAL)}."
    if found["outcome"] == TOO_SLOW:
        return (
            f"{head}, and one with a single number for the Hessian takes {found['single']:.3g} ms: no "
            "curvature meets the goal in this form, whatever its regret."
        )
    told = [
        f"{labels[policy]} takes {found['fixed'][policy]:.3g} ms whatever its rank"
        + (
            ", which is too long already"
            if rank is None and found["fixed"][policy] > found["allowed"]
            else ""
        )
        + (f", and may have a rank of about {rank:.0f} at most" if rank is not None else "")
        for policy, rank in found["rank"].items()
    ]
    fast = len(found[MORE]) + len(found[UNDECIDED])
    text = (
        f"{head}. A round with one number for the Hessian takes {found['single']:.3g} ms, so that time "
        f"alone does not forbid it; {'; '.join(told)}. Of the {fast} contenders that are fast enough "
        f"{len(found[MORE])} certainly have more than 10 % more regret ({listed(MORE) or 'none'})"
    )
    if found["outcome"] == TOO_MUCH:
        return f"{text}: with none of the curvatures tried is the goal met."
    rest = f"for the others it is not certain ({listed(UNDECIDED)})"
    return f"{text}, and {rest}: the goal is neither met nor shown to be out of reach."


def _digits(milliseconds: float) -> float:
    return float(f"{milliseconds:.4g}")
