r"""Explore, then learn: the step and the radius on a small set of parameters, and the projection onto it.

A first phase of exploration leaves an ellipsoid that holds the true parameter and in which no logit of an
action varies by more than a constant. On it the loss is as good as quadratic, so that step size and ridge
of the second phase are free of S. Its projection is one onto an ellipsoid, which is a projection onto a ball
in a few other coordinates. Derivation: notebook ``19_instance_rate``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh
from scipy.optimize import brentq

from compendium.theory.loss import self_concordance
from compendium.theory.reward import curvature_constant
from mlogb_core._validation import (
    Array,
    as_finite,
    as_integer,
    as_non_negative,
    as_positive,
    as_probability,
    as_vector,
)
from mlogb_core.link import smoothness
from mlogb_core.projection import project_onto_ball
from mlogb_core.radius import exponential_slope


@dataclass(frozen=True)
class LowRank:
    r"""A matrix :math:`\lambda I + V\Lambda V^\top`, of which only the parts are stored.

    Attributes
    ----------
    ridge : float
        :math:`\lambda > 0`.
    vectors : (n, k) array
        V, any columns.
    values : (k,) array
        The diagonal of :math:`\Lambda`, each >= 0.

    Raises
    ------
    ValueError
        If an argument has the wrong shape or is out of range.
    """

    ridge: float
    vectors: Array
    values: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "ridge", as_positive("ridge", self.ridge))
        vectors = as_finite("vectors", self.vectors)
        if vectors.ndim != 2:
            raise ValueError(f"vectors must have shape (n, k), got {vectors.shape}")
        values = as_vector("values", self.values, vectors.shape[1])
        if (values < 0.0).any():
            raise ValueError(f"values must be at least 0, got {values.min()}")
        object.__setattr__(self, "vectors", vectors)
        object.__setattr__(self, "values", values)

    def dense(self) -> Array:
        """The matrix, (n, n)."""
        return np.asarray(self.ridge * np.eye(len(self.vectors)) + self._part(self.vectors))

    def within(self, basis: Array) -> Array:
        """The matrix in the coordinates of orthonormal columns."""
        return np.asarray(self.ridge * np.eye(basis.shape[1]) + self._part(basis.T @ self.vectors))

    def _part(self, vectors: Array) -> Array:
        return np.asarray((vectors * self.values) @ vectors.T)


@dataclass(frozen=True)
class Ellipsoid:
    r"""The set :math:`\|w - w_0\|_Q^2 \le \beta_0`.

    Attributes
    ----------
    centre : (n,) array
        :math:`w_0`.
    matrix : LowRank
        Q.
    radius : float
        :math:`\beta_0 > 0`, squared.

    Raises
    ------
    ValueError
        If the sizes differ or the radius is not positive.
    """

    centre: Array
    matrix: LowRank
    radius: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "centre", as_vector("centre", self.centre, len(self.matrix.vectors)))
        object.__setattr__(self, "radius", as_positive("radius", self.radius))


def project_onto_ellipsoid(matrix: LowRank, point: ArrayLike, ellipsoid: Ellipsoid) -> tuple[Array, float]:
    r"""The point of an ellipsoid that is nearest to :math:`w'` in the norm of :math:`\tilde Z`.

    .. math:: w = w_0 + (\tilde Z + \nu Q)^{-1}\tilde Z(w' - w_0), \qquad \|w - w_0\|_Q^2 = \beta_0

    Parameters
    ----------
    matrix : LowRank
        :math:`\tilde Z`.
    point : (n,) array
        :math:`w'`.
    ellipsoid : Ellipsoid
        The set.

    Returns
    -------
    projection : (n,) array
        The nearest point; `point` itself if it lies in the ellipsoid.
    multiplier : float
        :math:`\nu \ge 0`.

    Raises
    ------
    ValueError
        If the sizes differ.

    Notes
    -----
    Not in the paper, whose `rmk:extension` has the ball in mind. With q columns in both matrices the
    generalised eigenvectors E of both, restricted to the span of the columns, and one coordinate for what is
    orthogonal to it make the problem a projection onto a ball with a diagonal matrix: the costs are O(n q^2)
    for a basis of the span, O(q^3) for E, and O(q) for each evaluation of the scalar equation.
    """
    centre, away = ellipsoid.centre, as_vector("point", point, len(ellipsoid.centre)) - ellipsoid.centre
    if len(matrix.vectors) != centre.size:
        raise ValueError(f"matrix must have {centre.size} rows like the centre, got {len(matrix.vectors)}")
    basis, _ = np.linalg.qr(np.hstack((matrix.vectors, ellipsoid.matrix.vectors)))
    metric = ellipsoid.matrix.within(basis)
    values, vectors = eigh(matrix.within(basis), metric)  # vectors' metric vectors = I
    inside = basis.T @ away
    rest = away - basis @ inside
    scale = math.sqrt(ellipsoid.matrix.ridge) * float(np.linalg.norm(rest))
    inner = np.append(vectors.T @ (metric @ inside), scale)
    spectrum = np.append(values, matrix.ridge / ellipsoid.matrix.ridge)
    projected, multiplier = project_onto_ball(
        lambda nu: lambda vector: vector / (spectrum + nu),
        inner,
        spectrum * inner,
        math.sqrt(ellipsoid.radius),
    )
    if multiplier == 0.0:
        return centre + away, 0.0
    share = projected[-1] / scale if scale > 0.0 else 0.0
    return centre + basis @ (vectors @ projected[:-1]) + share * rest, multiplier


def project_onto_both(
    matrix: LowRank, point: ArrayLike, ellipsoid: Ellipsoid, norm_bound: float
) -> tuple[Array, float]:
    r"""The nearest point that lies in an ellipsoid and in the ball of radius S.

    The point is the projection onto the ellipsoid in the norm of :math:`\tilde Z + \nu_1 I` of
    :math:`(\tilde Z + \nu_1 I)^{-1}\tilde Zw'`. Its length falls with :math:`\nu_1`, so that a bracket and
    bisection find the multiplier of the ball.

    Parameters
    ----------
    matrix : LowRank
        :math:`\tilde Z`, with orthonormal columns.
    point : (n,) array
        :math:`w'`.
    ellipsoid : Ellipsoid
        An ellipsoid that has points in the open ball.
    norm_bound : float
        S > 0.

    Returns
    -------
    projection : (n,) array
    multiplier : float
        :math:`\nu_1 \ge 0`, that of the ball.

    Raises
    ------
    ValueError
        If the sets seem to have no inner point in common.

    Notes
    -----
    Not in the paper. `explored_parameters` needs no ball, so that the second phase may leave it out.
    """
    S = as_positive("norm_bound", norm_bound)
    w = as_vector("point", point, len(ellipsoid.centre))
    along = matrix.vectors.T @ w

    def nearest(nu: float) -> Array:
        shares = (matrix.ridge + matrix.values) / (matrix.ridge + matrix.values + nu)
        rest = (w - matrix.vectors @ along) * (matrix.ridge / (matrix.ridge + nu))
        moved = LowRank(matrix.ridge + nu, matrix.vectors, matrix.values)
        return project_onto_ellipsoid(moved, rest + matrix.vectors @ (shares * along), ellipsoid)[0]

    def excess(nu: float) -> float:
        return float(np.linalg.norm(nearest(nu))) - S

    if excess(0.0) <= 0.0:
        return nearest(0.0), 0.0
    high = matrix.ridge + float(matrix.values.max(initial=0.0))
    for _ in range(60):
        if excess(high) < 0.0:
            root = float(brentq(excess, 0.0, high, xtol=1e-14 * high, rtol=1e-14))
            return nearest(root), root
        high *= 4.0
    raise ValueError(f"norm_bound must exceed the least length in the ellipsoid, got {norm_bound}")


def logit_variation(n_outcomes: int, norm: float, radius: float) -> float:
    r"""Bound of the spread of :math:`(W - W')x` for any two points of an ellipsoid.

    .. math:: \omega((W - W')x) \le 2M_K\sqrt{\beta_0\,\|X^\top Q^{-1}X\|_2}

    Parameters
    ----------
    n_outcomes : int
        K.
    norm : float
        :math:`\|X^\top Q^{-1}X\|_2`, the largest over the actions.
    radius : float
        :math:`\beta_0`.

    Returns
    -------
    float
    """
    square = as_non_negative("norm", norm) * as_non_negative("radius", radius)
    return 2.0 * self_concordance(n_outcomes) * math.sqrt(square)


def explored_parameters(n_outcomes: int, variation: float, action_bound: float = 1.0) -> tuple[float, float]:
    r"""The smallest :math:`\lambda`, and the :math:`\eta`, of the second phase; both are free of S.

    .. math:: \eta = 1 + \tfrac12\bar\omega, \qquad
              \lambda = 2\eta D^2\max\{2L,\ \gamma_K\bar\omega\}

    Parameters
    ----------
    n_outcomes : int
        K.
    variation : float
        :math:`\bar\omega > 0`, a bound of the spread of :math:`(W - W')x` over the set and the actions.
    action_bound : float
        D.

    Returns
    -------
    regularization, step_size : float

    Notes
    -----
    Not in the paper. `mixture.ville_parameters` has :math:`1 + SD + \frac12\ln(K+1)` in place of
    :math:`\eta`, and :math:`2M_KSD` in place of :math:`\bar\omega`.

    Examples
    --------
    >>> explored_parameters(2, variation=1.0)
    (3.0, 1.5)
    """
    omega, D = as_positive("variation", variation), as_positive("action_bound", action_bound)
    K = as_integer("n_outcomes", n_outcomes, minimum=1)
    eta = 1.0 + 0.5 * omega
    return 2.0 * eta * D**2 * max(2.0 * smoothness(K), curvature_constant(K) * omega), eta


def explored_radius_terms(
    n_outcomes: int,
    variation: float,
    *,
    start: float,
    confidence: float,
    regularization: float,
    step_size: float,
    trace: float,
    logit_movement: float = 0.0,
    hessian_movement: float = 0.0,
    action_bound: float = 1.0,
) -> dict[str, float]:
    r"""Terms of the squared radius of the second phase.

    .. math:: \beta_{t+1} = \beta_1 + 2\eta\ln\tfrac1\delta + 2\eta^2\chi\,\mathcal T_t
              + \eta\gamma_K\bar\omega\sum_{s\le t}\|\Xi_sx_s\|_2^2 - \tfrac12\sum_{s\le t}\|\Xi_s\|_{Z_s}^2

    with :math:`\chi = (e^v - 1)/v` at :math:`v = 4\eta LD^2/\lambda`.

    Parameters
    ----------
    n_outcomes : int
        K.
    variation : float
        :math:`\bar\omega`.
    start : float
        :math:`\beta_1 \ge \|W_* - W_1\|_{Z_1}^2`, of the first phase.
    confidence : float
        :math:`\delta`.
    regularization : float
        :math:`\lambda` with :math:`Z_s \succeq \lambda I` in all rounds.
    step_size : float
        :math:`\eta \ge 1 + \bar\omega/2`.
    trace : float
        :math:`\mathcal T_t = \sum_{s\le t}\operatorname{tr}(\nabla^2\ell_s(W_{s+1})Z_s^{-1})`, or a bound.
    logit_movement, hessian_movement : float
        The two sums. From `explored_parameters` on their terms add up to at most 0 and may be left out.
    action_bound : float
        D.

    Returns
    -------
    dict
        Keys `start`, `martingale`, `sketch`, `logit_movement`, `hessian_movement`.

    Raises
    ------
    ValueError
        If the step size is too small or an argument is out of range.
    """
    omega, D = as_positive("variation", variation), as_positive("action_bound", action_bound)
    eta, lam = as_positive("step_size", step_size), as_positive("regularization", regularization)
    if eta < (1.0 + 0.5 * omega) * (1.0 - 1e-12):
        raise ValueError(f"step_size must be at least 1 + variation / 2 = {1.0 + 0.5 * omega:.6g}, got {eta}")
    slope = exponential_slope(4.0 * eta * smoothness(n_outcomes) * D**2 / lam)
    return {
        "start": as_non_negative("start", start),
        "martingale": -2.0 * eta * math.log(as_probability("confidence", confidence)),
        "sketch": 2.0 * eta**2 * slope * as_non_negative("trace", trace),
        "logit_movement": eta * curvature_constant(n_outcomes) * omega * logit_movement,
        "hessian_movement": -0.5 * hessian_movement,
    }
