r"""A linear bandit on the expected reward, with Frequent Directions for its Gram matrix, for any K.

The sketch of the actions :math:`x_s` is that of the library for one outcome with the weight 1 in every round.
Subclasses choose which share of what a shrink subtracts goes back to the ridge, and the width.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from mlogb_core._validation import Array
from mlogb_core.curvature import CompensatedFrequentDirections
from mlogb_core.radius import Progress
from mlogb_core.rivals.base import Rival, positive_or

_ONE = np.ones((1, 1))


class SketchedLinearBandit(Rival):
    r"""Optimism for a linear reward over a sketched Gram matrix.

    .. math:: x_t = \arg\max_x\ \hat\theta_t^\top x + \mathsf b_t\,\|x\|_{Z_t^{-1}}, \qquad
              \hat\theta_t = Z_t^{-1}\sum_{s<t}(r_{y_s} - \bar r)\,x_s, \qquad
              Z_t = (\lambda + c\rho)I + B_t^\top B_t

    with the Frequent Directions sketch :math:`B_t` of the rows :math:`x_s`, s < t, the sum :math:`\rho` of
    what its shrinks have subtracted, and the share c of it that goes to the ridge. The sum in
    :math:`\hat\theta_t` is exact.

    Parameters
    ----------
    n_features, rewards, confidence, feature_bound, tie_tolerance
        As in `Rival`.
    sketch_size : int
        m >= 1; m >= d is exact.
    norm_bound : float
        S > 0, the bound of the norm of the linear reward's coefficients.
    regularization : float, optional
        :math:`\lambda > 0`; by default :math:`D^2`. The theory admits every one, and the papers tune it.
    scale : float
        Factor >= 0 of the theory's :math:`\mathsf b_t`; 1 is the theory.
    radius : Radius, optional
        As in `Rival`: a rule for :math:`\beta_t`, with :math:`\mathsf b_t = \sqrt{\beta_t}`.

    Attributes
    ----------
    curvature : CompensatedFrequentDirections
        Z, over d features and one outcome.
    coefficients : (d,) array
        :math:`\hat\theta_t`.

    Raises
    ------
    ValueError
        If an argument is out of range; the message names it.

    Notes
    -----
    The expected reward :math:`r^\top\sigma(Wx)` is not linear in x, so that the width is no confidence bound
    for it. The linear model has no constant term. Therefore :math:`\bar r = \sum_kr_k/(K+1)`, the expected
    reward of x = 0, is subtracted from the rewards, which the papers have no reason to do. The noise of a
    reward between 0 and :math:`r_{\max}` is :math:`r_{\max}/2`-subgaussian.
    """

    #: c, the share of what a shrink subtracts that goes to the ridge.
    share: ClassVar[float]

    def __init__(
        self,
        n_features: int,
        rewards: ArrayLike,
        *,
        sketch_size: int,
        regularization: float | None = None,
        **common: Any,
    ) -> None:
        super().__init__(n_features, rewards, **common)
        ridge = positive_or("regularization", regularization, self.feature_bound**2)
        self.curvature = CompensatedFrequentDirections(
            1, self.n_features, ridge, sketch_size, share=self.share
        )
        self.coefficients = np.zeros(self.n_features)
        self._sum = np.zeros(self.n_features)
        mean = self.rewards.sum() / (self.n_outcomes + 1)
        #: The reward of each outcome 0..K less that of x = 0.
        self._excess = np.concatenate(([0.0], self.rewards)) - mean

    @property
    def width(self) -> float:
        r""":math:`\mathsf b_t` of the coming round: the theory's times the scale, or the given rule's."""
        if self.radius is not None:
            return math.sqrt(self.radius.value(self.progress))
        return self.scale * self._theory_width()

    @abstractmethod
    def _theory_width(self) -> float:
        r"""The theory's :math:`\mathsf b_t` of the coming round."""

    @property
    def progress(self) -> Progress:
        """What a given `radius` may depend on, with K = 1 for the one reward; the step size is NaN."""
        sketch, S = self.curvature, self.norm_bound
        ridge = sketch.regularization
        return Progress(
            1, self.n_features, sketch.rank_bound, ridge, math.nan, S, self.rounds, sketch.shrinkage,
            growth=sketch.ridge - ridge,
        )  # fmt: skip

    @property
    def noise(self) -> float:
        r"""The noise's part of the width, :math:`R_n\sqrt{\iota_t}`.

        .. math:: \iota_t = 2\ln\frac1\delta + d\ln\Bigl(1 + \frac\rho\lambda\Bigr)
                  + m\ln\Bigl(1 + \frac{tD^2}{m\lambda}\Bigr), \qquad R_n = \tfrac12r_{\max}
        """
        sketch, ridge, m = self.curvature, self.curvature.regularization, self.curvature.rank_bound
        iota = (
            -2.0 * np.log(self.confidence)
            + self.n_features * np.log1p(sketch.shrinkage / ridge)
            + m * np.log1p(self.rounds * self.feature_bound**2 / (m * ridge))
        )
        return float(0.5 * self.rewards.max() * np.sqrt(iota))

    def _scores(self, actions: Array) -> Array:
        squares = self.curvature.inverse_blocks(actions)[:, 0, 0]
        widths = self.width * np.sqrt(np.maximum(squares, 0.0))
        return np.asarray(np.dot(actions, self.coefficients) + widths)

    def _learn(self, action: Array, outcome: int) -> None:
        self.curvature.add(self.curvature.frame(action), _ONE)
        self._sum += self._excess[outcome] * action
        self.coefficients = self._solve(self._sum)

    def _solve(self, vector: Array) -> Array:
        r""":math:`Z^{-1}v`: the Newton step from 0 along v, without a projection and with the Jacobian 0."""
        frame, zero = self.curvature.frame(vector), np.zeros((1, self.n_features))
        step = self.curvature.newton_step(frame, zero, -np.ones(1), np.zeros((1, 1)), 1.0, np.inf)
        return np.asarray(step.parameter[0])
