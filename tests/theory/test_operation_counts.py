"""A round takes the derived number of operations, and the counter agrees with counts by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from variants import literal_of, make

from compendium.theory.operations import (
    counted,
    eofd_flops,
    filled_eofd,
    oful_flops,
    projection_counts,
    scored_in_few,
)
from mlogb_core import ConstantRadius, RidgeRadius, _linalg, oful
from mlogb_core.curvature import FrequentDirections, dense, frequent_directions, low_rank
from mlogb_core.environments import SyntheticEnvironment
from mlogb_core.radius import scaled_parameters

# One more pass of K rows over the basis is about a fifth of EOFD's update at K = 4.
SLACK = 1.06
SIZES = [(1, 600, 30), (1, 2400, 60), (4, 150, 40), (4, 600, 80)]
PLAIN = {"regularization": 1.0, "step_size": 1.0, "norm_bound": 1e3, "radius": ConstantRadius(0.01)}


def counted_round(policy, n_actions=20, seed=1):
    """The operations of one select and of the update after it."""
    d = policy.parameter.shape[1]
    actions = np.random.default_rng(seed).normal(size=(n_actions, d)) / np.sqrt(d)
    with counted(policy) as select:
        chosen = policy.select(actions)
    with counted(policy) as update:
        policy.update(actions[chosen], 1)
    return select, update


def eofd_excess(K, d, m, norm_bound=1e3, seed=1, rounds=1):
    """Counted over derived operations, for `select` and for `update` of the last round."""
    policy = filled_eofd(K, d, m, norm_bound=norm_bound)
    for number in range(rounds):
        sizes = {"actions": 20, "tracked": policy.coordinates is not None}
        select, update = counted_round(policy, seed=seed + number)
    sizes |= {"scored": policy.evaluated} | projection_counts(update, K)
    assert sizes["tracked"] == (rounds > 1)
    assert (sizes["newton"] > 0) == (norm_bound < 1.0)
    return select.total / eofd_flops(K, d, m, **sizes)[0], update.total / eofd_flops(K, d, m, **sizes)[1]


def oful_excess(K, d, norm_bound=1e3):
    policy = oful(d, np.arange(1, K + 1) / K, **(PLAIN | {"norm_bound": norm_bound}))
    select, update = counted_round(policy)
    steps = update.calls["dsymv"]
    few = scored_in_few(policy)
    derived = oful_flops(K, d, actions=20, scored=policy.evaluated, few=few, lanczos=steps)
    return select.total / derived[0], update.total / derived[1]


# The guard -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm_bound", [1e3, 0.05])
@pytest.mark.parametrize(("K", "d", "m"), SIZES)
def test_eofd_round_costs_what_is_derived(K, d, m, norm_bound):
    select, update = eofd_excess(K, d, m, norm_bound)
    assert 0.97 <= select <= SLACK
    assert 0.97 <= update <= SLACK


@pytest.mark.parametrize(("K", "d", "m"), SIZES)
def test_a_second_projection_reads_the_basis_two_times_less(K, d, m, monkeypatch):
    monkeypatch.setattr(low_rank, "_TRACKED", 0)
    select, update = eofd_excess(K, d, m, norm_bound=0.05, rounds=2)
    assert 0.97 <= select <= SLACK
    assert 0.97 <= update <= SLACK
    step = FrequentDirections.newton_step
    monkeypatch.setattr(FrequentDirections, "newton_step", lambda self, *given: step(self, *given[:6]))
    assert eofd_excess(K, d, m, norm_bound=0.05, rounds=2)[1] > SLACK


@pytest.mark.parametrize("norm_bound", [1e3, 0.05])
@pytest.mark.parametrize(("K", "d"), [(1, 400), (1, 1200), (4, 100), (4, 300)])
def test_oful_round_costs_what_is_derived(K, d, norm_bound):
    select, update = oful_excess(K, d, norm_bound)
    assert 0.5 <= select <= SLACK  # A single action with K = 1 needs one pass over the triangle, not two.
    assert 0.95 <= update <= SLACK


def test_the_guard_notices_one_more_pass(monkeypatch):
    frame = FrequentDirections.frame

    def wasteful(self, action, image=None):
        found = frame(self, action, image)
        found.fresh @ self.basis.T
        return found

    monkeypatch.setattr(FrequentDirections, "frame", wasteful)
    assert min(eofd_excess(*size)[1] for size in SIZES) > SLACK


def test_the_guard_notices_another_order(monkeypatch):
    add = FrequentDirections.add

    def with_an_svd(self, *given):
        np.linalg.svd(self.basis, full_matrices=False)
        return add(self, *given)

    monkeypatch.setattr(FrequentDirections, "add", with_an_svd)
    assert eofd_excess(4, 150, 40)[1] > 3 * SLACK
    add_exactly = dense.DenseCurvature.add

    def with_a_solve(self, frame, *given):
        np.linalg.solve(self.inverse, frame.solved.T)
        return add_exactly(self, frame, *given)

    monkeypatch.setattr(dense.DenseCurvature, "add", with_a_solve)
    assert oful_excess(4, 100)[1] > 3 * SLACK


def test_a_kept_image_is_not_computed_again():
    policy = filled_eofd(4, 300, 40)
    actions = np.random.default_rng(2).normal(size=(10, 300)) / np.sqrt(300)
    again = filled_eofd(4, 300, 40)
    chosen = policy.select(actions)
    with counted(policy) as known:
        policy.update(actions[chosen], 1)
    with counted(again) as unknown:
        again.update(actions[chosen], 1)
    assert unknown.flops["matmul"] - known.flops["matmul"] == 2 * 4 * 300 * 40


@pytest.mark.parametrize("kind", ["eofd", "oful"])
def test_pruning_leaves_less_than_half_of_the_actions(kind):
    K, d = 4, 300
    rewards = np.arange(1, K + 1) / K
    regularization, step_size = scaled_parameters(K, d, 4.0, (0.75, 0.75))
    settings = {"regularization": regularization, "step_size": step_size, "norm_bound": 4.0}
    policy = make(kind, K, d, 250, radius=RidgeRadius(0.01), **settings)
    rng = np.random.default_rng(3)
    instance = SyntheticEnvironment(d, rewards, parameter_norm=4.0).instance(rng)
    scored = offered = 0
    for _ in range(100):
        candidates = instance.actions(rng)
        chosen = policy.select(candidates.features)
        policy.update(candidates.features[chosen], candidates.outcome(chosen, rng.random()))
        scored, offered = scored + policy.evaluated, offered + len(candidates.features)
    assert scored < 0.5 * offered


# The counter ---------------------------------------------------------------------------------------


def operations_of(compute, **arrays):
    holder = SimpleNamespace(**arrays)
    with counted(holder) as operations:
        compute(holder)
    return operations


@pytest.mark.parametrize(
    ("left", "right", "flops"),
    [
        ((3, 4), (4, 5), 120),
        ((4,), (4,), 8),
        ((3, 4), (4,), 24),
        ((7, 3, 4), (7, 4, 2), 336),
        ((0, 4), (4, 2), 0),
    ],
)
@pytest.mark.parametrize("watched", ["left", "right"])
def test_products_by_hand(left, right, flops, watched):
    pair = {"left": np.ones(left), "right": np.ones(right)}
    held = {watched: pair.pop(watched)}

    def multiply(holder):
        found = pair | vars(holder)
        return found["left"] @ found["right"]

    assert operations_of(multiply, **held).flops == {"matmul": flops}


def test_products_of_results_views_and_conversions_are_counted():
    def chain(holder):
        first = np.asarray(holder.a[:2] @ np.ones((4, 4)))  # 2 * 2 * 4 * 4
        np.ascontiguousarray((first + 1.0).T) @ np.ones(2)  # 2 * 4 * 2
        np.hstack((first, first)) @ np.ones((8, 1))  # 2 * 2 * 8

    operations = operations_of(chain, a=np.ones((3, 4)))
    assert (operations.total, operations.calls["matmul"]) == (64 + 16 + 32, 3)


def test_factorisations_by_hand():
    spd = np.diag(np.arange(1.0, 7.0))

    def kernels(holder):
        factor = _linalg.cholesky(holder.a.copy())  # 6^3 / 3
        _linalg.cholesky_solve(factor, np.ones((2, 6)))  # 2 * 36 * 2
        _linalg.whiten(factor, np.ones((5, 6)))  # 36 * 5
        _linalg.whiten(factor, np.ones((1, 6)), transposed=True)  # 36
        _linalg.invert_triangle(factor)  # 6^3 / 3
        _linalg.solve(holder.a, np.ones(6))  # 2/3 * 6^3 + 2 * 36
        _linalg.smallest_eigenpairs(holder.a, 1)  # 4/3 * 6^3 + 2 * 36
        _linalg.smallest_eigenpairs(holder.a, 2)  # 4/3 * 6^3 + 2 * 36 * 2, and 2 * 2 * 6 * 2 to check them
        _linalg.add_product(np.zeros((3, 4)), np.ones((3, 1)), np.ones((1, 4)))  # 2 * 3 * 4
        _linalg.add_product(np.zeros((3, 4)), np.ones((3, 5)), np.ones((5, 4)))  # 2 * 3 * 5 * 4
        dense.dsymv(1.0, holder.a, np.ones(6), lower=1)  # 2 * 36
        dense.dsyrk(1.0, np.ones((6, 2)), lower=1)  # 6 * 7 * 2

    expected = {
        "dpotrf": 72,
        "dpotrs": 144,
        "dtrsm": 180,
        "dtrsv": 36,
        "dtrtri": 72,
        "dgesv": 216,
        "dsyevx": 360,
        "dsyevr": 432,
        "dger": 24,
        "dgemm": 120,
        "dsymv": 72,
        "dsyrk": 84,
        "matmul": 48,
    }
    assert operations_of(kernels, a=spd).flops == pytest.approx(expected)


@pytest.mark.parametrize("K", [1, 3])
def test_symmetric_products_are_counted(K):
    rows, left = np.ones((K, 5)), np.ones((4, K))

    def kernels(holder):
        low_rank.gram(holder.rows)  # 2 * K * 5 * 5
        frequent_directions.symmetric_product(holder.left, holder.left)  # 2 * K * 4 * 4, at K = 1 twice

    operations = operations_of(kernels, rows=rows, left=left)
    assert operations.total == 50 * K + 32 * max(K, 2)
    assert operations.calls["matmul"] == (3 if K == 1 else 2)


@pytest.mark.parametrize("length", [30, 120])
def test_solves_are_counted_by_either_kernel(length):
    factor = np.eye(length)
    with counted(SimpleNamespace()) as operations:
        _linalg.cholesky(np.eye(length))
        _linalg.whiten(factor, np.ones((1, length)))  # the start
        for _ in range(3):
            _linalg.cholesky_solve(factor, np.ones((1, length)))
    operations.calls["dpotrf"] += 1  # the frame's, at K > 1
    assert projection_counts(operations, 2) == {"newton": 1, "solves": 3}
    assert operations.total == pytest.approx(length**3 / 3 + length**2 + 3 * 2 * length**2)


def test_numpy_factorisations_by_hand():
    def kernels(holder):
        np.linalg.svd(holder.a, full_matrices=False)  # 6 * 5 * 9 + 20 * 27
        np.linalg.norm(holder.a, 2)  # 4 * 5 * 9 - 4/3 * 27
        np.linalg.norm(holder.a)  # a sum of squares: not counted
        np.linalg.eigh(np.eye(3))  # 14/3 * 27
        np.linalg.eigvalsh(np.zeros((4, 3, 3)))  # 4 * 4/3 * 27

    flops = operations_of(kernels, a=np.ones((3, 5))).flops
    assert flops == pytest.approx({"svd": 810, "norm": 144, "eigh": 126, "eigvalsh": 144})


@pytest.mark.parametrize("literal", [False, True])
@pytest.mark.parametrize("kind", ["eofd", "oful"])
def test_counting_changes_nothing(kind, literal):
    plain, watched = (make(kind, 2, 8, 5, **PLAIN | {"norm_bound": 0.3}) for _ in range(2))
    if literal:
        plain, watched = (literal_of(kind, policy) for policy in (plain, watched))
    rng = np.random.default_rng(5)
    for _ in range(30):
        actions = rng.normal(size=(6, 8))
        chosen = plain.select(actions)
        plain.update(actions[chosen], 1)
        with counted(watched) as operations:
            assert watched.select(actions) == chosen
            watched.update(actions[chosen], 1)
        assert operations.total > 0
        np.testing.assert_array_equal(watched.parameter, plain.parameter)
    assert type(watched.parameter) is np.ndarray
    before = dict(operations.calls)
    watched.select(actions)
    assert operations.calls == before  # Nothing is counted after the block.


def test_counting_ends_with_an_exception():
    policy, product = make("eofd", 2, 8, 5), np.asarray
    with pytest.raises(ValueError, match="actions"), counted(policy):
        policy.select(np.ones((2, 3)))
    assert np.asarray is product
    assert type(policy.curvature.core) is np.ndarray
