r"""SGD-TS: Thompson sampling around the mean of stochastic gradient steps, one per batch (K = 1)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, log_expit

from mlogb_core._linalg import add_to_diagonal, cholesky, cholesky_solve, length
from mlogb_core._state import as_generator
from mlogb_core._validation import Array, as_actions, as_integer, as_non_negative, as_positive
from mlogb_core.choice import TIE_TOLERANCE
from mlogb_core.rivals.base import ScoringPolicy, positive_or

#: The steps stay within this distance of the maximum-likelihood estimate.
DISTANCE = 2.0
_MAX_STEPS = 100
# A Newton step that lowers the loss by less than this share of it is the last one.
_SETTLED = 1e-14


class SGDTS(ScoringPolicy):
    r"""SGD-TS of Ding, Hsieh and Sharpnack (2021) for the logistic link.

    The first :math:`\tau = \lfloor C\max(d, \ln T)\rfloor` actions are drawn uniformly, and :math:`\hat w` is
    the maximum-likelihood estimate from them. After the rounds t = jτ, j = 1, 2, ..., with the loss
    :math:`\ell_s` of each of the last τ rounds,

    .. math::
       \tilde w_j = \Pi_{\|w - \hat w\| \le 2}\Bigl(\tilde w_{j-1}
       - \frac{\eta_0}j\sum_s\nabla\ell_s(\tilde w_{j-1})\Bigr), \qquad
       \bar w_j = \frac1j\sum_{i \le j}\tilde w_i, \qquad
       w^{TS}_j \sim \mathcal N\Bigl(\bar w_j, \frac{2g_1^2 + 2g_2^2}jI\Bigr),

    from :math:`\tilde w_0 = \hat w`, and the next τ rounds play :math:`x_t = \arg\max_x x^\top w^{TS}_j`.

    Parameters
    ----------
    n_features : int
        d >= 1.
    rewards : (1,) array
        The reward >= 0 of outcome 1; it does not change the choice.
    rng : numpy.random.Generator
        The stream of its draws: one number a round while it explores, and d numbers after each batch.
    regularization : float, optional
        The ridge > 0 of :math:`\hat w`; by default 1.
    step_size : float, optional
        :math:`\eta_0 > 0`; by default 1.
    scale : float
        Factor >= 0 of the draw's standard deviation.
    exploration : float
        C > 0.
    horizon : int
        T >= 1, the number of rounds; it only matters where its logarithm is above d.
    deviations : (float, float)
        :math:`g_1` and :math:`g_2`, at least 0.
    tie_tolerance : float
        Relative tolerance of `choose`.

    Attributes
    ----------
    batch : int
        :math:`\tau \ge 1`.
    drawn : (d,) array or None
        :math:`w^{TS}_j`; None while it explores.

    Raises
    ------
    ValueError
        If an argument is out of range, or the rewards are those of more than two outcomes.

    Notes
    -----
    "An efficient algorithm for generalized linear bandit: online stochastic gradient descent and Thompson
    sampling", AISTATS 2021. The theory's :math:`g_1` and :math:`g_2` depend on constants that no player
    knows, and the paper tunes them, with C and :math:`\eta_0`, on grids that contain the defaults here. The
    paper's estimate has no ridge; with as few rounds as features it would not exist, as almost all such data
    are separable. The public code changes a label if the first two agree; the ridge makes that unnecessary.
    The gradient is summed up as the rounds come, so that after the first batch no action is stored.
    """

    binary = True

    def __init__(
        self,
        n_features: int,
        rewards: ArrayLike,
        *,
        rng: np.random.Generator,
        regularization: float | None = None,
        step_size: float | None = None,
        scale: float = 1.0,
        exploration: float = 1.0,
        horizon: int = 1000,
        deviations: tuple[float, float] = (1.0, 1.0),
        tie_tolerance: float = TIE_TOLERANCE,
    ) -> None:
        super().__init__(n_features, rewards, tie_tolerance=tie_tolerance)
        self.rng = as_generator(rng)
        self.regularization = positive_or("regularization", regularization, 1.0)
        self.step_size = positive_or("step_size", step_size, 1.0)
        rounds = max(self.n_features, math.log(as_integer("horizon", horizon, minimum=1)))
        self.batch = max(1, int(as_positive("exploration", exploration) * rounds))
        if np.shape(deviations) != (2,):
            raise ValueError(f"deviations must be two numbers, got {deviations!r}")
        g1, g2 = (as_non_negative("deviations", value) for value in deviations)
        self.deviation = as_non_negative("scale", scale) * math.sqrt(2.0 * (g1**2 + g2**2))
        self.estimate: Array | None = None
        self.drawn: Array | None = None
        self.mean = np.zeros(self.n_features)
        self._iterate = np.zeros(self.n_features)
        self._gradient = np.zeros(self.n_features)
        # The rounds of the first batch; later ones only add to the gradient.
        self._actions, self._labels = np.zeros((self.batch, self.n_features)), np.zeros(self.batch)

    def select(self, actions: ArrayLike) -> int:
        """Index of a uniformly random action while it explores, and then of the best one for the draw.

        Raises
        ------
        ValueError
            If the actions have the wrong shape or are not finite.
        ArithmeticError
            If a score overflows; the message names the round.
        """
        if self.drawn is not None:
            return super().select(actions)
        self.margin = np.inf
        return int(self.rng.integers(len(as_actions(actions, self.n_features)[0])))

    def _scores(self, actions: Array) -> Array:
        return np.zeros(len(actions)) if self.drawn is None else np.dot(actions, self.drawn)

    def _learn(self, action: Array, outcome: int) -> None:
        number = self.rounds % self.batch
        if self.estimate is None:
            self._actions[number], self._labels[number] = action, outcome
        else:
            self._gradient += (expit(action @ self._iterate) - outcome) * action
        if number + 1 == self.batch:
            self._end_batch((self.rounds + 1) // self.batch)

    def _end_batch(self, j: int) -> None:
        """Take the step of the j-th batch and draw the parameter that the next one plays."""
        if self.estimate is None:
            actions, labels = self._actions, self._labels
            self.estimate = self._iterate = ridge_estimate(actions, labels, self.regularization)
            self._gradient = (expit(actions @ self.estimate) - labels) @ actions
            self._actions, self._labels = np.zeros((0, self.n_features)), np.zeros(0)
        away = self._iterate - self.step_size / j * self._gradient - self.estimate
        self._iterate = self.estimate + away * min(1.0, DISTANCE / max(length(away), DISTANCE))
        self.mean = ((j - 1) * self.mean + self._iterate) / j
        self._gradient = np.zeros(self.n_features)
        noise = self.rng.standard_normal(self.n_features)
        self.drawn = self.mean + self.deviation / math.sqrt(j) * noise


def ridge_estimate(actions: Array, labels: Array, regularization: float) -> Array:
    r"""The minimiser of the logistic loss with a ridge, by Newton's method with step halving.

    .. math:: \arg\min_w\ \sum_s \ln\bigl(1 + e^{w^\top x_s}\bigr) - y_sw^\top x_s
              + \tfrac\lambda2\|w\|^2

    Parameters
    ----------
    actions : (t, d) array
        The rows :math:`x_s`.
    labels : (t,) array
        :math:`y_s`, 0 or 1.
    regularization : float
        :math:`\lambda > 0`.

    Returns
    -------
    (d,) array

    Raises
    ------
    ArithmeticError
        If the steps do not settle.
    """
    signs = 2.0 * labels - 1.0

    def loss(w: Array) -> float:
        return float(0.5 * regularization * (w @ w) - log_expit(signs * (actions @ w)).sum())

    w = np.zeros(actions.shape[1])
    present = loss(w)
    for _ in range(_MAX_STEPS):
        p = expit(actions @ w)
        gradient = (p - labels) @ actions + regularization * w
        hessian = actions.T @ (actions * (p * (1.0 - p))[:, None])
        add_to_diagonal(hessian, regularization)
        step = cholesky_solve(cholesky(hessian), gradient[None])[0]
        if step @ gradient <= _SETTLED * present:
            return np.asarray(w - step)
        share, new = 1.0, loss(w - step)
        while new > present and share > _SETTLED:
            share *= 0.5
            new = loss(w - share * step)
        w, present = w - share * step, new
    raise ArithmeticError(f"the maximum-likelihood estimate did not settle in {_MAX_STEPS} steps")
