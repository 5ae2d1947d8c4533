r"""Epsilon-greedy over the estimate: in some rounds a uniformly random action, in the others the best."""

from __future__ import annotations

import numpy as np

from mlogb_core._validation import Array
from mlogb_core.rivals.exploration import RandomizedPolicy


class EpsilonGreedy(RandomizedPolicy):
    r"""Epsilon-greedy over the estimate of the library's Newton steps with a sketch.

    .. math:: p_a = \frac{\varepsilon_t}A + (1 - \varepsilon_t)\,\mathbf 1\{a = \hat a\}, \qquad
              \varepsilon_t = \min\{1,\ \mathrm{scale}\cdot t^{-1/3}\}

    for A actions, of which :math:`\hat a` has the best estimated reward. Its parameters are those of
    `RandomizedPolicy`.

    Notes
    -----
    A method without a paper of its own; Langford and Zhang (2007), "The epoch-greedy algorithm for contextual
    multi-armed bandits", explore at the rate :math:`t^{-1/3}`, which balances the cost of exploring, its sum
    over the rounds, with what too few explored rounds cost. They learn from the explored rounds alone, here
    from all. The factor before the rate depends on the problem there; here it is `scale`.
    """

    def _distribution(self, gaps: Array, best: int) -> Array:
        epsilon = min(1.0, self.scale * (self.rounds + 1) ** (-1.0 / 3.0))
        probability = np.full(len(gaps), epsilon / len(gaps))
        probability[best] += 1.0 - epsilon
        return probability
