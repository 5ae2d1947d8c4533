"""Journals: what a batch leaves while it runs, when it is stopped, and when it is complete."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from compendium import cli
from compendium.experiments import journal
from compendium.runs import cleaning
from compendium.runs import run as runs
from compendium.system import paths


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    (tmp_path / "experiments.yml").touch()
    monkeypatch.setenv("MLOGB_ROOT", str(tmp_path))
    monkeypatch.delenv(journal.VARIABLE, raising=False)
    return tmp_path


def stop(run="smoke-1", keys=(), plan_only=False):
    """A batch that is stopped after it has said which trials it needs."""

    def batch():
        with (
            journal.kept("tiny", "smoke", run, plan_only) as variables,
            pytest.MonkeyPatch.context() as patch,
        ):
            patch.setenv(journal.VARIABLE, variables[journal.VARIABLE])
            journal.note(keys)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        batch()


def kill(whose, run="smoke-1", keys=()):
    """What a batch leaves that could not say that it ends."""
    path = journal.path_of("tiny", run, whose)
    entry = {"experiment": "tiny", "profile": "smoke", "run": run, "owner": whose, "started": "2026",
             "trials": list(keys), "ended": False}  # fmt: skip
    paths.write_atomically(path, json.dumps(entry))
    return path


def dead_pid():
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_while_a_batch_runs(root, monkeypatch):
    with journal.kept("tiny", "smoke", "smoke-1") as variables:
        monkeypatch.setenv(journal.VARIABLE, variables[journal.VARIABLE])
        journal.note(["a", "b"])
        journal.note(["b", "c"])
        paths.write_atomically(paths.trials_folder() / "b.parquet", "")
        [state] = journal.states()
        assert (state.experiment, state.profile, state.run) == ("tiny", "smoke", "smoke-1")
        assert (state.running, state.trials, state.done) == (True, {"a", "b", "c"}, 1)
    assert journal.states() == []
    assert list(journal.folder().iterdir()) == []
    journal.note(["d"])  # the kernel of a batch that is gone
    assert list(journal.folder().iterdir()) == []


def test_without_a_batch_nothing_is_noted(root):
    journal.note(["a"])
    assert not journal.folder().exists()


def test_a_stopped_batch_is_known_to_be_stopped(root):
    """This process still lives, and the batch does not: it said so."""
    stop(keys=["a"])
    [state] = journal.states()
    assert (state.running, state.trials) == (False, {"a"})


def test_the_next_batch_of_the_run_needs_the_same_trials_from_the_start(root):
    stop(keys=["a"])
    stop(run="smoke-2", keys=["z"])
    with journal.kept("tiny", "smoke", "smoke-1"):
        states = {state.run: state for state in journal.states()}
        assert states["smoke-1"].trials == {"a"}
        assert (states["smoke-1"].running, len(journal.states())) == (True, 2)
    assert [state.run for state in journal.states()] == ["smoke-2"]


def test_a_plan_leaves_the_stopped_batch_as_it_is(root):
    path = kill(f"{journal.owner().split('-')[0]}-{dead_pid()}", keys=["a"])
    before = path.read_bytes()
    stop(plan_only=True)
    assert [other.read_bytes() for other in journal.folder().iterdir()] == [before]


def test_a_killed_batch(root):
    """Whose process holds no lock has ended, whatever process has its number now."""
    machine = journal.owner().split("-")[0]
    kill(f"{machine}-{dead_pid()}")
    kill(f"{machine}-{os.getppid()}", run="smoke-2")
    with journal.held(kill(f"{machine}-{os.getpid()}", run="smoke-3")):
        assert {state.run: (state.running, state.ended) for state in journal.states()} == {
            "smoke-1": (False, True), "smoke-2": (False, True), "smoke-3": (True, False),
        }  # fmt: skip


def test_a_batch_of_another_machine(root):
    """Nothing is known of its process but the signs that it gives; it may live without them."""
    path = kill(f"00000000-{dead_pid()}")
    assert journal.states()[0].running
    os.utime(path, (time.time() - 2 * journal.STALE,) * 2)
    assert (journal.states()[0].running, journal.states()[0].ended) == (False, False)
    with journal.held(path):  # its file system passes locks on
        assert journal.states()[0].running


def test_a_batch_gives_signs_of_life(root, monkeypatch):
    monkeypatch.setattr(journal, "_BEAT", 0.01)
    with journal.kept("tiny", "smoke", "smoke-1") as variables:
        path = journal.path_of("tiny", "smoke-1", journal.owner())
        assert variables == {journal.VARIABLE: str(path)}
        os.utime(path, (0, 0))
        deadline = time.monotonic() + 60
        while path.stat().st_mtime == 0:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_shards_that_ended_go_when_the_run_is_complete(root):
    machine = journal.owner().split("-")[0]
    running = kill("00000000-1")
    kill(f"{machine}-{dead_pid()}")
    other = kill(f"{machine}-{dead_pid()}", run="smoke-2")
    with journal.kept("tiny", "smoke", "smoke-1"):
        pass
    assert {state.path for state in journal.states()} == {running, other}


@pytest.mark.parametrize("content", ["", "{", "[]", "3", "{}", '{"trials": 3}'])
def test_a_damaged_journal_hides_no_other(root, content):
    stop()
    bad = journal.folder() / "bad.json"
    bad.write_text(content)
    assert len(journal.states()) == 1
    assert journal.unreadable() == [bad]


SUSPENDED = """
import os, sys, time
from compendium.experiments import journal
from compendium.runs import cleaning, run as runs
from compendium.system import paths
with journal.kept("tiny", "smoke", "smoke-1"):
    partial = paths.runs_folder() / "tiny" / f".partial-smoke-1-{journal.owner()}"
    partial.mkdir(parents=True)
    print("begun", flush=True)
    sys.stdin.read()
    assert partial.is_dir()
"""


def test_a_suspended_batch_is_not_taken_for_dead(root):
    """Ctrl-Z or a closed lid: no sign of life for an hour, and then it goes on."""
    batch = subprocess.Popen(
        [sys.executable, "-c", SUSPENDED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert batch.stdout.readline() == "begun\n"
    os.kill(batch.pid, signal.SIGSTOP)
    try:
        [path] = journal.folder().glob("*.json")
        os.utime(path, (time.time() - 3600,) * 2)
        unfinished = root / "papermill_runs" / ".trials" / ".a.tmp"
        paths.write_atomically(unfinished, "half of a trial")
        os.utime(unfinished, (time.time() - 3600,) * 2)
        assert journal.states()[0].running
        assert cleaning.leftovers() == []
        runs.sweep(root / "papermill_runs" / "tiny")
    finally:
        os.kill(batch.pid, signal.SIGCONT)
    batch.communicate("")
    assert batch.returncode == 0
    assert journal.states() == []
    assert list(journal.folder().iterdir()) == []
    assert {item.path for item in cleaning.leftovers()} == {
        unfinished, *(root / "papermill_runs" / "tiny").glob(".partial-*")
    }  # fmt: skip


def test_a_batch_that_failed_before_it_had_a_trial_leaves_no_journal(root):
    with pytest.raises(paths.FailureError), journal.kept("tiny", "smoke", "smoke-1"):
        raise paths.FailureError
    assert list(journal.folder().iterdir()) == []


def test_where_there_are_no_locks_nothing_has_ended_for_certain(root, monkeypatch):
    path = kill(f"{journal.owner().split('-')[0]}-{dead_pid()}")
    journal.lock_of(path).touch()
    assert journal.is_alive(journal.owner(), path) is False
    monkeypatch.setattr(journal, "fcntl", None)
    assert journal.is_alive(journal.owner(), path) is None


def test_status_says_with_what_a_batch_failed(tmp_path, monkeypatch, capsys):
    (tmp_path / "experiments.yml").write_text("experiments: {}\n")
    monkeypatch.setenv("MLOGB_ROOT", str(tmp_path))

    def fails():
        with journal.kept("tiny", "custom", "custom-1", parameters={}) as variables:
            monkeypatch.setenv(journal.VARIABLE, variables[journal.VARIABLE])
            journal.note(["a"])
            raise paths.FailureError("cell 3:\n  no regret")

    with pytest.raises(paths.FailureError):
        fails()
    with pytest.raises(SystemExit):
        cli.main(["status"])
    assert capsys.readouterr().out.endswith("tries again from there: cell 3: no regret\n")
