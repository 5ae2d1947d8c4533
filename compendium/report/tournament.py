"""The tournament in tables, pictures and sentences, all of which follow from the findings of its runs.

A run is one problem. Its finding `standings` has a row for every policy that played, as `row` makes it, and
its finding `absent` says of every other one why it did not play.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter, NullLocator, StrMethodFormatter

from compendium.experiments.tournament import ENTRANTS, REFERENCE
from compendium.report.equal_regret import EQUAL, LEARNED, MORE, UNDECIDED, relative_regret
from compendium.report.figures import STYLES

Row = Mapping[str, Any]
#: The verdict on a policy that has certainly less regret than the reference.
LESS, FAILED = "less", "failed"
#: One policy is called faster from this ratio of times on; below it another machine may reverse the order.
FASTER = 1.25
#: What is drawn of each family: marker and filling.
MARKERS = {
    "sketch": ("o", "0.1"), "other": ("s", "0.45"), "paper": ("^", "1.0"), "peer": ("D", "1.0"),
    "control": ("X", "0.7"),
}  # fmt: skip
FAMILIES = {
    "sketch": "sketches of this project", "other": "its other curvatures", "paper": "of other papers",
    "peer": "of other packages", "control": "controls",
}  # fmt: skip
#: The control policies whose regret is drawn as a line, with its dashes.
LINES = {"random": (0, (1, 2)), "greedy": (0, (5, 2)), "first-order": (0, (5, 2, 1, 2))}
#: The number of each policy in all pictures and tables.
NUMBERS = {entrant.policy: number for number, entrant in enumerate(ENTRANTS, 1)}
_FAMILY = {entrant.policy: entrant.family for entrant in ENTRANTS}
_QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


def name_of(policy: str) -> str:
    """A policy's name in words: that of its style, without the word for the form that is timed."""
    return STYLES[policy].label.removesuffix(", compiled")


def standings(regret: pd.DataFrame, reference: str = REFERENCE) -> pd.DataFrame:
    """Regret of every policy on the report streams, beside that of the reference on the same streams.

    Parameters
    ----------
    regret : DataFrame
        Columns group, policy, trial, regret; a game that failed has the regret NaN.
    reference : str
        Name of the policy that the others are compared with.

    Returns
    -------
    DataFrame
        A row for every policy: `policy`, mean `regret`, relative difference `mean` with its interval `low`
        and `high`, the number of games that `failed`, and the `verdict`: less, equal, more or undecided, as
        in `relative_regret`, or failed if no game is left.
    """
    failed = regret["regret"].isna().groupby(regret["policy"], sort=False).sum()
    rows = relative_regret(regret.dropna(subset="regret"), reference).drop(columns="group")
    rows["verdict"] = [_verdict(*row) for row in zip(rows["verdict"], rows["high"], strict=True)]
    lost = [policy for policy in failed.index if policy not in set(rows["policy"])]
    empty = pd.DataFrame({"policy": lost, "verdict": FAILED})
    table = pd.concat([rows, empty], ignore_index=True) if lost else rows
    return table.assign(failed=[int(failed[policy]) for policy in table["policy"]])


def _verdict(verdict: str, high: float) -> str:
    return LESS if high < 0.0 else verdict


def row(
    standing: Row,
    *,
    random: float,
    theory: float | None,
    tuned: str,
    grid: Sequence[float],
    time: Mapping[str, Any],
    message: str | None,
) -> dict[str, Any]:
    """A row of the finding `standings`, in plain values.

    Parameters
    ----------
    standing : mapping
        A row of `standings`.
    random : float
        Mean regret of random play, of which `share`, `theory` and the quantiles of the grid are shares.
    theory : float or None
        Mean regret with the width of the policy's theory.
    tuned : str
        The point that was chosen.
    grid : sequence of float
        Mean regret at every point of the grid on the tuning streams; infinite where games failed.
    time : mapping
        What `round_times` found.
    message : str or None
        The first failure, if any.
    """
    played = standing["verdict"] != FAILED
    shares = [_plain(value / random) for value in np.quantile(np.sort(grid), _QUANTILES, method="nearest")]
    found = {
        "policy": str(standing["policy"]), "verdict": str(standing["verdict"]),
        "failed": int(standing["failed"]), "message": message, "tuned": tuned,
        "share": _plain(standing["regret"] / random) if played else None,
        "theory": None if theory is None else _plain(theory / random),
        "grid": shares, "within": round(float(np.mean(np.asarray(grid) <= 1.5 * np.min(grid))), 3),
        "ms": None if time.get("failure") else time["mean"],
        "median_ms": None if time.get("failure") else time["median"], "bytes": int(time["held"]),
    }  # fmt: skip
    ends = {name: _plain(standing[name]) if played else None for name in ("mean", "low", "high")}
    return found | ends


def _plain(value: float) -> float | None:
    """Four digits, or None for what is not finite."""
    return float(f"{value:.4g}") if np.isfinite(value) else None


def table(rows: Sequence[Row], absent: Mapping[str, str]) -> str:
    """A problem's table, Markdown: the policies by regret, and below them those that did not play."""
    lines = [
        "| no. | policy | regret, of random play's | against OFUL-MLogB | verdict | theory's width | grid: "
        "best, median, worst | ms a round | kB held |",
        "|---:|---|---:|---:|---|---:|---:|---:|---:|",
    ]
    for one in sorted(rows, key=_by_share):
        best, _, middle, _, worst = one["grid"]
        cells = [
            f"{NUMBERS[one['policy']]}", name_of(one["policy"]), _percent(one["share"]), _difference(one),
            one["verdict"] + (f"; {one['failed']} games failed: {one['message']}" if one["failed"] else ""),
            _percent(one["theory"]), ", ".join(map(_percent, (best, middle, worst))), _digits(one["ms"]),
            f"{one['bytes'] / 1e3:,.1f}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        f"| {NUMBERS[policy]} | {_known(policy)} | not played: {reason} | | | | | | |"
        for policy, reason in absent.items()
    ]
    return "\n".join(lines)


def _by_share(one: Row) -> float:
    return math.inf if one["share"] is None else float(one["share"])


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}" if value >= 0.1 else f"{value:.1%}"


def _difference(one: Row) -> str:
    if one["mean"] is None:
        return ""
    if one["low"] is None:
        return f"{one['mean']:+.1%}"
    return f"{one['mean']:+.1%} [{one['low']:+.1%}, {one['high']:+.1%}]"


def _digits(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}" if value < 100 else f"{value:.0f}"


def pareto(rows: Sequence[Row]) -> list[str]:
    """Policies that no other one beats in regret and in time of a round, the fastest first."""
    front: list[str] = []
    least = math.inf
    for one in sorted((o for o in rows if o["ms"] and o["share"] is not None), key=_time_and_share):
        if one["share"] < least:
            front.append(str(one["policy"]))
            least = one["share"]
    return front


def _time_and_share(one: Row) -> tuple[float, float]:
    return float(one["ms"]), float(one["share"])


def draw(axis: Axes, rows: Sequence[Row], title: str) -> None:
    """A panel: regret against the time of a round, with numbers at the symbols and the line of the best.

    Parameters
    ----------
    axis : Axes
        Where to draw.
    rows : sequence of mapping
        The finding `standings` of a problem.
    title : str
        Title of the panel.
    """
    by_name = {one["policy"]: one for one in rows if one["ms"] and one["share"] is not None}
    points = {name: one for name, one in by_name.items() if name != "random"}
    for name, one in points.items():
        marker, filling = MARKERS[_FAMILY[name]]
        axis.plot(one["ms"], one["share"], marker, color=filling, mec="0.1", mew=0.8, ms=5, zorder=3)
    for name, dashes in LINES.items():
        if name in by_name:
            axis.axhline(by_name[name]["share"], color="0.5", lw=0.9, linestyle=dashes, zorder=1)
    front = [points[name] for name in pareto(list(points.values()))]
    axis.step(
        [one["ms"] for one in front], [one["share"] for one in front], "-", where="post", color="0.1",
        lw=1.1, zorder=2,
    )  # fmt: skip
    shares = [one["share"] for one in points.values()] or [0.5, 1.0]
    low, high = min(shares), max(*shares, min(1.0, 1.5 * max(shares)))
    axis.set(title=title, xscale="log", yscale="log", ylim=(low / 1.15, high * 1.1))
    axis.margins(x=0.12)
    ticks = [0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0]
    if high < 4 * low:  # where there is room for more labels
        ticks = sorted([*ticks, 0.4, 0.6, 0.8, 0.9])
    axis.yaxis.set_major_locator(FixedLocator([tick for tick in ticks if low / 1.15 <= tick <= high * 1.1]))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:.0%}"))
    axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.grid(alpha=0.25)
    _number(axis, {str(NUMBERS[name]): (one["ms"], one["share"]) for name, one in points.items()})


def _number(axis: Axes, points: Mapping[str, tuple[float, float]]) -> None:
    """Write each label beside its point, where the least of other labels and points lies below it."""
    axis.figure.canvas.draw()
    places = {label: axis.transData.transform(point) for label, point in points.items()}
    taken = [*places.values()]
    for label, (x, y) in places.items():
        offsets = [
            (r * math.cos(angle), r * math.sin(angle))
            for r in (8.0, 14.0, 20.0)
            for angle in np.arange(8) * math.pi / 4
        ]
        scale = axis.figure.dpi / 72.0
        crowd = [
            sum(max(0.0, 9.0 - math.dist((x + dx * scale, y + dy * scale), other) / scale) for other in taken)
            + 0.1 * math.hypot(dx, dy)
            for dx, dy in offsets
        ]
        dx, dy = offsets[int(np.argmin(crowd))]
        taken.append(np.array((x + dx * scale, y + dy * scale)))
        axis.annotate(
            label, points[label], (dx, dy), textcoords="offset points", ha="center", va="center", fontsize=7,
            arrowprops={"arrowstyle": "-", "lw": 0.4, "color": "0.5", "shrinkA": 2, "shrinkB": 2},
        )  # fmt: skip


def legend(policies: Sequence[str]) -> str:
    """Numbers and names of policies, for below a picture."""
    return "; ".join(f"{NUMBERS[name]} {name_of(name)}" for name in sorted(policies, key=NUMBERS.__getitem__))


def draw_grid(axis: Axes, rows: Sequence[Row], title: str) -> None:
    """The distribution of a policy's regret over its grid: a line from best to worst, a bar for the middle.

    Parameters
    ----------
    axis, rows, title
        As in `draw`.
    """
    shown = [one for one in sorted(rows, key=_by_share) if one["grid"][0] is not None]
    for place, one in enumerate(shown):
        best, low, middle, high, worst = (math.nan if v is None else v for v in one["grid"])
        axis.plot([best, worst], [-place, -place], "-", color="0.6", lw=1)
        axis.plot([low, high], [-place, -place], "-", color="0.35", lw=4, solid_capstyle="butt")
        axis.plot(middle, -place, "|", color="0.0", ms=8, mew=1.6)
        axis.plot(best, -place, "o", color="1.0", mec="0.1", ms=4)
    names = [f"{name_of(one['policy'])} {NUMBERS[one['policy']]}" for one in shown]
    axis.set_yticks([-place for place in range(len(shown))], names, fontsize=7)
    axis.set(title=title, xscale="log", xlabel="regret, of random play's, on the tuning streams")
    axis.xaxis.set_major_locator(FixedLocator([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0]))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:.0%}"))
    axis.grid(axis="x", alpha=0.25)


def equal_policies(rows: Sequence[Row]) -> list[Row]:
    """Rows of policies with equal or less regret than the reference's, the fastest first."""
    found = [one for one in rows if one["verdict"] in (EQUAL, LESS) and one["ms"]]
    return sorted(found, key=_time_and_share)


def sentences(title: str, rows: Sequence[Row], absent: Mapping[str, str]) -> list[str]:
    """What a problem says, in sentences that follow from its rows.

    Parameters
    ----------
    title : str
        Name of the problem.
    rows, absent
        The findings of its run.
    """
    by_name = {one["policy"]: one for one in rows}
    reference, eofd = by_name[REFERENCE], by_name["eofd-compiled"]
    said = []
    if (reference["share"] or 1.0) > LEARNED:
        said.append(
            f"{title}: the full Hessian plays at {_percent(reference['share'])} of random play, so it has "
            "hardly learned, and the order of the others says little."
        )
    least = min(map(_by_share, rows))
    best = [str(one["policy"]) for one in rows if one["share"] == least]
    equal = [one for one in equal_policies(rows) if one["policy"] != REFERENCE]
    front = "; ".join(map(name_of, pareto(rows)))
    said.append(
        f"{title}: {_some(best)} {'has' if len(best) == 1 else 'have'} the least regret, {_percent(least)} "
        f"of random play's; OFUL-MLogB has {_percent(reference['share'])} and EOFD-MLogB "
        f"{_percent(eofd['share'])}. Of the {len(rows) - 1} policies besides OFUL-MLogB "
        f"{len(equal) or 'none'} certainly "
        f"{'has' if len(equal) == 1 else 'have'} its regret or less"
        + (f"; the fastest of these is {name_of(equal[0]['policy'])}" if equal else "")
        + ". Those that no other one beats in both regret and time are, from the fastest on (of equal "
        f"regrets the faster): {front}."
    )
    failures = [one for one in rows if one["failed"]]
    if failures:
        said.append(
            f"{title}: games failed of "
            + "; ".join(f"{name_of(one['policy'])} ({one['failed']}: {one['message']})" for one in failures)
            + "."
        )
    if absent:
        told = [
            f"{', '.join(_known(n) for n in absent if absent[n] == reason)} ({reason})"
            for reason in dict.fromkeys(absent.values())
        ]
        said.append(f"{title}: not played were {'; '.join(told)}.")
    return said


def _known(policy: str) -> str:
    """A policy's name in words; that of the registry for one that is not in it."""
    return name_of(policy) if policy in STYLES else policy


def _listed(policies: Sequence[str]) -> str:
    return ", ".join(map(name_of, policies))


def advice(rows: Sequence[Row]) -> tuple[bool, str]:
    """Whether EOFD-MLogB is the right choice on a problem, and why, from the rows of the problem.

    It is right where its regret is certain to be OFUL-MLogB's or less, and no policy but a sketch has such a
    regret in no more time. OFUL-MLogB itself counts as slower from the factor `FASTER` on. Where
    EOFD-MLogB has certainly less regret than OFUL-MLogB, it is compared only with policies of which this
    is certain as well.
    """
    by_name = {one["policy"]: one for one in rows}
    eofd, reference = by_name["eofd-compiled"], by_name[REFERENCE]
    if (reference["share"] or 1.0) > LEARNED:
        return False, f"nothing was learned ({_percent(reference['share'])} of random play)"
    if eofd["verdict"] in (MORE, FAILED):
        return False, f"its regret is certainly more than OFUL-MLogB's ({_difference(eofd)})"
    if eofd["verdict"] == UNDECIDED:
        return False, f"its regret is not certain to be OFUL-MLogB's ({_difference(eofd)})"
    less, speed = eofd["verdict"] == LESS, reference["ms"] / eofd["ms"]
    if not less and speed < FASTER:
        return False, (
            f"its regret is OFUL-MLogB's, but a round of OFUL-MLogB takes only {speed:.2f} times its time"
        )
    as_good = [one for one in equal_policies(rows) if one["verdict"] == LESS or not less]
    cheap = [one for one in as_good if one["ms"] <= eofd["ms"] and _FAMILY[one["policy"]] != "sketch"]
    if cheap:
        verb = "has" if len(cheap) == 1 else "have"
        names = _some([one["policy"] for one in cheap])
        if less:
            return (
                False,
                f"like EOFD-MLogB, {names} {verb} certainly less regret than OFUL-MLogB, in no more time",
            )
        return False, f"{names} {verb} the same regret in no more time"
    if less:
        return (
            True,
            f"certainly less regret than OFUL-MLogB ({_difference(eofd)}), as nothing else has in its time",
        )
    return True, f"OFUL-MLogB's regret ({_difference(eofd)}) in 1/{speed:.2g} of its time"


def _some(policies: Sequence[str]) -> str:
    """At most three policies in words: all of them, or two and how many more there are."""
    if len(policies) > 3:
        return f"{_listed(policies[:2])} and {len(policies) - 2} more policies"
    return " and ".join(part for part in (_listed(policies[:-1]), name_of(policies[-1])) if part)


def overall(found: Mapping[str, Sequence[Row]]) -> str:
    """One table over all problems, Markdown: regret over OFUL-MLogB's, and how often it was as good.

    Parameters
    ----------
    found : mapping
        The finding `standings` by the title of the problem.
    """
    telling = [t for t, rows in found.items() if (_of(rows, REFERENCE)["share"] or 1.0) <= LEARNED]
    lines = [
        f"| no. | policy | {' | '.join(found)} | as good as OFUL-MLogB | its time over OFUL-MLogB's |",
        f"|---:|---|{'---:|' * len(found)}---:|---:|",
    ]
    names = [
        entrant.policy for entrant in ENTRANTS if any(_has(rows, entrant.policy) for rows in found.values())
    ]
    for name in names:
        own = {title: _of(rows, name) for title, rows in found.items() if _has(rows, name)}
        good = sum(own[title]["verdict"] in (EQUAL, LESS) for title in telling if title in own)
        ratios = [
            own[title]["ms"] / _of(found[title], REFERENCE)["ms"]
            for title in own
            if own[title]["ms"] and _of(found[title], REFERENCE)["ms"]
        ]
        time = f"{np.exp(np.mean(np.log(ratios))):.2g}" if ratios else ""
        cells = [_cell(own[title]) if title in own else "" for title in found]
        count = f"{good} of {sum(title in own for title in telling)}"
        lines.append(f"| {NUMBERS[name]} | {name_of(name)} | {' | '.join(cells)} | {count} | {time} |")
    return "\n".join(lines)


_MARKS = {EQUAL: " =", LESS: " <", MORE: " >", UNDECIDED: "", FAILED: ""}


def _cell(one: Row) -> str:
    if one["mean"] is None:
        return FAILED
    return f"{1 + one['mean']:.2f}{_MARKS[one['verdict']]}"


def _has(rows: Sequence[Row], policy: str) -> bool:
    return any(one["policy"] == policy for one in rows)


def _of(rows: Sequence[Row], policy: str) -> Row:
    return next(one for one in rows if one["policy"] == policy)
