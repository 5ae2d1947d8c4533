"""Runs: the notebook of an experiment, executed with the parameters of a profile and stored.

The name of a run is that of its request (see `compendium.runs.request`), so the same request is answered by
the stored run. A run is made in a folder beside its final place, which is renamed when the run is complete. A
folder without ``.partial-`` in its name is therefore a complete run, even if processes were stopped or killed
before.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from compendium.experiments import journal, progress
from compendium.runs.manifest import Experiment, load_manifest, sorted_out
from compendium.runs.request import Request, used_data
from compendium.system import locks, paths, provenance
from compendium.system.kernels import KERNEL, kernel_environment
from compendium.system.paths import AbsentDataError, FailureError, UsageError

if TYPE_CHECKING:
    import pandas as pd

    from compendium.experiments.execution import Orders

__all__ = ["Run", "execute", "faults", "figures_of", "find_runs", "load_run", "stored"]

PARTIAL, _ASIDE = ".partial-", "-old"
_REQUESTS_TO_END = ("SIGTERM", "SIGHUP", "SIGQUIT")
REQUIRED = ("results.parquet", "study.json")
#: The files that a notebook must write; the last one becomes a part of the record.
HANDED = (*REQUIRED, provenance.ENVIRONMENT)
#: The entries that a record must have, with their types; a file without them is no record.
RECORD_ENTRIES: dict[str, type] = {
    "experiment": str, "notebook": str, "started": str, "parameters": dict, "overrides": dict,
    "files": dict, "figures": dict, "study": dict,
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes
    ----------
    path : Path
        Its folder.
    record : dict
        Contents of ``record.json``.
    reused : bool
        Whether it was stored already when it was requested.
    """

    path: Path
    record: dict[str, Any]
    reused: bool = False

    @property
    def name(self) -> str:
        """Path of the run from the project root."""
        return self.path.relative_to(paths.project_root()).as_posix()

    @property
    def notebook(self) -> Path:
        """Its executed notebook."""
        return self.path / f"{Path(self.record['notebook']).stem}.ipynb"

    @property
    def is_published(self) -> bool:
        """Whether it has the parameters of the paper, so that its figures are those of the project."""
        return self.record["profile"] == "paper" and not self.record["overrides"]

    @property
    def results(self) -> pd.DataFrame:
        """The table of results, which has the same bytes for any number of workers."""
        return _read_table(self.path / "results.parquet")

    @property
    def timings(self) -> pd.DataFrame:
        """The measured times, which differ from run to run."""
        return _read_table(self.path / "timings.parquet")


def execute(
    experiment: str,
    profile: str = "standard",
    overrides: Mapping[str, Any] | None = None,
    jobs: int = 1,
    again: bool = False,
    orders: Orders | None = None,
    point: Mapping[str, Any] | None = None,
    redraw: bool = False,
    timeout: float | None = None,
) -> Run:
    """Run an experiment, or return the stored run of the same request.

    Parameters
    ----------
    experiment, profile : str
        Names in the manifest.
    overrides : mapping, optional
        Parameters that replace those of the profile. A value that is no change makes no other run.
    jobs : int
        Number of worker processes; the results do not depend on it.
    again : bool
        Execute a stored run once more, and replace it by the new one.
    orders : Orders, optional
        How trials are obtained: a shard, a cluster, or the plan only. By default, `jobs` workers of this
        machine compute all that are missing.
    point : mapping, optional
        A point of the experiment's grid, as `manifest.expand` returns it.
    redraw : bool
        Execute the present text of the notebook on the tables of the stored run, and replace the run's
        outputs and figures by the new ones. No trial is computed.
    timeout : float, optional
        Seconds after which a cell is stopped and the run fails; by default a cell may take any time.

    Returns
    -------
    Run
        The complete run, with its figures moved to the folder of the figures.

    Raises
    ------
    UsageError
        If a name is unknown or a parameter does not fit; raised before anything starts.
    FailureError
        If a cell failed, the kernel died or the notebook wrote no results. The folder of the attempt is kept
        as ``.partial-...``, so that its notebook can be read, and is removed by the next attempt.
    AbsentDataError
        If a cell failed as data are not on this machine; nothing is kept.
    progress.Stopped
        If the orders ask to stop before there are results.
    """
    chosen = load_manifest().experiment(experiment)
    point, overrides = sorted_out(chosen, profile, point or {}, overrides or {})
    request, parameters = Request.make(chosen, profile, point, overrides)
    final = paths.runs_folder() / experiment / request.name

    def publish(run: Run) -> Run:
        figures = paths.figures_folder(local=not run.is_published)
        provenance.publish_figures(run.path / "figures", figures, run.name, run.record)
        return run

    # A stored run is also shown where no lock can be written. While another batch puts it in place, a file of
    # it is missing, or its figures are not moved yet; it is then looked for again under the lock.
    with suppress(OSError):
        found = None if again or redraw else stored(request)
        if found and not (found.path / "figures").exists():
            return replace(found, reused=True)
    with locks.one_at_a_time(paths.runs_folder()):
        sweep(final.parent)
        found = stored(request)
        if redraw and not found:
            raise UsageError(f"{paths.relative(final)} is not there, so there are no tables to draw it from")
        if found and not (again or redraw):
            return publish(replace(found, reused=True))
        if found and redraw:  # its name may be another, if it has data that are absent here
            final = found.path
    from compendium.experiments.execution import Orders  # imported late, since the import takes seconds

    orders = orders or Orders(jobs=jobs)
    partial = final.with_name(f"{PARTIAL}{final.name}-{locks.owner()}")
    record = {
        "experiment": experiment,
        "profile": profile,
        "point": point,
        "overrides": {name: parameters[name] for name in overrides},
        "parameters": parameters,
        "data": found.record.get("data", request.data) if found and redraw else request.data,
        "notebook": f"{chosen.notebook}.md",
        "notebook_sha256": provenance.sha256(chosen.source.read_text(encoding="utf-8")),
        "code_digest": provenance.code_digest(),
    }
    kept = journal.kept(experiment, request.kind, final.name, parameters, orders.plan_only)
    with _removed_when_stopped(partial), kept as note:
        record = _attempt(chosen, partial, record, orders, note, found if redraw else None, timeout)
        # Both are done under one lock: another batch of this run may end at the same time, and run and
        # figures must be of the same batch.
        with locks.one_at_a_time(paths.runs_folder()):
            _put_in_place(partial, final)
            if found and found.path != final:  # it has data that are absent here and another name
                shutil.rmtree(found.path, ignore_errors=True)
            return publish(Run(final, record))


def stored(request: Request) -> Run | None:
    """Return the complete run that answers a request, or None.

    If several runs with different data do, the one with the name of the request is returned.
    """
    answers = [
        run
        for run in find_runs(request.experiment, request.kind)
        if not faults(run.path) and request.is_answered_by(Request.of(run.path, run.record))
    ]
    return min(answers, key=lambda run: run.path.name != request.name, default=None)


def load_run(path: Path) -> Run:
    """Return the run of a folder; `faults` tells whether its files are as recorded."""
    try:
        record = json.loads((path / "record.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        record = None
    if not isinstance(record, dict) or any(
        not isinstance(record.get(key), kind) for key, kind in RECORD_ENTRIES.items()
    ):
        raise UsageError(f"{path} is not a run: it has no readable record.json")
    return Run(path, record)


def locate(path: Path) -> Path:
    """Return the path of a run's folder inside the project, for any path that leads to the folder.

    The project's ``papermill_runs``, or a folder in it, may be a symbolic link to another place.

    Raises
    ------
    UsageError
        If there is no such folder, or it is not in the project.
    """
    if not path.is_dir():
        raise UsageError(f"{path} is not a run: there is no such folder")
    for folder in _run_folders():
        if folder.samefile(path):
            return folder
    resolved = path.resolve()
    if not resolved.is_relative_to(paths.project_root().resolve()):
        raise UsageError(f"{path} is not in the project at {paths.project_root()}")
    return resolved


def find_runs(experiment: str | None = None, profile: str | None = None) -> list[Run]:
    """Return the finished runs, oldest first.

    Parameters
    ----------
    experiment : str, optional
        Only those of this experiment.
    profile : str, optional
        Only those of this profile without overridden parameters; ``custom`` for those with overridden ones.
    """
    runs = []
    for folder in _run_folders(experiment, profile):
        with suppress(UsageError):
            runs.append(load_run(folder))
    return sorted(runs, key=lambda run: (run.record["started"], run.name))


def unreadable_runs() -> list[str]:
    """Return the folders that look like runs and whose record cannot be read."""
    readable = {run.path for run in find_runs()}
    unreadable = [folder for folder in _run_folders() if folder not in readable]
    return [folder.relative_to(paths.project_root()).as_posix() for folder in unreadable]


def _run_folders(experiment: str | None = None, profile: str | None = None) -> list[Path]:
    records = paths.runs_folder().glob(f"{experiment or '*'}/{profile or '*'}-????????/record.json")
    return sorted(record.parent for record in records if not record.parent.name.startswith("."))


def faults(path: Path) -> list[str]:
    """Return which files of a run are missing or are not as recorded; empty for a complete run.

    The record has the checksums of the files, and ``SHA256SUMS`` has the same ones and that of the record, so
    that a change of one of the two shows in the other.
    """
    try:
        files = load_run(path).record["files"]
    except UsageError:
        return ["record.json is missing or cannot be read"]
    missing = [name for name in {**dict.fromkeys(REQUIRED), **files} if not (path / name).is_file()]
    changed = [
        f"{n} was changed" for n in files if n not in missing and provenance.sha256(path / n) != files[n]
    ]
    listed = path / provenance.CHECKSUMS
    if not listed.is_file() or listed.read_bytes() != provenance.checksums(path, files).encode():
        changed.append(f"record.json or {provenance.CHECKSUMS} was changed: they do not agree")
    found = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}
    foreign = found - {*files, "record.json", provenance.CHECKSUMS, provenance.ATTESTATIONS}
    foreign = {name for name in foreign if not name.startswith("figures/") and "checkpoints" not in name}
    return [
        *(f"{name} is missing" for name in missing),
        *changed,
        *(f"{name} is not of the run" for name in sorted(foreign)),
    ]


def figures_of(run: Run) -> list[Path]:
    """Return the figures of this run that no later run has replaced."""
    found = []
    for folder in (paths.figures_folder(), paths.figures_folder(local=True)):
        for name, digest in run.record["figures"].items():
            path = folder / name
            if path.is_file() and provenance.sha256(path) == digest:
                found.append(path)
    return found


def _attempt(
    experiment: Experiment,
    partial: Path,
    record: dict[str, Any],
    orders: Orders,
    note: Callable[[Iterable[str]], None],
    drawn_from: Run | None = None,
    timeout: float | None = None,
) -> dict[str, Any]:
    """Execute the notebook and write everything that makes a run complete into the partial folder.

    With `drawn_from`, the working folder of the notebook is that of this complete run, so that the notebook
    reads its tables instead of computing them.
    """
    import jupytext
    import nbformat

    from compendium.runs.notebooks import check_executed, dumps, normalise

    partial.mkdir(parents=True)
    output = partial / f"{experiment.source.stem}.ipynb"
    notebook = jupytext.read(experiment.source, fmt="md:myst")
    notebook.metadata["kernelspec"] = KERNEL
    started, clock = datetime.now(UTC), perf_counter()
    state = provenance.git_state(provenance.code_root())
    with (
        progress.displayed(record["experiment"]) as show,
        kernel_environment(MLOGB_RUN_DIR=str(partial), **orders.as_variables()),
    ):

        def receive(message: progress.Message) -> None:
            if keys := message.get("trials"):
                note(keys)
            show(message)

        place = drawn_from.path if drawn_from else experiment.source.parent
        options = {
            "receive": receive,
            "goes_on": orders.plan_only or orders.shard is not None,
            "timeout": timeout,
        }
        failure = _execute(notebook, output, record["parameters"], place, options)
    if output.is_file():
        executed = nbformat.read(output, as_version=4)  # type: ignore[no-untyped-call]
        failures = check_executed(executed)[:1]
        if failure:
            begun = [c for c in executed.cells if c.metadata.get("papermill", {}).get("start_time")]
            failures = [f"{failure} in the cell: {begun[-1].source}" if begun else failure]
    else:
        failures = [failure or "nothing was executed"]
    failures = failures or [f"the notebook wrote no {n}" for n in HANDED if not (partial / n).is_file()]
    failures = failures or _data_failures(experiment, partial)
    if failures and output.is_file() and _lacks_data(executed, record):
        raise AbsentDataError("\n".join(failures))
    if failures:
        raise FailureError("\n".join([*failures, f"as far as it got: {paths.relative(output)}"]))
    if orders.plan_only:
        raise progress.Stopped("no trial is left to compute; nothing was kept: this was the plan only")
    paths.write_atomically(output, dumps(_without_places(normalise(executed))))
    if provenance.git_state(provenance.code_root()) != state:
        # There were commits or edits while the notebook was executed, so it is not certain what it imported.
        state["git_clean"] = None if state["git_commit"] is None else False
    record |= {
        **state,
        "environment": {"jobs": orders.jobs},
        "started": started.isoformat(timespec="seconds"),
        "duration_seconds": round(perf_counter() - clock, 1),
    }
    if drawn_from:
        record |= _origin_of_tables(drawn_from.record)
        _keep_origin_of_studies(drawn_from.record["study"], partial)
    return provenance.write_record(partial, record)


def _lacks_data(executed: Any, record: Mapping[str, Any]) -> bool:
    """Whether a notebook ended with an error about data of which at least one set is absent."""
    outputs = [output for cell in executed.cells for output in cell.get("outputs", ())]
    return None in record["data"].values() and any(one.get("ename") == "DataError" for one in outputs)


def _origin_of_tables(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the record of a redrawn run keeps: which code computed its tables, when and on what.

    The commit and the digest of the new record are those of the code that drew it again; ``computed_by`` has
    those of the code that computed the tables.
    """
    first = {key: record[key] for key in ("git_commit", "git_clean", "code_digest") if key in record}
    kept = {key: record[key] for key in ("environment", "started", "duration_seconds")}
    return {**kept, "computed_by": record.get("computed_by", first)}


def _keep_origin_of_studies(before: Mapping[str, Any], folder: Path) -> None:
    """Restore in the studies of a redrawn run from which sources and trials their tables were made."""
    path = folder / "study.json"
    study = json.loads(path.read_text(encoding="utf-8"))
    origins = {_asked(one): one for one in before["studies"]}
    for one in study["studies"]:
        one |= {key: origins[_asked(one)][key] for key in ("sources", "trials")}
    paths.write_atomically(path, json.dumps(study, indent=2, sort_keys=True, allow_nan=False) + "\n")


def _asked(study: Mapping[str, Any]) -> str:
    """Return the parameters of a study, without what depends on the code, the data or the results."""
    found = ("data", "sources", "smallest_margin", "trials")
    return json.dumps({key: value for key, value in study.items() if key not in found}, sort_keys=True)


def _data_failures(experiment: Experiment, partial: Path) -> list[str]:
    """Return which data the notebook used that the manifest does not name; data are part of the request."""
    used = used_data(json.loads((partial / "study.json").read_text(encoding="utf-8")))
    return [
        f"the notebook used {name}, which experiments.{experiment.name}.data in experiments.yml must name"
        for name in sorted(set(used) - set(experiment.data))
    ]


def _execute(
    notebook: Any,
    output: Path,
    parameters: dict[str, Any],
    folder: Path,
    options: Mapping[str, Any],
) -> str:
    """Execute a notebook into a file with papermill; return what stopped it, unless that is a cell's error.

    The options are those of the engine (see `compendium.runs.engine`). The error of a cell is in the file.
    """
    import papermill
    from jupyter_client.kernelspec import NoSuchKernel
    from nbclient.exceptions import CellTimeoutError

    from compendium.runs import engine

    for name in ("papermill", "asyncio"):  # the caller reports what went wrong, once
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        papermill.execute_notebook(
            notebook,
            str(output).replace("{", "{{").replace("}", "}}"),  # papermill applies `str.format` to the path
            parameters=parameters,
            kernel_name="python3",
            language="python",
            progress_bar=False,  # it would count cells, and a study is one of them
            log_output=False,
            cwd=str(folder),
            engine_name=engine.NAME,
            **options,
        )
    except papermill.PapermillExecutionError as error:  # the error of a cell
        if error.ename == progress.Stopped.__name__:
            raise progress.Stopped(error.evalue) from None
    except CellTimeoutError:
        return f"a cell took longer than {options['timeout']:g} s"
    except (RuntimeError, NoSuchKernel) as error:  # nbclient's DeadKernelError is a RuntimeError
        return str(error)
    return ""


def _without_places(notebook: Any) -> Any:
    """Replace the paths of this machine in the outputs, where warnings print them."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "text" in output:
                output.text = provenance.relative_paths(output.text)
            for kind, content in output.get("data", {}).items():
                if kind.startswith("text/"):
                    output.data[kind] = provenance.relative_paths(content)
    return notebook


def _put_in_place(partial: Path, final: Path) -> None:
    """Rename a complete run to its final place; a run that is there is set aside first."""
    aside = partial.with_name(f"{partial.name}{_ASIDE}")
    if final.exists():
        final.rename(aside)
    partial.rename(final)
    shutil.rmtree(aside, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove what ended attempts of an experiment left, and put a run back that was set aside."""
    for left in abandoned(folder):
        if is_only_copy(left):
            left.rename(_final_of(left))
        else:
            shutil.rmtree(left, ignore_errors=True)


def is_only_copy(left: Path) -> bool:
    """Whether this run was set aside for a newer one that was never put in its place."""
    return left.name.endswith(_ASIDE) and not _final_of(left).exists()


def _final_of(left: Path) -> Path:
    return left.with_name(left.name.removeprefix(PARTIAL).removesuffix(_ASIDE).rsplit("-", 2)[0])


def abandoned(folder: Path) -> list[Path]:
    """Return the folders that ended attempts of an experiment left.

    Folders of attempts that are under way or suspended are not among them, nor those of other machines, for
    which it is not known here whether they have ended.
    """
    found = []
    for left in sorted(folder.glob(f"{PARTIAL}*")):
        match = re.fullmatch(rf"{re.escape(PARTIAL)}(.+)-(\w+-\d+)({_ASIDE})?", left.name)
        if match is None:
            continue
        lock = journal.lock_of(journal.path_of(folder.name, match[1]), match[2])
        if locks.is_held(lock) is False:
            found.append(left)
    return found


@contextmanager
def _removed_when_stopped(partial: Path) -> Iterator[None]:
    """Remove the partial folder of a batch that is interrupted, stopped or without its data in the block.

    In the block, the signals that ask a process to end raise KeyboardInterrupt.
    """

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    requests = [getattr(signal, name) for name in _REQUESTS_TO_END if main and hasattr(signal, name)]
    # An ignored signal stays ignored: with nohup, a process ignores the signal of a terminal that is closed.
    heard = [request for request in requests if signal.getsignal(request) != signal.SIG_IGN]
    before = {request: signal.signal(request, interrupt) for request in heard}
    try:
        yield
    except (KeyboardInterrupt, progress.Stopped, AbsentDataError):
        shutil.rmtree(partial, ignore_errors=True)
        raise
    finally:
        for request, handler in before.items():
            signal.signal(request, handler)


def _read_table(path: Path) -> pd.DataFrame:
    import pandas as pd

    return pd.read_parquet(path)
