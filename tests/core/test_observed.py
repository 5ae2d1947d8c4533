"""What a round adds to an observed radius: formulas by hand, and the sum that a policy keeps."""

from __future__ import annotations

import copy
import itertools
import math

import numpy as np
import pytest
from helpers import EPS
from variants import ALL, make

from mlogb_core import LogDetRadius, ObservedRadius, OptimisticPolicy, TheoremRadius
from mlogb_core.link import jacobian, outcome_probabilities, remainder_constant
from mlogb_core.literal import LiteralEOFD
from mlogb_core.observed import (
    PlayedRound,
    log_det_surplus,
    mixture_precision,
    normalised_forecast,
    observed_remainder,
    round_surplus,
)

RADII = [ObservedRadius(0.1), ObservedRadius(0.1, forecast="plug-in"), LogDetRadius(0.1)]


def played_round(K=2, seed=0):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(K, K))
    before, after = rng.normal(size=K), rng.normal(size=K)
    return PlayedRound(before, after, 1, 0.1 * root @ root.T, 0.8, 0.3, 1.7, 2.5)


def random_rounds(policy, n_rounds, seed=0):
    """Play random actions with random outcomes; yield what was known before each round, and the round."""
    rng, (K, d) = np.random.default_rng(seed), policy.parameter.shape
    for _ in range(n_rounds):
        x = rng.normal(size=d) / math.sqrt(d)
        before = policy.curvature.dense(), policy.parameter.copy(), policy.progress
        outcome = int(rng.integers(K + 1))
        policy.update(x, outcome)
        yield *before, x, outcome


@pytest.mark.parametrize("K", [1, 2, 5])
def test_the_kernel_adds_the_same(K):
    pytest.importorskip("numba", reason="the compiled form is the optional extra [fast]")
    from mlogb_core.compiled.observed import observed_surplus

    for seed, scale in itertools.product(range(5), (1.0, 30.0, 900.0)):
        for outcome in range(K + 1):
            played = played_round(K, seed)
            played = played._replace(
                before=scale * played.before, after=scale * played.after, outcome=outcome
            )
            expected = ObservedRadius(0.1).increment(played)
            assert observed_surplus(*played) == pytest.approx(expected, rel=1e-12, abs=1e-12 * scale)


def test_remainder_is_the_maximum_over_the_ball():
    rng, S, x = np.random.default_rng(1), 2.0, np.array([0.6, -0.8, 0.5])
    old, new = rng.normal(size=(2, 2, 3))
    p, q = outcome_probabilities(old @ x), outcome_probabilities(new @ x)
    g = q[1:] - p[1:] - jacobian(p) @ ((new - old) @ x)
    points = rng.normal(size=(5000, 2, 3))
    points *= S / np.linalg.norm(points, axis=(1, 2), keepdims=True)
    worst = -S * np.outer(g, x) / np.linalg.norm(np.outer(g, x))
    found = observed_remainder(old @ x, new @ x, np.linalg.norm(x), S)
    assert found == pytest.approx(g @ (new - worst) @ x, rel=1e-12)
    assert (((new - points) @ x) @ g <= found).all()


def test_remainder_is_below_the_bound_of_the_chain():
    rng = np.random.default_rng(2)
    for K in (1, 2, 4):
        for _ in range(200):
            z, after = rng.normal(size=(2, K)) * 2.0
            S = max(np.linalg.norm(z), np.linalg.norm(after))
            h = after - z
            assert observed_remainder(z, after, 1.0, S) <= remainder_constant(K) * S * (h @ h) * (1 + 1e-9)


def test_surplus_by_hand():
    # K = 1 from the logit 0 to ln 3: probabilities 1/2 and 3/4, and g = 1/4 - ln(3)/4 < 0.
    played = PlayedRound(np.zeros(1), np.array([math.log(3)]), 1, np.eye(1), 1.0, 0.3, 2.0, 1.5)
    g = 0.25 - math.log(3) / 4
    expected = 4 * (math.log(0.75 / 0.4) + g * math.log(3) + 1.5 * abs(g)) - 0.3
    assert round_surplus(played, np.log([0.6, 0.4])) == pytest.approx(expected, rel=8 * EPS)
    volume = math.log(1 + 1.2 / 0.9 * 3 / 16)
    expected = 2 * volume + 4 * (g * math.log(3) + 1.5 * abs(g)) - (1 - 1.8) * 0.3
    assert log_det_surplus(played, 0.9, 1.2) == pytest.approx(expected, rel=8 * EPS)


def test_precision_of_the_mixture_by_hand():
    played = played_round()._replace(block=np.diag([0.01, 0.02]))
    share = 2 * 1.7 * math.sqrt(2) / (3 * math.sqrt(3)) * 2.5 * 0.8 * 0.02
    assert mixture_precision(played) == pytest.approx((1 - share) / 1.7, rel=8 * EPS)
    assert mixture_precision(played._replace(block=100 * np.eye(2))) == pytest.approx(0.5 / 1.7)


@pytest.mark.parametrize("K", [1, 2, 4])
def test_the_normalised_forecast_has_the_same_surplus_for_all_outcomes(K):
    policy = make("oful", K, 4, norm_bound=30.0, radius=ObservedRadius(0.1))
    list(random_rounds(policy, 10))
    x = np.full(4, 0.4)
    surpluses = []
    for y in range(K + 1):
        branch = copy.deepcopy(policy)
        branch.update(x, y)
        surpluses.append(branch.progress.surplus - policy.progress.surplus)
    np.testing.assert_allclose(surpluses, surpluses[0], rtol=1e-9)
    block = policy.curvature.inverse_blocks(x[None])[0]
    q = np.exp(normalised_forecast(policy.parameter @ x, block, np.linalg.norm(x), 1.5, 30.0))
    assert q.sum() == pytest.approx(1.0)


@pytest.mark.each_value
@pytest.mark.parametrize(
    "radius", RADII, ids=lambda radius: f"{radius.kind}-{getattr(radius, 'forecast', '')}"
)
@pytest.mark.parametrize("kind", ALL)
def test_the_policy_adds_up_what_the_rounds_add(kind, radius):
    K, expected = 2, 0.0
    policy = make(kind, K, 5, 3, radius=radius)
    for Z, W, progress, x, y in random_rounds(policy, 25):
        assert progress.surplus == pytest.approx(expected, rel=1e-8, abs=1e-8)
        columns, step = np.kron(np.eye(K), x[:, None]), (policy.parameter - W).ravel()
        block = columns.T @ np.linalg.solve(Z, columns)
        numbers = np.linalg.norm(x), step @ Z @ step, policy.step_size, policy.norm_bound
        played = PlayedRound(W @ x, policy.parameter @ x, y, block, *numbers)
        expected += radius.increment(played)
    terms = radius.terms(policy.progress)
    assert terms["surplus"] == pytest.approx(expected, rel=1e-8)
    assert terms["growth"] == pytest.approx(4 * 4.0 * (policy.curvature.ridge - 0.5))
    assert policy.beta == pytest.approx(sum(terms.values()))
    assert policy.beta > 0.5 * 4.0 - 3.0 * math.log(0.1)


@pytest.mark.parametrize("kind", ALL)
def test_the_sum_is_saved_copied_and_needed(kind):
    policy = make(kind, 2, 5, 3, radius=ObservedRadius(0.1))
    list(random_rounds(policy, 12))
    state = policy.state_dict()
    twins = OptimisticPolicy.from_state(state), copy.deepcopy(policy)
    for one in (policy, *twins):
        list(random_rounds(one, 5, seed=1))
    assert policy.progress.surplus != state["surplus"]
    assert [twin.progress.surplus for twin in twins] == [policy.progress.surplus] * 2
    del state["surplus"]
    with pytest.raises(ValueError, match="no entry 'surplus'"):
        OptimisticPolicy.from_state(state)


def test_a_state_without_such_a_radius_has_no_surplus():
    policy = make("eofd", 2, 5, 3, radius=TheoremRadius(0.1))
    list(random_rounds(policy, 3))
    assert "surplus" not in policy.state_dict()
    assert policy.progress.surplus == 0.0


def test_a_policy_that_adds_nothing_up_is_refused():
    policy = LiteralEOFD(
        3,
        np.ones(1),
        sketch_size=2,
        regularization=1.0,
        step_size=1.0,
        norm_bound=1.0,
        radius=ObservedRadius(0.1),
    )
    with pytest.raises(ValueError, match="must not be a ObservedRadius for this policy"):
        policy.select(np.eye(3))


def test_a_surplus_that_is_not_finite_names_the_round_and_changes_nothing(monkeypatch):
    policy = make("eofd", 1, 3, radius=ObservedRadius(0.1))
    policy.update(np.ones(3), 1)
    before = policy.state_dict()
    monkeypatch.setattr(ObservedRadius, "increment", lambda self, played: math.inf)
    with pytest.raises(ArithmeticError, match="round 2: the radius cannot add up the round: it found inf"):
        policy.update(np.ones(3), 1)
    for key, value in policy.state_dict().items():
        np.testing.assert_array_equal(value, before[key], err_msg=key)


@pytest.mark.parametrize("forecast", ["normalised", "plug-in"])
def test_certain_outcomes_are_added_up(forecast):
    """Logits of a thousand, where a probability is 0 in double precision."""
    policy = make(
        "eofd", 1, 1, 1, norm_bound=50.0, step_size=200.0, radius=ObservedRadius(0.1, forecast=forecast)
    )
    for y in (1, 1, 0, 1, 0, 0):
        policy.update([40.0], y)
        assert math.isfinite(policy.beta)
