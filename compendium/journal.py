"""The journals of batches: which trials a batch needs, so that its state can be told from outside.

A batch writes a small file beside the runs when it starts, its studies add the addresses of their
trials, and it goes away when the run is complete. What is left belongs to a batch under way, or to
one that was stopped. Machines may share the folder: a number of a process says nothing on another
machine, and little on the same one a week later, so a batch touches its journal while it lives.
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
from typing import NamedTuple

from compendium import paths

VARIABLE = "MLOGB_JOURNAL"
#: Seconds without a sign of life after which a batch is taken for dead, and how often it gives one.
STALE, _BEAT = 600.0, 20.0


class State(NamedTuple):
    """A batch that is not complete.

    Attributes
    ----------
    experiment, profile, run : str
        What it is.
    running : bool
        Whether its process is alive.
    trials : frozenset of str
        Addresses of the trials that are known to be needed.
    done : int
        How many of them are stored.
    started : str
        When.
    path : Path
        Its journal.
    """

    experiment: str
    profile: str
    run: str
    running: bool
    trials: frozenset[str]
    done: int
    started: str
    path: Path


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
def kept(experiment: str, profile: str, run: str, plan_only: bool = False) -> Iterator[dict[str, str]]:
    """Keep a journal while the block runs; it is removed only if the block ends well.

    Yields the environment that the batch's kernel needs. A batch that is only planned leaves no
    journal and touches no other: there is nothing to go on with.
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
        "ended": False,
    }
    paths.write_atomically(path, json.dumps(entry))
    if not plan_only:
        _forget(experiment, run, without=path)
    ended = threading.Event()
    beating = threading.Thread(target=_beat, args=(path, ended), daemon=True)
    beating.start()
    try:
        yield {VARIABLE: str(path)}
    except BaseException:
        with suppress(OSError, ValueError):  # what stopped the batch is what has to be said
            if plan_only:
                path.unlink(missing_ok=True)
            entry = json.loads(path.read_text(encoding="utf-8")) | {"ended": True}
            paths.write_atomically(path, json.dumps(entry))
        raise
    finally:
        ended.set()
        beating.join()
    path.unlink(missing_ok=True)
    _forget(experiment, run)


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
            found.append(
                State(
                    experiment=str(entry["experiment"]),
                    profile=str(entry["profile"]),
                    run=str(entry["run"]),
                    running=not entry["ended"] and is_alive(entry["owner"], path),
                    trials=trials,
                    done=done,
                    started=str(entry["started"]),
                    path=path,
                )
            )
    return sorted(found, key=lambda state: (state.started, state.path))


def unreadable() -> list[Path]:
    """The journals that say nothing."""
    known = {state.path for state in states()}
    return [path for path in folder().glob("*.json") if path not in known]


def is_alive(whose: str, path: Path) -> bool:
    """Whether the process that is named so lives and keeps this journal."""
    machine, _, number = whose.rpartition("-")
    try:
        fresh = time.time() - path.stat().st_mtime < STALE
    except OSError:
        return False
    return fresh and (machine != _machine() or _is_running(int(number)))


def _forget(experiment: str, run: str, without: Path | None = None) -> None:
    """Remove the journals of batches of this run that ended, shards for example."""
    for state in states():
        if (state.experiment, state.run) == (experiment, run) and not state.running and state.path != without:
            state.path.unlink(missing_ok=True)


def _beat(path: Path, ended: threading.Event) -> None:
    while not ended.wait(_BEAT):
        with suppress(OSError):
            os.utime(path)


def _machine() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True
