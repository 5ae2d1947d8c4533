"""The figures, in one style: readable in greyscale and by the colour-blind, spread always shown.

Each policy has one colour (Okabe and Ito), one dash pattern and one hatch everywhere. A notebook
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
    hatch: str


STYLES: Mapping[str, Style] = {
    "eofd": Style("EOFD-MLogB", "#D55E00", (), ""),
    "oful": Style("OFUL-MLogB", "#0072B2", (6, 2), "//"),
    "first-order": Style("no curvature", "#009E73", (1, 1.2), ".."),
    "greedy": Style("greedy (β = 0)", "#CC79A7", (4, 1.5, 1, 1.5), "xx"),
    "random": Style("random play", "#555555", (2, 3), ""),
    "eofd-literal": Style("EOFD, as printed", "#E69F00", (9, 1.5), "\\\\"),
    "oful-literal": Style("OFUL, as printed", "#56B4E9", (6, 1.5, 1, 1.5, 1, 1.5), "++"),
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
    figure, axes = _panels(len(titles), height=4.2)
    for axis, (setting, title) in zip(axes, titles.items(), strict=True):
        chosen = rounds[rounds["setting"] == setting]
        for policy in chosen["policy"].unique():
            style = STYLES[policy]
            table = chosen[chosen["policy"] == policy].pivot(index="round", columns="trial", values="regret")
            total = table.cumsum()
            mean = total.mean(axis=1)
            axis.plot(mean.index, mean, color=style.colour, dashes=style.dashes, label=style.label, lw=1.8)
            if total.shape[1] > 1:
                spread = total.std(axis=1, ddof=1)
                low, high = np.maximum(mean - spread, 0.5), mean + spread
                axis.fill_between(mean.index, low, high, color=style.colour, alpha=0.18, lw=0)
        axis.set(title=title, xlabel="round t", yscale="log", ylim=(1, None), xlim=(1, None))
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
        Bars are means over trials of a trial's mean time, whiskers one sample standard deviation.
    """
    figure, axes = _panels(len(titles), height=0.5 * len(policies) + 1.7)
    for axis, (setting, title) in zip(axes, titles.items(), strict=True):
        chosen = timings[timings["setting"] == setting]
        shown = [policy for policy in policies if (chosen["policy"] == policy).any()]
        for place, policy in enumerate(shown):
            style = STYLES[policy]
            times = chosen.loc[chosen["policy"] == policy, "total_mean_ms"]
            mean, spread = float(times.mean()), float(times.std(ddof=1)) if len(times) > 1 else 0.0
            axis.barh(
                place, mean, xerr=spread, color=style.colour, hatch=style.hatch, edgecolor="white",
                error_kw={"ecolor": "black", "capsize": 3}, height=0.7,
            )  # fmt: skip
            axis.annotate(
                f" {mean:.3g} ms", (mean + spread, place), va="center", xytext=(3, 0),
                textcoords="offset points", fontsize=9,
            )  # fmt: skip
        axis.set(title=title, xscale="log", xlabel="time per round (ms)")
        low, high = axis.get_xlim()
        axis.set_xlim(low, high * 3)
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
