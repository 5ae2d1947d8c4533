"""Journals: their content while a batch runs, after it was stopped, and when the run is complete."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from compendium import cli
from compendium.experiments import journal
from compendium.runs import cleaning
from compendium.runs import run as runs
from compendium.system import locks, paths

MACHINE = locks.owner().split("-")[0]


@pytest.fixture(autouse=True)
def root(tmp_path, tmp_path_factory, monkeypatch):
    (tmp_path / "experiments.yml").touch()
    monkeypatch.setenv("MLOGB_ROOT", str(tmp_path))
    # What killed processes have left in the machine's own folder would count as unneeded.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
    return tmp_path


def stop(run="smoke-1", keys=(), error=KeyboardInterrupt, caught=KeyboardInterrupt, **options):
    """Make a batch that ends with an error after it has said which trials it needs."""

    def batch():
        with journal.kept("tiny", "smoke", run, **options) as note:
            note(keys)
            raise error()

    with pytest.raises(caught):
        batch()


def leave_lock(whose, run="smoke-1"):
    """Make the lock file that a killed process leaves beside the journal."""
    lock = journal.lock_of(journal.path_of("tiny", run), whose)
    lock.touch()
    return lock


def left():
    return sorted(path.name for path in journal.folder().iterdir())


def test_while_a_batch_runs():
    with journal.kept("tiny", "smoke", "smoke-1", {"n_rounds": 3}) as note:
        note(["a", "b"])
        note(["b", "c"])
        stored = paths.trials_folder() / "b.parquet"
        paths.write_atomically(stored, "")
        [batch] = journal.batches()
        assert (batch.experiment, batch.profile, batch.run) == ("tiny", "smoke", "smoke-1")
        assert (batch.trials, batch.stored(), batch.parameters) == (
            {"a", "b", "c"},
            [stored],
            {"n_rounds": 3},
        )
        assert (batch.running, batch.unknown, batch.ended) == (1, 0, False)
    assert journal.batches() == []
    assert left() == []


def test_the_next_batch_continues_a_stopped_one():
    """The batch has ended although its process lives. The next one needs the same trials from the start."""
    stop(keys=["a"])
    stop("smoke-2", keys=["z"])
    assert [(batch.trials, batch.ended) for batch in journal.batches()] == [({"a"}, True), ({"z"}, True)]
    first = journal.batches()[0]
    with journal.kept("tiny", "smoke", "smoke-1"):
        assert journal.batches()[0] == first._replace(running=1)
    assert left() == ["tiny-smoke-2.json"]


def test_several_batches_of_a_run_share_its_journal():
    with journal.kept("tiny", "smoke", "smoke-1") as note:
        note(["a"])
        other = journal.lock_of(journal.path_of("tiny", "smoke-1"), f"{MACHINE}-1")
        with locks.held(other):
            assert [(batch.running, batch.unknown) for batch in journal.batches()] == [(2, 0)]
        journal.path_of("tiny", "smoke-1").unlink()  # as the other batch does when it completes the run
        note(["b"])
        assert [batch.trials for batch in journal.batches()] == [{"b"}]
    assert left() == []


def test_a_plan_leaves_the_journal_as_it_is():
    stop(plan_only=True)
    assert left() == []
    stop(keys=["a"])
    before = journal.batches()
    stop(keys=["b"], plan_only=True)
    assert journal.batches() == before


def test_a_batch_that_failed_before_it_had_a_trial_leaves_no_journal():
    stop(error=paths.FailureError, caught=paths.FailureError)
    assert left() == []
    stop(error=paths.FailureError, caught=paths.FailureError, keys=["a"])
    assert left() == ["tiny-smoke-1.json"]


def test_a_killed_batch():
    """It has ended if no process holds its lock, even if another process has its number now."""
    stop(keys=["a"])
    leave_lock(f"{MACHINE}-{os.getppid()}")
    assert [(batch.running, batch.ended) for batch in journal.batches()] == [(0, True)]


def test_a_batch_of_another_machine():
    """It may live although its lock is free, because some file systems do not pass locks on."""
    stop(keys=["a"])
    lock = leave_lock("00000000-1")
    os.utime(lock, (0, 0))
    assert [(batch.running, batch.unknown, batch.ended) for batch in journal.batches()] == [(0, 1, False)]
    with locks.held(lock):
        assert [(batch.running, batch.unknown, batch.ended) for batch in journal.batches()] == [(1, 0, False)]
    assert journal.batches()[0].ended


def test_without_locks_it_is_not_known_whether_a_batch_has_ended(monkeypatch):
    monkeypatch.setattr(locks, "fcntl", None)
    with journal.kept("tiny", "smoke", "smoke-1"):
        assert [(batch.running, batch.unknown) for batch in journal.batches()] == [(0, 1)]
    assert left() == []


@pytest.mark.parametrize("content", ["", "{", "[]", "3", "{}", '{"trials": 3}', '{"trials": []}'])
def test_a_damaged_journal_hides_no_other(content):
    stop()
    (journal.folder() / "bad.json").write_text(content)
    assert [batch.run for batch in journal.batches()] == ["smoke-1"]
    journal.path_of("tiny", "smoke-2").write_text(content)
    stop("smoke-2", keys=["a"])  # it replaces the damaged journal
    assert json.loads(journal.path_of("tiny", "smoke-2").read_text())["trials"] == ["a"]


SUSPENDED = """
import sys
from compendium.experiments import journal
from compendium.system import locks, paths
with journal.kept("tiny", "smoke", "smoke-1") as note:
    note(["a"])
    partial = paths.runs_folder() / "tiny" / f".partial-smoke-1-{locks.owner()}"
    partial.mkdir(parents=True)
    print("begun", flush=True)
    sys.stdin.read()
    assert partial.is_dir()
"""


def test_a_suspended_batch_is_not_taken_for_dead(root):
    """A batch that was stopped with Ctrl-Z, or whose computer slept, does nothing for an hour."""
    batch = subprocess.Popen(
        [sys.executable, "-c", SUSPENDED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert batch.stdout.readline() == "begun\n"
    os.kill(batch.pid, signal.SIGSTOP)
    try:
        trial, unfinished = (paths.trials_folder() / name for name in ("a.parquet", ".b.tmp"))
        paths.write_atomically(trial, "a trial that the batch needs")
        paths.write_atomically(unfinished, "half of a trial")
        hour_ago = time.time() - 3600
        for path in (trial, unfinished, *journal.folder().iterdir()):
            os.utime(path, (hour_ago, hour_ago))
        assert [(batch.running, batch.ended) for batch in journal.batches()] == [(1, False)]
        assert cleaning.unneeded() == {}
        runs.sweep(root / "papermill_runs" / "tiny")
    finally:
        os.kill(batch.pid, signal.SIGCONT)
    batch.communicate("")
    assert batch.returncode == 0
    assert journal.batches() == []
    assert left() == []
    partial = root / "papermill_runs" / "tiny"
    assert set(cleaning.unneeded()) == {trial, unfinished, *partial.glob(".partial-*")}


def test_status_says_with_what_a_batch_failed(root, capsys):
    (root / "experiments.yml").write_text("experiments: {}\n")
    stop(keys=["a"], error=lambda: paths.FailureError("cell 3:\n  no regret"), caught=paths.FailureError)
    with pytest.raises(SystemExit):
        cli.main(["status"])
    assert capsys.readouterr().out.endswith("tries again from there: cell 3: no regret\n")
    with journal.kept("tiny", "smoke", "smoke-1"):
        assert journal.batches()[0].error is None


def test_an_error_is_noted_while_no_other_batch_of_the_run_writes(root, monkeypatch):
    """Otherwise the trials would be lost that another batch notes in between."""

    def locked(function):
        def checked(*arguments):
            with (root / "papermill_runs" / ".lock").open() as file, pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return function(*arguments)

        return checked

    monkeypatch.setattr(paths, "write_atomically", locked(paths.write_atomically))
    monkeypatch.setattr(journal, "_read", locked(journal._read))
    stop(keys=["a"], error=lambda: paths.FailureError("no regret"), caught=paths.FailureError)
    assert json.loads(journal.path_of("tiny", "smoke-1").read_text())["error"] == "no regret"
