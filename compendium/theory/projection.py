r"""Brackets of the projection's multiplier, and the number of Newton steps that find it.

The projection of :math:`w'` onto the ball of radius S in the norm of :math:`\tilde Z` is
:math:`w(\nu) = (\tilde Z + \nu I)^{-1}\tilde Z w'` with :math:`\|w(\nu)\| = S`. A bracket of :math:`\nu`
follows from the smallest and the largest eigenvalue, or from two products with :math:`w'`. The number of
steps of Newton's method is at most that of a scalar recursion. Derivations: notebook ``05_projection``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mlogb_core._validation import as_finite, as_non_negative, as_positive, as_probability, as_vector


def multiplier_bracket(
    lowest: float, highest: float, length: float, norm_bound: float
) -> tuple[float, float]:
    r"""Bracket of the multiplier from the ends of the spectrum.

    .. math:: \zeta_{\min}\Bigl(\frac{\|w'\|}{S} - 1\Bigr) \le \nu \le
              \zeta_{\max}\Bigl(\frac{\|w'\|}{S} - 1\Bigr)

    Parameters
    ----------
    lowest, highest : float
        :math:`0 < \zeta_{\min} \le \zeta_{\max}` with every eigenvalue of :math:`\tilde Z` between them, for
        example :math:`\lambda` and :math:`\lambda + \tilde\mu_1`.
    length : float
        :math:`\|w'\| \ge 0`.
    norm_bound : float
        S > 0.

    Returns
    -------
    low, high : float
        Both 0 for a point in the ball.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Paper: `lem:fd-oful-mlogb-efficient-W-update`, which gives no bracket. An end is attained when
    :math:`w'` is an eigenvector of that eigenvalue.

    Examples
    --------
    >>> multiplier_bracket(1.0, 3.0, 4.0, 2.0)
    (1.0, 3.0)
    """
    low, high = as_positive("lowest", lowest), as_positive("highest", highest)
    if low > high:
        raise ValueError(f"lowest must not exceed highest, got {lowest} and {highest}")
    excess = _excess(as_non_negative("length", length), norm_bound)
    return low * excess, high * excess


def sharp_bracket(
    point: ArrayLike, image: ArrayLike, preimage: ArrayLike, norm_bound: float
) -> tuple[float, float]:
    r"""Bracket of the multiplier from two products of the matrix with the point.

    .. math:: \frac{\|w'\|^2}{w'^\top\tilde Z^{-1}w'}\Bigl(\frac{\|w'\|}{S} - 1\Bigr) \le \nu \le
              \frac{\|\tilde Zw'\|}{\|w'\|}\Bigl(\frac{\|w'\|}{S} - 1\Bigr)

    Parameters
    ----------
    point : (n,) array
        :math:`w' \ne 0`.
    image, preimage : (n,) array
        :math:`\tilde Zw'` and :math:`\tilde Z^{-1}w'`.
    norm_bound : float
        S > 0.

    Returns
    -------
    low, high : float
        Both 0 for a point in the ball.

    Raises
    ------
    ValueError
        If an argument is out of range, or :math:`w'^\top\tilde Z^{-1}w'` is not positive.

    Notes
    -----
    Not in the paper. For fixed :math:`w'` and :math:`\tilde Z` the multiplier approaches the lower end as
    :math:`S \to \|w'\|` and the upper one as :math:`S \to 0`, so that neither factor can be improved. The
    lower end is the first step of Newton's method on :math:`1/\|w(\nu)\|`.

    Examples
    --------
    >>> sharp_bracket([4.0, 0.0], [8.0, 0.0], [2.0, 0.0], 2.0)
    (2.0, 2.0)
    """
    w = as_finite("point", point)
    if w.ndim != 1 or not w.any():
        raise ValueError(f"point must be a vector that is not zero, got shape {w.shape}")
    forward, backward = as_vector("image", image, w.size), as_vector("preimage", preimage, w.size)
    quotient, length = float(w @ backward), float(np.linalg.norm(w))
    if not quotient > 0.0:
        raise ValueError(f"point @ preimage must be positive, got {quotient}: the matrix is not definite")
    excess = _excess(length, norm_bound)
    return length**2 / quotient * excess, float(np.linalg.norm(forward)) / length * excess


def newton_steps(start: float, tolerance: float) -> int:
    r"""Number of steps of :math:`a \leftarrow \frac12a(3 - a^2)` until :math:`1 - a` is small.

    This is Newton's method on :math:`\|w(\nu)\|^2 = S^2` for a matrix with one eigenvalue :math:`\zeta`, in
    :math:`a = (\zeta + \nu)/(\zeta + \nu_*)`. Started at :math:`\nu = 0`, it needs no more steps for a
    spectrum in :math:`[\zeta_{\min}, \zeta_{\max}]` than from
    :math:`a = \zeta_{\min}/(\zeta_{\min} + \nu_*)`; nor does Newton's method on :math:`1/\|w(\nu)\|`.

    Parameters
    ----------
    start : float
        :math:`a_0`, in (0, 1).
    tolerance : float
        By how much a may be less than 1 at the end, in (0, 1).

    Returns
    -------
    int
        At least :math:`\log_{3/2}((1 - \mathtt{tolerance})/a_0)`.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Paper: the proof of `lem:fd-oful-mlogb-efficient-W-update` counts :math:`\log\log\varepsilon` steps,
    without those that lead from the start into the region of quadratic convergence.

    Examples
    --------
    >>> newton_steps(0.5, 0.1), newton_steps(1e-12, 0.1)
    (3, 69)
    """
    a, target = as_probability("start", start), 1.0 - as_probability("tolerance", tolerance)
    steps = 0
    while a < target:
        following = a * (3.0 - a * a) / 2.0
        if following <= a:  # The tolerance is below the machine epsilon.
            break
        a, steps = following, steps + 1
    return steps


def _excess(length: float, norm_bound: float) -> float:
    r""":math:`(\|w'\|/S - 1)_+`."""
    bound = as_positive("norm_bound", norm_bound)
    return max((length - bound) / bound, 0.0)
