"""The plan of a study: numbers of trials, time and memory."""

from __future__ import annotations

import pandas as pd
import pytest
from batch_project import SMALL_STUDY

from compendium.experiments import plan, trials

STUDY = SMALL_STUDY.model_copy(update={"n_rounds": 60, "n_trials": 3})
[SETTING] = STUDY.settings
SPECS = {spec.key: spec for spec in STUDY.specs()}


def taking(seconds):
    """The table of a trial that took so many seconds."""
    return pd.DataFrame({"select_seconds": [seconds / 4] * 2, "update_seconds": [seconds / 4] * 2})


def describe(n_stored, jobs, seconds=100.0, specs=SPECS):
    """The plan when the first `n_stored` trials are stored, each of which took `seconds`."""
    keys = list(specs)
    stored = {key: taking(seconds) for key in keys[:n_stored]}
    return plan.describe(specs, stored, {key: specs[key] for key in keys[n_stored:]}, jobs)


def test_the_text_of_a_plan(monkeypatch):
    monkeypatch.setattr(plan, "_probed", lambda _: 600.0)
    monkeypatch.setattr(plan, "megabytes", lambda _: 1234.5)
    assert describe(0, 2) == (
        "tests: 3 trials, 0 stored\n  3 to compute: at least 15 min with 2 workers, about 1,234 MB each"
    )
    assert "3 to compute: at least 30 min divided by the workers of the cluster" in describe(0, None)
    assert describe(3, 2) == "tests: 3 trials, 3 stored"


def test_stored_trials_give_the_time(monkeypatch):
    monkeypatch.setattr(plan, "_probed", lambda _: pytest.fail("a trial is stored"))
    assert "2 to compute: at least 50 min with 1 worker," in describe(1, 1, seconds=1500.0)
    assert "1 to compute: at least 25 min with 1 worker," in describe(2, 8, seconds=1500.0)


def test_settings_have_their_own_time(monkeypatch):
    two = STUDY.model_copy(update={"settings": (SETTING, SETTING.model_copy(update={"name": "two"}))})
    specs = {spec.key: spec for spec in two.specs()}
    monkeypatch.setattr(plan, "_probed", lambda spec: {"one": 60.0, "two": 600.0}[spec.setting.name])
    assert "at least 33 min" in describe(0, 1, specs=specs)
    assert "at least 80 min" in describe(1, 1, seconds=1500.0, specs=specs)


def test_a_probe_plays_few_rounds_and_changes_nothing(monkeypatch):
    spec = next(iter(SPECS.values()))
    played, plain = [], spec.compute()
    compute = trials.TrialSpec.compute

    def count(spec, note):
        return compute(spec, lambda rounds: (played.append(rounds), note(rounds)))

    with monkeypatch.context() as patch:
        patch.setattr(trials.TrialSpec, "compute", count)
        assert plan._probed(spec.model_copy(update={"n_rounds": 100_000})) > 0
    assert max(played) <= plan._PROBE_ROUNDS + 1
    columns = [name for name in plain.columns if name not in trials.TIMES]
    pd.testing.assert_frame_equal(spec.compute()[columns], plain[columns], check_exact=True)


def test_the_first_round_does_not_count(monkeypatch):
    """The first of 60 rounds takes ten seconds, since it compiles; the others take a tenth of a second."""
    now = [0.0]
    monkeypatch.setattr(plan.time, "perf_counter", lambda: now[0])

    def play(_, note):
        for rounds in range(1, 61):
            now[0] += 10.0 if rounds == 1 else 0.1
            note(rounds)

    monkeypatch.setattr(trials.TrialSpec, "compute", play)
    assert plan._probed(next(iter(SPECS.values()))) == pytest.approx(6.0)


def test_a_plan_ignores_a_trial_that_fails(monkeypatch):
    monkeypatch.setattr(trials.TrialSpec, "compute", lambda *_: 1 / 0)
    assert plan._probed(next(iter(SPECS.values()))) == 0.0


def test_memory_grows_with_the_matrices():
    def need(policies, dimension, **changes):
        problem = SETTING.problem.model_copy(update={"dimension": dimension})
        return plan.megabytes(SETTING.model_copy(update={"problem": problem, "policies": policies} | changes))

    base = need(("random",), 1000)
    assert need(("oful",), 1000) - base == pytest.approx(8.0)  # 1000 x 1000 numbers of 8 bytes
    assert need(("oful",), 2000) - base == pytest.approx(32.0)
    assert 0 < need(("eofd",), 1000, sketch_size=100) - base < 1
    assert need(("eofd-printed",), 1000) > need(("eofd",), 1000)
