"""Single faults that could be put into the compiled round: a small case for each that tells it apart."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from helpers import EPS, ellipsoid_projection

from mlogb_core import ConstantRadius, OptimisticPolicy, _linalg, eofd, oful
from mlogb_core._thresholds import SLACK
from mlogb_core.choice import choose

pytest.importorskip("numba", reason="the compiled form is the optional extra [fast]")
from mlogb_core.compiled import CompiledPolicy, link, projection, shrink, step  # needs numba
from mlogb_core.compiled import choose as compiled_choose
from mlogb_core.compiled import policy as compiled_policy
from mlogb_core.compiled.arguments import WITHOUT_FRAME, Bonus, Candidates, Played, Settings


def policy_with(parameter, **changes):
    """A compiled sketch with the given parameter, which has learned nothing."""
    parameter = np.asarray(parameter)
    settings = {"regularization": 1.0, "step_size": 1.0, "norm_bound": 100.0, "sketch_size": 3}
    settings |= {"radius": ConstantRadius(1e-6), "compiled": True} | changes
    policy = eofd(parameter.shape[1], np.arange(1.0, len(parameter) + 1), **settings)
    policy.parameter = parameter
    return policy


@pytest.mark.parametrize("wide", [False, True])
def test_the_scale_of_a_tie_is_that_of_all_scores(wide, monkeypatch):
    """The third action's score cannot be the best one, but it is the largest, and makes the others tie."""
    monkeypatch.setattr(compiled_policy, "WIDE", 0 if wide else 10**9)
    policy = policy_with([[1.0, 0.0]])
    actions = np.array([[1.0, 0.0], [1.0 + 5e-10, 0.0], [-10.0, 0.0]])
    assert policy.select(actions[:2]) == 1
    assert policy.select(actions) == choose(policy.scores(actions)).action == 0
    assert policy.margin == pytest.approx(choose(policy.scores(actions)).margin, rel=1e-5)


def test_bounds_that_are_attained_prune_no_action_by_their_roundoff():
    """Without a tolerance of ties, roundoff decides among actions that differ by a permutation."""
    rng, K, d = np.random.default_rng(0), 3, 4
    slopes_of = np.ones((K, d)) * rng.uniform(0.2, 0.6, (K, 1))
    bonus = Bonus(beta=1e-2, half_sum=3.0, regularization=0.7, tie_tolerance=0.0, slack=SLACK)
    sketch = np.empty((0, K * d)), np.empty((0, 0))
    for _ in range(40):
        x = rng.standard_normal(d)
        actions = np.array([x[list(order)] for order in itertools.permutations(range(d))])
        squares, rewards = np.square(actions).sum(axis=1), np.arange(1.0, K + 1)
        candidates = Candidates(actions, squares, *link.estimates(actions, slopes_of, rewards))
        index, images = np.arange(len(actions)), np.zeros((len(actions), K, 0))
        search = compiled_choose.start_search(candidates, bonus)
        blocks = compiled_choose.sketch_blocks(actions, index, *sketch, bonus.regularization, images)
        compiled_choose.score(candidates, search, bonus, index, blocks)
        assert search.known.all()
        found = compiled_choose.choose_by_sketch(*candidates, *sketch, tuple(bonus))
        assert found[:2] == choose(search.scores, 0.0)


def test_as_many_actions_are_scored_as_in_the_numpy_form(monkeypatch):
    monkeypatch.setattr("mlogb_core.policies.optimistic._CHEAP", 0)
    rng, settings = np.random.default_rng(1), {"radius": ConstantRadius(0.05), "regularization": 1.0}
    settings |= {"step_size": 2.0, "norm_bound": 2.0}
    seen = set()
    for maker, wide, more in (
        (eofd, 10**9, {"sketch_size": 5}),
        (eofd, 0, {"sketch_size": 5}),
        (oful, 0, {}),
    ):
        monkeypatch.setattr(compiled_policy, "WIDE", wide)
        plain, fast = (maker(6, [0.5, 1.0], compiled=form, **settings, **more) for form in (False, True))
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
    """Also where the rank stays the same: against the same policy that is built anew in every round."""
    policy = eofd(
        6,
        [0.5, 1.0],
        compiled=True,
        sketch_size=4,
        regularization=1.0,
        step_size=2.0,
        norm_bound=2.0,
        radius=ConstantRadius(0.05),
    )
    rng = np.random.default_rng(2)
    for _ in range(12):
        actions = rng.standard_normal((5, 6))
        twin = OptimisticPolicy.from_state(policy.state_dict())
        chosen = policy.select(actions)
        np.testing.assert_allclose(twin.scores(actions), policy.scores(actions), rtol=1e-14)
        for one in (policy, twin):
            one.update(actions[chosen], 1)
        np.testing.assert_allclose(policy.parameter, twin.parameter, rtol=0, atol=1e-14)


def test_no_row_is_written_where_the_basis_has_no_room():
    """A basis that has lost its orthonormality can leave more outside than there are rows."""
    K, d, rank = 2, 2, 3
    memory = np.full((rank + K, K * d), 7.0)
    rows, core = memory[: rank + K - 1], np.eye(rank)
    rows[:rank] = 0.0
    played = Played(np.ones(d), np.zeros((K, rank)), outcome=0)
    settings = Settings(1.0, 1.0, 1.0, EPS, 1e-250, 0.1, 4 * EPS)
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
            for Q, inverse in (_linalg.polar(matrix), shrink._polar(np.ascontiguousarray(matrix.T))):
                np.testing.assert_allclose(Q @ Q.T, np.eye(K), rtol=0, atol=1e-13)
                np.testing.assert_allclose(inverse, (right / (1.0 + scales)) @ right.T, rtol=0, atol=1e-13)
                np.testing.assert_allclose(Q @ (right * scales) @ right.T, matrix, rtol=0, atol=1e-13)


def test_a_well_conditioned_projection_stays_in_its_krylov_space(monkeypatch):
    """With the parameter in the span of a full basis, whose length outside is roundoff of either sign."""
    settings = {"regularization": 1.0, "step_size": 2.0, "norm_bound": 0.3, "radius": ConstantRadius(0.1)}
    settings["sketch_size"] = 6
    plain, fast = (eofd(6, [1.0], compiled=form, **settings) for form in (False, True))

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
    settings = Settings(1.0, 0.5, 1.0, 8 * EPS, 0.0, 0.0, 0.0)
    projected, multiplier, settled = projection.project_in_krylov_space(core, local, rest, settings)
    assert settled
    assert multiplier > 0.0
    expected = ellipsoid_projection(np.diag([*values, 0.0]) + 0.5 * np.eye(5), np.append(local, rest), 1.0)
    np.testing.assert_allclose(projected, expected[:4], rtol=0, atol=1e-7 if max(values) > 1e8 else 1e-13)
