"""Bandit problems as plain data, so that a trial can be described, hashed and rebuilt.

A problem is a small frozen model. It is a part of a trial's identity and of a run's record, is sent to worker
processes, and builds the library's environment by its method `environment`. To add a problem, add a file to
this folder and its class to `AnyProblem`; the `kind` distinguishes it from the others in a record.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from compendium.experiments.problems.base import Problem, Source
from compendium.experiments.problems.decaying import Decaying
from compendium.experiments.problems.fixed import Fixed
from compendium.experiments.problems.images import Classes, Digits, PooledClasses, forget_digits
from compendium.experiments.problems.rated import Rated
from compendium.experiments.problems.synthetic import Synthetic

#: Every problem that a setting can name.
AnyProblem = Annotated[
    Digits | Synthetic | Classes | Rated | Decaying | Fixed | PooledClasses, Field(discriminator="kind")
]

__all__ = [
    "AnyProblem",
    "Classes",
    "Decaying",
    "Digits",
    "Fixed",
    "PooledClasses",
    "Problem",
    "Rated",
    "Source",
    "Synthetic",
    "forget_digits",
]
