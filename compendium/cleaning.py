"""What no run refers to: stored trials of nobody, and what killed processes left behind."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import NamedTuple

from compendium import journal, paths
from compendium.runs import PARTIAL, find_runs, is_running


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
    studies = [one for run in find_runs() for one in run.record["study"]["studies"]]
    needed = {key for one in studies for key in one.get("trials", [])}
    for state in journal.states():
        needed |= journal.trials_of(state)
    found = [path for path in paths.trials_folder().glob("*.parquet") if path.stem not in needed]
    found += [path for path in paths.runs_folder().rglob(".*.tmp") if not _has_owner(path)]
    found += [path for path in paths.figures_folder().rglob(".*.tmp") if not _has_owner(path)]
    found += [path for path in paths.runs_folder().glob(f"*/{PARTIAL}*") if not _has_owner(path)]
    finished = {(run.record["experiment"], run.path.name) for run in find_runs()}
    found += [s.path for s in journal.states() if not s.running and (s.experiment, s.run) in finished]
    return [Leftover(path, _size(path)) for path in sorted(set(found))]


def remove(items: list[Leftover]) -> None:
    """Delete leftovers; what is gone already is passed over."""
    for item in items:
        if item.path.is_dir():
            shutil.rmtree(item.path, ignore_errors=True)
        else:
            item.path.unlink(missing_ok=True)


def _has_owner(path: Path) -> bool:
    """Whether the process whose number is in the name still runs."""
    numbers = re.findall(r"(?<=[.-])(\d+)(?=[.-]|$)", path.name)
    return any(is_running(int(number)) for number in numbers)


def _size(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)
