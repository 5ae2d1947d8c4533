"""Extreme numbers, NumPy's floating-point errors as exceptions, and every bit generator."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pytest
from helpers import assert_same_state, random_rounds
from test_ownership import FORMS, REWARDS, SETTINGS, D
from variants import OTHERS
from variants import make as make_kind

from mlogb_core import ConstantRadius, RandomPolicy, eofd, link, oful, thompson
from mlogb_core.choice import choose
from mlogb_core.environments import SyntheticEnvironment
from mlogb_core.literal import LiteralEOFD, LiteralOFUL
from mlogb_core.simulation import run_trial, trial_streams

ERRORS = ("under", "over", "divide", "invalid", "all")
EXTREME = (0.0, 5e-324, 1e-308, -1e-300, 1.0, -745.2, 709.8, 1e3, -1e3, 1e154, -1e200, 1e308, -1e308)
LARGEST = np.finfo(np.float64).max


@pytest.fixture(params=ERRORS)
def raising(request):
    """Raise one kind of floating-point error, or all of them, and turn every warning into an error."""
    with np.errstate(**{request.param: "raise"}), warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_the_link_is_safe_for_all_finite_logits(raising):
    for a in EXTREME:
        for logits in ([a], *([a, b] for b in EXTREME)):
            p = link.outcome_probabilities(logits)
            assert p.sum() == pytest.approx(1.0, rel=1e-15)
            assert ((p >= 0.0) & (p <= 1.0)).all()
            for outcome in range(len(logits) + 1):
                loss = link.log_loss(logits, outcome)
                assert 0.0 <= loss <= LARGEST
                padded = [0.0, *logits]
                if (gap := max(padded) / 2 - padded[outcome] / 2) > 1e3 and max(map(abs, padded)) > 1e4:
                    assert loss == min(2.0 * gap, LARGEST)
                assert np.isfinite(link.loss_residual(p, outcome)).all()
            factor = link.jacobian_factor(p)
            with np.errstate(under="ignore"):  # of the test's own product
                np.testing.assert_allclose(factor @ factor.T, link.jacobian(p), rtol=1e-12, atol=1e-300)
            assert np.isfinite(link.reward_curvature(p, np.ones(len(logits)))).all()
            assert np.isfinite(link.expected_reward(p, np.ones(len(logits))))


def test_the_largest_loss_is_finite():
    assert link.log_loss([1e308, -1e308], 2) == LARGEST
    assert link.log_loss([1e308], 0) == 1e308


def makers():
    """Every policy by name; on actions of length 1,000 the logits reach 2,000."""
    changed = SETTINGS | {"norm_bound": 2.0, "radius": ConstantRadius(1e-3)}
    for kind in OTHERS:
        yield kind, lambda kind=kind: make_kind(kind, 2, D, 4, rewards=REWARDS, **changed)
    for m in (4, None):
        yield (
            f"thompson {m}",
            lambda m=m: thompson(D, REWARDS, sketch_size=m, rng=np.random.default_rng(0), **changed),
        )
    yield "eofd as printed", lambda: LiteralEOFD(D, REWARDS, sketch_size=4, **changed)
    yield "oful as printed", lambda: LiteralOFUL(D, REWARDS, **changed)
    for compiled in FORMS:
        common = changed | {"compiled": compiled}
        yield f"eofd {compiled}", lambda common=common: eofd(D, REWARDS, sketch_size=4, **common)
        yield (
            f"eofd {compiled} buffer",
            lambda common=common: eofd(D, REWARDS, sketch_size=3, buffer=2, **common),
        )
        yield f"oful {compiled}", lambda common=common: oful(D, REWARDS, **common)


def saturated(policy):
    """Rounds with actions of many sizes, whose probabilities and squares underflow."""
    rng, chosen = np.random.default_rng(5), []
    for t in range(20):
        with np.errstate(under="ignore"):
            actions = rng.standard_normal((4, D)) * (1.0, 300.0, 1e-170, 1e-310)[t % 4]
        chosen.append(policy.select(actions))
        policy.update(actions[chosen[-1]], t % 3)
    return chosen, policy.parameter


@cache
def without_errors():
    with np.errstate(all="ignore"):
        return {name: saturated(make()) for name, make in makers()}


@pytest.mark.parametrize(
    "raising",
    [*(pytest.param(name, marks=pytest.mark.slow) for name in ERRORS[:-1]), ERRORS[-1]],
    indirect=True,
)
def test_policies_play_the_same_whichever_error_is_raised(raising):
    for name, make in makers():
        policy = make()
        chosen, parameter = saturated(policy)
        expected = without_errors()[name]
        assert chosen == expected[0], name
        np.testing.assert_array_equal(parameter, expected[1], err_msg=name)
        if hasattr(policy, "summary"):
            assert np.isfinite(list(policy.summary().values())).all()
        if hasattr(policy, "scores"):
            assert np.isfinite(policy.scores(1e-200 * np.eye(D))).all()


def test_a_state_is_read_whichever_error_is_raised(raising):
    """Also that of a dyadic sketch whose columns have squares that underflow."""
    policy = make_kind("dyadic_eofd", 2, D, 1, rewards=REWARDS, **SETTINGS)
    policy.update(np.eye(D)[0], 1)
    state = policy.state_dict()
    state["curvature.columns"] = np.full_like(state["curvature.columns"], 1e-170)
    assert state["curvature.columns"].size
    assert_same_state(type(policy).from_state(state).state_dict(), state)


def test_a_trial_is_played_whichever_error_is_raised(raising):
    environment = SyntheticEnvironment(D, REWARDS, parameter_norm=3000.0, decay=250.0)
    policies = {name: make() for name, make in makers()}
    trial = run_trial(environment, policies, 5, trial_streams(0, "errors", 0))
    assert np.isfinite(trial.regret).all()


def test_an_overflow_is_told_whichever_error_is_raised(raising):
    for name, make in makers():
        if "printed" in name or "thompson" in name:  # Neither squares the lengths of the actions.
            continue
        with pytest.raises(ArithmeticError, match=r"round 1: .*overflow"):
            make().select(np.full((3, D), 1e200))
    with pytest.raises(ArithmeticError, match="scores must be finite"):
        choose(np.array([np.inf, 1.0]))


@pytest.mark.parametrize("kind", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
def test_random_play_goes_on_from_a_state_of_any_generator(kind, tmp_path):
    policy = RandomPolicy(np.random.Generator(getattr(np.random, kind)(7)))
    for _ in range(5):
        policy.select(np.ones((1000, 1)))
    np.savez(tmp_path / "state.npz", **policy.state_dict())
    with np.load(tmp_path / "state.npz") as state:
        twin = RandomPolicy.from_state(state)
    assert_same_state(twin.state_dict(), policy.state_dict())
    # The state of MT19937 holds 624 numbers; with 700 draws it is renewed.
    sizes = np.random.default_rng(0).integers(1, 1000, 700)
    assert [twin.select(np.ones((n, 1))) for n in sizes] == [policy.select(np.ones((n, 1))) for n in sizes]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"bit_generator": "Dice"}',
        '{"bit_generator": "SFC64"}',
        '{"bit_generator": "SFC64", "state": {"state": [1]}, "has_uint32": 0, "uinteger": 0}',
    ],
)
def test_a_stream_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="rng must be the state of one of"):
        RandomPolicy.from_state({"rng": text})


def test_random_play_needs_a_generator():
    with pytest.raises(ValueError, match=r"rng must be a numpy\.random\.Generator, got 3"):
        RandomPolicy(3)


def test_the_rounds_of_a_policy_that_learns_are_the_same_with_errors_raised(raising):
    policies = [eofd(D, REWARDS, sketch_size=4, **SETTINGS) for _ in range(2)]
    with np.errstate(all="ignore"):
        expected = random_rounds(policies[0], 10, seed=0)
    assert random_rounds(policies[1], 10, seed=0) == expected
