"""Bandit problems, which draw action sets and outcomes: synthetic ones, labelled data, and ratings."""

from mlogb_core.environments.base import ActionSet, Environment, Instance
from mlogb_core.environments.labelled import NORMALISATIONS, LabelledEnvironment
from mlogb_core.environments.rated import RatedEnvironment
from mlogb_core.environments.sparse import SparseEnvironment, SparseInstance
from mlogb_core.environments.synthetic import SyntheticEnvironment, SyntheticInstance

__all__ = [
    "NORMALISATIONS",
    "ActionSet",
    "Environment",
    "Instance",
    "LabelledEnvironment",
    "RatedEnvironment",
    "SparseEnvironment",
    "SparseInstance",
    "SyntheticEnvironment",
    "SyntheticInstance",
]
