r"""A confidence radius that a player can compute: its step size, forecasts, bound, and what it replaces.

The radius itself is `mlogb_core.radius.ObservedRadius`, and what a round adds to it is in
`mlogb_core.observed`. Here stand the step size that it needs, forecasts that no policy uses, the bound that
is known before a game, and another radius with determinants, which it is compared with. Derivation:
notebook ``21_usable_radius``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from compendium.theory.loss import best_exp_concavity, self_concordance, surprisal_bound, taylor_factor
from compendium.theory.mixture import expected_probabilities
from compendium.theory.self_normalised import Stream, log_det_sum_bound
from mlogb_core._validation import Array, as_non_negative, as_positive, as_probability
from mlogb_core.link import outcome_probabilities, remainder_constant, smoothness
from mlogb_core.observed import PlayedRound
from mlogb_core.radius import exponential_slope


class Threshold(NamedTuple):
    r"""The smallest parameters that a theorem admits: :math:`\lambda` and :math:`\eta`."""

    regularization: float
    step_size: float


def smallest_step_size(n_outcomes: int, norm_bound: float, action_bound: float = 1.0) -> float:
    r"""The smallest step size for which the concavity of a round is known to be at least 0.

    .. math:: \eta_* = \tfrac12\min\Bigl\{\alpha_*,\ \frac1{g(-2M_KSD)}\Bigr\}, \qquad
              g(x) = \frac{e^x - x - 1}{x^2}

    with the best constant :math:`\alpha_*` of exp-concavity where one of two points is in the ball, and the
    constant of self-concordance, which needs both of them there.

    Parameters
    ----------
    n_outcomes : int
        K.
    norm_bound, action_bound : float
        S and D.

    Returns
    -------
    float

    Notes
    -----
    The one condition of `ObservedRadius`. The second constant is the smaller one for many outcomes in a small
    ball. Paper: :math:`\eta = 1 + SD + \frac12\ln(K+1)`.

    Examples
    --------
    >>> round(smallest_step_size(1, 1.0), 3)  # 2.347 in the paper
    1.055
    >>> round(smallest_step_size(100, 0.1), 3)  # 3.408 in the paper
    1.096
    """
    logits = as_positive("norm_bound", norm_bound) * as_positive("action_bound", action_bound)
    both = 1.0 / float(taylor_factor(-2.0 * self_concordance(n_outcomes) * logits))
    return 0.5 * min(best_exp_concavity(surprisal_bound(n_outcomes, logits)), both)


def gaussian_forecast(played: PlayedRound, precision: float, n_nodes: int = 40) -> Array:
    r"""Logarithms of the mixture's probabilities :math:`\mathbb{E}\,\sigma_y(z + u)`, u of covariance A/c.

    Parameters
    ----------
    played : PlayedRound
        The round; K at most 3.
    precision : float
        c > 0.
    n_nodes : int
        Nodes of the quadrature, for each dimension.

    Returns
    -------
    (K+1,) array
    """
    covariance = played.block / as_positive("precision", precision)
    return np.asarray(np.log(expected_probabilities(played.before, covariance, n_nodes)))


def smoothed_forecast(played: PlayedRound, share: float) -> Array:
    r"""Logarithms of :math:`(1 - \varepsilon)\sigma(W_sx_s) + \frac\varepsilon{K+1}`, the smoothed plug-in.

    Parameters
    ----------
    played : PlayedRound
        The round.
    share : float
        :math:`\varepsilon \in (0, 1)`.

    Returns
    -------
    (K+1,) array
    """
    p, epsilon = outcome_probabilities(played.before), as_probability("share", share)
    return np.asarray(np.log((1.0 - epsilon) * p + epsilon / p.size))


def log_det_radius_bound(
    stream: Stream, *, step_size: float, norm_bound: float, confidence: float
) -> dict[str, float]:
    r"""A bound of the radius with determinants, from what is known before a game, and :math:`\rho`.

    .. math:: \lambda S^2 + 2\eta\ln\tfrac1\delta + \frac{\chi\eta^2}{1 - \varpi}\,\mathcal{G}_t, \qquad
              \varpi = \frac{2\eta\gamma_KM_KSD^3}\lambda < 1, \quad
              \chi = \frac{e^v - 1}v, \quad v = \frac{2\eta LD^2}{(1-\varpi)\lambda}

    with :math:`\mathcal{G}_t` from `log_det_sum_bound`.

    Parameters
    ----------
    stream : Stream
        The stream of the sketch.
    step_size, norm_bound, confidence : float
        :math:`\eta`, S and :math:`\delta`.

    Returns
    -------
    dict
        Keys `ridge`, `martingale`, `sketch`.

    Raises
    ------
    ValueError
        If :math:`\lambda` is too small, :math:`s \ge 1`, or an argument is out of range.

    Notes
    -----
    Paper: takes the place of `eq:cr-beta`. The step size is at least 1, as `smallest_step_size` is.
    """
    eta, S = as_positive("step_size", step_size), as_positive("norm_bound", norm_bound)
    if eta < 1.0:
        raise ValueError(f"step_size must be at least 1, got {step_size}")
    K, lam, D = stream.n_outcomes, stream.regularization, stream.action_bound
    least = 2.0 * eta * remainder_constant(K) * S * D**3
    if lam <= least:
        raise ValueError(f"regularization must be above {least:.3g}, got {lam:.3g}")
    rest = 1.0 - least / lam
    slope = exponential_slope(2.0 * eta * smoothness(K) * D**2 / (rest * lam))
    return {
        "ridge": lam * S**2,
        "martingale": -2.0 * eta * math.log(as_probability("confidence", confidence)),
        "sketch": slope * eta**2 / rest * log_det_sum_bound(stream),
    }


def mix_loss_parameters(
    n_outcomes: int, n_features: int, norm_bound: float, action_bound: float = 1.0
) -> Threshold:
    r"""The smallest :math:`\lambda` and :math:`\eta` of the radius of `mix_loss_radius_terms`.

    .. math:: \eta = 1 + MS, \qquad \lambda = \max\bigl\{\tfrac{96}7Kd\,\eta M^2,\ 6\eta MSLD^2\bigr\}, \qquad
              M = M_KD

    Parameters
    ----------
    n_outcomes, n_features : int
        K and d.
    norm_bound, action_bound : float
        S and D.

    Returns
    -------
    Threshold
    """
    S, D = as_positive("norm_bound", norm_bound), as_positive("action_bound", action_bound)
    M = self_concordance(n_outcomes) * D
    eta = 1.0 + M * S
    first, second = (
        96.0 / 7.0 * n_outcomes * n_features * eta * M**2,
        6.0 * eta * M * S * smoothness(n_outcomes) * D**2,
    )
    return Threshold(max(first, second), eta)


def mix_loss_radius_terms(
    log_dets: float, *, regularization: float, step_size: float, norm_bound: float, confidence: float
) -> dict[str, float]:
    r"""The radius that the mix-loss argument of the binary case gives for K outcomes and a sketch.

    .. math:: \lambda S^2 + 2\eta\ln\tfrac1\delta
              + \eta(6\eta + 1)\sum_s\ln\det(I + \nabla\sigma(W_{s+1}x_s)A_s)

    Parameters
    ----------
    log_dets : float
        The sum of the logarithms.
    regularization, step_size, norm_bound, confidence : float
        :math:`\lambda`, :math:`\eta`, S and :math:`\delta`.

    Returns
    -------
    dict
        Keys `ridge`, `martingale`, `sketch`.

    Notes
    -----
    Zhang, Xu, Zhao, Sugiyama (2025), for K = 1 and the full Hessian; not in the paper.
    """
    eta, S = as_positive("step_size", step_size), as_positive("norm_bound", norm_bound)
    return {
        "ridge": as_positive("regularization", regularization) * S**2,
        "martingale": -2.0 * eta * math.log(as_probability("confidence", confidence)),
        "sketch": eta * (6.0 * eta + 1.0) * as_non_negative("log_dets", log_dets),
    }
