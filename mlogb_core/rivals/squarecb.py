r"""SquareCB over the estimate: an action is the less probable the further it is from the best one."""

from __future__ import annotations

import math

import numpy as np

from mlogb_core._validation import Array
from mlogb_core.propensity import Propensities
from mlogb_core.rivals.exploration import RandomizedPolicy


class SquareCB(RandomizedPolicy):
    r"""Inverse gap weighting over the estimate of the library's Newton steps with a sketch.

    .. math:: p_a = \frac1{A + \gamma_t(\hat r_{\hat a} - \hat r_a)/r_{\max}} \quad (a \ne \hat a), \qquad
              p_{\hat a} = 1 - \sum_{a \ne \hat a}p_a, \qquad
              \gamma_t = \frac1{\mathrm{scale}}\sqrt{\frac{At}{Kd}}

    for A actions, of which :math:`\hat a` has the best estimated reward. Its parameters are those of
    `RandomizedPolicy`.

    Notes
    -----
    Foster and Rakhlin (2020), "Beyond UCB: optimal and efficient contextual bandits with regression
    oracles", have :math:`\gamma = \sqrt{AT/\mathrm{Reg}(T)}` up to a constant, with the regret of the
    regression over all T rounds. Here T is the round itself and the regret is Kd, its order without the
    logarithm, for which no guarantee is known; `scale` is what is tuned. Their oracle minimises squared
    errors of the rewards, here the estimate is that of the outcomes' likelihood. The gaps are those of
    rewards also for K = 1.
    """

    def _distribution(self, gaps: Array, best: int) -> Array:
        n, size = len(gaps), self.parameter.size
        if self.scale == 0.0:
            return Propensities.certain(best, n).probability
        gamma = math.sqrt(n * (self.rounds + 1) / size) / self.scale
        probability = 1.0 / (n + gamma * gaps)
        probability[best] = 0.0
        probability[best] = 1.0 - probability.sum()
        return np.asarray(probability)
