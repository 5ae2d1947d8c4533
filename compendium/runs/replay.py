"""Check what a run shows: its cells, the outputs of its notebook, and its figures.

The cells are compared with the text from which the notebook was made. The notebook is executed again in a
copy of the run's folder, where its studies read the stored tables and the measured values, so that no trial
is computed.
"""

from __future__ import annotations

import base64
import copy
import io
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from compendium.experiments.study import TABLES
from compendium.runs.notebooks import check_executed, normalise
from compendium.runs.recomputation import Report, differences
from compendium.runs.run import Run, load_run
from compendium.system import paths
from compendium.system.kernels import CLIENT_OPTIONS, KERNEL, kernel_environment, temporary_folder
from compendium.system.paths import UsageError
from compendium.system.provenance import alternative_text, relative_paths, sha256
from compendium.system.provenance import sidecar as sidecar_text

# By how much a pixel may differ, because of rounding in another build of the drawing library.
_PIXEL = 2.0 / 255.0


def cell_faults(run: Run, report: Report) -> Iterator[str]:
    """Compare code and prose of the executed notebook with the text from which it was made."""
    import jupytext

    record = run.record
    cells = _notebook(run).cells
    given = [cell.source for cell in cells if "injected-parameters" in cell.metadata.get("tags", [])]
    if given != ([_injected(run).source] if record["parameters"] else []):
        yield "record.json: its parameters are not those that the notebook was given"
        return
    text, where = _text_of(run)
    if text is not None and sha256(text) == record["notebook_sha256"] and where != record["notebook"]:
        report.notes.append(f"{record['notebook']} has changed since; the run has the text of {where}")
    if text is None:
        report.gaps.append(f"the cells of the notebook were compared with no text: {where}")
        return
    if record["git_clean"] is True and sha256(text) != record["notebook_sha256"]:
        yield f"record.json: {where} is not the text that the record names"
        return
    expected = list(normalise(jupytext.reads(text, fmt="md:myst")).cells)
    if record["parameters"]:
        place = next(i for i, one in enumerate(expected, 1) if "parameters" in one.metadata.get("tags", []))
        expected.insert(place, _injected(run))
    if len(cells) != len(expected):
        yield f"the notebook has {len(cells)} cells where its text ({where}) has {len(expected)}"
        return
    for number, (cell, own) in enumerate(zip(cells, expected, strict=True), 1):
        kinds = [(one.cell_type, one.source.strip("\n"), one.metadata) for one in (cell, own)]
        if kinds[0] != kinds[1]:
            yield f"cell {number}: its {cell.cell_type} is not that of the text ({where})"


def _injected(run: Run) -> Any:
    """Return the cell by which papermill gives the parameters of the record to the notebook."""
    import nbformat
    from papermill.translators import PythonTranslator

    source = PythonTranslator.codify(run.record["parameters"], "Parameters")
    cell = {"cell_type": "code", "source": source, "metadata": {"tags": ["injected-parameters"]}}
    return nbformat.from_dict(cell)  # type: ignore[no-untyped-call]


def _text_of(run: Run) -> tuple[str | None, str]:
    """Return the text from which a notebook was made and where it is, or None and why it was not found."""
    record, root = run.record, paths.project_root()
    here = root / record["notebook"]
    if here.is_file():
        text = here.read_text(encoding="utf-8")
        if sha256(text) == record["notebook_sha256"]:
            return text, record["notebook"]
    commit = record["git_commit"]
    if commit is None or record["git_clean"] is not True:
        # The text is in no commit, so the cells can only be compared with the one that is here.
        if not here.is_file():
            return None, f"{record['notebook']} is not here, and the run was not made from a clean commit"
        return text, f"{record['notebook']}, which has changed since, or the run was made from another text"
    content = _at_commit(record, record["notebook"])
    if content is None:
        return (
            None,
            f"{record['notebook']} has changed since, and commit {commit[:9]} is not in this repository",
        )
    return content.decode("utf-8").replace("\r\n", "\n"), f"{record['notebook']} at commit {commit[:9]}"


def commit_faults(run: Run) -> Iterator[str]:
    """Check that the commit of a record exists, and that it has the pinned libraries of the record."""
    record = run.record
    commit = record["git_commit"]
    if commit is None:
        return
    if _git("cat-file", "-e", f"{commit}^{{commit}}") is None:
        complete = _git("rev-parse", "--is-shallow-repository") == b"false\n"
        if complete and record["git_clean"]:
            yield f"record.json: commit {commit[:9]} is not in this repository, which is complete"
        return
    lock = _at_commit(record, "requirements.lock")
    if record["git_clean"] and lock is not None and sha256(lock) != record.get("lock_sha256"):
        yield f"record.json: its lock_sha256 is not that of requirements.lock at commit {commit[:9]}"


def _at_commit(record: Mapping[str, Any], name: str) -> bytes | None:
    """Return a file of the project at the commit of a run; None if this repository does not have it."""
    return _git("show", f"{record['git_commit']}:./{name}")


def _git(*arguments: str) -> bytes | None:
    """Return what git prints in the project's folder; None if git fails or is missing."""
    command = ["git", "-C", str(paths.project_root()), *arguments]
    try:
        return subprocess.run(command, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def _notebook(run: Run) -> Any:
    import nbformat

    return nbformat.read(run.notebook, as_version=4)  # type: ignore[no-untyped-call]


def figure_faults(run: Run) -> Iterator[str]:
    """Check that each figure and its sidecar are those that the run drew, or those of a later run."""
    folder = paths.figures_folder(local=not run.is_published)
    for name in sorted({Path(picture).stem for picture in run.record["figures"]}):
        sidecar = folder / f"{name}.json"
        if _is_replaced(run, sidecar):
            continue
        expected = {
            sidecar.name: sha256(sidecar_text(name, run.name, run.record, alternative_text(sidecar))),
            **{key: value for key, value in run.record["figures"].items() if Path(key).stem == name},
        }
        for file, digest in expected.items():
            if not (folder / file).is_file():
                yield f"figures: {file} is missing"
            elif sha256(folder / file) != digest:
                yield f"figures: {file} is not as the run left it"


def _is_replaced(run: Run, sidecar: Path) -> bool:
    """Whether a sidecar names another run that exists and drew a figure of this name."""
    try:
        other = paths.project_root() / json.loads(sidecar.read_text(encoding="utf-8"))["run"]
        record = load_run(other).record
    except (OSError, ValueError, KeyError, TypeError, UsageError):
        return False
    return other != run.path and sidecar.stem in {Path(picture).stem for picture in record["figures"]}


def replay_faults(run: Run, report: Report) -> list[str]:
    """Execute the notebook again in a copy of the run's folder and compare all outputs and tables."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellControlSignal, CellExecutionError, DeadKernelError

    notebook = _notebook(run)
    found = [f"the notebook: {fault}" for fault in check_executed(notebook)]
    if found:
        return found
    again = copy.deepcopy(notebook)
    for cell in again.cells:
        if cell.cell_type == "code":
            cell.update(outputs=[], execution_count=None)
    again.metadata["kernelspec"] = KERNEL
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as name:
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
            f"cell {number}: {fault}"
            for number, (old, new) in enumerate(zip(notebook.cells, again.cells, strict=True), 1)
            if old.cell_type == "code"
            for fault in _output_faults(old.outputs, new.outputs)
        ]
        found += _table_faults(run.path, handed)
        return [*found, *_picture_faults(run, handed / "figures", report)]


def _output_faults(old: list[Any], new: list[Any]) -> Iterator[str]:
    if len(old) != len(new):
        yield f"{len(new)} outputs where {len(old)} are stored"
        return
    for stored, fresh in zip(old, new, strict=True):
        if stored.output_type != fresh.output_type:
            yield f"{fresh.output_type} where {stored.output_type} is stored"
            continue
        for entry in ("name", "metadata"):
            before, now = stored.get(entry), fresh.get(entry)
            if before != now:
                yield f"the {entry} of an output is {now!r} where {before!r} is stored"
        if relative_paths(fresh.get("text", "")) != stored.get("text", ""):
            yield "the text differs from the stored one"
        own, data = stored.get("data", {}), fresh.get("data", {})
        for kind in sorted({*own, *data}):
            if kind not in own or kind not in data:
                yield f"the {kind} output is {'stored and not made again' if kind in own else 'not stored'}"
            elif kind == "image/png":
                if not _same_picture(base64.b64decode(own[kind]), base64.b64decode(data[kind])):
                    yield "the picture differs from the stored one"
            elif _plain(data[kind]) != _plain(own[kind]):
                yield f"the {kind} output differs from the stored one"


def _plain(content: Any) -> Any:
    """Return an output without paths of this machine, and as one text where it is a list of lines."""
    if isinstance(content, list):
        content = "".join(content)
    return relative_paths(content) if isinstance(content, str) else content


def _same_picture(stored: bytes, fresh: bytes) -> bool:
    import matplotlib.image

    if stored == fresh:
        return True
    first, second = (
        matplotlib.image.imread(io.BytesIO(content), format="png") if content else np.zeros(0)
        for content in (stored, fresh)
    )
    return first.shape == second.shape and bool(np.abs(first - second).max(initial=0.0) <= _PIXEL)


def _picture_faults(run: Run, drawn: Path, report: Report) -> Iterator[str]:
    """Compare the figures that the notebook draws again with those of the run, if these are stored.

    Each figure has a PNG and a PDF. If the PNG is the same to the byte, the PDF must be so too. Another build
    of the drawing library writes other bytes: then the pixels of the PNG are compared, and the PDF cannot be.
    """
    recorded, published = run.record["figures"], paths.figures_folder(local=not run.is_published)
    names = {path.name for path in drawn.glob("*")}
    for name in sorted(names ^ set(recorded)):
        yield f"figures: {name} is {'not drawn again' if name in recorded else 'drawn only now'}"
    for name in sorted(names & set(recorded)):
        if sha256(drawn / name) == recorded[name]:
            continue
        seen = Path(name).with_suffix(".png").name
        old, new = published / seen, drawn / seen
        there = old.is_file() and sha256(old) == recorded.get(seen)
        if not there:
            if not _is_replaced(run, published / f"{Path(name).stem}.json"):
                yield f"figures: {name} drawn again differs from the one of the run"
        elif not new.is_file() or not _same_picture(old.read_bytes(), new.read_bytes()):
            yield f"figures: {name} drawn again differs from the one of the run"
        elif name != seen and sha256(new) == recorded[seen]:
            yield f"figures: {name} drawn again differs from the one of the run, and {seen} does not"
        elif name != seen:
            report.gaps.append(f"{name} was compared by its pixels, {seen}: its bytes are of another build")


def _table_faults(stored: Path, handed: Path) -> list[str]:
    """Compare the tables that the notebook publishes again with those of the run."""
    found = []
    for file in (f"{name}.parquet" for name in TABLES):
        there = [(folder / file).is_file() for folder in (stored, handed)]
        if there == [True, True]:
            old, new = (pd.read_parquet(folder / file) for folder in (stored, handed))
            found += [f"{file}: {difference}" for difference in differences(old, new)]
        elif any(there):
            found.append(f"{file}: {'not handed over again' if there[0] else 'handed over only now'}")
    old_study, new_study = (_without_sources(folder / "study.json") for folder in (stored, handed))
    return found + ([] if old_study == new_study else ["study.json: the notebook hands over another one"])


def _without_sources(path: Path) -> Any:
    """Return what a notebook published, without what changes with the code of the library."""
    if not path.is_file():
        return None
    study = json.loads(path.read_text(encoding="utf-8"))
    for one in study["studies"]:
        one.pop("sources", None)
        one.pop("trials", None)
    return study
