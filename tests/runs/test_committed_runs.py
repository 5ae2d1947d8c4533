"""The committed runs, on a machine that may be another one than that which made them."""

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
from compendium.system import provenance

ROOT = Path(__file__).parents[2]


COMMITTED = sorted(path.parent for path in ROOT.glob("papermill_runs/*/paper-????????/record.json"))


def one_of_each(paths):
    """The runs, of which those of an experiment but the first are slow."""
    first = {path.parent: path for path in reversed(paths)}
    slow = {"marks": pytest.mark.slow}
    return [pytest.param(path, **({} if first[path.parent] == path else slow)) for path in paths]


@pytest.fixture(autouse=True)
def own_project(monkeypatch):
    monkeypatch.setenv("MLOGB_ROOT", str(ROOT))


@pytest.mark.parametrize("path", one_of_each(COMMITTED), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_committed_run_that_is_asked_for_again_is_found(path, monkeypatch):
    """Nothing is computed, even if code or text has changed, and the run has the name of its request."""
    monkeypatch.setattr(runs, "_attempt", lambda *_: pytest.fail("it is computed again"))
    monkeypatch.setattr(provenance, "publish_figures", lambda *_: [])
    record = runs.load_run(path).record
    found = runs.execute(record["experiment"], "paper", point=record["point"])
    assert (found.path, found.reused) == (path, True)
    assert Request.of(path, record).name == path.name


def imports_of(code):
    """Module and name of everything that code imports from this project."""
    pattern = r"^from ((?:compendium|mlogb_core)[\w.]*) import ([^(\n]+|\([^)]+\))"
    for module, names in re.findall(pattern, code, re.MULTILINE):
        for name in re.findall(r"(\w+)(?: as \w+)?", names):
            yield module, name


def can_be_imported(module, name):
    return hasattr(import_module(module), name) or import_module(f"{module}.{name}")


def test_notebooks_of_experiments_import_names_that_stay():
    """Runs store the code of their notebooks, which is executed again after modules have been moved."""
    stable = {
        "compendium.experiments",
        "compendium.report",
        "compendium.theory",
        "mlogb_core",
        "mlogb_core.curvature",
        "mlogb_core.link",
    }
    for experiment in load_manifest().experiments.values():
        text = experiment.source.read_text()
        imported = list(imports_of(text))
        assert imported
        assert {module for module, _ in imported} <= stable, experiment.name
        assert all(can_be_imported(module, name) for module, name in imported), experiment.name
        assert not re.search(r"^import (compendium|mlogb_core)", text, re.M), experiment.name


def test_notebooks_of_committed_runs_import_names_that_exist():
    for path in ROOT.glob("papermill_runs/*/*/*.ipynb"):
        cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        imported = list(imports_of("\n".join("".join(cell["source"]) for cell in cells)))
        assert imported
        assert all(can_be_imported(module, name) for module, name in imported), path


@pytest.mark.slow
def test_nothing_contradicts_a_committed_run():
    """Only trials whose data or packages are not here, and PDF files of another build, may stay unchecked."""
    found, gaps = {}, []
    for path in COMMITTED:
        report = Report()
        run = runs.load_run(path)
        found[run.name] = verify(run, report=report)
        gaps += report.gaps
    assert {name: faults for name, faults in found.items() if faults} == {}
    here = ("is not on this machine", "is not installed: `make peers` brings it")
    unknown = [gap for gap in gaps if not ("trials of" in gap and any(why in gap for why in here))]
    assert all("was compared by its pixels" in gap for gap in unknown), gaps
