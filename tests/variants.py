"""Policies by a short name, streams of degenerate actions, and the literal algorithm beside a policy.

A kind is the name of a constructor followed by its options, such as "eofd buffer=3 compiled". The lists leave
out the compiled kinds where numba is not installed.
"""

from __future__ import annotations

import importlib.util
import inspect
import math
import re
from functools import partial
from typing import NamedTuple

import numpy as np
from helpers import shifted_softmax

from mlogb_core import (
    RidgeRadius,
    budgeted_eofd,
    compensated_eofd,
    diagonal,
    doubling_eofd,
    dyadic_eofd,
    eofd,
    first_order,
    growing_ridge,
    oful,
    robust_eofd,
)
from mlogb_core.literal import LiteralEOFD, LiteralOFUL

BUILDERS = {
    "eofd": eofd,
    "robust_eofd": robust_eofd,
    "oful": oful,
    "first_order": first_order,
    "compensated_eofd": compensated_eofd,
    "budgeted_eofd": partial(budgeted_eofd, budget=4.0, horizon=60),
    "doubling_eofd": partial(doubling_eofd, budget=4.0),
    "dyadic_eofd": partial(dyadic_eofd, budget=12.0),
    "growing_ridge": growing_ridge,
    "diagonal": diagonal,
}


def options_of(kind):
    """The name of the constructor and the keywords in a kind."""
    name, *words = kind.split()
    options = {
        keyword: int(value) if value else True for keyword, _, value in (w.partition("=") for w in words)
    }
    return name, options


def is_available(kind):
    """Whether the constructor has the options of the kind, and numba is installed if it is compiled."""
    name, options = options_of(kind)
    known = options.keys() <= inspect.signature(BUILDERS[name]).parameters.keys()
    return known and ("compiled" not in options or importlib.util.find_spec("numba") is not None)


VARIANTS = ("eofd", "eofd compiled", "eofd buffer=3", "eofd buffer=3 compiled", "oful", "oful compiled")
GROWING = (
    "budgeted_eofd",
    "budgeted_eofd open_ended",
    "doubling_eofd",
    "doubling_eofd falling",
    "dyadic_eofd",
)
IN_NUMPY = ("robust_eofd", "first_order", "compensated_eofd", *GROWING, "growing_ridge", "diagonal")
COMPILED = ("doubling_eofd compiled", "dyadic_eofd compiled", "diagonal compiled", "first_order compiled")
OTHERS = (*IN_NUMPY, *filter(is_available, COMPILED))
ALL = (*filter(is_available, VARIANTS), *OTHERS)
SKETCHES = tuple(k for k in ALL if k.startswith("eofd") and "buffer" not in k)  # the iterates of Algorithm 2
BUFFERED = tuple(k for k in ALL if "buffer" in k)
EXACT = tuple(k for k in ALL if k.startswith("oful"))


def make(kind, K, d, m=4, **changes):
    """A policy of the kind, with K outcomes, d features and, if it is a sketch, m directions.

    `changes` replaces the defaults below, or adds arguments of the constructor.
    """
    name, options = options_of(kind)
    arguments = {"regularization": 0.5, "step_size": 1.5, "norm_bound": 2.0, "radius": RidgeRadius(0.3)}
    arguments |= {"rewards": np.linspace(0.0, 1.0, K + 1)[1:]}
    arguments |= {"sketch_size": m} if "eofd" in name else {}
    return BUILDERS[name](d, **(arguments | options | changes))


def literal_of(kind, policy, **changes):
    """The literal algorithm with the settings of the policy."""
    arguments = {
        "regularization": policy.curvature.regularization,
        "step_size": policy.step_size,
        "norm_bound": policy.norm_bound,
        "radius": policy.radius,
    } | changes
    d = policy.curvature.n_features
    if kind.startswith("eofd"):
        return LiteralEOFD(d, policy.rewards, sketch_size=policy.curvature.sketch_size, **arguments)
    return LiteralOFUL(d, policy.rewards, **arguments)


STREAMS = (
    "all zero",
    "zero rows",
    "duplicates",
    "one action",
    "one arm",
    "eight arms",
    "inside the span",
    "nearly inside the span",
    "two scales in turn",
    "two scales in a set",
    "axes",
    "collinear",
)

# A parameter on the sphere stays there after x = 0; roundoff may place it outside the ball by one bit.
ZERO_ROWS = "zero rows"


def action_sets(stream, rounds, n, d, seed):
    """Action sets that are degenerate in the way which `stream` names; any other name gives generic ones."""
    rng = np.random.default_rng(seed)
    unit = unit_rows(rng, 8, d)
    for t in range(rounds):
        A = unit_rows(rng, n, d)
        if stream == "all zero":
            A = np.zeros((n, d))
        elif stream == "zero rows":
            A[rng.random(n) < 0.5] = 0.0
        elif stream == "duplicates":
            A = A[rng.integers(max(1, n // 3), size=n)]
        elif stream == "one action":
            A = A[:1]
        elif stream == "one arm":
            A = unit[:1]
        elif stream == "eight arms":
            A = unit
        elif stream.endswith("inside the span"):
            noise = 10.0 ** -int(rng.integers(8, 17)) if stream.startswith("nearly") else 0.0
            A = rng.standard_normal((n, 2)) @ unit[:2] + noise * A
        elif stream == "two scales in turn":
            A *= 1e-4 if t % 2 else 1.0
        elif stream == "two scales in a set":
            A *= rng.choice([1e-4, 1.0], size=(n, 1))
        elif stream == "axes":
            A = np.eye(d)[rng.integers(d, size=n)]
        elif stream == "collinear":
            A = rng.standard_normal((n, 1)) * unit[:1]
        yield np.ascontiguousarray(A)


def one_after_the_other(streams, rounds, n, d, seed):
    """The action sets of several streams, each for its part of the rounds."""
    for place, stream in enumerate(streams):
        yield from action_sets(stream, rounds // len(streams), n, d, seed + place)


def unit_rows(rng, n, d):
    A = rng.standard_normal((n, d))
    return A / np.linalg.norm(A, axis=1, keepdims=True)


class Run:
    """A policy on a stream of action sets, with checks of its sketch after every round.

    Outcomes are drawn from a random model. About every fourth round plays another action than the selected
    one, as `update` allows.
    """

    def __init__(self, policy, seed=0):
        self.policy = policy
        self.rng = np.random.default_rng(seed)
        K, d = policy.parameter.shape
        self.truth = self.rng.standard_normal((K, d))
        self.truth *= policy.norm_bound / np.linalg.norm(self.truth)
        self.traces = []
        self.first_size = getattr(policy.curvature, "sketch_size", 0)
        self.shrinkage = policy.curvature.shrinkage

    def round(self, actions, chosen):
        """Learn from one of the actions; return that action and its outcome."""
        other = int(self.rng.integers(len(actions)))
        played = other if self.rng.random() < 0.25 else chosen
        x = actions[played]
        p = shifted_softmax(self.truth @ x)
        outcome = min(int(np.searchsorted(np.cumsum(p), self.rng.random())), len(p) - 1)
        self.policy.update(x, outcome)
        p = shifted_softmax(self.policy.parameter @ x)[1:]
        self.traces.append(float((p * (1.0 - p)).sum() * (x @ x)))
        return x, outcome

    def check(self):
        """Orthonormal basis, positive semidefinite core, and nothing lost or invented in the trace."""
        policy, sketch = self.policy, self.policy.curvature
        K, d = policy.parameter.shape
        assert np.isfinite(policy.parameter).all()
        assert np.linalg.norm(policy.parameter) <= policy.norm_bound * (1.0 + 1e-12)
        assert sketch.shrinkage >= self.shrinkage
        self.shrinkage = sketch.shrinkage
        if not hasattr(sketch, "basis") or policy.curvature.rank_bound == 0:
            return
        r, m = len(sketch.basis), sketch.sketch_size
        buffer = getattr(sketch, "buffer", 1)
        assert sketch.basis.shape == (r, K * d)
        assert sketch.core.shape == (r, r)
        assert r <= sketch.rank_bound <= K * d
        assert sketch.grows or r <= m + (buffer - 1) * K
        assert off_orthonormal(sketch.basis) <= 1e-12
        values = np.linalg.eigvalsh(sketch.core) if r else np.zeros(1)
        assert values[0] >= -1e-12 * np.abs(values).max()
        np.testing.assert_allclose(sketch.core, sketch.core.T, rtol=0, atol=1e-13 * np.abs(values).max())
        # A shrink by s takes s from each of m values and up to s from each direction that it drops, of
        # which there is at least one (whose value is s itself) and at most K times the buffer.
        # Where the size grows, the first and the last one take the place of m.
        added = math.fsum(self.traces)
        missing = added - float(np.trace(sketch.core))
        first, last = (self.first_size, sketch.rank_bound) if sketch.grows else (m, m)
        assert missing >= (first + 1) * sketch.shrinkage - 1e-12 * added
        assert missing <= (last + K * buffer) * sketch.shrinkage + 1e-12 * added


def off_orthonormal(basis):
    return np.abs(basis @ basis.T - np.eye(len(basis))).max(initial=0.0)


class Followed(NamedTuple):
    """The comparison of a policy with the literal algorithm."""

    rounds: int  # rounds until the literal algorithm failed, or all of them
    parameter: float  # largest |W - W_literal|
    shrinkage: float  # largest |rho - rho_literal|


def follow(policy, literal, sets, seed=0, check_every=1):
    """Play the literal algorithm beside the policy, and compare them until the literal algorithm fails."""
    run = Run(policy, seed)
    alive, parameter, shrinkage = 0, 0.0, 0.0
    for t, actions in enumerate(sets):
        chosen = policy.select(actions)
        if alive == t and (expected := attempt(literal.select, actions)) is not None:
            assert chosen == expected, f"round {t + 1}: margin {policy.margin}"
        x, outcome = run.round(actions, chosen)
        if t % check_every == 0:
            run.check()
        if alive == t and attempt(literal.update, x, outcome, default=True) is None:
            alive += 1
            parameter = max(parameter, np.abs(policy.parameter - literal.parameter).max())
            shrinkage = max(shrinkage, abs(policy.curvature.shrinkage - literal.shrinkage))
    run.check()
    return Followed(alive, parameter, shrinkage)


def attempt(call, *arguments, default=None):
    """The result of the literal algorithm, or the default if it fails on the input."""
    try:
        return call(*arguments)
    except (np.linalg.LinAlgError, ArithmeticError, ValueError):
        return default


def tried(call, *arguments):
    """The result of a call and None, or None and the ArithmeticError that it raises."""
    try:
        return call(*arguments), None
    except ArithmeticError as error:
        return None, error


def round_in(error):
    """The number of the round in the message of an error."""
    found = re.search(r"\bround (\d+)", str(error))
    assert found, str(error)
    return int(found.group(1))
