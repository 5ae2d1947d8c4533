"""The library against the transcribed algorithms of the paper (`mlogb_core.literal`), round by round."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from helpers import softmax
from variants import literal_of, make

from mlogb_core import RidgeRadius, TheoremRadius
from mlogb_core.literal import LiteralEOFD

CLOSE = 1e-10  # roundoff of 1,000 rounds: the largest difference seen is 5e-12, in the spectrum
ACTIVE = {"regularization": 1.0, "step_size": 2.0, "norm_bound": 5.0}
BENCHMARK = [(4, 100, 40), (1, 400, 40), (1, 785, 78), (4, 500, 200), (8, 1000, 200), (1, 10000, 100)]
LARGE, SMALL = [(4, 100, 40), (1, 400, 40)], [(2, 30, 5), (1, 12, 12), (3, 7, 40)]


def slow(*sizes):
    return [pytest.param(*size, marks=pytest.mark.slow) for size in sizes]


class Comparison(NamedTuple):
    """The differences of two policies on the same actions and outcomes."""

    different: int  # rounds with different actions
    parameter: float  # largest |W - W_literal|
    spectrum: float  # largest difference of the sketch's eigenvalues
    shrinkage: float  # largest difference of rho
    beta: float  # largest relative difference of the squared radius
    projected: int  # rounds that ended on the sphere
    greedy: int  # rounds in which the action without a bonus would have been another one
    policy: object


def candidates(rng, K, d):
    """Unit actions; fewer for K > 1, where to score them one by one takes the literal algorithm longest."""
    actions = rng.standard_normal((int(rng.integers(*((10, 31) if K == 1 else (4, 13)))), d))
    return actions / np.linalg.norm(actions, axis=1, keepdims=True)


def compare(fast, literal, rounds, norm_bound, seed=0):
    """Both play the actions that the fast policy selects; outcomes come from a random true parameter."""
    rng = np.random.default_rng(seed)
    K, d = fast.parameter.shape
    truth = rng.standard_normal((K, d))
    truth *= norm_bound / np.linalg.norm(truth)
    different = projected = greedy = 0
    parameter = spectrum = shrinkage = beta = 0.0
    for _ in range(rounds):
        actions = candidates(rng, K, d)
        chosen = fast.select(actions)
        different += chosen != literal.select(actions)
        beta = max(beta, abs(fast.beta - literal.beta) / fast.beta)
        exploit = [fast.rewards @ softmax(fast.parameter @ x)[1:] for x in actions]
        greedy += chosen != int(np.argmax(exploit))
        x = actions[chosen]
        outcome = int(np.searchsorted(np.cumsum(softmax(truth @ x))[:-1], rng.random(), side="right"))
        fast.update(x, outcome)
        literal.update(x, outcome)
        projected += abs(np.linalg.norm(fast.parameter) - norm_bound) < 1e-12 * norm_bound
        parameter = max(parameter, np.abs(fast.parameter - literal.parameter).max())
        shrinkage = max(shrinkage, abs(fast.curvature.shrinkage - literal.shrinkage))
        if isinstance(literal, LiteralEOFD):
            values, expected = fast.curvature.spectrum(), literal.sketch.values
            assert expected.size >= values.size
            padded = np.pad(values, (0, expected.size - values.size))
            spectrum = max(spectrum, np.abs(padded - expected).max())
    return Comparison(different, parameter, spectrum, shrinkage, beta, projected, greedy, fast)


def assert_same_play(result, parameter=CLOSE):
    assert result.different == 0
    assert result.parameter <= parameter
    assert result.spectrum <= CLOSE
    assert result.shrinkage <= CLOSE
    assert result.beta <= CLOSE


def assert_powerful(result, rounds):
    """Some steps were projected and some were not, and the bonus decided many rounds."""
    assert 0 < result.projected < rounds
    assert result.greedy > rounds / 10


def both(kind, K, d, m, radius, **settings):
    policy = make(kind, K, d, m, radius=radius, **settings)
    return policy, literal_of(kind, policy)


def settings_for(K, d):
    # (1, 12) never leaves a ball of radius 5; a smaller one makes the projection active now and then.
    return ACTIVE | ({"norm_bound": 2.0} if (K, d) == (1, 12) else {})


def radius_for(K):
    # Large enough to decide many rounds; for K = 1 the bonus has no second-order term.
    return RidgeRadius(40.0 if K == 1 else 0.3)


@pytest.mark.parametrize(("K", "d", "m"), [SMALL[1], *slow(SMALL[0], SMALL[2])])
def test_eofd_plays_algorithm_2(K, d, m):
    settings = settings_for(K, d)
    policies = both("eofd", K, d, m, radius_for(K), **settings)
    result = compare(*policies, 1000, settings["norm_bound"])
    assert_same_play(result)
    assert_powerful(result, 1000)
    shrinkage = result.policy.curvature.shrinkage
    assert shrinkage > 1.0 if m < K * d else shrinkage == 0.0
    assert result.policy.curvature.rank == min(m, K * d)


@pytest.mark.parametrize(
    ("K", "d", "m"),
    [*slow(*BENCHMARK[:3]), *(pytest.param(*size, marks=pytest.mark.very_slow) for size in BENCHMARK[3:])],
)
def test_eofd_plays_algorithm_2_for_3000_rounds(K, d, m):
    """At the sizes of the benchmark the sketch shrinks in nearly all rounds."""
    result = compare(*both("eofd", K, d, m, radius_for(K), **ACTIVE), 3000, ACTIVE["norm_bound"])
    print(f"K={K} d={d} m={m}: {result._replace(policy=None)}, margin {result.policy.smallest_margin:.1e}")
    assert_same_play(result, parameter=1e-12)
    assert result.policy.curvature.rank == m
    assert result.greedy > 100  # rounds that the bonus decided
    if (K, d, m) in BENCHMARK[:3]:
        assert result.policy.curvature.shrinkage > 1.0
        assert_powerful(result, 3000)


@pytest.mark.parametrize(("K", "d", "m"), [(1, 40, 6), *SMALL, (4, 20, 8)])
@pytest.mark.slow
def test_eofd_plays_algorithm_2_with_the_theorems_radius(K, d, m):
    radius = TheoremRadius(1e-3, scale=1e-3)
    policies = both("eofd", K, d, m, radius, regularization=1.0, step_size=2.0, norm_bound=2.0)
    result = compare(*policies, 300, 2.0, seed=1)
    assert_same_play(result)
    assert_powerful(result, 300)
    terms = radius.terms(result.policy.progress)
    total = sum(terms.values())
    # A wrong running sum would show: each term is far above the tolerance on beta.
    for name in ("sketch", "logit_movement", "hessian_movement"):
        assert abs(terms[name]) > 1e4 * CLOSE * total, name


@pytest.mark.parametrize(
    ("K", "d", "rounds"),
    [
        *((1, 12, 1000), (2, 30, 1000), (3, 7, 1000)),
        *((K, d, 300) for K, d, _ in LARGE),
        *(pytest.param(K, d, 1000, marks=pytest.mark.very_slow) for K, d, _ in LARGE),
    ],
)
@pytest.mark.slow
def test_oful_plays_the_full_matrix(K, d, rounds):
    # In a few rounds at the larger sizes a step does not leave a ball of radius 5.
    settings = ACTIVE | {"norm_bound": 5.0 if d in (7, 30) else 2.0}
    result = compare(*both("oful", K, d, 0, radius_for(K), **settings), rounds, settings["norm_bound"])
    assert_same_play(result)
    assert_powerful(result, rounds)


def test_the_oracle_survives_an_svd_that_does_not_converge(monkeypatch):
    """This happened with a sketch of rank 204, one of OpenBLAS' kernels and one thread."""
    plays = [LiteralEOFD(5, [0.5, 1.0], sketch_size=4, radius=RidgeRadius(1e-2), **ACTIVE) for _ in range(2)]
    svd, failed = np.linalg.svd, []

    def stubborn(matrix, **options):
        failed.append(matrix.shape)
        raise np.linalg.LinAlgError("SVD did not converge")

    for x in candidates(np.random.default_rng(1), 2, 5):
        monkeypatch.setattr(np.linalg, "svd", svd)
        plays[0].update(x, 1)
        monkeypatch.setattr(np.linalg, "svd", stubborn)
        plays[1].update(x, 1)
    assert set(failed) == {(6, 10)}
    np.testing.assert_allclose(plays[1].parameter, plays[0].parameter, rtol=0, atol=1e-13)
    np.testing.assert_allclose(plays[1].sketch.values, plays[0].sketch.values, rtol=0, atol=1e-13)
    assert plays[1].shrinkage == pytest.approx(plays[0].shrinkage, rel=1e-13)
