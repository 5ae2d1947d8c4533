r"""MNL-UCB: a bonus of first order around the maximum-likelihood estimate (Amani and Thrampoulidis 2021)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mlogb_core._validation import Array, as_integer
from mlogb_core.curvature import DenseCurvature
from mlogb_core.link import smoothness
from mlogb_core.rivals.batch import BatchRival
from mlogb_core.rivals.kappa import inverse_curvature


class MNLUCB(BatchRival):
    r"""MNL-UCB with its first-order bonus.

    .. math:: r^\top\sigma(\hat W_tx) + 2RL\,b_t\sqrt{\kappa(1 + 2S)}\,\|x\|_{V_t^{-1}}, \qquad
              V_t = \kappa\lambda I + \sum_{s<t} x_sx_s^\top,

    .. math:: b_t = \frac{K^{3/2}d}{\sqrt\lambda}\ln\Bigl(1 + \frac t{d\lambda}\Bigr)
              + \tfrac12\sqrt{\tfrac\lambda K} + \frac{2K^{3/2}d}{\sqrt\lambda}\ln\tfrac2\delta + \sqrt\lambda
              S,

    for actions of norm at most 1, with :math:`R = \|r\|_2` and L the smoothness of the link. For K = 1 it is
    :math:`\hat w_t^\top x + 2b_t\sqrt{\kappa(1 + 2S)}\,\|x\|_{V_t^{-1}}`, in logits. With a given `radius`
    :math:`\sqrt{\kappa\beta_t}` takes the place of the logit's width :math:`2b_t\sqrt{\kappa(1 + 2S)}`: as
    :math:`H \succeq I \otimes V/\kappa` for the Hessian H, :math:`\|W - \hat W\|_H^2 \le \beta` gives
    :math:`\|(W - \hat W)x\| \le \sqrt{\kappa\beta}\,\|x\|_{V^{-1}}`.

    Parameters
    ----------
    n_features, rewards, norm_bound, confidence, scale, radius, feature_bound, tie_tolerance, refit_growth
        As in `BatchRival`.
    regularization : float, optional
        By default the theory's :math:`\lambda = Kd\ln T`.
    horizon : int, optional
        T >= 2, needed for the default of `regularization` alone.

    Raises
    ------
    ValueError
        If an argument is out of range, or neither `regularization` nor `horizon` is given.

    Notes
    -----
    Source: Amani and Thrampoulidis 2021, equations 7 to 22, theorem 1. Four deviations. Their bound 26 of
    :math:`\kappa` is replaced by its exact value (`inverse_curvature`), without which the bonus decides all.
    An estimate outside the ball is replaced there by :math:`\arg\min_{\|W\| \le S}
    \|g_t(W) - g_t(\hat W_t)\|_{H_t^{-1}(W)}`, which is not convex; here by the maximum-likelihood estimate
    within the ball, which agrees wherever the estimate is inside. For K = 1 the bonus of the logit is used
    before it is turned into one of the reward, as for the other policies. And the estimate is refitted when
    the number of rounds has grown by `refit_growth`; 1 is the published form.
    """

    def __init__(
        self,
        n_features: int,
        rewards: ArrayLike,
        *,
        regularization: float | None = None,
        horizon: int | None = None,
        refit_growth: float = 1.1,
        **common: Any,
    ) -> None:
        if regularization is None:
            if horizon is None:
                raise ValueError(
                    "horizon must be given, since the regularization of the theory depends on it"
                )
            size = np.size(rewards) * as_integer("n_features", n_features, minimum=1)
            regularization = size * math.log(as_integer("horizon", horizon, minimum=2))
        super().__init__(
            n_features, rewards, regularization=regularization, refit_growth=refit_growth, **common
        )
        self.kappa = inverse_curvature(self.n_outcomes, self._ball)
        self._design = DenseCurvature(1, self.n_features, self.kappa * self.regularization)

    @property
    def width(self) -> float:
        r"""The factor of :math:`\|x\|_{V_t^{-1}}`: the theory's with the scale, or that of the given rule."""
        K = self.n_outcomes
        lipschitz = 1.0 if K == 1 else float(np.linalg.norm(self.rewards)) * smoothness(K)
        if self.radius is not None:
            return math.sqrt(self.kappa * self.radius.value(self.progress)) * lipschitz
        return float(self.scale * self._logit_width() * lipschitz)

    def _logit_width(self) -> float:
        r"""The theory's :math:`2b_t\sqrt{\kappa(1 + 2S)}`."""
        K, d, lam, S = self.n_outcomes, self.n_features, self.regularization, self._ball
        noise = K**1.5 * d / math.sqrt(lam)
        b = noise * math.log(1.0 + (self.rounds + 1) / (d * lam)) + 0.5 * math.sqrt(lam / K)
        b += 2.0 * noise * math.log(2.0 / self.confidence) + math.sqrt(lam) * S
        return float(2.0 * b * math.sqrt(self.kappa * (1.0 + 2.0 * S)))

    def _scores(self, actions: Array) -> Array:
        actions = actions / self.feature_bound
        value, _ = self._values(np.dot(actions, self._estimate.T))
        squares = self._design.inverse_blocks(actions)[:, 0, 0]
        return np.asarray(value + self.width * np.sqrt(np.maximum(squares, 0.0)))

    def _extend(self, action: Array) -> None:
        self._design.add(self._design.frame(action), np.ones((1, 1)))

    def _refit(self) -> None:
        super()._refit()
        self._extend(self._observations.actions[-1])
