r"""GLB-OMD for the logistic bandit: the library's OFUL step with its own parameters and radius (K = 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from numpy.typing import ArrayLike

from mlogb_core._validation import as_integer, as_positive
from mlogb_core.choice import TIE_TOLERANCE
from mlogb_core.radius import Progress
from mlogb_core.rivals.base import positive_or
from mlogb_core.rivals.logit import LogitOptimist, LogitRadius


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
        eta = progress.step_size
        ridge = progress.regularization * progress.norm_bound**2
        return ridge - 2.0 * eta * math.log(self.confidence) + eta * (6.0 * eta + 1.0) * log_det


class GLBOMD(LogitOptimist):
    r"""GLB-OMD of Zhang, Xu, Zhao and Sugiyama (2025) for the logistic link.

    The step and the Hessian are those of `oful` with K = 1, and so is the index,

    .. math:: x_t = \arg\max_x\ w_t^\top x + \sqrt{\beta_t}\,\|x\|_{H_t^{-1}},

    with :math:`\beta_t` from `GLBOMDRadius`.

    Parameters
    ----------
    n_features : int
        d >= 1.
    rewards : (1,) array
        The reward >= 0 of outcome 1; it does not change the choice.
    norm_bound : float
        S > 0.
    confidence : float
        :math:`\delta \in (0, 1)`.
    regularization : float, optional
        :math:`\lambda > 0`; by default :math:`\max\{14d\eta D^2, \frac32\eta SD^3\}`. The paper's runs take
        d.
    step_size : float, optional
        :math:`\eta > 0`; by default :math:`1 + SD`.
    scale : float
        Factor >= 0 of :math:`\sqrt{\beta_t}`; 1 is the theory.
    feature_bound : float
        D > 0, the bound of the norm of the actions.
    tie_tolerance : float
        Relative tolerance of `choose`.

    Raises
    ------
    ValueError
        If an argument is out of range, or the rewards are those of more than two outcomes.

    Notes
    -----
    "Generalized linear bandits: almost optimal regret with one-pass update", 2025. The paper has D = 1; in
    x/D and Dw its parameters are the ones above. A public re-implementation scales w down in place of the
    projection in the norm of the Hessian, and starts with 100 random rounds; here neither is done.
    """

    def __init__(
        self,
        n_features: int,
        rewards: ArrayLike,
        *,
        norm_bound: float,
        confidence: float,
        regularization: float | None = None,
        step_size: float | None = None,
        scale: float = 1.0,
        feature_bound: float = 1.0,
        tie_tolerance: float = TIE_TOLERANCE,
    ) -> None:
        d = as_integer("n_features", n_features, minimum=1)
        radius = GLBOMDRadius(confidence, scale, feature_bound)
        S, D = as_positive("norm_bound", norm_bound), radius.feature_bound
        eta = positive_or("step_size", step_size, 1.0 + S * D)
        theory = max(14.0 * d * eta * D**2, 1.5 * eta * S * D**3)
        super().__init__(
            d,
            rewards,
            regularization=positive_or("regularization", regularization, theory),
            step_size=eta,
            norm_bound=S,
            radius=radius,
            tie_tolerance=tie_tolerance,
        )
