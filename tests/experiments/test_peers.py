"""The adaptors of other projects' bandits: what they pass on, what they learn, and what is absent."""

from __future__ import annotations

import ast
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from compendium.experiments import peers, policies
from compendium.experiments.peers import BayesianBandits, MABWiserLinUCB, VowpalWabbit
from compendium.experiments.policies import POLICIES

D, REWARDS = 4, [0.5, 1.0]
NAMES = [name for name, entry in POLICIES.items() if entry.package is not None]


def needs(package):
    reason = f"{package} is not installed: `make peers` brings it"
    return pytest.mark.skipif(find_spec(package) is None, reason=reason)


def made(name, seed=0):
    entry = POLICIES[name]
    stream = {"rng": np.random.default_rng(seed)} if "rng" in entry.takes else {}
    return entry.constructor(D, REWARDS, **stream, **entry.parameters().model_dump())


def play(policy, n_rounds, seed=1):
    """Play rounds in which the first feature decides; by how much the last choices have more of it."""
    rng, first = np.random.default_rng(seed), []
    for _ in range(n_rounds):
        actions = rng.uniform(-1, 1, (int(rng.integers(2, 7)), D))
        chosen = policy.select(actions)
        policy.update(actions[chosen], 2 if actions[chosen, 0] > 0 else 0)
        first.append(actions[chosen, 0] - actions[:, 0].mean())
    return np.mean(first[n_rounds // 2 :])


@pytest.mark.parametrize("name", [pytest.param(n, marks=needs(POLICIES[n].package)) for n in NAMES])
def test_a_peer_learns_and_its_choices_are_those_of_its_stream(name):
    assert play(made(name), 60) > 0.15
    if "rng" in POLICIES[name].takes:
        chosen = []
        for seed in (0, 0, 1):
            policy, rng = made(name, seed), np.random.default_rng(5)
            sets = rng.uniform(-1, 1, (12, 6, D))
            chosen.append([policy.select(actions) for actions in sets])
        assert chosen[0] == chosen[1] != chosen[2]


@pytest.mark.parametrize("name", NAMES)
def test_an_absent_package_is_named_with_what_brings_it(name, monkeypatch):
    package = POLICIES[name].package
    for module in [package, *(m for m in sys.modules if m.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{package} is not installed: `make peers` \(pip install .*peers"):
        made(name)


def test_the_modules_of_the_registry_import_no_peer():
    for module in (peers, policies):
        tree = ast.walk(ast.parse(Path(module.__file__).read_text()))
        names = {alias.name for node in tree if isinstance(node, ast.Import) for alias in node.names}
        tree = ast.walk(ast.parse(Path(module.__file__).read_text()))
        names |= {node.module for node in tree if isinstance(node, ast.ImportFrom)}
        assert "numpy" in names
        assert not {name.partition(".")[0] for name in names} & {POLICIES[name].package for name in NAMES}


class Line:
    """An example of the package: a line of text and its label."""

    def __init__(self, text):
        self.text = text

    def set_label_string(self, label):
        self.text = f"{label} {self.text}"


class Recorder:
    """A learner of Vowpal Wabbit's interface that says what it was given."""

    def __init__(self, options):
        self.options, self.learned, self.held = options, [], 0

    def parse(self, text):
        self.held += 1
        return [Line(line) for line in text.split("\n")]

    def finish_example(self, lines):
        self.held -= 1

    def predict(self, lines):
        self.lines = [line.text for line in lines]
        return [0.25, 0.75, 0.0]

    def learn(self, lines):
        self.learned.append([line.text for line in lines])


def test_vowpal_wabbit_is_told_cost_and_probability_of_the_choice(monkeypatch):
    monkeypatch.setattr(peers, "imported", lambda _: type("package", (), {"Workspace": Recorder}))
    policy = VowpalWabbit(2, REWARDS, rng=np.random.default_rng(3), explorer="regcb", exploration=0.2)
    learner = policy._learner
    assert "--cb_explore_adf --regcb --mellowness 0.2 --cb_min_cost -1 --cb_max_cost 0" in learner.options
    actions = np.array([[1.0, 0.5], [-2.0, 0.125], [0.0, 3.0]])
    np.testing.assert_array_equal(policy.probabilities(actions).probability, [0.25, 0.75, 0.0])
    assert learner.lines == ["|x 0:1 1:0.5", "|x 0:-2 1:0.125", "|x 0:0 1:3"]
    counts = np.zeros(3)
    for _ in range(200):
        chosen = policy.select(actions)
        policy.update(actions[chosen], 1)
        expected = list(learner.lines)
        expected[chosen] = f"0:-0.5:{[0.25, 0.75][chosen]:g} {expected[chosen]}"
        assert learner.learned[-1] == expected
        counts[chosen] += 1
    assert counts[2] == 0
    assert counts[1] == pytest.approx(150, abs=25)
    policy.select(actions)
    policy.update([7.0, 8.0], 0)
    assert learner.learned[-1] == ["0:-0:1 |x 0:7 1:8"]
    assert learner.held == 0
    policy.select(actions)
    policy.select(actions)
    assert learner.held == 1


def test_the_text_of_an_action_set_is_kept_and_is_that_of_its_numbers():
    texts, actions = peers._Texts(), np.array([[1.0, 0.5], [-2.0, 0.125]])
    first = texts.of(actions, "|x 0:%.9g 1:%.9g")
    assert first == "|x 0:1 1:0.5\n|x 0:-2 1:0.125"
    assert texts.of(actions.copy(), "|x 0:%.9g 1:%.9g") is first
    actions[0, 0] = 7.0
    assert texts.of(actions, "|x 0:%.9g 1:%.9g") == "|x 0:7 1:0.5\n|x 0:-2 1:0.125"
    assert texts.of(actions.reshape(1, 4), "|x 0:%.9g 1:%.9g 2:%.9g 3:%.9g") == "|x 0:7 1:0.5 2:-2 3:0.125"


@needs("mabwiser")
def test_linucb_of_mabwiser_is_ridge_regression_over_all_actions():
    policy, rng = MABWiserLinUCB(D, REWARDS, exploration=0.7, regularization=2.0), np.random.default_rng(0)
    X, y = rng.standard_normal((9, D)), rng.integers(3, size=9)
    assert policy.select(X) == 0
    for x, outcome in zip(X, y, strict=True):
        policy.update(x, outcome)
    A = 2.0 * np.eye(D) + X.T @ X
    theta = np.linalg.solve(A, X.T @ np.array([0.0, 0.5, 1.0])[y])
    for _ in range(5):
        actions = rng.standard_normal((6, D))
        scores = actions @ theta + 0.7 * np.sqrt(np.vecdot(actions, np.linalg.solve(A, actions.T).T))
        assert policy.select(actions) == np.argmax(scores)
        assert policy.select(actions[:1]) == 0


@needs("bayesianbandits")
def test_bayesianbandits_has_the_posterior_of_all_rounds():
    policy = BayesianBandits(
        D, REWARDS, rng=np.random.default_rng(0), prior_precision=2.0, noise_precision=3.0
    )
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((9, D)), rng.integers(3, size=9)
    for x, outcome in zip(X, y, strict=True):
        policy.select(rng.standard_normal((int(rng.integers(1, 5)), D)))
        policy.update(x, outcome)
    expected = np.linalg.solve(2 * np.eye(D) + 3 * X.T @ X, 3 * X.T @ np.array([0.0, 0.5, 1.0])[y])
    np.testing.assert_allclose(policy._agent.learner.coef_, expected, rtol=1e-8)


def test_arguments_are_checked():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"explorer must be one of .*'squarecb'.* got 'bag'"):
        VowpalWabbit(D, REWARDS, rng=rng, explorer="bag", exploration=1.0)
    with pytest.raises(ValueError, match="exploration must be positive, got 0"):
        VowpalWabbit(D, REWARDS, rng=rng, explorer="cover", exploration=0.0)
    with pytest.raises(ValueError, match="rewards must be at least 0"):
        MABWiserLinUCB(D, [-1.0])
    with pytest.raises(ValueError, match="n_features must be at least 1"):
        BayesianBandits(0, REWARDS, rng=rng)
