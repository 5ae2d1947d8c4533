r"""A Gaussian mixture as forecaster: it bounds the regret of the iterates' losses against the true parameter.

The confidence region needs a bound of :math:`\sum_s \ell_s(W_*) - \ell_s(W_{s+1})`. The loss of the mixture
:math:`q_s(y) = \mathbb{E}\,\sigma_y(W x_s)`, :math:`W \sim \mathcal{N}(W_s, (cZ_s)^{-1})`, is inserted
between the two. The mixture is known before the outcome, so that its likelihood ratio against the truth is a
martingale; and its loss exceeds that of the next iterate only a little. Derivation: notebook
``10_loss_regret``.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from mlogb_core._validation import (
    Array,
    as_finite,
    as_integer,
    as_matrix,
    as_non_negative,
    as_positive,
    as_probability,
)
from mlogb_core.link import outcome_probabilities, remainder_constant, smoothness
from mlogb_core.radius import Progress, RepairedRadius, checked_smoothness, exponential_slope

_LARGEST_GRID = 3


def expected_probabilities(logits: ArrayLike, covariance: ArrayLike, n_nodes: int = 40) -> Array:
    r"""Probabilities of the outcomes 0..K under Gaussian logits, by Gauss-Hermite quadrature.

    .. math:: q_y = \mathbb{E}\,\sigma_y(z + u), \qquad u \sim \mathcal{N}(0, \Sigma)

    Parameters
    ----------
    logits : (..., K) array
        Mean z of the logits, K at most 3: the grid has the K-th power of `n_nodes` points.
    covariance : (..., K, K) array
        :math:`\Sigma \succeq 0`, one for each mean; for the mixture, A(x)/c with A(x) from `inverse_blocks`.
    n_nodes : int, optional
        Nodes per dimension.

    Returns
    -------
    (..., K+1) array
        Probabilities, reference first.

    Raises
    ------
    ValueError
        If K is above 3, a shape is wrong, or the covariance has a negative eigenvalue.

    Notes
    -----
    Paper: :math:`\sigma(z_s)` of `lem:cr-ell-regret`. For K = 1, 40 nodes give relative errors below 1e-14
    for standard deviations up to 1, and below 1e-7 up to 2. For larger ones the poles of the link slow the
    convergence: 200 nodes give 1e-11 up to 3.

    Examples
    --------
    >>> expected_probabilities([0.0], [[4.0]]).round(6)
    array([0.5, 0.5])
    """
    mean, covariances = as_finite("logits", logits), as_finite("covariance", covariance)
    if mean.ndim < 1 or not 1 <= mean.shape[-1] <= _LARGEST_GRID:
        raise ValueError(f"logits must have shape (..., K), K from 1 to {_LARGEST_GRID}, got {mean.shape}")
    shape = (*mean.shape, mean.shape[-1])
    if covariances.shape != shape:
        raise ValueError(f"covariance must have shape {shape}, got {covariances.shape}")
    values, vectors = np.linalg.eigh(covariances)
    if (values[..., 0] < -1e-12 * np.maximum(np.abs(values[..., -1]), 1e-300)).any():
        least = values[..., 0].min()
        raise ValueError(f"covariance must be positive semidefinite, got the eigenvalue {least:.3g}")
    points, mass = _gauss_hermite(as_integer("n_nodes", n_nodes, minimum=1), mean.shape[-1])
    shifts = points @ (np.sqrt(np.maximum(values, 0.0))[..., None] * vectors.swapaxes(-1, -2))
    return np.asarray(mass @ outcome_probabilities(mean[..., None, :] + shifts))


def mixture_loss_bound(probabilities: ArrayLike, block: ArrayLike, precision: float) -> float:
    r"""Bound of the mixture's loss minus the loss at its centre W, for all outcomes.

    .. math:: \ln \sum_{k=0}^K \sigma_k \exp\frac{(e_k - \sigma)^\top A(x)\,(e_k - \sigma)}{2c},
              \qquad e_0 = 0

    Parameters
    ----------
    probabilities : (K+1,) array
        :math:`\sigma(Wx)`, reference first.
    block : (K, K) array
        :math:`A(x) = (I \otimes x)^\top Z^{-1} (I \otimes x)`.
    precision : float
        c > 0.

    Returns
    -------
    float
        At least 0, and about :math:`\operatorname{tr}(\nabla\sigma\,A(x))/(2c)` where that is small.

    Notes
    -----
    Paper: in the proof of `lem:cr-ell-regret-3` two moments have this role. The bound here needs neither a
    small covariance nor self-concordance.
    """
    p = as_finite("probabilities", probabilities)
    if p.ndim != 1 or p.size < 2:
        raise ValueError(f"probabilities must have shape (K+1,) with K >= 1, got {p.shape}")
    A = as_matrix("block", block, (p.size - 1, p.size - 1))
    directions = np.vstack((np.zeros(p.size - 1), np.eye(p.size - 1))) - p[1:]
    squares = np.einsum("ki,ij,kj->k", directions, A, directions)
    exponents = squares / (2.0 * as_positive("precision", precision))
    return max(float(logsumexp(exponents, b=p)), 0.0)


def shifted_mixture_loss_bound(
    trace: float,
    movement: float,
    precision: float,
    regularization: float,
    n_outcomes: int,
    action_bound: float = 1.0,
    smoothness: float | None = None,
) -> float:
    r"""Bound of the loss of the mixture centred at :math:`W_s` minus the loss at :math:`W_{s+1}`.

    .. math:: \hat\ell_s(z_s) - \ell_s(W_{s+1}) \le \frac{\chi}{2c}
              \operatorname{tr}\bigl(\nabla^2\ell_s(W_{s+1})\,Z_s^{-1}\bigr)
              + \frac c2 \|W_{s+1} - W_s\|_{Z_s}^2, \qquad
              \chi = \frac{e^v - 1}{v}, \quad v = \frac{2LD^2}{c\lambda}

    Parameters
    ----------
    trace, movement : float
        The trace and the squared norm, each >= 0, or their sums over rounds.
    precision, regularization : float
        c > 0 and :math:`\lambda > 0`.
    n_outcomes : int
        K.
    action_bound : float, optional
        D.
    smoothness : float, optional
        L with :math:`\nabla\sigma \preceq LI` for all logits; by default the smallest one, 1/4 for
        K = 1 and 1/2 for K >= 2. A smaller L, valid in a ball of parameters only, is not enough.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If the smoothness is too small or an argument is out of range.

    Notes
    -----
    Paper: `lem:cr-ell-regret-3` has :math:`\sqrt6` in place of :math:`\chi/2`, and
    :math:`c = 24Kd/\lambda`. The bound here holds for every c > 0, also for Kd = 1 or D > 1.
    """
    L = checked_smoothness(n_outcomes, smoothness)
    c, lam = as_positive("precision", precision), as_positive("regularization", regularization)
    slope = exponential_slope(2.0 * L * as_positive("action_bound", action_bound) ** 2 / (c * lam))
    curved = slope / (2.0 * c) * as_non_negative("trace", trace)
    return curved + 0.5 * c * as_non_negative("movement", movement)


def exponential_moment(scale: float, n_dimensions: int) -> float:
    r""":math:`\mathbb{E}\,e^{aX} = (1-2a)^{-n/2}` for a chi-square X of n degrees; infinite for a >= 1/2.

    Parameters
    ----------
    scale : float
        a.
    n_dimensions : int
        n >= 1.

    Returns
    -------
    float

    Notes
    -----
    Paper: proof of `lem:cr-ell-regret-3`, with a = 1/(2Kd) and n = Kd under a square root.
    """
    n = as_integer("n_dimensions", n_dimensions, minimum=1)
    return math.inf if scale >= 0.5 else (1.0 - 2.0 * scale) ** (-0.5 * n)


def quartic_moment(values: ArrayLike) -> float:
    r""":math:`\mathbb{E}(\sum_i v_i X_i^2)^2 = (\sum_i v_i)^2 + 2\sum_i v_i^2` for independent normal X.

    Parameters
    ----------
    values : (n,) array
        The v.

    Returns
    -------
    float
        Between one and three times the square of the sum where the values are >= 0.
    """
    v = as_finite("values", values).reshape(-1)
    return float(v.sum() ** 2 + 2.0 * (v @ v))


def smoothed_logit_bound(n_outcomes: int, mixing: float) -> float:
    r"""Largest logit of a distribution mixed with the uniform one: :math:`\ln((K+1)/\mu - K)`.

    Parameters
    ----------
    n_outcomes : int
        K.
    mixing : float
        :math:`\mu \in (0, 1)`.

    Returns
    -------
    float

    Notes
    -----
    Paper: :math:`\|z_s^\mu\|_\infty` in the proof of `lem:cr-ell-regret`. Attained where one outcome
    is certain.
    """
    K = as_integer("n_outcomes", n_outcomes, minimum=1)
    return math.log((K + 1) / as_probability("mixing", mixing) - K)


def smoothed_constant(n_outcomes: int, mixing: float) -> float:
    r""":math:`S_\mu = \ln(K+1) + 2(\|z^\mu\|_\infty + 1)`, as the quoted bound needs it.

    .. math:: S_\mu = \ln(K+1) + 2 + 2\ln\Bigl(\frac{K+1}\mu - K\Bigr)

    Parameters
    ----------
    n_outcomes : int
        K.
    mixing : float
        :math:`\mu \in (0, 1)`.

    Returns
    -------
    float

    Notes
    -----
    Paper: `ineq:cr-ell-regret-first` has :math:`\ln(K+1) + 2\ln((K+1)/\mu + 2)`, which is too small
    for small :math:`\mu`.
    """
    return math.log(n_outcomes + 1) + 2.0 + 2.0 * smoothed_logit_bound(n_outcomes, mixing)


def ville_parameters(
    n_outcomes: int, norm_bound: float, action_bound: float = 1.0, *, concavity: float | None = None
) -> tuple[float, float]:
    r"""The smallest :math:`\lambda`, and the :math:`\eta`, for which `ville_radius_terms` needs no movement.

    .. math:: \eta = \tfrac12\alpha, \quad \alpha = 2(1+SD) + \ln(K+1), \qquad
              \lambda = \alpha D^2\max\{2L,\ 2\gamma_KM_K SD\}

    with :math:`L = 1/4` for K = 1 and 1/2 for K >= 2, and :math:`\gamma_KM_K` from
    `link.remainder_constant`.

    Parameters
    ----------
    n_outcomes : int
        K.
    norm_bound, action_bound : float
        S and D.
    concavity : float, optional
        A constant of exp-concavity for the truths of the ball, at least 2, in place of the printed
        :math:`\alpha`; `best_exp_concavity` at `surprisal_bound` gives the best one.

    Returns
    -------
    regularization, step_size : float

    Raises
    ------
    ValueError
        If the constant is below 2, which no outcome admits, or an argument is out of range.

    Notes
    -----
    The paper's `thm:confidence-region` needs :math:`\lambda \ge 24\alpha Kd`, which grows with the
    dimension. Here it does not.
    """
    S, D = as_positive("norm_bound", norm_bound), as_positive("action_bound", action_bound)
    alpha = 2.0 * (1.0 + S * D) + math.log(as_integer("n_outcomes", n_outcomes, minimum=1) + 1)
    if concavity is not None:
        alpha = as_positive("concavity", concavity)
        if alpha < 2.0:
            raise ValueError(f"concavity must be at least 2, got {concavity}")
    curved = 2.0 * remainder_constant(n_outcomes) * S * D
    return alpha * D**2 * max(2.0 * smoothness(n_outcomes), curved), alpha / 2


def ville_radius_terms(
    progress: Progress,
    confidence: float,
    action_bound: float = 1.0,
    smoothness: float | None = None,
    trace: float | None = None,
) -> dict[str, float]:
    r"""The terms of the repaired theorem's radius; see `RepairedRadius.terms`.

    Parameters
    ----------
    progress : Progress
        Where the policy stands.
    confidence, action_bound, smoothness
        As in `RepairedRadius`.
    trace : float, optional
        The sum of traces, if it was recorded.

    Returns
    -------
    dict
        Keys `ridge`, `martingale`, `sketch`, `logit_movement`, `hessian_movement`.

    Notes
    -----
    From `ville_parameters` on, the last two terms add up to at most 0.
    """
    return RepairedRadius(confidence, action_bound, smoothness=smoothness).terms(progress, trace)


@cache
def _gauss_hermite(n_nodes: int, dimension: int) -> tuple[Array, Array]:
    """Points of the product grid, one a row, and their masses, which sum to 1."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    points = np.stack(np.meshgrid(*[nodes] * dimension, indexing="ij"), axis=-1).reshape(-1, dimension)
    grid = np.stack(np.meshgrid(*[weights] * dimension, indexing="ij"), axis=-1).reshape(-1, dimension)
    mass = grid.prod(axis=1)
    return points, mass / mass.sum()
