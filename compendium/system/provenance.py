"""Where a result comes from: the record of a run and the sidecar of a figure.

A record names everything that decides the numbers (parameters, code, data, libraries, BLAS kernel) and the
processor on which times were measured. It names no host and no absolute path, so it can be committed.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import threading
import tomllib
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from compendium.system.kernels import THREADS
from compendium.system.paths import FailureError, home, project_root, runs_folder, write_atomically

#: Folders of ``compendium`` that decide what a run computes and shows. The others execute, record and check
#: it.
RESULT_FOLDERS = ("experiments", "theory", "report")

CHECKSUMS = "SHA256SUMS"
#: The file beside a record that says which code has reproduced the run. It grows, so no checksum covers it.
ATTESTATIONS = "attestations.json"
#: The file in which the kernel of a run says what it computed on. Its content becomes a part of the record.
ENVIRONMENT = "environment.json"
#: Variables that make git answer for another repository than that of the given folder.
_GIT_ELSEWHERE = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_PREFIX", "GIT_CEILING_DIRECTORIES", "GIT_SHALLOW_FILE",
)  # fmt: skip
#: In Python 3.11 two threads, such as those of a Dask worker, must not build syntax trees at the same time:
#: one of them may fail.
_PARSING = threading.Lock()
_LIBRARIES = ("numpy", "scipy", "numba", "pandas", "pyarrow", "matplotlib")


def sha256(content: str | bytes | Path) -> str:
    """Return the SHA-256 of a text (as UTF-8), of bytes, or of a file."""
    if isinstance(content, Path):
        content = content.read_bytes()
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def project_version(root: Path) -> str | None:
    """Return the version that a project's ``pyproject.toml`` states, or None where it states none."""
    file = root / "pyproject.toml"
    project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {}) if file.is_file() else {}
    version = project.get("version")
    return None if version is None else str(version)


def code_digest(parts: Sequence[str] = RESULT_FOLDERS) -> str:
    """Return one digest of the code that decides results.

    It covers all modules of the ``mlogb_core`` that is imported, and the given modules and folders of
    ``compendium``, with their names. What decides no result is not covered: comments, docstrings, layout, and
    the line styles of policies.
    """
    here = Path(__file__).resolve().parents[1]
    spec = importlib.util.find_spec("mlogb_core")
    library = list(spec.submodule_search_locations or []) if spec else []
    chosen = [(here, here / part) for part in parts] + [(Path(place), Path(place)) for place in library]
    sources = {
        f"{root.name}/{path.relative_to(root).as_posix()}": path
        for root, part in chosen
        for path in ([part] if part.is_file() else part.rglob("*.py"))
    }
    digests = [(name, _module_digest(path.read_bytes())) for name, path in sorted(sources.items())]
    return sha256("".join(f"{digest}  {name}\n" for name, digest in digests))


@lru_cache(maxsize=1024)
def _module_digest(source: bytes) -> str:
    """Return the digest of a module's code; kept, since a process asks for it once in each of its runs."""
    return sha256(_code_of(source))


def _code_of(source: bytes) -> str:
    """Return the syntax tree of a module as text, without docstrings and the line styles of policies."""

    class Plain(ast.NodeTransformer):
        def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
            is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
            return None if is_text else self.generic_visit(node)  # type: ignore[return-value]

        def visit_Call(self, node: ast.Call) -> ast.AST:
            is_style = isinstance(node.func, ast.Name) and node.func.id == "Style"
            return ast.Constant(None) if is_style else self.generic_visit(node)

    with _PARSING:
        return ast.dump(Plain().visit(ast.parse(source)))


def code_root() -> Path | None:
    """Return the folder from which both packages are imported; None if they are in different folders."""
    root = Path(__file__).resolve().parents[2]
    spec = importlib.util.find_spec("mlogb_core")
    places = list(spec.submodule_search_locations or []) if spec else []
    return root if [Path(place).resolve().parent for place in places] == [root] else None


def git_state(root: Path | None) -> dict[str, Any]:
    """Return the commit of a work tree, and whether it was clean outside runs and figures.

    Parameters
    ----------
    root : Path or None
        The folder of the code that runs, as `code_root` returns it.

    Returns
    -------
    dict
        ``git_commit`` and ``git_clean``. Both are None if git is missing, or if the folder is not itself the
        root of a work tree. A repository around it says nothing about this code, which may be a download that
        was unpacked in it or be installed in an environment.
    """
    unknown = {"git_commit": None, "git_clean": None}
    if root is None:
        return unknown
    root = root.resolve()
    variables = {name: value for name, value in os.environ.items() if name not in _GIT_ELSEWHERE}
    # Git refuses to answer for a folder of another user. The code in this folder is trusted, since it runs.
    options = ["-c", f"safe.directory={root.as_posix()}", "-c", "core.quotePath=false"]

    def git(*arguments: str) -> str:
        command = ["git", "--no-optional-locks", "-C", str(root), *options, *arguments]
        done = subprocess.run(command, check=True, capture_output=True, env=variables)
        return os.fsdecode(done.stdout).strip("\r\n")

    try:
        if not Path(git("rev-parse", "--show-toplevel")).samefile(root):
            return unknown
        commit = git("rev-parse", "HEAD")
        changed = git(
            "status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=none",
            "--", ".", ":(exclude)papermill_runs", ":(exclude)figures",
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return unknown
    return {"git_commit": commit, "git_clean": not changed}


def computed_on() -> dict[str, Any]:
    """Return interpreter, libraries and machine of this process, on which last digits and times depend."""
    return {
        "python": platform.python_version(),
        **{name: _version(name) for name in _LIBRARIES},
        "blas": blas_pools(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_model(),
    }


def environment(jobs: int) -> dict[str, Any]:
    """Return what `computed_on` says, with the limits of threads and the number of workers."""
    return {**computed_on(), "threads": {name: os.environ.get(name) for name in THREADS}, "jobs": jobs}


def hand_over_environment(folder: Path, computed: Sequence[dict[str, Any]] = ()) -> None:
    """Write into the folder of a run what its trials were computed on, which only the kernel knows.

    Parameters
    ----------
    folder : Path
        The run.
    computed : sequence of dict
        For each trial what `computed_on` returned in the process that computed it, which may be a worker, one
        of a cluster, or one of an earlier batch, and under ``seconds`` how long it took. The descriptions
        that differ from this process's are written with their numbers of trials, and the sum of the seconds.
    """
    own = computed_on()
    seconds = round(sum(one["seconds"] for one in computed), 1)
    computed = [{key: value for key, value in one.items() if key != "seconds"} for one in computed]
    # They are compared as JSON, since those of stored trials have been written and read.
    texts = Counter(json.dumps(one, sort_keys=True) for one in computed)
    others = [
        {**json.loads(text), "trials": number}
        for text, number in sorted(texts.items())
        if text != json.dumps(own, sort_keys=True)
    ]
    threads = {name: os.environ.get(name) for name in THREADS}
    origin = {"threads": threads, "trials_elsewhere": others, "trials_seconds": seconds}
    content = json.dumps({**own, **origin}, indent=2)
    write_atomically(folder / ENVIRONMENT, content)


def blas_pools() -> list[dict[str, Any]]:
    """Return the BLAS libraries that are loaded, with the kernels they use, on which last digits depend.

    They are sorted, because the order in which a process loads them has no meaning.
    """
    import scipy.linalg  # noqa: F401  # loads SciPy's own BLAS, so that it is listed
    import threadpoolctl

    keys = ("internal_api", "version", "architecture", "threading_layer")
    pools = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
    named = [{"library": pool["prefix"], **{key: pool.get(key) for key in keys}} for pool in pools]
    return sorted_pools(named)


def sorted_pools(pools: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the BLAS libraries of a record in the order of `blas_pools`; older records are not sorted."""
    return sorted(pools, key=lambda pool: json.dumps(pool, sort_keys=True))


def relative_paths(text: str) -> str:
    """Replace the absolute paths of this machine in a text, such as the one that a warning prints.

    The project becomes ``.``, the Python installation ``<python>``, and the home folder ``~``.
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
        Everything else. Its ``environment`` is completed with ``environment.json``, which the kernel wrote
        and which is removed.

    Returns
    -------
    dict
        The record as it was written. ``files`` has the SHA-256 of every file of the run, and ``figures``
        those of its pictures, which are moved to the folder of the figures.
    """
    handed = folder / ENVIRONMENT
    record["environment"] = {**json.loads(handed.read_text(encoding="utf-8")), **record["environment"]}
    handed.unlink()
    own = ("record.json", CHECKSUMS)
    everything = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in own)
    digests = {path.relative_to(folder).as_posix(): sha256(path) for path in everything}
    pictures = {name: digest for name, digest in digests.items() if name.startswith("figures/")}
    if deeper := [name for name in pictures if name.count("/") > 1]:
        raise FailureError(f"{deeper[0]}: pictures are kept in figures itself, not in a folder of it")
    lock = project_root() / "requirements.lock"
    record = {
        **record,
        "version": project_version(project_root()),
        "lock_sha256": sha256(lock) if lock.is_file() else None,
        "study": json.loads((folder / "study.json").read_text(encoding="utf-8")),
        "files": {name: digest for name, digest in digests.items() if name not in pictures},
        "figures": {name.removeprefix("figures/"): digest for name, digest in pictures.items()},
    }
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    if relative_paths(text) != text:
        raise FailureError("study.json names a path of this machine, which a record must not")
    write_atomically(folder / "record.json", text)
    write_atomically(folder / CHECKSUMS, checksums(folder, record["files"]))
    return record


def checksums(folder: Path, files: dict[str, str]) -> str:
    """Return the list of checksums of a run, of its files and its record, as ``sha256sum -c`` reads it."""
    kept = {**files, "record.json": sha256(folder / "record.json")}
    return "".join(f"{kept[name]}  {name}\n" for name in sorted(kept))


def sidecar(name: str, run: str, record: dict[str, Any], alt: str = "") -> str:
    """Return the sidecar of a figure: the run that drew it, its results and checksums, and what it shows.

    Parameters
    ----------
    name, run : str
        Name of the figure, and path of the run from the project root.
    record : dict
        The run's record.
    alt : str
        Alternative text. No run writes it: people write it into the sidecar, and it is kept when the sidecar
        is written again.
    """
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
        **({"alt": alt} if alt else {}),
    }
    return json.dumps(entry, indent=2, ensure_ascii=False) + "\n"


def alternative_text(file: Path) -> str:
    """Return the alternative text in a sidecar; empty if there is none."""
    try:
        return str(json.loads(file.read_text(encoding="utf-8")).get("alt", ""))
    except (OSError, ValueError, AttributeError):
        return ""


def publish_figures(source: Path, target: Path, run: str, record: dict[str, Any]) -> list[Path]:
    """Move the pictures of a run to the folder of the figures, each with a sidecar.

    Parameters
    ----------
    source, target : Path
        The folder of the pictures in the run, and the folder to which they are moved.
    run : str
        Path of the run from the project root.
    record : dict
        Its record.

    Returns
    -------
    list of Path
        The pictures at their new places.

    Notes
    -----
    A picture is removed from the run only after it and its sidecar have been written. If this function is
    interrupted, calling it again finishes the work.
    """
    moved: list[Path] = []
    pictures = sorted(path for path in source.glob("*") if path.is_file())
    for name in dict.fromkeys(path.stem for path in pictures):
        parts = [path for path in pictures if path.stem == name]
        for path in parts:
            write_atomically(target / path.name, path.read_bytes())
            moved.append(target / path.name)
        file = target / f"{name}.json"
        write_atomically(file, sidecar(name, run, record, alternative_text(file)))
        for path in parts:
            path.unlink()
    if source.is_dir():
        source.rmdir()
    return moved


def _places() -> dict[str, str]:
    """Return the folders that differ between machines, the longest first, with their replacements."""
    places = {
        **({str(own): "~"} if (own := home()) else {}),
        str(runs_folder().resolve()): "./papermill_runs",
        sys.base_prefix: "<python>",
        sys.prefix: "<python>",
        str(project_root()): ".",
    }
    return {
        place: places[place] for place in sorted(places, key=len, reverse=True) if place not in ("/", "/usr")
    }


@lru_cache
def _version(package: str) -> str | None:
    """Return the version of a package; it is read once, since every trial is stored with it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@lru_cache
def _cpu_model() -> str:
    """Return the name of the processor, or the kind of machine if the system does not say it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
