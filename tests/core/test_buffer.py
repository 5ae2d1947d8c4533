"""The buffered sketch: what it computes, and the guarantees that notebook 11 derives for it."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import STREAMS, action_stream, link_jacobian, softmax
from hypothesis import given
from hypothesis import strategies as st

from mlogb_core.curvature import FrequentDirections
from mlogb_core.link import jacobian_factor

ROUNDS = 40


@st.composite
def cases(draw):
    K, d = draw(st.sampled_from([(1, 3), (1, 9), (2, 5), (3, 4), (5, 2)]))
    m = draw(st.integers(1, K * d))
    return K, d, m, draw(st.integers(1, 6)), draw(st.sampled_from(STREAMS)), draw(st.integers(0, 10**6))


def pairs(K, d, kind, seed):
    logits = np.random.default_rng(seed + 1).standard_normal((ROUNDS, K)) * 2.0
    return list(zip(action_stream(kind, ROUNDS, d, seed), logits, strict=True))


def played(case):
    """Yield the sketch, the sum of all Hessians and the number of shrinks after every round."""
    K, d, m, b, kind, seed = case
    sketch, total, shrinks = FrequentDirections(K, d, 1.0, m, buffer=b), np.zeros((K * d, K * d)), 0
    for x, z in pairs(K, d, kind, seed):
        frame = sketch.frame(x)
        grown = sketch.rank + len(frame.fresh)
        sketch.add(frame, jacobian_factor(softmax(z)))
        total += np.kron(link_jacobian(z), np.outer(x, x))
        shrinks += sketch.rank < grown
        yield sketch, total, shrinks


def axes(weights, order):
    """Actions for K = 1 along the axes, with squared lengths `weights`, in the given order."""
    return [np.sqrt(weights[i]) * np.eye(len(weights))[i] for i in order]


def fed(sketch, actions):
    for x in actions:
        sketch.add(sketch.frame(x), np.eye(1))
    return sketch


@given(cases())
def test_it_is_the_positive_part_at_every_shrink(case):
    K, d, m, _, kind, seed = case
    data, rho = np.zeros((K * d, K * d)), 0.0
    count, stream = 0, pairs(K, d, kind, seed)
    for (sketch, total, shrinks), (x, z) in zip(played(case), stream, strict=True):
        data += np.kron(link_jacobian(z), np.outer(x, x))
        if shrinks > count:
            values, Q = np.linalg.eigh(data)
            delta = values[-m - 1]
            data, rho, count = (Q * np.maximum(values - delta, 0.0)) @ Q.T, rho + delta, shrinks
        scale = 1.0 + np.trace(total)
        np.testing.assert_allclose(sketch.dense() - np.eye(K * d), data, rtol=0, atol=1e-12 * scale)
        assert abs(sketch.shrinkage - rho) <= 1e-12 * scale


@given(cases())
def test_the_guarantees_hold_after_every_round(case):
    K, d, m, b, _, _ = case
    limit = min(K * d, m + (b - 1) * K)
    for t, (sketch, total, shrinks) in enumerate(played(case), 1):
        rho, slack = sketch.shrinkage, 1e-12 * (1.0 + np.trace(total))
        full = total + np.eye(K * d)
        gap = np.linalg.eigvalsh(full - sketch.dense())
        assert -slack <= gap[0]
        assert gap[-1] <= rho + slack
        values = np.linalg.eigvalsh(total)[::-1]
        for k in range(m + 1):
            assert rho * (m + 1 - k) <= values[k:].sum() + (m + 1) * slack
        assert sketch.rank <= sketch.rank_bound == limit
        bound = K * d * np.log1p(rho) + limit * np.log1p(np.trace(total) / limit)
        assert np.linalg.slogdet(full)[1] <= bound + 1e-12 * (1.0 + bound)
        assert shrinks * b <= t


@pytest.mark.parametrize(("m", "b", "heavy"), [(3, 1, 0), (3, 1, 2), (2, 3, 0), (4, 2, 3), (5, 4, 5)])
def test_the_tail_bound_is_attained_with_the_m_of_the_shrink(m, b, heavy):
    cycles, weak = 10, 1e-6
    weights = np.concatenate((np.full(heavy, 20.0), np.ones(m + 1 - heavy), np.full(b - 1, weak)))
    order = [*range(heavy), *(list(range(heavy, m + b)) * cycles)]
    sketch = fed(FrequentDirections(1, m + b, 1.0, m, buffer=b), axes(weights, order))
    tail = cycles * weights[heavy:].sum()
    assert tail * (1 - 1e-5) <= sketch.shrinkage * (m + 1 - heavy) <= tail
    if b > 1:  # The bound for sketch size m + b - 1, whose memory this sketch uses, is exceeded.
        assert sketch.shrinkage * (m + b - heavy) > 1.1 * tail


def test_the_default_buffer_is_that_of_the_paper():
    """Without a buffer the iterates are those of Algorithm 1: see test_curvature.py and test_oracle.py."""
    assert FrequentDirections(2, 4, 1.0, 3).buffer == 1


def test_a_buffer_with_room_for_everything_is_exact():
    sketch, total, shrinks = list(played((2, 4, 3, 4, "random", 1)))[-1]
    assert shrinks == 0
    assert sketch.shrinkage == 0.0
    np.testing.assert_allclose(sketch.dense(), np.eye(8) + total, rtol=0, atol=1e-12 * np.trace(total))
