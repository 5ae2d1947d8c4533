"""The representations of the accumulated Hessian against dense matrices, on all kinds of streams."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from helpers import (
    EPS,
    STREAMS,
    ReferenceSketch,
    action_stream,
    assert_same_state,
    dense_blocks,
    dense_newton_step,
    link_jacobian,
    softmax,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import ArpackNoConvergence

from mlogb_core import _linalg
from mlogb_core.curvature import (
    BudgetedFrequentDirections,
    CompensatedFrequentDirections,
    DenseCurvature,
    DiagonalCurvature,
    DoublingFrequentDirections,
    DyadicFrequentDirections,
    FrequentDirections,
    GrowingRidge,
    NoCurvature,
    RobustFrequentDirections,
    frequent_directions,
)
from mlogb_core.link import jacobian_factor
from mlogb_core.policies import movement

RIDGES = [1e-2, 1.0, 50.0]


class Case(NamedTuple):
    """A sketch's sizes and the stream that it meets."""

    K: int
    d: int
    m: int
    lam: float
    kind: str
    seed: int


@st.composite
def cases(draw, largest=24):
    K = draw(st.integers(1, 6))
    d = draw(st.integers(1, max(1, largest // K)))
    special = [1, max(1, K * d - 1), K * d, K * d + 3]
    m = draw(st.sampled_from(special) | st.integers(1, K * d))
    return Case(
        K, d, m, draw(st.sampled_from(RIDGES)), draw(st.sampled_from(STREAMS)), draw(st.integers(0, 10**6))
    )


def stream(case, rounds):
    """Pairs of an action and the logits at which its Hessian is taken, some of them saturated."""
    rng = np.random.default_rng(case.seed + 1)
    scales = rng.choice([0.5, 3.0, 12.0], size=rounds)
    logits = rng.standard_normal((rounds, case.K)) * scales[:, None]
    return list(zip(action_stream(case.kind, rounds, case.d, case.seed), logits, strict=True))


def feed(curvature, pairs):
    for x, z in pairs:
        curvature.add(curvature.frame(x), jacobian_factor(softmax(z)))
    return curvature


def full_hessian(case, pairs):
    """lambda I plus every Hessian of the stream, entry by entry."""
    full = case.lam * np.eye(case.K * case.d)
    for x, z in pairs:
        full += np.kron(link_jacobian(z), np.outer(x, x))
    return full


def size_of(matrix):
    return np.linalg.norm(matrix, 2)


def assert_sound(sketch, case):
    """The basis is orthonormal, the core symmetric positive semidefinite, and the rank within its bound."""
    r = sketch.rank
    assert sketch.basis.shape == (r, case.K * case.d)
    assert sketch.core.shape == (r, r)
    assert r <= min(case.m, case.K * case.d)
    assert np.abs(sketch.basis @ sketch.basis.T - np.eye(r)).max(initial=0.0) <= 1e-13
    np.testing.assert_array_equal(sketch.core, sketch.core.T)
    if r:
        values = np.linalg.eigvalsh(sketch.core)
        assert values[0] >= -1e-13 * values[-1]


SHARES = {"sketch": 0.0, "robust": 0.5, "compensated": 1.0}
sketches = st.sampled_from(list(SHARES))


@given(sketches, cases())
@example("sketch", Case(1, 5, 2, 1.0, "repeated", 0))
@example("robust", Case(2, 6, 4, 1.0, "almost_low_rank", 0))
@example("sketch", Case(6, 4, 5, 1e-2, "mixed_scale", 1))
@example("robust", Case(3, 4, 1, 1.0, "with_zeros", 2))
def test_every_update_is_algorithm_1(name, case):
    """Those that give back differ only in the ridge, to which their share of what is subtracted is added."""
    sketch = build(name, case)
    reference = ReferenceSketch(case.K, case.d, case.lam, case.m)
    for x, z in stream(case, rounds=30):
        feed(sketch, [(x, z)])
        reference.add(link_jacobian(z), x)
        scale = size_of(reference.full)
        returned = SHARES[name] * reference.rho * np.eye(case.K * case.d)
        np.testing.assert_allclose(sketch.dense(), reference.dense() + returned, rtol=0, atol=1e-12 * scale)
        assert abs(sketch.shrinkage - reference.rho) <= 1e-12 * scale
        assert_sound(sketch, case)
    spectrum, values = sketch.spectrum(), reference.Lambda
    assert (np.diff(spectrum) <= 0.0).all()
    assert (spectrum >= 0.0).all()
    longest = max(spectrum.size, values.size)
    padded = [np.pad(a, (0, longest - a.size)) for a in (spectrum, values)]
    np.testing.assert_allclose(*padded, rtol=0, atol=1e-12 * scale)


@given(sketches, cases())
def test_the_sketch_brackets_the_full_hessian(name, case):
    """It is at most rho below the full Hessian before its share of rho is added."""
    sketch = build(name, case)
    full = case.lam * np.eye(case.K * case.d)
    removed = 0.0
    for x, z in stream(case, rounds=30):
        before = sketch.shrinkage
        feed(sketch, [(x, z)])
        assert sketch.shrinkage >= before
        full += np.kron(link_jacobian(z), np.outer(x, x))
        gap = np.linalg.eigvalsh(full - sketch.dense()) + (sketch.ridge - case.lam)
        slack = 1e-13 * size_of(full)
        assert sketch.ridge - case.lam == pytest.approx(SHARES[name] * sketch.shrinkage)
        assert gap[0] >= -slack
        assert gap[-1] <= sketch.shrinkage + slack
        removed = max(removed, gap[-1])
    assert (sketch.shrinkage == 0.0) or case.m < case.K * case.d
    # The bracket is nearly attained: the trace lost is at least m + 1 times the amount subtracted, since each
    # shrink subtracts from m kept directions and drops at least one more.
    if sketch.shrinkage > 1e-6:
        missing = np.trace(full - sketch.dense()) + (sketch.ridge - case.lam) * case.K * case.d
        assert missing >= (case.m + 1) * sketch.shrinkage * (1 - 1e-9) - 1e-12 * np.trace(full)


@pytest.mark.each_value
@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize(("K", "d", "m"), [(1, 12, 4), (2, 9, 1), (3, 6, 17), (6, 4, 10), (4, 5, 20)])
def test_the_basis_stays_orthonormal_over_many_rounds(K, d, m, kind):
    case = Case(K, d, m, 1.0, kind, seed=7)
    sketch = FrequentDirections(K, d, 1.0, m)
    for x, z in stream(case, rounds=600):
        feed(sketch, [(x, z)])
        assert_sound(sketch, case)
    full = full_hessian(case, stream(case, rounds=600))
    gap = np.linalg.eigvalsh(full - sketch.dense())
    assert gap[0] >= -1e-12 * size_of(full)
    assert gap[-1] <= sketch.shrinkage + 1e-12 * size_of(full)


@given(cases())
def test_a_sketch_as_large_as_the_matrix_is_exact(case):
    size = case.K * case.d
    full = full_hessian(case, stream(case, rounds=40))
    for m in (size, size + 1, 10 * size):
        sketch = feed(FrequentDirections(case.K, case.d, case.lam, m), stream(case, rounds=40))
        assert sketch.shrinkage == 0.0
        assert sketch.rank_bound == size
        np.testing.assert_allclose(sketch.dense(), full, rtol=0, atol=1e-12 * size_of(full))


@pytest.mark.parametrize("seed", range(5))
def test_actions_in_the_span_bring_no_direction(seed):
    K, d = 2, 9
    rng = np.random.default_rng(seed)
    sketch = FrequentDirections(K, d, 1.0, K * d)
    factor = jacobian_factor(softmax(rng.standard_normal(K)))
    sketch.add(sketch.frame(np.zeros(d)), factor)
    assert sketch.rank == 0
    seen = rng.standard_normal((3, d))
    for n, x in enumerate(seen, start=1):
        for scale in (1.0, -3.0, 1e-4, 1e-160, 1e3):
            sketch.add(sketch.frame(scale * x), factor)
            assert sketch.rank == K * n  # one direction per outcome and independent action
    for weights in rng.standard_normal((20, 3)):
        sketch.add(sketch.frame(weights @ seen), factor)
        sketch.add(sketch.frame(np.zeros(d)), factor)
    assert sketch.rank == K * len(seen)


@given(cases(), st.sampled_from([-200, -60, 40]))
def test_the_unit_of_the_actions_does_not_matter(case, exponent):
    """Actions times a power of two with lambda times its square give Z times that square."""
    pairs = stream(case._replace(kind="almost_low_rank"), rounds=15)
    unit = 2.0**exponent
    plain = feed(FrequentDirections(case.K, case.d, case.lam, case.m), pairs)
    scaled = FrequentDirections(case.K, case.d, case.lam * unit**2, case.m)
    feed(scaled, [(unit * x, z) for x, z in pairs])
    assert scaled.rank == plain.rank
    tolerance = 1e-13 * size_of(plain.dense())
    np.testing.assert_allclose(scaled.dense() / unit**2, plain.dense(), rtol=0, atol=tolerance)
    assert abs(scaled.shrinkage / unit**2 - plain.shrinkage) <= tolerance


def build(name, case):
    if name == "dense":
        return DenseCurvature(case.K, case.d, case.lam)
    if name in WITHOUT_SKETCH:
        return WITHOUT_SKETCH[name](case.K, case.d, case.lam)
    kind, *more = SKETCHES[name]
    return kind(case.K, case.d, case.lam, case.m, *more)


WITHOUT_SKETCH = {"none": NoCurvature, "diagonal": DiagonalCurvature, "ridge": GrowingRidge}
SKETCHES = {
    "sketch": (FrequentDirections,),
    "robust": (RobustFrequentDirections,),
    "compensated": (CompensatedFrequentDirections,),
    "budgeted": (BudgetedFrequentDirections, 2.0, 12),
    "doubling": (DoublingFrequentDirections, 1.0),
    "dyadic": (DyadicFrequentDirections, 3.0),
}
KINDS = ["dense", *SKETCHES, *WITHOUT_SKETCH]
kinds = st.sampled_from(KINDS)


@given(kinds, cases())
def test_inverse_blocks_and_spectrum_match_the_dense_matrix(name, case):
    curvature = feed(build(name, case), stream(case, rounds=15))
    Z = curvature.dense()
    np.testing.assert_allclose(Z, Z.T, rtol=0, atol=10 * EPS * size_of(Z))
    rng = np.random.default_rng(case.seed + 2)
    actions = np.vstack((rng.standard_normal((4, case.d)), stream(case, rounds=15)[-1][0], np.zeros(case.d)))
    blocks = curvature.inverse_blocks(actions)
    assert blocks.shape == (len(actions), case.K, case.K)
    # Both sides are differences of numbers as large as |x|^2/lambda, and lose digits by cancellation.
    condition = size_of(Z) / case.lam
    tolerance = 20 * EPS * condition * (actions**2).sum(axis=1).max() / case.lam
    np.testing.assert_allclose(blocks, dense_blocks(Z, actions, case.K), rtol=0, atol=tolerance)

    values = np.linalg.eigvalsh(Z)[::-1] - curvature.ridge
    spectrum = curvature.spectrum()
    assert (spectrum >= 0.0).all()
    padded = np.pad(spectrum, (0, values.size - spectrum.size))
    lost = condition if name == "dense" else 1.0  # The full matrix is stored as its inverse.
    np.testing.assert_allclose(padded, values, rtol=0, atol=50 * EPS * size_of(Z) * lost)
    np.testing.assert_array_equal(blocks, curvature.inverse_blocks(actions, curvature.images(actions)))


def test_few_features_of_a_large_matrix(monkeypatch):
    """Products with actions that have few features are computed from a part of the matrix."""
    rng, curvature = np.random.default_rng(3), DenseCurvature(3, 40, 0.5)
    for x in rng.standard_normal((5, 40)):
        curvature.add(curvature.frame(x), rng.standard_normal((3, 3)))
    for used, few in ((0, True), (1, True), (5, True), (6, False), (40, False)):
        actions, places = np.zeros((4, 40)), np.sort(rng.choice(40, used, replace=False))
        actions[:, places] = rng.standard_normal((4, used))
        expected = curvature.images(actions)
        assert curvature.few_features(actions) is None
        with monkeypatch.context() as patch:
            patch.setattr("mlogb_core.curvature.dense._LARGE", 0)
            assert np.array_equal(curvature.few_features(actions), places if few else None)
            np.testing.assert_allclose(curvature.images(actions), expected, rtol=0, atol=1e-14)
            np.testing.assert_allclose(curvature.frame(actions[0]).solved, expected[0], rtol=0, atol=1e-14)


@given(cases(), st.sampled_from([0, 1, 15]))
@settings(max_examples=40)
def test_the_largest_eigenvalue_of_a_large_dense_matrix_is_that_of_its_spectrum(case, rounds):
    curvature = feed(build("dense", case), stream(case, rounds=15)[:rounds])
    expected, size = curvature.largest_eigenvalue(), size_of(curvature.dense())
    assert expected == curvature.spectrum()[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlogb_core.curvature.dense._ALL", 1)  # a matrix of one entry is never large
        if case.K * case.d > 1:
            patch.setattr(DenseCurvature, "spectrum", lambda _: pytest.fail("all eigenvalues are taken"))
        found = curvature.largest_eigenvalue()
    assert found == pytest.approx(expected, rel=0, abs=50 * EPS * size * size / case.lam)


def test_all_eigenvalues_are_taken_where_lanczos_method_does_not_converge(monkeypatch):
    def fail(*_, **__):
        raise ArpackNoConvergence("no convergence", np.empty(0), np.empty((0, 0)))

    case = Case(2, 5, 3, 1.0, "random", 0)
    curvature = feed(build("dense", case), stream(case, rounds=15))
    monkeypatch.setattr("mlogb_core.curvature.dense._ALL", 1)
    monkeypatch.setattr("mlogb_core.curvature.dense.eigsh", fail)
    assert curvature.largest_eigenvalue() == curvature.spectrum()[0] > 0.0


@given(kinds, cases(), st.sampled_from([1e-2, 1.0, 50.0]), st.sampled_from([1e-3, 0.3, 2.0, 1e3]))
@example("sketch", Case(2, 5, 3, 1.0, "random", 0), 1.0, 1e-3)
@example("sketch", Case(2, 5, 12, 1.0, "random", 0), 1.0, 0.3)
@example("sketch", Case(2, 5, 4, 1.0, "with_zeros", 0), 1.0, 0.3)
@example("none", Case(3, 5, 4, 1e-2, "random", 3), 50.0, 0.3)
@settings(max_examples=3 * settings().max_examples)
def test_newton_step_matches_a_dense_computation(name, case, step_size, S):
    pairs = stream(case, rounds=12)
    curvature = feed(build(name, case), pairs[:10])
    Z = curvature.dense()
    rng = np.random.default_rng(case.seed + 3)
    W = rng.standard_normal((case.K, case.d))
    W *= S * rng.random() / np.linalg.norm(W)
    for x, z in pairs[8:]:  # Two of these actions have been added before, and two are new.
        p = softmax(z)
        residual = p[1:] - np.eye(case.K + 1)[rng.integers(case.K + 1)][1:]
        factor = jacobian_factor(p)
        found, multiplier, _ = curvature.newton_step(curvature.frame(x), W, residual, factor, step_size, S)
        assert (multiplier > 0.0) == (np.linalg.norm(found) > S * (1 - 1e-9)) or multiplier < 1e-6 * case.lam
        J = link_jacobian(z)
        expected, projected = dense_newton_step(Z, W, residual, J, x, step_size, S)
        condition = (size_of(Z) + step_size * (x @ x)) / case.lam
        length = S if projected else max(np.linalg.norm(W), step_size * np.linalg.norm(x) / case.lam)
        np.testing.assert_allclose(found, expected, rtol=0, atol=100 * EPS * condition * length)
        assert np.linalg.norm(found) <= S * (1 + 20 * EPS)
        logits, length_in_z = movement(W, found, x, residual, factor, step_size, multiplier)
        step = found - W
        truth = step.ravel() @ Z @ step.ravel()
        assert logits == pytest.approx(np.sum((step @ x) ** 2), rel=1e-12)
        # Roundoff is relative to the lengths of W+ and of the terms in the identity.
        scale = step_size * np.linalg.norm(x) * np.linalg.norm(residual)
        scale += (multiplier + size_of(Z)) * np.linalg.norm(found)
        assert abs(length_in_z - truth) <= 100 * EPS * condition * (scale * np.linalg.norm(step) + truth)
        np.testing.assert_array_equal(curvature.dense(), Z)


@given(kinds, cases())
def test_add_accumulates_the_hessians(name, case):
    pairs = stream(case, rounds=20)
    curvature = feed(build(name, case._replace(m=case.K * case.d)), pairs)
    full = full_hessian(case, pairs if name != "none" else [])
    if name == "diagonal":
        full = np.diag(np.diag(full))
    elif name == "ridge":
        size = case.K * case.d
        full = (np.trace(full) - (size - 1) * case.lam) * np.eye(size)
    lost = size_of(full) / case.lam if name == "dense" else 1.0  # It is stored as its inverse.
    np.testing.assert_allclose(curvature.dense(), full, rtol=0, atol=1e-13 * size_of(full) * lost)
    assert curvature.shrinkage == 0.0
    assert curvature.rank_bound == (0 if name in ("none", "ridge") else case.K * case.d)


@given(kinds, cases())
def test_a_state_rebuilds_the_curvature_to_the_bit(name, case):
    pairs = stream(case, rounds=24)
    first = feed(build(name, case), pairs[:12])
    state = first.state_dict()
    second = type(first).from_state(state)
    feed(first, pairs[12:])  # This must not change the state that `state_dict` has returned.
    feed(second, pairs[12:])
    assert_same_state(first.state_dict(), second.state_dict())
    assert_same_state(state, feed(build(name, case), pairs[:12]).state_dict())


@given(kinds, cases())
def test_a_draw_has_the_inverse_as_its_covariance(name, case):
    curvature = feed(build(name, case), stream(case, rounds=15))
    Z, size = curvature.dense(), case.K * case.d
    columns = [curvature.sample(e.reshape(case.K, case.d)).reshape(-1) for e in np.eye(size)]
    R = np.array(columns).T
    condition = size_of(Z) / case.lam
    np.testing.assert_allclose(R @ R.T, np.linalg.inv(Z), rtol=0, atol=50 * size * EPS * condition / case.lam)
    if name != "dense":  # A sketch uses the symmetric root, which does not depend on its basis.
        np.testing.assert_allclose(R, R.T, rtol=0, atol=50 * size * EPS / np.sqrt(case.lam))


@pytest.mark.parametrize("name", KINDS)
def test_a_frame_serves_until_the_next_add(name):
    case = Case(2, 5, 3, 1.0, "random", 0)
    curvature = feed(build(name, case), stream(case, rounds=6))
    W, step = np.zeros((2, 5)), (np.array([0.4, -0.7]), np.eye(2) / 3, 3.0, 0.7)
    frame, other = curvature.frame(np.ones(5)), curvature.frame(np.arange(5.0))
    first = curvature.newton_step(frame, W, *step)
    curvature.newton_step(other, W, *step)
    np.testing.assert_array_equal(curvature.newton_step(frame, W, *step).parameter, first.parameter)
    curvature.add(frame, np.eye(2))
    before = curvature.state_dict()
    for late in (frame, other):
        for call in (lambda f: curvature.newton_step(f, W, *step), lambda f: curvature.add(f, np.eye(2))):
            with pytest.raises(ValueError, match=r"frame must be made after the last add: .* 6 upd"):
                call(late)
    assert_same_state(before, curvature.state_dict())
    curvature.add(curvature.frame(np.ones(5)), np.eye(2))


@pytest.mark.parametrize("name", KINDS)
def test_dense_returns_a_copy(name):
    curvature = build(name, Case(1, 3, 2, 2.0, "random", 0))
    curvature.dense()[:] = 7.0
    np.testing.assert_array_equal(curvature.dense(), 2.0 * np.eye(3))


def test_a_failed_shrink_leaves_the_sketch_as_it_was(monkeypatch):
    case = Case(2, 5, 3, 1.0, "random", 0)
    pairs = stream(case, rounds=9)
    sketch = feed(build("sketch", case), pairs[:8])
    before = sketch.state_dict()

    def fail(*args, **kwargs):
        raise np.linalg.LinAlgError("did not converge")

    for name in ("smallest_eigenpairs", "_block_reflector", "_reflected"):
        with monkeypatch.context() as patch:
            patch.setattr(frequent_directions, name, fail)
            with pytest.raises(np.linalg.LinAlgError):
                feed(sketch, pairs[8:])
        assert_same_state(before, sketch.state_dict())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 3, 1.0, 1), "n_outcomes must be at least 1"),
        ((1, 0, 1.0, 1), "n_features must be at least 1"),
        ((1.0, 3, 1.0, 1), "n_outcomes must be an integer"),
        ((1, 3, 0.0, 1), "regularization must be positive"),
        ((1, 3, -1.0, 1), "regularization must be positive"),
        ((1, 3, np.nan, 1), "regularization must be finite"),
        ((1, 3, 1.0, 0), "sketch_size must be at least 1"),
        ((1, 3, 1.0, 2.5), "sketch_size must be an integer"),
        ((1, 3, 1.0, True), "sketch_size must be an integer"),
        ((1, 3, 1.0, 2, 0), "buffer must be at least 1"),
        ((1, 3, 1.0, 2, -1), "buffer must be at least 1"),
        ((1, 3, 1.0, 2, 1.5), "buffer must be an integer"),
        ((1, 3, 1.0, 2, True), "buffer must be an integer"),
        ((1, 3, 1.0, 2, None), "buffer must be an integer"),
    ],
)
def test_construction_rejects(arguments, message):
    with pytest.raises(ValueError, match=message):
        FrequentDirections(*arguments)
    if "sketch_size" not in message and "buffer" not in message:
        for kind in (DenseCurvature, NoCurvature):
            with pytest.raises(ValueError, match=message):
                kind(*arguments[:3])


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("basis", np.ones((1, 5)), r"basis and core must have shapes \(r, 6\)"),
        ("core", np.ones((2, 1)), "basis and core"),
        ("core", np.full((2, 2), np.nan), "core must be finite"),
        ("shrinkage", -1.0, "shrinkage must be at least 0"),
        ("sketch_size", 1, r"basis and core must .* r <= 1, got \(2, 6\)"),
        ("sketch_size", 0, "sketch_size must be at least 1"),
        ("regularization", 0.0, "regularization must be positive"),
    ],
)
def test_a_state_that_does_not_fit_is_rejected(key, value, message):
    state = feed(FrequentDirections(2, 3, 1.0, 2), [(np.ones(3), np.zeros(2))]).state_dict()
    with pytest.raises(ValueError, match=message):
        FrequentDirections.from_state(state | {key: value})
    del state[key]
    with pytest.raises(ValueError, match=f"state has no entry '{key}'"):
        FrequentDirections.from_state(state)


@pytest.mark.each_value
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("K", "d", "m"), [(12, 5, 3), (9, 4, 1), (20, 20, 10), (12, 1, 1)])
def test_many_outcomes_in_a_small_sketch(K, d, m, seed):
    """On such cores LAPACK's driver for a few eigenpairs fails to converge with some BLAS kernels."""
    rng, case = np.random.default_rng(seed), Case(K, d, m, 1.0, "random", seed)
    pairs = [(x, rng.standard_normal(K)) for x in action_stream("random", 60, d, seed)]
    sketch = feed(build("sketch", case), pairs)
    gap = np.linalg.eigvalsh(full_hessian(case, pairs) - sketch.dense())
    assert gap[0] > -1e-11
    assert gap[-1] <= sketch.shrinkage + 1e-11


@pytest.mark.parametrize(("K", "name"), [(1, "dsyevx"), (2, "dsyevr")])
def test_the_shrink_survives_a_driver_that_does_not_converge(K, name, monkeypatch):
    case = Case(K, 6, 4, 1.0, "random", 2)
    plain = feed(build("sketch", case), stream(case, rounds=20))
    driver, calls = getattr(_linalg, name), []

    def stubborn(*args, **options):
        calls.append(options)
        *results, info = driver(*args, **options)
        return *results, info + 1

    monkeypatch.setattr(_linalg, name, stubborn)
    other = feed(build("sketch", case), stream(case, rounds=20))
    assert calls
    np.testing.assert_allclose(other.dense(), plain.dense(), rtol=1e-12, atol=1e-12)
    assert other.shrinkage == pytest.approx(plain.shrinkage, rel=1e-12)
