"""The sketch's basis stays orthonormal although most actions are projected onto it only once."""

from __future__ import annotations

import numpy as np
import pytest

from mlogb_core import ConstantRadius, OptimisticPolicy, RidgeRadius, eofd
from mlogb_core.curvature import DenseCurvature, FrequentDirections

FORMS = [False, True]


def build(K, d, m, *, buffer=1, compiled=False):
    if compiled:
        pytest.importorskip("numba", reason="the compiled form is the optional extra [fast]")
    settings = {"regularization": 1.0, "step_size": 1.0, "norm_bound": 0.5, "radius": ConstantRadius(0.1)}
    return eofd(d, np.ones(K), sketch_size=m, buffer=buffer, compiled=compiled, **settings)


@pytest.mark.parametrize("compiled", FORMS)
@pytest.mark.parametrize(
    ("K", "d", "m", "buffer"), [(1, 20, 15, 3), (2, 6, 5, 2), (3, 10, 15, 2), (1, 8, 7, 1)]
)
@pytest.mark.slow
def test_half_full_and_more_the_error_does_not_grow(K, d, m, buffer, compiled):
    """If fresh rows inherit an error of the basis, the error returns up to nine times as large."""
    policy = build(K, d, m, buffer=buffer, compiled=compiled)
    rng = np.random.default_rng(0)
    for _ in range(2500):
        policy.update(rng.standard_normal(d), int(rng.integers(K + 1)))
    basis = policy.curvature.basis
    assert np.abs(basis @ basis.T - np.eye(len(basis))).max() <= 1e-13


@pytest.mark.parametrize("compiled", FORMS)
@pytest.mark.parametrize("K", [1, 2])
def test_a_step_that_overflows_changes_nothing(K, compiled):
    policy = build(K, 4, 2, compiled=compiled)
    for x in np.eye(4):
        policy.update(x, 1)
    before = policy.parameter.copy(), policy.curvature.core.copy()
    with pytest.raises(ArithmeticError, match="round 5"), np.errstate(all="ignore"):
        policy.update([1e200, 0.0, 0.0, 0.0], 1)
    np.testing.assert_array_equal(policy.parameter, before[0])
    np.testing.assert_array_equal(policy.curvature.core, before[1])
    assert policy.rounds == 4


@pytest.mark.parametrize("scale", [1e-200, 1e-165, 1.0, 1e154, 1e200])
def test_the_largest_eigenvalue_at_any_scale(scale):
    pytest.importorskip("numba", reason="the compiled form is the optional extra [fast]")
    from mlogb_core.compiled.choose import largest_eigenvalue

    rng = np.random.default_rng(0)
    for K in (1, 2, 5, 12):
        A = rng.standard_normal((K, K))
        A = A @ A.T
        expected = np.linalg.eigvalsh(A)[-1]
        assert largest_eigenvalue(scale * A) / scale == pytest.approx(expected, rel=1e-13)
    assert largest_eigenvalue(np.zeros((3, 3))) == 0.0


def test_a_subclass_is_not_taken_for_the_compiled_form():
    class Renamed(OptimisticPolicy):
        pass

    policy = Renamed(DenseCurvature(1, 2, 1.0), [1.0], step_size=1.0, norm_bound=1.0, radius=RidgeRadius(1.0))
    assert policy.state_dict()["compiled"] is False
    assert type(Renamed.from_state(policy.state_dict())) is Renamed


def test_fresh_rows_do_not_inherit_an_error_of_the_basis():
    """A single projection leaves the error of the basis in the fresh rows, so that it has to be removed."""
    policy = build(2, 20, 6)
    rng = np.random.default_rng(1)
    for _ in range(10):
        policy.update(rng.standard_normal(20), int(rng.integers(3)))
    state = policy.curvature.state_dict()
    leaning = state["basis"] + 1e-9 * state["basis"][::-1]
    sketch = FrequentDirections.from_state(state | {"basis": leaning})
    for x in rng.standard_normal((20, 20)):
        frame = sketch.frame(x)
        assert np.abs(frame.fresh @ sketch.basis.T).max() <= 1e-15
        assert np.abs(frame.fresh @ frame.fresh.T - np.eye(2)).max() <= 1e-14
