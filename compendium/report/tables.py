"""Tables and sentences from results: what the notebooks show and what the README repeats.

Everything here is computed from the tables of a run. A sentence that carries a figure is made from
that figure, so it cannot outlive it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from compendium.report.figures import label
from compendium.system import paths
from compendium.system.paths import FailureError, UsageError

if TYPE_CHECKING:
    from compendium.runs.run import Run

_NAMES = {"paper": "the paper's setting", "tuned": "the tuned setting"}


def regret_table(final_regret: pd.DataFrame) -> pd.DataFrame:
    """Cumulative regret per setting and policy: mean, sample standard deviation, ratio to random play.

    Parameters
    ----------
    final_regret : DataFrame
        Columns setting, policy, trial, regret.
    """
    keys = ["setting", "policy"]
    table = final_regret.groupby(keys, observed=True, sort=False)["regret"].agg(["mean", "std", "count"])
    table = table.reset_index().rename(columns={"std": "sd", "count": "trials"})
    random = table[table["policy"] == "random"].set_index("setting")["mean"]
    # Settings of one study share their random streams, so on one problem random play is the same
    # under all of them, and stands in where it was left out.
    common = random.iloc[0] if random.nunique() == 1 else np.nan
    benchmark = table["setting"].astype(str).map(random).fillna(common)
    table["of random play"] = (table["mean"] / benchmark.astype(float)).round(3)
    table["policy"] = [label(policy) for policy in table["policy"]]
    table[["mean", "sd"]] = table[["mean", "sd"]].round(1)
    return table


def paired_differences(
    final_regret: pd.DataFrame, pairs: Sequence[tuple[str, str]], level: float = 0.95
) -> pd.DataFrame:
    """Differences of regret within trials, with an interval of Student's t over trials.

    Parameters
    ----------
    final_regret : DataFrame
        Columns setting, policy, trial, regret.
    pairs : sequence of (str, str)
        Policies to compare, first less second.
    level : float
        Level of the interval.
    """
    rows = []
    for setting in final_regret["setting"].unique():
        for first, second in pairs:
            difference = _difference(final_regret, (setting, first), (setting, second))
            if difference is not None:
                mean, low, high = interval(difference, level)
                name = f"{label(first)} − {label(second)}"
                rows.append({"setting": setting, "difference": name, "mean": mean, "low": low, "high": high})
    return pd.DataFrame(rows).round(1)


def curvature_table(final: pd.DataFrame, settings: Mapping[str, tuple[float, float]]) -> pd.DataFrame:
    """How large the accumulated Hessian has become, what the sketch discarded, and the parameter's norm.

    Parameters
    ----------
    final : DataFrame
        `Results.final`.
    settings : mapping
        (lambda, S) by setting.

    Returns
    -------
    DataFrame
        Means over trials: the largest eigenvalue of Z less lambda, and rho, both over lambda; the
        norm of the parameter over S.
    """
    means = final.groupby(["setting", "policy"], observed=True, sort=False).mean(numeric_only=True)
    rows = []
    for row in means.reset_index().to_dict("records"):
        regularization, norm_bound = settings[row["setting"]]
        rows.append(
            {
                "setting": row["setting"],
                "policy": label(row["policy"]),
                "largest eigenvalue / λ": _digits(row["largest_eigenvalue"] / regularization),
                "ρ / λ": _digits(row["shrinkage"] / regularization),
                "‖W‖ / S": _digits(row["parameter_norm"] / norm_bound),
            }
        )
    return pd.DataFrame(rows)


def time_table(timings: pd.DataFrame) -> pd.DataFrame:
    """Wall time per round in milliseconds, and as a multiple of EOFD-MLogB's in the same trials.

    Parameters
    ----------
    timings : DataFrame
        Columns setting, policy, trial and the means and quantiles of `Results.timings`.

    Notes
    -----
    Only rounds with a full sketch count, from the round that the table names. `select`, `update`
    and `mean` are averaged over trials, `sd` is the sample standard deviation over trials; the ratio
    is that of medians over rounds within each trial, then the median over trials.
    """
    rows = []
    for (setting, policy), group in timings.groupby(["setting", "policy"], observed=True, sort=False):
        total = group["total_mean_ms"]
        rows.append(
            {
                "setting": setting,
                "policy": label(str(policy)),
                "from round": int(group["first_round"].iloc[0]),
                "select (ms)": _digits(group["select_mean_ms"].mean()),
                "update (ms)": _digits(group["update_mean_ms"].mean()),
                "mean (ms)": _digits(total.mean()),
                "sd (ms)": _digits(total.std(ddof=1)) if len(total) > 1 else np.nan,
                "ratio of medians to EOFD": _digits(time_ratio(timings, str(setting), str(policy), "eofd")),
            }
        )
    return pd.DataFrame(rows)


def time_ratio(timings: pd.DataFrame, setting: str, policy: str, reference: str) -> float:
    """Ratio of median times per round of two policies in the same trials, median over trials."""
    chosen = timings[timings["setting"].astype(str) == setting]
    median = {
        name: chosen[chosen["policy"].astype(str) == name].set_index("trial")["total_median_ms"]
        for name in (policy, reference)
    }
    return float((median[policy] / median[reference]).median())


def _mnist_comparison(final_regret: pd.DataFrame, setting: str, decimals: int) -> str:
    n_trials = final_regret["trial"].nunique()
    eofd, oful, random = (_mean(final_regret, setting, policy) for policy in ("eofd", "oful", "random"))
    return (
        f"In {_NAMES[setting]} EOFD-MLogB misses {eofd:.1f} rewards and OFUL-MLogB {oful:.1f} "
        f"({_percent(eofd, oful, decimals)}{_interval_text(final_regret, setting, 'eofd', 'oful')}); "
        f"random play misses {random:.0f}. Means over {n_trials} trial{'s' * (n_trials != 1)}."
    )


def _mnist_small_sketch(final_regret: pd.DataFrame, decimals: int) -> list[str]:
    small = _mean(final_regret, "tuned, m = 5", "eofd")
    if not np.isfinite(small):
        return []
    return [
        f"In the tuned setting a sketch of 5 directions misses {small:.1f}, "
        f"{_percent(small, _mean(final_regret, 'tuned', 'oful'), decimals)} against the full Hessian."
    ]


def mnist_findings(final_regret: pd.DataFrame, decimals: int = 0) -> list[str]:
    """What the regret of the MNIST comparison says, in sentences.

    Parameters
    ----------
    final_regret : DataFrame
        `Results.final_regret`.
    decimals : int
        Decimals of the differences in per cent. The notebook shows none; a page that has the differences
        themselves beside them needs one, or a small one would be called zero.
    """
    sentences = []
    for setting in _NAMES:
        oful, flat = (_mean(final_regret, setting, policy) for policy in ("oful", "first-order"))
        sentences.append(_mnist_comparison(final_regret, setting, decimals))
        sentences.append(
            f"Without any curvature the same parameters miss {flat:.1f}, {_percent(flat, oful, decimals)} "
            f"against OFUL-MLogB{_interval_text(final_regret, setting, 'first-order', 'oful')}."
        )
    for setting, name in _NAMES.items():
        greedy, eofd = _mean(final_regret, setting, "greedy"), _mean(final_regret, setting, "eofd")
        sentences.append(
            f"Greedy play in {name} misses {greedy:.1f}, {_percent(greedy, eofd, decimals)} against "
            f"EOFD-MLogB{_interval_text(final_regret, setting, 'greedy', 'eofd')}."
        )
    own = _mean(final_regret, "tuned for no curvature", "first-order")
    if np.isfinite(own):
        sentences.append(
            "With parameters of its own, chosen for it on the validation streams, the policy without "
            f"curvature misses {own:.1f}, {_percent(own, _mean(final_regret, 'tuned', 'oful'), decimals)} "
            "against OFUL-MLogB in the tuned setting."
        )
    return sentences + _mnist_small_sketch(final_regret, decimals)


def comparison_findings(final_regret: pd.DataFrame) -> list[str]:
    """What a comparison with the five policies says, one sentence for each setting.

    Parameters
    ----------
    final_regret : DataFrame
        `Results.final_regret`, with the policies eofd, oful, first-order, greedy and random.
    """
    sentences = []
    for setting in final_regret["setting"].astype(str).unique():
        eofd, oful, flat, greedy, random = (
            _mean(final_regret, setting, name) for name in ("eofd", "oful", "first-order", "greedy", "random")
        )
        sentences.append(
            f"In {_spoken(setting)} EOFD-MLogB has {_percent(eofd, oful)} of regret against OFUL-MLogB"
            f"{_interval_text(final_regret, setting, 'eofd', 'oful')}; as shares of random play: EOFD-MLogB "
            f"{eofd / random:.0%}, OFUL-MLogB {oful / random:.0%}, no curvature {flat / random:.0%}, greedy "
            f"{greedy / random:.0%}."
        )
    return sentences


_TIMED = ("oful", "oful-cholesky", "oful-printed", "eofd-printed", "eofd-compiled", "oful-compiled")


def time_findings(timings: pd.DataFrame) -> list[str]:
    """What the times say, in sentences; ratios are within one run.

    Trials that end before the sketch has been full for a while say nothing about time.
    """
    sentences = []
    timings = timings[timings["first_round"] > 1]
    for setting in timings["setting"].astype(str).unique():
        present = set(timings.loc[timings["setting"].astype(str) == setting, "policy"].astype(str))
        others = [p for p in _TIMED if {"eofd", p} <= present]
        ratios = {policy: time_ratio(timings, setting, policy, "eofd") for policy in others}
        if ratios:
            listed = [
                f"{label(policy)} {_digits(ratio):g}{_saving(ratio)}" for policy, ratio in ratios.items()
            ]
            sentences.append(
                f"Time of a round as a multiple of one of EOFD-MLogB in {_spoken(setting)} "
                f"(ratio of medians, sketch full): {'; '.join(listed)}."
            )
    return sentences


def _saving(ratio: float) -> str:
    return f" (EOFD-MLogB saves {1 - 1 / ratio:.0%})" if ratio >= 1 else ""


def _spoken(setting: str) -> str:
    """Name of a setting inside a sentence; `X, timed` is the short trial that only takes times."""
    name, timed, _ = setting.partition(", timed")
    return f"the timing trials of {_NAMES.get(name, name)}" if timed else _NAMES.get(name, name)


def mnist_regret(run: Run) -> pd.DataFrame:
    """Final regret of the comparison in a run of the MNIST experiment.

    The comparison is the first study; trials of the others, which only take times, are shorter.
    """
    names = [setting["name"] for setting in run.record["study"]["studies"][0]["settings"]]
    played = run.results[run.results["setting"].isin(names)]
    keys = ["setting", "policy", "trial"]
    return played.groupby(keys, observed=True, sort=False)["regret"].sum().reset_index()


def mnist_block(run: Run) -> str:
    """The comparison on MNIST in one table and in sentences, from a run of that experiment."""
    final = mnist_regret(run)
    times = time_table(run.timings).set_index(["setting", "policy"])["mean (ms)"]
    lines = ["| setting | policy | missed rewards (mean ± sd) | of random play | ms a round |"]
    lines.append("|---|---|---:|---:|---:|")
    for row in regret_table(final).to_dict("records"):
        share = "" if np.isnan(row["of random play"]) else f"{row['of random play']:.1%}"
        lines.append(
            f"| {row['setting']} | {row['policy']} | {row['mean']:.1f} ± {row['sd']:.1f} | {share} | "
            f"{_digits(times[row['setting'], row['policy']], 2):g} |"
        )
    data = run.record["study"]["studies"][0]["data"][0]
    rounds, trials = (run.record["parameters"][name] for name in ("n_rounds", "n_trials"))
    jobs = run.record["environment"]["jobs"]
    lines += [
        "",
        f"{trials} trials of {rounds:,} rounds on {data['rows']:,} of MNIST's {data['full_rows']:,} "
        f"digits. The times of the table are from trials played {jobs} at a time; those below, and the "
        "verdicts on time, are from the timing trials, played one at a time.",
        "",
    ]
    alone = run.timings[run.timings["setting"].astype(str).str.endswith("timed")]
    sentences = mnist_findings(final, decimals=1) + time_findings(alone)
    return "\n".join(lines + [f"- {sentence}" for sentence in sentences]) + "\n"


def with_block(path: Path, name: str, block: str) -> str:
    """The text of a page with other content between its comments ``NAME: begin`` and ``NAME: end``.

    Raises
    ------
    UsageError
        If the page does not have the two comments.
    """
    return replace_block(path.read_text(encoding="utf-8"), name, block, path.name)


def replace_block(text: str, name: str, block: str, page: str) -> str:
    """A text with other content between two comments, as `with_block` says; `page` is named in the error."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = text.partition(f"{begin}\n")
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise UsageError(f"{page} has no block between {begin} and {end}")
    return f"{before}{found}{block}{end}{after}"


def write_blocks(
    pages: Iterable[str],
    blocks: Mapping[str, Callable[[], str]],
    check: bool = False,
    root: Path | None = None,
) -> None:
    """Write every block of some pages, or under `check` compare it.

    Parameters
    ----------
    pages : iterable of str
        Paths from the root of the project.
    blocks : mapping
        What makes the content of a block, by the name in its comments.
    check : bool
        Change nothing; raise if a block differs.
    root : Path, optional
        The project; found from the working folder by default.

    Raises
    ------
    FailureError
        If a block differs under `check`.
    UsageError
        If a block has no end.
    """
    root = root or paths.project_root()
    for name in pages:
        path = root / name
        for block in re.findall(r"<!-- (\w+): begin -->", path.read_text(encoding="utf-8")):
            if write_if_changed(path, with_block(path, block, blocks[block]()), check):
                raise FailureError(f"{name}: {block} differs from the records: run `make readme`")


def write_if_changed(path: Path, text: str, check: bool = False) -> bool:
    """Write a page unless it has this text already, or under `check` say whether it has another one."""
    differs = not path.is_file() or path.read_text(encoding="utf-8") != text
    if differs and not check:
        paths.write_atomically(path, text)
    return differs and check


def _regret(final_regret: pd.DataFrame, setting: str, policy: str) -> pd.Series[float]:
    chosen = (final_regret["setting"].astype(str) == setting) & (final_regret["policy"].astype(str) == policy)
    return final_regret[chosen].set_index("trial")["regret"]


def _mean(final_regret: pd.DataFrame, setting: str, policy: str) -> float:
    return float(_regret(final_regret, setting, policy).mean())


def _difference(
    final_regret: pd.DataFrame, first: tuple[str, str], second: tuple[str, str]
) -> pd.Series[float] | None:
    one, other = _regret(final_regret, *first), _regret(final_regret, *second)
    return None if one.empty or other.empty else one - other


def interval(values: Iterable[float], level: float = 0.95) -> tuple[float, float, float]:
    """Mean and two-sided interval of Student's t; no interval for fewer than three values."""
    sample = np.asarray(list(values))
    mean = float(sample.mean())
    if sample.size < 3:  # with one degree of freedom an interval says next to nothing
        return mean, np.nan, np.nan
    half = float(stdtrit(sample.size - 1, 0.5 + level / 2) * sample.std(ddof=1) / np.sqrt(sample.size))
    return mean, mean - half, mean + half


def _interval_text(final_regret: pd.DataFrame, setting: str, first: str, second: str) -> str:
    difference = _difference(final_regret, (setting, first), (setting, second))
    if difference is None or len(difference) < 3:
        return ""
    mean, low, high = interval(difference)
    mean, low, high = (round(number, 1) + 0.0 for number in (mean, low, high))  # no negative zero
    return f", paired difference {mean:+.1f} with 95% interval [{low:.1f}, {high:.1f}]"


def _percent(value: float, reference: float, decimals: int = 0) -> str:
    if reference == 0:  # a short trial may miss nothing
        return "+∞%" if value else "+0%"
    return f"{round(value / reference - 1, 2 + decimals) + 0.0:+.{decimals}%}"


def _digits(value: float, significant: int = 3) -> float:
    return float(f"{value:.{significant}g}")
