"""The confidence radius: every term against a transcription of the paper, and what policies feed it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from helpers import EPS
from hypothesis import given
from hypothesis import strategies as st
from variants import make

from mlogb_core import (
    ConstantRadius,
    LogDetRadius,
    ObservedRadius,
    RepairedRadius,
    RidgeRadius,
    TheoremRadius,
    radius_from,
)
from mlogb_core.link import smoothness
from mlogb_core.radius import Progress, scaled_parameters, theorem_parameters

progresses = st.builds(
    Progress,
    n_outcomes=st.integers(1, 6),
    n_features=st.integers(1, 50),
    rank_bound=st.integers(1, 40),
    regularization=st.floats(1e-3, 1e4),
    step_size=st.floats(1e-2, 1e2),
    norm_bound=st.floats(1e-2, 1e2),
    rounds=st.integers(0, 10**6),
    shrinkage=st.floats(0.0, 1e3),
    logit_movement=st.floats(0.0, 1e3),
    hessian_movement=st.floats(0.0, 1e3),
)


def beta_as_printed(p, delta, D, L):
    """The summands of eq:cr-beta, transcribed line by line from the paper, with W_1 = 0."""
    K, d, m, t = p.n_outcomes, p.n_features, p.rank_bound, p.rounds
    lam, eta, S, rho = p.regularization, p.step_size, p.norm_bound, p.shrinkage

    def tail(scale):  # the paper's Delta_t with the lambda of its superscript
        return 1 + rho / scale

    ridge = lam * S**2
    martingale = 2 * eta * (D * S + math.log(K + 1) + 2 * math.log((K + 1) * t + 2))
    martingale *= 5 / 4 + 4 * math.log((1 + 2 * t) ** 0.5 / delta)
    smoothing = 2 * eta * (2 + math.log(K + 1))
    log_det = K * d * math.log(tail(lam / 2)) + m * math.log(1 + 2 * D**2 / (m * lam) * t)
    sketch = 6**0.5 * eta / (12 * K * d) * lam * tail(lam) * log_det
    logits = 2 * 6**0.5 * eta * L * S * p.logit_movement
    hessian = (24 * eta * K * d / lam - 1) * p.hessian_movement
    return [ridge, martingale, smoothing, sketch, logits, hessian]


@given(progresses, st.floats(1e-6, 0.999), st.floats(0.1, 10.0), st.none() | st.floats(0.01, 1.0))
def test_theorem_radius_is_the_printed_formula(progress, delta, D, L):
    radius = TheoremRadius(delta, action_bound=D, smoothness=L)
    expected = beta_as_printed(progress, delta, D, smoothness(progress.n_outcomes) if L is None else L)
    terms = radius.terms(progress)
    names = ["ridge", "martingale", "smoothing", "sketch", "logit_movement", "hessian_movement"]
    assert list(terms) == names
    # log(1 + x) of the transcription loses the digits of a small x: eps of the factor before it.
    size = progress.n_outcomes * progress.n_features + progress.rank_bound
    slack = [0.0, 0.0, 0.0, 1e-12 * (progress.regularization + progress.shrinkage) * size, 0.0, 0.0]
    for value, truth, more in zip(terms.values(), expected, slack, strict=True):
        assert value == pytest.approx(truth, rel=1e-12, abs=more + 1e-12 * progress.hessian_movement)
    assert radius.value(progress) == pytest.approx(max(sum(terms.values()), 0.0), rel=4 * EPS)


def test_theorem_radius_by_hand():
    # K = 1, d = 2, m = 2, everything else chosen so that each term can be done on paper.
    progress = Progress(1, 2, 2, 4.0, 3.0, 2.0, rounds=4, shrinkage=2.0, logit_movement=5.0)
    terms = TheoremRadius(0.5).terms(progress)
    log2, log3, log10, root6 = math.log(2), math.log(3), math.log(10), math.sqrt(6)
    assert terms["ridge"] == 16.0
    assert terms["martingale"] == pytest.approx(6 * (2 + log2 + 2 * log10) * (1.25 + 4 * math.log(6)))
    assert terms["smoothing"] == pytest.approx(6 * (2 + log2))
    assert terms["sketch"] == pytest.approx(root6 * 3 / 24 * 4 * 1.5 * (2 * log2 + 2 * log2))
    assert terms["logit_movement"] == pytest.approx(2 * root6 * 3 * 0.25 * 2 * 5)
    moved = replace(progress, hessian_movement=7.0)
    assert TheoremRadius(0.5).terms(moved)["hessian_movement"] == pytest.approx((24 * 3 * 2 / 4 - 1) * 7)
    wide = TheoremRadius(0.5, action_bound=math.sqrt(2)).terms(progress)["sketch"]
    assert wide == pytest.approx(root6 * 3 / 24 * 4 * 1.5 * (2 * log2 + 2 * log3))


def test_before_the_first_round_and_without_a_sketch():
    progress = Progress(3, 10, 0, 2.0, 1.0, 1.5)
    terms = TheoremRadius(0.1).terms(progress)
    assert terms["ridge"] == 2.0 * 1.5**2
    assert terms["sketch"] == terms["logit_movement"] == terms["hessian_movement"] == 0.0
    expected = 2 * (1.5 + math.log(4) + 2 * math.log(2)) * (1.25 + 4 * math.log(10))
    assert terms["martingale"] == pytest.approx(expected)
    # Without a rank (no curvature) the rank term is gone at any t, and the shrinkage term remains.
    later = TheoremRadius(0.1).terms(replace(progress, rounds=100, shrinkage=3.0))["sketch"]
    assert later == pytest.approx(math.sqrt(6) / 360 * 5.0 * 30 * math.log(4.0))


def test_scale_multiplies_and_negative_sums_are_clamped():
    progress = Progress(1, 1, 1, 1.0, 1.0, 1.0, rounds=3, hessian_movement=2.0)
    whole = TheoremRadius(0.1).value(progress)
    assert TheoremRadius(0.1, scale=0.25).value(progress) == pytest.approx(0.25 * whole, rel=4 * EPS)
    assert TheoremRadius(0.1, scale=0.0).value(progress) == 0.0
    above = replace(progress, regularization=1e6, norm_bound=1e-6, hessian_movement=1e9)
    assert sum(TheoremRadius(0.1).terms(above).values()) < 0.0
    assert TheoremRadius(0.1, scale=2.0).value(above) == 0.0


def test_the_repaired_radius_is_the_sum_of_its_terms():
    """The terms are tested where they are derived, as `ville_radius_terms`."""
    progress = Progress(2, 3, 4, 5.0, 1.0, 3.0, rounds=7, shrinkage=0.5, hessian_movement=0.2)
    radius = RepairedRadius(0.1, scale=0.25)
    assert radius.needs_movement
    assert radius.value(progress) == 0.25 * sum(radius.terms(progress).values()) > 0.0
    assert radius.value(replace(progress, hessian_movement=1e9)) == 0.0
    with pytest.raises(ValueError, match=r"regularization must be at least 2 L D\^2 = 1, got 0\.5"):
        radius.value(replace(progress, regularization=0.5))


def test_constant_and_ridge_radius():
    progress = Progress(2, 3, 4, regularization=5.0, step_size=1.0, norm_bound=3.0, rounds=7)
    assert ConstantRadius(0.3).value(progress) == 0.3
    assert RidgeRadius(0.1).value(progress) == pytest.approx(4.5)
    assert not ConstantRadius(0.3).needs_movement
    assert not RidgeRadius(0.1).needs_movement
    assert TheoremRadius(0.1).needs_movement


@given(st.integers(1, 8), st.integers(1, 900), st.floats(0.01, 50.0), st.floats(0.01, 20.0))
def test_theorem_parameters_are_the_threshold_of_the_theorem(K, d, S, D):
    lam, eta = theorem_parameters(K, d, S, D)
    alpha = 2 * (1 + S * D) + math.log(K + 1)
    L = 0.25 if K == 1 else 0.5
    assert eta == pytest.approx(alpha / 2, rel=4 * EPS)
    bounds = [2 * L * D**2, alpha * 2 * math.sqrt(6) * S * L * D**2, alpha * 24 * K * d]
    assert lam == pytest.approx(max(bounds), rel=8 * EPS)


@pytest.mark.parametrize(
    ("K", "d", "S", "D", "active"), [(1, 1, 1e-3, 100.0, 0), (1, 1, 50.0, 20.0, 1), (4, 100, 1.0, 1.0, 2)]
)
def test_each_bound_on_lambda_can_be_the_active_one(K, d, S, D, active):
    alpha, L = 2 * (1 + S * D) + math.log(K + 1), 0.25 if K == 1 else 0.5
    bounds = [2 * L * D**2, alpha * 2 * math.sqrt(6) * S * L * D**2, alpha * 24 * K * d]
    assert int(np.argmax(bounds)) == active
    assert theorem_parameters(K, d, S, D)[0] == pytest.approx(bounds[active], rel=8 * EPS)


@given(
    st.integers(1, 8),
    st.integers(1, 900),
    st.floats(0.01, 50.0),
    st.sampled_from([-0.5, 0.0, 0.75, 1.0]),
    st.sampled_from([-0.25, 0.0, 0.5, 0.75]),
    st.floats(0.1, 5.0),
)
def test_scaled_parameters_are_those_of_the_experiments(K, d, S, low, high, D):
    lam, eta = scaled_parameters(K, d, S, (low, high), action_bound=D)
    alpha = 2 * (1 + S * D) + math.log(K + 1)
    assert lam == pytest.approx((math.sqrt(K) * d) ** low * math.sqrt(K) * alpha * S, rel=16 * EPS)
    assert eta == pytest.approx((math.sqrt(K) * d) ** high * (S / 2 + math.log(K + 1) / 4), rel=16 * EPS)


def test_scaled_parameters_by_hand():
    # sqrt(K) d = 2 * 8 = 16, alpha = 2 (1 + 3) + ln 5
    lam, eta = scaled_parameters(4, 8, 3.0, (0.5, 0.25))
    assert lam == pytest.approx(4 * 2 * (8 + math.log(5)) * 3)
    assert eta == pytest.approx(2 * (1.5 + math.log(5) / 4))


@pytest.mark.parametrize(
    "arguments", [(0, 5, 1.0), (1.5, 5, 1.0), (1, 0, 1.0), (1, 5, 0.0), (1, 5, -1.0), (1, 5, math.nan)]
)
def test_scaled_parameters_reject(arguments):
    with pytest.raises(ValueError, match=r"n_outcomes|n_features|norm_bound"):
        scaled_parameters(*arguments, (0.75, 0.75))


@pytest.mark.parametrize(
    "radius",
    [
        ConstantRadius(0.0),
        ConstantRadius(1.25),
        RidgeRadius(1e-3),
        TheoremRadius(0.05),
        TheoremRadius(0.01, action_bound=2.0, scale=1e-3, smoothness=0.4),
        RepairedRadius(0.05, action_bound=2.0, scale=1e-3),
        ObservedRadius(0.05, scale=0.5, forecast="plug-in"),
        LogDetRadius(0.05),
    ],
)
def test_a_description_rebuilds_the_radius(radius):
    description = radius.describe()
    assert radius_from(description) == radius
    assert radius_from(description).describe() == description


def test_a_radius_of_a_kind_of_its_own_is_described_by_its_class():
    class Square(RidgeRadius):
        kind = "square"

    assert Square(2.0).describe() == {"kind": f"{__name__}.{Square.__qualname__}", "scale": 2.0}


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({}, "no entry 'kind'"),
        ({"kind": "square"}, r"radius kind must be one of \['constant', 'log-det', .*\], got 'square'"),
        ({"kind": "ridge"}, "ridge.*scale"),
        ({"kind": "ridge", "beta": 1.0}, "ridge.*beta"),
        ({"kind": "constant", "beta": 1.0, "scale": 1.0}, "constant.*scale"),
        ({"kind": "constant", "beta": -1e-9}, "beta must be at least 0"),
        ({"kind": "constant", "beta": math.nan}, "beta must be finite"),
        ({"kind": "constant", "beta": "1"}, "beta must be a number"),
        ({"kind": "constant", "beta": True}, "beta must be a number"),
        ({"kind": "ridge", "scale": math.inf}, "scale must be finite"),
        ({"kind": "ridge", "scale": -1.0}, "scale must be at least 0"),
        ({"kind": "theorem", "confidence": 0.0}, "confidence must lie strictly between 0 and 1"),
        ({"kind": "theorem", "confidence": 1.0}, "confidence must lie strictly between 0 and 1"),
        ({"kind": "theorem", "confidence": math.nan}, "confidence must be finite"),
        ({"kind": "theorem", "confidence": 0.1, "action_bound": 0.0}, "action_bound must be positive"),
        ({"kind": "theorem", "confidence": 0.1, "scale": -1.0}, "scale must be at least 0"),
        ({"kind": "theorem", "confidence": 0.1, "smoothness": 0.0}, "smoothness must be positive"),
        ({"kind": "repaired", "confidence": 1.0}, "confidence must lie strictly between 0 and 1"),
        ({"kind": "repaired", "confidence": 0.1, "smoothness": 0.0}, "smoothness must be positive"),
        ({"kind": "observed", "confidence": 0.0}, "confidence must lie strictly between 0 and 1"),
        (
            {"kind": "observed", "confidence": 0.1, "forecast": "best"},
            "forecast must be 'normalised' or 'plug-in'",
        ),
        ({"kind": "log-det", "confidence": 0.1, "scale": -1.0}, "scale must be at least 0"),
    ],
)
def test_radius_from_rejects(description, message):
    keys = list(description)
    with pytest.raises(ValueError, match=message):
        radius_from(description)
    assert list(description) == keys


PLAYED = {"regularization": 0.7, "step_size": 1.3, "norm_bound": 0.9}


@pytest.mark.parametrize(
    "kind", ["eofd", "robust_eofd", "oful", "first_order", "compensated_eofd", "growing_ridge", "diagonal"]
)
@pytest.mark.parametrize("K", [1, 3])
def test_the_policy_tracks_what_the_radius_needs(kind, K):
    d, rounds = 5, 40
    radius = TheoremRadius(0.05, scale=1e-2)
    policy = make(kind, K, d, 3, radius=radius, **PLAYED)
    rank = {"oful": K * d, "diagonal": K * d, "first_order": 0, "growing_ridge": 0}.get(kind, 3)
    rng = np.random.default_rng(3)
    logit_movement = hessian_movement = 0.0
    for t in range(rounds):
        Z, W = policy.curvature.dense(), policy.parameter.copy()
        x = rng.standard_normal(d)
        policy.update(x, int(rng.integers(K + 1)))
        step = policy.parameter - W
        logit_movement += np.sum((step @ x) ** 2)
        hessian_movement += step.ravel() @ Z @ step.ravel()
        progress = policy.progress
        assert progress.rounds == t + 1
        assert progress.logit_movement == pytest.approx(logit_movement, rel=1e-12)
        assert progress.hessian_movement == pytest.approx(hessian_movement, rel=1e-12)
        moved = progress.logit_movement, progress.hessian_movement
        assert (progress.surplus, progress.growth) == (0.0, policy.curvature.ridge - 0.7)
        own = policy.curvature.shrinkage, *moved, progress.growth, 0.0
        expected = Progress(K, d, rank, 0.7, 1.3, 0.9, t + 1, *own)
        assert progress == expected
        assert policy.beta == radius.value(expected)
    assert (policy.curvature.shrinkage > 0.1) == ("eofd" in kind)
    assert (policy.curvature.ridge > 0.7) == (kind in ("robust_eofd", "compensated_eofd", "growing_ridge"))
    assert np.linalg.norm(policy.parameter) <= 0.9 * (1 + 10 * EPS)


def test_movements_are_not_computed_when_the_radius_needs_none():
    policy = make("oful", 2, 3, radius=RidgeRadius(0.1), **PLAYED)
    policy.update([1.0, 0.0, 2.0], 1)
    assert policy.progress.logit_movement == policy.progress.hessian_movement == 0.0
    assert policy.beta == pytest.approx(0.1 * 0.7 * 0.81)
