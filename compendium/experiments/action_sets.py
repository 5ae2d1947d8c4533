"""The action sets of the last trial, kept in a process for the next setting that plays the same trial.

All settings of a study meet the same action sets in a trial. To draw them takes up to a third of the time of
a game of the compiled policies, and a tuning grid has hundreds of settings. A process therefore keeps the
sets of the last trial that it played, up to `LIMIT` bytes; what does not fit is drawn anew.
"""

from __future__ import annotations

import copy

import numpy as np

from compendium.experiments.problems import AnyProblem
from mlogb_core._validation import Array
from mlogb_core.environments import ActionSet, Environment
from mlogb_core.simulation import trial_streams

#: Bytes of features and probabilities that a process keeps at most.
LIMIT = 2**27

#: What names the action sets of a trial: the problem as JSON, the seed, the experiment, the trial's number.
Key = tuple[str, int, str, int]


class _Sets:
    """The action sets of a trial from its first round on, as many as have been asked for and fit."""

    def __init__(self, environment: Environment, seed: int, experiment: str, trial: int) -> None:
        streams = trial_streams(seed, experiment, trial)
        self._instance, self._rng = environment.instance(streams.instance), streams.actions
        self._kept: list[ActionSet] = []
        self._bytes = 0

    def play(self) -> _Replay:
        """The sets from the first round on, for one game."""
        return _Replay(self)

    def kept(self, index: int) -> ActionSet | None:
        """The set of a round, which is drawn if it is the next one and fits; None if it does not fit."""
        if index < len(self._kept):
            found = self._kept[index]
            if isinstance(found.features, np.ndarray):
                # A set that has just been drawn is in the processor's cache. One that was kept is brought
                # there, so that no policy's time includes the wait for memory.
                np.vdot(found.features, found.features)
            return found
        if self._bytes > LIMIT:
            return None
        drawn = self._instance.actions(self._rng)
        self._kept.append(drawn)
        self._bytes += drawn.features.data.nbytes + drawn.probabilities.nbytes
        return drawn

    def rest(self) -> np.random.Generator:
        """A copy of the stream in the state after the last set that is kept."""
        return copy.deepcopy(self._rng)

    def draw(self, rng: np.random.Generator) -> ActionSet:
        """Draw a set that is not kept."""
        return self._instance.actions(rng)


class _Replay:
    """The instance of one game: it returns the kept sets one after the other, and then draws the others."""

    def __init__(self, sets: _Sets) -> None:
        self._sets, self._round = sets, 0
        self._rest: np.random.Generator | None = None

    def actions(self, rng: np.random.Generator) -> ActionSet:
        """The action set of the next round; the stream that is given is not used."""
        found = None if self._rest is not None else self._sets.kept(self._round)
        self._round += 1
        if found is not None:
            return found
        if self._rest is None:
            self._rest = self._sets.rest()
        return self._sets.draw(self._rest)


class _Remembering:
    """An environment whose instance is that of one trial, with the action sets that are kept of it."""

    def __init__(self, environment: Environment, sets: _Sets) -> None:
        self._environment, self._sets = environment, sets

    @property
    def rewards(self) -> Array:
        """Rewards of the outcomes 1..K."""
        return self._environment.rewards

    @property
    def n_features(self) -> int:
        """Dimension of the actions."""
        return self._environment.n_features

    def instance(self, rng: np.random.Generator) -> _Replay:
        """The trial's realisation; the stream that is given is not used."""
        return self._sets.play()


_last: tuple[Key, _Remembering] | None = None


def trial_environment(problem: AnyProblem, seed: int, experiment: str, trial: int) -> Environment:
    """The environment of a problem as one trial meets it, with action sets that were drawn for it before.

    Parameters
    ----------
    problem : Problem
        The problem.
    seed, experiment, trial
        They choose the random streams, as in `mlogb_core.simulation.trial_streams`.

    Returns
    -------
    Environment
        Its instance, whatever stream it is given, is that of the trial's streams, and so are its action sets.
    """
    global _last
    key = problem.model_dump_json(), seed, experiment, trial
    if _last is None or _last[0] != key:
        environment = problem.environment()
        _last = None  # The memory of the last trial is free before the next one takes its own.
        _last = key, _Remembering(environment, _Sets(environment, seed, experiment, trial))
    return _last[1]
