"""The command line: exit codes, and what is printed to which stream."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from batch_project import MANIFEST, ROOT, STUDY, cell, command, make_project, wait_until

from compendium import cli
from compendium.experiments import journal
from compendium.runs import manifest, request, verification
from compendium.runs import run as runs
from compendium.system import paths
from compendium.system.paths import FailureError


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLOGB_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def mlogb(capfd):
    """Call the command line; returns exit code, stdout and stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            cli.main(list(arguments))
        return (left.value.code or 0, *capfd.readouterr())

    return call


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("minst", "unknown experiment 'minst'; there are: tiny\n"),
        ("tiny --profile big", "unknown profile 'big'; there are: smoke, paper\n"),
        ("tiny", "unknown profile 'standard'; there are: smoke, paper\n"),
        (
            "tiny --profile smoke -p rounds=3",
            "unknown parameter 'rounds'; there are: n_rounds, step_size, label, sizes, quick, extra\n",
        ),
        (
            "tiny --profile smoke -p n_rounds=many",
            "parameter n_rounds must be int (its default is 10), got 'many' (str)\n",
        ),
        ("tiny --profile smoke -p n_rounds", "-p n_rounds: expected name=value\n"),
        ("tiny --profile smoke -p n_rounds=1 -p n_rounds=2", "-p gives n_rounds twice\n"),
        (
            "tiny --profile smoke --shard 3/2",
            "--shard must be I/N with 1 <= I <= N, such as 1/8, got '3/2'\n",
        ),
        (
            "tiny --profile smoke --shard 1/2 --cluster tcp://localhost:1",
            "--shard and --cluster are two ways to share the work; choose one\n",
        ),
        (
            "tiny --profile smoke --cluster foo",
            "--cluster must be an address such as tcp://10.0.0.5:8786, got 'foo'\n",
        ),
        (
            "tiny --profile smoke --redraw --again",
            "--redraw computes nothing: it goes with none of --again, --shard, --cluster, --dry-run\n",
        ),
        ("", "give the name of an experiment (`mlogb list` has them), or --all for all of them\n"),
        ("tiny --all", "give the name of an experiment (`mlogb list` has them), or --all for all of them\n"),
        (
            "--all --profile smoke -p n_rounds=2",
            "-p changes the parameters of one experiment; with --all give none\n",
        ),
        ("--all", "unknown profile 'standard'; there are: smoke, paper\n"),
    ],
)
def test_wrong_requests_exit_with_2(mlogb, root, arguments, message):
    make_project(root, STUDY)
    assert mlogb("run", *arguments.split()) == (2, "", message)
    assert not (root / "papermill_runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("verify nosuch", "nosuch is not a run: there is no such folder\n"),
        ("notebooks check nosuch.md", "nosuch.md does not exist\n"),
    ],
)
def test_what_is_not_there_is_named_as_it_was_written(mlogb, root, arguments, message):
    make_project(root)
    assert mlogb(*arguments.split()) == (2, "", message)


def test_zero_jobs_are_refused(mlogb):
    assert mlogb("run", "tiny", "--jobs", "0")[0] == 2


@pytest.mark.slow
def test_run_then_reuse_then_list(mlogb, root, monkeypatch):
    make_project(root, STUDY)
    with_data = MANIFEST.replace("    profiles:", "    data: [MNIST, InstEval]\n    profiles:")
    (root / "experiments.yml").write_text(with_data)
    monkeypatch.setattr(request, "_checksum", lambda name: {"MNIST": "0"}.get(name))
    absent = "  not on the machine that computed it, and left out where it was asked for: InstEval"
    arguments = ("run", "tiny", "--profile", "smoke", "-p", "label=x", "-p", "n_rounds=2", "--jobs", "2")
    code, out, err = mlogb(*arguments)
    [path] = (root / "papermill_runs/tiny").iterdir()
    name = f"papermill_runs/tiny/{path.name}"
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith(f"{name} took ")
    assert lines[1] == "  data: Digits, 5,000 rows, from nowhere"
    assert lines[2] == absent
    assert {line.strip() for line in lines[3:5]} == {"figures/local/regret.pdf", "figures/local/regret.png"}
    assert lines[5] == f"to look at it: jupyter lab {name}/tiny.ipynb"
    code, out, err = mlogb(*arguments)
    assert (code, err) == (0, "")
    assert out.splitlines().count(absent) == 1  # a stored run says so as well
    found, made = out.splitlines()[:2]
    assert found == f"{name} is there already and complete; --again computes it again"
    assert re.fullmatch(r"  computed by (commit \w{9}|code without a commit) on 20\d\d-\d\d-\d\d", made)
    text = root / "notebooks" / "tiny.md"
    text.write_text(text.read_text() + "\nMore.\n")
    changed = "  notebooks/tiny.md has changed since; --redraw executes it as it is now"
    assert changed in mlogb(*arguments)[1].splitlines()
    (root / "figures/local/regret.png").write_bytes(b"of another run")
    assert "some of its figures have been replaced" in mlogb(*arguments)[1]
    code, out, _ = mlogb("runs")
    assert code == 0
    assert out.startswith(name)
    assert out.rstrip().endswith("label='x', n_rounds=2")


def test_all_experiments_run_and_one_that_fails_stops_no_other(mlogb, root, monkeypatch):
    make_project(root, STUDY)
    more = MANIFEST[MANIFEST.index("  tiny:") :].replace("tiny:", "second:").replace("{step_size: 2}", "{}")
    (root / "experiments.yml").write_text(
        MANIFEST + more.replace("    profiles:", "    grid: {label: [a, b]}\n    profiles:")
    )
    asked = []

    def execute(name, profile, overrides, jobs, again, orders, point, redraw, timeout):
        asked.append((name, profile, overrides, jobs, again, orders, point, redraw, timeout))
        raise FailureError("failed")

    monkeypatch.setattr(runs, "execute", execute)
    code, out, err = mlogb("run", "--all", "--profile", "smoke", "--jobs", "3", "--again")
    assert (code, out) == (1, "tiny:\nsecond, label='a':\nsecond, label='b':\n")
    assert err == "tiny: failed\nsecond, label='a': failed\nsecond, label='b': failed\n"
    points = [("tiny", {}), ("second", {"label": "a"}), ("second", {"label": "b"})]
    assert asked == [(name, "smoke", {}, 3, True, None, point, False, None) for name, point in points]


@pytest.mark.slow
def test_failing_cell_exits_with_1(mlogb, root):
    make_project(root, cell("1 / 0"))
    code, out, err = mlogb("run", "tiny", "--profile", "smoke")
    assert (code, out) == (1, "")
    first, second = err.splitlines()
    assert first == "code cell 3 (1 / 0) failed: ZeroDivisionError: division by zero"
    assert second.startswith("as far as it got: papermill_runs/tiny/.partial-smoke-")
    assert Path(second.removeprefix("as far as it got: ")).is_file()
    assert mlogb("runs") == (0, "", "")


@pytest.mark.slow
@pytest.mark.parametrize("request_to_end", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_process_that_is_asked_to_end(root, request_to_end):
    """A process that is asked to end prints no traceback, leaves no file and does not hang."""
    make_project(root, STUDY, cell("(run / 'here').touch(); import time; time.sleep(60)"))
    pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command("run", "tiny", "--profile", "smoke"), **pipes)
    wait_until(lambda: list(root.glob("papermill_runs/tiny/*/here")))
    os.kill(process.pid, request_to_end)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert out == ""
    assert err == "interrupted; finished trials are kept, so the next run goes on from them\n"
    assert list((root / "papermill_runs/tiny").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (
            "import time; time.sleep(600)",
            ["--timeout", "25"],
            "a cell took longer than 25 s in the cell: import time; time.sleep(600)",
        ),
        ("while True: print('x' * 9999)", [], "the notebook printed more than 10,000,000 characters"),
    ],
)
def test_a_cell_that_never_ends_is_stopped(mlogb, root, source, options, message):
    make_project(root, STUDY, cell(source))
    code, _, err = mlogb("run", "tiny", "--profile", "smoke", *options)
    assert code == 1
    assert err.startswith(message)
    assert runs.find_runs() == []


def set_grid(root, grid):
    text = MANIFEST.replace("    parameters: {step_size: 2}", f"    grid: {grid}")
    (root / "experiments.yml").write_text(text)


@pytest.mark.slow
def test_the_other_points_of_a_grid_are_run_if_a_kernel_dies(mlogb, root):
    make_project(root, STUDY, cell("if label == 'bad': os._exit(1)"))
    set_grid(root, "{label: [bad, good]}")
    code, out, err = mlogb("run", "tiny", "--profile", "smoke")
    assert code == 1
    assert err.startswith("label='bad': Kernel died in the cell: if label == 'bad'")
    [done] = runs.find_runs()
    assert done.record["point"] == {"label": "good"}
    assert (done.record["parameters"]["label"], done.record["overrides"]) == ("good", {})
    assert out.splitlines()[:2] == ["tiny, label='bad':", "tiny, label='good':"]
    assert out.splitlines()[2].startswith(f"{done.name} took ")
    code, out, _ = mlogb("status")
    assert (code, out.startswith("no batch is under way")) == (0, True)  # there is no trial to continue with
    assert "a run for each of: label=['bad', 'good']" in mlogb("list")[1]


@pytest.mark.slow
def test_a_point_of_the_grid_whose_data_are_absent_is_left_out(mlogb, root, monkeypatch):
    told = (
        'from compendium.experiments import DataError\nif label == "bad":\n    raise DataError("no InstEval")'
    )
    make_project(root, cell(told), STUDY)
    set_grid(root, "{label: [bad, good]}\n    data: [InstEval]")
    monkeypatch.setattr(request, "_checksum", lambda name: None)
    code, out, err = mlogb("run", "tiny", "--profile", "smoke")
    assert (code, err) == (0, "")
    assert "tiny, label='bad': left out. " in out
    assert "DataError: no InstEval" in out
    assert (
        len(list((root / "papermill_runs/tiny").iterdir())) == 1
    )  # the good one; nothing is left of the bad one
    assert mlogb("run", "tiny", "--profile", "smoke", "-p", "label=bad")[0] == 1  # somebody asks for it
    monkeypatch.setattr(request, "_checksum", lambda name: "0")
    code, out, _ = mlogb("run", "tiny", "--profile", "smoke")
    assert code == 1  # the data are there, so that the error says something else
    assert "left out" not in out


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ("{lable: [a]}", "unknown parameter 'lable'; there are: n_rounds, step_size, label"),
        ("{label: [a, 3]}", "parameter label must be str"),
        ("{step_size: [1, 1.0]}", "experiments.tiny.grid: two of its points have the same parameters"),
        ("{step_size: [0.001, 1e-3]}", "experiments.tiny.grid: two of its points have the same parameters"),
        ("{label: []}", "experiments.yml is not a valid manifest"),
    ],
)
def test_a_bad_grid_is_refused_before_anything_starts(mlogb, root, grid, message):
    make_project(root, STUDY)
    set_grid(root, grid)
    code, out, err = mlogb("run", "tiny", "--profile", "smoke")
    assert (code, out) == (2, "")
    assert err.startswith(message)
    assert not (root / "papermill_runs").exists()


def test_a_point_that_finds_the_disk_full_does_not_stop_the_others(mlogb, root, monkeypatch):
    make_project(root, STUDY)
    set_grid(root, "{label: [a, b, c]}")
    asked = []

    def execute(*_, point, **__):
        asked.append(point)
        raise OSError(28, "No space left on device", "results.parquet")

    monkeypatch.setattr(runs, "execute", execute)
    line = "No space left on device: results.parquet\n"
    expected = "".join(f"label='{name}': {line}" for name in "abc")
    heads = "".join(f"tiny, label='{name}':\n" for name in "abc")
    assert mlogb("run", "tiny", "--profile", "smoke") == (1, heads, expected)
    assert asked == [{"label": name} for name in "abc"]


def test_a_point_without_tables_does_not_stop_the_others_from_being_drawn_again(mlogb, root):
    """As after a run whose first points were left out, since their data were absent."""
    make_project(root, STUDY)
    set_grid(root, "{label: [a, b]}")
    code, out, err = mlogb("run", "tiny", "--profile", "smoke", "--redraw")
    assert (code, out) == (1, "tiny, label='a':\ntiny, label='b':\n")
    assert [line.partition(": ")[0] for line in err.splitlines()] == ["label='a'", "label='b'"]
    assert err.count("is not there, so there are no tables to draw it from") == 2
    assert mlogb("run", "tiny", "--profile", "smoke", "--redraw", "-p", "label=a")[0] == 2


@pytest.mark.slow
def test_a_plan_of_a_notebook_without_a_study_keeps_nothing(mlogb, root):
    make_project(root, STUDY)
    message = "no trial is left to compute; nothing was kept: this was the plan only\n"
    assert mlogb("run", "tiny", "--profile", "smoke", "--dry-run") == (0, message, "")
    assert [path.name for path in root.glob("papermill_runs/**/*") if path.is_file()] == [".lock"]


def test_status_has_a_line_for_each_run(mlogb, root, monkeypatch):
    make_project(root)

    def batch(run, trials="", running=0, unknown=0):
        return journal.Batch(
            root, "tiny", "smoke", run, "2026-11-28", frozenset(trials), None, running, unknown
        )

    for key in "abc":
        paths.write_atomically(paths.trials_folder() / f"{key}.parquet", "")
        os.utime(paths.trials_folder() / f"{key}.parquet", (1.8e9 + ord(key),) * 2)
    batches = [
        batch("smoke-1", "abcdefgh", running=2, unknown=1), batch("smoke-2", "x", running=1),
        batch("smoke-3"), batch("smoke-4", "ab", unknown=1), batch("smoke-5", unknown=1),
    ]  # fmt: skip
    monkeypatch.setattr(journal, "batches", lambda: batches)
    on = "stopped; the same `mlogb run` goes on from there"
    far = "on another machine; whether it still runs cannot be told from here"
    assert mlogb("status")[1].splitlines() == [
        "tiny/smoke-1, since 2026-11-28: 3 of 8 trials stored; running in 2 processes",
        "tiny/smoke-2, since 2026-11-28: 0 of 1 trials stored; running",
        f"tiny/smoke-3, since 2026-11-28: no trial known yet; {on}",
        f"tiny/smoke-4, since 2026-11-28: 2 of 2 trials stored; {far}, "
        "the last trial was stored 2027-01-15T08:01:38+00:00",
        f"tiny/smoke-5, since 2026-11-28: no trial known yet; {far}",
    ]
    monkeypatch.setattr(journal, "batches", list)
    assert mlogb("status")[1].startswith("no batch is under way or was left unfinished")


def test_clean(mlogb, root, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(root))
    make_project(root)
    trial = root / "papermill_runs" / ".trials" / "abc.parquet"
    trial.parent.mkdir(parents=True)
    trial.write_bytes(b"x" * 200_000)
    line = "papermill_runs/.trials/abc.parquet  0.2 MB\n"
    assert mlogb("clean", "--dry-run") == (0, f"{line}1 files or folders, 0.2 MB, to remove\n", "")
    assert trial.exists()
    assert mlogb("clean") == (0, f"{line}1 files or folders, 0.2 MB, removed\n", "")
    assert not trial.exists()


def test_verify(mlogb, root, monkeypatch, tmp_path_factory):
    make_project(root)
    record = {key: kind() for key, kind in runs.RECORD_ENTRIES.items()}
    attested, computed = [], []
    monkeypatch.setattr(
        verification, "attest", lambda run, report: attested.append(run.name) or "by this code"
    )
    for name in ("smoke-00000001", "smoke-00000002"):
        path = root / "papermill_runs" / "tiny" / name / "record.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(record))
    (path.parent.with_name("smoke-00000003")).mkdir()
    (path.parent.with_name("smoke-00000003") / "record.json").write_text("{")

    def verify(run, sample, report):
        report.say(f"sample {sample}")
        report.computed, report.trials = computed, len(computed)
        report.gaps += ["needs a package"] * (sample is None)
        report.notes += ["its text has changed"] * (sample is None)
        return ["x"] * sample if "2" in run.name else []

    monkeypatch.setattr(verification, "verify", verify)
    code, out, err = mlogb("verify", "--sample", "2")
    assert code == 1
    assert out.splitlines() == [
        "  sample 2", "papermill_runs/tiny/smoke-00000001: verified",
        "  sample 2", "papermill_runs/tiny/smoke-00000002: NOT as recorded",
    ]  # fmt: skip
    assert err.splitlines() == [
        "papermill_runs/tiny/smoke-00000003: its record cannot be read",
        *["papermill_runs/tiny/smoke-00000002: x"] * 2,
    ]
    assert mlogb("verify", "papermill_runs/tiny/smoke-00000001")[0] == 0
    code, out, _ = mlogb("verify", "--all", "papermill_runs/tiny/smoke-00000001")
    assert (code, out.splitlines()) == (3, [
        "  sample None", "  its text has changed", "  not checked: needs a package",
        "papermill_runs/tiny/smoke-00000001: verified, but for what was not checked",
    ])  # fmt: skip
    _, out, _ = mlogb("verify", "--sample", "0", "papermill_runs/tiny/smoke-00000001")
    assert "  no trial was computed again" in out.splitlines()
    code, out, _ = mlogb("verify", "--attest")
    assert (code, attested) == (1, [])
    assert out.splitlines()[1] == "  not attested: no trial was computed again"
    computed.append("a trial")
    code, out, _ = mlogb("verify", "--attest")
    assert (code, attested) == (1, ["papermill_runs/tiny/smoke-00000001"])
    assert "  attested: by this code" in out.splitlines()
    assert mlogb("verify", "--attest", "--sample", "0")[0] == 2
    assert mlogb("verify", "papermill_runs/tiny/nothing")[0] == 2
    outside = tmp_path_factory.mktemp("outside")
    (outside / "record.json").write_text(json.dumps(record))
    code, _, err = mlogb("verify", str(outside))
    assert (code, "is not in the project at" in err) == (2, True)


def test_list(mlogb, root):
    text = make_project(root)
    code, out, _ = mlogb("list")
    assert code == 0
    assert "tiny: A tiny experiment" in out
    assert "n_rounds=10, step_size=0.5, label='none', sizes=[1, 2], quick=False, extra=None" in out
    assert "  smoke: n_rounds=3\n" in out
    text.unlink()
    code, out, err = mlogb("list")
    assert (code, err) == (0, "")
    assert "notebooks/tiny.md does not exist yet" in out
    code, _, err = mlogb("run", "tiny", "--profile", "smoke")
    assert code == 2
    assert err.endswith("tiny.md does not exist\n")


@pytest.mark.slow
def test_notebooks(mlogb, root):
    make_project(root, cell("print(n_rounds)"))
    code, _, err = mlogb("notebooks", "check")
    assert code == 1
    assert "tiny.ipynb is missing" in err
    assert mlogb("notebooks", "build", "notebooks") == (0, "notebooks/tiny.ipynb\n", "")
    assert mlogb("notebooks", "check") == (0, "the notebooks agree with their texts\n", "")
    assert mlogb("notebooks", "check", "nothing")[0] == 2


def test_data_and_readme_call_their_modules(mlogb, monkeypatch):
    found = SimpleNamespace(describe=lambda: "5,000 of 70,000 rows", is_full=False)
    monkeypatch.setitem(
        sys.modules, "compendium.experiments.data", SimpleNamespace(load_mnist=lambda download: found)
    )
    assert mlogb("data") == (0, "5,000 of 70,000 rows\n", "")
    nothing = "these are not all 70,000: nothing was downloaded\n"
    assert mlogb("data", "--download") == (1, "5,000 of 70,000 rows\n", nothing)
    found.is_full = True
    assert mlogb("data", "--download")[0] == 0

    def damaged(download: bool) -> None:
        raise ValueError("digits.csv is damaged")

    monkeypatch.setitem(sys.modules, "compendium.experiments.data", SimpleNamespace(load_mnist=damaged))
    assert mlogb("data") == (1, "", "digits.csv is damaged\n")

    def update(check: bool) -> None:
        if check:
            raise FailureError("README.md is not up to date")

    written = []
    for name, module in {
        "readme": SimpleNamespace(update=update),
        "results": SimpleNamespace(write=update),
        "article": SimpleNamespace(write=lambda check: written.append(("article", check))),
        "choosing": SimpleNamespace(write=lambda check: written.append(("choosing", check))),
        "which_one": SimpleNamespace(write=lambda check: written.append(("which_one", check))),
    }.items():
        monkeypatch.setattr(f"compendium.report.{name}", module, raising=False)
    for count, name in enumerate(("readme", "results"), 1):
        assert mlogb(name) == (0, "", "")
        assert written == [("article", False), ("choosing", False), ("which_one", False)] * count
        assert mlogb(name, "--check") == (1, "", "README.md is not up to date\n")


def test_help_does_not_import_the_heavy_libraries():
    code = (
        "import sys\nfrom compendium.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
        "print(sorted({'numpy', 'pandas', 'papermill', 'jupytext', 'nbformat'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (OSError(28, "No space left on device", "a.parquet"), 1, "No space left on device: a.parquet\n"),
        (KeyboardInterrupt(), 130, ""),  # Typer ends the process
    ],
)
def test_a_full_disk_is_reported_and_an_interrupt_has_its_exit_code(mlogb, monkeypatch, error, code, line):
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(manifest, "load_manifest", fail)
    assert mlogb("list") == (code, "", line)


@pytest.mark.parametrize(
    "arguments", [["minst"], pytest.param(["synthetic", "--profile", "paper"], marks=pytest.mark.slow)]
)
def test_a_misspelt_name_and_a_stored_run_need_no_slow_import(arguments):
    """They take as long as reading the manifest and the records does, which is less than a second."""
    script = (
        f"import sys\nfrom compendium import cli\n"
        f"try: cli.main({['run', *arguments]!r})\nexcept SystemExit as left: print(left.code)\n"
        "print(sorted({'pandas', 'joblib', 'jupytext', 'nbformat', 'scipy', 'lark'} & set(sys.modules)))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "MLOGB_ROOT"}
    environment["PYTHONPATH"] = str(ROOT)  # without what `make test` leaves out
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parents[1], env=environment, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-2:] == ["2" if arguments == ["minst"] else "0", "[]"]
    assert done.stdout.count("is there already and complete") == (0 if arguments == ["minst"] else 2)


def test_a_value_out_of_its_limits_starts_nothing(mlogb, root):
    """The message says where on the command line or in the manifest the value was written."""
    make_project(root, STUDY)
    file = root / "experiments.yml"
    file.write_text("limits: {n_rounds: {minimum: 1}, sizes: {items: {minimum: 1}}}\n" + MANIFEST)
    for value, message in (
        ("n_rounds=0", "-p n_rounds=0: must be at least 1, got 0\n"),
        ("sizes=[3, -5]", "-p sizes=[3, -5]: item [1] must be at least 1, got -5\n"),
    ):
        assert mlogb("run", "tiny", "--profile", "smoke", "-p", value) == (2, "", message)
    file.write_text(file.read_text().replace("smoke: {n_rounds: 3}", "smoke: {n_rounds: 0}"))
    place = "experiments.yml, experiments.tiny.profiles.smoke: n_rounds=0"
    message = f"{place}: must be at least 1, got 0\n"
    assert mlogb("run", "tiny", "--profile", "smoke") == (2, "", message)
    assert not (root / "papermill_runs").exists()
