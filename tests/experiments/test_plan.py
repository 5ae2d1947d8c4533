"""The plan of a study: counts, times, memory; it changes no result and trips over no file."""

from __future__ import annotations

import pandas as pd
import pytest

from compendium.experiments import plan, progress, trials
from compendium.experiments.problems import Synthetic
from compendium.experiments.study import Setting, Study

SETTING = Setting(
    name="one", problem=Synthetic(dimension=4, rewards=(1.0,), parameter_norm=2.0), sketch_size=2,
    regularization=0.5, step_size=1.0, norm_bound=2.0, radius={"kind": "constant", "beta": 0.1},
    policies=("eofd", "random"),
)  # fmt: skip
STUDY = Study(experiment="tests", settings=[SETTING], n_rounds=60, n_trials=3, seed=2)
SPECS = STUDY.specs()


@pytest.fixture
def told(tmp_path, monkeypatch):
    """Make a plan with somebody who watches; returns what is said."""

    def tell(*arguments, **options):
        for path in tmp_path.glob("said-*"):
            path.unlink()
        plan.announce(*arguments, **options)
        return "\n".join(path.read_text() for path in tmp_path.glob("said-*"))

    monkeypatch.setenv(progress.VARIABLE, str(tmp_path))
    return tell


def store(spec, folder, seconds):
    """A stored trial that took so long."""
    frame = spec.compute()
    frame["select_seconds"] = seconds / len(frame)
    frame["update_seconds"] = 0.0
    return trials.store(spec, frame, folder)


def test_nobody_watches(tmp_path, monkeypatch):
    monkeypatch.delenv(progress.VARIABLE, raising=False)
    monkeypatch.setattr(plan, "_probed", lambda _: pytest.fail("time spent for nobody"))
    plan.announce(SPECS, 0, SPECS, tmp_path, 1)


def test_what_is_said(told, tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "_probed", lambda _: 600.0)
    monkeypatch.setattr(plan, "megabytes", lambda _: 1234.5)
    assert told(SPECS, 0, SPECS, tmp_path, 2) == (
        "tests: 3 trials, 0 stored\n  3 to compute: at least 15 min with 2 workers, about 1,234 MB each"
    )
    assert "1 to compute: at least 10 min with 1 worker," in told(SPECS, 2, SPECS[:1], tmp_path, 8)
    cluster = "3 to compute: at least 30 min divided by the workers of the cluster"
    assert cluster in told(SPECS, 0, SPECS, tmp_path, 1, remote=True)
    assert told(SPECS, 3, [], tmp_path, 2) == "tests: 3 trials, 3 stored"


def test_stored_trials_give_the_time(told, tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "_probed", lambda _: pytest.fail("a trial is stored"))
    folder = tmp_path / "trials"
    store(SPECS[0], folder, 50.0)
    assert "at least 100 s" in told(SPECS, 1, SPECS[1:], folder, 1) or "at least 2 min" in told(
        SPECS, 1, SPECS[1:], folder, 1
    )


@pytest.mark.parametrize("content", [b"", b"PAR1", None])
def test_a_bad_file_gives_no_time(told, tmp_path, monkeypatch, content):
    monkeypatch.setattr(plan, "_probed", lambda _: 60.0)
    folder = tmp_path / "trials"
    path = store(SPECS[0], folder, 1e6)
    path.write_bytes(path.read_bytes()[:-20] if content is None else content)
    assert "at least 2 min" in told(SPECS, 1, SPECS[1:], folder, 1)
    store(SPECS[1], folder, 3000.0)  # one that can be read is found behind it
    assert "at least 50 min" in told(SPECS, 2, SPECS[2:], folder, 1)


def test_settings_have_their_own_time(told, tmp_path, monkeypatch):
    two = STUDY.model_copy(update={"settings": (SETTING, SETTING.model_copy(update={"name": "two"}))})
    monkeypatch.setattr(plan, "_probed", lambda spec: {"one": 60.0, "two": 600.0}[spec.setting.name])
    assert "at least 33 min" in told(two.specs(), 0, two.specs(), tmp_path, 1)


def test_a_probe_plays_few_rounds_and_changes_nothing(monkeypatch):
    played, plain = [], SPECS[0].compute()
    compute = trials.TrialSpec.compute

    def count(spec, note):
        return compute(spec, lambda rounds: (played.append(rounds), note(rounds)))

    with monkeypatch.context() as patch:
        patch.setattr(trials.TrialSpec, "compute", count)
        assert plan._probed(SPECS[0].model_copy(update={"n_rounds": 100_000})) > 0
    assert max(played) <= plan._PROBE_ROUNDS + 1
    columns = [name for name in plain.columns if name not in trials.TIMES]
    pd.testing.assert_frame_equal(SPECS[0].compute()[columns], plain[columns], check_exact=True)


def test_the_first_round_does_not_count(monkeypatch):
    """It compiles and loads: ten seconds for it, then a tenth of a second for each of 60."""
    now = [0.0]
    monkeypatch.setattr(plan.time, "perf_counter", lambda: now[0])

    def play(_, note):
        for rounds in range(1, 61):
            now[0] += 10.0 if rounds == 1 else 0.1
            note(rounds)

    monkeypatch.setattr(trials.TrialSpec, "compute", play)
    assert plan._probed(SPECS[0]) == pytest.approx(6.0)


def test_a_trial_that_fails_is_no_trouble_of_the_plan(monkeypatch):
    monkeypatch.setattr(trials.TrialSpec, "compute", lambda *_: 1 / 0)
    assert plan._probed(SPECS[0]) == 0.0


def test_memory_grows_with_the_matrices():
    def need(policies, dimension, **changes):
        problem = SETTING.problem.model_copy(update={"dimension": dimension})
        return plan.megabytes(SETTING.model_copy(update={"problem": problem, "policies": policies} | changes))

    base = need(("random",), 1000)
    assert need(("oful",), 1000) - base == pytest.approx(8.0)  # 1000 x 1000 numbers of 8 bytes
    assert need(("oful",), 2000) - base == pytest.approx(32.0)
    assert 0 < need(("eofd",), 1000, sketch_size=100) - base < 1
    assert need(("eofd-printed",), 1000) > need(("eofd",), 1000)
