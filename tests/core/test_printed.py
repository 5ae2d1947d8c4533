"""The printed forms, which the benchmarks time, have the actions, scores and iterates of the oracle."""

from __future__ import annotations

import numpy as np
import pytest

from mlogb_core import RidgeRadius
from mlogb_core.literal import LiteralEOFD, LiteralOFUL
from mlogb_core.printed import CholeskyOFUL, PrintedEOFD, PrintedOFUL

PAIRS = ((PrintedEOFD, LiteralEOFD), (PrintedOFUL, LiteralOFUL), (CholeskyOFUL, LiteralOFUL))


def largest_difference(printed, oracle, S, K=1, d=7, m=4, n_rounds=25):
    """The largest difference of scores and iterates on the same actions, and the number of projections."""
    rng = np.random.default_rng(K)
    settings = {"regularization": 0.5, "step_size": 2.0, "norm_bound": S, "radius": RidgeRadius(0.05)}
    rewards = rng.uniform(-1.0, 1.0, K) if K > 1 else np.ones(1)
    one, other = (
        kind(d, rewards, **settings, **({"sketch_size": m} if "EOFD" in kind.__name__ else {}))
        for kind in (printed, oracle)
    )
    worst, projected = 0.0, 0
    for t in range(n_rounds):
        actions = rng.standard_normal((6, d))
        if t % 5 == 4:
            actions[0] = 0.0
        ours, exact = one.scores(actions), other.scores(actions)
        assert one.select(actions) == other.select(actions)
        chosen = 0 if t % 5 == 4 else int(np.argmax(exact))
        for policy in (one, other):
            policy.update(actions[chosen], t % (K + 1))
        worst = max(worst, np.abs(ours - exact).max(), np.abs(one.parameter - other.parameter).max())
        projected += bool(np.linalg.norm(other.parameter) >= S * (1.0 - 1e-9))
    assert one.beta == pytest.approx(other.beta, rel=1e-10)
    return worst, projected


@pytest.mark.parametrize("K", [1, 3])
def test_printed_forms_have_the_oracles_scores_actions_and_iterates(K):
    for printed, oracle in PAIRS:
        for S, some in ((0.5, True), (30.0, False)):
            worst, projected = largest_difference(printed, oracle, S, K=K)
            assert (projected > 0) == some
            assert worst < 1e-10, (printed.__name__, S)


def test_more_directions_than_the_problem_has():
    assert largest_difference(PrintedEOFD, LiteralEOFD, 2.0, K=2, d=3, m=9)[0] < 1e-9


def test_the_comparison_notices_a_wrong_batch():
    """An error of the actions by a millionth of their length is noticed."""

    class Wrong(PrintedOFUL):
        def scores(self, actions):
            return super().scores(np.asarray(actions) * (1.0 + 1e-6))

    assert largest_difference(Wrong, LiteralOFUL, 30.0, K=3)[0] > 1e-8
