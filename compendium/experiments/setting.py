"""A setting: a bandit problem, who plays it, and with which parameters.

Settings are what a study varies. All policies of a setting share its parameters, so that they can be
compared; a policy may have others for itself. A setting is plain data, checked when it is made, and
builds the library's policies from the registry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    PositiveFloat,
    PositiveInt,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
)

from compendium.experiments.policies import COMPARISON, POLICIES, own_parameters
from compendium.experiments.problems import AnyProblem
from mlogb_core.environments import Environment
from mlogb_core.policies import Policy
from mlogb_core.radius import radius_from


class Setting(BaseModel):
    """A problem and the parameters of the policies that play it.

    Parameters
    ----------
    name : str
        What the setting is called in tables and figures.
    problem : Problem
        The bandit problem, one of those in `compendium.experiments.problems`.
    sketch_size : int
        m of the policies with a sketch.
    regularization, step_size, norm_bound : float
        Lambda, eta and S.
    radius : dict
        The rule for beta, as `mlogb_core.radius.radius_from` reads it.
    policies : tuple of str
        Which policies play, by their names in `compendium.experiments.policies`; the five of the comparison
        by default.
    parameters : dict of dict, optional
        What a policy has for itself, by its name: ``{"eofd": {"buffer": 3}}``.
    """

    # Validated again where it is used: `model_copy(update=...)`, how variants are made, checks nothing.
    model_config = ConfigDict(frozen=True, extra="forbid", revalidate_instances="always")

    name: str
    problem: AnyProblem
    sketch_size: PositiveInt
    regularization: PositiveFloat
    step_size: PositiveFloat
    norm_bound: PositiveFloat
    radius: dict[str, Any]
    policies: tuple[str, ...] = COMPARISON
    parameters: dict[str, dict[str, Any]] = {}

    @field_validator("radius")
    @classmethod
    def _known_radius(cls, value: dict[str, Any]) -> dict[str, Any]:
        return radius_from(value).describe()

    @field_validator("policies")
    @classmethod
    def _known_policies(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = set(value) - set(POLICIES)
        if unknown or len(set(value)) != len(value) or not value:
            raise ValueError(f"policies must be distinct names out of {tuple(POLICIES)}, got {value}")
        return value

    @field_validator("parameters")
    @classmethod
    def _known_parameters(
        cls, value: dict[str, dict[str, Any]], info: ValidationInfo
    ) -> dict[str, dict[str, Any]]:
        """Checked, and without defaults: who writes a default out asks for the same trial."""
        playing = info.data.get("policies")
        if playing is None:  # they were refused, which is said already
            return value
        for name in value:
            if name not in playing:
                raise ValueError(f"parameters must be those of policies that play, {playing}, got {name!r}")
        own = {name: own_parameters(name, given) for name, given in value.items()}
        return {name: changed for name, changed in own.items() if changed}

    @model_serializer(mode="wrap")
    def _without_empty_parameters(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A setting without such parameters is described, and addressed, as before there were any."""
        described: dict[str, Any] = handler(self)
        if not described.get("parameters"):
            described.pop("parameters", None)
        return described

    def policy(
        self, name: str, environment: Environment, stream: Callable[[str], np.random.Generator]
    ) -> Policy:
        """A fresh policy with these parameters, whether it is one of `policies` or not.

        Parameters
        ----------
        name : str
            Its name in `compendium.experiments.policies`.
        environment : Environment
            Gives d and the rewards.
        stream : callable
            Gives a policy that randomises the stream of its name, as `Streams.policy` does.
        """
        entry = POLICIES[name]
        given = {
            "sketch_size": self.sketch_size,
            "regularization": self.regularization,
            "step_size": self.step_size,
            "norm_bound": self.norm_bound,
            "radius": radius_from(self.radius),
            "rng": stream(name),
        }
        arguments = {argument: given[argument] for argument in entry.takes}
        return entry.constructor(environment.n_features, environment.rewards, **arguments, **self._own(name))

    def build(
        self, environment: Environment, stream: Callable[[str], np.random.Generator]
    ) -> dict[str, Policy]:
        """Fresh policies by name, all those of the setting; parameters as in `policy`."""
        return {name: self.policy(name, environment, stream) for name in self.policies}

    @property
    def matrix_bytes(self) -> int:
        """Memory of the matrices that the policies work on, as their entries count it."""
        size = self.problem.n_outcomes, self.problem.n_features, self.sketch_size
        return 8 * sum(POLICIES[name].memory(*size, **self._own(name)) for name in self.policies)

    def _own(self, name: str) -> dict[str, Any]:
        """All of a policy's own parameters, with the defaults that its entry gives."""
        return POLICIES[name].parameters(**self.parameters.get(name, {})).model_dump()
