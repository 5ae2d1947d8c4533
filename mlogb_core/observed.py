r"""The terms of the confidence theorem's proof that a player can compute after a round.

The proof compares the loss of the true parameter with that of the iterates. Let a forecast :math:`q_s` be
made before the outcome. The product of :math:`q_s(y_s)/\sigma_{y_s}(W_\star x_s)` over the rounds is a
martingale, so that by Ville's inequality the loss of the forecast may stand for that of the true parameter,
up to :math:`\ln(1/\delta)`. All else is known to the player: how much better the new iterate predicts the
outcome than the forecast did, what the step's Taylor expansion left out, and how far the step went.
`round_surplus` adds this up. A forecast is better the smaller that sum becomes; `normalised_forecast` makes
it the same for all outcomes. Derivation: notebook ``21_usable_radius``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mlogb_core._validation import Array
from mlogb_core.link import jacobian, log_loss, log_losses, outcome_probabilities, remainder_constant


class PlayedRound(NamedTuple):
    r"""A round as the radius sees it.

    Attributes
    ----------
    before, after : (K,) array
        The logits :math:`W_s x_s` and :math:`W_{s+1} x_s`.
    outcome : int
        y in 0..K.
    block : (K, K) array
        :math:`A_s = (I \otimes x_s)^\top Z_s^{-1} (I \otimes x_s)`, before the round's Hessian is added.
    length : float
        :math:`\|x_s\|_2`.
    hessian_movement : float
        :math:`\|W_{s+1} - W_s\|_{Z_s}^2`; 0 for a rule that needs no movement.
    step_size, norm_bound : float
        :math:`\eta` and S.
    """

    before: Array
    after: Array
    outcome: int
    block: Array
    length: float
    hessian_movement: float
    step_size: float
    norm_bound: float


def observed_remainder(before: Array, after: Array, length: float, norm_bound: float) -> Array:
    r"""Bound of the Taylor remainder of a step, for every point of the ball, from what the step did.

    .. math:: \hat R = g^\top z_{+} + S\,\|x\|\,\|g\|, \qquad
              g = \sigma(z_{+}) - \sigma(z) - \nabla\sigma(z)\,(z_{+} - z)

    Parameters
    ----------
    before : (K,) array
        The logits z before the step.
    after : (..., K) array
        The logits :math:`z_{+}` after it, or after each of several steps.
    length, norm_bound : float
        :math:`\|x\|` and S.

    Returns
    -------
    (...) array
        Where :math:`\|z_{+}\| \le S\|x\|` it is at least 0 and at most
        :math:`\gamma_KM_KS\|x\|\,\|z_{+} - z\|^2`.

    Notes
    -----
    Paper: takes the place of :math:`\sqrt6\,LS\|(W_{s+1} - W_s)x_s\|^2` in `ineq:ps-cr-range-sum`. The
    remainder itself is :math:`g^\top(W_{s+1} - W_\star)x_s`.
    """
    start = outcome_probabilities(before)
    change = outcome_probabilities(after)[..., 1:] - start[1:] - (after - before) @ jacobian(start)
    lengths = np.sqrt(np.vecdot(change, change))
    return np.asarray(np.vecdot(change, after) + norm_bound * length * lengths)


def normalised_forecast(
    before: Array, block: Array, length: float, step_size: float, norm_bound: float
) -> Array:
    r"""The forecast for which the round's surplus is the same for all outcomes: the least for the worst one.

    .. math:: q(y) \propto \exp\Bigl(\ln\sigma_y(z_y) + \hat R_y - \frac{\|\Xi_y\|_Z^2}{2\eta}\Bigr), \qquad
              z_y = z - \eta A v_y, \quad \|\Xi_y\|_Z^2 = \eta^2 v_y^\top A v_y, \quad
              v_y = (I + \eta\nabla\sigma(z) A)^{-1} (\sigma(z) - \mathbf{y})

    Parameters
    ----------
    before : (K,) array
        The logits z before the round.
    block : (K, K) array
        A.
    length, step_size, norm_bound : float
        :math:`\|x\|`, :math:`\eta` and S.

    Returns
    -------
    (K+1,) array
        Logarithms of the probabilities, reference first.

    Notes
    -----
    :math:`z_y` are the logits that the step for the outcome y would reach without the projection. Where the
    projection acts, the surplus differs between outcomes; the forecast is then as valid as any other.
    """
    p = outcome_probabilities(before)
    residuals = p[1:] - np.eye(p.size)[:, 1:]  # row y: the gradient in the logits if y is the outcome
    weights = np.linalg.solve(np.eye(before.size) + step_size * jacobian(p) @ block, residuals.T).T
    images = weights @ block
    after = before - step_size * images
    exponents = -log_losses(after).diagonal()
    exponents += observed_remainder(before, after, length, norm_bound)
    exponents -= 0.5 * step_size * np.vecdot(weights, images)
    largest = exponents.max()
    return np.asarray(exponents - largest - math.log(np.exp(exponents - largest).sum()))


def round_surplus(played: PlayedRound, log_forecast: ArrayLike) -> float:
    r"""What a round adds to the squared radius under a forecast.

    .. math:: 2\eta\ln\frac{\sigma_y(W_{s+1}x_s)}{q_s(y)} + 2\eta\hat R_s - \|W_{s+1} - W_s\|_{Z_s}^2

    Parameters
    ----------
    played : PlayedRound
        The round.
    log_forecast : (K+1,) array
        :math:`\ln q_s`, made before the outcome was known.

    Returns
    -------
    float
        May be negative.
    """
    gained = -log_loss(played.after, played.outcome) - float(np.asarray(log_forecast)[played.outcome])
    left_out = float(observed_remainder(played.before, played.after, played.length, played.norm_bound))
    return 2.0 * played.step_size * (gained + left_out) - played.hessian_movement


def mixture_precision(played: PlayedRound) -> float:
    r"""The precision c of the mixture whose movement the step pays for, known before the outcome.

    .. math:: c = \frac1\eta\max\bigl\{1 - 2\eta\gamma_KM_KS\,\|x\|\,\|A\|_2,\ \tfrac12\bigr\}

    Parameters
    ----------
    played : PlayedRound
        The round; its outcome and what follows from it are not used.

    Returns
    -------
    float
    """
    bend = remainder_constant(played.before.size) * played.norm_bound * played.length
    share = 2.0 * played.step_size * bend * float(np.linalg.eigvalsh(played.block)[-1])
    return max(1.0 - share, 0.5) / played.step_size


def log_det_surplus(played: PlayedRound, precision: float, slope: float) -> float:
    r"""A bound of `round_surplus` under the Gaussian mixture of precision c, from a determinant.

    .. math:: \eta\ln\det\Bigl(I + \frac{\chi}{c}\nabla\sigma(W_{s+1}x_s)\,A_s\Bigr) + 2\eta\hat R_s
              - (1 - \eta c)\,\|W_{s+1} - W_s\|_{Z_s}^2

    Parameters
    ----------
    played : PlayedRound
        The round.
    precision, slope : float
        c and :math:`\chi = (e^v - 1)/v` at :math:`v = 2L\|A_s\|_2/c`.

    Returns
    -------
    float
    """
    eta = played.step_size
    seen = jacobian(outcome_probabilities(played.after)) @ played.block
    volume = float(np.linalg.slogdet(np.eye(len(seen)) + slope / precision * seen)[1])
    left_out = float(observed_remainder(played.before, played.after, played.length, played.norm_bound))
    return eta * volume + 2.0 * eta * left_out - (1.0 - eta * precision) * played.hessian_movement
