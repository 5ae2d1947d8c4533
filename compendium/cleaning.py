"""What no run refers to: stored trials of nobody, and what killed processes left behind."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from compendium import journal, paths, runs


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
    needed = {key for state in batches for key in state.trials}
    needed |= {
        key
        for run in finished
        for one in run.record["study"].get("studies", [])
        for key in one.get("trials", [])
    }
    complete = {(run.record["experiment"], run.path.name) for run in finished}
    found = [path for path in paths.trials_folder().glob("*.parquet") if path.stem not in needed]
    for folder in (paths.runs_folder(), paths.figures_folder()):
        found += [path for path in folder.rglob(".*.tmp") if _is_old(path)]
    for folder in paths.runs_folder().glob("*/"):
        found += [path for path in runs.abandoned(folder) if not runs.is_only_copy(path)]
    found += [one.path for one in batches if not one.running and (one.experiment, one.run) in complete]
    found += [path for path in journal.unreadable() if _is_old(path)]
    return [Leftover(path, _size(path)) for path in sorted(set(found))]


def remove(items: list[Leftover]) -> None:
    """Delete leftovers; what is gone already is passed over."""
    for item in items:
        if item.path.is_dir():
            shutil.rmtree(item.path, ignore_errors=True)
        else:
            item.path.unlink(missing_ok=True)


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
