r"""The optimistic policy over any curvature, and uniformly random play.

OFUL-MLogB and EOFD-MLogB are one policy over two curvatures: score every action by its expected
reward under the current parameter plus a bonus, play the best, take a proximal Newton step on the
observed outcome, add the new Hessian. `oful`, `eofd` and `first_order` build the three variants.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from mlogb_core._validation import (
    Array,
    as_actions,
    as_integer,
    as_margin,
    as_matrix,
    as_non_negative,
    as_outcome,
    as_positive,
    as_rewards,
    as_vector,
    take,
)
from mlogb_core.confidence import Progress, Radius, radius_from
from mlogb_core.curvature import Curvature, DenseCurvature, FrequentDirections, NoCurvature
from mlogb_core.link import expected_reward, jacobian, jacobian_factor, loss_residual, outcome_probabilities

TIE_TOLERANCE = 1e-10


class Policy(Protocol):
    """What the simulation asks of a policy."""

    margin: float

    def select(self, actions: ArrayLike) -> int:
        """Index of the action to play; does not change what the policy has learned."""

    def update(self, action: ArrayLike, outcome: int) -> None:
        """Learn from the outcome of any action, selected or not."""


class Choice(NamedTuple):
    """An action's index and how far the choice is from another one.

    Attributes
    ----------
    action : int
        Index of the chosen action.
    margin : float
        Relative change of scores below which the choice stays the same.
    """

    action: int
    margin: float


def choose(scores: Array, tolerance: float = TIE_TOLERANCE) -> Choice:
    r"""Index of the best score; ties go to the lowest index.

    Scores within `tolerance` times the largest absolute score of the best one are ties. The
    margin is the smallest distance of any other score from that boundary, on the same scale: if
    all scores are computed to an accuracy below a quarter of the margin, on that scale, the choice
    does not depend on roundoff. It is the tolerance where actions tie exactly, and infinite for a single
    action.

    Parameters
    ----------
    scores : (n,) array
        One score per action.
    tolerance : float
        Relative tolerance of a tie.

    Returns
    -------
    Choice

    Raises
    ------
    ArithmeticError
        If a score is not finite, which takes actions or parameters that double precision cannot
        carry.

    Notes
    -----
    The paper leaves ties open. In round 1 all actions of the same norm tie exactly, and a plain
    argmax there is decided by the last bit.

    Examples
    --------
    >>> choose(np.array([1.0, 1.0 + 1e-15, 0.5])).action
    0
    """
    if not np.isfinite(scores).all():
        raise ArithmeticError(f"scores must be finite, got {scores[~np.isfinite(scores)][0]}: overflow")
    scale = float(np.abs(scores).max()) or 1.0
    gaps = (scores.max() - scores) / scale
    action = int(np.flatnonzero(gaps <= tolerance)[0])
    others = np.delete(gaps, gaps.argmin())
    return Choice(action, float(np.abs(others - tolerance).min(initial=np.inf)))


class OptimisticPolicy:
    r"""Optimism over a curvature: select by :math:`R_t(x)`, update by a proximal Newton step.

    For K >= 2 the score of an action is

    .. math:: r^\top\sigma(W_t x) + \sqrt{\beta_t}\,\|v \otimes x\|_{Z_t^{-1}}
              + \tfrac12\|r\|_1\,\beta_t\,\|A(x)\|_2, \qquad v = \nabla\sigma(W_t x)\, r,

    and for K = 1 it is :math:`w_t^\top x + \sqrt{\beta_t}\,\|x\|_{Z_t^{-1}}`.

    Parameters
    ----------
    curvature : Curvature
        The accumulated Hessian; the policy owns it from here on.
    rewards : (K,) array
        Rewards >= 0 of the outcomes 1..K; that of outcome 0 is 0.
    step_size : float
        :math:`\eta > 0`.
    norm_bound : float
        S > 0: the parameter stays in the ball :math:`\|W\|_F \le S`.
    radius : Radius
        The rule for :math:`\beta_t`.
    tie_tolerance : float
        Relative tolerance of `choose`.

    Attributes
    ----------
    parameter : (K, d) array
        :math:`W_t`, starting at 0.
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

    Notes
    -----
    Paper: Algorithm 2 (`algo:fd-oful-mlogb`), `eq:fd-oful-mlogb-efficient-reward`. Both norms of
    the bonus come from the same K x K block: :math:`\|v \otimes x\|_{Z^{-1}}^2 = v^\top A(x) v`.

    Examples
    --------
    >>> policy = eofd(3, [1.0], sketch_size=2, regularization=1.0, step_size=1.0, norm_bound=5.0,
    ...               radius=radius_from({"kind": "constant", "beta": 0.1}))
    >>> policy.select(np.eye(3))
    0
    >>> policy.update([1.0, 0.0, 0.0], outcome=0)
    >>> policy.select(np.eye(3))
    1
    """

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
        self.tie_tolerance = as_non_negative("tie_tolerance", tie_tolerance)
        if not callable(getattr(radius, "value", None)):
            raise ValueError(f"radius must be a Radius such as ConstantRadius(0.1), got {radius!r}")
        self.radius = radius
        self.parameter: Array = np.zeros((curvature.n_outcomes, curvature.n_features))
        self.rounds = 0
        self.margin = np.inf
        self.smallest_margin = np.inf
        self._logit_movement = 0.0
        self._hessian_movement = 0.0

    @property
    def beta(self) -> float:
        r"""The squared radius :math:`\beta_t` of the coming round."""
        return self.radius.value(self.progress)

    @property
    def progress(self) -> Progress:
        """Where the policy stands, as far as the radius depends on it."""
        return Progress(
            self.curvature.n_outcomes,
            self.curvature.n_features,
            self.curvature.rank_bound,
            self.curvature.regularization,
            self.step_size,
            self.norm_bound,
            self.rounds,
            self.curvature.shrinkage,
            self._logit_movement,
            self._hessian_movement,
        )

    def summary(self) -> dict[str, float]:
        r"""What the policy has come to, in four numbers.

        Returns
        -------
        dict
            `shrinkage` :math:`\rho`; `largest_eigenvalue` of :math:`Z - \lambda I`, to be compared
            with :math:`\lambda`; `parameter_norm` :math:`\|W\|_F`, to be compared with S; and
            `smallest_margin`.
        """
        spectrum = self.curvature.spectrum()
        return {
            "shrinkage": self.curvature.shrinkage,
            "largest_eigenvalue": float(spectrum[0]) if spectrum.size else 0.0,
            "parameter_norm": float(np.linalg.norm(self.parameter)),
            "smallest_margin": self.smallest_margin,
        }

    def scores(self, actions: ArrayLike) -> Array:
        """Optimistic scores of the actions.

        Parameters
        ----------
        actions : (n, d) array
            The action set, n >= 1.

        Returns
        -------
        (n,) array
            In reward units for K >= 2, in logits for K = 1.

        Raises
        ------
        ValueError
            If the actions have the wrong shape or are not finite.
        """
        actions = as_actions(actions, self.curvature.n_features)
        logits = actions @ self.parameter.T
        beta = self.beta
        if beta == 0.0 and self.curvature.n_outcomes > 1:
            return expected_reward(outcome_probabilities(logits), self.rewards)
        blocks = self.curvature.inverse_blocks(actions)
        if self.curvature.n_outcomes == 1:
            return np.asarray(logits[:, 0] + np.sqrt(beta * np.maximum(blocks[:, 0, 0], 0.0)))
        probabilities = outcome_probabilities(logits)
        slopes = jacobian(probabilities) @ self.rewards
        first = np.einsum("ni,nij,nj->n", slopes, blocks, slopes)
        second = np.linalg.eigvalsh(blocks)[:, -1]
        bonus = np.sqrt(beta * np.maximum(first, 0.0)) + 0.5 * self.rewards.sum() * beta * second
        return np.asarray(expected_reward(probabilities, self.rewards) + bonus)

    def select(self, actions: ArrayLike) -> int:
        """Index of the action with the best optimistic score; ties go to the lowest index.

        Parameters
        ----------
        actions : (n, d) array
            The action set, n >= 1; n may change from round to round.

        Returns
        -------
        int

        Raises
        ------
        ValueError
            If the actions have the wrong shape or are not finite.
        """
        choice = choose(self.scores(actions), self.tie_tolerance)
        self.margin = choice.margin
        return choice.action

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
            The policy is as before, as it is after any other exception.
        """
        action = as_vector("action", action, self.curvature.n_features)
        outcome = as_outcome(outcome, self.curvature.n_outcomes)
        probabilities = outcome_probabilities(self.parameter @ action)
        frame = self.curvature.frame(action)
        parameter = self.curvature.newton_step(
            frame,
            self.parameter,
            loss_residual(probabilities, outcome),
            jacobian_factor(probabilities),
            self.step_size,
            self.norm_bound,
        )
        logits = parameter @ action
        moved = self._movement(parameter - self.parameter, action)
        self.curvature.add(frame, jacobian_factor(outcome_probabilities(logits)))

        self.parameter = parameter
        self._logit_movement += moved[0]
        self._hessian_movement += moved[1]
        self.rounds += 1
        self.smallest_margin = min(self.smallest_margin, self.margin)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on, as a flat dictionary of arrays, numbers and strings.

        It can be written with `numpy.savez(path, **policy.state_dict())` and read back, without
        pickle, by `from_state(numpy.load(path))`.
        """
        curvature = {f"curvature.{k}": v for k, v in self.curvature.state_dict().items()}
        return curvature | {
            "curvature": type(self.curvature).__name__,
            "radius": json.dumps(self.radius.describe()),
            "rewards": self.rewards.copy(),
            "step_size": self.step_size,
            "norm_bound": self.norm_bound,
            "tie_tolerance": self.tie_tolerance,
            "parameter": self.parameter.copy(),
            "rounds": self.rounds,
            "margin": self.margin,
            "smallest_margin": self.smallest_margin,
            "logit_movement": self._logit_movement,
            "hessian_movement": self._hessian_movement,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> OptimisticPolicy:
        """Rebuild a policy from `state_dict`; it goes on exactly where the other one stood.

        Raises
        ------
        ValueError
            If an entry is missing or does not fit.
        """
        kind = str(take(state, "curvature"))
        if kind not in _CURVATURES:
            raise ValueError(f"curvature must be one of {sorted(_CURVATURES)}, got {kind!r}")
        prefix = "curvature."
        curvature = _CURVATURES[kind].from_state(
            {key.removeprefix(prefix): state[key] for key in state if key.startswith(prefix)}
        )
        policy = cls(
            curvature,
            take(state, "rewards"),
            step_size=take(state, "step_size"),
            norm_bound=take(state, "norm_bound"),
            radius=_radius_of(state),
            tie_tolerance=take(state, "tie_tolerance"),
        )
        shape = (curvature.n_outcomes, curvature.n_features)
        policy.parameter = as_matrix("parameter", take(state, "parameter"), shape).copy()
        policy.rounds = as_integer("rounds", take(state, "rounds"), minimum=0)
        policy.margin = as_margin("margin", take(state, "margin"))
        policy.smallest_margin = as_margin("smallest_margin", take(state, "smallest_margin"))
        policy._logit_movement = as_non_negative("logit_movement", take(state, "logit_movement"))
        policy._hessian_movement = as_non_negative("hessian_movement", take(state, "hessian_movement"))
        return policy

    def _movement(self, step: Array, action: Array) -> tuple[float, float]:
        if not self.radius.needs_movement:
            return 0.0, 0.0
        logits = step @ action
        return float(logits @ logits), self.curvature.quadratic(step)


class RandomPolicy:
    """Uniformly random play, the reference line that has learned nothing.

    Parameters
    ----------
    rng : numpy.random.Generator
        The stream that it draws from.
    """

    margin = np.inf

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def select(self, actions: ArrayLike) -> int:
        """Index of a uniformly random action of an (n, d) set, n >= 1."""
        n_actions = len(np.atleast_1d(np.asarray(actions)))
        if n_actions < 1:
            raise ValueError("actions must have shape (n, d) with n >= 1, got n = 0")
        return int(self.rng.integers(n_actions))

    def update(self, action: ArrayLike, outcome: int) -> None:
        """Learn nothing."""

    def state_dict(self) -> dict[str, Any]:
        """The state of the stream."""
        return {"rng": json.dumps(self.rng.bit_generator.state)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> RandomPolicy:
        """Rebuild the policy from `state_dict` (a PCG64 stream, NumPy's default)."""
        rng = np.random.default_rng()
        rng.bit_generator.state = json.loads(str(take(state, "rng")))
        return cls(rng)


def eofd(
    n_features: int,
    rewards: ArrayLike,
    *,
    sketch_size: int,
    regularization: float,
    step_size: float,
    norm_bound: float,
    radius: Radius,
) -> OptimisticPolicy:
    """EOFD-MLogB: the optimistic policy over a Frequent Directions sketch of at most m directions.

    Parameters
    ----------
    n_features : int
        d.
    rewards : (K,) array
        Rewards of the outcomes 1..K.
    sketch_size : int
        m >= 1; m >= Kd is exact.
    regularization, step_size, norm_bound : float
        Lambda, eta and S, all positive.
    radius : Radius
        The rule for beta.

    Returns
    -------
    OptimisticPolicy
    """
    rewards = as_rewards(rewards)
    sketch = FrequentDirections(rewards.size, n_features, regularization, sketch_size)
    return OptimisticPolicy(sketch, rewards, step_size=step_size, norm_bound=norm_bound, radius=radius)


def oful(
    n_features: int,
    rewards: ArrayLike,
    *,
    regularization: float,
    step_size: float,
    norm_bound: float,
    radius: Radius,
) -> OptimisticPolicy:
    """OFUL-MLogB: the optimistic policy over the full Kd x Kd Hessian; parameters as in `eofd`."""
    rewards = as_rewards(rewards)
    hessian = DenseCurvature(rewards.size, n_features, regularization)
    return OptimisticPolicy(hessian, rewards, step_size=step_size, norm_bound=norm_bound, radius=radius)


def first_order(
    n_features: int,
    rewards: ArrayLike,
    *,
    regularization: float,
    step_size: float,
    norm_bound: float,
    radius: Radius,
) -> OptimisticPolicy:
    """No curvature: the optimistic policy over lambda I for ever; parameters as in `eofd`."""
    rewards = as_rewards(rewards)
    identity = NoCurvature(rewards.size, n_features, regularization)
    return OptimisticPolicy(identity, rewards, step_size=step_size, norm_bound=norm_bound, radius=radius)


def _radius_of(state: Mapping[str, Any]) -> Radius:
    text = str(take(state, "radius"))
    try:
        description = json.loads(text)
    except json.JSONDecodeError:
        raise ValueError(f"radius must be a description in JSON, got {text!r}") from None
    return radius_from(description)


_CURVATURES: dict[str, Any] = {c.__name__: c for c in (DenseCurvature, FrequentDirections, NoCurvature)}
