"""The registry of policies: complete entries, own parameters of policies, and memory."""

from __future__ import annotations

import pickle
import re
from dataclasses import MISSING, fields, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from pydantic import ValidationError

from compendium.experiments import trials
from compendium.experiments.policies import (
    ANY_K,
    COMPARISON,
    FORMS,
    POLICIES,
    Buffered,
    Entry,
    compiled_forms,
)
from compendium.experiments.problems import Synthetic
from compendium.experiments.setting import Setting
from compendium.experiments.trials import TrialSpec
from mlogb_core.policies import ThompsonPolicy
from mlogb_core.simulation import run_trial, trial_streams

SETTING = Setting(
    name="small", problem=Synthetic(dimension=40, rewards=(0.5, 1.0), parameter_norm=2.0), sketch_size=8,
    regularization=0.5, step_size=1.0, norm_bound=2.0, radius={"kind": "ridge", "scale": 0.05},
)  # fmt: skip


def changed(**fields):
    """The setting with other fields, which are validated."""
    return Setting.model_validate(SETTING.model_dump() | fields)


class FixedActions:
    """An environment that offers its first set of actions in every round."""

    def __init__(self, environment):
        self.rewards, self.n_features = environment.rewards, environment.n_features
        self.instance_of = environment.instance

    def instance(self, rng):
        first = cache(lambda: self.instance_of(rng).actions(rng))
        return SimpleNamespace(actions=lambda _: first())


def played(name, n_rounds, **parameters):
    """A policy that has played some rounds, and the setting that it was made from."""
    rewards = (1.0,) if POLICIES[name].binary else (0.5, 1.0)
    problem = SETTING.problem.model_copy(update={"rewards": rewards})
    setting = changed(policies=(name,), parameters={name: parameters}, problem=problem)
    environment, streams = setting.problem.environment(), trial_streams(0, "registry", 0)
    policy = setting.policy(name, environment, streams.policy)
    met = FixedActions(environment) if POLICIES[name].fixed_actions else environment
    run_trial(met, {name: policy}, n_rounds, streams)
    return policy, setting


@pytest.mark.parametrize("part", [field.name for field in fields(Entry) if field.default is MISSING])
def test_an_entry_without_a_part_is_refused(part):
    given = {field.name: getattr(POLICIES["eofd"], field.name) for field in fields(Entry)}
    del given[part]
    with pytest.raises(TypeError, match=part):
        Entry(**given)


def test_comparisons_are_of_policies_in_the_registry():
    assert {*COMPARISON, *FORMS} <= set(POLICIES)


@pytest.mark.parametrize("name", [name for name in POLICIES if name not in ANY_K])
def test_a_policy_for_two_outcomes_is_refused_in_a_problem_with_more(name):
    message = re.escape(f"policies ['{name}'] play problems with two outcomes (K = 1) alone, got K = 2")
    with pytest.raises(ValidationError, match=message):
        changed(policies=("random", name))
    with pytest.raises(ValueError, match=r"rewards must have shape \(1,\) for .*, got \(2,\)"):
        SETTING.policy(name, SETTING.problem.environment(), lambda _: np.random.default_rng(0))


@pytest.mark.parametrize("name", [name for name, entry in POLICIES.items() if entry.package is None])
def test_the_memory_of_an_entry_is_about_what_a_policy_holds(name):
    """What a policy holds is the size of its pickle. Policies as printed use further matrices in a round."""
    policy, setting = played(name, 12)
    parameter = 8 * setting.problem.n_outcomes * 40
    held = len(pickle.dumps(policy, protocol=5)) - 3 * parameter
    if POLICIES[name].memory(2, 40, 8) == 0:
        assert held < 12 * parameter
    elif getattr(
        getattr(policy, "curvature", None), "grows", False
    ):  # The entry counts the largest rank that any stream can lead to.
        assert 0.7 * held <= setting.matrix_bytes <= 2 * 8 * 80 * (80 + 4)
    else:
        assert 0.7 * held <= setting.matrix_bytes <= 6 * held


def test_the_memory_of_a_setting_is_the_sum_of_its_policies():
    both = changed(policies=("eofd", "oful", "random")).matrix_bytes
    assert both == 8 * (80 * (8 + 4) + 80**2)
    assert changed(policies=("eofd",), parameters={"eofd": {"buffer": 3}}).matrix_bytes == 8 * 80 * (8 + 8)


@pytest.mark.parametrize("name", [n for n, e in POLICIES.items() if "buffer" in e.parameters.model_fields])
def test_a_buffer_is_passed_to_the_constructor(name):
    assert played(name, 1)[0].curvature.buffer == 1
    assert played(name, 1, buffer=3)[0].curvature.buffer == 3


def test_the_defaults_are_those_of_the_entry(monkeypatch):
    class Lazy(Buffered):
        buffer: int = 2

    monkeypatch.setitem(POLICIES, "eofd", replace(POLICIES["eofd"], parameters=Lazy))
    assert played("eofd", 1)[0].curvature.buffer == 2
    assert changed(policies=("eofd",)).matrix_bytes == 8 * 80 * (8 + 6)


def test_own_parameters_are_passed_to_one_policy_alone():
    environment = SETTING.problem.environment()
    built = changed(parameters={"eofd": {"buffer": 3}}).build(environment, lambda _: np.random.default_rng(0))
    assert (built["eofd"].curvature.buffer, built["greedy"].curvature.buffer) == (3, 1)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"eofd": {"buffr": 3}}, "parameters['eofd']['buffr']: Extra inputs are not permitted, got 3; own"),
        ({"eofd": {"buffer": 0}}, "parameters['eofd']['buffer']: Input should be greater than 0, got 0"),
        ({"eofd": {"buffer": "x"}}, "parameters['eofd']['buffer']: Input should be a valid integer"),
        ({"random": {"buffer": 2}}, "own parameters of 'random': none"),
        ({"eofd-compiled": {"buffer": 2}}, "policies that play, ('eofd', 'oful', 'first-order', 'greedy'"),
        ({"ucb": {}}, "got 'ucb'"),
        ({"eofd": 3}, "parameters.eofd"),
    ],
)
def test_own_parameters_are_validated(parameters, message):
    with pytest.raises(ValidationError, match=re.escape(message)):
        changed(parameters=parameters)
    copy = SETTING.model_copy(update={"parameters": parameters})  # which validates nothing itself
    with pytest.raises(ValidationError, match="parameters"):
        TrialSpec(experiment="tests", setting=copy, n_rounds=3, seed=7, trial=0)


def test_the_identity_of_settings_without_own_parameters_does_not_change(monkeypatch):
    """Stored trials and the records of runs depend on it."""
    monkeypatch.setattr(trials, "library_digest", lambda: "0" * 64)
    spec = TrialSpec(experiment="tests", setting=SETTING, n_rounds=3, seed=7, trial=0)
    left_out = {"parameters", "coverage", "guarded"}
    assert set(spec.identity()["setting"]) == set(Setting.model_fields) - left_out
    assert spec.key == "cdbd46b526566af13e72e517"
    other = spec.model_copy(update={"setting": changed(parameters={"eofd": {"buffer": 3}})})
    assert other.identity()["setting"]["parameters"] == {"eofd": {"buffer": 3}}
    assert TrialSpec.model_validate_json(other.model_dump_json()) == other


def test_the_radius_of_a_setting_is_that_of_the_rivals_too_and_without_one_they_play_their_theories():
    problem = SETTING.problem.model_copy(update={"rewards": (1.0,)})
    optimistic = {name for name, entry in POLICIES.items() if "radius" in entry.takes}
    rivals = [name for name in POLICIES if name in optimistic and not POLICIES[name].needs_radius]
    assert {"oful", "eofd", "thompson"} < optimistic - {*rivals}
    assert len(rivals) == 10
    environment, stream = problem.environment(), trial_streams(0, "registry", 0).policy
    common = changed(policies=rivals, problem=problem)
    for policy in common.build(environment, stream).values():
        beta = policy.radius.value(policy.progress)
        assert beta == pytest.approx(0.05 * policy.progress.regularization * 2.0**2)
    theory = changed(policies=rivals, problem=problem, radius=None)
    assert Setting.model_validate_json(theory.model_dump_json()) == theory
    for policy in theory.build(environment, stream).values():
        assert policy.radius is None or policy.radius.kind in ("ol2m", "ecolog", "glb-omd")


def test_a_policy_without_a_theory_needs_a_radius_and_a_radius_has_the_only_scale():
    with pytest.raises(ValidationError, match=r"radius must be given for \['eofd'\], which have no theory"):
        changed(policies=("eofd", "mnl-ucb", "squarecb"), radius=None)
    own = {name: {"scale": 0.1} for name in ("mnl-ucb", "squarecb")}
    given = {"policies": tuple(own), "parameters": own}
    with pytest.raises(
        ValidationError, match=r"parameters of \['mnl-ucb'\] must have no scale beside a radius"
    ):
        changed(**given)
    assert changed(**given, radius=None).parameters["mnl-ucb"] == {"scale": 0.1}


def test_the_names_of_the_rivals_build_the_rivals():
    robust, sampled = played("robust-eofd", 30)[0], played("thompson", 30)[0]
    assert robust.curvature.ridge == 0.5 + robust.curvature.shrinkage / 2 > 0.5
    assert isinstance(sampled, ThompsonPolicy)
    assert sampled.curvature.sketch_size == robust.curvature.sketch_size == 8
    setting = changed(policies=("eofd", "robust-eofd", "thompson"))
    frame = TrialSpec(experiment="tests", setting=setting, n_rounds=40, seed=7, trial=0).compute()
    assert frame.groupby("policy", observed=True)["action"].agg(tuple).nunique() == 3
    assert set(frame.attrs["final"]) == {"eofd", "robust-eofd", "thompson"}


def test_the_rivals_play_in_the_standard_profile_of_the_synthetic_experiment_alone():
    """The profile `paper` has only the policies that the paper compares."""
    manifest = yaml.safe_load((Path(__file__).resolve().parents[2] / "experiments.yml").read_text())
    having = [
        (name, profile)
        for name, experiment in manifest["experiments"].items()
        for profile, parameters in experiment["profiles"].items()
        if "rivals" in parameters
    ]
    assert having == [("synthetic", "standard")]
    rivals = manifest["experiments"]["synthetic"]["profiles"]["standard"]["rivals"]
    assert rivals == manifest["limits"]["rivals"]["items"]["enum"] == ["robust-eofd", "thompson"]
    assert changed(policies=(*COMPARISON, *rivals)).policies[-2:] == ("robust-eofd", "thompson")


def test_the_random_stream_is_that_of_the_name(monkeypatch):
    """Two policies of one constructor draw from different streams."""
    monkeypatch.setitem(POLICIES, "another", replace(POLICIES["random"]))
    setting = changed(policies=("random", "another"))
    environment, streams = setting.problem.environment(), trial_streams(0, "registry", 0)
    trial = run_trial(environment, setting.build(environment, streams.policy), 30, streams)
    assert (trial.action[:, 0] != trial.action[:, 1]).any()
    drawn = [policy.rng.bit_generator.state for policy in setting.build(environment, streams.policy).values()]
    assert drawn == [streams.policy(name).bit_generator.state for name in setting.policies]


@pytest.mark.compiled
def test_policies_play_the_same_by_their_compiled_forms():
    names = tuple(compiled_forms(*ANY_K))
    assert {"eofd", "oful", "greedy", "growing-ridge"} <= set(names)
    games = []
    for parameters in ({}, compiled_forms(*names)):
        setting = changed(policies=names, parameters=parameters)
        streams = trial_streams(4, "forms", 0)
        environment = setting.problem.environment()
        policies = setting.build(environment, streams.policy)
        assert [policy.compiled for policy in policies.values()] == [bool(parameters)] * len(names)
        games.append(run_trial(environment, policies, 40, streams).action)
    np.testing.assert_array_equal(*games)
