"""The journals of batches: which trials a run needs, and whether a process works on it.

The journal of a run is a small file beside the runs, written when a batch starts and each time a study says
which trials it needs. It is removed when the run is complete, so a journal belongs to a run that is being
made, or to one that was stopped. All batches of a run share it, such as the shards of a job array.

Whether a process works on the run is told by a lock that the process holds on a file of its own beside the
journal. The operating system drops the lock when the process ends, however it ends, and keeps it while the
process is suspended, so a batch that was stopped by Ctrl-Z or by a closed lid is not taken for dead. A
process that can removes its file as it ends. A file that is still there, with a lock that can be had, is
therefore what a killed process left, unless the process is one of another machine: machines may share the
folder, and not every network file system passes locks on.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from compendium.system import paths

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class Batch(NamedTuple):
    """A run that is not complete.

    Attributes
    ----------
    path : Path
        Its journal.
    experiment, profile, run : str
        What it is.
    started : str
        When its first batch started.
    trials : frozenset of str
        Addresses of the trials that are known to be needed.
    parameters : dict or None
        What the notebook is given; None if the journal does not say.
    running : int
        How many processes work on it, suspended or not.
    unknown : int
        How many processes of other machines work on it or were killed: this cannot be told here.
    error : str or None
        With what the last batch failed; None if it did not, or was stopped from outside.
    """

    path: Path
    experiment: str
    profile: str
    run: str
    started: str
    trials: frozenset[str]
    parameters: dict[str, Any] | None = None
    running: int = 0
    unknown: int = 0
    error: str | None = None

    @property
    def ended(self) -> bool:
        """Whether it is certain that no process works on it."""
        return not (self.running or self.unknown)

    def stored(self) -> list[Path]:
        """The files of the trials that are stored."""
        files = (paths.trials_folder() / f"{key}.parquet" for key in self.trials)
        return [file for file in files if file.is_file()]


def folder() -> Path:
    """Where the journals are."""
    return paths.runs_folder() / ".batches"


def owner() -> str:
    """What names this process on this machine; a hash stands for the machine, whose name is private."""
    return f"{_machine()}-{os.getpid()}"


def path_of(experiment: str, run: str) -> Path:
    """The journal of a run."""
    return folder() / f"{experiment}-{run}.json"


def lock_of(journal: Path, whose: str) -> Path:
    """The file whose lock a process holds while it works on a run.

    Parameters
    ----------
    journal : Path
        The journal of the run.
    whose : str
        The process, as `owner` names it.
    """
    return journal.with_name(f"{journal.stem}-{whose}.lock")


def locks(journal: Path) -> list[Path]:
    """The files of all processes that work on a run, or were killed."""
    return sorted(folder().glob(f"{journal.stem}-*.lock"))


@contextmanager
def held(lock: Path) -> Iterator[None]:
    """Hold a lock while the block runs."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        # Where a file system has no locks, nobody can tell that a process was killed, and nothing is removed.
        if fcntl is not None:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def is_held(lock: Path) -> bool | None:
    """Whether the process of a lock works, or None if that cannot be told."""
    if not lock.is_file():
        return False
    if fcntl is None:
        return None
    try:
        with lock.open() as file:
            # Shared, so that two processes that ask do not take each other for the batch.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    except OSError:
        return None
    return False if lock.stem.split("-")[-2] == _machine() else None


@contextmanager
def kept(
    experiment: str, profile: str, run: str, parameters: dict[str, Any] | None = None, plan_only: bool = False
) -> Iterator[Callable[[Iterable[str]], None]]:
    """Keep the journal of a run while a batch makes it; it is removed if the block ends well.

    It is also removed if the batch fails before a study said which trials it needs: there is nothing to go on
    with. A batch that is only planned leaves the journal as it is.

    Yields
    ------
    callable
        Adds addresses of trials to the journal.
    """
    path = path_of(experiment, run)
    new: dict[str, Any] = {
        "experiment": experiment,
        "profile": profile,
        "run": run,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "trials": [],
        "parameters": parameters,
    }

    def note(keys: Iterable[str]) -> None:
        with paths.locked(paths.runs_folder()):
            entry = _read(path) or new
            needed = entry | {"trials": sorted({*entry["trials"], *keys}), "error": None}
            if needed != entry or not path.is_file():
                paths.write_atomically(path, json.dumps(needed))

    with held(lock_of(path, owner())):
        if plan_only:
            yield lambda keys: None
            return
        note([])
        try:
            yield note
        except paths.FailureError as error:
            entry = _read(path) or new
            if entry["trials"]:
                message = " ".join(str(error).split())
                paths.write_atomically(path, json.dumps(entry | {"error": message}))
            else:
                path.unlink(missing_ok=True)
            raise
        path.unlink(missing_ok=True)


def batches() -> list[Batch]:
    """The runs that are being made or were stopped, oldest first."""
    found = []
    for path in folder().glob("*.json"):
        if entry := _read(path):
            states = [is_held(lock) for lock in locks(path)]
            found.append(
                Batch(
                    path=path,
                    experiment=entry["experiment"],
                    profile=entry["profile"],
                    run=entry["run"],
                    started=entry["started"],
                    trials=frozenset(entry["trials"]),
                    parameters=entry.get("parameters"),
                    running=states.count(True),
                    unknown=states.count(None),
                    error=entry.get("error"),
                )
            )
    return sorted(found, key=lambda batch: (batch.started, batch.path))


def _read(path: Path) -> dict[str, Any] | None:
    """The content of a journal, or None if it is not there or is damaged."""
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        entry["trials"] = list(entry["trials"])
        return entry if {"experiment", "profile", "run", "started"} <= set(entry) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _machine() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
