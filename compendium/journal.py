"""The journals of batches: which trials a batch needs, so that its state can be told from outside.

A batch writes a small file beside the runs when it starts, its studies add the addresses of their
trials, and it goes away when the run is complete. What is left belongs to a batch under way, or to
one that was stopped.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from compendium import paths

VARIABLE = "MLOGB_JOURNAL"


class State(NamedTuple):
    """A batch that is not complete.

    Attributes
    ----------
    experiment, profile, run : str
        What it is.
    running : bool
        Whether its process is alive on this machine.
    done, total : int
        Trials that are stored, and those that are known to be needed.
    started : str
        When.
    path : Path
        Its journal.
    """

    experiment: str
    profile: str
    run: str
    running: bool
    done: int
    total: int
    started: str
    path: Path


def folder() -> Path:
    """Where the journals are."""
    return paths.runs_folder() / ".batches"


@contextmanager
def kept(experiment: str, profile: str, run: str) -> Iterator[dict[str, str]]:
    """Keep a journal while the block runs; it is removed only if the block ends well.

    Yields the environment that the batch's kernel needs.
    """
    for old in states():
        if old.run == run and old.experiment == experiment and not old.running:
            old.path.unlink(missing_ok=True)
    path = folder() / f"{experiment}-{run}-{os.getpid()}.json"
    started = datetime.now(UTC).isoformat(timespec="seconds")
    entry = {
        "experiment": experiment,
        "profile": profile,
        "run": run,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "started": started,
        "trials": [],
    }
    paths.write_atomically(path, json.dumps(entry))
    yield {VARIABLE: str(path)}
    path.unlink(missing_ok=True)


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
    for path in sorted(folder().glob("*.json")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            entry = json.loads(path.read_text(encoding="utf-8"))
            done = sum((paths.trials_folder() / f"{key}.parquet").is_file() for key in entry["trials"])
            found.append(
                State(
                    experiment=entry["experiment"],
                    profile=entry["profile"],
                    run=entry["run"],
                    running=_is_alive(entry),
                    done=done,
                    total=len(entry["trials"]),
                    started=entry["started"],
                    path=path,
                )
            )
    return sorted(found, key=lambda state: state.started)


def trials_of(state: State) -> set[str]:
    """The addresses of the trials that a batch needs."""
    return set(json.loads(state.path.read_text(encoding="utf-8"))["trials"])


def _is_alive(entry: dict[str, Any]) -> bool:
    """Whether the batch runs; of another machine nothing is known, so it counts as running."""
    if entry["host"] != socket.gethostname():
        return True
    try:
        os.kill(int(entry["pid"]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
