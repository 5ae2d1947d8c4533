r"""The smallest curvature of the link over the ball of parameters, by a search in K dimensions."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import minimize

from mlogb_core._validation import Array, as_integer, as_positive
from mlogb_core.link import outcome_probabilities

# The largest radius at which kappa, at most (K + 1)^2 exp(2 SD), is a double for any K of interest.
_LARGEST_RADIUS = 340.0


def inverse_curvature(n_outcomes: int, radius: float) -> float:
    r"""The largest inverse curvature of the link, :math:`\kappa`.

    .. math:: \kappa = \max_{\|z\|_2 \le SD} \frac1{\lambda_{\min}(\nabla\sigma(z))}, \qquad
              \kappa = 2 + 2\cosh(SD) \quad (K = 1)

    Parameters
    ----------
    n_outcomes : int
        K >= 1.
    radius : float
        SD > 0, the bound of the norm of the logits.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an argument is out of range, or :math:`\kappa` has no double.

    Notes
    -----
    The logits :math:`Wx` of all :math:`\|W\|_F \le S` and :math:`\|x\| \le D` fill the ball of radius SD, so
    that the bound is attained. For K >= 2 the maximum is searched on the sphere from a few starts: in each,
    no logit, one or all are low, and of the others none, one or all are high. The order of the outcomes does
    not matter. :math:`1/\lambda_{\min}` is computed as the largest eigenvalue of
    :math:`\operatorname{diag}(1/p) + \mathbf 1\mathbf 1^\top/p_0`, which loses no digits. The paper of
    MNL-UCB has the bound :math:`e^{SD}(1 + Ke^{SD})^2`, which is far larger: 34,000 in place of 90 for K = 2
    and SD = 3.
    """
    K, radius = as_integer("n_outcomes", n_outcomes, minimum=1), as_positive("radius", radius)
    if radius > _LARGEST_RADIUS:
        raise ValueError(
            f"norm_bound times feature_bound must be at most {_LARGEST_RADIUS:g} for a method that divides "
            f"by the smallest curvature of the link, got {radius:g}"
        )
    if K == 1:
        return 2.0 + 2.0 * math.cosh(radius)
    found = [minimize(_negative, start, args=(radius,), jac=True, method="BFGS") for start in _starts(K)]
    return math.exp(-min(float(result.fun) for result in found))


def _starts(n_outcomes: int) -> list[Array]:
    """Directions with no, one or only low logits, and no, one or only high ones beside them.

    They are a little out of symmetry, so that a search does not stay in it.
    """
    tilt = 0.05 * np.cos(np.arange(n_outcomes) + 1.0)
    patterns = []
    for low in (0, 1, n_outcomes):
        for high in sorted({0, 1, n_outcomes - low}):
            if 0 < low + high <= n_outcomes:
                middle = np.zeros(n_outcomes - low - high)
                patterns.append(np.concatenate((-np.ones(low), middle, np.ones(high))) + tilt)
    return patterns


def _negative(direction: Array, radius: float) -> tuple[float, Array]:
    """The negative logarithm of the inverse curvature at the end of a direction, and its gradient."""
    norm = float(np.linalg.norm(direction))
    unit = direction / norm
    p = outcome_probabilities(radius * unit)
    values, vectors = np.linalg.eigh(np.diag(1.0 / p[1:]) + 1.0 / p[0])
    inverse, u = float(values[-1]), vectors[:, -1]
    # d(lambda_min) = sum_k p_k ((u_k - E u)^2 - lambda_min) dz_k, the third mixed cumulant.
    slope = p[1:] * ((u - p[1:] @ u) ** 2 * inverse - 1.0)
    return -math.log(inverse), (radius / norm) * (slope - (slope @ unit) * unit)
