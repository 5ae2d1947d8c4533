"""Memory and time at equal regret: which is the smallest memory that plays like the full Hessian.

A saving counts only if the regret stays the same. Regret counts as equal where the 95 % interval of the
paired difference to the full Hessian lies below a tenth of the full Hessian's regret, so that a policy that
is better is equal too, and one that was played on too few streams is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from compendium.report.tables import interval

#: How much more regret than the full Hessian's still counts as equal.
TOLERANCE = 0.1
EQUAL, MORE, UNDECIDED = "equal", "more", "undecided"
_KEYS = ["group", "policy"]


def relative_regret(regret: pd.DataFrame, reference: str) -> pd.DataFrame:
    """What each policy, at each amount of memory, has more than a reference on the same streams.

    Parameters
    ----------
    regret : DataFrame
        Columns group, policy, trial, regret, as of `compendium.experiments.by_group`.
    reference : str
        Name of a policy that plays in one group.

    Returns
    -------
    DataFrame
        One row per group and policy, in their order: `regret`, the mean; `mean`, `low` and `high`, the mean
        difference within trials and its 95 % interval, over the mean of the reference; `verdict`, whether the
        regret is equal, more, or neither is certain.
    """
    base = regret[regret["policy"] == reference].set_index("trial")["regret"]
    if base.empty or base.index.has_duplicates:
        raise ValueError(f"reference must play in exactly one group, got {reference!r}")
    rows = []
    for (group, policy), part in regret.groupby(_KEYS, sort=False):
        difference = (part.set_index("trial")["regret"] - base) / base.mean()
        mean, low, high = interval(difference)
        found = {"group": group, "policy": policy, "regret": float(part["regret"].mean())}
        rows.append(found | {"mean": mean, "low": low, "high": high, "verdict": verdict(low, high)})
    return pd.DataFrame(rows)


def verdict(low: float, high: float) -> str:
    """Whether an interval of the relative difference says that regret is equal, that it is more, or neither.

    Examples
    --------
    >>> verdict(-0.3, 0.05), verdict(0.12, 0.2), verdict(0.05, 0.2), verdict(float("nan"), float("nan"))
    ('equal', 'more', 'undecided', 'undecided')
    """
    if high <= TOLERANCE:
        return EQUAL
    return MORE if low > TOLERANCE else UNDECIDED


def smallest_equal(rows: pd.DataFrame) -> int | None:
    """The place of the smallest memory with equal regret; None if there is none.

    Parameters
    ----------
    rows : DataFrame
        The rows of one policy of `relative_regret`, by increasing memory.

    Returns
    -------
    int or None
        Position of the first row whose regret is equal and after which none has certainly more: a small
        memory that is equal by chance does not count if a larger one is not.
    """
    chosen = None
    for place in reversed(range(len(rows))):
        if rows["verdict"].iloc[place] == MORE:
            break
        if rows["verdict"].iloc[place] == EQUAL:
            chosen = place
    return chosen


def spread_over_grid(regret: pd.DataFrame, least: float) -> pd.DataFrame:
    """How the regret of each policy is distributed over the grid of parameters.

    Parameters
    ----------
    regret : DataFrame
        Columns group, policy, point, trial, regret of the tuning streams.
    least : float
        The regret that everything is divided by, such as the least mean of the full Hessian.

    Returns
    -------
    DataFrame
        One row per group and policy: `best`, `median` and `worst` mean regret of a point over `least`, and
        `within`, the share of points with at most one and a half times the policy's own best.
    """
    means = regret.groupby([*_KEYS, "point"], sort=False)["regret"].mean() / least
    rows = []
    for (group, policy), values in means.groupby(_KEYS, sort=False):
        best = float(values.min())
        rows.append(
            {
                "group": group, "policy": policy, "best": best, "median": float(values.median()),
                "worst": float(values.max()), "within": float((values <= 1.5 * best).mean()),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


#: The policy whose matrix is one number that grows, and what the sketches are called beside it.
_NUMBER = "growing-ridge"
_SKETCHES = {
    "eofd": "the paper's sketch",
    "robust-eofd": "Robust Frequent Directions",
    "compensated-eofd": "the sketch that gives all back",
    "budgeted-eofd": "the one with a budget",
}
#: Above this share of random play the full Hessian has hardly learned, and a problem says nothing.
LEARNED = 0.9


def sentence(rows: Sequence[Mapping[str, Any]]) -> str:
    """What sketches are worth beside a matrix that is one growing number, for the first page.

    Parameters
    ----------
    rows : sequence of mapping
        The findings `smallest` of the recorded runs: by `problem` and `policy` the label of the `smallest`
        memory with equal regret, or None; the `verdict`; and the `share` of random play that the full Hessian
        has.

    Returns
    -------
    str
        Which policies have equal regret on how many of the problems on which the full Hessian learns. The
        first words say whether any sketch has it where the one number has not.
    """
    telling = list(dict.fromkeys(row["problem"] for row in rows if row["share"] <= LEARNED))
    equal: dict[str, dict[str, str]] = {policy: {} for policy in (_NUMBER, *_SKETCHES)}
    for row in rows:
        if row["problem"] in telling and row["policy"] in equal and row["smallest"]:
            equal[row["policy"]][row["problem"]] = row["smallest"]
    number = equal.pop(_NUMBER)
    missed = {problem for have in equal.values() for problem in have} - set(number)
    sketched = [problem for problem in telling if problem in missed]
    listed = ", ".join(f"{_SKETCHES[policy]} on {len(have)}" for policy, have in equal.items())
    if not number and not sketched:
        head = "Nothing that is smaller than the full Hessian is certain to play like it"
    elif not sketched:
        head = "One number does as well as any sketch"
    else:
        head = f"One number does as well as any sketch except on {' and '.join(sketched)}"
    needed = "".join(
        f"; on {problem} {_named(equal, problem)}, and the one number has {_regret(rows, problem)}"
        for problem in sketched
    )
    return (
        f"**{head}**: with every policy tuned on one budget, a multiple of the identity that grows with the "
        "trace of the Hessian has the full Hessian's regret (the 95 % interval of the difference stays below "
        f"{TOLERANCE:+.0%}) on {len(number)} of {len(telling)} problems on which that learns, {listed}"
        f"{needed}."
    )


def _named(equal: Mapping[str, Mapping[str, str]], problem: str) -> str:
    """The sketches that have equal regret on a problem, with their sizes."""
    found = [
        f"{_SKETCHES[policy]} has it at {have[problem]}" for policy, have in equal.items() if problem in have
    ]
    return ", ".join(found)


def _regret(rows: Sequence[Mapping[str, Any]], problem: str) -> str:
    """How much more regret the one number has on a problem."""
    (row,) = (row for row in rows if (row["problem"], row["policy"]) == (problem, _NUMBER))
    low, high = row["interval"]
    return f"{row['difference']:+.0%} [{low:+.0%}, {high:+.0%}]"
