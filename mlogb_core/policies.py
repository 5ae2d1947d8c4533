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
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError

from mlogb_core._ownership import Owned
from mlogb_core._validation import (
    Array,
    as_actions,
    as_finite,
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
from mlogb_core.choice import TIE_TOLERANCE, Choice, choose, choose_pruned
from mlogb_core.confidence import Progress, Radius, radius_from
from mlogb_core.curvature import Curvature, DenseCurvature, FrequentDirections, NoCurvature
from mlogb_core.link import expected_reward, jacobian, jacobian_factor, loss_residual, outcome_probabilities

# Up to this many multiplications, scoring the actions in question takes less time than choosing them.
_CHEAP = 50_000
# In a smaller ball the slopes of the root search, of the order of S^3, can underflow.
_SMALLEST_BALL = 1e-80


class Policy(Protocol):
    """What the simulation asks of a policy."""

    margin: float

    def select(self, actions: ArrayLike) -> int:
        """Index of the action to play; does not change what the policy has learned."""

    def update(self, action: ArrayLike, outcome: int) -> None:
        """Learn from the outcome of any action, selected or not."""


class Estimate(NamedTuple):
    """Scores without the bonus, and what the bonus depends on besides A(x), for a set of actions."""

    actions: Array  # (n, d)
    squares: Array  # (n,): squared lengths of the actions
    value: Array  # (n,)
    slopes: Array  # (n, K): the Jacobian times the rewards; not used for K = 1, where the score is the logit


class Selected(NamedTuple):
    """The selected action and its image under the curvature, for the update that follows."""

    action: Array
    image: Array


class OptimisticPolicy(Owned):
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
        :math:`S \ge 10^{-80}`: the parameter stays in the ball :math:`\|W\|_F \le S`.
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
    evaluated : int
        Number of actions that the last `select` scored exactly; bounds decided about the others.

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

    compiled = False

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
        if not callable(getattr(radius, "value", None)):
            raise ValueError(f"radius must be a Radius such as ConstantRadius(0.1), got {radius!r}")
        self.radius = radius
        self.parameter: Array = np.zeros((curvature.n_outcomes, curvature.n_features))
        self.rounds = 0
        self.margin = np.inf
        self.smallest_margin = np.inf
        self.evaluated = 0
        self._selected: Selected | None = None
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

    @np.errstate(under="ignore")
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

    @np.errstate(under="ignore")
    def scores(self, actions: ArrayLike) -> Array:
        """Optimistic scores of all the actions.

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
        estimate = self._estimate(*as_actions(actions, self.curvature.n_features))
        beta = self.beta
        if beta == 0.0:
            return estimate.value
        blocks = self.curvature.inverse_blocks(estimate.actions)
        return estimate.value + self._bonus(beta, estimate.slopes, blocks)

    @np.errstate(over="ignore", under="ignore")  # of what overflows the result is checked
    def select(self, actions: ArrayLike) -> int:
        r"""Index of the action with the best optimistic score; ties go to the lowest index.

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
        ArithmeticError
            If a score overflows or a factorisation fails; the message names the round.

        Notes
        -----
        Since :math:`Z \succeq \lambda I`, the bonus is at most that of
        :math:`A(x) = \|x\|^2 I/\lambda`, and at least 0. Actions are scored exactly in the order of
        that upper bound, until no other one can change the choice, its margin or the scale of the
        tie rule: the result is that of scoring them all. `evaluated` counts those scored.
        """
        actions, squares = as_actions(actions, self.curvature.n_features)
        try:
            choice, self.evaluated, self._selected = self._best(self._estimate(actions, squares))
        except (ArithmeticError, LinAlgError) as error:
            raise self._named(error) from error
        self.margin = choice.margin
        return choice.action

    @np.errstate(over="ignore", under="ignore")  # of what overflows the result is checked
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
            If double precision cannot carry the regularization, or a factorisation fails; the
            message names the round. After any exception that is raised here the policy is as before; an
            interrupt from outside can fall between two of its assignments.

        Notes
        -----
        The image of the action is known from `select` if it is the action that was selected.
        """
        action = as_vector("action", action, self.curvature.n_features)
        outcome = as_outcome(outcome, self.curvature.n_outcomes)
        try:
            parameter, moved = self._learn(action, outcome)
        except (ArithmeticError, LinAlgError) as error:
            raise self._named(error) from error
        self.parameter = parameter
        self._logit_movement += moved[0]
        self._hessian_movement += moved[1]
        self.rounds += 1
        self.smallest_margin = min(self.smallest_margin, self.margin)
        self._selected = None

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on, as a flat dictionary of arrays, numbers and strings.

        It can be written with `numpy.savez(path, **policy.state_dict())` and read back, without
        pickle, by `from_state(numpy.load(path))`.
        """
        curvature = {f"curvature.{k}": v for k, v in self.curvature.state_dict().items()}
        kind = type(self.curvature)
        selected = {} if self._selected is None else self._selected._asdict()
        return (
            curvature
            | {f"selected.{k}": v.copy() for k, v in selected.items()}
            | {
                "policy": _class_name(type(self)),
                "curvature": kind.__name__ if kind in _CURVATURES.values() else _class_name(kind),
                "compiled": self.compiled,
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
        )

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> OptimisticPolicy:
        """Rebuild a policy from `state_dict`; it goes on exactly where the other one stood.

        Raises
        ------
        ValueError
            If an entry is missing or does not fit, or the state is that of another class: of a policy, a
            curvature or a radius that is not the library's own.

        Notes
        -----
        A subclass gets a policy of its own class if its constructor takes the same arguments; what else it
        holds is for its own `state_dict` and `from_state`. `compiled` says which of the library's two
        forms goes on.
        """
        maker = cls._maker(str(take(state, "policy")), bool(take(state, "compiled")))
        kind = str(take(state, "curvature"))
        if kind not in _CURVATURES:
            raise ValueError(f"curvature must be one of {sorted(_CURVATURES)}, got {kind!r}")
        prefix = "curvature."
        curvature = _CURVATURES[kind].from_state(
            {key.removeprefix(prefix): state[key] for key in state if key.startswith(prefix)}
        )
        policy = maker(
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
        if "selected.action" in state:
            action = as_vector("selected.action", state["selected.action"], curvature.n_features)
            image = as_finite("selected.image", take(state, "selected.image"))
            expected = policy.curvature.images(action[None])[0].shape
            if image.shape != expected:
                raise ValueError(f"selected.image must have shape {expected}, got {image.shape}")
            policy._selected = Selected(action.copy(), image.copy())
        return policy

    @classmethod
    def _maker(cls, saved: str, compiled: bool) -> type[OptimisticPolicy]:
        """The class of a policy from a state, if it is the one that was saved."""
        if saved != _class_name(cls):
            raise ValueError(
                f"policy must be {_class_name(cls)!r} for {cls.__name__}.from_state, got {saved!r}"
            )
        maker = _policy_class(compiled) if cls is OptimisticPolicy else cls
        if maker.compiled != compiled:
            raise ValueError(
                f"compiled must be {maker.compiled} for {cls.__name__}.from_state, got {compiled}"
            )
        return maker

    def _estimate(self, actions: Array, squares: Array) -> Estimate:
        """Scores without the bonus, and what the bonus depends on besides A(x)."""
        logits = np.dot(actions, self.parameter.T)
        if self.curvature.n_outcomes == 1:
            return Estimate(actions, squares, logits[:, 0], logits)
        probabilities = outcome_probabilities(logits)
        slopes = jacobian(probabilities) @ self.rewards
        return Estimate(actions, squares, expected_reward(probabilities, self.rewards), slopes)

    def _bonus(self, beta: float, slopes: Array, blocks: Array) -> Array:
        """The optimistic bonus from the (n, K, K) blocks A(x)."""
        if self.curvature.n_outcomes == 1:
            return np.asarray(np.sqrt(beta * np.maximum(blocks[:, 0, 0], 0.0)))
        first = np.einsum("ni,nij,nj->n", slopes, blocks, slopes)
        second = np.linalg.eigvalsh(blocks)[:, -1]
        return np.asarray(np.sqrt(beta * np.maximum(first, 0.0)) + 0.5 * self.rewards.sum() * beta * second)

    def _largest_bonus(self, beta: float, estimate: Estimate) -> Array:
        r"""The bonus for :math:`A(x) = \|x\|^2 I / \lambda`, which bounds that of every curvature."""
        squares = estimate.squares * (beta / self.curvature.regularization)
        if self.curvature.n_outcomes == 1:
            return np.asarray(np.sqrt(squares))
        first = np.sqrt(squares * np.vecdot(estimate.slopes, estimate.slopes))
        return np.asarray(first + 0.5 * self.rewards.sum() * squares)

    def _best(self, estimate: Estimate) -> tuple[Choice, int, Selected | None]:
        """The choice among all actions, how many were scored, and what is known of the chosen one."""
        beta = self.beta
        if beta == 0.0:
            return choose(estimate.value, self.tie_tolerance), 0, None
        seen: list[tuple[list[int], Array]] = []

        def score(index: NDArray[np.intp]) -> Array:
            part = estimate.actions.take(index, 0)
            image = self.curvature.images(part)
            seen.append((index.tolist(), image))
            blocks = self.curvature.inverse_blocks(part, image, estimate.squares.take(index))
            return estimate.value.take(index) + self._bonus(beta, estimate.slopes.take(index, 0), blocks)

        n, first = len(estimate.value), self._batch_size()
        if n <= first:  # nothing to decide by bounds
            choice, scored = choose(score(np.arange(n)), self.tie_tolerance), n
        else:
            upper = estimate.value + self._largest_bonus(beta, estimate)
            choice, scored = choose_pruned(estimate.value, upper, score, self.tie_tolerance, first)
        played = choice.action
        image = next(image[index.index(played)] for index, image in seen if played in index)
        return choice, scored, Selected(estimate.actions[played].copy(), image.copy())

    def _batch_size(self) -> int:
        """How many actions are scored at first: two, or as many as take no time."""
        return max(2, _CHEAP // (self.curvature.image_cost + 1))

    def _named(self, error: Exception) -> ArithmeticError:
        """The arithmetic failure that ended a round, with the round's number."""
        return ArithmeticError(f"round {self.rounds + 1}: {error}")

    def _learn(self, action: Array, outcome: int) -> tuple[Array, tuple[float, float]]:
        """The new parameter and its movement; the curvature has the new Hessian when this returns."""
        probabilities = outcome_probabilities(np.dot(self.parameter, action))
        residual, factor = loss_residual(probabilities, outcome), jacobian_factor(probabilities)
        frame = self.curvature.frame(action, self._image_of(action))
        parameter, multiplier = self.curvature.newton_step(
            frame, self.parameter, residual, factor, self.step_size, self.norm_bound
        )
        moved = 0.0, 0.0
        if self.radius.needs_movement:
            moved = movement(self.parameter, parameter, action, residual, factor, self.step_size, multiplier)
        self.curvature.add(frame, jacobian_factor(outcome_probabilities(np.dot(parameter, action))))
        return parameter, moved

    def _image_of(self, action: Array) -> Array | None:
        selected = self._selected
        known = selected is not None and selected.action.tobytes() == action.tobytes()
        return selected.image if known and selected is not None else None


def movement(
    old: Array,
    new: Array,
    action: Array,
    residual: Array,
    factor: Array,
    step_size: float,
    multiplier: float,
) -> tuple[float, float]:
    r"""The two lengths of a projected Newton step that the theorem's radius adds up.

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
    :math:`\tilde Z\Delta = -\eta (u \otimes x) - \nu W_{+}`, so neither Z nor a product with it is
    needed. The three terms cancel if :math:`W'` is very far outside the ball.
    """
    step = new - old
    logits = np.dot(step, action)
    seen = np.dot(factor.T, logits)
    pull = multiplier * float(np.vdot(new, step))
    hessian = -step_size * float(np.dot(residual, logits)) - pull - step_size * float(np.dot(seen, seen))
    return float(np.dot(logits, logits)), max(hessian, 0.0)


class RandomPolicy(Owned):
    """Uniformly random play, the reference line that has learned nothing.

    Parameters
    ----------
    rng : numpy.random.Generator
        The stream that it draws from.

    Raises
    ------
    ValueError
        If `rng` is something else.
    """

    margin = np.inf

    def __init__(self, rng: np.random.Generator) -> None:
        if not isinstance(rng, np.random.Generator):
            raise ValueError(f"rng must be a numpy.random.Generator, got {rng!r}")
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
        """The state of the stream, as JSON."""
        return {"rng": json.dumps(self.rng.bit_generator.state, default=np.ndarray.tolist)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> RandomPolicy:
        """Rebuild the policy from `state_dict`, for any of NumPy's bit generators.

        Raises
        ------
        ValueError
            If the entry is missing, or is not the state of such a generator.
        """
        text = str(take(state, "rng"))
        try:
            saved = json.loads(text)
            bits = _BIT_GENERATORS[saved["bit_generator"]]()
            bits.state = _with_arrays_of(bits.state, saved)
        except (ValueError, KeyError, TypeError, OverflowError):
            raise ValueError(
                f"rng must be the state of one of {sorted(_BIT_GENERATORS)} in JSON, got {text[:80]!r}"
            ) from None
        return cls(np.random.Generator(bits))


def eofd(
    n_features: int,
    rewards: ArrayLike,
    *,
    sketch_size: int,
    regularization: float,
    step_size: float,
    norm_bound: float,
    radius: Radius,
    buffer: int = 1,
    compiled: bool = False,
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
    buffer : int
        Rounds between two shrinks of the sketch; 1 is the paper's algorithm.
    compiled : bool
        Whether numba's kernels run the round; the iterates are the same to roundoff.

    Returns
    -------
    OptimisticPolicy

    Raises
    ------
    ImportError
        If numba is asked for and not installed.
    """
    rewards = as_rewards(rewards)
    sketch = FrequentDirections(rewards.size, n_features, regularization, sketch_size, buffer)
    policy = _policy_class(compiled)
    return policy(sketch, rewards, step_size=step_size, norm_bound=norm_bound, radius=radius)


def oful(
    n_features: int,
    rewards: ArrayLike,
    *,
    regularization: float,
    step_size: float,
    norm_bound: float,
    radius: Radius,
    compiled: bool = False,
) -> OptimisticPolicy:
    """OFUL-MLogB: the optimistic policy over the full Kd x Kd Hessian; parameters as in `eofd`."""
    rewards = as_rewards(rewards)
    hessian = DenseCurvature(rewards.size, n_features, regularization)
    policy = _policy_class(compiled)
    return policy(hessian, rewards, step_size=step_size, norm_bound=norm_bound, radius=radius)


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


def _class_name(kind: type) -> str:
    """The name of a policy's class in a state: one for the two forms of the library's own."""
    home = kind.__module__.split(".")[0]
    own = home == "mlogb_core" and kind.__name__ in ("OptimisticPolicy", "CompiledPolicy")
    return "OptimisticPolicy" if own else f"{kind.__module__}.{kind.__qualname__}"


def _policy_class(compiled: bool) -> type[OptimisticPolicy]:
    if not compiled:
        return OptimisticPolicy
    from mlogb_core.compiled import CompiledPolicy  # numba is optional

    return CompiledPolicy


def _radius_of(state: Mapping[str, Any]) -> Radius:
    text = str(take(state, "radius"))
    try:
        description = json.loads(text)
    except json.JSONDecodeError:
        raise ValueError(f"radius must be a description in JSON, got {text!r}") from None
    return radius_from(description)


def _with_arrays_of(like: Any, saved: Any) -> Any:
    """A state read from JSON, with arrays where that of a generator of the same kind has them."""
    if isinstance(like, dict):
        return {key: _with_arrays_of(value, saved[key]) for key, value in like.items()}
    if not isinstance(like, np.ndarray):
        return saved
    array = np.array(saved, dtype=like.dtype)
    if array.shape != like.shape:
        raise ValueError(f"shape {array.shape} instead of {like.shape}")
    return array


_BIT_GENERATORS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        np.random.PCG64,
        np.random.PCG64DXSM,
        np.random.MT19937,
        np.random.Philox,
        np.random.SFC64,
    )
}
_CURVATURES: dict[str, Any] = {c.__name__: c for c in (DenseCurvature, FrequentDirections, NoCurvature)}
