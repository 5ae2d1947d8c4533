r"""The tournament: its problems, who plays, and the points of the grid from which each policy chooses.

Every policy chooses from the same number of points. The scale c is that of one width for all optimistic
policies, :math:`\sqrt\beta = c\sqrt\lambda\,S`, which is the `RidgeRadius` of :math:`c^2`. Its values are
common to all, so that tuned policies differ in their estimate and their matrix, and not in the constants of a
proof. What each theory asks for is played besides, at scale 1. Policies that draw their actions take the same
values as the scale of what they explore. A policy without a step size has a finer grid of the scale instead.
One of another package chooses among its own parameters.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from compendium.experiments.policies import POLICIES
from compendium.experiments.problems import (
    AnyProblem,
    Decaying,
    Digits,
    Fixed,
    PooledClasses,
    Rated,
    Synthetic,
)
from compendium.experiments.setting import Setting
from compendium.experiments.tuning import Candidate, Group
from mlogb_core.radius import theorem_parameters
from mlogb_core.simulation import trial_streams

#: By the name of each problem its title, for headings of tables and panels.
PROBLEMS: Mapping[str, str] = {
    "multinomial": "synthetic, K = 4",
    "binary": "synthetic, K = 1",
    "decaying": "decaying contexts, K = 4",
    "mnist": "MNIST, K = 1",
    "digits": "digits of 7 × 7 pixels, K = 9",
    "movielens": "MovieLens stars, K = 4",
    "fixed": "one action set for all rounds, K = 1",
}
#: The values that all grids are made of.
RIDGES, STEPS, SCALES = (0.1, 1.0, 10.0), (0.3, 1.0, 3.0), (0.1, 0.01, 0.001)
#: Learning rates of Vowpal Wabbit, around its default.
RATES = (0.1, 0.5, 2.5)
#: With which probability the confidence sets of policies that have a theory may fail.
CONFIDENCE = 0.05


class Option(NamedTuple):
    """A point of a policy's grid; None is what the policy's theory asks for, or what it does not have."""

    regularization: float | None = None
    step_size: float | None = None
    scale: float | None = None
    own: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        named = {"λ": self.regularization, "η": self.step_size, "scale": self.scale, **dict(self.own)}
        told = ", ".join(f"{name} = {value:g}" for name, value in named.items() if value is not None)
        return told or "no parameters"


class Entrant(NamedTuple):
    """A policy of the tournament.

    Attributes
    ----------
    policy : str
        Its name in `compendium.experiments.policies`.
    family : str
        "sketch" and "other" for the policies of this project, "paper" for those of other papers, "peer" for
        those of other packages, "control" for the others.
    grid : callable
        Returns the points from which it chooses.
    parameters : mapping
        Own parameters that are the same at every point.
    dense : float
        How slow its rounds are for the order of its matrix, which is Kd, and d for a peer: it plays where
        this factor times the order is at most `Tournament.largest_dense`. A policy with 0 plays at any size.
    """

    policy: str
    family: str
    grid: Callable[[], list[Option]]
    parameters: Mapping[str, Any] = {}
    dense: float = 0.0


def with_steps() -> list[Option]:
    """Nine points of a policy with a ridge, a step size and a scale."""
    pairs = ((1.0, SCALES[0]), (1.0, SCALES[1]), (3.0, SCALES[1]))
    return [Option(a, *pair) for a, pair in itertools.product(RIDGES, pairs)]


def without_steps() -> list[Option]:
    """Nine points of a policy with a ridge and a scale."""
    return [Option(a, None, scale) for a, scale in itertools.product(RIDGES, SCALES)]


def exploring() -> list[Option]:
    """Nine points of a policy that draws actions around the estimate of Newton steps."""
    return [Option(a, 1.0, scale) for a, scale in itertools.product(RIDGES, SCALES)]


def exploring_first() -> list[Option]:
    """Nine points of a policy that explores for the first rounds: their number, as a multiple of d."""
    firsts = (1.0, 0.25, 0.05)
    return [Option(1.0, 1.0, scale, (("exploration", c),)) for c, scale in itertools.product(firsts, SCALES)]


def without_scale() -> list[Option]:
    """Nine points of a policy with a ridge and a step size."""
    return [Option(*pair) for pair in itertools.product(RIDGES, STEPS)]


def own(**values: Sequence[float]) -> list[Option]:
    """The points of a policy of another package: all combinations of its own parameters."""
    pairs = itertools.product(*values.values())
    return [Option(own=tuple(zip(values, chosen, strict=True))) for chosen in pairs]


def growths() -> list[Option]:
    """Nine points of the growing ridge: its growth takes the place of the step size."""
    pairs = ((1.0, SCALES[0]), (1.0, SCALES[1]), (0.1, SCALES[1]))
    return [Option(a, 1.0, scale, (("growth", c),)) for a, (c, scale) in itertools.product(RIDGES, pairs)]


def budgets() -> list[Option]:
    """Nine points of the sketch with a budget, which takes the place of the step size."""
    pairs = ((10.0, SCALES[0]), (10.0, SCALES[1]), (1.0, SCALES[1]))
    return [Option(a, 1.0, scale, (("budget", c),)) for a, (c, scale) in itertools.product(RIDGES, pairs)]


def nothing() -> list[Option]:
    """The one point of a policy without parameters."""
    return [Option()]


COMPILED = {"compiled": True}
#: The policy that all others are compared with.
REFERENCE = "oful-compiled"
#: Who plays, in the order of the tables.
ENTRANTS: tuple[Entrant, ...] = (
    Entrant("oful-compiled", "other", with_steps),
    Entrant("eofd-compiled", "sketch", with_steps),
    Entrant("robust-eofd", "sketch", with_steps, COMPILED),
    Entrant("compensated-eofd", "sketch", with_steps, COMPILED),
    Entrant("budgeted-eofd", "sketch", budgets, COMPILED | {"compensate": True}),
    Entrant("thompson", "sketch", with_steps),
    Entrant("growing-ridge", "other", growths, COMPILED),
    Entrant("diagonal", "other", with_steps, COMPILED),
    Entrant("first-order", "control", with_steps),
    Entrant("greedy", "control", without_scale),
    Entrant("random", "control", nothing),
    Entrant("mnl-ucb", "paper", without_steps, dense=1.0),
    Entrant("mnl-ucb-2", "paper", without_steps, dense=1.0),
    Entrant("rs-mnl", "paper", without_steps, dense=1.0),
    Entrant("ol2m", "paper", without_steps),
    Entrant("ecolog", "paper", without_steps),
    Entrant("glb-omd", "paper", with_steps),
    Entrant("ofuglb", "paper", without_steps),
    Entrant("sgd-ts", "paper", exploring_first),
    Entrant("boudart", "paper", without_steps),
    Entrant("soful", "paper", without_steps),
    Entrant("cbscfd", "paper", without_steps),
    Entrant("epsilon-greedy", "paper", exploring),
    Entrant("squarecb", "paper", exploring),
    Entrant("vw-squarecb", "peer", partial(own, exploration=(1.0, 10.0, 100.0), learning_rate=RATES)),
    Entrant("vw-regcb", "peer", partial(own, exploration=(0.001, 0.01, 0.1), learning_rate=RATES)),
    Entrant("vw-cover", "peer", partial(own, exploration=(0.01, 0.1, 1.0), learning_rate=RATES)),
    Entrant(
        "bayesianbandits",
        "peer",
        dense=1.0,
        grid=partial(own, prior_precision=RIDGES, noise_precision=(1.0, 10.0, 100.0)),
    ),
    Entrant(
        "mabwiser-linucb",
        "peer",
        dense=2.5,
        grid=partial(own, regularization=RIDGES, exploration=(1.0, 0.1, 0.01)),
    ),
)


def problem_of(name: str, size: int, norm: float) -> AnyProblem:
    """A problem of the tournament.

    Parameters
    ----------
    name : str
        One of `PROBLEMS`.
    size : int
        Kd of the synthetic problems.
    norm : float
        Norm of the parameter of the synthetic problems.
    """
    stars = (0.25, 0.5, 0.75, 1.0)
    made: Mapping[str, Callable[[], AnyProblem]] = {
        "multinomial": lambda: Synthetic(dimension=max(size // 4, 1), rewards=stars, parameter_norm=norm),
        "binary": lambda: Synthetic(dimension=size, rewards=(1.0,), parameter_norm=norm),
        "decaying": lambda: Decaying(
            dimension=max(size // 4, 1), rewards=stars, parameter_norm=norm, decay=2.0
        ),
        "mnist": Digits,
        "digits": PooledClasses,
        "movielens": lambda: Rated(source="movielens"),
        "fixed": lambda: Fixed(dimension=10, rewards=(1.0,), parameter_norm=norm),
    }
    if name not in made:
        raise ValueError(f"problem must be one of {tuple(made)}, got {name!r}")
    return made[name]()


class Tournament(NamedTuple):
    """What all settings of a problem have in common.

    Attributes
    ----------
    name : str
        One of `PROBLEMS`.
    problem : Problem
        What is played.
    n_rounds : int
        T, for policies that ask for a horizon.
    norm_bound : float
        S.
    sketch_size : int
        m of every sketch.
    largest_dense : int
        The largest product of `Entrant.dense` and the order of the matrix at which a policy plays.
    """

    name: str
    problem: AnyProblem
    n_rounds: int
    norm_bound: float
    sketch_size: int
    largest_dense: int

    def absent(self, entrant: Entrant) -> str | None:
        """Why a policy does not play this problem; None if it plays."""
        K, d = self.problem.n_outcomes, self.problem.n_features
        name, order = ("d", d) if entrant.family == "peer" else ("Kd", K * d)
        if entrant.dense * order > self.largest_dense:
            return f"{name} = {order:,}: a game takes too long"
        if entrant.policy not in POLICIES:
            return "not in the registry of policies"
        if POLICIES[entrant.policy].binary and self.problem.n_outcomes > 1:
            return "for K = 1 only"
        if POLICIES[entrant.policy].fixed_actions and not isinstance(self.problem, Fixed):
            return "for one action set in all rounds only"
        try:
            setting = self.setting(entrant, entrant.grid()[0], "probe")
            setting.policy(entrant.policy, self.problem.environment(), trial_streams(0, "probe", 0).policy)
        except (ImportError, ValueError) as error:
            return " ".join(str(error).split())
        return None

    def setting(self, entrant: Entrant, option: Option, ending: str) -> Setting:
        r"""An entrant at a point of its grid; if it is optimistic, :math:`\sqrt\beta = c\sqrt\lambda\,S`."""
        given = {**entrant.parameters, **dict(option.own)} | self._known(entrant, option)
        width = 1.0 if option.scale is None else option.scale
        return self._made(entrant, option, given, {"kind": "ridge", "scale": width**2}, ending)

    def theory(self, entrant: Entrant) -> Setting | None:
        r"""An entrant with the width of its own theory, at scale 1; None for one without a theory.

        A policy of this project has the `LogDetRadius`, the step size of `theorem_parameters` and
        :math:`\lambda = 1`, since that radius has no condition on :math:`\lambda`. One of another paper has
        the radius and the parameters that it takes where none are given.
        """
        if entrant.family in ("control", "peer") or all(one.scale is None for one in entrant.grid()):
            return None
        K, d = self.problem.n_outcomes, self.problem.n_features
        option = Option(None, None, 1.0)
        radius: dict[str, Any] | None = None
        if entrant.family != "paper":
            option = Option(1.0, theorem_parameters(K, d, self.norm_bound)[1], 1.0)
            radius = {"kind": "log-det", "confidence": CONFIDENCE}
        given = {**entrant.parameters} | self._known(entrant, option)
        return self._made(entrant, option, given, radius, ", theory")

    def candidates(self, entrant: Entrant, count: int) -> list[Candidate]:
        """Settings of `count` points of an entrant's grid, evenly spread over it; all if it has no more."""
        options = entrant.grid()
        places = np.unique(np.linspace(0, len(options) - 1, min(count, len(options))).round().astype(int))
        made = []
        for option in (options[place] for place in places):
            setting = self.setting(entrant, option, ", tuning")
            group = Group(entrant.policy, (entrant.policy,), self.sketch_size, setting.parameters)
            made.append(Candidate(group, option, setting))
        return made

    def _known(self, entrant: Entrant, option: Option) -> dict[str, Any]:
        """What a policy's own parameters take of the option and of the problem."""
        entry = POLICIES[entrant.policy]
        fields = entry.parameters.model_fields.keys() - ({"scale"} if "radius" in entry.takes else set())
        given = {
            "scale": option.scale, "confidence": CONFIDENCE, "horizon": self.n_rounds,
            "regularization": option.regularization, "step_size": option.step_size,
            "largest_size": self.sketch_size,
        }  # fmt: skip
        return {name: value for name, value in given.items() if name in fields and value is not None}

    def _made(
        self,
        entrant: Entrant,
        option: Option,
        given: dict[str, Any],
        radius: dict[str, Any] | None,
        ending: str,
    ) -> Setting:
        return Setting(
            name=f"{self.name}, {entrant.policy}, {option}{ending}",
            problem=self.problem,
            sketch_size=self.sketch_size,
            regularization=option.regularization or 1.0,
            step_size=option.step_size or 1.0,
            norm_bound=self.norm_bound,
            radius=radius,
            policies=(entrant.policy,),
            parameters={entrant.policy: given} if given else {},
            guarded=True,
        )


def charged(final_regret: pd.DataFrame, failures: pd.DataFrame, regret: float) -> pd.DataFrame:
    """Final regret in which a game that failed has a given one: infinite for tuning, NaN for the report.

    Parameters
    ----------
    final_regret, failures : DataFrame
        `Results.final_regret` and `Results.failures`.
    regret : float
        The regret of a failed game.
    """
    failed = set(failures[["setting", "trial"]].itertuples(index=False, name=None))
    table = final_regret.astype({"setting": str, "policy": str})
    lost = [pair in failed for pair in table[["setting", "trial"]].itertuples(index=False, name=None)]
    return table.assign(regret=table["regret"].mask(np.array(lost, dtype=bool), regret))
