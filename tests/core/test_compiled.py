"""The compiled round against the NumPy form and the literal algorithms."""

from __future__ import annotations

import importlib
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import STREAMS, action_stream, ellipsoid_projection

import mlogb_core
from mlogb_core import ConstantRadius, OptimisticPolicy, RidgeRadius, TheoremRadius, eofd, oful
from mlogb_core.curvature import FrequentDirections, NoCurvature
from mlogb_core.curvature.low_rank import _shifted_factor
from mlogb_core.link import jacobian_factor, loss_residual, outcome_probabilities
from mlogb_core.literal import LiteralEOFD, LiteralOFUL
from mlogb_core.policies import movement

pytest.importorskip("numba", reason="the compiled form is the optional extra [fast]")
from mlogb_core.compiled import CompiledPolicy, algebra, eigenpair, kernel, projection  # needs numba
from mlogb_core.compiled import policy as compiled_policy
from mlogb_core.compiled.arguments import Settings
from mlogb_core.compiled.shrink import shrink
from mlogb_core.compiled.step import movement as compiled_movement

SETTINGS = {"regularization": 1.0, "step_size": 2.0, "norm_bound": 2.0}
SIZES = [(4, 100, 40), (1, 60, 6), (2, 30, 5), (1, 12, 12), (3, 7, 40), (12, 5, 9), (5, 4, 1), (1, 9, 1)]
CLOSE = 1e-12  # the largest difference of W seen is 4e-15; on degenerate streams, 4e-14


def pair(kind, K, d, m, **changes):
    rewards = np.linspace(0.0, 1.0, K + 1)[1:]
    settings = SETTINGS | {"radius": RidgeRadius(40.0 if K == 1 else 0.1)} | changes
    if kind == "eofd":
        settings["sketch_size"] = m
    maker = {"eofd": eofd, "oful": oful}[kind]
    return maker(d, rewards, **settings), maker(d, rewards, compiled=True, **settings)


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


@pytest.mark.each_value
@pytest.mark.parametrize(("K", "d", "m"), SIZES)
@pytest.mark.parametrize("kind", ["eofd", "oful"])
@pytest.mark.parametrize("prune", [True, False])
def test_the_same_play(kind, K, d, m, prune, monkeypatch):
    if prune:  # the NumPy form too
        monkeypatch.setattr("mlogb_core.policies.optimistic._CHEAP", 0)
    plain, fast = pair(kind, K, d, m)
    assert type(fast) is not type(plain)
    assert_same_play(plain, fast, np.random.default_rng(K * d), 150)


@pytest.mark.parametrize(
    ("K", "d", "m"),
    [
        pytest.param(4, 100, 40, marks=pytest.mark.slow),
        (2, 30, 5),
        (1, 40, 6),
        pytest.param(12, 5, 9, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("kind", ["eofd", "oful"])
def test_the_literal_algorithms_play(kind, K, d, m):
    rounds = 300 if kind == "eofd" or K * d < 400 else 60  # the literal OFUL takes 20 ms a round there
    _, fast = pair(kind, K, d, m)
    settings = SETTINGS | {"radius": fast.radius} | ({"sketch_size": m} if kind == "eofd" else {})
    literal = {"eofd": LiteralEOFD, "oful": LiteralOFUL}[kind](d, fast.rewards, **settings)
    rng = np.random.default_rng(7)
    for actions in sets(rng, d, rounds, n=20):
        chosen = fast.select(actions)
        assert literal.select(actions) == chosen
        outcome = int(rng.integers(K + 1))
        fast.update(actions[chosen], outcome)
        literal.update(actions[chosen], outcome)
        np.testing.assert_allclose(fast.parameter, literal.parameter, rtol=0, atol=1e-11)  # seen: 6e-15


def bordered(values, border, corner, seed):
    """A matrix whose leading block has the given eigenvalues, and the border in their eigenvectors."""
    rotation = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values),) * 2))[0]
    leading, side = (rotation * values) @ rotation.T, rotation @ border
    matrix = np.block([[leading, side[:, None]], [side, np.full((1, 1), corner)]])
    return (matrix + matrix.T) / 2.0


def assert_bottom_or_none(matrix):
    """A pair that is claimed is the smallest one, as accurate as LAPACK's; returns whether it is claimed

    with Cholesky factors by LAPACK, as for large matrices, and by the kernel, as for small ones.
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


@pytest.mark.parametrize("K", [1, 2, 5])
def test_the_movement_is_that_of_the_numpy_form(K):
    rng = np.random.default_rng(K)
    old, step, action = rng.standard_normal((K, 7)), rng.standard_normal((K, 7)), rng.standard_normal(7)
    seen = []
    for outcome in range(K + 1):
        p = outcome_probabilities(old @ action)
        residual, factor = loss_residual(p, outcome), jacobian_factor(p)
        for new, multiplier in ((old - np.outer(residual, action), 0.01), (old + step, 0.3)):
            expected = movement(old, new, action, residual, factor, 0.7, multiplier)
            found = compiled_movement(old, new, action, outcome, 0.7, multiplier)
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
    """At any place of a group of four rows, also of the last one, and of what remains."""
    pivots = np.ones(n)
    pivots[place] = value
    assert not algebra.cholesky(np.diag(pivots), n, 0.0)[1]
    unit = np.triu(np.random.default_rng(place).integers(-2, 3, (n, n)), 1) + np.eye(n)
    assert not algebra.cholesky(unit.T @ np.diag(pivots) @ unit, n, 0.0)[1]  # in integers, exactly
    assert algebra.cholesky(np.diag(pivots), place, 0.0)[1]


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


@pytest.mark.parametrize("place", [0, 3, 6])
def test_a_ridge_factor_that_does_not_exist_is_named_alike(place):
    for policy in pair("eofd", 1, 9, 7):
        for x in np.eye(9)[:7]:
            policy.update(x, 1)
        policy.curvature.core[place, place] = -1.0
        message = rf"round 8: a matrix of order 7 is not positive definite \(minor {place + 1}\)"
        with pytest.raises(ArithmeticError, match=message):
            policy.select(np.eye(9))


@pytest.mark.parametrize(("k", "n"), [(1, 41), (1, 79), (3, 43), (4, 20)])
def test_a_shrunk_core_is_symmetric_to_the_bit(k, n):
    rows = np.random.default_rng(n).standard_normal((n, n + 5))
    core = rows @ rows.T
    core = (core + core.T) / 2.0
    values, vectors = np.linalg.eigh(core)
    removed = np.ascontiguousarray(vectors[:, :k].T)
    found, _ = shrink(rows, core, removed, n - k, 0.25, False)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(np.linalg.eigvalsh(found), values[k:] - 0.25, rtol=0, atol=1e-13 * values[-1])


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


@pytest.mark.parametrize(("d", "m", "share"), [(150, 60, 0.95), (60, 19, 0.98), (80, 25, 0.98)])
def test_the_same_play_with_a_core_that_lapack_does_not_see(d, m, share, monkeypatch):
    """Nearly always: that the root stands still before the vector is known does not end the search."""
    found, find = [], eigenpair.smallest_eigenpair
    monkeypatch.setattr(
        compiled_policy, "smallest_eigenpair", lambda core: found.append(find(core)) or found[-1]
    )
    plain, fast = pair("eofd", 1, d, m)
    assert_same_play(plain, fast, np.random.default_rng(3), 300)
    assert len(found) > 200
    assert sum(certain for _, _, certain in found) > share * len(found)


def test_a_pair_found_at_once_is_not_taken_for_the_bottom_one():
    matrix = np.diag(np.append(1e-3, np.full(69, 0.5)))
    matrix[-1, 1] = matrix[1, -1] = 0.1  # one step of Lanczos' method is exact, and sees one eigenvalue
    assert not any(assert_bottom_or_none(matrix))


@pytest.mark.each_value
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("part", [3e-16, 1e-15, 3e-15])
def test_a_pair_with_the_right_value_and_a_wrong_vector_is_refused(part, seed):
    """Beside a nearly singular direction that the border hardly sees, only the residual tells."""
    values = np.append(1e-11, np.linspace(0.12, 1.0, 71))
    border = np.append(part, np.random.default_rng(seed).uniform(0.0, 0.05, 71))
    assert_bottom_or_none(bordered(values, border, float(np.sum(border**2 / values)) + 0.2, seed))


def test_a_pair_is_refused_where_the_second_cholesky_factor_fails_at_its_last_pivot():
    """All that the border sees is solved exactly; the missing factor alone tells that there is more."""
    matrix = np.diag(np.append(np.linspace(0.1, 1.0, 69), [1e-3, 0.2]))
    matrix[-1, :69] = matrix[:69, -1] = 0.02
    assert not any(assert_bottom_or_none(matrix))


@pytest.mark.each_value
@pytest.mark.parametrize("lowest", [0.0, 1e-16, 1e-15])
@pytest.mark.parametrize("part", [1e-30, 1e-26, 1e-22])
@pytest.mark.parametrize("corner", [1e-12, 1e-3, 0.05, 2.0])
def test_a_border_below_roundoff_and_a_singular_block_do_not_pass_the_corner_off(lowest, part, corner):
    """(0, ..., 0, 1) is then an eigenvector to roundoff, of the corner."""
    for seed in range(10):
        values = np.append(lowest, np.linspace(0.1, 1.0, 69))
        border = np.append(part, 1e-22 * np.random.default_rng(seed).standard_normal(69))
        assert_bottom_or_none(bordered(values, border, corner, seed))


@pytest.mark.parametrize("limit", [0, 10**6])
def test_products_by_blas_and_in_loops(limit, monkeypatch):
    monkeypatch.setattr("mlogb_core.compiled.policy.WIDE", limit)
    assert_same_play(*pair("eofd", 2, 30, 12, norm_bound=0.5), np.random.default_rng(1), 150)


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


@pytest.mark.parametrize("far", [1.001, 3.0, 1e6, 1e12])
@pytest.mark.parametrize("rest", [0.0, 0.7])
def test_projection_in_a_krylov_space(far, rest):
    rng, settings = np.random.default_rng(8), Settings(1.0, 2.0, 1.0, 1e-15, 0.0, 0.0, 0.0)
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
    # What is outside the sketch is scaled by the multiplier.
    np.testing.assert_allclose(2.0 / (2.0 + multiplier) * point[30], expected[30], rtol=0, atol=1e-12)


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
        fast.parameter = plain.parameter.copy()  # else the condition number of 1e7 adds up
    assert calls


def versions():
    """How many versions of each kernel this process has, compiled or read from the disk."""
    modules = [m for name, m in sys.modules.items() if name.startswith("mlogb_core.compiled.")]
    kernels = {f for module in modules for f in vars(module).values() if hasattr(f, "signatures")}
    return {f"{f.py_func.__module__}.{f.__name__}": len(f.signatures) for f in kernels}


def play_everything():
    """Degenerate rounds, narrow and wide; the caller's arrays must not change, nor kernels be compiled."""
    pair("eofd", 1, 9, 4)
    before = versions()
    assert sum(before.values()) > 10
    for limit, kind, (K, m) in itertools.product(
        (0, 10**6), ("eofd", "oful"), ((1, 4), (1, 1), (3, 5), (2, 40))
    ):
        compiled_policy.WIDE = limit
        rng = np.random.default_rng(11)
        policy = pair(kind, K, 9, m)[1]
        for t, actions in enumerate(sets(rng, 9, 60)):
            actions *= 10.0 ** -(10 * (t % 7))
            actions.flags.writeable = t % 3 > 0
            copy = actions.copy()
            x = actions[policy.select(actions)] if t % 5 else np.broadcast_to(0.0, 9)
            policy.update(x, int(rng.integers(K + 1)))
            np.testing.assert_array_equal(actions, copy)
    assert {k: v for k, v in versions().items() if v != before[k]} == {}


def test_no_round_waits_for_the_compiler():
    """In a new process: here other tests have had the kernels compiled."""
    here = Path(__file__).parent
    paths = [Path(mlogb_core.__file__).parents[1], here.parent, here]
    finished = subprocess.run(
        [sys.executable, "-c", "import test_compiled; test_compiled.play_everything()"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize(("kind", "check"), [("eofd", 1), ("oful", 1), ("oful", 2)])
def test_a_failing_round_changes_nothing(kind, check, monkeypatch):
    """OFUL checks the Hessian of its step and then the one that it adds."""
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


def test_where_nothing_can_be_cached_on_disk_kernels_are_compiled_all_the_same(monkeypatch):
    import numba

    def compile_without_cache(cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return numba.njit(**options)

    def double(x):
        return 2.0 * x

    monkeypatch.setattr("mlogb_core.compiled.kernel.njit", compile_without_cache)
    assert kernel.kernel(double)(1.5) == 3.0


def test_a_kernel_on_disk_is_that_of_all_the_sources(tmp_path, monkeypatch):
    """Also those of the kernels that it calls, which numba itself does not look at."""
    (tmp_path / "caller.py").write_text("def double(x):\n    return 2.0 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    double = importlib.import_module("caller").double

    def is_read_from_disk():
        compiled = kernel.kernel(double)
        assert compiled(1.5) == 3.0
        return sum(compiled.stats.cache_hits.values()) == 1

    assert [is_read_from_disk(), is_read_from_disk()] == [False, True]
    folder = Path(kernel.__file__).parent
    assert kernel._digest(folder) == kernel._SOURCES
    for changed in ("vectors.py", "policy.py"):
        copy = shutil.copytree(folder, tmp_path / changed, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / changed).write_text((folder / changed).read_text() + "\n")
        monkeypatch.setattr(kernel, "_SOURCES", kernel._digest(copy))
        assert [is_read_from_disk(), is_read_from_disk()] == [False, True]


def test_a_buffer_and_the_theorems_radius():
    radius = TheoremRadius(1e-3, scale=1e-3)
    assert_same_play(*pair("eofd", 3, 20, 9, buffer=3, radius=radius), np.random.default_rng(2), 150)


@pytest.mark.each_value
@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize(("K", "d", "m"), [(1, 9, 4), (3, 6, 8), (2, 4, 8)])
@pytest.mark.parametrize("buffer", [1, 3])
def test_degenerate_streams(kind, K, d, m, buffer):
    plain, fast = pair("eofd", K, d, m, buffer=buffer)
    rng = np.random.default_rng(0)
    for x in action_stream(kind, 250, d, seed=3):
        outcome = int(rng.integers(K + 1))
        assert plain.select(x[None]) == fast.select(x[None]) == 0
        plain.update(x, outcome)
        fast.update(x, outcome)
        np.testing.assert_allclose(fast.parameter, plain.parameter, rtol=0, atol=1e-11)
        basis = fast.curvature.basis
        assert np.abs(basis @ basis.T - np.eye(len(basis))).max(initial=0.0) <= 1e-13
    assert fast.curvature.rank == plain.curvature.rank


@pytest.mark.parametrize("kind", ["eofd", "oful"])
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
    # Where the link is saturated no curvature holds the step back.
    _, fast = pair("eofd", 1, 3, 2, regularization=1e-5)
    fast.update([1.0, 0.0, 0.0], 1)
    with pytest.raises(ArithmeticError, match="round 2: the step overflows"):
        fast.update([1e150, 1e150, 0.0], 0)


def test_only_two_curvatures_have_kernels():
    with pytest.raises(ValueError, match="curvature must be a sketch or the full Hessian"):
        CompiledPolicy(NoCurvature(1, 2, 1.0), [1.0], step_size=1.0, norm_bound=1.0, radius=RidgeRadius(1.0))


def test_without_numba_the_message_says_what_to_install():
    program = (
        "import sys; sys.modules['numba'] = None\n"
        "from mlogb_core import RidgeRadius, oful\n"
        "settings = dict(regularization=1.0, step_size=1.0, norm_bound=1.0, radius=RidgeRadius(1.0))\n"
        "oful(2, [1.0], **settings)\n"
        "try:\n    oful(2, [1.0], compiled=True, **settings)\n"
        "except ImportError as error:\n    print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "compiled=True needs numba: pip install .[fast]"


def test_a_curvature_that_is_put_in_later_is_looked_at_too():
    class Own(FrequentDirections):
        """Could do anything otherwise."""

    policy = eofd(5, [1.0], compiled=True, sketch_size=3, regularization=1.0, step_size=1.0, norm_bound=1.0,
                  radius=ConstantRadius(0.1))  # fmt: skip
    kept = policy.curvature
    with pytest.raises(ValueError, match=r"curvature must be .* got .*Own"):
        policy.curvature = Own(1, 5, 1.0, 3)
    assert policy.curvature is kept


@pytest.mark.parametrize("maker", [eofd, oful])
def test_a_frame_of_before_an_update_is_refused(maker):
    more = {"sketch_size": 3} if maker is eofd else {}
    policy = maker(5, [1.0], compiled=True, regularization=1.0, step_size=1.0, norm_bound=1.0,
                   radius=ConstantRadius(0.1), **more)  # fmt: skip
    x = np.eye(5)[0]
    frame = policy.curvature.frame(x)
    policy.update(x, 1)
    with pytest.raises(ValueError, match="frame must be made after the last add"):
        policy.curvature.add(frame, np.eye(1))
