r"""The multinomial logit link: probabilities, Jacobian, curvature, loss and gradient.

Outcome 0 is the reference, with logit 0; outcomes 1..K have logits :math:`z = Wx`. Functions of
probabilities take those of all K+1 outcomes, reference first, as `outcome_probabilities` returns them. The
closed form of the Jacobian's factor needs the reference's probability, and computing that from the others
would cancel where it is small. Probabilities are not checked, since a policy calls these functions in every
round with what `outcome_probabilities` returned.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from mlogb_core._validation import Array, as_finite, as_integer, as_outcome, as_vector

# Up to this x, exp(-x) is a normal floating-point number.
_UNDERFLOWS = 700.0
_LARGEST = float(np.finfo(np.float64).max)


def outcome_probabilities(logits: ArrayLike) -> Array:
    r"""Probabilities of the outcomes 0..K, safe for any finite logits.

    .. math:: \sigma_0(z) = \frac{1}{1 + \sum_k e^{z_k}}, \qquad
              \sigma_i(z) = \frac{e^{z_i}}{1 + \sum_k e^{z_k}} .

    Parameters
    ----------
    logits : (..., K) array
        Logits of outcomes 1..K relative to the reference outcome, K >= 1.

    Returns
    -------
    (..., K+1) array
        Probabilities, reference first; each row sums to 1.

    Raises
    ------
    ValueError
        If a logit is not finite, or there is none.

    Notes
    -----
    Paper: the first displayed equation of the introduction. All exponents are shifted by the
    largest logit (that of the reference, 0, included), so none overflows.

    Examples
    --------
    >>> outcome_probabilities([0.0, 0.0]).round(3)
    array([0.333, 0.333, 0.333])
    >>> outcome_probabilities([1000.0])
    array([0., 1.])
    """
    if type(logits) is np.ndarray and logits.shape == (1,) and logits.dtype == np.float64:
        logit = float(logits[0])  # This short cut serves policies with K = 1 in every round.
        if abs(logit) < _UNDERFLOWS:
            small = float(np.exp(-abs(logit)))
            pair = 1.0 / (1.0 + small), small / (1.0 + small)
            return np.array(pair if logit <= 0.0 else pair[::-1])
    logits = _as_logits(logits)
    weights = np.zeros((*logits.shape[:-1], logits.shape[-1] + 1))
    weights[..., 1:] = logits
    # A difference like that of 1e308 and -1e308 overflows, and exp(-1000) underflows.
    with np.errstate(over="ignore", under="ignore"):
        weights -= np.maximum.reduce(weights, axis=-1, keepdims=True)
        np.exp(weights, out=weights)
        weights /= np.add.reduce(weights, axis=-1, keepdims=True)
    return weights


def finite_probabilities(logits: Array) -> Array:
    """`outcome_probabilities` of logits that were computed from finite numbers and may have overflowed.

    Raises
    ------
    ArithmeticError
        If a logit is not finite.
    """
    try:
        return outcome_probabilities(logits)
    except ValueError:
        raise ArithmeticError("the logits overflow") from None


@np.errstate(under="ignore")
def jacobian(probabilities: Array) -> Array:
    r"""Jacobian of the link, :math:`\nabla\sigma = \operatorname{diag}(p) - p p^\top`.

    Parameters
    ----------
    probabilities : (..., K+1) array
        Probabilities of the outcomes 0..K.

    Returns
    -------
    (..., K, K) array
        Symmetric positive semidefinite, with :math:`0 \preceq \nabla\sigma \preceq L I`.

    Notes
    -----
    Paper: section `ssec:apd-preliminary`. The diagonal is :math:`p_i(1-p_i)` with
    :math:`1 - p_i` summed from the other outcomes, which keeps its relative accuracy when
    :math:`p_i` is close to 1.
    """
    p = probabilities[..., 1:]
    matrix = -p[..., :, None] * p[..., None, :]
    i = np.arange(p.shape[-1])
    matrix[..., i, i] = p * _others(probabilities)
    return np.asarray(matrix)


@np.errstate(under="ignore")
def jacobian_factor(probabilities: Array) -> Array:
    r"""Factor of the link's Jacobian, without an eigendecomposition.

    Returns :math:`F` with :math:`F F^\top = \operatorname{diag}(p) - p p^\top`:

    .. math:: F = \operatorname{diag}(s)\Bigl(I - \frac{s s^\top}{1 + \sqrt{p_0}}\Bigr),
              \qquad s = \sqrt{p}.

    Parameters
    ----------
    probabilities : (K+1,) array
        Probabilities of the outcomes 0..K.

    Returns
    -------
    (K, K) array
        The factor; its columns span the range of the Jacobian.

    Notes
    -----
    The paper factors the same matrix by an eigendecomposition (Algorithm 1, line 1). Any factor
    gives the same Hessian update; this one needs no LAPACK call and cannot meet a negative
    eigenvalue. On the diagonal :math:`s_i(1 - s_i^2/(1+\sqrt{p_0}))` is computed as
    :math:`s_i(\sqrt{p_0} + p_0 + \sum_{j\ne i} p_j)/(1+\sqrt{p_0})`, a sum of positive terms. For
    K = 1 that is :math:`\sqrt{p_0 p_1}`.
    """
    if probabilities.size == 2:
        return np.array([[math.sqrt(probabilities[0] * probabilities[1])]])
    s = np.sqrt(probabilities[1:])
    root = math.sqrt(probabilities[0])
    factor = probabilities[1:, None] * (s / (-1.0 - root))
    factor.flat[:: s.size + 1] = s * (root + _others(probabilities)) / (1.0 + root)
    return np.asarray(factor)


@np.errstate(under="ignore")
def reward_curvature(probabilities: Array, rewards: ArrayLike) -> Array:
    r"""Hessian of the expected reward in the logits, :math:`\nabla^2\sigma(z)[r]`.

    .. math:: \nabla^2\sigma(z)[r] = \sum_k r_k \sigma_k \bigl(2\sigma\sigma^\top -
              \operatorname{diag}(\sigma) - e_k\sigma^\top - \sigma e_k^\top + e_k e_k^\top\bigr)

    Parameters
    ----------
    probabilities : (K+1,) array
        Probabilities of the outcomes 0..K.
    rewards : (K,) array
        Rewards of the outcomes 1..K; that of outcome 0 is 0.

    Returns
    -------
    (K, K) array
        Symmetric, in general indefinite.

    Notes
    -----
    Paper: section `ssec:apd-preliminary`. The sum over k is carried out:
    :math:`\operatorname{diag}(c) - c\sigma^\top - \sigma c^\top` with
    :math:`c_k = \sigma_k (r_k - \bar r)`, where the excess over the mean reward
    :math:`\bar r = r^\top\sigma` is summed as :math:`\sum_{j=0}^K \sigma_j (r_k - r_j)`: that keeps
    its relative accuracy when one outcome is nearly certain.
    """
    p = probabilities[1:]
    payoff = np.concatenate(([0.0], as_vector("rewards", rewards, p.size)))
    c = p * ((payoff[1:, None] - payoff) @ probabilities)
    cross = np.outer(c, p)
    return np.asarray(np.diag(c) - cross - cross.T)


@np.errstate(under="ignore")
def expected_reward(probabilities: Array, rewards: Array) -> Array:
    r"""Expected reward :math:`r^\top\sigma` for one or many rows of probabilities.

    Parameters
    ----------
    probabilities : (..., K+1) array
        Probabilities of the outcomes 0..K.
    rewards : (K,) array
        Rewards of the outcomes 1..K; that of outcome 0 is 0.

    Returns
    -------
    (...) array
    """
    return np.asarray(probabilities[..., 1:] @ rewards)


def log_loss(logits: ArrayLike, outcome: int) -> float:
    r"""Negative log-likelihood :math:`-\ln\sigma_y(z)` of one outcome.

    Parameters
    ----------
    logits : (K,) array
        Logits of the outcomes 1..K.
    outcome : int
        The observed outcome y in 0..K.

    Returns
    -------
    float
        The loss, >= 0, in nats; finite for any finite logits: the largest double, some 1.8e308, where it
        would be above that.

    Raises
    ------
    ValueError
        If a logit is not finite, the logits have another shape, or the outcome is outside 0..K.

    Examples
    --------
    >>> round(log_loss([0.0], 1), 4)
    0.6931
    >>> log_loss([-800.0], 1)
    800.0
    """
    logits = _as_logits(logits)
    if logits.ndim != 1:
        raise ValueError(f"logits must have shape (K,) with K >= 1, got {logits.shape}")
    return float(log_losses(logits)[as_outcome(outcome, logits.size)])


def log_losses(logits: ArrayLike) -> Array:
    r"""The `log_loss` of each outcome, for one or many rows of logits.

    Parameters
    ----------
    logits : (..., K) array
        Logits of the outcomes 1..K.

    Returns
    -------
    (..., K+1) array
        :math:`-\ln\sigma_y(z)` for the outcomes y = 0..K.

    Raises
    ------
    ValueError
        If a logit is not finite, or there is none.
    """
    logits = _as_logits(logits)
    padded = np.zeros((*logits.shape[:-1], logits.shape[-1] + 1))
    padded[..., 1:] = logits
    shift = np.maximum.reduce(padded, axis=-1, keepdims=True)
    with np.errstate(over="ignore", under="ignore"):
        total = np.add.reduce(np.exp(padded - shift), axis=-1, keepdims=True)
        return np.asarray(np.minimum(np.log(total) + (shift - padded), _LARGEST))


@np.errstate(under="ignore")
def loss_residual(probabilities: Array, outcome: int) -> Array:
    r"""Gradient of the loss in the logits, :math:`\sigma(z) - \mathbf{y}`.

    The gradient in the parameter is its outer product with the action:
    :math:`\nabla\ell(W) = (\sigma(Wx) - \mathbf{y}) \otimes x`.

    Parameters
    ----------
    probabilities : (K+1,) array
        Probabilities of the outcomes 0..K.
    outcome : int
        The observed outcome in 0..K; :math:`\mathbf{y}` is its indicator over 1..K.

    Returns
    -------
    (K,) array
        Entries in [-1, 1].
    """
    residual = probabilities[1:].copy()
    if outcome > 0:
        residual[outcome - 1] = -_others(probabilities)[outcome - 1]
    return residual


@np.errstate(under="ignore")
def loss_gradient(parameter: Array, action: Array, outcome: int) -> Array:
    r"""Gradient of :math:`\ell(W) = -\ln\sigma_y(Wx)`, as a K x d matrix.

    Parameters
    ----------
    parameter : (K, d) array
        The parameter W.
    action : (d,) array
        The action x.
    outcome : int
        The observed outcome y in 0..K.

    Returns
    -------
    (K, d) array
        :math:`(\sigma(Wx) - \mathbf{y})\, x^\top`; its row-wise vectorisation is the paper's
        :math:`(\sigma(Wx) - \mathbf{y}) \otimes x` (section `ssec:apd-preliminary`).
    """
    residual = loss_residual(outcome_probabilities(parameter @ action), outcome)
    return np.outer(residual, action)


@np.errstate(under="ignore")
def loss_hessian_factor(parameter: Array, action: Array) -> Array:
    r"""Factor of the loss Hessian: :math:`B B^\top = \nabla\sigma(Wx) \otimes x x^\top`.

    Parameters
    ----------
    parameter : (K, d) array
        The parameter W.
    action : (d,) array
        The action x.

    Returns
    -------
    (Kd, K) array
        :math:`B = F \otimes x` with :math:`F` from `jacobian_factor`.

    Notes
    -----
    Paper: Algorithm 1, line 2, with another factor of the Jacobian. The Hessian does not depend
    on the outcome.
    """
    factor = jacobian_factor(outcome_probabilities(parameter @ action))
    return np.asarray(np.kron(factor, action[:, None]))


def smoothness(n_outcomes: int) -> float:
    r"""The smallest L with :math:`\nabla\sigma(z) \preceq LI` for all logits z.

    .. math:: L = \tfrac14 \quad (K = 1,\ \text{attained}), \qquad
              L = \tfrac12 \quad (K \ge 2,\ \text{a supremum})

    Parameters
    ----------
    n_outcomes : int
        K >= 1.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If K is not an integer of at least 1.

    Notes
    -----
    Paper: `asmp:derivative-bound`, which asks for some :math:`L \in [0, 1]`. Proof: :math:`p(1-p) \le 1/4`,
    and for K >= 2 two outcomes that share the whole probability give :math:`\operatorname{diag}(p) - pp^\top`
    the eigenvalue 1/2, while :math:`u^\top(\operatorname{diag}(p) - pp^\top)u` is the variance of a variable
    with range at most :math:`\sqrt{2}\,\lVert u\rVert`, hence never more than 1/2.
    """
    return 0.25 if as_integer("n_outcomes", n_outcomes, minimum=1) == 1 else 0.5


def remainder_constant(n_outcomes: int) -> float:
    r"""The smallest c with :math:`|\nabla^3\psi(z)[h, k, k]| \le c\,\|h\|\,\|k\|^2`: :math:`\gamma_KM_K`.

    .. math:: \gamma_1M_1 = \frac{1}{6\sqrt3}, \qquad \gamma_KM_K = \frac{\sqrt2}{3\sqrt3} \quad (K \ge 2)

    Parameters
    ----------
    n_outcomes : int
        K >= 1.

    Returns
    -------
    float

    Notes
    -----
    The gradient of :math:`\psi(z) = \ln(1 + \sum_k e^{z_k})` is the link. Paper: the Taylor step in the
    proof of `thm:confidence-region` has the larger constant :math:`\sqrt6 L`, 0.61 for K = 1 and 1.22 for
    K >= 2.
    """
    binary = 1.0 / (6.0 * math.sqrt(3.0))
    return binary if as_integer("n_outcomes", n_outcomes, minimum=1) == 1 else 2.0 * binary * math.sqrt(2.0)


def _as_logits(value: ArrayLike) -> Array:
    logits = as_finite("logits", value)
    if logits.ndim < 1 or logits.shape[-1] < 1:
        raise ValueError(f"logits must have shape (..., K) with K >= 1, got {logits.shape}")
    return logits


def _others(probabilities: Array) -> Array:
    r""":math:`1 - p_i` for the outcomes 1..K, as the sum of the other probabilities, without cancellation."""
    if probabilities.shape[-1] == 2:
        return probabilities[..., :1]
    # In a matrix product the last bits of a row's result would depend on the number of rows.
    return np.asarray((probabilities[..., None] * _all_but_one(probabilities.shape[-1])).sum(axis=-2))


@cache
def _all_but_one(n_probabilities: int) -> Array:
    return (np.ones((n_probabilities, n_probabilities)) - np.eye(n_probabilities))[:, 1:]
