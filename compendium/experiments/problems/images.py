"""Images as actions: digits of which one is rewarded, and ten classes of images, whole or small."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from compendium.experiments.data import NO_FASHION, DataError, Dataset, load_fashion, load_mnist
from compendium.experiments.problems.base import Problem, Source
from mlogb_core._validation import Array
from mlogb_core.environments import LabelledEnvironment

MNIST = Source("MNIST", load_mnist, "MNIST is not on this machine")
_SIDE = 28  # pixels
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


class PooledClasses(Problem):
    """`Classes` of small images: the pixels of a block are replaced by their mean.

    With blocks of 4 by 4 an image has 7 by 7 pixels, and Kd is 450 instead of 7,065, so that policies with a
    full matrix can play.
    """

    kind: Literal["pooled-classes"] = "pooled-classes"
    source: Literal["mnist", "fashion"] = "mnist"
    block: Literal[2, 4, 7, 14] = 4

    n_outcomes: ClassVar[int] = 9

    @property
    def n_features(self) -> int:
        """Dimension d of the actions: the pixels that are left, and the bias."""
        return (_SIDE // self.block) ** 2 + 1

    @property
    def data_source(self) -> Source[Dataset]:
        """The images."""
        return MNIST if self.source == "mnist" else FASHION

    def environment(self) -> LabelledEnvironment:
        """The library's environment, over the images that are found on this machine."""
        pixels = pooled(self.data_source, self.block)
        rewards = np.arange(1, 10) / 9
        return LabelledEnvironment(
            pixels, self.data_source.data.labels, outcomes=np.arange(10), rewards=rewards
        )


@lru_cache(maxsize=4)
def pooled(source: Source[Dataset], block: int) -> Array:
    """The images of a source with the mean over each block of pixels, which is computed once in a process.

    Parameters
    ----------
    source : Source
        Images of 28 by 28 pixels.
    block : int
        Side of a block, a divisor of 28.

    Returns
    -------
    (n, (28 / block)^2) array
    """
    side = _SIDE // block
    images = np.asarray(source.data.features).reshape(-1, side, block, side, block)
    return np.asarray(images.mean(axis=(2, 4)).reshape(len(images), side**2))


def forget_digits() -> None:
    """Let the digits be loaded again, after a change of the variable that says where they are."""
    vars(MNIST).pop("data", None)
    pooled.cache_clear()
