"""How the trials of a study are obtained: loaded, or computed by worker processes or by a cluster.

A trial that is stored is loaded. Every other trial is computed by a worker and stored by this process as soon
as it arrives, so a study that was stopped, in whatever way, continues with the trials that it had. The
numbers do not depend on who computes a trial: one process, several, the shards of a job array and the workers
of a Dask cluster give the same bytes. A trial that fails does not stop the others.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import joblib
import pandas as pd
from joblib.externals.loky.process_executor import TerminatedWorkerError
from threadpoolctl import threadpool_limits

from compendium.experiments import plan, progress, trials
from compendium.experiments.trials import TrialSpec

Specs = Mapping[str, TrialSpec]
#: The address of a trial, with its table or with the reason why it could not be computed.
Arrival = tuple[str, pd.DataFrame | str]

_LOG = logging.getLogger(__name__)
_SHOWN = 5  # failures that a message lists
_CONNECT = 20.0  # seconds within which a scheduler must answer
_PATIENCE = 60.0  # seconds that a cluster may be without workers
_POLL = 0.05  # seconds between two looks at whether a trial has arrived from a cluster
_POLL_PARENT = 1.0  # seconds between two looks of a worker at whether its parent still lives


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
        Only say what would be computed.
    """

    jobs: int = 1
    shard: tuple[int, int] | None = None
    cluster: str | None = None
    plan_only: bool = False

    def as_variables(self) -> dict[str, str]:
        """The environment variable that carries the orders into a kernel."""
        return {progress.BATCH: json.dumps(asdict(self))}

    @classmethod
    def from_environment(cls) -> Orders:
        """Read what `as_variables` wrote.

        Without a batch, the environment variable ``MLOGB_JOBS`` gives the number of workers, which is 1 by
        default.
        """
        if text := os.environ.get(progress.BATCH):
            values = json.loads(text)
            shard = values.pop("shard", None)
            return cls(shard=shard and tuple(shard), **values)
        jobs = os.environ.get("MLOGB_JOBS") or "1"
        if not jobs.isdecimal() or int(jobs) < 1:
            raise ValueError(f"MLOGB_JOBS must be a whole number of at least 1, got {jobs!r}")
        return cls(jobs=int(jobs))


def parse_shard(text: str) -> tuple[int, int]:
    """Read the number of a shard from ``i/n``.

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
    raise ValueError(f"--shard must be I/N with 1 <= I <= N, such as 1/8, got {text!r}")


def obtain(experiment: str, specs: Sequence[TrialSpec], folder: Path, orders: Orders) -> list[pd.DataFrame]:
    """Load or compute trials.

    Parameters
    ----------
    experiment : str
        Title of the progress bar.
    specs : sequence of TrialSpec
        The trials.
    folder : Path
        Where trials are stored.
    orders : Orders
        What the batch asks for.

    Returns
    -------
    list of DataFrame
        The table of each trial, in the order of `specs`.

    Raises
    ------
    TrialsFailedError
        If a trial failed or a worker was killed; the trials that were computed are stored.
    progress.Stopped
        If the orders ask for a plan only and trials are missing, or for a shard while trials of other shards
        are missing.
    """
    asked = {spec.key: spec for spec in specs}
    number, count = orders.shard or (1, 1)
    part = dict(list(asked.items())[number - 1 :: count])
    with progress.reporting(experiment) as send:
        send({"trials": list(asked)})
        frames = _load(asked, folder)
        missing = {key: spec for key, spec in part.items() if key not in frames}
        if _LOG.isEnabledFor(logging.INFO):  # making the plan takes time
            _LOG.info(plan.describe(asked, frames, missing, None if orders.cluster else orders.jobs))
        if orders.plan_only and missing:
            raise progress.Stopped(progress.PLANNED)
        send({"total": len(part), "stored": len(part) - len(missing)})
        if missing:
            trials.check_writable(folder)
        failures: dict[str, str] = {}
        with _without_warnings_of_workers():
            for key, result in _computed(missing, orders):
                if not isinstance(result, str):
                    try:
                        trials.store(missing[key], result, folder)
                    except Exception as error:
                        result = _reason(missing[key], error)
                if isinstance(result, str):
                    failures[key] = result
                else:
                    frames[key] = result
                    send({"computed": 1})
        _raise_if([failures[key] for key in part if key in failures], len(part))
        if orders.shard:
            frames |= _load({key: spec for key, spec in asked.items() if key not in frames}, folder)
            if left := len(asked) - len(frames):
                raise progress.Stopped(
                    f"shard {number}/{count} is done: {len(missing)} trials computed, {left} of {len(asked)} "
                    "are left to other shards; when they are done, run again (with the same shards if "
                    "another study follows)"
                )
    return [frames[key] for key in asked]


def _load(specs: Specs, folder: Path) -> dict[str, pd.DataFrame]:
    """Load the trials that are stored and can be used."""
    found = {key: trials.load(spec, folder) for key, spec in specs.items()}
    return {key: frame for key, frame in found.items() if frame is not None}


def in_workers(calls: Iterable[Any]) -> list[Any]:
    """Results of delayed calls, in their order, from as many worker processes as the run was given.

    Parameters
    ----------
    calls : iterable
        What `joblib.delayed` returns.

    Raises
    ------
    progress.Stopped
        If the batch asks for a plan only.
    """
    orders = Orders.from_environment()
    if orders.plan_only:
        number = len(list(calls))
        raise progress.Stopped(
            f"not in the plan: {number} computations in workers, which are no trials\n{progress.PLANNED}"
        )
    with _without_warnings_of_workers():
        return list(_workers(orders.jobs)(calls))


def _workers(count: int, **options: Any) -> joblib.Parallel:
    """Worker processes of this machine, or this process for a count of one.

    Joblib keeps the processes for the next computation if that asks for the same number and initializer. To
    start them takes seconds, in which they import the library.
    """
    if count > 1:
        options |= {"initializer": _end_with_parent, "initargs": (os.getpid(),)}
    return joblib.Parallel(n_jobs=count, **options)


@contextmanager
def _without_warnings_of_workers() -> Iterator[None]:
    """Ignore what joblib says when an idle worker ends: it would be an output that differs between runs."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "A worker stopped while some jobs were given")
        yield


def _computed(missing: Specs, orders: Orders) -> Iterator[Arrival]:
    """Compute trials, and yield each as it arrives."""
    if not missing:
        return iter(())
    if orders.cluster:
        return _computed_on_cluster(missing, orders.cluster)
    return _computed_here(missing, min(orders.jobs, len(missing)))


def _computed_here(missing: Specs, workers: int) -> Iterator[Arrival]:
    """Compute trials with worker processes of this machine, or in this process if there is to be one worker.

    When a worker is killed, joblib ends all workers and does not say which trial was the cause. The remaining
    trials are then computed one after the other, each in a process of its own.
    """
    left = dict(missing)
    work = [joblib.delayed(_compute)(spec, key) for key, spec in sorted(missing.items(), key=_place)]
    try:
        for key, result in _workers(workers, return_as="generator_unordered")(work):
            del left[key]
            yield key, result
    except TerminatedWorkerError:
        if len(missing) == 1:
            [(key, spec)] = missing.items()
            yield key, f"{_named(spec)}: a worker process was killed, perhaps for want of memory"
            return
        _LOG.warning("a worker process was killed; the trials that are left are computed one at a time")
        for key, spec in left.items():
            yield from _computed_here({key: spec}, workers=2)  # one worker would be this process


def _place(item: tuple[str, TrialSpec]) -> tuple[int, int]:
    """Where a trial stands in the order in which they are computed.

    The settings of a trial follow each other, since a worker keeps the trial's action sets. Among them those
    with the largest matrices come first, since their games take longest, and workers that have nothing left
    would wait for the last one.
    """
    _, spec = item
    return spec.trial, -spec.setting.matrix_bytes


def _computed_on_cluster(missing: Specs, address: str) -> Iterator[Arrival]:
    """Compute trials on the workers of a Dask scheduler."""
    try:
        from dask.distributed import Client, as_completed
    except ImportError:
        raise ImportError('--cluster needs Dask: pip install ".[cluster]"') from None
    warnings.simplefilter("ignore")  # they differ between clusters; `obtain` restores them
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]:
        logging.getLogger(name).setLevel(logging.CRITICAL)  # this module reports each failure once
    try:
        client = Client(address, timeout=_CONNECT)
    except (OSError, ValueError) as error:
        raise TrialsFailedError(f"no Dask scheduler answers at {address}: {error}") from None
    with client:
        try:
            client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError:
            raise TrialsFailedError(f"the cluster at {address} has no workers") from None
        futures = {
            client.submit(_compute_on_cluster, spec, key, pure=False): key for key, spec in missing.items()
        }
        # Futures come with their results: asking for one whose worker has died meanwhile would never return.
        arriving = as_completed(futures, with_results=True, raise_errors=False)
        for left in range(len(futures), 0, -1):
            _wait(client, arriving, left)
            future, result = next(arriving)
            key = futures[future]
            if future.status == "error":  # the trial could not be started, or killed its worker
                yield key, _reason(missing[key], result[1])
            elif future.status != "finished":
                yield key, f"{_named(missing[key])}: the cluster cancelled it"
            else:
                yield result
            future.release()


def _wait(client: Any, arriving: Any, left: int) -> None:
    """Wait until a trial arrives.

    Raises
    ------
    TrialsFailedError
        If the connection to the scheduler is lost, or the cluster has no workers for `_PATIENCE` seconds.
    """
    gone, since = "the Dask scheduler is gone", time.monotonic()
    while client.status == "running":
        if arriving.has_ready():
            return
        time.sleep(_POLL)
        if time.monotonic() - since > _PATIENCE:
            # `scheduler_info` may lack the workers, as the client itself asks for it without them.
            if not client.nthreads():
                gone = "the cluster lost its workers"
                break
            since = time.monotonic()
    raise TrialsFailedError(f"{gone}, {left} trials are missing; what had arrived is stored")


def _end_with_parent(parent: int) -> None:
    """Start a thread in a worker that ends the worker when its parent process has ended.

    A worker whose parent was killed would otherwise compute its trial to the end and then wait for minutes.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_PARENT)
        os._exit(1)

    if os.name != "nt":  # on Windows `getppid` still returns the number of a parent that has ended
        threading.Thread(target=watch, daemon=True).start()


def _compute_on_cluster(spec: TrialSpec, key: str) -> Arrival:
    """Compute a trial in a thread of a worker of a cluster, and limit BLAS to one thread from then on.

    A trial lifts its own limit at its end, which would also lift it for the other threads of the worker.
    """
    threadpool_limits(limits=1)
    return _compute(spec, key)


def _compute(spec: TrialSpec, key: str) -> Arrival:
    """Compute a trial in a worker.

    The address was computed by the process that asks. If the worker computes another one, it has other
    sources of the library or other data. An error is returned as text, because not every error can be
    pickled.
    """
    try:
        if spec.key != key:
            raise RuntimeError(
                "the worker has another version of the library, or other data, than the process that asked; "
                "if the sources were edited meanwhile, run again; on a cluster, install the same checkout "
                "and start the worker again"
            )
        return key, spec.compute()
    except Exception as error:
        return key, _reason(spec, error)


def _reason(spec: TrialSpec, error: Exception) -> str:
    """Return in one line why a trial could not be computed."""
    reason = str(error)
    if isinstance(error, OSError) and error.errno:
        reason = ": ".join(str(part) for part in (os.strerror(error.errno), error.filename) if part)
    return f"{_named(spec)}: {type(error).__name__}: {' '.join(reason.split())}"


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
