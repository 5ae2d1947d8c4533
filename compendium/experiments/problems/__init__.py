"""Bandit problems by name and numbers, so that a trial can be described, hashed and rebuilt.

A problem is a small frozen model: it goes into a trial's identity, into a run's record and through
a pipe to a worker, and `environment` builds the library's object from it. A new one is a file in this
folder and its class in `AnyProblem`; its `kind` tells it from the others in a record.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from compendium.experiments.problems.base import Problem, Source
from compendium.experiments.problems.decaying import Decaying
from compendium.experiments.problems.images import Classes, Digits, forget_digits
from compendium.experiments.problems.rated import Rated
from compendium.experiments.problems.synthetic import Synthetic

#: Every problem that a setting can name.
AnyProblem = Annotated[Digits | Synthetic | Classes | Rated | Decaying, Field(discriminator="kind")]

__all__ = [
    "AnyProblem",
    "Classes",
    "Decaying",
    "Digits",
    "Problem",
    "Rated",
    "Source",
    "Synthetic",
    "forget_digits",
]
