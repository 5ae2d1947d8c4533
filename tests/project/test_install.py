"""What `pip install .` brings: the library with NumPy and SciPy, and nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def run(*command: str | Path, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **options)


def show(package: str, folder: Path) -> None:
    """Links to what an installed package consists of: its modules, its metadata, its bundled libraries."""
    installed = distribution(package)
    for name in {Path(str(file)).parts[0] for file in installed.files or () if ".." not in file.parts}:
        (folder / name).symlink_to(Path(str(installed.locate_file(name))))


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """The interpreter of an environment that has NumPy, SciPy and the wheel of this project alone."""
    pytest.importorskip(
        "setuptools", minversion="77", reason='building needs setuptools: pip install ".[test]"'
    )
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("mlogb_core", "compendium"):  # building leaves files beside the sources
        shutil.copytree(ROOT / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    options = ("--quiet", "--no-index", "--no-build-isolation", "--no-deps", "--wheel-dir", folder)
    built = run(*pip, "wheel", *options, folder / "source")
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "empty", with_pip=False, symlinks=True)
    (folder / "shown").mkdir()
    for package in ("numpy", "scipy"):
        show(package, folder / "shown")
    (packages,) = (folder / "empty").glob("[Ll]ib/**/site-packages")
    (packages / "shown.pth").write_text(f"{folder / 'shown'}\n")
    interpreter = folder / "empty" / "bin" / "python"
    # Without an index, pip fails on every dependency that is not there yet.
    installed = run(*pip, "--python", interpreter, "install", "--quiet", "--no-index", wheel)
    assert installed.returncode == 0, installed.stderr
    return interpreter


@pytest.mark.slow
def test_the_example_of_the_readme_plays_where_only_the_library_is_installed(python, tmp_path):
    program = f"{EXAMPLE}\nimport sys\nprint(policy.rounds, sorted({{n.split('.')[0] for n in sys.modules}}))"
    played = run(python, "-I", "-c", program, cwd=tmp_path)
    assert played.returncode == 0, played.stderr
    assert played.stdout.startswith("{'EOFD': ")
    assert "\n1000 " in played.stdout
    assert "'mlogb_core'" in played.stdout
    assert "'compendium'" not in played.stdout


COMPILED = """
from mlogb_core import RidgeRadius, eofd
options = dict(regularization=1.0, step_size=1.0, norm_bound=1.0, radius=RidgeRadius(1.0))
eofd(3, [1.0], sketch_size=2, compiled=True, **options)
"""
NO_NUMBA = 'ImportError: compiled=True needs numba: pip install ".[fast]"'
NO_TYPER = 'mlogb needs typer, which the extra `compendium` brings: pip install ".[compendium]"'


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("python", "-c", COMPILED), NO_NUMBA),
        (("python", "-m", "compendium", "list"), NO_TYPER),
        (("mlogb", "list"), NO_TYPER),
    ],
)
def test_what_needs_an_extra_names_it(python, tmp_path, command, said):
    tried = run(python.with_name(command[0]), *command[1:], cwd=tmp_path)
    assert tried.returncode == 1
    assert tried.stderr.splitlines()[-1] == said
    assert said is NO_NUMBA or tried.stderr == f"{said}\n"


def test_a_missing_module_of_the_project_is_no_missing_extra(monkeypatch):
    from compendium import __main__, cli

    def fail(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(cli, "main", lambda: fail("compendium.nothing"))
    with pytest.raises(ModuleNotFoundError):
        __main__.main()
    monkeypatch.setattr(cli, "main", lambda: fail("papermill.execute"))
    with pytest.raises(SystemExit, match="mlogb needs papermill, which the extra `compendium` brings"):
        __main__.main()
