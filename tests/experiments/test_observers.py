"""What is observed along a trial, compared with the same trial played round by round here."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from compendium.experiments.convergence import movements
from compendium.experiments.coverage import radius_terms
from compendium.experiments.problems import Digits, Synthetic
from compendium.experiments.region import SHARES, Region
from compendium.experiments.setting import Setting
from compendium.experiments.spectra import track_curvature, track_sketch
from compendium.experiments.trials import TrialSpec
from compendium.theory.sketch import tail_bound
from mlogb_core.link import jacobian, outcome_probabilities
from mlogb_core.radius import TheoremRadius
from mlogb_core.simulation import run_trial, trial_streams

SETTING = Setting(
    name="small", problem=Synthetic(dimension=5, rewards=(0.5, 1.0), parameter_norm=2.0), sketch_size=4,
    regularization=0.5, step_size=1.0, norm_bound=2.0, radius={"kind": "ridge", "scale": 0.05},
)  # fmt: skip


def rounds(trial, n_rounds):
    """Play EOFD-MLogB; yield the policy before each round, true parameter, action and regret of the round."""
    streams = trial_streams(3, "observed", trial)
    environment = SETTING.problem.environment()
    policy = SETTING.policy("eofd", environment, streams.policy)
    instance = environment.instance(streams.instance)
    for _ in range(n_rounds):
        candidates = instance.actions(streams.actions)
        chosen = policy.select(candidates.features)
        values = candidates.probabilities[:, 1:] @ environment.rewards
        yield policy, instance.parameter, candidates.features[chosen], values.max() - values[chosen]
        policy.update(candidates.features[chosen], candidates.outcome(chosen, streams.outcomes.random()))


def followed(trial, n_rounds, policies=("eofd",), **changes):
    """Play a trial that follows the coverage of these policies."""
    setting = SETTING.model_copy(update={"coverage": True, "policies": policies} | changes)
    spec = TrialSpec(experiment="observed", setting=setting, n_rounds=n_rounds, seed=3, trial=trial)
    return spec.compute()


def shares(frame, name="eofd"):
    return [frame.attrs["final"][name][share] for share in SHARES]


@pytest.mark.parametrize("n_rounds", [1, 30])
def test_distances_are_those_before_every_round_and_at_the_end(n_rounds):
    """With one round, the largest distance of some trial is the first; with 30, one in between."""
    found = []
    for trial in range(3):
        ratios, regrets = [], []
        for policy, truth, _, regret in rounds(trial, n_rounds + 1):  # the last one is not played
            error = (policy.parameter - truth).ravel()
            ratios.append(error @ policy.curvature.dense() @ error / policy.beta)
            regrets.append(regret)
        frame = followed(trial, n_rounds)
        assert shares(frame) == pytest.approx([max(ratios), ratios[-1]], rel=1e-14)
        assert frame["regret"].sum() == pytest.approx(sum(regrets[:-1]), rel=1e-14)
        found.append(shares(frame))
    assert any(largest > last for largest, last in found)


def test_with_a_radius_of_zero_the_distance_is_infinite():
    assert shares(followed(0, 3, radius={"kind": "constant", "beta": 0.0})) == [np.inf, np.inf]


def test_a_trial_stores_the_distances_of_its_optimistic_policies():
    """They are those of a policy that plays alone."""
    names = ("random", "eofd", "thompson", "oful")
    for trial in range(2):
        frame = followed(trial, 30, names)
        final = frame.attrs["final"]
        for name in ("eofd", "oful"):
            assert shares(frame, name) == shares(followed(trial, 30, (name,)), name)
        assert set(final) == {"eofd", "thompson", "oful"}
        assert not set(SHARES) & set(final["thompson"])
    plain = followed(trial, 30, names, coverage=False)
    assert plain.attrs["final"] == {
        name: {key: value for key, value in state.items() if key not in SHARES}
        for name, state in final.items()
    }


def test_a_region_needs_an_optimistic_policy():
    environment, streams = SETTING.problem.environment(), trial_streams(3, "observed", 0)
    policies = {name: SETTING.policy(name, environment, streams.policy) for name in ("random", "thompson")}
    with pytest.raises(
        ValueError, match=r"must have an optimistic one to be followed, got \('random', 'thompson'\)"
    ):
        Region(policies, np.zeros((2, 5)))


def test_distances_need_a_known_parameter():
    with pytest.raises(
        ValueError, match="coverage must be false unless the problem is synthetic, got Digits"
    ):
        followed(0, 3, problem=Digits())
    digits = SETTING.model_copy(update={"problem": Digits()})
    with pytest.raises(ValueError, match="so the problem synthetic, got Digits"):
        radius_terms(digits, 3, confidence=0.1, seed=3, experiment="observed")


def test_radius_terms_are_those_of_a_policy_that_plays_by_each_radius():
    """The radius that plays is the one that is compared, so that all meet the same rounds."""
    kinds = {"observed": {}, "observed, plug-in": {"forecast": "plug-in"}, "determinants": {}, "repaired": {}}
    for name, own in kinds.items():
        kind = "log-det" if name == "determinants" else name.split(",")[0]
        radius = {"kind": kind, "confidence": 0.1} | own
        one = SETTING.model_copy(update={"radius": radius, "regularization": 2.0})
        table = radius_terms(one, 20, confidence=0.1, seed=3, experiment="observed").set_index("radius")
        environment, streams = one.problem.environment(), trial_streams(3, "observed", 0)
        policy = one.policy("eofd", environment, streams.policy)
        truth = environment.instance(trial_streams(3, "observed", 0).instance).parameter
        run_trial(environment, {"eofd": policy}, 20, streams)
        error = (policy.parameter - truth).ravel()
        assert table.loc[name, "beta"] == pytest.approx(policy.beta, rel=1e-12)
        assert table.loc[name, "distance"] == pytest.approx(
            error @ policy.curvature.dense() @ error, rel=1e-12
        )
    assert table.loc["printed", "beta"] == pytest.approx(TheoremRadius(0.1).value(policy.progress))
    assert (table["ridge"] == 8.0).all()
    assert table.loc["mix loss", "data"] > table.loc["determinants", "data"] > 0.0


def test_a_large_matrix_is_measured_by_its_parts(monkeypatch):
    dense = shares(followed(0, 20))
    monkeypatch.setattr("compendium.experiments.region._SMALL", 1)
    assert shares(followed(0, 20)) == pytest.approx(dense, rel=1e-10)


def test_movements_are_the_steps_and_the_error_of_each_trial():
    n_rounds, expected = 30, []
    for trial in range(2):
        parameters, regrets = [], []
        for policy, truth, _, regret in rounds(trial, n_rounds + 1):  # the last one is not played
            parameters.append(policy.parameter.copy())
            error, norm = np.linalg.norm(policy.parameter - truth), np.linalg.norm(policy.parameter)
            regrets.append(regret)
        steps = [np.linalg.norm(after - before) for before, after in itertools.pairwise(parameters)]
        expected.append(
            {"setting": "small", "policy": "eofd", "trial": trial, "first_steps": np.mean(steps[:3]),
             "last_steps": np.mean(steps[-3:]), "error": error, "norm": norm, "regret": sum(regrets[:-1])}
        )  # fmt: skip
    alone = SETTING.model_copy(update={"policies": ("eofd", "random")})  # random play has no parameter
    found = movements([alone], n_rounds, 2, seed=3, experiment="observed")
    pd.testing.assert_frame_equal(found, pd.DataFrame(expected), rtol=1e-12)


def test_movements_need_a_known_parameter():
    with pytest.raises(ValueError, match="the true parameter must be known"):
        movements([SETTING.model_copy(update={"problem": Digits()})], 3, 1, seed=3, experiment="observed")


def test_the_tracked_spectrum_is_that_of_the_accumulated_hessian():
    hessian, rhos, largest, x = np.zeros((10, 10)), [], [], None
    for policy, _, action, _ in rounds(0, 41):
        if x is not None:  # the Hessian of a round is taken at the parameter that was learned in it
            hessian += np.kron(jacobian(outcome_probabilities(policy.parameter @ x)), np.outer(x, x))
            rhos.append(policy.curvature.shrinkage)
            largest.append(np.linalg.eigvalsh(hessian)[-1])
        x = action
    table, spectrum = track_sketch(SETTING, 40, seed=3, experiment="observed", checkpoints=[5, 20])
    assert table["round"].tolist() == [5, 20, 40]
    assert table["rho"].tolist() == [rhos[t - 1] for t in (5, 20, 40)]
    np.testing.assert_allclose(table["largest"], [largest[t - 1] for t in (5, 20, 40)], rtol=1e-12)
    np.testing.assert_allclose(spectrum, np.linalg.eigvalsh(hessian)[::-1], atol=1e-12)
    assert (table["rho"] <= table["bound"] * (1 + 1e-9)).all()
    assert (table["bound"] <= table["printed bound"] * (1 + 1e-9)).all()
    np.testing.assert_allclose(table["factor"], 1 + table["rho"] / 0.5, rtol=1e-12)
    assert table["rho"].iloc[-1] > 0


@pytest.mark.parametrize("name", ["eofd", "robust-eofd"])
def test_ranks_and_ridges_are_those_of_the_policy_beside_the_spectrum_of_its_own_hessian(name):
    budget, checkpoints = 0.6, [1, 7, 20]
    table, spectrum = track_curvature(
        SETTING, name, 30, seed=3, experiment="observed", checkpoints=checkpoints, budget=budget
    )
    assert list(table["round"]) == [*checkpoints, 30]
    streams = trial_streams(3, "observed", 0)
    environment = SETTING.problem.environment()
    policy, instance = (
        SETTING.policy(name, environment, streams.policy),
        environment.instance(streams.instance),
    )
    hessian, rows = np.zeros((10, 10)), iter(table.to_dict("records"))
    for number in range(1, 31):
        candidates = instance.actions(streams.actions)
        chosen = policy.select(candidates.features)
        x = candidates.features[chosen]
        policy.update(x, candidates.outcome(chosen, streams.outcomes.random()))
        hessian += np.kron(jacobian(outcome_probabilities(policy.parameter @ x)), np.outer(x, x))
        if number in (*checkpoints, 30):
            row, values = next(rows), np.linalg.eigvalsh(hessian)[::-1].clip(0.0)
            assert (row["rank"], row["ridge"], row["rho"]) == (
                policy.curvature.rank,
                policy.curvature.ridge,
                policy.curvature.shrinkage,
            )
            assert row["factor"] == pytest.approx(1 + policy.curvature.shrinkage / 0.5)
            assert row["least rank"] == sum(value > budget for value in values)
            enough = [m for m in range(1, 11) if tail_bound(values, m, sharp=True) <= budget]
            assert row["fixed rank"] == min(enough)
    np.testing.assert_allclose(spectrum, values, atol=1e-12)
    assert row["least rank"] <= row["fixed rank"] < 10
