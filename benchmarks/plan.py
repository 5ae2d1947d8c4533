"""The plan of the measurements: sizes, the two regimes, and the time that each variant plays.

A *cell* is one problem with the variants that play it side by side. The table, the curve over d and the map
over (Kd, m) are three lists of cells. `full` is the plan of the committed run; `quick` has tiny sizes and
only tests that everything works.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from benchmarks.variants import LIBRARY, Variant
from mlogb_core.environments import Environment, SyntheticEnvironment
from mlogb_core.radius import RidgeRadius, TheoremRadius, scaled_parameters

#: Largest Kd at which an OFUL is played that factors matrices of order Kd, by form.
OFUL_LIMITS = {"printed": 1000, "cholesky": 2000}
SEED = 20261127


class Size(NamedTuple):
    """Number of outcomes K, of features d, and sketch size m."""

    n_outcomes: int
    n_features: int
    sketch_size: int


@dataclass(frozen=True)
class Limits:
    """The numbers of rounds and seconds that a cell plays.

    Attributes
    ----------
    block : int
        Number of timed rounds that a variant plays at a time, before the next variant plays.
    lead_in : int
        Number of rounds before each block that are played and not timed. In use a policy plays alone, with
        its code and data in the caches. After another variant the first round takes up to twice as long, and
        the effect lasts for four or five rounds.
    min_rounds, max_rounds : int
        Smallest and largest number of timed rounds of a variant. The smallest is two blocks or more, since a
        ratio is taken over the rounds of both variants and a slow spell of the machine can last for a block.
    seconds : float
        Between these limits a variant plays until it has used this much time.
    extra_warmup : int
        Number of untimed rounds after those that fill the sketch. OFUL plays as many untimed rounds as the
        largest sketch beside it, so that both have reached the sphere or both have not.
    sittings : int
        Number of times that the cells of the table are played, each time with other random streams. A cell is
        played again only after all the others, so that a slow spell of some minutes affects one sitting.
    """

    block: int = 20
    lead_in: int = 5
    min_rounds: int = 40
    max_rounds: int = 200
    seconds: float = 3.0
    extra_warmup: int = 40
    sittings: int = 3

    def warmup(self, sketch_size: int, n_outcomes: int) -> int:
        """Rounds before timing with a sketch of m directions, to which each round adds up to K."""
        return -(-sketch_size // n_outcomes) + self.extra_warmup


@dataclass(frozen=True)
class Cell:
    """One problem and the variants that play it side by side.

    Attributes
    ----------
    part, regime : str
        The part of the run, `table`, `curve`, `map` or `regret`, and the name of the parameters.
    environment : Environment
        The problem.
    settings : dict
        Lambda, eta, S and the radius, as keyword arguments of a policy.
    variants : tuple of Variant
        The variants that play. A printed one needs the NumPy form of the same family and sketch size.
    """

    part: str
    regime: str
    environment: Environment
    settings: dict[str, Any]
    variants: tuple[Variant, ...]

    @property
    def n_outcomes(self) -> int:
        """K."""
        return int(self.environment.rewards.size)

    @property
    def length(self) -> int:
        """Kd."""
        return self.n_outcomes * self.environment.n_features

    @property
    def name(self) -> str:
        """The name that is shown while the cell runs and that its random streams depend on."""
        sketches = sorted({v.sketch_size for v in self.variants if v.family == "eofd"})
        shown = ", ".join(map(str, sketches))
        return f"{self.part} {self.regime} K={self.n_outcomes} d={self.environment.n_features} m={shown}"


@dataclass(frozen=True)
class RegretSearch:
    """The search for the smallest sketch with OFUL's regret: T, trials, and the sketch sizes tried."""

    n_rounds: int
    n_trials: int
    sketch_sizes: tuple[int, ...]
    n_features: int
    digits: bool


@dataclass(frozen=True)
class Plan:
    """All settings of a run; see the module's docstring.

    `narrow` is the number of sizes, the first of the table, that are measured once more with vectors of 256
    bits on a processor whose vectors have 512.
    """

    limits: Limits
    table: tuple[Size, ...]
    regimes: tuple[str, ...]
    curve_features: tuple[int, ...]
    curve_sketch: int
    map_outcomes: tuple[int, ...]
    map_lengths: tuple[int, ...]
    map_sketches: tuple[int, ...]
    regret: RegretSearch
    gemm_order: int
    large_megabytes: int
    narrow: int


def full() -> Plan:
    """The run that is committed: the sizes of the study, about half an hour on one core."""
    return Plan(
        limits=Limits(),
        table=(
            Size(4, 100, 40), Size(1, 400, 40), Size(1, 785, 78),
            Size(4, 500, 200), Size(8, 1000, 200), Size(1, 10000, 100),
        ),
        regimes=("paper", "tuned"),
        curve_features=(100, 200, 400, 800, 1600, 3200, 6400),
        curve_sketch=40,
        map_outcomes=(1, 4),
        map_lengths=(200, 400, 800, 1600, 3200, 6400),
        map_sketches=(10, 20, 40, 80, 160, 320),
        regret=RegretSearch(1000, 5, (1, 2, 3, 5, 7, 10, 14, 20, 28, 40, 56, 80), 400, digits=True),
        gemm_order=1500,
        large_megabytes=256,
        narrow=3,
    )  # fmt: skip


def quick() -> Plan:
    """A plan of tiny sizes, which takes seconds and only tests that everything runs."""
    return Plan(
        limits=Limits(
            block=2, lead_in=1, min_rounds=4, max_rounds=4, seconds=0.0, extra_warmup=2, sittings=2
        ),
        table=(Size(2, 12, 6), Size(1, 30, 5)),
        regimes=("paper", "tuned"),
        curve_features=(20, 40),
        curve_sketch=4,
        map_outcomes=(1,),
        map_lengths=(24, 48),
        map_sketches=(2, 4, 8),
        regret=RegretSearch(12, 2, (1, 4, 20), 20, digits=False),
        gemm_order=64,
        large_megabytes=1,
        narrow=1,
    )


def settings(regime: str, n_outcomes: int, n_features: int) -> dict[str, Any]:
    r"""Lambda, eta, S and the radius of a regime.

    `paper`: the paper's formulas at its exponents (0.75, 0.75) with S = 1 and the theorem's radius
    times 1e-6; lambda exceeds every eigenvalue of the data, and few rounds project. `tuned`:
    lambda = 1, eta = 0.5, S = 2 and the ridge radius times 0.001; curvature matters, and the
    parameter comes to lie on the sphere.
    """
    if regime == "paper":
        regularization, step_size = scaled_parameters(n_outcomes, n_features, 1.0, (0.75, 0.75))
        radius = TheoremRadius(confidence=0.05, scale=1e-6)
        return {"regularization": regularization, "step_size": step_size, "norm_bound": 1.0, "radius": radius}
    if regime == "tuned":
        return {"regularization": 1.0, "step_size": 0.5, "norm_bound": 2.0, "radius": RidgeRadius(1e-3)}
    raise ValueError(f"regime must be 'paper' or 'tuned', got {regime!r}")


def problem(regime: str, n_outcomes: int, n_features: int) -> SyntheticEnvironment:
    """Ten to thirty unit vectors per round, rewards k/K, and a true parameter of norm S."""
    rewards = np.arange(1, n_outcomes + 1) / n_outcomes
    norm = settings(regime, n_outcomes, n_features)["norm_bound"]
    return SyntheticEnvironment(n_features, rewards, parameter_norm=norm)


def table_cells(plan: Plan, forms: Sequence[str]) -> list[Cell]:
    """Every variant at every size of the table, in every regime."""
    return [
        _cell("table", regime, size.n_outcomes, size.n_features, [size.sketch_size], forms)
        for size in plan.table
        for regime in plan.regimes
    ]


def curve_cells(plan: Plan, forms: Sequence[str]) -> list[Cell]:
    """Time against d at K = 1 and a fixed sketch size."""
    return [_cell("curve", "tuned", 1, d, [plan.curve_sketch], forms) for d in plan.curve_features]


def map_cells(plan: Plan, forms: Sequence[str]) -> list[Cell]:
    """The library's forms over (Kd, m), m at most half of Kd: one OFUL beside all sketches of a Kd."""
    fast = [form for form in forms if form in LIBRARY]
    return [
        _cell("map", "tuned", K, length // K, [m for m in plan.map_sketches if 2 * m <= length], fast)
        for K in plan.map_outcomes
        for length in plan.map_lengths
    ]


def side_by_side(sketches: Sequence[int], forms: Sequence[str], length: int) -> tuple[Variant, ...]:
    """EOFD with each sketch size and OFUL, in all the forms that are feasible at length Kd.

    Examples
    --------
    >>> [variant.form for variant in side_by_side([], ("printed", "cholesky", "numpy"), 1001)]
    ['cholesky', 'numpy']
    """
    sketched = [Variant("eofd", form, m) for m in sketches for form in forms if form != "cholesky"]
    dense = [Variant("oful", form) for form in forms if length <= OFUL_LIMITS.get(form, length)]
    return (*sketched, *dense)


def _cell(part: str, regime: str, K: int, d: int, sketches: Sequence[int], forms: Sequence[str]) -> Cell:
    variants = side_by_side(sketches, forms, K * d)
    return Cell(part, regime, problem(regime, K, d), settings(regime, K, d), variants)
