"""The committed runs, on a machine that did not make them."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path

import pytest

from compendium.runs import run as runs
from compendium.runs.manifest import load_manifest
from compendium.runs.request import Request
from compendium.runs.verification import Report, verify
from compendium.system import moved, provenance

ROOT = Path(__file__).parents[2]


COMMITTED = sorted(path.parent for path in ROOT.glob("papermill_runs/*/paper-????????/record.json"))


@pytest.fixture(autouse=True)
def own_project(monkeypatch):
    monkeypatch.setenv("MLOGB_ROOT", str(ROOT))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_committed_run_that_is_asked_for_again_is_found(path, monkeypatch):
    """Nothing is computed, whatever code or text has changed since; its name says what was asked for."""
    monkeypatch.setattr(runs, "_attempt", lambda *_: pytest.fail("it is computed again"))
    monkeypatch.setattr(provenance, "publish_figures", lambda *_: [])
    record = runs.load_run(path).record
    found = runs.execute(record["experiment"], "paper", point=record["point"])
    assert (found.path, found.reused) == (path, True)
    assert Request.of(path, record).name == path.name


def test_notebooks_of_experiments_import_names_that_stay():
    """Runs hold the text of their notebooks, and are executed again when modules have moved."""
    stable = {
        "compendium.experiments",
        "compendium.report",
        "compendium.theory",
        "mlogb_core",
        "mlogb_core.curvature",
    }
    for experiment in load_manifest().experiments.values():
        text = experiment.source.read_text()
        for module, names in re.findall(
            r"^from ((?:compendium|mlogb_core)[\w.]*) import ([^(\n]+|\([^)]+\))", text, re.M
        ):
            assert module in stable, experiment.name
            for name in re.findall(r"(\w+)(?: as \w+)?", names):
                assert hasattr(import_module(module), name) or import_module(f"{module}.{name}"), (
                    experiment.name
                )
        assert not re.search(r"^import (compendium|mlogb_core)", text, re.M), experiment.name


def test_recorded_notebooks_import_modules_that_are_here():
    """By the names of today, or by earlier ones that kernels know."""
    for path in ROOT.glob("papermill_runs/*/*/*.ipynb"):
        cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        code = "\n".join("".join(cell["source"]) for cell in cells)
        for module, names in re.findall(
            r"^from ((?:compendium|mlogb_core)[\w.]*) import ([\w, ]+)$", code, re.M
        ):
            for name in re.findall(r"(\w+)(?: as \w+)?", names):
                source = import_module(moved.MOVED.get(module, module))
                submodule = f"{module}.{name}"
                assert hasattr(source, name) or import_module(moved.MOVED.get(submodule, submodule)), path


@pytest.mark.slow
def test_nothing_contradicts_a_committed_run():
    """What this machine cannot check is named; that may be nothing but data that are not here."""
    found, gaps = {}, []
    for path in COMMITTED:
        report = Report()
        run = runs.load_run(path)
        found[run.name] = verify(run, report=report)
        gaps += report.gaps
    assert {name: problems for name, problems in found.items() if problems} == {}
    unknown = [gap for gap in gaps if not ("trials of" in gap and "is not on this machine" in gap)]
    assert all("was compared by its pixels" in gap for gap in unknown), gaps
