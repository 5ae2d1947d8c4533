"""The compiled round against the NumPy form and the literal algorithms."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from helpers import STREAMS, action_stream, assert_same_state
from variants import literal_of, make

from mlogb_core import OptimisticPolicy, RidgeRadius, TheoremRadius
from mlogb_core.curvature import FrequentDirections, NoCurvature
from mlogb_core.curvature.low_rank import _shifted_factor

pytest.importorskip("numba", reason="the compiled form is the optional extra [fast]")
from mlogb_core.compiled import CompiledPolicy  # needs numba
from mlogb_core.compiled.arguments import NOT_PROJECTED

SETTINGS = {"regularization": 1.0, "step_size": 2.0, "norm_bound": 2.0}
SIZES = [(4, 100, 40), (1, 60, 6), (2, 30, 5), (1, 12, 12), (3, 7, 40), (12, 5, 9), (5, 4, 1), (1, 9, 1)]
# What is played in both forms; the budget makes the size grow in these games.
GROWING = ("budgeted_eofd", "doubling_eofd", "dyadic_eofd")
FLAT = ("growing_ridge", "diagonal", "first_order")  # without directions
PAIRS = ("eofd", "oful", "robust_eofd", "compensated_eofd", *GROWING, *FLAT)
CLOSE = 1e-12  # the largest difference of W seen is 4e-15; on degenerate streams, 4e-14


def pair(kind, K, d, m, **changes):
    """The same policy in the NumPy and in the compiled form.

    Where the ridge grows, the steps are shorter, and the ball is smaller.
    """
    ball = {"norm_bound": 0.3} if kind in ("compensated_eofd", "robust_eofd", *FLAT) else {}
    settings = SETTINGS | ball | {"radius": RidgeRadius(40.0 if K == 1 else 0.1)} | changes
    return tuple(make(kind, K, d, m, compiled=form, **settings) for form in (False, True))


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
        assert fast.margin == pytest.approx(plain.margin, rel=1e-9, abs=1e-13)
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


@pytest.mark.compiled
@pytest.mark.each_value
@pytest.mark.parametrize(("K", "d", "m"), SIZES)
@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("prune", [True, False])
def test_the_same_play(kind, K, d, m, prune, monkeypatch):
    if prune:  # The compiled form always prunes; now the NumPy form does too.
        monkeypatch.setattr("mlogb_core.policies.optimistic._CHEAP", 0)
    plain, fast = pair(kind, K, d, m)
    assert type(fast) is not type(plain)
    assert_same_play(plain, fast, np.random.default_rng(K * d), 150)


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("K", "d", "m"),
    [
        pytest.param(4, 100, 40, marks=pytest.mark.slow),
        pytest.param(2, 30, 5, marks=pytest.mark.slow),
        (1, 40, 6),
        pytest.param(12, 5, 9, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("kind", ["eofd", "oful"])
def test_the_literal_algorithms_play(kind, K, d, m):
    rounds = 300 if kind == "eofd" or K * d < 400 else 60  # A round of the literal OFUL takes 20 ms.
    _, fast = pair(kind, K, d, m)
    literal = literal_of(kind, fast)
    rng = np.random.default_rng(7)
    for actions in sets(rng, d, rounds, n=20):
        chosen = fast.select(actions)
        assert literal.select(actions) == chosen
        outcome = int(rng.integers(K + 1))
        fast.update(actions[chosen], outcome)
        literal.update(actions[chosen], outcome)
        np.testing.assert_allclose(fast.parameter, literal.parameter, rtol=0, atol=1e-11)  # seen: 6e-15


def test_the_cached_ridge_factor_serves_either_form():
    plain, fast = pair("eofd", 2, 30, 11)
    rng = np.random.default_rng(5)
    for actions in sets(rng, 30, 20):
        for policy in (plain, fast):
            policy.update(actions[0], 1)
    fast.select(np.eye(30))
    found, expected = fast.curvature._factor, _shifted_factor(fast.curvature.core, 1.0)
    assert found.flags.f_contiguous
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14 * expected.max())
    np.testing.assert_allclose(fast.scores(np.eye(30)), plain.scores(np.eye(30)), rtol=1e-12)


@pytest.mark.compiled
@pytest.mark.parametrize("place", [0, 3, 6])
def test_a_ridge_factor_that_does_not_exist_is_named_alike(place):
    for policy in pair("eofd", 1, 9, 7):
        for x in np.eye(9)[:7]:
            policy.update(x, 1)
        policy.curvature.core[place, place] = -1.0
        message = rf"round 8: a matrix of order 7 is not positive definite \(minor {place + 1}\)"
        with pytest.raises(ArithmeticError, match=message):
            policy.select(np.eye(9))


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 10**6])
@pytest.mark.parametrize("kind", ["eofd", "compensated_eofd", "budgeted_eofd", "dyadic_eofd"])
def test_products_by_blas_and_in_loops(kind, limit, monkeypatch):
    monkeypatch.setattr("mlogb_core.compiled.policy.WIDE", limit)
    assert_same_play(*pair(kind, 2, 30, 12, norm_bound=0.2), np.random.default_rng(1), 150)


@pytest.mark.compiled
@pytest.mark.parametrize("kind", [*GROWING, "doubling_eofd falling"])
def test_the_size_grows_alike_in_both_forms(kind):
    plain, fast = pair(kind, 3, 12, 1, norm_bound=0.3)
    assert_same_play(plain, fast, np.random.default_rng(6), 60)
    assert 1 < fast.curvature.rank_bound == plain.curvature.rank_bound
    assert fast.curvature._rows.shape == plain.curvature._rows.shape


@pytest.mark.compiled
def test_a_largest_size_is_kept_alike_in_both_forms():
    plain, fast = pair("budgeted_eofd", 3, 12, 1, norm_bound=0.3, largest_size=5, compensate=True)
    assert_same_play(plain, fast, np.random.default_rng(6), 60)
    assert fast.curvature.rank_bound == 5
    assert plain.curvature.returned > 0.0
    assert fast.curvature.returned == pytest.approx(plain.curvature.returned, rel=1e-11)


@pytest.mark.parametrize(
    ("kind", "step"), [("growing_ridge", "step_by_ridge"), ("diagonal", "step_by_diagonal")]
)
def test_a_projection_that_the_kernel_leaves_open(kind, step, monkeypatch):
    """The NumPy form takes the step where the kernel's search does not settle."""
    monkeypatch.setattr(
        f"mlogb_core.compiled.policy.{step}",
        lambda parameter, *_: (NOT_PROJECTED, parameter, 0.0, 0.0, 0.0),
    )
    plain, fast = pair(kind, 3, 12, 1, norm_bound=0.3)
    assert_same_play(plain, fast, np.random.default_rng(6), 30)


def test_a_step_that_the_numpy_form_takes_is_checked_like_any_other():
    """The kernel leaves the projection of the second step open; then the ridge is lost in the roundoff."""
    for policy in pair("diagonal", 3, 2, 1, step_size=1.0):
        policy.update([0.6e-75, 0.8e-75], 3)
        before = policy.curvature.diagonal.copy()
        with pytest.raises(ArithmeticError, match=r"round 2: regularization 1 is lost in the roundoff"):
            policy.update([0.6e107, 0.8e107], 1)
        assert np.array_equal(policy.curvature.diagonal, before)


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_a_ridge_below_roundoff_stops_the_round_of_a_sketch_and_changes_nothing(rounds):
    """The sketch has no direction yet, has room for one more, or has to drop one."""
    for policy in pair("eofd", 1, 3, 2, step_size=1e-30):
        for x in np.eye(3)[:rounds]:
            policy.update(x, 1)
        before = policy.state_dict()
        with pytest.raises(
            ArithmeticError, match=rf"round {rounds + 1}: regularization .* is lost in the roundoff"
        ):
            policy.update([1e9, 2e9, 3e9], 1)
        assert_same_state(policy.state_dict(), before)


@pytest.mark.parametrize("kind", ["eofd", "oful"])
def test_ties_go_to_the_lowest_index(kind):
    plain, fast = pair(kind, 3, 10, 6)
    actions = np.eye(10)[[4, 1, 4, 7]]
    assert fast.select(actions) == plain.select(actions) == 0
    assert fast.margin == pytest.approx(plain.margin, rel=1e-5)
    assert fast.evaluated == len(actions)
    fast.update(actions[0], 3)
    plain.update(actions[0], 3)
    assert fast.select(actions[1:]) == plain.select(actions[1:])


@pytest.mark.compiled
def test_an_ill_conditioned_projection_takes_cholesky_factors(monkeypatch):
    calls, by_factors = [], CompiledPolicy._projected
    monkeypatch.setattr(CompiledPolicy, "_projected", lambda *args: calls.append(1) or by_factors(*args))
    plain, fast = pair("eofd", 1, 60, 60, regularization=1e-7, norm_bound=0.5)
    rng = np.random.default_rng(9)
    for _ in range(150):
        x = np.logspace(0, -3, 60) * rng.standard_normal(60)
        outcome = int(rng.integers(2))
        plain.update(x, outcome)
        fast.update(x, outcome)
        np.testing.assert_allclose(fast.parameter, plain.parameter, rtol=0, atol=1e-11)  # seen: 2e-15
        fast.parameter = plain.parameter.copy()  # Errors grow by the condition number 1e7.
    assert calls


@pytest.mark.parametrize(
    ("kind", "check"), [("eofd", 1), ("oful", 1), ("oful", 2), ("dyadic_eofd", 1), ("diagonal", 1)]
)
def test_a_failing_round_changes_nothing(kind, check, monkeypatch):
    """OFUL checks the Hessian of its step first, and then the one that it adds."""
    monkeypatch.setattr(CompiledPolicy, "_is_single", lambda policy: False)  # A single kernel calls no check.
    _, fast = pair(kind, 2, 6, 3)
    for x in np.eye(6):
        fast.update(x, 1)
    fast.select(np.eye(6))
    before = fast.state_dict()
    calls = itertools.count(1)

    def refuse(*_):
        if next(calls) == check:
            raise ArithmeticError("refused")

    monkeypatch.setattr("mlogb_core.compiled.policy.check_regularization", refuse)
    with pytest.raises(ArithmeticError, match="round 7: refused"):
        fast.update(np.full(6, 0.5), 2)
    for key, value in fast.state_dict().items():
        np.testing.assert_array_equal(value, before[key], err_msg=key)


@pytest.mark.compiled
def test_a_buffer_and_the_theorems_radius():
    radius = TheoremRadius(1e-3, scale=1e-3)
    assert_same_play(*pair("eofd", 3, 20, 9, buffer=3, radius=radius), np.random.default_rng(2), 150)


@pytest.mark.parametrize("kind", FLAT)
def test_the_theorems_radius_without_directions(kind):
    radius = TheoremRadius(1e-3, scale=1e-3)
    assert_same_play(*pair(kind, 3, 20, 9, radius=radius), np.random.default_rng(2), 150)


@pytest.mark.compiled
@pytest.mark.each_value
@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize(("K", "d", "m"), [(1, 9, 4), (3, 6, 8), (2, 4, 8)])
@pytest.mark.parametrize("name", ["eofd", "eofd buffer=3", "compensated_eofd", *GROWING, *FLAT])
def test_degenerate_streams(kind, K, d, m, name):
    plain, fast = pair(name, K, d, m)
    rng = np.random.default_rng(0)
    for x in action_stream(kind, 250, d, seed=3):
        outcome = int(rng.integers(K + 1))
        assert plain.select(x[None]) == fast.select(x[None]) == 0
        plain.update(x, outcome)
        fast.update(x, outcome)
        np.testing.assert_allclose(fast.parameter, plain.parameter, rtol=0, atol=1e-11)
        if name not in FLAT:
            basis = fast.curvature.basis
            assert np.abs(basis @ basis.T - np.eye(len(basis))).max(initial=0.0) <= 1e-13
    assert fast.curvature.spectrum().shape == plain.curvature.spectrum().shape
    assert fast.curvature.ridge == pytest.approx(plain.curvature.ridge, rel=1e-11)


@pytest.mark.parametrize("kind", PAIRS)
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


@pytest.mark.compiled
def test_actions_with_few_features(monkeypatch):
    """The products with a full matrix are then computed from a part of it; the play is the kernels'."""
    (plain, fast), by_kernel = pair("oful", 3, 40, 1), pair("oful", 3, 40, 1)[1]
    rng = np.random.default_rng(8)
    for _ in range(80):
        actions = np.zeros((6, 40))
        actions[:, rng.choice(40, 5, replace=False)] = 0.5 * rng.standard_normal((6, 5))
        chosen = by_kernel.select(actions)
        with monkeypatch.context() as patch:
            patch.setattr("mlogb_core.curvature.dense._LARGE", 0)
            assert plain.select(actions) == fast.select(actions) == chosen
        outcome = int(rng.integers(4))
        for policy in (by_kernel, plain, fast):
            policy.update(actions[chosen], outcome)
        np.testing.assert_allclose(plain.parameter, by_kernel.parameter, rtol=0, atol=CLOSE)
        np.testing.assert_allclose(fast.parameter, by_kernel.parameter, rtol=0, atol=CLOSE)
    assert np.linalg.norm(fast.parameter) == pytest.approx(fast.norm_bound)


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
    # Where the link is saturated its Jacobian is almost 0, so that no Hessian shortens the step.
    _, fast = pair("eofd", 1, 3, 2, regularization=1e-5)
    fast.update([1.0, 0.0, 0.0], 1)
    with pytest.raises(ArithmeticError, match="round 2: the step overflows"):
        fast.update([1e150, 1e150, 0.0], 0)


def test_only_some_curvatures_have_kernels():
    class Kept(NoCurvature):
        """A subclass, which might keep something."""

    message = "curvature must be of one of the classes .* itself, got .*Kept"
    with pytest.raises(ValueError, match=message):
        CompiledPolicy(Kept(1, 2, 1.0), [1.0], step_size=1.0, norm_bound=1.0, radius=RidgeRadius(1.0))


def test_a_curvature_that_is_assigned_later_is_checked_too():
    class Own(FrequentDirections):
        """A subclass, of which the kernels would not see the changes."""

    policy = make("eofd compiled", 1, 5, 3)
    kept = policy.curvature
    with pytest.raises(ValueError, match=r"curvature must be .* got .*Own"):
        policy.curvature = Own(1, 5, 1.0, 3)
    assert policy.curvature is kept


@pytest.mark.parametrize("kind", ["eofd compiled", "oful compiled"])
def test_a_frame_of_before_an_update_is_refused(kind):
    policy = make(kind, 1, 5, 3)
    x = np.eye(5)[0]
    frame = policy.curvature.frame(x)
    policy.update(x, 1)
    with pytest.raises(ValueError, match="frame must be made after the last add"):
        policy.curvature.add(frame, np.eye(1))
