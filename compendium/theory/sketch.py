r"""The loss of a Frequent Directions sketch: its error rho, the sketching factor and the determinant.

The sketch Z and the full matrix H of the same rounds satisfy :math:`Z \preceq H \preceq Z + \rho I`. All
bounds here follow from this and from the decrease of the trace in a shrink. Derivations: notebooks
``06_frequent_directions`` and ``07_sketch_loss``.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from mlogb_core._validation import Array, as_finite, as_integer, as_non_negative, as_positive


def sketch_factor(shrinkage: float, regularization: float) -> float:
    r"""The sketching factor, the smallest :math:`\Delta` with :math:`H \preceq \Delta Z` in all cases.

    .. math:: \Delta = 1 + \rho/\lambda

    Parameters
    ----------
    shrinkage : float
        :math:`\rho \ge 0` of the same rounds as Z; for :math:`Z_t` it is :math:`\rho_{1:t-1}`.
    regularization : float
        :math:`\lambda > 0`.

    Returns
    -------
    float
        At least 1.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Paper: `lem:fd-reg-sketch-relation`. It is attained by m + 1 orthogonal actions of equal norm.

    Examples
    --------
    >>> sketch_factor(3.0, 2.0)
    2.5
    """
    return 1.0 + as_non_negative("shrinkage", shrinkage) / as_positive("regularization", regularization)


def log_determinant_bound(
    n_parameters: int,
    sketch_size: int,
    regularization: float,
    shrinkage: float,
    trace: float,
    *,
    sharp: bool = False,
) -> float:
    r"""Bound of :math:`\ln(|\lambda I + M|/|\lambda I|)` for the sum M of the Hessians in the sketch.

    With :math:`n = Kd`, the paper's bound is

    .. math:: n\ln\Bigl(1 + \frac\rho\lambda\Bigr) + m\ln\Bigl(1 + \frac{\tau}{m\lambda}\Bigr),

    and the sharp one is the smaller of

    .. math:: n\ln\Bigl(1 + \frac\rho\lambda\Bigr)
              + m\ln\Bigl(1 + \frac{(\tau - (m+1)\rho)_+}{m(\lambda + \rho)}\Bigr)
              \quad\text{and}\quad n\ln\Bigl(1 + \frac{\tau}{n\lambda}\Bigr).

    Parameters
    ----------
    n_parameters : int
        n = Kd >= 1.
    sketch_size : int
        m >= 1; a value above n has the effect of n. For a buffered sketch m is its `rank_bound`, and `sharp`
        must be false.
    regularization : float
        :math:`\lambda > 0`.
    shrinkage : float
        :math:`\rho \ge 0` of the same rounds as M, or an upper bound of it.
    trace : float
        :math:`\tau = \operatorname{tr} M \ge 0`, or an upper bound of it.
    sharp : bool
        Whether the sharp bound replaces the paper's.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Paper: `lem:fd-det-origin`, with :math:`\rho_{1:t}` where :math:`\rho_{1:t-1}` suffices. The first sharp
    form is attained, by m + 1 = n orthogonal actions in turn, followed by m more. The second one does not
    depend on the sketch and is smaller where :math:`\rho` is large. For m < n all three increase with
    :math:`\rho` and :math:`\tau`, so that upper bounds may be inserted.

    Examples
    --------
    >>> round(log_determinant_bound(2, 1, 1.0, 1.0, 2.0), 4), round(2 * math.log(2) + math.log(3), 4)
    (2.4849, 2.4849)
    >>> round(log_determinant_bound(2, 1, 1.0, 1.0, 2.0, sharp=True), 4)
    1.3863
    """
    n = as_integer("n_parameters", n_parameters, minimum=1)
    m = min(as_integer("sketch_size", sketch_size, minimum=1), n)
    lam = as_positive("regularization", regularization)
    rho, tau = as_non_negative("shrinkage", shrinkage), as_non_negative("trace", trace)
    common = n * math.log1p(rho / lam)
    if not sharp:
        return common + m * math.log1p(tau / (m * lam))
    kept = max(tau - (m + 1) * rho, 0.0)
    return min(common + m * math.log1p(kept / (m * (lam + rho))), n * math.log1p(tau / (n * lam)))


def tail_bound(eigenvalues: ArrayLike, sketch_size: int, *, sharp: bool = False) -> float:
    r"""Bound of the sketching error by the spectral tail of the summed Hessians.

    With :math:`\operatorname{tail}_k = \sum_{i > k} h_i` over the eigenvalues
    :math:`h_1 \ge h_2 \ge \dots`, the paper's bound and the sharp one are

    .. math:: \rho \le \min_{0 \le k < m} \frac{\operatorname{tail}_k}{m - k}, \qquad
              \rho \le \min_{0 \le k \le m} \frac{\operatorname{tail}_k}{m + 1 - k}.

    Parameters
    ----------
    eigenvalues : (n,) array
        Eigenvalues >= 0 of :math:`\sum_{s \le t}\nabla^2\ell_s(W_{s+1})`, with all rounds of
        :math:`\rho_{1:t}`, in any order.
    sketch_size : int
        m >= 1.
    sharp : bool
        Whether the sharp bound replaces the paper's.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Paper: section `ssec:regret-analysis`. The sharp bound is attained. Its case k = m says that :math:`\rho`
    is at most the sum of the eigenvalues after the m-th, so that it is 0 for a stream of rank m, where the
    paper's bound is positive.

    Examples
    --------
    >>> tail_bound([4.0, 1.0, 1.0], 2), tail_bound([4.0, 1.0, 1.0], 2, sharp=True)
    (2.0, 1.0)
    """
    m = as_integer("sketch_size", sketch_size, minimum=1)
    tails = _tails(sorted_eigenvalues(eigenvalues))
    k = np.arange(m + 1 if sharp else m)
    bounds = tails[np.minimum(k, tails.size - 1)] / (m + (1 if sharp else 0) - k)
    return float(bounds.min())


def tail_floor(eigenvalues: ArrayLike, sketch_size: int) -> float:
    r"""A lower bound of the sketching error: :math:`\rho \ge h_{m+1}`, as for every matrix of rank m.

    Parameters
    ----------
    eigenvalues : (n,) array
        As for `tail_bound`.
    sketch_size : int
        m >= 1.

    Returns
    -------
    float
        The eigenvalue :math:`h_{m+1}`, or 0 if there is none.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Not in the paper. For every sketch of rank m the error grows at least as fast as this eigenvalue, so that
    the sketching factor stays bounded only if :math:`h_{m+1}` does.

    Examples
    --------
    >>> tail_floor([4.0, 1.0, 1.0], 2)
    1.0
    """
    m = as_integer("sketch_size", sketch_size, minimum=1)
    values = sorted_eigenvalues(eigenvalues)
    return float(values[m]) if m < values.size else 0.0


def sorted_eigenvalues(eigenvalues: ArrayLike) -> Array:
    """The eigenvalues in falling order, checked.

    Parameters
    ----------
    eigenvalues : (n,) array
        In any order, n >= 1.

    Returns
    -------
    (n,) array

    Raises
    ------
    ValueError
        If the shape is another one or a value is negative.
    """
    values = as_finite("eigenvalues", eigenvalues)
    if values.ndim != 1 or values.size < 1:
        raise ValueError(f"eigenvalues must have shape (n,) with n >= 1, got {values.shape}")
    if (values < 0.0).any():
        raise ValueError(f"eigenvalues must be at least 0, got {values.min()}")
    return np.sort(values)[::-1]


def _tails(values: Array) -> Array:
    """Sums of the entries after the k-th, k = 0..n, the small ones added first."""
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)
