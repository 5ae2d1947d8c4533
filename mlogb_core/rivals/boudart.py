r"""Explore, then learn, for fixed actions: a reconstruction of Boudart, Gaillard and Rudi (ALT 2026)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mlogb_core._validation import Array, as_actions, as_integer
from mlogb_core.curvature import DenseCurvature
from mlogb_core.link import finite_probabilities, jacobian_factor, loss_residual
from mlogb_core.rivals.base import positive_or
from mlogb_core.rivals.batch import (
    BatchRival,
    as_second_order,
    ball_radius,
    likelihood_ratio_width,
    log_det_increment,
    second_order_bonus,
)
from mlogb_core.rivals.glb_omd import descent_radius
from mlogb_core.rivals.kappa import inverse_curvature

# Phase 2 has logit ranges of at most 1, for which the mirror descent may take this step size, whatever S.
_STEP_SIZE = 1.5


class Boudart(BatchRival):
    r"""Explore until the logits are known to within a range of 1, then learn by optimistic mirror descent.

    *Phase 1* plays :math:`\arg\max_x \|x\|_{V^{-1}}`, :math:`V = \lambda I + \frac1\kappa\sum_s x_sx_s^\top`,
    until :math:`2\sqrt{2\gamma}\max_x\|x\|_{V^{-1}} \le 1`, where :math:`1/\kappa` is the smallest curvature
    of the link. Then the maximum-likelihood estimate :math:`\hat W` in the ball is the centre of the set
    :math:`\|W - \hat W\|^2_{I \otimes V} \le \gamma`, which holds the true parameter:

    .. math:: \gamma = 2(1 + MS)\bigl(\tfrac12\lambda S^2 + \beta^{LR}_t\bigr), \qquad
              M = \sqrt2 \ (1 \text{ for } K = 1),

    with the `likelihood_ratio_radius` :math:`\beta^{LR}_t`.

    *Phase 2* starts from :math:`W = \hat W` and :math:`H = I \otimes V`, takes the proximal Newton step of
    the paper's own policies with :math:`\eta = \tfrac32`, projected onto that set, and plays the best score
    of `SecondOrderRival` with

    .. math:: \beta_t = \gamma + 2\eta\ln\tfrac1\delta + \eta(6\eta + 1)\ln\frac{\det H_t}{\det(I \otimes V)}.

    Parameters
    ----------
    n_features, rewards, norm_bound, confidence, feature_bound, tie_tolerance
        As in `BatchRival`.
    scale : float
        Factor of :math:`\sqrt\gamma` in the condition that ends phase 1, and of :math:`\sqrt{\beta_t}` in the
        score. The set of phase 2 is not scaled.
    radius : Radius, optional
        As in `Rival`. What the rule gives replaces :math:`\gamma` in the condition that ends phase 1, and
        :math:`\beta_t` in the score. Both are squared widths: :math:`\gamma` in the norm of
        :math:`I \otimes V`, and :math:`\beta_t` in that of H, which starts as :math:`I \otimes V`. The set of
        phase 2 is not changed.
    regularization : float, optional
        By default :math:`\lambda = 2/S^2`.
    second_order : float, optional
        As in `SecondOrderRival`.
    actions : (n, d) array, optional
        The fixed set of actions; by default that of the first `select`.
    exploration : int, optional
        Number of rounds of phase 1, in place of the rule above.

    Attributes
    ----------
    exploring : bool
        Whether phase 1 goes on. It ends inside of the `select` or `scores` that finds its condition met.

    Raises
    ------
    ValueError
        If an argument is out of range, or `select` is called with another set of actions.

    Notes
    -----
    Only the abstract was found. It says that the set of actions is fixed, that the regret is
    :math:`\tilde O(Rd\sqrt{KT/\kappa_*})`, with the norm R of the rewards and a constant
    :math:`\kappa_* \ge 1` of the problem, and that the method explores, then learns, at a cost per round
    that does not grow with t. Both phases are reconstructed from that and from a third party's version for
    assortments, and all constants are choices of this project: :math:`\gamma` is the squared radius of
    `MNLUCB2`, since :math:`I \otimes V \preceq H(\hat W)`; :math:`\kappa` is exact; :math:`\beta_t` adds up
    determinants as `LogDetRadius` does, with :math:`\gamma` in place of :math:`\lambda S^2`. Phase 2 does not
    project onto the ball. In coordinates :math:`U = (W - \hat W)V^{1/2}`, :math:`\tilde x = V^{-1/2}x` the
    set is a ball and H starts as I, so that the step and the projection are those of `DenseCurvature`.

    Phase 1 takes some :math:`8\kappa\gamma d` rounds. At S = 10 that is more than any game here has, and the
    policy then explores to the end unless `scale` or the given `radius` is small, or `exploration` is given.
    """

    def __init__(
        self,
        n_features: int,
        rewards: ArrayLike,
        *,
        norm_bound: float,
        regularization: float | None = None,
        feature_bound: float = 1.0,
        second_order: float | None = None,
        actions: ArrayLike | None = None,
        exploration: int | None = None,
        **common: Any,
    ) -> None:
        bounds = {"norm_bound": norm_bound, "feature_bound": feature_bound}
        lam = positive_or("regularization", regularization, 2.0 / ball_radius(**bounds) ** 2)
        super().__init__(n_features, rewards, regularization=lam, refit_growth=1.0, **bounds, **common)
        self.second_order = as_second_order(second_order, self.rewards)
        self.exploration = None if exploration is None else as_integer("exploration", exploration, minimum=0)
        self.kappa = inverse_curvature(self.n_outcomes, self._ball)
        self.exploring = True
        self._fixed = None if actions is None else as_actions(actions, self.n_features)[0].copy()
        self._design = DenseCurvature(1, self.n_features, self.regularization)
        self._log_growth = 0.0

    @property
    def gamma(self) -> float:
        r"""The squared radius :math:`\gamma` from the rounds of phase 1 so far."""
        return likelihood_ratio_width(
            self.n_outcomes,
            self.n_features,
            self._observations.size,
            self._ball,
            self.regularization,
            self.confidence,
        )

    @property
    def beta(self) -> float:
        r"""The squared width :math:`\beta_t` of phase 2: the theory's with the scale, or that of the rule."""
        if self.radius is not None:
            return self.radius.value(self.progress)
        return self.scale**2 * descent_radius(self.gamma, _STEP_SIZE, self.confidence, self._log_growth)

    def _scores(self, actions: Array) -> Array:
        self._check_fixed(actions)
        scaled = actions / self.feature_bound
        if self.exploring:
            norms = np.sqrt(np.maximum(self._design.inverse_blocks(scaled)[:, 0, 0], 0.0))
            if not self._is_explored(float(norms.max())):
                return norms
            self._start_learning()
        white = scaled @ self._root
        value, slopes = self._values(self._logits(scaled, white))
        if self.beta == 0.0:
            return value
        blocks = self._curvature.inverse_blocks(white)
        return value + second_order_bonus(slopes, blocks, self.beta, self.second_order)

    def _check_fixed(self, actions: Array) -> None:
        if self._fixed is None:
            self._fixed = actions.copy()
        elif not np.array_equal(self._fixed, actions):
            raise ValueError(
                f"actions must be the same {self._fixed.shape} array in every round, since "
                f"{type(self).__name__} is a method for a fixed set, got another one of shape {actions.shape}"
            )

    def _is_explored(self, largest_norm: float) -> bool:
        if self.exploration is not None:
            return self._observations.size >= self.exploration
        squared = self.gamma if self.radius is None else self.beta
        return 2.0 * self.scale * math.sqrt(2.0 * squared) * largest_norm <= 1.0

    def _start_learning(self) -> None:
        """End phase 1: fit the estimate, and change to the coordinates of phase 2."""
        self._refit()
        values, vectors = np.linalg.eigh(self._design.dense())
        self._root: Array = (vectors / np.sqrt(values)) @ vectors.T
        self._moved = np.zeros_like(self._estimate)
        self._curvature = DenseCurvature(self.n_outcomes, self.n_features, 1.0)
        self.exploring = False

    def _logits(self, scaled: Array, white: Array) -> Array:
        return np.asarray(scaled @ self._estimate.T + white @ self._moved.T)

    def _learn(self, action: Array, outcome: int) -> None:
        action = action / self.feature_bound
        if self.exploring:
            self._observations.add(action, outcome)
            self._extend(action)
            return
        white = action @ self._root
        frame = self._curvature.frame(white)
        probabilities = finite_probabilities(self._logits(action, white))
        residual, factor = loss_residual(probabilities, outcome), jacobian_factor(probabilities)
        self._moved = self._curvature.newton_step(
            frame, self._moved, residual, factor, _STEP_SIZE, math.sqrt(self.gamma)
        ).parameter
        added = jacobian_factor(finite_probabilities(self._logits(action, white)))
        self._log_growth += log_det_increment(frame.block, added)
        self._curvature.add(frame, added)

    def _extend(self, action: Array) -> None:
        self._design.add(self._design.frame(action), np.full((1, 1), 1.0 / math.sqrt(self.kappa)))

    @property
    def parameter(self) -> Array:
        r"""The present estimate, (K, d); 0 in phase 1."""
        scaled = self._estimate if self.exploring else self._estimate + self._moved @ self._root
        return np.asarray(scaled / self.feature_bound)
