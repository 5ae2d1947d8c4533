"""One trial: several policies play the same problem on common random numbers, timed round by round.

All policies of a trial meet the same action sets, and in each round the same uniform number decides the
outcome of whichever action a policy plays. Differences between policies are therefore paired, and a policy's
record does not depend on the other policies of the trial. An observer can see more of a trial than its
record.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlogb_core._validation import Array, as_integer
from mlogb_core.environments import ActionSet, Environment
from mlogb_core.link import expected_reward
from mlogb_core.policies import Policy


class Round(NamedTuple):
    """A round that has been played, as an observer of a trial receives it.

    Attributes
    ----------
    number : int
        t, from 1.
    candidates : ActionSet
        The action set that all policies met.
    action, outcome : (n_policies,) array of int
        Index of the action that each policy played, and the outcome that it observed.
    """

    number: int
    candidates: ActionSet
    action: NDArray[np.int64]
    outcome: NDArray[np.int64]


class Streams(NamedTuple):
    """The independent random streams of one trial.

    Attributes
    ----------
    instance, actions, outcomes : numpy.random.Generator
        For the environment's instance, the action sets and the uniform numbers of the outcomes.
    policies : numpy.random.SeedSequence
        The seed of the streams of randomised policies; see `policy`.
    """

    instance: np.random.Generator
    actions: np.random.Generator
    outcomes: np.random.Generator
    policies: np.random.SeedSequence

    def policy(self, name: str) -> np.random.Generator:
        """The stream of the policy of this name; each call returns it from its beginning.

        Parameters
        ----------
        name : str
            Name of the policy in the trial. Different names have independent streams, and these do not depend
            on the other policies of the trial.

        Returns
        -------
        numpy.random.Generator

        Notes
        -----
        A hash of the name selects a child of `policies`, with one exception: "random" has the stream of
        `policies` itself. The recorded runs were made when all random policies shared that stream; "random"
        was the only one in them, so that they stay reproducible.
        """
        seeds = self.policies
        if name != "random":
            seeds = np.random.SeedSequence(seeds.entropy, spawn_key=(*seeds.spawn_key, _number(name, 8)))
        return np.random.default_rng(seeds)


def trial_streams(seed: int, experiment: str, trial: int) -> Streams:
    """Random streams that depend on (seed, experiment, trial) and on nothing else.

    Parameters
    ----------
    seed : int
        Root seed, >= 0.
    experiment : str
        Name of the experiment; other names give independent streams.
    trial : int
        Number of the trial, >= 0.

    Returns
    -------
    Streams
    """
    root = np.random.SeedSequence(
        as_integer("seed", seed, minimum=0),
        spawn_key=(_number(experiment, 4), as_integer("trial", trial, minimum=0)),
    )
    instance, actions, outcomes, policies = root.spawn(len(Streams._fields))
    draw = np.random.default_rng
    return Streams(draw(instance), draw(actions), draw(outcomes), policies)


def _number(name: str, size: int) -> int:
    """A number of so many bytes for a name, the same in every process."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:size], "big")


@dataclass(frozen=True)
class Trial:
    """What happened in one trial; all arrays have shape (n_rounds, n_policies) except `n_actions`.

    Attributes
    ----------
    policies : tuple of str
        Names, in the order of the columns.
    n_actions : (n_rounds,) array of int
        Sizes of the action sets.
    action, outcome : array of int
        Index of the action played, outcome observed.
    reward, regret : array
        Reward received; expected reward of the best action less that of the one played.
    margin : array
        Decision margin (infinite for a policy that has none).
    select_seconds, update_seconds : array
        Wall time of the two calls.
    """

    policies: tuple[str, ...]
    n_actions: NDArray[np.int64]
    action: NDArray[np.int64]
    outcome: NDArray[np.int64]
    reward: Array
    regret: Array
    margin: Array
    select_seconds: Array
    update_seconds: Array


@np.errstate(under="ignore")
def run_trial(
    environment: Environment,
    policies: Mapping[str, Policy],
    n_rounds: int,
    streams: Streams,
    on_round: Callable[[Round], None] | None = None,
) -> Trial:
    """Play one trial.

    Parameters
    ----------
    environment : Environment
        The problem.
    policies : mapping of str to Policy
        Fresh policies by name.
    n_rounds : int
        T >= 1.
    streams : Streams
        The random streams, from `trial_streams`.
    on_round : callable, optional
        An observer, called after each round, when all policies have learned from it. It may read the
        policies, and its time is not measured.

    Returns
    -------
    Trial

    Notes
    -----
    A trial of T rounds equals the first T rounds of a longer one. The order of the policies rotates from
    round to round, so that none always finds the action set in the cache.
    """
    n_rounds = as_integer("n_rounds", n_rounds, minimum=1)
    names = tuple(policies)
    shape = n_rounds, len(names)
    instance = environment.instance(streams.instance)
    n_actions = np.empty(n_rounds, dtype=np.int64)
    action, outcome = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64)
    reward, regret, margin, select, update = (np.empty(shape) for _ in range(5))
    payoff = np.concatenate(([0.0], environment.rewards))

    for t in range(n_rounds):
        candidates = instance.actions(streams.actions)
        uniform = float(streams.outcomes.random())
        value = expected_reward(candidates.probabilities, environment.rewards)
        n_actions[t], best = len(value), value.max()
        for place in range(len(names)):
            p = (place + t) % len(names)
            policy = policies[names[p]]
            played, y, select[t, p], update[t, p] = play_round(policy, candidates, uniform)
            action[t, p], outcome[t, p] = played, y
            reward[t, p], regret[t, p], margin[t, p] = payoff[y], best - value[played], policy.margin
        if on_round is not None:
            on_round(Round(t + 1, candidates, action[t], outcome[t]))
    return Trial(names, n_actions, action, outcome, reward, regret, margin, select, update)


def play_round(policy: Policy, candidates: ActionSet, uniform: float) -> tuple[int, int, float, float]:
    """Let a policy play one round, and time its two calls.

    Parameters
    ----------
    policy : Policy
        Who plays and learns.
    candidates : ActionSet
        The action set.
    uniform : float
        The uniform number in [0, 1) that decides the outcome.

    Returns
    -------
    action, outcome : int
        Index of the action played, and its outcome.
    select_seconds, update_seconds : float
        Wall time of the two calls; the draw of the outcome is not timed.
    """
    start = time.perf_counter()
    action = policy.select(candidates.features)
    selected = time.perf_counter()
    outcome = candidates.outcome(action, uniform)
    features = candidates.row(action)
    learning = time.perf_counter()
    policy.update(features, outcome)
    return action, outcome, selected - start, time.perf_counter() - learning
