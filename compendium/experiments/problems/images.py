"""Images as actions: digits of which one is rewarded, and ten classes of images with ten outcomes."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from compendium.experiments.data import NO_FASHION, DataError, Dataset, load_fashion, load_mnist
from compendium.experiments.problems.base import Problem, Source
from mlogb_core.environments import LabelledEnvironment

MNIST = Source("MNIST", load_mnist, "MNIST is not on this machine")
FASHION = Source("Fashion-MNIST", load_fashion, NO_FASHION)


class Digits(Problem):
    """MNIST as in the paper: the candidates are ten distinct digits, and the target digit has reward 1."""

    kind: Literal["mnist"] = "mnist"
    target: int = Field(default=1, ge=0, le=9)
    normalisation: Literal["unit", "max"] = "unit"

    n_outcomes: ClassVar[int] = 1
    n_features: ClassVar[int] = 785  # the pixels and the bias

    @property
    def action_bound(self) -> float:
        """Largest norm D that an action can have."""
        return 1.0 if self.normalisation == "unit" else float(np.sqrt(785.0))

    @property
    def data_source(self) -> Source[Dataset]:
        """The digits."""
        return MNIST

    def environment(self) -> LabelledEnvironment:
        """The library's environment, over the digits that are found on this machine."""
        digits = MNIST.data
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


class Classes(Problem):
    """Classes of images as outcomes: there is one candidate of each of ten classes, which is its outcome.

    K = 9 with class 0 as the reference and rewards k/9; the best candidate is the one of class 9.
    """

    kind: Literal["classes"] = "classes"
    source: Literal["mnist", "fashion"] = "mnist"

    n_outcomes: ClassVar[int] = 9
    n_features: ClassVar[int] = 785

    @property
    def data_source(self) -> Source[Dataset]:
        """The images."""
        return MNIST if self.source == "mnist" else FASHION

    def environment(self) -> LabelledEnvironment:
        """The library's environment, over the images that are found on this machine."""
        images = self.data_source.data
        return LabelledEnvironment(
            images.features, images.labels, outcomes=np.arange(10), rewards=np.arange(1, 10) / 9
        )


def forget_digits() -> None:
    """Let the digits be loaded again, after a change of the variable that says where they are."""
    vars(MNIST).pop("data", None)
