"""The tournament's tables, pictures and sentences, from small tables; and the page that they end up on."""

from __future__ import annotations

import io
import json
import types

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from compendium.experiments.tournament import PROBLEMS
from compendium.report import readme, tables, tournament, which_one
from compendium.report.equal_regret import EQUAL, MORE, UNDECIDED
from compendium.report.tournament import FAILED, LESS, advice, pareto, row, sentences, standings, table
from compendium.system.paths import FailureError, UsageError

FULL, EOFD = "oful-compiled", "eofd-compiled"


def regrets(**by_policy):
    """Regret of policies, a list over trials each; None is a game that failed."""
    return pd.DataFrame(
        [
            {"group": name, "policy": name.replace("_", "-"), "trial": trial, "regret": value}
            for name, values in by_policy.items()
            for trial, value in enumerate(values)
        ]
    ).astype({"regret": float})


def made(policy, share, verdict=EQUAL, ms=1.0, **changes):
    """A row of the finding."""
    one = {
        "policy": policy, "verdict": verdict, "failed": 0, "message": None, "tuned": "λ = 1", "share": share,
        "theory": None, "grid": [share, share, share, share, 1.0], "within": 0.5, "ms": ms, "median_ms": ms,
        "bytes": 8000, "mean": 0.0, "low": -0.01, "high": 0.01,
    }  # fmt: skip
    return one | changes


ROWS = [
    made(FULL, 0.30, ms=4.0), made(EOFD, 0.31, ms=0.5, theory=0.97), made("ol2m", 0.28, LESS, ms=9.0),
    made("growing-ridge", 0.40, MORE, ms=0.1), made("greedy", 0.5, UNDECIDED, ms=0.6),
    made("random", 1.0, MORE, ms=0.01),
]  # fmt: skip


def changed(policy, **changes):
    return [one | changes if one["policy"] == policy else one for one in ROWS]


def test_standings_leave_out_the_games_that_failed():
    found = standings(
        regrets(
            oful_compiled=[10, 20, 60, 30], eofd_compiled=[11, None, 63, 33], greedy=[None] * 4,
            thompson=[1, 2, 30, 9], random=[90, 80, 100, 120],
        )
    ).set_index("policy")  # fmt: skip
    assert found.loc[EOFD, "failed"] == 1
    assert found.loc[EOFD, "mean"] == pytest.approx((1 + 3 + 3) / 3 / 30)
    assert (found.loc["greedy", "verdict"], found.loc["greedy", "failed"]) == (FAILED, 4)
    assert np.isnan(found.loc["greedy", "mean"])
    assert found.loc["thompson", "verdict"] == LESS
    assert found.loc["random", "verdict"] == MORE
    assert found.loc[FULL, ["verdict", "mean", "failed"]].tolist() == [EQUAL, 0.0, 0]


def test_a_row_is_made_of_plain_values_that_are_shares_of_random_play():
    standing = {"policy": EOFD, "verdict": EQUAL, "failed": 1, "regret": 20.0, "mean": 0.1, "low": np.nan,
                "high": np.nan}  # fmt: skip
    one = row(
        standing, random=80.0, theory=60.0, tuned="λ = 1", grid=[40.0, 16.0, np.inf, 24.0, 32.0],
        time={"mean": 0.5, "median": 0.4, "held": np.int64(16)}, message="round 2: x",
    )  # fmt: skip
    assert json.loads(json.dumps(one, allow_nan=False)) == one
    assert (one["share"], one["theory"], one["ms"], one["bytes"]) == (0.25, 0.75, 0.5, 16)
    assert one["grid"] == [0.2, 0.3, 0.4, 0.5, None]
    assert one["within"] == 0.4
    assert (one["low"], one["high"]) == (None, None)
    lost = row(
        standing | {"verdict": FAILED, "regret": np.nan}, random=80.0, theory=None, tuned="", grid=[np.inf],
        time={"mean": 0.5, "median": 0.4, "held": 8, "failure": "round 1"}, message="round 1",
    )  # fmt: skip
    assert (lost["share"], lost["theory"], lost["ms"], lost["grid"][0]) == (None, None, None, None)


def test_the_line_of_the_best_has_whom_no_other_policy_beats_in_both():
    assert pareto(ROWS) == ["random", "growing-ridge", EOFD, FULL, "ol2m"]
    assert pareto([made(FULL, 0.3, ms=1.0), made(EOFD, 0.3, ms=2.0), made("greedy", 0.2, ms=None)]) == [FULL]


def test_a_table_is_ordered_by_regret_and_names_who_did_not_play_and_who_failed():
    text = table(changed("greedy", failed=2, message="round 9: LinAlgError: singular"), {"boudart": "why"})
    lines = text.splitlines()[2:]
    assert [line.split(" | ")[1] for line in lines[:3]] == ["OL2M", "OFUL-MLogB", "EOFD-MLogB"]
    assert "2 games failed: round 9: LinAlgError: singular" in text
    assert "not played: why" in lines[-1]
    assert len({line.count("|") for line in text.splitlines()}) == 1


@pytest.mark.parametrize(
    ("rows", "right", "why"),
    [
        (ROWS, True, "in 1/8 of its time"),
        (changed(EOFD, verdict=MORE), False, "certainly more"),
        (changed(EOFD, verdict=UNDECIDED), False, "not certain"),
        (changed(EOFD, ms=3.5), False, "but a round of OFUL-MLogB takes only 1.14 times its time"),
        (changed("growing-ridge", verdict=EQUAL), False, "growing ridge has the same regret in no more time"),
        (changed(FULL, share=0.95), False, "nothing was learned (95% of random play)"),
        (changed(EOFD, verdict=LESS, ms=3.5), True, "certainly less regret than OFUL-MLogB"),
    ],
)  # fmt: skip
def test_the_advice_follows_from_the_rows(rows, right, why):
    assert (advice(rows)[0], why in advice(rows)[1]) == (right, True)


def test_only_what_has_certainly_less_regret_is_in_the_way_of_certainly_less():
    rows = changed(EOFD, verdict=LESS, ms=3.5)
    equal = [one | ({"verdict": EQUAL} if one["policy"] == "growing-ridge" else {}) for one in rows]
    less = [one | ({"verdict": LESS} if one["policy"] == "growing-ridge" else {}) for one in rows]
    assert advice(equal)[0]
    right, why = advice(less)
    assert not right
    assert "like EOFD-MLogB, growing ridge has certainly less regret than OFUL-MLogB" in why


def test_a_sketch_that_does_the_same_in_less_time_does_not_speak_against_a_sketch():
    assert advice([*ROWS, made("robust-eofd", 0.31, ms=0.2)])[0]


def test_at_most_three_policies_are_named():
    rows = changed("growing-ridge", verdict=EQUAL)
    more = [made(name, 0.31, ms=0.2) for name in ("diagonal", "soful", "cbscfd")]
    assert "growing ridge and diagonal have the same regret" in advice([*rows, *more[:1]])[1]
    assert "growing ridge, diagonal and SOFUL (linear) have" in advice([*rows, *more[:2]])[1]
    assert "and 2 more policies have" in advice([*rows, *more])[1]


def test_the_sentences_of_a_problem():
    said = " ".join(sentences("MNIST", changed("greedy", failed=1, message="m"), {"a": "why", "b": "why"}))
    assert "OL2M has the least regret, 28% of random play's" in said
    assert "Of the 5 policies besides OFUL-MLogB 2 certainly have its regret or less" in said
    assert "or less; the fastest of these is EOFD" in said
    assert "games failed of greedy (β = 0) (1: m)" in said
    assert "not played were a, b (why)" in said
    assert "hardly learned" not in said
    assert "hardly learned" in sentences("MNIST", changed(FULL, share=0.93), {})[0]


def test_all_policies_with_the_least_regret_are_named():
    said = sentences("MNIST", changed(EOFD, share=0.28), {})[0]
    assert "EOFD-MLogB and OL2M have the least regret, 28% of random play's" in said


def run_of(name, rows=ROWS):
    findings = {"standings": rows, "absent": {"boudart": "why"}, "title": PROBLEMS[name], "size": 400}
    given = {"n_rounds": 500, "n_trials": 20, "n_points": 9, "tuning_trials": 3}
    record = {"point": {"problem": name}, "study": {"findings": findings}, "parameters": given}
    notebook = readme.paths.project_root() / "papermill_runs" / "tournament" / name / "tournament.ipynb"
    return types.SimpleNamespace(record=record, notebook=notebook)


@pytest.fixture
def recorded(monkeypatch):
    """Two recorded runs, in an order that is not the one of the page."""
    names = ("mnist", "multinomial")
    runs = [run_of("mnist", changed(EOFD, verdict=MORE)), run_of("multinomial")]
    monkeypatch.setattr(which_one, "find_runs", lambda *_: runs)
    return names


def test_before_a_run_is_recorded_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(which_one, "find_runs", lambda *_: [])
    which_one.write(root=tmp_path)
    which_one.write(check=True, root=tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert which_one.short_form() == ""


def test_the_page_says_where_the_sketch_is_right_and_where_not(recorded):
    text = which_one.page(which_one.recorded())
    yes, no = (PROBLEMS[name] for name in ("multinomial", "mnist"))
    assert text.index(f"**{yes}: yes**") < text.index(f"**{no}: no**, its regret is certainly more")
    assert "The fastest policy that is certain to have OFUL-MLogB's regret or less is EOFD-MLogB" in text
    assert "in 2 of 2 cases" in text
    assert f"| {tournament.NUMBERS['ol2m']} | OL2M | 1.00 < | 1.00 < | 2 of 2 | 2.2 |" in text
    assert "no. | policy" in text
    assert "Games that failed: none." in text
    assert f"**{yes}: yes**" in which_one.short_form()


def test_the_page_its_picture_and_its_place_are_written_and_checked(recorded, tmp_path):
    (tmp_path / "book").mkdir()
    (tmp_path / which_one.INDEX).write_text("```\nown_data\nchoosing\n```\n")
    with pytest.raises(FailureError, match=r"book/which_one\.md is not what the committed runs give"):
        which_one.write(check=True, root=tmp_path)
    which_one.write(root=tmp_path)
    which_one.write(check=True, root=tmp_path)
    assert "choosing\nwhich_one\n" in (tmp_path / which_one.INDEX).read_text()
    (tmp_path / which_one.PICTURE).write_bytes(b"another")
    with pytest.raises(FailureError, match=r"book/which_one\.png is not drawn from"):
        which_one.write(check=True, root=tmp_path)


def test_a_picture_whose_drawing_is_stopped_is_not_there(tmp_path, monkeypatch):
    """The check reads the picture's text, which stands at its beginning."""

    def stopped(figure, target, **_):
        if isinstance(target, io.BytesIO):
            target.write(b"the first half")
        else:
            target.write_bytes(b"the first half")
        raise KeyboardInterrupt

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", stopped)
    with pytest.raises(KeyboardInterrupt):
        which_one.draw({"title": {"standings": ROWS, "size": 400}}, tmp_path / "picture.png")
    assert list(tmp_path.iterdir()) == []
    plt.close("all")


def test_the_readme_has_a_place_for_it():
    text = (readme.paths.project_root() / "README.md").read_text(encoding="utf-8")
    assert "## A\n" in tables.replace_block(text, "tournament", "## A\n", "README.md")
    with pytest.raises(UsageError, match=r"README\.md has no block between <!-- other: begin"):
        tables.replace_block(text, "other", "", "README.md")


def test_the_picture_numbers_every_policy_but_random_play():
    figure, axis = plt.subplots()
    tournament.draw(axis, ROWS, "title")
    written = {text.get_text() for text in axis.texts}
    assert written == {str(tournament.NUMBERS[one["policy"]]) for one in ROWS if one["policy"] != "random"}
    plt.close(figure)


def test_the_grid_has_a_line_for_every_policy_with_a_point_that_did_not_fail():
    figure, axis = plt.subplots()
    tournament.draw_grid(axis, changed("greedy", grid=[None] * 5), "title")
    assert len(axis.get_yticklabels()) == len(ROWS) - 1
    plt.close(figure)
