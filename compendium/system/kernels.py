"""The kernels that execute notebooks: their interpreter, their environment variables and their configuration.

Outputs and figures are compared byte by byte, so no setting of a user may reach a kernel: no style of
matplotlib, no start-up file of IPython, no kernelspec of another environment, and no variable that changes
numbers, warnings or texts. A kernel runs the interpreter of this process, finds modules where this process
finds them, and has its own configuration in a temporary folder.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from compendium.system import locks, paths

KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
#: Threads change the last digits of BLAS results, and oversubscription costs a factor of ten.
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
#: Variables that tell a notebook what to compute and where to put it; no kernel may inherit them.
BATCH_VARIABLES = ("MLOGB_RUN_DIR", "MLOGB_ORDERS", "MLOGB_JOBS")
#: Options of both nbclient and papermill: each stream is one output, and the kernel logs critical errors
#: only.
CLIENT_OPTIONS: dict[str, Any] = {"coalesce_streams": True, "extra_arguments": ["--log-level=50"]}

#: Variables that a kernel inherits: those that a process needs to start and to find libraries and data, and
#: the one that chooses a BLAS kernel, because records name the BLAS kernel that was used.
_INHERITED = {
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TEMP", "TMP", "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME",
    "PYTHONNOUSERSITE", "PYTHONUSERBASE", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX",
    "OPENBLAS_CORETYPE", "NUMBA_CACHE_DIR", "SCIKIT_LEARN_DATA",
    # Without some of these Windows does not start a process.
    "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "USERPROFILE", "HOMEDRIVE", "HOMEPATH",
    "USERNAME", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES", "NUMBER_OF_PROCESSORS",
}  # fmt: skip
_INHERITED_PREFIXES = ("MLOGB_", "JOBLIB_", "LOKY_", "DASK_")
#: Variables that name folders. They are made absolute, since a kernel has another working folder.
_FOLDERS = ("MLOGB_MNIST", "MLOGB_FASHION", "SCIKIT_LEARN_DATA")

#: matplotlib reads a matplotlibrc in the working folder before any other, so the defaults are restored.
_STARTUP = "import matplotlib\nmatplotlib.rcdefaults()\ndel matplotlib\n"
#: How the name of a temporary folder begins.
_PREFIX = "mlogb-"


@contextmanager
def kernel_environment(**variables: str) -> Iterator[None]:
    """Give the kernels that start inside the block a fixed environment and configuration.

    The kernel ``python3`` is the interpreter of this process, with one BLAS thread, the time zone UTC and
    none of the user's settings (see `variables_of_kernels`). Of the variables by which a batch instructs its
    kernel it has only those that are given. This process has the same environment inside the block.

    Parameters
    ----------
    **variables : str
        Further variables of the kernels.
    """
    chosen = {**variables_of_kernels(), **variables}
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(chosen)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def variables_of_kernels() -> dict[str, str]:
    """Return the environment of a kernel, which is made from that of this process.

    A variable that is not known to be needed is left out, because nobody knows all variables that change
    outputs: ``MPLBACKEND=Agg`` removes all figures, ``PYTHONWARNINGS`` stops a notebook, ``COLUMNS`` breaks
    lines.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.upper() in _INHERITED or name.startswith(_INHERITED_PREFIXES)
        if name not in BATCH_VARIABLES
    }
    for name in _FOLDERS:
        if kept.get(name) and kept[name] != paths.SHIPPED:
            # `Path.expanduser` fails without a home folder. The loader of the data reports that more clearly.
            kept[name] = str(Path(os.path.expanduser(kept[name])).absolute())  # noqa: PTH111
    configuration = _configuration()
    if paths.home() is None:
        kept["HOME"] = str(configuration / "home")
    # The folder of the configuration comes first, so that its empty sitecustomize hides one of the user.
    places = [str(configuration / "python"), *(str(Path(place).absolute()) for place in sys.path if place)]
    return {
        **kept,
        **THREADS,
        "MLOGB_ROOT": str(paths.project_root()),
        "PYTHONPATH": os.pathsep.join(places),
        "PYTHONUTF8": "1",
        "TZ": "UTC",
        "JUPYTER_PATH": str(configuration / "jupyter"),
        "JUPYTER_CONFIG_DIR": str(configuration / "jupyter"),
        "JUPYTER_DATA_DIR": str(configuration / "jupyter"),
        "JUPYTER_RUNTIME_DIR": str(configuration / "runtime"),
        "JUPYTER_NO_CONFIG": "1",
        "JUPYTER_PLATFORM_DIRS": "1",
        "IPYTHONDIR": str(configuration / "ipython"),
        "MPLCONFIGDIR": str(configuration / "matplotlib"),
    }


@cache
def temporary_folder() -> Path:
    """Return a folder for the temporary files of this process, which is removed when the process ends.

    A killed process cannot remove it. The process therefore holds a lock in the folder as long as it lives,
    by which `abandoned_folders` recognises the folders that nobody needs any more.
    """
    stack = ExitStack()
    atexit.register(stack.close)
    temporary = tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True)
    folder = Path(stack.enter_context(temporary))
    stack.enter_context(locks.held(folder / f"{locks.owner()}.lock"))
    return folder


def abandoned_folders() -> list[Path]:
    """Return the temporary folders that killed processes of this user left.

    A folder of another user is not among them, nor one in which a process that may live holds a lock, nor one
    without a lock, whose process has just made it.
    """
    found = []
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # the folder is removed in the meantime
            held = [locks.is_held(lock) for lock in folder.glob("*.lock")]
            # Without locks, as on Windows, which has no `getuid` either, the states are None.
            abandoned = held and all(state is False for state in held)
            if abandoned and not folder.is_symlink() and folder.stat().st_uid == os.getuid():
                found.append(folder)
    return sorted(found)


def _configuration() -> Path:
    """Return the folder of the kernels' configuration, which is made once for all kernels of this process."""
    folder = temporary_folder()
    done = folder / "done"
    if done.is_file():
        return folder
    from ipykernel.kernelspec import write_kernel_spec

    startup = folder / "ipython" / "profile_default" / "startup"
    made = [folder / name for name in ("home", "runtime", "matplotlib", "python", "jupyter/kernels")]
    for part in (*made, startup):
        part.mkdir(parents=True, exist_ok=True)
    kernel = folder / "jupyter" / "kernels" / KERNEL["name"]
    shutil.rmtree(kernel, ignore_errors=True)
    write_kernel_spec(kernel)
    for name in ("sitecustomize.py", "usercustomize.py"):
        (folder / "python" / name).touch()
    (startup / "style.py").write_text(_STARTUP, encoding="utf-8")
    _copy_font_list(folder / "matplotlib")
    done.touch()
    return folder


def _copy_font_list(folder: Path) -> None:
    """Copy matplotlib's list of fonts for the kernels.

    A kernel without it would make the list, which takes seconds and prints a message into the notebook.
    """
    if paths.home() is None:  # otherwise matplotlib warns that it cannot store its list
        os.environ.setdefault("MPLCONFIGDIR", str(folder))
    from matplotlib import font_manager

    name = f"fontlist-v{font_manager.FontManager.__version__}.json"
    font_manager.json_dump(font_manager.fontManager, folder / name)
