"""What every bandit problem says of itself, and of the data behind it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from compendium.experiments.data import DataError, Dataset
from compendium.experiments.ratings import Ratings
from mlogb_core.environments import Environment

Data = TypeVar("Data", Dataset, Ratings)


@dataclass(frozen=True, eq=False)
class Source(Generic[Data]):
    """Data behind problems.

    Attributes
    ----------
    name : str
        What the data are, as their record names them.
    load : callable
        Finds them on this machine, or raises a `DataError`.
    absent : str
        What is said where a finished run had none.
    """

    name: str
    load: Callable[[], Data]
    absent: str

    @cached_property
    def data(self) -> Data:
        """The data, loaded once in a process."""
        return self.load()


class Problem(BaseModel):
    """Base of the problems: frozen, and strict about what it is given."""

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
        """Where the data behind the problem come from, if there are any."""
        return None

    @property
    def dataset(self) -> str | None:
        """Name of the data behind the problem, if there are any."""
        source = self.data_source
        return None if source is None else source.name

    def found(self) -> dict[str, Any]:
        """Source, rows and checksum of the data of this machine, of a problem that has data."""
        assert self.data_source is not None
        record: dict[str, Any] = self.data_source.data.as_record()
        return record

    def data(self) -> dict[str, Any] | None:
        """Source, rows and checksum of the data behind the problem, if there are any.

        In the folder of a finished run they are those that the run recorded, so that it is read back
        the same on a machine that has other data, or none.

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


def _recorded_data() -> dict[str, dict[str, Any]] | None:
    """The data of the finished run in the working folder by name; None where there is no run."""
    folder = Path.cwd()
    if not ((folder / "record.json").is_file() and (folder / "study.json").is_file()):
        return None
    studies = json.loads((folder / "study.json").read_text(encoding="utf-8"))["studies"]
    return {data["name"]: data for one in studies for data in one.get("data", [])}
