"""What nothing refers to any more: stored trials of no run or batch, and what ended processes left behind.

Nothing is removed that a process may still need: neither of a batch whose process is suspended, nor of one
on another machine, of which it is not known whether it has ended.
"""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from compendium.experiments import journal
from compendium.runs import run as runs
from compendium.runs.manifest import check_parameters, load_manifest
from compendium.system import paths
from compendium.system.paths import UsageError


class Leftover(NamedTuple):
    """Something that may go.

    Attributes
    ----------
    path : Path
        What.
    size : int
        Bytes.
    """

    path: Path
    size: int


def leftovers() -> list[Leftover]:
    """Trials that neither a finished run nor an unfinished batch refers to, and files of dead processes."""
    # Batches are read before runs: one that ends in between is then in both, and not in neither.
    batches = journal.states()
    finished = runs.find_runs()
    never = [one for one in batches if one.ended and not _can_go_on(one)]
    needed = {key for state in batches if state not in never for key in state.trials}
    needed |= {
        key
        for run in finished
        for one in run.record["study"].get("studies", [])
        for key in one.get("trials", [])
    }
    complete = {(run.record["experiment"], run.path.name) for run in finished}
    found = [path for path in paths.trials_folder().glob("*.parquet") if path.stem not in needed]
    if all(state.ended for state in batches):  # a suspended process may have stopped while it wrote a file
        for folder in (paths.runs_folder(), paths.figures_folder()):
            found += [path for path in folder.rglob(".*.tmp") if _is_old(path)]
    for folder in paths.runs_folder().glob("*/"):
        found += [path for path in runs.abandoned(folder) if not runs.is_only_copy(path)]
    done = [one for one in batches if one.ended and (one.experiment, one.run) in complete]
    journals = list({one.path: None for one in (*done, *never)})
    journals += [path for path in journal.unreadable() if _is_old(path) and not _is_locked(path)]
    locks = [path for path in journal.folder().glob("*.lock") if _is_spare(path, journals)]
    found += [*journals, *locks]
    return [Leftover(path, _size(path)) for path in sorted(set(found))]


def remove(items: list[Leftover]) -> None:
    """Delete leftovers; what is gone already is passed over."""
    for item in items:
        if item.path.is_dir():
            shutil.rmtree(item.path, ignore_errors=True)
        else:
            item.path.unlink(missing_ok=True)


def _can_go_on(state: journal.State) -> bool:
    """Whether the command that was stopped would go on, rather than start from nothing or be refused.

    An experiment that the manifest does not have may be one of another branch, and can.
    """
    if not state.trials:  # it never came to a study
        return False
    try:
        experiment = load_manifest().experiment(state.experiment)
    except UsageError:
        return True
    try:
        check_parameters(experiment, state.parameters or {})
    except UsageError:
        return False
    return True


def _is_locked(path: Path) -> bool:
    return journal.lock_of(path).is_file() and journal.is_alive(journal.owner(), path) is not False


def _is_spare(lock: Path, journals: list[Path]) -> bool:
    """Whether a lock is held by nobody and belongs to a journal that is gone, or goes."""
    path = lock.with_suffix(".json")
    return path in journals or (not path.is_file() and _is_old(lock) and not _is_locked(path))


def _is_old(path: Path) -> bool:
    """Whether nobody wrote to a file for longer than writing it takes, on whatever machine."""
    with suppress(OSError):
        return time.time() - path.stat().st_mtime > journal.STALE
    return False


def _size(path: Path) -> int:
    size = 0
    for file in [path] if path.is_file() else path.rglob("*"):
        with suppress(OSError):  # it may go in the meantime
            size += file.stat().st_size if file.is_file() else 0
    return size
