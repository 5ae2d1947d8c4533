"""The smallest eigenpair of a core: a pair that the kernel claims is right, and most cores have one."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba", reason="the compiled form is the optional extra [fast]")
from test_compiled import assert_same_play, pair

from mlogb_core.compiled import eigenpair
from mlogb_core.compiled import policy as compiled_policy
from mlogb_core.compiled.arguments import NOT_SHRUNK

pytestmark = pytest.mark.compiled


def bordered(values, border, corner, seed):
    """A matrix whose leading block has the given eigenvalues, and the border in their eigenvectors."""
    rotation = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values),) * 2))[0]
    leading, side = (rotation * values) @ rotation.T, rotation @ border
    matrix = np.block([[leading, side[:, None]], [side, np.full((1, 1), corner)]])
    return (matrix + matrix.T) / 2.0


def assert_bottom_or_none(matrix):
    """A pair that is claimed to be the smallest is so, as accurately as LAPACK's.

    Returns whether a pair is claimed with Cholesky factors by LAPACK, as for large matrices, and with those
    of the kernel, as for small ones.
    """
    size, claimed = np.linalg.norm(matrix, 2), []
    for blocked in (0, 10**6):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(eigenpair, "BLOCKED", blocked)
            value, vector, certain = eigenpair.smallest_eigenpair(matrix)
        if certain:
            assert value == pytest.approx(np.linalg.eigvalsh(matrix)[0], abs=1e-14 * size)
            assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-14)
            assert np.linalg.norm(matrix @ vector - value * vector) <= 1e-14 * size
        claimed.append(certain)
    return claimed


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("n", [20, 57, 79, 102])
def test_the_bottom_pair_of_a_round(n, scale):
    claimed = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rows = rng.standard_normal((n, n + 3)) * np.linspace(0.1, 1.0, n)[:, None]
        claimed += all(assert_bottom_or_none(scale * (rows @ rows.T) / n))
    assert claimed >= 18


@pytest.mark.each_value
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("part", [0.0, 1e-16, 1e-12, 1e-9, 1e-6, 1e-3])
@pytest.mark.parametrize("lowest", [1e-3, 0.05, 0.0999, 0.1])
def test_a_bottom_pair_that_the_border_hides_is_not_missed(lowest, part, seed):
    values = np.append(lowest, np.linspace(0.1, 1.0, 69))
    border = np.append(part, np.random.default_rng(seed).uniform(0.01, 0.03, 69))
    assert_bottom_or_none(bordered(values, border, 0.2, seed))


@pytest.mark.parametrize(
    "matrix",
    [
        np.zeros((70, 70)),
        np.eye(70),
        np.diag(np.arange(1.0, 71.0)),
        np.diag(np.arange(70.0, 0.0, -1.0)),
        np.ones((70, 70)),
        1e-200 * np.eye(70),
        bordered(np.full(69, 0.5), np.full(69, 0.01), 0.4, 1),
        bordered(np.append(1e-3, np.full(68, 0.5)), np.append(0.0, np.full(68, 0.01)), 0.4, 4),
        bordered(np.append(np.zeros(5), np.linspace(0.1, 1.0, 64)), np.zeros(69), 0.0, 2),
        bordered(np.append([1e-14, 2e-14], np.linspace(0.1, 1.0, 67)), np.full(69, 1e-9), 1e-13, 3),
    ],
)
def test_degenerate_cores_have_a_bottom_pair_or_none(matrix):
    assert_bottom_or_none(matrix)


def certain_in_a_game(policies, rounds, finder, single, monkeypatch):
    """Play a game, and say of each update, by one kernel or with the finder, whether it was certain."""
    found, name = [], "step_and_shrink" if single else finder
    call = getattr(compiled_policy, name)
    if not single:
        monkeypatch.setattr(compiled_policy.CompiledPolicy, "_is_single", lambda policy: False)
    monkeypatch.setattr(compiled_policy, name, lambda *given: found.append(taken := call(*given)) or taken)
    assert_same_play(*policies, np.random.default_rng(3), rounds)
    return [taken[0] != NOT_SHRUNK if single else taken[2] for taken in found]


@pytest.mark.each_value
@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize(
    ("d", "m", "share"), [(150, 60, 0.95), (60, 19, 0.98), (80, 25, 0.98), (30, 4, 0.98)]
)
def test_the_same_play_with_a_core_that_lapack_does_not_see(d, m, share, single, monkeypatch):
    """Nearly all cores have a certain pair, whether a round's update is one kernel or several."""
    certain = certain_in_a_game(pair("eofd", 1, d, m), 300, "smallest_eigenpair", single, monkeypatch)
    assert len(certain) > 200
    assert sum(certain) > share * len(certain)


def test_a_pair_found_at_once_is_not_taken_for_the_bottom_one():
    matrix = np.diag(np.append(1e-3, np.full(69, 0.5)))
    matrix[-1, 1] = matrix[1, -1] = 0.1  # One step of Lanczos' method is exact, but for one eigenvalue only.
    assert not any(assert_bottom_or_none(matrix))


@pytest.mark.each_value
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("part", [3e-16, 1e-15, 3e-15])
def test_a_pair_with_the_right_value_and_a_wrong_vector_is_refused(part, seed):
    """A nearly singular direction is almost orthogonal to the border, so that only the residual shows it."""
    values = np.append(1e-11, np.linspace(0.12, 1.0, 71))
    border = np.append(part, np.random.default_rng(seed).uniform(0.0, 0.05, 71))
    assert_bottom_or_none(bordered(values, border, float(np.sum(border**2 / values)) + 0.2, seed))


def test_a_pair_is_refused_where_the_second_cholesky_factor_fails_at_its_last_pivot():
    """The part in the span of the border is solved exactly; the missing factor shows that there is more."""
    matrix = np.diag(np.append(np.linspace(0.1, 1.0, 69), [1e-3, 0.2]))
    matrix[-1, :69] = matrix[:69, -1] = 0.02
    assert not any(assert_bottom_or_none(matrix))


@pytest.mark.each_value
@pytest.mark.parametrize("lowest", [0.0, 1e-16, 1e-15])
@pytest.mark.parametrize("part", [1e-30, 1e-26, 1e-22])
@pytest.mark.parametrize("corner", [1e-12, 1e-3, 0.05, 2.0])
def test_a_border_below_roundoff_and_a_singular_block_do_not_pass_the_corner_off(lowest, part, corner):
    """(0, ..., 0, 1) is then an eigenvector up to roundoff, but that of the corner and not the smallest."""
    for seed in range(10):
        values = np.append(lowest, np.linspace(0.1, 1.0, 69))
        border = np.append(part, 1e-22 * np.random.default_rng(seed).standard_normal(69))
        assert_bottom_or_none(bordered(values, border, corner, seed))
