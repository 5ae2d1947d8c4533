"""Bounds for sketches that control their error, against dense transcriptions and hostile streams."""

from __future__ import annotations

import numpy as np
import pytest
from dense_sketches import doubling, fixed, one_budget, shrunk
from scipy.linalg import eigh

from compendium.theory import controlled_error as bounds
from compendium.theory.self_normalised import Stream, sharp_sum_bound


def spectrum(total):
    return np.maximum(np.linalg.eigvalsh(total), 0.0)


def stream(seed):
    """Rank-one updates: axis-aligned, random with fading variances, or a strong part and noise."""
    rng = np.random.default_rng(seed)
    n, T = int(rng.integers(3, 9)), int(rng.integers(4, 30))
    V = (
        np.eye(n)[rng.integers(n, size=T)] * rng.choice([1.0, 0.5, 0.1], size=(T, 1)),
        rng.normal(size=(T, n)) * 10.0 ** rng.uniform(-1, 0.3, size=n),
        np.eye(n)[np.arange(T) % 2] + 0.2 * rng.normal(size=(T, n)),
    )[seed % 3]
    return [np.outer(v, v) for v in V]


@pytest.mark.parametrize("seed", range(30))
def test_doubling_keeps_its_certificate_and_its_size(seed):
    hessians = stream(seed)
    n, budget = len(hessians[0]), np.trace(sum(hessians)) * (0.02, 0.1, 0.3)[seed % 3]
    moments = shrunk(hessians, doubling(budget))
    rho, size, values = sum(m.subtracted for m in moments), moments[-1].size, spectrum(moments[-1].total)
    assert size <= bounds.doubled_size_bound(values, budget)
    assert rho <= budget * bounds.spending_sizes(n, final_size=size) * (1 + 1e-9)
    assert rho <= budget * bounds.spending_sizes(n) * (1 + 1e-9)
    total, sketch = moments[-1].total, moments[-1].sketch
    assert np.linalg.eigvalsh(sketch + rho * np.eye(n) - total)[0] >= -1e-9 * np.trace(total)
    assert bounds.least_rank(values, max(rho, 1e-12)) <= size


@pytest.mark.parametrize("seed", range(30))
def test_the_smallest_size_suffices_and_the_least_rank_is_needed(seed):
    hessians = stream(seed)
    total = sum(hessians)
    n, budget = len(total), np.trace(total) * (0.02, 0.1, 0.3)[seed % 3]
    enough = bounds.smallest_size(spectrum(total), budget)
    assert sum(m.subtracted for m in shrunk(hessians, fixed(enough))) <= budget * (1 + 1e-9)
    needed = bounds.least_rank(spectrum(total), budget)
    for m in range(1, needed):
        assert sum(moment.subtracted for moment in shrunk(hessians, fixed(m))) > budget
    assert needed <= enough <= n


def test_one_budget_is_spent_at_the_start_and_then_every_direction_stays():
    n = 9
    weights = [(0, 1.0), (1, 1.0), *((i, 0.01) for i in (*range(2, n), 0, 1))]
    hessians = [w * np.outer(np.eye(n)[i], np.eye(n)[i]) for i, w in weights]
    assert shrunk(hessians, one_budget(1.0))[-1].size == n
    assert shrunk(hessians, doubling(1.0))[-1].size == 2
    assert bounds.smallest_size(spectrum(sum(hessians)), 1.0) == 2


@pytest.mark.parametrize("seed", range(12))
def test_a_cap_costs_at_most_its_tail(seed):
    hessians = stream(seed)
    n, budget, cap = len(hessians[0]), np.trace(sum(hessians)) * 0.05, 2
    rule = one_budget(budget)
    moments = shrunk(hessians, lambda values: min(rule(values), cap))
    rho = np.array([m.subtracted for m in moments])
    spent = rho[np.cumsum(rho) <= budget].sum()
    assert rho.sum() <= bounds.capped_shrinkage_bound(spectrum(moments[-1].total), cap, spent) * (1 + 1e-9)
    assert n > cap


@pytest.mark.parametrize("seed", range(12))
def test_the_sum_holds_for_sizes_that_grow_and_shrinks_that_are_given_back(seed):
    hessians, lam = stream(seed), 0.5
    n, budget = len(hessians[0]), np.trace(sum(hessians)) * 0.03
    moments = shrunk(hessians, doubling(budget))
    D = np.sqrt(max(np.trace(G) for G in hessians) / 0.25)
    ridge, Z, total, rho, back = lam, lam * np.eye(n), 0.0, 0.0, 0.0
    for t, (G, moment) in enumerate(zip(hessians, moments, strict=True)):
        total += np.trace(np.linalg.solve(Z, G))
        share = (0.0, 1.0, 0.3)[(t + seed) % 3]
        rho, back = rho + moment.subtracted, back + share * moment.subtracted
        ridge += share * moment.subtracted
        Z = ridge * np.eye(n) + moment.sketch
        seen = Stream(1, n, moment.size, lam, t + 1, rho, D)
        assert total <= bounds.growing_sum_bound(seen, 1, back) * (1 + 1e-9)
    H = lam * np.eye(n) + moments[-1].total
    assert eigh(H, Z, eigvals_only=True)[-1] <= 1 + (rho - back) / ridge + 1e-9


def test_a_size_that_does_not_grow_has_the_bound_of_a_fixed_one():
    seen = Stream(2, 30, 5, 3.0, 4000, 70.0)
    assert bounds.growing_sum_bound(seen, 5) == pytest.approx(sharp_sum_bound(seen), rel=1e-12)
    assert bounds.growing_sum_bound(seen, 1) > sharp_sum_bound(seen)


def test_sizes_by_hand():
    assert bounds.smallest_size([1.0, 1.0, 1.0], 1.0) == 2
    assert bounds.smallest_size([1.0, 1.0, 1.0], 1.5) == 1
    assert bounds.smallest_size([1.0, 1.0, 1.0], 0.1) == 3
    assert bounds.doubled_size_bound([1.0, 1.0, 1.0], 0.1) == 3
    assert bounds.doubled_size_bound([1.0, 1.0, 1.0], 1.5, first_size=2) == 2
    assert [bounds.spending_sizes(n) for n in (1, 2, 3, 4, 5)] == [0, 1, 2, 2, 3]
    assert [bounds.spending_sizes(8, 1, final) for final in (1, 2, 4, 8)] == [1, 2, 3, 3]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bounds.smallest_size([1.0], 0.0), "budget"),
        (lambda: bounds.least_rank([], 1.0), "eigenvalues"),
        (lambda: bounds.doubled_size_bound([1.0], 1.0, 0), "first_size"),
        (lambda: bounds.spending_sizes(0), "n_parameters"),
        (lambda: bounds.capped_shrinkage_bound([1.0], 1, -1.0), "spent"),
        (lambda: bounds.growing_sum_bound(Stream(1, 5, 2, 1.0, 9, 1.0), 1, 2.0), "returned must be at most"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
