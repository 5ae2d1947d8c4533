"""The plan of a study: how many of its trials are stored, and how much time and memory the others need.

The time of a trial is that of a stored trial of the same setting. If no such trial is stored, a few rounds
are played and timed. Early rounds are cheaper than later ones, because the sketch is not full yet, so this is
a lower estimate. The memory is that of the policies' matrices and of the data.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import pandas as pd

from compendium.experiments.progress import duration
from compendium.experiments.trials import TIMES, Setting, TrialSpec

_PROBE_SECONDS = 0.5
_PROBE_ROUNDS = 20
_BASE_MEGABYTES = 250  # of a Python process that has imported the libraries


def describe(
    specs: Mapping[str, TrialSpec],
    stored: Mapping[str, pd.DataFrame],
    missing: Mapping[str, TrialSpec],
    jobs: int | None,
) -> str:
    """Return the plan of a study in one or two lines.

    Parameters
    ----------
    specs : mapping of str to TrialSpec
        All trials of the study by their addresses.
    stored : mapping of str to DataFrame
        The tables of the trials that are stored.
    missing : mapping of str to TrialSpec
        The trials that will be computed.
    jobs : int or None
        Worker processes; None for a cluster, whose workers are not known yet.
    """
    experiment = next(iter(specs.values())).experiment
    text = f"{experiment}: {len(specs)} trials, {len(stored)} stored"
    if not missing:
        return text
    workers = min(jobs or 1, len(missing))
    local = "with 1 worker" if workers == 1 else f"with {workers} workers"
    by = local if jobs else "divided by the workers of the cluster"
    needed = duration(_seconds(specs, stored, missing) / workers)
    memory = max(megabytes(spec.setting) for spec in missing.values())
    return f"{text}\n  {len(missing)} to compute: at least {needed} {by}, about {memory:,.0f} MB each"


def megabytes(setting: Setting) -> float:
    """Memory of a worker that plays a setting: a Python process, the policies' matrices and the data."""
    data = setting.problem.data() or {}
    pixels = int(data.get("rows", 0)) * setting.problem.n_features
    return _BASE_MEGABYTES + (setting.matrix_bytes + pixels) / 1e6


def _seconds(
    specs: Mapping[str, TrialSpec], stored: Mapping[str, pd.DataFrame], missing: Mapping[str, TrialSpec]
) -> float:
    """Computing time of the missing trials, where all trials of a setting take the same time."""
    known: dict[str, float] = {}
    for key, frame in stored.items():
        known.setdefault(specs[key].setting.name, float(frame[list(TIMES)].to_numpy(dtype=float).sum()))
    for spec in missing.values():
        if spec.setting.name not in known:
            known[spec.setting.name] = _probed(spec)
    return sum(known[spec.setting.name] for spec in missing.values())


def _probed(spec: TrialSpec) -> float:
    """Time of a trial if all of its rounds take as long as the first ones.

    The very first round is not counted: in it functions are compiled and libraries loaded.
    """
    times: list[float] = []

    def note(rounds: int) -> None:
        times.append(time.perf_counter())
        if rounds > _PROBE_ROUNDS or times[-1] - times[0] > _PROBE_SECONDS:
            raise _EnoughError

    start = time.perf_counter()
    try:
        spec.compute(note)
    except _EnoughError:
        pass
    except Exception:  # the error is reported when the trial is computed
        return 0.0
    if len(times) < 2:
        return time.perf_counter() - start
    return (times[-1] - times[0]) / (len(times) - 1) * spec.n_rounds


class _EnoughError(Exception):
    """Raised to end a trial when enough of its rounds have been timed."""
