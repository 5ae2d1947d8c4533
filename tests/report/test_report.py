"""Tables and sentences: they say what the data say, and the README repeats the committed run."""

from __future__ import annotations

import itertools
import json
import re
from types import SimpleNamespace
from typing import NamedTuple

import nbformat
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from compendium.claims.evidence import Line
from compendium.experiments.policies import COMPARISON
from compendium.report import readme, results
from compendium.report import tables as report
from compendium.report.figures import label
from compendium.report.results import (
    CONDITION,
    NOT,
    NOTHING,
    REPRODUCED,
    UNDECIDED,
    Comparison,
    Finding,
    data,
)
from compendium.system.paths import FailureError, UsageError

N_TRIALS = 5
MEANS = {"eofd": 40.0, "oful": 50.0, "first-order": 60.0, "greedy": 30.0, "random": 180.0}
BLOCK = "1. It saves 80 % from Kd = 1,000 on.\n\n| a | 38.4 |\n"
README = "# A project\n\n<!-- results: begin -->\nold\n<!-- results: end -->\n\nThe rest.\n"


def make_regret(changes=(), settings=("paper", "tuned"), spread=4.0):
    """Final regret of a comparison; each policy has its mean exactly, and random play is shared."""
    means = {(setting, policy): MEANS[policy] for setting in settings for policy in COMPARISON}
    means |= {("tuned, m = 5", "eofd"): 45.0} | dict(changes)
    noise = {
        key: np.random.default_rng([7, n]).standard_normal(N_TRIALS) for n, key in enumerate(sorted(means))
    }
    noise |= {(setting, "random"): noise["paper", "random"] for setting in settings}
    rows = [
        {"setting": setting, "policy": policy, "trial": trial, "regret": mean + spread * centred}
        for (setting, policy), mean in means.items()
        for trial, centred in enumerate(noise[setting, policy] - noise[setting, policy].mean())
    ]
    return as_categories(pd.DataFrame(rows))


def as_categories(frame):
    """As the tables of a study have it: categories in the order of appearance."""
    for name in ("setting", "policy"):
        frame[name] = pd.Categorical(frame[name], categories=list(dict.fromkeys(frame[name])))
    return frame


def make_timings(factors, settings=("paper", "tuned"), first_round=79):
    """Times whose medians, trial by trial, have the given ratio to EOFD-MLogB's."""
    rng = np.random.default_rng(8)
    base = {(setting, trial): 0.5 + rng.random() for setting in settings for trial in range(N_TRIALS)}
    rows = []
    for setting, policy, trial in itertools.product(settings, factors, range(N_TRIALS)):
        median = factors[policy] * base[setting, trial]
        select, update = 0.7 * median + 0.1, 0.4 * median + 0.2
        rows.append(
            {
                "setting": setting, "policy": policy, "trial": trial,
                "select_mean_ms": select, "update_mean_ms": update, "total_mean_ms": select + update,
                "first_round": first_round, "total_q25_ms": 0.9 * median,
                "total_median_ms": median, "total_q75_ms": 1.1 * median,
            }
        )  # fmt: skip
    return as_categories(pd.DataFrame(rows))


def values(frame, setting, policy, column="regret"):
    """One column in the order of the trials."""
    chosen = frame[(frame["setting"] == setting) & (frame["policy"] == policy)]
    return chosen.sort_values("trial")[column].to_numpy()


# Tables


def test_regret_table():
    final = make_regret()
    table = report.regret_table(final)
    assert list(table.columns) == ["setting", "policy", "mean", "sd", "trials", "of random play"]
    assert list(table["setting"]) == ["paper"] * 5 + ["tuned"] * 5 + ["tuned, m = 5"]
    assert list(table["policy"]) == [label(policy) for policy in COMPARISON] * 2 + [label("eofd")]
    for row, policy in zip(table.itertuples(), [*COMPARISON, *COMPARISON, "eofd"], strict=True):
        regret = values(final, row.setting, policy)
        assert row.mean == pytest.approx(np.mean(regret), abs=0.0501)
        assert row.sd == pytest.approx(np.std(regret, ddof=1), abs=0.0501)
        assert row.trials == N_TRIALS
        assert table["of random play"][row.Index] == pytest.approx(np.mean(regret) / 180.0, abs=5.01e-4)


def test_random_play_of_another_problem_does_not_stand_in():
    final = make_regret()
    final.loc[(final["setting"] == "tuned") & (final["policy"] == "random"), "regret"] += 20.0
    table = report.regret_table(final)
    assert np.isnan(table["of random play"].iloc[-1])  # the setting in which nobody played at random
    assert table["of random play"].iloc[0] == pytest.approx(40 / 180, abs=5e-4)
    assert table["of random play"].iloc[5] == pytest.approx(40 / 200, abs=5e-4)
    nobody = report.regret_table(final[final["policy"] != "random"])
    assert nobody["of random play"].isna().all()


@pytest.mark.parametrize("level", [0.95, 0.5])
def test_paired_differences(level):
    final = make_regret()
    shuffled = final.sample(frac=1.0, random_state=2).sort_values("setting", kind="stable")
    pairs = [("eofd", "oful"), ("oful", "eofd"), ("greedy", "eofd")]
    table = report.paired_differences(shuffled, pairs, level)
    assert list(table["setting"]) == ["paper"] * 3 + ["tuned"] * 3  # the last one has no pair
    for row, (first, second) in zip(table.itertuples(), pairs * 2, strict=True):
        assert row.difference == f"{label(first)} − {label(second)}"
        difference = values(final, row.setting, first) - values(final, row.setting, second)
        test = stats.ttest_1samp(difference, 0.0)
        interval = test.confidence_interval(level)
        expected = difference.mean(), interval.low, interval.high
        assert (row.mean, row.low, row.high) == pytest.approx(expected, abs=0.0501)
        assert row.low < row.mean < row.high
    assert table["mean"][0] == -10.0
    assert table["mean"][1] == 10.0


def test_differences_are_paired():
    """A spread that both policies share does not widen the interval."""
    final = make_regret(spread=0.0)
    final["regret"] += 100.0 * final["trial"] ** 2
    (row,) = report.paired_differences(final, [("eofd", "oful")])[:1].itertuples()
    assert (row.mean, row.low, row.high) == (-10.0, -10.0, -10.0)


def test_one_trial_has_no_interval():
    final = make_regret()
    table = report.paired_differences(final[final["trial"] == 0], [("eofd", "oful")])
    assert table["low"].isna().all()
    assert table["mean"].notna().all()


def test_curvature_table():
    rng = np.random.default_rng(12)
    index = itertools.product(["tuned", "paper"], range(N_TRIALS), ["oful", "eofd"])
    final = pd.DataFrame(index, columns=["setting", "trial", "policy"])
    names = ["shrinkage", "largest_eigenvalue", "parameter_norm", "smallest_margin"]
    final[names] = rng.uniform(1.0, 2.0, (len(final), 4))
    scales = {"paper": (0.25, 5.0), "tuned": (2.0, 20.0)}
    table = report.curvature_table(final, scales)
    assert list(table["setting"]) == ["tuned"] * 2 + ["paper"] * 2
    assert list(table["policy"]) == [label("oful"), label("eofd")] * 2
    for row, policy in zip(table.to_dict("records"), ["oful", "eofd"] * 2, strict=True):
        regularization, norm_bound = scales[row["setting"]]
        mean = {name: values(final, row["setting"], policy, name).mean() for name in names}
        got = row["largest eigenvalue / λ"], row["ρ / λ"], row["‖W‖ / S"]
        expected = (
            mean["largest_eigenvalue"] / regularization,
            mean["shrinkage"] / regularization,
            mean["parameter_norm"] / norm_bound,
        )
        assert got == pytest.approx(expected, rel=5.01e-3)


def test_time_ratio():
    timings = make_timings({"eofd": 1.0, "oful": 8.0, "eofd-printed": 0.5})
    assert report.time_ratio(timings, "paper", "oful", "eofd") == pytest.approx(8.0)
    assert report.time_ratio(timings, "paper", "eofd", "oful") == pytest.approx(0.125)
    assert report.time_ratio(timings, "tuned", "eofd-printed", "eofd") == pytest.approx(0.5)
    noisy = timings.sample(frac=1.0, random_state=3)
    noisy["total_median_ms"] *= np.random.default_rng(9).uniform(0.5, 2.0, len(noisy))
    expected = np.median([
        a / b for a, b in zip(
            values(noisy, "paper", "oful", "total_median_ms"),
            values(noisy, "paper", "eofd", "total_median_ms"), strict=True,
        )
    ])  # fmt: skip
    assert report.time_ratio(noisy, "paper", "oful", "eofd") == pytest.approx(expected)


def test_time_table():
    timings = make_timings({"eofd": 1.0, "oful": 8.0})
    table = report.time_table(timings).set_index(["setting", "policy"])
    assert len(table) == 4
    row = table.loc["tuned", label("oful")]
    total = values(timings, "tuned", "oful", "total_mean_ms")
    select = values(timings, "tuned", "oful", "select_mean_ms")
    update = values(timings, "tuned", "oful", "update_mean_ms")
    expected = 79, select.mean(), update.mean(), total.mean(), total.std(ddof=1), 8.0
    np.testing.assert_allclose(row.to_numpy(), expected, rtol=5e-3)
    assert table.loc["tuned", label("eofd")]["ratio of medians to EOFD"] == 1.0
    alone = report.time_table(timings[timings["trial"] == 0])
    assert alone["sd (ms)"].isna().all()


# Sentences


def test_sentences_of_the_comparison():
    final = make_regret()
    sentences = report.mnist_findings(final)
    assert len(sentences) == 7
    paper, flat, tuned, _, greedy, _, small = sentences
    difference = stats.ttest_1samp(values(final, "paper", "eofd") - values(final, "paper", "oful"), 0.0)
    low, high = difference.confidence_interval(0.95)
    assert paper == (
        "In the paper's setting EOFD-MLogB misses 40.0 rewards and OFUL-MLogB 50.0 (-20%, paired difference "
        f"-10.0 with 95% interval [{low:.1f}, {high:.1f}]); random play misses 180. Means over 5 trials."
    )
    assert tuned.startswith("In the tuned setting EOFD-MLogB misses 40.0 rewards and OFUL-MLogB 50.0 (-20%")
    assert flat.startswith(
        "Without any curvature the same parameters miss 60.0, +20% against OFUL-MLogB, "
        "paired difference +10.0"
    )
    assert greedy.startswith(
        "Greedy play in the paper's setting misses 30.0, -25% against EOFD-MLogB, paired difference -10.0"
    )
    assert small == (
        "In the tuned setting a sketch of 5 directions misses 45.0, -10% against the full Hessian."
    )


@pytest.mark.parametrize(
    ("setting", "policy", "value", "sentence", "text"),
    [
        ("paper", "eofd", 75.0, 0, "misses 75.0 rewards and OFUL-MLogB 50.0 (+50%, paired difference +25.0"),
        ("paper", "oful", 32.0, 0, "misses 40.0 rewards and OFUL-MLogB 32.0 (+25%, paired difference +8.0"),
        ("paper", "first-order", 25.0, 1, "miss 25.0, -50% against OFUL-MLogB, paired difference -25.0"),
        ("tuned", "eofd", 60.0, 2, "misses 60.0 rewards and OFUL-MLogB 50.0 (+20%, paired difference +10.0"),
        ("tuned", "first-order", 75.0, 3, "miss 75.0, +50% against OFUL-MLogB, paired difference +25.0"),
        ("paper", "greedy", 50.0, 4, "misses 50.0, +25% against EOFD-MLogB, paired difference +10.0"),
        ("tuned", "greedy", 20.0, 5, "misses 20.0, -50% against EOFD-MLogB, paired difference -20.0"),
        ("tuned, m = 5", "eofd", 55.0, 6, "misses 55.0, +10% against the full Hessian"),
        ("tuned", "oful", 36.0, 6, "misses 45.0, +25% against the full Hessian"),
    ],
)
def test_a_sentence_follows_its_numbers(setting, policy, value, sentence, text):
    before = report.mnist_findings(make_regret())
    after = report.mnist_findings(make_regret({(setting, policy): value}))
    assert text in after[sentence]
    assert text not in before[sentence]
    untouched = [n for n, (a, b) in enumerate(zip(after, before, strict=True)) if a == b]
    assert len(untouched) >= 4  # the others say what they said


def test_the_best_of_no_curvature_is_told():
    final = make_regret({("tuned for no curvature", "first-order"): 45.0})
    sentences = report.mnist_findings(final)
    (added,) = set(sentences) - set(report.mnist_findings(make_regret()))
    assert added == (
        "With parameters of its own, chosen for it on the validation streams, the policy without curvature "
        "misses 45.0, -10% against OFUL-MLogB in the tuned setting."
    )


def test_a_small_difference_is_not_called_zero_where_decimals_are_asked_for():
    final = make_regret({("paper", "eofd"): 49.9}, spread=0.0)
    assert "(+0%, paired difference -0.1" in report.mnist_findings(final)[0]
    assert "(-0.2%, paired difference -0.1" in report.mnist_findings(final, decimals=1)[0]
    same = make_regret({("paper", "eofd"): 49.999}, spread=0.0)
    assert "(+0.0%, paired" in report.mnist_findings(same, decimals=1)[0]


def test_random_play_and_trials_are_those_of_the_data():
    final = make_regret({("paper", "random"): 120.0, ("tuned", "random"): 120.0}, spread=0.0)
    first = report.mnist_findings(final[final["trial"] < 3])[0]
    assert "Means over 3 trials." in first
    assert "random play misses 120." in first


def test_sentences_without_an_interval():
    final = make_regret(spread=0.0)
    sentences = report.mnist_findings(final[final["trial"] == 0])
    assert "OFUL-MLogB 50.0 (-20%); random play misses 180. Means over 1 trial." in sentences[0]
    assert not any("interval" in sentence for sentence in sentences)
    without = final[final["setting"] != "tuned, m = 5"]
    assert len(report.mnist_findings(without)) == len(sentences) - 1


def test_a_trial_without_a_miss():
    """A notebook run with few rounds has to come to its end."""
    final = make_regret({("paper", "oful"): 0.0, ("paper", "eofd"): 0.0}, spread=0.0)
    sentences = report.mnist_findings(final)
    assert "misses 0.0 rewards and OFUL-MLogB 0.0 (+0%" in sentences[0]
    assert "miss 60.0, +∞% against" in sentences[1]


def test_sentences_about_time():
    slow, fast = make_timings({"eofd": 1.0, "oful": 8.0}), make_timings({"eofd": 1.0, "oful": 0.25})
    assert report.time_findings(slow) == [
        f"Time of a round as a multiple of one of EOFD-MLogB in the {setting} "
        "(ratio of medians, sketch full): OFUL-MLogB 8 (EOFD-MLogB saves 88%)."
        for setting in ("paper's setting", "tuned setting")
    ]
    assert [sentence.split(": ")[1] for sentence in report.time_findings(fast)] == ["OFUL-MLogB 0.25."] * 2
    timed = make_timings({"eofd": 1.0, "oful": 8.0}, ["paper, timed"])
    assert "EOFD-MLogB in the timing trials of the paper's setting (" in report.time_findings(timed)[0]
    assert report.time_findings(make_timings({"eofd": 1.0, "oful": 8.0}, first_round=1)) == []


def test_which_times_are_compared():
    timings = make_timings({"eofd": 1.0, "oful": 2.0, "oful-printed": 40.0, "random": 0.1, "greedy": 1.0})
    (sentence,) = report.time_findings(timings[timings["setting"] == "paper"])
    assert sentence.endswith(
        ": OFUL-MLogB 2 (EOFD-MLogB saves 50%); OFUL, as printed 40 (EOFD-MLogB saves 98%)."
    )
    assert report.time_findings(timings[timings["policy"] != "eofd"]) == []


# MNIST in numbers


class StoredRun(NamedTuple):
    """What the tables need of a run."""

    results: pd.DataFrame
    timings: pd.DataFrame
    record: dict


def mnist_run(changes=()):
    """A run of the MNIST experiment that also took times, four rounds long."""
    rows = make_regret(changes).loc[lambda frame: frame.index.repeat(4)]
    rows["regret"] /= 4  # the regret of four rounds
    rows["round"] = np.tile(np.arange(1, 5), len(rows) // 4)
    timed = rows[(rows["setting"] == "paper") & rows["policy"].isin(["eofd", "oful"])]
    timed = timed[timed["round"] == 1].assign(setting="paper, timed")  # a shorter trial
    both = pd.concat([rows.astype({"setting": str}), timed], ignore_index=True)
    timings = [
        make_timings({**dict.fromkeys(COMPARISON, 1.0), "oful": 300.0}),
        make_timings({"eofd": 1.0}, ["tuned, m = 5"]),
        make_timings({"eofd": 1.0, "oful": 5.0, "oful-printed": 50.0}, ["paper, timed"]),
    ]
    stacked = pd.concat([one.astype({"setting": str, "policy": str}) for one in timings], ignore_index=True)
    studies = [
        {
            "settings": [{"name": name} for name in ("paper", "tuned", "tuned, m = 5")],
            "data": [{"rows": 5000, "full_rows": 70000}],
        },
        {"settings": [{"name": "paper, timed"}], "data": [{"rows": 5000, "full_rows": 70000}]},
    ]
    record = {
        "parameters": {"n_rounds": 2000, "n_trials": N_TRIALS},
        "study": {"studies": studies},
        "environment": {"jobs": 2},
    }
    return StoredRun(as_categories(both), as_categories(stacked), record)


def cells(block):
    """The rows of the block's table."""
    rows = [line.strip("|").split("|") for line in block.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[1:]]


def test_the_block():
    run = mnist_run()
    block = report.mnist_block(run)
    final = make_regret()
    timings = run.timings
    expected = [
        (setting, policy) for setting in ("paper", "tuned") for policy in COMPARISON
    ] + [("tuned, m = 5", "eofd")]  # fmt: skip
    rows = cells(block)
    assert [row[:2] for row in rows] == [[setting, label(policy)] for setting, policy in expected]
    for (setting, policy), (_, _, missed, share, milliseconds) in zip(expected, rows, strict=True):
        regret = values(final, setting, policy)
        assert missed == f"{regret.mean():.1f} ± {regret.std(ddof=1):.1f}"
        assert float(share.strip("%")) == pytest.approx(100 * regret.mean() / 180, abs=0.0501)
        mean = values(timings, setting, policy, "total_mean_ms").mean()
        assert float(milliseconds) == pytest.approx(mean, rel=0.051)
        assert "e" not in milliseconds
    assert "5 trials of 2,000 rounds on 5,000 of MNIST's 70,000 digits" in block
    bullets = [line[2:] for line in block.splitlines() if line.startswith("- ")]
    alone = timings[timings["setting"].astype(str) == "paper, timed"]
    assert bullets == report.mnist_findings(final, decimals=1) + report.time_findings(alone)
    assert any("OFUL, as printed 50 (EOFD-MLogB saves 98%)" in bullet for bullet in bullets)
    assert not any("300" in bullet for bullet in bullets)  # times of trials played two at a time


def test_the_block_follows_the_run():
    changed = mnist_run({("paper", "greedy"): 31.0})
    assert "| paper | greedy (β = 0) | 31.0 ±" in report.mnist_block(changed)


# The README


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A project with a README, whose block is made by a stand-in."""
    (tmp_path / "experiments.yml").touch()
    (tmp_path / "README.md").write_text(README)
    monkeypatch.setenv("MLOGB_ROOT", str(tmp_path))
    monkeypatch.setattr(readme, "block", lambda: BLOCK)
    return tmp_path


def test_writing_and_checking(root):
    path = root / "README.md"
    with pytest.raises(FailureError, match="make readme"):
        readme.update(check=True)
    assert path.read_text() == README
    readme.update()
    assert path.read_text() == README.replace("old\n", BLOCK)
    readme.update(check=True)
    before = path.stat().st_mtime_ns
    readme.update()
    assert path.stat().st_mtime_ns == before  # nothing to write


def test_every_digit_of_the_block_is_checked(root):
    path = root / "README.md"
    readme.update()
    text = path.read_text()
    start = text.index("<!-- results: begin -->")
    places = [place.start() for place in re.finditer(r"\d", text) if start < place.start()]
    assert len(places) > 5
    for place in places:
        changed = "7" if text[place] != "7" else "8"
        path.write_text(text[:place] + changed + text[place + 1 :])
        with pytest.raises(FailureError, match="differ from the committed runs"):
            readme.update(check=True)
    path.write_text(text.replace("The rest.", "Other words."))
    readme.update(check=True)


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "# A project\n",
        README.replace("<!-- results: end -->", ""),
        README.replace("<!-- results: begin -->", ""),
    ],
)
def test_markers_are_missing(root, check, text):
    (root / "README.md").write_text(text)
    with pytest.raises(UsageError, match="no block between <!-- results: begin -->"):
        readme.update(check)
    assert (root / "README.md").read_text() == text


def test_there_has_to_be_one_run(root, monkeypatch):
    found = [
        SimpleNamespace(record={"point": {"case": case}}) for case in ("binary", "multinomial", "binary")
    ]
    monkeypatch.setattr(readme, "find_runs", lambda experiment, profile: found)
    assert readme.only_run("synthetic", "multinomial") is found[1]
    with pytest.raises(FailureError, match="exactly one run of synthetic, binary, with the paper profile"):
        readme.only_run("synthetic", "binary")
    with pytest.raises(FailureError, match="is needed, found 3"):
        readme.only_run("synthetic")


def test_differences_in_the_readme_are_paired_and_relative():
    final = make_regret().pivot_table(
        index="trial", columns=["setting", "policy"], values="regret", observed=True
    )
    paper = final["paper"]
    difference = stats.ttest_1samp(paper["eofd"] - paper["oful"], 0.0)
    low, high = difference.confidence_interval(0.95)
    expected = f"-20.0 % [{100 * low / 50:+.1f}, {100 * high / 50:+.1f}]"
    assert readme._relative(paper, "eofd", "oful") == expected
    assert readme._relative(paper, "oful", "oful") == "0"
    shared = paper.assign(eofd=paper["oful"] + 5.0)
    assert readme._relative(shared, "eofd", "oful") == "+10.0 % [+10.0, +10.0]"


def test_times_of_the_readme_are_ratios_of_medians():
    problem = {"rewards": [0.5, 1.0], "dimension": 50}
    record = {"study": {"studies": [{"settings": [{"name": "small", "problem": problem | {"dimension": 5}},
                                                  {"name": "large", "problem": problem}]}]}}  # fmt: skip
    large = make_timings({"eofd": 1.0, "oful": 3.0}, ["large"])
    small = make_timings({"eofd": 1.0, "oful": 0.5}, ["small"])
    timings = pd.concat([large, small]).astype({"setting": str, "policy": str})
    run = StoredRun(pd.DataFrame(), timings, record)
    assert list(readme._speed_at_sizes(run)) == [(10, pytest.approx(0.5)), (100, pytest.approx(3.0))]


# The verdicts


def games(**means):
    """Regret by trials and policies, with a little noise that all share but EOFD."""
    noise = np.linspace(-1.0, 1.0, 10)
    table = pd.DataFrame({policy: mean + noise for policy, mean in means.items()})
    return table.assign(eofd=table["eofd"] + 0.5 * noise[::-1])


@pytest.mark.parametrize(
    ("final", "verdict"),
    [
        (games(eofd=52.0, oful=50.0, greedy=60.0, random=100.0), REPRODUCED),
        (games(eofd=60.0, oful=50.0, greedy=60.5, random=100.0), NOT),
        (games(eofd=55.0, oful=50.0, greedy=60.0, random=100.0), UNDECIDED),
        (games(eofd=91.5, oful=91.0, greedy=92.0, random=100.0), NOTHING),  # nothing was learned
        (games(eofd=50.0, oful=50.0, random=100.0).assign(eofd=lambda t: t["oful"]), NOTHING),
        (games(eofd=60.0, oful=50.0, greedy=60.0, random=100.0).assign(eofd=lambda t: t["greedy"]), NOTHING),
        (games(**{"eofd": 52.0, "oful": 50.0, "first-order": 51.0, "random": 100.0}), NOTHING),
        (games(**{"eofd": 52.0, "oful": 50.0, "first-order": 60.0, "random": 100.0}), REPRODUCED),
    ],
)
def test_when_a_comparable_regret_says_nothing(final, verdict):
    assert results._comparable(final) == verdict


@pytest.mark.parametrize(
    ("mean", "verdict"),
    [(50.0, NOT), (51.0, NOT), (52.5, UNDECIDED), (55.0, REPRODUCED), (59.9, UNDECIDED), (65.0, NOT)],
)
def test_an_overhead_of_ten_percent_is_one_that_can_be_seen(mean, verdict):
    final = games(eofd=mean, oful=50.0, random=100.0)
    assert results._about_a_tenth(final) == verdict
    assert results._about_a_tenth(final.assign(eofd=final["oful"])) == NOT  # a sketch that decides nothing


def test_equal_regret_in_every_trial_is_said():
    final = games(eofd=50.0, oful=50.0, random=100.0)
    same = results._compared("paper, S = 1", final.assign(eofd=final["oful"]), NOTHING)
    assert (same.setting, same.condition) == ("paper", "S = 1")
    assert same.figures.endswith("50% of random play; both have the same regret in every trial")
    assert "every trial" not in results._compared("paper", final, REPRODUCED).figures


def grid_run(norm_bound=10.0):
    """A grid of two pairs, on which the paper's has the larger regret."""
    regret = {"eofd": (60.0, 80.0), "oful": (50.0, 55.0), "random": (100.0, 100.0)}
    rows = [
        {"setting": pair, "policy": policy, "trial": trial, "regret": values[place]}
        for policy, values in regret.items()
        for place, pair in enumerate(("l=0, e=0", "l=0.75, e=0.75"))
        for trial in range(2)
    ]
    settings = [{"name": pair, "norm_bound": norm_bound} for pair in ("l=0, e=0", "l=0.75, e=0.75")]
    return StoredRun(pd.DataFrame(rows), pd.DataFrame(), {"study": {"studies": [{"settings": settings}]}})


@pytest.mark.parametrize(
    ("steps", "error", "verdict"), [(5, 30, UNDECIDED), (4, 30, REPRODUCED), (30, 4, REPRODUCED)]
)
def test_the_choice_is_judged_by_convergence_and_regret_is_told_beside_it(monkeypatch, steps, error, verdict):
    row = {"case": "binary", "policy": "eofd", "pairs": 49, "last steps / first": 1.0, "error / S": 0.99,
           "least error / S": 0.9, "rank by steps": steps, "rank by error": error}  # fmt: skip
    ranks = [row | {"S": 1.0}, row | {"S": 10.0}]
    convergence = StoredRun(pd.DataFrame(), pd.DataFrame(), {"study": {"findings": {"ranks": ranks}}})
    monkeypatch.setattr(
        readme, "only_run", lambda name, case=None: convergence if name == "convergence" else grid_run()
    )
    small, large = results._choice().ours
    assert (small.verdict, large.verdict) == (verdict, verdict)
    assert (large.setting, large.condition) == ("binary", "S = 10, EOFD-MLogB")
    assert f"rank {steps} of 49 by the length of the last steps" in large.figures
    assert "by regret" not in small.figures  # the grid was played at the other norm
    assert large.figures.endswith("rank 2 by regret (80% of random play; the best pair has 60%)")


def test_what_the_corrected_theorem_admits():
    rows = [{"features": "a", "S": 1.0, "norm": 1.41, "needed / used": 1.0},
            {"features": "b", "S": 1.0, "norm": 28.0, "needed / used": 1.01}]  # fmt: skip
    found = results._admissible(
        StoredRun(pd.DataFrame(), pd.DataFrame(), {"study": {"findings": {"admissible": rows}}})
    )
    assert [one.verdict for one in found.ours] == [REPRODUCED, NOT]
    assert found.ours[1].figures == "1.01 times the λ that is used is needed, at actions of norm 28"


def comparison(name, verdict):
    setting, _, condition = name.partition(", ")
    return Comparison(setting, condition, "9%", verdict)


def test_a_condition_names_what_tells_the_exceptions_from_the_rest():
    def exception(**ours):
        return Finding("C1", "it holds", list(ours.values()), []).exception

    one, other = comparison("a, against X", REPRODUCED), comparison("a, against Y", NOT)
    third = comparison("a, against Z", NOT)
    assert exception(a=one, b=other, c=comparison("b, against Y", NOT)) == "against Y"
    assert exception(a=comparison("a, S = 1", REPRODUCED), b=comparison("b, S = 1", NOT)) == "b, S = 1"
    assert exception(a=one, b=other, c=comparison("b, Z", NOT)) == "a, against Y; b, Z"
    assert exception(a=one, b=other, c=third) == "against Y or against Z"
    assert exception(a=one, b=other, c=third, d=comparison("b, against Z", REPRODUCED)) == (
        "a, against Y; a, against Z"
    )
    assert exception(a=one, b=comparison("b", NOT)) == "b"


def test_settings_that_say_nothing_are_named_beside_the_verdict():
    idle, one, other = comparison("a, S = 1", NOTHING), comparison("b", REPRODUCED), comparison("c", NOT)
    assert Finding("C1", "it holds", [idle, one], []).remarks == " (nothing is said by: a, S = 1)"
    assert Finding("C1", "it holds", [one, other], []).remarks == " (not: c)"
    assert (
        Finding("C1", "it holds", [idle, one, other], []).remarks == " (not: c. nothing is said by: a, S = 1)"
    )
    assert Finding("C1", "it holds", [idle], []).remarks == ""


@pytest.mark.parametrize(
    ("verdicts", "together"),
    [
        ((REPRODUCED, REPRODUCED), REPRODUCED),
        ((REPRODUCED, NOT), CONDITION),
        ((NOT, NOT), NOT),
        ((NOT, UNDECIDED), UNDECIDED),
        ((NOTHING, NOTHING), NOTHING),
        ((NOTHING, NOT), NOT),
        ((REPRODUCED, NOTHING), REPRODUCED),
        ((REPRODUCED, NOTHING, NOT), CONDITION),
    ],
)
def test_the_verdict_of_a_statement_is_that_of_its_comparisons(verdicts, together):
    finding = Finding("C1", "it holds", [comparison("a, b", verdict) for verdict in verdicts], [])
    assert finding.verdict == together


def test_the_registry_gets_what_was_decided_as_data():
    ours = [comparison("a, b", REPRODUCED), comparison("c", NOT), comparison("d", UNDECIDED)]
    ours.append(comparison("e", NOTHING))
    finding = Finding("C1", "it holds", ours, [])
    lines = [Line("C1", "holds", "it holds, a, b", "9%"), Line("C1", "refuted", "it holds, c", "9%")]
    assert list(finding.evidence) == lines
    assert [Line(**fields) for fields in json.loads(data([finding, finding]))] == lines * 2


def test_what_a_notebook_said_is_read_from_its_outputs_with_large_numbers_in_full(tmp_path):
    text = "- A 1.7e+03 times, B 1.89e+03 times, C 452 times.\n- D at 4.5e-03.\nnot this\n"
    cell = nbformat.v4.new_code_cell("1", outputs=[nbformat.v4.new_output("stream", text=text)])
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "a.ipynb")
    run = SimpleNamespace(record={"experiment": "moonshot"}, path=tmp_path)
    assert results._said(run) == ["- A 1,700 times, B 1,890 times, C 452 times.", "- D at 4.5e-03."]
