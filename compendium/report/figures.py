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
from matplotlib.ticker import MaxNLocator
from scipy.special import stdtrit

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


#: Policies that the upper panels show: what could be learned lies between them.
_FRAME = ("oful", "eofd", "random")


def regret_curves(
    rounds: pd.DataFrame,
    titles: Mapping[str, str],
    variants: Mapping[str, Sequence[tuple[str, str, str]]] | None = None,
) -> Figure:
    """Cumulative regret over time, and below it what each policy has more or less than OFUL-MLogB.

    Policies of one trial meet the same random numbers, and their curves often coincide where the axis has
    room for random play. So the upper panels have the full Hessian and random play only, and the lower ones
    the differences within trials.

    Parameters
    ----------
    rounds : DataFrame
        Columns setting, trial, round, policy, regret.
    titles : mapping
        Panel titles by setting, in the order of the panels.
    variants : mapping, optional
        Lines of other settings that belong into a lower panel, as (setting, policy, label): drawn thin,
        with hollow symbols, in the policy's colour. Their trials meet the same random numbers.

    Returns
    -------
    Figure
        One column for each setting. Above, means over trials with bands of one sample standard deviation;
        below, mean differences to OFUL-MLogB, or to EOFD-MLogB where that was not played, with bands of the
        95 % interval of Student's t. Policies without any difference in any trial are named in the panel
        instead of drawn on top of each other.
    """
    _require(rounds["setting"], titles)
    width = 2.9 if len(titles) < 4 else 2.3  # of a panel: a wide figure is read in a narrow column
    figure, axes = plt.subplots(
        2, len(titles), figsize=(width * len(titles) + 0.9, 5.6), squeeze=False, layout="constrained",
        sharex="col", height_ratios=(3, 4),
    )  # fmt: skip
    for column, (setting, title) in enumerate(titles.items()):
        curves = _curves(rounds, setting)
        top, bottom = axes[:, column]
        reference = "oful" if "oful" in curves else "eofd"
        for place, policy in enumerate(p for p in _FRAME if p in curves and p in (reference, "random")):
            style = STYLES[policy]
            _draw_curve(top, curves[policy], style, style.label, place / 3, _deviation(curves[policy]))
        others = [
            (policy, curves[policy], STYLES[policy].label, False)
            for policy in curves
            if policy not in (reference, "random")
        ]
        for other, policy, name in (variants or {}).get(setting, ()):
            _require(rounds["setting"], {other: name})
            others.append((policy, _curves(rounds, other)[policy], name, True))
        _draw_differences(bottom, curves[reference], others)
        top.set(title=title, xlim=(1, rounds.loc[rounds["setting"] == setting, "round"].max()))
        top.set_ylim(bottom=0)
        bottom.set(xlabel="round t")
        if reference != "oful":
            bottom.set_title("OFUL-MLogB was not played", fontsize=9)
        for axis in (top, bottom):
            axis.grid(alpha=0.3)
            axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes[0, 0].set_ylabel("cumulative regret")
    axes[1, 0].set_ylabel("difference to the policy above")
    _legend_below(figure, list(axes.flat))
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


def _curves(rounds: pd.DataFrame, setting: str) -> dict[str, pd.DataFrame]:
    """Cumulative regret under a setting by policy, each rounds by trials."""
    chosen = rounds[rounds["setting"] == setting]
    return {
        str(policy): rows.pivot(index="round", columns="trial", values="regret").cumsum()
        for policy, rows in chosen.groupby("policy", observed=True, sort=False)
    }


def _deviation(curves: pd.DataFrame) -> pd.Series[float] | None:
    """One sample standard deviation over trials; None for a single trial."""
    return curves.std(axis=1, ddof=1) if curves.shape[1] > 1 else None


def _half_interval(curves: pd.DataFrame) -> pd.Series[float] | None:
    """Half the 95 % interval of Student's t over trials; None for fewer than three."""
    n = curves.shape[1]
    if n < 3:  # with one degree of freedom an interval says next to nothing
        return None
    half: pd.Series[float] = curves.std(axis=1, ddof=1) * (float(stdtrit(n - 1, 0.975)) / n**0.5)
    return half


def _draw_differences(
    axis: Axes, reference: pd.DataFrame, others: Sequence[tuple[str, pd.DataFrame, str, bool]]
) -> None:
    """Differences to the reference within trials; policies without one are named."""
    axis.axhline(0.0, color="0.4", linestyle=":", linewidth=1)
    equal = []
    for place, (policy, curves, name, variant) in enumerate(others):
        difference = curves - reference
        if np.allclose(difference, 0.0, atol=1e-9):
            equal.append(name)
            continue
        _draw_curve(axis, difference, STYLES[policy], name, place / 5, _half_interval(difference), variant)
    if equal:
        axis.annotate(
            "no difference in any trial:\n" + "\n".join(equal), (0.04, 0.04), xycoords="axes fraction",
            va="bottom", fontsize=8, bbox={"facecolor": "white", "edgecolor": "0.6", "alpha": 0.9},
        )  # fmt: skip
    if len(equal) == len(others):
        axis.set(ylim=(-1, 1), yticks=[0])


def _draw_curve(
    axis: Axes,
    curves: pd.DataFrame,
    style: Style,
    name: str,
    offset: float,
    half: pd.Series[float] | None,
    variant: bool = False,
) -> None:
    """Mean over trials with a band; symbols a tenth of the axis apart, since lines may coincide."""
    mean, step = curves.mean(axis=1), max(len(curves) // 10, 1)
    axis.plot(
        mean.index, mean, color=style.colour, dashes=style.dashes, label=name, lw=1.0 if variant else 1.8,
        marker=style.marker, markersize=5, markerfacecolor="white" if variant else style.colour,
        markevery=(int(offset * step) % len(mean), step),
    )  # fmt: skip
    if half is not None:
        shade = 0.06 if variant else 0.18
        axis.fill_between(mean.index, mean - half, mean + half, color=style.colour, alpha=shade, lw=0)


def _require(settings: pd.Series[str], titles: Mapping[str, str]) -> None:
    missing = set(titles) - set(settings.astype(str))
    if missing or not titles:
        raise ValueError(f"titles must name settings of the table, got {sorted(missing) or 'none'}")


def _legend_below(figure: Figure, axes: Sequence[Axes]) -> None:
    entries: dict[str, Artist] = {}
    for axis in axes:
        handles, labels = axis.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    figure.legend(
        list(entries.values()), list(entries), loc="outside lower center",
        ncols=max(1, min(len(entries), 3)), frameon=False,
    )  # fmt: skip
