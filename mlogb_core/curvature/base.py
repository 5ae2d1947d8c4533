r"""What a policy asks of the accumulated Hessian, whatever represents it.

A curvature stands for a positive definite matrix :math:`Z` of size Kd x Kd, starting from
:math:`\lambda I`. A policy never sees the matrix. It asks for the K x K blocks
:math:`A(x) = (I \otimes x)^\top Z^{-1} (I \otimes x)` of its actions, which carry both norms of
the optimistic bonus, and for the proximal Newton step; then it adds the new Hessian.

What is expensive is computed once. The *image* of an action is the product of the representation
with :math:`I \otimes x`: the block is read off it, and the step reuses it. The *frame* of the
action that was played is what step and addition share.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from mlogb_core._linalg import add_to_diagonal, cholesky, invert_triangle, solve
from mlogb_core._validation import Array

Frame = TypeVar("Frame")
_EPS = float(np.finfo(np.float64).eps)


class Step(NamedTuple):
    r"""A projected Newton step.

    Attributes
    ----------
    parameter : (K, d) array
        :math:`W_{+}`.
    multiplier : float
        The dual variable :math:`\nu \ge 0` of the projection, 0 if :math:`W'` lies in the ball.
    """

    parameter: Array
    multiplier: float


class Curvature(Protocol[Frame]):
    r"""A representation of the accumulated Hessian :math:`Z = \lambda I + \sum \nabla^2\ell`.

    Attributes
    ----------
    n_outcomes, n_features : int
        K and d.
    regularization : float
        :math:`\lambda > 0`; no eigenvalue of Z is smaller.
    shrinkage : float
        :math:`\rho \ge 0`, the accumulated sketching error: :math:`Z \preceq H \preceq Z + \rho I`
        for the full Hessian H of the same stream. 0 for an exact representation.
    rank_bound : int
        The largest rank that :math:`Z - \lambda I` can have: m in the theorem's radius.
    image_cost : int
        Multiplications that the image of one action takes.
    """

    n_outcomes: int
    n_features: int
    regularization: float
    shrinkage: float
    rank_bound: int

    @property
    def image_cost(self) -> int:
        """Multiplications that the image of one action takes."""

    def images(self, actions: Array) -> Array:
        r"""Products of the representation with :math:`I \otimes x`, (n, K, .), for (n, d) actions."""

    def inverse_blocks(
        self, actions: Array, images: Array | None = None, squares: Array | None = None
    ) -> Array:
        r"""The (n, K, K) blocks :math:`A(x) = (I \otimes x)^\top Z^{-1} (I \otimes x)`.

        Images and squared lengths of the actions are computed unless they are given.
        """

    def frame(self, action: Array, image: Array | None = None) -> Frame:
        """What `newton_step` and `add` need to know about one action, from its image if given."""

    def newton_step(
        self,
        frame: Frame,
        parameter: Array,
        residual: Array,
        factor: Array,
        step_size: float,
        norm_bound: float,
    ) -> Step:
        r"""The proximal Newton step, projected onto the ball of radius S.

        .. math:: W' = W - \eta \tilde Z^{-1} (u \otimes x), \qquad
                  W_{+} = \arg\min_{\|W\|_F \le S} \|W - W'\|_{\tilde Z}, \qquad
                  \tilde Z = Z + \eta\, F F^\top \otimes x x^\top

        Parameters
        ----------
        frame
            The frame of the action x.
        parameter : (K, d) array
            W.
        residual : (K,) array
            :math:`u = \sigma(Wx) - \mathbf{y}`.
        factor : (K, K) array
            F with :math:`F F^\top = \nabla\sigma(Wx)`.
        step_size, norm_bound : float
            :math:`\eta > 0` and S > 0.

        Returns
        -------
        Step
            :math:`W_{+}` and the multiplier.
        """

    def add(self, frame: Frame, factor: Array) -> None:
        r"""Add :math:`F F^\top \otimes x x^\top` to Z; on an exception Z is as before."""

    def spectrum(self) -> Array:
        r"""Eigenvalues of :math:`Z - \lambda I`, decreasing, without those that are zero by rank."""

    def dense(self) -> Array:
        """Z as a (Kd, Kd) matrix, for checks and small problems."""

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on from here, as arrays and numbers."""


def step_weights(block: Array, residual: Array, factor: Array, step_size: float) -> Array:
    r"""The K weights that turn :math:`Z^{-1}` into the inverse of the step's own matrix.

    .. math:: \tilde Z^{-1}(u \otimes x) = Z^{-1}(v \otimes x), \qquad
              v = (I + \eta\nabla\sigma\, A(x))^{-1} u

    Parameters
    ----------
    block : (K, K) array
        A(x).
    residual : (K,) array
        u.
    factor : (K, K) array
        F with :math:`F F^\top = \nabla\sigma`.
    step_size : float
        :math:`\eta`.

    Returns
    -------
    (K,) array
        v.

    Notes
    -----
    With :math:`X = I \otimes x`, multiply :math:`\tilde Z = Z + \eta X\nabla\sigma X^\top` by
    :math:`Z^{-1}Xv`. One K x K solve stands for the paper's second factorisation of a round
    (`eq:oful-mlogb-W-gradient`). The difference form of Woodbury's identity,
    :math:`u - \eta F(I + \eta F^\top A F)^{-1}F^\top A u`, cancels where
    :math:`\eta\nabla\sigma A` is large.
    """
    if len(block) == 1:
        return np.asarray(residual / (1.0 + step_size * factor[0, 0] ** 2 * block[0, 0]))
    matrix = factor @ (factor.T @ block)
    matrix *= step_size
    add_to_diagonal(matrix, 1.0)
    return solve(matrix, residual)


def inverse_change(block: Array, solved: Array, factor: Array) -> Array:
    r"""Rows R with :math:`(Z + XFF^\top X^\top)^{-1} = Z^{-1} - R^\top R` for :math:`X = I \otimes x`.

    Parameters
    ----------
    block : (K, K) array
        A(x).
    solved : (K, n) array
        :math:`X^\top Z^{-1}`, in any orthonormal coordinates.
    factor : (K, K) array
        F.

    Returns
    -------
    (K, n) array

    Notes
    -----
    By Woodbury's identity R is :math:`(I + F^\top A F)^{-1/2} F^\top X^\top Z^{-1}` up to rotation.
    """
    inner = factor.T @ block @ factor
    add_to_diagonal(inner, 1.0)
    return np.asarray(invert_triangle(cholesky(inner)) @ (factor.T @ solved))


def check_regularization(regularization: float, largest: float) -> None:
    r"""Raise if :math:`\lambda` is lost in the roundoff of the largest eigenvalue of the data part.

    Parameters
    ----------
    regularization : float
        :math:`\lambda`.
    largest : float
        A lower bound of the largest eigenvalue.

    Raises
    ------
    ArithmeticError
        If :math:`\lambda` is below the machine epsilon times that eigenvalue, or the latter overflows.
    """
    roundoff = _EPS * largest
    if not math.isfinite(largest):
        raise ArithmeticError(f"the curvature overflows: its largest eigenvalue is about {largest}")
    if regularization < roundoff:
        raise ArithmeticError(
            f"regularization {regularization:.3g} is lost in the roundoff {roundoff:.3g} of the largest "
            f"eigenvalue of the curvature, about {largest:.3g}: double precision needs a larger one"
        )
