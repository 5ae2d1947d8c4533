"""Does a stored run still say what its trials say? Every link from trials to pictures is checked.

A run is verified when its files have their checksums, its place is that of what was asked for, the cells
of its notebook are those of the text that it was made from and were executed in order, the notebook
executed again in the folder of the run prints and draws the same, trials that are stored give the same
rows, and a sample of trials that is computed again plays the same, and has the same regret and final state
up to roundoff.

A sample can miss a number that was changed in the tables, with all that follows from it, in a trial
outside the sample; all trials together cannot. Times and memory were measured, and nothing can measure
them again: they are compared with the stored trials where these are there, and otherwise believed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from compendium.experiments.data import FOLDER_VARIABLE, SHIPPED_SOURCE
from compendium.experiments.problems import forget_digits
from compendium.runs import attestation
from compendium.runs.recomputation import Report, trial_problems
from compendium.runs.replay import cell_problems, commit_problems, figure_problems, replay_problems
from compendium.runs.request import Request, used_data
from compendium.runs.run import Run, problems
from compendium.system.paths import SHIPPED, UsageError

__all__ = ["Report", "attest", "verify"]


def verify(run: Run, sample: int | None = 1, report: Report | None = None) -> list[str]:
    """Everything that contradicts a run, one line each; empty if nothing does.

    Parameters
    ----------
    run : Run
        The run.
    sample : int or None
        Number of trials of each study that are computed again; None for all.
    report : Report, optional
        Is told what was computed again and what could not be checked.
    """
    report = report or Report()
    found = problems(run.path)
    if found:
        return found
    checks: list[Callable[[], Iterable[str]]] = [
        lambda: _contradictions(run),
        lambda: commit_problems(run),
        lambda: cell_problems(run, report),
        lambda: figure_problems(run),
        lambda: replay_problems(run, report),
        lambda: trial_problems(run, sample, report),
    ]
    with _recorded_digits(run):
        for check in checks:
            try:
                found += check()
            except Exception as error:  # a run that cannot be checked is not verified, and the others are
                found.append(f"cannot be checked: {type(error).__name__}: {' '.join(str(error).split())}")
    return found


def attest(run: Run, report: Report) -> str:
    """Add to a verified run what reproduced it, and return that in a line.

    Raises
    ------
    UsageError
        If no trial was computed again: then nothing was reproduced.
    """
    if not report.computed:
        raise UsageError(f"{run.name}: no trial was computed again, so there is nothing to attest")
    entry = attestation.add(run.path, report.computed, report.trials, report.tolerances, report.gaps)
    return attestation.describe(entry)


def _contradictions(run: Run) -> Iterator[str]:
    """The record against its place, the table of studies, the data that were asked for, and attestations."""
    record = run.record
    asked = Request.of(run.path, record)
    if (asked.experiment, asked.name) != (run.path.parent.name, run.path.name):
        yield f"record.json: what it says was asked for belongs into {asked.experiment}/{asked.name}"
    if record["study"] != json.loads((run.path / "study.json").read_text(encoding="utf-8")):
        yield "study.json: the record has another one"
    for name, checksum in used_data(record["study"]).items():
        if asked.data.get(name) != checksum:
            yield f"study.json: it used other data of the name {name} than were asked for"
    attestation.read(run.path)


@contextmanager
def _recorded_digits(run: Run) -> Iterator[None]:
    """Use the digits that every installation has where the run used them, whatever else is there."""
    studies = run.record["study"].get("studies", [])
    sources = {data["source"] for one in studies for data in one.get("data", []) if data["name"] == "MNIST"}
    if sources != {SHIPPED_SOURCE}:
        yield
        return
    before = os.environ.get(FOLDER_VARIABLE)
    os.environ[FOLDER_VARIABLE] = SHIPPED
    forget_digits()
    try:
        yield
    finally:
        os.environ.pop(FOLDER_VARIABLE)
        if before is not None:
            os.environ[FOLDER_VARIABLE] = before
        forget_digits()
