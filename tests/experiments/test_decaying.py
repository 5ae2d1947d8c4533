"""Contexts that decay with a parameter that does not."""

from __future__ import annotations

import numpy as np

from compendium.experiments.problems import Decaying, Synthetic


def drawn(problem, seed, count):
    rng = np.random.default_rng(seed)
    instance = problem.environment().instance(rng)
    return instance.parameter, [instance.actions(rng) for _ in range(count)]


def test_without_decay_it_is_the_papers_problem():
    given = {"dimension": 7, "rewards": (0.5, 1.0), "parameter_norm": 3.0}
    ours, papers = drawn(Decaying(**given), 1, 5), drawn(Synthetic(**given), 1, 5)
    np.testing.assert_array_equal(ours[0], papers[0])
    for one, other in zip(ours[1], papers[1], strict=True):
        np.testing.assert_array_equal(one.features, other.features)


def test_contexts_decay_and_the_parameter_does_not():
    problem = Decaying(dimension=30, rewards=(1.0,), parameter_norm=3.0, decay=2.0)
    parameters = np.array([drawn(problem, seed, 0)[0] for seed in range(400)])
    np.testing.assert_allclose(np.linalg.norm(parameters, axis=(1, 2)), 3.0)
    spread = np.square(parameters[:, 0]).mean(axis=0)
    assert 0.7 < spread[:15].sum() / spread[15:].sum() < 1.4
    features = np.vstack([one.features for one in drawn(problem, 1, 200)[1]])
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1.0)
    deviations = features.std(axis=0)
    assert 3.0 < deviations[1] / deviations[7] < 5.0  # the scaling to norm 1 leaves ratios as they are


def test_it_says_its_sizes():
    problem = Decaying(dimension=30, rewards=(0.5, 1.0), parameter_norm=3.0)
    assert (problem.n_outcomes, problem.n_features, problem.decay, problem.data()) == (2, 30, 0.0, None)
