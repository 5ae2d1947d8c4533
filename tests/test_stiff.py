"""Both forms of the round against 50 digits on stiff problems.

An error is measured by what the conditioning of the problem leaves: by how far the exact result moves
when the given numbers change in their last place. The two forms round differently, and on one problem
either may be the luckier one; but neither may lose digits that the problem does not.
"""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from helpers import EPS

from mlogb_core.curvature.base import step_weights
from mlogb_core.link import jacobian_factor, loss_residual, outcome_probabilities

pytest.importorskip("numba", reason="the compiled form is the optional extra [fast]")
from mlogb_core import compiled  # needs numba

DIGITS = 50
FACTOR = 10.0  # a bound of the order of roundoff counts each operation once


def exact(array):
    """The float64 numbers as a matrix of mpmath; a vector is a column."""
    array = np.asarray(array)
    return mp.matrix(array.reshape(len(array), -1).tolist())


def size(matrix):
    return matrix.apply(abs)


def stiff_blocks(rng, K):
    """A(x) that is by decades larger along a direction, mostly that in which the Jacobian is singular."""
    heavy = np.ones(K) if rng.random() < 0.7 else rng.standard_normal(K)
    light = rng.standard_normal((K, K)) * 10.0 ** rng.uniform(-4, 2)
    A = 10.0 ** rng.uniform(0, 8) * np.outer(heavy, heavy) + light @ light.T
    return (A + A.T) / 2.0


def weights_and_bound(A, u, F, eta):
    """v = (I + eta FF'A)^-1 u in 50 digits, and how far last places of A, F, u and the sums move it."""
    A, u, F = exact(A), exact(u), exact(F)
    matrix = mp.eye(len(u)) + eta * F * (F.T * A)
    inverse = mp.inverse(matrix)
    v = inverse * u
    moved = size(inverse) * (size(matrix) * size(v) + size(F) * size(F.T * A * v) * eta)
    moved += eta * (size(inverse * F) * size(F.T) * size(A) * size(v))
    return v, EPS * max(moved) * len(u)


@pytest.mark.parametrize("K", [1, 2, 3, 4, 6])
def test_the_weights_of_a_step(K):
    rng = np.random.default_rng(K)
    with mp.workdps(DIGITS):
        for _ in range(60):
            logits = rng.standard_normal(K) * 10.0 ** rng.uniform(-1, 1.5) + rng.choice([0, 10, 30, 60])
            p = outcome_probabilities(logits)
            F, u, A = jacobian_factor(p), loss_residual(p, int(rng.integers(K + 1))), stiff_blocks(rng, K)
            eta = 10.0 ** rng.uniform(-3, 6)
            v, bound = weights_and_bound(A, u, F, eta)
            for weights in (step_weights, compiled._step_weights):
                assert max(size(exact(weights(A, u, F, eta)) - v)) <= FACTOR * bound
