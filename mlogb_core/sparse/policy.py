"""A policy for sparse actions: the optimistic policy, played in the few coordinates that its state needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from mlogb_core._ownership import Owned
from mlogb_core._validation import Array, as_integer, as_outcome, as_sparse_action, take
from mlogb_core.choice import choose
from mlogb_core.curvature.low_rank import LowRankCurvature
from mlogb_core.explanation import Explanation
from mlogb_core.policies.optimistic import OptimisticPolicy
from mlogb_core.propensity import Propensities
from mlogb_core.sparse.features import SparseFeatures

#: The largest number of rounds between two rebuilds.
PERIOD = 200


class SelectedRow(NamedTuple):
    """The features and the values of the selected action."""

    indices: Any
    values: Array


class SparsePolicy(Owned):
    r"""An optimistic policy over a low-rank curvature whose rounds do not grow with d.

    Parameters
    ----------
    make : callable
        Builds the policy for a given number of features, as ``lambda d: eofd(d, rewards, ...)``. Its
        curvature must be a `LowRankCurvature`. The policy may be compiled; the products of the actions are
        then compiled as well.
    n_features : int
        d, the number of features of the actions.
    period : int
        The largest number of rounds between two rebuilds of the coordinates.

    Attributes
    ----------
    policy : OptimisticPolicy
        The policy that plays in coordinates. Its curvature has the spectrum and the shrinkage of the
        curvature of the actions.
    features : SparseFeatures
        The coordinates.

    Raises
    ------
    ValueError
        If an argument is out of range, or the curvature has no basis of few directions.

    Notes
    -----
    Not in the paper. Scores, steps and sketch are those of the same policy over dense rows, up to roundoff:
    the coordinates keep all inner products that they are made of. A round costs
    :math:`O(n\,\mathrm{nnz}\,(K m + K) + n u^2)` for n actions, where u is the number of coordinates, and
    something polynomial in m; a rebuild, once in up to `period` rounds, costs O(d' K m u), where d' is the
    number of features that the actions played so far have had, or less where d is large. It pays where d is
    many times :math:`K(m+1)` and `period` together; with some hundreds of features dense rows are faster.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from mlogb_core import ConstantRadius, eofd
    >>> def make(n_features):
    ...     return eofd(n_features, [1.0], sketch_size=2, regularization=1.0, step_size=1.0, norm_bound=5.0,
    ...                 radius=ConstantRadius(0.1))
    >>> policy = SparsePolicy(make, n_features=1_000_000)
    >>> actions = csr_array(([1.0, 1.0], ([0, 1], [7, 123_456])), shape=(2, 1_000_000))
    >>> policy.select(actions)
    0
    >>> policy.update(actions[[0]], outcome=0)
    >>> policy.select(actions)
    1
    """

    def __init__(
        self, make: Callable[[int], OptimisticPolicy], n_features: int, period: int = PERIOD
    ) -> None:
        n_features = as_integer("n_features", n_features, minimum=1)
        period = as_integer("period", period, minimum=1)
        # The arrays for d features are allocated and not written to, which costs no memory.
        self.policy = make(n_features)
        curvature = self.policy.curvature
        if not isinstance(curvature, LowRankCurvature):
            raise ValueError(
                "make must build a policy whose curvature is a LowRankCurvature such as FrequentDirections, "
                f"got {type(curvature).__qualname__}"
            )
        maker = _features_class(self.policy.compiled)
        self.features = maker(n_features, _state_size(curvature), period)
        if not self.features.is_identity:
            self.policy.change_features(np.zeros((0, 0)), self.features.size)
        self.policy.n_features = n_features
        self._selected: SelectedRow | None = None

    @property
    def margin(self) -> float:
        """Decision margin of the last `select`."""
        return self.policy.margin

    @margin.setter
    def margin(self, value: float) -> None:
        self.policy.margin = value

    @property
    def rounds(self) -> int:
        """Number of updates so far."""
        return self.policy.rounds

    @property
    def rewards(self) -> Array:
        """Rewards of the outcomes 1..K."""
        return self.policy.rewards

    @property
    def beta(self) -> float:
        r"""The squared radius :math:`\beta_t` of the coming round."""
        return self.policy.beta

    @property
    def parameter(self) -> Array:
        """W as a (K, d) array, which is made at each call."""
        return self.features.vectors(self.policy.parameter)

    def summary(self) -> dict[str, float]:
        """The numbers of `NewtonPolicy.summary`."""
        return self.policy.summary()

    def scores(self, actions: ArrayLike | csr_array) -> Array:
        """Optimistic scores of all the actions, (n,); see `OptimisticPolicy.scores`."""
        rows, squares = self.features.checked_actions(actions)
        return self.policy.scores_of(self.features.coordinates(rows), squares)

    def explain(self, actions: ArrayLike | csr_array, interval_beta: float | None = None) -> Explanation:
        """What the score of each action consists of; see `OptimisticPolicy.explain`."""
        rows, squares = self.features.checked_actions(actions)
        return self.policy.explain_of(self.features.coordinates(rows), squares, interval_beta)

    def probabilities(self, actions: ArrayLike | csr_array) -> Propensities:
        """With which probability each action is selected: the selected one with 1, the others never."""
        scores = self.scores(actions)
        return Propensities.certain(choose(scores, self.policy.tie_tolerance).action, len(scores))

    def select(self, actions: ArrayLike | csr_array) -> int:
        """Index of the action with the best optimistic score; ties go to the lowest index.

        Parameters
        ----------
        actions : (n, d) csr_array or array
            The action set, n >= 1.

        Raises
        ------
        ValueError
            If the actions have the wrong shape or format or are not finite.
        ArithmeticError
            If a score overflows or a factorisation fails; the message names the round.
        """
        rows, squares = self.features.checked_actions(actions)
        action = self.policy.select_among(self.features.coordinates(rows), squares)
        entries = slice(rows.indptr[action], rows.indptr[action + 1])
        self._selected = SelectedRow(rows.indices[entries].copy(), rows.data[entries].copy())
        return action

    def update(self, action: ArrayLike | csr_array, outcome: int) -> None:
        """Learn from the outcome of an action, (d,) or (1, d), selected or not.

        Raises
        ------
        ValueError
            If the action has the wrong shape or format or is not finite, or the outcome is out of range.
        ArithmeticError
            If a factorisation fails; the message names the round. What the policy has learned is unchanged.
        """
        row, square = self.features.checked_action(action)
        outcome = as_outcome(outcome, self.policy.curvature.n_outcomes)
        if self.features.is_due():
            self._rebuild()
        coordinates = self.features.extend(row, square)
        if self._selected is None or not _same(self._selected, row):
            self.policy.forget_selected()
        else:
            self.policy.rename_selected(coordinates)
        self.policy.update(coordinates, outcome)
        self._selected = None

    def state_dict(self) -> dict[str, Any]:
        """Everything that `from_state` needs, as a flat dictionary of arrays, numbers and strings."""
        state = {f"policy.{key}": value for key, value in self.policy.state_dict().items()}
        state |= {f"features.{key}": value for key, value in self.features.state_dict().items()}
        if self._selected is not None:
            state |= {"selected.indices": self._selected.indices.copy()}
            state |= {"selected.values": self._selected.values.copy()}
        return state

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Rebuild a policy from `state_dict`; it continues to the bit as the saved one would.

        Raises
        ------
        ValueError
            If an entry is missing or does not fit.
        """
        inner = _part(state, "policy.")
        policy = cls.__new__(cls)
        policy.policy = OptimisticPolicy.from_state(inner)
        policy.features = _features_class(policy.policy.compiled).from_state(_part(state, "features."))
        if policy.policy.curvature.n_features != policy.features.size:
            raise ValueError(
                f"features must have {policy.policy.curvature.n_features} coordinates, "
                f"got {policy.features.size}"
            )
        policy.policy.n_features = policy.features.n_features
        policy._selected = None
        if "selected.indices" in state:
            values, indices = take(state, "selected.values"), state["selected.indices"]
            d = policy.features.n_features
            row = csr_array((values, indices, [0, len(indices)]), shape=(1, d))
            row, _ = as_sparse_action(row, d)
            policy._selected = SelectedRow(row.indices, row.data)
        return policy

    def _rebuild(self) -> None:
        """Keep the directions of the features that the curvature and the parameter consist of."""
        features = self.features
        curvature = cast(LowRankCurvature, self.policy.curvature)
        rows = curvature.basis.reshape(-1, features.size), self.policy.parameter
        directions = np.linalg.qr(np.concatenate(rows)[:, : features.used].T)[0]
        directions = features.rebuild(directions, _state_size(curvature))
        self.policy.change_features(directions, features.size)


def _state_size(curvature: LowRankCurvature) -> int:
    """The largest number of directions of the features that basis and parameter can have, K m + K."""
    return curvature.n_outcomes * (curvature.rank_bound + 1)


def _features_class(compiled: bool) -> type[SparseFeatures]:
    if not compiled:
        return SparseFeatures
    from mlogb_core.compiled.sparse import CompiledFeatures  # Imported only here, since numba is optional.

    return CompiledFeatures


def _part(state: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {key.removeprefix(prefix): state[key] for key in state if key.startswith(prefix)}


def _same(selected: SelectedRow, row: csr_array) -> bool:
    return np.array_equal(selected.indices, row.indices) and np.array_equal(selected.values, row.data)
