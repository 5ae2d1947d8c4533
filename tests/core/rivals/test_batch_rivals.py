"""The maximum-likelihood rivals against an optimiser and against their formulas on dense matrices."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from helpers import ellipsoid_projection
from scipy.optimize import minimize

from mlogb_core.choice import choose
from mlogb_core.rivals import MNLUCB, MNLUCB2, OFUGLB, RSMNL, Boudart, boudart
from mlogb_core.rivals.kappa import inverse_curvature
from mlogb_core.rivals.likelihood import Observations, fit, hessian, inverse_hessian, invert

D, S, DELTA, SCALE, BOUND = 3, 1.5, 0.1, 0.3, 2.0
SD = S * BOUND
OPTIONS = {"norm_bound": S, "confidence": DELTA, "scale": SCALE, "feature_bound": BOUND}


def link(z):
    """Probabilities of the outcomes 1..K and their Jacobian."""
    p = np.exp(z) / (1.0 + np.exp(z).sum())
    return p, np.diag(p) - np.outer(p, p)


def loss(w, X, y, lam):
    """The penalised loss of a stacked parameter and its gradient."""
    W = w.reshape(-1, X.shape[1])
    p = np.column_stack((np.ones(len(X)), np.exp(X @ W.T)))
    p /= p.sum(axis=1, keepdims=True)
    hit = np.eye(p.shape[1])[y]
    return lam / 2 * w @ w - np.log(p[hit == 1]).sum(), lam * w + ((p - hit)[:, 1:].T @ X).reshape(-1)


@pytest.mark.parametrize("kind", [MNLUCB, MNLUCB2, RSMNL])
def test_logits_that_overflow_name_the_round(kind):
    options = {"norm_bound": 50.0, "confidence": DELTA, "regularization": 1e-3, "scale": SCALE}
    policy = kind(D, [0.5, 1.0], **options | ({"horizon": 50} if kind is RSMNL else {}))
    for _ in range(5):
        policy.update([1.0, 0.0, 0.0], 1)
    with pytest.raises(ArithmeticError, match="round 6: the logits overflow"):
        policy.select(1.7e308 * np.eye(2, D))


def estimate(X, y, K, lam, radius=math.inf):
    """The ridge maximum-likelihood estimate in a ball, by a general optimiser."""
    ball = {"type": "ineq", "fun": lambda w: radius**2 - w @ w, "jac": lambda w: -2 * w}
    found = minimize(
        loss, np.zeros(K * X.shape[1]), args=(X, y, lam), jac=True, method="SLSQP",
        constraints=[] if radius == math.inf else [ball], options={"ftol": 1e-15, "maxiter": 1000},
    )  # fmt: skip
    return found.x.reshape(K, -1)


def dense(W, X, lam):
    return lam * np.eye(W.size) + sum(np.kron(link(W @ x)[1], np.outer(x, x)) for x in X)


def second_order(W, H, actions, rewards, beta, c=None):
    """The score of second order, action by action; in logits for K = 1."""
    c = sum(rewards) / 2 if c is None else c
    scores = []
    for x in actions:
        image = np.kron(np.eye(len(rewards)), x[:, None])
        A = image.T @ np.linalg.solve(H, image)
        p, J = link(W @ x)
        if len(rewards) == 1:
            scores.append(W[0] @ x + math.sqrt(beta * A[0, 0]))
        else:
            v = J @ rewards
            scores.append(p @ rewards + math.sqrt(beta * v @ A @ v) + c * beta * np.linalg.eigvalsh(A)[-1])
    return np.array(scores)


def action_set(rng, n=5):
    actions = rng.standard_normal((n, D))
    return actions * BOUND * rng.random((n, 1)) / np.linalg.norm(actions, axis=1, keepdims=True)


def play(policy, n_rounds, K, seed=3, fixed=None):
    """Rounds for a policy to learn from, whose outcomes depend on the action, and what was played before."""
    rng, X, y = np.random.default_rng(seed), np.empty((0, D)), []
    for _ in range(n_rounds):
        actions = action_set(rng) if fixed is None else fixed
        yield actions, X, y
        x = actions[policy.select(actions)]
        weights = np.concatenate(([1.0], np.exp(np.linspace(3, -3, K) * x[0])))
        outcome = int(np.searchsorted(np.cumsum(weights / weights.sum()), rng.random()))
        policy.update(x, outcome)
        X, y = np.vstack((X, x / BOUND)), [*y, outcome]


def ratio(n, t, lipschitz):
    return math.log(1 / DELTA) + n * math.log(max(math.e, 2 * math.e * SD * lipschitz * t / n))


# The estimate


@pytest.mark.parametrize("radius", [math.inf, 0.3])
@pytest.mark.parametrize("K", [1, 3])
def test_the_estimate_is_that_of_an_optimiser(K, radius):
    rng = np.random.default_rng(K)
    X, y = rng.standard_normal((25, D)), rng.integers(K + 1, size=25)
    found = fit(X, y, 0.1, np.zeros((K, D)), radius)
    expected = estimate(X, y, K, 0.1, radius)
    np.testing.assert_allclose(found.parameter, expected, atol=2e-6)
    gradient = loss(found.parameter.reshape(-1), X, y, 0.1)[1]
    np.testing.assert_allclose(gradient, -found.multiplier * found.parameter.reshape(-1), atol=1e-5)
    assert (found.multiplier > 0) == (radius == 0.3)
    again = fit(X, y, 0.1, found.parameter, radius, found.multiplier)
    np.testing.assert_allclose(again.parameter, found.parameter, atol=1e-6)
    assert again.hessians == 1


def test_separable_data_have_an_estimate_on_the_sphere_of_the_ball():
    X = np.array([[1.0, 0.0, 0.0]] * 20)
    found = fit(X, np.ones(20, dtype=int), 1e-6, np.zeros((1, D)), 10.0)
    np.testing.assert_allclose(found.parameter, [[10.0, 0.0, 0.0]], atol=1e-6)


@pytest.mark.parametrize("K", [1, 3])
def test_the_hessian_is_the_sum_over_rounds_and_its_inverse_fits(K):
    rng = np.random.default_rng(0)
    W, X = rng.standard_normal((K, D)), rng.standard_normal((9, D))
    p = np.array([link(W @ x)[0] for x in X])
    found = hessian(np.column_stack((1 - p.sum(axis=1), p)), X, 0.2)
    expected = dense(W, X, 0.2)
    np.testing.assert_allclose(found, np.tril(expected), atol=1e-14)
    inverse, log_determinant = invert(found)
    np.testing.assert_allclose(inverse, np.tril(np.linalg.inv(expected)), rtol=1e-8)
    assert log_determinant == pytest.approx(np.linalg.slogdet(expected)[1], rel=1e-12)


@pytest.mark.parametrize("K", [1, 3])
def test_few_actions_are_worked_on_in_their_span(K):
    """With 4 of 9 directions; the estimate and the inverse are those of all coordinates."""
    rng = np.random.default_rng(K)
    X, y = rng.standard_normal((4, 9)), rng.integers(K + 1, size=4)
    for radius in (math.inf, 0.3):
        found = fit(X, y, 0.2, rng.standard_normal((K, 9)) / 30, radius).parameter
        np.testing.assert_allclose(found, estimate(X, y, K, 0.2, radius), atol=3e-6)
    p = np.array([link(found @ x)[0] for x in X])
    inverse, log_determinant = inverse_hessian(np.column_stack((1 - p.sum(axis=1), p)), X, 0.2)
    expected = dense(found, X, 0.2)
    np.testing.assert_allclose(inverse, np.tril(np.linalg.inv(expected)), atol=1e-13)
    assert log_determinant == pytest.approx(np.linalg.slogdet(expected)[1], rel=1e-12)


def test_observations_are_kept_in_their_order():
    kept = Observations(2)
    for t in range(40):
        kept.add(np.array([t, -t], dtype=float), t % 3)
    assert [*kept.actions[:, 0]] == [*range(40)]
    assert [*kept.outcomes] == [t % 3 for t in range(40)]


# kappa


@pytest.mark.parametrize("radius", [0.5, 3.0, 6.0])
def test_kappa_is_the_largest_inverse_curvature_of_a_grid(radius):
    """K = 1 on a line and K = 2 on a fine disc: the grid comes close from below, and never above."""
    line = np.linspace(-radius, radius, 201)
    p = 1 / (1 + np.exp(-line))
    assert inverse_curvature(1, radius) == pytest.approx((1 / (p * (1 - p))).max(), rel=1e-12)
    angle, length = np.meshgrid(np.linspace(0, 2 * np.pi, 361), np.linspace(0, radius, 6))
    grid = np.column_stack(((length * np.cos(angle)).ravel(), (length * np.sin(angle)).ravel()))
    largest = 1 / np.linalg.eigvalsh([link(z)[1] for z in grid])[:, 0].min()
    assert largest <= inverse_curvature(2, radius) * (1 + 1e-9)
    assert largest == pytest.approx(inverse_curvature(2, radius), rel=2e-3)


@pytest.mark.parametrize("K", [3, 4])
def test_kappa_is_not_exceeded_at_random_logits(K):
    z = np.random.default_rng(0).standard_normal((1000, K))
    z *= 3.0 / np.linalg.norm(z, axis=1, keepdims=True)
    largest = 1 / np.linalg.eigvalsh([link(row)[1] for row in z])[:, 0].min()
    assert 0.8 * inverse_curvature(K, 3.0) < largest <= inverse_curvature(K, 3.0)


def test_kappa_of_large_balls():
    assert inverse_curvature(4, 50.0) > 1e30
    with pytest.raises(ValueError, match=r"norm_bound times feature_bound must be at most 340 .*, got 400"):
        inverse_curvature(4, 400.0)


# The policies


@pytest.mark.parametrize("rewards", [[1.0], [0.5, 2.0]])
def test_mnl_ucb_is_its_formula(rewards):
    K, T, kappa = len(rewards), 50, inverse_curvature(len(rewards), SD)
    policy, lam = MNLUCB(D, rewards, horizon=T, refit_growth=1.0, **OPTIONS), K * D * math.log(T)
    for t, (actions, X, y) in enumerate(play(policy, 21, K), start=1):
        if t % 7:
            continue
        W, V = estimate(X, y, K, lam, SD), kappa * lam * np.eye(D) + X.T @ X
        b = K**1.5 * D / math.sqrt(lam) * (math.log(1 + t / D / lam) + 2 * math.log(2 / DELTA))
        b += math.sqrt(lam / K) / 2 + math.sqrt(lam) * SD
        width = 2 * b * math.sqrt(kappa * (1 + 2 * SD))
        width *= 1 if K == 1 else np.linalg.norm(rewards) / 2
        scaled = actions / BOUND
        value = scaled @ W[0] if K == 1 else np.array([link(W @ x)[0] @ rewards for x in scaled])
        bonus = [math.sqrt(x @ np.linalg.solve(V, x)) for x in scaled]
        np.testing.assert_allclose(policy.scores(actions), value + SCALE * width * np.array(bonus), rtol=1e-5)
    np.testing.assert_allclose(policy.parameter, policy._estimate / BOUND)


@pytest.mark.parametrize(("kind", "rewards"), [(MNLUCB2, [1.0]), (MNLUCB2, [0.5, 2.0]), (OFUGLB, [2.0])])
def test_the_second_order_rivals_are_their_formulas(kind, rewards):
    policy, K = kind(D, rewards, refit_growth=1.0, **OPTIONS), len(rewards)
    lam = 1 / (8 * SD**2 * (1 + SD)) if kind is OFUGLB else 2 / SD**2
    for t, (actions, X, y) in enumerate(play(policy, 21, K), start=1):
        M = 1 if K == 1 else math.sqrt(2)
        if kind is OFUGLB:
            beta = 2 * (1 + SD) * (1 + ratio(D, t - 1, 1 + SD / 2))
        else:
            beta = 2 * (1 + M * SD) * (1 + ratio(K * D, t - 1, M))
        assert policy.beta == pytest.approx(SCALE**2 * beta, rel=1e-12)
        if t % 7:
            continue
        W = estimate(X, y, K, lam, SD)
        expected = second_order(W, dense(W, X, lam), actions / BOUND, rewards, SCALE**2 * beta)
        np.testing.assert_allclose(policy.scores(actions), expected, rtol=1e-4)
        assert policy.select(actions) == choose(policy.scores(actions)).action
    wide = kind(D, rewards, regularization=9.0, **OPTIONS)
    assert wide.beta == pytest.approx(SCALE**2 * 2 * (1 + M * SD) * (4.5 * SD**2 + ratio(K * D, 0, M)))


@pytest.mark.parametrize("rewards", [[1.0], [0.5, 2.0]])
def test_rs_mnl_is_its_formula(rewards):
    K, T, R, lam = len(rewards), 50, float(np.linalg.norm(rewards)), 0.5
    policy = RSMNL(D, rewards, horizon=T, regularization=lam, second_order=3 * R, **OPTIONS)
    gamma = R * SD * math.sqrt(K * D * math.log(T / DELTA))
    W, H, refits = np.zeros((K, D)), lam * np.eye(K * D), 0
    old = H
    for actions, X, y in play(policy, 25, K):
        if y:
            H = H + np.kron(link(W @ X[-1])[1], np.outer(X[-1], X[-1]))
            if np.linalg.det(H) >= 2 * np.linalg.det(old):
                W, refits = estimate(X, y, K, lam, SD), refits + 1
                H = old = dense(W, X, lam)
        expected = second_order(W, H, actions / BOUND, rewards, 2 * (SCALE * gamma) ** 2, 3 * R)
        np.testing.assert_allclose(policy.scores(actions), expected, rtol=1e-4)
    assert policy.refits >= refits > 1
    theory = RSMNL(D, rewards, horizon=T, **OPTIONS).regularization
    assert theory == pytest.approx(K * D * math.log(T) / math.sqrt(SD))


@pytest.mark.parametrize("kind", [MNLUCB2, OFUGLB])
def test_between_refits_the_rounds_enter_the_hessian_at_the_old_estimate(kind):
    policy = kind(D, [1.0], refit_growth=1.5, regularization=0.3, **OPTIONS)
    for _, X, _ in play(policy, 20, 1):
        expected = np.linalg.inv(dense(policy._estimate, X, 0.3))
        np.testing.assert_allclose(policy._curvature.inverse, np.tril(expected), rtol=1e-7)
    assert policy.refits == 7  # after rounds 1, 2, 3, 5, 8, 12 and 18
    assert len(X) == 19


@pytest.mark.parametrize("rewards", [[1.0], [0.5, 2.0]])
def test_boudart_explores_and_then_descends_in_an_ellipsoid(rewards, monkeypatch):
    """In the coordinates of the actions, where the class uses whitened ones; the small set is active."""
    monkeypatch.setattr(boudart, "likelihood_ratio_width", lambda *_: 0.05)
    K, n, lam, eta, kappa = len(rewards), len(rewards) * D, 0.4, 1.5, inverse_curvature(len(rewards), SD)
    policy = Boudart(D, rewards, regularization=lam, exploration=8, **OPTIONS)
    fixed, projected = action_set(np.random.default_rng(8)), 0
    V = lam * np.eye(D)
    for actions, X, y in play(policy, 24, K, fixed=fixed):
        scaled, t = actions / BOUND, len(y)
        if 0 < t <= 8:
            V = V + np.outer(X[-1], X[-1]) / kappa
        if t < 8:
            norms = [math.sqrt(x @ np.linalg.solve(V, x)) for x in scaled]
            np.testing.assert_allclose(policy.scores(actions), norms, rtol=1e-9)
            assert policy.exploring
            continue
        G = np.kron(np.eye(K), V)
        if t == 8:
            centre = W = estimate(X, y, K, lam, SD)
            H = G
        else:
            x, observed = X[-1], y[-1]
            p, J = link(W @ x)
            step = H + eta * np.kron(J, np.outer(x, x))
            point = W.reshape(-1) - eta * np.linalg.solve(step, np.kron(p - np.eye(K + 1)[observed][1:], x))
            root = np.linalg.cholesky(G).T
            moved, inverse = root @ (point - centre.reshape(-1)), np.linalg.inv(root)
            if np.linalg.norm(moved) > math.sqrt(0.05):
                moved = ellipsoid_projection(inverse.T @ step @ inverse, moved, math.sqrt(0.05))
                projected += 1
            W = centre + (inverse @ moved).reshape(K, D)
            H = H + np.kron(link(W @ x)[1], np.outer(x, x))
        growth = np.linalg.slogdet(H)[1] - np.linalg.slogdet(G)[1]
        beta = 0.05 + 2 * eta * math.log(1 / DELTA) + eta * (6 * eta + 1) * growth
        expected = second_order(W, H, scaled, rewards, SCALE**2 * beta)
        np.testing.assert_allclose(policy.scores(actions), expected, rtol=1e-5)
        np.testing.assert_allclose(policy.parameter * BOUND, W, atol=1e-5)
    assert projected > 0
    assert n == policy.parameter.size


def test_boudart_ends_its_exploration_by_its_rule():
    policy = Boudart(D, [1.0], **OPTIONS | {"scale": 2e-4, "norm_bound": 0.5, "feature_bound": 1.0})
    fixed = action_set(np.random.default_rng(8)) / BOUND
    for _ in range(40):
        wide = policy.gamma
        V = policy._design.dense()
        largest = max(math.sqrt(x @ np.linalg.solve(V, x)) for x in fixed)
        exploring = 2 * 2e-4 * math.sqrt(2 * wide) * largest > 1
        policy.scores(fixed)
        assert policy.exploring == exploring
        policy.update(fixed[policy.select(fixed)], 1)
    lam, n = 2 / 0.5**2, D
    assert Boudart(D, [1.0], norm_bound=0.5, confidence=DELTA).gamma == pytest.approx(
        2 * (1 + 0.5) * (lam * 0.5**2 / 2 + math.log(1 / DELTA) + n)
    )


def test_a_copy_of_a_batch_policy_learns_alone():
    policy = MNLUCB2(D, [1.0], **OPTIONS)
    actions = action_set(np.random.default_rng(0))
    policy.update(actions[0], 1)
    other = copy.copy(policy)
    before = policy.scores(actions)
    other.update(actions[1], 0)
    np.testing.assert_array_equal(policy.scores(actions), before)
    assert not np.array_equal(other.scores(actions), before)


# What is refused


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: MNLUCB(D, [1.0], **OPTIONS),
            "horizon must be given, since the regularization of the theory",
        ),
        (lambda: RSMNL(D, [1.0], horizon=1, **OPTIONS), "horizon must be at least 2, got 1"),
        (lambda: MNLUCB2(D, [1.0], refit_growth=0.9, **OPTIONS), "refit_growth must be at least 1, got 0.9"),
        (lambda: MNLUCB2(D, [1.0], regularization=0.0, **OPTIONS), "regularization must be positive, got 0"),
        (lambda: MNLUCB2(D, [1.0], second_order=-1.0, **OPTIONS), "second_order must be at least 0, got -1"),
        (lambda: OFUGLB(D, [0.5, 1.0], **OPTIONS), r"rewards must have shape \(1,\) for OFUGLB.*K = 1"),
        (lambda: Boudart(D, [1.0], exploration=-1, **OPTIONS), "exploration must be at least 0, got -1"),
        (lambda: MNLUCB(D, [1.0], horizon=9, **OPTIONS | {"norm_bound": 999.0}), "must be at most 340"),
        (lambda: OFUGLB(D, [1.0], **OPTIONS | {"norm_bound": -1.0}), "norm_bound must be positive, got -1"),
    ],
)
def test_arguments_are_checked(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_boudart_refuses_another_set_of_actions():
    rng = np.random.default_rng(0)
    first, other = action_set(rng), action_set(rng)
    for policy in (Boudart(D, [1.0], **OPTIONS), Boudart(D, [1.0], actions=first, **OPTIONS)):
        policy.select(first)
        for changed in (other, first[:3]):
            with pytest.raises(ValueError, match=r"actions must be the same \(5, 3\) array in every round"):
                policy.select(changed)
