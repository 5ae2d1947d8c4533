"""Where a result comes from: the record of a run and the sidecar of a figure.

A record names everything that decides the numbers (parameters, code, data, libraries, BLAS kernel)
and what they were measured on. It names no host and no absolute path, so it can be committed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compendium.data import load_mnist
from compendium.paths import FailureError, project_root, write_atomically

#: Modules of ``compendium`` that decide what a run computes; the others only run and record it.
RESULT_MODULES = ("data.py", "figures.py", "problems.py", "ratings.py", "report.py", "study.py", "trials.py")

CHECKSUMS = "SHA256SUMS"


def sha256(content: str | bytes | Path) -> str:
    """Return the SHA-256 of a text (as UTF-8), of bytes, or of a file."""
    if isinstance(content, Path):
        content = content.read_bytes()
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def code_digest(modules: Sequence[str] = RESULT_MODULES, without: Sequence[str] = ()) -> str:
    """Return one digest of the sources that decide results.

    They are every module of the ``mlogb_core`` that is imported, except for the subpackages named
    in `without`, and the given modules of ``compendium``. Names count as well as contents: a renamed
    module changes the digest.
    """
    here = Path(__file__).resolve().parent
    sources = {f"compendium/{name}": here / name for name in modules if (here / name).is_file()}
    spec = importlib.util.find_spec("mlogb_core")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in Path(folder).rglob("*.py"):
            if path.relative_to(folder).parts[0] not in without:
                sources[f"mlogb_core/{path.relative_to(folder).as_posix()}"] = path
    digests = [(name, sha256(_with_plain_line_ends(path))) for name, path in sorted(sources.items())]
    return sha256("".join(f"{digest}  {name}\n" for name, digest in digests))


def data_digest() -> str:
    """Return the checksum of the digits that this machine has.

    It is part of a run's identity, so that a run on 5,000 digits is not taken for one on 70,000.
    """
    return load_mnist().checksum


def git_state(root: Path) -> dict[str, Any]:
    """Return the commit of a work tree, and whether it was clean outside runs and figures.

    Both are None where git or the repository is missing.
    """

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    try:
        commit = git("rev-parse", "HEAD")
        changed = git("status", "--porcelain", "--", ".", ":(exclude)papermill_runs", ":(exclude)figures")
    except (OSError, subprocess.CalledProcessError):
        return {"git_commit": None, "git_clean": None}
    return {"git_commit": commit, "git_clean": not changed}


def environment(jobs: int) -> dict[str, Any]:
    """Return what the numbers and the times were computed on."""
    import numpy
    import scipy

    from compendium.notebooks import THREADS  # jupytext takes a second, and no worker needs it

    return {
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "blas": blas_pools(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_model(),
        "threads": THREADS,
        "jobs": jobs,
    }


def blas_pools() -> list[dict[str, Any]]:
    """Return which BLAS libraries are loaded, and with which kernels, that is, what decides last digits."""
    import scipy.linalg  # noqa: F401  # loads SciPy's own BLAS, so that it is listed
    import threadpoolctl

    keys = ("internal_api", "version", "architecture", "threading_layer")
    pools = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
    return [{"library": pool["prefix"], **{key: pool.get(key) for key in keys}} for pool in pools]


def relative_paths(text: str) -> str:
    """Take the places of this machine out of a text, as a warning in an output has them.

    The project becomes ``.``, the Python installation ``<python>``, the home folder ``~``.
    """
    for place, name in _places().items():
        text = re.sub(re.escape(place) + r"(?![\w-])", name, text)
    return re.sub(r"[\w/.-]*/ipykernel_\d+/\d+\.py", "<cell>", text)


def write_record(folder: Path, record: dict[str, Any]) -> dict[str, Any]:
    """Complete a record with the files of the run and write it as ``record.json``.

    Parameters
    ----------
    folder : Path
        The run; its ``study.json`` becomes part of the record.
    record : dict
        Everything else there is to say.

    Returns
    -------
    dict
        The record as it was written. ``files`` has the SHA-256 of every file of the run, and
        ``figures`` of its pictures, which do not stay in the folder.
    """
    own = ("record.json", CHECKSUMS)
    everything = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in own)
    digests = {path.relative_to(folder).as_posix(): sha256(path) for path in everything}
    pictures = {name: digest for name, digest in digests.items() if name.startswith("figures/")}
    lock = project_root() / "requirements.lock"
    record = {
        **record,
        "lock_sha256": sha256(lock) if lock.is_file() else None,
        "study": json.loads((folder / "study.json").read_text(encoding="utf-8")),
        "files": {name: digest for name, digest in digests.items() if name not in pictures},
        "figures": {name.removeprefix("figures/"): digest for name, digest in pictures.items()},
    }
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    if relative_paths(text) != text:
        raise FailureError("study.json names a path of this machine, which a record must not")
    write_atomically(folder / "record.json", text)
    kept = {**record["files"], "record.json": sha256(folder / "record.json")}
    write_atomically(folder / CHECKSUMS, _checksums(kept))
    return record


def read_checksums(folder: Path) -> dict[str, str]:
    """The checksums of a run's files by name, as ``sha256sum -c`` reads them; empty if there are none."""
    try:
        lines = (folder / CHECKSUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def checksums_are(folder: Path, expected: dict[str, str]) -> bool:
    """Whether the list of checksums is this one to the byte: what reads it is lenient about line ends."""
    try:
        return (folder / CHECKSUMS).read_bytes() == _checksums(expected).encode()
    except OSError:
        return False


def sidecar(name: str, run: str, record: dict[str, Any]) -> str:
    """The text beside a figure: which run drew it, from which results, and its checksums by format."""
    digests = {
        Path(key).suffix[1:]: digest for key, digest in record["figures"].items() if Path(key).stem == name
    }
    entry = {
        "run": run,
        "experiment": record["experiment"],
        "profile": record["profile"],
        "results_sha256": record["files"]["results.parquet"],
        "git_commit": record["git_commit"],
        "sha256": digests,
    }
    return json.dumps(entry, indent=2) + "\n"


def publish_figures(source: Path, target: Path, run: str, record: dict[str, Any]) -> list[Path]:
    """Move the pictures of a run to the folder of the figures, each with a sidecar.

    Parameters
    ----------
    source, target : Path
        Folder of the pictures in the run, and the folder they belong to.
    run : str
        Path of the run from the project root.
    record : dict
        Its record.

    Returns
    -------
    list of Path
        The pictures where they are now.

    Notes
    -----
    A picture leaves the run only after it and its sidecar are in place. If this is stopped in
    between, calling it again finishes the work.
    """
    moved: list[Path] = []
    pictures = sorted(path for path in source.glob("*") if path.is_file())
    for name in dict.fromkeys(path.stem for path in pictures):
        parts = [path for path in pictures if path.stem == name]
        for path in parts:
            write_atomically(target / path.name, path.read_bytes())
            moved.append(target / path.name)
        write_atomically(target / f"{name}.json", sidecar(name, run, record))
        for path in parts:
            path.unlink()
    if source.is_dir():
        source.rmdir()
    return moved


def _checksums(kept: dict[str, str]) -> str:
    return "".join(f"{kept[name]}  {name}\n" for name in sorted(kept))


def _places() -> dict[str, str]:
    """Return the folders that differ between machines, the longest first, with what stands for them."""
    places = {
        str(Path.home()): "~",
        sys.base_prefix: "<python>",
        sys.prefix: "<python>",
        str(project_root()): ".",
    }
    return {
        place: places[place] for place in sorted(places, key=len, reverse=True) if place not in ("/", "/usr")
    }


def _with_plain_line_ends(path: Path) -> bytes:
    return path.read_bytes().replace(b"\r\n", b"\n")


def _cpu_model() -> str:
    """Return the name of the processor, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
