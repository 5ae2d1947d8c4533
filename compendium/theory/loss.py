r"""The distance of the loss from its tangents: the constants of self-concordance and exp-concavity.

In the logits the loss is :math:`\psi(z) - z_y` with :math:`\psi(z) = \ln(1 + \sum_k e^{z_k})`. Its distance
from a tangent, the Bregman divergence of :math:`\psi`, is therefore the same for all outcomes; it is the
relative entropy between the probabilities at the two points. `taylor_factor` bounds it from both sides by a
variance. Derivation: notebook ``04_loss_geometry``.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from mlogb_core._validation import Array, as_finite, as_integer, as_non_negative, as_vector

_SERIES = tuple(1.0 / math.factorial(k + 2) for k in range(18, -1, -1))


def taylor_factor(x: ArrayLike) -> Array:
    r"""The remainder of the exponential after two terms, in units of :math:`x^2`.

    .. math:: g(x) = \frac{e^x - x - 1}{x^2} = \int_0^1 (1 - s)\,e^{sx}\,ds, \qquad g(0) = \tfrac12

    Parameters
    ----------
    x : (...) array
        Any finite numbers.

    Returns
    -------
    (...) array
        Positive and increasing in x; inf where it exceeds the floating-point range (x above 720).

    Notes
    -----
    Paper: the scalar inequality :math:`g(x) \le e^{x^2}` in the proof of `lem:cr-ell-regret-3`. The
    quotient cancels near 0; for :math:`|x| \le 1` the power series is summed instead.

    Examples
    --------
    >>> taylor_factor([0.0, 1e-9, 1.0]).round(3)
    array([0.5  , 0.5  , 0.718])
    """
    x = as_finite("x", x)
    small = np.abs(x) <= 1.0
    near, far = np.where(small, x, 0.0), np.where(small, 2.0, x)
    with np.errstate(over="ignore"):
        quotient = (np.expm1(far) / far - 1.0) / far
    return np.asarray(np.where(small, np.polyval(_SERIES, near), quotient))


def tangent_gap(start: ArrayLike, end: ArrayLike) -> float:
    r"""The amount by which the loss exceeds its tangent at another point, without cancellation.

    .. math:: \Gamma = \ell(z_2) - \ell(z_1) - \langle\nabla\ell(z_1), z_2 - z_1\rangle
              = \sum_{k=0}^K p_k \ln\frac{p_k}{q_k}, \qquad p = \sigma(z_1),\; q = \sigma(z_2)

    Parameters
    ----------
    start : (K,) array
        Logits :math:`z_1`, where the tangent touches.
    end : (K,) array
        Logits :math:`z_2`.

    Returns
    -------
    float
        At least 0.

    Notes
    -----
    The code sums the numbers :math:`p_k(e^{-X_k} - 1 + X_k)` with :math:`X_k = \ln(p_k/q_k)`, none of which
    is negative. They differ from the terms above by :math:`q_k - p_k`, which add up to 0.

    Examples
    --------
    >>> round(tangent_gap([0.0], [2.0]), 4)
    0.4338
    """
    start = as_finite("start", start)
    if start.ndim != 1 or start.size < 1:
        raise ValueError(f"start must have shape (K,) with K >= 1, got {start.shape}")
    end = as_vector("end", end, start.size)
    return float(_entropy_terms(_log_probabilities(start), _log_probabilities(end)).sum())


def self_concordance(n_outcomes: int) -> float:
    r"""The smallest constant of self-concordance of the loss, in the logits.

    .. math:: \bigl|\nabla^3\ell(z)[u_1,u_2,u_3]\bigr| \le
              M_K\|u_1\|\,\|u_2\|_{\nabla^2\ell(z)}\|u_3\|_{\nabla^2\ell(z)},
              \qquad M_1 = 1, \qquad M_K = \sqrt2 \quad (K \ge 2)

    Parameters
    ----------
    n_outcomes : int
        K >= 1.

    Returns
    -------
    float
        A supremum, approached as one outcome becomes certain. It is also the largest difference between two
        of the K+1 entries of a unit vector that is extended by a 0 for the reference.

    Notes
    -----
    Paper: `ineq:ell-self-concordant-like` has :math:`\sqrt6`, for derivatives in W, where this function
    gives :math:`M_K\|x\|_2`.
    """
    return 1.0 if as_integer("n_outcomes", n_outcomes, minimum=1) == 1 else math.sqrt(2.0)


def surprisal_bound(
    n_outcomes: int, logit_bound: float, *, norm: Literal["euclidean", "max"] = "euclidean"
) -> float:
    r"""Bound of :math:`-\ln\sigma_k(z)` over all outcomes k = 0..K and all bounded logits.

    .. math:: \|z\|_2 \le \bar z:\ \ln\bigl(1 + e^{\bar z} + (K-1)e^{\sqrt2\bar z}\bigr), \qquad
              \|z\|_\infty \le \bar z:\ \ln\bigl(1 + e^{\bar z} + (K-1)e^{2\bar z}\bigr)

    Parameters
    ----------
    n_outcomes : int
        K >= 1.
    logit_bound : float
        :math:`\bar z \ge 0`; for a parameter of norm at most S and an action of norm at most D it is SD.
    norm : {"euclidean", "max"}, optional
        Which norm of the logits is bounded.

    Returns
    -------
    float
        Attained for the maximum norm and for K = 1.

    Examples
    --------
    >>> round(surprisal_bound(1, 0.0), 4), round(surprisal_bound(3, 0.0), 4)
    (0.6931, 1.3863)
    """
    K = as_integer("n_outcomes", n_outcomes, minimum=1)
    bound = as_non_negative("logit_bound", logit_bound)
    if norm not in ("euclidean", "max"):
        raise ValueError(f"norm must be 'euclidean' or 'max', got {norm!r}")
    total = float(np.logaddexp(0.0, bound))
    if K == 1:
        return total
    rate = math.sqrt(2.0) if norm == "euclidean" else 2.0
    return float(np.logaddexp(total, math.log(K - 1) + rate * bound))


def exp_concavity(surprisal: float) -> float:
    r"""A constant :math:`\alpha` of the exp-concavity inequality, :math:`2 + \ell_{\max}`.

    .. math:: \ell(z_1) - \ell(z_2) \le \langle\nabla\ell(z_1), z_1 - z_2\rangle
              - \frac1\alpha\|z_1 - z_2\|_{\nabla^2\ell(z_1)}^2

    Parameters
    ----------
    surprisal : float
        :math:`\ell_{\max} \ge \max_k -\ln\sigma_k(z_2)`, at least ln 2, as from `surprisal_bound`.

    Returns
    -------
    float

    Notes
    -----
    Paper: `ineq:exp-concave-like` has :math:`\ln(K+1) + 2(SD+1)` and states no condition. The inequality
    needs a bound of :math:`z_2`, whereas :math:`z_1` is arbitrary.

    Examples
    --------
    >>> round(exp_concavity(surprisal_bound(1, 1.0)), 3)  # 4.693 in the paper
    3.313
    """
    return 2.0 + _as_surprisal(surprisal)


def best_exp_concavity(surprisal: float) -> float:
    r"""The smallest constant of the exp-concavity inequality for given probabilities at :math:`z_2`.

    .. math:: \alpha_*(s) = \sup_{\pi \ne s}\; \pi(1-\pi)\,
              \frac{\bigl(\ln\frac{\pi}{1-\pi} - \ln\frac{s}{1-s}\bigr)^2}
                   {\mathrm{kl}(\pi \,\|\, s)}, \qquad s = e^{-\ell_{\max}}

    Parameters
    ----------
    surprisal : float
        :math:`\ell_{\max} = \max_k -\ln\sigma_k(z_2)`, at least ln 2.

    Returns
    -------
    float
        2 at :math:`\ell_{\max} = \ln 2`; it grows like :math:`\ell_{\max} - \ln\ell_{\max}`.

    Notes
    -----
    For the worst :math:`z_1` the numbers :math:`\ln(\sigma_k(z_1)/\sigma_k(z_2))` take only two values, so
    that a search over one number :math:`\pi \in (s, 1 - s)` replaces that over all coordinates.

    Examples
    --------
    >>> round(best_exp_concavity(surprisal_bound(1, 1.0)), 3)
    2.109
    """
    level = _as_surprisal(surprisal)
    rest = math.log(-math.expm1(-level))  # ln(1 - s)
    width = level + rest  # the log-odds against s
    if width < 1e-4:
        return 2.0  # The error is about width^2 / 9.
    shifts = np.linspace(0.01, 1.0, 2001) * 2.0 * width
    best = float(shifts[_coin_ratio(shifts, level, rest).argmax()])
    step = float(shifts[1] - shifts[0])
    found = minimize_scalar(
        lambda shift: -float(_coin_ratio(np.array([shift]), level, rest)[0]),
        bounds=(best - step, best + step),
        method="bounded",
        options={"xatol": 1e-9 * width},
    )
    return max(2.0, float(-found.fun))


def _coin_ratio(shifts: Array, level: float, rest: float) -> Array:
    """Variance over relative entropy, for Bernoulli variables whose log-odds exceed those of s by `shifts`.

    s = exp(-level), and rest = ln(1 - s).
    """
    odds = shifts - (level + rest)
    heads, tails = -np.logaddexp(0.0, -odds), -np.logaddexp(0.0, odds)
    entropy = _entropy_terms(heads, np.full_like(heads, -level)) + _entropy_terms(
        tails, np.full_like(tails, rest)
    )
    variance = np.exp(heads + tails) * shifts**2
    return np.asarray(np.divide(variance, entropy, out=np.zeros_like(entropy), where=entropy > 0.0))


def _entropy_terms(log_p: Array, log_q: Array) -> Array:
    """The numbers p ln(p/q) + q - p, each without cancellation."""
    p, q, excess = np.exp(log_p), np.exp(log_q), log_p - log_q
    near = np.maximum(excess, -1.0)
    return np.where(excess < -1.0, q + p * (excess - 1.0), p * near**2 * taylor_factor(-near))


def _log_probabilities(logits: Array) -> Array:
    full = np.concatenate(([0.0], logits))
    full -= full.max()
    return np.asarray(full - math.log(np.exp(full).sum()))


def _as_surprisal(value: float) -> float:
    level = as_non_negative("surprisal", value)
    if level < math.log(2.0) - 1e-12:
        raise ValueError(f"surprisal must be at least ln 2 (two outcomes or more), got {value}")
    return level
