"""The compiled round against the NumPy form and the literal algorithms."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from helpers import STREAMS, action_stream

from mlogb_core import OptimisticPolicy, RidgeRadius, TheoremRadius, eofd, oful
from mlogb_core.curvature import NoCurvature

pytest.importorskip("numba", reason="the compiled form is the optional extra [fast]")

SETTINGS = {"regularization": 1.0, "step_size": 2.0, "norm_bound": 2.0}
SIZES = [(4, 100, 40), (1, 60, 6), (2, 30, 5), (1, 12, 12), (3, 7, 40), (12, 5, 9), (5, 4, 1), (1, 9, 1)]
CLOSE = 1e-12  # the largest difference seen is 3e-14


def pair(kind, K, d, m, **changes):
    rewards = np.linspace(0.0, 1.0, K + 1)[1:]
    settings = SETTINGS | {"radius": RidgeRadius(40.0 if K == 1 else 0.1)} | changes
    if kind == "eofd":
        settings["sketch_size"] = m
    maker = {"eofd": eofd, "oful": oful}[kind]
    return maker(d, rewards, **settings), maker(d, rewards, compiled=True, **settings)


def sets(rng, d, rounds, n=12):
    for _ in range(rounds):
        actions = rng.standard_normal((int(rng.integers(1, n + 1)), d))
        yield actions / np.linalg.norm(actions, axis=1, keepdims=True)


def assert_same_play(plain, fast, rng, rounds, close=CLOSE):
    K, d = plain.parameter.shape
    projected = 0
    for actions in sets(rng, d, rounds):
        np.testing.assert_allclose(fast.scores(actions), plain.scores(actions), rtol=1e-9, atol=1e-9)
        chosen = plain.select(actions)
        assert fast.select(actions) == chosen
        assert fast.margin == pytest.approx(plain.margin, rel=1e-6, abs=1e-13)
        assert 1 <= fast.evaluated <= len(actions)
        outcome = int(rng.integers(K + 1))
        played = actions[chosen] if rng.random() < 0.8 else actions[rng.integers(len(actions))]
        plain.update(played, outcome)
        fast.update(played, outcome)
        projected += np.linalg.norm(plain.parameter) > plain.norm_bound * (1 - 1e-12)
        np.testing.assert_allclose(fast.parameter, plain.parameter, rtol=0, atol=close)
        assert fast.beta == pytest.approx(plain.beta, rel=1e-9)
    assert projected > 0
    size = np.linalg.norm(plain.curvature.dense(), 2)
    np.testing.assert_allclose(fast.curvature.dense(), plain.curvature.dense(), rtol=0, atol=1e-12 * size)
    assert fast.curvature.shrinkage == pytest.approx(plain.curvature.shrinkage, rel=1e-11, abs=1e-12)


@pytest.mark.parametrize(("K", "d", "m"), SIZES)
@pytest.mark.parametrize("kind", ["eofd", "oful"])
@pytest.mark.parametrize("prune", [True, False])
def test_the_same_play(kind, K, d, m, prune, monkeypatch):
    if prune:  # the NumPy form too
        monkeypatch.setattr("mlogb_core.policies._CHEAP", 0)
    plain, fast = pair(kind, K, d, m)
    assert type(fast) is not type(plain)
    assert_same_play(plain, fast, np.random.default_rng(K * d), 150)


@pytest.mark.parametrize("name", ["_SMALL", "_WIDE"])
@pytest.mark.parametrize("limit", [0, 10**6])
def test_both_ways_of_a_product_and_of_the_projection(name, limit, monkeypatch):
    monkeypatch.setattr(f"mlogb_core.compiled.{name}", limit)
    assert_same_play(*pair("eofd", 2, 30, 12, norm_bound=0.5), np.random.default_rng(1), 150)


def test_a_buffer_and_the_theorems_radius():
    radius = TheoremRadius(1e-3, scale=1e-3)
    assert_same_play(*pair("eofd", 3, 20, 9, buffer=3, radius=radius), np.random.default_rng(2), 150)


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize(("K", "d", "m"), [(1, 9, 4), (3, 6, 8), (2, 4, 8)])
def test_degenerate_streams(kind, K, d, m):
    plain, fast = pair("eofd", K, d, m)
    rng = np.random.default_rng(0)
    for x in action_stream(kind, 250, d, seed=3):
        outcome = int(rng.integers(K + 1))
        assert plain.select(x[None]) == fast.select(x[None]) == 0
        plain.update(x, outcome)
        fast.update(x, outcome)
        np.testing.assert_allclose(fast.parameter, plain.parameter, rtol=0, atol=1e-11)
        basis = fast.curvature.basis
        assert np.abs(basis @ basis.T - np.eye(len(basis))).max(initial=0.0) <= 1e-13
    assert fast.curvature.rank == plain.curvature.rank


@pytest.mark.parametrize("kind", ["eofd", "oful"])
@pytest.mark.parametrize("first", [0, 1])
def test_either_form_goes_on_from_a_state_of_the_other(kind, first):
    policies = pair(kind, 2, 10, 6)
    rng = np.random.default_rng(3)
    stream = [(actions, int(rng.integers(3))) for actions in sets(rng, 10, 60)]
    for policy in policies:
        for actions, outcome in stream[:30]:
            policy.update(actions[policy.select(actions)], outcome)
    state = policies[first].state_dict()
    assert state["compiled"] == bool(first)
    other = OptimisticPolicy.from_state(state | {"compiled": not first})
    assert type(other) is type(policies[1 - first])
    for actions, outcome in stream[30:]:
        chosen = policies[first].select(actions)
        assert other.select(actions) == chosen
        for policy in (policies[first], other):
            policy.update(actions[chosen], outcome)
    np.testing.assert_allclose(other.parameter, policies[first].parameter, rtol=0, atol=CLOSE)


def test_greedy_play_and_overflow():
    rng = np.random.default_rng(4)
    plain, fast = pair("eofd", 3, 8, 5, radius=RidgeRadius(0.0))
    for actions in sets(rng, 8, 20):
        chosen = plain.select(actions)
        assert fast.select(actions) == chosen
        assert fast.evaluated == 0
        plain.update(actions[chosen], 1)
        fast.update(actions[chosen], 1)
    _, fast = pair("eofd", 1, 3, 2)
    with pytest.raises(ArithmeticError, match=r"round 1: .*overflow"):
        fast.select(np.full((2, 3), 1e200))


def test_only_two_curvatures_have_kernels():
    from mlogb_core.compiled import CompiledPolicy

    with pytest.raises(ValueError, match="curvature must be a sketch or the full Hessian"):
        CompiledPolicy(NoCurvature(1, 2, 1.0), [1.0], step_size=1.0, norm_bound=1.0, radius=RidgeRadius(1.0))


def test_without_numba_the_message_says_what_to_install():
    program = (
        "import sys; sys.modules['numba'] = None\n"
        "from mlogb_core import RidgeRadius, oful\n"
        "settings = dict(regularization=1.0, step_size=1.0, norm_bound=1.0, radius=RidgeRadius(1.0))\n"
        "oful(2, [1.0], **settings)\n"
        "try:\n    oful(2, [1.0], compiled=True, **settings)\n"
        "except ImportError as error:\n    print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "compiled=True needs numba: pip install .[fast]"
