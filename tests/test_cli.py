"""The command line: exit codes, and plain lines on the right stream."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from batch_project import STUDY, cell, make_project

from compendium import cli, provenance
from compendium.paths import FailureError


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLOGB_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(provenance, "code_digest", lambda: "c" * 64)
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
        (["minst"], "unknown experiment 'minst'; there are: tiny\n"),
        (["tiny", "--profile", "big"], "unknown profile 'big'; there are: smoke, paper\n"),
        (["tiny"], "unknown profile 'standard'; there are: smoke, paper\n"),
        (
            ["tiny", "--profile", "smoke", "-p", "rounds=3"],
            "unknown parameter 'rounds'; there are: n_rounds, step_size, label, sizes, quick, extra\n",
        ),
        (
            ["tiny", "--profile", "smoke", "-p", "n_rounds=many"],
            "parameter n_rounds must be int (its default is 10), got 'many' (str)\n",
        ),
        (["tiny", "--profile", "smoke", "-p", "n_rounds"], "-p n_rounds: expected name=value\n"),
    ],
)
def test_wrong_requests_exit_with_2(mlogb, root, arguments, message):
    make_project(root, STUDY)
    assert mlogb("run", *arguments) == (2, "", message)
    assert not (root / "papermill_runs").exists()


def test_zero_jobs_are_refused(mlogb):
    assert mlogb("run", "tiny", "--jobs", "0")[0] == 2


def test_run_then_reuse_then_list(mlogb, root):
    make_project(root, STUDY)
    arguments = ("run", "tiny", "--profile", "smoke", "-p", "label=x", "-p", "n_rounds=2", "--jobs", "2")
    code, out, err = mlogb(*arguments)
    [path] = (root / "papermill_runs/tiny").iterdir()
    name = f"papermill_runs/tiny/{path.name}"
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith(f"{name} took ")
    assert lines[1] == "  data: Digits, 5,000 rows, from nowhere"
    assert {line.strip() for line in lines[2:4]} == {"figures/local/regret.pdf", "figures/local/regret.png"}
    assert lines[4] == f"to look at it: jupyter lab {name}/tiny.ipynb"
    code, out, err = mlogb(*arguments)
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == f"{name} is there already and complete; --fresh executes it again"
    (root / "figures/local/regret.png").write_bytes(b"of another run")
    assert "some of its figures have been replaced" in mlogb(*arguments)[1]
    code, out, _ = mlogb("runs")
    assert code == 0
    assert out.startswith(name)
    assert out.rstrip().endswith("label='x', n_rounds=2")


def test_failing_cell_exits_with_1(mlogb, root):
    make_project(root, cell("1 / 0"))
    code, out, err = mlogb("run", "tiny", "--profile", "smoke")
    assert (code, out) == (1, "")
    first, second = err.splitlines()
    assert first == "code cell 3 (1 / 0) failed: ZeroDivisionError: division by zero"
    assert second.startswith("as far as it got: papermill_runs/tiny/.partial-smoke-")
    assert Path(second.removeprefix("as far as it got: ")).is_file()
    assert mlogb("runs") == (0, "", "")


def test_terminated_process(root):
    """A real process that is told to terminate: no traceback, nothing kept, and it does not hang."""
    make_project(root, STUDY, cell("(run / 'here').touch(); import time; time.sleep(60)"))
    command = [
        sys.executable,
        "-c",
        "from compendium.cli import main; main()",
        "run",
        "tiny",
        "--profile",
        "smoke",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not list(root.glob("papermill_runs/tiny/*/here")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    assert err == "interrupted; finished trials are kept, so the next run goes on from them\n"
    assert list((root / "papermill_runs/tiny").iterdir()) == []


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


def test_notebooks(mlogb, root):
    make_project(root, cell("print(n_rounds)"))
    code, _, err = mlogb("notebooks", "check")
    assert code == 1
    assert "tiny.ipynb is missing" in err
    assert mlogb("notebooks", "build", "notebooks") == (0, "notebooks/tiny.ipynb\n", "")
    assert mlogb("notebooks", "check") == (0, "the notebooks agree with their texts\n", "")
    assert mlogb("notebooks", "check", "nothing")[0] == 2


def test_data_and_readme_call_their_modules(mlogb, monkeypatch):
    found = SimpleNamespace(describe=lambda: "5,000 of 70,000 rows")
    monkeypatch.setitem(sys.modules, "compendium.data", SimpleNamespace(load_mnist=lambda download: found))
    assert mlogb("data") == (0, "5,000 of 70,000 rows\n", "")

    def damaged(download: bool) -> None:
        raise ValueError("digits.csv is damaged")

    monkeypatch.setitem(sys.modules, "compendium.data", SimpleNamespace(load_mnist=damaged))
    assert mlogb("data") == (1, "", "digits.csv is damaged\n")

    def update_readme(check: bool) -> None:
        if check:
            raise FailureError("README.md is not up to date")

    monkeypatch.setitem(sys.modules, "compendium.report", SimpleNamespace(update_readme=update_readme))
    assert mlogb("readme") == (0, "", "")
    assert mlogb("readme", "--check") == (1, "", "README.md is not up to date\n")


def test_help_does_not_import_the_heavy_libraries():
    code = (
        "import sys\nfrom compendium.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
        "print(sorted({'numpy', 'pandas', 'papermill', 'jupytext', 'nbformat'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_disk_that_cannot_be_written_is_said_in_one_line(mlogb, monkeypatch):
    from compendium import manifest

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "results.parquet")

    monkeypatch.setattr(manifest, "load_manifest", full)
    assert mlogb("list") == (1, "", "No space left on device: results.parquet\n")


def test_an_interrupt_is_said_in_one_line(mlogb, monkeypatch):
    from compendium import manifest

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(manifest, "load_manifest", interrupted)
    assert mlogb("list")[0] == 130
