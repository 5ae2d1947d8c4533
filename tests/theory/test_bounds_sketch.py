"""Bounds of the sketch's loss: examples by hand, streams, monotonicity, and errors for bad arguments."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compendium.theory import sketch as bounds
from mlogb_core import link
from mlogb_core.curvature import FrequentDirections

amounts = st.floats(0.0, 1e3)
sizes = st.integers(1, 8)


def played(actions, m, factors=None, regularization=1.0):
    """Sketch and sum of the Hessians of a stream; without factors K = 1 and J = 1."""
    factors = np.ones((len(actions), 1, 1)) if factors is None else factors
    K, d = factors.shape[1], actions.shape[1]
    sketch, total = FrequentDirections(K, d, regularization, m), np.zeros((K * d, K * d))
    for x, F in zip(actions, factors, strict=True):
        sketch.add(sketch.frame(x), F)
        total += np.kron(F @ F.T, np.outer(x, x))
    return sketch, total


def eigenvalues(total):
    return np.maximum(np.linalg.eigvalsh(total), 0.0)


@pytest.fixture(params=range(24))
def stream(request):
    rng = np.random.default_rng(request.param)
    K, d = (1, 2, 3)[request.param % 3], int(rng.integers(2, 6))
    actions = rng.normal(size=(5 * d, d)) * 10.0 ** rng.uniform(-1.0, 0.5, size=(5 * d, 1))
    logits = rng.normal(size=(5 * d, K)) * 2.0
    factors = np.array([link.jacobian_factor(link.outcome_probabilities(z)) for z in logits])
    m = int(rng.integers(1, K * d + 2))
    return m, *played(actions, m, factors, regularization=0.3)


@pytest.mark.parametrize("m", [1, 2, 5])
def test_all_bounds_are_attained_by_orthogonal_actions_in_turn(m):
    actions = np.tile(np.eye(m + 1), (3, 1))
    sketch, total = played(actions, m, regularization=0.5)
    rho, values = sketch.shrinkage, eigenvalues(total)
    assert rho == pytest.approx(3.0)
    assert bounds.tail_bound(values, m, sharp=True) == pytest.approx(rho)
    assert bounds.tail_bound(values, m) > rho * 1.001
    assert bounds.tail_floor(values, m) == pytest.approx(rho)
    H = total + 0.5 * np.eye(m + 1)
    ratio = np.linalg.eigvals(np.linalg.solve(sketch.dense(), H)).real.max()
    assert ratio == pytest.approx(bounds.sketch_factor(rho, 0.5))
    assert bounds.sketch_factor(rho, 0.5) == 7.0


@pytest.mark.parametrize("m", [1, 3])
def test_sharp_determinant_is_attained_with_something_left_in_the_sketch(m):
    actions = np.vstack((np.eye(m + 1), 2.0 * np.eye(m + 1)[:m]))
    sketch, total = played(actions, m, regularization=0.5)
    assert sketch.spectrum().max() == pytest.approx(4.0)
    arguments = (m + 1, m, 0.5, sketch.shrinkage, np.trace(total))
    log_det = np.linalg.slogdet(total / 0.5 + np.eye(m + 1))[1]
    assert bounds.log_determinant_bound(*arguments, sharp=True) == pytest.approx(log_det)
    assert bounds.log_determinant_bound(*arguments) > log_det * 1.01


def test_bounds_hold_along_a_stream(stream):
    m, sketch, total = stream
    n, values, rho = len(total), eigenvalues(total), sketch.shrinkage
    assert bounds.tail_floor(values, m) <= rho + 1e-9
    assert rho <= bounds.tail_bound(values, m, sharp=True) + 1e-9
    assert bounds.tail_bound(values, m, sharp=True) <= bounds.tail_bound(values, m) + 1e-9
    log_det = np.linalg.slogdet(total / 0.3 + np.eye(n))[1]
    printed, sharp = (
        bounds.log_determinant_bound(n, m, 0.3, rho, np.trace(total), sharp=s) for s in (False, True)
    )
    assert log_det <= sharp + 1e-9
    assert sharp <= printed + 1e-9
    gap = bounds.sketch_factor(rho, 0.3) * sketch.dense() - total - 0.3 * np.eye(n)
    assert np.linalg.eigvalsh(gap)[0] >= -1e-9 * np.trace(total)


def test_the_last_tail_counts_and_the_paper_leaves_it_out():
    values = [1.0, 9.0, 0.0, 0.5]  # not sorted
    assert bounds.tail_bound(values, 2, sharp=True) == 0.5
    assert bounds.tail_bound(values, 2) == 1.5
    assert bounds.tail_bound([3.0, 2.0], 2) == 2.0
    assert bounds.tail_bound([3.0, 2.0], 2, sharp=True) == 0.0
    assert bounds.tail_bound([3.0, 2.0], 7) == bounds.tail_floor([3.0, 2.0], 2) == 0.0


def test_paper_determinant_is_its_formula_and_m_stops_at_n():
    value = bounds.log_determinant_bound(6, 2, 0.5, 1.5, 3.0)
    assert value == pytest.approx(6 * math.log(4.0) + 2 * math.log(4.0))
    assert bounds.log_determinant_bound(3, 9, 0.5, 0.0, 3.0) == pytest.approx(3 * math.log(3.0))


@given(n=sizes, m=sizes, rho=amounts, trace=amounts, more=amounts, sharp=st.booleans())
def test_determinant_increases_with_trace_and_shrinkage(n, m, rho, trace, more, sharp):
    value = bounds.log_determinant_bound(n, m, 1.0, rho, trace, sharp=sharp)
    assert value <= bounds.log_determinant_bound(n, m, 1.0, rho, trace + more, sharp=sharp) * (1 + 1e-12)
    if m < n or not sharp:
        assert value <= bounds.log_determinant_bound(n, m, 1.0, rho + more, trace, sharp=sharp) * (1 + 1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bounds.sketch_factor(-1.0, 1.0), "shrinkage must be at least 0"),
        (lambda: bounds.sketch_factor(1.0, 0.0), "regularization must be positive"),
        (lambda: bounds.log_determinant_bound(0, 1, 1.0, 0.0, 1.0), "n_parameters must be at least 1"),
        (lambda: bounds.log_determinant_bound(2, 0, 1.0, 0.0, 1.0), "sketch_size must be at least 1"),
        (lambda: bounds.log_determinant_bound(2, 1, 1.0, 0.0, -1.0), "trace must be at least 0"),
        (lambda: bounds.log_determinant_bound(2, 1, 1.0, -1.0, 1.0), "shrinkage must be at least 0"),
        (lambda: bounds.tail_bound([1.0], 0), "sketch_size must be at least 1"),
        (lambda: bounds.tail_bound([1.0, -1.0], 1), "eigenvalues must be at least 0"),
        (lambda: bounds.tail_floor([[1.0]], 1), "eigenvalues must have shape"),
        (lambda: bounds.tail_floor([], 1), "eigenvalues must have shape"),
    ],
)
def test_arguments_are_checked(call, message):
    with pytest.raises(ValueError, match=message):
        call()
