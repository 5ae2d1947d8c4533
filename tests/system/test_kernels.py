"""Kernels: no setting of a user reaches one, and a record says what its run was computed on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from batch_project import ROOT, git, make_real_project, numbers_of

from compendium.experiments import data, trials
from compendium.experiments.study import save
from compendium.runs import run as runs
from compendium.system import kernels, paths, provenance

#: Its two runs start a kernel each.
SLOW_FIXTURES = ("both",)

#: Settings on which the tables, printed numbers, warnings and figures of a notebook can depend.
HOSTILE_PYTHON = """
import numpy, pandas, warnings
numpy.set_printoptions(precision=1)
pandas.set_option("display.max_rows", 1, "display.precision", 1, "display.max_columns", 1)
"""
HOSTILE_STYLE = "font.size: 23\nlines.linewidth: 9\nsavefig.dpi: 31\naxes.facecolor: red\n"
#: Prints in the kernel which settings it has, without paths of this machine.
SHOWN = """
import os, platform, sys, time
platform.python_version = lambda: "0.0"
import numpy
seen = ("NUMBA_DISABLE_JIT", "HOSTILE", "LC_ALL", "LANG", "PYTHONHASHSEED")
print(numpy.array([1 / 3]), [name for name in seen if name in os.environ])
import matplotlib
flags = sys.flags.optimize, sys.warnoptions, sys.stdout.encoding
print(matplotlib.rcParams["font.size"], time.tzname, *flags, "leaked" in dir())
"""


def be_hostile(monkeypatch, folder: Path, notebooks: Path) -> None:
    """Make all settings that a user may have made, at once."""
    home, ipython = folder / "home", folder / "home" / ".ipython" / "profile_default"
    spec = folder / "jupyter" / "kernels" / "python3" / "kernel.json"
    files = {
        home / ".config/matplotlib/matplotlibrc": HOSTILE_STYLE,
        folder / "matplotlibrc": HOSTILE_STYLE,
        notebooks / "matplotlibrc": HOSTILE_STYLE,
        ipython / "startup/00-first.py": "leaked = 1\nprint('started')" + HOSTILE_PYTHON,
        ipython / "ipython_config.py": "c.InteractiveShellApp.exec_lines = ['leaked = 2']\n"
        "c.InteractiveShell.ast_node_interactivity = 'all'\n",
        ipython / "ipython_kernel_config.py": "c.InlineBackend.figure_formats = {'svg'}\n",
        home / ".jupyter/jupyter_config.json": '{"KernelManager": {"transport": "none"}}',
        folder / "sitecustomize.py": HOSTILE_PYTHON,
        folder / "pythonstartup.py": HOSTILE_PYTHON,
        # A kernel of another environment must not be started, whatever it computes.
        spec: json.dumps({"argv": ["false"], "display_name": "Another", "language": "python"}),
    }
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    monkeypatch.syspath_prepend(str(folder))  # as PYTHONPATH does
    for name, value in {
        "HOME": home, "PYTHONPATH": folder, "PYTHONSTARTUP": folder / "pythonstartup.py",
        "JUPYTER_PATH": folder / "jupyter", "JUPYTER_CONFIG_DIR": home / ".jupyter",
        "IPYTHONDIR": home / ".ipython", "MATPLOTLIBRC": folder / "matplotlibrc", "MPLBACKEND": "Agg",
        "PYTHONWARNINGS": "error", "PYTHONOPTIMIZE": "1", "PYTHONHASHSEED": "7",
        "PYTHONIOENCODING": "latin-1",
        "TZ": "Asia/Kathmandu", "LANG": "de_DE.UTF-8", "LC_ALL": "de_DE.UTF-8", "COLUMNS": "20",
        "NUMBA_DISABLE_JIT": "1", "OMP_NUM_THREADS": "2", "HOSTILE": "1", "XDG_CONFIG_HOME": home / ".config",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, str(value))


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The same run twice: without settings, and with all settings that a user may have made."""
    made = []
    for name in ("plain", "hostile"):
        root = tmp_path_factory.mktemp(name)
        text = make_real_project(root, SHOWN)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MLOGB_ROOT", str(root))
            if name == "hostile":
                be_hostile(patch, tmp_path_factory.mktemp("settings"), text.parent)
            made.append(runs.execute("tiny", "smoke"))
    return made


def test_no_variable_of_a_user_is_handed_to_a_kernel(monkeypatch, tmp_path):
    before = set(os.environ)
    be_hostile(monkeypatch, tmp_path / "settings", tmp_path / "notebooks")
    made = set(os.environ) - before
    handed = kernels.variables_of_kernels()
    own = {"HOME", "PYTHONPATH", "IPYTHONDIR", "JUPYTER_PATH", "JUPYTER_CONFIG_DIR", "TZ", "OMP_NUM_THREADS"}
    assert made & set(handed) <= own
    assert (handed["TZ"], handed["OMP_NUM_THREADS"]) == ("UTC", "1")
    folders = [handed[name] for name in ("IPYTHONDIR", "JUPYTER_PATH", "JUPYTER_CONFIG_DIR", "MPLCONFIGDIR")]
    assert [folder for folder in folders if Path(folder).is_relative_to(tmp_path)] == []
    first = Path(handed["PYTHONPATH"].partition(os.pathsep)[0])
    assert (first / "sitecustomize.py").read_text() == ""


def test_no_setting_of_a_user_changes_a_run(both):
    plain, hostile = both
    outputs = [json.loads((run.path / "tiny.ipynb").read_text()) for run in both]
    assert outputs[0] == outputs[1]
    assert numbers_of(plain.path) == numbers_of(hostile.path)
    assert plain.record["figures"] == hostile.record["figures"]
    shown = next(c for c in outputs[0]["cells"] if c.get("outputs") and "platform" in "".join(c["source"]))
    assert "".join(shown["outputs"][0]["text"]) == (
        "[0.33333333] []\n10.0 ('UTC', 'UTC') 0 [] UTF-8 False\n"  # so the settings did not change both runs
    )


def test_the_record_is_of_the_process_that_computed(both):
    """The kernel pretends to be Python 0.0, so the record shows whether it describes the kernel."""
    for run in both:
        environment = run.record["environment"]
        assert environment["python"] == "0.0"
        assert environment["threads"] == kernels.THREADS
        assert environment["jobs"] == 1
        assert environment["trials_elsewhere"] == []
        assert provenance.ENVIRONMENT not in run.record["files"]
        assert not (run.path / provenance.ENVIRONMENT).exists()


def test_trials_computed_elsewhere_are_in_the_record(both, tmp_path, monkeypatch):
    """A trial from the store, a worker or a cluster brings the description of what it was computed on."""
    from compendium.experiments.study import Study

    monkeypatch.setenv("MLOGB_ROOT", str(both[0].path.parents[2]))
    entry = both[0].record["study"]["studies"][0]
    study = Study.model_validate({name: entry[name] for name in Study.model_fields if name in entry})
    spec = study.specs()[0]
    frame = spec.compute()
    frame.attrs["computed_on"]["numpy"] = "0.1"
    frame.attrs["seconds"] = 1000.0
    trials.store(spec, frame, tmp_path)
    save(tmp_path, study.run(n_jobs=2, folder=tmp_path))
    handed = json.loads((tmp_path / provenance.ENVIRONMENT).read_text())
    assert [(one["numpy"], one["trials"]) for one in handed["trials_elsewhere"]] == [("0.1", 1)]
    assert 1000.0 < handed["trials_seconds"] < 1100.0
    assert handed["numpy"] == provenance.computed_on()["numpy"] != "0.1"


def test_without_a_home_folder(monkeypatch, tmp_path):
    """There is neither HOME nor an entry for the user, as with `docker run --user 12345`."""

    def unknown(_):
        raise KeyError("no such user")

    monkeypatch.setattr("pwd.getpwuid", unknown)
    for name in ("HOME", "MLOGB_MNIST", "SCIKIT_LEARN_DATA"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RuntimeError):
        Path.home()
    assert data.load_mnist().rows == 5000
    assert provenance.relative_paths(f"{paths.project_root()}/x") == "./x"
    assert Path(kernels.variables_of_kernels()["HOME"]).is_dir()
    with pytest.raises(data.DataError, match="SCIKIT_LEARN_DATA names another"):
        data.load_mnist(download=True)
    monkeypatch.setenv("MLOGB_MNIST", "~/digits")
    with pytest.raises(data.DataError, match="~/digits: this user has no home folder"):
        data.load_mnist()
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    monkeypatch.delenv("MLOGB_MNIST")
    assert data.load_mnist().rows == 5000


def test_folders_named_relatively_or_from_home_are_found_by_a_kernel(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLOGB_ROOT", str(ROOT))
    monkeypatch.setenv("MLOGB_MNIST", "~/digits")
    monkeypatch.setenv("MLOGB_FASHION", "here/fashion")
    handed = kernels.variables_of_kernels()
    assert handed["MLOGB_MNIST"] == str(Path.home() / "digits")
    assert handed["MLOGB_FASHION"] == str(tmp_path / "here" / "fashion")


def make_repository(folder: Path, *files: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    for name in files:
        (folder / name).write_text("x")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "x")
    return git(folder, "rev-parse", "HEAD")


def test_the_commit_is_that_of_the_code_and_not_of_a_repository_around_it(tmp_path, monkeypatch):
    unknown = {"git_commit": None, "git_clean": None}
    outer, own = tmp_path / "outer", tmp_path / "own ä {x} %"
    outer.mkdir()
    (outer / ".gitignore").write_text("ignored/\n")
    commits = {outer: make_repository(outer, "a"), own: make_repository(own, "b")}
    assert commits[outer] != commits[own]
    for name in ("ignored", "untracked"):
        (outer / name).mkdir()
        assert provenance.git_state(outer / name) == unknown
    tree = tmp_path / "tree"
    git(own, "worktree", "add", "-q", str(tree))
    nested = outer / "ignored" / "nested"
    commits[nested] = make_repository(nested, "c", "d")
    git(outer, "submodule", "--quiet", "add", str(own), "module")
    bare = tmp_path / "bare"
    git(tmp_path, "clone", "-q", "--bare", str(own), str(bare))
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "-q")
    (tmp_path / "link").symlink_to(own)
    clean = {"git_commit": commits[own], "git_clean": True}
    expected = {
        own: clean, tree: clean, outer / "module": clean, tmp_path / "link": clean,
        nested: {"git_commit": commits[nested], "git_clean": True},
        bare: unknown, tmp_path / "empty": unknown, tmp_path: unknown, outer / "ignored": unknown,
    }  # fmt: skip
    # Git sets these variables for its hooks, and they name another repository.
    for variables in ({}, {"GIT_DIR": f"{outer}/.git", "GIT_WORK_TREE": str(outer)}):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert {folder: provenance.git_state(folder) for folder in expected} == expected
    for name in ("GIT_DIR", "GIT_WORK_TREE"):
        monkeypatch.delenv(name)
    git(own, "config", "status.showUntrackedFiles", "no")
    (own / "new").touch()
    assert provenance.git_state(own) == {"git_commit": commits[own], "git_clean": False}
    if os.geteuid() == 0:  # the folder of another user, as in a container
        (own / "new").unlink()
        for path in (own, *own.rglob("*")):
            os.chown(path, 12345, 12345)
        assert provenance.git_state(own) == clean
    assert provenance.git_state(None) == unknown


def test_the_root_of_the_code_is_the_folder_of_both_packages(monkeypatch, tmp_path):
    assert provenance.code_root() == ROOT
    other = type("Spec", (), {"submodule_search_locations": [str(tmp_path / "mlogb_core")]})
    monkeypatch.setattr(provenance.importlib.util, "find_spec", lambda _: other)
    assert provenance.code_root() is None


def test_a_run_does_not_name_the_commit_of_the_folder_in_which_it_is_started(tmp_path, monkeypatch):
    """Git is asked for the commit of the code, and not for that of the project or of the working folder."""
    asked = []
    monkeypatch.setattr(provenance, "git_state", lambda root: asked.append(root) or {"git_commit": None})
    monkeypatch.setenv("MLOGB_ROOT", str(tmp_path))
    (tmp_path / "experiments.yml").touch()
    monkeypatch.setattr(runs, "_execute", lambda *_: "stopped")
    experiment = type("Experiment", (), {"source": ROOT / "notebooks" / "experiments" / "mnist.md"})
    from compendium.experiments.execution import Orders

    with pytest.raises(paths.FailureError, match="stopped"):
        runs._attempt(experiment, tmp_path / "part", {"experiment": "x", "parameters": {}}, Orders(), {})
    assert asked == [ROOT]


@pytest.mark.slow
def test_a_clone_on_windows_has_the_same_bytes(tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    git(tmp_path, "clone", "-q", "--shared", "-c", "core.autocrlf=true", str(ROOT), "clone")
    listed = git(tmp_path / "clone", "ls-files", "--eol").splitlines()
    assert len(listed) > 300
    assert [line for line in listed if "w/crlf" in line or "w/mixed" in line] == []
    assert git(tmp_path / "clone", "status", "--porcelain") == ""


@pytest.mark.slow
def test_figures_have_the_style_of_the_project(tmp_path):
    """They have it outside a kernel too, where the benchmarks draw."""
    (tmp_path / "matplotlibrc").write_text(HOSTILE_STYLE)
    code = "import compendium.report.figures, matplotlib; print(matplotlib.rcParams['font.size'])"
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "MATPLOTLIBRC": str(tmp_path / "matplotlibrc")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True)
    assert done.stdout == "10.0\n"
