r"""The ridge maximum-likelihood estimate of the multinomial logit model, in a ball, and its Hessian.

.. math:: \hat W = \arg\min_{\|W\|_F \le S}\ \sum_{s} \ell_s(W) + \tfrac\lambda2\|W\|_F^2, \qquad
          H(W) = \lambda I + \sum_{s} \nabla\sigma(Wx_s) \otimes x_sx_s^\top

All outcomes enter the likelihood, the reference included. The estimate is found by Newton's method from the
last estimate. The Hessian is the expensive part, so that its Cholesky factor serves several steps as long as
these converge fast.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError
from scipy.linalg.blas import dsyrk, dtrmv
from scipy.linalg.lapack import dpotri

from mlogb_core._linalg import add_to_diagonal, cholesky, length, whiten
from mlogb_core._ownership import Owned
from mlogb_core._validation import Array
from mlogb_core.link import finite_probabilities

_MAX_STEPS = 300
# A step that changes no logit by more than this leaves the Hessian within a factor 1.3 and is taken whole.
_SMALL_CHANGE = 0.1
# The factor serves until a step is longer than this share of the step before.
_CONTRACTION = 0.3


class Observations(Owned):
    """The actions that were played and their outcomes, in arrays that double when they are full.

    Parameters
    ----------
    n_features : int
        d.
    """

    def __init__(self, n_features: int) -> None:
        self.size = 0
        self._actions: Array = np.empty((16, n_features))
        self._outcomes: NDArray[np.int64] = np.empty(16, dtype=np.int64)

    @property
    def actions(self) -> Array:
        """The (t, d) actions; a view."""
        return self._actions[: self.size]

    @property
    def outcomes(self) -> NDArray[np.int64]:
        """The (t,) outcomes in 0..K; a view."""
        return self._outcomes[: self.size]

    def add(self, action: Array, outcome: int) -> None:
        """Append a round."""
        if self.size == len(self._actions):
            self._actions = np.concatenate((self._actions, np.empty_like(self._actions)))
            self._outcomes = np.concatenate((self._outcomes, np.empty_like(self._outcomes)))
        self._actions[self.size] = action
        self._outcomes[self.size] = outcome
        self.size += 1


class Fit(NamedTuple):
    r"""A maximum-likelihood estimate.

    Attributes
    ----------
    parameter : (K, d) array
        :math:`\hat W`.
    multiplier : float
        The dual variable :math:`\nu \ge 0` of the ball, 0 inside: the gradient is :math:`-\nu\hat W`.
    hessians : int
        How many Hessians were assembled.
    """

    parameter: Array
    multiplier: float
    hessians: int


class _Point(NamedTuple):
    """A parameter, the logits of all rounds under it, and its penalised loss."""

    parameter: Array
    logits: Array
    loss: float


def fit(
    actions: Array,
    outcomes: NDArray[np.int64],
    regularization: float,
    start: Array,
    norm_bound: float = math.inf,
    multiplier: float = 0.0,
    tolerance: float = 1e-6,
) -> Fit:
    r"""The ridge maximum-likelihood estimate in a ball, by damped Newton steps.

    Parameters
    ----------
    actions : (t, d) array
        The actions that were played.
    outcomes : (t,) array of int
        Their outcomes, in 0..K.
    regularization : float
        :math:`\lambda > 0`.
    start : (K, d) array
        Where the search starts, in the ball.
    norm_bound : float
        S; infinite for an estimate without constraint.
    multiplier : float
        A guess of :math:`\nu`.
    tolerance : float
        Length of the last step in the norm of the Hessian, which is the unit of the confidence sets.

    Returns
    -------
    Fit

    Raises
    ------
    ArithmeticError
        If the search does not settle.

    Notes
    -----
    A step minimises the quadratic model over the ball. Its multiplier is that of Newton's method for
    :math:`1/\|W(\nu)\| = 1/S`, as in `mlogb_core.projection`: a large change of it asks for another factor of
    :math:`H + \nu I`, a small one is a correction of first order. The loss is convex and the ball too, so
    that a step towards a point of the ball at which the model is lower can always be shortened until the loss
    falls. The estimate lies in the span of the actions, so that few actions are replaced by their coordinates
    in it.
    """
    if not len(actions):
        return Fit(np.zeros_like(start), 0.0, 0)
    if 2 * len(actions) < actions.shape[1]:
        basis, coordinates = _span(actions)
        small = fit(
            coordinates, outcomes, regularization, start @ basis, norm_bound, multiplier, tolerance=tolerance
        )
        return small._replace(parameter=small.parameter @ basis.T)
    logits, refinement, previous = np.dot(actions, start.T), 0.1, math.inf
    point = _Point(start, logits, _loss(logits, outcomes, start, regularization))
    hessian_matrix: Array | None = None
    factor: Array | None = None
    shift, assembled = 0.0, 0
    for _ in range(_MAX_STEPS):
        probabilities = finite_probabilities(point.logits)
        gradient = _gradient(probabilities, actions, outcomes) + regularization * point.parameter
        if hessian_matrix is None:
            hessian_matrix, factor = hessian(probabilities, actions, regularization), None
            assembled, previous = assembled + 1, math.inf
        fresh = factor is None
        if factor is None:
            factor, shift = _shifted_factor(hessian_matrix, multiplier), multiplier
        target, change = _model_minimiser(factor, point.parameter, gradient, multiplier, norm_bound)
        if abs(change) > refinement * (regularization + multiplier):
            multiplier, factor = multiplier + change, None
            continue
        multiplier += change
        step = target - point.parameter
        moved = length(dtrmv(factor, step.reshape(-1), lower=1, trans=1))
        descent = float(np.vdot(gradient, step))
        if moved <= tolerance:
            return Fit(target, multiplier, assembled)
        if descent >= 0.0:  # The multiplier is not accurate enough, or the factor is too old.
            refinement *= 0.1 if fresh else 1.0
            hessian_matrix = None
            continue
        point, share = _line_search(point, step, descent, actions, outcomes, regularization)
        if share < 1.0 or moved > _CONTRACTION * previous or shift == 0.0 < multiplier:
            hessian_matrix = None
        previous = moved
    raise ArithmeticError(
        f"the maximum-likelihood estimate from {len(outcomes)} rounds did not settle in {_MAX_STEPS} steps "
        f"(length {length(point.parameter.reshape(-1)):.3g}, last step {previous:.3g})"
    )


def inverse_hessian(probabilities: Array, actions: Array, regularization: float) -> tuple[Array, float]:
    r"""The inverse of the Hessian of `hessian` as a lower triangle, and the log-determinant of the Hessian.

    Parameters
    ----------
    probabilities, actions, regularization
        As in `hessian`.

    Raises
    ------
    LinAlgError
        If the Hessian is not positive definite.

    Notes
    -----
    With an orthonormal basis Q of few actions the Hessian is :math:`\lambda I` outside their span, and
    :math:`H^{-1} = \frac1\lambda I + (I \otimes Q)(H_Q^{-1} - \frac1\lambda I)(I \otimes Q)^\top`, where
    :math:`H_Q` is the Hessian for coordinates.
    """
    (t, d), K = actions.shape, probabilities.shape[1] - 1
    if 2 * t >= d:
        return invert(hessian(probabilities, actions, regularization))
    basis, coordinates = _span(actions)
    lower, log_determinant = invert(hessian(probabilities, coordinates, regularization))
    add_to_diagonal(lower.T, -1.0 / regularization)
    inner = (lower + np.tril(lower, -1).T).reshape(K, t, K, t)
    inverse: Array = np.zeros((K * d, K * d), order="F")
    for k in range(K):
        for i in range(k + 1):
            block = basis @ inner[k, :, i] @ basis.T
            inverse[k * d : (k + 1) * d, i * d : (i + 1) * d] = np.tril(block) if i == k else block
    add_to_diagonal(inverse.T, 1.0 / regularization)
    return inverse, log_determinant + K * (d - t) * math.log(regularization)


def _span(actions: Array) -> tuple[Array, Array]:
    """An orthonormal basis of the span of few actions, (d, t), and their coordinates, (t, t)."""
    basis, triangle = np.linalg.qr(actions.T)
    return basis, np.ascontiguousarray(triangle.T)


def hessian(probabilities: Array, actions: Array, regularization: float) -> Array:
    r"""The Hessian :math:`\lambda I + \sum_s \nabla\sigma_s \otimes x_sx_s^\top` as a lower triangle.

    Parameters
    ----------
    probabilities : (t, K+1) array
        Probabilities of the outcomes 0..K in each round.
    actions : (t, d) array
        The actions.
    regularization : float
        :math:`\lambda`.

    Returns
    -------
    (Kd, Kd) array
        Column-major; what is above the diagonal is 0.

    Notes
    -----
    :math:`\sum_s \operatorname{diag}(p_s) \otimes x_sx_s^\top` fills the K diagonal blocks, and
    :math:`\sum_s (p_s \otimes x_s)(p_s \otimes x_s)^\top` is one symmetric product with t columns: together
    :math:`O(tK^2d^2)`.
    """
    (t, d), K = actions.shape, probabilities.shape[1] - 1
    matrix: Array = np.zeros((K * d, K * d), order="F")
    if t:
        if K == 1:
            rows = np.sqrt(probabilities[:, 0] * probabilities[:, 1])[:, None] * actions
            dsyrk(1.0, rows.T, beta=1.0, c=matrix, lower=1, overwrite_c=1)
        else:
            for k in range(K):
                rows = np.sqrt(probabilities[:, k + 1])[:, None] * actions
                block = slice(k * d, (k + 1) * d)
                matrix[block, block] = dsyrk(1.0, rows.T, lower=1)
            weighted = (probabilities[:, 1:, None] * actions[:, None, :]).reshape(t, K * d)
            dsyrk(-1.0, weighted.T, beta=1.0, c=matrix, lower=1, overwrite_c=1)
    add_to_diagonal(matrix.T, regularization)
    return matrix


def invert(matrix: Array) -> tuple[Array, float]:
    """The inverse of a positive definite matrix and its log-determinant, from lower triangles.

    Raises
    ------
    LinAlgError
        If the matrix is not positive definite.
    """
    factor = cholesky(matrix.T.copy())
    log_determinant = 2.0 * float(np.log(np.diag(factor)).sum())
    inverse, info = dpotri(factor, lower=1, overwrite_c=1)
    if info != 0:
        raise LinAlgError(f"a matrix of order {len(matrix)} is singular (entry {info})")
    return np.asarray(inverse), log_determinant


def _shifted_factor(matrix: Array, multiplier: float) -> Array:
    shifted = matrix.T.copy()
    add_to_diagonal(shifted, multiplier)
    return cholesky(shifted)


def _solve(factor: Array, vector: Array) -> Array:
    row = vector.reshape(1, -1)
    return whiten(factor, whiten(factor, row), transposed=True).reshape(vector.shape)


def _model_minimiser(
    factor: Array, parameter: Array, gradient: Array, multiplier: float, norm_bound: float
) -> tuple[Array, float]:
    """The minimiser of the quadratic model over the ball, to first order in the change of the multiplier."""
    point = parameter - _solve(factor, gradient + multiplier * parameter)
    norm = length(point.reshape(-1))
    if multiplier == 0.0 and norm <= norm_bound:
        return point, 0.0
    derivative = _solve(factor, point)
    change = (norm / norm_bound - 1.0) * norm**2 / float(np.vdot(point, derivative))
    change = max(change, -multiplier)
    target = point - change * derivative
    norm = length(target.reshape(-1))
    return (target if norm <= norm_bound else target * (norm_bound / norm)), change


def _line_search(
    start: _Point,
    step: Array,
    descent: float,
    actions: Array,
    outcomes: NDArray[np.int64],
    regularization: float,
) -> tuple[_Point, float]:
    """Halve a step until the loss falls enough, or no logit changes much; also the share that is left."""
    logit_step, share = np.dot(actions, step.T), 1.0
    largest = float(np.abs(logit_step).max())
    while True:
        parameter, logits = start.parameter + share * step, start.logits + share * logit_step
        loss = _loss(logits, outcomes, parameter, regularization)
        if share * largest <= _SMALL_CHANGE or loss <= start.loss + 1e-4 * share * descent:
            return _Point(parameter, logits, loss), share
        share *= 0.5


def _loss(logits: Array, outcomes: NDArray[np.int64], parameter: Array, regularization: float) -> float:
    """The penalised loss."""
    shift = np.maximum(logits.max(axis=1, initial=0.0), 0.0)
    sums = np.exp(logits - shift[:, None]).sum(axis=1) + np.exp(-shift)
    losses = np.log(sums) + shift
    positive = outcomes > 0
    losses[positive] -= logits[positive, outcomes[positive] - 1]
    return float(losses.sum() + 0.5 * regularization * np.vdot(parameter, parameter))


def _gradient(probabilities: Array, actions: Array, outcomes: NDArray[np.int64]) -> Array:
    """The gradient of the loss without its penalty, (K, d)."""
    residuals = probabilities.copy()
    residuals[np.arange(len(outcomes)), outcomes] -= 1.0
    return np.asarray(residuals[:, 1:].T @ actions)
