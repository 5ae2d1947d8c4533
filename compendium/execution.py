"""How the trials of a study are obtained: loaded, computed by worker processes, or on a cluster.

A trial that is stored is loaded; every other one is computed and stored as it finishes, so whatever
is stopped goes on where it was. Who computes it decides nothing: one process, several, the shards of
a job array or the workers of a Dask cluster give the same bytes. A trial that fails does not take
the others with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import pandas as pd
from joblib.externals.loky.process_executor import TerminatedWorkerError

from compendium import journal, plan, progress, trials
from compendium.trials import TrialSpec

_SHOWN = 5  # failures that a message lists


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
    plan.announce(specs, missing, folder, orders.jobs)
    if orders.plan_only:
        raise progress.stopped("nothing was computed: this was the plan only")
    with progress.shown(experiment) as variables, _environment(variables):
        progress.announce(sum(spec.n_rounds for spec in specs), len(specs))
        if orders.shard is not None:
            _compute_shard(specs, missing, folder, orders.shard, orders.jobs, variables)
        if orders.cluster is not None and missing:
            _compute_on_cluster(missing, folder, orders.cluster)
        return _run(specs, folder, orders.jobs, variables)


def _compute_shard(
    specs: Sequence[TrialSpec],
    missing: Sequence[TrialSpec],
    folder: Path,
    shard: tuple[int, int],
    jobs: int,
    variables: Mapping[str, str],
) -> None:
    """Compute this shard's part of the trials, and stop unless the others are there already."""
    number, count = shard
    keys = {spec.key for spec in missing}
    own = [spec for spec in specs[number - 1 :: count] if spec.key in keys]
    _run(own, folder, jobs, variables)
    left = sum(not trials.is_stored(spec, folder) for spec in specs)
    if left:
        raise progress.stopped(
            f"shard {number}/{count} is done: {len(own)} trials computed, {left} of {len(specs)} are left to "
            "other shards; when they are done, run again (with the same shards if another study follows)"
        )


def _compute_on_cluster(missing: Sequence[TrialSpec], folder: Path, address: str) -> None:
    """Compute trials on the workers of a Dask scheduler; this process stores each as it arrives."""
    try:
        from dask.distributed import Client
    except ImportError:
        raise ImportError("--cluster needs Dask: pip install .[cluster]") from None
    with Client(address, timeout=20) as client:  # type: ignore[no-untyped-call]
        _check_workers(client)
        with joblib.parallel_config(backend="dask", wait_for_workers_timeout=60):
            work = joblib.Parallel(n_jobs=-1, return_as="generator_unordered")(
                joblib.delayed(_caught)(_compute, spec) for spec in missing
            )
            failures = []
            for spec, result in work:
                if isinstance(result, str):
                    failures.append(result)
                else:
                    trials.store(spec, result, folder)
                    progress.finish(spec.key, spec.n_rounds)
    _raise_if(failures, len(missing))


def _check_workers(client: Any) -> None:
    """Every worker must have the same sources of the library, or its results are others."""
    own = trials.library_digest()
    others = sorted(name for name, digest in client.run(trials.library_digest).items() if digest != own)
    if others:
        raise RuntimeError(
            f"{len(others)} workers of the cluster have another version of the library than this process: "
            "install the same checkout there and start them again"
        )


def _run(
    specs: Sequence[TrialSpec], folder: Path, jobs: int, variables: Mapping[str, str]
) -> list[pd.DataFrame]:
    """Load or compute trials with worker processes of this machine."""
    work = (joblib.delayed(_caught)(_obtain, spec, folder, dict(variables)) for spec in specs)
    try:
        results = [result for _, result in joblib.Parallel(n_jobs=jobs)(work)]
    except TerminatedWorkerError as error:
        raise TrialsFailedError(
            "a worker process was killed, perhaps for want of memory; what was finished is stored, and the "
            "next run goes on from there (fewer jobs need less memory)"
        ) from error
    _raise_if([result for result in results if isinstance(result, str)], len(specs))
    return results


def _caught(
    function: Callable[..., pd.DataFrame], spec: TrialSpec, *arguments: Any
) -> tuple[TrialSpec, pd.DataFrame | str]:
    """A trial's frame, or in one line why there is none: others go on."""
    try:
        return spec, function(spec, *arguments)
    except Exception as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        return spec, f"{spec.setting.name}, trial {spec.trial}: {type(error).__name__}: {reason}"


def _raise_if(failures: Sequence[str], number: int) -> None:
    if failures:
        more = [f"and {len(failures) - _SHOWN} more"] if len(failures) > _SHOWN else []
        lines = [
            f"{len(failures)} of {number} trials failed; the others are stored:",
            *failures[:_SHOWN],
            *more,
        ]
        raise TrialsFailedError("\n  ".join(lines))


def _compute(spec: TrialSpec) -> pd.DataFrame:
    """Compute a trial on a worker that shares no folder with this process."""
    return spec.compute()


def _obtain(spec: TrialSpec, folder: Path, variables: Mapping[str, str]) -> pd.DataFrame:
    """Load a trial, or compute and store it; runs in a worker process."""
    with _environment(variables):
        frame = trials.load(spec, folder)
        if frame is None:
            frame = spec.compute(progress.counter(spec.key))
            trials.store(spec, frame, folder)
        progress.finish(spec.key, spec.n_rounds)
    return frame


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
