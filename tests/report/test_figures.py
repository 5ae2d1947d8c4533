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
from compendium.report.figures import STYLES, regret_curves, round_times, save

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


def make_timings(policies=POLICIES, n_trials=N_TRIALS):
    rng = np.random.default_rng(6)
    index = itertools.product("ab", policies, range(n_trials))
    frame = pd.DataFrame(index, columns=["setting", "policy", "trial"])
    return frame.assign(total_mean_ms=rng.random(len(frame)) + 0.5 + frame["policy"].map(POLICIES.index))


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


@pytest.mark.parametrize("shuffled", [False, True])
def test_lines_and_bands_are_those_of_the_table(shuffled):
    rounds = make_rounds()
    given = rounds.sample(frac=1.0, random_state=1) if shuffled else rounds
    figure = regret_curves(given, TITLES)
    assert [axis.get_title() for axis in figure.axes] == list(TITLES.values())
    for axis, setting in zip(figure.axes, TITLES, strict=True):
        lines = {line.get_label(): line for line in axis.lines}
        assert len(lines) == len(axis.lines) == len(axis.collections) == len(COMPARISON)
        bands = {to_hex(band.get_facecolor()[0]): band for band in axis.collections}
        for policy in COMPARISON:
            total = cumulative(rounds, setting, policy)
            line = lines[STYLES[policy].label]
            np.testing.assert_array_equal(line.get_xdata(), np.arange(1, N_ROUNDS + 1))
            np.testing.assert_allclose(line.get_ydata(), total.mean(axis=0), rtol=1e-12)
            vertices = bands[to_hex(STYLES[policy].colour)].get_paths()[0].vertices
            deviation = np.sqrt(((total - total.mean(axis=0)) ** 2).sum(axis=0) / (N_TRIALS - 1))
            for t in range(N_ROUNDS):
                y = vertices[vertices[:, 0] == t + 1, 1]
                mean = total[:, t].mean()
                assert y.max() == pytest.approx(mean + deviation[t], rel=1e-12)
                # The axis is logarithmic: a band ends above zero, below everything that is shown.
                assert y.min() == pytest.approx(max(mean - deviation[t], 1e-3), rel=1e-12)
        assert axis.get_ylim()[0] == 1


@pytest.mark.parametrize("policies", [COMPARISON, POLICIES])
def test_lines_can_be_told_apart(policies):
    figure = regret_curves(make_rounds(policies), TITLES)
    for axis in figure.axes:
        assert len({dash_pattern(line) for line in axis.lines}) == len(policies)
        assert len({line.get_color() for line in axis.lines}) == len(policies)
        for line in axis.lines:
            (style,) = (s for s in STYLES.values() if s.label == line.get_label())
            assert (line.get_color(), dash_pattern(line)) == (style.colour, style.dashes)


def test_variants_are_thin_hollow_lines_of_another_setting():
    rounds = make_rounds()
    (axis,) = regret_curves(rounds, {"a": "A"}, {"a": [("b", "eofd", "EOFD elsewhere")]}).axes
    (line,) = (line for line in axis.lines if line.get_label() == "EOFD elsewhere")
    np.testing.assert_allclose(line.get_ydata(), cumulative(rounds, "b", "eofd").mean(axis=0), rtol=1e-12)
    (own,) = (line for line in axis.lines if line.get_label() == STYLES["eofd"].label)
    assert line.get_linewidth() < own.get_linewidth()
    assert (line.get_markerfacecolor(), own.get_markerfacecolor()) == ("white", STYLES["eofd"].colour)
    with pytest.raises(ValueError, match="titles must name settings of the table"):
        regret_curves(rounds, {"a": "A"}, {"a": [("gone", "eofd", "EOFD elsewhere")]})


def test_axes_and_legend():
    figure = regret_curves(make_rounds(), TITLES)
    assert [axis.get_xlabel() for axis in figure.axes] == ["round t"] * 2
    assert figure.axes[0].get_ylabel() == "cumulative regret (missed rewards)"
    assert [axis.get_yscale() for axis in figure.axes] == ["log"] * 2
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [STYLES[name].label for name in COMPARISON]


def test_the_legend_names_lines_of_every_panel():
    rounds = make_rounds()
    rounds = rounds[(rounds["setting"] == "a") | rounds["policy"].isin(["eofd", "random"])]
    figure = regret_curves(rounds, TITLES)  # the panel with two lines comes first
    assert len(figure.axes[0].lines) == 2
    shown = {text.get_text() for text in figure.legends[0].get_texts()}
    assert shown == {STYLES[name].label for name in COMPARISON}


def test_one_trial_has_no_band():
    figure = regret_curves(make_rounds(n_trials=1), {"a": "alone"})
    (axis,) = figure.axes
    assert len(axis.lines) == len(COMPARISON)
    assert not axis.collections


def test_categories_without_rows_are_not_drawn():
    rounds = make_rounds(("eofd", "oful")).astype({"policy": pd.CategoricalDtype(list(POLICIES))})
    assert len(regret_curves(rounds, {"a": "alone"}).axes[0].lines) == 2


# Times


def test_points_and_whiskers_are_those_of_the_table():
    timings = make_timings()
    order = ["oful", "eofd", "random"]
    figure = round_times(timings, TITLES, order)
    for axis, setting in zip(figure.axes, TITLES, strict=True):
        assert axis.get_title() == TITLES[setting]
        assert axis.get_xlabel() == "time per round (ms)"
        assert axis.get_xscale() == "log"
        assert [text.get_text() for text in axis.get_yticklabels()] == [STYLES[p].label for p in order]
        assert axis.yaxis_inverted()  # from top to bottom
        assert len(axis.containers) == len(order)
        assert not axis.patches  # bars have no meaning on a logarithmic axis
        for place, (policy, container) in enumerate(zip(order, axis.containers, strict=True)):
            point, (whisker,) = container.lines[0], container.lines[2]
            chosen = (timings["setting"] == setting) & (timings["policy"] == policy)
            times = timings.loc[chosen, "total_mean_ms"].to_numpy()
            assert point.get_xdata()[0] == pytest.approx(times.mean(), rel=1e-12)
            assert point.get_ydata()[0] == pytest.approx(place)
            assert to_hex(point.get_color()) == STYLES[policy].colour.lower()
            assert point.get_marker() == STYLES[policy].marker
            ((low, _), (high, _)) = whisker.get_segments()[0]
            spread = np.sqrt(((times - times.mean()) ** 2).sum() / (N_TRIALS - 1))
            assert (low, high) == pytest.approx((times.mean() - spread, times.mean() + spread))
        assert [text.get_text().strip() for text in axis.texts] == [
            f"{c.lines[0].get_xdata()[0]:.3g} ms" for c in axis.containers
        ]


def test_policies_that_were_not_timed_leave_no_gap():
    figure = round_times(make_timings(("eofd", "oful-printed")), {"a": "alone"}, list(POLICIES))
    (axis,) = figure.axes
    labels = [text.get_text() for text in axis.get_yticklabels()]
    assert labels == [STYLES["eofd"].label, STYLES["oful-printed"].label]
    assert [c.lines[0].get_ydata()[0] for c in axis.containers] == pytest.approx([0, 1])


@pytest.mark.parametrize("titles", [{"gone": "no such setting"}, {}])
def test_a_panel_without_rows_is_refused(titles):
    with pytest.raises(ValueError, match="titles must name settings of the table"):
        round_times(make_timings(), titles, list(POLICIES))
    with pytest.raises(ValueError, match="titles must name settings of the table"):
        regret_curves(make_rounds(("eofd",)), titles)


def test_one_timed_trial_has_no_spread():
    timings = make_timings(("eofd",), n_trials=1)
    (axis,) = round_times(timings, {"a": "alone"}, ["eofd"]).axes
    (container,) = axis.containers
    ((low, _), (high, _)) = container.lines[2][0].get_segments()[0]
    assert low == high == timings["total_mean_ms"][0]


# Saving


def draw():
    return [
        regret_curves(make_rounds(), TITLES),
        round_times(make_timings(), TITLES, list(POLICIES)),
    ]


def test_nothing_is_saved_without_a_batch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLOGB_RUN_DIR", raising=False)
    save(plt.figure(), "regret")
    monkeypatch.setenv("MLOGB_RUN_DIR", "")
    save(plt.figure(), "regret")
    assert list(tmp_path.iterdir()) == []


def test_the_same_tables_give_the_same_bytes(tmp_path, monkeypatch):
    contents = []
    for attempt, now in (("one", "1000000000"), ("two", "1700000000")):
        (tmp_path / attempt).mkdir()
        monkeypatch.setenv("MLOGB_RUN_DIR", str(tmp_path / attempt))
        monkeypatch.setenv("SOURCE_DATE_EPOCH", now)  # as if drawn on another day
        for name, figure in zip(("regret", "time"), draw(), strict=True):
            save(figure, name)
        files = sorted((tmp_path / attempt / "figures").iterdir())
        assert [file.name for file in files] == ["regret.pdf", "regret.png", "time.pdf", "time.png"]
        contents.append([file.read_bytes() for file in files])
    assert contents[0] == contents[1]
    pdf, png = contents[0][:2]
    assert pdf.startswith(b"%PDF")
    assert png.startswith(b"\x89PNG")
    assert not re.search(rb"CreationDate|Producer|Creator", pdf)
    assert b"Software" not in png
    assert mpl.__version__.encode() not in pdf + png


def test_other_data_give_other_bytes(tmp_path, monkeypatch):
    monkeypatch.setenv("MLOGB_RUN_DIR", str(tmp_path))
    rounds = make_rounds()
    for name, factor in (("one", 1.0), ("two", 1.1)):
        save(regret_curves(rounds.assign(regret=factor * rounds["regret"]), {"a": "a"}), name)
    one, two = (tmp_path / "figures" / f"{name}.png" for name in ("one", "two"))
    assert one.read_bytes() != two.read_bytes()


# Styles


def test_every_policy_has_the_style_of_its_entry():
    assert {name: entry.style for name, entry in ENTRIES.items()} == STYLES
    assert [figures.label(policy) for policy in POLICIES] == [STYLES[policy].label for policy in POLICIES]
    with pytest.raises(KeyError):
        figures.label("ucb")


@pytest.mark.parametrize("attribute", ["label", "colour", "dashes", "marker"])
def test_styles_differ(attribute):
    assert len({getattr(style, attribute) for style in STYLES.values()}) == len(STYLES)


@pytest.mark.parametrize("log", [True, False])
def test_every_panel_shows_all_of_its_curves(log):
    """The second panel's regret is a hundred times that of the first."""
    rounds = make_rounds()
    larger = rounds["setting"] == list(TITLES)[-1]
    rounds.loc[larger, "regret"] *= 100.0
    figure = regret_curves(rounds, TITLES, log=log)
    for axis, setting in zip(figure.axes, TITLES, strict=True):
        sums = rounds[rounds["setting"] == setting].groupby(["policy", "trial"])["regret"].sum()
        assert axis.get_ylim()[1] >= sums.groupby("policy").mean().max()
        assert axis.get_yscale() == ("log" if log else "linear")


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
