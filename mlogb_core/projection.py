r"""Projection onto the ball in the norm of the accumulated Hessian, by its dual root.

The projection of :math:`w'` is :math:`w(\nu) = (\tilde Z + \nu I)^{-1}\tilde Z w'` with the
multiplier :math:`\nu \ge 0` at which :math:`\|w(\nu)\| = S`. The solver sees the matrix only
through its resolvent :math:`v \mapsto (\tilde Z + \nu I)^{-1} v`, so that one root search serves
the dense matrix and the sketch.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from mlogb_core._validation import Array

_MAX_STEPS = 200
_ROUNDOFF = 8.0 * np.finfo(np.float64).eps


class Resolvent(Protocol):
    r"""A factorisation of :math:`\tilde Z + \nu I`, made once and applied to several vectors."""

    def __call__(self, vector: Array) -> Array:
        r"""Return :math:`(\tilde Z + \nu I)^{-1} v`."""


class ResolventFactory(Protocol):
    r"""Makes the resolvent of :math:`\tilde Z` at a multiplier."""

    def __call__(self, multiplier: float) -> Resolvent:
        r"""Factor :math:`\tilde Z + \nu I`."""


def project_onto_ball(
    resolvent_at: ResolventFactory, point: Array, image: Array, norm_bound: float
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
    side is concave and increasing, so from :math:`\nu = 0` the iterates increase to the root: no
    bracket, and three to five steps (for a multiple of the identity it is linear and one step is
    exact). Newton's method on :math:`f(\nu) = \|w(\nu)\|^2 = S^2` itself converges from the
    same side, but only multiplies :math:`\nu + \lambda` by 3/2 a step while :math:`f` is far
    above :math:`S^2`.
    """
    length = float(np.linalg.norm(point))
    if length <= norm_bound:
        return point, 0.0
    multiplier = 0.0
    for _ in range(_MAX_STEPS):
        resolvent = resolvent_at(multiplier)
        projected = point if multiplier == 0.0 else resolvent(image)
        length = float(np.linalg.norm(projected))
        # d||w||^2/dnu = -2 w'(Z + nu I)^{-1} w
        slope = float(projected @ resolvent(projected))
        if not slope > 0.0:
            raise ArithmeticError(
                f"the projection onto the ball of radius {norm_bound} did not settle: "
                f"slope {slope} at length {length}"
            )
        step = (length / norm_bound - 1.0) * length**2 / slope
        if step <= _ROUNDOFF * multiplier or length <= norm_bound * (1.0 + _ROUNDOFF):
            return projected, multiplier
        multiplier += step
    raise ArithmeticError(
        f"the projection onto the ball of radius {norm_bound} did not settle in {_MAX_STEPS} steps "
        f"(multiplier {multiplier}, length {length})"
    )
