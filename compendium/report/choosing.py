"""The numbers of the page on choosing parameters, from the recorded runs.

Two things are computed here: how much more regret the page's rule of thumb has than the best point of a
recorded grid, and what the regret of a sketch was beside that of the full Hessian, by how much it had lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from compendium.report import tables
from compendium.report.readme import only_run
from compendium.runs.run import Run, find_runs

PAGE = "book/choosing.md"
#: What the page says to start from; the norm bound is between the true norm and thrice it.
RULE = {"regularization": 10.0, "step_size": 1.0, "scale": 1e-4}
#: Bounds of the classes of shrinkage over ridge, with their words.
CLASSES = {
    1.0: r"up to $\lambda$",
    10.0: r"$\lambda$ to $10\lambda$",
    float("inf"): r"more than $10\lambda$",
}


def grid(case: str) -> dict[str, dict[str, Any]]:
    """The settings of the wide recorded grid of a problem, by name: the second of the studies of its run."""
    studies = only_run("parameter_grid", case).record["study"]["studies"]
    return {setting["name"]: setting for setting in studies[1]["settings"]}


def excess_on_the_grid(case: str) -> pd.DataFrame:
    """How much more regret than the best of the grid each setting has.

    Parameters
    ----------
    case : str
        ``multinomial`` or ``binary``.

    Returns
    -------
    DataFrame
        In per cent of the least regret; a row for each setting, a column for each policy.
    """
    regret = _final_regret(only_run("parameter_grid", case)).unstack("policy").loc[list(grid(case))]
    return 100.0 * (regret / regret.min() - 1.0)


def settings_of_the_rule(case: str) -> list[str]:
    """Names of the settings of the wide grid that the rule allows: one for each norm bound."""
    return [
        name
        for name, setting in grid(case).items()
        if (setting["regularization"], setting["step_size"], setting["radius"]["scale"])
        == tuple(RULE.values())
    ]


def price_of_shrinkage() -> pd.DataFrame:
    r"""What a sketch had lost by the end of a game, and how its regret compares, in all recorded runs.

    A setting counts if OFUL-MLogB played the same problem with the same parameters in the same run; games
    for the clock are left out.

    Returns
    -------
    DataFrame
        A row for each setting: `experiment`, `setting`, the `ratio` :math:`\rho/\lambda` and the `excess`
        regret over OFUL-MLogB's in per cent, both from means over the trials.
    """
    return pd.DataFrame(
        [row for run in find_runs(profile="paper") for row in _prices(run)],
        columns=["experiment", "setting", "ratio", "excess"],
    )


def _prices(run: Run) -> Iterator[tuple[str, str, float, float]]:
    final = run.path / "final.parquet"
    if not final.is_file():
        return
    regret = _final_regret(run)
    lost = pd.read_parquet(final).groupby(["setting", "policy"], observed=True)["shrinkage"].mean()
    for study in run.record["study"]["studies"]:
        if study["experiment"].endswith("timing"):
            continue
        full = {_shared(s): s["name"] for s in study["settings"] if "oful" in s["policies"]}
        for setting in study["settings"]:
            name = setting["name"]
            if "eofd" not in setting["policies"] or _shared(setting) not in full:
                continue
            least = regret[full[_shared(setting)], "oful"]
            excess = 100.0 * (regret[name, "eofd"] / least - 1.0)
            yield run.record["experiment"], name, lost[name, "eofd"] / setting["regularization"], excess


def _shared(setting: Mapping[str, Any]) -> str:
    """What two settings with and without a sketch have in common."""
    own = ("name", "sketch_size", "policies", "parameters")
    return json.dumps({key: value for key, value in setting.items() if key not in own}, sort_keys=True)


def _final_regret(run: Run) -> pd.Series[float]:
    """Mean over the trials of the regret after the last round, by setting and policy."""
    results = run.results
    last = results["round"] == results.groupby("setting", observed=True)["round"].transform("max")
    return results[last].groupby(["setting", "policy"], observed=True)["regret"].mean()


def _grid_table() -> str:
    lines = ["| problem | EOFD-MLogB, $m = Kd/10$ | OFUL-MLogB |", "|---|---:|---:|"]
    for case in ("multinomial", "binary"):
        excess = excess_on_the_grid(case).loc[settings_of_the_rule(case)]
        ranges = (_range(f"{excess[p].min():.0f}%", f"{excess[p].max():.0f}%") for p in ("eofd", "oful"))
        lines.append(f"| {case} | {' | '.join(ranges)} |")
    return "\n".join([*lines, ""])


def _shrinkage_table() -> str:
    prices = price_of_shrinkage()
    lines = [
        r"| $\rho$ at the end | count | median | middle half | most |",
        "|---|---:|---:|---:|---:|",
    ]
    groups = prices.groupby(
        pd.cut(prices["ratio"], [-1.0, *CLASSES], labels=[*CLASSES.values()]), observed=True
    )
    for words, excess in groups["excess"]:
        low, middle, high, largest = map(_signed, excess.quantile([0.25, 0.5, 0.75, 1.0]))
        lines.append(f"| {words} | {len(excess)} | {middle} | {_range(low, high)} | {largest} |")
    return "\n".join([*lines, ""])


def _signed(value: float) -> str:
    return f"{value:+.0f}%" if round(value) else "0"


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


#: By the name in the comments of the page.
BLOCKS: Mapping[str, Callable[[], str]] = {"grid": _grid_table, "shrinkage": _shrinkage_table}


def write(check: bool = False, root: Path | None = None) -> None:
    """Write the tables of the page, or check that they are current.

    Parameters
    ----------
    check : bool
        Change nothing; raise if a table differs.
    root : Path, optional
        The project; found from the working folder by default.

    Raises
    ------
    FailureError
        If a table differs under `check`, or a run is missing.
    UsageError
        If a block has no end.
    """
    tables.write_blocks((PAGE,), BLOCKS, check, root)
