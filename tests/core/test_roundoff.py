"""A case that roundoff decides changes the iterates by roundoff only; see the book's page on roundoff."""

from __future__ import annotations

import numpy as np
import pytest
import variants
from helpers import action_stream
from test_ownership import FORMS

from mlogb_core import _thresholds
from mlogb_core.curvature import FrequentDirections, low_rank
from mlogb_core.literal import _dual_root


def make(K, d, m, kind="eofd", **changes):
    return variants.make(kind, K, d, m, **{"regularization": 1.0, "step_size": 2.0} | changes)


def largest_difference(left, right, actions, seed=0):
    rng, worst = np.random.default_rng(seed), 0.0
    for x in actions:
        outcome = int(rng.integers(len(left.parameter) + 1))
        for policy in (left, right):
            policy.update(x, outcome)
        worst = max(worst, np.abs(left.parameter - right.parameter).max())
    return worst


class Generous(FrequentDirections):
    """A sketch that adds K directions in every round; those that an action lacks have weight 1e-17."""

    def add(self, frame, factor, coordinates=None):
        fresh, outside = frame.fresh, frame.outside
        free = min(len(self._rows), self._rows.shape[1]) - self.rank - len(fresh)
        wanted = min(self.n_outcomes - len(fresh), free)
        if wanted > 0:
            known = np.vstack((self.basis, fresh))
            more = np.linalg.svd(known)[2][len(known) : len(known) + wanted]
            fresh = np.vstack((fresh, more))
            outside = np.hstack((outside, np.full((self.n_outcomes, wanted), 1e-17)))
            joint = np.hstack((frame.inside, outside))
            frame = frame._replace(coordinates=joint, fresh=fresh, solved=joint)
        return super().add(frame, factor, coordinates)


@pytest.mark.parametrize("buffer", [1, 2, 3, 5])
@pytest.mark.slow
def test_the_round_of_a_shrink_does_not_hang_on_a_rank(buffer):
    """A sketch with as many directions as possible has the same iterates as one with those of the actions."""
    for K, d, m in [(1, 9, 3), (3, 6, 8), (2, 5, 1)]:
        for kind in ("axes", "repeated", "with_zeros", "low_rank", "random"):
            plain, other = make(K, d, m, buffer=buffer), make(K, d, m, buffer=buffer)
            other.curvature = Generous(K, d, 1.0, m, buffer=buffer)
            assert largest_difference(plain, other, action_stream(kind, 60, d, seed=3)) <= 1e-11
            assert plain.curvature.shrinkage == pytest.approx(other.curvature.shrinkage, rel=1e-9, abs=1e-12)
            assert plain.curvature.reserved == other.curvature.reserved


def test_the_rounds_of_the_shrinks_are_those_of_full_rank():
    """A sketch whose rank is never full shrinks in the same rounds as one of generic actions."""
    K, d, m, b = 1, 12, 4, 3
    sketches = [FrequentDirections(K, d, 1.0, m, buffer=b) for _ in range(2)]
    reserved = [[], []]
    for x, y in zip(action_stream("random", 20, d, 0), action_stream("repeated", 20, d, 0), strict=True):
        for sketch, action, seen in zip(sketches, (x, y), reserved, strict=True):
            sketch.add(sketch.frame(action), np.ones((1, 1)))
            seen.append(sketch.reserved)
    assert reserved[0] == reserved[1] == [1, 2, 3, 4, 5, 6, 4, 5, 6, 4, 5, 6, 4, 5, 6, 4, 5, 6, 4, 5]
    assert sketches[0].rank == 5
    assert sketches[1].rank == 3


@pytest.mark.parametrize("reserved", [3, -1, 10, 4.5, True])
def test_a_state_has_a_possible_count_of_reserved_rows(reserved):
    sketch = FrequentDirections(1, 12, 1.0, 4, buffer=3)
    for x in action_stream("random", 5, 12, 0):
        sketch.add(sketch.frame(x), np.ones((1, 1)))
    assert sketch.rank == 5
    with pytest.raises(ValueError, match="reserved must be"):
        FrequentDirections.from_state(sketch.state_dict() | {"reserved": reserved})


CONSTANTS = {
    "_RANK_TOLERANCE": (low_rank, 1e-15, 1e-12),
    "WELL_OUTSIDE": (_thresholds, 1e-4, 0.9),
    "OUTSIDE": (_thresholds, 1e-7, 0.09),
    "OVERLAP": (_thresholds, 0.0, 1e-14),
    "_TRACKED": (low_rank, 0, 10**9),
}


@pytest.mark.compiled
@pytest.mark.each_value
@pytest.mark.parametrize("kind", ["axes", "low_rank", "mixed_scale", "random"])
@pytest.mark.parametrize("compiled", FORMS)
@pytest.mark.parametrize("name", CONSTANTS)
def test_where_a_threshold_lies_does_not_matter(name, compiled, kind, monkeypatch):
    """The iterates are the same with each threshold far below and far above its value."""
    module, *values = CONSTANTS[name]
    for K, d, m, buffer in [(1, 9, 4, 1), (3, 6, 8, 3), (2, 4, 8, 1)]:
        policies = []
        for value in values:
            policy, rng = make(K, d, m, buffer=buffer, compiled=compiled), np.random.default_rng(0)
            monkeypatch.setattr(module, name, value)
            for x in action_stream(kind, 80, d, seed=3):
                policy.update(x, int(rng.integers(K + 1)))
            policies.append(policy)
        np.testing.assert_allclose(*(p.parameter for p in policies), rtol=0, atol=1e-10)


@pytest.mark.parametrize("compiled", FORMS)
def test_a_step_to_the_last_bit_of_the_sphere_is_projected_or_not_alike(compiled):
    """Roundoff decides whether a point on the sphere is projected; the result is the same point."""
    for kind in ("eofd", "oful"):
        actions = action_stream("random", 1, 5, 0)
        free = make(2, 5, 4, kind, norm_bound=100.0, compiled=compiled)
        free.update(actions[0], 1)
        S = float(np.linalg.norm(free.parameter))
        for bits in range(-4, 5):
            policy = make(2, 5, 4, kind, norm_bound=S * (1.0 + bits * 2.0**-52), compiled=compiled)
            policy.update(actions[0], 1)
            np.testing.assert_allclose(policy.parameter, free.parameter, rtol=0, atol=1e-14)


def test_a_root_that_roundoff_leaves_at_an_end_of_its_bracket():
    """Two ways to sum a length may differ in the last bit, so that only one of them finds it above S."""
    above = np.nextafter(1.0, 2.0)
    assert _dual_root(lambda nu: 1.0, 1.0, above, 3.0) == 0.0
    upper = _dual_root(lambda nu: above**2, 1.0, above, 3.0)
    assert 0.0 < upper <= 4.0 * 3.0 * (above - 1.0)
    assert _dual_root(lambda nu: (2.0 / (1.0 + nu)) ** 2, 1.0, 2.0, 1.0) == pytest.approx(1.0, rel=1e-14)
