"""The base class of bandit problems, and the sources of the data that some of them use."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt

from compendium.experiments.data import DataError, Dataset
from compendium.experiments.ratings import Ratings
from mlogb_core.environments import Environment

Data = TypeVar("Data", Dataset, Ratings)


@dataclass(frozen=True, eq=False)
class Source(Generic[Data]):
    """A source of data that problems use.

    Attributes
    ----------
    name : str
        Name of the data, as records give it.
    load : callable
        Reads the data from this machine, or raises a `DataError`.
    absent : str
        The message of the error where a finished run did not have the data.
    """

    name: str
    load: Callable[[], Data]
    absent: str

    @cached_property
    def data(self) -> Data:
        """The data, which are loaded once in a process."""
        return self.load()


class Problem(BaseModel):
    """Base class of the problems, which cannot be changed and accept no unknown field."""

    model_config = ConfigDict(frozen=True, extra="forbid", revalidate_instances="always")

    @property
    def n_outcomes(self) -> int:
        """K."""
        raise NotImplementedError

    @property
    def n_features(self) -> int:
        """Dimension d of the actions."""
        raise NotImplementedError

    def environment(self) -> Environment:
        """The library's environment."""
        raise NotImplementedError

    @property
    def data_source(self) -> Source[Any] | None:
        """Source of the data that the problem uses, or None if it uses none."""
        return None

    @property
    def dataset(self) -> str | None:
        """Name of the data that the problem uses, or None if it uses none."""
        source = self.data_source
        return None if source is None else source.name

    def found(self) -> dict[str, Any]:
        """Source, rows and checksum of the data on this machine; the problem must use data."""
        assert self.data_source is not None
        record: dict[str, Any] = self.data_source.data.as_record()
        return record

    def data(self) -> dict[str, Any] | None:
        """Source, rows and checksum of the data that the problem uses, or None if it uses none.

        In the folder of a finished run these are the data that the run recorded, so that the run can be
        executed again on a machine that has other data or none.

        Raises
        ------
        DataError
            If the data are not on this machine, or the run in this folder had none.
        """
        source = self.data_source
        if source is None:
            return None
        recorded = _recorded_data()
        if recorded is None:
            return self.found()
        if source.name not in recorded:
            raise DataError(source.absent)
        return recorded[source.name]


class Drawn(Problem):
    """Base class of the problems whose parameter and actions are drawn, in d dimensions for given rewards."""

    kind: str
    dimension: PositiveInt
    rewards: tuple[float, ...]
    parameter_norm: PositiveFloat

    @property
    def n_outcomes(self) -> int:
        """K."""
        return len(self.rewards)

    @property
    def n_features(self) -> int:
        """Dimension d of the actions."""
        return self.dimension


def _recorded_data() -> dict[str, dict[str, Any]] | None:
    """The data of the finished run in the working folder, by name; None if there is no run in it."""
    folder = Path.cwd()
    if not ((folder / "record.json").is_file() and (folder / "study.json").is_file()):
        return None
    studies = json.loads((folder / "study.json").read_text(encoding="utf-8"))["studies"]
    return {data["name"]: data for one in studies for data in one.get("data", [])}
