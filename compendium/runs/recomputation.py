"""Check that the tables of a run hold the numbers of its trials, of which some are computed again."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd

from compendium.experiments import trials
from compendium.experiments.data import DataError
from compendium.experiments.policies import POLICIES
from compendium.experiments.study import TABLES, Results, Study, combine, final_states
from compendium.experiments.trials import TrialSpec
from compendium.runs.request import used_data
from compendium.runs.run import Run
from compendium.system import paths
from compendium.system.provenance import blas_pools, sorted_pools

#: The random numbers come from the operating system, so that a forger cannot know which trials will be drawn.
_RANDOM = random.SystemRandom()
# The tolerance for final states, which depend on vector instructions and on the order of operations.
_ROUNDOFF = 1e-9
# The tolerance for sums of regrets, whose last digits differ from process to process on one machine.
_LAST_DIGITS = 1e-12
# The roundoff of a decision margin, which is a difference of scores of the order of 1.
_MARGIN = 1e-12
# Stored trials that are compared with the tables at once; their tables are in memory together.
_TOGETHER = 500


@dataclass
class Report:
    """What a verification did, beside the faults that it found.

    Attributes
    ----------
    say : callable
        It is called with a line of text when a trial has been computed again.
    gaps : list of str
        What could not be checked on this machine and why, one line each.
    notes : list of str
        Facts that a reader should know and that are no faults of the run.
    computed : list of str
        The trials that were computed again.
    trials : int
        How many trials the run has.
    tolerances : dict
        For each table the tolerance up to which its rows agree with the trials; 0 if they are equal.
    """

    say: Callable[[str], None] = lambda _: None
    gaps: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    computed: list[str] = field(default_factory=list)
    trials: int = 0
    tolerances: dict[str, float] = field(default_factory=dict)


def trial_faults(run: Run, sample: int | None, report: Report) -> Iterator[str]:
    """Compare the tables with stored trials, and with trials that are computed again.

    Parameters
    ----------
    run : Run
        The run.
    sample : int or None
        Number of trials of each study that are computed again; None for all.
    report : Report
        It is completed with what was done.

    Yields
    ------
    str
        One line for each fault.
    """
    tables = {name: pd.read_parquet(run.path / f"{name}.parquet") for name in TABLES}
    claimed: set[tuple[str, int]] = set()
    for entry in run.record["study"]["studies"]:
        if "settings" not in entry:
            continue
        study = Study.model_validate({name: entry[name] for name in Study.model_fields if name in entry})
        specs = study.specs()
        report.trials += len(specs)
        claimed |= {(spec.setting.name, spec.trial) for spec in specs}
        known, absent = _with_their_data(specs, used_data(run.record["study"]))
        report.gaps += absent
        yield from _data_faults(study, entry["data"])
        yield from _stored_faults(
            tables, study, known, dict(zip(map(_named, specs), entry["trials"], strict=True))
        )
        chosen = known if sample is None else _sampled(known, sample)
        computed = _compute_again(study, chosen, len(specs), report)
        margins: dict[tuple[str, str], tuple[float, float]] = {}
        since = " (the library has changed since)" if entry["sources"] != trials.library_digest() else ""
        for spec, results in computed:
            for one in results.margins:
                who = one["setting"], one["policy"]
                before = margins.get(who, (np.inf, np.inf))
                margins[who] = min(before[0], one["all_rounds"]), min(before[1], one["after_round_1"])
            for name, tolerance in _allowed(run).items():
                needed = _needed_tolerance(tables[name], _rows(results)[name], [spec], tolerance)
                report.tolerances[name] = max(report.tolerances.get(name, 0.0), needed)
                if needed > tolerance:
                    yield f"{_named(spec)}: computed again, it gives other rows of {name}.parquet{since}"
        if sample is None and not absent:
            yield from _margin_faults(study, entry["smallest_margin"], margins)
    if claimed:
        for name, table in tables.items():
            others = set(zip(table["setting"].astype(str), table["trial"].astype(int), strict=True)) - claimed
            yield from (f"{name}.parquet: {s}, trial {t}, is of no study" for s, t in sorted(others))


def differences(old: pd.DataFrame, new: pd.DataFrame, tolerance: float = 0.0) -> list[str]:
    """Return a list with one line that says where two tables differ; an empty list if they agree."""
    margin = "smallest_margin"
    if tolerance and margin in old.columns and margin in new.columns and len(old) == len(new):
        # A margin is far smaller than 1, so it is compared up to its relative change and the roundoff of the
        # scores.
        first, second = (table[margin].astype(float) for table in (old, new))  # objects if one is None
        if not np.allclose(second, first, rtol=tolerance, atol=_MARGIN, equal_nan=True):
            return [f"{margin} differs"]
        old, new = old.drop(columns=margin), new.drop(columns=margin)
    texts = [name for name in ("setting", "policy") if name in old.columns and name in new.columns]
    try:
        pd.testing.assert_frame_equal(
            old.astype(dict.fromkeys(texts, str)),
            new.astype(dict.fromkeys(texts, str)),
            check_exact=tolerance == 0.0,
            rtol=tolerance,
            atol=tolerance,
            check_dtype=len(old) > 0,  # a table without rows has no types
        )
    except AssertionError as error:
        return [str(error).splitlines()[0]]
    return []


def _compute_again(
    study: Study, chosen: list[TrialSpec], number: int, report: Report
) -> Iterator[tuple[TrialSpec, Results]]:
    for place, spec in enumerate(chosen, 1):
        yield spec, _results(study, [spec], [spec.compute()])
        report.computed.append(_named(spec))
        report.say(f"computed again: {_named(spec)} ({place} of {len(chosen)}; the study has {number})")


def _allowed(run: Run) -> dict[str, float]:
    """Return the tolerances for a trial that is computed again, which plays the same actions.

    The last digits of a regret and of a final state depend on the alignment of arrays in memory, and with
    another BLAS kernel more digits of a regret differ.
    """
    same = blas_pools() == sorted_pools(run.record["environment"]["blas"])
    return {"results": _LAST_DIGITS if same else _ROUNDOFF, "final": _ROUNDOFF}


def _stored_faults(
    tables: Mapping[str, pd.DataFrame], study: Study, specs: list[TrialSpec], keys: Mapping[str, str]
) -> Iterator[str]:
    """Compare the tables with those trials of the run that are stored.

    A row of `results` is a sum over a block of rounds, whose last digits depend on the alignment of arrays in
    memory.
    """
    folder = paths.trials_folder()
    there = [spec for spec in specs if keys[_named(spec)] == spec.key and trials.is_stored(spec, folder)]
    for start in range(0, len(there), _TOGETHER):
        loaded = [(spec, trials.load(spec, folder)) for spec in there[start : start + _TOGETHER]]
        stored = [(spec, frame) for spec, frame in loaded if frame is not None]
        # To look at trials one by one takes many times as long, so it is done where some of them differ.
        if stored and any(_rows_differ(tables, study, stored).values()):
            for one in stored:
                for name, differ in _rows_differ(tables, study, [one]).items():
                    if differ:
                        yield f"{_named(one[0])}: the stored trial gives other rows of {name}.parquet"


def _rows_differ(
    tables: Mapping[str, pd.DataFrame], study: Study, stored: Sequence[tuple[TrialSpec, pd.DataFrame]]
) -> dict[str, bool]:
    """Return by its name whether a table has other rows than some trials."""
    specs, frames = zip(*stored, strict=True)
    found = {}
    for name, rows in _rows(_results(study, specs, frames)).items():
        largest = _LAST_DIGITS if name == "results" else 0.0
        found[name] = _needed_tolerance(tables[name], rows, specs, largest) > largest
    return found


def _needed_tolerance(
    table: pd.DataFrame, rows: pd.DataFrame, specs: Sequence[TrialSpec], largest: float
) -> float:
    """Return the tolerance up to which a table has the rows of trials: 0, the largest allowed or infinity."""
    ours = {(spec.setting.name, spec.trial) for spec in specs}
    kept, rows = (_of_trials(one, ours) for one in (table[list(rows.columns)], rows))
    if len(kept) != len(rows):
        return np.inf
    kept = kept.astype(rows.dtypes.to_dict())  # a table of several studies may have floats for integers
    return next((t for t in (0.0, largest) if not differences(kept, rows, t)), np.inf)


def _of_trials(table: pd.DataFrame, ours: Collection[tuple[str, int]]) -> pd.DataFrame:
    """Return the rows of some trials, trial by trial; the rows of a trial keep their order."""
    settings, numbers = zip(*ours, strict=True)
    near = table[table["setting"].isin(settings) & table["trial"].isin(numbers)]
    order = {one: place for place, one in enumerate(sorted(ours))}
    who = zip(near["setting"], near["trial"], strict=True)
    places = np.array([order.get(one, -1) for one in who], dtype=np.intp)
    chosen = np.flatnonzero(places >= 0)
    return near.iloc[chosen[np.argsort(places[chosen], kind="stable")]].reset_index(drop=True)


def _rows(results: Results) -> dict[str, pd.DataFrame]:
    return {"results": results.rounds, "final": results.final, "timings": results.timings}


def _with_their_data(
    specs: list[TrialSpec], data: Mapping[str, str | None]
) -> tuple[list[TrialSpec], list[str]]:
    """Select the trials whose data on this machine are those of the run, and whose packages are installed.

    Returns
    -------
    list of TrialSpec
        These trials.
    list of str
        One line for each reason why the other trials cannot be computed again.
    """
    reasons: dict[str | None, str | None] = {None: None}
    for problem in (spec.setting.problem for spec in specs):
        if (name := problem.dataset) not in reasons:
            try:
                same = name is None or problem.found()["sha256"] == data.get(name)
            except DataError as error:
                reasons[name] = str(error)
            else:
                reasons[name] = (
                    None if same else f"the run had other data of the name {name} than this machine"
                )
    why_not = [reasons[spec.setting.problem.dataset] or _missing_package(spec) for spec in specs]
    known = [spec for spec, why in zip(specs, why_not, strict=True) if why is None]
    absent = Counter(why_not)
    study = specs[0].experiment
    gaps = [f"{n} trials of {study} cannot be computed again: {why}" for why, n in absent.items() if why]
    return known, gaps


def _missing_package(spec: TrialSpec) -> str | None:
    """Say which package a policy of the trial needs, if it is not installed."""
    for policy in spec.setting.policies:
        package = POLICIES[policy].package
        if package and find_spec(package) is None:
            return f"{package} is not installed: `make peers` brings it"
    return None


def _data_faults(study: Study, recorded: list[dict[str, Any]]) -> Iterator[str]:
    """Compare the data that a study names with those of its problems, and with those on this machine."""
    used = {setting.problem.dataset: setting.problem for setting in study.settings}
    used.pop(None, None)
    if sorted(data["name"] for data in recorded) != sorted(str(name) for name in used):
        yield f"study.json: {study.experiment} names other data than those of its problems"
    for data in recorded:
        with suppress(KeyError, DataError):
            here = used[data["name"]].found()
            # The source may differ, since the same data may have been read from another place.
            if here["sha256"] == data["sha256"] and here | {"source": ""} != data | {"source": ""}:
                yield f"study.json: {study.experiment} does not describe {data['name']} as it is"


def _margin_faults(
    study: Study, recorded: list[dict[str, Any]], computed: Mapping[tuple[str, str], tuple[float, float]]
) -> Iterator[str]:
    """Compare the smallest margins of a study, which have three digits, with those of all its trials."""
    stored = {(one["setting"], one["policy"]): (one["all_rounds"], one["after_round_1"]) for one in recorded}
    for key in sorted({*stored, *computed}):
        old, new = (np.array(margins.get(key, (np.nan, np.nan))) for margins in (stored, computed))
        if not np.allclose(new, old, rtol=0.01, atol=_MARGIN):
            yield f"study.json: {study.experiment}, {key[0]}, {key[1]}: computed again, its margin differs"


def _sampled(specs: list[TrialSpec], number: int) -> list[TrialSpec]:
    """Draw trials at random, spread over the settings: no setting has two before each has one."""
    by_setting: dict[str, list[TrialSpec]] = {}
    for spec in _RANDOM.sample(specs, len(specs)):
        by_setting.setdefault(spec.setting.name, []).append(spec)
    turns = itertools.zip_longest(*_RANDOM.sample(list(by_setting.values()), len(by_setting)))
    return [spec for turn in turns for spec in turn if spec is not None][:number]


def what_is_missed(report: Report) -> str:
    """Return how likely it is that the trials computed again miss a forgery of a tenth of all trials."""
    computed, trials = len(report.computed), report.trials
    if computed == trials:
        return f"all {trials} trials were computed again"
    forged = -(-trials // 10)
    chance = math.comb(trials - forged, computed) / math.comb(trials, computed)
    return (
        f"{computed} of {trials} trials were computed again, drawn at random: if {forged} of them were "
        f"forged, this finds none of them with probability {chance:.2g}"
    )


def _results(study: Study, specs: Sequence[TrialSpec], frames: Sequence[pd.DataFrame]) -> Results:
    """Return the tables of some trials. The data of the study's other settings may not be on this machine."""
    settings = tuple({spec.setting.name: spec.setting for spec in specs}.values())
    own = study.model_copy(update={"settings": settings})
    return Results.of(own, combine(specs, frames), final_states(specs, frames))


def _named(spec: TrialSpec) -> str:
    return f"{spec.experiment}, {spec.setting.name}, trial {spec.trial}"
