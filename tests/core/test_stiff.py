"""Both forms of the round against 50 digits on ill-conditioned problems.

An error is compared with the conditioning of the problem: with the change of the exact result if the given
numbers change in their last digits. The two forms round differently, and on a single problem either may be
more accurate; but neither may lose more digits than the conditioning explains.
"""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
import scipy.linalg
from helpers import EPS, exact_hessian, exact_low_rank, exact_step
from helpers import exact as exact_decimals

from mlogb_core import ConstantRadius, OptimisticPolicy, eofd
from mlogb_core._linalg import smallest_eigenpairs
from mlogb_core.curvature.base import step_weights
from mlogb_core.link import jacobian, jacobian_factor, loss_residual, outcome_probabilities

pytest.importorskip("numba", reason="the compiled form is the optional extra [fast]")
from mlogb_core.compiled.arguments import Loss  # needs numba
from mlogb_core.compiled.step import step_weights as compiled_step_weights

DIGITS = 50
FACTOR = 10.0  # The bounds count each rounding once, and only up to a constant.


def exact(array):
    """The float64 numbers as a matrix of mpmath; a vector is a column."""
    array = np.asarray(array)
    return mp.matrix(array.reshape(len(array), -1).tolist())


def size(matrix):
    return matrix.apply(abs)


def stiff_blocks(rng, K):
    """A(x) that is much larger along one direction, in most cases that in which the Jacobian is singular."""
    heavy = np.ones(K) if rng.random() < 0.7 else rng.standard_normal(K)
    light = rng.standard_normal((K, K)) * 10.0 ** rng.uniform(-4, 2)
    A = 10.0 ** rng.uniform(0, 8) * np.outer(heavy, heavy) + light @ light.T
    return (A + A.T) / 2.0


def weights_and_bound(A, u, F, eta):
    """v = (I + eta FF'A)^-1 u in 50 digits, and a bound of its change by roundoff in A, F, u and the sums."""
    A, u, F = exact(A), exact(u), exact(F)
    matrix = mp.eye(len(u)) + eta * F * (F.T * A)
    inverse = mp.inverse(matrix)
    v = inverse * u
    moved = size(inverse) * (size(matrix) * size(v) + size(F) * size(F.T * A * v) * eta)
    moved += eta * (size(inverse * F) * size(F.T) * size(A) * size(v))
    return v, EPS * max(moved) * len(u)


@pytest.mark.parametrize("K", [1, 2, 3, *(pytest.param(K, marks=pytest.mark.slow) for K in (4, 6))])
def test_the_weights_of_a_step(K):
    rng = np.random.default_rng(K)
    with mp.workdps(DIGITS):
        for _ in range(60):
            logits = rng.standard_normal(K) * 10.0 ** rng.uniform(-1, 1.5) + rng.choice([0, 10, 30, 60])
            p = outcome_probabilities(logits)
            F, u, A = jacobian_factor(p), loss_residual(p, int(rng.integers(K + 1))), stiff_blocks(rng, K)
            eta = 10.0 ** rng.uniform(-3, 6)
            v, bound = weights_and_bound(A, u, F, eta)
            for weights in (step_weights(A, u, F, eta), compiled_step_weights(A, Loss(u, F), eta)):
                assert max(size(exact(weights) - v)) <= FACTOR * bound


def test_eigenvectors_of_a_core_whose_entries_differ_by_thirty_decades_are_orthonormal():
    """On these matrices LAPACK's `dsyevr` reports success and returns nearly parallel vectors."""
    heavy = np.array([[2.260e-02, 5.732e-03], [5.732e-03, 1.453e-03]])
    rng = np.random.default_rng(90)
    rows = rng.standard_normal((4, 6)) * 10.0 ** rng.uniform(-17, 0, (4, 1)) * 10.0 ** rng.uniform(-17, 0, 6)
    for matrix in (rows.T @ rows, scipy.linalg.block_diag(heavy, 1e-31 * np.eye(3), 1e-51)):
        vectors = smallest_eigenpairs(matrix, 4)[1]
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(4), rtol=0, atol=1e-13)


def nearly_parallel(rng, n, d):
    actions = rng.standard_normal((n, d))
    return actions[0] + 10.0 ** rng.uniform(-10, -3, (n, 1)) * actions


@pytest.mark.compiled
def test_the_basis_stays_orthonormal_under_nearly_parallel_actions():
    for seed in (18, 35, 112, 1186):  # some of the seeds for which `dsyevr` alone failed
        rng = np.random.default_rng(seed)
        settings = {"regularization": 1e-4, "step_size": 1e3, "norm_bound": 1e2, "sketch_size": 2}
        for form in (False, True):
            policy = eofd(2, np.arange(1.0, 5.0) / 4, radius=ConstantRadius(0.1), compiled=form, **settings)
            for x in nearly_parallel(rng, 24, 2):
                policy.update(x / np.linalg.norm(x), int(rng.integers(5)))
                basis = policy.curvature.basis
                assert np.abs(basis @ basis.T - np.eye(len(basis))).max() <= 1e-13


def slow(*streams):
    return [pytest.param(stream, marks=pytest.mark.slow) for stream in streams]


# Whole steps: K, d, lambda, eta, S.
STEPS = [(1, 5, 1e-8, 1.0, 1.0), (2, 4, 1e-8, 1e6, 1e6), (3, 3, 1e-8, 1.0, 1.0), (4, 2, 1e-4, 1e3, 1e2)]
STEPS += [(3, 3, 1e-6, 1e-2, 1e3), (2, 4, 1e-8, 1e2, 1e-1), (6, 2, 1e-4, 1e3, 1e2), (5, 2, 1.0, 1e6, 1e6)]


def eight_decades(rng, n, d):
    actions = rng.standard_normal((n, d))
    return actions * 10.0 ** rng.uniform(-6, 2, (n, 1)) / np.linalg.norm(actions, axis=1, keepdims=True)


def axes(rng, n, d):
    return np.eye(d)[rng.integers(d, size=n)]


def signs(rng, shape):
    """A symmetric matrix of signs, or any array of them that is not square."""
    signs = rng.choice([-1.0, 1.0], size=shape)
    return np.tril(signs) + np.tril(signs, -1).T if len(signs.shape) == 2 else signs


def how_far_roundoff_moves(policy, x, outcome, step, rng):
    """The largest change of the exact step by roundoff in the numbers that every form of the step rounds.

    These are W, x, the basis, the core, the Jacobian, the residual and the point before its projection. The
    core is rounded relative to its largest entry, since its basis may be any orthonormal one.
    """
    curvature, W = policy.curvature, policy.parameter
    (K, d), core, basis, moved = W.shape, curvature.core, curvature.basis.copy(), 0.0
    J = jacobian(outcome_probabilities(W @ x))
    heavy = max(np.abs(core).max(initial=0.0), policy.step_size * (x @ x) / 4.0)
    for _ in range(3):
        curvature.core = core + EPS * heavy * signs(rng, core.shape)
        curvature.basis[...] = basis * (1.0 + EPS * rng.choice([-1.0, 1.0], size=basis.shape))
        change = policy.step_size * EPS * np.kron(J * signs(rng, J.shape), np.outer(x, x))
        Z = exact_low_rank(curvature) + exact_decimals(change)
        near = (a * (1.0 + EPS * rng.choice([-1.0, 1.0], size=a.shape)) for a in (W, x))
        roundoff = (EPS / 2.0 * signs(rng, (K,)), *EPS * rng.choice([-1.0, 1.0], size=(2, K * d)))
        given = (outcome, policy.step_size, policy.norm_bound)
        moved = max(moved, np.abs(exact_step(Z, *near, *given, roundoff=roundoff)[0] - step).max())
    curvature.core, curvature.basis[...] = core, basis
    return moved


@pytest.mark.parametrize("actions", [nearly_parallel, eight_decades, axes])
@pytest.mark.slow
def test_whole_steps(actions):
    """Steps of both forms from the same states: the worst error of the compiled form against the other's."""
    projected = 0
    for case, (K, d, lam, eta, S) in enumerate(STEPS):
        rng = np.random.default_rng(case)
        settings = {"regularization": lam, "step_size": eta, "norm_bound": S, "radius": ConstantRadius(0.1)}
        policy = eofd(d, np.arange(1.0, K + 1) / K, sketch_size=2 if case % 2 else K * d, **settings)
        worst = {False: 1.0, True: 1.0}
        for t, x in enumerate(actions(rng, 20, d)):
            outcome, state = int(rng.integers(K + 1)), policy.state_dict()
            if t % 4 == 3:
                Z, W = exact_low_rank(policy.curvature), policy.parameter
                expected, excess = exact_step(Z, W, x, outcome, eta, S)
                moved = how_far_roundoff_moves(policy, x, outcome, expected, rng)
                moved = max(moved, EPS * np.abs(expected).max())
                projected += excess > 1.0
                for form in worst:
                    twin = OptimisticPolicy.from_state(state | {"compiled": form})
                    twin.update(x, outcome)
                    worst[form] = max(worst[form], np.abs(twin.parameter - expected).max() / moved)
            policy.update(x, outcome)
        assert worst[True] <= FACTOR * worst[False], (case, worst)
    assert projected > len(STEPS)


@pytest.mark.compiled
@pytest.mark.parametrize("actions", [eight_decades, *slow(nearly_parallel, axes)])
def test_whole_games(actions):
    """Both forms against a game in 60 digits, in which only W is rounded, once per round."""
    for case, (K, d, lam, eta, S) in enumerate(STEPS):
        rng = np.random.default_rng(case)
        settings = {"regularization": lam, "step_size": eta, "norm_bound": S, "radius": ConstantRadius(0.1)}
        settings["sketch_size"] = K * d
        rewards = np.arange(1.0, K + 1) / K
        plain, fast = (eofd(d, rewards, compiled=form, **settings) for form in (False, True))
        Z, W, worst = exact_decimals(lam * np.eye(K * d)), np.zeros((K, d)), [EPS * S, 0.0]
        for x in actions(rng, 12, d):
            outcome = int(rng.integers(K + 1))
            W, _ = exact_step(Z, W, x, outcome, eta, S)
            Z = Z + exact_hessian(W, x)
            for i, policy in enumerate((plain, fast)):
                policy.update(x, outcome)
                worst[i] = max(worst[i], np.abs(policy.parameter - W).max())
        assert worst[1] <= FACTOR * worst[0], (case, worst)
