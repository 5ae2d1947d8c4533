"""Verification: whether a stored run still agrees with its request, its text, its trials and its figures.

A run is verified if all of this holds:

- its files have the recorded checksums, and its folder has the name of its request;
- the cells of its notebook are those of the text from which it was made, and were executed in order;
- the notebook, executed again in the folder of the run, prints and draws the same;
- the trials that are stored give the rows of its tables;
- a sample of trials that are computed again plays the same actions, and has the same regret and final
  states up to roundoff.

If somebody changes a number in the tables and everything that follows from it, a sample finds that only if it
contains the trial of the number; all trials together always find it. Times and memory cannot be measured
again: times are compared with the stored trials, if there are any, and are otherwise taken as they are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from compendium.experiments.data import FOLDER_VARIABLE, SHIPPED_SOURCE
from compendium.experiments.problems import forget_digits
from compendium.runs import attestation
from compendium.runs.recomputation import Report, trial_faults
from compendium.runs.replay import cell_faults, commit_faults, figure_faults, replay_faults
from compendium.runs.request import Request, used_data
from compendium.runs.run import Run, faults
from compendium.system.paths import SHIPPED, UsageError

__all__ = ["Report", "attest", "verify"]


def verify(run: Run, sample: int | None = 1, report: Report | None = None) -> list[str]:
    """Return everything that contradicts a run, one line each; an empty list if nothing does.

    Parameters
    ----------
    run : Run
        The run.
    sample : int or None
        Number of trials of each study that are computed again; None for all.
    report : Report, optional
        It is completed with what was computed again and what could not be checked.
    """
    report = report or Report()
    found = faults(run.path)
    if found:
        return found
    checks: list[Callable[[], Iterable[str]]] = [
        lambda: _contradictions(run),
        lambda: commit_faults(run),
        lambda: cell_faults(run, report),
        lambda: figure_faults(run),
        lambda: replay_faults(run, report),
        lambda: trial_faults(run, sample, report),
    ]
    with _recorded_digits(run):
        for check in checks:
            try:
                found += check()
            except Exception as error:  # the run is not verified, and the other checks are made
                found.append(f"cannot be checked: {type(error).__name__}: {' '.join(str(error).split())}")
    return found


def attest(run: Run, report: Report) -> str:
    """Add an attestation by this code to a verified run, and return it as a line of text.

    Raises
    ------
    UsageError
        If no trial was computed again, so that nothing was reproduced.
    """
    if not report.computed:
        raise UsageError(f"{run.name}: no trial was computed again, so there is nothing to attest")
    entry = attestation.add(run.path, report.computed, report.trials, report.tolerances, report.gaps)
    return attestation.describe(entry)


def _contradictions(run: Run) -> Iterator[str]:
    """Compare the record with its folder's name, ``study.json``, the requested data and the attestations."""
    record = run.record
    asked = Request.of(run.path, record)
    if (asked.experiment, asked.name) != (run.path.parent.name, run.path.name):
        yield f"record.json: what it says was asked for belongs in {asked.experiment}/{asked.name}"
    if record["study"] != json.loads((run.path / "study.json").read_text(encoding="utf-8")):
        yield "study.json: the record has another one"
    for name, checksum in used_data(record["study"]).items():
        if asked.data.get(name) != checksum:
            yield f"study.json: it used other data of the name {name} than were asked for"
    yield from attestation.faults(run.path)


@contextmanager
def _recorded_digits(run: Run) -> Iterator[None]:
    """Use the digits that every installation has, if the run used them, even if this machine has others."""
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
