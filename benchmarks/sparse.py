"""Rounds with sparse actions: time and memory beside dense rows, and beside Vowpal Wabbit where it is there.

The time of a round with sparse actions depends on the features that played actions have had, and not on the
number d of all. Therefore each size is measured in two states: *new*, in which the played actions have had
few features, and *all*, in which they have had every one, so that a rebuild costs most.

All players of a comparison meet in one run, in interleaved blocks as in `timing`. The action sets of one size
and state are the same for all. A rebuild belongs to the round whose update carries it out. Medians are over
the rounds without one, and what the rebuilds add is given apart.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from benchmarks.plan import SEED, Size, settings
from compendium.experiments.timing import Draws, digits, no_collection, quartiles, rotated
from mlogb_core.environments import ActionSet, Environment, SparseEnvironment
from mlogb_core.policies import OptimisticPolicy, eofd
from mlogb_core.simulation import trial_streams
from mlogb_core.sparse import SparsePolicy

STATES = ("new", "all")
_MEGABYTE = 1e6


@dataclass(frozen=True)
class SparsePlan:
    """What is measured with sparse actions.

    Attributes
    ----------
    sizes : tuple of Size
        (K, d, m) of the synthetic problem; the first is the one that the others are compared with.
    dense_limit : int
        Largest Kd at which dense rows are played.
    n_actions, n_nonzeros : int
        Actions of a set, and non-zeros of each.
    rounds : mapping of str to int
        Timed rounds of a policy with sparse actions in each state. In the state `all` they go over several
        whole rebuilds, and in the state `new` they leave most features as they are.
    other_rounds : int
        Timed rounds of the other players.
    ratings_rounds : int
        Timed rounds with the ratings.
    block, lead_in : int
        As in `plan.Limits`.
    memory : tuple of Size
        Sizes whose memory is measured.
    ratings : tuple of str
        Sources of ratings that are played, if they are on this machine.
    ratings_sketches : tuple of int
        Sketch sizes m with the ratings.
    """

    sizes: tuple[Size, ...] = (Size(1, 100_000, 20), Size(1, 1_000_000, 20))
    dense_limit: int = 100_000
    n_actions: int = 20
    n_nonzeros: int = 50
    rounds: Mapping[str, int] = field(default_factory=lambda: {"new": 1000, "all": 6000})
    other_rounds: int = 400
    ratings_rounds: int = 1000
    block: int = 20
    lead_in: int = 5
    memory: tuple[Size, ...] = (Size(1, 1_000_000, 20),)
    ratings: tuple[str, ...] = ("movielens", "insteval")
    ratings_sketches: tuple[int, ...] = (20, 100)


def quick() -> SparsePlan:
    """A plan of tiny sizes, which only tests that everything runs."""
    return SparsePlan(
        sizes=(Size(1, 500, 3), Size(1, 900, 3)),
        dense_limit=500,
        n_actions=4,
        n_nonzeros=5,
        rounds={"new": 8, "all": 8},
        other_rounds=4,
        block=2,
        lead_in=1,
        memory=(Size(1, 900, 3),),
        ratings=(),
    )


class Rows:
    """A policy of the library that is given its actions as CSR arrays or as dense ones."""

    def __init__(self, policy: Any, sparse: bool) -> None:
        self.policy, self.sparse = policy, sparse

    def prepare(self, candidates: ActionSet) -> tuple[Any, list[Any]]:
        """Features of all actions and of each."""
        features = candidates.features
        if not self.sparse:
            features = features.toarray()
        whole = candidates._replace(features=features)
        return features, [whole.row(i) for i in range(len(candidates.probabilities))]

    def select(self, prepared: Any) -> int:
        """Index of the action with the best score."""
        return int(self.policy.select(prepared[0]))

    def update(self, prepared: Any, action: int, outcome: int) -> None:
        """Learn from the outcome."""
        self.policy.update(prepared[1][action], outcome)

    @property
    def rebuilds(self) -> int:
        """Number of rebuilds so far."""
        return self.policy.features.rebuilds if self.sparse else 0


class VowpalWabbit:
    """Vowpal Wabbit's contextual bandit with SquareCB, at its own interface: lines of text.

    Parsing the lines is part of a call, as it is for its users. It learns a linear model of the cost by
    stochastic gradients and has no curvature; it is here for the time of a round and not for its regret.

    Parameters
    ----------
    n_features : int
        d; the table of weights has the next power of two of entries.
    rewards : (K,) array
        Rewards of the outcomes 1..K.

    Raises
    ------
    ImportError
        If the package ``vowpalwabbit`` is not installed.
    """

    rebuilds = 0

    def __init__(self, n_features: int, rewards: Any) -> None:
        import vowpalwabbit

        bits = max(int(n_features - 1).bit_length(), 1)
        arguments = f"--cb_explore_adf --squarecb --quiet -b {bits} --random_seed 1"
        self._workspace = vowpalwabbit.Workspace(arguments)
        self._costs = [0.0, *(-np.asarray(rewards, dtype=float))]
        self._probabilities: list[float] = []

    def prepare(self, candidates: ActionSet) -> list[str]:
        """One line of text for each action."""
        X = csr_array(candidates.features)
        lines = []
        for start, stop in zip(X.indptr[:-1], X.indptr[1:], strict=True):
            entries = zip(X.indices[start:stop].tolist(), X.data[start:stop].tolist(), strict=True)
            lines.append("| " + " ".join(f"{feature}:{value:.9g}" for feature, value in entries))
        return lines

    def select(self, prepared: list[str]) -> int:
        """Index of the action with the greatest probability."""
        self._probabilities = self._workspace.predict(prepared)
        return int(np.argmax(self._probabilities))

    def update(self, prepared: list[str], action: int, outcome: int) -> None:
        """Learn from the cost of the outcome."""
        label = f"0:{self._costs[outcome]}:{self._probabilities[action]} "
        lines = prepared.copy()
        lines[action] = label + lines[action]
        self._workspace.learn(lines)


@dataclass
class Times:
    """The rounds of a player; times in seconds.

    Attributes
    ----------
    actions : list of int
        Actions of all rounds, the untimed ones before each block included.
    select, update : list of float
        Times of the two calls in the timed rounds without a rebuild.
    rebuilds : list of float
        Times of all rounds with a rebuild. Some of them are among the untimed rounds; a rebuild is so long
        that it does not matter what is in the caches.
    """

    actions: list[int] = field(default_factory=list)
    select: list[float] = field(default_factory=list)
    update: list[float] = field(default_factory=list)
    rebuilds: list[float] = field(default_factory=list)

    @property
    def plain(self) -> Any:
        """Times of the timed rounds without a rebuild."""
        return np.add(self.select, self.update)

    @property
    def median(self) -> float:
        """Median time of a round without a rebuild."""
        return float(np.median(self.plain))

    @property
    def rebuild_share(self) -> float:
        """What the rebuilds add to a round, spread over all rounds."""
        return (sum(self.rebuilds) - len(self.rebuilds) * self.median) / len(self.actions)

    @property
    def with_rebuilds(self) -> float:
        """Median time of a round, and the share of the rebuilds."""
        return self.median + self.rebuild_share


@dataclass
class Seat:
    """A player at a problem, with the number of rounds it plays.

    A player puts an action set into its own format (`prepare`), and only its `select` and `update` are timed.
    """

    name: str
    size: Size
    state: str
    player: Any
    draws: Draws
    rounds: int
    times: Times = field(default_factory=Times)


def measure(chosen: SparsePlan) -> dict[str, Any]:
    """Carry out a plan.

    Parameters
    ----------
    chosen : SparsePlan
        What to measure.

    Returns
    -------
    dict
        The tables `times`, `memory` and `ratings`, and what was left out.
    """
    left_out: list[str] = []
    found = {
        "times": _times(chosen, left_out),
        "memory": [memory(size, state, chosen) for size in chosen.memory for state in STATES],
        "ratings": _ratings(chosen, left_out),
    }
    return found | {"left_out": left_out, "plan": _described(chosen)}


def _described(chosen: SparsePlan) -> dict[str, Any]:
    names = ("n_actions", "n_nonzeros", "rounds", "other_rounds", "ratings_rounds", "block", "lead_in")
    return {name: getattr(chosen, name) for name in names}


def _times(chosen: SparsePlan, left_out: list[str]) -> list[dict[str, Any]]:
    """Times of all players at the synthetic problem, in one run."""
    seats = [
        seat for state in STATES for size in chosen.sizes for seat in _seats(size, state, chosen, left_out)
    ]
    play(seats, chosen.block, chosen.lead_in)
    return rows(seats)


def _seats(size: Size, state: str, chosen: SparsePlan, left_out: list[str]) -> Iterator[Seat]:
    """The players at one size and state, after the rounds that bring them there."""
    environment = _problem(size, chosen)
    streams = trial_streams(SEED, f"sparse {state} {size}", 0)
    draws = Draws(environment.instance(streams.instance), streams)
    K, d, _ = size
    players: dict[str, Any] = {"sparse": Rows(SparsePolicy(_maker(size), d), sparse=True)}
    if K * d <= chosen.dense_limit:
        players["dense"] = Rows(_maker(size)(d), sparse=False)
    try:
        players["vowpal wabbit"] = VowpalWabbit(d, environment.rewards)
    except ImportError:
        message = "Vowpal Wabbit: the package vowpalwabbit is not installed"
        if message not in left_out:
            left_out.append(message)
    warm = list(warmup(size, state, chosen))
    for name, player in players.items():
        if name != "vowpal wabbit":
            for action, outcome in warm:
                player.policy.update(action if player.sparse else action.toarray()[0], outcome)
        rounds = chosen.rounds[state] if name == "sparse" else chosen.other_rounds
        yield Seat(name, size, state, player, draws, rounds)


def warmup(size: Size, state: str, chosen: SparsePlan) -> Iterator[tuple[csr_array, int]]:
    """Actions that fill the sketch and, for the state `all`, have each feature once; with outcomes."""
    K, d, m = size
    rng = np.random.default_rng(SEED)
    width = chosen.n_nonzeros
    features = rng.permutation(d)
    count = -(-d // width) if state == "all" else 2 * m
    for start in range(0, count * width, width):
        chosen_features = np.sort(features[start : start + width])
        values = rng.standard_normal(chosen_features.size)
        values /= np.linalg.norm(values)
        yield (
            csr_array((values, chosen_features, [0, chosen_features.size]), shape=(1, d)),
            int(rng.integers(K + 1)),
        )


def play(
    seats: Sequence[Seat], block: int, lead_in: int, clock: Callable[[], float] = time.perf_counter
) -> None:
    """Play all seats in interleaved blocks, each after some rounds that are not timed."""
    active, number = list(seats), 0
    while active:
        drawn = {
            id(draws): draws.take(block + lead_in)
            for draws in {id(s.draws): s.draws for s in active}.values()
        }
        for seat in rotated(active, number):
            with no_collection():
                for t, one in enumerate(drawn[id(seat.draws)]):
                    _play_round(seat, *one, clock, timed=t >= lead_in)
        number += 1
        active = [seat for seat in active if number * block < seat.rounds]


def _play_round(
    seat: Seat, candidates: ActionSet, uniform: float, clock: Callable[[], float], timed: bool
) -> None:
    player = seat.player
    prepared, before = player.prepare(candidates), player.rebuilds
    start = clock()
    action = player.select(prepared)
    selected = clock() - start
    outcome = candidates.outcome(action, uniform)
    start = clock()
    player.update(prepared, action, outcome)
    updated = clock() - start
    seat.times.actions.append(action)
    if player.rebuilds > before:
        seat.times.rebuilds.append(selected + updated)
    elif timed:
        seat.times.select.append(selected)
        seat.times.update.append(updated)


def rows(seats: Sequence[Seat]) -> list[dict[str, Any]]:
    """One row for each player: times and ratios.

    Returns
    -------
    list of dict
        `round_*_ms`: quartiles over the rounds without a rebuild. `rebuild_share_ms`: what the rebuilds add,
        spread over all rounds; `with_rebuilds_ms`: the sum of the median and this share. `rebuild_ms` and
        `longest_rebuild_ms`: median and longest time of a round with a rebuild. `over_sparse`: time over that
        of the player with sparse actions at the same problem; `over_first`: over that of the same player at
        the first size in the same state; both also `_with_rebuilds`. `equal_actions`: share of the rounds
        in which dense rows lead to the same action as sparse ones.
    """
    return [_row(seat, seats) for seat in seats]


def _row(seat: Seat, seats: Sequence[Seat]) -> dict[str, Any]:
    (K, d, m), times = seat.size, seat.times
    sparse = next(s for s in seats if (s.name, s.size, s.state) == ("sparse", seat.size, seat.state)).times
    first = next(s for s in seats if (s.name, s.state) == (seat.name, seat.state)).times
    plain, rebuilds = times.plain, times.rebuilds
    row: dict[str, Any] = {"player": seat.name, "state": seat.state, "K": K, "d": d, "m": m}
    row["rounds"] = len(plain)
    row |= _levels("select", times.select) | _levels("update", times.update) | _levels("round", plain)
    row["with_rebuilds_ms"] = digits(times.with_rebuilds * 1e3)
    row["rebuilds"] = len(rebuilds)
    row["rebuild_ms"] = digits(float(np.median(rebuilds)) * 1e3) if rebuilds else None
    row["longest_rebuild_ms"] = digits(max(rebuilds) * 1e3) if rebuilds else None
    row["rebuild_share_ms"] = digits(times.rebuild_share * 1e3)
    row["over_sparse"] = digits(times.median / sparse.median)
    row["over_sparse_with_rebuilds"] = digits(times.with_rebuilds / sparse.with_rebuilds)
    row["over_first"] = digits(times.median / first.median)
    row["over_first_with_rebuilds"] = digits(times.with_rebuilds / first.with_rebuilds)
    shared = min(len(times.actions), len(sparse.actions))
    same = np.mean(np.equal(times.actions[:shared], sparse.actions[:shared]))
    row["equal_actions"] = digits(float(same)) if seat.name == "dense" else None
    return row


def _levels(name: str, seconds: Any) -> dict[str, float]:
    return {f"{name}_{level}_ms": value for level, value in quartiles(seconds).items()}


def memory(size: Size, state: str, chosen: SparsePlan) -> dict[str, Any]:
    """Bytes that a policy for sparse actions holds, and their peak over rounds with a rebuild.

    Parameters
    ----------
    size : Size
        (K, d, m).
    state : str
        `new` or `all`, as in the module's docstring.
    chosen : SparsePlan
        Its shape of the action sets.

    Returns
    -------
    dict
        `held_mb` and `peak_mb` by `tracemalloc`, in 1e6 bytes; `count_mb`, that of 8 Kd(m+K) bytes and of one
        action set.

    Notes
    -----
    The peak is over the whole life of the policy but its construction, for which the dense arrays are
    allocated and not written to.
    """
    K, d, m = size
    streams = trial_streams(SEED, f"sparse memory {state} {size}", 0)
    ahead = Draws(_problem(size, chosen).instance(streams.instance), streams).take(chosen.block)
    warm = list(warmup(size, state, chosen))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        policy = SparsePolicy(_maker(size), d)
        tracemalloc.reset_peak()
        for action, outcome in warm:
            policy.update(action, outcome)
        for candidates, uniform in ahead:
            action = policy.select(candidates.features)
            policy.update(candidates.row(action), candidates.outcome(action, uniform))
        held, peak = (value - before for value in tracemalloc.get_traced_memory())
    finally:
        tracemalloc.stop()
    count = 8 * K * d * (m + K) + _bytes(ahead[0][0].features)
    return {
        "state": state, "K": K, "d": d, "m": m, "rebuilds": policy.features.rebuilds,
        "held_mb": digits(held / _MEGABYTE), "peak_mb": digits(peak / _MEGABYTE),
        "count_mb": digits(count / _MEGABYTE), "peak_over_count": digits(peak / count),
    }  # fmt: skip


def _bytes(features: csr_array) -> int:
    return int(sum(array.nbytes for array in (features.data, features.indices, features.indptr)))


def _ratings(chosen: SparsePlan, left_out: list[str]) -> list[dict[str, Any]]:
    """Times and memory with the ratings, dense against sparse, at each sketch size."""
    from compendium.experiments import DataError, Rated

    found = []
    for source in chosen.ratings:
        try:
            problem = Rated(source=source)  # type: ignore[arg-type]
            environment = problem.environment(sparse=True)
        except DataError as error:
            left_out.append(str(error))
            continue
        for m in chosen.ratings_sketches:
            size = Size(problem.n_outcomes, problem.n_features, m)
            found += _rated_rows(source, size, environment, chosen)
    return found


def _rated_rows(
    source: str, size: Size, environment: Environment, chosen: SparsePlan
) -> list[dict[str, Any]]:
    streams = trial_streams(SEED, f"sparse {source} {size}", 0)
    draws = Draws(environment.instance(streams.instance), streams)
    make = _maker(size, environment.rewards)
    warm = draws.take(2 * size.sketch_size)
    seats = [
        Seat(
            "sparse",
            size,
            source,
            Rows(SparsePolicy(make, size.n_features), sparse=True),
            draws,
            chosen.ratings_rounds,
        ),
        Seat("dense", size, source, Rows(make(size.n_features), sparse=False), draws, chosen.ratings_rounds),
    ]
    for seat in seats:
        for candidates, uniform in warm:
            prepared = seat.player.prepare(candidates)
            action = seat.player.select(prepared)
            seat.player.update(prepared, action, candidates.outcome(action, uniform))
    play(seats, chosen.block, chosen.lead_in)
    found = rows(seats)
    for row, seat in zip(found, seats, strict=True):
        policy = seat.player.policy
        row["held_mb"] = digits(_held(policy) / _MEGABYTE)
        row["coordinates"] = policy.features.size if seat.player.sparse else size.n_features
        offered = [seat.player.prepare(candidates)[0] for candidates, _ in warm[:10]]
        row["actions_mb"] = digits(
            np.mean([_bytes(x) if seat.player.sparse else x.nbytes for x in offered]) / _MEGABYTE
        )
    return found


def _held(policy: Any) -> int:
    """Bytes of the arrays in a policy's state."""
    return sum(np.asarray(value).nbytes for value in policy.state_dict().values())


def _maker(size: Size, rewards: Any = None) -> Callable[[int], OptimisticPolicy]:
    rewards = _rewards(size) if rewards is None else rewards
    arguments = settings("tuned", size.n_outcomes, size.n_features)

    def make(n_features: int) -> OptimisticPolicy:
        return eofd(n_features, rewards, sketch_size=size.sketch_size, compiled=True, **arguments)

    return make


def _problem(size: Size, chosen: SparsePlan) -> SparseEnvironment:
    return SparseEnvironment(
        size.n_features,
        _rewards(size),
        parameter_norm=2.0,
        n_nonzeros=chosen.n_nonzeros,
        n_actions=chosen.n_actions,
    )


def _rewards(size: Size) -> Any:
    return np.arange(1, size.n_outcomes + 1) / size.n_outcomes
