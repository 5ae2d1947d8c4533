"""What breaks algorithms: degenerate actions, extreme settings, long runs, failures, and odd input."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import math
import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from helpers import (
    EPS,
    assert_same_state,
    exact,
    exact_hessian,
    exact_low_rank,
    exact_step,
    random_round,
    random_rounds,
    shifted_softmax,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import mlogb_core
from mlogb_core import (
    ConstantRadius,
    OptimisticPolicy,
    RidgeRadius,
    TheoremRadius,
    eofd,
    first_order,
    oful,
    robust_eofd,
)
from mlogb_core.literal import LiteralEOFD, LiteralOFUL, Sketch

BUILDERS = {"eofd": eofd, "robust_eofd": robust_eofd, "oful": oful, "first_order": first_order}


def options_of(kind):
    """The builder's name and the keywords that a kind stands for."""
    name, *words = kind.split()
    options = {
        keyword: int(value) if value else True for keyword, _, value in (w.partition("=") for w in words)
    }
    return name, options


def is_available(kind):
    """Whether the library has the kind, and the environment what it needs."""
    name, options = options_of(kind)
    known = options.keys() <= inspect.signature(BUILDERS[name]).parameters.keys()
    return known and ("compiled" not in options or importlib.util.find_spec("numba") is not None)


VARIANTS = ("eofd", "eofd compiled", "eofd buffer=3", "eofd buffer=3 compiled", "oful", "oful compiled")
ALL = (*filter(is_available, VARIANTS), "robust_eofd", "first_order")
SKETCHES = tuple(k for k in ALL if k.startswith("eofd") and "buffer" not in k)  # the iterates of Algorithm 2
BUFFERED = tuple(k for k in ALL if "buffer" in k)
EXACT = tuple(k for k in ALL if k.startswith("oful"))


@pytest.mark.parametrize("kind", VARIANTS)
def test_all_variants_are_tested_here(kind):
    """Tells which are left out: the other tests run over those that there are."""
    if not is_available(kind):
        pytest.skip(f"{kind}: the library has no such option, or numba is missing")


def make(kind, K, d, m=4, **changes):
    """A policy of the kind."""
    name, options = options_of(kind)
    arguments = {"regularization": 0.5, "step_size": 1.5, "norm_bound": 2.0, "radius": RidgeRadius(0.3)}
    arguments |= {"rewards": np.linspace(0.0, 1.0, K + 1)[1:]}
    arguments |= {"sketch_size": m} if "eofd" in name else {}
    return BUILDERS[name](d, **(arguments | options | changes))


def literal_of(kind, policy, **changes):
    """The literal algorithm with the settings of the policy."""
    arguments = {
        "regularization": policy.curvature.regularization,
        "step_size": policy.step_size,
        "norm_bound": policy.norm_bound,
        "radius": policy.radius,
    } | changes
    d = policy.curvature.n_features
    if kind.startswith("eofd"):
        return LiteralEOFD(d, policy.rewards, sketch_size=policy.curvature.sketch_size, **arguments)
    return LiteralOFUL(d, policy.rewards, **arguments)


# Degenerate streams --------------------------------------------------------------------------------

STREAMS = (
    "all zero",
    "zero rows",
    "duplicates",
    "one action",
    "one arm",
    "eight arms",
    "inside the span",
    "nearly inside the span",
    "two scales in turn",
    "two scales in a set",
    "axes",
    "collinear",
)

# After x = 0 the parameter is where it was, on the sphere up to the last bit, which may be outside.
ZERO_ROWS = "zero rows"


def action_sets(stream, rounds, n, d, seed):
    """Action sets that are degenerate in a named way."""
    rng = np.random.default_rng(seed)
    unit = unit_rows(rng, 8, d)
    for t in range(rounds):
        A = unit_rows(rng, n, d)
        if stream == "all zero":
            A = np.zeros((n, d))
        elif stream == "zero rows":
            A[rng.random(n) < 0.5] = 0.0
        elif stream == "duplicates":
            A = A[rng.integers(max(1, n // 3), size=n)]
        elif stream == "one action":
            A = A[:1]
        elif stream == "one arm":
            A = unit[:1]
        elif stream == "eight arms":
            A = unit
        elif stream.endswith("inside the span"):
            noise = 10.0 ** -int(rng.integers(8, 17)) if stream.startswith("nearly") else 0.0
            A = rng.standard_normal((n, 2)) @ unit[:2] + noise * A
        elif stream == "two scales in turn":
            A *= 1e-4 if t % 2 else 1.0
        elif stream == "two scales in a set":
            A *= rng.choice([1e-4, 1.0], size=(n, 1))
        elif stream == "axes":
            A = np.eye(d)[rng.integers(d, size=n)]
        elif stream == "collinear":
            A = rng.standard_normal((n, 1)) * unit[:1]
        yield np.ascontiguousarray(A)


def unit_rows(rng, n, d):
    A = rng.standard_normal((n, d))
    return A / np.linalg.norm(A, axis=1, keepdims=True)


class Run:
    """A policy on a stream of action sets, with what must hold of its sketch after every round.

    The parameter of a random model decides the outcomes. Every fourth round plays another action than
    the selected one, as `update` allows.
    """

    def __init__(self, policy, seed=0):
        self.policy = policy
        self.rng = np.random.default_rng(seed)
        K, d = policy.parameter.shape
        self.truth = self.rng.standard_normal((K, d))
        self.truth *= policy.norm_bound / np.linalg.norm(self.truth)
        self.traces = []
        self.shrinkage = policy.curvature.shrinkage

    def round(self, actions, chosen):
        """Learn from one of the actions; which one, and the outcome."""
        other = int(self.rng.integers(len(actions)))
        played = other if self.rng.random() < 0.25 else chosen
        x = actions[played]
        p = shifted_softmax(self.truth @ x)
        outcome = min(int(np.searchsorted(np.cumsum(p), self.rng.random())), len(p) - 1)
        self.policy.update(x, outcome)
        p = shifted_softmax(self.policy.parameter @ x)[1:]
        self.traces.append(float((p * (1.0 - p)).sum() * (x @ x)))
        return x, outcome

    def check(self):
        """Orthonormal basis, positive semidefinite core, and nothing lost or invented in the trace."""
        policy, sketch = self.policy, self.policy.curvature
        K, d = policy.parameter.shape
        assert np.isfinite(policy.parameter).all()
        assert np.linalg.norm(policy.parameter) <= policy.norm_bound * (1.0 + 1e-12)
        assert sketch.shrinkage >= self.shrinkage
        self.shrinkage = sketch.shrinkage
        if not hasattr(sketch, "basis") or policy.curvature.rank_bound == 0:
            return
        r, m = len(sketch.basis), sketch.sketch_size
        buffer = getattr(sketch, "buffer", 1)
        assert sketch.basis.shape == (r, K * d)
        assert sketch.core.shape == (r, r)
        assert r <= min(K * d, m + (buffer - 1) * K)
        assert off_orthonormal(sketch.basis) <= 1e-12
        values = np.linalg.eigvalsh(sketch.core) if r else np.zeros(1)
        assert values[0] >= -1e-12 * np.abs(values).max()
        np.testing.assert_allclose(sketch.core, sketch.core.T, rtol=0, atol=1e-13 * np.abs(values).max())
        # A shrink by s takes s from each of m values and up to s from each direction that it drops, of
        # which there is at least one (whose value is s itself) and at most K times the buffer.
        added = math.fsum(self.traces)
        missing = added - float(np.trace(sketch.core))
        assert missing >= (m + 1) * sketch.shrinkage - 1e-12 * added
        assert missing <= (m + K * buffer) * sketch.shrinkage + 1e-12 * added


def off_orthonormal(basis):
    return np.abs(basis @ basis.T - np.eye(len(basis))).max(initial=0.0)


class Followed(NamedTuple):
    """What came out of following a policy with the literal algorithm."""

    rounds: int  # until the literal algorithm stopped, if it did
    parameter: float  # largest |W - W_literal|
    shrinkage: float  # largest |rho - rho_literal|


def follow(policy, literal, sets, seed=0, check_every=1):
    """The literal algorithm beside the policy: same actions for as long as it survives."""
    run = Run(policy, seed)
    alive, parameter, shrinkage = 0, 0.0, 0.0
    for t, actions in enumerate(sets):
        chosen = policy.select(actions)
        if alive == t and (expected := attempt(literal.select, actions)) is not None:
            assert chosen == expected, f"round {t + 1}: margin {policy.margin}"
        x, outcome = run.round(actions, chosen)
        if t % check_every == 0:
            run.check()
        if alive == t and attempt(literal.update, x, outcome, default=True) is None:
            alive += 1
            parameter = max(parameter, np.abs(policy.parameter - literal.parameter).max())
            shrinkage = max(shrinkage, abs(policy.curvature.shrinkage - literal.shrinkage))
    run.check()
    return Followed(alive, parameter, shrinkage)


def attempt(call, *arguments, default=None):
    """What the literal algorithm returns, or the default where it does not survive the input."""
    try:
        return call(*arguments)
    except (np.linalg.LinAlgError, ArithmeticError, ValueError):
        return default


@pytest.mark.each_value
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("kind", SKETCHES)
@pytest.mark.parametrize(("K", "d", "m"), [(1, 12, 4), (3, 6, 5), (2, 5, 6)])
def test_degenerate_streams_play_the_literal_algorithm(K, d, m, kind, stream):
    policy = make(kind, K, d, m, norm_bound=1.0)
    result = follow(policy, literal_of(kind, policy), action_sets(stream, 150, 6, d, seed=K))
    assert result.rounds == 150
    assert result.parameter <= 1e-11
    assert result.shrinkage <= 1e-11


@pytest.mark.each_value
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize(("K", "d"), [(1, 7), (3, 4)])
def test_degenerate_streams_play_the_full_matrix(K, d, kind, stream):
    policy = make(kind, K, d, norm_bound=1.0)
    result = follow(policy, literal_of(kind, policy), action_sets(stream, 100, 6, d, seed=K))
    assert result.rounds == 100
    assert result.parameter <= 1e-11


@pytest.mark.each_value
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("kind", BUFFERED)
@pytest.mark.parametrize(("K", "d", "m"), [(1, 12, 4), (3, 6, 5), (2, 5, 10)])
def test_degenerate_streams_in_a_buffered_sketch(K, d, m, kind, stream):
    run = Run(make(kind, K, d, m, norm_bound=1.0))
    for actions in action_sets(stream, 100, 6, d, seed=K):
        run.round(actions, run.policy.select(actions))
        run.check()


@pytest.mark.parametrize("kind", SKETCHES)
def test_an_action_in_the_span_brings_no_direction(kind):
    """Not even in the last bits: after both directions are known the basis spans the same plane."""
    K, d = 2, 30
    policy = make(kind, K, d, 50)
    plane = unit_rows(np.random.default_rng(3), 2, d)
    run = Run(policy)
    for t, weights in enumerate(np.random.default_rng(4).standard_normal((200, 3, 2))):
        actions = weights @ plane * (1.0, 1e-4)[t % 2]
        run.round(actions, policy.select(actions))
        run.check()
    assert len(policy.curvature.basis) == 2 * K
    normal = np.linalg.svd(plane)[2][2:]
    assert np.abs(np.kron(np.eye(K), normal) @ policy.curvature.basis.T).max() <= 1e-11


@pytest.mark.slow
@pytest.mark.parametrize("kind", SKETCHES)
@pytest.mark.parametrize("stream", ["eight arms", "two scales in turn", ZERO_ROWS, "inside the span"])
@pytest.mark.parametrize(("K", "d", "m", "rounds"), [(1, 40, 6, 20_000), (3, 6, 5, 5000)])
def test_degenerate_streams_for_thousands_of_rounds(kind, stream, K, d, m, rounds):
    # The iteration itself lets roundoff in W grow where the sketch is one direction short: after 12,000
    # rounds inside the span at K = 3 any two implementations differ by 2e-11, the literal one with
    # itself in other coordinates included.
    policy = make(kind, K, d, m)
    sets = action_sets(stream, rounds, 8, d, seed=5)
    result = follow(policy, literal_of(kind, policy), sets, check_every=20)
    assert result.rounds == rounds
    assert result.parameter <= 1e-10
    assert result.shrinkage <= 1e-11 * max(1.0, policy.curvature.shrinkage)


@st.composite
def rough_rounds(draw):
    """Sizes, settings, and rounds whose actions come from a small pool in changing scales."""
    K, d = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    m = draw(st.sampled_from([1, max(1, K * d - 1), K * d, K * d + 5]) | st.integers(1, K * d))
    pool = unit_rows(np.random.default_rng(draw(st.integers(0, 10**6))), 5, d)
    scale = st.sampled_from([0.0, 1e-8, 1e-4, 1.0, 1.0, 30.0])
    row = st.tuples(st.integers(0, 4), scale)
    sets = draw(st.lists(st.lists(row, min_size=1, max_size=4), min_size=1, max_size=25))
    changes = {
        "regularization": draw(st.sampled_from([1e-3, 0.5, 1e3])),
        "step_size": draw(st.sampled_from([0.1, 1.5, 20.0])),
        "norm_bound": draw(st.sampled_from([1e-3, 1.0, 50.0])),
    }
    return K, d, m, changes, [np.array([scale * pool[i] for i, scale in rows]) for rows in sets]


@pytest.mark.parametrize("kind", SKETCHES)
def test_rough_rounds_play_the_literal_algorithm(kind):
    @given(rough_rounds())
    @settings(max_examples=60)
    def check(case):
        K, d, m, changes, sets = case
        policy = make(kind, K, d, m, **changes)
        result = follow(policy, literal_of(kind, policy), sets)
        condition = 1.0 + 25.0 * 900.0 / changes["regularization"]
        assert result.parameter <= 20.0 * EPS * condition * changes["norm_bound"]

    check()


# Sizes ---------------------------------------------------------------------------------------------


@pytest.mark.each_value
@pytest.mark.parametrize("size", ["1", "Kd - 1", "Kd", "Kd + 5"])
@pytest.mark.parametrize(("K", "d"), [(1, 9), (1, 1), (3, 5), (12, 1), (12, 3)])
@pytest.mark.parametrize("kind", SKETCHES)
def test_extreme_sketch_sizes(kind, K, d, size):
    m = {"1": 1, "Kd - 1": max(1, K * d - 1), "Kd": K * d, "Kd + 5": K * d + 5}[size]
    rounds = 40 if K == 12 else 120
    policy = make(kind, K, d, m)
    sets = list(action_sets("generic", rounds, 4, d, seed=7))
    result = follow(policy, literal_of(kind, policy), sets)
    assert result.rounds == rounds
    assert result.parameter <= 1e-11
    assert result.shrinkage <= 1e-11
    assert policy.curvature.shrinkage > 0.0 if m < K * d else policy.curvature.shrinkage == 0.0
    if m >= K * d:
        full, run = make("oful", K, d), Run(make(kind, K, d, m))
        for actions in sets:
            chosen = run.policy.select(actions)
            assert full.select(actions) == chosen
            full.update(*run.round(actions, chosen))
            np.testing.assert_allclose(run.policy.parameter, full.parameter, rtol=0, atol=1e-11)


# Drift ---------------------------------------------------------------------------------------------

DRIFT = 1e-11


def restarted(policy):
    """The literal algorithm from where the policy stands, on an exactly orthonormal eigenbasis."""
    literal = literal_of("eofd", policy)
    Q, R = np.linalg.qr(policy.curvature.basis.T)
    values, U = np.linalg.eigh(R @ policy.curvature.core @ R.T)
    literal.sketch = Sketch(Q @ U[:, ::-1], np.maximum(values[::-1], 0.0), policy.curvature.shrinkage)
    literal.parameter = policy.parameter.copy()
    literal.rounds = policy.rounds
    return literal


@pytest.mark.slow
@pytest.mark.parametrize("kind", SKETCHES)
@pytest.mark.parametrize(("rounds", "restarts"), [(5000, [2500, 4800]), (100_000, [50_000, 99_800])])
def test_there_is_no_drift(kind, rounds, restarts):
    """Play the literal algorithm from the start, from each restart, and keep the trace of all that was added.

    For K = 1 each shrink by s takes exactly (m + 1) s from the trace, so that trace(C) + (m + 1) rho
    is the sum of what was added; that sum is kept without rounding.
    """
    K, d, m = 1, 100, 10
    policy = make(kind, K, d, m, norm_bound=4.0)
    literals = {0: literal_of("eofd", policy)}
    run = Run(policy, seed=11)
    for t, actions in enumerate(action_sets("generic", rounds, 4, d, seed=12)):
        if t in restarts:
            literals = {0: literals[0], t: restarted(policy)}
        chosen = policy.select(actions)
        x, outcome = run.round(actions, chosen)
        for start, literal in literals.items():
            assert literal.select(actions) == chosen, (start, t, policy.margin)
            literal.update(x, outcome)
            assert np.abs(policy.parameter - literal.parameter).max() <= DRIFT, (start, t)
        if t % 50 == 49 or t == rounds - 1:
            run.check()
            sketch = policy.curvature
            for start, literal in literals.items():
                scale = literal.sketch.values[0]
                assert abs(sketch.shrinkage - literal.shrinkage) <= DRIFT * literal.shrinkage, (start, t)
                difference = np.abs(sketch.spectrum() - literal.sketch.values).max()
                assert difference <= DRIFT * scale, (start, t)
            added = math.fsum(run.traces)
            assert abs(np.trace(sketch.core) + (m + 1) * sketch.shrinkage - added) <= DRIFT * added
            assert off_orthonormal(sketch.basis) <= DRIFT
    assert policy.smallest_margin > 1e-11
    assert policy.curvature.shrinkage > 10.0


# Extreme settings ----------------------------------------------------------------------------------


def exact_identity(policy):
    return exact(policy.curvature.regularization * np.eye(policy.parameter.size))


@pytest.mark.each_value
@pytest.mark.parametrize("exponent", range(-8, 9, 4))
@pytest.mark.parametrize("K", [1, 2])
@pytest.mark.parametrize("kind", ALL)
def test_regularization_from_1e_8_to_1e8(kind, K, exponent):
    """Every step against the same step in 60 digits, from the same W."""
    d = 4 // K
    policy = make(kind, K, d, 2, regularization=10.0**exponent)
    full = exact_identity(policy)
    rng = np.random.default_rng(exponent + 20)
    outside = 0
    for t in range(12):
        actions = unit_rows(rng, 3, d)
        chosen = policy.select(actions)
        x, outcome, W = actions[chosen], int(rng.integers(K + 1)), policy.parameter.copy()
        Z = full if kind in EXACT else exact_low_rank(policy.curvature)
        expected, excess = exact_step(Z, W, x, outcome, 1.5, 2.0)
        policy.update(x, outcome)
        full = full + exact_hessian(policy.parameter, x)
        condition = 1.0 + (t + 1.5) / policy.curvature.regularization
        length = min(2.0, 2.0 * excess)
        np.testing.assert_allclose(policy.parameter, expected, rtol=0, atol=30 * EPS * condition * length)
        outside += excess > 1.0
    assert outside > 0 if exponent < 0 else exponent == 0 or outside == 0


def tried(call, *arguments):
    """What the call returns and None, or None and the ArithmeticError that it raises."""
    try:
        return call(*arguments), None
    except ArithmeticError as error:
        return None, error


def round_in(error):
    """The round that the message of an error names."""
    found = re.search(r"\bround (\d+)", str(error))
    assert found, str(error)
    return int(found.group(1))


@pytest.mark.parametrize("kind", [*SKETCHES, *BUFFERED, *EXACT])
def test_a_regularization_that_double_precision_cannot_carry(kind):
    """Too small beside the largest eigenvalue: an error that says so, and the policy as it was."""
    policy = make(kind, 2, 4, 5, regularization=1e-20)
    rng = np.random.default_rng(0)
    error = None
    while error is None:
        assert policy.rounds < 60
        x, outcome, before = unit_rows(rng, 1, 4)[0], int(rng.integers(3)), policy.state_dict()
        _, error = tried(policy.update, x, outcome)
    assert "regularization" in str(error)
    assert round_in(error) in (policy.rounds, policy.rounds + 1)
    assert_same_state(before, policy.state_dict())


@pytest.mark.each_value
@pytest.mark.parametrize("exponent", [-300, -30, -20, -16, -14, -12, -10, 12, 30])
@pytest.mark.parametrize("kind", ALL)
def test_any_regularization_is_carried_or_refused(kind, exponent):
    policy = make(kind, 2, 4, 5, regularization=10.0**exponent)
    run = Run(policy)
    for actions in action_sets("generic", 40, 4, 4, seed=1):
        before = policy.state_dict()
        chosen, error = tried(policy.select, actions)
        if error is None:
            before = policy.state_dict()
            _, error = tried(run.round, actions, chosen)
        if error is not None:
            assert exponent < -12, error
            assert "regularization" in str(error)
            assert_same_state(before, policy.state_dict())
            return
        run.check()


def warmed(kind, K, d, m, **changes):
    """A policy after ten rounds, and its Z in Decimal."""
    policy = make(kind, K, d, m, **changes)
    full = exact_identity(policy)
    rng = np.random.default_rng(21)
    for x in unit_rows(rng, 10, d):
        policy.update(x, int(rng.integers(K + 1)))
        full = full + exact_hessian(policy.parameter, x)
    return policy, full if kind in EXACT else exact_low_rank(policy.curvature)


@pytest.mark.each_value
@pytest.mark.parametrize("excess", [1e-15, 1e-12, 1e-8, 1e-3, 1.0, 1e3, 1e6, 1e12])
@pytest.mark.parametrize("kind", ALL)
def test_a_step_that_ends_outside_the_ball(kind, excess):
    """|W'| = (1 + excess) S: from the last bit above S to a step of 1e12 times S, against 60 digits."""
    policy, Z = warmed(kind, 2, 3, 4, norm_bound=1e3)
    start = policy.parameter if excess < 1.0 else np.zeros_like(policy.parameter)
    x = np.array([0.3, -0.8, 0.5])
    S = exact_step(Z, start, x, 1, 1.5, 1.0)[1] / (1.0 + excess)
    expected, ratio = exact_step(Z, start, x, 1, 1.5, S)
    assert ratio == pytest.approx(1.0 + excess, rel=1e-14)
    policy = OptimisticPolicy.from_state(policy.state_dict() | {"norm_bound": S, "parameter": start})
    policy.update(x, 1)
    # 12 is the condition number of Z or more.
    np.testing.assert_allclose(policy.parameter, expected, rtol=0, atol=12 * 10 * EPS * S)
    assert np.linalg.norm(policy.parameter) <= S * (1.0 + 1e-14)


@pytest.mark.each_value
@pytest.mark.parametrize("S", [1e-6, 1e-3, 1e4])
@pytest.mark.parametrize("kind", [*SKETCHES, *EXACT])
@pytest.mark.parametrize(("K", "d", "m"), [(1, 8, 3), (3, 4, 5)])
def test_small_and_large_balls_play_the_literal_algorithm(K, d, m, kind, S):
    policy = make(kind, K, d, m, norm_bound=S)
    result = follow(policy, literal_of(kind, policy), action_sets("generic", 150, 5, d, seed=2))
    assert result.rounds == 150
    assert result.parameter <= 1e-11 * min(S, 10.0)


@pytest.mark.each_value
@pytest.mark.parametrize("logits", [[1e3], [-1e3], [1e3, -1e3], [1e3, 1e3], [-1e3, -1e3], [1e3, 1e3 - 1.0]])
@pytest.mark.parametrize("kind", ALL)
def test_saturated_logits(kind, logits):
    K = len(logits)
    x = np.array([0.6, 0.0, -0.8])
    for outcome in range(K + 1):
        policy, Z = warmed(kind, K, 3, 4, norm_bound=3e3)
        W = np.outer(logits, x)
        policy = OptimisticPolicy.from_state(policy.state_dict() | {"parameter": W})
        assert np.isfinite(policy.scores([x, -x, 0 * x])).all()
        expected, _ = exact_step(Z, W, x, outcome, 1.5, 3e3)
        policy.update(x, outcome)
        np.testing.assert_allclose(policy.parameter, expected, rtol=0, atol=20 * EPS * 1e3)
        assert np.isfinite(policy.scores([x, -x, 0 * x])).all()


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("kind", [*SKETCHES, *EXACT])
def test_saturated_logits_play_the_literal_algorithm(kind, K):
    """Actions of length 300 in a ball of radius 4: logits up to 1,200, and curvatures of 0 and of 1e4.

    A difference in W is multiplied by 300 in the logits and grows from round to round, in exact
    arithmetic as well: few rounds, and only the actions are compared to the last one.
    """
    policy = make(kind, K, 5, 4, norm_bound=4.0, radius=ConstantRadius(1e-2))
    sets = (300.0 * actions for actions in action_sets("generic", 45, 5, 5, seed=8))
    result = follow(policy, literal_of(kind, policy), sets)
    assert result.rounds == 45
    assert result.parameter <= 1e-6


# Inputs --------------------------------------------------------------------------------------------


class Subclass(np.ndarray):
    """An array of another type, as data frames and unit libraries hand out."""


def read_only(array):
    frozen = np.array(array)
    frozen.flags.writeable = False
    return frozen


FORMS = {
    "contiguous": np.array,
    "float32": lambda a: a.astype(np.float32),
    "float16": lambda a: a.astype(np.float16),
    "longdouble": lambda a: a.astype(np.longdouble),
    "int64": lambda a: a.astype(np.int64),
    "int8": lambda a: a.astype(np.int8),
    "big-endian": lambda a: a.astype(">f8"),
    "Fortran": np.asfortranarray,
    "strided": lambda a: np.repeat(a, 3, axis=-1)[..., ::3],
    "reversed": lambda a: np.ascontiguousarray(a[..., ::-1])[..., ::-1],
    "broadcast": lambda a: np.broadcast_to(a, (2, *a.shape))[1],
    "read-only": read_only,
    "subclass": lambda a: np.array(a).view(Subclass),
    "list": lambda a: a.tolist(),
    "tuple": lambda a: tuple(map(tuple, a.tolist())) if a.ndim == 2 else tuple(a.tolist()),
    "list of arrays": lambda a: list(a),
}


@pytest.mark.each_value
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("K", [1, 3])
def test_the_form_of_the_input_does_not_matter(K, kind, form):
    """Same bytes as with contiguous float64 copies, and the caller's data as they were."""
    convert, d = FORMS[form], 5
    rewards = np.array([1.0, 2.0, 4.0])[:K]
    given_rewards = convert(rewards)
    plain = make(kind, K, d, rewards=rewards)
    other = make(kind, K, d, rewards=given_rewards)
    rng = np.random.default_rng(31)
    for t in range(15):
        actions = rng.integers(-3, 4, size=(6, d)).astype(np.float64)
        given_actions = convert(actions)
        chosen = plain.select(actions.copy())
        assert other.select(given_actions) == chosen
        np.testing.assert_array_equal(other.scores(given_actions), plain.scores(actions.copy()))
        played = chosen if t % 3 else 0
        row = convert(actions[played])
        plain.update(actions[played].copy(), t % (K + 1))
        other.update(given_actions[played] if t % 2 else row, t % (K + 1))
        for data, numbers in ((given_actions, actions), (row, actions[played])):
            np.testing.assert_array_equal(np.array(data, dtype=np.float64), numbers)
    np.testing.assert_array_equal(np.array(given_rewards, dtype=np.float64), rewards)
    assert_same_state(plain.state_dict(), other.state_dict())


CHANGES = {
    "doubled": lambda x: 2.0 * x,
    "negated": lambda x: -x,
    "rolled": lambda x: np.roll(x, 1),  # the same norm, sum and numbers
    "one entry": lambda x: np.concatenate((x[:-1], x[-1:] + 1.0)),
    "last bit": lambda x: np.nextafter(x, 9.0),
    "zero": lambda x: 0.0 * x,
}
LEARNED = ("margin", "smallest_margin")  # entries of a state that select may change


@pytest.fixture(params=ALL)
def pair(request):
    """Two policies that have learned the same twelve rounds, and an action set."""
    policies = [make(request.param, 2, 5) for _ in range(2)]
    for policy in policies:
        random_rounds(policy, 12, seed=41)
    return *policies, np.random.default_rng(42).standard_normal((6, 5))


@pytest.mark.each_value
@pytest.mark.parametrize("change", CHANGES)
def test_an_action_that_is_changed_after_select_counts_as_it_is(pair, change):
    """What select has computed of it must not be used; the other policy never selected."""
    policy, twin, actions = pair
    chosen = policy.select(actions)
    actions[chosen] = CHANGES[change](actions[chosen])
    policy.update(actions[chosen], 1)
    twin.update(actions[chosen].copy(), 1)
    assert_same_state(policy.state_dict(), twin.state_dict(), ignore=LEARNED)


def test_other_actions_that_are_changed_after_select_do_not_count(pair):
    policy, twin, actions = pair
    chosen = policy.select(actions)
    assert twin.select(actions.copy()) == chosen
    x = actions[chosen].copy()
    twin.update(x, 1)
    actions[np.arange(len(actions)) != chosen] = 7.0
    policy.update(actions[chosen], 1)
    assert_same_state(policy.state_dict(), twin.state_dict())


def test_what_select_computed_is_gone_after_an_update(pair):
    """Select, learn from another action, then from the selected one: the basis has moved on."""
    policy, twin, actions = pair
    chosen = policy.select(actions)
    for played in ((chosen + 1) % 6, chosen, chosen):
        policy.update(actions[played], 1)
        twin.update(actions[played], 1)
    assert_same_state(policy.state_dict(), twin.state_dict(), ignore=LEARNED)


def test_the_last_select_is_the_one_that_counts(pair):
    policy, twin, actions = pair
    first = policy.select(actions)
    policy.select(np.random.default_rng(43).standard_normal((6, 5)))  # as many actions, other numbers
    policy.update(actions[first], 2)
    twin.update(actions[first], 2)
    assert_same_state(policy.state_dict(), twin.state_dict(), ignore=LEARNED)


def test_one_buffer_for_all_rounds(pair):
    """A caller that refills one array each round, and hands out a row of it or a copy."""
    policy, twin, buffer = pair
    row = np.empty(5)
    rng = np.random.default_rng(44)
    for t in range(30):
        fresh = rng.standard_normal(buffer.shape)
        buffer[:] = fresh
        chosen = policy.select(buffer)
        assert twin.select(fresh) == chosen
        row[:] = buffer[chosen]
        buffer[:] = np.nan
        policy.update(row, t % 3)
        twin.update(fresh[chosen].copy(), t % 3)
        row[:] = np.nan
    assert_same_state(policy.state_dict(), twin.state_dict())


@pytest.mark.each_value
@pytest.mark.parametrize(
    "refused",
    [
        lambda policy, actions: policy.select(np.full_like(actions, np.nan)),
        lambda policy, actions: policy.scores(actions[:, 1:]),
        lambda policy, actions: policy.update(np.nan * actions[0], 1),
        lambda policy, actions: policy.update(actions[0], 3),
    ],
    ids=["select", "scores", "action", "outcome"],
)
def test_a_refused_call_between_select_and_update_changes_nothing(pair, refused):
    policy, twin, actions = pair
    chosen = policy.select(actions)
    assert twin.select(actions) == chosen
    with pytest.raises(ValueError, match=r"(actions?|outcome) must"):
        refused(policy, actions)
    policy.update(actions[chosen], 1)
    twin.update(actions[chosen], 1)
    assert_same_state(policy.state_dict(), twin.state_dict())


# Failures of LAPACK --------------------------------------------------------------------------------

ROUTINES = {
    *("eig", "eigh", "eigvalsh", "eigh_tridiagonal", "eigvalsh_tridiagonal", "svd", "svdvals", "qr", "inv"),
    *("cholesky", "cho_factor", "cho_solve", "solve", "solve_triangular", "lstsq", "ldl", "lu_factor"),
}
LAPACK_NAME = re.compile(
    r"[sd]?(potr[fsi]|posv|syev[rdx]?|stev[rdx]?|stebz|gesdd|gesvd|ge(qrf|qp3|sv)|or(gqr|mqr)|tr(tr[si]|con)|"
    r"getr[fsi]|sytr[fd]|pocon)"
)


class Site(NamedTuple):
    """A name through which the library reaches LAPACK."""

    owner: object
    name: str

    def __str__(self):
        return f"{self.owner.__name__}.{self.name}"

    @property
    def low_level(self):
        """Whether it reports a failure by a number, its last result, instead of an exception."""
        return type(getattr(self.owner, self.name)).__name__ == "fortran"


def lapack_sites():
    """Every such name in the modules of the library, found rather than listed."""
    sites = {Site(np.linalg, name) for name in ROUTINES if hasattr(np.linalg, name)}
    modules = [m for n, m in sys.modules.items() if n.startswith("mlogb_core") and not n.endswith("literal")]
    for module in modules:
        for name, value in vars(module).items():
            if isinstance(value, types.ModuleType) and value.__name__.startswith(
                ("scipy.linalg", "numpy.lin")
            ):
                sites |= {Site(value, n) for n in vars(value) if n in ROUTINES or LAPACK_NAME.fullmatch(n)}
            elif type(value).__name__ == "fortran":
                sites |= {Site(module, name)} if LAPACK_NAME.search(f"{name} {value.__doc__}") else set()
            elif callable(value) and getattr(value, "__name__", "") in ROUTINES:
                home = getattr(value, "__module__", None) or ""
                sites |= {Site(module, name)} if home.startswith(("scipy.linalg", "numpy.linalg")) else set()
    return sorted(sites, key=str)


def failing(site, calls, error):
    """The routine, failing at the given calls (all of them if None), and a list that counts its failures."""
    routine, count, hits = getattr(site.owner, site.name), [0], []

    @functools.wraps(routine, assigned=())
    def call(*arguments, **options):
        count[0] += 1
        if calls is not None and count[0] not in calls:
            return routine(*arguments, **options)
        hits.append(count[0])
        if site.low_level and issubclass(error, Exception):
            return *routine(*arguments, **options)[:-1], 1
        raise error("did not converge")

    return call, hits


def fail_everywhere(policy, operate, calls, error):
    """For each site that the operation reaches: the policy after the failure, and what was raised."""
    state = policy.state_dict()
    for site in lapack_sites():
        copy = OptimisticPolicy.from_state(state)
        operate(copy, "prepare")
        with pytest.MonkeyPatch.context() as patch:
            routine, hits = failing(site, calls, error)
            before = copy.state_dict()
            patch.setattr(site.owner, site.name, routine)
            try:
                operate(copy, "operate")
                raised = None
            except (Exception, KeyboardInterrupt) as caught:
                raised = caught
        if hits:
            yield str(site), copy, before, raised


def operation(policy, name, actions, outcome):
    """One of the calls that reach LAPACK, and what comes before it."""
    chosen = OptimisticPolicy.from_state(policy.state_dict()).select(actions)

    def operate(policy, stage):
        if stage == "operate" and name != "select":
            policy.update(actions[chosen], outcome)
        elif (stage == "prepare") == (name == "update after select"):
            policy.select(actions)

    return operate


OPERATIONS = ("select", "update", "update after select")


@pytest.mark.each_value
@pytest.mark.parametrize("calls", [[1], [2], None], ids=["first call", "second call", "every call"])
@pytest.mark.parametrize("kind", ALL)
def test_lapack_does_not_converge(kind, calls):
    """Handled, or an error that names the round, with the policy as before and fit to go on."""
    reached = set()
    policy = make(kind, 2, 6, norm_bound=0.3, radius=TheoremRadius(0.1, scale=1e-3))
    random_rounds(policy, 17, seed=51)
    for _ in range(3):  # all phases of a buffer
        random_rounds(policy, 1, seed=52)
        actions = 3.0 * np.random.default_rng(53).standard_normal((5, 6))
        for name in OPERATIONS:
            operate = operation(policy, name, actions, 2)
            twin = OptimisticPolicy.from_state(policy.state_dict())
            operate(twin, "prepare")
            operate(twin, "operate")
            for site, copy, before, raised in fail_everywhere(policy, operate, calls, np.linalg.LinAlgError):
                reached.add(site)
                if raised is None:
                    assert copy.rounds == twin.rounds, site
                    np.testing.assert_allclose(
                        copy.parameter, twin.parameter, rtol=0, atol=1e-12, err_msg=site
                    )
                    assert off_orthonormal(getattr(copy.curvature, "basis", np.eye(1))) <= 1e-12, site
                    continue
                assert isinstance(raised, ArithmeticError), (site, name, raised)
                assert round_in(raised) in (policy.rounds, policy.rounds + 1), site
                assert_same_state(before, copy.state_dict())
                operate(copy, "operate")
                assert_same_state(twin.state_dict(), copy.state_dict())
    assert reached or kind == "first_order" or calls == [2]


@pytest.mark.parametrize("kind", ALL)
def test_an_interrupt_inside_lapack_changes_nothing(kind):
    """Ctrl-C is handed on as it is."""
    policy = make(kind, 2, 6, norm_bound=0.3, radius=TheoremRadius(0.1, scale=1e-3))
    random_rounds(policy, 16, seed=51)  # A buffered sketch shrinks in the next one.
    actions = 3.0 * np.random.default_rng(53).standard_normal((5, 6))
    reached = 0
    for name in OPERATIONS:
        operate = operation(policy, name, actions, 2)
        twin = OptimisticPolicy.from_state(policy.state_dict())
        operate(twin, "prepare")
        operate(twin, "operate")
        for site, copy, before, raised in fail_everywhere(policy, operate, [1], KeyboardInterrupt):
            reached += 1
            assert isinstance(raised, KeyboardInterrupt), site
            assert_same_state(before, copy.state_dict())
            operate(copy, "operate")
            assert_same_state(twin.state_dict(), copy.state_dict())
    assert reached or kind == "first_order"


@pytest.mark.parametrize("kind", SKETCHES)
def test_a_shrink_that_fails_once_goes_on_with_the_literal_algorithm(kind, monkeypatch):
    """One failure of every routine in turn over a run: the play stays that of Algorithm 2."""
    policy = make(kind, 2, 6)
    literal = literal_of(kind, policy)
    rng = np.random.default_rng(61)
    sites = lapack_sites()
    failures = 0
    for t in range(4 * len(sites)):
        actions, outcome, site = unit_rows(rng, 4, 6), int(rng.integers(3)), sites[t % len(sites)]
        chosen = literal.select(actions)
        routine, hits = failing(site, [1], np.linalg.LinAlgError)
        with monkeypatch.context() as patch:
            patch.setattr(site.owner, site.name, routine)
            for _ in range(3):  # once in select and once in update, at most
                try:
                    assert policy.select(actions) == chosen
                    policy.update(actions[chosen], outcome)
                    break
                except (ArithmeticError, np.linalg.LinAlgError):
                    assert policy.rounds == literal.rounds
        failures += len(hits)
        literal.update(actions[chosen], outcome)
        np.testing.assert_allclose(policy.parameter, literal.parameter, rtol=0, atol=1e-11)
    assert policy.rounds == literal.rounds
    assert failures >= 4


# Going on from a state -----------------------------------------------------------------------------


def test_a_state_on_disk_goes_on_in_a_new_process(tmp_path):
    """Same actions, margin and bytes of W in the second half as without the interruption."""
    half, seed = 26, 72  # a buffer of 3 is not empty here
    policies, calls = [], []
    for kind in ALL:
        for when in ("between rounds", "between select and update"):
            policy = make(kind, 2, 9, 5, norm_bound=1.0, radius=TheoremRadius(0.1, scale=1e-3))
            random_rounds(policy, half, seed=71)
            selected = None
            if when == "between select and update":
                selected = policy.select(random_round(policy, np.random.default_rng(seed))[0])
            path = tmp_path / f"{kind} {when}.npz"
            np.savez(path, **policy.state_dict())
            policies.append(policy)
            calls.append((str(path), half, seed, selected))
    paths = [Path(mlogb_core.__file__).parents[1], Path(__file__).parents[1]]
    finished = subprocess.run(
        [sys.executable, "-c", f"from helpers import resume\nfor call in {calls}:\n    resume(*call)"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    lines = finished.stdout.splitlines()
    assert len(lines) == 2 * len(calls)
    for policy, (path, *_, selected), actions, end in zip(
        policies, calls, lines[::2], lines[1::2], strict=True
    ):
        expected = random_rounds(policy, half, seed, selected)
        assert actions.split() == list(map(str, expected)), path
        assert end == f"{policy.margin.hex()} {policy.parameter.tobytes().hex()}", path
        assert len(set(expected)) > 1, path
