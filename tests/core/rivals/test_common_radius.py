"""The optimistic rivals with a rule for the radius that all of them share, in place of their own theories."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from mlogb_core.policies import oful
from mlogb_core.radius import ConstantRadius, LogDetRadius, RidgeRadius, TheoremRadius
from mlogb_core.rivals import CBSCFD, GLBOMD, MNLUCB, MNLUCB2, OFUGLB, OL2M, RSMNL, SOFUL, Boudart, ECOLog
from mlogb_core.rivals.ecolog import ECOLogRadius
from mlogb_core.rivals.kappa import inverse_curvature

D, S, BOUND, SCALE, LAM = 4, 1.5, 2.0, 0.3, 0.7
ACTIONS = np.random.default_rng(0).standard_normal((6, D)) / 2
LOGIT = {"ol2m": OL2M, "ecolog": ECOLog, "glb-omd": GLBOMD}
#: With the arguments that they need beside those of all.
BATCH = {
    "mnl-ucb": (MNLUCB, {}),
    "mnl-ucb-2": (MNLUCB2, {}),
    "rs-mnl": (RSMNL, {"horizon": 50}),
    "ofuglb": (OFUGLB, {}),
    "boudart": (Boudart, {"exploration": 0}),
}
LINEAR = {"soful": SOFUL, "cbscfd": CBSCFD}
ALL = [*LOGIT, *BATCH, *LINEAR]


def made(name, rewards=(1.0,), **options):
    given = {"norm_bound": S, "confidence": 0.1, "regularization": LAM, "feature_bound": BOUND} | options
    if name in LINEAR:
        return LINEAR[name](D, rewards, sketch_size=2, **given)
    kind, further = BATCH.get(name) or (LOGIT[name], {})
    return kind(D, rewards, **{**further, **given})


def learn(policy, n_rounds=12):
    """The same rounds for each policy, whatever it would select, of one set of actions."""
    rng = np.random.default_rng(3)
    for _ in range(n_rounds):
        policy.select(ACTIONS)
        policy.update(ACTIONS[rng.integers(6)], int(rng.integers(2)))
    return policy


def squared_width(policy):
    """The square of what multiplies the norm of an action in the score."""
    return policy.width**2 if hasattr(policy, "width") else policy.beta


@pytest.mark.parametrize("name", ALL)
def test_before_the_first_outcome_all_have_the_scores_of_oful(name):
    """The ball of radius cS is the set of all, whatever their matrix, ridge and bound of the actions are."""
    common = {"norm_bound": S, "radius": RidgeRadius(SCALE**2)}
    full = oful(D, [1.0], regularization=3.0, step_size=1.0, **common)
    expected = full.scores(ACTIONS)
    np.testing.assert_allclose(expected, SCALE * S * np.linalg.norm(ACTIONS, axis=1))
    np.testing.assert_allclose(made(name, radius=common["radius"]).scores(ACTIONS), expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["mnl-ucb-2", "rs-mnl", "boudart"])
def test_with_more_outcomes_the_bound_of_the_second_order_is_that_of_oful_too(name):
    rewards, common = [0.5, 2.0], {"norm_bound": S, "radius": RidgeRadius(SCALE**2)}
    expected = oful(D, rewards, regularization=3.0, step_size=1.0, **common).scores(ACTIONS)
    np.testing.assert_allclose(made(name, rewards, radius=common["radius"]).scores(ACTIONS), expected)


@pytest.mark.parametrize("name", ALL)
def test_after_some_rounds_the_width_is_that_of_the_rule(name):
    """The scores are those of the policy's own theory with the scale at which its width is the rule's."""
    ridge = RidgeRadius(SCALE**2)
    policy, theory = learn(made(name, radius=ridge)), learn(made(name))
    expected = SCALE**2 * LAM * S**2 * (BOUND**2 if name in BATCH else 1.0)
    if name == "mnl-ucb":
        expected *= inverse_curvature(1, S * BOUND)
    assert squared_width(policy) == pytest.approx(expected)
    scale = math.sqrt(expected / squared_width(theory))
    np.testing.assert_allclose(policy.scores(ACTIONS), learn(made(name, scale=scale)).scores(ACTIONS))


def test_the_first_order_bonus_of_several_outcomes_has_the_slope_of_the_reward():
    rewards, beta = [0.5, 2.0], 0.4
    policy = learn(made("mnl-ucb", rewards, radius=ConstantRadius(beta)))
    kappa = inverse_curvature(2, S * BOUND)
    assert policy.width == pytest.approx(math.sqrt(kappa * beta) * np.linalg.norm(rewards) / 2)


def test_the_given_rule_ends_the_exploration_of_boudart():
    policy = made("boudart", exploration=None, radius=ConstantRadius(0.01))
    largest = float(np.linalg.norm(ACTIONS, axis=1).max()) / BOUND / math.sqrt(LAM)
    policy.scores(ACTIONS)
    assert 2.0 * math.sqrt(2.0 * 0.01) * largest < 1.0
    assert not policy.exploring
    wide = made("boudart", exploration=None, radius=ConstantRadius(1.01 / (8.0 * largest**2)))
    wide.scores(ACTIONS)
    assert wide.exploring


def test_a_rule_sees_where_a_linear_bandit_stands():
    """What the sketch lost and how far the ridge grew included; no step size, as no steps are taken."""
    seen = []

    @dataclass(frozen=True)
    class Watching(ConstantRadius):
        def value(self, progress):
            seen.append(progress)
            return super().value(progress)

    policy = learn(made("cbscfd", rewards=(0.5, 1.0), radius=Watching(0.1)))
    policy.scores(ACTIONS)
    last, sketch = seen[-1], policy.curvature
    assert (last.n_outcomes, last.n_features, last.rank_bound, last.rounds) == (1, D, 2, 12)
    assert (last.regularization, last.norm_bound) == (LAM, S)
    assert last.shrinkage == sketch.shrinkage > 0.0
    assert last.growth == pytest.approx(sketch.shrinkage)
    assert math.isnan(last.step_size)


def test_a_policy_of_newton_steps_adds_up_what_a_rule_needs():
    rule = LogDetRadius(0.1)
    policy = learn(made("glb-omd", radius=rule, step_size=1.3))
    same = learn(oful(D, [1.0], regularization=LAM, step_size=1.3, norm_bound=S, radius=rule))
    assert policy.beta == same.beta > rule.value(made("glb-omd", radius=rule, step_size=1.3).progress)
    own = learn(made("ol2m", radius=ECOLogRadius(0.1)))  # which adds up determinants, and no movements
    assert own.beta > made("ol2m", radius=ECOLogRadius(0.1)).beta


@pytest.mark.parametrize("name", ALL)
def test_what_is_no_rule_and_a_second_scale_are_refused(name):
    with pytest.raises(
        ValueError, match=r"radius must be a Radius such as RidgeRadius\(0\.01\), .* got 3\.0"
    ):
        made(name, radius=3.0)
    with pytest.raises(ValueError, match=r"scale must be 1 where a radius is given, .* got 0\.5"):
        made(name, radius=RidgeRadius(0.1), scale=0.5)


@pytest.mark.parametrize("name", [*ALL, "oful"])
def test_a_class_of_rules_and_half_a_rule_are_refused(name):
    class Half:
        def value(self, progress):
            return 1.0

    for radius in (RidgeRadius, Half()):
        common = {"regularization": LAM, "norm_bound": S, "radius": radius}
        with pytest.raises(ValueError, match="radius must be a Radius such as"):
            oful(D, [1.0], step_size=1.0, **common) if name == "oful" else made(name, radius=radius)


@pytest.mark.parametrize(
    ("name", "rule"),
    [(name, rule) for name in ALL if name != "glb-omd" for rule in (TheoremRadius(0.1), LogDetRadius(0.1))]
    + [(name, ECOLogRadius(0.1)) for name in (*BATCH, *LINEAR)],
)
def test_a_rule_that_needs_sums_that_a_policy_does_not_have_is_refused(name, rule):
    policy, refused = type(made(name)).__name__, type(rule).__name__
    with pytest.raises(ValueError, match=f"radius must not be a {refused} for {policy},"):
        made(name, radius=rule)
