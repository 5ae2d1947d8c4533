"""Trials: what decides their address, that storing changes nothing, and that no damaged file is used."""

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
from compendium.experiments.policies import COMPARISON, GENERAL
from compendium.experiments.problems import Digits, Source, Synthetic, images
from compendium.experiments.setting import Setting
from compendium.experiments.trials import TrialSpec, load, store

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
#: All policies of the registry: not each of them adds up what the radius of the theorem needs.
EVERYBODY = {"policies": GENERAL, "radius": {"kind": "ridge", "scale": 0.1}}
SPEC = {"experiment": "tests", "n_rounds": 30, "seed": 7, "trial": 0}


def make_spec(setting=(), problem=(), **changes):
    """The small trial with some of its fields changed."""
    chosen = SETTING | {"problem": SETTING["problem"] | dict(problem)} | dict(setting)
    return TrialSpec(setting=chosen, **SPEC | changes)


@pytest.fixture(scope="module")
def computed():
    """A trial with all policies of the registry, and its table; narrow budgets would play as OFUL does."""
    budgets = {"budgeted-eofd": {"budget": 100.0}, "dyadic-eofd": {"budget": 4.0}}
    spec = make_spec(EVERYBODY | {"parameters": budgets})
    return spec, spec.compute()


@pytest.fixture
def stored(computed, tmp_path):
    spec, frame = computed
    return spec, frame, store(spec, frame, tmp_path)


def assert_same(left, right):
    """Two tables are equal in every bit, with types, order and categories, and have the same attributes."""
    attributes = [{**frame.attrs, "seconds": None} for frame in (left, right)]  # except the measured time
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
    {"setting": {"coverage": True}},
    {"setting": {"guarded": True}},
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
    """Replace MNIST by ten digits of one shade, which the returned function changes."""

    def use(shade):
        monkeypatch.setattr(images, "MNIST", Source("MNIST", lambda: tiny_digits(shade), "absent"))

    use(1)
    return use


def test_everything_that_decides_the_numbers_is_in_the_address(digits):
    keys = [make_spec().key] + [make_spec(**changes).key for changes in DECISIVE]
    assert len(set(keys)) == len(keys)


def test_no_field_of_a_specification_was_forgotten():
    """Each field of the models is changed by one of the cases in `DECISIVE`."""
    tried = {name for changes in DECISIVE for name in changes if name not in ("setting", "problem")}
    assert set(TrialSpec.model_fields) == tried | {"setting"}
    in_setting = {name for changes in DECISIVE for name in changes.get("setting", {})}
    assert set(Setting.model_fields) == in_setting | {"name"}
    in_problem = {name for changes in DECISIVE for name in changes.get("problem", {})}
    assert set(Synthetic.model_fields) == in_problem | {"kind"}


def test_what_decides_nothing_is_not_in_the_address(monkeypatch):
    key = make_spec().key
    radius = {"scale": 0.01, "action_bound": 1.0, "confidence": 0.1, "kind": "theorem"}
    assert make_spec({"radius": radius}).key == key  # in another order, and with a default written out
    assert make_spec({"policies": list(COMPARISON)}).key == key
    for parameters in ({}, {"eofd": {}}, {"eofd": {"buffer": 1}, "random": {}}):
        assert make_spec({"parameters": parameters}).key == key
    assert make_spec({"coverage": False, "guarded": False}).key == key
    assert not {"parameters", "coverage", "guarded"} & set(make_spec().model_dump()["setting"])
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


def test_which_modules_are_in_the_address(monkeypatch):
    """That the library is always part of a digest is tested in `tests/runs/test_runs.py`."""
    asked = []
    monkeypatch.setattr(trials, "code_digest", lambda *arguments: asked.append(arguments) or "d")
    assert trials.library_digest.__wrapped__() == "d"
    names = ("action_sets", "failures", "peers", "policies", "region", "setting", "trials")
    modules = [f"experiments/{name}.py" for name in names]
    assert asked == [(["experiments/problems", *modules],)]


# Computing


def test_a_trial_is_computed_with_one_thread():
    inside = []

    def look(rounds):
        inside.append([pool["num_threads"] for pool in threadpool_info()])

    make_spec(n_rounds=1).compute()  # it loads libraries with thread pools of their own
    with threadpool_limits(limits=2):
        outside = [pool["num_threads"] for pool in threadpool_info()]
        make_spec(n_rounds=2).compute(look)
        after = [pool["num_threads"] for pool in threadpool_info()]
    assert 2 in outside
    assert inside == [[1] * len(outside)] * 2
    assert after == outside


def test_what_a_trial_holds(computed):
    _, frame = computed
    assert list(frame["round"]) == [t for t in range(1, 31) for _ in GENERAL]
    assert list(frame["policy"]) == list(GENERAL) * 30
    assert frame["n_actions"].between(10, 30).all()
    assert (frame.groupby("round")["n_actions"].nunique() == 1).all()
    assert (frame["action"] < frame["n_actions"]).all()
    assert frame["outcome"].isin([0, 1, 2]).all()
    assert list(frame["reward"]) == [(0.0, 0.5, 1.0)[y] for y in frame["outcome"]]
    assert (frame["regret"] >= 0).all()
    assert frame["regret"].max() > 0
    assert (frame[["select_seconds", "update_seconds"]] > 0).all().all()


def test_policies_play_what_their_names_say(computed):
    """The implementations of an algorithm play the same actions, and all other policies different ones."""
    _, frame = computed
    played = {name: tuple(part["action"]) for name, part in frame.groupby("policy", observed=True)}
    assert played["eofd"] == played["eofd-printed"]
    assert played["eofd"] == played["eofd-compiled"]
    assert played["oful"] == played["oful-printed"] == played["oful-cholesky"] == played["oful-compiled"]
    assert len(set(played.values())) == len(GENERAL) - 5


def test_policies_are_built_from_the_setting():
    """The implementations that are not checked here play the same actions as these, by the test above."""
    environment = Synthetic(**SETTING["problem"]).environment()
    setting = Setting(**SETTING | EVERYBODY)
    built = setting.build(environment, lambda _: np.random.default_rng(0))
    assert tuple(built) == GENERAL
    for name in ("eofd", "oful", "first-order", "greedy"):
        state = built[name].state_dict()
        numbers = state["curvature.regularization"], state["step_size"], state["norm_bound"]
        assert numbers == (0.5, 1.0, 2.0)
        assert state.get("curvature.sketch_size") == (4 if name in ("eofd", "greedy") else None)
        expected = {"kind": "constant", "beta": 0.0} if name == "greedy" else setting.radius
        assert json.loads(state["radius"]) == expected


def test_a_policy_plays_the_same_alone_and_beside_others(computed):
    _, frame = computed
    for name in ("random", "oful"):
        alone = make_spec(EVERYBODY | {"policies": (name,)}).compute()
        beside = frame[frame["policy"] == name].reset_index(drop=True)
        columns = ["round", "n_actions", "action", "outcome", "reward", "regret", "margin"]
        pd.testing.assert_frame_equal(alone[columns], beside[columns], check_exact=True)


def test_large_action_sets_fit_the_types_of_the_table():
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


def test_a_trial_that_is_not_stored_causes_no_warning(tmp_path, caplog):
    assert load(make_spec(), tmp_path / "missing") is None
    assert not caplog.records


def rewrite(path, rows=None, **metadata):
    table = pq.read_table(path)[:rows] if rows else pq.read_table(path)
    changed = {name.encode(): value for name, value in metadata.items()}
    pq.write_table(table.replace_schema_metadata(table.schema.metadata | changed), path)


def store_other_trial(path):
    other = make_spec(EVERYBODY, trial=1)
    store(other, other.compute(), path.parent).replace(path)


def store_other_sources(path):
    identity = json.loads(pq.read_schema(path).metadata[b"identity"])
    rewrite(path, identity=json.dumps(identity | {"sources": "0" * 64}))


def store_other_content(path, change):
    """Write a valid file with the right identity, whose content is not what was stored."""
    table = pq.read_table(path)
    changed = pa.Table.from_pandas(change(table.to_pandas()), preserve_index=False)
    pq.write_table(changed.replace_schema_metadata(table.schema.metadata), path)


#: What may have happened to the file of a trial.
DAMAGES = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "of another trial": store_other_trial,
    "halved": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_text("not a table"),
    "another table": lambda path: pd.DataFrame({"round": [1], "policy": ["eofd"]}).to_parquet(path),
    "identity is no object": lambda path: rewrite(path, identity="[]"),
    "identity is no JSON": lambda path: rewrite(path, identity="{"),
    "final is no JSON": lambda path: rewrite(path, final="{"),
    "final is changed": lambda path: rewrite(path, final="{}"),
    "of other sources": store_other_sources,
    "fewer rows": lambda path: rewrite(path, rows=-1),
    "a number is changed": lambda path: store_other_content(path, lambda frame: frame.assign(regret=0.25)),
    "a column is renamed": lambda path: store_other_content(
        path, lambda frame: frame.rename(columns={"reward": "rewards"})
    ),
}


@pytest.mark.parametrize(
    "damage",
    [*list(DAMAGES)[:1], *(pytest.param(name, marks=pytest.mark.slow) for name in list(DAMAGES)[1:])],
)
def test_a_trial_with_a_damaged_file_is_computed_again(stored, damage, caplog):
    spec, frame, path = stored
    DAMAGES[damage](path)
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


def test_a_file_with_a_flipped_bit_is_not_used(stored, caplog):
    """A bit in the data of each column is flipped; without checksums, most of these would not be found."""
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
            if loaded is not None:  # the bit was one of a page's header without meaning
                assert_same(frame, loaded)
    assert len(caplog.records) >= 2 * group.num_columns


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=["full", "interrupt"])
@pytest.mark.parametrize("there", [False, True], ids=["new", "over"])
def test_an_interrupted_write_leaves_no_file(computed, tmp_path, monkeypatch, error, there):
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
    assert written[0].parent == tmp_path  # so that it can be renamed
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
def test_names_of_policies_are_validated(policies):
    with pytest.raises(ValidationError, match="policies must be distinct names out of") as caught:
        make_spec({"policies": policies})
    assert all(name in str(caught.value) for name in GENERAL)


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
            r"one of \['constant', 'log-det', 'observed', 'repaired', 'ridge', 'theorem'\], got 'box'",
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
        (
            {"setting": {"coverage": True, "problem": {"kind": "mnist"}}},
            "coverage must be false unless the problem is synthetic, got Digits",
        ),
    ],
)
def test_values_of_a_specification_are_validated(changes, message):
    with pytest.raises(ValidationError, match=message):
        make_spec(**changes)


def test_a_changed_copy_is_validated_where_it_is_used():
    """`model_copy(update=...)`, which the notebooks use, validates nothing itself."""
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


def test_specifications_cannot_be_changed():
    spec = make_spec()
    with pytest.raises(ValidationError, match="frozen"):
        spec.trial = 1
    with pytest.raises(ValidationError, match="frozen"):
        spec.setting.sketch_size = 1
