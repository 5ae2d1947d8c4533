"""Time at equal regret: the smallest sketch whose regret stays within a tenth of OFUL's.

A time saved by a sketch counts only if the regret stays the same, and how small the sketch may then be
depends on the spectrum of the contexts. There are two problems: synthetic contexts with standard deviations
that decay like 1/i, and the digits. Regrets are means over trials on common random numbers. A size is
accepted if its regret and those of all larger sizes tried are within a tenth, since with few trials a single
small size may be so by chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from benchmarks import timing
from benchmarks.plan import SEED, Cell, Limits, RegretSearch, side_by_side
from benchmarks.variants import Variant, build
from compendium.experiments.data import DataError
from compendium.experiments.problems import Digits
from compendium.experiments.problems.decaying import DecayingEnvironment
from compendium.experiments.timing import digits
from mlogb_core.environments import Environment
from mlogb_core.radius import RidgeRadius
from mlogb_core.simulation import run_trial, trial_streams

TOLERANCE = 0.10
OFUL = Variant("oful", "numpy")


class Problem(NamedTuple):
    """A problem with the parameters that its policies have."""

    name: str
    environment: Environment
    settings: dict[str, Any]


def problems(search: RegretSearch) -> tuple[list[Problem], list[str]]:
    """The problems, and messages about those that are left out."""
    settings = {"regularization": 0.1, "step_size": 1.0, "norm_bound": 20.0, "radius": RidgeRadius(1e-4)}
    decaying = DecayingEnvironment(search.n_features, (1.0,), parameter_norm=20.0, decay=2.0)
    found = [Problem("decaying spectrum", decaying, settings)]
    if not search.digits:
        return found, []
    try:
        return [*found, Problem("digits", Digits(normalisation="unit").environment(), settings)], []
    except DataError as error:
        return found, [f"equal regret on digits: {error}"]


def measure(
    problem: Problem, search: RegretSearch, limits: Limits, forms: tuple[str, ...]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Find the sketch for one problem and time it beside OFUL.

    Parameters
    ----------
    problem : Problem
        The problem.
    search : RegretSearch
        T, trials and sizes.
    limits : Limits
        How long the timing plays.
    forms : tuple of str
        Forms to time. OFULs that factor large matrices are left out beyond the same sizes as in the table.

    Returns
    -------
    regrets : list of dict
        One row for OFUL and for each m.
    timings : list of dict
        Rows of `timing.rows` at that m.
    """
    baseline = regrets(problem, OFUL, search)
    sketches = [Variant("eofd", "numpy", m) for m in sorted(search.sketch_sizes)]
    tried = {OFUL: baseline} | {variant: regrets(problem, variant, search) for variant in sketches}
    chosen = smallest({v: float(tried[v].mean()) for v in sketches}, float(baseline.mean()))
    table = [_row(problem, search, variant, regret, baseline, chosen) for variant, regret in tried.items()]
    if chosen is None:
        return table, []
    length = problem.environment.n_features * problem.environment.rewards.size
    variants = side_by_side([chosen.sketch_size], forms, length)
    cell = Cell("regret", problem.name, problem.environment, problem.settings, variants)
    return table, timing.rows(cell, [timing.play(cell, limits)])


def smallest(means: Mapping[Variant, float], baseline: float) -> Variant | None:
    """The first of ascending sizes from which on all mean regrets stay within the tolerance.

    Examples
    --------
    >>> means = {Variant("eofd", "numpy", m): regret for m, regret in ((1, 10.5), (2, 12.0), (4, 10.9))}
    >>> smallest(means, baseline=10.0).sketch_size
    4
    """
    chosen = None
    for variant, mean in reversed(list(means.items())):
        if mean > (1.0 + TOLERANCE) * baseline:
            break
        chosen = variant
    return chosen


def regrets(problem: Problem, variant: Variant, search: RegretSearch) -> np.ndarray:
    """Cumulative expected regret of one variant, (n_trials,); variants meet the same random numbers."""
    found = []
    for trial in range(search.n_trials):
        streams = trial_streams(SEED, f"equal regret, {problem.name}", trial)
        environment = problem.environment
        policy = build(variant, environment.n_features, environment.rewards, problem.settings)
        played = run_trial(environment, {"policy": policy}, search.n_rounds, streams)
        found.append(float(played.regret.sum()))
    return np.array(found)


def _row(
    problem: Problem,
    search: RegretSearch,
    variant: Variant,
    regret: np.ndarray,
    baseline: np.ndarray,
    chosen: Variant | None,
) -> dict[str, Any]:
    spread = float(regret.std(ddof=1)) if regret.size > 1 else None
    numbers: Mapping[str, float | None] = {
        "regret_mean": float(regret.mean()),
        "regret_sd": spread,
        "over_oful": float(regret.mean() / baseline.mean()),
    }
    return {
        "problem": problem.name,
        "family": variant.family,
        "m": variant.sketch_size or None,
        "rounds": search.n_rounds,
        "trials": search.n_trials,
        **{name: None if value is None else digits(value) for name, value in numbers.items()},
        "chosen": variant == chosen,
    }
