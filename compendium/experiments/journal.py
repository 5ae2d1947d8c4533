"""The journals of batches: which trials a batch needs, so that its state can be told from outside.

A batch writes a small file beside the runs when it starts, its studies add the addresses of their
trials, and it goes away when the run is complete. What is left belongs to a batch under way, or to
one that was stopped.

Whether a batch is under way is told by a lock that its process holds on a file beside the journal. The
operating system drops the lock when the process ends, however it ends, and keeps it while the process is
suspended, so a batch that was stopped by Ctrl-Z or by a closed lid is not taken for dead. Machines may
share the folder, and not every network file system passes locks on. Of a batch of another machine whose
lock can be had it is therefore not known whether it has ended: it touches its journal now and then, which
`status` shows, and nothing of it is ever removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from compendium.system import paths

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

VARIABLE = "MLOGB_JOURNAL"
#: Seconds without a sign of life after which a batch of another machine is no longer shown as running, and
#: how often a batch gives one.
STALE, _BEAT = 600.0, 20.0


class State(NamedTuple):
    """A batch that is not complete.

    Attributes
    ----------
    experiment, profile, run : str
        What it is.
    running : bool
        Whether its process lives, suspended or not; for a batch of another machine, whether it has given a
        sign of life lately.
    trials : frozenset of str
        Addresses of the trials that are known to be needed.
    done : int
        How many of them are stored.
    started : str
        When.
    path : Path
        Its journal.
    ended : bool
        Whether it is certain that no process works on it any more.
    parameters : dict or None
        What the notebook is given; None if the journal does not say.
    error : str or None
        With what the batch failed; None if it did not, or was stopped from outside.
    """

    experiment: str
    profile: str
    run: str
    running: bool
    trials: frozenset[str]
    done: int
    started: str
    path: Path
    ended: bool = False
    parameters: dict[str, Any] | None = None
    error: str | None = None


def folder() -> Path:
    """Where the journals are."""
    return paths.runs_folder() / ".batches"


def owner() -> str:
    """What names this process on this machine; a hash stands for the machine, whose name is private."""
    return f"{_machine()}-{os.getpid()}"


def path_of(experiment: str, run: str, whose: str) -> Path:
    """The journal of a batch, running or not."""
    return folder() / f"{experiment}-{run}-{whose}.json"


@contextmanager
def kept(
    experiment: str,
    profile: str,
    run: str,
    plan_only: bool = False,
    parameters: dict[str, Any] | None = None,
) -> Iterator[dict[str, str]]:
    """Keep a journal while the block runs; it is removed if the block ends well.

    Yields the environment that the batch's kernel needs. A batch that is only planned leaves no
    journal and touches no other: there is nothing to go on with. The same holds for one that failed
    before a study said which trials it needs.
    """
    path = path_of(experiment, run, owner())
    before = [state for state in states() if (state.experiment, state.run) == (experiment, run)]
    entry = {
        "experiment": experiment,
        "profile": profile,
        "run": run,
        "owner": owner(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        # Those of a stopped batch before it are needed all the while, not only when the study says so.
        "trials": sorted(frozenset().union(*(state.trials for state in before))),
        "parameters": parameters,
        "ended": False,
    }
    with held(path):
        paths.write_atomically(path, json.dumps(entry))
        if not plan_only:
            _forget(experiment, run, without=path)
        ended = threading.Event()
        beating = threading.Thread(target=_beat, args=(path, ended), daemon=True)
        beating.start()
        try:
            yield {VARIABLE: str(path)}
        except BaseException as error:
            with suppress(OSError, ValueError):  # what stopped the batch is what has to be said
                entry = json.loads(path.read_text(encoding="utf-8")) | {"ended": True}
                if isinstance(error, paths.FailureError):
                    entry["error"] = " ".join(str(error).split())
                if plan_only or (isinstance(error, paths.FailureError) and not entry["trials"]):
                    path.unlink(missing_ok=True)
                else:
                    paths.write_atomically(path, json.dumps(entry))
            raise
        finally:
            ended.set()
            beating.join()
        path.unlink(missing_ok=True)
        _forget(experiment, run)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock of a journal while the block runs, as the process of its batch does."""
    lock = lock_of(path)
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        # Where a file system has no locks, nobody can tell that the batch has ended, and nothing is removed.
        if fcntl is not None:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def lock_of(path: Path) -> Path:
    """The file whose lock the process of a batch holds, beside its journal."""
    return path.with_suffix(".lock")


def note(keys: Iterable[str]) -> None:
    """Add the addresses of a study's trials to the journal of the batch, if there is one."""
    path = Path(os.environ.get(VARIABLE) or "")
    if path.is_file():
        entry = json.loads(path.read_text(encoding="utf-8"))
        entry["trials"] = sorted({*entry["trials"], *keys})
        paths.write_atomically(path, json.dumps(entry))


def states() -> list[State]:
    """The batches that are under way or were stopped, oldest first."""
    found = []
    for path in folder().glob("*.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):
            entry = json.loads(path.read_text(encoding="utf-8"))
            trials = frozenset(entry["trials"])
            done = sum((paths.trials_folder() / f"{key}.parquet").is_file() for key in trials)
            alive = False if entry["ended"] else is_alive(entry["owner"], path)
            found.append(
                State(
                    experiment=str(entry["experiment"]),
                    profile=str(entry["profile"]),
                    run=str(entry["run"]),
                    running=_is_fresh(path) if alive is None else alive,
                    trials=trials,
                    done=done,
                    started=str(entry["started"]),
                    path=path,
                    ended=alive is False,
                    parameters=entry.get("parameters"),
                    error=entry.get("error"),
                )
            )
    return sorted(found, key=lambda state: (state.started, state.path))


def unreadable() -> list[Path]:
    """The journals that say nothing."""
    known = {state.path for state in states()}
    return [path for path in folder().glob("*.json") if path not in known]


def is_alive(whose: str, path: Path) -> bool | None:
    """Whether the process that is named so works on the batch of this journal.

    Parameters
    ----------
    whose : str
        The process, as `owner` names it.
    path : Path
        The journal, which need not exist.

    Returns
    -------
    bool or None
        True if the lock is held, False if it is not, and None if that cannot be told: on another
        machine, and where there are no locks.
    """
    lock, here = lock_of(path), whose.rpartition("-")[0] == _machine()
    if not lock.is_file():
        return False if here else None
    if fcntl is None:
        return None
    try:
        # Shared, so that two that ask do not take each other for the batch.
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False if here else None
    except OSError:
        return None
    return False if here else None


def remove(path: Path) -> None:
    """Remove the journal of a batch that has ended, and its lock."""
    path.unlink(missing_ok=True)
    lock_of(path).unlink(missing_ok=True)


def _forget(experiment: str, run: str, without: Path | None = None) -> None:
    """Remove the journals of batches of this run that ended, shards for example."""
    for state in states():
        if (state.experiment, state.run) == (experiment, run) and state.ended and state.path != without:
            remove(state.path)


def _beat(path: Path, ended: threading.Event) -> None:
    while not ended.wait(_BEAT):
        with suppress(OSError):
            os.utime(path)


def _machine() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _is_fresh(path: Path) -> bool:
    """Whether a batch of another machine has touched its journal lately."""
    try:
        return time.time() - path.stat().st_mtime < STALE
    except OSError:
        return False
