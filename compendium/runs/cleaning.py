"""Files that nothing refers to: trials that neither a run nor a batch needs, and what killed processes left.

Nothing is removed that a process may still need, such as one that is suspended, or one of another machine, of
which cannot be told here whether it still works.
"""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path

from compendium.experiments import journal
from compendium.runs import run as runs
from compendium.runs.manifest import check_parameters, load_manifest
from compendium.system import kernels, locks, paths
from compendium.system.paths import UsageError

#: Seconds since its last change after which no process, on whatever machine, is still writing a file.
OLD = 600.0


def unneeded() -> dict[Path, int]:
    """Return the files and folders that may be removed, with their sizes in bytes."""
    # Trials are listed before batches are read, so that none is found whose batch started in between. Batches
    # are read before runs: one that is completed in between is then among both, and not among neither.
    trials = list(paths.trials_folder().glob("*.parquet"))
    batches = journal.batches()
    finished = runs.find_runs()
    stuck = [batch for batch in batches if batch.ended and not _can_go_on(batch)]
    needed = {key for batch in batches if batch not in stuck for key in batch.trials}
    needed |= {
        key
        for run in finished
        for study in run.record["study"].get("studies", [])
        for key in study.get("trials", [])
    }
    found = [path for path in trials if path.stem not in needed]
    held = {lock: locks.is_held(lock) for lock in journal.folder().glob("*.lock")}
    # A process may have been suspended while it wrote a file, so these are removed only if no process works.
    if all(state is False for state in held.values()):
        for folder in (paths.runs_folder(), paths.figures_folder()):
            found += [path for path in folder.rglob(".*.tmp") if _is_old(path)]
    for folder in paths.runs_folder().glob("*/"):
        found += [path for path in runs.abandoned(folder) if not runs.is_only_copy(path)]
    complete = {(run.record["experiment"], run.path.name) for run in finished}
    found += [batch.path for batch in batches if batch.ended and (batch.experiment, batch.run) in complete]
    found += [batch.path for batch in stuck]
    readable = {batch.path for batch in batches}
    damaged = [path for path in journal.folder().glob("*.json") if path not in readable and _is_old(path)]
    found += [path for path in damaged if all(held.get(lock) is False for lock in journal.locks_of(path))]
    found += [lock for lock, state in held.items() if _is_old(lock) and state is False]
    found += [folder for folder in kernels.abandoned_folders() if _is_old(folder)]
    return {path: _size(path) for path in sorted(set(found))}


def remove(items: dict[Path, int]) -> None:
    """Remove files and folders; one that another process has removed meanwhile is passed over."""
    for path in items:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _can_go_on(batch: journal.Batch) -> bool:
    """Whether the same command would continue a batch, rather than start from nothing or be refused.

    An experiment that is not in the manifest may be in that of another branch, so its batch counts as one
    that can be continued.
    """
    if not batch.trials:  # it was stopped before a study said which trials it needs
        return False
    try:
        experiment = load_manifest().experiment(batch.experiment)
    except UsageError:
        return True
    try:
        check_parameters(experiment, batch.parameters or {})
    except UsageError:
        return False
    return True


def _is_old(path: Path) -> bool:
    with suppress(OSError):
        return time.time() - path.stat().st_mtime > OLD
    return False


def _size(path: Path) -> int:
    size = 0
    for file in [path] if path.is_file() else path.rglob("*"):
        with suppress(OSError):  # another process may remove the file in the meantime
            size += file.stat().st_size if file.is_file() else 0
    return size
