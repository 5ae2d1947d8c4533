"""Progress: what workers note, what is read from it, and that only a terminal sees a bar."""

from __future__ import annotations

import io
import os
import sys
import time
from pathlib import Path

import pytest

from compendium.experiments import progress
from compendium.experiments.problems import Synthetic
from compendium.experiments.study import Setting, Study


class Stream(io.StringIO):
    """A standard error that is or is not a terminal."""

    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    """Nobody watches; the terminal, if there is one, is an ordinary one and the clock ticks fast."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", progress.VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")

    def use(is_terminal):
        stream = Stream(is_terminal)
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(progress, "_INTERVAL", 0.01)
        return stream

    return use


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that somebody watches."""
    monkeypatch.setenv(progress.VARIABLE, str(tmp_path))
    return tmp_path


def test_nobody_watches(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert progress.counter("trial") is None
    progress.announce(10, 1)
    progress.finish("trial", 10)
    monkeypatch.setenv(progress.VARIABLE, "")
    assert progress.counter("trial") is None
    assert list(tmp_path.iterdir()) == []


def test_a_counter_notes_at_most_once_per_interval(folder, monkeypatch):
    now, written = [1000.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "_write", lambda path, number: written.append((path.name, number)))
    note = progress.counter("trial")
    for rounds in range(1, 101):
        note(rounds)
        now[0] += 0.0625  # eight rounds in an interval of half a second
    assert written == [("trial", rounds) for rounds in range(1, 101, 8)]


def test_each_trial_has_its_own_clock(folder):
    for key in ("one", "other"):
        progress.counter(key)(3)
    assert progress.read(folder)[:2] == (6, 0)


def test_read_sums(folder):
    assert progress.read(folder)[:2] == (0, 0)
    progress.announce(60, 2)
    assert progress.read(folder)[:2] == (0, 60)
    progress.counter("one")(7)
    progress.counter("other")(5)
    assert progress.read(folder)[:2] == (12, 60)
    progress.finish("one", 30)
    assert progress.read(folder)[:2] == (35, 60)


def test_a_notebook_with_several_studies(folder):
    """The rounds of all of them count, so the total has to as well."""
    progress.announce(60, 2)
    progress.finish("one", 60)
    progress.announce(40, 1)
    assert progress.read(folder)[:2] == (60, 100)


def test_what_cannot_be_read_is_ignored(folder):
    progress.finish("one", 30)
    (folder / "empty").touch()
    (folder / "text").write_text("many")
    (folder / "bytes").write_bytes(b"\xff\xfe")
    (folder / "inner").mkdir()
    assert progress.read(folder)[:2] == (30, 0)


def test_a_watcher_that_is_gone_stops_nobody(folder, monkeypatch):
    monkeypatch.setenv(progress.VARIABLE, str(folder / "gone"))
    progress.announce(3, 1)
    progress.counter("one")(1)
    progress.finish("one", 3)
    assert list(folder.iterdir()) == []


def test_no_bar_without_a_terminal(terminal):
    stream = terminal(False)
    with progress.shown("tests") as variables:
        assert variables == {}
    assert stream.getvalue() == ""


def test_no_second_bar_inside_a_watched_process(terminal, folder):
    stream = terminal(True)
    with progress.shown("tests") as variables:
        assert variables == {}
    assert stream.getvalue() == ""


def wait_for(text, stream):
    deadline = time.monotonic() + 5
    while text not in stream.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)
    return text in stream.getvalue()


def test_a_bar_on_a_terminal(terminal, monkeypatch):
    stream = terminal(True)
    with progress.shown("some study") as variables:
        place = Path(variables[progress.VARIABLE])
        assert list(variables) == [progress.VARIABLE]
        assert place.is_dir()
        assert progress.VARIABLE not in os.environ  # what it says is for the workers
        monkeypatch.setenv(progress.VARIABLE, str(place))
        progress.announce(40, 1)
        progress.finish("one", 30)
        assert wait_for("30/40", stream)
        assert "some study" in stream.getvalue()
    assert not place.exists()


def test_the_bar_goes_when_the_work_fails(terminal):
    stream = terminal(True)
    places = []

    def fail():
        with progress.shown("tests") as variables:
            places.append(Path(variables[progress.VARIABLE]))
            raise RuntimeError("the work failed")

    with pytest.raises(RuntimeError, match="failed"):
        fail()
    assert not places[0].exists()
    length = len(stream.getvalue())
    time.sleep(0.05)
    assert len(stream.getvalue()) == length  # nobody draws any more


def test_a_study_is_watched(terminal, tmp_path, monkeypatch):
    """The whole way: a study on a terminal, its environment put back when it is done."""
    terminal(True)
    monkeypatch.setenv("MLOGB_JOBS", "1")
    problem = Synthetic(dimension=3, rewards=(1.0,), parameter_norm=1.0)
    setting = Setting(
        name="one", problem=problem, sketch_size=2, regularization=1.0, step_size=1.0, norm_bound=1.0,
        radius={"kind": "constant", "beta": 0.1}, policies=("eofd",),
    )  # fmt: skip
    study = Study(experiment="tests", settings=[setting], n_rounds=20, n_trials=2, seed=0)
    counts, finish = [], progress.finish

    def look(key, rounds):
        before = progress.read(Path(os.environ[progress.VARIABLE]))
        finish(key, rounds)
        counts.append(
            (before[0] > 20 * len(counts), tuple(progress.read(Path(os.environ[progress.VARIABLE]))))
        )

    monkeypatch.setattr(progress, "finish", look)
    study.run(folder=tmp_path)
    assert counts == [
        (True, (20, 40, 1, 2)),
        (True, (40, 40, 2, 2)),
    ]  # noted while it was played, and at the end
    assert progress.VARIABLE not in os.environ
    study.run(folder=tmp_path)
    assert [count for _, count in counts[2:]] == [
        (20, 40, 1, 2),
        (40, 40, 2, 2),
    ]  # stored trials count as well
