"""The two plots: time against d at a fixed sketch size, and where sketching starts to pay.

Colours, dashes and markers are those of `compendium.report.figures`; a compiled form has its family's colour
with another dash pattern and a hollow marker. Both plots say how sure the medians are: by bands of the
quartiles, and by parentheses where the quartiles of two times overlap.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from compendium.experiments.policies import Style
from compendium.report.figures import STYLES
from compendium.system.paths import write_atomically
from compendium.system.provenance import sha256

VARIANT_STYLES: Mapping[tuple[str, str], Style] = {
    ("eofd", "numpy"): STYLES["eofd"]._replace(label="EOFD-MLogB, NumPy"),
    ("eofd", "compiled"): STYLES["eofd"]._replace(label="EOFD-MLogB, compiled", dashes=(3, 1.5)),
    ("oful", "numpy"): STYLES["oful"]._replace(label="OFUL-MLogB, NumPy"),
    ("oful", "compiled"): STYLES["oful"]._replace(label="OFUL-MLogB, compiled", dashes=(1.5, 1.5)),
    ("eofd", "printed"): STYLES["eofd-printed"],
    ("oful", "cholesky"): STYLES["oful-cholesky"],
    ("oful", "printed"): STYLES["oful-printed"],
}
FORM_TITLES = {"numpy": "NumPy against NumPy", "compiled": "compiled against compiled"}


def time_against_features(timings: pd.DataFrame) -> Figure:
    """Median time of a round against d at one sketch size, quartiles as bands, both axes logarithmic.

    Parameters
    ----------
    timings : DataFrame
        Rows of `timing.rows`; those of the part `curve` are drawn.

    Returns
    -------
    Figure
    """
    chosen = timings[timings["part"] == "curve"]
    figure, axis = plt.subplots(figsize=(6.4, 4.8), layout="constrained")
    for key, style in VARIANT_STYLES.items():
        line = chosen[(chosen["family"] == key[0]) & (chosen["form"] == key[1])].sort_values("d")
        if line.empty:
            continue
        axis.plot(
            line["d"], line["round_median_ms"], color=style.colour, dashes=style.dashes, marker=style.marker,
            markersize=6, markerfacecolor=_face(key, style), label=style.label, lw=1.8,
        )  # fmt: skip
        axis.fill_between(
            line["d"], line["round_q25_ms"], line["round_q75_ms"], color=style.colour, alpha=0.18, lw=0
        )
    sketch = int(chosen["m"].dropna().iloc[0])
    axis.set(
        xscale="log", yscale="log", xlabel="features d", ylabel="time per round (ms)",
        title=f"K = {chosen['K'].iloc[0]}, m = {sketch}, one thread",
    )  # fmt: skip
    _ticks(axis.xaxis, sorted(chosen["d"].unique()))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.grid(alpha=0.3, which="major")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


def speedup_map(timings: pd.DataFrame) -> Figure:
    """The speed-up of a round of EOFD over one of the strongest OFUL, as a map over (Kd, m).

    Parameters
    ----------
    timings : DataFrame
        Rows of `timing.rows`; those of the part `map` are drawn.

    Returns
    -------
    Figure
        One panel for each K and form. The thick line runs along the borders between cells whose ratio
        of medians is below 1 and those where it is not. A number in parentheses is of a cell where the
        quartiles of the two overlap, so that the order is not certain.
    """
    table = speedups(timings)
    outcomes, forms = sorted(table["K"].unique()), [f for f in FORM_TITLES if (table["form"] == f).any()]
    figure, axes = plt.subplots(
        len(outcomes), len(forms), figsize=(4.2 * len(forms) + 0.9, 3.4 * len(outcomes) + 0.4),
        squeeze=False, sharex="row", sharey="all", layout="constrained",
    )  # fmt: skip
    norm = LogNorm(min(0.5, table["median"].min()), max(2.0, table["median"].max()))
    for row, K in enumerate(outcomes):
        for column, form in enumerate(forms):
            axis = axes[row, column]
            panel = table[(table["K"] == K) & (table["form"] == form)]
            mesh = _draw_map(axis, panel, norm)
            axis.set_title(f"K = {K}, {FORM_TITLES[form]}")
            if column == 0:
                axis.set_ylabel("sketch size m")
            if row == len(outcomes) - 1:
                axis.set_xlabel("length of the parameter Kd")
    bar = figure.colorbar(mesh, ax=axes, label="time of OFUL / time of EOFD")
    bar.ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    return figure


def speedups(timings: pd.DataFrame) -> pd.DataFrame:
    """Time of OFUL over time of EOFD in the same form: K, Kd, m, form, low, median, high.

    `median` is the ratio of medians over common rounds; `low` and `high` are the ratios of opposite
    quartiles.
    """
    chosen = timings[timings["part"] == "map"].assign(Kd=lambda t: t["K"] * t["d"])
    sketched = chosen[chosen["family"] == "eofd"]
    dense = chosen[chosen["family"] == "oful"]
    both = sketched.merge(dense, on=["K", "Kd", "form"], suffixes=("", "_oful"))
    return pd.DataFrame(
        {
            "K": both["K"],
            "Kd": both["Kd"],
            "m": both["m"].astype(int),
            "form": both["form"],
            "low": both["round_q25_ms_oful"] / both["round_q75_ms"],
            "median": both["over_oful"].astype(float),
            "high": both["round_q75_ms_oful"] / both["round_q25_ms"],
        }
    )


def save(
    figure: Figure, name: str, folder: Path, record: Path, source: str, about: Mapping[str, Any]
) -> None:
    """Write a figure as PNG and PDF, with a sidecar that says which record it was drawn from.

    Parameters
    ----------
    figure : Figure
        Closed afterwards.
    name : str
        File name without ending.
    folder : Path
        Where the figures go.
    record : Path
        The record, whose checksum the sidecar holds.
    source : str
        Name of the record in the sidecar.
    about : mapping
        More entries of the sidecar.
    """
    # No dates and no version: the same data give the same bytes.
    kinds = {"pdf": {"CreationDate": None, "Producer": None, "Creator": None}, "png": {"Software": None}}
    digests = {}
    for kind, metadata in kinds.items():
        content = io.BytesIO()
        figure.savefig(content, format=kind, dpi=150, metadata=metadata)
        write_atomically(folder / f"{name}.{kind}", content.getvalue())
        digests[kind] = sha256(content.getvalue())
    plt.close(figure)
    sidecar = {"run": source, **about, "results_sha256": sha256(record), "sha256": digests}
    write_atomically(folder / f"{name}.json", json.dumps(sidecar, indent=2) + "\n")


def _draw_map(axis: Axes, panel: pd.DataFrame, norm: LogNorm) -> Any:
    grids = {
        name: panel.pivot(index="m", columns="Kd", values=name) for name in ("low", "median", "high")
    }  # fmt: skip
    grid = grids["median"]
    values = grid.to_numpy(float)
    lengths, sketches = grid.columns.to_numpy(float), grid.index.to_numpy(float)
    mesh = axis.pcolormesh(
        _edges(lengths), _edges(sketches), np.ma.masked_invalid(values), norm=norm, cmap="cividis"
    )
    for i, j in np.ndindex(values.shape):
        m, length, value = float(sketches[i]), float(lengths[j]), float(values[i, j])
        if np.isfinite(value):
            text = f"{value:.0f}" if value >= 10 else f"{value:.2g}"
            if grids["low"].iloc[i, j] < 1.0 < grids["high"].iloc[i, j]:
                text = f"({text})"
            colour = "black" if norm(value) > 0.5 else "white"
            axis.text(length, m, text, ha="center", va="center", fontsize=9, color=colour)
    _line_of_one(axis, _edges(lengths), _edges(sketches), values)
    axis.set(xscale="log", yscale="log")
    _ticks(axis.xaxis, lengths)
    _ticks(axis.yaxis, sketches)
    return mesh


def _line_of_one(axis: Axes, columns: np.ndarray, rows: np.ndarray, values: np.ndarray) -> None:
    """Draw the borders between cells below 1 and the others, along the edges: no number is crossed."""
    slower = np.where(np.isfinite(values), values < 1.0, np.nan)
    sides = []
    for i, j in zip(*np.nonzero(np.diff(slower, axis=1)), strict=True):
        if np.isfinite(slower[i, j : j + 2]).all():
            sides.append([(columns[j + 1], rows[i]), (columns[j + 1], rows[i + 1])])
    for i, j in zip(*np.nonzero(np.diff(slower, axis=0)), strict=True):
        if np.isfinite(slower[i : i + 2, j]).all():
            sides.append([(columns[j], rows[i + 1]), (columns[j + 1], rows[i + 1])])
    for width, colour in ((4.5, "black"), (2.5, "white")):
        line = LineCollection(sides, colors=colour, linewidths=width, capstyle="projecting")
        axis.add_collection(line, autolim=False)


def _edges(centres: np.ndarray) -> np.ndarray:
    """Borders of cells around logarithmically spaced centres."""
    if len(centres) == 1:
        return np.array([0.7, 1.4]) * float(centres[0])
    inner = np.sqrt(centres[1:] * centres[:-1])
    return np.concatenate(([centres[0] ** 2 / inner[0]], inner, [centres[-1] ** 2 / inner[-1]]))


def _ticks(axis: Any, values: Any) -> None:
    axis.set_major_locator(FixedLocator(list(values)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))


def _face(key: tuple[str, str], style: Style) -> str:
    return "white" if key[1] == "compiled" else style.colour
