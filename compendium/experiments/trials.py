"""Trials: one trial of one setting is the unit of work, which is computed once and stored under its address.

The address is a hash of everything that decides the numbers: the experiment, the setting with its problem,
the checksum of the data, the seed, the number of the trial and the sources of the library. The versions of
NumPy and of BLAS are not part of it, because they change last digits only; a run's record names them. A
stored trial is a Parquet file that is written under a temporary name and renamed, so that it is never there
in part. If a file cannot be read, has a wrong checksum or belongs to another trial, the trial is computed
again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import uuid
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt
from threadpoolctl import ThreadpoolController

from compendium.experiments.action_sets import trial_environment
from compendium.experiments.failures import Guarded
from compendium.experiments.region import Region, true_parameter
from compendium.experiments.setting import Setting
from compendium.system import paths
from compendium.system.provenance import code_digest, computed_on
from mlogb_core.policies import NewtonPolicy, Policy
from mlogb_core.simulation import Round, Trial, run_trial, trial_streams

__all__ = ["TIMES", "Setting", "TrialSpec", "is_stored", "library_digest", "load", "store"]

TIMES = ("select_seconds", "update_seconds")
#: What is stored with the rows of a trial: the final states of its policies, what it was computed on, and how
#: many seconds that took.
ATTRIBUTES = ("final", "computed_on", "seconds")
_LOG = logging.getLogger(__name__)


class TrialSpec(BaseModel):
    """The specification of a trial: everything that decides its numbers, except code and data."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    experiment: str
    setting: Setting
    n_rounds: PositiveInt
    seed: NonNegativeInt
    trial: NonNegativeInt

    def identity(self) -> dict[str, Any]:
        """The specification with the checksum of the data and the digest of the sources."""
        data = self.setting.problem.data()
        return self.model_dump(mode="json") | {
            "data": data and data["sha256"],
            "sources": library_digest(),
        }

    @property
    def key(self) -> str:
        """The address of the trial, which is the hash of its identity."""
        text = json.dumps(self.identity(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def compute(self, on_round: Callable[[int], None] | None = None) -> pd.DataFrame:
        """Play the trial with one BLAS thread, because the number of threads changes last digits.

        Parameters
        ----------
        on_round : callable, optional
            It is called after each round with the number of rounds played.

        Returns
        -------
        DataFrame
            One row per round and policy. Its `attrs` has three entries: ``final``, the summary of each policy
            with a curvature after the last round, with the shares of its radius if the setting follows the
            coverage, or the failure of a guarded one; ``computed_on``, libraries and machine of this process;
            and ``seconds``, how long the trial took.
        """
        started = perf_counter()
        region: Region | None = None

        def observer(played: Round) -> None:
            if region is not None:
                region.look()
            if on_round is not None:
                on_round(played.number)

        streams = trial_streams(self.seed, self.experiment, self.trial)
        with one_blas_thread():
            environment = trial_environment(self.setting.problem, self.seed, self.experiment, self.trial)
            policies = self.setting.build(environment, streams.policy)
            if self.setting.coverage:
                truth = true_parameter(self.setting, self.seed, self.experiment, self.trial)
                region = Region(policies, truth)
            trial = run_trial(environment, policies, self.n_rounds, streams, observer)
            final = {
                n: state for n, p in policies.items() if (state := _final_state(n, p, region)) is not None
            }
        frame = _tidy(trial)
        frame.attrs |= {
            "final": final,
            "computed_on": _machine(len(sys.modules)),
            "seconds": perf_counter() - started,
        }
        return frame


def one_blas_thread() -> Any:
    """A context in which BLAS computes with one thread."""
    return _thread_pools(len(sys.modules)).limit(limits=1)


# To look for the libraries of a process takes as long as some ten rounds of a small game. It is done again
# when modules have been imported since, which may have brought other libraries.
@lru_cache(maxsize=1)
def _thread_pools(n_modules: int) -> ThreadpoolController:
    return ThreadpoolController()


@lru_cache(maxsize=1)
def _machine(n_modules: int) -> dict[str, Any]:
    return computed_on()


def load(spec: TrialSpec, folder: Path) -> pd.DataFrame | None:
    """Read a stored trial; None if there is none, or none that can be used.

    Parameters
    ----------
    spec : TrialSpec
        The trial.
    folder : Path
        Where trials are stored.
    """
    path = folder / f"{spec.key}.parquet"
    if not path.is_file():
        return None
    try:
        table = pq.read_table(path, page_checksum_verification=True)
        metadata = table.schema.metadata or {}
        stored = json.loads(metadata[b"identity"])
        frame: pd.DataFrame = table.to_pandas()
        frame.attrs |= {name: json.loads(metadata[name.encode()]) for name in ATTRIBUTES}
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
    """Whether there is a file of this trial; whether it can be used is found by `load`."""
    return (folder / f"{spec.key}.parquet").is_file()


def store(spec: TrialSpec, frame: pd.DataFrame, folder: Path) -> Path:
    """Write a trial under its address, completely or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{spec.key}.parquet"
    temporary = folder / f".{spec.key}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp"
    table = pa.table(dict(without_attributes(frame).items()))
    metadata = {"identity": spec.identity(), **frame.attrs}
    texts = {k: json.dumps(v, sort_keys=True) for k, v in metadata.items()}
    table = table.replace_schema_metadata(texts | {"content": _content(frame)})
    try:
        with paths.naming(path):
            pq.write_table(table, temporary, compression="zstd", write_page_checksum=True)
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def check_writable(folder: Path) -> None:
    """Find out whether the folder of the trials can be written, before trials are computed for it.

    Raises
    ------
    OSError
        If a file cannot be written into it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / f".{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp"
    try:
        with paths.naming(folder):
            probe.write_bytes(b"0" * 1024)
    finally:
        probe.unlink(missing_ok=True)


@lru_cache(maxsize=1)
def library_digest() -> str:
    """Digest of the sources that decide a trial's numbers: `mlogb_core`, and what builds its objects."""
    names = ("action_sets", "failures", "peers", "policies", "region", "setting", "trials")
    return code_digest(["experiments/problems", *(f"experiments/{name}.py" for name in names)])


def _final_state(name: str, policy: Policy, region: Region | None) -> dict[str, Any] | None:
    """What is kept of a policy besides its rounds; of a guarded one its failure alone, if it failed."""
    if isinstance(policy, Guarded):
        return {"failure": policy.failure} if policy.failure else None
    if not isinstance(policy, NewtonPolicy):
        return None
    return policy.summary() | (region.shares(name) if region else {})


def _content(frame: pd.DataFrame) -> str:
    """Hash of the content of a stored trial: its columns and the final states of its policies."""
    digest = hashlib.sha256(json.dumps(frame.attrs["final"], sort_keys=True).encode())
    for name, column in without_attributes(frame).items():
        if isinstance(column.dtype, pd.CategoricalDtype):
            values = np.asarray(column.cat.categories, dtype=np.bytes_)[column.cat.codes]
        else:
            values = column.to_numpy()
        digest.update(f"{name} {values.dtype.str}".encode() + values.tobytes())
    return digest.hexdigest()


def without_attributes(frame: pd.DataFrame) -> pd.DataFrame:
    """The table without its attributes, of which pandas makes a deep copy for every column it returns."""
    plain = frame.copy(deep=False)
    plain.attrs = {}
    return plain


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
