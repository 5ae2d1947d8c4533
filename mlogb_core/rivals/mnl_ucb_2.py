r"""The second-order form of MNL-UCB, over a likelihood-ratio confidence set."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from mlogb_core.rivals.base import positive_or
from mlogb_core.rivals.batch import SecondOrderRival, ball_radius, likelihood_ratio_width


class MNLUCB2(SecondOrderRival):
    r"""MNL-UCB with a bonus of second order, and the centre and radius of a likelihood-ratio set.

    The score is that of `SecondOrderRival` with
    :math:`H_t = \lambda I + \sum_{s<t} \nabla\sigma(\hat Wx_s) \otimes x_sx_s^\top` and

    .. math:: \beta_t = 2(1 + MS)\bigl(\tfrac12\lambda S^2 + \beta^{LR}_t\bigr), \qquad
              \beta^{LR}_t = \ln\tfrac1\delta + Kd\ln\max\Bigl\{e, \frac{2eSM(t-1)}{Kd}\Bigr\},

    for actions of norm at most 1, with :math:`M = \sqrt2` (1 for K = 1).

    Parameters
    ----------
    n_features, rewards, norm_bound, confidence, scale, radius, feature_bound, tie_tolerance, refit_growth,
    second_order
        As in `SecondOrderRival`.
    regularization : float, optional
        By default :math:`\lambda = 2/S^2`, for which the ridge adds to :math:`\beta^{LR}_t` no more than 1.

    Notes
    -----
    The improved rule of Amani and Thrampoulidis (2021, appendix C) tracks an intersection of confidence sets
    and cannot be computed. What stands here is their idea, a bonus with the Jacobian at the estimate and a
    remainder, over a confidence set that is known to be far smaller than theirs. Its centre is the estimate
    within the ball, with a ridge: if a loss :math:`L_\lambda` is the sum of the losses with the ridge, then
    :math:`L_\lambda(W_*) - L_\lambda(\hat W) \le \beta^{LR} + \tfrac12\lambda S^2`, and by generalised
    self-concordance the left side is at least :math:`\|W_* - \hat W\|^2_{H(\hat W)} / (2 + 2MS)`, as the
    gradient term is not negative at the smallest value in a convex set. The estimate is refitted when the
    number of rounds has grown by `refit_growth`, and in between rounds enter H at the present estimate; with
    1 in every round.
    """

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
        super().__init__(
            n_features,
            rewards,
            regularization=positive_or("regularization", regularization, 2.0 / ball_radius(**bounds) ** 2),
            refit_growth=refit_growth,
            **bounds,
            **options,
        )

    def _squared_width(self) -> float:
        return likelihood_ratio_width(
            self.n_outcomes, self.n_features, self.rounds, self._ball, self.regularization, self.confidence
        )
