"""Environments: what is drawn, how often, and with which probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import EPS, softmax
from scipy.sparse import csr_array

from mlogb_core.environments import (
    ActionSet,
    LabelledEnvironment,
    RatedEnvironment,
    SparseEnvironment,
    SyntheticEnvironment,
    SyntheticInstance,
)

REWARDS = (0.25, 0.5, 0.75, 1.0)


# Action sets ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("probabilities", "uniform", "outcome"),
    [
        ([0.25, 0.5, 0.25], 0.0, 0),
        ([0.25, 0.5, 0.25], np.nextafter(0.25, 0.0), 0),
        ([0.25, 0.5, 0.25], 0.25, 1),
        ([0.25, 0.5, 0.25], 0.75, 2),
        ([0.25, 0.5, 0.25], np.nextafter(1.0, 0.0), 2),
        ([0.0, 1.0, 0.0], 0.0, 1),  # an impossible outcome never happens,
        ([0.0, 1.0, 0.0], np.nextafter(1.0, 0.0), 1),
        ([0.5, 0.0, 0.5], 0.5, 2),  # also not at the edge of its interval,
        ([1.0, 0.0, 0.0], np.nextafter(1.0, 0.0), 0),
        ([0.5, 0.5 - 1e-10, 0.0], np.nextafter(1.0, 0.0), 1),  # a sum below 1: the last possible one
        ([0.1] * 10, np.nextafter(1.0, 0.0), 9),  # cumulative sum 1 - eps
    ],
)
def test_outcomes_by_inversion(probabilities, uniform, outcome):
    n = len(probabilities)
    actions = ActionSet(np.eye(2), np.array([np.eye(n)[0], probabilities]))
    drawn = actions.outcome(1, uniform)
    assert drawn == outcome
    assert type(drawn) is int


def test_outcomes_have_their_probabilities():
    p = np.array([[0.0, 0.2, 0.5, 0.3]])
    grid = (np.arange(1000) + 0.5) / 1000
    counts = np.bincount([ActionSet(np.eye(1), p).outcome(0, u) for u in grid], minlength=4)
    np.testing.assert_array_equal(counts, 1000 * p[0])


# Synthetic -----------------------------------------------------------------------------------------


def test_synthetic_actions_are_unit_vectors_with_the_models_probabilities():
    environment = SyntheticEnvironment(7, REWARDS, parameter_norm=3.0)
    rng = np.random.default_rng(0)
    instance = environment.instance(rng)
    assert instance.parameter.shape == (4, 7)
    assert np.linalg.norm(instance.parameter) == pytest.approx(3.0, rel=4 * EPS)
    assert environment.n_features == 7
    np.testing.assert_array_equal(environment.rewards, REWARDS)
    for _ in range(20):
        actions = instance.actions(rng)
        n = len(actions.features)
        assert actions.features.shape == (n, 7)
        assert actions.probabilities.shape == (n, 5)
        np.testing.assert_allclose(np.linalg.norm(actions.features, axis=1), 1.0, rtol=4 * EPS)
        expected = [softmax(instance.parameter @ x) for x in actions.features]
        np.testing.assert_allclose(actions.probabilities, expected, rtol=1e-14)


def test_every_size_of_action_set_is_equally_likely():
    instance = SyntheticEnvironment(1, [1.0], parameter_norm=1.0).instance(np.random.default_rng(1))
    rng = np.random.default_rng(2)
    sizes = np.array([len(instance.actions(rng).features) for _ in range(21 * 400)])
    assert sizes.min() == 10
    assert sizes.max() == 30
    counts = np.bincount(sizes, minlength=31)[10:]
    # Pearson's statistic with 20 degrees of freedom exceeds 45.3 with probability 0.001.
    assert np.sum((counts - 400.0) ** 2 / 400.0) < 45.3


def test_a_fixed_size_of_action_set():
    instance = SyntheticInstance(np.ones((1, 2)), (4, 4))
    assert all(len(instance.actions(np.random.default_rng(s)).features) == 4 for s in range(10))


def test_synthetic_directions_are_uniform():
    """Actions and parameters have mean 0 and second moment I/d within five standard deviations."""
    d, n = 3, 6000
    rng = np.random.default_rng(3)
    environment = SyntheticEnvironment(d, [1.0], parameter_norm=2.0, n_actions=(n, n))
    instance = environment.instance(rng)
    actions = instance.actions(rng).features
    parameters = np.array([environment.instance(rng).parameter[0] for _ in range(n)]) / 2.0
    for sample in (actions, parameters):
        assert np.abs(sample.mean(axis=0)).max() < 5 * np.sqrt(1 / (d * n))
        assert np.abs(sample.T @ sample / n - np.eye(d) / d).max() < 5 * np.sqrt(0.1 / n)


def test_decay_gives_the_features_their_variances():
    """The scaling to norm 1 keeps the ratio of two features, whose median is that of the deviations."""
    environment = SyntheticEnvironment(4, [1.0], parameter_norm=2.0, n_actions=(9000, 9000), decay=2.0)
    rng = np.random.default_rng(8)
    instance = environment.instance(rng)
    actions = instance.actions(rng).features
    np.testing.assert_allclose(np.linalg.norm(actions, axis=1), 1.0, rtol=1e-12)
    assert np.linalg.norm(instance.parameter) == pytest.approx(2.0)
    # The ratio |z_i / z_j| of two independent normal numbers has the median 1.
    ratios = np.median(np.abs(actions[:, 1:] / actions[:, :1]), axis=0)
    np.testing.assert_allclose(ratios, [1 / 2, 1 / 3, 1 / 4], rtol=0.1)
    shares = [environment.instance(rng).parameter[0] ** 2 for _ in range(2000)]
    assert np.all(np.diff(np.mean(shares, axis=0)) < 0)


def test_without_decay_the_draws_are_the_papers():
    plain, zero = (SyntheticEnvironment(5, [1.0], parameter_norm=1.0, **k) for k in ({}, {"decay": 0.0}))
    draws = [e.instance(np.random.default_rng(1)).actions(np.random.default_rng(2)) for e in (plain, zero)]
    np.testing.assert_array_equal(draws[0].features, draws[1].features)
    raw = np.random.default_rng(2)
    raw.integers(10, 31)
    first = raw.standard_normal((len(draws[0].features), 5))[0]
    np.testing.assert_allclose(draws[0].features[0], first / np.linalg.norm(first), rtol=1e-15)


def test_synthetic_draws_depend_on_their_streams_alone():
    environment = SyntheticEnvironment(4, REWARDS, parameter_norm=1.0)
    one, two = (environment.instance(np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(one.parameter, two.parameter)
    left, right = (i.actions(np.random.default_rng(6)) for i in (one, two))
    np.testing.assert_array_equal(left.features, right.features)
    assert not np.array_equal(one.parameter, environment.instance(np.random.default_rng(7)).parameter)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_features": 0}, "n_features must be at least 1"),
        ({"n_features": 2.0}, "n_features must be an integer"),
        ({"rewards": []}, "rewards must have shape"),
        ({"rewards": [-1.0]}, "rewards must be at least 0"),
        ({"parameter_norm": 0.0}, "parameter_norm must be positive"),
        ({"parameter_norm": np.nan}, "parameter_norm must be finite"),
        ({"n_actions": (0, 3)}, r"n_actions\[0\] must be at least 1"),
        ({"n_actions": 20}, "n_actions must be a pair of integers, got 20"),
        ({"n_actions": (10, 20, 30)}, "n_actions must be a pair of integers"),
        ({"n_actions": (4, 3)}, r"n_actions\[1\] must be at least 4"),
        ({"decay": -1.0}, "decay must be at least 0"),
        ({"n_actions": (1.5, 3)}, r"n_actions\[0\] must be an integer"),
    ],
)
def test_synthetic_rejects(changes, message):
    arguments = {"n_features": 3, "rewards": [1.0], "parameter_norm": 1.0} | changes
    with pytest.raises(ValueError, match=message):
        SyntheticEnvironment(arguments.pop("n_features"), arguments.pop("rewards"), **arguments)


# Labelled data -------------------------------------------------------------------------------------


def labelled(**changes):
    """Six rows with three labels; the first features differ, and label 2 has one row, of zeros."""
    features = np.array([[3.0, 4.0], [6.0, 0.0], [0.0, 0.5], [5.0, 12.0], [8.0, 15.0], [0.0, 0.0]])
    arguments = {
        "features": features,
        "labels": [0, 1, 0, 0, 1, 2],
        "outcomes": [0, 2, 1],
        "rewards": [0.5, 1.0],
    } | changes
    return LabelledEnvironment(arguments.pop("features"), arguments.pop("labels"), **arguments)


UNIT = {0: [[0.6, 0.8], [0.0, 1.0], [5 / 13, 12 / 13]], 1: [[1.0, 0.0], [8 / 17, 15 / 17]], 2: [[0.0, 0.0]]}
SCALED = {
    0: [[3 / 15, 4 / 15], [0.0, 0.5 / 15], [5 / 15, 12 / 15]],
    1: [[6 / 15, 0.0], [8 / 15, 1.0]],
    2: [[0.0, 0.0]],
}


@pytest.mark.parametrize(
    ("normalisation", "rows", "divisor"),
    [("unit", UNIT, np.sqrt(2.0)), pytest.param("max", SCALED, 1.0, marks=pytest.mark.slow)],
)
def test_one_candidate_of_every_label_in_random_order(normalisation, rows, divisor):
    environment = labelled(normalisation=normalisation)
    assert environment.n_features == 3
    rng = np.random.default_rng(0)
    instance = environment.instance(rng)
    outcome_of = {0: 0, 1: 2, 2: 1}
    drawn = {(label, i): 0 for label in rows for i in range(len(rows[label]))}
    orders = {}
    rounds = 1800
    for _ in range(rounds):
        actions = instance.actions(rng)
        assert actions.features.shape == (3, 3)
        order = []
        for x, p in zip(actions.features, actions.probabilities, strict=True):
            assert x[-1] == pytest.approx(1.0 / divisor, rel=EPS)
            (label,) = [k for k, y in outcome_of.items() if p[y] == 1.0]
            np.testing.assert_array_equal(p, np.eye(3)[outcome_of[label]])
            found = [
                i
                for i, row in enumerate(rows[label])
                if np.allclose(x[:-1] * divisor, row, rtol=1e-14, atol=0)
            ]
            assert len(found) == 1
            drawn[label, found[0]] += 1
            order.append(label)
        assert sorted(order) == [0, 1, 2]
        orders[tuple(order)] = orders.get(tuple(order), 0) + 1
    # All 3! orders, and all rows of a label, are equally likely: within five binomial deviations.
    assert len(orders) == 6
    assert max(abs(n - rounds / 6) for n in orders.values()) < 5 * np.sqrt(rounds * 5 / 36)
    for (label, _), n in drawn.items():
        share = 1.0 / len(rows[label])
        assert abs(n - rounds * share) <= 5 * np.sqrt(rounds * share * (1 - share))


def test_unit_rows_have_norm_one_and_zero_rows_stay_finite():
    actions = labelled().actions(np.random.default_rng(0))
    norms = np.linalg.norm(actions.features, axis=1)
    zero = actions.probabilities[:, 1] == 1.0  # label 2 yields outcome 1
    np.testing.assert_allclose(norms[~zero], 1.0, rtol=4 * EPS)
    np.testing.assert_array_equal(actions.features[zero], [[0.0, 0.0, 1.0 / np.sqrt(2.0)]])


@pytest.mark.parametrize("normalisation", ["unit", "max"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32])
def test_any_numeric_type_gives_the_same_actions(normalisation, dtype):
    whole = np.array([[3, 4], [0, 200], [0, 0], [9, 12]])
    arguments = {"labels": [0, 0, 1, 1], "outcomes": [1, 0], "rewards": [1.0], "normalisation": normalisation}
    features = whole.astype(dtype)
    before = features.copy()
    plain = labelled(features=whole.astype(float), **arguments)
    other = labelled(features=features, **arguments)
    for seed in range(8):
        left, right = (e.actions(np.random.default_rng(seed)) for e in (plain, other))
        assert right.features.dtype == np.float64
        np.testing.assert_array_equal(left.features, right.features)
    np.testing.assert_array_equal(features, before)


@pytest.mark.parametrize("dtype", [np.int8, np.float64])
def test_the_largest_absolute_value_may_be_negative(dtype):
    # The number 128 does not fit into int8.
    features = np.array([[-128, 64], [0, 5]]).astype(dtype)
    environment = labelled(
        features=features, labels=[0, 1], outcomes=[0, 1], rewards=[1.0], normalisation="max"
    )
    actions = environment.actions(np.random.default_rng(0))
    order = np.argsort(actions.probabilities[:, 1])
    np.testing.assert_array_equal(actions.features[order], [[-1.0, 0.5, 1.0], [0.0, 5 / 128, 1.0]])


def test_all_zero_data_are_legal():
    for normalisation in ("unit", "max"):
        data = {"features": np.zeros((2, 2)), "labels": [0, 1], "outcomes": [0, 1], "rewards": [1.0]}
        environment = labelled(normalisation=normalisation, **data)
        assert np.isfinite(environment.actions(np.random.default_rng(0)).features).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"normalisation": "l1"}, r"normalisation must be one of \('unit', 'max'\), got 'l1'"),
        ({"features": np.ones(6)}, r"features and labels must have shapes .* got \(6,\) and \(6,\)"),
        ({"labels": [0, 1, 2]}, r"features and labels .* got \(6, 2\) and \(3,\)"),
        ({"features": np.empty((0, 2)), "labels": []}, "n >= 1"),
        ({"outcomes": [0, 3, 1]}, r"outcomes must be a vector with entries in 0\.\.2"),
        ({"outcomes": [0, -1, 1]}, r"outcomes must be a vector with entries in 0\.\.2"),
        ({"outcomes": [[0, 1, 2]]}, "outcomes must be a vector"),
        ({"outcomes": [0, 1]}, r"labels must take each value in 0\.\.1 and no other"),
        ({"outcomes": [0, 1, 2, 2]}, r"labels must take each value in 0\.\.3 and no other"),
        ({"rewards": [0.5, -1.0]}, "rewards must be at least 0"),
    ],
)
def test_labelled_rejects(changes, message):
    with pytest.raises(ValueError, match=message):
        labelled(**changes)


# Ratings -------------------------------------------------------------------------------------------


def rated(**changes):
    arguments = {
        "indices": np.array([[0, 1], [0, 2], [1, -1], [2, 1]]),
        "n_features": 3,
        "outcomes": [0, 1, 2, 2],
        "groups": [5, 5, 7, 5],
        "rewards": [0.5, 1.0],
        "n_candidates": 2,
    } | changes
    return RatedEnvironment(arguments.pop("indices"), arguments.pop("n_features"), **arguments)


def test_rated_candidates_are_rows_of_one_rater():
    environment = rated(n_candidates=3)
    drawn = environment.instance(np.random.default_rng(0)).actions(np.random.default_rng(1))
    root = np.sqrt(0.5)
    expected = {(root, root, 0.0): 0, (root, 0.0, root): 1, (0.0, root, root): 2}
    found = {tuple(x): int(p.argmax()) for x, p in zip(drawn.features, drawn.probabilities, strict=True)}
    assert {tuple(np.round(x, 12)): y for x, y in found.items()} == {
        tuple(np.round(x, 12)): y for x, y in expected.items()
    }


def test_rated_draws_differ_and_repeat():
    environment = rated()
    draws = [environment.actions(np.random.default_rng(seed)).features for seed in (1, 1, 2, 3, 4, 5)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert any(not np.array_equal(draws[0], other) for other in draws[2:])


def test_sparse_candidates_are_the_dense_ones_to_the_bit():
    rng = np.random.default_rng(3)
    data = {
        "indices": rng.integers(-1, 9, (60, 4)).astype(np.int32) * [[1, 1, 1, 0]],  # some repeated, some -1
        "n_features": 9,
        "outcomes": rng.integers(0, 3, 60),
        "groups": rng.integers(0, 3, 60),
        "n_candidates": 8,
    }
    for seed in range(5):
        sparse, dense = (
            rated(sparse=flag, **data).actions(np.random.default_rng(seed)) for flag in (True, False)
        )
        assert isinstance(sparse.features, csr_array)
        assert sparse.features.has_canonical_format
        np.testing.assert_array_equal(sparse.features.toarray(), dense.features)
        np.testing.assert_array_equal(sparse.probabilities, dense.probabilities)
        np.testing.assert_array_equal(sparse.row(3).toarray()[0], dense.row(3))
        assert sparse.outcome(3, 0.5) == dense.outcome(3, 0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sparse": 1}, "sparse must be True or False"),
        ({"outcomes": [0, 1, 2]}, "indices, outcomes and groups must have shapes"),
        ({"indices": 3}, "indices, outcomes and groups must have shapes"),
        ({"indices": np.empty((4, 0), dtype=int)}, "indices, outcomes and groups must have shapes"),
        ({"outcomes": [0, 1, 2, 3]}, r"outcomes must be integers in 0\.\.2"),
        ({"indices": np.array([[0, 3]] * 4)}, r"indices must be integers in -1\.\.2"),
        ({"indices": np.array([[0.0, 1.0]] * 4)}, r"indices must be integers"),
        ({"indices": np.array([[0, 1], [-1, -1], [0, 1], [0, 1]])}, "at least one feature in every row"),
        ({"n_candidates": 4}, "at least 4 rows"),
        ({"n_candidates": 0}, "n_candidates must be at least 1"),
        ({"rewards": [-1.0, 1.0]}, "rewards must be at least 0"),
    ],
)
def test_rated_rejects(changes, message):
    with pytest.raises(ValueError, match=message):
        rated(**changes)


# Sparse --------------------------------------------------------------------------------------------


def test_sparse_actions_are_unit_vectors_with_the_models_probabilities():
    environment = SparseEnvironment(500, REWARDS, parameter_norm=3.0, n_nonzeros=7, n_actions=12)
    instance = environment.instance(np.random.default_rng(0))
    assert np.std(instance.parameter) == pytest.approx(1.5, rel=0.05)
    seen = np.zeros(500)
    for seed in range(40):
        drawn = instance.actions(np.random.default_rng(seed))
        assert isinstance(drawn.features, csr_array)
        assert drawn.features.has_canonical_format
        assert (np.diff(drawn.features.indptr) == 7).all()
        rows = drawn.features.toarray()
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, rtol=4 * EPS)
        expected = [softmax(instance.parameter @ x) for x in rows]
        np.testing.assert_allclose(drawn.probabilities, expected, rtol=1e-12)
        seen += (rows != 0).sum(axis=0)
    assert seen.sum() == 40 * 12 * 7
    assert np.count_nonzero(seen) > 490  # 500 features, each offered 6.7 times in the mean
    again = instance.actions(np.random.default_rng(39)).features
    np.testing.assert_array_equal(again.toarray(), rows)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_nonzeros": 6}, "n_nonzeros must be at most n_features = 5, got 6"),
        ({"n_nonzeros": 0}, "n_nonzeros must be at least 1"),
        ({"n_actions": 0}, "n_actions must be at least 1"),
        ({"parameter_norm": 0.0}, "parameter_norm must be positive"),
    ],
)
def test_sparse_rejects(changes, message):
    with pytest.raises(ValueError, match=message):
        SparseEnvironment(5, REWARDS, **{"parameter_norm": 1.0, "n_nonzeros": 2} | changes)
