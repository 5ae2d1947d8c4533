"""The kernels that execute notebooks: which interpreter they are, and what they see of this machine.

Outputs and figures are compared byte by byte, so nothing of a user's taste may reach a kernel: no style
of matplotlib, no start-up file of IPython, no kernelspec of another environment, no variable that
changes numbers, warnings or texts. A kernel runs the interpreter of this process, finds modules where
this process does, and has a configuration of its own, which is a temporary folder.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from compendium.system import paths

KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
#: Threads change the last digits of BLAS results, and oversubscription costs a factor of ten.
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
#: By which a batch speaks to its kernel; no other kernel may hear them.
BATCH_VARIABLES = ("MLOGB_RUN_DIR", "MLOGB_ORDERS", "MLOGB_JOBS")
#: What both nbclient and papermill are told: streams in one piece each, and a kernel that is quiet.
CLIENT_OPTIONS: dict[str, Any] = {"coalesce_streams": True, "extra_arguments": ["--log-level=50"]}

#: Variables that a kernel inherits: what a process needs to start and to find libraries and data. The
#: BLAS kernel may be chosen, since records name the one that was used.
_INHERITED = {
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TEMP", "TMP", "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME",
    "PYTHONNOUSERSITE", "PYTHONUSERBASE", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX",
    "OPENBLAS_CORETYPE", "NUMBA_CACHE_DIR", "SCIKIT_LEARN_DATA",
    # Windows does not start a process without some of these.
    "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "USERPROFILE", "HOMEDRIVE", "HOMEPATH",
    "USERNAME", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES", "NUMBER_OF_PROCESSORS",
}  # fmt: skip
_INHERITED_PREFIXES = ("MLOGB_", "JOBLIB_", "LOKY_", "DASK_")
#: Folders that may be named relative to the working folder, which is another one in a kernel.
_FOLDERS = ("MLOGB_MNIST", "MLOGB_FASHION", "SCIKIT_LEARN_DATA")

#: A matplotlibrc in the working folder comes before every configured one, so the defaults are put back.
_STARTUP = "import matplotlib\nmatplotlib.rcdefaults()\ndel matplotlib\n"
#: Recorded notebooks import some modules by names that these had when they were recorded.
_NAMES = "from compendium.system import moved\nmoved.install()\n"


@contextmanager
def kernel_environment(**variables: str) -> Iterator[None]:
    """Give the kernels that start inside the block a fixed environment and configuration.

    One BLAS thread, UTC, the interpreter of this process as the kernel ``python3``; none of a user's
    settings (see `variables_of_kernels`); the given variables, and none of those by which a batch
    speaks to its kernel. The block's own process has the same environment.

    Parameters
    ----------
    **variables : str
        Variables that the kernels have besides.
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
    """Return the environment of a kernel, made from the one of this process.

    What is not known to be needed is left out, as nobody knows all variables that change outputs:
    ``MPLBACKEND=Agg`` drops every figure, ``PYTHONWARNINGS`` stops a notebook, ``COLUMNS`` breaks lines.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.upper() in _INHERITED or name.startswith(_INHERITED_PREFIXES)
        if name not in BATCH_VARIABLES
    }
    for name in _FOLDERS:
        if kept.get(name) and kept[name] != paths.SHIPPED:
            # Not Path's, which stops where there is no home folder; the reader of the data says so.
            kept[name] = str(Path(os.path.expanduser(kept[name])).absolute())  # noqa: PTH111
    configuration = _configuration()
    if paths.home() is None:
        kept["HOME"] = str(configuration / "home")
    # The folder of the configuration comes first: its sitecustomize hides those that a user has.
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
def _temporary() -> tempfile.TemporaryDirectory[str]:
    """The folder of the configuration; it is removed when this process ends."""
    return tempfile.TemporaryDirectory(prefix="mlogb-", ignore_cleanup_errors=True)


def _configuration() -> Path:
    """Return the folder of the kernels' configuration, made once for all kernels of this process."""
    folder = Path(_temporary().name)
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
    (folder / "python" / "sitecustomize.py").write_text(_NAMES, encoding="utf-8")
    (folder / "python" / "usercustomize.py").touch()
    (startup / "style.py").write_text(_STARTUP, encoding="utf-8")
    _copy_font_list(folder / "matplotlib")
    done.touch()
    return folder


def _copy_font_list(folder: Path) -> None:
    """Hand matplotlib's list of fonts on: to make it takes seconds, and says so in a notebook's output."""
    if paths.home() is None:  # else this process's own matplotlib warns that it found no place for its list
        os.environ.setdefault("MPLCONFIGDIR", str(folder))
    from matplotlib import font_manager

    name = f"fontlist-v{font_manager.FontManager.__version__}.json"
    font_manager.json_dump(font_manager.fontManager, folder / name)
