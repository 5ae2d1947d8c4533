"""Cleaning: what nobody refers to goes, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import time

import pytest

from compendium.experiments import journal
from compendium.runs import cleaning
from compendium.runs import run as runs
from compendium.system import paths


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    (tmp_path / "experiments.yml").touch()
    monkeypatch.setenv("MLOGB_ROOT", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def dead():
    process = subprocess.Popen(["true"])
    process.wait()
    return f"{journal.owner().split('-')[0]}-{process.pid}"


def put(name, content="x", old=False):
    path = paths.project_root() / name
    paths.write_atomically(path, content)
    if old:
        os.utime(path, (time.time() - 2 * journal.STALE,) * 2)
    return path


def put_trial(key):
    return put(f"papermill_runs/.trials/{key}.parquet")


def put_run(*keys, name="smoke-00000001"):
    record = {key: kind() for key, kind in runs.RECORD_ENTRIES.items()} | {
        "experiment": "tiny", "notebook": "n.md", "started": "2026", "study": {"studies": [{"trials": keys}]},
    }  # fmt: skip
    return put(f"papermill_runs/tiny/{name}/record.json", json.dumps(record))


def put_journal(whose, *keys, run="smoke-00000001", old=False, parameters=None, experiment="tiny"):
    entry = {"experiment": experiment, "parameters": parameters, "profile": "smoke", "run": run,
             "owner": whose, "started": "2026", "trials": keys, "ended": False}  # fmt: skip
    path = journal.path_of("tiny", run, whose)
    return put(path.relative_to(paths.project_root()), json.dumps(entry), old)


def clean():
    found = cleaning.leftovers()
    cleaning.remove(found)
    assert cleaning.leftovers() == []
    return {item.path for item in found}


def test_nothing_is_there():
    assert clean() == set()


def test_trials_that_nobody_needs(dead):
    needed = [
        put_trial(key) for key in ("of-a-run", "of-a-batch", "of-a-stopped-batch", "of-another-machine")
    ]
    nobodys = put_trial("nobodys")
    put_run("of-a-run")
    live = put_journal(journal.owner(), "of-a-batch", run="smoke-00000002")
    put_journal(dead, "of-a-stopped-batch", run="smoke-00000003")
    put_journal("00000000-1", "of-another-machine", run="smoke-00000004", old=True)
    with journal.held(live):
        assert [(item.path, item.size) for item in cleaning.leftovers()] == [(nobodys, 1)]
        assert nobodys.exists()  # finding is not removing
        assert clean() == {nobodys}
    assert all(path.exists() for path in needed)


@pytest.mark.parametrize(
    "name",
    [
        "papermill_runs/.trials/.0123456789abcdef01234567.4711.89abcdef.tmp",
        "papermill_runs/.trials/.0123456789abcdef01234567.1.12345678.tmp",  # process 1 always runs
        "papermill_runs/tiny/smoke-00000001/.study.json.12.tmp",
        "figures/.regret.png.12.tmp",
        "figures/local/.regret.json.12.tmp",
    ],
)
def test_files_that_were_never_finished(name):
    """A file that is being written, here or elsewhere, was touched a moment ago."""
    put(name)
    assert clean() == set()
    path = put(name, old=True)
    assert clean() == {path}


def test_folders_of_attempts(dead):
    kept = [
        f".partial-smoke-00000002-{journal.owner().split('-')[0]}-{os.getppid()}",
        ".partial-smoke-00000003-00000000-4711",
    ]
    for name in kept:
        put(f"papermill_runs/tiny/{name}/tiny.ipynb")
        run, whose = name.removeprefix(".partial-").rsplit("-", 2)[0], "-".join(name.rsplit("-", 2)[1:])
        put_journal(whose, "a", run=run, old=True)
    gone = put(f"papermill_runs/tiny/.partial-smoke-00000004-{dead}/tiny.ipynb", "four").parent
    put_journal(dead, "a", run="smoke-00000004")
    live = journal.path_of("tiny", "smoke-00000002", kept[0].split("2-", 1)[1])
    with journal.held(live):
        assert [(item.path, item.size) for item in cleaning.leftovers()] == [(gone, 4)]
        assert clean() == {gone}
    assert {path.name for path in (paths.runs_folder() / "tiny").iterdir()} == set(kept)


def test_the_only_copy_of_a_run_stays(dead):
    """A batch was killed after it set the old run aside and before the new one was in its place."""
    aside = put(f"papermill_runs/tiny/.partial-smoke-00000001-{dead}-old/record.json").parent
    assert clean() == set()
    put_run()
    assert clean() == {aside}


def test_journals_of_runs_that_are_there(dead):
    put_run()
    finished = put_journal(dead)
    lock = put(journal.lock_of(finished).relative_to(paths.project_root()))
    live = put_journal(f"{journal.owner().split('-')[0]}-{os.getppid()}")
    put_journal(dead, "a", run="smoke-00000002")
    bad = put("papermill_runs/.batches/bad.json", "{", old=True)
    put("papermill_runs/.batches/young.json", "{")
    orphan = put("papermill_runs/.batches/tiny-smoke-00000003-gone.lock", old=True)
    with journal.held(live):
        assert clean() == {finished, lock, bad, orphan}


def test_batches_that_can_never_be_finished(root, dead):
    """One that came to no study, and one whose parameters are refused; not one of another branch."""
    (root / "experiments.yml").write_text(
        "limits: {n_rounds: {minimum: 1}}\n"
        "experiments: {tiny: {title: t, notebook: n, profiles: {smoke: {}}}}\n"
    )
    empty = put_journal(dead)
    refused = put_journal(dead, "a", run="smoke-00000002", parameters={"n_rounds": 0})
    trials = [put_trial("a"), put_trial("b"), put_trial("c")]
    put_journal(dead, "b", run="smoke-00000003", parameters={"n_rounds": 1})
    put_journal(dead, "c", run="smoke-00000004", parameters={"n_rounds": 0}, experiment="elsewhere")
    assert clean() == {empty, refused, trials[0]}


def test_runs_and_figures_stay(root):
    put_run("a")
    put("figures/regret.png")
    put("notes.tmp", old=True)
    put("papermill_runs/tiny/smoke-00000001/notes.tmp", old=True)
    assert clean() == set()


def test_what_goes_in_the_meantime_is_passed_over():
    path = put_trial("a")
    found = cleaning.leftovers()
    path.unlink()
    cleaning.remove(found)
