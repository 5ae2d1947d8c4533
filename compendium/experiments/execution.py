"""How the trials of a study are obtained: loaded, computed by worker processes, or on a cluster.

A trial that is stored is loaded; every other one is computed and stored as it finishes, so whatever
is stopped goes on where it was. Who computes it decides nothing: one process, several, the shards of
a job array or the workers of a Dask cluster give the same bytes. A trial that fails does not take
the others with it.
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import joblib
import pandas as pd
from joblib.externals.loky.process_executor import TerminatedWorkerError
from threadpoolctl import threadpool_limits

from compendium.experiments import journal, plan, progress, trials
from compendium.experiments.trials import TrialSpec

_SHOWN = 5  # failures that a message lists
_CONNECT, _PATIENCE, _POLL = 20.0, 60.0, 0.05  # seconds to reach a scheduler, to wait for workers, to look


class TrialsFailedError(RuntimeError):
    """Some trials could not be computed or stored; the others are stored."""


@dataclass(frozen=True)
class Orders:
    """What a batch asks of the studies in its notebook.

    Attributes
    ----------
    jobs : int
        Worker processes.
    shard : (int, int), optional
        Number i of n parts, from 1: only this part is computed.
    cluster : str, optional
        Address of a Dask scheduler whose workers compute.
    plan_only : bool
        Say what would be done, and stop.
    """

    jobs: int = 1
    shard: tuple[int, int] | None = None
    cluster: str | None = None
    plan_only: bool = False

    def as_variables(self) -> dict[str, str]:
        """The environment variables that carry the orders into a kernel."""
        return {
            "MLOGB_JOBS": str(self.jobs),
            "MLOGB_SHARD": "/".join(map(str, self.shard)) if self.shard else "",
            "MLOGB_CLUSTER": self.cluster or "",
            "MLOGB_PLAN_ONLY": "1" if self.plan_only else "",
        }

    @classmethod
    def from_environment(cls) -> Orders:
        """Read the orders that `as_variables` wrote; without a batch, one job and nothing else."""
        value = os.environ.get("MLOGB_JOBS") or "1"
        if not value.isdecimal() or int(value) < 1:
            raise ValueError(f"MLOGB_JOBS must be a whole number of at least 1, got {value!r}")
        shard = os.environ.get("MLOGB_SHARD")
        return cls(
            jobs=int(value),
            shard=parse_shard(shard) if shard else None,
            cluster=os.environ.get("MLOGB_CLUSTER") or None,
            plan_only=bool(os.environ.get("MLOGB_PLAN_ONLY")),
        )


def parse_shard(text: str) -> tuple[int, int]:
    """Read ``i/n``.

    >>> parse_shard("2/8")
    (2, 8)

    Raises
    ------
    ValueError
        If it is not two whole numbers with 1 <= i <= n.
    """
    number, slash, count = text.partition("/")
    if slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count):
        return int(number), int(count)
    raise ValueError(f"shard must be i/n with 1 <= i <= n, such as 1/8, got {text!r}")


def obtain(experiment: str, specs: Sequence[TrialSpec], folder: Path, orders: Orders) -> list[pd.DataFrame]:
    """Load or compute trials.

    Parameters
    ----------
    experiment : str
        What a progress bar is called.
    specs : sequence of TrialSpec
        The trials.
    folder : Path
        Where trials are kept.
    orders : Orders
        What the batch asks for.

    Returns
    -------
    list of DataFrame
        One for each trial, in their order.

    Raises
    ------
    TrialsFailedError
        If a trial failed or a worker was killed; what is finished is stored.
    progress.Stopped
        If the orders are to stop before the results: a plan, or a shard while others are missing.
    """
    journal.note(spec.key for spec in specs)
    missing = [spec for spec in specs if not trials.is_stored(spec, folder)]
    wanted = missing
    if orders.shard is not None:
        number, count = orders.shard
        absent = {spec.key for spec in missing}
        wanted = [spec for spec in specs[number - 1 :: count] if spec.key in absent]
    remote = orders.cluster is not None
    plan.announce(specs, len(specs) - len(missing), wanted, folder, orders.jobs, remote)
    if orders.plan_only:
        raise progress.stopped("nothing was computed: this was the plan only")
    with progress.shown(experiment) as variables, _environment(variables):
        first = specs if orders.shard is None else wanted
        progress.announce(sum(spec.n_rounds for spec in first), len(first))
        if orders.shard is not None:
            _compute_shard(specs, wanted, folder, orders, variables)
            progress.announce(
                sum(spec.n_rounds for spec in specs) - sum(spec.n_rounds for spec in wanted),
                len(specs) - len(wanted),
            )
        elif orders.cluster is not None and missing:
            _compute_on_cluster(missing, folder, orders.cluster)
        return _run(specs, folder, orders.jobs, variables)


def _compute_shard(
    specs: Sequence[TrialSpec],
    own: Sequence[TrialSpec],
    folder: Path,
    orders: Orders,
    variables: Mapping[str, str],
) -> None:
    """Compute this shard's part of the trials, and stop unless the others are there already."""
    _run(own, folder, orders.jobs, variables)
    left = sum(not trials.is_stored(spec, folder) for spec in specs)
    if left and orders.shard:
        number, count = orders.shard
        raise progress.stopped(
            f"shard {number}/{count} is done: {len(own)} trials computed, {left} of {len(specs)} are left to "
            "other shards; when they are done, run again (with the same shards if another study follows)"
        )


def _compute_on_cluster(missing: Sequence[TrialSpec], folder: Path, address: str) -> None:
    """Compute trials on the workers of a Dask scheduler; this process stores each as it arrives."""
    try:
        from dask.distributed import Client, as_completed
    except ImportError:
        raise ImportError("--cluster needs Dask: pip install .[cluster]") from None
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # what fails is said once, below
    failures = []
    with warnings.catch_warnings():
        # Outputs are compared, and what Dask remarks about versions and sizes differs between clusters.
        warnings.simplefilter("ignore")
        try:
            client = Client(address, timeout=_CONNECT)  # type: ignore[no-untyped-call]
        except (OSError, ValueError) as error:
            raise TrialsFailedError(f"no Dask scheduler answers at {address}: {error}") from None
        with client:
            try:
                client.wait_for_workers(1, timeout=_PATIENCE)
            except TimeoutError:
                raise TrialsFailedError(f"the cluster at {address} has no workers") from None
            futures = {client.submit(_caught, _compute, spec, spec.key, pure=False): spec for spec in missing}
            # With results: to ask for one whose worker has died meanwhile would wait for ever.
            arriving = as_completed(futures, with_results=True, raise_errors=False)  # type: ignore[no-untyped-call]
            for future, sent in _while_there_are_workers(client, arriving, len(futures)):
                _, result = _caught(_stored, futures[future], future.status, sent, folder)
                if isinstance(result, str):
                    failures.append(result)
                future.release()
    _raise_if(failures, len(missing))


def _while_there_are_workers(client: Any, arriving: Any, number: int) -> Iterator[tuple[Any, Any]]:
    """The futures with their results as they are done, or an error when nobody works on them any more."""
    seen = time.monotonic()
    while number:
        if client.status != "running":
            raise TrialsFailedError(
                f"the Dask scheduler is gone, {number} trials are missing; what had arrived is stored"
            )
        if arriving.has_ready():
            yield next(arriving)
            number, seen = number - 1, time.monotonic()
            continue
        time.sleep(_POLL)
        if time.monotonic() - seen > _PATIENCE:
            if not client.scheduler_info(n_workers=-1)["workers"]:
                raise TrialsFailedError(
                    f"the cluster lost its workers, {number} trials are missing; what had arrived is stored"
                )
            seen = time.monotonic()


def _stored(spec: TrialSpec, status: str, sent: Any, folder: Path) -> pd.DataFrame:
    """Store what a worker computed, or raise what became of it."""
    if status == "error":  # a worker could not even start it, or it took its worker with it
        raise sent[1]
    if status != "finished":
        raise RuntimeError("the cluster gave it up")
    _, result = sent
    if isinstance(result, str):
        raise _ToldError(result)
    trials.store(spec, result, folder)
    progress.finish(spec.key, spec.n_rounds)
    return cast("pd.DataFrame", result)


class _ToldError(Exception):
    """A failure that a worker told; the message is complete."""


def _run(
    specs: Sequence[TrialSpec], folder: Path, jobs: int, variables: Mapping[str, str]
) -> list[pd.DataFrame]:
    """Load or compute trials with worker processes of this machine, no more than there are to compute."""
    missing = sum(not trials.is_stored(spec, folder) for spec in specs)
    workers = min(jobs, max(missing, 1))
    work = [joblib.delayed(_caught)(_obtain, spec, folder, dict(variables)) for spec in specs]
    with warnings.catch_warnings():
        # An idle worker that leaves is no news, and would be some in the outputs of a notebook.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs were given")
        try:
            results = [result for _, result in joblib.Parallel(n_jobs=workers)(work)]
        except TerminatedWorkerError:
            progress.say("a worker process was killed; the trials that are left are computed one at a time")
            results = [_alone(spec, task, folder, variables) for spec, task in zip(specs, work, strict=True)]
    _raise_if([result for result in results if isinstance(result, str)], len(specs))
    return results


def _alone(spec: TrialSpec, task: Any, folder: Path, variables: Mapping[str, str]) -> pd.DataFrame | str:
    """A trial with no other beside it, in a process of its own: it may be the one that kills its worker."""
    if trials.is_stored(spec, folder):
        return _caught(_obtain, spec, folder, variables)[1]
    try:
        # Two, since one would be this process.
        [(_, result)] = joblib.Parallel(n_jobs=2)([task])
    except TerminatedWorkerError:
        return f"{_named(spec)}: a worker process was killed, perhaps for want of memory"
    return cast("pd.DataFrame | str", result)


def _caught(
    function: Callable[..., pd.DataFrame], spec: TrialSpec, *arguments: Any
) -> tuple[TrialSpec, pd.DataFrame | str]:
    """A trial's frame, or in one line why there is none: others go on."""
    try:
        return spec, function(spec, *arguments)
    except _ToldError as error:
        return spec, str(error)
    except Exception as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        return spec, f"{_named(spec)}: {type(error).__name__}: {' '.join(reason.split())}"


def _named(spec: TrialSpec) -> str:
    return f"{spec.setting.name}, trial {spec.trial}"


def _raise_if(failures: Sequence[str], number: int) -> None:
    if failures:
        more = [f"and {len(failures) - _SHOWN} more"] if len(failures) > _SHOWN else []
        lines = [
            f"{len(failures)} of {number} trials failed; the others are stored:",
            *failures[:_SHOWN],
            *more,
        ]
        raise TrialsFailedError("\n  ".join(lines))


def _compute(spec: TrialSpec, key: str) -> pd.DataFrame:
    """Compute a trial on a worker that shares no folder with this process.

    The address is that of the process that asked: it holds the sources of the library and the data.
    """
    # For good: threads of one worker would take turns in setting the limit and lifting it.
    threadpool_limits(limits=1)
    if spec.key != key:
        raise RuntimeError(
            "the worker has another version of the library, or other data, than the process that asked; "
            "install the same checkout there and start it again"
        )
    return spec.compute()


def _obtain(spec: TrialSpec, folder: Path, variables: Mapping[str, str]) -> pd.DataFrame:
    """Load a trial, or compute and store it; runs in a worker process."""
    with _environment(variables), _warnings_to_the_watcher():
        frame = trials.load(spec, folder)
        if frame is None:
            frame = spec.compute(progress.counter(spec.key))
            trials.store(spec, frame, folder)
        progress.finish(spec.key, spec.n_rounds)
    return frame


class _Watcher(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        progress.say(record.getMessage())


@contextmanager
def _warnings_to_the_watcher() -> Iterator[None]:
    """Say that a stored trial is bad to the batch: in the notebook it would differ from run to run."""
    log = logging.getLogger(trials.__name__)
    if not progress.watched():
        yield
        return
    watcher, before = _Watcher(), log.propagate
    log.addHandler(watcher)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(watcher)
        log.propagate = before


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
