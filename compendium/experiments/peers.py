"""Policies of other projects through their public interfaces: Vowpal Wabbit, bayesianbandits, MABWiser.

Their packages are the optional extra `peers`, which ``make peers`` installs, and are imported when a policy
is made. None of them knows outcomes: they learn the reward of an action by a linear model, so that they see
less of a round than the policies of this project. Each class says what else does not fit.
"""

from __future__ import annotations

import hashlib
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mlogb_core._validation import (
    Array,
    as_actions,
    as_integer,
    as_non_negative,
    as_outcome,
    as_positive,
    as_rewards,
    as_vector,
)
from mlogb_core.choice import choose
from mlogb_core.propensity import Propensities

#: The explorers of Vowpal Wabbit, each with the option that `exploration` sets.
EXPLORERS = {
    "squarecb": "--squarecb --gamma_scale {:g}",
    "regcb": "--regcb --mellowness {:g}",
    "cover": "--cover 5 --psi {:g}",
}


def imported(module: str) -> Any:
    """A module of a package of the extra `peers`.

    Raises
    ------
    ImportError
        If the package is not installed; the message says how it is.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{module.partition('.')[0]} is not installed: `make peers` "
            "(pip install 'eofd-mlogb-companion[peers]') brings it"
        ) from error


#: How many characters of action sets a process keeps as text for Vowpal Wabbit.
_KEPT = 2**27


class _Texts:
    """Action sets in the text format of Vowpal Wabbit, kept for the next game with the same action sets.

    To write the numbers takes longer than all that the package does in a round, and the games of a tuning
    grid meet the same sets.
    """

    def __init__(self) -> None:
        self._texts: dict[tuple[int, bytes], str] = {}
        self._size = 0

    def of(self, actions: Array, template: str) -> str:
        """A line for each action."""
        key = actions.shape[1], hashlib.blake2b(actions.data, digest_size=16).digest()
        if key not in self._texts:
            text = "\n".join(template % tuple(action) for action in actions.tolist())
            if self._size > _KEPT:
                self._texts, self._size = {}, 0
            self._texts[key] = text
            self._size += len(text)
        return self._texts[key]


_texts = _Texts()


class Peer:
    """What the adaptors share: checked sizes and rewards.

    Parameters
    ----------
    n_features : int
        d >= 1.
    rewards : (K,) array
        Rewards >= 0 of the outcomes 1..K; that of outcome 0 is 0.
    """

    margin = np.inf

    def __init__(self, n_features: int, rewards: ArrayLike) -> None:
        self.n_features = as_integer("n_features", n_features, minimum=1)
        self.payoff = np.concatenate(([0.0], as_rewards(rewards)))

    def _checked(self, action: ArrayLike, outcome: int) -> tuple[Array, float]:
        """The action and the reward of the outcome."""
        played = as_vector("action", action, self.n_features)
        return played, float(self.payoff[as_outcome(outcome, len(self.payoff) - 1)])


class _Selected(NamedTuple):
    """A choice of Vowpal Wabbit, from which it has not learned yet."""

    features: Array
    place: int
    examples: list[Any]
    probability: float


class VowpalWabbit(Peer):
    r"""A contextual bandit of Vowpal Wabbit with action-dependent features (``--cb_explore_adf``).

    Parameters
    ----------
    n_features, rewards
        As in `Peer`.
    rng : numpy.random.Generator
        The stream of its choices.
    explorer : str
        ``squarecb`` (inverse gap weighting), ``regcb`` (elimination of actions by confidence bounds) or
        ``cover`` (five policies that are meant to differ).
    exploration : float
        How much it explores: the factor > 0 of :math:`\gamma` of squarecb (a large one explores less), the
        mellowness of regcb, or the weight psi of the difference between the policies of cover.
    learning_rate : float
        Its learning rate > 0; 0.5 is its default.

    Raises
    ------
    ValueError
        If an argument is out of range.
    ImportError
        If the package is not installed.

    Notes
    -----
    A cost is the negative reward, whose range is passed on. Its learner is a linear regression of the cost by
    adaptive gradient steps (``--cb_type mtr``), in single precision and with an intercept. It returns a
    probability for each action; the choice is drawn from these by the stream of the policy, and the drawn
    action's probability is passed on with its cost. An action other than the selected one is learned as if it
    had been the only one.
    """

    def __init__(
        self,
        n_features: int,
        rewards: ArrayLike,
        *,
        rng: np.random.Generator,
        explorer: str,
        exploration: float,
        learning_rate: float = 0.5,
    ) -> None:
        super().__init__(n_features, rewards)
        if explorer not in EXPLORERS:
            raise ValueError(f"explorer must be one of {tuple(EXPLORERS)}, got {explorer!r}")
        options = EXPLORERS[explorer].format(as_positive("exploration", exploration))
        if explorer == "regcb":
            options += f" --cb_min_cost {-self.payoff.max():g} --cb_max_cost 0"
        rate = as_positive("learning_rate", learning_rate)
        self.rng = rng
        self._learner = imported("vowpalwabbit").Workspace(
            f"--cb_explore_adf {options} --cb_type mtr --learning_rate {rate:g} --random_seed 1 --quiet"
        )
        self._format = "|x " + " ".join(f"{j}:%.9g" for j in range(self.n_features))
        self._selected: _Selected | None = None

    def select(self, actions: ArrayLike) -> int:
        """Index of an action of an (n, d) set, drawn from the probabilities that the package returns."""
        checked = as_actions(actions, self.n_features)[0]
        self._release()
        examples = self._parsed(checked)
        probability = self._predict(examples)
        played = int(self.rng.choice(len(probability), p=probability))
        self._selected = _Selected(checked[played].copy(), played, examples, float(probability[played]))
        return played

    def probabilities(self, actions: ArrayLike) -> Propensities:
        """With which probability each action is selected."""
        examples = self._parsed(as_actions(actions, self.n_features)[0])
        probability = self._predict(examples)
        self._learner.finish_example(examples)
        return Propensities.exact(probability)

    def update(self, action: ArrayLike, outcome: int) -> None:
        """Learn from the outcome, in 0..K, of an action."""
        features, reward = self._checked(action, outcome)
        if self._selected is None or not np.array_equal(self._selected.features, features):
            self._release()
            self._selected = _Selected(features, 0, self._parsed(features[None]), 1.0)
        _, played, examples, probability = self._selected
        examples[played].set_label_string(f"0:{-reward:.9g}:{probability:.9g}")
        self._learner.learn(examples)
        self._release()

    def _parsed(self, actions: Array) -> list[Any]:
        """The package's examples of the actions. To parse them takes most of the time of a round."""
        parsed: list[Any] = self._learner.parse(_texts.of(actions, self._format))
        return parsed

    def _predict(self, examples: list[Any]) -> Array:
        probability = np.asarray(self._learner.predict(examples), dtype=np.float64)
        return np.asarray(probability / probability.sum())

    def _release(self) -> None:
        """Give the examples of the last choice back to the package, which uses their memory again."""
        if self._selected is not None:
            self._learner.finish_example(self._selected.examples)
            self._selected = None


class BayesianBandits(Peer):
    r"""Thompson sampling over a Bayesian linear model of the reward, of the package bayesianbandits.

    Parameters
    ----------
    n_features, rewards
        As in `Peer`.
    rng : numpy.random.Generator
        The stream of its draws.
    prior_precision, noise_precision : float
        The precisions > 0 of the prior of the weights and of the noise; a small precision of the noise
        explores more.

    Raises
    ------
    ValueError
        If an argument is out of range.
    ImportError
        If the package is not installed.

    Notes
    -----
    Its agent has arms with names and a context that they share. Here the context is the whole set of actions,
    an arm is a place in it, and the function that makes features of both looks the action up; arms are added
    and removed as the size of the set changes. The reward is taken as linear with normal noise of a known
    variance, neither of which holds.
    """

    def __init__(
        self,
        n_features: int,
        rewards: ArrayLike,
        *,
        rng: np.random.Generator,
        prior_precision: float = 1.0,
        noise_precision: float = 4.0,
    ) -> None:
        super().__init__(n_features, rewards)
        package = imported("bayesianbandits")
        self._arm = package.Arm
        self._agent = package.LipschitzContextualAgent(
            [package.Arm(0)],
            package.ThompsonSampling(),
            package.FunctionArmFeaturizer(_features_of_places),
            package.NormalRegressor(
                alpha=as_positive("prior_precision", prior_precision),
                beta=as_positive("noise_precision", noise_precision),
            ),
            random_seed=rng,
        )

    def select(self, actions: ArrayLike) -> int:
        """Index of the action of an (n, d) set with the best reward under a draw of the weights."""
        checked = as_actions(actions, self.n_features)[0]
        size = len(self._agent.arms)
        for place in range(size, len(checked)):
            self._agent.add_arm(self._arm(place))
        for place in range(len(checked), size):
            self._agent.remove_arm(place)
        return int(self._agent.pull(checked[None])[0])

    def update(self, action: ArrayLike, outcome: int) -> None:
        """Learn from the outcome, in 0..K, of any action, as the only one of a set."""
        features, reward = self._checked(action, outcome)
        self._agent.select_for_update(0).update(features[None, None], np.array([reward]))


def _features_of_places(sets: Any, places: Any) -> Array:
    """The features (1, d, n) of the actions at these places of a set, (1, n, d)."""
    return np.asarray(np.asarray(sets)[:, list(places)].transpose(0, 2, 1))


class MABWiserLinUCB(Peer):
    r"""LinUCB of the package MABWiser: the score is :math:`\hat\theta^\top x + \alpha\|x\|_{A^{-1}}`.

    Parameters
    ----------
    n_features, rewards
        As in `Peer`.
    exploration : float
        :math:`\alpha \ge 0`.
    regularization : float
        The ridge > 0 in A.

    Raises
    ------
    ValueError
        If an argument is out of range.
    ImportError
        If the package is not installed.

    Notes
    -----
    Its arms have names and a regression each, and share a context; actions with features and no name do not
    fit. Here there is one arm, and the actions of a round are contexts of it: their expectations are the
    scores of LinUCB with one regression. The package has no prediction before its first round, which plays
    the first action, and it inverts the matrix A anew in every round, :math:`O(d^3)`.
    """

    _ARM = "action"

    def __init__(
        self,
        n_features: int,
        rewards: ArrayLike,
        *,
        exploration: float = 1.0,
        regularization: float = 1.0,
    ) -> None:
        super().__init__(n_features, rewards)
        module = imported("mabwiser.mab")
        policy = module.LearningPolicy.LinUCB(
            alpha=as_non_negative("exploration", exploration),
            l2_lambda=as_positive("regularization", regularization),
        )
        self._bandit = module.MAB([self._ARM], policy)
        self._fitted = False

    def select(self, actions: ArrayLike) -> int:
        """Index of the action with the best score, of an (n, d) set; ties go to the lowest index."""
        checked = as_actions(actions, self.n_features)[0]
        if not self._fitted:
            return 0
        expectations = self._bandit.predict_expectations(checked)
        rows = expectations if isinstance(expectations, list) else [expectations]
        choice = choose(np.array([float(row[self._ARM]) for row in rows]))
        self.margin = choice.margin
        return choice.action

    def update(self, action: ArrayLike, outcome: int) -> None:
        """Learn from the outcome, in 0..K, of any action."""
        features, reward = self._checked(action, outcome)
        learn = self._bandit.partial_fit if self._fitted else self._bandit.fit
        learn([self._ARM], [reward], features[None])
        self._fitted = True
