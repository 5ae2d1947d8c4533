"""Does a stored run still say what its trials say? Every link from trials to pictures is checked.

A run is verified when its files have their checksums, every cell of its notebook was executed in
order, the notebook executed again in the folder of the run prints and draws the same, trials that
are stored give the same rows, and a sample of trials that is computed again gives them to the bit.
"""

from __future__ import annotations

import base64
import copy
import io
import json
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from compendium import paths, trials
from compendium.notebooks import CLIENT_OPTIONS, KERNEL, check_executed, kernel_environment
from compendium.provenance import relative_paths, sha256
from compendium.runs import Run, figures_of, problems
from compendium.study import Results, Study, combine, final_states
from compendium.trials import TrialSpec

# A pixel may differ by rounding in another build of the drawing library.
_PIXEL = 2.0 / 255.0


def verify(run: Run, sample: int = 1) -> list[str]:
    """Everything that is wrong with a run, one line each; empty if it is verified.

    Parameters
    ----------
    run : Run
        The run.
    sample : int
        Number of trials of each study that are computed again.
    """
    found = problems(run.path)
    if found:
        return found
    import nbformat

    path = run.path / f"{Path(run.record['notebook']).stem}.ipynb"
    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    found += [f"{path.name}: {problem}" for problem in check_executed(notebook)]
    found += _changed_figures(run)
    if not found:
        found += _replay_problems(run, notebook)
    return found + _trial_problems(run, sample)


def _changed_figures(run: Run) -> Iterator[str]:
    """A committed figure that names this run must be the one that the run drew."""
    known = {path.name for path in figures_of(run)}
    for folder in (paths.figures_folder(), paths.figures_folder(local=True)):
        for sidecar in folder.glob("*.json"):
            entry = json.loads(sidecar.read_text(encoding="utf-8"))
            if entry.get("run") != run.name:
                continue
            for ending, digest in entry["sha256"].items():
                name = f"{sidecar.stem}.{ending}"
                recorded = run.record["figures"].get(name)
                if name not in known or digest != recorded:
                    yield f"figures: {name} is not the picture that the run drew"


def _replay_problems(run: Run, notebook: Any) -> list[str]:
    """Execute the notebook again in a copy of the run's folder and compare all outputs and tables."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellControlSignal, CellExecutionError, DeadKernelError

    again = copy.deepcopy(notebook)
    for cell in again.cells:
        if cell.cell_type == "code":
            cell.update(outputs=[], execution_count=None)
    again.metadata["kernelspec"] = KERNEL
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / run.path.name
        shutil.copytree(run.path, folder)
        handed = Path(name) / "handed"
        handed.mkdir()
        place = {"metadata": {"path": str(folder)}}
        client = NotebookClient(again, timeout=600, resources=place, **CLIENT_OPTIONS)
        try:
            with kernel_environment(MLOGB_RUN_DIR=str(handed)):
                client.execute()
        except (CellExecutionError, CellControlSignal, DeadKernelError) as error:
            return [f"the notebook cannot be executed again: {str(error).strip().splitlines()[-1]}"]
        found = [
            f"cell {number}: {problem}"
            for number, (old, new) in enumerate(zip(notebook.cells, again.cells, strict=True), 1)
            if old.cell_type == "code"
            for problem in _output_problems(old.outputs, new.outputs)
        ]
        return found + _table_problems(run.path, handed)


def _output_problems(old: list[Any], new: list[Any]) -> Iterator[str]:
    if len(old) != len(new):
        yield f"{len(new)} outputs where {len(old)} are stored"
        return
    for stored, fresh in zip(old, new, strict=True):
        if stored.output_type != fresh.output_type:
            yield f"{fresh.output_type} where {stored.output_type} is stored"
            continue
        if relative_paths(fresh.get("text", "")) != stored.get("text", ""):
            yield "the text differs from the stored one"
        data = fresh.get("data", {})
        for kind, content in stored.get("data", {}).items():
            if kind == "image/png":
                if not _same_picture(content, data.get(kind, "")):
                    yield "the picture differs from the stored one"
            elif relative_paths("".join(data.get(kind, ""))) != "".join(content):
                yield f"the {kind} output differs from the stored one"


def _same_picture(stored: str, fresh: str) -> bool:
    import matplotlib.image

    first, second = (
        matplotlib.image.imread(io.BytesIO(base64.b64decode(text)), format="png") if text else np.zeros(0)
        for text in (stored, fresh)
    )
    return first.shape == second.shape and bool(np.abs(first - second).max(initial=0.0) <= _PIXEL)


def _table_problems(stored: Path, handed: Path) -> list[str]:
    """The tables that the notebook hands over again must be those of the run."""
    found = []
    for name in ("results", "timings", "final"):
        old, new = (pd.read_parquet(folder / f"{name}.parquet") for folder in (stored, handed))
        try:
            pd.testing.assert_frame_equal(old, new, check_exact=True)
        except AssertionError as error:
            found.append(f"{name}.parquet: {str(error).splitlines()[0]}")
    findings = (json.loads((folder / "study.json").read_text())["findings"] for folder in (stored, handed))
    first, second = findings
    return found + ([] if first == second else ["study.json: the findings differ from the notebook's"])


def _trial_problems(run: Run, sample: int) -> list[str]:
    """Rows of the result table against stored trials, and against a sample that is computed again."""
    table = pd.read_parquet(run.path / "results.parquet")
    found = []
    for entry in run.record["study"]["studies"]:
        if "settings" not in entry:
            continue
        study = Study.model_validate({name: entry[name] for name in Study.model_fields if name in entry})
        specs = study.specs()
        stored = dict(zip(entry.get("trials", []), specs, strict=False))
        for key, spec in stored.items():
            if key == spec.key and trials.is_stored(spec, paths.trials_folder()):
                frame = trials.load(spec, paths.trials_folder())
                if frame is not None and not _has_rows(table, study, spec, frame):
                    found.append(f"{_named(spec)}: the stored trial gives other rows")
        for spec in _sampled(specs, sample, run.name):
            if not _has_rows(table, study, spec, spec.compute()):
                found.append(f"{_named(spec)}: computed again, it gives other rows")
    return found


def _sampled(specs: list[TrialSpec], number: int, seed: str) -> list[TrialSpec]:
    """Some trials, the same for every call, those without the slow literal forms first."""
    order = random.Random(sha256(seed)).sample(specs, len(specs))
    slow = lambda spec: any(name.endswith("literal") for name in spec.setting.policies)  # noqa: E731
    return sorted(order, key=slow)[:number]


def _has_rows(table: pd.DataFrame, study: Study, spec: TrialSpec, frame: pd.DataFrame) -> bool:
    """Whether the table has exactly what this trial gives."""
    rows = Results.of(study, combine([spec], [frame]), final_states([spec], [frame])).rounds
    same = (table["setting"] == spec.setting.name) & (table["trial"] == spec.trial)
    kept = table.loc[same, list(rows.columns)].reset_index(drop=True)
    texts = ["setting", "policy"]
    try:
        pd.testing.assert_frame_equal(
            kept.astype(dict.fromkeys(texts, str)),
            rows.astype(dict.fromkeys(texts, str)),
            check_exact=True,
            check_dtype=False,
        )
    except AssertionError:
        return False
    return True


def _named(spec: TrialSpec) -> str:
    return f"{spec.experiment}, {spec.setting.name}, trial {spec.trial}"
