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

from mlogb_core._validation import as_integer, as_non_negative, as_positive, as_probability
from mlogb_core.choice import TIE_TOLERANCE
from mlogb_core.curvature import DenseCurvature
from mlogb_core.link import finite_probabilities, jacobian
from mlogb_core.observed import PlayedRound
from mlogb_core.policies import OptimisticPolicy
from mlogb_core.radius import Progress, Radius
from mlogb_core.rivals.base import Unsaved, as_rule, binary_rewards, positive_or


@dataclass(frozen=True)
class LogitRadius(ABC):
    r"""A squared radius that depends on the rounds through :math:`\ln\det(H_t/\lambda)`; subclasses say how.

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
        r""":math:`g_s`, here :math:`\sigma'(w_{s+1}^\top x_s)`: that of the loss's Hessian after the step."""
        return float(jacobian(finite_probabilities(played.after))[0, 0])

    def increment(self, played: PlayedRound) -> float:
        r"""What a round adds to the log-determinant, :math:`\ln(1 + g_s\|x_s\|_{H_s^{-1}}^2)`."""
        return float(np.log1p(self.weight(played) * played.block[0, 0]))

    def describe(self) -> dict[str, Any]:
        """The rule and its numbers, for records."""
        return {"kind": self.kind} | asdict(self)


class LogitOptimist(Unsaved, OptimisticPolicy):
    r"""The optimistic policy for K = 1 over the exact Hessian; subclasses choose the theory and the step.

    Parameters
    ----------
    n_features : int
        d >= 1.
    rewards : (1,) array
        The reward >= 0 of outcome 1; it does not change the choice.
    norm_bound : float
        S > 0.
    confidence : float
        :math:`\delta \in (0, 1)` of the theory's radius.
    regularization : float, optional
        :math:`\lambda > 0`; by default that of the theory.
    scale : float
        Factor >= 0 of the theory's :math:`\sqrt{\beta_t}`; 1 is the theory.
    radius : Radius, optional
        A rule for :math:`\beta_t`, the same for policies that are compared; by default the policy's own
        theory. It has a scale of its own, so that `scale` must be 1 beside it.
    feature_bound : float
        D > 0, the bound of the norm of the actions.
    tie_tolerance : float
        Relative tolerance of `choose`.

    Raises
    ------
    ValueError
        If an argument is out of range, if the rewards are those of more than two outcomes, or if the rule
        needs movements that the policy does not add up.
    """

    #: The radius of the theory.
    theory: ClassVar[type[LogitRadius]]
    #: Whether it adds up the movements of its steps, on which some rules for the radius depend.
    observes_movement: ClassVar[bool] = False

    def __init__(
        self,
        n_features: int,
        rewards: ArrayLike,
        *,
        norm_bound: float,
        confidence: float,
        regularization: float | None = None,
        scale: float = 1.0,
        radius: Radius | None = None,
        feature_bound: float = 1.0,
        tie_tolerance: float = TIE_TOLERANCE,
    ) -> None:
        name, d = type(self).__name__, as_integer("n_features", n_features, minimum=1)
        theory = self.theory(confidence, scale, feature_bound)
        S, D = as_positive("norm_bound", norm_bound), theory.feature_bound
        eta = self._theory_step_size(S, D)
        rule: Radius = theory
        if radius is not None:
            rule = as_rule(name, radius, theory.scale, observes_movement=self.observes_movement, adds_up=True)
        ridge = positive_or("regularization", regularization, self._theory_regularization(d, eta, S, D))
        super().__init__(
            DenseCurvature(1, d, ridge),
            binary_rewards(name, rewards),
            step_size=eta,
            norm_bound=S,
            radius=rule,
            tie_tolerance=tie_tolerance,
        )
        self.feature_bound = D

    @abstractmethod
    def _theory_step_size(self, norm_bound: float, feature_bound: float) -> float:
        r""":math:`\eta`, from S and D."""

    @abstractmethod
    def _theory_regularization(
        self, n_features: int, step_size: float, norm_bound: float, feature_bound: float
    ) -> float:
        r""":math:`\lambda` where none is given, from d, :math:`\eta`, S and D."""
