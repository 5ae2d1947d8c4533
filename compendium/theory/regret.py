r"""From bounds of single rounds to the regret: the terms of the bound, and the horizon at which it is useful.

Under optimism the regret is at most twice the sum of the bonuses. In their first-order parts the slope is
replaced by that at the parameter after the update, since the sketch contains the Hessian there. Three terms
result, each a power of the radius times a self-normalised sum. Derivation: notebook ``14_rates``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from compendium.theory.confidence import step_bound
from compendium.theory.reward import (
    BEND_BOUND,
    ROOT_SLOPE_BOUND,
    curvature_constant,
    reward_spread,
    self_bounding,
)
from compendium.theory.self_normalised import (
    Stream,
    sharp_sum_bound,
    sharp_uncertainty_sum_bound,
    sketched_sum_bound,
    uncertainty_sum_bound,
)
from mlogb_core._validation import as_non_negative, as_positive, as_rewards
from mlogb_core.link import smoothness
from mlogb_core.radius import Progress, TheoremRadius

_LONGEST = 1e18


def radius_bound_terms(
    stream: Stream, *, step_size: float, norm_bound: float, confidence: float, sharp: bool = False
) -> dict[str, float]:
    r"""Terms of a bound of :math:`\beta_1, \dots, \beta_T` that is known before the first round.

    They are the terms of `TheoremRadius` after T - 1 updates, without the two movement terms. These add up to
    at most 0 if

    .. math:: \lambda \ge 24\eta Kd + 2\sqrt6\,\eta LSD^2 .

    Parameters
    ----------
    stream : Stream
        T rounds and their shrinkage, or an upper bound of it.
    step_size, norm_bound : float
        :math:`\eta` and S.
    confidence : float
        :math:`\delta \in (0, 1)`.
    sharp : bool
        Whether `sharp_sum_bound` replaces the paper's sum in the sketch term.

    Returns
    -------
    dict
        Keys `ridge`, `martingale`, `smoothing`, `sketch`, all >= 0; their sum is the bound.

    Raises
    ------
    ValueError
        If :math:`\lambda` is below that threshold, or an argument is out of range.

    Notes
    -----
    Paper: `eq:cr-beta`. The proof of the regret bound uses the last radius for all rounds. The movement terms
    can make the radius decrease, but this bound of it does not.
    """
    eta, S = as_positive("step_size", step_size), as_positive("norm_bound", norm_bound)
    K, n, lam = stream.n_outcomes, stream.n_parameters, stream.regularization
    least = eta * (24.0 * n + 2.0 * math.sqrt(6.0) * smoothness(K) * S * stream.action_bound**2)
    if lam < least * (1.0 - 1e-12):
        raise ValueError(
            f"regularization must be at least {least:.6g} for this step size, got {lam:.6g}: "
            "below it the movements may enlarge the radius"
        )
    m = min(stream.sketch_size, n)
    rounds = max(stream.n_rounds - 1, 0)
    progress = Progress(K, stream.n_features, m, lam, eta, S, rounds=rounds, shrinkage=stream.shrinkage)
    terms = TheoremRadius(confidence, stream.action_bound).terms(progress)
    if sharp:
        terms["sketch"] = math.sqrt(6.0) * eta * lam / (12.0 * n) * sharp_sum_bound(stream)
    return {name: terms[name] for name in ("ridge", "martingale", "smoothing", "sketch")}


def movement_bound(stream: Stream, step_size: float, *, sharp: bool = False) -> float:
    r"""Bound of :math:`\|W_{t+1} - W_t\|_{Z_t}`, the length of one step.

    .. math:: \frac{2\eta D}{\sqrt\lambda}, \qquad
              \frac{M_K\,\eta D}{\sqrt\lambda}, \quad M_1 = 1, \ M_K = \sqrt2 \ (K \ge 2)

    Parameters
    ----------
    stream : Stream
        For K, :math:`\lambda` and D.
    step_size : float
        :math:`\eta > 0`.
    sharp : bool
        Whether the second form, `confidence.step_bound`, replaces the paper's.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If the step size is not positive.

    Notes
    -----
    Paper: `lem:omd-wt-wt-1-bound`, which states the first form for the square of the norm.
    """
    D, lam = stream.action_bound, stream.regularization
    if sharp:
        return step_bound(stream.n_outcomes, step_size, lam, D)
    return 2.0 * as_positive("step_size", step_size) * D / math.sqrt(lam)


def regret_terms(
    stream: Stream,
    rewards: ArrayLike,
    *,
    beta: float,
    step_size: float,
    kappa: float = math.nan,
    trace: float | None = None,
    uncertainty: float | None = None,
    sharp: bool = False,
) -> dict[str, float]:
    r"""Terms of the bound of the regret of optimism over a sketch.

    With :math:`\mathcal T = \sum_t\operatorname{tr}(\nabla^2\ell_t(W_{t+1})\,Z_t^{-1})` and
    :math:`\mathcal U = \sum_t\operatorname{tr}((I \otimes x_tx_t^\top)\,Z_t^{-1})` the paper's are

    .. math:: 2\|r\|_2\sqrt{\beta T\mathcal T}, \qquad
              \frac{4\eta D}{\sqrt\lambda}\|r\|_1\sqrt\beta\,\mathcal U, \qquad
              \|r\|_1\,\beta\,\mathcal U,

    and the sharp ones

    .. math:: \omega(r)\sqrt{\beta T\mathcal T}, \qquad
              \frac{2M_K\eta D}{\sqrt\lambda}\gamma_K\,\omega(r)\sqrt\beta\,\mathcal U, \qquad
              \gamma_K\,\omega(r)\,\beta\,\mathcal U .

    Parameters
    ----------
    stream : Stream
        T rounds.
    rewards : (K,) array
        Rewards >= 0.
    beta : float
        A bound of all :math:`\beta_t`, t <= T.
    step_size : float
        :math:`\eta`.
    kappa : float, optional
        :math:`\kappa`; not needed if `uncertainty` is given.
    trace, uncertainty : float, optional
        :math:`\mathcal T` and :math:`\mathcal U` if they were recorded. The default are their bounds: the
        paper's or, if `sharp`, `sharp_sum_bound` and `sharp_uncertainty_sum_bound`.
    sharp : bool
        Whether all constants are the sharp ones. The bound then holds for the policy with the sharp bonus,
        `reward_bonus(..., sharp=True)`.

    Returns
    -------
    dict
        Keys `slope`, `change`, `curvature`. Half of the first two together bounds the sum of the
        first-order parts of the bonuses, half of the third that of the second-order parts.

    Raises
    ------
    ValueError
        If an argument is out of range, or neither kappa nor the uncertainty is given.

    Notes
    -----
    Paper: `ineq:regret-dfst-bound`, `ineq:regret-dsnd-bound` and the lines after them, where :math:`\|r\|_1`
    is bounded by :math:`\sqrt K R`. In :math:`\mathcal U` the largest eigenvalue of :math:`A(x_t)` may
    replace its trace.
    """
    r = as_rewards(rewards)
    if r.size != stream.n_outcomes:
        raise ValueError(f"rewards must have shape ({stream.n_outcomes},), got {r.shape}")
    beta = as_non_negative("beta", beta)
    if trace is None:
        trace = sharp_sum_bound(stream) if sharp else sketched_sum_bound(stream)
    if uncertainty is None:
        bound = sharp_uncertainty_sum_bound if sharp else uncertainty_sum_bound
        uncertainty = bound(stream, kappa)
    trace, uncertainty = as_non_negative("trace", trace), as_non_negative("uncertainty", uncertainty)
    spread = reward_spread(r)
    slope = spread if sharp else 2.0 * float(np.linalg.norm(r))
    bend = curvature_constant(r.size) * spread if sharp else float(r.sum())
    step = movement_bound(stream, step_size, sharp=sharp)
    return {
        "slope": slope * math.sqrt(beta * stream.n_rounds * trace),
        "change": 2.0 * step * bend * math.sqrt(beta) * uncertainty,
        "curvature": bend * beta * uncertainty,
    }


def binary_regret_bound(stream: Stream, *, beta: float, kappa: float, sharp: bool = False) -> float:
    r"""Bound of the regret for K = 1 that does not depend on the best actions.

    .. math:: R \le a\sqrt{R + T/4} + b, \qquad a = 2\sqrt{\beta\mathcal T}, \qquad
              b = \tfrac18\beta\sqrt{\mathcal U\mathcal U'} + 2\gamma_1\beta\mathcal U

    Parameters
    ----------
    stream : Stream
        T rounds with K = 1.
    beta : float
        A bound of all :math:`\beta_t`, t <= T + 1.
    kappa : float
        :math:`\kappa`.
    sharp : bool
        Whether the sharp bounds of the sums replace the paper's.

    Returns
    -------
    float
        The largest R.

    Raises
    ------
    ValueError
        If K is not 1 or an argument is out of range.

    Notes
    -----
    Paper: `prop:regret-k-eq-1`, as proved in notebook ``13_binary``, with the largest slope 1/4 at the best
    actions. :math:`\mathcal U'` is :math:`\mathcal U` with :math:`Z_{t+1}` in place of :math:`Z_t`.
    """
    if stream.n_outcomes != 1:
        raise ValueError(f"n_outcomes must be 1, got {stream.n_outcomes}")
    beta = as_non_negative("beta", beta)
    trace = sharp_sum_bound(stream) if sharp else sketched_sum_bound(stream)
    bound = sharp_uncertainty_sum_bound if sharp else uncertainty_sum_bound
    before, after = bound(stream, kappa), bound(stream, kappa, updated=True)
    rest = beta * (ROOT_SLOPE_BOUND * math.sqrt(before * after) + 2.0 * BEND_BOUND * before)
    return self_bounding(2.0 * math.sqrt(beta * trace), rest, stream.n_rounds / 4.0)


def first_useful_horizon(bound: Callable[[int], float], largest_reward: float) -> float:
    r"""The horizon T from which a bound of the regret is below the trivial bound, T times the largest reward.

    Parameters
    ----------
    bound : callable
        The bound as a function of T; bound(T)/T must decrease where it exceeds the largest reward.
    largest_reward : float
        The most that a round can lose.

    Returns
    -------
    float
        To a relative accuracy of 1e-6; infinity if it is above 1e18.
    """
    most = as_positive("largest_reward", largest_reward)

    def useful(exponent: float) -> bool:
        horizon = math.ceil(math.exp(exponent))
        return bound(horizon) < most * horizon

    low, high = 0.0, math.log(_LONGEST)
    if useful(low):
        return 1.0
    if not useful(high):
        return math.inf
    while high - low > 1e-6:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if useful(middle) else (middle, high)
    return float(math.ceil(math.exp(high)))
