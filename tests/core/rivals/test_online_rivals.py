"""What all online rivals share: defaults of the theory, errors, copies, and choices that learn nothing."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest

from mlogb_core.rivals import (
    CBSCFD,
    GLBOMD,
    OL2M,
    SGDTS,
    SOFUL,
    ECOLog,
    EpsilonGreedy,
    SquareCB,
)

D, S = 5, 2.0
WIDE = {"norm_bound": S, "confidence": 0.1, "scale": 0.1}
LOGIT = {
    "ol2m": lambda **o: OL2M(D, [1.0], **WIDE | o),
    "ecolog": lambda **o: ECOLog(D, [1.0], **WIDE | o),
    "glb-omd": lambda **o: GLBOMD(D, [1.0], **WIDE | o),
}
LINEAR = {
    "soful": lambda **o: SOFUL(D, [1.0], sketch_size=2, **WIDE | o),
    "cbscfd": lambda **o: CBSCFD(D, [1.0], sketch_size=2, **WIDE | o),
}
RANDOM = {
    "sgd-ts": lambda **o: SGDTS(D, [1.0], **{"rng": np.random.default_rng(3)} | o),
    "epsilon-greedy": lambda **o: EpsilonGreedy(
        D, [1.0], sketch_size=2, norm_bound=S, **{"rng": np.random.default_rng(3)} | o
    ),
    "squarecb": lambda **o: SquareCB(
        D, [1.0], sketch_size=2, norm_bound=S, **{"rng": np.random.default_rng(3)} | o
    ),
}
ALL = LOGIT | LINEAR | RANDOM


def play(policy, n_rounds, seed):
    rng, chosen = np.random.default_rng(seed), []
    for _ in range(n_rounds):
        actions = rng.standard_normal((6, D)) / 2
        chosen.append(policy.select(actions))
        policy.update(actions[chosen[-1]], int(rng.integers(2)))
    return chosen


@pytest.mark.parametrize("name", ALL)
def test_a_copy_goes_on_alone_and_alike(name):
    policy = ALL[name]()
    play(policy, 12, seed=0)
    twins = copy.deepcopy(policy), copy.copy(policy), pickle.loads(pickle.dumps(policy))
    chosen = play(policy, 20, seed=1)
    assert len(set(chosen)) > 2
    for twin in twins:  # Each would meet what another had learned if they shared arrays.
        assert twin.rounds == 12
        assert play(twin, 20, seed=1) == chosen


@pytest.mark.parametrize("name", ALL)
def test_the_same_stream_gives_the_same_choices(name):
    assert play(ALL[name](), 20, seed=2) == play(ALL[name](), 20, seed=2)


@pytest.mark.parametrize("name", RANDOM)
def test_another_stream_gives_other_choices(name):
    other = ALL[name](rng=np.random.default_rng(7))
    assert play(ALL[name](), 20, seed=2) != play(other, 20, seed=2)


@pytest.mark.parametrize("name", LOGIT | LINEAR)
def test_selecting_learns_nothing(name):
    policy, actions = ALL[name](), np.random.default_rng(0).standard_normal((6, D))
    play(policy, 8, seed=0)
    before = policy.scores(actions)
    policy.select(actions)
    np.testing.assert_array_equal(policy.scores(actions), before)


def test_what_is_not_given_is_that_of_the_theory():
    ol2m, ecolog, glb = (ALL[name](feature_bound=3.0) for name in LOGIT)
    assert ol2m.curvature.regularization == D
    assert ecolog.curvature.regularization == pytest.approx(32 / 7 * D * (2 + 2 * S * 3) * 9)
    assert glb.step_size == 1 + S * 3
    assert glb.curvature.regularization == pytest.approx(14 * D * 7 * 9)
    narrow = GLBOMD(1, [1.0], norm_bound=10.0, confidence=0.1)
    assert narrow.curvature.regularization == pytest.approx(1.5 * 11 * 10)
    alpha = 2 * (1 + S) + math.log(2)
    squarecb = ALL["squarecb"]()
    assert squarecb.step_size == pytest.approx(alpha / 2)
    assert squarecb.curvature.regularization == pytest.approx(24 * D * alpha)


@pytest.mark.parametrize("kind", [OL2M, ECOLog, GLBOMD])
def test_methods_for_two_outcomes_refuse_more(kind):
    message = rf"rewards must have shape \(1,\) for {kind.__name__}, .* \(K = 1\), got \(2,\)"
    with pytest.raises(ValueError, match=message):
        kind(D, [0.5, 1.0], **WIDE)
    with pytest.raises(ValueError, match=r"for SGDTS"):
        SGDTS(D, [0.5, 1.0], rng=np.random.default_rng(0))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("scale", -1.0, "scale must be at least 0, got -1"),
        ("regularization", 0.0, "regularization must be positive, got 0"),
        ("norm_bound", math.inf, "norm_bound must be finite"),
        ("confidence", 1.0, "confidence must lie strictly between 0 and 1, got 1"),
        ("feature_bound", 0.0, "feature_bound must be positive, got 0"),
        ("step_size", -2.0, "step_size must be positive, got -2"),
        ("rng", 3, r"rng must be a numpy\.random\.Generator, got 3"),
        ("exploration", 0.0, "exploration must be positive, got 0"),
        ("deviations", (1.0, -1.0), "deviations must be at least 0, got -1"),
        ("deviations", 3.0, "deviations must be two numbers, got 3"),
        ("tie_tolerance", -1.0, "tie_tolerance must be at least 0"),
    ],
)
def test_bad_arguments_are_named(name, argument, value, message):
    """An argument that a rival does not have is refused by Python itself."""
    with pytest.raises((ValueError, TypeError), match=f"{message}|(unexpected|multiple).* '{argument}'"):
        ALL[name](**{argument: value})


def test_a_bound_whose_exponential_overflows_is_refused():
    with pytest.raises(
        ValueError, match="norm_bound times feature_bound must be at most 700 in OL2M, got 800"
    ):
        ALL["ol2m"](norm_bound=400.0, feature_bound=2.0)


@pytest.mark.parametrize("name", ALL)
def test_bad_rounds_are_named_and_change_nothing(name):
    policy = ALL[name]()
    play(policy, 3, seed=0)
    with pytest.raises(ValueError, match=rf"actions must have shape \(n, {D}\)"):
        policy.select(np.ones((4, D - 1)))
    with pytest.raises(ValueError, match=r"outcome must be in 0\.\.1, got 2"):
        policy.update(np.ones(D), 2)
    with pytest.raises(ValueError, match="action must be finite"):
        policy.update(np.full(D, np.nan), 1)
    assert policy.rounds == 3


@pytest.mark.parametrize("name", [name for name in ALL if name != "sgd-ts"])
def test_an_overflow_names_the_round(name):
    policy = ALL[name]()
    play(policy, 3, seed=0)
    if name not in LINEAR:
        policy.parameter = np.full((1, D), 10.0)
    with pytest.raises(ArithmeticError, match="round 4: "):
        policy.select(np.full((2, D), 1e308))


@pytest.mark.parametrize("name", ["ol2m", "ecolog", "glb-omd", "epsilon-greedy", "squarecb"])
def test_states_that_are_not_kept_are_refused(name):
    policy = ALL[name]()
    for call in (policy.state_dict, lambda: type(policy).from_state({})):
        with pytest.raises(NotImplementedError, match=rf"{type(policy).__name__} has no saved state"):
            call()
