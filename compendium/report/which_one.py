"""The page "Which one should I use?", whose sentences follow from the recorded runs of the tournament.

Before a run is recorded there is no page, and nothing is written.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from compendium.experiments.tournament import ENTRANTS, PROBLEMS, REFERENCE
from compendium.report import tables, tournament
from compendium.report.equal_regret import EQUAL, LEARNED, MORE
from compendium.report.tournament import LESS, Row, name_of
from compendium.runs.run import Run, find_runs
from compendium.system import paths
from compendium.system.paths import FailureError

PAGE, PICTURE, INDEX = "book/which_one.md", "book/which_one.png", "book/index.md"
_EOFD = "eofd-compiled"


def recorded() -> dict[str, Run]:
    """The recorded runs of the tournament by the name of their problem, in the order of the problems."""
    runs = {(run.record.get("point") or {}).get("problem"): run for run in find_runs("tournament", "paper")}
    return {name: runs[name] for name in PROBLEMS if name in runs}


def findings(runs: Mapping[str, Run]) -> dict[str, dict[str, Any]]:
    """The findings of runs by the title of their problem."""
    return {PROBLEMS[name]: run.record["study"]["findings"] for name, run in runs.items()}


def page(runs: Mapping[str, Run]) -> str:
    """The page, Markdown."""
    found = findings(runs)
    rows = {title: one["standings"] for title, one in found.items()}
    sizes = [f"{title} ($Kd$ = {one['size']:,})" for title, one in found.items()]
    given = next(iter(runs.values())).record["parameters"]
    lines = [
        "# Which one should I use?",
        "",
        "Made by `mlogb readme` from the recorded runs of "
        "[the tournament](../notebooks/experiments/tournament.md), which says how every policy was tuned; no "
        "number here is typed in.",
        "",
        f"The problems: {'; '.join(sizes)}. {given['n_rounds']:,} rounds, {given['n_trials']} streams, "
        f"each policy tuned over at most {given['n_points']} settings on {given['tuning_trials']} other "
        "streams. Every optimistic policy is tuned with the width "
        "$\\sqrt\\beta = c\\sqrt\\lambda\\thinspace S$ and a common grid of the scale $c$; the width of its "
        "own theory is played untuned.",
        "",
        "## Where EOFD-MLogB is the right choice, and where not",
        "",
        *verdicts(rows),
        "",
        "It is called right where its regret is certain to be OFUL-MLogB's (the 95 % interval of the paired "
        "difference lies below +10 %), a round of OFUL-MLogB takes at least "
        f"{tournament.FASTER:g} times its time, and nothing but a sketch does the same in no more time; or "
        "where its regret is certain to be less than OFUL-MLogB's (the interval lies below 0), and nothing "
        "but a sketch does the same in no more time.",
        "",
        "## What else to take",
        "",
        *(f"- {sentence}" for sentence in others(rows)),
        "",
        "## All policies on all problems",
        "",
        "Regret over OFUL-MLogB's, both tuned: `<` certainly less, `=` certainly at most a tenth more, `>` "
        "certainly over a tenth more, no sign where the interval decides nothing. Problems on which "
        f"OFUL-MLogB plays at over {LEARNED:.0%} of random play do not count in the last but one column.",
        "",
        tournament.overall(rows),
        "",
        "![Regret, as a share of random play's, against the time of a round, one panel for each problem; "
        "the numbers are those of the table, a line joins the policies that no other one beats in both]"
        f"({Path(PICTURE).name})",
        "",
        "Circles are sketches of this project, squares its other curvatures, triangles methods of other "
        "papers, diamonds other packages, crosses controls. The line joins the policies that no other one "
        "beats in regret and in time; the horizontal lines are greedy play (dashed), no curvature (dash and "
        "dot) and random play (dotted, where the panel has room).",
        "",
        "## Problem by problem",
        "",
    ]
    for name, run in runs.items():
        one = found[PROBLEMS[name]]
        link = run.notebook.relative_to(paths.project_root()).as_posix()
        lines += [f"- {s}" for s in tournament.sentences(one["title"], one["standings"], one["absent"])]
        lines += [f"  From [the run]({'../' + link}).", ""]
    return "\n".join(lines).rstrip() + "\n"


def verdicts(found: Mapping[str, Sequence[Row]]) -> list[str]:
    """A line for each problem that says whether EOFD-MLogB is right there, and why."""
    lines = []
    for title, rows in found.items():
        right, why = tournament.advice(rows)
        lines.append(f"- **{title}: {'yes' if right else 'no'}**, {why}.")
    return lines


def others(found: Mapping[str, Sequence[Row]]) -> list[str]:
    """What the problems say together of the other policies, of their theories and of tuning."""
    telling = {title: rows for title, rows in found.items() if _share(rows, REFERENCE) <= LEARNED}
    if not telling:
        return ["On no problem did OFUL-MLogB learn enough for a comparison."]
    return [_everywhere(telling), _fastest(telling), _theories(found), _tuning(found), _failures(found)]


def _everywhere(telling: Mapping[str, Sequence[Row]]) -> str:
    """Who plays everywhere, and on how many problems it is as good, or certainly worse."""
    verdicts_of = {
        entrant.policy: [one["verdict"] for one in _rows_of(telling, entrant.policy)] for entrant in ENTRANTS
    }
    good = {
        name: sum(one in (EQUAL, LESS) for one in own)
        for name, own in verdicts_of.items() if len(own) == len(telling) and name != REFERENCE
    }  # fmt: skip
    ranked = sorted(good, key=lambda name: -good[name])
    bad = [name for name in ranked if verdicts_of[name].count(MORE) == len(telling)]
    told = "; ".join(f"{name_of(name)} on {good[name]}" for name in ranked if good[name])
    said = (
        f"OFUL-MLogB learns on {len(telling)} problems. Of the policies that play all of these, the "
        f"following certainly have its regret or less: {told or 'none'}"
    )
    return said + (f". Certainly more on all of them: {'; '.join(map(name_of, bad))}." if bad else ".")


def _fastest(telling: Mapping[str, Sequence[Row]]) -> str:
    """Which policy with the reference's regret is the fastest, by problem."""
    told = []
    for title, rows in telling.items():
        first = tournament.equal_policies(rows)[0]
        speed = _ms(rows, REFERENCE) / first["ms"]
        factor = f"{speed:.0f}" if speed >= 10 else f"{speed:.1f}"
        itself = first["policy"] == REFERENCE
        told.append(
            f"{name_of(first['policy'])} on {title} ({'itself' if itself else f'{factor} times as fast'})"
        )
    return f"The fastest policy that is certain to have OFUL-MLogB's regret or less is {'; '.join(told)}."


def _theories(found: Mapping[str, Sequence[Row]]) -> str:
    shares = [one["theory"] for rows in found.values() for one in rows if one["theory"] is not None]
    idle = sum(share > LEARNED for share in shares)
    return (
        f"Untuned, at the width of their theory, policies play at more than {LEARNED:.0%} of random play in "
        f"{idle} of {len(shares)} cases (a policy on a problem); the median is {np.median(shares):.0%}."
    )


def _tuning(found: Mapping[str, Sequence[Row]]) -> str:
    """Who needs tuning least and most, by the share of points within one and a half times the best."""
    everybody = {one["policy"] for rows in found.values() for one in rows} - {"random"}
    within = {name: float(np.mean([one["within"] for one in _rows_of(found, name)])) for name in everybody}
    ranked = sorted(within, key=lambda name: (-within[name], name))
    first, last = ranked[0], ranked[-1]
    return (
        f"The share of a policy's grid with at most one and a half times its least regret, a mean over its "
        f"problems, is largest for {name_of(first)} ({within[first]:.0%}) and smallest for {name_of(last)} "
        f"({within[last]:.0%}); for EOFD-MLogB it is {within[_EOFD]:.0%}, for OFUL-MLogB "
        f"{within[REFERENCE]:.0%}."
    )


def _failures(found: Mapping[str, Sequence[Row]]) -> str:
    failed = {
        f"{name_of(one['policy'])} on {title} ({one['failed']})"
        for title, rows in found.items() for one in rows if one["failed"]
    }  # fmt: skip
    return f"Games that failed: {'; '.join(sorted(failed)) or 'none'}."


def _rows_of(found: Mapping[str, Sequence[Row]], policy: str) -> list[Row]:
    """The rows of one policy on all problems."""
    return [one for rows in found.values() for one in rows if one["policy"] == policy]


def _share(rows: Sequence[Row], policy: str) -> float:
    return next(float(one["share"]) for one in rows if one["policy"] == policy)


def _ms(rows: Sequence[Row], policy: str) -> float:
    return next(float(one["ms"]) for one in rows if one["policy"] == policy)


def short_form() -> str:
    """The section of the README; empty before a run is recorded."""
    runs = recorded()
    if not runs:
        return ""
    rows = {title: one["standings"] for title, one in findings(runs).items()}
    count = len({one["policy"] for own in rows.values() for one in own})
    return "\n".join(
        [
            "## Which one should I use?",
            "",
            f"{count} policies, {len(rows)} problems (not the same ones as in item 4; some policies cannot "
            f"play them all), the same budget of tuning for all ([all of them, and a picture]({PAGE})); "
            "*growing ridge* is the multiple of the identity of item 4. Is EOFD-MLogB the right choice?",
            "",
            *verdicts(rows),
            "",
        ]
    )


def digest(found: Mapping[str, Mapping[str, Any]]) -> str:
    """What the picture is made from, as a hash that is stored in the picture."""
    text = json.dumps({title: one["standings"] for title, one in found.items()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def draw(found: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Draw the picture of all problems, one panel each, into a file."""
    columns = min(2, len(found))
    lines = -(-len(found) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(3.9 * columns, 3.1 * lines), layout="constrained", squeeze=False
    )
    for axis in list(axes.flat)[len(found) :]:
        axis.set_axis_off()
    for axis, (title, one) in zip(axes.flat, found.items(), strict=False):
        tournament.draw(axis, one["standings"], f"{title} (Kd = {one['size']:,})")
    for axis in axes[:, 0]:
        axis.set_ylabel("regret, of random play's")
    for axis in axes[-1]:
        axis.set_xlabel("mean time of a round (ms)")
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=130, metadata={"Software": None, "Description": digest(found)})
    paths.write_atomically(path, content.getvalue())
    plt.close(figure)


def write(check: bool = False, root: Path | None = None) -> None:
    """Write the page, its picture and its place in the book, or check them; without a run do nothing.

    Raises
    ------
    FailureError
        If something differs under `check`.
    """
    root = root or paths.project_root()
    runs = recorded()
    if not runs:
        return
    index = (root / INDEX).read_text(encoding="utf-8")
    if "\nwhich_one\n" not in index:
        index = index.replace("\nchoosing\n", "\nchoosing\nwhich_one\n", 1)
    for name, text in {PAGE: page(runs), INDEX: index}.items():
        if tables.write_if_changed(root / name, text, check):
            raise FailureError(f"{name} is not what the committed runs give: run `make readme`")
    found, picture = findings(runs), root / PICTURE
    if not (picture.is_file() and digest(found).encode() in picture.read_bytes()):
        if check:
            raise FailureError(f"{PICTURE} is not drawn from the committed runs: run `make readme`")
        draw(found, picture)
