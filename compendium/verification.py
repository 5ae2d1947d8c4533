"""Does a stored run still say what its trials say? Every link from trials to pictures is checked.

A run is verified when its files have their checksums, every cell of its notebook was executed in
order, the notebook executed again in the folder of the run prints and draws the same, trials that
are stored give the same rows, and a sample of trials that is computed again plays the same to the
bit and ends in the same state up to roundoff.
"""

from __future__ import annotations

import ast
import base64
import copy
import io
import json
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from compendium import paths, trials
from compendium.notebooks import CLIENT_OPTIONS, KERNEL, check_executed, kernel_environment
from compendium.paths import UsageError
from compendium.provenance import blas_pools, relative_paths, sha256
from compendium.provenance import sidecar as sidecar_text
from compendium.runs import Run, load_run, problems
from compendium.study import TABLES, Results, Study, combine, final_states
from compendium.trials import TrialSpec

# A pixel may differ by rounding in another build of the drawing library.
_PIXEL = 2.0 / 255.0
# What vector instructions, or another version of the library, may do to the state at the end of a game.
_ROUNDOFF = 1e-9


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
    checks: list[Callable[[], Iterable[str]]] = [
        lambda: _contradictions(run),
        lambda: _figure_problems(run),
        lambda: _replay_problems(run),
        lambda: _trial_problems(run, sample),
    ]
    for check in checks:
        try:
            found += check()
        except Exception as error:  # a run that cannot be checked is not verified, and the others are
            found.append(f"cannot be checked: {type(error).__name__}: {' '.join(str(error).split())}")
    return found


def _contradictions(run: Run) -> Iterator[str]:
    """The record against its place, the table of studies and the parameters that the notebook was given."""
    record = run.record
    if (record["experiment"], record.get("run")) != (run.path.parent.name, run.path.name):
        yield "record.json: it is the record of another run"
    if record["study"] != json.loads((run.path / "study.json").read_text(encoding="utf-8")):
        yield "study.json: the record has another one"
    given: dict[str, Any] = {}
    for cell in _notebook(run).cells:
        if "injected-parameters" in cell.metadata.get("tags", []):
            statements = ast.parse(cell.source).body
            given = {
                ast.unparse(s.targets[0]): ast.literal_eval(s.value)
                for s in statements
                if isinstance(s, ast.Assign)
            }
    if given != record["parameters"]:
        yield "record.json: its parameters are not those that the notebook was given"


def _notebook(run: Run) -> Any:
    import nbformat

    path = run.path / f"{Path(run.record['notebook']).stem}.ipynb"
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def _figure_problems(run: Run) -> Iterator[str]:
    """A figure and its sidecar must be those that the run drew, or those of a later run."""
    folder = _figures_of_profile(run)
    for name in sorted({Path(picture).stem for picture in run.record["figures"]}):
        sidecar = folder / f"{name}.json"
        if _is_replaced(run, sidecar):
            continue
        expected = {
            sidecar.name: sha256(sidecar_text(name, run.name, run.record)),
            **{key: value for key, value in run.record["figures"].items() if Path(key).stem == name},
        }
        for file, digest in expected.items():
            if not (folder / file).is_file():
                yield f"figures: {file} is missing"
            elif sha256(folder / file) != digest:
                yield f"figures: {file} is not as the run left it"


def _figures_of_profile(run: Run) -> Path:
    local = run.record["profile"] != "paper" or bool(run.record["overrides"])
    return paths.figures_folder(local)


def _is_replaced(run: Run, sidecar: Path) -> bool:
    """Whether a sidecar belongs to another run that is there and drew a figure of this name."""
    try:
        other = paths.project_root() / json.loads(sidecar.read_text(encoding="utf-8"))["run"]
        record = load_run(other).record
    except (OSError, ValueError, KeyError, TypeError, UsageError):
        return False
    return other != run.path and sidecar.stem in {Path(picture).stem for picture in record["figures"]}


def _replay_problems(run: Run) -> list[str]:
    """Execute the notebook again in a copy of the run's folder and compare all outputs and tables."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellControlSignal, CellExecutionError, DeadKernelError

    notebook = _notebook(run)
    found = [f"the notebook: {problem}" for problem in check_executed(notebook)]
    if found:
        return found
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
        return [*found, *_table_problems(run.path, handed), *_picture_problems(run, handed / "figures")]


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
                if not _same_picture(*(base64.b64decode(text) for text in (content, data.get(kind, "")))):
                    yield "the picture differs from the stored one"
            elif _plain(data.get(kind, "")) != _plain(content):
                yield f"the {kind} output differs from the stored one"


def _plain(content: Any) -> Any:
    """An output without the places of this machine; a notebook may hold a text as a list of lines."""
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


def _picture_problems(run: Run, drawn: Path) -> Iterator[str]:
    """The figures that the notebook draws again against those of the run, as far as they are there."""
    recorded, published = run.record["figures"], _figures_of_profile(run)
    names = {path.name for path in drawn.glob("*")}
    for name in sorted(names ^ set(recorded)):
        yield f"figures: {name} is {'not drawn again' if name in recorded else 'drawn only now'}"
    for name in sorted(names & set(recorded)):
        if sha256(drawn / name) == recorded[name]:
            continue
        # Another build of the drawing library writes other bytes: what counts is what is seen.
        seen = Path(name).with_suffix(".png").name
        old, new = published / seen, drawn / seen
        there = old.is_file() and sha256(old) == recorded.get(seen)
        if not there:
            if not _is_replaced(run, published / f"{Path(name).stem}.json"):
                yield f"figures: {name} drawn again differs from the one of the run"
        elif not new.is_file() or not _same_picture(old.read_bytes(), new.read_bytes()):
            yield f"figures: {name} drawn again differs from the one of the run"


def _table_problems(stored: Path, handed: Path) -> list[str]:
    """The tables that the notebook hands over again must be those of the run."""
    found = []
    for file in (f"{name}.parquet" for name in TABLES):
        there = [(folder / file).is_file() for folder in (stored, handed)]
        if there == [True, True]:
            old, new = (pd.read_parquet(folder / file) for folder in (stored, handed))
            found += [f"{file}: {difference}" for difference in _differences(old, new)]
        elif any(there):
            found.append(f"{file}: {'not handed over again' if there[0] else 'handed over only now'}")
    old_study, new_study = (_without_sources(folder / "study.json") for folder in (stored, handed))
    return found + ([] if old_study == new_study else ["study.json: the notebook hands over another one"])


def _without_sources(path: Path) -> Any:
    """What a notebook handed over, without what changes when the library does."""
    if not path.is_file():
        return None
    study = json.loads(path.read_text(encoding="utf-8"))
    for one in study["studies"]:
        one.pop("sources", None)
        one.pop("trials", None)
    return study


def _differences(old: pd.DataFrame, new: pd.DataFrame, exact: bool = True) -> list[str]:
    """In one line where two tables differ, if they do."""
    texts = [name for name in ("setting", "policy") if name in old.columns and name in new.columns]
    try:
        # A table of nobody has no types.
        pd.testing.assert_frame_equal(
            old.astype(dict.fromkeys(texts, str)),
            new.astype(dict.fromkeys(texts, str)),
            check_exact=exact,
            rtol=_ROUNDOFF,
            atol=_ROUNDOFF,
            check_dtype=len(old) > 0,
        )
    except AssertionError as error:
        return [str(error).splitlines()[0]]
    return []


def _trial_problems(run: Run, sample: int) -> list[str]:
    """Rows of the tables against stored trials, and against a sample that is computed again."""
    found = []
    for entry in run.record["study"]["studies"]:
        if "settings" not in entry:
            continue
        study = Study.model_validate({name: entry[name] for name in Study.model_fields if name in entry})
        specs, folder = study.specs(), paths.trials_folder()
        for key, spec in zip(entry["trials"], specs, strict=True):
            frame = trials.load(spec, folder) if key == spec.key and trials.is_stored(spec, folder) else None
            if frame is not None:
                for name in _other_rows(run, study, spec, frame):
                    found.append(f"{_named(spec)}: the stored trial gives other rows of {name}")
        changed = entry["sources"] != trials.library_digest()
        for spec in _sampled(specs, sample, run.name):
            # What was played is the same; last digits of a final state depend on where its arrays lay, and
            # those of regrets on the BLAS kernel.
            same = blas_pools() == run.record["environment"]["blas"]
            loose = ("final",) if same else ("final", "results")
            for name in _other_rows(run, study, spec, spec.compute(), times=False, loose=loose):
                since = " (the library has changed since)" if changed else ""
                found.append(f"{_named(spec)}: computed again, it gives other rows of {name}{since}")
    return found


def _sampled(specs: list[TrialSpec], number: int, seed: str) -> list[TrialSpec]:
    """Some trials, the same for every call, those without the slow printed forms first."""
    order = random.Random(sha256(seed)).sample(specs, len(specs))
    slow = lambda spec: any(name.endswith(("printed", "cholesky")) for name in spec.setting.policies)  # noqa: E731
    return sorted(order, key=slow)[:number]


def _other_rows(
    run: Run,
    study: Study,
    spec: TrialSpec,
    frame: pd.DataFrame,
    times: bool = True,
    loose: tuple[str, ...] = (),
) -> Iterator[str]:
    """Which tables have not exactly what this trial gives, those in `loose` up to roundoff."""
    results = Results.of(study, combine([spec], [frame]), final_states([spec], [frame]))
    expected = {"results": results.rounds, "final": results.final}
    if times:
        expected["timings"] = results.timings
    for name, rows in expected.items():
        table = pd.read_parquet(run.path / f"{name}.parquet")
        same = (table["setting"] == spec.setting.name) & (table["trial"] == spec.trial)
        kept = table.loc[same, list(rows.columns)].reset_index(drop=True)
        # A table that is stacked with others may hold whole numbers as fractions.
        exact = name not in loose
        if len(kept) != len(rows) or _differences(kept.astype(rows.dtypes.to_dict()), rows, exact):
            yield f"{name}.parquet"


def _named(spec: TrialSpec) -> str:
    return f"{spec.experiment}, {spec.setting.name}, trial {spec.trial}"
