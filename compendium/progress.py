"""Progress across processes: each trial notes its rounds in a file, a terminal shows the sum.

Workers are processes and a batch's trials run in a notebook's kernel, so the only thing they share
is a folder. Its name comes in `MLOGB_PROGRESS`; without it, or without a terminal, nothing is shown.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

VARIABLE = "MLOGB_PROGRESS"
_TOTAL = "total"
_INTERVAL = 0.5


def counter(key: str) -> Callable[[int], None] | None:
    """A callback for `run_trial` that notes the rounds done, or None if nobody watches."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return None
    noted = 0.0

    def note(rounds: int) -> None:
        nonlocal noted
        now = time.monotonic()
        if now - noted >= _INTERVAL:
            noted = now
            _write(Path(folder) / key, rounds)

    return note


def announce(total: int) -> None:
    """Say how many more rounds there will be: a notebook may have several studies."""
    folder = os.environ.get(VARIABLE)
    if folder:
        _, before = read(Path(folder))
        _write(Path(folder) / _TOTAL, before + total)


def finish(key: str, rounds: int) -> None:
    """Note that a trial is done."""
    folder = os.environ.get(VARIABLE)
    if folder:
        _write(Path(folder) / key, rounds)


def read(folder: Path) -> tuple[int, int]:
    """Rounds done and rounds in all, as far as they are known."""
    counts = {}
    for file in folder.glob("*"):  # none if the folder is gone
        with suppress(OSError, ValueError):
            counts[file.name] = int(file.read_text())
    total = counts.pop(_TOTAL, 0)
    return sum(counts.values()), total


@contextmanager
def shown(description: str) -> Iterator[dict[str, str]]:
    """Show a bar on a terminal while the block runs; yields the environment that its workers need.

    Inside a watched process (a kernel of a batch) and where standard error is no terminal, nothing
    is shown and the yielded mapping is empty.
    """
    if os.environ.get(VARIABLE) or not sys.stderr.isatty():
        yield {}
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    with tempfile.TemporaryDirectory() as name:
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rounds"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        task = bar.add_task(description, total=None)
        stopped = threading.Event()

        def poll() -> None:
            while not stopped.wait(_INTERVAL):
                done, total = read(Path(name))
                bar.update(task, completed=done, total=total or None)

        watcher = threading.Thread(target=poll, daemon=True)
        with bar:
            watcher.start()
            try:
                yield {VARIABLE: name}
            finally:
                stopped.set()
                watcher.join()


def _write(path: Path, number: int) -> None:
    with suppress(OSError):
        path.write_text(str(number))
