"""The figures, in one style: readable in greyscale and by the colour-blind, spread always shown.

Each policy has one colour (Okabe and Ito), one dash pattern and one marker everywhere. A notebook
draws with these functions and shows the result; `save` hands it to the batch that executes it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure


class Style(NamedTuple):
    """How a policy is drawn."""

    label: str
    colour: str
    dashes: tuple[float, ...]
    marker: str


STYLES: Mapping[str, Style] = {
    "eofd": Style("EOFD-MLogB", "#D55E00", (), "o"),
    "oful": Style("OFUL-MLogB", "#0072B2", (6, 2), "s"),
    "first-order": Style("no curvature", "#009E73", (1, 1.2), "^"),
    "greedy": Style("greedy (β = 0)", "#CC79A7", (4, 1.5, 1, 1.5), "D"),
    "random": Style("random play", "#555555", (2, 3), "x"),
    "eofd-literal": Style("EOFD, as printed", "#E69F00", (9, 1.5), "P"),
    "oful-literal": Style("OFUL, as printed", "#56B4E9", (6, 1.5, 1, 1.5, 1, 1.5), "X"),
}


def label(policy: str) -> str:
    """Name of a policy in tables and figures."""
    return STYLES[policy].label


def regret_curves(rounds: pd.DataFrame, titles: Mapping[str, str]) -> Figure:
    """Cumulative regret over time, one panel per setting.

    Parameters
    ----------
    rounds : DataFrame
        Columns setting, trial, round, policy, regret.
    titles : mapping
        Panel titles by setting, in the order of the panels.

    Returns
    -------
    Figure
        Lines are means over trials, bands one sample standard deviation on each side.
    """
    _require(rounds["setting"], titles)
    figure, axes = _panels(len(titles), height=4.2)
    for axis, (setting, title) in zip(axes, titles.items(), strict=True):
        chosen = rounds[rounds["setting"] == setting]
        for place, policy in enumerate(chosen["policy"].unique()):
            style = STYLES[policy]
            table = chosen[chosen["policy"] == policy].pivot(index="round", columns="trial", values="regret")
            total = table.cumsum()
            mean = total.mean(axis=1)
            # Markers a tenth of the axis apart, at other rounds for every policy: lines may coincide.
            step = max(len(mean) // 10, 1)
            axis.plot(
                mean.index, mean, color=style.colour, dashes=style.dashes, label=style.label, lw=1.8,
                marker=style.marker, markersize=5, markevery=(place * step // 5 % len(mean), step),
            )  # fmt: skip
            if total.shape[1] > 1:
                spread = total.std(axis=1, ddof=1)
                low, high = np.maximum(mean - spread, 0.5), mean + spread
                axis.fill_between(mean.index, low, high, color=style.colour, alpha=0.18, lw=0)
        axis.set(title=title, xlabel="round t", yscale="log", ylim=(1, None), xlim=(1, chosen["round"].max()))
        axis.grid(alpha=0.3, which="major")
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
    figure, axes = _panels(len(titles), height=0.5 * len(policies) + 1.7)
    for axis, (setting, title) in zip(axes, titles.items(), strict=True):
        chosen = timings[timings["setting"] == setting]
        shown = [policy for policy in policies if (chosen["policy"] == policy).any()]
        for place, policy in enumerate(shown):
            style = STYLES[policy]
            times = chosen.loc[chosen["policy"] == policy, "total_mean_ms"]
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
        low, high = axis.get_xlim()
        axis.set_xlim(low, high * 4)
        axis.set_ylim(-0.6, len(shown) - 0.4)
        axis.set_yticks(range(len(shown)), [label(policy) for policy in shown])
        axis.invert_yaxis()
        axis.grid(alpha=0.3, axis="x")
    return figure


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


def _require(settings: pd.Series[str], titles: Mapping[str, str]) -> None:
    missing = set(titles) - set(settings.astype(str))
    if missing or not titles:
        raise ValueError(f"titles must name settings of the table, got {sorted(missing) or 'none'}")


def _panels(n: int, height: float) -> tuple[Figure, list[Axes]]:
    figure, axes = plt.subplots(
        1, n, figsize=(4.6 * n + 0.4, height), sharey=False, squeeze=False, layout="constrained"
    )
    return figure, list(axes[0])


def _legend_below(figure: Figure, axes: Sequence[Axes]) -> None:
    entries: dict[str, Artist] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    figure.legend(
        list(entries.values()), list(entries), loc="outside lower center",
        ncols=max(1, min(len(entries), 5)), frameon=False,
    )  # fmt: skip
