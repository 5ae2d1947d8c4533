"""Degenerate streams of actions, extreme sketch sizes and long runs, beside the literal algorithm."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers import EPS
from hypothesis import given, settings
from hypothesis import strategies as st
from variants import (
    BUFFERED,
    EXACT,
    SKETCHES,
    STREAMS,
    VARIANTS,
    ZERO_ROWS,
    Run,
    action_sets,
    follow,
    is_available,
    literal_of,
    make,
    off_orthonormal,
    one_after_the_other,
    unit_rows,
)

from mlogb_core.literal import Sketch


@pytest.mark.parametrize("kind", VARIANTS)
def test_all_variants_are_tested_here(kind):
    """The other tests run over the available kinds; this one is skipped for each kind that is missing."""
    if not is_available(kind):
        pytest.skip(f"{kind}: the library has no such option, or numba is missing")


# Degenerate streams --------------------------------------------------------------------------------


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
    """The basis stays in the span of the actions, up to roundoff, and has no further direction."""
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


LONG = ("eight arms", "two scales in turn", ZERO_ROWS, "inside the span")
# At one size all streams in one game. A whole game of each stream is very slow, at either size.
LONG_GAMES = [
    pytest.param(LONG, 3, 6, 5, 5000, id="in turn"),
    *(
        pytest.param((stream,), *size, id=f"{stream}-{size[0]}", marks=pytest.mark.very_slow)
        for stream in LONG
        for size in [(3, 6, 5, 5000), (1, 40, 6, 20_000)]
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", SKETCHES)
@pytest.mark.parametrize(("streams", "K", "d", "m", "rounds"), LONG_GAMES)
def test_degenerate_streams_for_thousands_of_rounds(kind, streams, K, d, m, rounds):
    # If the sketch lacks one direction, the iteration amplifies roundoff in W. After 12,000 rounds inside the
    # span at K = 3 any two implementations differ by 2e-11, even the literal one and itself in other
    # coordinates.
    policy = make(kind, K, d, m)
    sets = one_after_the_other(streams, rounds, 8, d, seed=5)
    result = follow(policy, literal_of(kind, policy), sets, check_every=20)
    assert result.rounds == rounds
    assert result.parameter <= 1e-10
    assert result.shrinkage <= 1e-11 * max(1.0, policy.curvature.shrinkage)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SKETCHES)
def test_eight_arms_for_2000_rounds(kind):
    policy = make(kind, 1, 12, 4)
    sets = action_sets("eight arms", 2000, 8, 12, seed=5)
    result = follow(policy, literal_of(kind, policy), sets, check_every=20)
    assert result.rounds == 2000
    assert result.parameter <= 1e-11
    assert result.shrinkage <= 1e-11


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


@pytest.mark.slow
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


@pytest.mark.slow
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
    """The literal algorithm, started from the state of the policy with an orthonormal eigenbasis."""
    literal = literal_of("eofd", policy)
    Q, R = np.linalg.qr(policy.curvature.basis.T)
    values, U = np.linalg.eigh(R @ policy.curvature.core @ R.T)
    literal.sketch = Sketch(Q @ U[:, ::-1], np.maximum(values[::-1], 0.0), policy.curvature.shrinkage)
    literal.parameter = policy.parameter.copy()
    literal.rounds = policy.rounds
    return literal


@pytest.mark.slow
@pytest.mark.parametrize("kind", SKETCHES)
@pytest.mark.parametrize(
    ("rounds", "restarts"),
    [(5000, [2500, 4800]), pytest.param(100_000, [50_000, 99_800], marks=pytest.mark.very_slow)],
)
def test_there_is_no_drift(kind, rounds, restarts):
    """The literal algorithm, from the start and from later restarts, and the sum of traces agree throughout.

    For K = 1 each shrink by s subtracts exactly (m + 1) s from the trace, so that trace(C) + (m + 1) rho is
    the sum of the traces of all Hessians, which is computed without rounding.
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
