r"""GLB-OMD for the logistic bandit: the library's OFUL step with its own parameters and radius (K = 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from mlogb_core.radius import Progress
from mlogb_core.rivals.base import positive_or
from mlogb_core.rivals.logit import LogitOptimist, LogitRadius


def descent_radius(start: float, step_size: float, confidence: float, log_det: float) -> float:
    r"""The squared radius of mirror descent, :math:`s + 2\eta\ln\frac1\delta + \eta(6\eta + 1)\ln\det`.

    Parameters
    ----------
    start : float
        s, the squared radius before the first step.
    step_size, confidence : float
        :math:`\eta` and :math:`\delta`.
    log_det : float
        The logarithm of the determinant of the Hessian, less that before the first step.
    """
    eta = step_size
    return start - 2.0 * eta * math.log(confidence) + eta * (6.0 * eta + 1.0) * log_det


@dataclass(frozen=True)
class GLBOMDRadius(LogitRadius):
    r"""The squared radius of GLB-OMD.

    .. math:: \beta_{t+1} = \lambda S^2 + 2\eta\ln\frac1\delta
              + \eta(6\eta + 1)\ln\frac{\det H_{t+1}}{\lambda^d}

    Notes
    -----
    Derived for this project along the steps of the paper's Appendix A, as the displayed formula was missing
    in the copy at hand. The paper has :math:`4\lambda S^2` for any start; at :math:`w_1 = 0` one of the four
    is enough.
    """

    kind = "glb-omd"

    def squared(self, progress: Progress, log_det: float) -> float:
        r""":math:`\beta_{t+1}`."""
        ridge = progress.regularization * progress.norm_bound**2
        return descent_radius(ridge, progress.step_size, self.confidence, log_det)


class GLBOMD(LogitOptimist):
    r"""GLB-OMD of Zhang, Xu, Zhao and Sugiyama (2025) for the logistic link.

    The step and the Hessian are those of `oful` with K = 1, and so is the index,

    .. math:: x_t = \arg\max_x\ w_t^\top x + \sqrt{\beta_t}\,\|x\|_{H_t^{-1}},

    with :math:`\beta_t` from `GLBOMDRadius`.

    Parameters
    ----------
    n_features, rewards, norm_bound, confidence, scale, radius, feature_bound, tie_tolerance
        As in `LogitOptimist`, which also says what is refused.
    regularization : float, optional
        :math:`\lambda > 0`; by default :math:`\max\{14d\eta D^2, \frac32\eta SD^3\}`. The paper's runs take
        d.
    step_size : float, optional
        :math:`\eta > 0`; by default :math:`1 + SD`.

    Notes
    -----
    "Generalized linear bandits: almost optimal regret with one-pass update", 2025. The paper has D = 1; in
    x/D and Dw its parameters are the ones above. A public re-implementation scales w down in place of the
    projection in the norm of the Hessian, and starts with 100 random rounds; here neither is done.
    """

    theory = GLBOMDRadius
    observes_movement = True

    def __init__(
        self, n_features: int, rewards: ArrayLike, *, step_size: float | None = None, **common: Any
    ) -> None:
        self._given_step_size = step_size
        super().__init__(n_features, rewards, **common)

    def _theory_step_size(self, norm_bound: float, feature_bound: float) -> float:
        return positive_or("step_size", self._given_step_size, 1.0 + norm_bound * feature_bound)

    def _theory_regularization(
        self, n_features: int, step_size: float, norm_bound: float, feature_bound: float
    ) -> float:
        S, D = norm_bound, feature_bound
        return max(14.0 * n_features * step_size * D**2, 1.5 * step_size * S * D**3)
