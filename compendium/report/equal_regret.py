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
        Columns group, policy, trial, regret, as of `compendium.experiments.by_group`. A policy may lack
        trials; its differences are those of the others.
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
        difference = (part.set_index("trial")["regret"] - base).dropna() / base.mean()
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
    means = regret.groupby([*_KEYS, "point"])["regret"].mean() / least
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


#: What the policies are called on the first page; those of `_NUMBERS` hold one number, the others more.
_SKETCHES = {
    "budgeted-eofd": "the sketch with a budget: $m$ grows so that $\\rho$ stays below a chosen multiple of "
    "λ, and what exceeds it at the largest $m$ is added to λ",
    "eofd": "the paper's sketch",
    "robust-eofd": "Robust Frequent Directions, which adds half of $\\rho$ to λ",
    "compensated-eofd": "the sketch that adds all of $\\rho$ to λ",
}
_DIAGONAL = {"diagonal": "a diagonal"}
_NUMBERS = {
    "growing-ridge": "a multiple of the identity that grows with the trace of the Hessian "
    "(its growth is tuned, too)",
    "first-order": "no curvature: $\\lambda I$ alone",
}
#: Above this share of random play the full Hessian has hardly learned, and a problem says nothing.
LEARNED = 0.9


def sentence(rows: Sequence[Mapping[str, Any]]) -> str:
    """What sketches are worth beside matrices that are one number, for the first page.

    Parameters
    ----------
    rows : sequence of mapping
        The findings `smallest` of the recorded runs: by `problem` and `policy` the label of the `smallest`
        memory with equal regret, or None; the `verdict` there, or at the largest memory; and the `share` of
        random play that the full Hessian has.

    Returns
    -------
    str
        What is asked, and a table, indented as a part of an item of a list: on how many of the problems on
        which the full Hessian learns each policy has equal regret, and on how many certainly more. The first
        words say whether a sketch has it where one number has not.
    """
    telling = [row for row in rows if row["share"] <= LEARNED]
    count = len({row["problem"] for row in telling})
    equal = {
        policy: {
            row["problem"]: row["smallest"] for row in telling if row["policy"] == policy and row["smallest"]
        }
        for policy in (*_SKETCHES, *_DIAGONAL, *_NUMBERS)
    }
    more = {
        policy: {row["problem"] for row in telling if row["policy"] == policy and row["verdict"] == MORE}
        for policy in equal
    }
    sketched = {problem for policy in _SKETCHES for problem in equal[policy]}
    numbered = {problem for policy in _NUMBERS for problem in equal[policy]}
    if not sketched - numbered:
        head = "One number does as well as any sketch"
    elif any(all(problem in more[policy] for policy in _NUMBERS) for problem in sketched):
        head = "One number does not always replace a sketch"
    else:
        head = "One number is not certain to replace a sketch"
    lines = [
        "| in place of the full Hessian | certainly as little regret on | certainly more on | "
        "smallest $m$ for as little |",
        "|---|---:|---:|---:|",
        *(
            f"| {name} | {len(equal[policy])} | {len(more[policy])} | {_sizes(equal[policy]) or '–'} |"
            for policy, name in (_SKETCHES | _DIAGONAL | _NUMBERS).items()
        ),
    ]
    question = (
        f"**{head}**: on {count} problems, those on which the full Hessian learns (its regret is at most "
        f"{LEARNED:.0%} of random play's), the table counts where a cheaper matrix, with parameters tuned "
        "for it alone, has certainly as little regret (the 95 % interval of its difference to the full "
        f"Hessian's ends at or below {TOLERANCE:+.0%}) and where certainly more (the interval begins above "
        f"{TOLERANCE:+.0%}, for a sketch even at the largest size); on the others neither is certain. A "
        "sketch may have another $m$ on each problem, and $\\rho$ is the sum of what it has subtracted."
    )
    return "\n".join([question, "", *(f"   {line}" for line in lines)])


def _sizes(smallest: Mapping[str, str]) -> str:
    """The range of the smallest sketches over the problems, where they have an m."""
    sizes = sorted(int(label.removeprefix("m = ")) for label in smallest.values() if label.startswith("m = "))
    if not sizes:
        return ""
    return f"{sizes[0]}" if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"
