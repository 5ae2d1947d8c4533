"""What a study is about to do: how many trials are there already, and what the others will take.

The time is that of stored trials of the same setting, or else of a few rounds that are played first:
early rounds, when a sketch is not full yet, so it is a lower estimate. The memory is that of the
policies' matrices.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from compendium import progress, trials
from compendium.trials import Setting, TrialSpec

_PROBE_SECONDS = 0.5
_PROBE_ROUNDS = 20
_BASE_MEGABYTES = 250  # an interpreter with the libraries


def announce(specs: Sequence[TrialSpec], missing: Sequence[TrialSpec], folder: Path, jobs: int) -> None:
    """Tell the batch that is watching, if there is one, what will be done."""
    if not progress.watched():
        return
    lines = [f"{specs[0].experiment}: {len(specs)} trials, {len(specs) - len(missing)} stored"]
    if missing:
        workers = min(jobs, len(missing))
        memory = max(megabytes(spec.setting) for spec in missing)
        time_needed = duration(_seconds(specs, missing, folder) / workers)
        lines.append(
            f"  {len(missing)} to compute: at least {time_needed} with {workers} "
            f"{'worker' if workers == 1 else 'workers'}, about {memory:,.0f} MB each"
        )
    progress.say("\n".join(lines))


def megabytes(setting: Setting) -> float:
    """Memory of a worker that plays a setting: its matrices, and what a Python process takes."""
    size = setting.problem.n_outcomes * setting.problem.n_features
    sketch = size * (setting.sketch_size + 2 * setting.problem.n_outcomes)
    numbers = {
        "eofd": sketch, "greedy": sketch, "eofd-compiled": sketch, "eofd-literal": 3 * sketch,
        "oful": size**2, "oful-compiled": size**2, "oful-literal": 4 * size**2,
    }  # fmt: skip
    data = setting.problem.data() or {}
    matrices = 8 * sum(numbers.get(name, 0) for name in setting.policies)
    pixels = int(data.get("rows", 0)) * setting.problem.n_features
    return _BASE_MEGABYTES + (matrices + pixels) / 1e6


def duration(seconds: float) -> str:
    """A time in words.

    >>> duration(12.3), duration(400), duration(9000)
    ('12 s', '7 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _seconds(specs: Sequence[TrialSpec], missing: Sequence[TrialSpec], folder: Path) -> float:
    """Computing time of the missing trials, setting by setting."""
    keys = {spec.key for spec in missing}
    total = 0.0
    for name in dict.fromkeys(spec.setting.name for spec in missing):
        same = [spec for spec in specs if spec.setting.name == name]
        stored = next((spec for spec in same if spec.key not in keys), None)
        wanted = [spec for spec in same if spec.key in keys]
        total += len(wanted) * (_measured(stored, folder) if stored else _probed(wanted[0]))
    return total


def _measured(spec: TrialSpec, folder: Path) -> float:
    """Time that the policies of a stored trial took."""
    table = pq.read_table(folder / f"{spec.key}.parquet", columns=list(trials.TIMES)).to_pandas()
    return float(table.to_numpy(dtype=float).sum())


def _probed(spec: TrialSpec) -> float:
    """Time of a trial at the pace of its first rounds."""
    start = time.perf_counter()
    played = 0

    def stop(rounds: int) -> None:
        nonlocal played
        played = rounds
        if rounds >= _PROBE_ROUNDS or time.perf_counter() - start > _PROBE_SECONDS:
            raise _ProbedError

    try:
        spec.compute(stop)
    except _ProbedError:
        pass
    except Exception:  # it will be reported when the trial is computed
        return 0.0
    return (time.perf_counter() - start) / max(played, 1) * spec.n_rounds


class _ProbedError(Exception):
    """Enough rounds were played."""
