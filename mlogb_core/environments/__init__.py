"""Bandit problems: where actions, outcomes and rewards come from."""

from mlogb_core.environments.base import ActionSet, Environment, Instance
from mlogb_core.environments.labelled import NORMALISATIONS, LabelledEnvironment
from mlogb_core.environments.rated import RatedEnvironment
from mlogb_core.environments.synthetic import SyntheticEnvironment, SyntheticInstance

__all__ = [
    "NORMALISATIONS",
    "ActionSet",
    "Environment",
    "Instance",
    "LabelledEnvironment",
    "RatedEnvironment",
    "SyntheticEnvironment",
    "SyntheticInstance",
]
