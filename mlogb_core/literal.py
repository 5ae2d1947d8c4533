r"""The paper's algorithms, transcribed line by line: slow, and the oracle of the tests.

They use dense matrices and SVDs as the paper does, and share with the fast policies only the link, the radius
and the rule for ties, which the paper leaves open. Two guards are added, without which the algorithms would
stop: arguments of square roots that are non-negative in exact arithmetic are clamped at 0, and if
m + K > Kd the missing singular values are 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import svd
from scipy.optimize import brentq

from mlogb_core._validation import Array, as_dense
from mlogb_core.choice import TIE_TOLERANCE, choose
from mlogb_core.link import jacobian, outcome_probabilities
from mlogb_core.radius import Progress, Radius


class Sketch(NamedTuple):
    r"""What Algorithm 1 hands from round to round.

    Attributes
    ----------
    vectors : (Kd, m) array
        :math:`V_t`, orthonormal columns (min(m, Kd) of them).
    values : (m,) array
        The diagonal of :math:`\Lambda_t`, >= 0.
    shrinkage : float
        :math:`\rho_{1:t-1}`.
    """

    vectors: Array
    values: Array
    shrinkage: float


def adapted_frequent_directions(sketch: Sketch, link_jacobian: Array, action: Array) -> Sketch:
    r"""Algorithm 1 (`algo:adpfd`): one block update of the sketch.

    Parameters
    ----------
    sketch : Sketch
        :math:`(V_t, \Lambda_t, \rho_{1:t-1})`.
    link_jacobian : (K, K) array
        :math:`\nabla\sigma(W_{t+1}x_t)`.
    action : (d,) array
        :math:`x_t`.

    Returns
    -------
    Sketch
        :math:`(V_{t+1}, \Lambda_{t+1}, \rho_{1:t})`.
    """
    V, Lambda, rho = sketch
    m = Lambda.size
    Sigma2, Vbar = _spectral_form(V, Lambda, _hessian_columns(link_jacobian, action))  # lines 1-3
    sigma2 = Sigma2[m] if Sigma2.size > m else 0.0  # line 4
    Lambda = np.maximum(Sigma2[:m] - sigma2, 0.0)  # line 5
    return Sketch(Vbar[:, :m], Lambda, rho + sigma2)  # lines 6, 7


def reward_matrix(sketch: Sketch, regularization: float, action: Array, n_outcomes: int) -> Array:
    r"""The matrix A(x) entry by entry (`eq:fd-oful-mlogb-efficient-reward-A`), (K, K)."""
    V, mu, _ = sketch
    lam, d = regularization, action.size
    inner = np.array(
        [[action @ V[i * d : (i + 1) * d, k] for k in range(mu.size)] for i in range(n_outcomes)]
    )
    A = np.empty((n_outcomes, n_outcomes))
    for i in range(n_outcomes):
        for j in range(n_outcomes):
            A[i, j] = np.sum((1 / (mu + lam) - 1 / lam) * inner[i] * inner[j])
            A[i, j] += (action @ action) / lam * (i == j)
    return A


def woodbury_inverse(vectors: Array, values: Array, regularization: float, vector: Array) -> Array:
    r"""The Woodbury identity: :math:`Z^{-1}u = (u - V\Lambda(\lambda I + \Lambda)^{-1}V^\top u)/\lambda`."""
    shrunk = values / (regularization + values)
    return np.asarray((vector - vectors @ (shrunk * (vectors.T @ vector))) / regularization)


class LiteralPolicy:
    r"""The part of Algorithm 2 that EOFD-MLogB and OFUL-MLogB share.

    Parameters
    ----------
    n_features : int
        d.
    rewards : (K,) array
        Rewards of the outcomes 1..K.
    regularization, step_size, norm_bound : float
        :math:`\lambda`, :math:`\eta` and S.
    radius : Radius
        The rule for :math:`\beta_t`.

    Notes
    -----
    Arguments are not checked and no exception is handled: this class is for comparisons, and the policies
    of `mlogb_core.policies` are for use.
    """

    def __init__(
        self,
        n_features: int,
        rewards: Array,
        *,
        regularization: float,
        step_size: float,
        norm_bound: float,
        radius: Radius,
    ) -> None:
        self.rewards = np.asarray(rewards, dtype=np.float64)
        self.n_outcomes, self.n_features = self.rewards.size, n_features
        self.regularization, self.step_size, self.norm_bound = regularization, step_size, norm_bound
        self.radius = radius
        self.parameter: Array = np.zeros((self.n_outcomes, n_features))
        self.rounds = 0
        self.margin = np.inf
        self._logit_movement = 0.0
        self._hessian_movement = 0.0

    @property
    def rank_bound(self) -> int:
        """The rank m in the radius."""
        raise NotImplementedError

    @property
    def shrinkage(self) -> float:
        r""":math:`\rho_{1:t}`."""
        raise NotImplementedError

    @property
    def beta(self) -> float:
        r""":math:`\beta_t`."""
        return self.radius.value(
            Progress(
                self.n_outcomes,
                self.n_features,
                self.rank_bound,
                self.regularization,
                self.step_size,
                self.norm_bound,
                self.rounds,
                self.shrinkage,
                self._logit_movement,
                self._hessian_movement,
            )
        )

    @np.errstate(under="ignore")
    def scores(self, actions: ArrayLike) -> Array:
        """Optimistic rewards (K >= 2) or optimistic logits (K = 1), one action after the other."""
        return np.array([self._score(x) for x in as_dense(actions)])

    def select(self, actions: ArrayLike) -> int:
        """Index of the best score, with the library's tie rule."""
        choice = choose(self.scores(actions), TIE_TOLERANCE)
        self.margin = choice.margin
        return choice.action

    @np.errstate(under="ignore")
    def update(self, action: ArrayLike, outcome: int) -> None:
        """Gradient step, projection, Hessian update."""
        x = as_dense(action).reshape(-1)
        y = np.eye(self.n_outcomes + 1)[outcome, 1:]
        probabilities = outcome_probabilities(self.parameter @ x)
        gradient = np.asarray(np.kron(probabilities[1:] - y, x))
        new = self._step(gradient, jacobian(probabilities), x).reshape(self.parameter.shape)
        move = new - self.parameter
        self._logit_movement += float(np.sum((move @ x) ** 2))
        self._hessian_movement += self._quadratic(move.ravel())
        self._add(jacobian(outcome_probabilities(new @ x)), x)
        self.parameter = new
        self.rounds += 1

    def _score(self, x: Array) -> float:
        beta = self.beta
        if self.n_outcomes == 1:
            width = np.sqrt(max(float(x @ self._inverse(x)), 0.0))
            return float(self.parameter[0] @ x + np.sqrt(beta) * width)
        probabilities = outcome_probabilities(self.parameter @ x)
        slope = np.kron(jacobian(probabilities), x[:, None]) @ self.rewards
        first = np.sqrt(beta) * np.sqrt(max(float(slope @ self._inverse(slope)), 0.0))
        second = 0.5 * np.sum(np.abs(self.rewards)) * beta * self._squared_spectral_norm(x)
        return float(self.rewards @ probabilities[1:] + first + second)

    def _inverse(self, vector: Array) -> Array:
        raise NotImplementedError

    def _squared_spectral_norm(self, x: Array) -> float:
        raise NotImplementedError

    def _step(self, gradient: Array, link_jacobian: Array, x: Array) -> Array:
        raise NotImplementedError

    def _quadratic(self, direction: Array) -> float:
        raise NotImplementedError

    def _add(self, link_jacobian: Array, x: Array) -> None:
        raise NotImplementedError


class LiteralEOFD(LiteralPolicy):
    r"""EOFD-MLogB, Algorithm 2 (`algo:fd-oful-mlogb`), with two SVDs a round.

    Parameters
    ----------
    n_features, rewards, regularization, step_size, norm_bound, radius
        As in `LiteralPolicy`.
    sketch_size : int
        m >= 1.
    """

    def __init__(self, n_features: int, rewards: Array, *, sketch_size: int, **settings: Any) -> None:
        super().__init__(n_features, rewards, **settings)
        size = self.n_outcomes * n_features
        m = min(sketch_size, size)
        self.sketch = Sketch(np.eye(size, m), np.zeros(m), 0.0)

    @property
    def rank_bound(self) -> int:
        """m, or Kd if that is smaller."""
        return self.sketch.values.size

    @property
    def shrinkage(self) -> float:
        r""":math:`\rho_{1:t}`."""
        return self.sketch.shrinkage

    def _inverse(self, vector: Array) -> Array:
        return woodbury_inverse(self.sketch.vectors, self.sketch.values, self.regularization, vector)

    def _squared_spectral_norm(self, x: Array) -> float:
        return float(np.linalg.norm(reward_matrix(self.sketch, self.regularization, x, self.n_outcomes), 2))

    def _step(self, gradient: Array, link_jacobian: Array, x: Array) -> Array:
        lam, eta, S = self.regularization, self.step_size, self.norm_bound
        columns = np.sqrt(eta) * _hessian_columns(link_jacobian, x)
        mu, V = _spectral_form(self.sketch.vectors, self.sketch.values, columns)
        point = self.parameter.ravel() - eta * woodbury_inverse(V, mu, lam, gradient)
        if np.linalg.norm(point) <= S:
            return point
        inner = V.T @ point
        outside = max(float(point @ point - inner @ inner), 0.0)

        def f(nu: float) -> float:
            return float(
                outside * lam**2 / (lam + nu) ** 2 + np.sum((inner * (mu + lam) / (mu + lam + nu)) ** 2)
            )

        nu = _dual_root(f, S, float(np.linalg.norm(point)), float(mu[0]) + lam)
        return np.asarray(lam / (lam + nu) * point + nu / (lam + nu) * (V @ (mu / (lam + nu + mu) * inner)))

    def _quadratic(self, direction: Array) -> float:
        inner = self.sketch.vectors.T @ direction
        return float(self.regularization * direction @ direction + inner @ (self.sketch.values * inner))

    def _add(self, link_jacobian: Array, x: Array) -> None:
        self.sketch = adapted_frequent_directions(self.sketch, link_jacobian, x)


class LiteralOFUL(LiteralPolicy):
    r"""OFUL-MLogB with the full matrix: inverse square root and projection by eigendecomposition.

    Parameters
    ----------
    n_features, rewards, regularization, step_size, norm_bound, radius
        As in `LiteralPolicy`.

    Notes
    -----
    Paper: sections `ssec:logistic-bandit-setting` and `ssec:computation-obstacle`. The inverse
    square root is formed once a round, not once an action.
    """

    def __init__(self, n_features: int, rewards: Array, **settings: Any) -> None:
        super().__init__(n_features, rewards, **settings)
        self.hessian: Array = self.regularization * np.eye(self.n_outcomes * n_features)
        self._inverse_root = self._form_inverse_root()

    shrinkage = 0.0

    @property
    def rank_bound(self) -> int:
        """Kd."""
        return len(self.hessian)

    def _form_inverse_root(self) -> Array:
        values, Q = np.linalg.eigh(self.hessian)
        return np.asarray((Q / np.sqrt(values)) @ Q.T)

    def _inverse(self, vector: Array) -> Array:
        return np.asarray(self._inverse_root @ (self._inverse_root @ vector))

    def _squared_spectral_norm(self, x: Array) -> float:
        columns = self._inverse_root @ np.kron(np.eye(self.n_outcomes), x[:, None])
        return float(np.linalg.norm(columns, 2) ** 2)

    def _step(self, gradient: Array, link_jacobian: Array, x: Array) -> Array:
        eta, S = self.step_size, self.norm_bound
        surrogate = self.hessian + eta * np.kron(link_jacobian, np.outer(x, x))
        point = self.parameter.ravel() - eta * np.linalg.solve(surrogate, gradient)
        if np.linalg.norm(point) <= S:
            return np.asarray(point)
        values, Q = np.linalg.eigh(surrogate)
        inner = Q.T @ point

        def f(nu: float) -> float:
            return float(np.sum((inner * values / (values + nu)) ** 2))

        nu = _dual_root(f, S, float(np.linalg.norm(point)), float(values[-1]))
        return np.asarray(Q @ (values / (values + nu) * inner))

    def _quadratic(self, direction: Array) -> float:
        return float(direction @ self.hessian @ direction)

    def _add(self, link_jacobian: Array, x: Array) -> None:
        self.hessian = self.hessian + np.kron(link_jacobian, np.outer(x, x))
        self._inverse_root = self._form_inverse_root()


def _hessian_columns(link_jacobian: Array, action: Array) -> Array:
    r""":math:`B_t = P D^{1/2} \otimes x_t` with the eigendecomposition :math:`PDP^\top`, (Kd, K)."""
    D, P = np.linalg.eigh(link_jacobian)
    return np.asarray(np.kron(P * np.sqrt(np.maximum(D, 0.0)), action[:, None]))


def _spectral_form(V: Array, Lambda: Array, columns: Array) -> tuple[Array, Array]:
    """Eigenvalues, decreasing, and eigenvectors of V Lambda V' + columns columns', by an SVD."""
    sigma, Vt = _singular(np.hstack((V * np.sqrt(Lambda), columns)).T)
    return sigma**2, Vt.T


def _singular(matrix: Array) -> tuple[Array, Array]:
    """Singular values and right singular vectors.

    LAPACK's driver by divide and conquer has been seen not to converge on a sketch with tiny singular values,
    with one of OpenBLAS' kernels. Then the driver by QR iteration takes its place.
    """
    try:
        _, sigma, Vt = np.linalg.svd(matrix, full_matrices=False)
    except np.linalg.LinAlgError:
        _, sigma, Vt = svd(matrix, full_matrices=False, lapack_driver="gesvd")
    return sigma, Vt


def _dual_root(f: Callable[[float], float], norm_bound: float, length: float, largest: float) -> float:
    r"""Root of :math:`f(\nu) = S^2` by Brent's method.

    Every term of f decreases at least as fast as that of the largest eigenvalue, so the root is at most
    :math:`\mu_{max}(\|W'\|/S - 1)`. If roundoff leaves no change of sign between 0 and this bound, the
    length is S up to roundoff at one of the two, which is returned.
    """
    upper = largest * (length / norm_bound - 1.0) * (1.0 + 1e-12) + 1e-300

    def excess(nu: float) -> float:
        return float(np.sqrt(f(nu)) / norm_bound - 1.0)

    if excess(0.0) <= 0.0:
        return 0.0
    if excess(upper) >= 0.0:
        return upper
    rtol = 4 * np.finfo(np.float64).eps
    return float(brentq(excess, 0.0, upper, xtol=1e-300, rtol=rtol, maxiter=500))
