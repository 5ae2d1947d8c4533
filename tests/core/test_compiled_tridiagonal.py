"""The few smallest eigenpairs of a core: pairs that the kernel claims are right, and most cores have them."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

pytest.importorskip("numba", reason="the compiled form is the optional extra [fast]")
from test_compiled import assert_same_play, pair
from test_compiled_eigenpair import certain_in_a_game

from mlogb_core.compiled import policy as compiled_policy
from mlogb_core.compiled import tridiagonal
from mlogb_core.compiled.arguments import NOT_SHRUNK

pytestmark = pytest.mark.compiled


def rotated(values, seed=0):
    """A matrix with the given eigenvalues."""
    rotation = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values),) * 2))[0]
    matrix = (rotation * values) @ rotation.T
    return (matrix + matrix.T) / 2.0


def assert_bottom_or_none(matrix, count):
    """Claimed pairs are the smallest ones, as accurately as LAPACK's; returns whether any are claimed."""
    before, size = matrix.copy(), np.linalg.norm(matrix, 2)
    values, vectors, certain = tridiagonal.smallest_by_bisection(matrix, count)
    np.testing.assert_array_equal(matrix, before)
    if certain:
        np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix)[:count], rtol=0, atol=1e-14 * size)
        np.testing.assert_allclose(vectors @ vectors.T, np.eye(count), rtol=0, atol=2e-14)
        assert np.linalg.norm(vectors @ matrix - values[:, None] * vectors, axis=1).max() <= 1e-14 * size
    return certain


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize(("n", "count"), [(3, 2), (28, 8), (44, 4), (45, 3), (127, 5)])
def test_the_bottom_pairs_of_a_round(n, count, scale):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rows = rng.standard_normal((n, n + 3)) * np.linspace(0.1, 1.0, n)[:, None]
        assert assert_bottom_or_none(scale * (rows @ rows.T) / n, count)


@pytest.mark.each_value
@pytest.mark.parametrize("n", [12, 44, 93])
@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize(
    "spectrum",
    [
        lambda n: np.logspace(-16, 0, n),
        lambda n: np.append(np.zeros(n // 2), np.linspace(0.1, 1.0, n - n // 2)),
        lambda n: np.append(np.full(n // 2, 0.3), np.linspace(0.4, 1.0, n - n // 2)),
        lambda n: np.append(0.3 + 1e-12 * np.arange(n // 2), np.linspace(0.4, 1.0, n - n // 2)),
        lambda n: np.append([1e-17, 1e-17, 1e-3, 1e-3], np.ones(n - 4)),
    ],
)
def test_the_bottom_pairs_of_degenerate_cores(spectrum, count, n):
    assert assert_bottom_or_none(rotated(spectrum(n), seed=n), count)


@pytest.mark.parametrize(
    "matrix",
    [
        np.eye(40),
        np.diag(np.arange(1.0, 41.0)),
        np.diag(np.arange(40.0, 0.0, -1.0)),
        np.ones((40, 40)),
        1e-200 * np.eye(40),
        np.diag(np.append(np.zeros(36), np.ones(4))),
        np.diag(2.0 + np.abs(np.arange(-20, 20))) + np.eye(40, k=1) + np.eye(40, k=-1),  # Wilkinson's
        np.logspace(-15, 0, 40)[:, None] * rotated(np.linspace(0.1, 1.0, 40)) * np.logspace(-15, 0, 40),
    ],
)
def test_the_bottom_pairs_of_structured_cores(matrix):
    assert assert_bottom_or_none(matrix, 4)


@pytest.mark.parametrize(
    "matrix",
    [
        np.zeros((40, 40)),
        1e-300 * np.eye(40),
        1e300 * np.eye(40),
        np.full((40, 40), np.nan),
        rotated(np.append(-0.1, np.linspace(0.1, 1.0, 39))),  # not positive semidefinite
    ],
)
def test_no_pairs_of_a_core_for_which_the_kernel_is_not_made(matrix):
    assert not tridiagonal.smallest_by_bisection(matrix, 4)[2]


def test_no_more_pairs_than_points_of_a_sweep():
    count = tridiagonal.LANES
    assert assert_bottom_or_none(rotated(np.linspace(0.1, 1.0, 40)), count)
    assert not tridiagonal.smallest_by_bisection(rotated(np.linspace(0.1, 1.0, 40)), count + 1)[2]


@pytest.mark.parametrize(
    ("close", "count", "spacing"), [(2, 2, 3e-8), (2, 4, 1e-7), (3, 1, 1e-7), (3, 4, 2e-7)]
)
def test_no_eigenvalue_is_missed_among_close_ones(close, count, spacing):
    """From one interval the iteration may find the wrong eigenvalue, or the right ones in another order."""
    for seed in range(40):
        spectrum = np.append(0.3 + spacing * np.arange(close), np.linspace(0.4, 1.0, 40 - close))
        assert assert_bottom_or_none(rotated(spectrum, seed=seed), count)


def test_eigenvalues_and_vectors_against_fifty_digits():
    matrix = rotated(np.append([1e-9, 2e-9, 1e-4], np.linspace(0.1, 1.0, 9)))
    values, vectors, certain = tridiagonal.smallest_by_bisection(matrix, 3)
    assert certain
    with mpmath.workdps(50):
        exact, columns = mpmath.eigsy(mpmath.matrix(matrix))
        exact = np.array([float(value) for value in exact[:3]])
        columns = np.array(columns.tolist(), dtype=float)[:, :3]
    np.testing.assert_allclose(values, exact, rtol=0, atol=2e-15)
    gaps = np.array([1e-9, 1e-9, 1e-4])
    assert (
        np.linalg.norm(vectors.T - columns * np.sum(vectors.T * columns, axis=0), axis=0) <= 4e-15 / gaps
    ).all()


def test_the_residual_shows_wrong_values_and_vectors_and_an_angle_between_them():
    matrix = rotated(np.linspace(0.1, 1.0, 40))
    values, columns = np.linalg.eigh(matrix)
    values, vectors = values[:3].copy(), columns[:, :3].T.copy()
    assert tridiagonal._residual(matrix, values, vectors) < 1e-14
    assert tridiagonal._residual(matrix, values + np.array([0.0, 1e-6, 0.0]), vectors) > 0.9e-6
    tilted = vectors.copy()
    tilted[2] += 1e-12 * vectors[0]
    assert tridiagonal._residual(matrix, values, tilted) == np.inf
    assert tridiagonal._residual(matrix, values, np.full((3, 40), np.nan)) == np.inf


@pytest.mark.each_value
@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize(("K", "d", "m", "buffer"), [(2, 30, 19, 1), (4, 20, 25, 1), (3, 20, 9, 3)])
def test_the_same_play_without_the_eigenpairs_of_lapack(K, d, m, buffer, single, monkeypatch):
    """All cores have certain pairs, whether a round's update is one kernel or several."""
    policies = pair("eofd", K, d, m, buffer=buffer)
    certain = certain_in_a_game(policies, 150, "smallest_by_bisection", single, monkeypatch)
    assert len(certain) > 40
    assert all(certain)


@pytest.mark.parametrize("single", [True, False])
def test_the_same_play_where_the_pairs_are_not_certain(single, monkeypatch):
    """LAPACK computes them then."""
    calls = []
    if single:
        left = NOT_SHRUNK, None, None, 0.0
        monkeypatch.setattr(compiled_policy, "step_and_shrink", lambda *given: left)
    else:
        monkeypatch.setattr(compiled_policy.CompiledPolicy, "_is_single", lambda policy: False)

    def refuse(core, count):
        calls.append(count)
        return np.full(count, np.nan), np.full((count, len(core)), np.nan), False

    monkeypatch.setattr(compiled_policy, "smallest_by_bisection", refuse)
    assert_same_play(*pair("eofd", 2, 12, 5), np.random.default_rng(3), 60)
    assert len(calls) > 40
