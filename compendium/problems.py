"""Bandit problems by name and numbers, so that a trial can be described, hashed and rebuilt.

A problem is a small frozen model: it goes into a trial's identity, into a run's record and through
a pipe to a worker, and `environment` builds the library's object from it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat, PositiveInt

from compendium.data import DataError, Dataset, load_mnist
from mlogb_core.environments import Environment, LabelledEnvironment, SyntheticEnvironment


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

    def data(self) -> dict[str, Any] | None:
        """Source, rows and checksum of the data behind the problem, if there are any."""
        return None


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

    def data(self) -> dict[str, Any]:
        """Source, rows and checksum of the digits."""
        return _mnist().as_record()


@lru_cache(maxsize=1)
def _mnist() -> Dataset:
    return load_mnist()
