"""The committed runs, on a machine that did not make them."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path

import pytest

from compendium.runs import run as runs
from compendium.runs.verification import Report, verify
from compendium.system import moved

ROOT = Path(__file__).parents[2]


def test_recorded_notebooks_import_modules_that_are_here():
    """By the names of today, or by earlier ones that kernels know."""
    for path in ROOT.glob("papermill_runs/*/*/*.ipynb"):
        for cell in json.loads(path.read_text())["cells"]:
            code = "".join(cell["source"]) if cell["cell_type"] == "code" else ""
            for module, names in re.findall(
                r"^from ((?:compendium|mlogb_core)[\w.]*) import (.+)$", code, re.M
            ):
                for name in names.split(", "):
                    source = import_module(moved.MOVED.get(module, module))
                    submodule = f"{module}.{name}"
                    assert hasattr(source, name) or import_module(moved.MOVED.get(submodule, submodule)), path


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
