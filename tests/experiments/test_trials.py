"""Trials: what decides their address, that storing loses nothing, and that no bad file is believed."""

from __future__ import annotations

import json
import logging
import threading
import time

import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from threadpoolctl import threadpool_info, threadpool_limits

from compendium.experiments import execution, study, trials
from compendium.experiments.data import Dataset
from compendium.experiments.policies import COMPARISON
from compendium.experiments.policies import POLICIES as ENTRIES
from compendium.experiments.problems import Digits, Source, Synthetic, images
from compendium.experiments.setting import Setting
from compendium.experiments.trials import TrialSpec, load, store

POLICIES = tuple(ENTRIES)

SETTING = {
    "name": "small",
    "problem": {"kind": "synthetic", "dimension": 6, "rewards": (0.5, 1.0), "parameter_norm": 2.0},
    "sketch_size": 4,
    "regularization": 0.5,
    "step_size": 1.0,
    "norm_bound": 2.0,
    "radius": {"kind": "theorem", "confidence": 0.1, "scale": 0.01},
    "policies": COMPARISON,
}
SPEC = {"experiment": "tests", "n_rounds": 30, "seed": 7, "trial": 0}


def make_spec(setting=(), problem=(), **changes):
    """The small trial with some of its fields changed."""
    chosen = SETTING | {"problem": SETTING["problem"] | dict(problem)} | dict(setting)
    return TrialSpec(setting=chosen, **SPEC | changes)


@pytest.fixture(scope="module")
def computed():
    """A trial with all policies, among them those as printed; a narrow budget would play as OFUL does."""
    spec = make_spec({"policies": POLICIES, "parameters": {"budgeted-eofd": {"budget": 100.0}}})
    return spec, spec.compute()


@pytest.fixture
def stored(computed, tmp_path):
    spec, frame = computed
    return spec, frame, store(spec, frame, tmp_path)


def assert_same(left, right):
    """Equal in every bit: dtypes, order, categories and values; and in how the policies ended."""
    attributes = [{**frame.attrs, "seconds": None} for frame in (left, right)]  # a time may differ
    assert attributes[0] == attributes[1]
    pd.testing.assert_frame_equal(left, right, check_exact=True, check_categorical=True)
    for name in left.columns:
        assert left[name].dtype == right[name].dtype
        assert left[name].to_numpy().tobytes() == right[name].to_numpy().tobytes() or name == "policy"


def files(folder):
    return [path.name for path in folder.iterdir()]


# The address

DECISIVE = [
    {"experiment": "other"},
    {"n_rounds": 31},
    {"seed": 8},
    {"trial": 1},
    {"setting": {"sketch_size": 5}},
    {"setting": {"regularization": 0.25}},
    {"setting": {"step_size": 2.0}},
    {"setting": {"norm_bound": 3.0}},
    {"setting": {"radius": {"kind": "theorem", "confidence": 0.2, "scale": 0.01}}},
    {"setting": {"radius": {"kind": "theorem", "confidence": 0.1, "scale": 0.02}}},
    {"setting": {"radius": {"kind": "theorem", "confidence": 0.1, "scale": 0.01, "action_bound": 2.0}}},
    {"setting": {"radius": {"kind": "theorem", "confidence": 0.1, "scale": 0.01, "smoothness": 0.5}}},
    {"setting": {"radius": {"kind": "ridge", "scale": 0.01}}},
    {"setting": {"radius": {"kind": "constant", "beta": 0.01}}},
    {"setting": {"policies": COMPARISON[:4]}},
    {"setting": {"policies": COMPARISON[::-1]}},
    {"setting": {"parameters": {"eofd": {"buffer": 2}}}},
    {"setting": {"parameters": {"eofd": {"buffer": 3}}}},
    {"setting": {"parameters": {"greedy": {"buffer": 3}}}},
    {"problem": {"dimension": 7}},
    {"problem": {"rewards": (0.5, 0.9)}},
    {"problem": {"rewards": (1.0, 0.5)}},
    {"problem": {"parameter_norm": 2.5}},
    {"problem": {"n_actions": (10, 31)}},
    {"problem": {"decay": 0.5}},
    {"setting": {"problem": {"kind": "mnist"}}},
    {"setting": {"problem": {"kind": "mnist", "target": 2}}},
    {"setting": {"problem": {"kind": "mnist", "normalisation": "max"}}},
]


def tiny_digits(shade):
    features = np.full((10, 784), shade, dtype=np.uint8)
    return Dataset("Digits", features, np.arange(10), "nowhere", "none")


@pytest.fixture
def digits(monkeypatch):
    """Ten digits in place of MNIST, of a shade that can be changed."""

    def use(shade):
        monkeypatch.setattr(images, "MNIST", Source("MNIST", lambda: tiny_digits(shade), "absent"))

    use(1)
    return use


def test_everything_that_decides_the_numbers_is_in_the_address(digits):
    keys = [make_spec().key] + [make_spec(**changes).key for changes in DECISIVE]
    assert len(set(keys)) == len(keys)


def test_no_field_of_a_specification_was_forgotten():
    """A field that is added and is not tried above fails here."""
    tried = {name for changes in DECISIVE for name in changes if name not in ("setting", "problem")}
    assert set(TrialSpec.model_fields) == tried | {"setting"}
    in_setting = {name for changes in DECISIVE for name in changes.get("setting", {})}
    assert set(Setting.model_fields) == in_setting | {"name"}
    in_problem = {name for changes in DECISIVE for name in changes.get("problem", {})}
    assert set(Synthetic.model_fields) == in_problem | {"kind"}


def test_what_decides_nothing_is_not_in_the_address(monkeypatch):
    key = make_spec().key
    radius = {"scale": 0.01, "action_bound": 1.0, "confidence": 0.1, "kind": "theorem"}
    assert make_spec({"radius": radius}).key == key  # another order, a default written out
    assert make_spec({"policies": list(COMPARISON)}).key == key
    for parameters in ({}, {"eofd": {}}, {"eofd": {"buffer": 1}, "random": {}}):
        assert make_spec({"parameters": parameters}).key == key
    assert make_spec(problem={"n_actions": (10, 30)}).key == key
    spec = make_spec()
    assert TrialSpec.model_validate_json(spec.model_dump_json()).key == key
    for name in ("MLOGB_JOBS", "MLOGB_RUN_DIR", "MLOGB_ORDERS"):
        monkeypatch.setenv(name, "2")
    assert spec.key == key
    settings = [SETTING | {"name": "first"}, SETTING]
    for n_trials in (1, 3):
        specs = study.Study(experiment="tests", settings=settings, n_rounds=30, n_trials=n_trials, seed=7)
        assert key in [one.key for one in specs.specs()]


def test_the_data_are_in_the_address(digits):
    spec = make_spec({"problem": {"kind": "mnist"}})
    before = spec.key
    assert spec.identity()["data"] == tiny_digits(1).checksum
    digits(2)
    assert spec.key != before
    digits(1)
    assert spec.key == before
    assert make_spec().identity()["data"] is None


def test_the_sources_are_in_the_address(monkeypatch):
    before = make_spec().key
    monkeypatch.setattr(trials, "library_digest", lambda: "0" * 64)
    assert make_spec().key != before


def test_which_sources_are_meant(monkeypatch):
    """The library is always in the digest; `tests/runs/test_runs.py` checks that."""
    asked = []
    monkeypatch.setattr(trials, "code_digest", lambda *arguments: asked.append(arguments) or "d")
    assert trials.library_digest.__wrapped__() == "d"
    modules = [f"experiments/{name}.py" for name in ("policies", "setting", "trials")]
    assert asked == [(["experiments/problems", *modules],)]


# Computing


def test_a_trial_is_computed_with_one_thread():
    inside = []

    def look(rounds):
        inside.append([pool["num_threads"] for pool in threadpool_info()])

    make_spec(n_rounds=1).compute()  # a library that is loaded on the way brings a pool of its own
    with threadpool_limits(limits=2):
        outside = [pool["num_threads"] for pool in threadpool_info()]
        make_spec(n_rounds=2).compute(look)
        after = [pool["num_threads"] for pool in threadpool_info()]
    assert 2 in outside
    assert inside == [[1] * len(outside)] * 2
    assert after == outside


def test_what_a_trial_holds(computed):
    _, frame = computed
    assert list(frame["round"]) == [t for t in range(1, 31) for _ in POLICIES]
    assert list(frame["policy"]) == list(POLICIES) * 30
    assert frame["n_actions"].between(10, 30).all()
    assert (frame.groupby("round")["n_actions"].nunique() == 1).all()
    assert (frame["action"] < frame["n_actions"]).all()
    assert frame["outcome"].isin([0, 1, 2]).all()
    assert list(frame["reward"]) == [(0.0, 0.5, 1.0)[y] for y in frame["outcome"]]
    assert (frame["regret"] >= 0).all()
    assert frame["regret"].max() > 0
    assert (frame[["select_seconds", "update_seconds"]] > 0).all().all()


def test_policies_are_the_ones_that_they_are_called(computed):
    """The library's policies play as the printed ones do; the reference lines play otherwise."""
    _, frame = computed
    played = {name: tuple(part["action"]) for name, part in frame.groupby("policy", observed=True)}
    assert played["eofd"] == played["eofd-printed"]
    assert played["eofd"] == played["eofd-compiled"]
    assert played["oful"] == played["oful-printed"] == played["oful-cholesky"] == played["oful-compiled"]
    assert len(set(played.values())) == len(POLICIES) - 5


def test_policies_are_built_from_the_setting():
    """Those that have no state here are compared with these in what they play, above."""
    environment = Synthetic(**SETTING["problem"]).environment()
    built = Setting(**SETTING | {"policies": POLICIES}).build(environment, lambda _: np.random.default_rng(0))
    assert tuple(built) == POLICIES
    for name in ("eofd", "oful", "first-order", "greedy"):
        state = built[name].state_dict()
        numbers = state["curvature.regularization"], state["step_size"], state["norm_bound"]
        assert numbers == (0.5, 1.0, 2.0)
        assert state.get("curvature.sketch_size") == (4 if name in ("eofd", "greedy") else None)
        expected = {"kind": "constant", "beta": 0.0} if name == "greedy" else Setting(**SETTING).radius
        assert json.loads(state["radius"]) == expected


def test_a_policy_does_not_depend_on_its_company(computed):
    _, frame = computed
    for name in ("random", "oful"):
        alone = make_spec({"policies": (name,)}).compute()
        beside = frame[frame["policy"] == name].reset_index(drop=True)
        columns = ["round", "n_actions", "action", "outcome", "reward", "regret", "margin"]
        pd.testing.assert_frame_equal(alone[columns], beside[columns], check_exact=True)


def test_large_action_sets_are_counted_right():
    problem = {"dimension": 1, "rewards": (1.0,), "n_actions": (70_000, 70_000)}
    frame = make_spec({"policies": ("random",)}, problem, n_rounds=5).compute()
    assert (frame["n_actions"] == 70_000).all()
    assert frame["action"].between(0, 69_999).all()
    assert frame["action"].max() > 32_767


# Storing


def test_a_round_trip_is_exact(stored):
    spec, frame, path = stored
    assert path.name == f"{spec.key}.parquet"
    loaded = load(spec, path.parent)
    assert_same(frame, loaded)
    assert np.isinf(loaded["margin"]).any()  # random play has no margin
    assert {name: str(loaded[name].dtype) for name in ("round", "outcome", "regret", "select_seconds")} == {
        "round": "int32", "outcome": "int16", "regret": "float64", "select_seconds": "float32",
    }  # fmt: skip


def test_nothing_stored_is_no_warning(tmp_path, caplog):
    assert load(make_spec(), tmp_path / "missing") is None
    assert not caplog.records


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def halve(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def text(path):
    path.write_text("not a table")


def foreign(path):
    pd.DataFrame({"round": [1], "policy": ["eofd"]}).to_parquet(path)


def no_object(path):
    rewrite(path, identity="[]")


def no_json(path):
    rewrite(path, identity="{")


def other_trial(path):
    other = make_spec({"policies": POLICIES}, trial=1)
    store(other, other.compute(), path.parent).replace(path)


def no_final(path):
    rewrite(path, final="{")


def other_sources(path):
    identity = json.loads(pq.read_schema(path).metadata[b"identity"])
    rewrite(path, identity=json.dumps(identity | {"sources": "0" * 64}))


def fewer_rows(path):
    rewrite(path, rows=-1)


def rewrite(path, rows=None, **metadata):
    table = pq.read_table(path)[:rows] if rows else pq.read_table(path)
    changed = {name.encode(): value for name, value in metadata.items()}
    pq.write_table(table.replace_schema_metadata(table.schema.metadata | changed), path)


DAMAGES = [
    truncate, halve, empty, text, foreign, no_object, no_json, no_final, other_trial, other_sources,
    fewer_rows,
]  # fmt: skip


@pytest.mark.parametrize(
    "damage",
    [
        truncate,
        other_trial,
        *(pytest.param(d, marks=pytest.mark.slow) for d in DAMAGES[1:] if d is not other_trial),
    ],
    ids=lambda damage: damage.__name__,
)
def test_a_bad_file_is_computed_again(stored, damage, caplog):
    spec, frame, path = stored
    damage(path)
    with caplog.at_level(logging.WARNING):
        assert load(spec, path.parent) is None
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert path.name in caplog.text
    assert "computing it again" in caplog.text
    [again] = execution.obtain("tests", [spec], path.parent, execution.Orders())
    steady = list(frame.columns.drop(list(trials.TIMES)))
    assert_same(frame[steady], again[steady])
    assert_same(again, load(spec, path.parent))
    assert files(path.parent) == [path.name]


def test_no_changed_number_is_believed(stored, caplog):
    """A flipped bit inside the data of any column; without checksums most of them go unnoticed."""
    spec, frame, path = stored
    whole = path.read_bytes()
    group = pq.read_metadata(path).row_group(0)
    for number in range(group.num_columns):
        column = group.column(number)
        start = column.dictionary_page_offset or column.data_page_offset
        for share in (0.35, 0.6, 0.97):
            damaged = bytearray(whole)
            damaged[start + int(share * column.total_compressed_size)] ^= 0x10
            path.write_bytes(damaged)
            loaded = load(spec, path.parent)
            if loaded is not None:  # the bit was in a page's header and does not matter
                assert_same(frame, loaded)
    assert len(caplog.records) >= 2 * group.num_columns


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=["full", "interrupt"])
@pytest.mark.parametrize("there", [False, True], ids=["new", "over"])
def test_a_write_that_is_stopped_leaves_nothing(computed, tmp_path, monkeypatch, error, there):
    spec, frame = computed
    path = store(spec, frame, tmp_path) if there else tmp_path / "none"
    before = path.read_bytes() if there else None
    written = []

    def stop_halfway(table, where, **_):
        where.write_bytes(b"PAR1 half a table")
        written.append(where)
        raise error

    monkeypatch.setattr(pq, "write_table", stop_halfway)
    with pytest.raises(type(error)):
        store(spec, frame, tmp_path)
    assert written[0].parent == tmp_path  # so that a rename is enough
    assert written[0].suffix != ".parquet"
    assert files(tmp_path) == ([path.name] if there else [])
    if there:
        assert path.read_bytes() == before


def _store_often(spec, frame, folder, me, other):
    (folder.parent / me).touch()
    while not (folder.parent / other).exists():
        time.sleep(0.002)
    for _ in range(25):
        store(spec, frame, folder)


@pytest.mark.slow
def test_two_processes_store_the_same_trial(computed, tmp_path, caplog):
    spec, frame = computed
    folder = tmp_path / "trials"
    store(spec, frame, folder)
    done, seen = threading.Event(), []

    def read():
        while not done.is_set():
            seen.append(load(spec, folder))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        work = [joblib.delayed(_store_often)(spec, frame, folder, *names) for names in ("ab", "ba")]
        joblib.Parallel(n_jobs=2)(work)
    finally:
        done.set()
        reader.join()
    assert len(seen) > 5
    assert all(one is not None for one in seen)
    assert_same(frame, load(spec, folder))
    assert not caplog.records
    assert files(folder) == [f"{spec.key}.parquet"]


# What is refused


@pytest.mark.parametrize("policies", [("eofd", "ucb"), ("eofd", "eofd"), ()])
def test_policies_are_checked(policies):
    with pytest.raises(ValidationError, match="policies must be distinct names out of") as caught:
        make_spec({"policies": policies})
    assert all(name in str(caught.value) for name in POLICIES)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": -1}, "seed"),
        ({"trial": -1}, "trial"),
        ({"n_rounds": 0}, "n_rounds"),
        ({"n_rounds": -3}, "n_rounds"),
        ({"setting": {"sketch_size": 0}}, "sketch_size"),
        ({"setting": {"sketch_size": -2}}, "sketch_size"),
        ({"setting": {"sketch_size": 1.5}}, "sketch_size"),
        ({"setting": {"regularization": -0.5}}, "regularization"),
        ({"setting": {"regularization": 0.0}}, "regularization"),
        ({"setting": {"step_size": -1.0}}, "step_size"),
        ({"setting": {"norm_bound": -2.0}}, "norm_bound"),
        ({"setting": {"norm_bound": float("nan")}}, "norm_bound"),
        (
            {"setting": {"radius": {"kind": "box"}}},
            r"one of \['constant', 'repaired', 'ridge', 'theorem'\], got 'box'",
        ),
        ({"setting": {"radius": {"scale": 1.0}}}, "kind"),
        ({"setting": {"radius": {"kind": "ridge", "width": 1.0}}}, "'width'"),
        ({"setting": {"radius": {"kind": "ridge", "scale": -1.0}}}, "scale must be at least 0"),
        ({"setting": {"radius": {"kind": "constant", "beta": -1.0}}}, "beta must be at least 0"),
        ({"setting": {"radius": {"kind": "theorem", "confidence": 1.5}}}, "confidence must lie"),
        ({"setting": {"problem": {"kind": "dice"}}}, "'mnist', 'synthetic', 'classes', 'ratings'"),
        ({"problem": {"dimension": 0}}, "dimension"),
        ({"problem": {"parameter_norm": -1.0}}, "parameter_norm"),
        ({"setting": {"problem": {"kind": "mnist", "target": -1}}}, "target"),
        ({"setting": {"problem": {"kind": "mnist", "target": 10}}}, "target"),
        ({"setting": {"problem": {"kind": "mnist", "normalisation": "l1"}}}, "'unit' or 'max'"),
        ({"setting": {"lambda": 1.0}}, "lambda"),
    ],
)
def test_numbers_are_checked(changes, message):
    with pytest.raises(ValidationError, match=message):
        make_spec(**changes)


def test_a_changed_copy_is_checked_where_it_is_used():
    """`model_copy(update=...)`, which the notebooks use, checks nothing itself."""
    setting = Setting(**SETTING)
    for update, message in [
        ({"policies": ("ucb",)}, "policies must be distinct"),
        ({"sketch_size": -1}, "sketch_size"),
        ({"radius": {"kind": "box"}}, "radius kind"),
        ({"problem": Digits().model_copy(update={"target": 10})}, "target"),
    ]:
        with pytest.raises(ValidationError, match=message):
            TrialSpec(setting=setting.model_copy(update=update), **SPEC)
    fine = setting.model_copy(update={"radius": {"kind": "theorem", "confidence": 0.5}})
    assert TrialSpec(setting=fine, **SPEC).setting.radius["scale"] == 1.0


def test_specifications_do_not_change():
    spec = make_spec()
    with pytest.raises(ValidationError, match="frozen"):
        spec.trial = 1
    with pytest.raises(ValidationError, match="frozen"):
        spec.setting.sketch_size = 1


def _other_regret(frame, metadata):
    return frame.assign(regret=0.25), metadata


def _other_name(frame, metadata):
    return frame.rename(columns={"reward": "rewards"}), metadata


def _other_end(frame, metadata):
    return frame, metadata | {b"final": b"{}"}


@pytest.mark.parametrize("edit", [_other_regret, _other_name, _other_end])
def test_an_edited_trial_that_reads_well_is_not_believed(stored, tmp_path, caplog, edit):
    """A file rewritten by a tool, with the right address and a valid form, but other content."""
    spec, frame, path = stored
    table = pq.read_table(path)
    edited, metadata = edit(table.to_pandas(), table.schema.metadata)
    pq.write_table(pa.Table.from_pandas(edited, preserve_index=False).replace_schema_metadata(metadata), path)
    with caplog.at_level(logging.WARNING):
        assert load(spec, tmp_path) is None
    assert "is not the one asked for" in caplog.text
    store(spec, frame, tmp_path)
    assert_same(load(spec, tmp_path), frame)
