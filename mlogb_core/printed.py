r"""The paper's algorithms as an implementer would write them: the printed steps, with all actions at once.

The benchmarks time these forms. `literal` scores one action at a time, entry by entry, and is the oracle of
the tests. Here a round has the same two singular value decompositions (EOFD) or eigendecompositions (OFUL),
but all actions are scored in one batch of BLAS products. Both bonuses need of an action x only the block
:math:`A(x) = (I_K \otimes x)^\top Z^{-1}(I_K \otimes x)` (`eq:fd-oful-mlogb-efficient-reward-A`), as the
gradient of the expected reward is :math:`(I_K \otimes x)Jr` with the link's Jacobian J.

`CholeskyOFUL` has the same iterates from one Cholesky factor per round. Its cost lies between that of the
printed OFUL and that of the library's, which updates an inverse and factors no large matrix.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_solve, cholesky, solve_triangular

from mlogb_core._validation import Array, as_dense
from mlogb_core.link import outcome_probabilities
from mlogb_core.literal import LiteralEOFD, LiteralOFUL, LiteralPolicy, _hessian_columns

#: Relative distance from the sphere at which Newton's method for the projection stops.
_ON_THE_SPHERE = 1e-14


def _optimistic_scores(policy: LiteralPolicy, actions: Array, blocks: Array) -> Array:
    """Scores from the blocks A(x), (n, K, K), of all actions, (n, d)."""
    beta, logits = policy.beta, actions @ policy.parameter.T
    if policy.n_outcomes == 1:
        return np.asarray(logits[:, 0] + np.sqrt(beta * np.maximum(blocks[:, 0, 0], 0.0)))
    probabilities, rewards = outcome_probabilities(logits)[:, 1:], policy.rewards
    expected = probabilities @ rewards
    slopes = probabilities * (rewards - expected[:, None])  # J r
    lengths = np.matmul(slopes[:, None, :], np.matmul(blocks, slopes[:, :, None]))[:, 0, 0]
    first = np.sqrt(beta * np.maximum(lengths, 0.0))
    second = 0.5 * np.sum(np.abs(rewards)) * beta * np.linalg.eigvalsh(blocks)[:, -1]
    return np.asarray(expected + first + second)


class PrintedEOFD(LiteralEOFD):
    """EOFD-MLogB with the two SVDs a round that Algorithm 2 prints, and all actions scored at once.

    Parameters
    ----------
    n_features, rewards, sketch_size, regularization, step_size, norm_bound, radius
        As in `mlogb_core.literal.LiteralEOFD`, whose update this is.
    """

    def scores(self, actions: ArrayLike) -> Array:
        """Optimistic rewards (K >= 2) or optimistic logits (K = 1), (n,)."""
        X = as_dense(actions)
        (n, d), K, lam = X.shape, self.n_outcomes, self.regularization
        V, mu = self.sketch.vectors, self.sketch.values
        inner = (X @ V.T.reshape(mu.size * K, d).T).reshape(n, mu.size, K)  # x against block i of each v_k
        weighted = inner * (mu / (lam * (lam + mu)))[:, None]
        blocks = -np.matmul(inner.transpose(0, 2, 1), weighted)
        blocks[:, range(K), range(K)] += (np.einsum("nd,nd->n", X, X) / lam)[:, None]
        return _optimistic_scores(self, X, blocks)


class PrintedOFUL(LiteralOFUL):
    r"""OFUL-MLogB with the inverse root :math:`H^{-1/2}` of every round, applied to all actions at once.

    Parameters
    ----------
    n_features, rewards, regularization, step_size, norm_bound, radius
        As in `mlogb_core.literal.LiteralOFUL`, whose update this is.
    """

    def scores(self, actions: ArrayLike) -> Array:
        """Optimistic rewards (K >= 2) or optimistic logits (K = 1), (n,)."""
        X = as_dense(actions)
        N, K = len(self.hessian), self.n_outcomes
        images = (X @ self._inverse_root.reshape(N * K, -1).T).reshape(len(X), N, K)
        return _optimistic_scores(self, X, np.matmul(images.transpose(0, 2, 1), images))


class CholeskyOFUL(LiteralOFUL):
    r"""OFUL-MLogB as it is usually written: one Cholesky factor :math:`H = LL^\top` a round.

    Parameters
    ----------
    n_features, rewards, regularization, step_size, norm_bound, radius
        As in `mlogb_core.literal.LiteralOFUL`, whose iterates this has.

    Notes
    -----
    Scores come from triangular solves with all actions as right-hand sides. The step solves the surrogate
    :math:`H + \eta J \otimes xx^\top` by the matrix inversion lemma with the factor that is there, as

    .. math:: (LL^\top + \eta XJX^\top)^{-1}g
              = L^{-\top}\bigl(u - \eta EJ(I_K + \eta E^\top EJ)^{-1}E^\top u\bigr),
              \qquad X = I_K \otimes x,\ E = L^{-1}X,\ u = L^{-1}g.

    A step that leaves the ball is projected by Newton's method on :math:`1/\Vert w(\nu)\Vert - 1/S` from 0,
    with a Cholesky factor of the surrogate plus :math:`\nu I` in each of its three to five steps.
    """

    def scores(self, actions: ArrayLike) -> Array:
        """Optimistic rewards (K >= 2) or optimistic logits (K = 1), (n,)."""
        X = as_dense(actions)
        images = self._images(X)
        return _optimistic_scores(self, X, np.matmul(images, images.transpose(0, 2, 1)))

    def _images(self, X: Array) -> Array:
        r""":math:`L^{-1}(I_K \otimes x)` of all actions, transposed: (n, K, Kd)."""
        (n, d), K = X.shape, self.n_outcomes
        columns = np.zeros((n, K, K, d))
        for i in range(K):
            columns[:, i, i] = X
        solved = solve_triangular(
            self._inverse_root, columns.reshape(n * K, K * d).T, lower=True, overwrite_b=True,
            check_finite=False,
        )  # fmt: skip
        return np.ascontiguousarray(solved.T).reshape(n, K, K * d)

    def _form_inverse_root(self) -> Array:
        """The factor L; this form keeps it in place of the inverse root."""
        return np.asarray(cholesky(self.hessian, lower=True, check_finite=False))

    def _step(self, gradient: Array, link_jacobian: Array, x: Array) -> Array:
        eta, S, K = self.step_size, self.norm_bound, self.n_outcomes
        (images,) = self._images(x[None])
        solved = solve_triangular(self._inverse_root, gradient, lower=True, check_finite=False)
        small = np.eye(K) + eta * (images @ images.T) @ link_jacobian
        solved -= eta * (link_jacobian @ np.linalg.solve(small, images @ solved)) @ images
        direction = solve_triangular(self._inverse_root, solved, lower=True, trans="T", check_finite=False)
        point = self.parameter.ravel() - eta * direction
        if np.linalg.norm(point) <= S:
            return np.asarray(point)
        columns = np.sqrt(eta) * _hessian_columns(link_jacobian, x)
        surrogate = self.hessian + columns @ columns.T
        return _project(surrogate, point, S)

    def _add(self, link_jacobian: Array, x: Array) -> None:
        columns = _hessian_columns(link_jacobian, x)
        self.hessian += columns @ columns.T
        self._inverse_root = self._form_inverse_root()


def _project(surrogate: Array, point: Array, norm_bound: float) -> Array:
    r"""The point of the ball closest in the surrogate's norm, :math:`(\tilde H + \nu I)^{-1}\tilde Hw'`."""
    target, nu, inside = surrogate @ point, 0.0, point
    diagonal = np.diag_indices_from(surrogate)
    shifted = surrogate.copy()
    for _ in range(100):
        factor = cholesky(shifted, lower=True, check_finite=False)
        if nu > 0.0:
            inside = cho_solve((factor, True), target, check_finite=False)
        length = float(np.linalg.norm(inside))
        if length <= norm_bound * (1.0 + _ON_THE_SPHERE):
            break
        slope = solve_triangular(factor, inside, lower=True, check_finite=False)
        increase = length**2 / float(slope @ slope) * (length / norm_bound - 1.0)
        if nu + increase == nu:
            break
        nu += increase
        shifted[diagonal] = surrogate[diagonal] + nu
    return np.asarray(inside)
