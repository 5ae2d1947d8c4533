"""Playing a cell: warm-up, then interleaved blocks of timed rounds, then medians and quartiles.

All variants meet the same action sets and the same uniform numbers for the outcomes. In a block each variant
plays some rounds in a row, as it would alone. The first few bring its data into the cache and are not timed.
The order rotates from block to block, so that a slow spell of the machine affects all variants. A cell can be
played in several sittings, some time apart: times are pooled over them, and a ratio is the median of their
ratios.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from benchmarks.plan import SEED, Cell, Limits
from benchmarks.variants import LIBRARY, Variant, build, take_over
from compendium.experiments.timing import Draws, digits, no_collection, quartiles, rotated
from mlogb_core.environments import ActionSet
from mlogb_core.policies import Policy
from mlogb_core.simulation import trial_streams

Clock = Callable[[], float]
_ON_THE_SPHERE = 1e-9


@dataclass
class Log:
    """The rounds of a variant; times in seconds.

    Attributes
    ----------
    warmup : int
        Number of rounds before timing.
    warmup_actions, lead_in_actions, actions : list of int
        Actions of the warm-up, of the untimed rounds before each block, and of the timed rounds.
    select, update : list of float
        Wall times of the two calls.
    offered, evaluated : list of int
        Size of the action set, and number of actions that were scored exactly.
    projected : list of bool
        Whether the new parameter lies on the sphere of radius S.
    rank : int
        Rank of the sketch at the end, 0 where there is none.
    """

    warmup: int = 0
    warmup_actions: list[int] = field(default_factory=list)
    lead_in_actions: list[int] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    select: list[float] = field(default_factory=list)
    update: list[float] = field(default_factory=list)
    offered: list[int] = field(default_factory=list)
    evaluated: list[int] = field(default_factory=list)
    projected: list[bool] = field(default_factory=list)
    rank: int = 0

    @property
    def rounds(self) -> int:
        """Number of timed rounds."""
        return len(self.actions)

    @property
    def total(self) -> list[float]:
        """Time of each round."""
        return [s + u for s, u in zip(self.select, self.update, strict=True)]


def play(
    cell: Cell, limits: Limits, clock: Clock = time.perf_counter, sitting: int = 0
) -> dict[Variant, Log]:
    """Play a cell.

    Parameters
    ----------
    cell : Cell
        The problem and its variants.
    limits : Limits
        How long it plays.
    clock : callable
        Returns seconds.
    sitting : int
        Number of the sitting; each has random streams of its own.

    Returns
    -------
    dict
        A log for each variant. Logs may differ in length, since a variant that has used its time stops;
        rounds with the same index have the same action set.
    """
    streams = trial_streams(SEED, cell.name, sitting)
    draws = Draws(cell.environment.instance(streams.instance), streams)
    logs = {variant: Log() for variant in cell.variants}
    policies = _warm(cell, limits, draws, logs)
    active, block = list(cell.variants), 0
    while active:
        lead_in, rounds = draws.take(limits.lead_in), draws.take(limits.block)
        for variant in rotated(active, block):
            with no_collection():
                logs[variant].lead_in_actions += [_play_round(policies[variant], *one) for one in lead_in]
                _play_block(policies[variant], rounds, logs[variant], cell.settings["norm_bound"], clock)
        active, block = [v for v in active if not _is_done(logs[v], limits)], block + 1
    for variant, policy in policies.items():
        if variant.family == "eofd":
            logs[variant].rank = _rank(policy)
    return logs


def ratio(slow: Log, fast: Log) -> float:
    """Median time of a round over that of another variant, over the rounds that both played."""
    shared = min(slow.rounds, fast.rounds)
    return float(np.median(slow.total[:shared]) / np.median(fast.total[:shared]))


def agreement(log: Log, reference: Log) -> float:
    """Share of the common rounds, before and while timing, in which the actions are equal."""
    warm = min(len(log.warmup_actions), len(reference.warmup_actions))
    lead_in = min(len(log.lead_in_actions), len(reference.lead_in_actions))
    timed = min(log.rounds, reference.rounds)
    # The warm-ups end together, so that the common rounds are the last ones.
    mine, other = (
        [
            *one.warmup_actions[len(one.warmup_actions) - warm :],
            *one.lead_in_actions[:lead_in],
            *one.actions[:timed],
        ]
        for one in (log, reference)
    )
    return float(np.mean(np.equal(mine, other)))


def pooled(logs: Sequence[Log]) -> Log:
    """The logs of several sittings as one; rank and length of the warm-up are those of the last."""
    joined = Log(warmup=logs[-1].warmup, rank=logs[-1].rank)
    for each in fields(Log):
        if isinstance(getattr(joined, each.name), list):
            setattr(joined, each.name, [entry for log in logs for entry in getattr(log, each.name)])
    return joined


def rows(cell: Cell, sittings: Sequence[Mapping[Variant, Log]]) -> list[dict[str, Any]]:
    """One row per variant: times, properties of the rounds, and comparisons.

    Parameters
    ----------
    cell : Cell
        What was played.
    sittings : sequence of mapping
        What `play` returned, once for each sitting.

    Returns
    -------
    list of dict
        `over_printed`, `over_oful_printed`, `over_oful_cholesky` and `over_oful` are ratios of times: of the
        printed form of the same algorithm, the printed OFUL, OFUL by Cholesky factors, and OFUL in the same
        form, over that of the variant. Each is the median over the sittings of the ratios of medians, and is
        given with the smallest and the largest of them. `equal_actions` is None for the NumPy form, with
        which the others are compared.
    """
    return [_row(cell, variant, sittings) for variant in cell.variants]


def _row(cell: Cell, variant: Variant, sittings: Sequence[Mapping[Variant, Log]]) -> dict[str, Any]:
    log = pooled([logs[variant] for logs in sittings])
    row: dict[str, Any] = {
        "part": cell.part,
        "regime": cell.regime,
        "K": cell.n_outcomes,
        "d": cell.environment.n_features,
        "m": variant.sketch_size or None,
        "family": variant.family,
        "form": variant.form,
        "sittings": len(sittings),
        "rounds": log.rounds,
        "warmup": log.warmup,
    }
    for name, seconds in (("select", log.select), ("update", log.update), ("round", log.total)):
        row |= {f"{name}_{level}_ms": value for level, value in quartiles(seconds).items()}
    for name, slow in (
        ("over_printed", variant._replace(form="printed")),
        ("over_oful_printed", Variant("oful", "printed")),
        ("over_oful_cholesky", Variant("oful", "cholesky")),
        ("over_oful", variant.rival),
    ):
        row |= _ratios(name, variant, slow, sittings)
    return row | {
        "equal_actions": None if variant.form == "numpy" else _equal_actions(variant, sittings),
        "projected": digits(float(np.mean(log.projected))),
        "offered": digits(float(np.mean(log.offered))),
        "evaluated": digits(float(np.mean(log.evaluated))),
        "rank": log.rank or None,
    }


def _equal_actions(variant: Variant, sittings: Sequence[Mapping[Variant, Log]]) -> float:
    return float(np.mean([agreement(logs[variant], logs[variant.reference]) for logs in sittings]))


def _ratios(
    name: str, variant: Variant, slow: Variant, sittings: Sequence[Mapping[Variant, Log]]
) -> dict[str, float | None]:
    """Time of another variant over that of the variant: the median over the sittings, and the range."""
    values = [ratio(logs[slow], logs[variant]) for logs in sittings if slow in logs]
    levels = {"": np.median, "_min": np.min, "_max": np.max}
    return {name + level: digits(float(of(values))) if values else None for level, of in levels.items()}


def _warm(cell: Cell, limits: Limits, draws: Draws, logs: Mapping[Variant, Log]) -> dict[Variant, Policy]:
    """Play the library's forms until their sketches are full, and give the others the state reached.

    All warm-ups end with the same round, so that a smaller sketch starts later.
    """
    fast = {v: build(v, *_problem(cell), cell.settings) for v in cell.variants if v.form in LIBRARY}
    joins = {v: limits.warmup(v.sketch_size, cell.n_outcomes) for v in fast}
    longest = max(joins.values())
    for variant in fast:
        logs[variant].warmup = joins[variant] if variant.family == "eofd" else longest
    for left in range(longest, 0, -1):
        ((candidates, uniform),) = draws.take(1)
        for variant, policy in fast.items():
            if left <= logs[variant].warmup:
                logs[variant].warmup_actions.append(_play_round(policy, candidates, uniform))
    policies: dict[Variant, Policy] = {}
    for variant in cell.variants:
        if variant.form in LIBRARY:
            policies[variant] = fast[variant]
        else:
            printed: Any = build(variant, *_problem(cell), cell.settings)
            reference: Any = fast[variant.reference]
            take_over(printed, reference)
            policies[variant] = printed
    return policies


def _problem(cell: Cell) -> tuple[int, Any]:
    return cell.environment.n_features, cell.environment.rewards


def _play_round(policy: Policy, candidates: ActionSet, uniform: float) -> int:
    action = policy.select(candidates.features)
    policy.update(candidates.features[action], candidates.outcome(action, uniform))
    return action


def _play_block(
    policy: Policy, rounds: Sequence[tuple[ActionSet, float]], log: Log, norm_bound: float, clock: Clock
) -> None:
    state: Any = policy  # Attributes that only some policies have are read below.
    for candidates, uniform in rounds:
        start = clock()
        action = policy.select(candidates.features)
        log.select.append(clock() - start)
        outcome = candidates.outcome(action, uniform)
        features = candidates.features[action]
        start = clock()
        policy.update(features, outcome)
        log.update.append(clock() - start)
        log.actions.append(action)
        log.offered.append(len(candidates.features))
        log.evaluated.append(int(getattr(state, "evaluated", len(candidates.features))))
        log.projected.append(bool(np.linalg.norm(state.parameter) >= norm_bound * (1.0 - _ON_THE_SPHERE)))


def _is_done(log: Log, limits: Limits) -> bool:
    if log.rounds < limits.min_rounds:
        return False
    return log.rounds >= limits.max_rounds or sum(log.total) >= limits.seconds


def _rank(policy: Any) -> int:
    if hasattr(policy, "sketch"):
        return int(np.count_nonzero(policy.sketch.values))
    return len(policy.state_dict()["curvature.core"])
