"""The journals of batches: which trials a run needs, and whether a process works on it.

The journal of a run is a small file beside the runs. It is written when a batch starts, and again each time a
study says which trials it needs. It is removed when the run is complete, so a journal belongs to a run that
is being made or to one that was stopped. All batches of a run share it, such as the shards of a job array.

A process that works on a run holds a lock on a file of its own beside the journal, which tells whether the
process still lives (see `compendium.system.locks`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from compendium.system import locks, paths


class Batch(NamedTuple):
    """A run that is not complete.

    Attributes
    ----------
    path : Path
        Its journal.
    experiment, profile, run : str
        Names of the experiment, its profile and the run.
    started : str
        When the first batch of the run started.
    trials : frozenset of str
        Addresses of the trials that are known to be needed.
    parameters : dict or None
        Parameters that the notebook is given; None if the journal has none.
    running : int
        How many processes work on the run, suspended or not.
    unknown : int
        How many processes of other machines work on the run or were killed, which cannot be distinguished
        here.
    error : str or None
        The error with which the last batch failed; None if it did not fail, or was interrupted.
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
        """Whether it is certain that no process works on the run."""
        return not (self.running or self.unknown)

    def stored(self) -> list[Path]:
        """The files of the trials that are stored."""
        files = (paths.trials_folder() / f"{key}.parquet" for key in self.trials)
        return [file for file in files if file.is_file()]


def folder() -> Path:
    """The folder of the journals."""
    return paths.runs_folder() / ".batches"


def path_of(experiment: str, run: str) -> Path:
    """The journal of a run."""
    return folder() / f"{experiment}-{run}.json"


def lock_of(journal: Path, whose: str) -> Path:
    """The file on which a process holds a lock while it works on a run.

    Parameters
    ----------
    journal : Path
        The journal of the run.
    whose : str
        The process, as `locks.owner` names it.
    """
    return journal.with_name(f"{journal.stem}-{whose}.lock")


def locks_of(journal: Path) -> list[Path]:
    """The lock files of all processes that work on a run, or were killed while they did."""
    return sorted(folder().glob(f"{journal.stem}-*.lock"))


@contextmanager
def kept(
    experiment: str, profile: str, run: str, parameters: dict[str, Any] | None = None, plan_only: bool = False
) -> Iterator[Callable[[Iterable[str]], None]]:
    """Keep the journal of a run while the block makes the run, and remove it when the block succeeds.

    The journal is also removed if the batch fails before a study has said which trials it needs, because then
    there is nothing to continue with. With `plan_only` the journal is neither written nor removed.

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
        with locks.one_at_a_time(paths.runs_folder()):
            entry = _read(path) or new
            needed = entry | {"trials": sorted({*entry["trials"], *keys}), "error": None}
            if needed != entry or not path.is_file():
                paths.write_atomically(path, json.dumps(needed))

    with locks.held(lock_of(path, locks.owner())):
        if plan_only:
            yield lambda keys: None
            return
        note([])
        try:
            yield note
        except paths.FailureError as error:
            with locks.one_at_a_time(paths.runs_folder()):
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
            states = [locks.is_held(lock) for lock in locks_of(path)]
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
    """Read a journal; None if it is missing or damaged."""
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        entry["trials"] = list(entry["trials"])
        return entry if {"experiment", "profile", "run", "started"} <= set(entry) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
