"""The committed runs, on a machine that did not make them."""

from __future__ import annotations

from pathlib import Path

import pytest

from compendium.runs import run as runs
from compendium.runs.verification import Report, verify

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_nothing_contradicts_a_committed_run(monkeypatch, record_property):
    """What this machine cannot check is named: only data that are not here, and the bytes of a PDF."""
    monkeypatch.setenv("MLOGB_ROOT", str(ROOT))
    found, gaps = {}, []
    committed = runs.find_runs(profile="paper")
    assert len(committed) == 10
    for run in committed:
        report = Report()
        found[run.name] = verify(run, report=report)
        gaps += report.gaps
    assert {name: problems for name, problems in found.items() if problems} == {}
    unknown = [gap for gap in gaps if not ("trials of" in gap and "is not on this machine" in gap)]
    assert all("was compared by its pixels" in gap for gap in unknown), gaps
