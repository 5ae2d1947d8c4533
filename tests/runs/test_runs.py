"""Runs: what a complete run contains, and that nothing else is taken for one."""

from __future__ import annotations

import ast
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import nbformat
import pytest
from batch_project import ROOT, STUDY, cell, git, make_project, wait_until
from papermill.clientwrap import PapermillNotebookClient

from compendium.experiments import journal, trials
from compendium.runs import engine, request
from compendium.runs import run as runs
from compendium.runs.notebooks import check_executed
from compendium.runs.request import Request
from compendium.runs.run import execute, faults, find_runs, load_run
from compendium.system import locks, paths, provenance
from compendium.system.paths import FailureError, UsageError


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLOGB_ROOT", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A project under git with one finished run of the smoke profile."""
    root = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "code_root", lambda: root)
        patch.setenv("MLOGB_ROOT", str(root))
        patch.setenv("MPLBACKEND", "Agg")
        warning = cell("import warnings; warnings.warn('careful')\nprint(run.parent.parent.parent)")
        make_project(root, STUDY, warning)
        (root / "requirements.lock").write_text("numpy\n")
        for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
            git(root, *arguments)
        return execute("tiny", "smoke", jobs=3)


@pytest.fixture
def in_finished(finished, monkeypatch):
    monkeypatch.setenv("MLOGB_ROOT", str(finished.path.parents[2]))
    return finished


def everything(root: Path) -> set[str]:
    return {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()}


def test_the_files_of_a_run(in_finished):
    assert everything(in_finished.path) == {
        "tiny.ipynb", "results.parquet", "study.json", "environment.txt", "record.json", "SHA256SUMS",
    }  # fmt: skip
    assert in_finished.path.name.startswith("smoke-")
    assert list(in_finished.results["regret"]) == [0.0, 2.0, 4.0]
    assert faults(in_finished.path) == []
    assert [path.name for path in in_finished.path.parent.iterdir()] == [in_finished.path.name]
    jobs, threads, backend, folder = (in_finished.path / "environment.txt").read_text().split()
    assert (jobs, threads, folder) == ("3", "1", "notebooks")
    assert backend != "Agg"  # which this process has; a kernel needs one that shows figures


def test_the_record(in_finished):
    record = json.loads((in_finished.path / "record.json").read_text())
    assert record == in_finished.record
    expected = {
        "experiment": "tiny",
        "profile": "smoke",
        "overrides": {},
        "parameters": {"n_rounds": 3, "step_size": 2.0},
        "data": {},
        "notebook": "notebooks/tiny.md",
        "git_clean": True,
        "study": {
            "studies": [{"data": [{"name": "Digits", "source": "nowhere", "rows": 5000}], "seed": 1}],
            "findings": {},
        },
        "lock_sha256": provenance.sha256("numpy\n"),
        "version": provenance.project_version(in_finished.path.parents[2]),
    }
    assert {key: record[key] for key in expected} == expected
    assert len(record["git_commit"]) == 40
    assert len(record["code_digest"]) == 64
    assert record["environment"]["jobs"] == 3
    assert record["environment"]["threads"]["OMP_NUM_THREADS"] == "1"
    assert record["environment"]["blas"][0]["version"]
    assert set(record["files"]) == everything(in_finished.path) - {"record.json", "SHA256SUMS"}
    assert set(record["figures"]) == {"regret.png", "regret.pdf"}
    assert record["started"].endswith("+00:00")


def test_no_file_names_this_machine(in_finished):
    for name in ("record.json", "tiny.ipynb", "study.json"):
        text = (in_finished.path / name).read_text()
        for place in (in_finished.path.parents[2], Path.home(), ROOT, "/tmp/"):
            assert str(place) not in text, (name, place)
        assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", text)


def test_the_stored_notebook(in_finished):
    notebook = nbformat.read(in_finished.path / "tiny.ipynb", as_version=4)
    assert check_executed(notebook) == []
    assert "papermill" not in json.dumps(notebook)
    injected = [c for c in notebook.cells if "injected-parameters" in c.metadata.get("tags", [])]
    assert [c.source for c in injected] == ["# Parameters\nn_rounds = 3\nstep_size = 2.0\n"]
    warning, printed = sorted(notebook.cells[-1].outputs, key=lambda output: output.name)
    assert warning.text.startswith("<cell>:1: UserWarning: careful")
    assert printed.text == ".\n"  # the project's folder


def test_figures_have_sidecars(in_finished):
    folder = in_finished.path.parents[2] / "figures" / "local"
    assert {p.name for p in folder.iterdir()} == {"regret.png", "regret.pdf", "regret.json"}
    sidecar = json.loads((folder / "regret.json").read_text())
    assert sidecar == {
        "run": f"papermill_runs/tiny/{in_finished.path.name}",
        "experiment": "tiny",
        "profile": "smoke",
        "results_sha256": provenance.sha256(in_finished.path / "results.parquet"),
        "git_commit": in_finished.record["git_commit"],
        "sha256": {"png": provenance.sha256("pngnone"), "pdf": provenance.sha256("pdfnone")},
    }
    assert {p.name for p in runs.figures_of(in_finished)} == {"regret.png", "regret.pdf"}


def test_a_complete_run_is_reused(in_finished, monkeypatch):
    monkeypatch.setattr(runs, "_attempt", lambda *_: pytest.fail("executed again"))
    again = execute("tiny", "smoke", jobs=1)
    assert (again.path, again.record, again.reused) == (in_finished.path, in_finished.record, True)
    assert [run.path for run in find_runs()] == [in_finished.path]
    assert find_runs("other") == find_runs("tiny", "paper") == []


def names_of_requests(monkeypatch):
    """A function that returns the name of the run that would be executed, and executes nothing."""

    class ExecutedError(Exception):
        pass

    def attempt(experiment, partial, *_):
        raise ExecutedError(partial.name.removeprefix(".partial-").rsplit("-", 2)[0])

    monkeypatch.setattr(runs, "_attempt", attempt)

    def name(profile="smoke", **overrides):
        with pytest.raises(ExecutedError) as caught:
            execute("tiny", profile, overrides)
        return str(caught.value)

    return name


def test_what_decides_the_name_of_a_run(in_finished, monkeypatch):
    """The name depends on profile, parameters, the notebook's defaults and data."""
    name = names_of_requests(monkeypatch)
    names = [in_finished.path.name, name("paper"), name(label="x"), name(label="y")]
    assert [n.partition("-")[0] for n in names] == ["smoke", "paper", "custom", "custom"]
    root = in_finished.path.parents[2]
    manifest, text = root / "experiments.yml", root / "notebooks" / "tiny.md"
    kept = manifest.read_text(), text.read_text()
    try:
        for old, new in (("quick = False", "quick = True"), ("extra = None", "extra = None\nmore = 1")):
            text.write_text(kept[1].replace(old, new))
            names.append(name())
        text.write_text(kept[1])
        manifest.write_text(kept[0].replace("    profiles:", "    data: [MNIST]\n    profiles:"))
        for digits in "ab":  # two checksums of digits
            monkeypatch.setattr(request, "_checksum", lambda _, digits=digits: digits)
            names.append(name())
    finally:
        manifest.write_text(kept[0])
        text.write_text(kept[1])
    assert len(set(names)) == len(names) == 8


def test_the_name_of_a_run_depends_neither_on_code_nor_on_text(in_finished, monkeypatch):
    monkeypatch.setattr(provenance, "code_digest", lambda *_: "d" * 64)
    text = in_finished.path.parents[2] / "notebooks" / "tiny.md"
    kept = text.read_text()
    text.write_text(kept.replace("# A tiny experiment", "# The same experiment") + "\nMore.\n")
    try:
        again = execute("tiny", "smoke")
    finally:
        text.write_text(kept)
    assert (again.path, again.reused) == (in_finished.path, True)


def test_absent_data_do_not_contradict_a_run():
    """A run is found on a machine without some of its data, and not on one with other data."""

    def asked(**data):
        return Request("e", "paper", {"n": 1}, {"MNIST": "m", "InstEval": None} | data)

    whole = asked(InstEval="i")
    assert asked().is_answered_by(whole)
    assert whole.is_answered_by(whole)
    assert not asked(InstEval="other").is_answered_by(whole)
    assert not asked(MNIST="other").is_answered_by(whole)
    assert not whole.is_answered_by(asked())  # its notebook left these data out
    for changed in ({"experiment": "f"}, {"kind": "smoke"}, {"parameters": {"n": 2}}):
        assert not asked().is_answered_by(replace(whole, **changed))


@pytest.mark.slow
def test_data_that_the_manifest_does_not_name_stop_a_run(root):
    used = 'data = {"name": "MNIST", "source": "nowhere", "rows": 5000, "sha256": "0"}'
    make_project(root, STUDY.replace('data = {"name": "Digits", "source": "nowhere", "rows": 5000}', used))
    with pytest.raises(FailureError, match=r"used MNIST, which experiments\.tiny\.data in .* must name"):
        execute("tiny", "smoke")
    assert find_runs() == []


def assert_locked(monkeypatch, root, module, name):
    """Replace a function by one that fails unless the lock of the runs is held."""
    function = getattr(module, name)

    def checked(*arguments):
        with (root / "papermill_runs" / ".lock").open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return function(*arguments)

    monkeypatch.setattr(module, name, checked)


@pytest.mark.slow
def test_a_run_that_is_made_again_replaces_the_stored_one(root, monkeypatch):
    assert_locked(monkeypatch, root, runs, "_put_in_place")
    assert_locked(monkeypatch, root, provenance, "publish_figures")
    monkeypatch.setattr(provenance, "code_root", lambda: root)
    make_project(root, STUDY, cell("(run / 'clock.txt').write_text(str(__import__('time').time_ns()))"))
    first = execute("tiny", "paper")
    clock = (first.path / "clock.txt").read_text()
    assert {p.name for p in (root / "figures").iterdir()} == {"regret.png", "regret.pdf", "regret.json"}
    assert first.record["git_commit"] is None
    (first.path / "results.parquet").write_bytes(b"changed")
    assert faults(first.path) == ["results.parquet was changed"]
    second = execute("tiny", "paper")  # the stored run is no longer complete
    assert not second.reused
    assert second.path == first.path
    assert (second.path / "clock.txt").read_text() != clock
    # A run of another name that answers the request is replaced too, as one with data that are absent here.
    (second.path / "attestations.json").write_text("[]")
    second.path.rename(second.path.with_name("paper-0000aaaa"))
    assert execute("tiny", "paper").path.name == "paper-0000aaaa"
    third = execute("tiny", "paper", again=True)
    assert not third.reused
    assert third.record["files"]["clock.txt"] != second.record["files"]["clock.txt"]
    assert [p.name for p in third.path.parent.iterdir()] == [second.path.name]
    assert not (third.path / "attestations.json").exists()
    assert faults(third.path) == []


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([cell("1")], r"wrote no results\.parquet\n.*wrote no study\.json"),
        *(pytest.param([STUDY, *map(cell, codes)], message, marks=pytest.mark.slow) for codes, message in (
            (["1 / 0"], r"code cell 4 \(1 / 0\) failed: ZeroDivisionError: division by zero"),
            (["import os; os._exit(1)"], r"Kernel died in the cell: import os; os\._exit\(1\)"),
            (["raise SystemExit", "2"], r"code cell 4 \(raise SystemExit\) failed: SystemExit"),
            (["(run / 'figures/a').mkdir(); (run / 'figures/a/b.png').touch()"],
             r"^figures/a/b\.png: pictures are kept in figures itself"),
            (["(run / 'study.json').write_text(json.dumps({'findings': str(run)}))"],
             r"study\.json names a path of this machine"),
        )),
    ],
)  # fmt: skip
def test_a_failed_run_does_not_look_complete(root, cells, message):
    make_project(root, *cells)
    with pytest.raises(FailureError, match=message):
        execute("tiny", "smoke", jobs=1)
    assert all(p.name.startswith(".partial-smoke-") for p in (root / "papermill_runs/tiny").iterdir())
    assert find_runs() == []
    assert not (root / "figures").exists()
    assert not list(root.rglob("record.json"))


@pytest.mark.slow
def test_a_kernel_that_ends_before_it_executes_anything_is_started_again(root, monkeypatch):
    """As one does whose port another process has taken."""
    make_project(root, STUDY)
    start, killed = PapermillNotebookClient.start_new_kernel, []

    def start_and_kill(client, **options):
        start(client, **options)
        if len(killed) < lives:
            killed.append(client.km)
            client.km.provisioner.process.kill()

    monkeypatch.setattr(PapermillNotebookClient, "start_new_kernel", start_and_kill)
    lives = engine.STARTS
    with pytest.raises(FailureError, match="Kernel died before replying"):
        execute("tiny", "smoke", jobs=1)
    killed.clear()
    lives = engine.STARTS - 1
    assert faults(execute("tiny", "smoke", jobs=1).path) == []
    assert len(killed) == lives


@pytest.mark.slow
@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(root, kind, request):
    # Interrupts are ignored if a shell runs the suite in the background.
    request.addfinalizer(partial(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT)))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    make_project(root, STUDY, cell("(run / 'here').touch(); import time; time.sleep(60)"))

    def interrupt():
        wait_until(lambda: list(root.glob("papermill_runs/tiny/*/here")))
        os.kill(os.getpid(), kind)

    thread = threading.Thread(target=interrupt)
    thread.start()
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        execute("tiny", "smoke")
    thread.join()
    assert list((root / "papermill_runs/tiny").iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_ended_attempts_left_is_removed(root):
    (root / "experiments.yml").touch()
    folder = root / "papermill_runs" / "tiny"
    final = folder / "smoke-12345678"
    ended = subprocess.Popen(["true"])
    ended.wait()
    machine, own = locks.owner().split("-")
    dead, running, far = f"{machine}-{ended.pid}", f"{machine}-1", "00000000-1"
    reused = f"{machine}-{os.getppid()}"  # a living process has the number of this ended batch
    stale = [folder / f".partial-smoke-12345678-{whose}" for whose in (dead, reused, f"{machine}-{own}")]
    under_way = [folder / f".partial-smoke-12345678-{whose}" for whose in (running, far)]
    path = journal.path_of("tiny", "smoke-12345678")
    paths.write_atomically(path, "{}")
    for whose in (dead, reused, far):
        journal.lock_of(path, whose).touch()
    other = folder / f".partial-smoke-99999999-{dead}"
    aside = folder / f".partial-smoke-12345678-{dead}-old"
    for left in [*stale, *under_way, other, aside]:
        left.mkdir(parents=True)
    with locks.held(journal.lock_of(path, running)):
        runs.sweep(folder)
    assert {p.name for p in folder.iterdir()} == {final.name, *(p.name for p in under_way)}


def test_a_folder_without_a_record_is_no_run(root):
    with pytest.raises(UsageError, match="is not a run"):
        load_run(root)


def test_git_state_ignores_runs_and_figures(in_finished):
    root = in_finished.path.parents[2]
    assert provenance.git_state(root)["git_clean"] is True
    (root / "new.txt").touch()
    assert provenance.git_state(root)["git_clean"] is False
    (root / "new.txt").unlink()


def test_the_code_digest_covers_the_library(monkeypatch, tmp_path):
    monkeypatch.undo()
    package = tmp_path / "mlogb_core"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").touch()
    module = package / "inner" / "a.py"
    module.write_text("x = 1\n")
    monkeypatch.setattr(
        provenance.importlib.util,
        "find_spec",
        lambda _: type("Spec", (), {"submodule_search_locations": [str(package)]}),
    )
    first = provenance.code_digest()
    assert first == provenance.code_digest()
    module.write_text("x = 2\n")
    second = provenance.code_digest()
    module.rename(module.with_name("b.py"))
    third = provenance.code_digest()
    assert len({first, second, third}) == 3


@pytest.mark.slow
def test_threads_can_compute_the_digest_at_the_same_time():
    """Those of a Dask worker do, although Python 3.11 cannot build two syntax trees at the same time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    provenance._module_digest.cache_clear()
    try:
        with ThreadPoolExecutor(4) as pool:
            assert len(set(pool.map(lambda _: provenance.code_digest(), range(4)))) == 1
    finally:
        sys.setswitchinterval(before)


def test_the_code_digest_covers_syntax_and_no_comment_layout_or_style(monkeypatch, tmp_path):
    monkeypatch.setattr(provenance.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "system" / "provenance.py"))
    module = tmp_path / "policies.py"

    def digest(text):
        module.write_text(text)
        return provenance.code_digest(["policies.py"])

    base = digest('"""Text."""\nx = f(1, Style("a", "red"))\ndef g():\n    """Text."""\n    return "s"\n')
    same = (
        'x = f(1,   Style("b", "blue"))  # why\ndef g():\n    """Other\n    text."""\n    return \'s\'\n',
        'x = f(1, Style())\r\n\r\ndef g(): return "s"\r\n',
    )
    assert [digest(text) for text in same] == [base, base]
    others = ('x = f(2, Style("a"))\ndef g(): return "s"', 'x = f(1, Style("a"))\ndef g(): return "t"')
    assert len({base, *map(digest, others)}) == 3


def test_every_module_that_a_trial_imports_is_in_its_address(monkeypatch):
    """If a module that decides results were left out, an old trial would be taken for a new one."""
    asked = []
    monkeypatch.setattr(trials, "code_digest", asked.append)
    trials.library_digest.__wrapped__()
    (modules,) = asked
    # These need not be in it: what the first two read is in the address as the checksum of the data.
    neutral = {"experiments/data.py", "experiments/ratings.py", "system/provenance.py", "system/paths.py"}
    folder = Path(provenance.__file__).parents[1]
    parts = [folder / name for name in modules]
    files = [path for part in parts for path in ([part] if part.is_file() else part.rglob("*.py"))]
    decisive = {path.relative_to(folder).as_posix() for path in files}
    for name in decisive:
        for node in ast.walk(ast.parse((folder / name).read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "compendium":
                place = folder.joinpath(*node.module.split(".")[1:])
                is_folder = len(node.module.split(".")) == 2
                for path in [place / alias.name for alias in node.names] if is_folder else [place]:
                    module = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
                    assert module.relative_to(folder).as_posix() in decisive | neutral, name


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"files": [1]}'])
def test_a_damaged_record_hides_no_other_run(in_finished, content):
    folder = in_finished.path.with_name("smoke-deadbeef")
    folder.mkdir()
    (folder / "record.json").write_text(content)
    try:
        assert [run.name for run in find_runs()] == [in_finished.name]
        assert runs.unreadable_runs() == ["papermill_runs/tiny/smoke-deadbeef"]
        assert faults(folder) == ["record.json is missing or cannot be read"]
    finally:
        (folder / "record.json").unlink()
        folder.rmdir()


def test_damaged_data_stop_a_run_before_it_starts(root, monkeypatch):
    make_project(root, STUDY)
    manifest = root / "experiments.yml"
    manifest.write_text(manifest.read_text().replace("    profiles:", "    data: [MNIST]\n    profiles:"))
    monkeypatch.setenv("MLOGB_MNIST", str(root / "no-such-folder"))
    with pytest.raises(UsageError, match="no-such-folder: expected one of"):
        execute("tiny", "smoke")
    assert not (root / "papermill_runs").exists()


def test_a_stored_run_is_shown_where_nothing_can_be_written(in_finished, monkeypatch):
    """The lock is taken only for what moves or makes a file, such as figures that are not moved yet."""

    def refuse(_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(locks, "one_at_a_time", refuse)
    again = execute("tiny", "smoke")
    assert (again.path, again.reused) == (in_finished.path, True)
    figures = in_finished.path / "figures"
    figures.mkdir()
    for options in ({}, {"again": True}, {"redraw": True}):
        with pytest.raises(OSError, match="Read-only"):
            execute("tiny", "smoke", **options)
    figures.rmdir()


def test_a_file_that_is_removed_while_it_is_read_does_not_end_the_search_for_a_stored_run(
    in_finished, monkeypatch
):
    """As when another batch replaces the run; under the lock it is complete."""
    find, asked = runs.stored, []

    def stored(request):
        asked.append(request)
        if len(asked) == 1:
            raise FileNotFoundError(2, "No such file", "results.parquet")
        return find(request)

    monkeypatch.setattr(runs, "stored", stored)
    assert execute("tiny", "smoke").reused


def test_a_lock_goes_while_it_is_held_and_without_locks_after_its_file_is_closed(tmp_path, monkeypatch):
    """Windows has no `fcntl` and removes no file that is open."""
    opened, closed = [], []
    open_, unlink = Path.open, Path.unlink
    lock = tmp_path / f"{locks.owner()}.lock"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda *arguments: opened.append(open_(*arguments)) or opened[-1])
        patch.setattr(Path, "unlink", lambda path, **_: closed.append(opened[-1].closed) or unlink(path))
        for module in (fcntl, None):
            patch.setattr(locks, "fcntl", module)
            with locks.held(lock):
                assert lock.exists()
            assert not lock.exists()
    assert closed == [False, True]
    assert all(file.closed for file in opened)


def test_a_path_on_another_drive_is_shown_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert paths.relative(tmp_path / "a" / "b") == os.path.join("a", "b")  # noqa: PTH118
    assert paths.relative(tmp_path, tmp_path / "a") == ".."

    def other_drive(*_):
        raise ValueError("path is on mount 'C:', start on mount 'D:'")

    monkeypatch.setattr(os.path, "relpath", other_drive)
    assert paths.relative(tmp_path / "a") == str(tmp_path / "a")
    with pytest.raises(OSError, match="No space left") as full, paths.naming(tmp_path / "a"):
        raise OSError(28, "No space left on device")
    assert full.value.filename == str(tmp_path / "a")


def test_one_process_at_a_time_puts_a_run_in_place(tmp_path):
    """Threads get the lock one after the other, so what they do with it does not overlap."""
    events = []

    def work(name):
        with locks.one_at_a_time(tmp_path / "runs"):
            events.append(name)
            time.sleep(0.05)
            events.append(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(events) == 6
    assert events[::2] == events[1::2]
