"""Policies in copies, pickles, memory maps, workers, threads and new processes; and subclasses by users."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import joblib
import numpy as np
import pytest
from helpers import assert_same_state, random_round, random_rounds, run_python
from variants import ALL, OTHERS
from variants import make as make_kind

from mlogb_core import (
    ConstantRadius,
    OptimisticPolicy,
    RandomPolicy,
    RidgeRadius,
    eofd,
    oful,
    thompson,
)
from mlogb_core._validation import as_finite
from mlogb_core.curvature import (
    DenseCurvature,
    DiagonalCurvature,
    DoublingFrequentDirections,
    DyadicFrequentDirections,
    FrequentDirections,
    NoCurvature,
    base,
    low_rank,
)
from mlogb_core.literal import LiteralEOFD, LiteralOFUL
from mlogb_core.policies import NewtonPolicy, ThompsonPolicy
from mlogb_core.radius import TheoremRadius
from mlogb_core.rivals import (
    GLBOMD,
    MNLUCB,
    MNLUCB2,
    OFUGLB,
    OL2M,
    RSMNL,
    ECOLog,
    EpsilonGreedy,
    SquareCB,
)
from mlogb_core.rivals.base import Unsaved
from mlogb_core.rivals.exploration import RandomizedPolicy

try:
    from mlogb_core.compiled import CompiledPolicy
except ImportError:
    CompiledPolicy = None
FORMS = (False,) if CompiledPolicy is None else (False, True)
REWARDS = np.array([0.5, 1.0])
SETTINGS = {"regularization": 0.5, "step_size": 1.5, "norm_bound": 0.5, "radius": RidgeRadius(0.3)}
D = 6


def rivals():
    """The policies of other papers with a parameter of the library's form and no fixed set of actions."""
    common = {"norm_bound": 2.0, "confidence": 0.1, "scale": 0.1}
    for kind in (MNLUCB, MNLUCB2):
        yield kind(D, REWARDS, regularization=0.5, **common)
    yield RSMNL(D, REWARDS, horizon=50, **common)
    for kind in (OFUGLB, OL2M, ECOLog, GLBOMD):
        yield kind(D, [1.0], **common)
    for kind in (EpsilonGreedy, SquareCB):
        yield kind(D, REWARDS, sketch_size=4, norm_bound=2.0, rng=np.random.default_rng(3))


def trained():
    """Every policy of the library by name, after twelve rounds."""
    made = {
        **{kind: make_kind(kind, 2, D, 4, **SETTINGS) for kind in OTHERS},
        **{type(rival).__name__: rival for rival in rivals()},
        "thompson": thompson(D, REWARDS, sketch_size=4, rng=np.random.default_rng(3), **SETTINGS),
        "greedy": eofd(D, REWARDS, sketch_size=4, **SETTINGS | {"radius": ConstantRadius(0.0)}),
        "eofd as printed": LiteralEOFD(D, REWARDS, sketch_size=4, **SETTINGS),
        "oful as printed": LiteralOFUL(D, REWARDS, **SETTINGS),
    }
    for compiled in FORMS:
        common = SETTINGS | {"compiled": compiled}
        made[f"eofd {compiled}"] = eofd(D, REWARDS, sketch_size=4, **common)
        made[f"eofd {compiled} buffer"] = eofd(D, REWARDS, sketch_size=3, buffer=3, **common)
        made[f"oful {compiled}"] = oful(D, REWARDS, **common)
    for policy in made.values():
        random_rounds(policy, 12, seed=1)
    return made | {"random": RandomPolicy(np.random.default_rng(3))}


@cache
def pickled():
    return pickle.dumps(trained())


def policies():
    """Every policy as `trained` makes it, from a pickle, since that is made once for all tests."""
    return pickle.loads(pickled())


@cache
def undisturbed():
    """How every policy goes on that has been in no copy, pickle or other process."""
    return {name: played(policy) for name, policy in trained().items()}


@pytest.fixture(scope="module")
def tracking():
    """Every policy in a pickle, and how it goes on, where coordinates are kept that are copied too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(low_rank, "_TRACKED", 0)
        return pickle.dumps(trained()), {name: played(policy) for name, policy in trained().items()}


def played(policy, seed=2):
    """Play ten more rounds, and return the actions and the state after them."""
    if isinstance(policy, RandomPolicy):
        return [policy.select(np.ones((9, D))) for _ in range(10)], policy.state_dict()
    actions = random_rounds(policy, 10, seed)
    if isinstance(policy, NewtonPolicy) and not isinstance(policy, Unsaved):
        return actions, policy.state_dict()
    names = ("parameter", "rounds", "margin", "shrinkage")
    return actions, {name: getattr(policy, name) for name in names if hasattr(policy, name)}


def assert_same_end(left, right):
    assert left[0] == right[0]
    assert_same_state(left[1], right[1])


def mapped(policy, path):
    joblib.dump(policy, path)
    return joblib.load(path, mmap_mode="r")


WAYS = {
    "copy": lambda policy, path: copy.copy(policy),
    "deepcopy": lambda policy, path: copy.deepcopy(policy),
    "pickle": lambda policy, path: pickle.loads(pickle.dumps(policy)),
    "pickle with its buffers outside": lambda policy, path: with_read_only_buffers(policy),
    "memory map": mapped,
}


def with_read_only_buffers(policy):
    buffers = []
    text = pickle.dumps(policy, protocol=5, buffer_callback=buffers.append)
    return pickle.loads(text, buffers=[bytes(buffer.raw()) for buffer in buffers])


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=() if way in ("copy", "pickle") else pytest.mark.slow) for way in WAYS]
)
def test_a_copy_goes_on_as_the_original_and_neither_disturbs_the_other(way, tracking, tmp_path, monkeypatch):
    monkeypatch.setattr(low_rank, "_TRACKED", 0)
    pickled, ends = tracking
    for name, policy in pickle.loads(pickled).items():
        # The others draw random numbers in `select`.
        if not isinstance(policy, (RandomPolicy, RandomizedPolicy, ThompsonPolicy)):
            policy.select(np.eye(D))  # The image of the selected action is copied as well.
        other = WAYS[way](policy, tmp_path / "policy.joblib")
        assert type(other) is type(policy)
        assert_same_end(played(other), ends[name])
        assert_same_end(played(policy), ends[name])


@pytest.mark.slow
def test_a_trained_policy_in_workers_of_joblib_which_map_its_arrays(tmp_path):
    names, sent = zip(*policies().items(), strict=True)
    back = joblib.Parallel(n_jobs=2, max_nbytes=1, temp_folder=tmp_path)(
        joblib.delayed(played)(policy) for policy in sent
    )
    for name, end in zip(names, back, strict=True):
        assert_same_end(end, undisturbed()[name])


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_trained_policy_in_another_process(method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} on this system")
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        back = dict(zip(policies(), pool.map(played, policies().values()), strict=True))
    for name, end in undisturbed().items():
        assert_same_end(back[name], end)


def test_threads_with_a_policy_each():
    sets = [policies() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for name, expected in undisturbed().items():
            for end in pool.map(played, [each[name] for each in sets]):
                assert_same_end(end, expected)


def test_a_state_in_read_only_maps_of_files(tmp_path):
    for name, policy in policies().items():
        if not isinstance(policy, NewtonPolicy) or isinstance(policy, Unsaved):
            continue
        state = policy.state_dict()
        for key, value in state.items():
            if isinstance(value, np.ndarray) and value.size:
                np.save(tmp_path / "entry.npy", value)
                state[key] = np.load(tmp_path / "entry.npy", mmap_mode="r")
                (tmp_path / "entry.npy").unlink()
        assert_same_end(played(type(policy).from_state(state)), undisturbed()[name])


@pytest.mark.parametrize("compiled", FORMS)
def test_actions_that_may_not_be_written_or_are_not_aligned(compiled):
    for make in (
        lambda: oful(D, REWARDS, **SETTINGS, compiled=compiled),
        lambda: eofd(D, REWARDS, sketch_size=3, **SETTINGS, compiled=compiled),
    ):
        plain, other = make(), make()
        for t, actions in enumerate(np.random.default_rng(0).standard_normal((6, 4, D))):
            given = np.frombuffer(b"\0" + actions.tobytes(), offset=1).reshape(4, D)
            assert not given.flags.aligned
            assert as_finite("actions", given).flags.aligned
            assert not given.flags.writeable
            chosen = plain.select(actions)
            assert other.select(given) == chosen
            plain.update(actions[chosen], t % 3)
            other.update(given[chosen], t % 3)
        assert_same_state(plain.state_dict(), other.state_dict())


@pytest.mark.slow
def test_a_state_on_disk_goes_on_in_a_new_process(tmp_path):
    """Actions, margin and bytes of W in the second half are the same as without the interruption."""
    half, seed = 14, 72  # a buffer of 3 is not empty here
    policies, calls = [], []
    for kind in ALL:
        for when in ("between rounds", "between select and update"):
            policy = make_kind(kind, 2, 9, 5, norm_bound=1.0, radius=TheoremRadius(0.1, scale=1e-3))
            random_rounds(policy, half, seed=71)
            selected = None
            if when == "between select and update":
                selected = policy.select(random_round(policy, np.random.default_rng(seed))[0])
            path = tmp_path / f"{kind} {when}.npz"
            np.savez(path, **policy.state_dict())
            policies.append(policy)
            calls.append((str(path), half, seed, selected))
    program = f"from helpers import resume\nfor call in {calls}:\n    resume(*call)"
    lines = run_python(program).splitlines()
    assert len(lines) == 2 * len(calls)
    for policy, (path, *_, selected), actions, end in zip(
        policies, calls, lines[::2], lines[1::2], strict=True
    ):
        expected = random_rounds(policy, half, seed, selected)
        assert actions.split() == list(map(str, expected)), path
        assert end == f"{policy.margin.hex()} {policy.parameter.tobytes().hex()}", path
        assert len(set(expected)) > 1, path


# Subclasses by users ---------------------------------------------------------------------------------


class Forgetful(FrequentDirections):
    """A sketch that keeps nothing."""

    def add(self, frame, factor, coordinates=None):
        self.updates += 1


class Damped(DenseCurvature):
    pass


class Counting(OptimisticPolicy):
    """A subclass with the same arguments and another radius."""

    @property
    def beta(self):
        return 2.0 * super().beta


@dataclass(frozen=True)
class Doubled(ConstantRadius):
    def value(self, progress):
        return 2.0 * self.beta


class Other(RidgeRadius):
    pass


class Third(TheoremRadius):
    pass


OPTIONS = {"step_size": 1.5, "norm_bound": 0.5}


@pytest.mark.skipif(CompiledPolicy is None, reason="needs numba")
@pytest.mark.parametrize(
    "curvature",
    [
        Forgetful(2, D, 1.0, 3),
        Damped(2, D, 1.0),
        type("OwnFlat", (NoCurvature,), {})(2, D, 1.0),
        type("OwnDiagonal", (DiagonalCurvature,), {})(2, D, 1.0),
        type("OwnDoubling", (DoublingFrequentDirections,), {})(2, D, 1.0, 3, 1.0),
        type("OwnDyadic", (DyadicFrequentDirections,), {})(2, D, 1.0, 3, 1.0),
    ],
    ids=lambda curvature: type(curvature).__name__,
)
def test_the_kernels_refuse_a_curvature_that_they_do_not_know_by_name(curvature):
    with pytest.raises(ValueError, match=f"curvature must be .*, got {type(curvature).__name__}:"):
        CompiledPolicy(curvature, REWARDS, radius=RidgeRadius(0.1), **OPTIONS)
    policy = OptimisticPolicy(curvature, REWARDS, radius=RidgeRadius(0.1), **OPTIONS)
    random_rounds(policy, 3, seed=0)
    assert not isinstance(curvature, Forgetful) or policy.curvature.rank == 0  # its own `add` ran


@pytest.mark.parametrize("kind", [Forgetful, Damped, type("FrequentDirections", (Forgetful,), {})])
def test_a_curvature_of_another_class_is_read_back_as_itself_or_refused_by_name(kind, monkeypatch):
    """This includes a class that has the same name as one of the library's."""
    curvature = kind(2, D, 1.0) if kind is Damped else kind(2, D, 1.0, 3)
    assert type(kind.from_state(curvature.state_dict())) is kind
    policy = OptimisticPolicy(curvature, REWARDS, radius=RidgeRadius(0.1), **OPTIONS)
    random_rounds(policy, 5, seed=0)
    state = policy.state_dict()
    twin = OptimisticPolicy.from_state(state)
    assert type(twin.curvature) is kind
    assert_same_end(played(twin), played(policy))
    monkeypatch.delitem(base._CLASSES, state["curvature"])  # In a new process its module is not imported.
    with pytest.raises(ValueError, match=rf"curvature must be one of .*, got '.*\.{kind.__name__}'"):
        OptimisticPolicy.from_state(state)


@pytest.mark.parametrize("radius", [Doubled(0.1), Other(0.1), Third(0.1)], ids=lambda r: type(r).__name__)
def test_a_radius_of_another_class_is_not_read_back_as_the_librarys(radius):
    policy = eofd(D, REWARDS, sketch_size=3, **SETTINGS | {"radius": radius})
    name = type(radius).__name__
    with pytest.raises(ValueError, match=rf"radius kind must be one of .*, got '.*\.{name}'"):
        OptimisticPolicy.from_state(policy.state_dict())


@pytest.mark.skipif(CompiledPolicy is None, reason="needs numba")
def test_a_radius_of_another_class_plays_its_own_rule_in_the_kernels():
    doubled = eofd(D, REWARDS, sketch_size=3, compiled=True, **SETTINGS | {"radius": Doubled(0.2)})
    plain = eofd(D, REWARDS, sketch_size=3, compiled=True, **SETTINGS | {"radius": ConstantRadius(0.4)})
    assert random_rounds(doubled, 20, seed=0) == random_rounds(plain, 20, seed=0)
    assert doubled.beta == 0.4


def test_a_policy_of_another_class_is_read_back_as_itself_or_refused_by_name():
    policy = Counting(DenseCurvature(2, D, 1.0), REWARDS, radius=RidgeRadius(0.1), **OPTIONS)
    random_rounds(policy, 5, seed=0)
    twin = Counting.from_state(policy.state_dict())
    assert type(twin) is Counting
    assert_same_end(played(twin), played(policy))
    with pytest.raises(ValueError, match=r"policy must be 'OptimisticPolicy' .*, got '.*\.Counting'"):
        OptimisticPolicy.from_state(policy.state_dict())
    plain = oful(D, REWARDS, **SETTINGS)
    with pytest.raises(ValueError, match=r"policy must be '.*\.Counting' .*, got 'OptimisticPolicy'"):
        Counting.from_state(plain.state_dict())
    with pytest.raises(ValueError, match=r"compiled must be False for Counting\.from_state, got True"):
        Counting.from_state(policy.state_dict() | {"compiled": True})
    if CompiledPolicy is not None:
        with pytest.raises(ValueError, match=r"compiled must be True for CompiledPolicy\.from_state"):
            CompiledPolicy.from_state(plain.state_dict())
