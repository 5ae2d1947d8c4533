r"""OFUGLB-e: optimism over an ellipsoid around the likelihood's maximum, K = 1 (Lee, Yun and Jun 2024)."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from mlogb_core.rivals.base import positive_or
from mlogb_core.rivals.batch import SecondOrderRival, ball_radius, likelihood_ratio_radius


class OFUGLB(SecondOrderRival):
    r"""OFUGLB-e for two outcomes: the score is :math:`\hat w^\top x + \sqrt{\beta_t}\,\|x\|_{H_t^{-1}}`.

    .. math:: \beta_t = 2(1 + S)\Bigl(\max\{1, \tfrac12\lambda S^2\} + \ln\tfrac1\delta
              + d\ln\max\Bigl\{e, \frac{2eSL_t}d\Bigr\}\Bigr), \qquad L_t = \bigl(1 + \tfrac S2\bigr)(t - 1),

    with :math:`H_t = \lambda I + \sum_{s<t}\sigma'(\hat w^\top x_s)\,x_sx_s^\top`, for actions of norm at
    most 1.

    Parameters
    ----------
    n_features, rewards, norm_bound, confidence, scale, radius, feature_bound, tie_tolerance, refit_growth
        As in `SecondOrderRival`; one reward.
    regularization : float, optional
        By default the theory's :math:`\lambda = 1/(8S^2(1 + S))`.

    Raises
    ------
    ValueError
        If an argument is out of range, or there is more than one reward.

    Notes
    -----
    Source: the code of its authors, in which the maximum is 1. Its centre is the maximum-likelihood estimate
    within the ball. Here the estimate has the ridge :math:`\lambda` besides, which makes it unique and costs
    :math:`\tfrac12\lambda S^2` in the likelihood ratio (see `MNLUCB2`): at the default that is below 1/16,
    and :math:`\beta_t` is the published one. The estimate is refitted when the number of rounds has grown by
    `refit_growth`, and in between rounds enter H at the present estimate; 1 is the published form.
    """

    binary = True

    def __init__(
        self,
        n_features: int,
        rewards: ArrayLike,
        *,
        norm_bound: float,
        regularization: float | None = None,
        feature_bound: float = 1.0,
        refit_growth: float = 1.1,
        **options: Any,
    ) -> None:
        bounds = {"norm_bound": norm_bound, "feature_bound": feature_bound}
        S = ball_radius(**bounds)
        super().__init__(
            n_features,
            rewards,
            regularization=positive_or("regularization", regularization, 1.0 / (8.0 * S**2 * (1.0 + S))),
            refit_growth=refit_growth,
            **bounds,
            **options,
        )

    def _squared_width(self) -> float:
        S = self._ball
        ratio = likelihood_ratio_radius(self.n_features, self.rounds, S, 1.0 + 0.5 * S, self.confidence)
        return 2.0 * (1.0 + S) * (max(1.0, 0.5 * self.regularization * S**2) + ratio)
