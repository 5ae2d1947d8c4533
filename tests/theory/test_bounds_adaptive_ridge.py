"""Bounds for an adaptive ridge: examples by hand, hostile streams, and errors for bad arguments."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dense_sketches import fixed, shrunk
from scipy.linalg import eigh

from compendium.theory import adaptive_ridge as bounds
from compendium.theory.self_normalised import Stream, sharp_sum_bound, sharp_uncertainty_sum_bound
from compendium.theory.sketch import sketch_factor
from mlogb_core import link

SHARES = (0.0, 0.25, 0.5, 1.0)


def hessians(seed):
    """A stream of Hessians, K and d; hostile in turn: random, in turn, repeated, fading, long."""
    rng = np.random.default_rng(seed)
    K, d, T = (1, 2, 3)[seed % 3], int(rng.integers(2, 5)), 25
    X = rng.normal(size=(T, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    X = (X, np.eye(d)[np.arange(T) % d], X[np.arange(T) % 2], X * 0.8 ** np.arange(T)[:, None], X)[seed % 5]
    z = rng.normal(size=(T, K)) * (0.0, 1.0, 5.0)[seed % 3]
    return (
        K,
        d,
        [
            np.kron(link.jacobian(link.outcome_probabilities(logits)), np.outer(x, x))
            for x, logits in zip(X, z, strict=True)
        ],
    )


def matrices(stream, m, lam, share):
    """Z before each round and after the last, H in the same way, and the shrinks."""
    n = len(stream[0])
    moments = shrunk(stream, fixed(m))
    rho = np.cumsum([0.0, *(moment.subtracted for moment in moments)])
    sketches = [np.zeros((n, n)), *(moment.sketch for moment in moments)]
    totals = [np.zeros((n, n)), *(moment.total for moment in moments)]
    Z = [(lam + share * r) * np.eye(n) + sketch for r, sketch in zip(rho, sketches, strict=True)]
    return Z, [lam * np.eye(n) + total for total in totals], np.diff(rho)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("seed", range(15))
def test_all_bounds_hold_along_hostile_streams(seed, share):
    K, d, stream = hessians(seed)
    n, m, lam = K * d, 1 + seed % (K * d), (0.05, 1.0)[seed % 2]
    Z, H, shrinks = matrices(stream, m, lam, share)
    rho, charges = 0.0, []
    for t, G in enumerate(stream):
        charges.append(np.trace(np.linalg.solve(Z[t], G)))
        rho += shrinks[t]
        low, high = bounds.sandwich_factors(rho, lam, share)
        values = eigh(H[t + 1], Z[t + 1], eigvals_only=True)
        assert low * (1 - 1e-9) <= values[0] <= values[-1] <= high * (1 + 1e-9)
        assert eigh(Z[t], Z[t + 1], eigvals_only=True)[-1] <= high * (1 + 1e-9)
        if share == 1.0:
            assert np.linalg.eigvalsh(Z[t + 1] - Z[t] - G)[0] >= -1e-12
        log_det = np.linalg.slogdet(Z[t + 1] / lam)[1]
        trace = np.trace(H[t + 1]) - n * lam
        assert log_det <= bounds.adaptive_log_determinant_bound(n, m, lam, rho, trace, share) + 1e-9
        seen = Stream(K, d, m, lam, t + 1, rho)
        assert sum(charges) <= bounds.adaptive_sum_bound(seen, share) * (1 + 1e-9)
        after = sum(np.trace(np.linalg.solve(Z[s + 1], stream[s])) for s in range(t + 1))
        most = bounds.potential(seen, lam, share * rho, bounds.shrink_cost(rho, lam, share))
        assert after <= (1 + (1 - share) * seen.largest_hessian / lam) * most * (1 + 1e-9)


def test_without_a_share_they_are_those_of_the_paper_s_sketch():
    stream = Stream(2, 30, 5, 3.0, 4000, 70.0, 1.5)
    assert bounds.sandwich_factors(70.0, 3.0, 0.0) == (1.0, sketch_factor(70.0, 3.0))
    assert bounds.adaptive_sum_bound(stream, 0.0) == pytest.approx(sharp_sum_bound(stream), rel=1e-12)
    for updated in (False, True):
        found = bounds.adaptive_uncertainty_sum_bound(stream, 0.0, 9.0, updated=updated)
        assert found == pytest.approx(sharp_uncertainty_sum_bound(stream, 9.0, updated=updated), rel=1e-12)
    assert bounds.shrink_cost(2.0, 1.0, 1e-9) == pytest.approx(bounds.shrink_cost(2.0, 1.0, 0.0))


def test_the_sandwich_is_attained_on_both_sides_at_once():
    stream = [np.outer(x, x) for x in np.tile(np.eye(4)[:3], (2, 1))]
    Z, H, shrinks = matrices(stream, 2, 0.5, 0.5)
    values = eigh(H[-1], Z[-1], eigvals_only=True)
    assert shrinks.sum() == pytest.approx(2.0)
    assert (values[0], values[-1]) == pytest.approx(bounds.sandwich_factors(2.0, 0.5, 0.5))


def test_the_cost_of_full_give_back_is_what_the_shrinks_take():
    Z, _, shrinks = matrices([np.outer(x, x) for x in np.tile(np.eye(3), (5, 1))], 2, 0.5, 1.0)
    taken = sum(
        np.linalg.slogdet(Z[t] + np.outer(x, x))[1] - np.linalg.slogdet(Z[t])[1]
        for t, x in enumerate(np.tile(np.eye(3), (5, 1)))
    )
    assert taken == pytest.approx(3 * bounds.shrink_cost(shrinks.sum(), 0.5, 1.0))


def test_two_rounds_lower_the_matrix_for_every_share_below_one():
    for share in (0.0, 0.5, 0.99):
        Z, _, _ = matrices([np.diag([1.0, 0.0]), np.diag([0.0, 1.0])], 1, 1.0, share)
        assert np.linalg.eigvalsh(Z[2] - Z[1])[0] == pytest.approx(share - 1.0)


def test_radii_are_the_recursion_and_below_their_bound():
    rng = np.random.default_rng(3)
    for _ in range(50):
        data, shrinks = (
            np.cumsum(rng.exponential(size=20)),
            rng.exponential(size=20) * 10.0 ** rng.uniform(-2, 1),
        )
        numbers = {
            "regularization": rng.uniform(0.5, 5),
            "share": rng.uniform(0, 1),
            "norm_bound": rng.uniform(0.5, 2),
        }
        radii = bounds.adaptive_radii(data, shrinks, **numbers)
        limits = [
            bounds.adaptive_radius_bound(term, rho, **numbers)
            for term, rho in zip(data, np.cumsum(shrinks), strict=True)
        ]
        assert (radii <= np.array(limits) * (1 + 1e-9)).all()
        S = numbers["norm_bound"]
        assert (bounds.adaptive_radii(data, shrinks, norms=np.zeros(20), **numbers) <= radii).all()
        assert (radii >= numbers["regularization"] * S**2 + data).all()


def test_radii_by_hand():
    found = bounds.adaptive_radii(
        [2.0, 30.0], [4.0, 1.0], regularization=2.0, share=0.5, norm_bound=1.0, norms=[0.5, 0.0]
    )
    # before the first shrink 4, over the ridge 2 is 2 < 1.5^2; before the second 32 + 4, over 4 is 9 > 1
    assert found == pytest.approx([2 + 2 + 2 * 2, 2 + 30 + 4 + 0.5])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bounds.sandwich_factors(1.0, 1.0, 1.5), r"share must be in \[0, 1\], got 1.5"),
        (lambda: bounds.shrink_cost(-1.0, 1.0, 0.5), "shrinkage"),
        (lambda: bounds.adaptive_log_determinant_bound(2, 0, 1.0, 0.0, 1.0, 0.5), "sketch_size"),
        (lambda: bounds.adaptive_radius_bound(1.0, 1.0, 0.0, 0.5, 1.0), "regularization"),
        (
            lambda: bounds.adaptive_radii([1.0], [1.0, 2.0], regularization=1.0, share=1.0, norm_bound=1.0),
            "one shape",
        ),
        (
            lambda: bounds.adaptive_radii([1.0], [-1.0], regularization=1.0, share=1.0, norm_bound=1.0),
            "shrinkages",
        ),
        (
            lambda: bounds.adaptive_radii(
                [1.0], [1.0], regularization=1.0, share=1.0, norm_bound=1.0, norms=[2.0]
            ),
            "norms must be in",
        ),
        (lambda: bounds.adaptive_uncertainty_sum_bound(Stream(1, 2, 1, 1.0, 3), 1.0, 0.0), "kappa"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_sum_grows_with_the_logarithm_of_rho():
    at = [bounds.adaptive_sum_bound(Stream(1, 10**6, 3, 1.0, 10**12, rho), 1.0) for rho in (1e3, 1e6)]
    none = [bounds.adaptive_sum_bound(Stream(1, 10**6, 3, 1.0, 10**12, rho), 0.0) for rho in (1e3, 1e6)]
    assert at[1] < 1.5 * at[0]
    assert none[1] > 500 * none[0]
    assert math.isfinite(at[1])
