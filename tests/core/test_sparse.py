"""Rounds for sparse actions: the same game as with dense rows, and clear errors for what is no action."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix, dok_array

from mlogb_core import (
    ConstantRadius,
    RandomPolicy,
    TheoremRadius,
    budgeted_eofd,
    compensated_eofd,
    doubling_eofd,
    dyadic_eofd,
    eofd,
    first_order,
    oful,
    robust_eofd,
    thompson,
)
from mlogb_core.batch import select_many
from mlogb_core.compiled.sparse import CompiledFeatures
from mlogb_core.environments import SparseEnvironment
from mlogb_core.literal import LiteralEOFD
from mlogb_core.printed import PrintedEOFD
from mlogb_core.simulation import run_trial, trial_streams
from mlogb_core.sparse import SparseFeatures, SparsePolicy, features

#: Tests of the compiled form: they alone need the kernels of sparse rows, which take ten seconds to compile.
sparse_kernels = pytest.mark.sparse_kernels
FORMS = [False, pytest.param(True, marks=sparse_kernels)]

D = 400
SETTINGS = {"regularization": 1.0, "step_size": 2.0, "norm_bound": 1.0, "radius": ConstantRadius(0.05)}


def maker(K, m, compiled=False):
    rewards = np.arange(1, K + 1) / K
    return lambda d: eofd(d, rewards, sketch_size=m, compiled=compiled, **SETTINGS)


def sparse_rows(rng, n, nnz, d=D, weights=None):
    rows = np.zeros((n, d))
    for row in rows:
        row[rng.choice(d, nnz, replace=False, p=weights)] = rng.standard_normal(nnz)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def zipf(rng):
    weights = 1 / np.arange(1, D + 1) ** 1.5
    return lambda t: sparse_rows(rng, 4, 6, weights=weights / weights.sum())


def axes(rng):
    return lambda t: np.eye(D)[rng.choice(30, 4, replace=False)]


def repeated(rng):
    pool = sparse_rows(rng, 12, 5)
    return lambda t: pool[rng.choice(12, 4, replace=False)]


def nearly_repeated(rng):
    pool = sparse_rows(rng, 12, 5)
    return lambda t: pool[rng.choice(12, 4, replace=False)] + 1e-7 * sparse_rows(rng, 4, 5)


def with_zeros(rng):
    def rows(t):
        actions = sparse_rows(rng, 4, 5)
        actions[t % 4] = 0.0
        return actions * (t % 3 > 0)

    return rows


def of_all_lengths(rng):
    return lambda t: sparse_rows(rng, 4, 5) * 10.0 ** rng.integers(-3, 2, (4, 1))


def with_a_constant(rng):
    def rows(t):
        actions = sparse_rows(rng, 4, 5)
        actions[:, 0] = 1.0
        return actions

    return rows


STREAMS = [zipf, axes, repeated, nearly_repeated, with_zeros, of_all_lengths, with_a_constant]


def play_both(make, rows, n_rounds, period=40, d=D, seed=1):
    """Play sparse and dense; every choice must be the same, and the largest difference of W is returned."""
    rng = np.random.default_rng(seed)
    sparse, dense = SparsePolicy(make, d, period), make(d)
    K, error = dense.rewards.size, 0.0
    for t in range(n_rounds):
        actions = rows(t)
        chosen = dense.select(actions)
        assert sparse.select(csr_array(actions)) == chosen, f"round {t + 1}"
        outcome = int(rng.integers(K + 1))
        sparse.update(csr_array(actions[[chosen]]), outcome)
        dense.update(actions[chosen], outcome)
        if t % 10 == 9 or t == n_rounds - 1:
            error = max(error, np.abs(sparse.parameter - dense.parameter).max())
    return sparse, dense, error


@pytest.mark.each_value
@pytest.mark.parametrize("compiled", FORMS)
@pytest.mark.parametrize(("K", "m"), [(1, 8), (3, 3)])
@pytest.mark.parametrize("stream", STREAMS)
def test_the_game_is_that_of_dense_rows(stream, K, m, compiled):
    rows = stream(np.random.default_rng(7))
    sparse, dense, error = play_both(maker(K, m, compiled), rows, 150)
    assert not sparse.features.is_identity
    assert error <= 1e-11
    expected = dense.curvature.spectrum()
    np.testing.assert_allclose(sparse.policy.curvature.spectrum(), expected, atol=1e-11 * expected.max())
    assert sparse.policy.curvature.shrinkage == pytest.approx(dense.curvature.shrinkage, rel=1e-10)
    assert sparse.summary() == pytest.approx(dense.summary(), rel=1e-7)
    if stream in (repeated, nearly_repeated):
        assert sparse.features.careful  # the actions lie near the span of the coordinates


@pytest.fixture
def short_rebuilds(monkeypatch):
    """Let every rebuild be a short one that can."""
    monkeypatch.setattr(features, "_MIDDLE_COST", 0)


@pytest.mark.parametrize("compiled", FORMS)
@pytest.mark.parametrize(("K", "m"), [(1, 8), (3, 3)])
@pytest.mark.parametrize("stream", [zipf, axes, with_zeros, of_all_lengths])
@pytest.mark.slow
def test_the_game_is_that_of_dense_rows_when_rebuilds_are_short(stream, K, m, compiled, short_rebuilds):
    rows = stream(np.random.default_rng(7))
    sparse, dense, error = play_both(maker(K, m, compiled), rows, 150, period=20)
    assert error <= 1e-11
    expected = dense.curvature.spectrum()
    np.testing.assert_allclose(sparse.policy.curvature.spectrum(), expected, atol=1e-11 * expected.max())
    assert sparse.features.short or (stream, K) == (zipf, 3)
    assert sparse.features.rebuilds > sparse.features.short  # the first one has no directions to keep


@pytest.mark.parametrize("compiled", FORMS)
def test_rebuilds_are_short_until_they_have_cost_as_much_as_a_whole_one(compiled):
    rng, d = np.random.default_rng(3), 4500
    policy = SparsePolicy(maker(1, 4, compiled), d, period=10)
    for start in range(0, d, 25):
        action = csr_array((np.full(25, 0.2), np.arange(start, start + 25), [0, 25]), shape=(1, d))
        policy.update(action, int(rng.integers(2)))
    before, kinds = policy.features.rebuilds, []
    for _ in range(400):
        short = policy.features.short
        policy.update(csr_array(sparse_rows(rng, 1, 4, d)), int(rng.integers(2)))
        if policy.features.rebuilds > before:
            before = policy.features.rebuilds
            kinds.append(policy.features.short > short)
    # Ten actions of four features: the n-th short rebuild costs 6 * 40 n, and all n of them 120 n (n + 1).
    whole = np.flatnonzero(~np.array(kinds))
    assert np.diff(whole).tolist() == [6] * (len(whole) - 1)  # five short ones: 3,600 of 4,500
    assert len(whole) >= 4


def test_a_short_rebuild_keeps_the_directions_of_the_dense_columns(short_rebuilds):
    rng, d = np.random.default_rng(6), 3000
    few = SparseFeatures(d, 4, 20)

    def extend():
        for row in sparse_rows(rng, 20, 4, d):
            few.extend(csr_array(row[None]), 1.0)

    def vectors(coordinates):
        return few.vectors(np.pad(coordinates.T, ((0, 0), (0, few.size - len(coordinates)))))

    extend()
    few.rebuild(np.linalg.qr(rng.standard_normal((few.used, 4)))[0], 4)
    for count in (1, 2, 3):
        extend()
        directions = np.linalg.qr(rng.standard_normal((few.used, 4)))[0]
        before, wanted = vectors(np.eye(few.used, 4)), vectors(directions)
        kept = few.rebuild(directions, 4)
        assert few.short == count
        assert kept.shape == (len(directions), 8)
        np.testing.assert_allclose(kept.T @ kept, np.eye(8), atol=1e-14)
        np.testing.assert_allclose(kept @ (kept.T @ directions), directions, atol=1e-14)
        np.testing.assert_allclose(vectors(np.eye(8)[:, :4]), before, atol=1e-14)
        np.testing.assert_allclose(vectors(kept.T @ directions), wanted, atol=1e-13)
        inside = few.coordinates(csr_array(wanted))[:, :8]
        np.testing.assert_allclose(inside @ inside.T, np.eye(4), atol=1e-13)


def test_a_short_rebuild_whose_coefficients_would_be_long_becomes_a_whole_one(short_rebuilds, monkeypatch):
    monkeypatch.setattr(features, "_SHORT_SHARE", 1e-3)  # no coefficients are that short
    sparse, _, error = play_both(maker(1, 8), of_all_lengths(np.random.default_rng(7)), 80, period=20)
    assert error <= 1e-11
    assert sparse.features.rebuilds >= 3
    assert sparse.features.short == 0


@pytest.mark.slow
def test_blocks_of_features_do_not_matter(short_rebuilds, monkeypatch):
    def parameter(block):
        monkeypatch.setattr(features, "_BLOCK", block)
        return play_both(maker(1, 8), of_all_lengths(np.random.default_rng(7)), 80, period=20)[0].parameter

    for block in (1, 50):
        np.testing.assert_allclose(parameter(block), parameter(20_000), atol=1e-13)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (robust_eofd, {"sketch_size": 5}),
        (compensated_eofd, {"sketch_size": 5, "share": 1.0}),
        pytest.param(
            compensated_eofd, {"sketch_size": 5, "share": 1.0, "compiled": True}, marks=sparse_kernels
        ),
        (first_order, {}),
    ],
)
@pytest.mark.slow
def test_any_curvature_of_few_directions_can_be_played(make, options):
    rows = zipf(np.random.default_rng(3))
    _, _, error = play_both(lambda d: make(d, [0.5, 1.0], **options, **SETTINGS), rows, 100)
    assert error <= 1e-12


@pytest.mark.parametrize("compiled", FORMS)
def test_a_sketch_that_grows_is_given_more_coordinates(compiled):
    def make(d):
        options = {"sketch_size": 1, "budget": 0.5, "horizon": 120, "compiled": compiled}
        return budgeted_eofd(d, [0.5, 1.0], **options, **SETTINGS)

    sparse, dense, error = play_both(make, zipf(np.random.default_rng(3)), 120, period=20)
    assert error <= 1e-12
    assert dense.curvature.rank_bound > 5
    assert sparse.features.n_state > 2 * (1 + 1)


@pytest.mark.parametrize("compiled", FORMS)
@pytest.mark.parametrize("make", [doubling_eofd, dyadic_eofd])
def test_a_sketch_may_be_given_more_room_than_there_are_coordinates(make, compiled):
    """Before the first rebuild there are 13 of them, and the sketch has room for 16 directions, or 15."""

    def small(d):
        settings = SETTINGS | {"regularization": 0.01}
        return make(d, [1.0], sketch_size=1, budget=0.5, compiled=compiled, **settings)

    rng = np.random.default_rng(3)
    sparse, dense, error = play_both(small, lambda t: sparse_rows(rng, 4, 5), 40, period=10)
    assert error <= 1e-12
    assert sparse.policy.curvature.rank_bound == dense.curvature.rank_bound > 32 - 2
    sketch, again = sparse.policy.curvature, saved(sparse).policy.curvature
    assert (again.n_directions, again.rank_bound) == (D, sketch.rank_bound)
    assert again._rows.shape == sketch._rows.shape


def test_an_explanation_is_that_of_dense_rows():
    rng = np.random.default_rng(3)
    sparse, dense, _ = play_both(maker(2, 4), zipf(rng), 30)
    actions = sparse_rows(rng, 5, 6)
    left, right = sparse.explain(csr_array(actions)), dense.explain(actions)
    np.testing.assert_allclose(left.score, right.score, rtol=1e-10)
    assert (
        sparse.probabilities(actions).probability.tolist()
        == dense.probabilities(actions).probability.tolist()
    )


@pytest.mark.slow
@pytest.mark.parametrize(("K", "d", "nnz", "m"), [(1, 2000, 20, 20), (4, 500, 10, 40), (1, 10_000, 50, 100)])
def test_three_thousand_rounds_are_those_of_dense_rows(K, d, nnz, m):
    rng = np.random.default_rng(5)
    sparse, _, error = play_both(
        maker(K, m, compiled=True), lambda t: sparse_rows(rng, 10, nnz, d), 3000, period=200, d=d
    )
    assert error <= 1e-10
    assert sparse.features.rebuilds > 5


@pytest.mark.very_slow
def test_a_hundred_thousand_rounds_drift_by_roundoff():
    rows = zipf(np.random.default_rng(11))
    _, _, error = play_both(maker(1, 8, compiled=True), rows, 100_000, period=200)
    assert error <= 1e-10


def test_the_radius_depends_on_the_number_of_features_and_not_of_coordinates():
    def make(d):
        return eofd(d, [1.0], sketch_size=3, **SETTINGS | {"radius": TheoremRadius(0.1)})

    assert SparsePolicy(make, D, 20).beta == make(D).beta


def test_few_features_are_their_own_coordinates():
    sparse, _, error = play_both(
        maker(2, 4), lambda t: sparse_rows(np.random.default_rng(t), 3, 2, 6), 30, d=6
    )
    assert sparse.features.is_identity
    assert error == 0.0


# -- memory of what is held ------------------------------------------------------------------------------


def test_memory_grows_with_the_features_that_were_played():
    rng, d = np.random.default_rng(2), 1_000_000
    policy = SparsePolicy(maker(1, 10), d, 50)
    for _ in range(60):
        actions = csr_array(
            (rng.standard_normal(80), (np.repeat(np.arange(4), 20), rng.integers(0, d, 80))), shape=(4, d)
        )
        policy.update(actions[[policy.select(actions)]], int(rng.integers(2)))
    held = sum(np.asarray(value).nbytes for value in policy.state_dict().values())
    assert held < 1e6  # dense rows take 80 MB


# -- states ----------------------------------------------------------------------------------------------


def half_played(compiled=False, selected=False, period=30, stream=zipf):
    rng = np.random.default_rng(4)
    rows = stream(rng)
    policy = SparsePolicy(maker(2, 4, compiled), D, period)
    for t in range(47):
        actions = csr_array(rows(t))
        policy.update(actions[[policy.select(actions)]], t % 3)
    ahead = [csr_array(rows(t)) for t in range(40)]
    if selected:
        policy.select(ahead[0])
    return policy, ahead


def saved(policy):
    file = io.BytesIO()
    np.savez(file, **policy.state_dict())
    file.seek(0)
    return SparsePolicy.from_state(np.load(file))


@pytest.mark.each_value
@pytest.mark.parametrize("compiled", FORMS)
@pytest.mark.parametrize("selected", [False, True])
@pytest.mark.parametrize(
    "again",
    [
        saved,
        *(pytest.param(way, marks=pytest.mark.slow) for way in (copy.copy, copy.deepcopy)),
        lambda p: pickle.loads(pickle.dumps(p)),
    ],
)
def test_a_saved_policy_continues_to_the_bit(again, selected, compiled):
    policy, ahead = half_played(compiled, selected)
    other = again(policy)
    for t, actions in enumerate(ahead):
        chosen = policy.select(actions) if t or not selected else 0
        assert other.select(actions) == chosen or (selected and t == 0)
        policy.update(actions[[chosen]], t % 3)
        other.update(actions[[chosen]], t % 3)
    assert np.array_equal(policy.parameter, other.parameter)
    assert policy.features.rebuilds == other.features.rebuilds > 1


@pytest.mark.parametrize("compiled", FORMS)
def test_a_policy_with_middle_columns_continues_to_the_bit(compiled, short_rebuilds):
    policy, ahead = half_played(compiled, period=10, stream=of_all_lengths)
    assert policy.features.middle
    others = [again(policy) for again in (saved, copy.copy)]
    for t, actions in enumerate(ahead):
        chosen = policy.select(actions)
        for one in (policy, *others):
            assert one.select(actions) == chosen
            one.update(actions[[chosen]], t % 3)
    for one in others:
        assert np.array_equal(policy.parameter, one.parameter)
        assert policy.features.short == one.features.short > 3


@sparse_kernels
def test_a_saved_policy_may_continue_with_an_update_that_rebuilds():
    policy = SparsePolicy(maker(1, 2, compiled=True), D, period=4)
    for row in np.eye(4, D):
        policy.update(csr_array(row[None]), 0)
    other = saved(policy)
    for one in (policy, other):
        one.update(csr_array(np.eye(1, D, 9)), 0)
    assert np.array_equal(policy.parameter, other.parameter)
    assert policy.features.rebuilds == other.features.rebuilds == 1


@pytest.mark.parametrize("compiled", FORMS)
def test_a_saved_policy_continues_where_the_state_has_grown_to_all_features(compiled):
    def make(n_features):
        return doubling_eofd(n_features, [1.0], sketch_size=1, budget=1e-6, compiled=compiled, **SETTINGS)

    d = 100
    policy = SparsePolicy(make, d, period=10)
    for row in np.eye(70, d):
        policy.update(csr_array(row[None]), 0)
    assert policy.features.size == d
    other = saved(policy)
    for t, row in enumerate(np.eye(d)[::-1]):
        for one in (policy, other):
            one.update(csr_array(row[None]), t % 2)
    assert policy.features.used == d
    assert np.array_equal(policy.parameter, other.parameter)


@pytest.mark.parametrize("entry", ["features.rows", "features.starts", "policy.parameter", "features.period"])
def test_a_state_without_an_entry_is_refused_by_its_name(entry):
    state = half_played()[0].state_dict()
    del state[entry]
    with pytest.raises(ValueError, match=entry.partition(".")[2]):
        SparsePolicy.from_state(state)


def test_a_state_whose_parts_do_not_fit_is_refused():
    state = half_played()[0].state_dict()
    with pytest.raises(ValueError, match="columns must have shape"):
        SparsePolicy.from_state(state | {"features.columns": state["features.columns"][1:]})


@pytest.mark.parametrize(
    ("entry", "change"),
    [
        ("is_dense", lambda held: np.array(True)),
        ("is_dense", lambda held: held.astype(float)),
        ("starts", lambda held: held[0]),
        ("starts", lambda held: held[:0]),
        ("starts", lambda held: np.append(held[:-2], held[[-1, -2]])),
        ("starts", lambda held: held + 1),
        ("touched", lambda held: held + D),
        ("recent_features", lambda held: held.astype(float)),
        ("recent_features", lambda held: held + 1000),
        ("recent_features", lambda held: -1 - held),
        ("middle_features", lambda held: held + 1000),
        ("middle_features", lambda held: held.sum()),
        ("middle_columns", lambda held: held.sum()),
        ("base", lambda held: held + 1),
    ],
)
def test_indices_of_a_state_that_a_kernel_would_follow_out_of_its_arrays_are_refused(
    entry, change, short_rebuilds
):
    state = half_played(period=10, stream=of_all_lengths)[0].state_dict()
    assert state["features.middle_features"].size
    name = f"features.{entry}"
    with pytest.raises(ValueError, match=entry):
        SparsePolicy.from_state(state | {name: change(np.asarray(state[name]))})


# -- simulation ------------------------------------------------------------------------------------------


class Dense:
    """The same problem with dense actions."""

    def __init__(self, environment):
        self.environment, self.rewards, self.n_features = (
            environment,
            environment.rewards,
            environment.n_features,
        )

    def instance(self, rng):
        self.drawn = self.environment.instance(rng)
        return self

    def actions(self, rng):
        candidates = self.drawn.actions(rng)
        return candidates._replace(features=candidates.features.toarray())


@pytest.mark.slow
def test_a_trial_with_sparse_actions_is_that_with_dense_ones():
    rewards = [0.5, 1.0]
    problem = SparseEnvironment(D, rewards, parameter_norm=3.0, n_nonzeros=6, n_actions=5)
    seen = []

    def played(environment, fast):
        streams = trial_streams(3, "sparse", 0)
        policies = {
            "eofd": fast(),
            "oful": oful(D, rewards, **SETTINGS),
            "thompson": thompson(D, rewards, sketch_size=4, rng=streams.policy("thompson"), **SETTINGS),
            "printed": PrintedEOFD(D, rewards, sketch_size=4, **SETTINGS),
            "literal": LiteralEOFD(D, rewards, sketch_size=4, **SETTINGS),
            "random": RandomPolicy(streams.policy("random")),
        }
        return run_trial(environment, policies, 25, streams, seen.append)

    sparse = played(problem, lambda: SparsePolicy(maker(2, 4), D, 20))
    dense = played(Dense(problem), lambda: maker(2, 4)(D))
    for name in ("n_actions", "action", "outcome", "reward", "regret"):
        np.testing.assert_array_equal(getattr(sparse, name), getattr(dense, name), err_msg=name)
    assert sparse.action[:, -1].max() > 0  # random play knows how many rows there are
    assert [type(one.candidates.features) for one in (seen[0], seen[-1])] == [csr_array, np.ndarray]


def test_the_choices_for_many_sparse_contexts_are_those_for_each():
    policy, ahead = half_played()
    assert select_many(policy, ahead).tolist() == [policy.select(actions) for actions in ahead]
    dense = maker(2, 4)(D)
    assert select_many(dense, ahead).tolist() == [dense.select(actions.toarray()) for actions in ahead]


# -- inputs ----------------------------------------------------------------------------------------------


def test_dense_input_is_played_as_sparse_input_is():
    rng = np.random.default_rng(8)
    one, other = SparsePolicy(maker(2, 4), D, 30), SparsePolicy(maker(2, 4), D, 30)
    for t in range(40):
        actions = sparse_rows(rng, 3, 5)
        chosen = one.select(actions)
        assert other.select(csr_matrix(actions)) == chosen
        one.update(actions[chosen], t % 3)
        other.update(csr_array(actions)[chosen] if t % 2 else csr_array(actions[[chosen]]), t % 3)
        np.testing.assert_allclose(one.scores(actions), other.scores(csr_array(actions)), rtol=1e-12)
    assert np.array_equal(one.parameter, other.parameter)


def test_a_dense_policy_takes_sparse_actions():
    for policy in (maker(2, 4)(D), oful(D, [1.0], **SETTINGS)):
        actions = sparse_rows(np.random.default_rng(8), 3, 5)
        chosen = policy.select(csr_array(actions))
        other = copy.copy(policy)
        policy.update(csr_array(actions)[[chosen]], 1)
        other.update(actions[chosen], 1)
        assert np.array_equal(policy.parameter, other.parameter)


def raw(data, indices, indptr=(0, 2), d=D):
    rows = csr_array((1, d))
    rows.data, rows.indices, rows.indptr = np.array(data), np.array(indices), np.array(indptr)
    return rows


def rows_of(n, indptr):
    """Rows with two entries and the given pointers."""
    rows = csr_array((n, D))
    rows.data, rows.indices, rows.indptr = np.ones(2), np.array([0, 3]), np.array(indptr)
    return rows


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (coo_array(np.eye(2, D)), r"actions must .* CSR format, got the format 'coo'; actions.tocsr\(\)"),
        (csc_array(np.eye(2, D)), "got the format 'csc'"),
        (csr_array(np.eye(2, D - 1)), rf"actions must have shape \(n, {D}\) with n >= 1, got \(2, {D - 1}\)"),
        (csr_array((0, D)), r"got \(0, 400\)"),
        (
            csr_array(np.where(np.eye(2, D, 7), np.inf, 0.0)),
            r"actions must be finite, got inf at index \(0, 7\) of shape",
        ),
        (
            csr_array(np.where(np.eye(2, D, -1), np.nan, 0.0)),
            r"actions must be finite, got nan at index \(1, 0\) of shape",
        ),
        (
            raw([1e308, 1e308], [3, 3]),
            r"actions must be finite, got inf at index \(0, 3\) of shape",
        ),  # their sum
        (raw([1.0, 2.0], [0, 2**40]), rf"actions must have indices in 0..{D - 1}, got {2**40}"),
        (dok_array(np.eye(2, D)), "got the format 'dok'"),
        (csr_array(np.eye(2, D) * 1j), "actions must be an array of real numbers, got dtype complex128"),
        (raw([1.0, 2.0], [0, D]), rf"actions must have indices in 0..{D - 1}, got {D}"),
        (raw([1.0, 2.0], [-1, 3]), r"actions must have indices in 0..399, got -1"),
        (raw([1.0, 2.0], [0, 3], (0, 3)), "actions must be a valid CSR array"),
        (raw([1.0, 2.0], [0, 3], (1, 2)), "actions must be a valid CSR array"),
        (rows_of(3, [0, 10**9, 2, 2]), "actions must be a valid CSR array"),
        (rows_of(3, [0, 2, 1, 2]), "actions must be a valid CSR array"),
    ],
)
@pytest.mark.parametrize("form", ["sparse", pytest.param("compiled", marks=sparse_kernels), "dense"])
def test_what_is_no_action_set_is_refused_at_once(actions, message, form):
    policy = maker(2, 4)(D) if form == "dense" else SparsePolicy(maker(2, 4, form == "compiled"), D, 30)
    with pytest.raises(ValueError, match=message):
        policy.select(actions)
    assert policy.rounds == 0


@pytest.mark.parametrize("compiled", FORMS)
def test_repeated_unsorted_and_zero_entries_mean_what_they_add_up_to(compiled):
    messy = raw([1.0, 0.0, 2.0, 0.5], [9, 4, 3, 9], (0, 4))
    before = messy.data.copy(), messy.indices.copy()
    clean = csr_array(([2.0, 1.5], ([0, 0], [3, 9])), shape=(1, D))
    for make in (lambda: SparsePolicy(maker(1, 4, compiled), D, 30), lambda: maker(1, 4, compiled)(D)):
        one, other = make(), make()
        for _ in range(3):
            one.update(messy, 1)
            other.update(clean, 1)
        assert np.array_equal(one.parameter, other.parameter)
        assert np.array_equal(one.scores(messy), other.scores(clean))
    assert np.array_equal(messy.data, before[0])
    assert np.array_equal(messy.indices, before[1])


def test_whole_numbers_are_taken():
    policy = SparsePolicy(maker(1, 4), D, 30)
    policy.update(csr_array(np.eye(1, D, dtype=np.int8)), 1)
    assert policy.parameter[0, 0] > 0


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (csr_array(np.eye(2, D)), r"action must have shape \(400,\) or \(1, 400\), got \(2, 400\)"),
        (np.ones(3), r"action must have shape \(400,\), got \(3,\)"),
        (csr_array(np.where(np.eye(1, D), np.inf, 0.0)), "action must be finite"),
    ],
)
def test_what_is_no_action_is_refused_and_nothing_is_learned(action, message):
    policy = SparsePolicy(maker(1, 4), D, 30)
    with pytest.raises(ValueError, match=message):
        policy.update(action, 1)
    with pytest.raises(ValueError, match=r"outcome must be in 0\.\.1"):
        policy.update(csr_array(np.eye(1, D)), 2)
    assert policy.rounds == 0
    assert policy.features.used == 0


def test_a_full_matrix_has_no_few_directions():
    with pytest.raises(ValueError, match="LowRankCurvature such as FrequentDirections, got DenseCurvature"):
        SparsePolicy(lambda d: oful(d, [1.0], **SETTINGS), 50)


# -- kernels ---------------------------------------------------------------------------------------------


def extended(kind):
    """Features with dense and middle columns and recent actions, and some rows that touch these."""
    rng = np.random.default_rng(6)
    few = kind(D, 4, 40)
    for _ in range(3):
        for row in sparse_rows(rng, 30, 4):
            few.extend(csr_array(row[None]), 1.0)
        few.rebuild(np.linalg.qr(rng.standard_normal((few.used, 4)))[0], 4)
    played = sparse_rows(rng, 35, 4)
    for row in played:
        few.extend(csr_array(2.0 * row[None]), 4.0)
    assert few.middle
    places = np.flatnonzero(few._place >= 0)
    rows = np.concatenate((played, np.zeros((9, D))))
    for row in rows[-9:]:
        row[rng.choice(places, 11, replace=False)] = rng.standard_normal(11)
    return few, csr_array(rows)


@sparse_kernels
def test_kernels_of_the_coordinates_compute_what_numpy_does(short_rebuilds):
    (one, actions), (other, _) = extended(SparseFeatures), extended(CompiledFeatures)
    expected = one.coordinates(actions)
    assert np.abs(expected[:, : one.used]).max(axis=0).all()  # every row of F and of R takes part
    np.testing.assert_allclose(other.coordinates(actions), expected, atol=1e-13)
    u = one.used
    np.testing.assert_allclose(other._rows[:u, :u], one._rows[:u, :u], atol=1e-13)
    np.testing.assert_allclose(other._gram[:u, :u], one._gram[:u, :u], atol=1e-13)
    assert other._longest == pytest.approx(one._longest, rel=1e-13)


@sparse_kernels
@np.errstate(over="ignore", invalid="ignore")  # for the run in which the kernels are not compiled
def test_the_kernel_of_the_check_takes_exactly_what_is_in_order():
    few, rng = CompiledFeatures(D, 5, 60), np.random.default_rng(6)
    actions = sparse_rows(rng, 6, 7) * 3.0
    actions[[0, 4]] = 0.0
    rows = csr_array(actions)
    rows.indices, rows.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    for whole in (rows, csr_array(actions)):
        given, squares = few.checked_actions(whole)
        assert given is whole
        np.testing.assert_allclose(few._squares(whole), np.square(actions).sum(axis=1), rtol=1e-14)
        np.testing.assert_array_equal(squares, few._squares(whole))
    in_order = raw([1.0, 2.0], [0, D - 1])
    assert few._squares(in_order) == [5.0]
    for wrong in (
        raw([1.0, 2.0], [3, 3]), raw([1.0, 2.0], [3, 2]), raw([1.0, 0.0], [3, 4]), raw([1, 2], [3, 4]),
        raw([1.0, 2.0], [0, D]), raw([1.0, 2.0], [-1, 3]), raw([1.0, np.nan], [0, 3]),
        raw([1.0, 2.0], [0, 3], (0, 1)), raw([1.0, 2.0], [0, 3], (1, 2)), rows_of(2, [0, 5, 2]),
        raw([1.0, 1e200], [0, 3]), raw([1.0, 2.0], [0, 3], d=D + 1), csr_matrix(actions), actions,
    ):  # fmt: skip
        assert few._squares(wrong) is None
    large = raw([1.0, 1e200], [0, 3])  # the square overflows and the number is finite
    assert few.checked_actions(large)[1] == [np.inf]


# -- the map ---------------------------------------------------------------------------------------------


def test_coordinates_keep_inner_products_of_what_was_played():
    rng = np.random.default_rng(6)
    few = SparseFeatures(D, 5, 60)
    rows = sparse_rows(rng, 40, 4) * rng.uniform(0.1, 10, (40, 1))
    for row in rows:
        few.extend(csr_array(row[None]), float(row @ row))
    inside = few.coordinates(csr_array(rows))
    np.testing.assert_allclose(inside @ inside.T, rows @ rows.T, atol=1e-12)
    np.testing.assert_allclose(few.vectors(inside), rows, atol=1e-13)


def test_a_rebuild_keeps_the_directions_that_it_is_given():
    rng = np.random.default_rng(6)
    few = SparseFeatures(D, 5, 60)
    rows = sparse_rows(rng, 40, 4)
    for row in rows:
        few.extend(csr_array(row[None]), 1.0)
    directions = np.linalg.qr(rng.standard_normal((few.used, 3)))[0]
    vectors = few.vectors(np.pad(directions.T, ((0, 0), (0, few.size - few.used))))
    few.rebuild(directions, 5)
    np.testing.assert_allclose(few.vectors(np.eye(3, few.size)), vectors, atol=1e-14)
    new = few.coordinates(csr_array(vectors))
    np.testing.assert_allclose(new, np.eye(3, few.size), atol=1e-14)
