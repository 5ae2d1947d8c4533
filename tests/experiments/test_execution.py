"""How trials are obtained: by one process, several, shards or a cluster, and after every kind of failure."""

from __future__ import annotations

import errno
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from batch_project import ROOT, command, make_real_project, numbers_of, wait_until
from batch_project import SMALL_STUDY as STUDY
from joblib import delayed
from joblib.externals.loky import reusable_executor

from compendium import cli
from compendium.experiments import execution, journal, progress, trials
from compendium.experiments.execution import Orders, TrialsFailedError, obtain, parse_shard
from compendium.experiments.study import Results, combine, final_states, save
from compendium.runs import run as runs
from compendium.system import provenance

SLOW_FIXTURES = ("whole", "workers")  # batches with a kernel each, and a cluster
LATEST = 120  # seconds that a process of a test may take


@pytest.fixture(autouse=True)
def without_batch(monkeypatch):
    """Remove the variables by which a batch that runs the tests would be noticed."""
    for name in ("MLOGB_JOBS", "MLOGB_RUN_DIR", progress.BATCH):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def messages(monkeypatch):
    """The messages that a batch receives, whose kernel this process pretends to be."""
    received = []
    monkeypatch.setenv(progress.BATCH, "{}")
    monkeypatch.setattr("ipykernel.comm.Comm", lambda target_name: SimpleNamespace(send=received.append))
    return received


def texts(messages):
    return "\n".join(message["text"] for message in messages if "text" in message)


def tables(frames, folder):
    """The bytes of the published files, except those of the times."""
    specs = STUDY.specs()
    folder.mkdir()
    save(folder, Results.of(STUDY, combine(specs, frames), final_states(specs, frames)))
    names = ("results.parquet", "final.parquet", "study.json")
    return {name: (folder / name).read_bytes() for name in names}


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    folder = tmp_path_factory.mktemp("serial")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(progress.BATCH, raising=False)
        return tables(obtain("tests", STUDY.specs(), folder / "trials", Orders()), folder / "out")


def stored(folder):
    return {path.stem for path in folder.glob("*.parquet")}


# The orders


def test_orders_go_through_the_environment(monkeypatch):
    for orders in (
        Orders(),
        Orders(jobs=3, shard=(2, 8), plan_only=True),
        Orders(cluster="tcp://scheduler:8786"),
    ):
        for name, value in orders.as_variables().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("MLOGB_JOBS", "7")  # it counts without a batch only
        assert Orders.from_environment() == orders
    monkeypatch.delenv(progress.BATCH)
    assert Orders.from_environment() == Orders(jobs=7)


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "1/0", "-1/2", "1/2/3", "a/b", "1.0/2", "1/ 2"])
def test_a_malformed_shard_is_refused(text):
    with pytest.raises(ValueError, match="--shard must be I/N"):
        parse_shard(text)


@pytest.mark.parametrize("jobs", ["0", "-1", "two", "1.5"])
def test_a_malformed_number_of_jobs_is_refused(monkeypatch, jobs):
    monkeypatch.setenv("MLOGB_JOBS", jobs)
    with pytest.raises(ValueError, match="MLOGB_JOBS must be a whole number"):
        Orders.from_environment()


def test_the_settings_of_a_trial_follow_each_other_the_largest_first():
    small, *_ = STUDY.settings
    large = small.model_copy(update={"name": "large", "sketch_size": small.sketch_size + 1})
    study = STUDY.model_copy(update={"settings": (small, large), "n_trials": 2})
    ordered = sorted({spec.key: spec for spec in study.specs()}.items(), key=execution._place)
    found = [(spec.trial, spec.setting.name) for _, spec in ordered]
    assert found == [(0, "large"), (0, small.name), (1, "large"), (1, small.name)]


@pytest.mark.parametrize("jobs", [None, 1])  # a notebook may ask for a number of workers
def test_a_plan_computes_nothing(tmp_path, monkeypatch, messages, jobs):
    monkeypatch.setenv(progress.BATCH, Orders(plan_only=True).as_variables()[progress.BATCH])
    with pytest.raises(progress.Stopped, match="the plan only"):
        STUDY.run(jobs, tmp_path / "trials")
    assert not (tmp_path / "trials").exists()
    assert texts(messages).startswith("tests: 5 trials, 0 stored\n  5 to compute: at least ")


def test_no_plan_is_made_that_nobody_reads(tmp_path, monkeypatch):
    """Making a plan takes time."""
    monkeypatch.setattr(execution.plan, "describe", lambda *_: pytest.fail("a plan was made"))
    assert len(obtain("tests", STUDY.specs()[:1], tmp_path, Orders())) == 1


# Shards


@pytest.mark.parametrize("count", [*(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2)), 3, 7])
def test_shards_divide_the_trials_and_give_the_same_tables(serial, tmp_path, monkeypatch, count):
    """Each trial is computed once, by one of the shards, and the last shard has the results."""
    computed, compute = [], trials.TrialSpec.compute

    def note(spec):
        computed.append(spec.key)
        return compute(spec)

    monkeypatch.setattr(trials.TrialSpec, "compute", note)
    specs, frames = STUDY.specs(), None
    for number in range(1, count + 1):
        orders = Orders(shard=(number, count))
        if len(computed) < len(specs) - len(specs[number - 1 :: count]):
            with pytest.raises(progress.Stopped, match=f"shard {number}/{count} is done"):
                obtain("tests", specs, tmp_path / "trials", orders)
        else:
            frames = obtain("tests", specs, tmp_path / "trials", orders)
    assert sorted(computed) == sorted(spec.key for spec in specs)
    assert tables(frames, tmp_path / "out") == serial


def test_a_shard_reports_the_progress_of_its_own_trials(tmp_path, messages):
    with pytest.raises(progress.Stopped):
        obtain("tests", STUDY.specs(), tmp_path / "trials", Orders(shard=(2, 2)))
    assert "5 trials, 0 stored\n  2 to compute" in texts(messages)
    keys = [spec.key for spec in STUDY.specs()]  # the journal keeps those of the other shards too
    assert [message for message in messages if "text" not in message] == [
        {"trials": keys}, {"total": 2, "stored": 0}, {"computed": 1}, {"computed": 1}
    ]  # fmt: skip


# Failures: damaged files, full disks, killed workers


def test_a_damaged_trial_is_computed_again_with_a_warning_to_the_batch(serial, tmp_path, messages, capfd):
    """The warning would differ from run to run, so it must not become an output of the notebook."""
    specs, folder = STUDY.specs(), tmp_path / "trials"
    obtain("tests", specs, folder, Orders())
    paths = [folder / f"{spec.key}.parquet" for spec in specs]
    whole = paths[0].read_bytes()
    paths[0].write_bytes(whole[: len(whole) // 2])
    paths[1].write_bytes(b"")
    paths[2].write_bytes(whole)  # of another trial
    paths[3].unlink()  # so that the plan needs the time of a stored trial
    capfd.readouterr()
    assert tables(obtain("tests", specs, folder, Orders()), tmp_path / "out") == serial
    assert capfd.readouterr() == ("", "")
    for path in paths[:3]:
        assert f"stored trial {path.name} " in texts(messages)
        assert trials.pq.read_table(path).num_rows == 50
    assert {"total": 5, "stored": 1} in messages


def test_without_a_batch_a_damaged_file_is_logged(tmp_path, caplog):
    folder, specs = tmp_path / "trials", STUDY.specs()[:1]
    obtain("tests", specs, folder, Orders())
    (folder / f"{specs[0].key}.parquet").write_bytes(b"PAR1")
    obtain("tests", specs, folder, Orders())
    assert "cannot be read" in caplog.text


def test_a_disk_that_is_full_for_one_trial(serial, tmp_path, monkeypatch):
    """The disk is full when half of the second trial is written; the other trials are stored."""
    specs, folder, write = STUDY.specs(), tmp_path / "trials", trials.pq.write_table
    with monkeypatch.context() as patch:

        def write_half(table, where, **options):
            if where.name.startswith(f".{specs[1].key}"):
                where.write_bytes(b"PAR1 half a table")
                raise OSError(errno.ENOSPC, "No space left on device")
            write(table, where, **options)

        patch.setattr(trials.pq, "write_table", write_half)
        message = (
            "1 of 5 trials failed; .*\n  one, trial 1: OSError: No space left on device: .*trials/.*parquet$"
        )
        with pytest.raises(TrialsFailedError, match=message):
            obtain("tests", specs, folder, Orders())
    assert stored(folder) == {spec.key for spec in specs if spec.trial != 1}
    assert not [path for path in folder.iterdir() if path.suffix != ".parquet"]
    assert tables(obtain("tests", specs, folder, Orders()), tmp_path / "out") == serial


def test_a_small_disk_that_gets_full(serial, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=20k", "none", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        with pytest.raises(TrialsFailedError, match="OSError: No space left on device"):
            obtain("tests", STUDY.specs(), disk / "trials", Orders())
        kept = stored(disk / "trials")
        assert 1 <= len(kept) < 5
        assert all(
            trials.load(spec, disk / "trials") is not None for spec in STUDY.specs() if spec.key in kept
        )
        subprocess.run(["mount", "-o", "remount,size=1m", str(disk)], check=True)
        assert tables(obtain("tests", STUDY.specs(), disk / "trials", Orders()), tmp_path / "out") == serial
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_folder_that_cannot_be_written_is_found_before_anything_is_computed(tmp_path, monkeypatch):
    monkeypatch.setattr(trials.TrialSpec, "compute", lambda _: pytest.fail("a trial was computed"))
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        obtain("tests", STUDY.specs(), tmp_path / "file" / "trials", Orders())

    def full(path, _):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match=r"No space left on device: .*trials'"):
        obtain("tests", STUDY.specs(), tmp_path / "trials", Orders())
    assert list((tmp_path / "trials").iterdir()) == []


_COMPUTE = execution._compute


def compute_or_die(spec, key):
    """Replaces `_compute`: the worker of one trial is killed, as by a system that has no memory left."""
    if spec.trial == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return _COMPUTE(spec, key)


@pytest.mark.slow
def test_a_killed_worker_costs_no_trial_but_its_own(serial, tmp_path, monkeypatch, messages):
    specs, folder = STUDY.specs(), tmp_path / "trials"
    with monkeypatch.context() as patch:
        patch.setattr(execution, "_compute", compute_or_die)
        with pytest.raises(
            TrialsFailedError, match=r"1 of 5 .*\n  one, trial 1: a worker process was killed"
        ):
            obtain("tests", specs, folder, Orders(jobs=2))
    assert stored(folder) == {spec.key for spec in specs if spec.trial != 1}
    assert "computed one at a time" in texts(messages)
    assert messages.count({"computed": 1}) == 4
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert tables(obtain("tests", specs, folder, Orders(jobs=2)), tmp_path / "out") == serial
    assert {path: path.read_bytes() for path in before} == before


class UnpicklableError(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first}\n{second}")  # unpickling calls it with this one argument, and fails
        self.file = open(os.devnull)  # noqa: PTH123, SIM115 - a file cannot be pickled


def raises(spec):
    if spec.trial in (0, 3):
        raise UnpicklableError("two", "lines")
    return _PLAY(spec)


_PLAY = trials.TrialSpec.compute


def compute_or_raise(spec, key):
    """Replaces `_compute` in a worker: some trials fail while they are played."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trials.TrialSpec, "compute", raises)
        return _COMPUTE(spec, key)


@pytest.mark.slow
def test_an_error_that_cannot_be_pickled_is_reported_in_one_line(tmp_path, monkeypatch):
    with pytest.raises(TypeError):
        pickle.dumps(UnpicklableError("a", "b"))
    monkeypatch.setattr(execution, "_compute", compute_or_raise)
    with pytest.raises(TrialsFailedError) as caught:
        obtain("tests", STUDY.specs(), tmp_path / "trials", Orders(jobs=2))
    assert str(caught.value).splitlines() == [
        "2 of 5 trials failed; the others are stored:",
        "  one, trial 0: UnpicklableError: two lines",
        "  one, trial 3: UnpicklableError: two lines",
    ]
    assert len(stored(tmp_path / "trials")) == 3


def test_only_the_first_failures_are_listed(tmp_path, monkeypatch):
    many = STUDY.model_copy(update={"n_trials": 8})
    monkeypatch.setattr(trials.TrialSpec, "compute", lambda *_: 1 / 0)
    with pytest.raises(TrialsFailedError) as caught:
        obtain("tests", many.specs(), tmp_path / "trials", Orders())
    lines = str(caught.value).splitlines()
    assert (len(lines), lines[-1]) == (7, "  and 3 more")


# A cluster: a scheduler and workers, each in a process of its own, connected by TCP


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextmanager
def cluster(folder, workers=2, **environment):
    """Start a scheduler and workers, which share only the sources with this process; yield the address."""
    address = f"tcp://127.0.0.1:{free_port()}"
    python = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    scheduler = [
        sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", address, "--no-dashboard",
    ]  # fmt: skip
    worker = [
        sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-dashboard", "--nthreads", "2",
        "--no-nanny", "--death-timeout", "60", "--local-directory", str(folder),
    ]  # fmt: skip
    options = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, "env": python}
    processes = [subprocess.Popen(arguments, **options) for arguments in [scheduler, *[worker] * workers]]
    try:
        yield address, processes
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def workers(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("workers")) as (address, _):
        yield address


def compute_nothing(*_):
    raise AssertionError("computed by this process")


def test_a_cluster_gives_the_same_tables(serial, workers, tmp_path, monkeypatch, messages):
    monkeypatch.setattr(trials.TrialSpec, "compute", compute_nothing)
    frames = obtain("tests", STUDY.specs(), tmp_path / "trials", Orders(cluster=workers))
    assert tables(frames, tmp_path / "out") == serial
    assert messages.count({"computed": 1}) == 5
    assert "divided by the workers of the cluster" in texts(messages)


def test_a_cluster_continues_with_the_stored_trials(serial, workers, tmp_path):
    with pytest.raises(progress.Stopped):
        obtain("tests", STUDY.specs(), tmp_path / "trials", Orders(shard=(1, 2)))
    before = {path: path.read_bytes() for path in (tmp_path / "trials").iterdir()}
    frames = obtain("tests", STUDY.specs(), tmp_path / "trials", Orders(cluster=workers))
    assert tables(frames, tmp_path / "out") == serial
    assert {path: path.read_bytes() for path in before} == before


def test_a_worker_with_another_version_of_the_library_is_refused(workers, tmp_path, monkeypatch):
    monkeypatch.setattr(trials, "library_digest", lambda: "another")
    with pytest.raises(
        TrialsFailedError, match=r"5 of 5 .*\n.*another version of the library, or other data"
    ):
        obtain("tests", STUDY.specs(), tmp_path / "trials", Orders(cluster=workers))
    assert stored(tmp_path / "trials") == set()


@pytest.mark.slow
def test_an_address_at_which_no_scheduler_answers(tmp_path, monkeypatch):
    monkeypatch.setattr(execution, "_CONNECT", 0.5)
    for address in (f"tcp://127.0.0.1:{free_port()}", "no address at all"):
        with pytest.raises(TrialsFailedError, match="no Dask scheduler answers at"):
            obtain("tests", STUDY.specs(), tmp_path / "trials", Orders(cluster=address))


LONG = STUDY.model_copy(update={"n_rounds": 3000, "n_trials": 8})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victims", "message"),
    [(slice(1, None), "the cluster lost its workers"), (slice(1), "the Dask scheduler is gone")],
)
def test_a_cluster_that_dies_while_it_computes(tmp_path, monkeypatch, victims, message):
    """The trials that had arrived are stored, and the error says what died. So it does without any worker."""
    store = trials.store
    with cluster(tmp_path, workers=1) as (address, processes):

        def store_and_kill(spec, frame, folder):
            path = store(spec, frame, folder)
            for process in processes[victims]:
                process.kill()
            return path

        monkeypatch.setattr(trials, "store", store_and_kill)
        monkeypatch.setattr(execution, "_PATIENCE", LATEST)

        def wait_less(*arguments):
            monkeypatch.setattr(execution, "_PATIENCE", 1.0)
            return _WAIT(*arguments)

        monkeypatch.setattr(execution, "_wait", wait_less)
        with pytest.raises(TrialsFailedError, match=message):
            obtain("tests", LONG.specs(), tmp_path / "trials", Orders(cluster=address))
        assert 1 <= len(stored(tmp_path / "trials")) < 8
        if victims.start:
            monkeypatch.setattr(execution, "_PATIENCE", 0.2)
            with pytest.raises(TrialsFailedError, match="has no workers"):
                obtain("tests", LONG.specs(), tmp_path / "trials", Orders(cluster=address))


_WAIT = execution._wait


# Whole batches, with a notebook, its kernel and the command line

SLOW = """
import time
from compendium.experiments import trials
store = trials.store
def store_slowly(*arguments):
    time.sleep(0.2)
    store(*arguments)
    time.sleep(0.2)
trials.store = store_slowly
"""


def use(root):
    """Make this folder the project, also for the processes that a test starts."""
    os.environ["MLOGB_ROOT"] = str(root)


@pytest.fixture(autouse=True)
def own_root(monkeypatch):
    monkeypatch.setenv("MLOGB_ROOT", os.environ.get("MLOGB_ROOT", ""))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of a batch that was not interrupted and found no stored trial."""
    root = tmp_path_factory.mktemp("whole")
    make_real_project(root, SLOW)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLOGB_ROOT", str(root))
        return runs.execute("tiny", "paper")


@pytest.fixture
def project(tmp_path, whole):
    root = tmp_path / "project"
    root.mkdir()
    make_real_project(root, SLOW)
    use(root)
    return root


def assert_complete(project, whole):
    """There is one run, with the numbers of the uninterrupted one, and no other file is left."""
    [run] = runs.find_runs()
    assert run.path.name == whole.path.name
    assert runs.faults(run.path) == []
    assert numbers_of(run.path) == numbers_of(whole.path)
    assert run.record["figures"] == whole.record["figures"]
    assert [path.name for path in run.path.parent.iterdir()] == [run.path.name]
    assert journal.batches() == []


def test_killed_at_several_moments_and_started_again(project, whole):
    """Only the batch is killed, so its kernel may still live when the next batch starts."""
    folder = project / "papermill_runs"
    moments = [
        lambda: list(folder.glob(".batches/*.json")),
        lambda: len(list(folder.glob(".trials/*.parquet"))) >= 2,
        lambda: len(list(folder.glob(".trials/*.parquet"))) == 8 or list(folder.glob("tiny/*/figures")),
    ]
    for moment in moments:
        process = subprocess.Popen(
            command("run", "tiny", "--profile", "paper"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_until(moment)
        assert process.poll() is None, process.stderr.read()
        process.kill()
        process.wait()
        process.stderr.close()
        assert runs.find_runs() == []
        [batch] = journal.batches()
        assert (batch.experiment, batch.profile, batch.ended) == ("tiny", "paper", True)
        assert len(batch.trials) == 8 or not batch.stored()
    before = {path: path.read_bytes() for path in folder.glob(".trials/*.parquet")}
    assert len(before) >= 2
    runs.execute("tiny", "paper")
    assert_complete(project, whole)
    assert {path: path.read_bytes() for path in before} == before


def processes_of(root):
    """The processes in whose environment this folder is the project."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"MLOGB_ROOT={root}".encode() in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
    return set(found) - {os.getpid()}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found in /proc")
@pytest.mark.parametrize("victim", ["batch", "kernel"])
def test_nothing_outlives_a_batch_that_is_killed(project, victim):
    """Kernel, workers and trackers end when the batch or its kernel is killed, and no pipe stays open."""
    arguments = command("run", "tiny", "--profile", "paper", "--jobs", "2", "-p", "n_rounds=5000000")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    batch = subprocess.Popen(arguments, env=os.environ | {"MLOGB_ROOT": str(project)}, **pipes)
    try:
        # These are the batch, the kernel, two workers and a tracker. On a busy machine they start slowly.
        wait_until(lambda: len(processes_of(project)) >= 5, 3 * LATEST, pause=0.2)
        if victim == "batch":
            batch.kill()
        else:
            found = processes_of(project)
            parents = {p: int(Path(f"/proc/{p}/stat").read_text().split()[3]) for p in found}
            [kernel] = [p for p, parent in parents.items() if parent == batch.pid]
            os.kill(kernel, signal.SIGKILL)
        out, _ = batch.communicate(timeout=LATEST)  # it returns when no process has the pipe open
        if victim == "kernel":
            assert "Kernel died" in out
        wait_until(lambda: not processes_of(project), pause=0.2)
    finally:
        for process in processes_of(project):
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        batch.communicate()


def test_two_batches_at_once(project, whole):
    arguments = command("run", "tiny", "--profile", "paper", "--jobs", "2")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    other = subprocess.Popen(arguments, **pipes)
    wait_until(lambda: list(project.glob("papermill_runs/.batches/*.json")))
    runs.execute("tiny", "paper")
    out, err = other.communicate(timeout=LATEST)
    assert (other.returncode, "paper-" in out) == (0, True), err
    assert_complete(project, whole)
    for name, digest in runs.find_runs()[0].record["figures"].items():
        assert provenance.sha256(project / "figures" / name) == digest


def test_the_last_shard_completes_the_run(project, whole, monkeypatch, capfd):
    monkeypatch.setattr(progress, "_LINE_INTERVAL", 0.0)
    with pytest.raises(progress.Stopped, match="4 of 8 are left to other shards"):
        runs.execute("tiny", "paper", orders=Orders(shard=(1, 2)))
    [batch] = journal.batches()
    assert (batch.ended, len(batch.stored()), len(batch.trials)) == (True, 4, 8)
    assert runs.find_runs() == []
    lines = capfd.readouterr().err.splitlines()
    done = [line.split(",")[0] for line in lines if "trials done" in line]
    assert done == [f"{n} of 4 trials done" for n in range(1, 5)]
    runs.execute("tiny", "paper", orders=Orders(shard=(2, 2)))
    assert_complete(project, whole)
    assert runs.execute("tiny", "paper").reused


def test_a_batch_on_a_cluster(project, whole, workers):
    runs.execute("tiny", "paper", orders=Orders(cluster=workers))
    assert_complete(project, whole)


NO_TRIAL_HERE = """
from compendium.experiments import execution, trials
def refuse(*_):
    raise AssertionError("the kernel computed a trial")
trials.TrialSpec.compute = refuse
execution._CONNECT = 0.5
"""


def test_a_number_of_workers_in_the_notebook_does_not_undo_the_cluster(tmp_path, workers, capfd):
    """A notebook that calls `.run(n_jobs=1)` leaves its trials to the cluster, and fails if none answers."""
    text = make_real_project(tmp_path, NO_TRIAL_HERE)
    use(tmp_path)
    text.write_text(text.read_text().replace(").run()", ").run(n_jobs=1)"))
    with pytest.raises(SystemExit) as left:
        cli.main(["run", "tiny", "--profile", "smoke", "--cluster", f"tcp://127.0.0.1:{free_port()}"])
    assert left.value.code == 1
    assert "no Dask scheduler answers at tcp://127.0.0.1:" in capfd.readouterr().err
    assert runs.find_runs() == []
    with pytest.raises(SystemExit) as left:
        cli.main(["run", "tiny", "--profile", "smoke", "--cluster", workers])
    assert not left.value.code, capfd.readouterr().err
    [run] = runs.find_runs()
    assert len(run.record["study"]["studies"][0]["trials"]) == 4


def test_a_plan_leaves_no_file(project, capfd):
    with pytest.raises(progress.Stopped, match="the plan only"):
        runs.execute("tiny", "paper", orders=Orders(plan_only=True))
    assert "tiny: 8 trials, 0 stored\n  8 to compute: at least " in capfd.readouterr().err
    left = [path.name for path in project.rglob("papermill_runs/**/*") if path.is_file()]
    assert left == [".lock"]
    assert journal.batches() == []


def add(project, *cells):
    """Add cells to the notebook."""
    text = project / "notebooks" / "tiny.md"
    code = "".join(f"\n```{{code-cell}} ipython3\n{cell}\n```\n" for cell in cells)
    text.write_text(text.read_text() + code)


def add_a_study(project, n_trials=3):
    """Let the notebook have a second study, which needs no result of the first, and cells that need its."""
    settings = f"settings=[setting], n_rounds=5, n_trials={n_trials}, seed=1"
    collected = f'kept.append(Study(experiment="other", {settings}).run(n_jobs=1))\nnamed["other"] = kept[0]'
    add(project, "kept, named = [], {}", collected, "kept[0]", 'named["other"]')


def test_a_plan_covers_every_study(project, capfd):
    add_a_study(project)
    with pytest.raises(progress.Stopped, match="the plan only"):
        runs.execute("tiny", "paper", orders=Orders(plan_only=True))
    said = capfd.readouterr().err
    assert "tiny: 8 trials, 0 stored\n" in said
    assert "other: 3 trials, 0 stored\n" in said
    assert "5 cells need a study that is not complete: skipped until you run again\n" in said


def test_a_plan_goes_on_after_a_study_that_is_complete(project, capfd):
    add_a_study(project)
    runs.execute("tiny", "paper")
    text = project / "notebooks" / "tiny.md"
    text.write_text(text.read_text().replace("n_rounds=5, n_trials=3", "n_rounds=5, n_trials=4"))
    plan = {"orders": Orders(plan_only=True), "again": True}
    with pytest.raises(progress.Stopped, match="the plan only"):
        runs.execute("tiny", "paper", **plan)
    said = capfd.readouterr().err
    assert "tiny: 8 trials, 8 stored\nother: 4 trials, 3 stored\n  1 to compute: " in said
    text.write_text(text.read_text().replace("n_rounds=5, n_trials=4", "n_rounds=5, n_trials=2"))
    with pytest.raises(progress.Stopped, match="no trial is left to compute"):
        runs.execute("tiny", "paper", **plan)
    assert "skipped" not in capfd.readouterr().err


def test_a_plan_plays_no_games_in_workers(project):
    played = project / "played"
    imported = "import joblib, pathlib\nfrom compendium.experiments.execution import in_workers"
    add(project, f"{imported}\nin_workers([joblib.delayed(pathlib.Path({str(played)!r}).touch)()])")
    with pytest.raises(progress.Stopped, match="the plan only"):
        runs.execute("tiny", "paper", orders=Orders(plan_only=True))
    assert not played.exists()
    runs.execute("tiny", "paper")
    assert played.exists()


def test_a_plan_covers_all_studies_of_a_cell(project, capfd):
    study = 'Study(experiment="{}", settings=[setting], n_rounds=5, n_trials=3, seed=1)'
    each = f"[{study.format('second')}, {study.format('third')}]"
    add(project, f"from compendium.experiments import run_each\nrun_each({each})")
    with pytest.raises(progress.Stopped, match="the plan only"):
        runs.execute("tiny", "paper", orders=Orders(plan_only=True))
    said = capfd.readouterr().err
    assert "second: 3 trials, 0 stored\n" in said
    assert "third: 3 trials, 0 stored\n" in said


FAILING = """
from compendium.experiments import trials
def fail(*_):
    raise MemoryError("too little")
trials.TrialSpec.compute = fail
"""


def test_a_shard_whose_trials_fail_says_so_after_a_study_that_is_not_complete(project):
    add(project, FAILING)
    add_a_study(project)
    with pytest.raises(runs.FailureError, match=r"2 of 2 trials failed.*\n.*MemoryError: too little"):
        runs.execute("tiny", "paper", orders=Orders(shard=(1, 2)))
    [batch] = journal.batches()
    assert "2 of 2 trials failed" in batch.error


def test_a_shard_takes_its_part_of_every_study(project):
    """The second study asks for one worker, which does not change that the batch asks for a shard."""
    add_a_study(project)
    with pytest.raises(
        progress.Stopped, match=r"4 of 8 are left to other shards.*\n.*1 of 3 are left to other"
    ):
        runs.execute("tiny", "paper", orders=Orders(shard=(1, 2)))
    assert len(list(project.glob("papermill_runs/.trials/*.parquet"))) == 6


@pytest.mark.slow
def test_the_trials_of_a_kernel_that_dies_stay_stored(project, whole):
    text = project / "notebooks" / "tiny.md"
    text.write_text(text.read_text().replace("publish(results,", "import os; os._exit(1)\npublish(results,"))
    with pytest.raises(runs.FailureError, match="Kernel died in the cell: import os"):
        runs.execute("tiny", "paper")
    assert runs.find_runs() == []
    [batch] = journal.batches()
    assert (batch.ended, len(batch.stored())) == (True, 8)
    assert {path.name for path in (project / "papermill_runs/.trials").iterdir()} == {
        f"{key}.parquet" for one in whole.record["study"]["studies"] for key in one["trials"]
    }


def test_the_comparison_of_runs_finds_a_changed_digit_of_each_file(whole, tmp_path):
    for name in numbers_of(whole.path):
        copy = tmp_path / name
        copy.mkdir()
        for other in numbers_of(whole.path):
            (copy / other).write_bytes((whole.path / other).read_bytes())
        content = copy / name
        if name.endswith(".parquet"):
            table = pd.read_parquet(content)
            column = "regret" if name == "results.parquet" else "parameter_norm"
            table.loc[0, column] += 1e-12
            table.to_parquet(content)
        else:
            content.write_text(json.dumps(json.loads(content.read_text()) | {"more": 1}))
        changed = {key for key, value in numbers_of(copy).items() if value != numbers_of(whole.path)[key]}
        assert changed == {name}


def test_a_worker_that_ends_is_no_output_of_a_notebook(monkeypatch):
    """joblib's warning comes in some runs and not in others."""

    def parallel(n_jobs):
        warnings.warn("A worker stopped while some jobs were given to the executor.", stacklevel=1)
        return list

    monkeypatch.setattr(execution.joblib, "Parallel", parallel)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert execution.in_workers([1, 2]) == [1, 2]


@pytest.mark.slow
def test_the_workers_of_a_study_serve_the_next_computation(tmp_path, monkeypatch):
    monkeypatch.setenv("MLOGB_JOBS", "2")
    obtain("one", STUDY.specs()[:3], tmp_path, Orders(jobs=2))
    started = reusable_executor._executor
    assert started is not None
    assert os.getpid() not in execution.in_workers(delayed(os.getpid)() for _ in range(3))
    assert reusable_executor._executor is started
