r"""ECOLog: each round minimises its logistic loss near the last iterate (K = 1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from scipy.optimize import brentq, root_scalar
from scipy.special import expit

from mlogb_core._validation import Array
from mlogb_core.curvature.base import Step
from mlogb_core.link import finite_probabilities, jacobian_factor
from mlogb_core.policies.newton import Learned
from mlogb_core.radius import Progress
from mlogb_core.rivals.logit import LogitOptimist, LogitRadius

# The slope of the loss, which lies between -1 and 1, is found to this accuracy.
_ROOT = 1e-14
_LAST_STEP = 1e-9


@dataclass(frozen=True)
class ECOLogRadius(LogitRadius):
    r"""A valid squared radius of ECOLog, with the range :math:`D_w = 2SD` of the logits.

    .. math:: \beta_{t+1} = \lambda S^2 + (2 + D_w)\Bigl[\ln\frac1\delta
              + \Bigl(D_w + \frac52\Bigr)\ln\det\frac{W_{t+1}}\lambda\Bigr]

    Notes
    -----
    Derived for this project, since the two public codes disagree on the constants of the paper. It needs
    :math:`\lambda \ge \frac{32}7d(2 + D_w)D^2`.
    """

    kind = "ecolog"

    def squared(self, progress: Progress, log_det: float) -> float:
        r""":math:`\beta_{t+1}`."""
        spread = 2.0 * progress.norm_bound * self.feature_bound
        learned = (spread + 2.5) * log_det - math.log(self.confidence)
        return progress.regularization * progress.norm_bound**2 + (2.0 + spread) * learned


class ECOLog(LogitOptimist):
    r"""ECOLog of Faury, Abeille, Jun and Calauzenes (2022), without its warm-up.

    .. math::
       w_{t+1} = \arg\min_{\|w\| \le S}\ \frac1{2 + D_w}\|w - w_t\|_{W_t}^2 + \ell_t(w), \qquad
       W_{t+1} = W_t + \sigma'(w_{t+1}^\top x_t)\,x_tx_t^\top, \\
       x_t = \arg\max_x\ w_t^\top x + \sqrt{\beta_t}\,\|x\|_{W_t^{-1}}, \qquad W_1 = \lambda I

    with :math:`D_w = 2SD` and :math:`\beta_t` from `ECOLogRadius`.

    Parameters
    ----------
    n_features, rewards, norm_bound, confidence, scale, radius, feature_bound, tie_tolerance
        As in `LogitOptimist`, which also says what is refused.
    regularization : float, optional
        :math:`\lambda > 0`; by default :math:`\frac{32}7d(2 + D_w)D^2`, the smallest one that the radius
        admits.

    Notes
    -----
    "Jointly efficient and optimal algorithms for logistic bandits", AISTATS 2022. With the weight
    :math:`c = 2/(2 + D_w)` the minimiser is :math:`w(s)`, the projection of
    :math:`w_t - \frac sc W_t^{-1}x_t` onto the ball in the norm of :math:`W_t`, at the slope
    :math:`s = \sigma(w(s)^\top x_t) - y_t` of the loss. Its logit decreases in s, so that a scalar root
    gives it exactly; the paper iterates to a tolerance, and its code takes the weight 1 in place of c. Where
    the unconstrained minimiser lies in the ball, the root needs one product with :math:`W_t^{-1}`, and
    otherwise some projections. The warm-up of the paper would give :math:`D_w = 1`; it chooses its actions in
    advance, which needs a fixed set of them.
    """

    theory = ECOLogRadius

    def _theory_step_size(self, norm_bound: float, feature_bound: float) -> float:
        return 1.0 + norm_bound * feature_bound  # 1/c

    def _theory_regularization(
        self, n_features: int, step_size: float, norm_bound: float, feature_bound: float
    ) -> float:
        return 32.0 / 7.0 * n_features * (2.0 * step_size) * feature_bound**2

    def _learn(self, action: Array, outcome: int) -> Learned:
        frame = self.curvature.frame(action, self._image_of(action))
        logit, change = float(self.parameter[0] @ action), self.step_size * float(frame.block[0, 0])
        slope = _slope(lambda s: logit - change * s, outcome)
        step_at = cache(partial(self._step, frame))  # The search of a root comes back to its first slopes.
        step = step_at(slope)
        if step.multiplier > 0.0:  # The minimiser of the ball has another slope than the one outside.
            slope = _slope(lambda s: float(step_at(s).parameter[0] @ action), outcome, slope)
            step = step_at(slope)
        new = step.parameter
        factor = jacobian_factor(finite_probabilities(new @ action))
        surplus = self._surplus_of(action, outcome, new, 0.0)
        self.curvature.add(frame, factor)
        return Learned(new, (0.0, 0.0), surplus=surplus)

    def _step(self, frame: Any, slope: float) -> Step:
        """The projection of the step along a slope: the library's step, to whose matrix nothing is added."""
        arguments = np.array([slope]), np.zeros((1, 1)), self.step_size, self.norm_bound
        return self.curvature.newton_step(frame, self.parameter, *arguments)


def _slope(logit_at: Callable[[float], float], outcome: int, guess: float | None = None) -> float:
    r"""The root s of :math:`\sigma(z(s)) - y = s` for a logit z(s) that does not increase in s.

    From a guess the secant method comes first, which evaluates a costly logit less often; when its steps are
    as small as `_LAST_STEP`, its error is far below that. Brent's method, which cannot fail as the root is
    bracketed, follows where the steps do not settle.
    """

    def excess(s: float) -> float:
        z = logit_at(s)
        return float((-expit(-z) if outcome else expit(z)) - s)

    if guess is not None:
        second = guess + excess(guess)
        if second == guess:
            return guess
        found = root_scalar(excess, x0=guess, x1=second, method="secant", xtol=_LAST_STEP, maxiter=8)
        if found.converged:
            return float(found.root)
    lower, upper = (-1.0, 0.0) if outcome else (0.0, 1.0)
    return float(brentq(excess, lower, upper, xtol=_ROOT))
