"""A study: several settings, several trials each; the results as tidy tables.

This is what an experiment's notebook imports. Trials that are stored are loaded, the others are
computed by worker processes and stored as they finish, so a stopped study goes on where it stopped.
The table of results does not depend on the number of workers; times are kept apart from it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, field_validator

from compendium import paths, progress, trials
from compendium.trials import Setting, TrialSpec

_FEWEST_ROUNDS = 20  # a median over fewer rounds says nothing

__all__ = ["Results", "Setting", "Study", "publish"]


class Study(BaseModel):
    """Several settings over independent trials.

    Parameters
    ----------
    experiment : str
        Name that, with the seed, picks the random streams. Settings of one study share them:
        trial i meets the same action sets and outcome uniforms under every setting.
    settings : sequence of Setting
        Problems with parameter settings, under distinct names.
    n_rounds, n_trials : int
        T and the number of trials.
    seed : int
        Root seed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    experiment: str
    settings: tuple[Setting, ...]
    n_rounds: PositiveInt
    n_trials: PositiveInt
    seed: NonNegativeInt

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
        """Load or compute every trial.

        Parameters
        ----------
        n_jobs : int, optional
            Worker processes; by default what the command line set (`MLOGB_JOBS`), else 1.
        folder : Path, optional
            Where trials are kept; by default `papermill_runs/.trials`.

        Returns
        -------
        Results
        """
        jobs = n_jobs if n_jobs is not None else _jobs_of_the_batch()
        folder = folder or paths.trials_folder()
        specs = self.specs()
        with progress.shown(self.experiment) as variables, _environment(variables):
            progress.announce(sum(spec.n_rounds for spec in specs))
            work = (joblib.delayed(_obtain)(spec, folder, dict(variables)) for spec in specs)
            frames = list(joblib.Parallel(n_jobs=jobs)(work))
        return Results(self, _combine(specs, frames), _final(specs, frames))


@dataclass(frozen=True)
class Results:
    """The tables of a study.

    Attributes
    ----------
    study : Study
        What was run.
    frame : pandas.DataFrame
        One row per (setting, trial, round, policy), with wall times.
    final : pandas.DataFrame
        One row per (setting, trial, optimistic policy): its `OptimisticPolicy.summary` at the end.
    """

    study: Study
    frame: pd.DataFrame
    final: pd.DataFrame

    @property
    def rounds(self) -> pd.DataFrame:
        """What was played, without times: the same for any number of workers, and after a restart.

        The decision margins are left out too: of them the record keeps the smallest.
        """
        return self.frame.drop(columns=[*trials.TIMES, "margin"])

    @property
    def final_regret(self) -> pd.DataFrame:
        """Cumulative regret at the end, one row per (setting, policy, trial)."""
        keys = ["setting", "policy", "trial"]
        sums = self.frame.groupby(keys, observed=True, sort=False)["regret"].sum()
        return sums.reset_index()

    @property
    def timings(self) -> pd.DataFrame:
        """Wall time per round in milliseconds, summarised per (setting, policy, trial).

        All figures are over the rounds with a full sketch, from `first_round` on: before it is full
        a round costs less. A trial with fewer than 20 such rounds is summarised over all of them,
        and its `first_round` is 1.
        """
        keys, parts = ["setting", "policy", "trial"], [*trials.TIMES, "total_seconds"]
        frame = self.frame.assign(total_seconds=self.frame[list(trials.TIMES)].sum(axis=1))
        frame[parts] = frame[parts].astype(np.float64) * 1e3
        last = self.study.n_rounds
        full = {s.name: s.sketch_size for s in self.study.settings}
        first = {name: m + 1 if last - m >= _FEWEST_ROUNDS else 1 for name, m in full.items()}
        frame["first_round"] = frame["setting"].map(first).astype(int)
        grouped = frame[frame["round"] >= frame["first_round"]].groupby(keys, observed=True, sort=False)
        table = grouped[["first_round"]].first()
        for name in parts:
            table[name.replace("_seconds", "_mean_ms")] = grouped[name].mean()
        for level, name in ((0.25, "q25"), (0.5, "median"), (0.75, "q75")):
            table[f"total_{name}_ms"] = grouped["total_seconds"].quantile(level)
        return table.reset_index()

    def record(self) -> dict[str, Any]:
        """What was run, on which data, and how close decisions came to a tie."""
        keys = ["setting", "policy"]
        # In round 1 all actions of one norm tie exactly, and the margin there is the tie tolerance.
        later = self.frame["margin"].where(self.frame["round"] > 1, np.inf)
        grouped = self.frame.assign(later=later).groupby(keys, observed=True, sort=False)
        margins = grouped[["margin", "later"]].min().reset_index()
        return self.study.model_dump(mode="json") | {
            "data": self._data(),
            "sources": trials.library_digest(),
            "smallest_margin": [
                {
                    "setting": row["setting"],
                    "policy": row["policy"],
                    "all_rounds": float(f"{row['margin']:.3g}"),
                    "after_round_1": float(f"{row['later']:.3g}"),
                }
                for row in margins.to_dict("records")
                if np.isfinite(row["later"])
            ],
        }

    def _data(self) -> list[dict[str, Any]]:
        """The data sets behind the study's problems, each once."""
        sources = (setting.problem.data() for setting in self.study.settings)
        return list({data["sha256"]: data for data in sources if data}.values())


def publish(*results: Results, **findings: Any) -> None:
    """Hand results to the batch that executes the notebook; without a batch, do nothing.

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
    text = (
        json.dumps(record, indent=2, sort_keys=True, allow_nan=False) + "\n"
    )  # first: a finding may not be plain
    for name, tables in (
        ("results", [one.rounds for one in results]),
        ("timings", [one.timings for one in results]),
        ("final", [one.final for one in results]),
    ):
        table = _stack(tables)
        table.to_parquet(folder / f"{name}.parquet", compression="zstd", index=False)
    paths.write_atomically(folder / "study.json", text)


def _stack(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate tables, keeping setting and policy categorical, in order of appearance."""
    table = pd.concat([t.astype({"setting": str, "policy": str}) for t in tables], ignore_index=True)
    for name in ("setting", "policy"):
        table[name] = pd.Categorical(table[name], categories=list(dict.fromkeys(table[name])))
    return table


def _jobs_of_the_batch() -> int:
    value = os.environ.get("MLOGB_JOBS") or "1"
    if not value.isdecimal() or int(value) < 1:
        raise ValueError(f"MLOGB_JOBS must be a whole number of at least 1, got {value!r}")
    return int(value)


def _obtain(spec: TrialSpec, folder: Path, variables: Mapping[str, str]) -> pd.DataFrame:
    """Load a trial, or compute and store it; runs in a worker process."""
    with _environment(variables):
        frame = trials.load(spec, folder)
        if frame is None:
            frame = spec.compute(progress.counter(spec.key))
            trials.store(spec, frame, folder)
        progress.finish(spec.key, spec.n_rounds)
    return frame


def _final(specs: Sequence[TrialSpec], frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    rows = [
        {"setting": spec.setting.name, "trial": spec.trial, "policy": policy} | frame.attrs["final"][policy]
        for spec, frame in zip(specs, frames, strict=True)
        for policy in spec.setting.policies  # a stored trial has them in another order
        if policy in frame.attrs["final"]
    ]
    columns = ["setting", "trial", "policy", "shrinkage", "largest_eigenvalue", "parameter_norm"]
    return pd.DataFrame(rows, columns=[*columns, "smallest_margin"])


def _combine(specs: Sequence[TrialSpec], frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    settings = list(dict.fromkeys(spec.setting.name for spec in specs))
    policies = list(dict.fromkeys(policy for spec in specs for policy in spec.setting.policies))
    parts = [
        frame.assign(
            setting=pd.Categorical([spec.setting.name] * len(frame), categories=settings),
            trial=np.int32(spec.trial),
            policy=frame["policy"].cat.set_categories(policies),
        )
        for spec, frame in zip(specs, frames, strict=True)
    ]
    combined = pd.concat(parts, ignore_index=True)
    combined.attrs.clear()  # Parquet files would hold them
    first = ["setting", "trial", "round", "policy"]
    return combined[first + [name for name in combined.columns if name not in first]]


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
