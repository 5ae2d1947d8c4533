"""The registry of policies: the entry of a name says all that the experiments know about the policy.

A setting builds its policies from the entries, figures take labels and line styles from them, and the
memory of a trial is the sum of theirs. Every part of an entry but its own parameters is required, so an
incomplete entry stops the import of this module, and a name without an entry is an error wherever it is
used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError

from compendium.experiments.peers import BayesianBandits, MABWiserLinUCB, VowpalWabbit
from mlogb_core.policies import (
    Policy,
    RandomPolicy,
    budgeted_eofd,
    compensated_eofd,
    diagonal,
    doubling_eofd,
    dyadic_eofd,
    eofd,
    first_order,
    growing_ridge,
    oful,
    robust_eofd,
    thompson,
)
from mlogb_core.printed import CholeskyOFUL, PrintedEOFD, PrintedOFUL
from mlogb_core.radius import ConstantRadius
from mlogb_core.rivals import (
    CBSCFD,
    GLBOMD,
    MNLUCB,
    MNLUCB2,
    OFUGLB,
    OL2M,
    RSMNL,
    SGDTS,
    SOFUL,
    Boudart,
    ECOLog,
    EpsilonGreedy,
    SquareCB,
)

#: Arguments that a setting gives to a constructor: those of every Newton step, those of an optimistic policy,
#: and those of an optimistic policy with a sketch.
STEP = ("regularization", "step_size", "norm_bound")
OPTIMISTIC = (*STEP, "radius")
SKETCHED = ("sketch_size", *OPTIMISTIC)
#: Those of an optimistic policy of another paper, which has a theory of its own for everything else.
RIVAL = ("norm_bound", "radius")


class Style(NamedTuple):
    """How a policy is drawn: its label, colour (Okabe and Ito), dash pattern and marker."""

    label: str
    colour: str
    dashes: tuple[float, ...]
    marker: str


class Parameters(BaseModel):
    """The own parameters of a policy, beside those that a setting gives to all policies. Here none."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Buffered(Parameters):
    """Own parameters of a sketch: `buffer` rounds lie between two shrinks; 1 is the paper's algorithm."""

    buffer: PositiveInt = 1


class Sketched(Buffered):
    """`buffer`, and whether the form is `compiled`, which plays the same."""

    compiled: bool = False


class Compensated(Sketched):
    """`share` of what a shrink subtracts that goes to the ridge."""

    share: float = Field(default=1.0, ge=0.0, le=1.0)


class Budgeted(Parameters):
    """`budget` of what a sketch may lose, in units of lambda, and the `horizon` over which it is spent.

    A setting does not know the number of rounds, so give `horizon` that number. With `open_ended` it is only
    a guess. `largest_size` is a cap on m, at which `compensate` sends what is beyond the budget to the ridge.
    """

    budget: PositiveFloat = 1.0
    horizon: PositiveInt = 1000
    open_ended: bool = False
    largest_size: PositiveInt | None = None
    compensate: bool = False
    compiled: bool = False


class Compilable(Parameters):
    """Whether the form is `compiled`, which plays the same."""

    compiled: bool = False


class Doubling(Compilable):
    """`budget` of what a phase of a sketch may lose, in units of lambda; `falling` from phase to phase."""

    budget: PositiveFloat = 1.0
    falling: bool = False


class Dyadic(Compilable):
    """`budget` of what all blocks of a sketch may lose together, in units of lambda."""

    budget: PositiveFloat = 1.0


class Growing(Parameters):
    """`growth` c of the ridge, as a multiple of the trace of the Hessians."""

    growth: PositiveFloat = 1.0
    compiled: bool = False


class Scaled(Parameters):
    """`scale` of how much a policy explores; 1 is its theory."""

    scale: float = Field(default=1.0, ge=0.0, allow_inf_nan=False)


class Confident(Scaled):
    """`scale` and `confidence` of the theory's width, and `regularization`, the theory's if not given.

    A policy of another paper has a theory of its own, and does not take the regularization of the setting. It
    takes the setting's radius, which has a scale itself; `scale` is for a setting without one.
    """

    confidence: float = Field(default=0.05, gt=0.0, lt=1.0)
    regularization: PositiveFloat | None = None


class Stepping(Confident):
    """Those of `Confident`, and the `step_size`."""

    step_size: PositiveFloat | None = None


class Refitted(Confident):
    """Those of `Confident`, and by which factor the number of rounds grows between refits; 1 is no wait."""

    refit_growth: float = Field(default=1.1, ge=1.0, allow_inf_nan=False)


class Planned(Refitted):
    """Those of `Refitted`, and the `horizon`, the number of rounds; a setting does not know it."""

    horizon: int = Field(default=1000, ge=2)


class RarelyRefitted(Planned):
    """Those of `Planned`; here `refit_growth` is that of the determinant of the Hessian."""

    refit_growth: float = Field(default=2.0, ge=1.0, allow_inf_nan=False)


class Exploring(Confident):
    """Those of `Confident`, and the number of rounds of `exploration`; by default the theory ends it."""

    exploration: int | None = Field(default=None, ge=0)


class Wabbit(Parameters):
    """How much an explorer of Vowpal Wabbit explores, in its own units, and its `learning_rate`."""

    exploration: PositiveFloat
    learning_rate: PositiveFloat = 0.5


class SquareCBWabbit(Wabbit):
    """Those of `Wabbit`; `exploration` is the factor of gamma, and a large one explores less."""

    exploration: PositiveFloat = 10.0


class RegCBWabbit(Wabbit):
    """Those of `Wabbit`; `exploration` is the mellowness."""

    exploration: PositiveFloat = 0.1


class CoverWabbit(Wabbit):
    """Those of `Wabbit`; `exploration` is psi, which rewards policies that differ."""

    exploration: PositiveFloat = 1.0


class LinearThompson(Parameters):
    """The precisions of the prior of the weights and of the noise; a small one of the noise explores more."""

    prior_precision: PositiveFloat = 1.0
    noise_precision: PositiveFloat = 4.0


class LinearUCB(Parameters):
    """The factor of the width, `exploration`, and the ridge, `regularization`."""

    exploration: float = Field(default=1.0, ge=0.0, allow_inf_nan=False)
    regularization: PositiveFloat = 1.0


class Batched(Scaled):
    """`scale` of the draws, `exploration` (the first batch in units of d), ridge and step size."""

    exploration: PositiveFloat = 1.0
    regularization: PositiveFloat | None = None
    step_size: PositiveFloat | None = None


@dataclass(frozen=True)
class Entry:
    """What the experiments know about a policy.

    Attributes
    ----------
    constructor : callable
        It is called with d and the rewards, and by name with the arguments in `takes` and the own parameters.
    takes : tuple of str
        Which of a setting's `sketch_size`, `regularization`, `step_size`, `norm_bound` and `radius` the
        constructor takes, and `rng` for the random stream of the policy's name.
    style : Style
        How it is drawn.
    memory : callable
        Returns how many floating-point numbers its matrices have; called with K, d, m and, by name, the own
        parameters. If the rank grows with the stream, it is the largest number that any stream can lead to.
    parameters : type of Parameters
        Its own parameters, with types, ranges and defaults.
    binary : bool
        Whether it plays problems with two outcomes (K = 1) alone.
    fixed_actions : bool
        Whether it plays problems alone in which the set of actions is the same in every round.
    package : str or None
        The package that it needs, one of the extra `peers`; the constructor says so where it is missing.
    """

    constructor: Callable[..., Policy]
    takes: tuple[str, ...]
    style: Style
    memory: Callable[..., int]
    parameters: type[Parameters] = Parameters
    binary: bool = False
    fixed_actions: bool = False
    package: str | None = None

    @property
    def needs_radius(self) -> bool:
        """Whether its width is that of the setting's radius, and it has no theory of its own beside it."""
        return "radius" in self.takes and not issubclass(self.parameters, Confident)


def _no_matrix(K: int, d: int, m: int) -> int:
    """No numbers are counted: nothing that the policy holds is larger than its parameter."""
    return 0


def _sketch(K: int, d: int, m: int, buffer: int = 1) -> int:
    """Count the rows that a sketch has before it shrinks, and the images of an action under its inverse."""
    return K * d * (m + (buffer + 1) * K)


def _returning_sketch(K: int, d: int, m: int, buffer: int = 1, **_: Any) -> int:
    """Those of a sketch."""
    return _sketch(K, d, m, buffer)


def _growing_sketch(K: int, d: int, m: int, largest_size: int | None = None, **_: Any) -> int:
    """Those of a sketch of the largest size that m can reach, twice, as the rows move when it grows."""
    return 2 * _sketch(K, d, K * d if largest_size is None else min(largest_size, K * d))


def _diagonal(K: int, d: int, m: int, **_: Any) -> int:
    return K * d


def _ridge(K: int, d: int, m: int, **_: Any) -> int:
    """None: it is one number."""
    return 0


def _full_matrix(K: int, d: int, m: int, matrices: int = 1) -> int:
    return matrices * (K * d) ** 2


def _hessian(K: int, d: int, m: int, **_: Any) -> int:
    """Those of the full matrix."""
    return _full_matrix(K, d, m)


def _hessian_and_factor(K: int, d: int, m: int, **_: Any) -> int:
    """Count the inverse Hessian, and the Hessian and its factor at a refit; not the d numbers of a round."""
    return _full_matrix(K, d, m, matrices=3)


def _design_and_hessian(K: int, d: int, m: int, **_: Any) -> int:
    """Count the inverse of the matrix of the actions, and the Hessian; not the d numbers of a round."""
    return d**2 + _full_matrix(K, d, m)


def _weights_of_wabbit(K: int, d: int, m: int, **_: Any) -> int:
    """Count the table of Vowpal Wabbit: four single-precision numbers for each of 2**18 weights."""
    return 2 * 2**18


def _precision(K: int, d: int, m: int, **_: Any) -> int:
    """Count the matrix of a linear model of the reward, and its inverse or factor."""
    return 2 * d**2


def _linear_sketch(K: int, d: int, m: int, **_: Any) -> int:
    """Those of a sketch for one outcome, whatever K is."""
    return _sketch(1, d, m)


def _first_batch(K: int, d: int, m: int, exploration: float = 1.0, **_: Any) -> int:
    """Count the actions of the first batch."""
    return max(1, int(exploration * d)) * d


def _printed_sketch(K: int, d: int, m: int) -> int:
    """Count the sketch, and input and output of its singular value decomposition."""
    return 3 * _sketch(K, d, m)


#: Count the Hessian, its factor or inverse root, and input and output of a factorisation.
_factored_matrix = partial(_full_matrix, matrices=4)


def _random(n_features: int, rewards: ArrayLike, *, rng: np.random.Generator) -> RandomPolicy:
    return RandomPolicy(rng)


POLICIES: dict[str, Entry] = {
    "eofd": Entry(
        eofd, SKETCHED, Style("EOFD-MLogB", "#D55E00", (), "o"), _returning_sketch, Sketched,
    ),
    "oful": Entry(
        oful, OPTIMISTIC, Style("OFUL-MLogB", "#0072B2", (6, 2), "s"), _hessian, Compilable,
    ),
    "first-order": Entry(
        first_order, OPTIMISTIC, Style("no curvature", "#009E73", (1, 1.2), "^"), _ridge, Compilable,
    ),
    "greedy": Entry(
        partial(eofd, radius=ConstantRadius(0.0)), ("sketch_size", *STEP),
        Style("greedy (β = 0)", "#CC79A7", (4, 1.5, 1, 1.5), "D"), _returning_sketch, Sketched,
    ),
    "random": Entry(_random, ("rng",), Style("random play", "#555555", (2, 3), "x"), _no_matrix),
    "eofd-compiled": Entry(
        partial(eofd, compiled=True), SKETCHED,
        Style("EOFD-MLogB, compiled", "#8C2D04", (3, 1.2), "v"), _sketch, Buffered,
    ),
    "oful-compiled": Entry(
        partial(oful, compiled=True), OPTIMISTIC,
        Style("OFUL-MLogB, compiled", "#08306B", (8, 2, 2, 2), "p"), _full_matrix,
    ),
    "eofd-printed": Entry(
        PrintedEOFD, SKETCHED, Style("EOFD, as printed", "#E69F00", (9, 1.5), "P"), _printed_sketch,
    ),
    "oful-cholesky": Entry(
        CholeskyOFUL, OPTIMISTIC, Style("OFUL, Cholesky", "#6A3D9A", (5, 1, 1, 1), "*"), _factored_matrix,
    ),
    "oful-printed": Entry(
        PrintedOFUL, OPTIMISTIC,
        Style("OFUL, as printed", "#56B4E9", (6, 1.5, 1, 1.5, 1, 1.5), "X"), _factored_matrix,
    ),
    "robust-eofd": Entry(
        robust_eofd, SKETCHED,
        Style("robust EOFD", "#000000", (10, 2, 3, 2), "<"), _returning_sketch, Sketched,
    ),
    "thompson": Entry(
        thompson, (*SKETCHED, "rng"),
        Style("Thompson, sketched", "#7F7F00", (3, 1, 3, 4), ">"), _sketch, Buffered,
    ),
    "compensated-eofd": Entry(
        compensated_eofd, SKETCHED,
        Style("compensated EOFD", "#117733", (7, 2, 2, 2, 2, 2), "d"), _returning_sketch, Compensated,
    ),
    "budgeted-eofd": Entry(
        budgeted_eofd, SKETCHED,
        Style("budgeted EOFD", "#882255", (12, 2), "H"), _growing_sketch, Budgeted,
    ),
    "doubling-eofd": Entry(
        doubling_eofd, SKETCHED,
        Style("doubling EOFD", "#AA4499", (12, 2, 1, 2), "8"), _growing_sketch, Doubling,
    ),
    "dyadic-eofd": Entry(
        dyadic_eofd, SKETCHED,
        Style("dyadic EOFD", "#CC6677", (6, 3, 1, 3), "."), _growing_sketch, Dyadic,
    ),
    "growing-ridge": Entry(
        growing_ridge, OPTIMISTIC, Style("growing ridge", "#44AA99", (2, 1), "+"), _ridge, Growing,
    ),
    "diagonal": Entry(
        diagonal, OPTIMISTIC, Style("diagonal", "#332288", (4, 2, 4, 1), "|"), _diagonal, Compilable,
    ),
    "ol2m": Entry(
        OL2M, RIVAL,
        Style("OL2M", "#4477AA", (9, 2, 1, 2), "$O$"), _hessian, Confident, binary=True,
    ),
    "ecolog": Entry(
        ECOLog, RIVAL,
        Style("ECOLog", "#EE6677", (5, 3, 5, 1), "$E$"), _hessian, Confident, binary=True,
    ),
    "glb-omd": Entry(
        GLBOMD, RIVAL,
        Style("GLB-OMD", "#228833", (11, 1, 3, 1), "$G$"), _hessian, Stepping, binary=True,
    ),
    "sgd-ts": Entry(
        SGDTS, ("rng",), Style("SGD-TS", "#B8860B", (1, 2.5), "$T$"), _first_batch, Batched, binary=True,
    ),
    "soful": Entry(
        SOFUL, ("sketch_size", *RIVAL),
        Style("SOFUL (linear)", "#AA3377", (7, 1, 2, 1, 2, 1), "$S$"), _linear_sketch, Confident,
    ),
    "cbscfd": Entry(
        CBSCFD, ("sketch_size", *RIVAL),
        Style("CBSCFD (linear)", "#661100", (7, 3, 2, 3), "$C$"), _linear_sketch, Confident,
    ),
    "epsilon-greedy": Entry(
        EpsilonGreedy, ("sketch_size", *STEP, "rng"),
        Style("ε-greedy, sketched", "#6699CC", (2, 4), r"$\epsilon$"), _returning_sketch, Scaled,
    ),
    "squarecb": Entry(
        SquareCB, ("sketch_size", *STEP, "rng"),
        Style("SquareCB, sketched", "#EE7733", (4, 4), "$Q$"), _returning_sketch, Scaled,
    ),
    "mnl-ucb": Entry(
        MNLUCB, RIVAL, Style("MNL-UCB", "#1B9E77", (8, 1), "$M$"), _design_and_hessian, Planned,
    ),
    "mnl-ucb-2": Entry(
        MNLUCB2, RIVAL,
        Style("MNL-UCB, 2nd order", "#7570B3", (8, 1, 1, 1), "$N$"), _hessian_and_factor, Refitted,
    ),
    "rs-mnl": Entry(
        RSMNL, RIVAL,
        Style("RS-MNL", "#E7298A", (8, 1, 1, 1, 1, 1), "$R$"), _hessian_and_factor, RarelyRefitted,
    ),
    "ofuglb": Entry(
        OFUGLB, RIVAL,
        Style("OFUGLB-e", "#66A61E", (3, 2), "$F$"), _hessian_and_factor, Refitted, binary=True,
    ),
    "boudart": Entry(
        Boudart, RIVAL,
        Style("Boudart et al.", "#A6761D", (3, 2, 1, 2), "$B$"), _design_and_hessian, Exploring,
        fixed_actions=True,
    ),
    "vw-squarecb": Entry(
        partial(VowpalWabbit, explorer="squarecb"), ("rng",),
        Style("VW SquareCB", "#800000", (1, 3, 4, 3), "$V$"), _weights_of_wabbit, SquareCBWabbit,
        package="vowpalwabbit",
    ),
    "vw-regcb": Entry(
        partial(VowpalWabbit, explorer="regcb"), ("rng",),
        Style("VW RegCB", "#9A6324", (1, 3, 1, 1), "$W$"), _weights_of_wabbit, RegCBWabbit,
        package="vowpalwabbit",
    ),
    "vw-cover": Entry(
        partial(VowpalWabbit, explorer="cover"), ("rng",),
        Style("VW cover", "#469990", (1, 3, 7, 3), "$X$"), _weights_of_wabbit, CoverWabbit,
        package="vowpalwabbit",
    ),
    "bayesianbandits": Entry(
        BayesianBandits, ("rng",),
        Style("bayesianbandits TS", "#000075", (5, 4), "$Y$"), _precision, LinearThompson,
        package="bayesianbandits",
    ),
    "mabwiser-linucb": Entry(
        MABWiserLinUCB, (),
        Style("MABWiser LinUCB", "#808000", (5, 4, 1, 4), "$L$"), _precision, LinearUCB,
        package="mabwiser",
    ),
}  # fmt: skip

#: Those that play any K.
ANY_K = tuple(name for name, entry in POLICIES.items() if not entry.binary)
#: Those that play any problem: with any K, with actions that change, and without a further package.
GENERAL = tuple(name for name in ANY_K if not (POLICIES[name].fixed_actions or POLICIES[name].package))
#: The policies of a setting that names none.
COMPARISON = ("eofd", "oful", "first-order", "greedy", "random")
#: Implementations whose times are compared: the library's, those as printed, and OFUL by Cholesky factors.
FORMS = ("eofd", "oful", "eofd-compiled", "oful-compiled", "eofd-printed", "oful-cholesky", "oful-printed")


def compiled_forms(*names: str) -> dict[str, dict[str, Any]]:
    """The own parameters with which policies play by their compiled forms, for the `parameters` of a setting.

    A compiled form plays the same actions, several times faster. Where the times of a study are not reported,
    its games are played by these forms.

    Parameters
    ----------
    *names : str
        Names of policies; those that have no compiled form are left out.

    Examples
    --------
    >>> compiled_forms("oful", "random")
    {'oful': {'compiled': True}}
    """
    return {
        name: {"compiled": True} for name in names if "compiled" in POLICIES[name].parameters.model_fields
    }


def own_parameters(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Validate the own parameters of a policy, and return those that differ from their defaults.

    Raises
    ------
    ValueError
        If the policy has no such parameter, or a value is out of range.
    """
    known = POLICIES[name].parameters
    try:
        return known(**given).model_dump(exclude_defaults=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"[{part!r}]" for part in (name, *first["loc"]))
        names = ", ".join(known.model_fields) or "none"
        raise ValueError(
            f"parameters{place}: {first['msg']}, got {first['input']!r}; own parameters of {name!r}: {names}"
        ) from None
