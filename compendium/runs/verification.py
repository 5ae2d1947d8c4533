"""Does a stored run still say what its trials say? Every link from trials to pictures is checked.

A run is verified when its files have their checksums, the cells of its notebook are those of the text
that it was made from and were executed in order, the notebook executed again in the folder of the run
prints and draws the same, trials that are stored give the same rows, and a sample of trials that is
computed again plays the same to the bit and ends in the same state up to roundoff.

A sample can miss a number that was changed in the tables, with all that follows from it, in a trial
outside the sample; all trials together cannot. Times and memory were measured, and nothing can measure
them again: they are compared with the stored trials where these are there, and otherwise believed.
"""

from __future__ import annotations

import ast
import base64
import copy
import io
import json
import os
import random
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from compendium.experiments import trials
from compendium.experiments.data import FOLDER_VARIABLE, SHIPPED_SOURCE, DataError
from compendium.experiments.problems import forget_digits
from compendium.experiments.study import TABLES, Results, Study, combine, final_states
from compendium.experiments.trials import TrialSpec
from compendium.runs.notebooks import check_executed, normalise
from compendium.runs.run import Run, load_run, problems
from compendium.system import paths
from compendium.system.kernels import CLIENT_OPTIONS, KERNEL, kernel_environment
from compendium.system.paths import SHIPPED, UsageError
from compendium.system.provenance import alternative_text, blas_pools, relative_paths, sha256, sorted_pools
from compendium.system.provenance import sidecar as sidecar_text

# A pixel may differ by rounding in another build of the drawing library.
_PIXEL = 2.0 / 255.0
# What vector instructions, or another version of the library, may do to the state at the end of a game.
_ROUNDOFF = 1e-9
#: Roundoff of a decision margin, which is a difference of scores of the order of 1.
_MARGIN = 1e-12


@dataclass
class Report:
    """What a verification did, beside the problems that it found.

    Attributes
    ----------
    say : callable
        Is given a line when a trial has been computed again.
    gaps : list of str
        What could not be checked on this machine, and why; one line each.
    """

    say: Callable[[str], None] = lambda _: None
    gaps: list[str] = field(default_factory=list)


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
        lambda: _commit_problems(run),
        lambda: _cell_problems(run, report),
        lambda: _figure_problems(run),
        lambda: _replay_problems(run, report),
        lambda: _trial_problems(run, sample, report),
    ]
    with _recorded_digits(run):
        for check in checks:
            try:
                found += check()
            except Exception as error:  # a run that cannot be checked is not verified, and the others are
                found.append(f"cannot be checked: {type(error).__name__}: {' '.join(str(error).split())}")
    return found


@contextmanager
def _recorded_digits(run: Run) -> Iterator[None]:
    """Use the digits that every installation has where the run used them, whatever else is there."""
    sources = {data["source"] for data in _recorded_data(run).values() if data["name"] == "MNIST"}
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


def _recorded_data(run: Run) -> dict[str, dict[str, Any]]:
    """The data sets of the run by checksum."""
    studies = run.record["study"].get("studies", [])
    return {data["sha256"]: data for one in studies for data in one.get("data", []) if "sha256" in data}


def _cell_problems(run: Run, report: Report) -> Iterator[str]:
    """Code and prose of the executed notebook against the text that it was made from."""
    import jupytext
    import nbformat
    from papermill.translators import PythonTranslator

    record = run.record
    text, where = _text_of(run)
    if text is None:
        report.gaps.append(f"the cells of the notebook were compared with no text: {where}")
        return
    if record["git_clean"] is True and sha256(text) != record["notebook_sha256"]:
        yield f"record.json: {where} is not the text that the record names"
        return
    expected = list(normalise(jupytext.reads(text, fmt="md:myst")).cells)
    if record["parameters"]:
        injected = PythonTranslator.codify(record["parameters"], "Parameters")
        place = next(i for i, one in enumerate(expected, 1) if "parameters" in one.metadata.get("tags", []))
        cell = {"cell_type": "code", "source": injected, "metadata": {"tags": ["injected-parameters"]}}
        expected.insert(place, nbformat.from_dict(cell))  # type: ignore[no-untyped-call]
    cells = _notebook(run).cells
    if len(cells) != len(expected):
        yield f"the notebook has {len(cells)} cells where its text ({where}) has {len(expected)}"
        return
    for number, (cell, own) in enumerate(zip(cells, expected, strict=True), 1):
        kinds = [(one.cell_type, one.source.strip("\n"), one.metadata) for one in (cell, own)]
        if kinds[0] != kinds[1]:
            yield f"cell {number}: its {cell.cell_type} is not that of the text ({where})"


def _text_of(run: Run) -> tuple[str | None, str]:
    """The text that a notebook was made from, and where it was found or why it was not."""
    record, root = run.record, paths.project_root()
    here = root / record["notebook"]
    if here.is_file():
        text = here.read_text(encoding="utf-8")
        if sha256(text) == record["notebook_sha256"]:
            return text, record["notebook"]
    commit = record["git_commit"]
    if commit is None or record["git_clean"] is not True:
        # No commit has the text. The one that is here is all there is to hold the cells against.
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


def _at_commit(record: Mapping[str, Any], name: str) -> bytes | None:
    """A file of the project at the commit of a run, or None if this repository does not have that."""
    return _git("show", f"{record['git_commit']}:./{name}")


def _git(*arguments: str) -> bytes | None:
    """What git answers in the project's folder, or None if it fails or is not there."""
    command = ["git", "-C", str(paths.project_root()), *arguments]
    try:
        return subprocess.run(command, check=True, capture_output=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None


def _commit_problems(run: Run) -> Iterator[str]:
    """The commit that a record names, and the pinned libraries that it had."""
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


def _contradictions(run: Run) -> Iterator[str]:
    """The record against its place, the table of studies and the parameters that the notebook was given."""
    record = run.record
    if (record["experiment"], record.get("run")) != (run.path.parent.name, run.path.name):
        yield "record.json: it is the record of another run"
    if record["study"] != json.loads((run.path / "study.json").read_text(encoding="utf-8")):
        yield "study.json: the record has another one"
    if not record["point"].items() <= record["parameters"].items():
        yield "record.json: its point is not among its parameters"
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
            sidecar.name: sha256(sidecar_text(name, run.name, run.record, alternative_text(sidecar))),
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


def _replay_problems(run: Run, report: Report) -> list[str]:
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
        found += _table_problems(run.path, handed)
        return [*found, *_picture_problems(run, handed / "figures", report)]


def _output_problems(old: list[Any], new: list[Any]) -> Iterator[str]:
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


def _picture_problems(run: Run, drawn: Path, report: Report) -> Iterator[str]:
    """The figures that the notebook draws again against those of the run, as far as they are there.

    Where the picture in pixels is the same to the byte, the one in lines must be so too. Another build of the
    drawing library writes other bytes: there pixels are compared, and what is not pixels cannot be.
    """
    recorded, published = run.record["figures"], _figures_of_profile(run)
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
    margin = "smallest_margin"
    if not exact and margin in old.columns and margin in new.columns and len(old) == len(new):
        # Margins are small by nature, and roundoff of the scores is far below what counts in the others.
        first, second = (table[margin].astype(float) for table in (old, new))  # objects where one has none
        if not np.allclose(second, first, rtol=_ROUNDOFF, atol=_MARGIN, equal_nan=True):
            return [f"{margin} differs"]
        old, new = old.drop(columns=margin), new.drop(columns=margin)
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


def _trial_problems(run: Run, sample: int | None, report: Report) -> list[str]:
    """Rows of the tables against stored trials, and against trials that are computed again."""
    found: list[str] = []
    data = _recorded_data(run)
    tables = {name: pd.read_parquet(run.path / f"{name}.parquet") for name in TABLES}
    claimed: set[tuple[str, int]] = set()
    for entry in run.record["study"]["studies"]:
        if "settings" not in entry:
            continue
        study = Study.model_validate({name: entry[name] for name in Study.model_fields if name in entry})
        specs, folder = study.specs(), paths.trials_folder()
        claimed |= {(spec.setting.name, spec.trial) for spec in specs}
        known, absent = _with_their_data(specs, data)
        report.gaps += absent
        found += _data_problems(study, entry["data"])
        margins: dict[tuple[str, str], tuple[float, float]] = {}
        keys = dict(zip(((spec.setting.name, spec.trial) for spec in specs), entry["trials"], strict=True))
        for spec in known:
            key = keys[spec.setting.name, spec.trial]
            frame = trials.load(spec, folder) if key == spec.key and trials.is_stored(spec, folder) else None
            if frame is not None:
                for name in _other_rows(tables, study, spec, frame):
                    found.append(f"{_named(spec)}: the stored trial gives other rows of {name}")
        changed = entry["sources"] != trials.library_digest()
        chosen = _sampled(known, len(known) if sample is None else sample, run.name)
        for number, spec in enumerate(chosen, 1):
            # What was played is the same; last digits of a final state depend on where its arrays lay, and
            # those of regrets on the BLAS kernel.
            same = blas_pools() == sorted_pools(run.record["environment"]["blas"])
            loose = ("final",) if same else ("final", "results")
            frame = spec.compute()
            for one in _alone(study, spec, frame).margins:
                who = one["setting"], one["policy"]
                before = margins.get(who, (np.inf, np.inf))
                margins[who] = min(before[0], one["all_rounds"]), min(before[1], one["after_round_1"])
            for name in _other_rows(tables, study, spec, frame, times=False, loose=loose):
                since = " (the library has changed since)" if changed else ""
                found.append(f"{_named(spec)}: computed again, it gives other rows of {name}{since}")
            report.say(
                f"computed again: {_named(spec)} ({number} of {len(chosen)}; the study has {len(specs)})"
            )
        if sample is None and not absent:
            found += _margin_problems(study, entry["smallest_margin"], margins)
    if claimed:
        for name, table in tables.items():
            others = set(zip(table["setting"].astype(str), table["trial"].astype(int), strict=True)) - claimed
            found += [f"{name}.parquet: {s}, trial {t}, is of no study" for s, t in sorted(others)]
    return found


def _data_problems(study: Study, recorded: list[dict[str, Any]]) -> Iterator[str]:
    """The data that a study names against its problems, and against those of this machine."""
    used = {setting.problem.dataset: setting.problem for setting in study.settings}
    used.pop(None, None)
    if sorted(data["name"] for data in recorded) != sorted(str(name) for name in used):
        yield f"study.json: {study.experiment} names other data than those of its problems"
    for data in recorded:
        with suppress(KeyError, DataError):
            here = used[data["name"]].found()
            # The same data may have come from another place.
            if here["sha256"] == data["sha256"] and here | {"source": ""} != data | {"source": ""}:
                yield f"study.json: {study.experiment} does not describe {data['name']} as it is"


def _margin_problems(
    study: Study, recorded: list[dict[str, Any]], computed: Mapping[tuple[str, str], tuple[float, float]]
) -> Iterator[str]:
    """The smallest margins of a study against those of all its trials; they have three digits."""
    stored = {(one["setting"], one["policy"]): (one["all_rounds"], one["after_round_1"]) for one in recorded}
    for key in sorted({*stored, *computed}):
        old, new = (np.array(margins.get(key, (np.nan, np.nan))) for margins in (stored, computed))
        if not np.allclose(new, old, rtol=0.01, atol=_MARGIN):
            yield f"study.json: {study.experiment}, {key[0]}, {key[1]}: computed again, its margin differs"


def _with_their_data(specs: list[TrialSpec], data: Mapping[str, Any]) -> tuple[list[TrialSpec], list[str]]:
    """The trials whose data are those of the run, and for the others why they cannot be computed again."""
    known, reasons = [], Counter[str]()
    states: dict[str | None, str | None] = {None: None}
    for spec in specs:
        problem = spec.setting.problem
        if problem.dataset not in states:
            try:
                here = problem.found()["sha256"]
            except DataError as error:
                states[problem.dataset] = str(error)
            else:
                other = f"the run had other data of the name {problem.dataset} than this machine"
                states[problem.dataset] = None if here in data else other
        reason = states[problem.dataset]
        if reason is None:
            known.append(spec)
        else:
            reasons[reason] += 1
    study = specs[0].experiment
    return known, [f"{n} trials of {study} cannot be computed again: {why}" for why, n in reasons.items()]


def _sampled(specs: list[TrialSpec], number: int, seed: str) -> list[TrialSpec]:
    """Some trials, the same for every call, those without the slow printed forms first."""
    order = random.Random(sha256(seed)).sample(specs, len(specs))
    slow = lambda spec: any(name.endswith(("printed", "cholesky")) for name in spec.setting.policies)  # noqa: E731
    return sorted(order, key=slow)[:number]


def _other_rows(
    tables: Mapping[str, pd.DataFrame],
    study: Study,
    spec: TrialSpec,
    frame: pd.DataFrame,
    times: bool = True,
    loose: tuple[str, ...] = (),
) -> Iterator[str]:
    """Which tables have not exactly what this trial gives, those in `loose` up to roundoff."""
    results = _alone(study, spec, frame)
    expected = {"results": results.rounds, "final": results.final}
    if times:
        expected["timings"] = results.timings
    for name, rows in expected.items():
        table = tables[name]
        same = (table["setting"] == spec.setting.name) & (table["trial"] == spec.trial)
        kept = table.loc[same, list(rows.columns)].reset_index(drop=True)
        # A table that is stacked with others may hold whole numbers as fractions.
        exact = name not in loose
        if len(kept) != len(rows) or _differences(kept.astype(rows.dtypes.to_dict()), rows, exact):
            yield f"{name}.parquet"


def _alone(study: Study, spec: TrialSpec, frame: pd.DataFrame) -> Results:
    """The tables of one trial; the study's other settings may be of data that are not here."""
    own = study.model_copy(update={"settings": (spec.setting,)})
    return Results.of(own, combine([spec], [frame]), final_states([spec], [frame]))


def _named(spec: TrialSpec) -> str:
    return f"{spec.experiment}, {spec.setting.name}, trial {spec.trial}"
