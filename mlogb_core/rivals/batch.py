r"""What the maximum-likelihood policies have in common: they keep all rounds and refit the estimate to them.

The theory of these policies has a new estimate in every round. Here a refit waits until the number of rounds
has grown by a factor. In between, the Hessian of each round at the present estimate is added. A game of T
rounds then costs :math:`O(\log T)` refits and T changes of rank K of an inverse.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mlogb_core._validation import Array, as_non_negative, as_positive
from mlogb_core.curvature import DenseCurvature
from mlogb_core.link import expected_reward, finite_probabilities, jacobian, jacobian_factor
from mlogb_core.radius import Progress
from mlogb_core.rivals.base import Rival
from mlogb_core.rivals.likelihood import Observations, fit, inverse_hessian


def as_growth(value: Any) -> float:
    """Return `refit_growth` as a float of at least 1."""
    growth = as_positive("refit_growth", value)
    if growth < 1.0:
        raise ValueError(f"refit_growth must be at least 1, got {value}")
    return growth


def likelihood_ratio_radius(
    n_parameters: int, rounds: int, norm_bound: float, lipschitz: float, confidence: float
) -> float:
    r"""By how much the loss of the true parameter exceeds the smallest one in the ball, at most.

    .. math:: \beta^{LR}_t = \ln\tfrac1\delta + n\ln\max\Bigl\{e, \frac{2eS\,\mathrm{Lip}\,t}{n}\Bigr\}

    Parameters
    ----------
    n_parameters, rounds : int
        n = Kd and t, the number of rounds behind the loss.
    norm_bound, lipschitz, confidence : float
        S, the Lipschitz constant of the loss of a round, and :math:`\delta`.

    Notes
    -----
    From a uniform prior on the ball and Ville's inequality (Lee, Yun and Jun 2024, for K = 1); with
    :math:`\mathrm{Lip} = \sqrt2D` the argument holds for any K, since the gradient of a loss is
    :math:`(\sigma - \mathbf y) \otimes x` and :math:`\|\sigma - \mathbf y\| \le \sqrt2`.
    """
    growth = 2.0 * math.e * norm_bound * lipschitz * rounds / n_parameters
    return -math.log(confidence) + n_parameters * math.log(max(math.e, growth))


def likelihood_ratio_width(
    n_outcomes: int, n_features: int, rounds: int, norm_bound: float, regularization: float, confidence: float
) -> float:
    r"""The squared radius of the ellipsoid around the ridge estimate that holds the true parameter.

    .. math:: \|W_* - \hat W\|^2_{H(\hat W)} \le 2(1 + MS)\bigl(\tfrac12\lambda S^2 + \beta^{LR}_t\bigr),
              \qquad M = \sqrt2 \ (1 \text{ for } K = 1)

    Here :math:`W_*` is the true parameter, :math:`\hat W` the ridge estimate in the ball of radius S, H the
    Hessian of its loss, and :math:`\beta^{LR}_t` the `likelihood_ratio_radius` with :math:`\mathrm{Lip} = M`.
    Actions have a norm of at most 1. The derivation is that of `MNLUCB2`.

    Parameters
    ----------
    n_outcomes, n_features, rounds : int
        K, d and t, the number of rounds behind the estimate.
    norm_bound, regularization, confidence : float
        S, :math:`\lambda` and :math:`\delta`.
    """
    M = 1.0 if n_outcomes == 1 else math.sqrt(2.0)
    ratio = likelihood_ratio_radius(n_outcomes * n_features, rounds, norm_bound, M, confidence)
    return 2.0 * (1.0 + M * norm_bound) * (0.5 * regularization * norm_bound**2 + ratio)


def ball_radius(norm_bound: float, feature_bound: float) -> float:
    """SD, the bound of the norm of the parameter for actions that are divided by D."""
    return as_positive("norm_bound", norm_bound) * as_positive("feature_bound", feature_bound)


class BatchRival(Rival):
    r"""A policy over the ridge maximum-likelihood estimate; subclasses implement `_scores`.

    Parameters
    ----------
    n_features, rewards, norm_bound, confidence, scale, radius, feature_bound, tie_tolerance
        As in `Rival`.
    regularization : float
        :math:`\lambda > 0`.
    refit_growth : float
        The estimate is refitted when the number of rounds has grown by this factor >= 1; with 1 in every
        round.

    Attributes
    ----------
    refits : int
        Number of refits so far.

    Notes
    -----
    Actions are divided by D, the bound of their norms, and S is multiplied by it. :math:`\lambda` and a given
    `radius` belong to actions of this scale. Memory grows with the number of rounds by d numbers a round.
    """

    def __init__(
        self,
        n_features: int,
        rewards: ArrayLike,
        *,
        regularization: float,
        refit_growth: float,
        **common: Any,
    ) -> None:
        super().__init__(n_features, rewards, **common)
        self.regularization = as_positive("regularization", regularization)
        self.refit_growth = as_growth(refit_growth)
        self.refits = 0
        self._observations = Observations(self.n_features)
        self._estimate = np.zeros((self.n_outcomes, self.n_features))
        self._multiplier = 0.0
        self._fitted = 0

    @property
    def parameter(self) -> Array:
        r"""The estimate :math:`\hat W`, (K, d)."""
        return self._estimate / self.feature_bound

    @property
    def _ball(self) -> float:
        """SD, the bound of the norm of the parameter for actions of norm at most 1."""
        return self.norm_bound * self.feature_bound

    @property
    def progress(self) -> Progress:
        """What a given `radius` may depend on, for actions of norm at most 1; the step size is NaN."""
        K, d = self.n_outcomes, self.n_features
        return Progress(K, d, K * d, self.regularization, math.nan, self._ball, self.rounds)

    def _learn(self, action: Array, outcome: int) -> None:
        action = action / self.feature_bound
        self._observations.add(action, outcome)
        if self._observations.size >= self.refit_growth * self._fitted:
            self._refit()
        else:
            self._extend(action)

    @abstractmethod
    def _extend(self, action: Array) -> None:
        """Add a round without a new estimate."""

    def _refit(self) -> None:
        seen = self._observations
        self._estimate, self._multiplier, _ = fit(
            seen.actions, seen.outcomes, self.regularization, self._estimate, self._ball, self._multiplier
        )
        self._fitted = seen.size
        self.refits += 1

    def _values(self, logits: Array) -> tuple[Array, Array]:
        """Scores without a bonus, and the (n, K) gradients of the reward in the logits; logits for K = 1."""
        if self.n_outcomes == 1:
            return logits[:, 0], np.ones_like(logits)
        probabilities = finite_probabilities(logits)
        return expected_reward(probabilities, self.rewards), jacobian(probabilities) @ self.rewards


class SecondOrderRival(BatchRival):
    r"""A batch policy with a bonus of second order; subclasses implement their theory in `_squared_width`.

    .. math:: r^\top\sigma(\hat Wx) + \sqrt{\beta_t}\,\|(\nabla\sigma(\hat Wx)\,r) \otimes x\|_{H_t^{-1}}
              + c\,\beta_t\,\|(I \otimes x)^\top H_t^{-1}(I \otimes x)\|_2,
              \qquad \hat w^\top x + \sqrt{\beta_t}\,\|x\|_{H_t^{-1}} \quad (K = 1)

    Parameters
    ----------
    n_features, rewards, norm_bound, confidence, scale, radius, feature_bound, tie_tolerance, regularization,
    refit_growth
        As in `BatchRival`; the rule `radius` gives :math:`\beta_t`.
    second_order : float, optional
        c >= 0, by default :math:`\tfrac12\|r\|_1`, the constant of the paper's own policies: a comparison of
        policies should not be one of bounds of the same remainder.
    """

    def __init__(
        self, n_features: int, rewards: ArrayLike, *, second_order: float | None = None, **options: Any
    ) -> None:
        super().__init__(n_features, rewards, **options)
        self.second_order = as_second_order(second_order, self.rewards)
        self._log_determinant = self.rewards.size * self.n_features * math.log(self.regularization)
        self._curvature = DenseCurvature(self.n_outcomes, self.n_features, self.regularization)

    @property
    def beta(self) -> float:
        r"""The squared width :math:`\beta_t` of a round: the theory's with the scale, or that of the rule."""
        if self.radius is not None:
            return self.radius.value(self.progress)
        return self.scale**2 * self._squared_width()

    @abstractmethod
    def _squared_width(self) -> float:
        r"""The theory's :math:`\beta_t` of the coming round, from `rounds`."""

    def _scores(self, actions: Array) -> Array:
        actions, beta = actions / self.feature_bound, self.beta
        value, slopes = self._values(np.dot(actions, self._estimate.T))
        if beta == 0.0:
            return value
        return value + second_order_bonus(
            slopes, self._curvature.inverse_blocks(actions), beta, self.second_order
        )

    def _extend(self, action: Array) -> None:
        frame = self._curvature.frame(action)
        factor = jacobian_factor(finite_probabilities(np.dot(self._estimate, action)))
        self._log_determinant += log_det_increment(frame.block, factor)
        self._curvature.add(frame, factor)

    def _refit(self) -> None:
        super()._refit()
        actions = self._observations.actions
        probabilities = finite_probabilities(np.dot(actions, self._estimate.T))
        self._curvature.inverse, self._log_determinant = inverse_hessian(
            probabilities, actions, self.regularization
        )


def as_second_order(value: Any, rewards: Array) -> float:
    """Return `second_order` as a float >= 0; None stands for half the sum of the rewards."""
    return as_non_negative("second_order", 0.5 * float(rewards.sum()) if value is None else value)


def log_det_increment(block: Array, factor: Array) -> float:
    r"""By how much a round raises :math:`\ln\det H`: :math:`\ln\det(I + F^\top AF)`."""
    inner = np.eye(len(factor)) + factor.T @ block @ factor
    return float(np.linalg.slogdet(inner).logabsdet)


def second_order_bonus(slopes: Array, blocks: Array, beta: float, second_order: float) -> Array:
    r"""The bonus of second order of n actions, (n,).

    .. math:: \sqrt{\beta\,v^\top Av} + c\,\beta\,\|A\|_2, \qquad \sqrt{\beta\,A} \quad (K = 1)

    Parameters
    ----------
    slopes : (n, K) array
        v, the gradients of the reward in the logits, or 1 for K = 1.
    blocks : (n, K, K) array
        :math:`A = (I \otimes x)^\top H^{-1}(I \otimes x)` of each action x.
    beta, second_order : float
        :math:`\beta` and c.
    """
    first = np.einsum("ni,nij,nj->n", slopes, blocks, slopes)
    bonus = np.sqrt(beta * np.maximum(first, 0.0))
    if blocks.shape[1] == 1:
        return np.asarray(bonus)
    return np.asarray(bonus + second_order * beta * np.linalg.eigvalsh(blocks)[:, -1])
