"""Types and layouts of the input, and what happens to it between select and update."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import assert_same_state, random_rounds
from variants import ALL, make


class Subclass(np.ndarray):
    """A subclass of array, as data frames and libraries of units return them."""


def read_only(array):
    frozen = np.array(array)
    frozen.flags.writeable = False
    return frozen


FORMS = {
    "contiguous": np.array,
    "float32": lambda a: a.astype(np.float32),
    "float16": lambda a: a.astype(np.float16),
    "longdouble": lambda a: a.astype(np.longdouble),
    "int64": lambda a: a.astype(np.int64),
    "int8": lambda a: a.astype(np.int8),
    "big-endian": lambda a: a.astype(">f8"),
    "Fortran": np.asfortranarray,
    "strided": lambda a: np.repeat(a, 3, axis=-1)[..., ::3],
    "reversed": lambda a: np.ascontiguousarray(a[..., ::-1])[..., ::-1],
    "broadcast": lambda a: np.broadcast_to(a, (2, *a.shape))[1],
    "read-only": read_only,
    "subclass": lambda a: np.array(a).view(Subclass),
    "list": lambda a: a.tolist(),
    "tuple": lambda a: tuple(map(tuple, a.tolist())) if a.ndim == 2 else tuple(a.tolist()),
    "list of arrays": lambda a: list(a),
}


@pytest.mark.each_value
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("K", [1, 3])
def test_the_form_of_the_input_does_not_matter(K, kind, form):
    """The state has the same bytes as with contiguous float64 copies, and the caller's data do not change."""
    convert, d = FORMS[form], 5
    rewards = np.array([1.0, 2.0, 4.0])[:K]
    given_rewards = convert(rewards)
    plain = make(kind, K, d, rewards=rewards)
    other = make(kind, K, d, rewards=given_rewards)
    rng = np.random.default_rng(31)
    for t in range(15):
        actions = rng.integers(-3, 4, size=(6, d)).astype(np.float64)
        given_actions = convert(actions)
        chosen = plain.select(actions.copy())
        assert other.select(given_actions) == chosen
        np.testing.assert_array_equal(other.scores(given_actions), plain.scores(actions.copy()))
        played = chosen if t % 3 else 0
        row = convert(actions[played])
        plain.update(actions[played].copy(), t % (K + 1))
        other.update(given_actions[played] if t % 2 else row, t % (K + 1))
        for data, numbers in ((given_actions, actions), (row, actions[played])):
            np.testing.assert_array_equal(np.array(data, dtype=np.float64), numbers)
    np.testing.assert_array_equal(np.array(given_rewards, dtype=np.float64), rewards)
    assert_same_state(plain.state_dict(), other.state_dict())


CHANGES = {
    "doubled": lambda x: 2.0 * x,
    "negated": lambda x: -x,
    "rolled": lambda x: np.roll(x, 1),  # same norm, same sum, same set of numbers
    "one entry": lambda x: np.concatenate((x[:-1], x[-1:] + 1.0)),
    "last bit": lambda x: np.nextafter(x, 9.0),
    "zero": lambda x: 0.0 * x,
}
LEARNED = ("margin", "smallest_margin")  # entries of a state that select may change


@pytest.fixture(params=ALL)
def pair(request):
    """Two policies that have learned the same twelve rounds, and an action set."""
    policies = [make(request.param, 2, 5) for _ in range(2)]
    for policy in policies:
        random_rounds(policy, 12, seed=41)
    return *policies, np.random.default_rng(42).standard_normal((6, 5))


@pytest.mark.each_value
@pytest.mark.parametrize("change", CHANGES)
def test_an_action_that_is_changed_after_select_counts_as_it_is(pair, change):
    """The update must not use the image that `select` has computed; the other policy never selected."""
    policy, twin, actions = pair
    chosen = policy.select(actions)
    actions[chosen] = CHANGES[change](actions[chosen])
    policy.update(actions[chosen], 1)
    twin.update(actions[chosen].copy(), 1)
    assert_same_state(policy.state_dict(), twin.state_dict(), ignore=LEARNED)


def test_other_actions_that_are_changed_after_select_do_not_count(pair):
    policy, twin, actions = pair
    chosen = policy.select(actions)
    assert twin.select(actions.copy()) == chosen
    x = actions[chosen].copy()
    twin.update(x, 1)
    actions[np.arange(len(actions)) != chosen] = 7.0
    policy.update(actions[chosen], 1)
    assert_same_state(policy.state_dict(), twin.state_dict())


def test_what_select_computed_is_gone_after_an_update(pair):
    """After an update with another action the basis has changed, so that the stored image is outdated."""
    policy, twin, actions = pair
    chosen = policy.select(actions)
    for played in ((chosen + 1) % 6, chosen, chosen):
        policy.update(actions[played], 1)
        twin.update(actions[played], 1)
    assert_same_state(policy.state_dict(), twin.state_dict(), ignore=LEARNED)


def test_the_last_select_is_the_one_that_counts(pair):
    policy, twin, actions = pair
    first = policy.select(actions)
    policy.select(np.random.default_rng(43).standard_normal((6, 5)))  # as many actions, other numbers
    policy.update(actions[first], 2)
    twin.update(actions[first], 2)
    assert_same_state(policy.state_dict(), twin.state_dict(), ignore=LEARNED)


def test_one_buffer_for_all_rounds(pair):
    """A caller may use one array for all rounds and pass a copied row of it."""
    policy, twin, buffer = pair
    row = np.empty(5)
    rng = np.random.default_rng(44)
    for t in range(30):
        fresh = rng.standard_normal(buffer.shape)
        buffer[:] = fresh
        chosen = policy.select(buffer)
        assert twin.select(fresh) == chosen
        row[:] = buffer[chosen]
        buffer[:] = np.nan
        policy.update(row, t % 3)
        twin.update(fresh[chosen].copy(), t % 3)
        row[:] = np.nan
    assert_same_state(policy.state_dict(), twin.state_dict())


@pytest.mark.each_value
@pytest.mark.parametrize(
    "refused",
    [
        lambda policy, actions: policy.select(np.full_like(actions, np.nan)),
        lambda policy, actions: policy.scores(actions[:, 1:]),
        lambda policy, actions: policy.update(np.nan * actions[0], 1),
        lambda policy, actions: policy.update(actions[0], 3),
    ],
    ids=["select", "scores", "action", "outcome"],
)
def test_a_refused_call_between_select_and_update_changes_nothing(pair, refused):
    policy, twin, actions = pair
    chosen = policy.select(actions)
    assert twin.select(actions) == chosen
    with pytest.raises(ValueError, match=r"(actions?|outcome) must"):
        refused(policy, actions)
    policy.update(actions[chosen], 1)
    twin.update(actions[chosen], 1)
    assert_same_state(policy.state_dict(), twin.state_dict())
