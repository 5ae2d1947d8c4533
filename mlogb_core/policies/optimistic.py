r"""Optimism over a curvature: score every action by its estimated reward plus a bonus, and play the best.

OFUL-MLogB is this policy over the full Hessian, and EOFD-MLogB is this policy over its sketch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import LinAlgError

from mlogb_core._validation import Array, as_actions, as_finite, as_non_negative, as_vector, take
from mlogb_core.choice import Choice, choose, choose_pruned
from mlogb_core.curvature.low_rank import LowRankCurvature
from mlogb_core.explanation import Explanation, probability_bounds
from mlogb_core.link import expected_reward, finite_probabilities, jacobian
from mlogb_core.policies.newton import NewtonPolicy
from mlogb_core.propensity import Propensities

# As many actions as take this many multiplications are scored at once, which is faster than to prune them.
_CHEAP = 50_000


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


class OptimisticPolicy(NewtonPolicy):
    r"""Optimism over a curvature: select by :math:`R_t(x)`, update by a proximal Newton step.

    For K >= 2 the score of an action is

    .. math:: r^\top\sigma(W_t x) + \sqrt{\beta_t}\,\|v \otimes x\|_{Z_t^{-1}}
              + \tfrac12\|r\|_1\,\beta_t\,\|A(x)\|_2, \qquad v = \nabla\sigma(W_t x)\, r,

    and for K = 1 it is :math:`w_t^\top x + \sqrt{\beta_t}\,\|x\|_{Z_t^{-1}}`.

    Parameters
    ----------
    curvature, rewards, step_size, norm_bound, radius, tie_tolerance
        As in `NewtonPolicy`, which also says what is learned.

    Attributes
    ----------
    evaluated : int
        Number of actions that the last `select` scored exactly; the others were excluded by bounds.

    Notes
    -----
    Paper: Algorithm 2 (`algo:fd-oful-mlogb`), `eq:fd-oful-mlogb-efficient-reward`. Both norms of
    the bonus come from the same K x K block: :math:`\|v \otimes x\|_{Z^{-1}}^2 = v^\top A(x) v`. An update
    with the selected action uses the image that `select` has computed of it.

    Examples
    --------
    >>> from mlogb_core import ConstantRadius, eofd
    >>> policy = eofd(3, [1.0], sketch_size=2, regularization=1.0, step_size=1.0, norm_bound=5.0,
    ...               radius=ConstantRadius(0.1))
    >>> policy.select(np.eye(3))
    0
    >>> policy.update([1.0, 0.0, 0.0], outcome=0)
    >>> policy.select(np.eye(3))
    1
    """

    evaluated = 0
    _selected: Selected | None = None

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
        ArithmeticError
            If the logits overflow, for K >= 2.
        """
        return self.scores_of(*as_actions(actions, self.curvature.n_features))

    @np.errstate(under="ignore")
    def scores_of(self, actions: Array, squares: Array) -> Array:
        """`scores` for checked actions and the squared lengths of the whole actions.

        Where actions are given in coordinates, their part outside of these enters through the length alone.
        """
        estimate = self._estimate(actions, squares)
        beta = self.beta
        if beta == 0.0:
            return estimate.value
        blocks = self.curvature.inverse_blocks(estimate.actions, squares=squares)
        return estimate.value + self._bonus(beta, estimate.slopes, blocks)

    @np.errstate(under="ignore")
    def explain(self, actions: ArrayLike, interval_beta: float | None = None) -> Explanation:
        r"""What the score of each action consists of, and which outcomes are expected of it.

        Parameters
        ----------
        actions : (n, d) array
            The action set, n >= 1.
        interval_beta : float, optional
            Squared radius of the intervals of the probabilities; by default :math:`\beta_t`, as in the bonus.

        Returns
        -------
        Explanation
            Arrays with one row for each action. Nothing of the policy is changed.

        Raises
        ------
        ValueError
            If the actions have the wrong shape or are not finite, or the squared radius is negative.
        ArithmeticError
            If a score overflows.
        """
        return self.explain_of(*as_actions(actions, self.curvature.n_features), interval_beta)

    @np.errstate(under="ignore")
    def explain_of(self, actions: Array, squares: Array, interval_beta: float | None = None) -> Explanation:
        """`explain` for checked actions and the squared lengths of the whole actions; see `scores_of`."""
        estimate = self._estimate(actions, squares)
        beta = self.beta
        radius = beta if interval_beta is None else as_non_negative("interval_beta", interval_beta)
        blocks = self.curvature.inverse_blocks(estimate.actions, squares=squares)
        first, second = self._bonus_parts(beta, estimate.slopes, blocks)
        score = estimate.value + (first + second)
        logits = np.dot(estimate.actions, self.parameter.T)
        probabilities = finite_probabilities(logits)
        return Explanation(
            choose(score, self.tie_tolerance).action,
            expected_reward(probabilities, self.rewards),
            estimate.value,
            first,
            second,
            score,
            probabilities,
            *probability_bounds(logits, blocks, radius),
        )

    def probabilities(self, actions: ArrayLike) -> Propensities:
        """With which probability each action is selected: the selected one with 1, the others never."""
        scores = self.scores(actions)
        return Propensities.certain(choose(scores, self.tie_tolerance).action, len(scores))

    # NumPy's warnings of overflow are off, since the results are checked for it.
    @np.errstate(over="ignore", under="ignore")
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
        With the ridge :math:`\alpha` of the curvature :math:`Z \succeq \alpha I`, so that the bonus is at
        least 0 and at most that of :math:`A(x) = \|x\|^2 I/\alpha`. Actions are scored exactly in the order
        of this upper bound, until no other action can change the choice, its margin or the scale of the rule
        for ties. The result is the same as if all were scored; `evaluated` counts those that were.
        """
        return self.select_among(*as_actions(actions, self._curvature.n_features))

    @np.errstate(over="ignore", under="ignore")
    def select_among(self, actions: Array, squares: Array) -> int:
        """`select` for checked actions and the squared lengths of the whole actions; see `scores_of`."""
        try:
            choice, self.evaluated, self._selected = self._best(self._estimate(actions, squares))
        except (ArithmeticError, LinAlgError) as error:
            raise self._named(error) from error
        self.margin = choice.margin
        return choice.action

    def change_features(self, directions: Array, n_features: int) -> None:
        r"""Express the curvature and the parameter in other coordinates of the features.

        Parameters
        ----------
        directions : (u, k) array
            V, orthonormal columns: an action x becomes :math:`V^\top x`. The curvature and the parameter must
            lie in their span, which leaves all products with them as they are.
        n_features : int
            The new number of features, at least k.

        Raises
        ------
        ValueError
            If the curvature has no basis of few directions.
        """
        if not isinstance(self._curvature, LowRankCurvature):
            raise ValueError(
                f"curvature must be a LowRankCurvature, got {type(self._curvature).__qualname__}"
            )
        parameter, coordinates = np.zeros((len(self._parameter), n_features)), self._coordinates
        parameter[:, : directions.shape[1]] = self._parameter[:, : len(directions)] @ directions
        self._curvature.change_features(directions, n_features)
        self._parameter, self._coordinates = parameter, coordinates

    def forget_selected(self) -> None:
        """Let the next update compute the image of its action."""
        self._selected = None

    def rename_selected(self, action: Array) -> None:
        """Let the next update use the image of the selected action for this one, which has the same image."""
        if self._selected is not None:
            self._selected = Selected(action.copy(), self._selected.image)

    def state_dict(self) -> dict[str, Any]:
        """Everything that `from_state` needs, as a flat dictionary of arrays, numbers and strings.

        Between `select` and `update` it includes the selected action and its image. The update uses this
        image, and a recomputed one might differ in the last bit.
        """
        selected = {} if self._selected is None else self._selected._asdict()
        return super().state_dict() | {f"selected.{key}": value.copy() for key, value in selected.items()}

    @classmethod
    def _form(cls, compiled: bool) -> type[Self]:
        return cast(type[Self], policy_class(compiled)) if cls is OptimisticPolicy else cls

    def _restore(self, state: Mapping[str, Any]) -> None:
        super()._restore(state)
        if "selected.action" in state:
            action = as_vector("selected.action", state["selected.action"], self.curvature.n_features)
            image = as_finite("selected.image", take(state, "selected.image"))
            expected = self.curvature.images(action[None])[0].shape
            if image.shape != expected:
                raise ValueError(f"selected.image must have shape {expected}, got {image.shape}")
            self._selected = Selected(action.copy(), image.copy())

    def _estimate(self, actions: Array, squares: Array) -> Estimate:
        """Scores without the bonus, and what the bonus depends on besides A(x)."""
        logits = np.dot(actions, self._parameter.T)
        if self._curvature.n_outcomes == 1:
            return Estimate(actions, squares, logits[:, 0], logits)
        probabilities = finite_probabilities(logits)
        slopes = jacobian(probabilities) @ self.rewards
        return Estimate(actions, squares, expected_reward(probabilities, self.rewards), slopes)

    def _bonus(self, beta: float, slopes: Array, blocks: Array) -> Array:
        """The optimistic bonus from the (n, K, K) blocks A(x)."""
        if self._curvature.n_outcomes == 1:
            return np.asarray(np.sqrt(beta * np.maximum(blocks[:, 0, 0], 0.0)))
        first, second = self._bonus_parts(beta, slopes, blocks)
        return first + second

    def _bonus_parts(self, beta: float, slopes: Array, blocks: Array) -> tuple[Array, Array]:
        """The two terms of the bonus; the second is 0 for K = 1."""
        if self._curvature.n_outcomes == 1:
            return self._bonus(beta, slopes, blocks), np.zeros(len(blocks))
        first = np.einsum("ni,nij,nj->n", slopes, blocks, slopes)
        second = np.linalg.eigvalsh(blocks)[:, -1]
        return np.sqrt(beta * np.maximum(first, 0.0)), np.asarray(0.5 * self.rewards.sum() * beta * second)

    def _largest_bonus(self, beta: float, estimate: Estimate) -> Array:
        r"""The bonus for :math:`A(x) = \|x\|^2 I / \alpha`, with the ridge; no other one is larger."""
        squares = estimate.squares * (beta / self._curvature.ridge)
        if self._curvature.n_outcomes == 1:
            return np.asarray(np.sqrt(squares))
        first = np.sqrt(squares * np.vecdot(estimate.slopes, estimate.slopes))
        return np.asarray(first + 0.5 * self.rewards.sum() * squares)

    def _best(self, estimate: Estimate) -> tuple[Choice, int, Selected | None]:
        """The choice among all actions, the number scored exactly, and the image of the chosen one."""
        beta = self.beta
        if beta == 0.0:
            return choose(estimate.value, self.tie_tolerance), 0, None
        seen: list[tuple[list[int], Array]] = []

        def score(index: NDArray[np.intp]) -> Array:
            part = estimate.actions.take(index, 0)
            image = self._curvature.images(part)
            seen.append((index.tolist(), image))
            blocks = self._curvature.inverse_blocks(part, image, estimate.squares.take(index))
            return estimate.value.take(index) + self._bonus(beta, estimate.slopes.take(index, 0), blocks)

        n, first = len(estimate.value), self._batch_size()
        if n <= first:  # The first batch holds all actions, so that no bounds are needed.
            choice, scored = choose(score(np.arange(n)), self.tie_tolerance), n
        else:
            upper = estimate.value + self._largest_bonus(beta, estimate)
            choice, scored = choose_pruned(estimate.value, upper, score, self.tie_tolerance, first)
        played = choice.action
        image = next(image[index.index(played)] for index, image in seen if played in index)
        return choice, scored, Selected(estimate.actions[played].copy(), image.copy())

    def _batch_size(self) -> int:
        """Number of actions in the first batch: as many as are cheap, and at least two."""
        return max(2, _CHEAP // (self._curvature.image_cost + 1))

    def _image_of(self, action: Array) -> Array | None:
        selected = self._selected
        known = selected is not None and selected.action.tobytes() == action.tobytes()
        return selected.image if known and selected is not None else None


def policy_class(compiled: bool) -> type[OptimisticPolicy]:
    """The class of the NumPy form or of the compiled one.

    Raises
    ------
    ImportError
        If `compiled` is true and numba is not installed.
    """
    if not compiled:
        return OptimisticPolicy
    from mlogb_core.compiled import CompiledPolicy  # Imported only here, since numba is optional.

    return CompiledPolicy
