r"""A sketch that gives back to its ridge a share of what its shrinks subtract: sandwich, sums and radius.

With :math:`\lambda_t = \lambda + a\rho_{1:t-1}` in place of the ridge :math:`\lambda`, the matrix is
:math:`Z_t = \lambda_tI + \hat M_t`. The share a = 0 is the paper's sketch, 1/2 Robust Frequent Directions,
and 1 gives all of it back. What the shrinks take from the potential then grows like the logarithm of the
sketching error, and not like the error itself. Derivation: notebook ``20_adaptive_ridge``.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from compendium.theory.self_normalised import Stream, potential, smallest_sum
from compendium.theory.self_normalised import potential_slope as potential_slope  # notebook 20 calls it here
from mlogb_core._validation import Array, as_finite, as_integer, as_non_negative, as_positive


def sandwich_factors(shrinkage: float, regularization: float, share: float) -> tuple[float, float]:
    r"""The best constants of :math:`l\,Z \preceq H \preceq u\,Z`.

    .. math:: l = \frac{\lambda}{\lambda + a\rho}, \qquad u = \frac{\lambda + \rho}{\lambda + a\rho}

    Parameters
    ----------
    shrinkage : float
        :math:`\rho \ge 0` of the same rounds as Z; for :math:`Z_t` it is :math:`\rho_{1:t-1}`.
    regularization : float
        :math:`\lambda > 0`, without what was given back.
    share : float
        a in [0, 1].

    Returns
    -------
    lower, upper : float
        At most 1, and at least 1. Their quotient is the sketching factor, whatever the share.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Paper: `lem:fd-reg-sketch-relation` is the case a = 0. The upper factor also bounds how far Z may fall:
    :math:`Z_s \preceq u\,Z_t` for s <= t.

    Examples
    --------
    >>> sandwich_factors(3.0, 2.0, 0.0), sandwich_factors(3.0, 2.0, 1.0)
    ((1.0, 2.5), (0.4, 1.0))
    """
    rho, lam = as_non_negative("shrinkage", shrinkage), as_positive("regularization", regularization)
    ridge = lam + _as_share(share) * rho
    return lam / ridge, (lam + rho) / ridge


def shrink_cost(shrinkage: float, regularization: float, share: float) -> float:
    r"""Bound of :math:`\sum_s\ln(1 + \rho_s/\lambda_s)`, what the shrinks take per direction.

    .. math:: \frac1a\ln\Bigl(1 + \frac{a\rho}{\lambda}\Bigr), \qquad
              \frac\rho\lambda \quad \text{for } a = 0

    Parameters
    ----------
    shrinkage, regularization, share : float
        As in `sandwich_factors`.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Not in the paper. It is the value of the sum if the shrinks are small beside the ridge, and for a = 1 in
    all cases.

    Examples
    --------
    >>> shrink_cost(3.0, 1.0, 0.0), round(shrink_cost(3.0, 1.0, 1.0), 4)
    (3.0, 1.3863)
    """
    rho, lam = as_non_negative("shrinkage", shrinkage), as_positive("regularization", regularization)
    a = _as_share(share)
    return math.log1p(a * rho / lam) / a if a > 0.0 else rho / lam


def adaptive_log_determinant_bound(
    n_parameters: int, sketch_size: int, regularization: float, shrinkage: float, trace: float, share: float
) -> float:
    r"""Bound of :math:`\ln(|Z|/|\lambda I|)` for the matrix with the adaptive ridge.

    .. math:: n\ln\Bigl(1 + \frac{a\rho}\lambda\Bigr)
              + m\ln\Bigl(1 + \frac{(\tau - (m+1)\rho)_+}{m(\lambda + a\rho)}\Bigr), \qquad n = Kd

    Parameters
    ----------
    n_parameters, sketch_size : int
        n and m, each >= 1; m above n has the effect of n.
    regularization, shrinkage, share : float
        As in `sandwich_factors`.
    trace : float
        :math:`\tau \ge 0`, the trace of the sum of all Hessians that were added.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Not in the paper. It is attained if the kept eigenvalues are equal and every shrink takes its amount from
    m + 1 directions only.

    Examples
    --------
    >>> round(adaptive_log_determinant_bound(3, 1, 1.0, 1.0, 2.0, share=1.0), 4)  # 3 ln 2
    2.0794
    """
    n = as_integer("n_parameters", n_parameters, minimum=1)
    m = min(as_integer("sketch_size", sketch_size, minimum=1), n)
    rho, lam = as_non_negative("shrinkage", shrinkage), as_positive("regularization", regularization)
    returned = _as_share(share) * rho
    kept = max(as_non_negative("trace", trace) - (m + 1) * rho, 0.0)
    return n * math.log1p(returned / lam) + m * math.log1p(kept / (m * (lam + returned)))


def adaptive_sum_bound(stream: Stream, share: float) -> float:
    r"""Bound of :math:`\sum_{s \le t}\operatorname{tr}(\nabla^2\ell_s(W_{s+1})\,Z_s^{-1})`.

    With :math:`m^+ = \min(m + K, Kd)`, :math:`g = LD^2/\lambda`, :math:`\varphi = g/\ln(1+g)`,
    :math:`\tau = (\tau_KD^2t - (m+1)\rho_{1:t})_+` and

    .. math:: \Phi(\lambda) = m\ln\Bigl(1 + \frac{\tau}{m(\lambda + a\rho_{1:t})}\Bigr)
              + \frac{m^+}a\ln\Bigl(1 + \frac{a\rho_{1:t}}\lambda\Bigr)

    it is the smallest of :math:`\varphi\,\Phi(\lambda)`, :math:`\tau_KD^2t/\lambda` and
    :math:`\Phi(\lambda - LD^2)`, if that ridge is positive.

    Parameters
    ----------
    stream : Stream
        The stream, for any :math:`\lambda > 0`, with a sketch of buffer 1.
    share : float
        a in [0, 1]; for 0 it is `sharp_sum_bound`.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If the share is out of range.

    Notes
    -----
    Not in the paper. :math:`\rho` enters by its logarithm.

    Examples
    --------
    >>> stream = Stream(1, 1000, 10, regularization=2.0, n_rounds=10**6, shrinkage=1000.0)
    >>> [round(adaptive_sum_bound(stream, share)) for share in (0.0, 0.5, 1.0)]
    [5937, 163, 102]
    """
    a = _as_share(share)
    return smallest_sum(stream, a * stream.shrinkage, lambda ridge: shrink_cost(stream.shrinkage, ridge, a))


def adaptive_uncertainty_sum_bound(
    stream: Stream, share: float, kappa: float, *, updated: bool = False
) -> float:
    r"""Bound of :math:`\sum_{s \le t}\operatorname{tr}((I \otimes x_sx_s^\top)\,Z^{-1})`.

    For :math:`Z = Z_s` it is the smaller of :math:`\kappa` times `adaptive_sum_bound` and
    :math:`KD^2t/\lambda`; for :math:`Z = Z_{s+1}` (`updated`) the former is replaced by
    :math:`\kappa\,(1 + (1-a)LD^2/\lambda)\,\Phi(\lambda)`.

    Parameters
    ----------
    stream : Stream
        As in `adaptive_sum_bound`.
    share : float
        a in [0, 1].
    kappa : float
        :math:`\kappa \ge 1/L` with :math:`\nabla\sigma(W_{s+1}x_s) \succeq \kappa^{-1}I` in all rounds.
    updated : bool
        Whether the matrix includes the Hessian of the round itself.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Not in the paper. With a = 1 nothing is lost by the update, because Z never falls.
    """
    kappa, a, lam = as_positive("kappa", kappa), _as_share(share), stream.regularization
    most = stream.n_outcomes * stream.action_bound**2 * stream.n_rounds / lam
    if not updated:
        return min(kappa * adaptive_sum_bound(stream, a), most)
    growth = 1.0 + (1.0 - a) * stream.largest_hessian / lam
    cost = shrink_cost(stream.shrinkage, lam, a)
    return min(kappa * growth * potential(stream, lam, a * stream.shrinkage, cost), most)


def adaptive_radii(
    data: ArrayLike,
    shrinkages: ArrayLike,
    *,
    regularization: float,
    share: float,
    norm_bound: float,
    norms: ArrayLike | None = None,
) -> Array:
    r"""Squared radii after each round, from the losses' bound and what each shrink gave back.

    With :math:`\mathcal B_t` a bound of the terms of the radius other than :math:`\lambda S^2`, the radius
    after round t is :math:`\beta_{t+1} = \lambda S^2 + \mathcal B_t + \mathcal X_t` with
    :math:`\mathcal X_0 = 0` and

    .. math:: \mathcal X_t = \mathcal X_{t-1} + a\rho_t\min\Bigl\{(S + \|W_{t+1}\|_F)^2,\
              \frac{\lambda S^2 + \mathcal B_t + \mathcal X_{t-1}}{\lambda_t}\Bigr\} .

    Parameters
    ----------
    data : (T,) array
        :math:`\mathcal B_1, \dots, \mathcal B_T`, each valid for its round.
    shrinkages : (T,) array
        :math:`\rho_1, \dots, \rho_T`, each >= 0.
    regularization, share, norm_bound : float
        :math:`\lambda > 0`, a in [0, 1] and S > 0.
    norms : (T,) array, optional
        :math:`\|W_2\|_F, \dots, \|W_{T+1}\|_F`, each at most S; S by default.

    Returns
    -------
    (T,) array
        :math:`\beta_2, \dots, \beta_{T+1}`.

    Raises
    ------
    ValueError
        If the arrays differ in length or an argument is out of range.

    Notes
    -----
    Not in the paper, whose sketch gives nothing back (a = 0), so that its :math:`\mathcal X_t` is 0. The
    first member of the minimum gives at most :math:`4aS^2\rho_{1:t}` in all; the second one is the radius
    itself, and makes the ridge's own term :math:`\lambda_{t+1}S^2`.

    Examples
    --------
    >>> adaptive_radii([0.0, 0.0], [1.0, 1.0], regularization=1.0, share=1.0, norm_bound=1.0)
    array([2., 3.])
    """
    lam, S = as_positive("regularization", regularization), as_positive("norm_bound", norm_bound)
    terms, amounts = as_finite("data", data), as_finite("shrinkages", shrinkages)
    lengths = np.full(terms.shape, S) if norms is None else as_finite("norms", norms)
    if terms.ndim != 1 or amounts.shape != terms.shape or lengths.shape != terms.shape:
        raise ValueError(
            "data, shrinkages and norms must have one shape (T,), "
            f"got {terms.shape}, {amounts.shape} and {lengths.shape}"
        )
    if (amounts < 0.0).any():
        raise ValueError(f"shrinkages must be at least 0, got {amounts.min()}")
    if (lengths < 0.0).any() or (lengths > S * (1.0 + 1e-9)).any():
        raise ValueError(f"norms must be in [0, norm_bound = {S}], got {lengths.min()} to {lengths.max()}")
    carried, ridge, radii = 0.0, lam, np.empty(terms.size)
    for t, (term, amount, length) in enumerate(zip(terms, _as_share(share) * amounts, lengths, strict=True)):
        before = max(lam * S**2 + term + carried, 0.0)
        carried += amount * min((S + length) ** 2, before / ridge)
        ridge += amount
        radii[t] = lam * S**2 + term + carried
    return radii


def adaptive_radius_bound(
    data: float, shrinkage: float, regularization: float, share: float, norm_bound: float
) -> float:
    r"""A bound of all radii of `adaptive_radii` that needs only their last terms.

    .. math:: \min\Bigl\{\lambda S^2 + 4aS^2\rho + \mathcal B,\
              (\lambda + a\rho)\Bigl(S^2 + \frac{\mathcal B}\lambda\Bigr)\Bigr\}

    Parameters
    ----------
    data : float
        :math:`\mathcal B \ge 0`, at least as large as that of every round before.
    shrinkage, regularization, share : float
        As in `sandwich_factors`.
    norm_bound : float
        S > 0.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> adaptive_radius_bound(1.0, 10.0, 5.0, share=1.0, norm_bound=1.0)
    18.0
    """
    B, rho = as_non_negative("data", data), as_non_negative("shrinkage", shrinkage)
    lam, S = as_positive("regularization", regularization), as_positive("norm_bound", norm_bound)
    returned = _as_share(share) * rho
    return min((lam + 4.0 * returned) * S**2 + B, (lam + returned) * (S**2 + B / lam))


def _as_share(share: float) -> float:
    a = as_non_negative("share", share)
    if a > 1.0:
        raise ValueError(f"share must be in [0, 1], got {share}")
    return a
