r"""A ridge that grows with the trace of the Hessians: :math:`Z_t = \lambda_t I`, one number.

With it a policy is a first-order method that adapts its step to the stream, as AdaGrad-Norm does. It is the
baseline for every sketch: where it plays as well, no directions are needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from mlogb_core._linalg import length
from mlogb_core._validation import Array, as_non_negative, as_positive, squared_lengths, take
from mlogb_core.curvature.base import Curvature, check_hessian, check_regularization
from mlogb_core.curvature.diagonal import DiagonalCurvature, DiagonalFrame, diagonal_matrices


class GrowingRidge(DiagonalCurvature):
    r"""The multiple of the identity :math:`Z = (\lambda + c\,\tau) I`, where :math:`\tau` is a sum of traces.

    .. math:: \lambda_{t+1} = \lambda_t + c\,\operatorname{tr}\bigl(\nabla\sigma(W_{t+1}x_t)\bigr)\|x_t\|^2,
              \qquad \lambda_1 = \lambda

    Parameters
    ----------
    n_outcomes, n_features, regularization
        As in `Curvature`.
    growth : float
        c > 0.

    Attributes
    ----------
    trace : float
        :math:`\tau \ge 0`, the sum of the traces of all Hessians so far.

    Notes
    -----
    Not in the paper. With :math:`c \ge 1` the full Hessian never exceeds Z. It stores one number, and a round
    takes O(Kd).
    """

    arguments = (*Curvature.arguments, "growth")

    def __init__(self, n_outcomes: int, n_features: int, regularization: float, growth: float = 1.0) -> None:
        Curvature.__init__(self, n_outcomes, n_features, regularization)
        self.growth = as_positive("growth", growth)
        self.trace = 0.0
        self.rank_bound = 0

    @property
    def ridge(self) -> float:
        r""":math:`\lambda + c\,\tau`."""
        return self.regularization + self.growth * self.trace

    @property
    def diagonal(self) -> Array:  # type: ignore[override]
        """The ridge, as an array that fits every outcome and feature."""
        return np.array([[self.ridge]])

    @property
    def image_cost(self) -> int:
        """0, as A(x) follows from the length of the action."""
        return 0

    def images(self, actions: Array) -> Array:
        """Empty (n, K, 0) arrays."""
        return np.empty((len(actions), self.n_outcomes, 0))

    @np.errstate(under="ignore")
    def inverse_blocks(
        self, actions: Array, images: Array | None = None, squares: Array | None = None
    ) -> Array:
        r"""The (n, K, K) blocks :math:`A(x) = \|x\|^2 I/\lambda_t`; `images` is not used."""
        squares = squared_lengths(actions) if squares is None else squares
        return diagonal_matrices(np.repeat(squares[:, None] / self.ridge, self.n_outcomes, axis=1))

    @np.errstate(under="ignore")
    def add(self, frame: DiagonalFrame, factor: Array, coordinates: Array | None = None) -> None:
        r"""Add the trace of :math:`F F^\top \otimes x x^\top` to :math:`\tau`.

        Raises
        ------
        ArithmeticError
            If the ridge is below the roundoff of the new Hessian, or overflows.
        """
        self.check_order(frame)
        check_hessian(self.ridge, factor, frame.action)
        self._end_round(float(np.square(factor).sum() * (frame.action @ frame.action)))

    def spectrum(self) -> Array:
        """Empty: Z is its ridge."""
        return np.empty(0)

    def state_dict(self) -> dict[str, Any]:
        """Everything that `from_state` needs, as numbers."""
        return Curvature.state_dict(self) | {"trace": self.trace}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild the curvature from `state_dict`."""
        curvature = cls(**{name: take(state, name) for name in cls.arguments})
        curvature.trace = as_non_negative("trace", take(state, "trace"))
        return curvature

    def _end_round(self, trace: float) -> None:
        """Add the trace of a round, and count it."""
        total = self.trace + trace
        largest = self.regularization + self.growth * total
        check_regularization(largest, largest)  # This raises if it overflows.
        self.trace = total
        self.updates += 1

    def _start(self, point: Array, norm_bound: float) -> float:
        """As in `DiagonalCurvature`, in the form that it takes for one number."""
        return (length(point.reshape(-1)) / norm_bound - 1.0) * self.ridge
