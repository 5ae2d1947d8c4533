"""The figures, in one style: readable in greyscale and by the colour-blind, spread always shown.

Each policy has one colour, one dash pattern and one marker everywhere, those of its entry in
`compendium.experiments.policies`. A notebook draws with these functions and shows the result; `save`
hands it to the batch that executes it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from compendium.experiments.policies import POLICIES, Style

# The style is the project's: a user's matplotlibrc would change sizes, and the bytes of every figure.
matplotlib.rcdefaults()


#: How each policy is drawn.
STYLES: Mapping[str, Style] = {name: entry.style for name, entry in POLICIES.items()}

#: Colours of Okabe and Ito for lines that are not policies; draw them with `MARKERS` too.
SERIES = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")


def label(policy: str) -> str:
    """Name of a policy in tables and figures."""
    return STYLES[policy].label


def regret_curves(
    rounds: pd.DataFrame,
    titles: Mapping[str, str],
    variants: Mapping[str, Sequence[tuple[str, str, str]]] | None = None,
    log: bool = True,
) -> Figure:
    """Cumulative regret over time, one panel per setting.

    Parameters
    ----------
    rounds : DataFrame
        Columns setting, trial, round, policy, regret.
    titles : mapping
        Panel titles by setting, in the order of the panels.
    variants : mapping, optional
        Lines of other settings that belong into a panel, as (setting, policy, label): drawn thin,
        with hollow symbols, in the policy's colour.
    log : bool, optional
        A logarithmic scale that the panels share, where policies differ by orders of magnitude; else
        a linear scale for each panel.

    Returns
    -------
    Figure
        Lines are means over trials, bands one sample standard deviation on each side.
    """
    _require(rounds["setting"], titles)
    figure, axes = _panels(len(titles), height=4.4, share_y=log)
    for axis, (setting, title) in zip(axes, titles.items(), strict=True):
        chosen = rounds[rounds["setting"] == setting]
        for place, policy in enumerate(chosen["policy"].unique()):
            style = STYLES[policy]
            curves = _cumulative(chosen[chosen["policy"] == policy])
            _draw_curve(axis, curves, style, style.label, place / 5)
        for place, (other, policy, name) in enumerate((variants or {}).get(setting, ())):
            _require(rounds["setting"], {other: name})
            curves = _cumulative(rounds[(rounds["setting"] == other) & (rounds["policy"] == policy)])
            _draw_curve(axis, curves, STYLES[policy], name, place / 5 + 0.1, variant=True)
        scale = "log" if log else "linear"
        axis.set(title=title, xlabel="round t", yscale=scale, xlim=(1, chosen["round"].max()))
        axis.grid(alpha=0.3, which="major")
        axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    for axis in axes:  # when all is drawn: a limit that is set ends the scaling of a shared axis
        axis.set_ylim(bottom=1 if log else 0)
    axes[0].set_ylabel("cumulative regret (missed rewards)")
    _legend_below(figure, axes)
    return figure


def round_times(timings: pd.DataFrame, titles: Mapping[str, str], policies: Sequence[str]) -> Figure:
    """Average time per round, one panel per setting, on a logarithmic axis.

    Parameters
    ----------
    timings : DataFrame
        Columns setting, policy, trial, total_mean_ms.
    titles : mapping
        Panel titles by setting.
    policies : sequence of str
        Which policies to show, from top to bottom.

    Returns
    -------
    Figure
        Points are means over trials of a trial's mean time, whiskers one sample standard deviation.
        No bars: their length would mean nothing on a logarithmic axis.
    """
    _require(timings["setting"], titles)
    timed = timings.loc[timings["setting"].isin(list(titles)), "policy"]
    shown = [policy for policy in policies if (timed == policy).any()]
    figure, axes = _panels(len(titles), height=0.5 * len(shown) + 1.4, share_x=True)
    for axis, (setting, title) in zip(axes, titles.items(), strict=True):
        chosen = timings[timings["setting"] == setting]
        for place, policy in enumerate(shown):
            style = STYLES[policy]
            times = chosen.loc[chosen["policy"] == policy, "total_mean_ms"]
            if times.empty:
                continue
            mean, spread = float(times.mean()), float(times.std(ddof=1)) if len(times) > 1 else 0.0
            axis.errorbar(
                mean, place, xerr=spread, fmt=style.marker, color=style.colour, ecolor="black",
                markersize=9, capsize=4,
            )  # fmt: skip
            axis.annotate(
                f"{mean:.3g} ms", (mean + spread, place), va="center", xytext=(8, 0),
                textcoords="offset points", fontsize=9,
            )  # fmt: skip
        axis.set(title=title, xscale="log", xlabel="time per round (ms)")
        axis.set_ylim(-0.6, len(shown) - 0.4)
        axis.set_yticks(range(len(shown)), [label(policy) for policy in shown])
        axis.invert_yaxis()
        axis.grid(alpha=0.3, axis="x")
    low, high = axes[0].get_xlim()
    axes[0].set_xlim(low, high * 4)  # room for the numbers
    return figure


def logarithmic(axis: Axes) -> None:
    """Make both scales of an axis logarithmic, as far as what is drawn on it has positive values.

    Matplotlib does not draw a logarithmic axis without any: a game of one round may have no regret.
    """
    axis.set(
        xscale="log" if np.isfinite(axis.dataLim.minposx) else "linear",
        yscale="log" if np.isfinite(axis.dataLim.minposy) else "linear",
    )


def save(figure: Figure, name: str) -> None:
    """Hand a figure to the batch that executes the notebook, as PNG and PDF; without one, do nothing."""
    folder = os.environ.get("MLOGB_RUN_DIR")
    if not folder:
        return
    target = Path(folder) / "figures"
    target.mkdir(exist_ok=True)
    # No dates and no version: the same data give the same bytes.
    figure.savefig(target / f"{name}.png", dpi=150, metadata={"Software": None})
    figure.savefig(target / f"{name}.pdf", metadata={"CreationDate": None, "Producer": None, "Creator": None})


def _cumulative(rows: pd.DataFrame) -> pd.DataFrame:
    """Cumulative regret, rounds by trials."""
    return rows.pivot(index="round", columns="trial", values="regret").cumsum()


def _draw_curve(
    axis: Axes, curves: pd.DataFrame, style: Style, name: str, offset: float, variant: bool = False
) -> None:
    """Mean over trials with its band; symbols a tenth of the axis apart, since lines may coincide."""
    mean, step = curves.mean(axis=1), max(len(curves) // 10, 1)
    axis.plot(
        mean.index, mean, color=style.colour, dashes=style.dashes, label=name, lw=1.0 if variant else 1.8,
        marker=style.marker, markersize=5, markerfacecolor="white" if variant else style.colour,
        markevery=(int(offset * step) % len(mean), step),
    )  # fmt: skip
    if curves.shape[1] > 1:
        spread = curves.std(axis=1, ddof=1)
        low, high = np.maximum(mean - spread, 1e-3), mean + spread
        shade = 0.06 if variant else 0.18
        axis.fill_between(mean.index, low, high, color=style.colour, alpha=shade, lw=0)


def _require(settings: pd.Series[str], titles: Mapping[str, str]) -> None:
    missing = set(titles) - set(settings.astype(str))
    if missing or not titles:
        raise ValueError(f"titles must name settings of the table, got {sorted(missing) or 'none'}")


def _panels(n: int, height: float, share_x: bool = False, share_y: bool = False) -> tuple[Figure, list[Axes]]:
    figure, axes = plt.subplots(
        1, n, figsize=(4.6 * n + 0.4, height), squeeze=False, layout="constrained",
        sharex="all" if share_x else "none", sharey="all" if share_y else "none",
    )  # fmt: skip
    return figure, list(axes[0])


def _legend_below(figure: Figure, axes: Sequence[Axes]) -> None:
    entries: dict[str, Artist] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    figure.legend(
        list(entries.values()), list(entries), loc="outside lower center",
        ncols=max(1, min(len(entries), 4)), frameon=False,
    )  # fmt: skip
