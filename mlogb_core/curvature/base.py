r"""The interface between a policy and the accumulated Hessian, whatever represents it.

A curvature represents a positive definite matrix :math:`Z` of size Kd x Kd, which starts as
:math:`\lambda I`. A policy never forms the matrix. To select an action it needs the K x K blocks
:math:`A(x) = (I \otimes x)^\top Z^{-1} (I \otimes x)`, from which both norms of the optimistic bonus follow,
or a draw with covariance :math:`Z^{-1}`. To learn it takes the proximal Newton step and adds the new Hessian.

Two intermediate results are kept, so that they are computed once. The *image* of an action is the product of
the representation with :math:`I \otimes x`; the block A(x) and the step use it. The *frame* of the action
that was played holds what the step and the addition share.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from mlogb_core._linalg import add_to_diagonal, cholesky, invert_triangle, solve
from mlogb_core._ownership import Owned
from mlogb_core._state import class_name
from mlogb_core._validation import Array, as_integer, as_positive, take

_EPS = float(np.finfo(np.float64).eps)


class AnyFrame(Protocol):
    """The attribute that the frames of all curvatures have, by which an outdated one is recognised."""

    @property
    def updates(self) -> int:
        """`Curvature.updates` when the frame was made."""


Frame = TypeVar("Frame", bound=AnyFrame)


class Step(NamedTuple):
    r"""A projected Newton step.

    Attributes
    ----------
    parameter : (K, d) array
        :math:`W_{+}`. It is read-only if there are coordinates, which would be wrong after a change in place.
    multiplier : float
        The dual variable :math:`\nu \ge 0` of the projection, 0 if :math:`W'` lies in the ball.
    coordinates : array or None
        Coordinates of :math:`W_{+}` in the frame's basis, if the curvature keeps track of them. `add` takes
        them and returns the coordinates in the new basis, which the next step takes.
    """

    parameter: Array
    multiplier: float
    coordinates: Array | None = None


class Curvature(Owned, ABC, Generic[Frame]):
    r"""A representation of the accumulated Hessian :math:`Z = \lambda I + \sum \nabla^2\ell`.

    The calls of a round, in this order:

    1. `images`, `inverse_blocks` and `sample`, any number of times: they change nothing;
    2. `frame` of the action that was played;
    3. `newton_step` in this frame, any number of times;
    4. `add` in this frame, once. It changes Z, so that all earlier images and frames are out of date.

    `newton_step` and `add` begin with `check_order`, which refuses a frame that is out of date, and `add`
    ends by increasing `updates`. Subclasses can be restored from the saved state of a policy by their name.

    Parameters
    ----------
    n_outcomes, n_features : int
        K >= 1 and d >= 1.
    regularization : float
        :math:`\lambda > 0`.

    Attributes
    ----------
    regularization : float
        :math:`\lambda`, as it was given; the radius depends on it.
    shrinkage : float
        :math:`\rho \ge 0`, the accumulated sketching error: the amounts that were subtracted from the sketch.
        0 for an exact representation.
    rank_bound : int
        The largest rank that the part of Z besides the ridge can have: m in the theorem's radius. Where the
        rank `grows`, the largest one so far.
    updates : int
        Number of Hessians that were added to this object.

    Raises
    ------
    ValueError
        If a size is below 1 or the regularization is not positive.
    """

    #: The arguments of the constructor, each of which is kept in an attribute of the same name.
    arguments: ClassVar[tuple[str, ...]] = ("n_outcomes", "n_features", "regularization")
    #: Whether the rank, and with it the memory, depends on the stream.
    grows: ClassVar[bool] = False
    rank_bound: int

    def __init__(self, n_outcomes: int, n_features: int, regularization: float) -> None:
        self.n_outcomes = as_integer("n_outcomes", n_outcomes, minimum=1)
        self.n_features = as_integer("n_features", n_features, minimum=1)
        self.regularization = as_positive("regularization", regularization)
        self.shrinkage = 0.0
        self.updates = 0

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _CLASSES[class_name(cls)] = cls

    @property
    def ridge(self) -> float:
        r"""The multiple of the identity in Z, :math:`\lambda` unless a subclass lets it grow.

        No eigenvalue of Z is smaller.
        """
        return self.regularization

    @property
    @abstractmethod
    def image_cost(self) -> int:
        """Multiplications that the image of one action takes."""

    @abstractmethod
    def images(self, actions: Array) -> Array:
        r"""Products of the representation with :math:`I \otimes x`, (n, K, .), for (n, d) actions."""

    @abstractmethod
    def inverse_blocks(
        self, actions: Array, images: Array | None = None, squares: Array | None = None
    ) -> Array:
        r"""The (n, K, K) blocks :math:`A(x) = (I \otimes x)^\top Z^{-1} (I \otimes x)`.

        Parameters
        ----------
        actions : (n, d) array
            The actions.
        images : (n, K, .) array, optional
            Their images, if they are known.
        squares : (n,) array, optional
            Their squared lengths, if they are known.

        Returns
        -------
        (n, K, K) array
        """

    @abstractmethod
    def sample(self, normal: Array) -> Array:
        r"""A draw from :math:`\mathcal N(0, Z^{-1})`: a root of :math:`Z^{-1}` times a standard normal.

        Parameters
        ----------
        normal : (K, d) array
            Independent standard normal numbers.

        Returns
        -------
        (K, d) array
            :math:`R\xi` with :math:`RR^\top = Z^{-1}`. Each class has its own root R, so that two
            representations of the same Z may turn the same numbers into different draws.
        """

    @abstractmethod
    def frame(self, action: Array, image: Array | None = None) -> Frame:
        """What `newton_step` and `add` need of one action, (d,), computed from its image if that is given."""

    @abstractmethod
    def newton_step(
        self,
        frame: Frame,
        parameter: Array,
        residual: Array,
        factor: Array,
        step_size: float,
        norm_bound: float,
        coordinates: Array | None = None,
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
        coordinates : array, optional
            The coordinates of W that the last `add` returned, if any.

        Returns
        -------
        Step
            :math:`W_{+}` and the multiplier.

        Raises
        ------
        ValueError
            If the frame is older than the last `add`.

        Notes
        -----
        Paper: `eq:oful-mlogb-W-gradient` and `eq:oful-mlogb-W-projection`.
        """

    @abstractmethod
    def add(self, frame: Frame, factor: Array, coordinates: Array | None = None) -> Array | None:
        r"""Add :math:`F F^\top \otimes x x^\top` to Z; on an exception Z is as before.

        Parameters
        ----------
        frame
            The frame of the action x.
        factor : (K, K) array
            F.
        coordinates : array, optional
            The coordinates of the parameter that the step returned, if any.

        Returns
        -------
        array or None
            The coordinates of the parameter in the new basis, for the next step; None if none were given.

        Raises
        ------
        ValueError
            If the frame is older than the last `add`.
        ArithmeticError
            If the ridge is below the roundoff of the largest eigenvalue.
        """

    def check_order(self, frame: Frame) -> None:
        """Raise if the frame is older than the last `add`."""
        if frame.updates != self.updates:
            raise ValueError(
                f"frame must be made after the last add: it is that of Z after {frame.updates} updates, "
                f"and there have been {self.updates}"
            )

    @abstractmethod
    def spectrum(self) -> Array:
        r"""Eigenvalues of Z minus the ridge, decreasing; a sketch leaves out the zeros outside its basis."""

    def largest_eigenvalue(self) -> float:
        """The first value of `spectrum`, or 0 if it is empty."""
        spectrum = self.spectrum()
        return float(spectrum[0]) if spectrum.size else 0.0

    @abstractmethod
    def dense(self) -> Array:
        """Z as a (Kd, Kd) matrix, for checks and small problems."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that `from_state` needs, as arrays and numbers."""
        return {name: getattr(self, name) for name in self.arguments}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild a curvature of this class from `state_dict`.

        Raises
        ------
        ValueError
            If an entry is missing or does not fit.
        """
        return cls(**{name: take(state, name) for name in cls.arguments})

    def check_coordinates(self, parameter: Array, coordinates: Array) -> None:
        """Raise unless saved coordinates are those of the saved parameter."""
        raise ValueError(f"coordinates must be left out: {type(self).__name__} keeps none")


_CLASSES: dict[str, type[Curvature[Any]]] = {}


def curvature_class(name: str) -> type[Curvature[Any]]:
    """The subclass of `Curvature` that a state records under this name.

    Raises
    ------
    ValueError
        If no such class is known. The module that defines it has to be imported first.
    """
    known = {name: kind for name, kind in _CLASSES.items() if not inspect.isabstract(kind)}
    if name not in known:
        raise ValueError(
            f"curvature must be one of {sorted(known)}, got {name!r} (has its module been imported?)"
        )
    return known[name]


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
    To verify, multiply :math:`\tilde Z = Z + \eta X\nabla\sigma X^\top`, with :math:`X = I \otimes x`, by
    :math:`Z^{-1}Xv`. Paper: `eq:oful-mlogb-W-gradient`, for which it takes a second factorisation per round;
    one K x K solve replaces that. The difference form of Woodbury's identity,
    :math:`u - \eta F(I + \eta F^\top A F)^{-1}F^\top A u`, would cancel where
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


def check_hessian(regularization: float, factor: Array, action: Array) -> None:
    r"""`check_regularization` for one Hessian :math:`F F^\top \otimes x x^\top`: their sum is not known."""
    columns = np.square(factor).sum(axis=0).max()
    check_regularization(regularization, float(columns * (action @ action)))


def check_regularization(regularization: float, largest: float) -> None:
    r"""Raise if the ridge is lost in the roundoff of the largest eigenvalue of the data part.

    Parameters
    ----------
    regularization : float
        The ridge, :math:`\lambda` at first.
    largest : float
        A lower bound of the largest eigenvalue.

    Raises
    ------
    ArithmeticError
        If the ridge is below the machine epsilon times that eigenvalue, or the latter overflows.
    """
    roundoff = _EPS * largest
    if not math.isfinite(largest):
        raise ArithmeticError(f"the curvature overflows: its largest eigenvalue is about {largest}")
    if regularization < roundoff:
        raise ArithmeticError(
            f"regularization {regularization:.3g} is lost in the roundoff {roundoff:.3g} of the largest "
            f"eigenvalue of the curvature, about {largest:.3g}: double precision needs a larger one"
        )
