"""The kernels one by one: small cases, each of which a plausible fault in the compiled round would fail."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from helpers import EPS, ellipsoid_projection
from variants import make

from mlogb_core import ConstantRadius, OptimisticPolicy, _linalg
from mlogb_core._thresholds import SLACK
from mlogb_core.choice import choose
from mlogb_core.link import jacobian_factor, loss_residual, outcome_probabilities
from mlogb_core.policies import movement

pytest.importorskip("numba", reason="the compiled form is the optional extra [fast]")
from mlogb_core.compiled import CompiledPolicy, algebra, link, projection, shrink, step  # needs numba
from mlogb_core.compiled import choose as compiled_choose
from mlogb_core.compiled import policy as compiled_policy
from mlogb_core.compiled.arguments import DONE, WITHOUT_FRAME, Bonus, Candidates, Played, Settings

pytestmark = pytest.mark.compiled

SETTINGS = {"regularization": 1.0, "step_size": 2.0, "norm_bound": 2.0, "radius": ConstantRadius(0.05)}


def policy_with(parameter, **changes):
    """A compiled sketch with the given parameter and no Hessian yet."""
    K, d = np.shape(parameter)
    settings = {"regularization": 1.0, "step_size": 1.0, "norm_bound": 100.0, "radius": ConstantRadius(1e-6)}
    policy = make("eofd compiled", K, d, 3, rewards=np.arange(1.0, K + 1), **settings | changes)
    policy.parameter = np.asarray(parameter)
    return policy


@pytest.mark.parametrize("wide", [False, True])
def test_the_scale_of_a_tie_is_that_of_all_scores(wide, monkeypatch):
    """The third action cannot be the best, but its score has the largest size, which makes the others tie."""
    monkeypatch.setattr(compiled_policy, "WIDE", 0 if wide else 10**9)
    policy = policy_with([[1.0, 0.0]])
    actions = np.array([[1.0, 0.0], [1.0 + 5e-10, 0.0], [-10.0, 0.0]])
    assert policy.select(actions[:2]) == 1
    assert policy.select(actions) == choose(policy.scores(actions)).action == 0
    assert policy.margin == pytest.approx(choose(policy.scores(actions)).margin, rel=1e-5)


def test_bounds_that_are_attained_prune_no_action_by_their_roundoff():
    """Without a tolerance roundoff decides between actions that differ by a permutation of their entries."""
    rng, K, d = np.random.default_rng(0), 3, 4
    slopes_of = np.ones((K, d)) * rng.uniform(0.2, 0.6, (K, 1))
    bonus = Bonus(beta=1e-2, half_sum=3.0, ridge=0.7, tie_tolerance=0.0, slack=SLACK)
    sketch = np.empty((0, K * d)), np.empty((0, 0))
    for _ in range(40):
        x = rng.standard_normal(d)
        actions = np.array([x[list(order)] for order in itertools.permutations(range(d))])
        squares, rewards = np.square(actions).sum(axis=1), np.arange(1.0, K + 1)
        candidates = Candidates(actions, squares, *link.estimates(actions, slopes_of, rewards))
        index, images = np.arange(len(actions)), np.zeros((len(actions), K, 0))
        search = compiled_choose.start_search(candidates, bonus)
        blocks = compiled_choose.sketch_blocks(actions, squares, index, *sketch, bonus.ridge, images)
        compiled_choose.score(candidates, search, bonus, index, blocks)
        assert search.known.all()
        given = actions, squares, slopes_of, rewards, *sketch, np.empty((0, 0)), tuple(bonus)
        found = compiled_choose.choose_by_sketch(*given)
        assert found[:2] == choose(search.scores, 0.0)


def test_as_many_actions_are_scored_as_in_the_numpy_form(monkeypatch):
    monkeypatch.setattr("mlogb_core.policies.optimistic._CHEAP", 0)
    rng, seen = np.random.default_rng(1), set()
    for kind, wide in (("eofd", 10**9), ("eofd", 0), ("oful", 0), ("diagonal", 0)):
        monkeypatch.setattr(compiled_policy, "WIDE", wide)
        plain, fast = (make(kind, 2, 6, 5, compiled=form, **SETTINGS) for form in (False, True))
        for _ in range(40):
            actions = rng.standard_normal((30, 6))
            chosen = plain.select(actions)
            assert fast.select(actions) == chosen
            assert fast.evaluated == plain.evaluated
            seen.add(fast.evaluated)
            for policy in (plain, fast):
                policy.update(actions[chosen], 1)
    assert len(seen) > 3


def test_a_ridge_factor_lives_for_one_round():
    """The factor changes in every round, even at the same rank; a restored policy computes the same one."""
    policy = make("eofd compiled", 2, 6, 4, **SETTINGS)
    rng = np.random.default_rng(2)
    for _ in range(12):
        actions = rng.standard_normal((5, 6))
        twin = OptimisticPolicy.from_state(policy.state_dict())
        chosen = policy.select(actions)
        np.testing.assert_allclose(twin.scores(actions), policy.scores(actions), rtol=1e-14)
        for one in (policy, twin):
            one.update(actions[chosen], 1)
        np.testing.assert_allclose(policy.parameter, twin.parameter, rtol=0, atol=1e-14)


@pytest.mark.parametrize("share", [1e-3, 1e-2, 5e-2])
def test_rows_near_the_span_are_orthonormal(share):
    """A single projection would leave an error in the digits that cancel, in the lengths of the rows too."""
    rng, K, d, rank = np.random.default_rng(5), 2, 40, 12
    for _ in range(10):
        basis = np.linalg.qr(rng.standard_normal((K * d, rank * K)))[0].T
        x = rng.standard_normal(rank) @ rng.standard_normal((rank, d))
        inside = np.kron(np.eye(K), x / np.linalg.norm(x))
        basis = np.linalg.qr(np.concatenate((inside, basis[K:])).T)[0].T  # holds x for all outcomes
        x = x / np.linalg.norm(x) + math.sqrt(share / d) * rng.standard_normal(d)
        memory = np.concatenate((basis, np.zeros((K, K * d))))
        image = basis.reshape(-1, K, d) @ x
        settings = Settings(1.0, 1.0, 9.0, EPS, 1e-250, 0.1, 1e-4, 4 * EPS)
        played = Played(x, np.ascontiguousarray(image.T), 0)
        core = np.eye(len(basis))
        taken = step.step(memory, core, np.sqrt(2.0) * core, np.zeros((K, d)), *played, tuple(settings))
        assert taken.state == DONE
        np.testing.assert_allclose(memory @ memory.T, np.eye(len(memory)), rtol=0, atol=3e-15)


def test_no_row_is_written_where_the_basis_has_no_room():
    """If the basis has lost its orthonormality, more directions may be fresh than there are rows."""
    K, d, rank = 2, 2, 3
    memory = np.full((rank + K, K * d), 7.0)
    rows, core = memory[: rank + K - 1], np.eye(rank)
    rows[:rank] = 0.0
    played = Played(np.ones(d), np.zeros((K, rank)), outcome=0)
    settings = Settings(1.0, 1.0, 1.0, EPS, 1e-250, 0.1, 1e-4, 4 * EPS)
    taken = step.step(rows, core, np.eye(rank), np.zeros((K, d)), *played, tuple(settings))
    assert taken.state == WITHOUT_FRAME
    np.testing.assert_array_equal(memory[rank:], 7.0)


@pytest.mark.parametrize("smallest", [1e-3, 1e-8, 1e-14, 1e-17, 1e-30, 1e-60, 1e-80, 1e-200, 0.0])
def test_polar_factors_of_nearly_singular_matrices(smallest):
    rng = np.random.default_rng(3)
    for K in (1, 2, 3, 5, 12):
        for turned in (False, True):
            U, V = (np.linalg.qr(rng.standard_normal((K, K)))[0] for _ in range(2))
            scales = np.append(smallest * rng.uniform(1.0, 2.0, K - 1), 0.5)
            matrix = (U * scales) @ V.T if turned else scales[:, None] * U
            right = V if turned else U.T
            part = np.empty((K, K + 1))[:, 1:]  # a part of an array, for which `shrink` compiles it
            part[:] = matrix.T
            compiled = shrink._polar if K > 1 else shrink._polar.py_func  # one entry is no part for numba
            for Q, inverse in (_linalg.polar(matrix), compiled(part)):
                np.testing.assert_allclose(Q @ Q.T, np.eye(K), rtol=0, atol=1e-13)
                np.testing.assert_allclose(inverse, (right / (1.0 + scales)) @ right.T, rtol=0, atol=1e-13)
                np.testing.assert_allclose(Q @ (right * scales) @ right.T, matrix, rtol=0, atol=1e-13)


def test_a_well_conditioned_projection_stays_in_its_krylov_space(monkeypatch):
    """The basis is full, so that the squared length outside its span is roundoff of either sign."""
    settings = {"regularization": 1.0, "step_size": 2.0, "norm_bound": 0.3, "radius": ConstantRadius(0.1)}
    plain, fast = (make("eofd", 1, 6, 6, compiled=form, **settings) for form in (False, True))

    def refuse(*_):
        raise AssertionError("Cholesky factors were asked for")

    monkeypatch.setattr(CompiledPolicy, "_projected", refuse)
    rng = np.random.default_rng(4)
    for t in range(60):
        x = rng.standard_normal(6)
        for policy in (plain, fast):
            policy.update(x, t % 2)
    np.testing.assert_allclose(fast.parameter, plain.parameter, rtol=0, atol=1e-13)


@pytest.mark.parametrize("values", [[2.0] * 4, [2.0, 2.0, 5.0, 5.0], [1e-9, 1.0, 1.0, 1e9], [0.0] * 4])
@pytest.mark.parametrize("rest", [0.0, 3.0])
def test_a_projection_in_an_invariant_space_ends_there(values, rest):
    local, core = np.array([3.0, 1.0, -2.0, 1.0]), np.diag(values)
    settings = Settings(1.0, 0.5, 1.0, 8 * EPS, 0.0, 0.0, 0.0, 0.0)
    projected, multiplier, settled = projection.project_in_krylov_space(core, local, rest, settings)
    assert settled
    assert multiplier > 0.0
    expected = ellipsoid_projection(np.diag([*values, 0.0]) + 0.5 * np.eye(5), np.append(local, rest), 1.0)
    np.testing.assert_allclose(projected, expected[:4], rtol=0, atol=1e-7 if max(values) > 1e8 else 1e-13)


@pytest.mark.parametrize("K", [1, 2, 5])
def test_the_movement_is_that_of_the_numpy_form(K):
    rng = np.random.default_rng(K)
    old, change, action = rng.standard_normal((K, 7)), rng.standard_normal((K, 7)), rng.standard_normal(7)
    seen = []
    for outcome in range(K + 1):
        p = outcome_probabilities(old @ action)
        residual, factor = loss_residual(p, outcome), jacobian_factor(p)
        for new, multiplier in ((old - np.outer(residual, action), 0.01), (old + change, 0.3)):
            expected = movement(old, new, action, residual, factor, 0.7, multiplier)
            found = step.movement(old, new, action, outcome, 0.7, multiplier)
            assert found == pytest.approx(expected, rel=1e-12)
            seen.append(expected[1])
    assert max(seen) > 0.0 == min(seen)


@pytest.mark.each_value
@pytest.mark.parametrize("n", [*range(1, 14), 40, 77, 129])
@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (1e-12, -1e-12), (1e12, 1e10), (1.0, -500.0)])
def test_cholesky_factors(n, scale, shift):
    rows = np.random.default_rng(n).standard_normal((n + 1, n + 9))
    matrix = scale * (rows @ rows.T / n + np.eye(n + 1))
    upper, definite = algebra.cholesky(matrix, n, shift)
    shifted = matrix[:n, :n] - shift * np.eye(n)
    assert definite
    np.testing.assert_array_equal(upper, np.triu(upper))
    np.testing.assert_allclose(upper, np.linalg.cholesky(shifted).T, rtol=0, atol=1e-14 * upper.max())
    np.testing.assert_allclose(upper.T @ upper, shifted, rtol=0, atol=1e-14 * shifted.max())


@pytest.mark.each_value
@pytest.mark.parametrize("value", [0.0, -1e-9, -1.0, np.nan])
@pytest.mark.parametrize(("n", "place"), [(n, place) for n in (8, 11) for place in range(n)])
def test_there_is_no_cholesky_factor_without_positive_pivots(n, place, value):
    """The pivot may be at any place in a group of four rows, or in the rows after the last group."""
    pivots = np.ones(n)
    pivots[place] = value
    assert not algebra.cholesky(np.diag(pivots), n, 0.0)[1]
    unit = np.triu(np.random.default_rng(place).integers(-2, 3, (n, n)), 1) + np.eye(n)
    assert not algebra.cholesky(unit.T @ np.diag(pivots) @ unit, n, 0.0)[1]  # Exact, in integers.
    assert algebra.cholesky(np.diag(pivots), place, 0.0)[1]


@pytest.mark.parametrize(("k", "n"), [(1, 41), (1, 79), (3, 43), (4, 20)])
def test_a_shrunk_core_is_symmetric_to_the_bit(k, n):
    rows = np.random.default_rng(n).standard_normal((n, n + 5))
    core = rows @ rows.T
    core = (core + core.T) / 2.0
    values, vectors = np.linalg.eigh(core)
    removed = np.ascontiguousarray(vectors[:, :k].T)
    found, _ = shrink.shrink(core, removed, n - k, 0.25)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(np.linalg.eigvalsh(found), values[k:] - 0.25, rtol=0, atol=1e-13 * values[-1])


@pytest.mark.parametrize("far", [1.001, 3.0, 1e6, 1e12])
@pytest.mark.parametrize("rest", [0.0, 0.7])
def test_projection_in_a_krylov_space(far, rest):
    rng, settings = np.random.default_rng(8), Settings(1.0, 2.0, 1.0, 1e-15, 0.0, 0.0, 0.0, 0.0)
    factor = rng.standard_normal((30, 9))
    core, local = factor @ factor.T, rng.standard_normal(30)
    point = np.append(local, rest)
    point *= far / np.linalg.norm(point)
    Z = np.zeros((31, 31))
    Z[:30, :30] = core
    expected = ellipsoid_projection(Z + 2.0 * np.eye(31), point, 1.0)
    found = projection.project_in_krylov_space(core, point[:30].copy(), point[30], settings)
    projected, multiplier, settled = found
    assert settled
    assert multiplier > 0.0
    np.testing.assert_allclose(projected, expected[:30], rtol=0, atol=1e-12)
    # The component outside the span of the sketch is scaled by lambda / (lambda + nu).
    np.testing.assert_allclose(2.0 / (2.0 + multiplier) * point[30], expected[30], rtol=0, atol=1e-12)
