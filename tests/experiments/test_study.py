"""Studies: the same tables for any number of workers and after any interruption, and their files."""

from __future__ import annotations

import json
import shutil
import time
from functools import partial

import joblib
import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from compendium.experiments import execution as module
from compendium.experiments import study as study_module
from compendium.experiments import trials
from compendium.experiments.problems import Digits, Synthetic
from compendium.experiments.study import Results, Setting, Study, publish, replay, save
from mlogb_core.simulation import run_trial, trial_streams

PROBLEM = Synthetic(dimension=6, rewards=(0.5, 1.0), parameter_norm=2.0, n_actions=(3, 9))
FIRST = Setting(
    name="first", problem=PROBLEM, sketch_size=4, regularization=0.5, step_size=1.0, norm_bound=2.0,
    radius={"kind": "ridge", "scale": 0.05},
)  # fmt: skip
SECOND = FIRST.model_copy(
    update={
        "name": "a second",  # alphabetically before the first, as tables keep the given order
        "sketch_size": 2,
        "radius": {"kind": "theorem", "confidence": 0.1, "scale": 0.001},
        "policies": ("random", "oful-printed", "eofd"),
    }
)
STUDY = Study(experiment="tests", settings=[FIRST, SECOND], n_rounds=30, n_trials=3, seed=11)
N_FILES = 6
WRITTEN = {"results.parquet", "timings.parquet", "final.parquet", "study.json"}
#: It becomes part of the record. It differs between machines, and so is not compared.
ENVIRONMENT = {"environment.json"}


@pytest.fixture(autouse=True)
def without_batch(monkeypatch):
    """Remove the variables by which a batch that runs the tests would be noticed."""
    for name in ("MLOGB_JOBS", "MLOGB_RUN_DIR", "MLOGB_ORDERS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    """The study computed by one worker, with the folder of its trials."""
    folder = tmp_path_factory.mktemp("serial")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLOGB_ORDERS", raising=False)
        return STUDY.run(n_jobs=1, folder=folder), folder


@pytest.fixture
def results(serial):
    return serial[0]


def published(results, folder):
    """The bytes of the published files, except those of the times."""
    folder.mkdir()
    save(folder, results)
    return {name: (folder / name).read_bytes() for name in WRITTEN - {"timings.parquet"}}


@pytest.fixture
def assert_same(serial, tmp_path):
    """Compare results with those of one worker, as tables and as bytes."""

    def check(other):
        pd.testing.assert_frame_equal(serial[0].rounds, other.rounds, check_exact=True)
        pd.testing.assert_frame_equal(serial[0].final, other.final, check_exact=True)
        assert published(serial[0], tmp_path / "serial") == published(other, tmp_path / "other")

    return check


def stored(folder):
    return {path.name for path in folder.glob("*.parquet")} if folder.exists() else set()


# The same tables, whoever computes the trials


@pytest.mark.slow
def test_two_workers_give_the_same(assert_same, serial, tmp_path):
    assert_same(STUDY.run(n_jobs=2, folder=tmp_path / "trials"))
    assert stored(tmp_path / "trials") == stored(serial[1])
    assert len(stored(serial[1])) == N_FILES


@pytest.mark.slow
def test_computing_twice_measures_other_times(serial, tmp_path):
    """The tables are equal because times are not in them, and not because nothing was computed again."""
    again = STUDY.run(n_jobs=1, folder=tmp_path / "trials")
    times = list(trials.TIMES)
    assert (again.frame[times] != serial[0].frame[times]).any().all()
    assert not set(times) & set(again.rounds.columns)


def test_stored_trials_are_loaded(assert_same, serial, monkeypatch):
    monkeypatch.setattr(trials.TrialSpec, "compute", lambda *_: pytest.fail("computed again"))
    again = STUDY.run(n_jobs=1, folder=serial[1])
    pd.testing.assert_frame_equal(again.frame, serial[0].frame, check_exact=True)
    assert_same(again)


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_only_the_missing_half_of_the_trials_is_computed(assert_same, tmp_path, jobs):
    folder = tmp_path / "trials"
    STUDY.run(n_jobs=1, folder=folder)
    files = sorted(folder.iterdir())
    kept = {path: path.stat().st_mtime_ns for path in files[1::2]}
    for path in files[::2]:
        path.unlink()
    assert_same(STUDY.run(n_jobs=jobs, folder=folder))
    assert sorted(folder.iterdir()) == files
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_a_study_of_a_single_trial(tmp_path):
    """The attributes of a trial's table are not written into the files of the study."""
    single = STUDY.model_copy(update={"settings": (FIRST,), "n_trials": 1})
    first, again = (single.run(n_jobs=1, folder=tmp_path / "trials") for _ in range(2))
    assert published(first, tmp_path / "first") == published(again, tmp_path / "again")
    assert pd.read_parquet(tmp_path / "first" / "results.parquet").attrs == {}


def test_settings_in_another_order_or_alone(serial, tmp_path):
    """A trial does not depend on the study that it is part of."""
    alone = STUDY.model_copy(update={"settings": (SECOND,), "n_trials": 2}).run(1, tmp_path / "trials")
    rows = serial[0].rounds
    rows = rows[(rows["setting"] == "a second") & (rows["trial"] < 2)].reset_index(drop=True)
    for name in rows.columns.drop(["setting", "policy"]):
        pd.testing.assert_series_equal(alone.rounds[name], rows[name], check_exact=True)
    assert list(alone.rounds["policy"]) == list(rows["policy"])
    assert stored(tmp_path / "trials") < stored(serial[1])


def compute_or_stop(folder, spec, key):
    """Replaces `_compute`: the last trial is interrupted as soon as another one is stored."""
    if (spec.setting.name, spec.trial) == ("a second", 2):
        while not list(folder.glob("*.parquet")):
            time.sleep(0.01)
        raise KeyboardInterrupt("stopped")
    return _COMPUTE(spec, key)


_COMPUTE = module._compute


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_an_interrupted_study_is_resumed(assert_same, serial, tmp_path, monkeypatch, jobs):
    folder = tmp_path / "trials"
    with monkeypatch.context() as patch:
        patch.setattr(module, "_compute", partial(compute_or_stop, folder))
        with pytest.raises(KeyboardInterrupt):
            STUDY.run(n_jobs=jobs, folder=folder)
    assert 1 <= len(stored(folder)) < N_FILES
    assert stored(folder) < stored(serial[1])
    assert_same(STUDY.run(n_jobs=1, folder=folder))
    assert stored(folder) == stored(serial[1])


@pytest.mark.slow
def test_the_number_of_workers(assert_same, serial, tmp_path, monkeypatch):
    """There are as many workers as requested, but not more than trials to compute."""
    asked, parallel = [], joblib.Parallel

    def note(n_jobs, return_as, **_):
        asked.append(n_jobs)
        return parallel(n_jobs=1, return_as=return_as)

    monkeypatch.setattr(joblib, "Parallel", note)
    for jobs, missing in ((None, 2), (2, 3), (12, 2), (12, 0)):
        folder = tmp_path / f"{jobs}-{missing}"
        shutil.copytree(serial[1], folder)
        for path in sorted(folder.glob("*.parquet"))[:missing]:
            path.unlink()
        results = STUDY.run(n_jobs=jobs, folder=folder)
    monkeypatch.setenv("MLOGB_JOBS", "2")
    for path in sorted(folder.glob("*.parquet"))[:3]:
        path.unlink()
    by_variable = STUDY.run(folder=folder)
    assert asked == [1, 2, 2, 2]
    pd.testing.assert_frame_equal(results.rounds, by_variable.rounds)
    assert_same(by_variable)


def test_where_trials_are_stored(tmp_path, monkeypatch):
    (tmp_path / "experiments.yml").touch()
    monkeypatch.setenv("MLOGB_ROOT", str(tmp_path))
    one = STUDY.model_copy(update={"n_trials": 1, "settings": (SECOND,)})
    one.run()
    assert stored(tmp_path / "papermill_runs" / ".trials") == {f"{one.specs()[0].key}.parquet"}


# The tables


def test_the_frame(results):
    frame = results.frame
    assert list(frame.columns[:4]) == ["setting", "trial", "round", "policy"]
    assert list(frame["setting"].cat.categories) == ["first", "a second"]
    assert list(frame["policy"].cat.categories) == [*FIRST.policies, "oful-printed"]
    rows = frame.groupby(["setting", "policy", "trial"], observed=True)["round"].agg(list)
    assert all(rounds == list(range(1, 31)) for rounds in rows)
    assert len(rows) == 3 * (5 + 3)
    assert set(results.rounds.columns) == set(frame.columns) - {*trials.TIMES, "margin"}
    assert results.rounds["trial"].dtype == np.int32


def rows_of(frame, setting, policy, trial):
    chosen = (frame["setting"] == setting) & (frame["policy"] == policy) & (frame["trial"] == trial)
    return frame[chosen]


def test_final_regret(results):
    table = results.final_regret
    assert list(table.columns) == ["setting", "policy", "trial", "regret"]
    assert len(table) == 3 * (5 + 3)
    for row in table.itertuples():
        regret = rows_of(results.frame, row.setting, row.policy, row.trial)["regret"]
        assert row.regret == pytest.approx(sum(regret.tolist()), rel=1e-12)
    assert table["regret"].nunique() > 10


def test_final_states_are_those_of_policies_that_are_played_here(results):
    expected = []
    for setting in STUDY.settings:
        for trial in range(3):
            streams = trial_streams(11, "tests", trial)
            environment = setting.problem.environment()
            policies = setting.build(environment, streams.policy)
            run_trial(environment, policies, 30, streams)
            expected += [
                {"setting": setting.name, "trial": trial, "policy": name} | policies[name].summary()
                for name in setting.policies
                if name not in ("random", "oful-printed")
            ]
    pd.testing.assert_frame_equal(results.final, pd.DataFrame(expected))
    assert list(results.final["policy"][:4]) == ["eofd", "oful", "first-order", "greedy"]
    assert (results.final.loc[results.final["policy"] == "eofd", "shrinkage"] > 0).all()


def test_a_study_without_curvatures(tmp_path):
    lone = STUDY.model_copy(update={"settings": (FIRST.model_copy(update={"policies": ("random",)}),)})
    done = lone.run(folder=tmp_path / "trials")
    assert done.final.empty
    assert set(published(done, tmp_path / "out")) == WRITTEN - {"timings.parquet"}


def test_timings():
    """Invented times are summarised by the definition: rounds before the sketch is full do not count."""
    rng = np.random.default_rng(3)
    study = STUDY.model_copy(update={"n_trials": 2})
    rows = [
        {
            "setting": setting.name, "trial": trial, "round": t, "policy": policy,
            "select_seconds": np.float32(rng.random()), "update_seconds": np.float32(rng.random()),
        }
        for setting in study.settings for trial in range(2) for t in range(1, 31)
        for policy in setting.policies
    ]  # fmt: skip
    frame = pd.DataFrame(rows).astype({"setting": "category", "policy": "category"})
    frame["margin"] = np.inf
    table = Results.of(study, frame, pd.DataFrame()).timings
    assert len(table) == 2 * (5 + 3)
    for row in table.itertuples():
        part = rows_of(frame, row.setting, row.policy, row.trial)
        select, update = (1e3 * part[name].to_numpy(dtype=float) for name in trials.TIMES)
        full = {"first": 4, "a second": 2}[row.setting]
        assert row.first_round == full + 1
        select, update = select[full:], update[full:]
        assert row.select_mean_ms == pytest.approx(select.mean(), rel=1e-6)
        assert row.update_mean_ms == pytest.approx(update.mean(), rel=1e-6)
        assert row.total_mean_ms == pytest.approx((select + update).mean(), rel=1e-6)
        quartiles = row.total_q25_ms, row.total_median_ms, row.total_q75_ms
        np.testing.assert_allclose(quartiles, np.quantile(select + update, [0.25, 0.5, 0.75]), rtol=1e-6)


def test_times_of_a_trial_with_few_rounds_after_the_sketch_is_full(tmp_path):
    short = STUDY.model_copy(update={"n_rounds": 3, "n_trials": 1})
    table = short.run(folder=tmp_path / "trials").timings
    assert (table.select_dtypes("number").drop(columns="trial") > 0).all(axis=None)
    assert (table["first_round"] == 1).all()
    for n_rounds, first in ((24, 5), (23, 1)):  # 20 rounds with a full sketch, and one less
        study = STUDY.model_copy(update={"n_rounds": n_rounds, "n_trials": 1})
        timings = study.run(folder=tmp_path / "trials").timings
        first_round = timings.groupby("setting", observed=True)["first_round"].unique()
        assert first_round.map(list).to_dict() == {"first": [first], "a second": [3]}


# Common random numbers


def test_policies_and_settings_meet_the_same_actions(results):
    sizes = results.frame.groupby(["trial", "round"])["n_actions"]
    assert (sizes.nunique() == 1).all()
    assert results.frame.groupby("trial")["n_actions"].agg(tuple).nunique() == 3  # trials differ


def test_random_play_is_the_same_in_all_settings(results):
    columns = ["trial", "round", "action", "outcome", "reward", "regret"]
    play = {
        name: part.loc[part["policy"] == "random", columns].reset_index(drop=True)
        for name, part in results.frame.groupby("setting", observed=True)
    }
    pd.testing.assert_frame_equal(play["first"], play["a second"], check_exact=True)
    assert play["first"].groupby("trial")["action"].agg(tuple).nunique() == 3


def test_the_same_action_has_the_same_outcome(results):
    """The outcome follows from the action and a uniform number that all policies share."""
    keys = ["trial", "round", "action"]
    groups = results.frame.groupby(keys)
    assert (groups["outcome"].nunique() == 1).all()
    assert (groups["regret"].nunique() == 1).all()
    assert (groups.size() > 1).sum() > 30


def test_the_seed_and_the_experiment_pick_the_streams(results, tmp_path):
    base = results.rounds["outcome"].to_numpy()
    for change in ({"seed": 12}, {"experiment": "others"}):
        other = STUDY.model_copy(update=change).run(folder=tmp_path / "trials")
        assert (other.rounds["outcome"].to_numpy() != base).any()


# The record


def test_the_record(results):
    margins = np.random.default_rng(4).random(len(results.frame))
    margins[results.frame["round"] == 1] *= 1e-10
    margins[results.frame["round"] == 2] *= 1e-5
    margins[results.frame["policy"] == "random"] = np.inf
    results = Results.of(STUDY, results.frame.assign(margin=margins), results.final)
    record = results.record()
    assert Study.model_validate({k: record[k] for k in Study.model_fields}) == STUDY
    assert record["data"] == []
    assert record["sources"] == trials.library_digest()
    expected = []
    for setting in STUDY.settings:
        for policy in results.frame["policy"].cat.categories:
            if policy in setting.policies and policy != "random":  # which has no margin
                chosen = (results.frame["setting"] == setting.name) & (results.frame["policy"] == policy)
                later = chosen & (results.frame["round"] > 1)
                lowest = min(margins[chosen]), min(margins[later])
                expected.append((setting.name, policy, *(float(f"{number:.3g}") for number in lowest)))
    names = ["setting", "policy", "all_rounds", "after_round_1"]
    found = [tuple(row[name] for name in names) for row in record["smallest_margin"]]
    assert sorted(found) == sorted(expected)
    json.dumps(record, allow_nan=False)


def test_each_data_set_is_recorded_once(tmp_path):
    """The study plays on digits, from loading them to its record."""
    settings = [
        FIRST.model_copy(update={"name": f"{target}", "problem": Digits(target=target), "policies": policies})
        for target, policies in ((1, ("eofd", "random")), (2, ("random",)))
    ]
    digits = Study(experiment="digits", settings=[*settings, FIRST], n_rounds=6, n_trials=1, seed=1)
    done = digits.run(folder=tmp_path / "trials")
    (data,) = done.record()["data"]
    assert data == Digits().data()
    assert data["rows"] >= 5000
    played = done.rounds[done.rounds["setting"] != "first"]
    assert (played["n_actions"] == 10).all()
    assert played["regret"].isin([0.0, 1.0]).all()
    assert ((played["regret"] == 0) == (played["reward"] == 1)).all()


# Publishing


def test_publish_without_a_batch_does_nothing(results, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    publish(results, best="first")
    monkeypatch.setenv("MLOGB_RUN_DIR", "")
    publish(results)
    assert list(tmp_path.iterdir()) == []


def test_publish_writes_the_tables_and_the_record(results, tmp_path, monkeypatch):
    monkeypatch.setenv("MLOGB_RUN_DIR", str(tmp_path))
    publish(results, best="first", number=2.5)
    assert {path.name for path in tmp_path.iterdir()} == WRITTEN | ENVIRONMENT
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "results.parquet"), results.rounds)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "timings.parquet"), results.timings)
    final = pd.read_parquet(tmp_path / "final.parquet").astype({"setting": str, "policy": str})
    pd.testing.assert_frame_equal(final, results.final)
    study = json.loads((tmp_path / "study.json").read_text())
    expected = {"studies": [results.record()], "findings": {"best": "first", "number": 2.5}}
    assert study == json.loads(json.dumps(expected))


def renamed(results, suffix):
    """The same results under settings of other names."""
    settings = [s.model_copy(update={"name": s.name + suffix}) for s in results.study.settings]
    names = {s.name: s.name + suffix for s in results.study.settings}
    frame = results.frame.assign(setting=results.frame["setting"].cat.rename_categories(names))
    final = results.final.replace({"setting": names})
    return Results.of(results.study.model_copy(update={"settings": tuple(settings)}), frame, final)


def test_several_studies_are_stacked(results, tmp_path):
    other = renamed(results, ", again")
    save(tmp_path, results, other)
    table = pd.read_parquet(tmp_path / "results.parquet")
    assert list(table["setting"].cat.categories) == ["first", "a second", "first, again", "a second, again"]
    half = len(results.frame)
    for part, one in ((table[:half], results), (table[half:], other)):
        for name in one.rounds.columns:
            left, right = part[name].astype(object), one.rounds[name].astype(object)
            assert list(left) == list(right), name
    for name, one in (("timings", results.timings), ("final", results.final)):
        assert len(pd.read_parquet(tmp_path / f"{name}.parquet")) == 2 * len(one)
    assert len(json.loads((tmp_path / "study.json").read_text())["studies"]) == 2


def test_equal_names_in_two_studies_are_refused(results, tmp_path):
    with pytest.raises(ValueError, match="must have different names, got"):
        save(tmp_path, results, results)
    assert list(tmp_path.iterdir()) == []


def test_a_finding_that_is_no_plain_value_is_refused(results, tmp_path):
    with pytest.raises(TypeError):
        save(tmp_path, results, table=results.frame)
    assert list(tmp_path.iterdir()) == []


# Blocks of rounds, and the tables of a finished run


def test_a_block_has_the_sums_of_its_rounds(results):
    study = STUDY.model_copy(update={"block": 7})  # 30 rounds: the last block is shorter
    blocks = Results.of(study, results.frame, results.final).rounds
    assert list(blocks.columns) == ["setting", "trial", "round", "policy", "reward", "regret"]
    assert sorted(blocks["round"].unique()) == [7, 14, 21, 28, 30]
    assert blocks["round"].dtype == np.int32
    assert len(blocks) == 5 * 3 * (5 + 3)
    for row in blocks[::11].itertuples():
        part = rows_of(results.frame, row.setting, row.policy, row.trial)
        part = part[(part["round"] <= row.round) & (part["round"] > (row.round - 1) // 7 * 7)]
        assert row.regret == pytest.approx(part["regret"].sum(), rel=1e-12)
        assert row.reward == pytest.approx(part["reward"].sum(), rel=1e-12)
    pd.testing.assert_frame_equal(
        blocks.groupby(["setting", "policy"], observed=True)[["regret"]].sum(),
        results.rounds.groupby(["setting", "policy"], observed=True)[["regret"]].sum(),
    )


def test_a_long_study_is_published_in_blocks(results, tmp_path):
    """Its timings, final states and margins are those of all rounds."""
    study = STUDY.model_copy(update={"block": 30})
    whole = Results.of(study, results.frame, results.final)
    assert (len(whole.rounds), whole.margins) == (3 * (5 + 3), results.margins)
    pd.testing.assert_frame_equal(whole.timings, results.timings)


def finished(folder, *parts):
    """The folder of a finished run with these studies."""
    folder.mkdir()
    save(folder, *parts, best="first")
    (folder / "record.json").write_text("{}")
    return folder


def assert_same_tables(left, right):
    """Types, categories and values: what a notebook prints and computes is the same."""
    for name in ("rounds", "timings", "final"):
        first, second = getattr(left, name), getattr(right, name)
        pd.testing.assert_frame_equal(first, second, check_exact=True, check_categorical=True, obj=name)
    pd.testing.assert_frame_equal(left.final_regret, right.final_regret, check_exact=True)
    assert (left.margins, left.data, left.study) == (right.margins, right.data, right.study)
    assert left.record() == right.record()


@pytest.mark.parametrize("blocks", [(1, 1), (4, 4), (1, 4), (4, 1)])
def test_the_tables_of_a_finished_run(results, tmp_path, monkeypatch, blocks):
    """A run has two studies, of which one lacks columns; published again, its files have the same bytes."""
    first = Results.of(STUDY.model_copy(update={"block": blocks[0]}), results.frame, results.final)
    other = renamed(results, ", again")
    other = Results.of(other.study.model_copy(update={"block": blocks[1]}), other.frame, other.final)
    folder = finished(tmp_path / "run", first, other)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(study_module, "obtain", lambda *_: pytest.fail("computed"))
    read = [first.study.run(), other.study.run()]
    for one, computed in zip(read, (first, other), strict=True):
        assert_same_tables(one, computed)
        assert one.frame is None
    save(tmp_path, *read, best="first")
    for name in WRITTEN:
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes(), name


def test_a_finished_run_of_a_study_without_curvatures(results, tmp_path):
    settings = (FIRST.model_copy(update={"policies": ("random",)}),)
    lone = STUDY.model_copy(update={"settings": settings, "n_trials": 1}).run(folder=tmp_path / "trials")
    folder = finished(tmp_path / "run", lone)
    assert_same_tables(replay(lone.study, folder), lone)
    save(tmp_path, replay(lone.study, folder), best="first")
    assert (tmp_path / "final.parquet").read_bytes() == (folder / "final.parquet").read_bytes()
    both = finished(tmp_path / "both", lone, renamed(results, ", again"))
    assert_same_tables(replay(lone.study, both), lone)


def test_a_finished_run_of_studies_with_and_without_coverage(results, tmp_path):
    """Only the states of a study that follows the coverage have the shares of the radius."""
    setting = FIRST.model_copy(update={"name": "followed", "coverage": True, "policies": ("eofd", "random")})
    followed = STUDY.model_copy(update={"settings": (setting,), "n_trials": 2}).run(
        folder=tmp_path / "trials"
    )
    assert (followed.final["largest_share"] >= followed.final["last_share"]).all()
    assert set(followed.final) - set(results.final) == {"largest_share", "last_share"}
    for place, both in enumerate([(results, followed), (followed, results)]):
        folder = finished(tmp_path / f"run{place}", *both)
        read = [replay(one.study, folder) for one in both]
        for one, computed in zip(read, both, strict=True):
            assert_same_tables(one, computed)
        save(tmp_path, *read, best="first")
        assert (tmp_path / "final.parquet").read_bytes() == (folder / "final.parquet").read_bytes()


def test_a_finished_run_of_other_parameters(results, tmp_path, monkeypatch):
    monkeypatch.chdir(finished(tmp_path / "run", results))
    for change in ({"seed": 12}, {"n_rounds": 31}, {"block": 2}, {"settings": (FIRST,)}):
        with pytest.raises(ValueError, match="holds no study 'tests' with these parameters"):
            STUDY.model_copy(update=change).run()


@pytest.mark.parametrize("missing", ["record.json", "study.json", "results.parquet", "final.parquet"])
def test_another_folder_is_no_finished_run(serial, tmp_path, monkeypatch, missing):
    """In the folder of the notebooks, or of a run that is being made, trials are obtained."""
    folder = finished(tmp_path / "run", serial[0])
    (folder / missing).unlink()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(study_module.paths, "trials_folder", lambda: serial[1])
    assert STUDY.run().frame is not None


def test_in_a_finished_run_trials_are_obtained_only_if_their_folder_is_given(serial, tmp_path, monkeypatch):
    """A study of times asks for one worker, and must not be measured again in the folder of its run."""
    monkeypatch.chdir(finished(tmp_path / "run", serial[0]))
    assert STUDY.run(folder=serial[1]).frame is not None
    monkeypatch.setattr(study_module.paths, "trials_folder", lambda: pytest.fail("asked for trials"))
    assert STUDY.run(n_jobs=1).frame is None


# What is refused


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": []}, "at least one, with distinct names"),
        ({"settings": [FIRST, FIRST]}, r"distinct names, got \['first', 'first'\]"),
        ({"settings": [FIRST.model_copy(update={"policies": ("ucb",)})]}, "policies must be distinct names"),
        ({"n_rounds": 0}, "n_rounds"),
        ({"n_trials": -1}, "n_trials"),
        ({"seed": -1}, "seed"),
        ({"block": 0}, "block"),
        ({"rounds": 3}, "rounds"),
    ],
)
def test_a_study_is_validated(changes, message):
    given = {name: getattr(STUDY, name) for name in Study.model_fields}
    with pytest.raises(ValidationError, match=message):
        Study(**given | changes)
