r"""RS-MNL: a batch policy that rarely switches its estimate (Goyal and others 2025)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mlogb_core._validation import Array, as_integer
from mlogb_core.rivals.base import positive_or
from mlogb_core.rivals.batch import SecondOrderRival, ball_radius


class RSMNL(SecondOrderRival):
    r"""RS-MNL: the estimate is refitted when the determinant of the Hessian has doubled.

    The score is that of `SecondOrderRival` with :math:`\beta_t = 2\gamma^2`, :math:`\gamma =
    RS\sqrt{Kd\ln(T/\delta)}` and :math:`H_t = \lambda I + \sum_{s<t} \nabla\sigma(\hat W_\tau x_s) \otimes
    x_sx_s^\top`, for actions of norm at most 1. After a round with :math:`\det H_t \ge 2\det H_\tau` the
    estimate :math:`\hat W_\tau` is refitted within the ball, H is computed anew at it, and its determinant is
    that of :math:`H_\tau`.

    Parameters
    ----------
    n_features, rewards, norm_bound, confidence, scale, radius, feature_bound, tie_tolerance, second_order
        As in `SecondOrderRival`.
    horizon : int
        T >= 2.
    regularization : float, optional
        By default the theory's :math:`\lambda = Kd\ln T/\sqrt S`.
    refit_growth : float
        By which the determinant grows from one refit to the next; 2 as published.

    Notes
    -----
    Source: the code of its authors, with the constant 1 in :math:`\gamma` and :math:`R = \|r\|_2`. Its bonus
    of second order is :math:`6R\gamma^2 = 3R\beta_t`, that is ``second_order=3 * R``; by default it has the
    constant of the paper's own policies. The code leaves every round with the reference outcome out of the
    likelihood, so that all probabilities of the other outcomes come out too large; here all outcomes enter.
    Determinants are compared by their logarithms, as they overflow from some two hundred parameters on. For K
    = 1 the score is the logit's.
    """

    def __init__(
        self,
        n_features: int,
        rewards: ArrayLike,
        *,
        norm_bound: float,
        horizon: int,
        regularization: float | None = None,
        feature_bound: float = 1.0,
        refit_growth: float = 2.0,
        **options: Any,
    ) -> None:
        self.horizon = as_integer("horizon", horizon, minimum=2)
        bounds = {"norm_bound": norm_bound, "feature_bound": feature_bound}
        size = np.size(rewards) * as_integer("n_features", n_features, minimum=1)
        theory = size * math.log(self.horizon) / math.sqrt(ball_radius(**bounds))
        super().__init__(
            n_features,
            rewards,
            regularization=positive_or("regularization", regularization, theory),
            refit_growth=refit_growth,
            **bounds,
            **options,
        )
        self._refitted = self._log_determinant

    def _learn(self, action: Array, outcome: int) -> None:
        action = action / self.feature_bound
        self._observations.add(action, outcome)
        self._extend(action)
        if self._log_determinant >= self._refitted + math.log(self.refit_growth):
            self._refit()

    def _refit(self) -> None:
        super()._refit()
        self._refitted = self._log_determinant

    def _squared_width(self) -> float:
        size = self.n_outcomes * self.n_features
        gamma = float(np.linalg.norm(self.rewards)) * self._ball
        return 2.0 * gamma**2 * size * math.log(self.horizon / self.confidence)
