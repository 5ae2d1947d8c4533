r"""Optimism in logits over the exact Hessian: what the online rivals for two outcomes have in common.

They play :math:`\arg\max_x w_t^\top x + \sqrt{\beta_t}\,\|x\|_{H_t^{-1}}` with
:math:`H_t = \lambda I + \sum_s g_s x_s x_s^\top`, as `oful` does for K = 1. They differ in the weights
:math:`g_s`, in the step, and in the radius, which depends on the rounds through :math:`\ln\det(H_t/\lambda)`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from mlogb_core._validation import as_non_negative, as_positive, as_probability
from mlogb_core.choice import TIE_TOLERANCE
from mlogb_core.curvature import DenseCurvature
from mlogb_core.link import jacobian, outcome_probabilities
from mlogb_core.observed import PlayedRound
from mlogb_core.policies import OptimisticPolicy
from mlogb_core.radius import Progress
from mlogb_core.rivals.base import Unsaved, binary_rewards


@dataclass(frozen=True)
class LogitRadius(ABC):
    r"""A squared radius that depends on the rounds through the log-determinant; subclasses say how.

    Parameters
    ----------
    confidence : float
        :math:`\delta \in (0, 1)`, the probability of failure.
    scale : float
        Factor >= 0 of :math:`\sqrt{\beta_t}`; 1 is the theory.
    feature_bound : float
        D > 0, the bound of the norm of the actions.
    """

    confidence: float
    scale: float = 1.0
    feature_bound: float = 1.0

    kind: ClassVar[str]
    needs_movement: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "confidence", as_probability("confidence", self.confidence))
        object.__setattr__(self, "scale", as_non_negative("scale", self.scale))
        object.__setattr__(self, "feature_bound", as_positive("feature_bound", self.feature_bound))

    @abstractmethod
    def squared(self, progress: Progress, log_det: float) -> float:
        r""":math:`\beta_{t+1}` of the theory, from :math:`\ln\det(H_{t+1}/\lambda)`."""

    def value(self, progress: Progress) -> float:
        r""":math:`\beta_{t+1}` times the square of the scale."""
        return self.scale**2 * self.squared(progress, progress.surplus or 0.0)

    def weight(self, played: PlayedRound) -> float:
        r""":math:`g_s`, here :math:`\sigma'(w_{s+1}^\top x_s)`, the one of the loss's Hessian."""
        return float(jacobian(outcome_probabilities(played.after))[0, 0])

    def increment(self, played: PlayedRound) -> float:
        r"""What a round adds to the log-determinant, :math:`\ln(1 + g_s\|x_s\|_{H_s^{-1}}^2)`."""
        return float(np.log1p(self.weight(played) * played.block[0, 0]))

    def describe(self) -> dict[str, Any]:
        """The rule and its numbers, for records."""
        return {"kind": self.kind} | asdict(self)


class LogitOptimist(Unsaved, OptimisticPolicy):
    r"""The optimistic policy for K = 1 over the exact Hessian; subclasses choose the radius and the step.

    Parameters
    ----------
    n_features : int
        d >= 1.
    rewards : (1,) array
        The reward >= 0 of outcome 1; it does not change the choice.
    regularization, step_size, norm_bound : float
        :math:`\lambda`, :math:`\eta` and S, all positive.
    radius : LogitRadius
        The rule for :math:`\beta_t`.
    tie_tolerance : float
        Relative tolerance of `choose`.

    Raises
    ------
    ValueError
        If an argument is out of range, or the rewards are those of more than two outcomes.
    """

    def __init__(
        self,
        n_features: int,
        rewards: ArrayLike,
        *,
        regularization: float,
        step_size: float,
        norm_bound: float,
        radius: LogitRadius,
        tie_tolerance: float = TIE_TOLERANCE,
    ) -> None:
        super().__init__(
            DenseCurvature(1, n_features, regularization),
            binary_rewards(type(self).__name__, rewards),
            step_size=step_size,
            norm_bound=norm_bound,
            radius=radius,
            tie_tolerance=tie_tolerance,
        )
