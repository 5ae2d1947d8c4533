r"""OL2M: online Newton steps with a constant lower bound of the logistic loss's curvature (K = 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mlogb_core._validation import Array
from mlogb_core.link import finite_probabilities, loss_residual
from mlogb_core.observed import PlayedRound
from mlogb_core.policies.newton import Learned
from mlogb_core.radius import Progress
from mlogb_core.rivals.logit import LogitOptimist, LogitRadius

# Up to this SD, exp(SD) does not overflow.
_LARGEST = 700.0


def curvature_bound(norm_bound: float, feature_bound: float) -> float:
    r""":math:`\beta_0 = \tfrac12(1 + e^{SD})^{-1}`, the modulus of exponential concavity."""
    spread = norm_bound * feature_bound
    if spread > _LARGEST:
        raise ValueError(
            f"norm_bound times feature_bound must be at most {_LARGEST:g} in OL2M, got {spread:g}"
        )
    return 0.5 / (1.0 + math.exp(spread))


@dataclass(frozen=True)
class OL2MRadius(LogitRadius):
    r"""The squared radius of OL2M.

    .. math:: \gamma_{t+1} = 8SD + \lambda S^2
              + \Bigl(\frac8{\beta_0} + \frac{16SD}3\Bigr)\ln\frac{2\max\{1, \lceil2\log_2t\rceil\}t^2}\delta
              + \frac2{\beta_0}\ln\frac{\det Z_{t+1}}{\det Z_1}, \qquad \gamma_1 = \lambda S^2

    Notes
    -----
    Zhang et al. (2016), for D = 1; in x/D and Dw the formula is theirs. The number of the martingale's
    layers, :math:`\lceil2\log_2t\rceil`, is 0 at t = 1, where the logarithm would not exist; it counts as 1
    there. :math:`\gamma_1` holds as :math:`w_1 = 0`.
    """

    kind = "ol2m"

    def squared(self, progress: Progress, log_det: float) -> float:
        r""":math:`\gamma_{t+1}`."""
        t, S = progress.rounds, progress.norm_bound
        ridge = progress.regularization * S**2
        if t == 0:
            return ridge
        bound, range_ = curvature_bound(S, self.feature_bound), S * self.feature_bound
        layers = max(1, math.ceil(2.0 * math.log2(t)))
        deviation = math.log(2.0 * layers * t**2 / self.confidence)
        return 8.0 * range_ + ridge + (8.0 / bound + 16.0 * range_ / 3.0) * deviation + 2.0 / bound * log_det

    def weight(self, played: PlayedRound) -> float:
        r""":math:`\beta_0/2`, the same in every round."""
        return 0.5 * curvature_bound(played.norm_bound, self.feature_bound)


class OL2M(LogitOptimist):
    r"""OL2M of Zhang, Yang, Jin, Xiao and Zhou (2016).

    .. math::
       Z_{t+1} = Z_t + \tfrac{\beta_0}2 x_tx_t^\top, \quad Z_1 = \lambda I, \qquad
       w_{t+1} = \Pi^{Z_{t+1}}_{\|w\| \le S}\bigl(w_t - Z_{t+1}^{-1}(\sigma(w_t^\top x_t) - y_t)x_t\bigr), \\
       x_t = \arg\max_x\ w_t^\top x + \sqrt{\gamma_t}\,\|x\|_{Z_t^{-1}}

    with :math:`\beta_0` from `curvature_bound` and :math:`\gamma_t` from `OL2MRadius`.

    Parameters
    ----------
    n_features, rewards, norm_bound, confidence, scale, radius, feature_bound, tie_tolerance
        As in `LogitOptimist`, which also says what is refused.
    regularization : float, optional
        :math:`\lambda > 0`; by default d, as in the public code. The theory admits every one.

    Notes
    -----
    "Online stochastic linear optimization under one-bit feedback", ICML 2016. The public code rescales w to
    the length S in every round, also inside the ball, and adds a width in logits to a probability. Here w is
    projected in the norm of :math:`Z_{t+1}` where it lies outside the ball, and the index is in logits.
    """

    theory = OL2MRadius

    def __init__(self, n_features: int, rewards: ArrayLike, **common: Any) -> None:
        super().__init__(n_features, rewards, **common)
        #: The root of the weight of every round, in the form of the factor of a 1 x 1 Jacobian.
        self._factor: Array = np.sqrt([[0.5 * curvature_bound(self.norm_bound, self.feature_bound)]])

    def _theory_step_size(self, norm_bound: float, feature_bound: float) -> float:
        return 1.0

    def _theory_regularization(
        self, n_features: int, step_size: float, norm_bound: float, feature_bound: float
    ) -> float:
        return float(n_features)

    def _learn(self, action: Array, outcome: int) -> Learned:
        # With step size 1 the matrix of the library's step is Z plus the round's term, which is Z_{t+1}.
        curvature = self.curvature
        residual = loss_residual(finite_probabilities(self.parameter @ action), outcome)
        frame = curvature.frame(action, self._image_of(action))
        new = curvature.newton_step(
            frame, self.parameter, residual, self._factor, self.step_size, self.norm_bound
        ).parameter
        surplus = self._surplus_of(action, outcome, new, 0.0)
        curvature.add(frame, self._factor)
        return Learned(new, (0.0, 0.0), surplus=surplus)
