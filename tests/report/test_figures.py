"""Figures: the drawn data are those of the tables, and the same tables give the same bytes."""

from __future__ import annotations

import itertools
import re

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from compendium.experiments.policies import COMPARISON
from compendium.experiments.policies import POLICIES as ENTRIES
from compendium.report import figures
from compendium.report.figures import STYLES, regret_curves, save

POLICIES = tuple(ENTRIES)
TITLES = {"b": "the first panel", "a": "the second panel"}
N_ROUNDS, N_TRIALS = 25, 4


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def make_rounds(policies=COMPARISON, n_trials=N_TRIALS, settings=("a", "b")):
    """Random regrets, different for every policy; rows in the order of a study's table."""
    rng = np.random.default_rng(5)
    index = itertools.product(settings, range(n_trials), range(1, N_ROUNDS + 1), policies)
    frame = pd.DataFrame(index, columns=["setting", "trial", "round", "policy"])
    return frame.assign(regret=rng.random(len(frame)) * (1 + frame["policy"].map(POLICIES.index)))


def cumulative(rounds, setting, policy):
    """Trials by rounds, summed up, without pandas."""
    rows = rounds[(rounds["setting"] == setting) & (rounds["policy"] == policy)]
    table = np.zeros((rows["trial"].nunique(), N_ROUNDS))
    for row in rows.itertuples():
        table[row.trial, row.round - 1] = row.regret
    return np.cumsum(table, axis=1)


def dash_pattern(line):
    """The pattern in units of the line width."""
    _, dashes = line._unscaled_dash_pattern
    return tuple(dashes or ())


# Regret


def panels(figure):
    """The panels by setting: the upper and the lower one."""
    n = len(figure.axes) // 2
    return list(zip(figure.axes[:n], figure.axes[n:], strict=True))


def band(axis, policy):
    """The corners of a policy's band."""
    bands = {to_hex(one.get_facecolor()[0]): one for one in axis.collections}
    return bands[to_hex(STYLES[policy].colour)].get_paths()[0].vertices


@pytest.mark.parametrize("shuffled", [False, True])
def test_lines_and_bands_are_those_of_the_table(shuffled):
    rounds = make_rounds()
    given = rounds.sample(frac=1.0, random_state=1) if shuffled else rounds
    figure = regret_curves(given, TITLES)
    assert [top.get_title() for top, _ in panels(figure)] == list(TITLES.values())
    for (top, bottom), setting in zip(panels(figure), TITLES, strict=True):
        full = cumulative(rounds, setting, "oful")
        shown = {
            top: {policy: cumulative(rounds, setting, policy) for policy in ("oful", "random")},
            bottom: {
                policy: cumulative(rounds, setting, policy) - full
                for policy in COMPARISON
                if policy not in ("oful", "random")
            },
        }
        # Above a sample standard deviation; below half the interval of Student's t, 3 degrees of freedom.
        factors = {top: 1.0, bottom: 3.182446305284263 / np.sqrt(N_TRIALS)}
        for axis, curves in shown.items():
            lines = {line.get_label(): line for line in axis.lines}
            lines = {name: line for name, line in lines.items() if not name.startswith("_")}
            assert set(lines) == {STYLES[policy].label for policy in curves}
            assert len(axis.collections) == len(curves)
            for policy, total in curves.items():
                line = lines[STYLES[policy].label]
                np.testing.assert_array_equal(line.get_xdata(), np.arange(1, N_ROUNDS + 1))
                np.testing.assert_allclose(line.get_ydata(), total.mean(axis=0), rtol=1e-12, atol=1e-12)
                deviation = np.sqrt(((total - total.mean(axis=0)) ** 2).sum(axis=0) / (N_TRIALS - 1))
                vertices = band(axis, policy)
                for t in range(N_ROUNDS):
                    y = vertices[vertices[:, 0] == t + 1, 1]
                    mean, half = total[:, t].mean(), factors[axis] * deviation[t]
                    assert (y.min(), y.max()) == pytest.approx(
                        (mean - half, mean + half), rel=1e-9, abs=1e-12
                    )
        assert top.get_ylim()[0] == 0


def test_policies_without_a_difference_are_named_and_not_drawn():
    rounds = make_rounds()
    copied = rounds["policy"] == "eofd"
    rounds.loc[copied, "regret"] = rounds.loc[rounds["policy"] == "oful", "regret"].to_numpy()
    ((_, bottom),) = panels(regret_curves(rounds, {"a": "alone"}))
    labels = {line.get_label() for line in bottom.lines}
    assert STYLES["eofd"].label not in labels
    assert STYLES["greedy"].label in labels
    (text,) = bottom.texts
    assert text.get_text().splitlines() == ["no difference in any trial:", STYLES["eofd"].label]


def test_without_the_full_hessian_the_sketch_takes_its_place_and_the_panel_says_so():
    rounds = make_rounds(("eofd", "greedy", "random"))
    ((top, bottom),) = panels(regret_curves(rounds, {"a": "alone"}))
    assert {line.get_label() for line in top.lines} == {STYLES["eofd"].label, STYLES["random"].label}
    difference = cumulative(rounds, "a", "greedy") - cumulative(rounds, "a", "eofd")
    (line,) = (line for line in bottom.lines if line.get_label() == STYLES["greedy"].label)
    np.testing.assert_allclose(line.get_ydata(), difference.mean(axis=0), atol=1e-12)
    assert bottom.get_title() == "OFUL-MLogB was not played"


@pytest.mark.parametrize("policies", [COMPARISON, POLICIES])
def test_lines_can_be_told_apart(policies):
    figure = regret_curves(make_rounds(policies), TITLES)
    for top, bottom in panels(figure):
        lines = [
            line for axis in (top, bottom) for line in axis.lines if not line.get_label().startswith("_")
        ]
        assert len({dash_pattern(line) for line in lines}) == len(policies)
        assert len({line.get_color() for line in lines}) == len(policies)
        for line in lines:
            (style,) = (s for s in STYLES.values() if s.label == line.get_label())
            assert (line.get_color(), dash_pattern(line)) == (style.colour, style.dashes)


def test_variants_are_thin_hollow_lines_of_another_setting():
    rounds = make_rounds()
    variants = {"a": [("b", "eofd", "EOFD elsewhere")]}
    ((_, bottom),) = panels(regret_curves(rounds, {"a": "A"}, variants))
    (line,) = (line for line in bottom.lines if line.get_label() == "EOFD elsewhere")
    difference = cumulative(rounds, "b", "eofd") - cumulative(rounds, "a", "oful")
    np.testing.assert_allclose(line.get_ydata(), difference.mean(axis=0), rtol=1e-12, atol=1e-12)
    (own,) = (line for line in bottom.lines if line.get_label() == STYLES["eofd"].label)
    assert line.get_linewidth() < own.get_linewidth()
    assert (line.get_markerfacecolor(), own.get_markerfacecolor()) == ("white", STYLES["eofd"].colour)
    with pytest.raises(ValueError, match="titles must name settings of the table"):
        regret_curves(rounds, {"a": "A"}, {"a": [("gone", "eofd", "EOFD elsewhere")]})


def test_axes_and_legend():
    figure = regret_curves(make_rounds(), TITLES)
    assert [bottom.get_xlabel() for _, bottom in panels(figure)] == ["round t"] * 2
    top, bottom = panels(figure)[0]
    assert (top.get_ylabel(), bottom.get_ylabel()) == ("cumulative regret", "difference to the policy above")
    (legend,) = figure.legends
    shown = {text.get_text() for text in legend.get_texts()}
    assert shown == {STYLES[name].label for name in COMPARISON}


def test_the_legend_names_lines_of_every_panel():
    rounds = make_rounds()
    rounds = rounds[(rounds["setting"] == "a") | rounds["policy"].isin(["eofd", "random"])]
    figure = regret_curves(rounds, TITLES)  # the panel with two lines comes first
    assert len(figure.axes[0].lines) == 2
    shown = {text.get_text() for text in figure.legends[0].get_texts()}
    assert shown == {STYLES[name].label for name in COMPARISON}


@pytest.mark.parametrize(("n_trials", "bands"), [(1, (0, 0)), (2, (2, 0)), (3, (2, 3))])
def test_bands_need_trials(n_trials, bands):
    """One trial has no spread, and two trials no interval that says anything."""
    ((top, bottom),) = panels(regret_curves(make_rounds(n_trials=n_trials), {"a": "alone"}))
    assert (len(top.collections), len(bottom.collections)) == bands


def test_categories_without_rows_are_not_drawn():
    rounds = make_rounds(("eofd", "oful")).astype({"policy": pd.CategoricalDtype(list(POLICIES))})
    ((top, bottom),) = panels(regret_curves(rounds, {"a": "alone"}))
    assert [line.get_label() for line in top.lines] == [STYLES["oful"].label]
    assert len([line for line in bottom.lines if not line.get_label().startswith("_")]) == 1


@pytest.mark.parametrize("titles", [{"gone": "no such setting"}, {}])
def test_a_panel_without_rows_is_refused(titles):
    with pytest.raises(ValueError, match="titles must name settings of the table"):
        regret_curves(make_rounds(("eofd",)), titles)


@pytest.mark.parametrize("n_panels", [1, 3, 4])
def test_a_figure_can_be_read_in_a_column(n_panels):
    """Ten-point type stays above six points where the figure is scaled to seven inches."""
    settings = [f"s{i}" for i in range(n_panels)]
    figure = regret_curves(make_rounds(settings=settings), {name: name for name in settings})
    assert 10.0 * 7.0 / figure.get_figwidth() > 6.0


# Saving


def assert_no_trace(pdf, png):
    """Neither file says when or by which version of Matplotlib it was drawn."""
    assert pdf.startswith(b"%PDF")
    assert png.startswith(b"\x89PNG")
    assert not re.search(rb"CreationDate|Producer|Creator", pdf)
    assert b"Software" not in png
    assert mpl.__version__.encode() not in pdf + png


def draw():
    return [
        regret_curves(make_rounds(), TITLES),
        regret_curves(make_rounds(POLICIES), TITLES),
    ]


def test_nothing_is_saved_without_a_batch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLOGB_RUN_DIR", raising=False)
    save(plt.figure(), "regret")
    monkeypatch.setenv("MLOGB_RUN_DIR", "")
    save(plt.figure(), "regret")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_same_tables_give_the_same_bytes(tmp_path, monkeypatch):
    contents = []
    for attempt, now in (("one", "1000000000"), ("two", "1700000000")):
        (tmp_path / attempt).mkdir()
        monkeypatch.setenv("MLOGB_RUN_DIR", str(tmp_path / attempt))
        monkeypatch.setenv("SOURCE_DATE_EPOCH", now)  # as if drawn on another day
        for name, figure in zip(("all", "regret"), draw(), strict=True):
            save(figure, name)
        files = sorted((tmp_path / attempt / "figures").iterdir())
        assert [file.name for file in files] == ["all.pdf", "all.png", "regret.pdf", "regret.png"]
        contents.append([file.read_bytes() for file in files])
    assert contents[0] == contents[1]
    assert_no_trace(*contents[0][:2])


@pytest.mark.slow
def test_other_data_give_other_bytes(tmp_path, monkeypatch):
    monkeypatch.setenv("MLOGB_RUN_DIR", str(tmp_path))
    rounds = make_rounds()
    for name, factor in (("one", 1.0), ("two", 1.1)):
        save(regret_curves(rounds.assign(regret=factor * rounds["regret"]), {"a": "a"}), name)
    one, two = (tmp_path / "figures" / f"{name}.png" for name in ("one", "two"))
    assert one.read_bytes() != two.read_bytes()
    assert_no_trace((one.with_suffix(".pdf")).read_bytes(), one.read_bytes())


# Styles


def test_every_policy_has_the_style_of_its_entry():
    assert {name: entry.style for name, entry in ENTRIES.items()} == STYLES
    assert [figures.label(policy) for policy in POLICIES] == [STYLES[policy].label for policy in POLICIES]
    with pytest.raises(KeyError):
        figures.label("ucb")


@pytest.mark.parametrize("attribute", ["label", "colour", "dashes", "marker"])
def test_styles_differ(attribute):
    assert len({getattr(style, attribute) for style in STYLES.values()}) == len(STYLES)


def test_every_panel_shows_all_of_its_curves():
    """The second panel's regret is a hundred times that of the first."""
    rounds = make_rounds()
    larger = rounds["setting"] == list(TITLES)[-1]
    rounds.loc[larger, "regret"] *= 100.0
    for (top, bottom), setting in zip(panels(regret_curves(rounds, TITLES)), TITLES, strict=True):
        sums = rounds[rounds["setting"] == setting].groupby(["policy", "trial"])["regret"].sum()
        means = sums.groupby("policy").mean()
        assert top.get_ylim()[1] >= means[["oful", "random"]].max()
        differences = (means - means["oful"]).drop("random")
        low, high = bottom.get_ylim()
        assert low <= differences.min() <= differences.max() <= high


def test_an_axis_without_positive_values_is_not_logarithmic(tmp_path):
    figure, (first, second) = plt.subplots(1, 2, layout="constrained")
    first.plot([1.0, 10.0], [0.0, 0.0])
    second.plot([1.0, 10.0], [0.0, 2.0])
    for axis in (first, second):
        figures.logarithmic(axis)
    figure.savefig(tmp_path / "a.png")  # where Matplotlib stops
    plt.close(figure)
    assert [(axis.get_xscale(), axis.get_yscale()) for axis in (first, second)] == [
        ("log", "linear"), ("log", "log")
    ]  # fmt: skip
