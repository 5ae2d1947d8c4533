"""Cleaning: what nothing refers to is removed, and nothing else is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from compendium.experiments import journal
from compendium.runs import cleaning
from compendium.runs import run as runs
from compendium.system import kernels, locks, paths

#: Names of processes: one of this machine that was killed, one that works, and one of another machine.
KILLED, WORKING = (f"{locks.owner().split('-')[0]}-{number}" for number in (4711, 4712))
FAR = "00000000-4713"


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    (tmp_path / "experiments.yml").touch()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("MLOGB_ROOT", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)  # so that TMPDIR is read again
    return tmp_path


def put(name, content="x", old=False):
    path = paths.project_root() / name
    paths.write_atomically(path, content)
    if old:
        os.utime(path, (time.time() - 2 * cleaning.OLD,) * 2)
    return path


def put_trial(key):
    return put(f"papermill_runs/.trials/{key}.parquet")


def put_run(*keys, name="smoke-00000001"):
    record = {key: kind() for key, kind in runs.RECORD_ENTRIES.items()} | {
        "experiment": "tiny", "notebook": "n.md", "started": "2026", "study": {"studies": [{"trials": keys}]},
    }  # fmt: skip
    return put(f"papermill_runs/tiny/{name}/record.json", json.dumps(record))


def put_journal(*keys, number=1, parameters=None, experiment="tiny"):
    run = f"smoke-0000000{number}"
    entry = {"experiment": experiment, "parameters": parameters, "profile": "smoke", "run": run,
             "started": "2026", "trials": keys}  # fmt: skip
    return put(f"papermill_runs/.batches/{experiment}-{run}.json", json.dumps(entry))


def put_lock(whose, number=1, old=True):
    lock = journal.lock_of(journal.path_of("tiny", f"smoke-0000000{number}"), whose)
    return put(lock.relative_to(paths.project_root()), old=old)


def clean():
    found = cleaning.unneeded()
    cleaning.remove(found)
    assert cleaning.unneeded() == {}
    return set(found)


def test_in_an_empty_project_nothing_is_removed():
    assert clean() == set()


def test_trials_that_nothing_needs_are_removed():
    keys = ("of-a-run", "of-a-batch", "of-a-killed-batch", "of-another-machine", "of-nothing")
    *needed, spare = [put_trial(key) for key in keys]
    put_run("of-a-run")
    for number, (key, whose) in enumerate(zip(keys[1:4], (WORKING, KILLED, FAR), strict=True), 2):
        put_journal(key, number=number)
        put_lock(whose, number, old=False)
    with locks.held(put_lock(WORKING, 2)):
        assert cleaning.unneeded() == {spare: 1}
        assert spare.exists()  # finding is not removing
        assert clean() == {spare}
    assert all(path.exists() for path in needed)


def test_a_trial_of_a_batch_that_starts_meanwhile_stays(monkeypatch):
    read = journal.batches

    def batches():
        found = read()
        put_journal("of-a-new-batch")
        put_trial("of-a-new-batch")
        return found

    monkeypatch.setattr(journal, "batches", batches)
    assert cleaning.unneeded() == {}


@pytest.mark.parametrize(
    "name",
    [
        "papermill_runs/.trials/.0123456789abcdef01234567.4711.89abcdef.tmp",
        "papermill_runs/tiny/smoke-00000001/.study.json.12.tmp",
        "figures/.regret.png.12.tmp",
        "figures/local/.regret.json.12.tmp",
    ],
)
def test_files_that_were_never_completed(name):
    """They are removed if they are old, since a process may still be writing a young one."""
    put(name)
    assert clean() == set()
    path = put(name, old=True)
    with locks.held(put_lock(WORKING)):  # it may have been suspended while it wrote the file
        assert clean() == set()
    lock = put_lock(FAR)
    assert clean() == set()
    lock.unlink()
    assert clean() == {path}


def test_folders_of_ended_attempts_are_removed():
    folders = [f"papermill_runs/tiny/.partial-smoke-00000001-{whose}" for whose in (WORKING, FAR, KILLED)]
    *kept, gone = [put(f"{name}/tiny.ipynb", "four").parent for name in folders]
    put_lock(KILLED, old=False)
    put_lock(FAR)
    with locks.held(put_lock(WORKING)):
        assert cleaning.unneeded() == {gone: 4}
        assert clean() == {gone}
    assert sorted((paths.runs_folder() / "tiny").iterdir()) == sorted(kept)


def test_the_only_copy_of_a_run_stays():
    """A batch was killed after it had set the old run aside, and before the new one was in its place."""
    aside = put(f"papermill_runs/tiny/.partial-smoke-00000001-{KILLED}-old/record.json").parent
    assert clean() == set()
    put_run()
    assert clean() == {aside}


def test_journals_and_locks_that_nothing_needs_are_removed():
    put_run()
    put_run(name="smoke-00000002")
    complete = put_journal("a")
    put_journal("a", number=2)
    put_journal("a", number=3)
    killed = put_lock(KILLED, 3)
    put_lock(KILLED, 4, old=False)
    damaged = put("papermill_runs/.batches/bad.json", "{", old=True)
    put("papermill_runs/.batches/young.json", "{")
    put("papermill_runs/.batches/tiny-smoke-00000005.json", "{", old=True)
    with locks.held(put_lock(WORKING, 2)), locks.held(put_lock(WORKING, 5)):
        assert clean() == {complete, killed, damaged}


def test_batches_that_can_never_be_finished(root):
    """One was stopped before its study, and the parameters of another are refused now.

    A batch of an experiment that is not in the manifest stays, since it may be one of another branch.
    """
    (root / "experiments.yml").write_text(
        "limits: {n_rounds: {minimum: 1}}\n"
        "experiments: {tiny: {title: t, notebook: n, profiles: {smoke: {}}}}\n"
    )
    empty = put_journal()
    refused = put_journal("a", number=2, parameters={"n_rounds": 0})
    trials = [put_trial("a"), put_trial("b"), put_trial("c")]
    put_journal("b", number=3, parameters={"n_rounds": 1})
    put_journal("c", number=4, parameters={"n_rounds": 0}, experiment="elsewhere")
    assert clean() == {empty, refused, trials[0]}


def test_runs_and_figures_stay():
    put_run("a")
    put("figures/regret.png")
    put("notes.tmp", old=True)
    put("papermill_runs/tiny/smoke-00000001/notes.tmp", old=True)
    assert clean() == set()


def make_temporary_folder():
    """A process that has made its temporary folder and waits, and the folder."""
    code = "from compendium.system import kernels; print(kernels.temporary_folder(), flush=True); input()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", code], text=True, **pipes)
    folder = Path(process.stdout.readline().strip())
    (folder / "fonts").write_text("x" * 1000)
    return process, folder


def age(folder):
    os.utime(folder, (time.time() - 2 * cleaning.OLD,) * 2)


def test_temporary_folders_of_killed_processes_are_removed(root, monkeypatch):
    """Those of a process that lives, is suspended or belongs to another user stay."""
    (killed, abandoned), (living, needed), (ended, removed) = (make_temporary_folder() for _ in range(3))
    try:
        assert {folder.parent for folder in (abandoned, needed, removed)} == {root / "temporary"}
        ended.communicate("\n")
        assert not removed.exists()  # a process that ends normally removes its folder itself
        killed.kill()
        killed.wait()
        assert clean() == set()  # it is young
        for folder in (abandoned, needed):
            age(folder)
        os.kill(living.pid, signal.SIGSTOP)
        with monkeypatch.context() as patch:
            patch.setattr(os, "getuid", lambda: 4711)
            assert clean() == set()
        (root / "temporary" / "mlogb-link").symlink_to(abandoned)
        (root / "temporary" / "mlogb-new").mkdir()
        age(root / "temporary" / "mlogb-new")  # it has no lock, so its owner is not known
        assert kernels.abandoned_folders() == [abandoned]
        assert clean() == {abandoned}
        assert not abandoned.exists()
        assert (needed / "fonts").is_file()
    finally:
        for process in (killed, living, ended):
            process.kill()
            process.communicate()


def test_a_file_that_another_process_removes_meanwhile_is_passed_over():
    path = put_trial("a")
    found = cleaning.unneeded()
    path.unlink()
    cleaning.remove(found)
