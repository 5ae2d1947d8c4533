"""What a study is about to do: how many trials are there already, and what the others will take.

The time is that of stored trials of the same setting, or else of a few rounds that are played first:
early rounds, when a sketch is not full yet, so it is a lower estimate. The memory is that of the
policies' matrices.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from compendium.experiments import progress, trials
from compendium.experiments.trials import Setting, TrialSpec

_PROBE_SECONDS = 0.5
_PROBE_ROUNDS = 20
_BASE_MEGABYTES = 250  # an interpreter with the libraries


def announce(
    specs: Sequence[TrialSpec],
    n_stored: int,
    wanted: Sequence[TrialSpec],
    folder: Path,
    jobs: int,
    remote: bool = False,
) -> None:
    """Tell the batch that is watching, if there is one, what will be done.

    Parameters
    ----------
    specs : sequence of TrialSpec
        The trials of the study.
    n_stored : int
        How many of them are there.
    wanted : sequence of TrialSpec
        Those that will be computed.
    folder : Path
        Where trials are kept.
    jobs : int
        Worker processes.
    remote : bool
        Whether others compute, whose number is not known yet.
    """
    if not progress.watched():
        return
    lines = [f"{specs[0].experiment}: {len(specs)} trials, {n_stored} stored"]
    if wanted:
        workers = 1 if remote else min(jobs, len(wanted))
        memory = max(megabytes(spec.setting) for spec in wanted)
        needed = progress.duration(_seconds(specs, wanted, folder) / workers)
        by = (
            "divided by the workers of the cluster"
            if remote
            else f"with {workers} worker{'s'[: workers > 1]}"
        )
        lines.append(f"  {len(wanted)} to compute: at least {needed} {by}, about {memory:,.0f} MB each")
    progress.say("\n".join(lines))


def megabytes(setting: Setting) -> float:
    """Memory of a worker that plays a setting: its matrices, and what a Python process takes."""
    data = setting.problem.data() or {}
    pixels = int(data.get("rows", 0)) * setting.problem.n_features
    return _BASE_MEGABYTES + (setting.matrix_bytes + pixels) / 1e6


def _seconds(specs: Sequence[TrialSpec], wanted: Sequence[TrialSpec], folder: Path) -> float:
    """Computing time of some trials of a study, setting by setting."""
    keys = {spec.key for spec in wanted}
    total = 0.0
    for name in dict.fromkeys(spec.setting.name for spec in wanted):
        same = [spec for spec in specs if spec.setting.name == name]
        own = [spec for spec in same if spec.key in keys]
        measured = (_measured(spec, folder) for spec in same if spec.key not in keys)
        known = next((seconds for seconds in measured if seconds is not None), None)
        total += len(own) * (_probed(own[0]) if known is None else known)
    return total


def _measured(spec: TrialSpec, folder: Path) -> float | None:
    """Time that the policies of a stored trial took; None if it is not there or cannot be read."""
    try:
        table = pq.read_table(folder / f"{spec.key}.parquet", columns=list(trials.TIMES)).to_pandas()
    except (OSError, pa.ArrowException, KeyError):
        return None
    return float(table.to_numpy(dtype=float).sum())


def _probed(spec: TrialSpec) -> float:
    """Time of a trial at the pace of its first rounds, the very first one apart: it compiles and loads."""
    times: list[float] = []

    def note(rounds: int) -> None:
        times.append(time.perf_counter())
        if rounds > _PROBE_ROUNDS or times[-1] - times[0] > _PROBE_SECONDS:
            raise _ProbedError

    start = time.perf_counter()
    try:
        spec.compute(note)
    except _ProbedError:
        pass
    except Exception:  # it will be reported when the trial is computed
        return 0.0
    if len(times) < 2:
        return time.perf_counter() - start
    return (times[-1] - times[0]) / (len(times) - 1) * spec.n_rounds


class _ProbedError(Exception):
    """Enough rounds were played."""
