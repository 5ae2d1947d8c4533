r"""What a policy asks of the accumulated Hessian, whatever represents it.

A curvature stands for a positive definite matrix :math:`Z` of size Kd x Kd, starting from
:math:`\lambda I`. A policy never sees the matrix. It asks for the K x K blocks
:math:`A(x) = (I \otimes x)^\top Z^{-1} (I \otimes x)` of its actions, which carry both norms of
the optimistic bonus, and for the proximal Newton step; then it adds the new Hessian. The last two
concern one action, and what they share about it is a *frame*, computed once a round.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from mlogb_core._validation import Array

Frame = TypeVar("Frame")


class Curvature(Protocol[Frame]):
    r"""A representation of the accumulated Hessian :math:`Z = \lambda I + \sum \nabla^2\ell`.

    Attributes
    ----------
    n_outcomes, n_features : int
        K and d.
    regularization : float
        :math:`\lambda > 0`.
    shrinkage : float
        :math:`\rho \ge 0`, the accumulated sketching error: :math:`Z \preceq H \preceq Z + \rho I`
        for the full Hessian H of the same stream. 0 for an exact representation.
    rank_bound : int
        The largest rank that :math:`Z - \lambda I` can have: m in the theorem's radius.
    """

    n_outcomes: int
    n_features: int
    regularization: float
    shrinkage: float
    rank_bound: int

    def inverse_blocks(self, actions: Array) -> Array:
        r"""The (n, K, K) blocks :math:`A(x) = (I \otimes x)^\top Z^{-1} (I \otimes x)`."""

    def frame(self, action: Array) -> Frame:
        """What `newton_step` and `add` need to know about one action."""

    def newton_step(
        self,
        frame: Frame,
        parameter: Array,
        residual: Array,
        factor: Array,
        step_size: float,
        norm_bound: float,
    ) -> Array:
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
        (K, d) array
            :math:`W_{+}`.
        """

    def add(self, frame: Frame, factor: Array) -> None:
        r"""Add :math:`F F^\top \otimes x x^\top` to Z; on an exception Z is as before."""

    def quadratic(self, direction: Array) -> float:
        r""":math:`\|\Delta\|_Z^2` of a (K, d) direction."""

    def spectrum(self) -> Array:
        r"""Eigenvalues of :math:`Z - \lambda I`, decreasing, without those that are zero by rank."""

    def dense(self) -> Array:
        """Z as a (Kd, Kd) matrix, for checks and small problems."""

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on from here, as arrays and numbers."""
