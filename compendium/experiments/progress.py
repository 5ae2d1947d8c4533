"""How far the trials of a study are: a bar on a terminal, now and then a line in the log of a job.

In a batch, a study runs in the kernel of a notebook, while the terminal belongs to the process that started
the kernel. What the study reports reaches that process as messages of a Jupyter comm, which is the channel
for data of a kernel that are not outputs: nothing of it is stored in the notebook.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: The environment variable of a kernel that a batch started; `execution.Orders` is its content.
BATCH = "MLOGB_ORDERS"
#: The name of the comm.
TARGET = "mlogb.study"
#: A report has some of the entries ``text`` (to be shown), ``trials`` (addresses that the study needs),
#: ``total`` and ``stored`` (their number, and how many are there already) and ``computed`` (how many more).
Report = dict[str, Any]

_LOGGERS = tuple(f"compendium.experiments.{name}" for name in ("execution", "plan", "trials"))
_LINE_INTERVAL = 60.0  # seconds between two lines in a log
_ALL = 1e9  # seconds; the time left follows from the pace of all trials, of which each may take an hour


class Stopped(Exception):  # noqa: N818 - not a failure
    """A study ended before its results because it was asked to; the message says why."""


@contextmanager
def reporting(study: str) -> Iterator[Callable[[Report], None]]:
    """Yield the function by which a study reports.

    In the kernel of a batch, the batch is told, also what is logged meanwhile: in the notebook such a line
    would be an output that differs from run to run. Otherwise a bar is shown if there is a terminal.

    Parameters
    ----------
    study : str
        What a bar is called.
    """
    if os.environ.get(BATCH):
        from ipykernel.comm import Comm

        send = Comm(target_name=TARGET).send  # type: ignore[no-untyped-call]
        with _logged(send):
            yield send
    elif sys.stderr.isatty():
        with displayed(study) as show:
            yield show
    else:
        yield lambda report: None


@contextmanager
def displayed(title: str) -> Iterator[Callable[[Report], None]]:
    """Yield a function that shows reports on standard error, as a bar if it is a terminal.

    Parameters
    ----------
    title : str
        What the bar is called.
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
        speed_estimate_period=_ALL,
    )
    name = bar.add_task(title, total=None)
    task, lined = bar.tasks[0], time.monotonic()

    def show(report: Report) -> None:
        nonlocal lined
        if text := report.get("text"):
            console.print(text, markup=False)
        if "total" in report:  # a notebook may have several studies
            total, done = (task.total or 0) + report["total"], task.completed + report["stored"]
            bar.update(name, total=total, completed=done)
            bar.advance(name, 0)  # the pace is measured from here
        if computed := report.get("computed"):
            bar.advance(name, computed)
            if not terminal and time.monotonic() - lined >= _LINE_INTERVAL:
                lined = time.monotonic()
                left = task.time_remaining
                more = "" if left is None else f", about {duration(left)} left"
                console.print(f"{task.completed:.0f} of {task.total:.0f} trials done{more}", markup=False)

    with bar:
        yield show


def duration(seconds: float) -> str:
    """A time in words.

    >>> duration(12.3), duration(400), duration(9000)
    ('12 s', '7 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


@contextmanager
def _logged(send: Callable[[Report], None]) -> Iterator[None]:
    """Report what is logged about trials while the block runs, in place of writing it to standard error."""
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
