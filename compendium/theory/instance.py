r"""The regret on the instance at hand, for any number of outcomes: small where rewards hardly vary.

The slope of the optimistic bonus is the standard deviation of the reward of the played action. It changes
slowly with the logits (`deviation_change_bound`), and the variance of a reward between 0 and
:math:`\omega(r)` is at most its mean times what the mean lacks to :math:`\omega(r)`. So the regret bounds its
own leading term, as in the binary case. Derivation: notebook ``19_instance_rate``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from compendium.theory.loss import self_concordance
from compendium.theory.reward import ROOT_SLOPE_BOUND, curvature_constant, reward_spread, self_bounding
from mlogb_core._validation import Array, as_finite, as_non_negative, as_rewards
from mlogb_core.link import jacobian


class InstanceTerms(NamedTuple):
    """The four terms of a bound of the regret of each of n rounds.

    Attributes
    ----------
    slope, cross, change, curvature : (n,) array
        Deviation of the reward at the true parameter; its change to the new parameter; change of the bonus
        in the step of the round; second-order part of the bonus.
    """

    slope: Array
    cross: Array
    change: Array
    curvature: Array

    @property
    def total(self) -> Array:
        """Their sum, the bound of a round's regret."""
        return np.asarray(self.slope + self.cross + self.change + self.curvature)


def reward_deviation(probabilities: ArrayLike, rewards: ArrayLike) -> Array:
    r"""Standard deviation of the reward, :math:`\sqrt{r^\top\nabla\sigma\,r}`.

    Parameters
    ----------
    probabilities : (..., K+1) array
        Probabilities of the outcomes 0..K, as `outcome_probabilities` returns them.
    rewards : (K,) array
        Rewards of the outcomes 1..K.

    Returns
    -------
    (...) array
        In [0, :math:`\omega(r)/2`].
    """
    r = as_finite("rewards", rewards)
    square = np.einsum("i,...ij,j->...", r, jacobian(as_finite("probabilities", probabilities)), r)
    return np.asarray(np.sqrt(np.maximum(square, 0.0)))


def excess_bound(below: float, deviation: float) -> float:
    r"""Bound of :math:`\mathbb E(\mathsf V^2 - s^2)_+` for a centred variable in an interval of length 1.

    With :math:`s` the deviation, the interval :math:`[-l, a]`, :math:`a = 1 - l \ge l` and
    :math:`g = al + s^2`,

    .. math:: s^2\,\frac{a^2 - s^2}{a^2 + s^2} \quad (l \le s), \qquad
              \frac{2(g - 2s^2)\,s^2}{g + \sqrt{g^2 - s^2}} \quad (l > s).

    Parameters
    ----------
    below : float
        l, the length of the interval below the mean, in [0, 1]; it may be exchanged with 1 - l.
    deviation : float
        :math:`s \ge 0` with :math:`s^2 \le l(1-l)`, as every variable in the interval has it.

    Returns
    -------
    float
        At most s/4.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Not in the paper. It is the value of a parabola that lies above the function and whose mean is known. The
    first form is attained by two points where :math:`s^2 = l(1-l)`.

    Examples
    --------
    >>> round(excess_bound(0.25, 0.25), 4), round(excess_bound(0.5, 0.25), 4)
    (0.05, 0.0469)
    """
    low, s = as_non_negative("below", below), as_non_negative("deviation", deviation)
    if low > 1.0:
        raise ValueError(f"below must be at most 1, got {below}")
    low = min(low, 1.0 - low)
    high, square = 1.0 - low, s * s
    if square > low * high * (1.0 + 1e-12):
        raise ValueError(f"deviation must be at most {math.sqrt(low * high):.6g} for below={below}, got {s}")
    if low <= s:
        return max(square * (high * high - square) / (high * high + square), 0.0)
    g = high * low + square
    return 2.0 * (g - 2.0 * square) * square / (g + math.sqrt(max(g * g - square, 0.0)))


def deviation_change_bound(rewards: ArrayLike, change: ArrayLike) -> float:
    r"""Bound of the change of the reward's deviation when the logits change by h.

    .. math:: \Bigl|\sqrt{r^\top\nabla\sigma(z + h)\,r} - \sqrt{r^\top\nabla\sigma(z)\,r}\Bigr|
              \le \tfrac18\,\omega(r)\,\omega(h)

    Parameters
    ----------
    rewards, change : (K,) array
        r and h; both have the entry 0 for outcome 0.

    Returns
    -------
    float

    Notes
    -----
    Not in the paper, which has K = 1 alone. The constant 1/8 is attained in the limit of small h, for every
    K, where two outcomes share all probability.

    Examples
    --------
    >>> deviation_change_bound([1.0, 0.5], [2.0, -1.0])
    0.375
    """
    return ROOT_SLOPE_BOUND * reward_spread(rewards) * reward_spread(change)


def instance_terms(
    rewards: ArrayLike,
    deviations: ArrayLike,
    radii: ArrayLike,
    new_radii: ArrayLike,
    traces: ArrayLike,
    norms: ArrayLike,
    new_norms: ArrayLike,
    steps: ArrayLike,
    *,
    sharp: bool = False,
) -> InstanceTerms:
    r"""Bound of the regret of each round, with the deviation at the true parameter in its first term.

    .. math:: 2\sqrt{\beta_t}\,\mathrm{sd}_t\sqrt{\operatorname{tr}(J_t^+A_t)}
              + \tfrac14 M_K\omega(r)\sqrt{\beta_t\beta_{t+1}\,\|A_t'\|_2\operatorname{tr}(J_t^+A_t)}
              + 2\gamma_K\omega(r)\sqrt{\beta_t}\,\|A_t\|_2\,\|\Xi_t\|_{Z_t} + c\,\beta_t\|A_t\|_2

    with :math:`A_t' = X_t^\top Z_{t+1}^{-1}X_t`, and :math:`c = \|r\|_1`, or
    :math:`c = \gamma_K\omega(r)` where `sharp`.

    Parameters
    ----------
    rewards : (K,) array
        Rewards >= 0.
    deviations : (n,) array
        :math:`\mathrm{sd}_t`, the reward's deviation at :math:`W_*x_t`.
    radii, new_radii : (n,) array
        :math:`\beta_t` and :math:`\beta_{t+1}`, which bound the squared errors before and after the round.
    traces, norms, new_norms : (n,) array
        :math:`\operatorname{tr}(J_t^+A_t)`, :math:`\|A_t\|_2` and :math:`\|A_t'\|_2`.
    steps : (n,) array
        :math:`\|W_{t+1} - W_t\|_{Z_t}`.
    sharp : bool
        Whether the policy has the sharp bonus, as in `reward_bonus`.

    Returns
    -------
    InstanceTerms

    Raises
    ------
    ValueError
        If the arrays differ in shape or a value is negative.

    Notes
    -----
    Not in the paper. For K = 1 with the rule of the binary case see `reward.binary_terms`.
    """
    r = as_rewards(rewards)
    given = {"deviations": deviations, "radii": radii, "new_radii": new_radii, "traces": traces}
    given |= {"norms": norms, "new_norms": new_norms, "steps": steps}
    arrays = [as_finite(name, value) for name, value in given.items()]
    for name, array in zip(given, arrays, strict=True):
        if array.shape != arrays[0].shape:
            raise ValueError(
                f"{name} must have the shape of deviations, {arrays[0].shape}, got {array.shape}"
            )
        if (array < 0.0).any():
            raise ValueError(f"{name} must be at least 0, got {array.min()}")
    deviation, beta, new_beta, trace, norm, new_norm, step = arrays
    spread, bend = reward_spread(r), curvature_constant(r.size) * reward_spread(r)
    mixed = 2.0 * ROOT_SLOPE_BOUND * self_concordance(r.size) * spread
    return InstanceTerms(
        2.0 * deviation * np.sqrt(beta * trace),
        mixed * np.sqrt(beta * new_beta * new_norm * trace),
        2.0 * bend * np.sqrt(beta) * norm * step,
        (bend if sharp else float(r.sum())) * beta * norm,
    )


def instance_regret_bound(
    rewards: ArrayLike,
    headroom: float,
    *,
    beta: float,
    trace: float,
    norm: float,
    new_norm: float,
    step: float,
    sharp: bool = False,
) -> float:
    r"""Bound of the regret by the headroom of the best actions, for any K.

    With :math:`\Sigma_* = \sum_t\bar r_{*,t}(\omega(r) - \bar r_{*,t})` the regret is at most the largest R
    with

    .. math:: R \le 2\sqrt{\beta\mathcal T}\,\sqrt{\omega(r)R + \Sigma_*} + a_0, \qquad
              a_0 = \tfrac14 M_K\omega(r)\beta\sqrt{\mathcal T\mathcal A'}
              + \bigl(2\gamma_K\omega(r)\,\bar\xi\sqrt\beta + c\,\beta\bigr)\mathcal A .

    Parameters
    ----------
    rewards : (K,) array
        Rewards >= 0, not all 0.
    headroom : float
        :math:`\Sigma_*`, with the expected rewards :math:`\bar r_{*,t}` of the best actions.
    beta : float
        A bound of all :math:`\beta_t`, t <= T + 1.
    trace, norm, new_norm : float
        :math:`\mathcal T`, :math:`\mathcal A` and :math:`\mathcal A'`: the sums over the rounds of the
        quantities of `instance_terms`.
    step : float
        :math:`\bar\xi`, the longest step in the norm of :math:`Z_t`.
    sharp : bool
        Whether the policy has the sharp bonus.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Not in the paper. Its order is :math:`\sqrt{\beta\mathcal T\Sigma_*} + \kappa\beta\mathcal T`.
    """
    r = as_rewards(rewards)
    spread = reward_spread(r)
    if spread == 0.0:
        raise ValueError("rewards must not all be 0")
    beta, trace = as_non_negative("beta", beta), as_non_negative("trace", trace)
    norm, new_norm = as_non_negative("norm", norm), as_non_negative("new_norm", new_norm)
    bend = curvature_constant(r.size) * spread
    cross = 2.0 * ROOT_SLOPE_BOUND * self_concordance(r.size) * spread * beta * math.sqrt(trace * new_norm)
    change = 2.0 * bend * as_non_negative("step", step) * math.sqrt(beta) * norm
    rest = cross + change + (bend if sharp else float(r.sum())) * beta * norm
    slack = as_non_negative("headroom", headroom) / spread
    return self_bounding(2.0 * math.sqrt(beta * trace * spread), rest, slack)
