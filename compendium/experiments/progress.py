"""Progress across processes: each trial notes its rounds in a file, a terminal shows the sum.

Workers are processes and a batch's trials run in a notebook's kernel, so the only thing they share
is a folder. Its name comes in `MLOGB_PROGRESS`; without it nothing is shown. A bar needs a terminal;
what a study says, such as its plan, is shown by a batch in any case.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console

VARIABLE = "MLOGB_PROGRESS"
_TOTAL, _TRIALS = "total", "trials"
_DONE, _SAID, _STOPPED = "done-", "said-", "stopped"
_INTERVAL = 0.5
_LINE_INTERVAL = 60.0


class Stopped(Exception):  # noqa: N818 - not a failure
    """A study ended before its results because it was asked to; the message says why."""


class Progress(NamedTuple):
    """How far the studies of a batch are.

    Attributes
    ----------
    rounds, total_rounds, trials, total_trials : int
        Done and in all, as far as they are known.
    """

    rounds: int
    total_rounds: int
    trials: int
    total_trials: int


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


def watched() -> bool:
    """Whether somebody watches."""
    return bool(os.environ.get(VARIABLE))


def announce(rounds: int, trials: int) -> None:
    """Say how many more rounds and trials there will be: a notebook may have several studies."""
    folder = os.environ.get(VARIABLE)
    if folder:
        before = read(Path(folder))
        _write(Path(folder) / _TOTAL, before.total_rounds + rounds)
        _write(Path(folder) / _TRIALS, before.total_trials + trials)


def finish(key: str, rounds: int) -> None:
    """Note that a trial is done."""
    folder = os.environ.get(VARIABLE)
    if folder:
        _write(Path(folder) / key, rounds)
        _write(Path(folder) / f"{_DONE}{key}", 0)


def say(text: str) -> None:
    """Show a text to whoever watches."""
    folder = os.environ.get(VARIABLE)
    if folder:
        with suppress(OSError):
            # Written and renamed: the watcher reads files that are whole.
            temporary = Path(folder) / f".{uuid.uuid4().hex}"
            temporary.write_text(text, encoding="utf-8")
            temporary.rename(Path(folder) / f"{_SAID}{time.time_ns()}")


def stopped(text: str) -> Stopped:
    """The exception that ends a study early on request; the batch that watches learns why."""
    folder = os.environ.get(VARIABLE)
    if folder:
        with suppress(OSError):
            (Path(folder) / _STOPPED).write_text(text, encoding="utf-8")
    return Stopped(text)


def reason_to_stop(folder: Path) -> str | None:
    """Why a study in a watched process ended early, or None if none did."""
    path = folder / _STOPPED
    return path.read_text(encoding="utf-8") if path.is_file() else None


def read(folder: Path) -> Progress:
    """Rounds and trials done and in all, as far as they are known."""
    counts = {}
    for file in folder.glob("*"):  # none if the folder is gone
        if not file.name.startswith((_SAID, _STOPPED)):
            with suppress(OSError, ValueError):
                counts[file.name] = int(file.read_text())
    total, trials = counts.pop(_TOTAL, 0), counts.pop(_TRIALS, 0)
    done = [name for name in counts if name.startswith(_DONE)]
    rounds = sum(number for name, number in counts.items() if name not in done)
    return Progress(rounds, total, len(done), trials)


@contextmanager
def shown(description: str, batch: bool = False) -> Iterator[dict[str, str]]:
    """Show a bar on a terminal while the block runs; yields the environment that its workers need.

    Inside a watched process (a kernel of a batch) nothing is shown and the yielded mapping is empty.
    Where standard error is no terminal there is no bar; a batch still shows what its studies say, and
    now and then a line for the log of a job.
    """
    terminal = sys.stderr.isatty()
    if not batch and (os.environ.get(VARIABLE) or not terminal):
        yield {}
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rounds, {task.fields[trials]} trials"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not terminal,
        )
        task = bar.add_task(description, total=None, trials="0")
        ended = threading.Event()

        def poll() -> None:
            lined, before = time.monotonic(), read(folder)
            while not ended.wait(_INTERVAL):
                _show_said(folder, console)
                now = read(folder)
                since = time.monotonic() - lined
                if not terminal and since >= _LINE_INTERVAL:
                    if now.total_trials:
                        console.print(_line(now, now.rounds - before.rounds, since), markup=False)
                    lined, before = time.monotonic(), now
                of = f"{now.trials} of {now.total_trials}"
                bar.update(task, completed=now.rounds, total=now.total_rounds or None, trials=of)

        watcher = threading.Thread(target=poll, daemon=True)
        with bar:
            watcher.start()
            try:
                yield {VARIABLE: name}
            finally:
                ended.set()
                watcher.join()
                _show_said(folder, console)


def _line(now: Progress, rounds: int, seconds: float) -> str:
    """How far a batch is, in words, at the pace of its last rounds."""
    done = f"{now.trials} of {now.total_trials} trials done"
    if not rounds:
        return done
    left = seconds / rounds * max(now.total_rounds - now.rounds, 0)
    return f"{done}, about {duration(left)} left"


def duration(seconds: float) -> str:
    """A time in words.

    >>> duration(12.3), duration(400), duration(9000)
    ('12 s', '7 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _show_said(folder: Path, console: Console) -> None:
    for file in sorted(folder.glob(f"{_SAID}*")):
        console.print(file.read_text(encoding="utf-8"), markup=False)
        file.unlink()


def _write(path: Path, number: int) -> None:
    with suppress(OSError):
        path.write_text(str(number))
