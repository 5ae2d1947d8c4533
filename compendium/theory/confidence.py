r"""One round of the chain of inequalities that leads to the confidence region, written as an equation.

For a point u of the ball, the distance :math:`\|u - W_t\|_{Z_t}^2` changes in a round by a difference of
losses and a Taylor remainder, minus two amounts that are never negative. `round_terms` computes all of them,
and the other functions bound those that need a bound. Derivation: notebook ``09_confidence_chain``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from compendium.theory.loss import self_concordance
from mlogb_core._validation import (
    as_finite,
    as_matrix,
    as_non_negative,
    as_outcome,
    as_positive,
    as_vector,
)
from mlogb_core.link import jacobian, log_losses, loss_residual, outcome_probabilities, remainder_constant


class RoundTerms(NamedTuple):
    r"""The balance of one round for a point u: drift = regret + remainder - concavity - optimality.

    Attributes
    ----------
    drift : float
        :math:`\|u - W_{+}\|_{Z + \nabla^2\ell(W_{+})}^2 - \|u - W\|_Z^2 + \|W_{+} - W\|_Z^2`.
    regret : float
        :math:`2\eta(\ell(u) - \ell(W_{+}))`.
    remainder : float
        :math:`2\eta\langle\nabla\ell(W_{+}) - \nabla\tilde\ell(W_{+}),\, W_{+} - u\rangle`.
    concavity : float
        :math:`2\eta\bigl(\ell(u) - \ell(W_{+}) - \langle\nabla\ell(W_{+}), u - W_{+}\rangle\bigr)
        - \|u - W_{+}\|_{\nabla^2\ell(W_{+})}^2`.
    optimality : float
        :math:`2\langle\eta\nabla\tilde\ell(W_{+}) + Z(W_{+} - W),\, u - W_{+}\rangle`.
    """

    drift: float
    regret: float
    remainder: float
    concavity: float
    optimality: float


def round_terms(
    hessian: ArrayLike,
    old: ArrayLike,
    new: ArrayLike,
    action: ArrayLike,
    outcome: int,
    point: ArrayLike,
    step_size: float,
) -> RoundTerms:
    r"""The balance of one round, for the surrogate :math:`\tilde\ell` of the loss at W.

    .. math:: \nabla\tilde\ell(W_{+}) = \nabla\ell(W) + \nabla^2\ell(W)\,(W_{+} - W)

    Parameters
    ----------
    hessian : (Kd, Kd) array
        Z, symmetric.
    old, new : (K, d) array
        W and :math:`W_{+}`. The balance holds for any two; the last two terms are at least 0 where
        :math:`W_{+}` is the projected Newton step, :math:`2\eta \ge \alpha`, and u is in the ball.
    action : (d,) array
        x.
    outcome : int
        y in 0..K.
    point : (K, d) array
        u.
    step_size : float
        :math:`\eta > 0`.

    Returns
    -------
    RoundTerms

    Raises
    ------
    ValueError
        If an argument has the wrong shape, is not finite or out of range.

    Notes
    -----
    Paper: `ineq:ps-cr-range`, multiplied by 2. Its two inequalities drop the terms `concavity` and
    `optimality`.
    """
    old = as_finite("old", old)
    if old.ndim != 2:
        raise ValueError(f"old must have shape (K, d), got {old.shape}")
    K, d = old.shape
    new, point = as_matrix("new", new, (K, d)), as_matrix("point", point, (K, d))
    Z, x = as_matrix("hessian", hessian, (K * d, K * d)), as_vector("action", action, d)
    eta, y = as_positive("step_size", step_size), as_outcome(outcome, K)
    logits = np.stack((old @ x, new @ x, point @ x))
    probabilities, losses = outcome_probabilities(logits[:2]), log_losses(logits[1:])[:, y]
    before, after = jacobian(probabilities)
    residual = loss_residual(probabilities[1], y)
    step, away = new - old, point - new
    slope_change = residual - loss_residual(probabilities[0], y) - before @ (step @ x)
    ahead, far, start, moved = away @ x, away.ravel(), (point - old).ravel(), step.ravel()
    seen = float(ahead @ after @ ahead)
    regret = 2.0 * eta * float(losses[1] - losses[0])
    return RoundTerms(
        drift=seen + float(far @ Z @ far - start @ Z @ start + moved @ Z @ moved),
        regret=regret,
        remainder=-2.0 * eta * float(slope_change @ ahead),
        concavity=regret - 2.0 * eta * float(residual @ ahead) - seen,
        optimality=2.0 * eta * float((residual - slope_change) @ ahead) + 2.0 * float(moved @ Z @ far),
    )


def remainder_bound(n_outcomes: int, norm_bound: float, action_bound: float = 1.0) -> float:
    r"""Coefficient of :math:`\|(W_{+} - W)x\|_2^2` in the bound of the Taylor remainder.

    .. math:: \langle\nabla\ell(W_{+}) - \nabla\tilde\ell(W_{+}),\, W_{+} - u\rangle
              \le \gamma_KM_K S D\, \|(W_{+} - W)x\|_2^2

    Parameters
    ----------
    n_outcomes : int
        K.
    norm_bound, action_bound : float
        S, the radius of the ball with :math:`W_{+}` and u, and D.

    Returns
    -------
    float

    Notes
    -----
    Paper: the proof of `thm:confidence-region` has :math:`\sqrt6 L S`, without D. That is larger, hence
    valid, for D up to :math:`\sqrt6 L/\gamma_KM_K`, which is 6.36 for K = 1 and 4.5 for K >= 2.

    Examples
    --------
    >>> round(remainder_bound(1, norm_bound=1.0), 4)
    0.0962
    """
    S, D = as_positive("norm_bound", norm_bound), as_positive("action_bound", action_bound)
    return remainder_constant(n_outcomes) * S * D


def residual_bound(n_outcomes: int) -> float:
    r"""The supremum of :math:`\|\sigma - \mathbf{y}\|_2`: 1 for K = 1, :math:`\sqrt2` for K >= 2.

    Parameters
    ----------
    n_outcomes : int
        K >= 1.

    Returns
    -------
    float

    Notes
    -----
    Paper: 2, in the proof of `lem:omd-wt-wt-1-bound`. It is the constant :math:`M_K` of self-concordance.
    """
    return self_concordance(n_outcomes)


def step_bound(n_outcomes: int, step_size: float, regularization: float, action_bound: float = 1.0) -> float:
    r"""Bound of the length of a step, :math:`\|W_{t+1} - W_t\|_{Z_t} \le \eta\,M_K D/\sqrt\lambda`.

    Parameters
    ----------
    n_outcomes : int
        K.
    step_size, regularization, action_bound : float
        :math:`\eta`, :math:`\lambda` and D.

    Returns
    -------
    float
        A bound of the norm, not of its square; :math:`M_K` is `residual_bound`.

    Notes
    -----
    Paper: `lem:omd-wt-wt-1-bound` states :math:`2\eta D/\sqrt\lambda` for the square.

    Examples
    --------
    >>> step_bound(1, step_size=400.0, regularization=400.0)
    20.0
    """
    lam, D = as_positive("regularization", regularization), as_positive("action_bound", action_bound)
    return as_positive("step_size", step_size) * residual_bound(n_outcomes) * D / math.sqrt(lam)


def cancelling_regularization(
    n_outcomes: int, step_size: float, norm_bound: float, action_bound: float = 1.0, *, precision: float
) -> float:
    r"""The smallest :math:`\lambda` for which the movement terms of the radius add up to at most 0.

    .. math:: \eta c\,\|\Xi_s\|_{Z_s}^2 + 2\eta\gamma_KM_K SD\,\|\Xi_s x_s\|_2^2
              - \|\Xi_s\|_{Z_s}^2 \le 0, \qquad
              \lambda = \frac{2\eta\gamma_KM_K SD^3}{1 - \eta c}

    Parameters
    ----------
    n_outcomes : int
        K.
    step_size, norm_bound, action_bound : float
        :math:`\eta`, S and D.
    precision : float
        The precision c of the mixture that bounds the loss, with :math:`0 \le \eta c < 1`. The paper's is
        :math:`24Kd/\lambda`, which is at most :math:`1/(2\eta)` in the theorem.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If :math:`\eta c \ge 1` or an argument is out of range.

    Notes
    -----
    Paper: the condition :math:`\lambda \ge 2\eta\cdot2\sqrt6\,SLD^2` of `thm:confidence-region` has this
    role for :math:`c = 1/(2\eta)`; a factor D is missing in it.
    """
    eta = as_positive("step_size", step_size)
    share = eta * as_non_negative("precision", precision)
    if not share < 1.0:
        raise ValueError(f"precision must be below 1/step_size = {1.0 / eta:.3g}, got {precision}")
    coefficient = remainder_bound(n_outcomes, norm_bound, action_bound)
    return 2.0 * eta * coefficient * float(np.square(action_bound)) / (1.0 - share)
