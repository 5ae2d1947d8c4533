"""The result of the project in four sentences and two tables, for the README and the first page of the book.

Every number comes out of a committed run, and a sentence says only what its numbers say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from compendium.report import equal_regret, tables, which_one
from compendium.runs.run import Run, find_runs
from compendium.system import paths
from compendium.system.paths import FailureError

#: The settings of the table: a name, the experiment and its case, the setting in the run.
_ROWS = (
    ("MNIST, paper's setting", "mnist", None, "paper"),
    ("MNIST, tuned", "mnist", None, "tuned"),
    ("multinomial, paper's setting", "synthetic", "multinomial", "paper, S = 10"),
    ("multinomial, tuned", "synthetic", "multinomial", "tuned, S = 10"),
    ("binary, paper's setting", "synthetic", "binary", "paper, S = 10"),
    ("binary, tuned", "synthetic", "binary", "tuned, S = 10"),
)
#: What the paper reports of its experiments: the share of the time of a round that it saves, the overhead.
SAVINGS = {"MNIST": 0.8, "multinomial": 0.35, "binary": 0.8}
OVERHEAD = 0.1
_PAIRS = (("eofd", "oful"), ("greedy", "eofd"), ("first-order", "oful"))
_FORMS = ("oful-printed", "oful-cholesky", "oful")
#: From this ratio of times on a sketch is said to save time: below it another machine may turn the order.
_FASTER = 1.25
_SMALL = 5  # directions of the small sketch


def update(check: bool = False) -> None:
    """Write the results block of the README from the committed runs, or check that it is current.

    Parameters
    ----------
    check : bool
        Change nothing; raise if the block differs.

    Raises
    ------
    FailureError
        If a run is missing, or the block differs under `check`.
    UsageError
        If the README has no results block.
    """
    path = paths.project_root() / "README.md"
    if tables.write_if_changed(path, page(), check):
        raise FailureError("the README's results differ from the committed runs: run `make readme`")


def page() -> str:
    """The text of the README with its results, and with those of the tournament where it has a place for it.

    Raises
    ------
    FailureError
        If a run is missing.
    UsageError
        If the README has no results block.
    """
    path = paths.project_root() / "README.md"
    text = tables.with_block(path, "results", block())
    if "<!-- tournament: begin -->" not in text:
        return text
    return tables.replace_block(text, "tournament", which_one.short_form(), path.name)


def block() -> str:
    """The sentences and the table, and what the paper reports."""
    lines = [f"{number}. {sentence}" for number, sentence in enumerate(sentences(), 1)]
    reported = (
        f"The paper reports, against OFUL-MLogB, about {SAVINGS['MNIST']:.0%} less time of a round (that is "
        f"{_times(SAVINGS['MNIST'])} times as fast) and about {OVERHEAD:.0%} more regret on MNIST, over "
        f"{SAVINGS['multinomial']:.0%} and {SAVINGS['binary']:.0%} less time (over "
        f"{_times(SAVINGS['multinomial'])} and {_times(SAVINGS['binary'])} times as fast) on the multinomial "
        "and the binary problem, and there a comparable regret."
    )
    return "\n".join([*lines, "", table(), "", reported, "", _smaller_ball(), ""])


def _smaller_ball() -> str:
    """The S of the synthetic problems, which the paper does not say, and what became of another one."""
    runs = [only_run("synthetic", case) for case in ("multinomial", "binary")]
    shown, other = (_setting(runs[0], f"paper, S = {norm}")["norm_bound"] for norm in (10, 1))
    finals = [_final(run, "paper, S = 1") for run in runs]
    shares = [final["oful"].mean() / final["random"].mean() for final in finals]
    learned = ", so that nothing is learned" if min(shares) > equal_regret.LEARNED else ""
    return (
        "The paper does not say how large the radius $S$ of the ball of its parameters is; the synthetic "
        f"problems of the table have $S = {shown:g}$. With $S = {other:g}$ OFUL-MLogB plays in the paper's "
        f"setting at {' and '.join(f'{share:.0%}' for share in shares)} of random play{learned}."
    )


def sentences() -> list[str]:
    """What the sketch is worth in the paper's setting, costs tuned, saves, and does at equal regret."""
    return [_paper_setting(only_run("mnist")), _tuned(), _time(), _equal_regret()]


def table() -> str:
    """One row for each setting: what was learned, what the sketch costs, and the time of a round."""
    lines = [
        "| setting ($Kd$, $m$) | regret of OFUL, in % of random play's | regret of EOFD against OFUL | "
        "greedy against EOFD | no curvature against OFUL | time of OFUL over EOFD: as printed, Cholesky, "
        "strongest |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, experiment, case, setting in _ROWS:
        run = only_run(experiment, case)
        final = _final(run, setting)
        size, sketch = _sizes(run, setting)
        times = ", ".join(f"{_ratio(run, f'{setting}, timed', form):.3g}" for form in _FORMS)
        cells = [
            f"{name} ({size:,}, {sketch})",
            f"{final['oful'].mean() / final['random'].mean():.0%}",
            *(
                _relative(final, *pair)
                for pair in (("eofd", "oful"), ("greedy", "eofd"), ("first-order", "oful"))
            ),
            times,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def only_run(experiment: str, case: str | None = None) -> Run:
    """The one recorded run of an experiment, of one of its cases.

    Raises
    ------
    FailureError
        If there is none, or more than one.
    """
    found = find_runs(experiment, "paper")
    runs = [run for run in found if case in (None, (run.record.get("point") or {}).get("case"))]
    if len(runs) != 1:
        name = f"{experiment}, {case}," if case else experiment
        raise FailureError(f"exactly one run of {name} with the paper profile is needed, found {len(runs)}")
    return runs[0]


def _paper_setting(mnist: Run) -> str:
    final = _final(mnist, "paper")
    n_trials, rounds = len(final), mnist.record["parameters"]["n_rounds"]
    added = _eigenvalue(mnist, "paper")
    same = int((final["eofd"] == final["oful"]).sum())
    unchanged = [
        _spoken(name)
        for name, experiment, case, setting in _ROWS
        if setting.startswith("paper")
        and _relative(_final(only_run(experiment, case), setting), "first-order", "oful") == "0"
    ]
    where = f" (on {' and '.join(unchanged)} play without curvature changes the regret of no trial)"
    return (
        "**In the paper's setting what the sketch holds plays no part that the regret shows**: on MNIST "
        f"all {rounds:,} rounds together add to $\\lambda I$ no more than {added:.0%} of λ in any direction "
        "(the largest eigenvalue of the sum of the Hessians), so that steps and bonuses stay close to those "
        "with $\\lambda I$ alone. EOFD-MLogB and OFUL-MLogB miss the same rewards in "
        f"{same} of {n_trials} trials "
        f"({final['oful'].mean():.1f} of {rounds:,}; random play misses {final['random'].mean():,.0f}), "
        f"and greedy play, without a bonus, changes that by {_relative(final, 'greedy', 'eofd')}, play "
        f"without any curvature by {_relative(final, 'first-order', 'oful')}{where if unchanged else ''}."
    )


def _tuned() -> str:
    costs = {
        name: _relative(_final(only_run(experiment, case), setting), "eofd", "oful")
        for name, experiment, case, setting in _ROWS
        if name.endswith("tuned")
    }
    mnist = only_run("mnist")
    counts = [_spoken(name) for name, (low, _) in gains_of_curvature().items() if low > 0]
    idle = [_spoken(name) for name, (low, _) in gains_of_curvature().items() if low <= 0]
    without = f", but not on {' and '.join(idle)}" if idle else ""
    listed = [f"{cost} on {_spoken(name)}" for name, cost in costs.items()]
    return (
        f"**Tuned, the Hessian counts on {' and '.join(counts)}**{without} (on MNIST the rounds add up to "
        f"{_eigenvalue(mnist, 'tuned'):,.0f} times λ in a direction, and regret without curvature is "
        f"{_relative(_final(mnist, 'tuned'), 'first-order', 'oful')}; the second table has the others), **"
        f"and a sketch of $m = Kd/10$ directions costs** {', '.join(listed[:-1])} and {listed[-1]}."
    )


def gains_of_curvature() -> dict[str, tuple[float, float]]:
    """By tuned setting, the interval of how much more regret there is without curvature than with it."""
    gains = {}
    for name, experiment, case, setting in _ROWS:
        if name.endswith("tuned"):
            final = _final(only_run(experiment, case), setting)
            gains[name] = tables.interval(final["first-order"] - final["oful"])[1:]
    return gains


def _time() -> str:
    sizes = list(_speed_at_sizes(only_run("scale")))
    faster = [(size, ratio) for size, ratio in sizes if all(r >= _FASTER for s, r in sizes if s >= size)]
    mnist = only_run("mnist")
    regret, speed = _small_sketch(mnist)
    size, usual = _sizes(mnist, "tuned")
    sketch = only_run("scale").record["parameters"]["sketch_size"]
    if faster:
        (first, ratio), (last, most) = faster[0], faster[-1]
        where = (
            f"from $Kd$ = {first:,} on, in games of growing size whose sketch has $m = {sketch}$ directions "
            f"at every size ({ratio:.1f} times as fast at {first:,}, {most:.0f} times at {last:,}, beyond "
            "which the full matrix was not played)"
        )
    else:
        where = f"at none of the sizes that were tried with $m = {sketch}$ directions"
    printed = [
        _ratio(only_run(experiment, case), f"{setting}, timed", "oful-printed")
        for _, experiment, case, setting in _ROWS
    ]
    return (
        "**Against the strongest exact form of OFUL-MLogB, which updates the inverse, the sketch saves "
        f"time** {where}, and on smaller problems where few directions are enough (on MNIST, $Kd$ = {size}, "
        f"the sketch of $m = {usual}$ is {_ratio(mnist, 'tuned, timed', 'oful'):.1f} times as fast as "
        f"OFUL-MLogB, the one of $m = {_SMALL}$ {speed:.1f} times, with a regret that differs by {regret} "
        "from that of OFUL-MLogB, both tuned); against OFUL-MLogB as the paper describes it, with "
        "eigendecompositions of the full matrix, at every size "
        f"({min(printed):.0f} to {max(printed):.0f} times as fast in the second table)."
    )


def _equal_regret() -> str:
    """The sentence on memory at equal regret, from the findings of all its runs."""
    runs = [only_run("equal_regret", case) for case in ("synthetic", "real", "lectures")]
    rows = [row for run in runs for row in run.record["study"]["findings"]["smallest"]]
    return equal_regret.sentence(rows)


def _speed_at_sizes(run: Run) -> Iterator[tuple[int, float]]:
    """Time of OFUL over that of EOFD for each size at which both were played, the smallest first."""
    times = run.timings.astype({"setting": str, "policy": str})
    medians = times.groupby(["setting", "policy"])["total_median_ms"].median().unstack("policy")
    problems = {
        one["name"]: len(one["problem"]["rewards"]) * one["problem"]["dimension"]
        for one in run.record["study"]["studies"][0]["settings"]
    }
    ratios = (medians["oful"] / medians["eofd"]).dropna()
    yield from sorted((problems[name], float(ratio)) for name, ratio in ratios.items())


def _small_sketch(run: Run) -> tuple[str, float]:
    """Relative regret of the small sketch on MNIST, tuned, against OFUL, and how many times as fast it is."""
    sketched, full = f"tuned, m = {_SMALL}", "tuned"
    final = pd.DataFrame({"small": _final(run, sketched)["eofd"], "full": _final(run, full)["oful"]})
    times = run.timings.astype({"setting": str, "policy": str})
    medians = times.groupby(["setting", "policy"])["total_median_ms"].median()
    return (
        _relative(final, "small", "full"),
        float(medians[full, "oful"] / medians[sketched, "eofd"]),
    )


def _times(saving: float) -> str:
    """How many times as fast a round is that takes this share less time."""
    return f"{1.0 / (1.0 - saving):.2g}"


def _spoken(name: str) -> str:
    problem = name.partition(",")[0]
    return problem if problem == "MNIST" else f"the {problem} problem"


def _final(run: Run, setting: str) -> pd.DataFrame:
    """Regret at the end, trials by policies."""
    table = run.results.astype({"setting": str, "policy": str})
    chosen = table[table["setting"] == setting]
    return chosen.groupby(["trial", "policy"])["regret"].sum().unstack("policy")


def _relative(final: pd.DataFrame, first: str, second: str) -> str:
    """The difference of two policies within trials, over the mean of the second, with its interval."""
    difference = final[first] - final[second]
    if (difference == 0).all():
        return "0"
    numbers = [100.0 * value / final[second].mean() for value in tables.interval(difference)]
    mean, low, high = (round(value, 1) + 0.0 if np.isfinite(value) else np.nan for value in numbers)
    return f"{mean:+.1f} % [{low:+.1f}, {high:+.1f}]"


def _ratio(run: Run, setting: str, form: str) -> float:
    return tables.time_ratio(run.timings, setting, form, "eofd")


def _eigenvalue(run: Run, setting: str) -> float:
    """Mean over trials of the largest eigenvalue of OFUL's accumulated Hessian, over lambda."""
    final = pd.read_parquet(run.path / "final.parquet").astype({"setting": str, "policy": str})
    chosen = final[(final["setting"] == setting) & (final["policy"] == "oful")]
    return float(chosen["largest_eigenvalue"].mean()) / float(_setting(run, setting)["regularization"])


def _sizes(run: Run, setting: str) -> tuple[int, int]:
    """Kd and m of a setting."""
    problem = _setting(run, setting)["problem"]
    size = len(problem["rewards"]) * problem["dimension"] if "dimension" in problem else 785
    return int(size), int(_setting(run, setting)["sketch_size"])


def _setting(run: Run, name: str) -> dict[str, Any]:
    (found,) = (one for one in run.record["study"]["studies"][0]["settings"] if one["name"] == name)
    return dict(found)
