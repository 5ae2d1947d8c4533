"""Studies: several settings with several trials each, and their results as tidy tables.

The notebook of an experiment defines a study and calls `Study.run`. The module `execution` loads or computes
the trials, in one process or in many; the tables do not depend on how, and measured times have a table of
their own. In the folder of a finished run, the tables are read instead of computed, so that the notebook of a
committed run can be executed again in seconds and all its numbers compared.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, field_validator

from compendium.experiments import trials
from compendium.experiments.execution import Orders, obtain
from compendium.experiments.progress import Stopped
from compendium.experiments.region import SHARES
from compendium.experiments.setting import Setting
from compendium.experiments.trials import TrialSpec
from compendium.system import paths, provenance

TABLES = ("results", "timings", "final")
#: Times of rounds are summarised over at least so many rounds.
_FEWEST_ROUNDS = 20
_COLUMNS_OF_BLOCKS = ["setting", "trial", "round", "policy", "reward", "regret"]
#: Columns of whole numbers. Where tables with and without such a column are concatenated, pandas fills the
#: gaps with NaN and makes it floating-point.
_WHOLE = {"n_actions": np.int32, "action": np.int32, "outcome": np.int16}

__all__ = ["Results", "Setting", "Study", "measured", "publish", "replay"]


class Study(BaseModel):
    """Several settings over independent trials.

    Parameters
    ----------
    experiment : str
        A name that, together with the seed, chooses the random streams. All settings of a study share
        them: trial i has the same action sets and the same uniform numbers for outcomes in every setting.
    settings : sequence of Setting
        The settings, which must have distinct names.
    n_rounds, n_trials : int
        T and the number of trials.
    seed : int
        Root seed.
    block : int
        How many rounds a row of the published table sums up, so that the tables of long studies stay small.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    experiment: str
    settings: tuple[Setting, ...]
    n_rounds: PositiveInt
    n_trials: PositiveInt
    seed: NonNegativeInt
    block: PositiveInt = 1

    @field_validator("settings")
    @classmethod
    def _distinct(cls, value: tuple[Setting, ...]) -> tuple[Setting, ...]:
        names = [setting.name for setting in value]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"settings must be at least one, with distinct names, got {names}")
        return value

    def specs(self) -> list[TrialSpec]:
        """The trials of the study, setting by setting."""
        return [
            TrialSpec(
                experiment=self.experiment,
                setting=setting,
                n_rounds=self.n_rounds,
                seed=self.seed,
                trial=trial,
            )
            for setting in self.settings
            for trial in range(self.n_trials)
        ]

    def run(self, n_jobs: int | None = None, folder: Path | None = None) -> Results:
        """Load or compute all trials; in the folder of a finished run, read its tables instead.

        Parameters
        ----------
        n_jobs : int, optional
            Worker processes; by default what the command line or `MLOGB_JOBS` says, else 1.
        folder : Path, optional
            Where trials are stored; by default `papermill_runs/.trials`.

        Returns
        -------
        Results

        Raises
        ------
        execution.TrialsFailedError
            If trials failed; the others are stored.
        ValueError
            If the working folder is that of a finished run without this study.
        """
        if folder is None and _is_finished_run(Path.cwd()):
            return replay(self, Path.cwd())
        orders = Orders.from_environment()
        if n_jobs is not None:
            orders = replace(orders, jobs=n_jobs)
        specs = self.specs()
        frames = obtain(self.experiment, specs, folder or paths.trials_folder(), orders)
        computed = tuple(
            {**frame.attrs["computed_on"], "seconds": frame.attrs["seconds"]} for frame in frames
        )
        return replace(
            Results.of(self, combine(specs, frames), final_states(specs, frames)), computed_on=computed
        )


def run_each(studies: Iterable[Study]) -> list[Results]:
    """Run studies of which none needs a result of another one; a plan or a shard takes its part of all.

    Parameters
    ----------
    studies : iterable of Study
        The studies, each of which is begun when those before it have ended.

    Returns
    -------
    list of Results
        Their tables, without the single rounds; see `Results.tables_only`.

    Raises
    ------
    progress.Stopped
        If some of them stopped, after all of them.
    execution.TrialsFailedError
        If trials of a study failed.
    """
    results, stops = [], list[str]()
    for study in studies:
        try:
            results.append(study.run().tables_only())
        except Stopped as stop:
            stops.append(str(stop))
    if stops:
        raise Stopped("\n".join(dict.fromkeys(stops)))
    return results


@dataclass(frozen=True)
class Results:
    """The tables of a study.

    Attributes
    ----------
    study : Study
        The study.
    rounds : pandas.DataFrame
        What was played, without times, and therefore the same for any number of workers and after a
        restart. One row per (setting, trial, round, policy); with `Study.block` b > 1 one row per b
        rounds, with the sums of reward and regret.
    timings : pandas.DataFrame
        Wall time per round in milliseconds, one row per (setting, policy, trial); see `_timings`.
    final : pandas.DataFrame
        One row per (setting, trial, policy with a curvature): its `NewtonPolicy.summary` at the end. If a
        setting follows the coverage, also `largest_share` and `last_share` of `region.Region`. Under a
        guarded setting one row per game that failed, with its `failure`.
    margins : list of dict
        The smallest decision margin of each policy under each setting.
    data : list of dict
        Source, rows and checksum of the data sets that the study's problems use, each once.
    frame : pandas.DataFrame or None
        All rounds with times and margins; None for the tables of a finished run.
    computed_on : tuple of dict
        For each trial what it was computed on, as `provenance.computed_on` describes it, and the seconds that
        it took. Empty if the tables were read from a finished run.
    """

    study: Study
    rounds: pd.DataFrame
    timings: pd.DataFrame
    final: pd.DataFrame
    margins: list[dict[str, Any]]
    data: list[dict[str, Any]]
    frame: pd.DataFrame | None = None
    computed_on: tuple[dict[str, Any], ...] = ()

    @classmethod
    def of(cls, study: Study, frame: pd.DataFrame, final: pd.DataFrame) -> Results:
        """The tables from all rounds of all trials."""
        return cls(
            study,
            _in_blocks(frame, study),
            _timings(frame, study),
            final,
            _margins(frame),
            _data(study),
            frame,
        )

    @property
    def final_regret(self) -> pd.DataFrame:
        """Cumulative regret at the end, one row per (setting, policy, trial)."""
        keys = ["setting", "policy", "trial"]
        sums = self.rounds.groupby(keys, observed=True, sort=False)["regret"].sum()
        return sums.reset_index()

    @property
    def failures(self) -> pd.DataFrame:
        """The games in which a policy of a guarded setting failed: setting, trial, policy, failure."""
        columns = ["setting", "trial", "policy", "failure"]
        found = self.final.reindex(columns=columns).dropna(subset="failure")
        return found.astype({"setting": str, "policy": str}).reset_index(drop=True)

    def tables_only(self) -> Results:
        """The same without the single rounds, which take memory that many studies in a row do not leave."""
        return replace(self, frame=None)

    def record(self) -> dict[str, Any]:
        """What was run, on which data, and how close decisions came to a tie."""
        return self.study.model_dump(mode="json") | {
            "data": self.data,
            "sources": trials.library_digest(),
            "smallest_margin": self.margins,
            "trials": [spec.key for spec in self.study.specs()],
        }


def measured(name: str, measure: Callable[[], Any]) -> Any:
    """Measure something besides the times of rounds; in the folder of a finished run, read its measurement.

    A measurement differs from machine to machine, so measuring again could not show that a run is right. The
    measured value is therefore stored as a finding of the run, and read back when its notebook is executed
    again.

    Parameters
    ----------
    name : str
        The name of the finding under which the notebook gives the value to `publish`.
    measure : callable
        Measures and returns the value, which must be made of plain values.

    Raises
    ------
    ValueError
        If the working folder is a finished run without such a finding.
    """
    if not _is_finished_run(Path.cwd()):
        # As it will be read back: the order of a dictionary's keys decides what a notebook prints.
        return json.loads(json.dumps(measure(), sort_keys=True))
    findings = json.loads(Path("study.json").read_text(encoding="utf-8"))["findings"]
    if name not in findings:
        raise ValueError(f"the run in this folder holds no measurement {name!r}")
    return findings[name]


def publish(*results: Results, **findings: Any) -> None:
    """Give results to the batch that executes the notebook; without a batch, do nothing.

    Parameters
    ----------
    *results : Results
        The studies of the notebook; the names of their settings must differ.
    **findings : Any
        What the notebook concluded, as plain values, for the record.
    """
    folder = os.environ.get("MLOGB_RUN_DIR")
    if folder:
        save(Path(folder), *results, **findings)


def save(folder: Path, *results: Results, **findings: Any) -> None:
    """Write `results.parquet`, `timings.parquet`, `final.parquet` and `study.json` into a folder.

    Also written is what this process, which is the kernel, and its workers computed on.

    Parameters
    ----------
    folder : Path
        An existing folder.
    *results, **findings
        As in `publish`.

    Raises
    ------
    ValueError
        If two studies have a setting of the same name.
    """
    names = [setting.name for one in results for setting in one.study.settings]
    if len(set(names)) != len(names):
        raise ValueError(f"settings of the studies must have different names, got {names}")
    record = {"studies": [one.record() for one in results], "findings": findings}
    # This fails if a finding is not made of plain values, so it is done before anything is written.
    text = json.dumps(record, indent=2, sort_keys=True, allow_nan=False) + "\n"
    for name, attribute in zip(TABLES, ("rounds", "timings", "final"), strict=True):
        table = _stack([getattr(one, attribute) for one in results])
        table.to_parquet(folder / f"{name}.parquet", compression="zstd", index=False)
    computed = [one for result in results for one in result.computed_on]
    provenance.hand_over_environment(folder, computed)
    paths.write_atomically(folder / "study.json", text)


def _stack(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate tables, keeping setting and policy categorical, in order of appearance."""
    table = pd.concat([t.astype({"setting": str, "policy": str}) for t in tables], ignore_index=True)
    for name in ("setting", "policy"):
        table[name] = pd.Categorical(table[name], categories=list(dict.fromkeys(table[name])))
    return table


def replay(study: Study, folder: Path) -> Results:
    """Read the tables of a study from a finished run.

    Parameters
    ----------
    study : Study
        What the notebook asks for.
    folder : Path
        The run.

    Raises
    ------
    ValueError
        If the run has no study with these parameters.
    """
    stored = json.loads((folder / "study.json").read_text(encoding="utf-8"))["studies"]
    asked = study.model_dump(mode="json")
    records = [one for one in stored if {name: one.get(name) for name in asked} == asked]
    if not records:
        raise ValueError(f"the run in this folder holds no study {study.experiment!r} with these parameters")
    names = [setting.name for setting in study.settings]

    def table(name: str, categorical: bool = True) -> pd.DataFrame:
        whole = pd.read_parquet(folder / f"{name}.parquet")
        part = whole[whole["setting"].isin(names)].reset_index(drop=True)
        for column in ("setting", "policy"):
            texts = part[column].astype(str)
            part[column] = (
                pd.Categorical(texts, categories=list(dict.fromkeys(texts))) if categorical else texts
            )
        return part

    rounds = table("results")
    # A run may have studies with and without blocks. Its table then has columns that are empty for one of
    # them, and the order of columns of the first study.
    keys, sums = _COLUMNS_OF_BLOCKS[:4], _COLUMNS_OF_BLOCKS[4:]
    rounds = rounds[_COLUMNS_OF_BLOCKS] if study.block > 1 else rounds[[*keys, *_WHOLE, *sums]].astype(_WHOLE)
    final = table("final", categorical=False)
    if not any(setting.coverage for setting in study.settings):  # the columns are of another study
        final = final.drop(columns=list(SHARES), errors="ignore")
    if final.empty:
        final = pd.DataFrame([], columns=final.columns)
    margins, data = records[0]["smallest_margin"], records[0]["data"]
    return Results(study, rounds, table("timings"), final, margins, data)


def _is_finished_run(folder: Path) -> bool:
    files = [f"{name}.parquet" for name in TABLES]
    return all((folder / name).is_file() for name in ("record.json", "study.json", *files))


def _in_blocks(frame: pd.DataFrame, study: Study) -> pd.DataFrame:
    """The rounds without times and margins; with blocks of b rounds, a row sums up each block."""
    rounds = frame.drop(columns=[*trials.TIMES, "margin"])
    if study.block == 1:
        return rounds
    last = ((rounds["round"] - 1) // study.block + 1) * study.block
    rounds = rounds.assign(round=last.clip(upper=study.n_rounds).astype(np.int32))
    keys, sums = _COLUMNS_OF_BLOCKS[:4], _COLUMNS_OF_BLOCKS[4:]
    return rounds.groupby(keys, observed=True, sort=False)[sums].sum().reset_index()


def _timings(frame: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Wall time per round in milliseconds, summarised per (setting, policy, trial).

    Only the rounds with a full sketch count, from `first_round` on, because a round costs less before
    the sketch is full. A trial with fewer than 20 such rounds is summarised over all its rounds, and
    its `first_round` is 1.
    """
    keys, parts = ["setting", "policy", "trial"], [*trials.TIMES, "total_seconds"]
    frame = frame.assign(total_seconds=frame[list(trials.TIMES)].sum(axis=1))
    frame[parts] = frame[parts].astype(np.float64) * 1e3
    full = {s.name: s.sketch_size for s in study.settings}
    first = {name: m + 1 if study.n_rounds - m >= _FEWEST_ROUNDS else 1 for name, m in full.items()}
    frame["first_round"] = frame["setting"].map(first).astype(int)
    grouped = frame[frame["round"] >= frame["first_round"]].groupby(keys, observed=True, sort=False)
    table = grouped[["first_round"]].first()
    for name in parts:
        table[name.replace("_seconds", "_mean_ms")] = grouped[name].mean()
    for level, name in ((0.25, "q25"), (0.5, "median"), (0.75, "q75")):
        table[f"total_{name}_ms"] = grouped["total_seconds"].quantile(level)
    return table.reset_index()


def _margins(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """The smallest margin of each policy under each setting.

    They are given with and without round 1, where all actions of one norm tie and the margin is the tie
    tolerance.
    """
    later = frame["margin"].where(frame["round"] > 1, np.inf)
    grouped = frame.assign(later=later).groupby(["setting", "policy"], observed=True, sort=False)
    return [
        {
            "setting": row["setting"],
            "policy": row["policy"],
            "all_rounds": float(f"{row['margin']:.3g}"),
            "after_round_1": float(f"{row['later']:.3g}"),
        }
        for row in grouped[["margin", "later"]].min().reset_index().to_dict("records")
        if np.isfinite(row["later"])
    ]


def _data(study: Study) -> list[dict[str, Any]]:
    sources = (setting.problem.data() for setting in study.settings)
    return list({data["sha256"]: data for data in sources if data}.values())


def final_states(specs: Sequence[TrialSpec], frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The summaries of the policies with a curvature at the end of each trial."""
    rows = [
        {"setting": spec.setting.name, "trial": spec.trial, "policy": policy} | frame.attrs["final"][policy]
        for spec, frame in zip(specs, frames, strict=True)
        for policy in spec.setting.policies  # the stored summaries are sorted by name
        if policy in frame.attrs["final"]
    ]
    columns = ["setting", "trial", "policy", "shrinkage", "largest_eigenvalue", "parameter_norm"]
    shares = SHARES if any(spec.setting.coverage for spec in specs) else ()
    failure = ("failure",) if any("failure" in row for row in rows) else ()
    return pd.DataFrame(rows, columns=[*columns, "smallest_margin", *shares, *failure])


def combine(specs: Sequence[TrialSpec], frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate the tables of all trials."""
    settings = list(dict.fromkeys(spec.setting.name for spec in specs))
    policies = list(dict.fromkeys(policy for spec in specs for policy in spec.setting.policies))
    lengths = [len(frame) for frame in frames]
    plain = [trials.without_attributes(frame) for frame in frames]
    columns = {
        name: np.concatenate([frame[name].to_numpy() for frame in plain])
        for name in plain[0].columns
        if name != "policy"
    }
    places = [np.array([policies.index(name) for name in frame["policy"].cat.categories]) for frame in plain]
    codes = [place[frame["policy"].cat.codes] for place, frame in zip(places, plain, strict=True)]
    combined = pd.DataFrame(
        {
            "setting": _named(
                np.repeat([settings.index(spec.setting.name) for spec in specs], lengths), settings
            ),
            "trial": np.repeat(np.array([spec.trial for spec in specs], dtype=np.int32), lengths),
            "policy": _named(np.concatenate(codes), policies),
            **columns,
        }
    )
    first = ["setting", "trial", "round", "policy"]
    return combined[first + [name for name in combined.columns if name not in first]]


def _named(codes: NDArray[np.integer[Any]], names: list[str]) -> pd.Categorical[str]:
    """A categorical column from the index of each entry's name."""
    return pd.Categorical.from_codes(codes, categories=pd.Index(names))
