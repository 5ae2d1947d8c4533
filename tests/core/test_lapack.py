"""Failures of LAPACK: a round either succeeds by other means, or raises and leaves the policy unchanged."""

from __future__ import annotations

import functools
import importlib
import re
import sys
import types
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import pytest
from helpers import assert_same_state, random_rounds
from variants import ALL, OTHERS, SKETCHES, literal_of, make, off_orthonormal, round_in, unit_rows

from mlogb_core import OptimisticPolicy, TheoremRadius

ROUTINES = {
    *("eig", "eigh", "eigvalsh", "eigh_tridiagonal", "eigvalsh_tridiagonal", "svd", "svdvals", "qr", "inv"),
    *("cholesky", "cho_factor", "cho_solve", "solve", "solve_triangular", "lstsq", "ldl", "lu_factor"),
}
LAPACK_NAME = re.compile(
    r"[sd]?(potr[fsi]|posv|syev[rdx]?|stev[rdx]?|stebz|gesdd|gesvd|ge(qrf|qp3|sv)|or(gqr|mqr)|tr(tr[si]|con)|"
    r"getr[fsi]|sytr[fd]|pocon)"
)


class Site(NamedTuple):
    """A name by which a module of the library calls a LAPACK routine."""

    owner: object
    name: str

    def __str__(self):
        return f"{self.owner.__name__}.{self.name}"

    @property
    def low_level(self):
        """Whether the routine reports a failure by its last result, a number, instead of an exception."""
        return type(getattr(self.owner, self.name)).__name__ == "fortran"


@pytest.fixture(autouse=True)
def uncertain_pairs(monkeypatch):
    """The kernels leave the eigenpairs for K > 1 to LAPACK, as they do where they are not certain of them."""
    if find_spec("numba"):
        policy = importlib.import_module("mlogb_core.compiled.policy")
        monkeypatch.setattr(policy.CompiledPolicy, "_is_single", lambda policy: False)
        monkeypatch.setattr(policy, "smallest_by_bisection", lambda core, count: (None, None, False))


def lapack_sites():
    """All such names, found by a search of the library's modules."""
    sites = {Site(np.linalg, name) for name in ROUTINES if hasattr(np.linalg, name)}
    modules = [m for n, m in sys.modules.items() if n.startswith("mlogb_core") and not n.endswith("literal")]
    for module in modules:
        for name, value in vars(module).items():
            if isinstance(value, types.ModuleType) and value.__name__.startswith(
                ("scipy.linalg", "numpy.lin")
            ):
                sites |= {Site(value, n) for n in vars(value) if n in ROUTINES or LAPACK_NAME.fullmatch(n)}
            elif type(value).__name__ == "fortran":
                sites |= {Site(module, name)} if LAPACK_NAME.search(f"{name} {value.__doc__}") else set()
            elif callable(value) and getattr(value, "__name__", "") in ROUTINES:
                home = getattr(value, "__module__", None) or ""
                sites |= {Site(module, name)} if home.startswith(("scipy.linalg", "numpy.linalg")) else set()
    return sorted(sites, key=str)


def failing(site, calls, error):
    """The routine with failures at the given calls (None: all calls), and the list of calls that failed."""
    routine, count, hits = getattr(site.owner, site.name), [0], []

    @functools.wraps(routine, assigned=())
    def call(*arguments, **options):
        count[0] += 1
        if calls is not None and count[0] not in calls:
            return routine(*arguments, **options)
        hits.append(count[0])
        if site.low_level and issubclass(error, Exception):
            return *routine(*arguments, **options)[:-1], 1
        raise error("did not converge")

    return call, hits


def fail_everywhere(policy, operate, calls, error):
    """For each site that the operation calls, the policy after the failure and the exception, if any."""
    state = policy.state_dict()
    for site in lapack_sites():
        copy = OptimisticPolicy.from_state(state)
        operate(copy, "prepare")
        with pytest.MonkeyPatch.context() as patch:
            routine, hits = failing(site, calls, error)
            before = copy.state_dict()
            patch.setattr(site.owner, site.name, routine)
            try:
                operate(copy, "operate")
                raised = None
            except (Exception, KeyboardInterrupt) as caught:
                raised = caught
        if hits:
            yield str(site), copy, before, raised


def operation(policy, name, actions, outcome):
    """A function that makes one of the calls which use LAPACK, or the calls that precede it."""
    chosen = OptimisticPolicy.from_state(policy.state_dict()).select(actions)

    def operate(policy, stage):
        if stage == "operate" and name != "select":
            policy.update(actions[chosen], outcome)
        elif (stage == "prepare") == (name == "update after select"):
            policy.select(actions)

    return operate


OPERATIONS = ("select", "update", "update after select")
#: Policies that call no routine of LAPACK.
WITHOUT = {"first_order", "first_order compiled", "diagonal compiled"}
KINDS = [pytest.param(kind, marks=pytest.mark.slow if kind in OTHERS else ()) for kind in ALL]


@pytest.mark.each_value
@pytest.mark.parametrize("calls", [[1], [2], None], ids=["first call", "second call", "every call"])
@pytest.mark.parametrize("kind", KINDS)
def test_lapack_does_not_converge(kind, calls):
    """A failure is handled, or the error names the round and the policy is unchanged and can continue."""
    reached = set()
    policy = make(kind, 2, 6, norm_bound=0.3, radius=TheoremRadius(0.1, scale=1e-3))
    random_rounds(policy, 17, seed=51)
    for _ in range(3):  # A buffer of 3 rounds shrinks in one of them.
        random_rounds(policy, 1, seed=52)
        actions = 3.0 * np.random.default_rng(53).standard_normal((5, 6))
        for name in OPERATIONS:
            operate = operation(policy, name, actions, 2)
            twin = OptimisticPolicy.from_state(policy.state_dict())
            operate(twin, "prepare")
            operate(twin, "operate")
            for site, copy, before, raised in fail_everywhere(policy, operate, calls, np.linalg.LinAlgError):
                reached.add(site)
                if raised is None:
                    assert copy.rounds == twin.rounds, site
                    np.testing.assert_allclose(
                        copy.parameter, twin.parameter, rtol=0, atol=1e-12, err_msg=site
                    )
                    assert off_orthonormal(getattr(copy.curvature, "basis", np.eye(1))) <= 1e-12, site
                    continue
                assert isinstance(raised, ArithmeticError), (site, name, raised)
                assert round_in(raised) in (policy.rounds, policy.rounds + 1), site
                assert_same_state(before, copy.state_dict())
                operate(copy, "operate")
                assert_same_state(twin.state_dict(), copy.state_dict())
    assert reached or kind in WITHOUT or calls == [2]


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupt_inside_lapack_changes_nothing(kind):
    """The KeyboardInterrupt is passed on."""
    policy = make(kind, 2, 6, norm_bound=0.3, radius=TheoremRadius(0.1, scale=1e-3))
    random_rounds(policy, 16, seed=51)  # A buffered sketch shrinks in the next round.
    actions = 3.0 * np.random.default_rng(53).standard_normal((5, 6))
    reached = 0
    for name in OPERATIONS:
        operate = operation(policy, name, actions, 2)
        twin = OptimisticPolicy.from_state(policy.state_dict())
        operate(twin, "prepare")
        operate(twin, "operate")
        for site, copy, before, raised in fail_everywhere(policy, operate, [1], KeyboardInterrupt):
            reached += 1
            assert isinstance(raised, KeyboardInterrupt), site
            assert_same_state(before, copy.state_dict())
            operate(copy, "operate")
            assert_same_state(twin.state_dict(), copy.state_dict())
    assert reached or kind in WITHOUT


@pytest.mark.parametrize("kind", SKETCHES)
def test_a_shrink_that_fails_once_goes_on_with_the_literal_algorithm(kind, monkeypatch):
    """In each round another routine fails once, and the policy still plays Algorithm 2."""
    policy = make(kind, 2, 6)
    literal = literal_of(kind, policy)
    rng = np.random.default_rng(61)
    sites = lapack_sites()
    failures = 0
    for t in range(4 * len(sites)):
        actions, outcome, site = unit_rows(rng, 4, 6), int(rng.integers(3)), sites[t % len(sites)]
        chosen = literal.select(actions)
        routine, hits = failing(site, [1], np.linalg.LinAlgError)
        with monkeypatch.context() as patch:
            patch.setattr(site.owner, site.name, routine)
            for _ in range(3):  # At most `select` fails once and `update` fails once.
                try:
                    assert policy.select(actions) == chosen
                    policy.update(actions[chosen], outcome)
                    break
                except (ArithmeticError, np.linalg.LinAlgError):
                    assert policy.rounds == literal.rounds
        failures += len(hits)
        literal.update(actions[chosen], outcome)
        np.testing.assert_allclose(policy.parameter, literal.parameter, rtol=0, atol=1e-11)
    assert policy.rounds == literal.rounds
    assert failures >= 4
