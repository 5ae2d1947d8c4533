r"""The base class of policies over a curvature: they learn by proximal Newton steps.

After each outcome the parameter takes a proximal Newton step on its loss, and the new Hessian is added to the
curvature. Policies differ in how they select: by a bonus (`OptimisticPolicy`) or by a draw
(`ThompsonPolicy`).
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError

from mlogb_core._ownership import Owned
from mlogb_core._state import class_name
from mlogb_core._validation import (
    Array,
    as_finite,
    as_integer,
    as_margin,
    as_matrix,
    as_non_negative,
    as_number,
    as_outcome,
    as_positive,
    as_rewards,
    as_vector,
    take,
)
from mlogb_core.choice import TIE_TOLERANCE
from mlogb_core.curvature import Curvature
from mlogb_core.curvature.base import curvature_class
from mlogb_core.link import finite_probabilities, jacobian_factor, loss_residual
from mlogb_core.observed import PlayedRound
from mlogb_core.radius import Progress, Radius, is_radius, radius_from

# In a ball of smaller radius S the slopes of the root search, which are of order S^3, can underflow.
_SMALLEST_BALL = 1e-80
# The version of the format of saved states; a state of another version is refused.
_FORMAT = 2


class Learned(NamedTuple):
    """The result of an update.

    Attributes
    ----------
    parameter : (K, d) array
        The new parameter.
    movement : (float, float)
        The two squared lengths of `movement`, or zeros if the radius does not need them.
    coordinates : array or None
        Coordinates of the parameter, if the curvature keeps track of them.
    surplus : float
        What the radius adds up of the round, or 0 if it adds up nothing.
    """

    parameter: Array
    movement: tuple[float, float]
    coordinates: Array | None = None
    surplus: float = 0.0


class NewtonPolicy(Owned, ABC):
    r"""A policy over a curvature that learns by proximal Newton steps; subclasses implement `select`.

    Parameters
    ----------
    curvature : Curvature
        The accumulated Hessian; the policy owns it from here on.
    rewards : (K,) array
        Rewards >= 0 of the outcomes 1..K; that of outcome 0 is 0.
    step_size : float
        :math:`\eta > 0`.
    norm_bound : float
        :math:`S \ge 10^{-80}`: the parameter stays in the ball :math:`\|W\|_F \le S`.
    radius : Radius
        The rule for :math:`\beta_t`.
    tie_tolerance : float
        Relative tolerance of `choose`.

    Attributes
    ----------
    rounds : int
        Number of updates so far.
    margin : float
        Decision margin of the last `select`.
    smallest_margin : float
        The smallest margin of all rounds that were updated after a `select`.

    Raises
    ------
    ValueError
        If an argument is out of range; the message names it.
    """

    compiled = False
    #: What `select` has computed of the selected action, for the update that follows.
    _selected: Any = None

    def __init__(
        self,
        curvature: Curvature[Any],
        rewards: ArrayLike,
        *,
        step_size: float,
        norm_bound: float,
        radius: Radius,
        tie_tolerance: float = TIE_TOLERANCE,
    ) -> None:
        self.curvature = curvature
        self.rewards = as_vector("rewards", as_rewards(rewards), curvature.n_outcomes)
        self.step_size = as_positive("step_size", step_size)
        self.norm_bound = as_positive("norm_bound", norm_bound)
        if self.norm_bound < _SMALLEST_BALL:
            raise ValueError(f"norm_bound must be at least {_SMALLEST_BALL:g}, got {norm_bound!r}")
        self.tie_tolerance = as_non_negative("tie_tolerance", tie_tolerance)
        if not is_radius(radius):
            raise ValueError(f"radius must be a Radius such as ConstantRadius(0.1), got {radius!r}")
        self.radius = radius
        #: d in the radius. It is that of the curvature, unless actions are given in other coordinates.
        self.n_features = curvature.n_features
        self.parameter = np.zeros((curvature.n_outcomes, curvature.n_features))
        self.rounds = 0
        self.margin = np.inf
        self.smallest_margin = np.inf
        self._logit_movement = 0.0
        self._hessian_movement = 0.0
        self._surplus = 0.0

    @property
    def curvature(self) -> Curvature[Any]:
        """The accumulated Hessian."""
        return self._curvature

    @curvature.setter
    def curvature(self, value: Curvature[Any]) -> None:
        self._curvature = value
        self._coordinates: Array | None = None

    @property
    def parameter(self) -> Array:
        """W, (K, d), at first 0. To change it, assign another array, which is checked and copied.

        Its entries may be read-only.
        """
        return self._parameter

    @parameter.setter
    def parameter(self, value: ArrayLike) -> None:
        shape = self._curvature.n_outcomes, self._curvature.n_features
        self._parameter = as_matrix("parameter", value, shape).copy()
        self._coordinates = None

    @property
    def coordinates(self) -> Array | None:
        """Coordinates of the parameter in the basis of the curvature, which the next step uses.

        None if the curvature keeps none, or after another parameter has been assigned.
        """
        return self._coordinates

    @property
    def beta(self) -> float:
        r"""The squared radius :math:`\beta_t` of the coming round."""
        return self.radius.value(self.progress)

    @property
    def progress(self) -> Progress:
        """The state of the policy, as far as the radius depends on it."""
        curvature = self._curvature
        return Progress(
            curvature.n_outcomes,
            self.n_features,
            curvature.rank_bound,
            curvature.regularization,
            self.step_size,
            self.norm_bound,
            self.rounds,
            curvature.shrinkage,
            self._logit_movement,
            self._hessian_movement,
            curvature.ridge - curvature.regularization,
            self._surplus,
        )

    @np.errstate(under="ignore")
    def summary(self) -> dict[str, float]:
        r"""Four numbers that describe the state of the policy.

        Returns
        -------
        dict
            `shrinkage` :math:`\rho`; `largest_eigenvalue` of Z minus its ridge, to be compared with
            :math:`\lambda`; `parameter_norm` :math:`\|W\|_F`, to be compared with S; and
            `smallest_margin`.
        """
        return {
            "shrinkage": self.curvature.shrinkage,
            "largest_eigenvalue": self.curvature.largest_eigenvalue(),
            "parameter_norm": float(np.linalg.norm(self.parameter)),
            "smallest_margin": self.smallest_margin,
        }

    @abstractmethod
    def select(self, actions: ArrayLike) -> int:
        """Index of the action to play, of an (n, d) set with n >= 1."""

    # NumPy's warnings of overflow are off, since the results are checked for it.
    @np.errstate(over="ignore", under="ignore")
    def update(self, action: ArrayLike, outcome: int) -> None:
        """Take the proximal Newton step for one outcome and add its Hessian.

        Parameters
        ----------
        action : (d,) array
            The action that was played; it need not be the selected one.
        outcome : int
            The observed outcome in 0..K.

        Raises
        ------
        ValueError
            If the action has the wrong shape or is not finite, or the outcome is out of range.
        ArithmeticError
            If the regularization is too small for double precision, the logits overflow, or a factorisation
            fails; the message names the round. After either exception the policy is unchanged. An interrupt
            from outside can come between two of its assignments.
        """
        action = as_vector("action", action, self._curvature.n_features)
        outcome = as_outcome(outcome, self._curvature.n_outcomes)
        try:
            self._parameter, moved, self._coordinates, surplus = self._learn(action, outcome)
        except (ArithmeticError, LinAlgError) as error:
            raise self._named(error) from error
        self._surplus += surplus
        self._logit_movement += moved[0]
        self._hessian_movement += moved[1]
        self.rounds += 1
        self.smallest_margin = min(self.smallest_margin, self.margin)
        self._selected = None

    def state_dict(self) -> dict[str, Any]:
        """Everything that `from_state` needs, as a flat dictionary of arrays, numbers and strings.

        It can be written with `numpy.savez(path, **policy.state_dict())` and read back, without
        pickle, by `from_state(numpy.load(path))`.
        """
        coordinates = {} if self._coordinates is None else {"coordinates": self._coordinates.copy()}
        return (
            {f"curvature.{key}": value for key, value in self.curvature.state_dict().items()}
            | self._options()
            | coordinates
            | {
                "format": _FORMAT,
                "policy": class_name(type(self)),
                "curvature": class_name(type(self.curvature)),
                "compiled": self.compiled,
                "rewards": self.rewards.copy(),
                "parameter": self.parameter.copy(),
                "rounds": self.rounds,
                "margin": self.margin,
                "smallest_margin": self.smallest_margin,
                "logit_movement": self._logit_movement,
                "hessian_movement": self._hessian_movement,
            }
            | ({"surplus": self._surplus} if self._adds_up else {})
        )

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild a policy of this class from `state_dict`; it continues to the bit as the saved one would.

        Raises
        ------
        ValueError
            If an entry is missing or out of range, if the state has another format or is that of another
            policy, or if its curvature or radius is not known.

        Notes
        -----
        The curvature may be of any class that has been defined; it is found by its name. A subclass of this
        policy with further arguments of the constructor adds them to `_options` and `_options_from`.
        """
        if "format" not in state or not np.array_equal(state["format"], _FORMAT):
            raise ValueError(
                f"state has no entry 'format' with the value {_FORMAT}: another version of the library has "
                "saved it, and its states cannot be read"
            )
        saved, compiled = str(take(state, "policy")), bool(take(state, "compiled"))
        if saved != class_name(cls):
            raise ValueError(
                f"policy must be {class_name(cls)!r} for {cls.__name__}.from_state, got {saved!r}"
            )
        maker = cls._form(compiled)
        if maker.compiled != compiled:
            raise ValueError(
                f"compiled must be {maker.compiled} for {cls.__name__}.from_state, got {compiled}"
            )
        prefix = "curvature."
        curvature = curvature_class(str(take(state, "curvature"))).from_state(
            {key.removeprefix(prefix): state[key] for key in state if key.startswith(prefix)}
        )
        policy = maker(curvature, take(state, "rewards"), **maker._options_from(state))
        policy._restore(state)
        return policy

    @classmethod
    def _form(cls, compiled: bool) -> type[Self]:
        """The class that restores a state which a policy of this form, compiled or not, has saved."""
        return cls

    def _options(self) -> dict[str, Any]:
        """The keyword arguments of the constructor, as entries of a state."""
        return {
            "step_size": self.step_size,
            "norm_bound": self.norm_bound,
            "radius": json.dumps(self.radius.describe()),
            "tie_tolerance": self.tie_tolerance,
        }

    @classmethod
    def _options_from(cls, state: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments of the constructor, from the entries of a state."""
        numbers = {name: take(state, name) for name in ("step_size", "norm_bound", "tie_tolerance")}
        return numbers | {"radius": _radius_of(state)}

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Set what the rounds have changed, other than the curvature, from a state."""
        self.parameter = take(state, "parameter")
        self.rounds = as_integer("rounds", take(state, "rounds"), minimum=0)
        self.margin = as_margin("margin", take(state, "margin"))
        self.smallest_margin = as_margin("smallest_margin", take(state, "smallest_margin"))
        self._logit_movement = as_non_negative("logit_movement", take(state, "logit_movement"))
        self._hessian_movement = as_non_negative("hessian_movement", take(state, "hessian_movement"))
        if self._adds_up:
            self._surplus = as_number("surplus", take(state, "surplus"))
        if "coordinates" in state and not self.compiled:  # The kernels use no coordinates.
            coordinates = as_finite("coordinates", state["coordinates"]).copy()
            self.curvature.check_coordinates(self.parameter, coordinates)
            self._coordinates = coordinates
            self._parameter.flags.writeable = False

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        super().__setstate__(state)
        if self._coordinates is not None:
            self._parameter.flags.writeable = False

    def _named(self, error: Exception) -> ArithmeticError:
        """The arithmetic failure that ended a round, with the round's number."""
        return ArithmeticError(f"round {self.rounds + 1}: {error}")

    def _learn(self, action: Array, outcome: int) -> Learned:
        """Take the step for an outcome and add the new Hessian to the curvature."""
        curvature, parameter = self._curvature, self._parameter
        probabilities = finite_probabilities(np.dot(parameter, action))
        residual, factor = loss_residual(probabilities, outcome), jacobian_factor(probabilities)
        frame = curvature.frame(action, self._image_of(action))
        new, multiplier, coordinates = curvature.newton_step(
            frame, parameter, residual, factor, self.step_size, self.norm_bound, self._coordinates
        )
        moved = 0.0, 0.0
        if self.radius.needs_movement:
            moved = movement(parameter, new, action, residual, factor, self.step_size, multiplier)
        added = jacobian_factor(finite_probabilities(np.dot(new, action)))
        surplus = self._surplus_of(action, outcome, new, moved[1])
        return Learned(new, moved, curvature.add(frame, added, coordinates), surplus)

    @property
    def _adds_up(self) -> bool:
        """Whether the radius adds up something over the rounds."""
        return callable(getattr(self.radius, "increment", None))

    def _surplus_of(self, action: Array, outcome: int, new: Array, hessian_movement: float) -> float:
        """What the radius adds up of a round, whose Hessian the curvature does not have yet."""
        if not self._adds_up:
            return 0.0
        image = self._image_of(action)
        block = self._curvature.inverse_blocks(action[None], None if image is None else image[None])[0]
        played = PlayedRound(
            np.dot(self._parameter, action),
            np.dot(new, action),
            outcome,
            block,
            float(np.linalg.norm(action)),
            hessian_movement,
            self.step_size,
            self.norm_bound,
        )
        surplus = self._increment(played)
        if not math.isfinite(surplus):
            raise ArithmeticError(f"the radius cannot add up the round: it found {surplus}")
        return surplus

    def _increment(self, played: PlayedRound) -> float:
        """What the radius, which has a method for it, adds up of a round."""
        return float(self.radius.increment(played))  # type: ignore[attr-defined]

    def _image_of(self, action: Array) -> Array | None:
        """The image of the action under the curvature, if selecting has computed it."""
        return None


def movement(
    old: Array, new: Array, action: Array, residual: Array, factor: Array, step_size: float, multiplier: float
) -> tuple[float, float]:
    r"""The two squared lengths of a projected Newton step that the theorem's radius adds up.

    .. math:: \|\Delta x\|_2^2, \qquad
              \|\Delta\|_Z^2 = -\eta\, u^\top \Delta x - \nu \langle W_{+}, \Delta\rangle
              - \eta \|F^\top \Delta x\|_2^2, \qquad \Delta = W_{+} - W

    Parameters
    ----------
    old, new : (K, d) array
        W and :math:`W_{+}`.
    action : (d,) array
        x.
    residual : (K,) array
        u.
    factor : (K, K) array
        F.
    step_size, multiplier : float
        :math:`\eta` and the multiplier :math:`\nu` of the projection.

    Returns
    -------
    logit_movement, hessian_movement : float

    Notes
    -----
    Paper: the last terms of `eq:cr-beta`. The step satisfies
    :math:`\tilde Z\Delta = -\eta (u \otimes x) - \nu W_{+}`, so that no product with Z is needed. The three
    terms cancel if :math:`W'` is very far outside the ball.
    """
    step = new - old
    logits = np.dot(step, action)
    seen = np.dot(factor.T, logits)
    pull = multiplier * float(np.vdot(new, step))
    hessian = -step_size * float(np.dot(residual, logits)) - pull - step_size * float(np.dot(seen, seen))
    return float(np.dot(logits, logits)), max(hessian, 0.0)


def _radius_of(state: Mapping[str, Any]) -> Radius:
    text = str(take(state, "radius"))
    try:
        description = json.loads(text)
    except json.JSONDecodeError:
        raise ValueError(f"radius must be a description in JSON, got {text!r}") from None
    return radius_from(description)
