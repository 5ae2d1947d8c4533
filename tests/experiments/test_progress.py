"""Progress: what a terminal and a log show of the messages of studies, and who receives them."""

from __future__ import annotations

import io
import logging
import sys
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from batch_project import SMALL_STUDY, wait_until

from compendium.experiments import progress, trials


class Stream(io.StringIO):
    """A standard error that is or is not a terminal."""

    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


@pytest.fixture(autouse=True)
def standard_error(monkeypatch):
    """A function that replaces standard error by a stream, which is a terminal or not; there is no batch."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", progress.BATCH):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")

    def use(is_terminal):
        stream = Stream(is_terminal)
        monkeypatch.setattr(sys, "stderr", stream)
        return stream

    return use


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("rich.console.monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def wait_for(text, stream):
    return wait_until(lambda: text in stream.getvalue(), latest=5)


def test_a_bar_on_a_terminal(standard_error):
    stream = standard_error(True)
    with progress.displayed("some study") as show:
        assert wait_for("some study", stream)  # also before any number is known
        show({"total": 8, "stored": 3})
        show({"computed": 1})
        assert wait_for("4/8", stream)
        show({"total": 2, "stored": 2})  # a notebook may have several studies
        assert wait_for("6/10", stream)
        show({"text": "a worker was killed [red]"})
        assert "a worker was killed [red]\n" in stream.getvalue().replace("\r", "")
        assert "trials done" not in stream.getvalue()


def test_no_bar_is_drawn_after_a_failure(standard_error):
    stream = standard_error(True)
    with pytest.raises(RuntimeError, match="failed"), progress.displayed("tests"):
        raise RuntimeError("the work failed")
    length = len(stream.getvalue())
    time.sleep(0.15)
    assert len(stream.getvalue()) == length  # nothing has been drawn since


def test_lines_in_a_log(standard_error, clock):
    """There is at most one line a minute, and the time left follows from the pace of all trials."""
    stream = standard_error(False)
    with progress.displayed("tests") as show:
        show({"text": "the plan"})
        show({"total": 8, "stored": 3})
        for seconds in (600, 600, 20, 20, 60):
            clock[0] += seconds
            show({"computed": 1})
    assert stream.getvalue().splitlines() == [
        "the plan",
        "4 of 8 trials done, about 40 min left",
        "5 of 8 trials done, about 30 min left",
        "8 of 8 trials done, about 0 s left",
    ]


def test_the_pace_is_measured_from_the_first_message(standard_error, clock, monkeypatch):
    monkeypatch.setattr(progress, "_LINE_INTERVAL", 0.0)
    stream = standard_error(False)
    with progress.displayed("tests") as show:
        show({"total": 8, "stored": 0})
        show({"computed": 1})
        clock[0] += 240
        show({"computed": 1})
    assert stream.getvalue() == "1 of 8 trials done\n2 of 8 trials done, about 12 min left\n"


def test_without_a_batch_and_a_terminal_nothing_is_shown(standard_error):
    stream = standard_error(False)
    with progress.reporting("tests") as report:
        report({"text": "the plan", "total": 3, "stored": 0})
        report({"computed": 1})
    assert stream.getvalue() == ""


def test_a_batch_receives_what_is_logged(standard_error, monkeypatch, caplog):
    """The terminal of the kernel shows nothing."""
    stream, told = standard_error(True), []
    monkeypatch.setenv(progress.BATCH, "{}")

    def comm(target_name):
        assert target_name == progress.TARGET
        return SimpleNamespace(send=told.append)

    monkeypatch.setattr("ipykernel.comm.Comm", comm)
    logger = logging.getLogger(trials.__name__)
    assert not logger.isEnabledFor(logging.INFO)
    with progress.reporting("tests") as report:
        report({"computed": 1})
        logger.warning("stored trial %s", 7)
        logger.info("a plan")
    assert told == [{"computed": 1}, {"text": "stored trial 7"}, {"text": "a plan"}]
    assert (stream.getvalue(), caplog.records) == ("", [])
    assert (logger.handlers, logger.propagate, logger.level) == ([], True, logging.NOTSET)


def test_the_messages_of_a_study(standard_error, tmp_path):
    study = SMALL_STUDY.model_copy(update={"n_trials": 2})
    stream = standard_error(True)
    with pytest.MonkeyPatch.context() as patch:
        messages, displayed = [], progress.displayed

        @contextmanager
        def recorded(title):
            with displayed(title) as show:
                yield lambda message: (messages.append(message), show(message))

        patch.setattr(progress, "displayed", recorded)
        study.run(n_jobs=1, folder=tmp_path)
        keys = {"trials": [spec.key for spec in study.specs()]}
        assert messages == [keys, {"total": 2, "stored": 0}, {"computed": 1}, {"computed": 1}]
        study.run(n_jobs=1, folder=tmp_path)
        assert messages[4:] == [keys, {"total": 2, "stored": 2}]
    assert "2/2" in stream.getvalue()
