"""The unit of work: one (setting, trial), computed once and kept under its content address.

The address is a hash of what decides the numbers: the experiment, the problem with its data's
checksum, the setting, the seed, the trial and the sources of the library. The versions of NumPy and
BLAS are not in it: they move last digits, and a run's record names them. A stored trial is one
Parquet file, written to a temporary name and renamed, so it is there whole or not at all; a file
that cannot be read, has a wrong checksum or does not fit is computed again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import uuid
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveFloat, PositiveInt, field_validator
from threadpoolctl import threadpool_limits

from compendium.experiments.problems import Classes, Digits, Rated, Synthetic
from compendium.system.provenance import code_digest, computed_on
from mlogb_core.environments import Environment
from mlogb_core.policies import OptimisticPolicy, Policy, RandomPolicy, eofd, first_order, oful
from mlogb_core.printed import CholeskyOFUL, PrintedEOFD, PrintedOFUL
from mlogb_core.radius import ConstantRadius, radius_from
from mlogb_core.simulation import Trial, run_trial, trial_streams

COMPARISON = ("eofd", "oful", "first-order", "greedy", "random")
#: The forms whose times are compared: the library's, those as printed, and OFUL by Cholesky factors.
FORMS = ("eofd", "oful", "eofd-compiled", "oful-compiled", "eofd-printed", "oful-cholesky", "oful-printed")
POLICIES = (*COMPARISON, *FORMS[2:])
TIMES = ("select_seconds", "update_seconds")
_LOG = logging.getLogger(__name__)


class Setting(BaseModel):
    """A problem and one parameter setting, shared by all policies of a trial.

    Parameters
    ----------
    name : str
        What the setting is called in tables and figures.
    problem : Digits, Synthetic, Classes or Rated
        The bandit problem.
    sketch_size : int
        m of EOFD-MLogB.
    regularization, step_size, norm_bound : float
        Lambda, eta and S.
    radius : dict
        The rule for beta, as `mlogb_core.radius.radius_from` reads it.
    policies : tuple of str
        Which policies play; the five of the comparison by default.
    """

    # Validated again where it is used: `model_copy(update=...)`, how variants are made, checks nothing.
    model_config = ConfigDict(frozen=True, extra="forbid", revalidate_instances="always")

    name: str
    problem: Digits | Synthetic | Classes | Rated
    sketch_size: PositiveInt
    regularization: PositiveFloat
    step_size: PositiveFloat
    norm_bound: PositiveFloat
    radius: dict[str, Any]
    policies: tuple[str, ...] = COMPARISON

    @field_validator("radius")
    @classmethod
    def _known_radius(cls, value: dict[str, Any]) -> dict[str, Any]:
        return radius_from(value).describe()

    @field_validator("policies")
    @classmethod
    def _known_policies(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = set(value) - set(POLICIES)
        if unknown or len(set(value)) != len(value) or not value:
            raise ValueError(f"policies must be distinct names out of {POLICIES}, got {value}")
        return value

    def build(
        self, environment: Environment, stream: Callable[[str], np.random.Generator]
    ) -> dict[str, Policy]:
        """Fresh policies by name.

        Parameters
        ----------
        environment : Environment
            Gives d and the rewards.
        stream : callable
            Gives a policy that randomises the stream of its name, as `Streams.policy` does.
        """
        problem = environment.n_features, environment.rewards
        common: dict[str, Any] = {
            "regularization": self.regularization,
            "step_size": self.step_size,
            "norm_bound": self.norm_bound,
        }
        optimistic = common | {"radius": radius_from(self.radius)}
        sketched = {"sketch_size": self.sketch_size} | optimistic
        greedy = sketched | {"radius": ConstantRadius(0.0)}
        makers: dict[str, Callable[[], Policy]] = {
            "eofd": lambda: eofd(*problem, **sketched),
            "oful": lambda: oful(*problem, **optimistic),
            "first-order": lambda: first_order(*problem, **optimistic),
            "greedy": lambda: eofd(*problem, **greedy),
            "random": lambda: RandomPolicy(stream("random")),
            "eofd-printed": lambda: PrintedEOFD(*problem, **sketched),
            "oful-printed": lambda: PrintedOFUL(*problem, **optimistic),
            "oful-cholesky": lambda: CholeskyOFUL(*problem, **optimistic),
            "eofd-compiled": lambda: eofd(*problem, **sketched, compiled=True),
            "oful-compiled": lambda: oful(*problem, **optimistic, compiled=True),
        }
        return {name: makers[name]() for name in self.policies}


class TrialSpec(BaseModel):
    """All that decides the numbers of one trial."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    experiment: str
    setting: Setting
    n_rounds: PositiveInt
    seed: NonNegativeInt
    trial: NonNegativeInt

    def identity(self) -> dict[str, Any]:
        """The specification with the data's checksum and the digest of the sources."""
        data = self.setting.problem.data()
        return self.model_dump(mode="json") | {
            "data": data and data["sha256"],
            "sources": library_digest(),
        }

    @property
    def key(self) -> str:
        """Content address: the hash of `identity`."""
        text = json.dumps(self.identity(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def compute(self, on_round: Callable[[int], None] | None = None) -> pd.DataFrame:
        """Play the trial, with one BLAS thread: the thread count changes last digits.

        The frame's `attrs["final"]` has the summary of each optimistic policy at the end, and
        `attrs["computed_on"]` the libraries and the machine of the process that computed it.
        """
        streams = trial_streams(self.seed, self.experiment, self.trial)
        with threadpool_limits(limits=1):
            environment = self.setting.problem.environment()
            policies = self.setting.build(environment, streams.policy)
            trial = run_trial(environment, policies, self.n_rounds, streams, on_round)
            final = {n: p.summary() for n, p in policies.items() if isinstance(p, OptimisticPolicy)}
        frame = _tidy(trial)
        frame.attrs |= {"final": final, "computed_on": computed_on()}
        return frame


def load(spec: TrialSpec, folder: Path) -> pd.DataFrame | None:
    """A stored trial, or None if there is none that can be used.

    Parameters
    ----------
    spec : TrialSpec
        The trial.
    folder : Path
        Where trials are kept.
    """
    path = folder / f"{spec.key}.parquet"
    if not path.is_file():
        return None
    try:
        table = pq.read_table(path, page_checksum_verification=True)
        metadata = table.schema.metadata or {}
        stored = json.loads(metadata[b"identity"])
        frame: pd.DataFrame = table.to_pandas()
        frame.attrs |= {name: json.loads(metadata[name.encode()]) for name in ("final", "computed_on")}
        content = metadata[b"content"].decode()
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        _LOG.warning("stored trial %s cannot be read (%s); computing it again", path.name, error)
        return None
    whole = content == _content(frame) and len(frame) == spec.n_rounds * len(spec.setting.policies)
    if stored != spec.identity() or not whole:
        _LOG.warning("stored trial %s is not the one asked for; computing it again", path.name)
        return None
    return frame


def is_stored(spec: TrialSpec, folder: Path) -> bool:
    """Whether there is a file for the trial; `load` says whether it can be used."""
    return (folder / f"{spec.key}.parquet").is_file()


def store(spec: TrialSpec, frame: pd.DataFrame, folder: Path) -> Path:
    """Write a trial under its address, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{spec.key}.parquet"
    temporary = folder / f".{spec.key}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp"
    table = pa.Table.from_pandas(frame, preserve_index=False)
    metadata = {"identity": spec.identity(), **frame.attrs}
    texts = {k: json.dumps(v, sort_keys=True) for k, v in metadata.items()}
    table = table.replace_schema_metadata(texts | {"content": _content(frame)})
    try:
        pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


@lru_cache(maxsize=1)
def library_digest() -> str:
    """Digest of the sources that decide a trial's numbers: `mlogb_core`, problems and trials.

    The bounds of the analysis are functions of what was played, and play no part in it.
    """
    return code_digest(("experiments/problems.py", "experiments/trials.py"))


def _content(frame: pd.DataFrame) -> str:
    """Hash of what a stored trial says: its columns and the policies' last states."""
    digest = hashlib.sha256(json.dumps(frame.attrs["final"], sort_keys=True).encode())
    for name in frame.columns:
        column = frame[name].astype(str) if frame[name].dtype == "category" else frame[name]
        digest.update(name.encode() + pd.util.hash_pandas_object(column, index=False).to_numpy().tobytes())
    return digest.hexdigest()


def _tidy(trial: Trial) -> pd.DataFrame:
    """One row per (round, policy)."""
    rounds, policies = trial.action.shape
    return pd.DataFrame(
        {
            "round": np.repeat(np.arange(1, rounds + 1, dtype=np.int32), policies),
            "policy": pd.Categorical(np.tile(trial.policies, rounds), categories=list(trial.policies)),
            "n_actions": np.repeat(trial.n_actions, policies).astype(np.int32),
            "action": trial.action.ravel().astype(np.int32),
            "outcome": trial.outcome.ravel().astype(np.int16),
            "reward": trial.reward.ravel(),
            "regret": trial.regret.ravel(),
            "margin": trial.margin.ravel(),
            "select_seconds": trial.select_seconds.ravel().astype(np.float32),
            "update_seconds": trial.update_seconds.ravel().astype(np.float32),
        }
    )
