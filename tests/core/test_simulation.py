"""One trial: common random numbers, prefixes, streams, and the bookkeeping of rewards and regret."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import run_python

from mlogb_core import RandomPolicy, RidgeRadius, eofd, first_order, oful
from mlogb_core.environments import ActionSet, SyntheticEnvironment
from mlogb_core.simulation import Streams, run_trial, trial_streams

REWARDS = (0.25, 0.5, 0.75, 1.0)
ENVIRONMENT = SyntheticEnvironment(6, REWARDS, parameter_norm=3.0, n_actions=(3, 8))
RECORDS = ("action", "outcome", "reward", "regret", "margin")
PINNED = [0.8096543005064506, 0.009580910911700768, 0.06332289039582906, 0.9983362943972511]


def policies(names, streams):
    settings = {"regularization": 1.0, "step_size": 2.0, "norm_bound": 3.0, "radius": RidgeRadius(1e-2)}
    builders = {
        "eofd": lambda: eofd(6, REWARDS, sketch_size=4, **settings),
        "oful": lambda: oful(6, REWARDS, **settings),
        "first_order": lambda: first_order(6, REWARDS, **settings),
    }
    return {n: builders[n]() if n in builders else RandomPolicy(streams.policy(n)) for n in names}


def trial(names=("eofd", "oful", "random"), n_rounds=30, seed=1, experiment="test", number=0, **more):
    streams = trial_streams(seed, experiment, number)
    return run_trial(ENVIRONMENT, policies(names, streams), n_rounds, streams, **more)


# Streams -------------------------------------------------------------------------------------------


def draws(streams):
    named = [streams.policy(name) for name in ("random", "other", "Other")]
    return np.array([stream.random(4) for stream in [*streams[:3], *named]])


def test_streams_depend_on_seed_experiment_and_trial_alone():
    reference = draws(trial_streams(3, "mnist", 2))
    np.random.default_rng(0).random(5)
    np.testing.assert_array_equal(draws(trial_streams(3, "mnist", 2)), reference)
    everything = [reference] + [
        draws(trial_streams(*key))
        for key in [(4, "mnist", 2), (3, "Mnist", 2), (3, "mnist", 3), (3, "", 2), (2, "mnist", 3)]
    ]
    numbers = np.concatenate([a.ravel() for a in everything])
    assert np.unique(numbers).size == numbers.size  # all streams of all trials differ


@pytest.mark.slow
def test_streams_are_the_same_in_another_process():
    """Python randomises the hash of strings from process to process; the streams must not notice."""
    script = (
        "from mlogb_core.simulation import trial_streams\n"
        "streams = trial_streams(7, 'synthetic-1', 4)\n"
        "print([s.random().hex() for s in [*streams[:3], streams.policy('other')]])"
    )
    streams = trial_streams(7, "synthetic-1", 4)
    expected = str([s.random().hex() for s in [*streams[:3], streams.policy("other")]])
    for hash_seed in ("1", "2"):
        assert run_python(script, PYTHONHASHSEED=hash_seed).strip() == expected


def test_streams_stay_what_they_were():
    """Recorded runs are reproducible only as long as these numbers do not change."""
    streams = trial_streams(20240601, "mnist", 0)
    assert [float(s.random()) for s in [*streams[:3], streams.policy("random")]] == PINNED


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1, "a", 0), "seed must be at least 0"),
        ((0, "a", -1), "trial must be at least 0"),
        ((0.5, "a", 0), "seed"),
    ],
)
def test_streams_reject(arguments, message):
    with pytest.raises(ValueError, match=message):
        trial_streams(*arguments)


# Trials --------------------------------------------------------------------------------------------


EVERYONE = ("eofd", "oful", "first_order", "random", "second", "third")  # The last three play at random.


def test_a_policys_record_does_not_depend_on_the_others():
    """A policy plays the same alone, with others and in any order; each name has its own random stream."""
    together = trial(EVERYONE)
    for names in [*((name,) for name in EVERYONE), EVERYONE[::-1], ("third", "random"), ("second", "eofd")]:
        alone = trial(names)
        np.testing.assert_array_equal(alone.n_actions, together.n_actions)
        for i, name in enumerate(names):
            j = together.policies.index(name)
            for record in RECORDS:
                np.testing.assert_array_equal(getattr(alone, record)[:, i], getattr(together, record)[:, j])


def test_the_policies_of_the_test_differ():
    """If they played alike, the test above could not fail."""
    action = trial(EVERYONE, n_rounds=100).action
    for i in range(len(EVERYONE)):
        for j in range(i):
            assert (action[:, i] != action[:, j]).any()


def test_a_short_trial_is_the_beginning_of_a_long_one():
    long = trial(n_rounds=40)
    for n_rounds in (1, 2, 17):
        short = trial(n_rounds=n_rounds)
        np.testing.assert_array_equal(short.n_actions, long.n_actions[:n_rounds])
        for record in RECORDS:
            np.testing.assert_array_equal(getattr(short, record), getattr(long, record)[:n_rounds])


def test_trials_are_deterministic_and_differ_by_seed_experiment_and_number():
    reference = trial()
    again = trial()
    for record in ("n_actions", *RECORDS):
        np.testing.assert_array_equal(getattr(again, record), getattr(reference, record))
    for change in ({"seed": 2}, {"experiment": "other"}, {"number": 1}):
        other = trial(**change)
        assert not np.array_equal(other.n_actions, reference.n_actions)
        assert not np.array_equal(other.outcome, reference.outcome)


def test_times_are_recorded_and_non_negative():
    result = trial()
    for seconds in (result.select_seconds, result.update_seconds):
        assert seconds.shape == (30, 3)
        assert np.isfinite(seconds).all()
        assert (seconds >= 0.0).all()
    assert (result.select_seconds[:, :2] > 0.0).all()  # A selection takes longer than a tick of the clock.


def test_times_belong_to_their_policy():
    """Although the order rotates, the time of a slow policy is in its own column and its own call."""

    class Sleeper(RandomPolicy):
        def __init__(self, select, update):
            super().__init__(np.random.default_rng(0))
            self.seconds = select, update

        def select(self, actions):
            wait(self.seconds[0])
            return super().select(actions)

        def update(self, action, outcome):
            wait(self.seconds[1])

    def wait(seconds):
        nonlocal now
        now += seconds

    now = 0.0
    names = {"a": Sleeper(1.0, 2.0), "b": Sleeper(3.0, 4.0), "c": Sleeper(5.0, 6.0)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlogb_core.simulation.time.perf_counter", lambda: now)
        result = run_trial(ENVIRONMENT, names, 7, trial_streams(0, "x", 0))
    np.testing.assert_array_equal(result.select_seconds, [[1.0, 3.0, 5.0]] * 7)
    np.testing.assert_array_equal(result.update_seconds, [[2.0, 4.0, 6.0]] * 7)


class Script:
    """An environment and an instance that offer prepared action sets."""

    def __init__(self, rewards, *sets):
        self.rewards, self.n_features = np.array(rewards), sets[0].features.shape[1]
        self.sets = iter(sets)

    def instance(self, rng):
        return self

    def actions(self, rng):
        return next(self.sets)


class Fixed:
    """A policy that plays prepared actions and records the outcomes that it receives."""

    def __init__(self, *plays):
        self.plays, self.margin, self.heard = list(plays), np.inf, []

    def select(self, actions):
        self.margin = float(len(self.plays))
        return self.plays.pop(0)

    def update(self, action, outcome):
        self.heard.append((tuple(action), outcome))


class Uniforms:
    """A stream of outcome uniforms from a list."""

    def __init__(self, *values):
        self.values = list(values)

    def random(self):
        return self.values.pop(0)


def test_who_goes_first_rotates():
    order = []

    class Listed(RandomPolicy):
        def select(self, actions):
            order.append(self.name)
            return super().select(actions)

    players = {name: Listed(np.random.default_rng(0)) for name in "abc"}
    for name, player in players.items():
        player.name = name
    run_trial(ENVIRONMENT, players, 4, trial_streams(0, "order", 0))
    assert "".join(order) == "abc" + "bca" + "cab" + "abc"


def test_rewards_and_regret_by_hand():
    first = ActionSet(np.array([[1.0], [2.0]]), np.array([[0.5, 0.25, 0.25], [0.0, 0.5, 0.5]]))
    second = ActionSet(
        np.array([[3.0], [4.0], [5.0]]), np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.25, 0.25, 0.5]])
    )
    # Expected rewards with r = (0, 1, 3): 1 and 2 in the first round, 0, 3 and 1.75 in the second.
    streams = Streams(None, None, Uniforms(0.625, 0.25), None)
    left, right = Fixed(0, 2), Fixed(1, 0)
    seen = []
    environment = Script([1.0, 3.0], first, second)
    result = run_trial(environment, {"left": left, "right": right}, 2, streams, seen.append)
    assert result.policies == ("left", "right")
    np.testing.assert_array_equal(result.n_actions, [2, 3])
    np.testing.assert_array_equal(result.action, [[0, 1], [2, 0]])
    # u = 0.625: cumulative (.5, .75, 1) and (0, .5, 1); u = 0.25: (.25, .5, 1) and (1, 1, 1).
    np.testing.assert_array_equal(result.outcome, [[1, 2], [1, 0]])
    np.testing.assert_array_equal(result.reward, [[1.0, 3.0], [1.0, 0.0]])
    np.testing.assert_array_equal(result.regret, [[1.0, 0.0], [1.25, 3.0]])
    np.testing.assert_array_equal(result.margin, [[2.0, 2.0], [1.0, 1.0]])
    assert left.heard == [((1.0,), 1), ((5.0,), 1)]
    assert right.heard == [((2.0,), 2), ((3.0,), 0)]
    assert [played.number for played in seen] == [1, 2]
    assert [played.candidates for played in seen] == [first, second]
    np.testing.assert_array_equal([played.action for played in seen], result.action)
    np.testing.assert_array_equal([played.outcome for played in seen], result.outcome)


def test_an_observer_sees_what_was_learned_and_changes_nothing():
    streams = trial_streams(1, "test", 0)
    players, seen = policies(("eofd", "random"), streams), []
    result = run_trial(ENVIRONMENT, players, 9, streams, lambda _: seen.append(players["eofd"].rounds))
    assert seen == list(range(1, 10))
    np.testing.assert_array_equal(result.action, trial(("eofd", "random"), n_rounds=9).action)


def test_regret_is_never_negative_and_optimal_play_has_none():
    class Clairvoyant(RandomPolicy):
        def select(self, actions):
            p = [np.exp(np.concatenate(([0.0], parameter @ x))) for x in actions]
            return int(np.argmax([w[1:] @ REWARDS / w.sum() for w in p]))

    streams = trial_streams(0, "optimal", 0)
    parameter = ENVIRONMENT.instance(trial_streams(0, "optimal", 0).instance).parameter
    players = {"best": Clairvoyant(streams.policy("best"))} | policies(("random",), streams)
    result = run_trial(ENVIRONMENT, players, 50, streams)
    assert (result.regret >= 0.0).all()
    np.testing.assert_array_equal(result.regret[:, 0], 0.0)
    assert result.regret[:, 1].sum() > 1.0


def test_learning_beats_random_play():
    environment = SyntheticEnvironment(4, [1.0], parameter_norm=8.0)
    streams = trial_streams(0, "learning", 0)
    settings = {"regularization": 1.0, "step_size": 2.0, "norm_bound": 8.0, "radius": RidgeRadius(1e-3)}
    players = {
        "eofd": eofd(4, [1.0], sketch_size=2, **settings),
        "oful": oful(4, [1.0], **settings),
        "random": RandomPolicy(streams.policy("random")),
    }
    regret = run_trial(environment, players, 300, streams).regret.sum(axis=0)
    assert regret[:2].max() < 0.2 * regret[2]


@pytest.mark.parametrize("n_rounds", [0, -1, 1.5, None])
def test_the_number_of_rounds_has_to_be_a_positive_integer(n_rounds):
    with pytest.raises(ValueError, match=r"n_rounds must be (at least 1|an integer)"):
        trial(n_rounds=n_rounds)
