"""Curvatures that give back what they lose, control it, or have no directions: definitions and invariants."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from dense_curvatures import REFERENCES, Budgeted, Diagonal, Doubling, Dyadic, Ridge, Sketched
from helpers import EPS, assert_same_state, dense_newton_step, link_jacobian, softmax
from hypothesis import given, settings
from hypothesis import strategies as st
from test_curvature import assert_sound, cases, feed, size_of, stream
from variants import (
    GROWING,
    IN_NUMPY,
    OTHERS,
    STREAMS,
    Run,
    action_sets,
    make,
    off_orthonormal,
    one_after_the_other,
    options_of,
)

from mlogb_core.curvature import (
    BudgetedFrequentDirections,
    CompensatedFrequentDirections,
    DiagonalCurvature,
    DoublingFrequentDirections,
    DyadicFrequentDirections,
    FrequentDirections,
    GrowingRidge,
    RobustFrequentDirections,
)
from mlogb_core.link import jacobian_factor

KINDS = tuple(kind for kind in OTHERS if not kind.startswith("first_order"))
FLAT = ("growing_ridge", "diagonal")  # without directions
budgets = st.sampled_from([0.05, 1.0, 10.0, 1e3])
horizons = st.sampled_from([1, 10, 30, 1000])


def reference_of(kind, K, d, lam, m):
    name, options = options_of(kind)
    options.pop("compiled", None)
    return REFERENCES[name](K, d, lam, m, **options)


def follow(policy, reference, sets, seed=0, scores_every=7, check_every=1):
    """Play beside the dense definition of the curvature, each step from the policy's own parameter.

    Returns the largest errors of the parameter, of Z and of rho; those of Z and rho are relative to the size
    of the full Hessian.
    """
    run, errors = Run(policy, seed), np.zeros(3)
    K = len(policy.parameter)
    for t, actions in enumerate(sets):
        Z, W = reference.dense(), policy.parameter.copy()
        if t % scores_every == 0:
            check_scores(policy, Z, actions)
        x, outcome = run.round(actions, policy.select(actions))
        residual = softmax(W @ x)[1:] - np.eye(K + 1)[outcome, 1:]
        settings = residual, link_jacobian(W @ x), x, policy.step_size, policy.norm_bound
        expected, _ = dense_newton_step(Z, W, *settings)
        reference.add(link_jacobian(policy.parameter @ x), x)
        scale = size_of(reference.full)
        found = (
            np.abs(policy.parameter - expected).max(),
            np.abs(policy.curvature.dense() - reference.dense()).max() / scale,
            abs(policy.curvature.shrinkage - reference.rho) / scale,
        )
        errors = np.maximum(errors, found)
        if t % check_every == 0:
            run.check()
    run.check()
    return errors


def check_scores(policy, Z, actions):
    """The scores are those of the dense formula."""
    K = len(policy.parameter)
    inverse, beta, expected = np.linalg.inv(Z), policy.beta, []
    for x in actions:
        X = np.kron(np.eye(K), x[:, None])
        block = X.T @ inverse @ X
        if K == 1:
            expected.append(policy.parameter[0] @ x + np.sqrt(beta * block[0, 0]))
            continue
        slope = link_jacobian(policy.parameter @ x) @ policy.rewards
        value = policy.rewards @ softmax(policy.parameter @ x)[1:] + np.sqrt(beta * slope @ block @ slope)
        expected.append(value + 0.5 * policy.rewards.sum() * beta * np.linalg.eigvalsh(block)[-1])
    np.testing.assert_allclose(policy.scores(actions), expected, rtol=1e-9, atol=1e-9)


# The definitions -----------------------------------------------------------------------------------


@pytest.mark.each_value
@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("K", "d", "m"), [(1, 12, 2), (3, 5, 4), (2, 5, 1)])
def test_hostile_streams_play_the_dense_definition(K, d, m, kind, name):
    policy = make(kind, K, d, m, norm_bound=1.0)
    errors = follow(policy, reference_of(kind, K, d, 0.5, m), action_sets(name, 100, 5, d, seed=K))
    assert errors.max() <= 1e-11


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("K", "d", "m"), [(1, 24, 3), (3, 8, 2)])
def test_the_dense_definition_for_3000_rounds(K, d, m, kind):
    policy = make(kind, K, d, m)
    reference = reference_of(kind, K, d, 0.5, m)
    sets = action_sets("generic", 3000, 6, d, seed=2)
    assert follow(policy, reference, sets, scores_every=100, check_every=20).max() <= 1e-11
    if "eofd" in kind:
        assert policy.curvature.shrinkage > 1.0
        assert policy.curvature.rank_bound > m or kind not in GROWING


HOSTILE = ("eight arms", "two scales in turn", "zero rows", "inside the span", "axes")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(HOSTILE, id="in turn"),
        *(pytest.param((name,), id=name, marks=pytest.mark.very_slow) for name in HOSTILE),
    ],
)
def test_hostile_streams_for_3000_rounds(kind, names):
    """One stream after the other, each for its part of the rounds."""
    policy = make(kind, 2, 7, 2)
    sets = one_after_the_other(names, 3000, 6, 7, seed=3)
    errors = follow(policy, reference_of(kind, 2, 7, 0.5, 2), sets, scores_every=100, check_every=20)
    assert errors.max() <= 1e-11


@pytest.mark.each_value
@pytest.mark.parametrize("compensate", [False, True])
@pytest.mark.parametrize("open_ended", [False, True])
def test_a_largest_size_plays_the_dense_definition(open_ended, compensate):
    K, d, cap = 2, 6, 5
    changes = {"budget": 0.7, "largest_size": cap, "compensate": compensate, "open_ended": open_ended}
    policy = make("budgeted_eofd", K, d, 1, **changes)
    reference = Budgeted(K, d, 0.5, 1, 0.7, 60, open_ended, cap, compensate)
    assert follow(policy, reference, action_sets("generic", 150, 5, d, seed=9)).max() <= 1e-11
    sketch = policy.curvature
    assert sketch.sketch_size == cap
    assert (sketch.returned > 0.0) == compensate
    assert (sketch.error > 0.7 * 0.5) != compensate  # Only one of the two keeps the budget at the cap.


def many_outcomes():
    """Blocks of more directions than m, so that one round doubles or grows the size more than once."""
    yield BudgetedFrequentDirections(7, 4, 0.3, 1, 0.5, 12), Budgeted(7, 4, 0.3, 1, 0.5, 12)
    yield DoublingFrequentDirections(7, 4, 0.3, 1, 0.1), Doubling(7, 4, 0.3, 1, 0.1)
    yield DoublingFrequentDirections(7, 4, 0.3, 1, 0.5, True), Doubling(7, 4, 0.3, 1, 0.5, True)
    yield DyadicFrequentDirections(7, 4, 0.3, 1, 2.0), Dyadic(7, 4, 0.3, 1, 2.0)
    yield DyadicFrequentDirections(7, 4, 0.3, 3, 9.0), Dyadic(7, 4, 0.3, 3, 9.0)


@pytest.mark.parametrize("place", range(5))
def test_more_outcomes_than_directions(place):
    curvature, reference = list(many_outcomes())[place]
    rng = np.random.default_rng(place)
    for x in rng.standard_normal((25, 4)) * 0.6:
        logits = rng.standard_normal(7)
        curvature.add(curvature.frame(x), jacobian_factor(softmax(logits)))
        reference.add(link_jacobian(logits), x)
        np.testing.assert_allclose(curvature.dense(), reference.dense(), rtol=0, atol=1e-12)
        assert off_orthonormal(curvature.basis) <= 1e-13


# Invariants ----------------------------------------------------------------------------------------


def ordered(smaller, larger):
    """Whether a matrix is at most another one, up to the roundoff of its entries."""
    return np.linalg.eigvalsh(larger - smaller)[0] >= -1e-12 * size_of(larger)


@settings(max_examples=30)
@given(cases(largest=15), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_giving_back_brackets_the_full_hessian(case, share):
    """With the whole share the full Hessian is at most Z, and Z never decreases."""
    sketch = CompensatedFrequentDirections(case.K, case.d, case.lam, case.m, share=share)
    plain = FrequentDirections(case.K, case.d, case.lam, case.m)
    full = case.lam * np.eye(case.K * case.d)
    for x, z in stream(case, rounds=25):
        before = sketch.dense()
        feed(sketch, [(x, z)])
        feed(plain, [(x, z)])
        full += np.kron(link_jacobian(z), np.outer(x, x))
        Z, rho, lam = sketch.dense(), sketch.shrinkage, case.lam
        assert rho == plain.shrinkage
        assert sketch.ridge == lam + share * rho
        assert ordered(lam / (lam + share * rho) * Z, full)
        assert ordered(full, (lam + rho) / (lam + share * rho) * Z)
        if share == 1.0:
            assert ordered(full, Z)
            assert ordered(before, Z)
        if share == 0.5:
            assert ordered(full, 2.0 * Z)
        assert_sound(sketch, case)


def test_giving_back_half_may_decrease_the_matrix():
    """Two equal directions in a sketch of size 1: the shrink takes 1/2 from what it keeps and returns 1/4."""
    sketch = RobustFrequentDirections(1, 2, 1.0, 1)
    smallest = []
    for x in np.eye(2):
        before = sketch.dense()
        sketch.add(sketch.frame(x), np.ones((1, 1)))
        smallest.append(np.linalg.eigvalsh(sketch.dense() - before)[0])
    assert smallest == pytest.approx([0.0, -0.5])


@settings(max_examples=30)
@given(cases(largest=15), budgets, horizons, st.booleans())
def test_a_budget_is_kept_on_every_stream(case, budget, horizon, open_ended):
    """rho <= b_t at all times and Z <= H <= (1 + epsilon) Z; rows are stored for the present m alone."""
    arguments = budget, horizon, open_ended
    sketch = BudgetedFrequentDirections(case.K, case.d, case.lam, 1, *arguments)
    reference = Budgeted(case.K, case.d, case.lam, 1, *arguments)
    for x, z in stream(case, rounds=25):
        size, allowance = sketch.sketch_size, sketch.allowance
        feed(sketch, [(x, z)])
        reference.add(link_jacobian(z), x)
        assert sketch.shrinkage <= allowance <= budget * case.lam
        assert ordered(sketch.dense(), reference.full)
        assert ordered(reference.full, (1.0 + budget) * sketch.dense())
        assert sketch.sketch_size >= max(size, sketch.rank)
        assert sketch.rank_bound == min(sketch.sketch_size, case.K * case.d)
        assert_sound(sketch, case._replace(m=sketch.sketch_size))
        room = min(sketch.sketch_size + case.K, case.K * case.d)
        assert sketch._rows.shape == (room, case.K * case.d)
    # By Weyl's inequality any sketch with this certificate has at least so many directions.
    needed = np.linalg.eigvalsh(reference.full) - case.lam > (1 + 1e-9) * budget * case.lam
    assert np.count_nonzero(needed) <= sketch.rank


@settings(max_examples=30)
@given(cases(largest=15), budgets, st.integers(1, 4))
def test_at_the_largest_size_what_is_compensated_keeps_the_bracket(case, budget, cap):
    """lambda / (lambda + alpha) Z <= H <= (1 + epsilon) Z, with a rank of no more than the cap."""
    sketch = BudgetedFrequentDirections(case.K, case.d, case.lam, 1, budget, 10, False, cap, True)
    full = case.lam * np.eye(case.K * case.d)
    for x, z in stream(case, rounds=25):
        feed(sketch, [(x, z)])
        full += np.kron(link_jacobian(z), np.outer(x, x))
        assert sketch.error <= budget * case.lam * (1 + 1e-12)
        assert sketch.rank <= sketch.sketch_size <= cap
        assert ordered(case.lam / sketch.ridge * sketch.dense(), full)
        assert ordered(full, (1.0 + budget) * sketch.dense())


@settings(max_examples=30)
@given(cases(largest=15), budgets, st.booleans())
def test_doubling_bounds_its_error_and_its_size(case, budget, falling):
    """rho is within the budgets of the phases, and half of m would not have sufficed in hindsight."""
    sketch = DoublingFrequentDirections(case.K, case.d, case.lam, 1, budget, falling)
    full = np.zeros((case.K * case.d,) * 2)
    for x, z in stream(case, rounds=25):
        feed(sketch, [(x, z)])
        full += np.kron(link_jacobian(z), np.outer(x, x))
        phases = range(sketch.phase + 1)
        allowed = sum(1 / ((j + 1) * (j + 2)) if falling else 1.0 for j in phases) * budget * case.lam
        assert sketch.shrinkage <= allowed * (1 + 1e-12)
        assert sketch.sketch_size == 2**sketch.phase
        assert_sound(sketch, case._replace(m=sketch.sketch_size))
    if falling:
        assert sketch.shrinkage <= budget * case.lam
    values = np.maximum(np.linalg.eigvalsh(full)[::-1], 0.0)
    last = sketch.phase - 1
    if last >= 0:
        share = 1 / ((last + 1) * (last + 2)) if falling else 1.0
        assert values[sketch.sketch_size // 2 :].sum() > budget * case.lam * share * (1 - 1e-9)


@settings(max_examples=30)
@given(cases(largest=15), st.sampled_from([0.5, 5.0, 50.0, 1e4]), st.integers(1, 4))
def test_blocks_bound_their_error(case, budget, m):
    """A block of size l loses less than epsilon lambda m / (2 l), and all of them at most epsilon lambda."""
    sketch = DyadicFrequentDirections(case.K, case.d, case.lam, m, budget)
    full, lost, size = case.lam * np.eye(case.K * case.d), {}, case.K * case.d
    for x, z in stream(case, rounds=30):
        before = sketch.shrinkage
        feed(sketch, [(x, z)])
        full += np.kron(link_jacobian(z), np.outer(x, x))
        lost[sketch.block] = lost.get(sketch.block, 0.0) + sketch.shrinkage - before
        assert ordered(sketch.dense(), full)
        assert ordered(full, sketch.dense() + sketch.shrinkage * np.eye(size))
        assert sketch.rank <= sketch.rank_bound <= min((2 ** (sketch.block + 1) - 1) * m, size)
        assert off_orthonormal(sketch.basis) <= 1e-13
        assert sketch.columns.shape[1] <= min(2**sketch.block * m, size)
        assert len(sketch._rows) == min(sketch.rank_bound + case.K, size)
    for block, amount in lost.items():
        assert amount <= 0.5 * budget * case.lam * m / (2**block * m + 1) * (1 + 1e-9)
    assert sketch.shrinkage <= budget * case.lam


@settings(max_examples=30)
@given(cases())
def test_the_diagonal_is_that_of_the_full_hessian(case):
    curvature, reference = DiagonalCurvature(case.K, case.d, case.lam), Diagonal(case.K, case.d, case.lam)
    for x, z in stream(case, rounds=25):
        feed(curvature, [(x, z)])
        reference.add(link_jacobian(z), x)
    diagonal = np.diag(reference.full)
    np.testing.assert_allclose(curvature.diagonal.reshape(-1), diagonal, rtol=1e-12)
    # A positive semidefinite matrix of order n is at most n times its diagonal.
    assert ordered(reference.full, case.K * case.d * curvature.dense())


@settings(max_examples=30)
@given(cases(), st.sampled_from([0.1, 1.0, 3.0]))
def test_a_growing_ridge_is_above_the_full_hessian(case, growth):
    curvature, reference = GrowingRidge(case.K, case.d, case.lam, growth), Ridge(case.K, case.d, case.lam)
    ridge = curvature.ridge
    for x, z in stream(case, rounds=25):
        feed(curvature, [(x, z)])
        reference.add(link_jacobian(z), x)
        assert curvature.ridge >= ridge
        ridge = curvature.ridge
    expected = case.lam + growth * (np.trace(reference.full) - case.K * case.d * case.lam)
    assert ridge == pytest.approx(expected, rel=1e-11)
    if growth >= 1.0:
        assert ordered(reference.full, curvature.dense())


def test_a_growing_ridge_holds_one_number():
    curvature = GrowingRidge(3, 1000, 1.0)
    for x in np.eye(1000)[:3]:
        curvature.add(curvature.frame(x), np.eye(3))
    arrays = [value for value in vars(curvature).values() if isinstance(value, np.ndarray)]
    assert arrays == []
    assert curvature.ridge == 10.0
    assert curvature.images(np.eye(1000)).size == curvature.spectrum().size == 0


# States and bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*GROWING, "compensated_eofd"])
def test_a_state_goes_on_where_the_size_has_grown(kind):
    policy = make(kind, 2, 8, 1)
    run = Run(policy)
    for actions in action_sets("generic", 40, 5, 8, seed=4):
        run.round(actions, policy.select(actions))
    curvature = policy.curvature
    twin = type(curvature).from_state(curvature.state_dict())
    assert twin.rank_bound == curvature.rank_bound > 1 or kind == "compensated_eofd"
    x = np.linspace(-1.0, 1.0, 8)
    for one in (curvature, twin):
        for _ in range(3):
            one.add(one.frame(x), np.eye(2) / 2.0)
            one.add(one.frame(x[::-1] ** 2), np.eye(2) / 3.0)
    assert_same_state(curvature.state_dict(), twin.state_dict())


SIZES = {"n_outcomes": 1, "n_features": 3, "regularization": 1.0, "sketch_size": 1}
BUDGET = {"budget": 1.0}
bad_arguments = [
    (CompensatedFrequentDirections, SIZES, {"share": -0.1}, "share must lie between 0 and 1, got -0.1"),
    (CompensatedFrequentDirections, SIZES, {"share": 1.5}, "share must lie between 0 and 1, got 1.5"),
    (CompensatedFrequentDirections, SIZES, {"share": None}, "share must be a number"),
    (BudgetedFrequentDirections, SIZES, {"budget": 0.0, "horizon": 5}, "budget must be positive"),
    (BudgetedFrequentDirections, SIZES, BUDGET | {"horizon": 0}, "horizon must be at least 1"),
    (BudgetedFrequentDirections, SIZES, BUDGET | {"horizon": 2.0}, "horizon must be an integer"),
    (
        BudgetedFrequentDirections,
        SIZES,
        BUDGET | {"horizon": 5, "open_ended": 1},
        "open_ended must be True or False, got 1",
    ),
    (
        BudgetedFrequentDirections,
        SIZES,
        BUDGET | {"horizon": 5, "compensate": None},
        "compensate must be True or False",
    ),
    (
        BudgetedFrequentDirections,
        SIZES | {"sketch_size": 2},
        BUDGET | {"horizon": 5, "largest_size": 1},
        "largest_size must be at least sketch_size = 2, got 1",
    ),
    (DoublingFrequentDirections, SIZES, {"budget": -1.0}, "budget must be positive"),
    (DoublingFrequentDirections, SIZES, BUDGET | {"falling": "y"}, "falling must be True or False, got 'y'"),
    (DyadicFrequentDirections, SIZES | {"sketch_size": 0}, BUDGET, "sketch_size must be at least 1"),
    (DyadicFrequentDirections, SIZES, {"budget": np.inf}, "budget must be finite"),
    (GrowingRidge, {k: SIZES[k] for k in list(SIZES)[:3]}, {"growth": 0.0}, "growth must be positive"),
    (DiagonalCurvature, {k: SIZES[k] for k in list(SIZES)[:2]}, {"regularization": 0.0}, "must be positive"),
]  # fmt: skip


@pytest.mark.parametrize("place", range(len(bad_arguments)))
def test_bad_arguments_are_named(place):
    kind, sizes, more, message = bad_arguments[place]
    with pytest.raises(ValueError, match=message):
        kind(**sizes | more)


@pytest.mark.parametrize(
    ("kind", "key", "value", "message"),
    [
        ("budgeted_eofd", "rounds", -1, "rounds must be at least 0"),
        ("budgeted_eofd", "returned", np.nan, "returned must be finite"),
        ("doubling_eofd", "phase", 0.5, "phase must be an integer"),
        ("doubling_eofd", "phase_start", -1.0, "phase_start must be at least 0"),
        ("dyadic_eofd", "columns", np.ones((1, 1)), "basis, frozen and columns must have shapes"),
        ("dyadic_eofd", "frozen", np.ones((2, 3)), "basis, frozen and columns must have shapes"),
        ("dyadic_eofd", "basis", np.array(1.0), "basis, frozen and columns must have shapes"),
        ("dyadic_eofd", "frozen", np.array(1.0), "basis, frozen and columns must have shapes"),
        ("dyadic_eofd", "block", -1, "block must be at least 0"),
        ("dyadic_eofd", "mass", -1.0, "mass must be at least 0"),
        ("diagonal", "diagonal", np.ones((3, 2)), r"diagonal must have shape \(2, 5\)"),
        ("diagonal", "diagonal", np.zeros((2, 5)), r"diagonal must be positive, got 0\.0"),
        ("growing_ridge", "trace", -1.0, "trace must be at least 0"),
    ],
)
def test_a_state_that_does_not_fit_is_rejected(kind, key, value, message):
    curvature = make(kind, 2, 5, 2).curvature
    for x in np.eye(5):
        curvature.add(curvature.frame(x), np.eye(2))
    state = curvature.state_dict()
    assert_same_state(type(curvature).from_state(state).state_dict(), state)
    with pytest.raises(ValueError, match=message):
        type(curvature).from_state(state | {key: value})
    del state[key]
    with pytest.raises(ValueError, match=f"state has no entry '{key}'"):
        type(curvature).from_state(state)


@pytest.mark.parametrize("kind", [*GROWING, *(kind for kind in KINDS if "compiled" in kind or kind in FLAT)])
def test_a_failing_round_changes_nothing(kind):
    """The Hessian is so large that the ridge is lost in its roundoff."""
    policy = make(kind, 2, 6, 2)
    for x, outcome in zip(np.eye(6), itertools.cycle(range(3)), strict=False):
        policy.update(x, outcome)
    policy.parameter = np.zeros((2, 6))  # At the logits 0 the Hessian is large.
    before = policy.state_dict()
    with pytest.raises(ArithmeticError, match=r"round 7: regularization .* is lost in the roundoff"):
        policy.update(1e10 * np.ones(6), 1)
    assert_same_state(before, policy.state_dict())


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from([1e-8, 1e-3, 1e3]))
def test_the_step_on_a_diagonal_of_many_scales(seed, S):
    """Entries over eight decades, against a dense computation."""
    rng = np.random.default_rng(seed)
    K, d = int(rng.integers(1, 5)), int(rng.integers(1, 7))
    curvature = DiagonalCurvature(K, d, 1e-4)
    curvature.diagonal += 10.0 ** rng.uniform(-4, 4, (K, d))
    x, W = rng.standard_normal(d), rng.standard_normal((K, d))
    W *= S / np.linalg.norm(W)
    logits = rng.standard_normal(K)
    p = softmax(logits)
    u = p[1:] - np.eye(K + 1)[rng.integers(K + 1), 1:]
    found = curvature.newton_step(curvature.frame(x), W, u, jacobian_factor(p), 2.0, S)
    expected, _ = dense_newton_step(curvature.dense(), W, u, link_jacobian(logits), x, 2.0, S)
    condition = (curvature.diagonal.max() + 2.0 * x @ x) / curvature.diagonal.min()
    np.testing.assert_allclose(found.parameter, expected, rtol=0, atol=100 * EPS * condition * S)


def test_the_dense_definitions_differ_from_each_other():
    """So that no test above compares a curvature with another one's definition."""
    rng, matrices = np.random.default_rng(0), []
    kinds = ("eofd", *(kind for kind in IN_NUMPY if kind != "first_order"))
    references = [reference_of(kind, 2, 5, 0.5, 2) for kind in kinds]
    for x in rng.standard_normal((30, 5)):
        J = link_jacobian(rng.standard_normal(2))
        for reference in references:
            reference.add(J, x)
    matrices = [reference.dense() for reference in references]
    for a, b in itertools.combinations(matrices, 2):
        assert np.abs(a - b).max() > 1e-3
    assert isinstance(references[0], Sketched)
