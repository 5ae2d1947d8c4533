r"""Projection onto the ball in the norm of the accumulated Hessian, by its dual root.

The projection of a point :math:`w'` outside the ball is
:math:`w(\nu) = (\tilde Z + \nu I)^{-1}\tilde Z w'` with the multiplier :math:`\nu > 0` at which
:math:`\|w(\nu)\| = S`. The root search uses the matrix only through its resolvent
:math:`v \mapsto (\tilde Z + \nu I)^{-1} v`. The same search therefore serves the sketch and, restricted to a
Krylov space of the inverse, the full matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.linalg import eigh_tridiagonal
from scipy.linalg.blas import dnrm2
from scipy.linalg.lapack import dstev

from mlogb_core._linalg import length
from mlogb_core._thresholds import ROUNDOFF
from mlogb_core._validation import Array

_MAX_STEPS = 200
_LOW_ORDER = 30  # Up to this order the QL iteration finds all eigenpairs of a tridiagonal matrix fastest.
_MAX_TERMS = 6  # More products with a resolvent than this take longer than another factorisation.


#: The resolvent :math:`v \mapsto (\tilde Z + \nu I)^{-1} v`, with a factorisation that is made once.
Resolvent = Callable[[Array], Array]


@np.errstate(under="ignore")
def project_onto_ball(
    resolvent_at: Callable[[float], Resolvent],
    point: Array,
    image: Array,
    norm_bound: float,
    start: float = 0.0,
    series: bool = True,
) -> tuple[Array, float]:
    r"""Project a point onto the ball of radius S in the norm of :math:`\tilde Z`.

    .. math:: \arg\min_{\|w\|_2 \le S} (w - w')^\top \tilde Z (w - w')

    Parameters
    ----------
    resolvent_at : callable
        Maps :math:`\nu \ge 0` to the map :math:`v \mapsto (\tilde Z + \nu I)^{-1} v`.
    point : (n,) array
        The point :math:`w'`.
    image : (n,) array
        :math:`\tilde Z w'`. Solving with it keeps :math:`w(\nu)` accurate when the point lies far
        outside the ball, where :math:`w' - \nu(\tilde Z + \nu I)^{-1}w'` cancels.
    norm_bound : float
        The radius S > 0.
    start : float
        Where the root search starts if the point lies outside: a multiplier :math:`\ge 0` that is not above
        the root.
    series : bool
        Whether powers of a resolvent may take the place of the last factors; without them every iterate
        is Newton's.

    Returns
    -------
    projection : (n,) array
        The projection; `point` itself if it lies in the ball.
    multiplier : float
        The dual variable :math:`\nu \ge 0`.

    Raises
    ------
    ArithmeticError
        If the root search does not settle, which needs a matrix that double precision cannot
        carry (a condition number near 1e16).

    Notes
    -----
    Paper: `eq:oful-mlogb-W-projection` and `lem:fd-oful-mlogb-efficient-W-update`, which leaves
    the root finder open. Here Newton's method is applied to :math:`1/\|w(\nu)\| = 1/S`. The left
    side is concave and increasing, so from :math:`\nu = 0` or any start below the root the iterates
    increase to it: no bracket, and three to five steps (for a multiple of the identity it is linear
    and one step is exact). Near the root powers of the resolvent at hand take the place of the last
    steps, and of their factorisations. Newton's method on :math:`f(\nu) = \|w(\nu)\|^2 = S^2` itself
    converges from the same side, but only multiplies :math:`\nu + \lambda` by 3/2 a step while
    :math:`f` is far above :math:`S^2`.
    """
    norm = length(point)
    if norm <= norm_bound:
        return point, 0.0
    multiplier = start
    for _ in range(_MAX_STEPS):
        resolvent = resolvent_at(multiplier)
        projected = point if multiplier == 0.0 else resolvent(image)
        norm = length(projected)
        if norm <= norm_bound * (1.0 + ROUNDOFF):
            return projected, multiplier
        # d||w||^2/dnu = -2 w'(Z + nu I)^{-1} w
        derivative = resolvent(projected)
        slope = float(np.dot(projected, derivative))
        if not slope > 0.0:
            raise ArithmeticError(
                f"the projection onto the ball of radius {norm_bound} did not settle: "
                f"slope {slope} at length {norm}"
            )
        step = (norm / norm_bound - 1.0) * norm**2 / slope
        if step <= ROUNDOFF * multiplier:
            return projected, multiplier
        near = _by_series(resolvent, projected, derivative, step, norm_bound) if series else None
        if near is not None:
            return near[0], multiplier + near[1]
        multiplier += step
    raise ArithmeticError(
        f"the projection onto the ball of radius {norm_bound} did not settle in {_MAX_STEPS} steps "
        f"(multiplier {multiplier}, length {norm})"
    )


def _by_series(
    resolvent: Resolvent, point: Array, derivative: Array, step: float, norm_bound: float
) -> tuple[Array, float] | None:
    r"""The projection and the remaining change of the multiplier, from powers of the last resolvent.

    With :math:`R = (\tilde Z + \nu I)^{-1}` and :math:`w = w(\nu)`,

    .. math:: w(\nu + \delta) = \sum_{j \le p} (-\delta R)^j w + e, \qquad
              \|e\| \le \|(\delta R)^{p+1} w\|,

    so that near the root some products with R replace another factorisation of :math:`\tilde Z + \nu I`.
    Returns None if the terms do not fall to roundoff within the products allowed.
    """
    norm = length(point)
    negligible, size = 0.1 * ROUNDOFF * norm, step * float(dnrm2(derivative))  # The size may overflow.
    if not size * min(size / norm, 1.0) ** _MAX_TERMS <= negligible:
        return None
    terms = [point, step * derivative]
    while size > negligible:
        if len(terms) > _MAX_TERMS:
            return None
        terms.append(step * resolvent(terms[-1]))
        size = float(dnrm2(terms[-1]))
    sums = np.array(terms)
    products = np.dot(sums, sums.T).tolist()
    # The squared length is a polynomial in the multiplier's change, in units of -step.
    squares = [0.0] * (2 * len(terms) - 1)
    for i, row in enumerate(products):
        for j, product in enumerate(row):
            squares[i + j] += product
    slope = products[0][1] / norm**2
    if not slope > 0.0:  # The slope underflows for very short points.
        return None
    ratio = 1.0
    for _ in range(_MAX_TERMS):
        square = 0.0
        for coefficient in reversed(squares):
            square = coefficient - ratio * square
        error = math.sqrt(max(square, 0.0)) / norm_bound - 1.0
        if abs(error) <= ROUNDOFF:
            return np.dot([(-ratio) ** power for power in range(len(terms))], sums), ratio * step
        ratio += error / slope
    return None


@np.errstate(under="ignore")
def project_by_lanczos(
    apply_inverse: Callable[[Array], Array], point: Array, norm_bound: float
) -> tuple[Array, float]:
    r"""Project onto the ball of radius S in the norm of a matrix that is given by its inverse.

    With :math:`\tilde P = \tilde Z^{-1}`, :math:`w(\nu) = (I + \nu\tilde P)^{-1} w'`. One Krylov space of
    :math:`\tilde P`, started from :math:`w'`, serves every :math:`\nu`: Lanczos' method gives an orthonormal
    basis of it, in which :math:`\tilde P` is a tridiagonal matrix. In the eigenbasis of that matrix
    `project_onto_ball` finds the root.

    Parameters
    ----------
    apply_inverse : callable
        :math:`v \mapsto \tilde Z^{-1} v`.
    point : (n,) array
        The point :math:`w'`.
    norm_bound : float
        The radius S > 0.

    Returns
    -------
    projection : (n,) array
    multiplier : float

    Raises
    ------
    ArithmeticError
        If the inverse is not positive definite in double precision.

    Notes
    -----
    Each new vector is made orthogonal to the last two by the three-term recurrence, and then once more to
    the whole basis, so that at most n steps are needed in floating-point arithmetic too. The basis grows
    until the residual of :math:`(I + \nu\tilde P)w = w'` shows that the error of w is at most roundoff. The
    number of steps is some ten where :math:`\lambda` is not far below the largest eigenvalue, and grows like
    the square root of their ratio.
    """
    norm = length(point)
    if norm <= norm_bound:
        return point, 0.0
    basis = np.empty((min(16, point.size), point.size))
    basis[0] = point / norm
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    check = 4
    for size in range(1, point.size + 1):
        vector = apply_inverse(basis[size - 1])
        diagonal.append(float(vector @ basis[size - 1]))
        vector -= diagonal[-1] * basis[size - 1]
        if size > 1:
            vector -= off_diagonal[-1] * basis[size - 2]
        vector -= (basis[:size] @ vector) @ basis[:size]
        rest = length(vector)
        complete = size == point.size or rest <= ROUNDOFF * diagonal[0]
        if complete or size == check:
            small, multiplier, smallest = _project_tridiagonal(diagonal, off_diagonal, norm, norm_bound)
            error = multiplier * rest * abs(small[-1]) / (1.0 + multiplier * smallest)
            if complete or error <= ROUNDOFF * norm_bound:
                return small @ basis[:size], multiplier
            check += 1 + check // 3
        if size == len(basis):
            basis = np.vstack((basis, np.empty((min(size, point.size - size), point.size))))
        basis[size] = vector / rest
        off_diagonal.append(rest)
    raise AssertionError("unreachable: the last step is complete")


def _project_tridiagonal(
    diagonal: list[float], off_diagonal: list[float], norm: float, norm_bound: float
) -> tuple[Array, float, float]:
    r"""Coordinates of :math:`w(\nu)` in the Krylov basis, the multiplier, the smallest Ritz value."""
    ritz, vectors = _tridiagonal_eigenpairs(diagonal, off_diagonal)
    if not ritz[0] > 0.0:
        raise ArithmeticError(
            f"the inverse of the curvature has the eigenvalue {ritz[0]:.3g}, which must be positive: "
            "double precision needs a larger regularization"
        )
    point = norm * vectors[0]

    def resolvent_at(multiplier: float) -> Resolvent:
        return lambda vector: vector * ritz / (1.0 + multiplier * ritz)

    # A factorisation costs nothing here, so that powers of the last one would be slower than another.
    projected, multiplier = project_onto_ball(resolvent_at, point, point / ritz, norm_bound, series=False)
    return np.asarray(vectors @ projected), multiplier, float(ritz[0])


def _tridiagonal_eigenpairs(diagonal: list[float], off_diagonal: list[float]) -> tuple[Array, Array]:
    """Eigenvalues of a symmetric tridiagonal matrix, ascending, and their eigenvectors as columns.

    For a matrix of low order LAPACK's QL iteration takes a few microseconds, and the checks of SciPy's
    general function take several times as long.
    """
    main, beside = np.array(diagonal), np.array(off_diagonal)
    if 1 < len(main) <= _LOW_ORDER:
        values, vectors, info = dstev(main, beside)
        if info == 0:
            return values, vectors
    values, vectors = eigh_tridiagonal(main, beside, check_finite=False)
    return values, vectors
