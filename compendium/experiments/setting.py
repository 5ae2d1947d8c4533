"""A setting: a bandit problem, the policies that play it, and their parameters.

A study compares several settings. All policies of a setting share its parameters, so that they can be
compared; beside these a policy may have parameters of its own. A setting is plain data, is validated when it
is made, and builds the library's policies from the registry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

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
    model_validator,
)

from compendium.experiments.failures import Guarded
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
    radius : dict or None
        The rule for beta of all optimistic policies, in the form that `mlogb_core.radius.radius_from` reads.
        None stands for each policy's own theory; only policies of other papers have one.
    policies : tuple of str
        The policies that play, by their names in `compendium.experiments.policies`; by default the five of
        `COMPARISON`.
    parameters : dict of dict, optional
        Parameters of single policies, by their names: ``{"eofd": {"buffer": 3}}``.
    coverage : bool
        Whether a trial records in every round how far the truth is from the estimate of each optimistic
        policy (see `compendium.experiments.region`), which needs a synthetic problem. By default it does not.
    guarded : bool
        Whether a policy that raises an error in a game is recorded as failed, instead of ending the trial.
    """

    # A setting is validated again wherever another model takes it, because variants of a setting are made by
    # `model_copy(update=...)`, which validates nothing.
    model_config = ConfigDict(frozen=True, extra="forbid", revalidate_instances="always")

    name: str
    problem: AnyProblem
    sketch_size: PositiveInt
    regularization: PositiveFloat
    step_size: PositiveFloat
    norm_bound: PositiveFloat
    radius: dict[str, Any] | None
    policies: tuple[str, ...] = COMPARISON
    parameters: dict[str, dict[str, Any]] = {}
    coverage: bool = False
    guarded: bool = False

    @field_validator("radius")
    @classmethod
    def _known_radius(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if value is None else radius_from(value).describe()

    @field_validator("policies")
    @classmethod
    def _known_policies(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        unknown = set(value) - set(POLICIES)
        if unknown or len(set(value)) != len(value) or not value:
            raise ValueError(f"policies must be distinct names out of {tuple(POLICIES)}, got {value}")
        problem = info.data.get("problem")  # None if it was refused, and pydantic reports that error
        binary = [name for name in value if POLICIES[name].binary]
        if binary and problem is not None and problem.n_outcomes != 1:
            raise ValueError(
                f"policies {binary} play problems with two outcomes (K = 1) alone, "
                f"got K = {problem.n_outcomes}"
            )
        return value

    @field_validator("parameters")
    @classmethod
    def _known_parameters(
        cls, value: dict[str, dict[str, Any]], info: ValidationInfo
    ) -> dict[str, dict[str, Any]]:
        """Validate the own parameters, and drop those that have their defaults.

        A setting that writes a default out then describes the same trial as one that does not.
        """
        playing = info.data.get("policies")
        if playing is None:  # `policies` was refused, and pydantic reports that error
            return value
        for name in value:
            if name not in playing:
                raise ValueError(f"parameters must be those of policies that play, {playing}, got {name!r}")
        own = {name: own_parameters(name, given) for name, given in value.items()}
        return {name: changed for name, changed in own.items() if changed}

    @model_validator(mode="after")
    def _radius_is_known(self) -> Self:
        missing = [name for name in self.policies if POLICIES[name].needs_radius]
        if self.radius is None and missing:
            raise ValueError(
                f"radius must be given for {missing}, which have no theory of their own, got None"
            )
        scaled = [name for name, own in self.parameters.items() if "scale" in own and _takes_radius(name)]
        if self.radius is not None and scaled:
            raise ValueError(
                f"parameters of {scaled} must have no scale beside a radius, which has one itself; a "
                "radius of None is the policy's own theory"
            )
        return self

    @model_validator(mode="after")
    def _truth_is_known(self) -> Self:
        if self.coverage and self.problem.kind != "synthetic":
            raise ValueError(f"coverage must be false unless the problem is synthetic, got {self.problem!r}")
        return self

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave `parameters` out where it is empty, and `coverage` and `guarded` where they are false.

        Such a setting has the description, and its trials have the addresses, that they had before settings
        had these fields.
        """
        described: dict[str, Any] = handler(self)
        for name in ("parameters", "coverage", "guarded"):
            if not described.get(name):
                described.pop(name, None)
        return described

    def policy(
        self, name: str, environment: Environment, stream: Callable[[str], np.random.Generator]
    ) -> Policy:
        """Build a policy with the parameters of this setting; it need not be one of `policies`.

        Parameters
        ----------
        name : str
            Its name in `compendium.experiments.policies`.
        environment : Environment
            It gives d and the rewards.
        stream : callable
            Returns the random stream of a policy's name, as `Streams.policy` does.
        """
        entry = POLICIES[name]
        given = {
            "sketch_size": self.sketch_size,
            "regularization": self.regularization,
            "step_size": self.step_size,
            "norm_bound": self.norm_bound,
            "radius": None if self.radius is None else radius_from(self.radius),
            "rng": stream(name),
        }
        arguments = {argument: given[argument] for argument in entry.takes}
        built = entry.constructor(environment.n_features, environment.rewards, **arguments, **self._own(name))
        return Guarded(built) if self.guarded else built

    def build(
        self, environment: Environment, stream: Callable[[str], np.random.Generator]
    ) -> dict[str, Policy]:
        """Build all policies of the setting, by name; the parameters are those of `policy`."""
        return {name: self.policy(name, environment, stream) for name in self.policies}

    @property
    def matrix_bytes(self) -> int:
        """Memory of the matrices that the policies work on, as their registry entries count it."""
        size = self.problem.n_outcomes, self.problem.n_features, self.sketch_size
        return 8 * sum(POLICIES[name].memory(*size, **self._own(name)) for name in self.policies)

    def _own(self, name: str) -> dict[str, Any]:
        """All own parameters of a policy, including those that have the defaults of its registry entry."""
        return POLICIES[name].parameters(**self.parameters.get(name, {})).model_dump()


def _takes_radius(name: str) -> bool:
    return "radius" in POLICIES[name].takes
