"""The progress of a study: a bar on a terminal, or a line a minute in the log of a job.

In a batch, a study runs in the kernel of a notebook, while the terminal belongs to the process that started
the kernel. The study sends its progress to that process as messages of a Jupyter comm. This is Jupyter's
channel for data of a kernel that are no outputs, so nothing of them is stored in the notebook.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: The environment variable that tells a kernel that a batch started it; `execution.Orders` reads its content.
BATCH = "MLOGB_ORDERS"
#: The name of the comm.
TARGET = "mlogb.study"
#: A message has some of these entries: ``text``, a line to be shown; ``trials``, the addresses of all trials
#: that the study needs; ``total``, the number of trials that this process is to obtain, and ``stored``, how
#: many of them are stored already; and ``computed``, how many have been computed since the last message.
Message = dict[str, Any]
#: What a plan says at its end.
PLANNED = "nothing was computed: this was the plan only"

_LOGGERS = tuple(f"compendium.experiments.{name}" for name in ("execution", "plan", "trials"))
_LINE_INTERVAL = 60.0  # seconds between two lines in a log
# Seconds over which rich averages the pace. Each trial may take an hour, so that all of them count.
_PACE_PERIOD = 1e9


class Stopped(Exception):  # noqa: N818 - it is no error
    """A study stopped before it had its results, because it was asked to; the message says why."""


@contextmanager
def reporting(study: str) -> Iterator[Callable[[Message], None]]:
    """Yield the function by which a study reports its progress.

    In the kernel of a batch, this function sends messages to the batch. What is logged about trials is sent
    as well: in the notebook, a log line would be an output that differs from run to run. Without a batch, a
    bar is shown if standard error is a terminal.

    Parameters
    ----------
    study : str
        The title of the bar.
    """
    if os.environ.get(BATCH):
        from ipykernel.comm import Comm

        send = Comm(target_name=TARGET).send
        with _logged(send):
            yield send
    elif sys.stderr.isatty():
        with displayed(study) as show:
            yield show
    else:
        yield lambda report: None


@contextmanager
def displayed(title: str) -> Iterator[Callable[[Message], None]]:
    """Yield a function that shows messages on standard error, with a bar if that is a terminal.

    Parameters
    ----------
    title : str
        The title of the bar.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    terminal = sys.stderr.isatty()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("trials"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not terminal,
        speed_estimate_period=_PACE_PERIOD,
    )
    name = bar.add_task(title, total=None)
    task, last_line = bar.tasks[0], time.monotonic()

    def show(message: Message) -> None:
        nonlocal last_line
        if text := message.get("text"):
            console.print(text, markup=False)
        if "total" in message:  # the trials of each study of a notebook are added
            total, done = (task.total or 0) + message["total"], task.completed + message["stored"]
            bar.update(name, total=total, completed=done)
            bar.advance(name, 0)  # from here on rich measures the pace
        if computed := message.get("computed"):
            bar.advance(name, computed)
            if not terminal and time.monotonic() - last_line >= _LINE_INTERVAL:
                last_line = time.monotonic()
                left = task.time_remaining
                more = "" if left is None else f", about {duration(left)} left"
                console.print(f"{task.completed:.0f} of {task.total:.0f} trials done{more}", markup=False)

    with bar:
        yield show


def duration(seconds: float) -> str:
    """Return a time as text, in seconds, minutes or hours.

    >>> duration(12.3), duration(400), duration(9000)
    ('12 s', '7 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


@contextmanager
def _logged(send: Callable[[Message], None]) -> Iterator[None]:
    """While the block runs, send what is logged about trials instead of writing it to standard error."""
    handler, loggers = logging.Handler(), [logging.getLogger(name) for name in _LOGGERS]
    handler.emit = lambda record: send({"text": record.getMessage()})  # type: ignore[method-assign]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
            logger.setLevel(logging.NOTSET)
            logger.propagate = True
