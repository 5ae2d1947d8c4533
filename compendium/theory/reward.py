r"""The cost of optimism in a round: the bonus term by term, and the terms of the binary regret.

The error of an estimated reward is at most a slope times the uncertainty plus a curvature times its square.
The largest possible curvature is known exactly, so that each bound is given with the smallest constant that
always holds and with the paper's. Derivations: notebooks ``12_optimism`` and ``13_binary``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mlogb_core._validation import (
    Array,
    as_actions,
    as_finite,
    as_integer,
    as_matrix,
    as_non_negative,
    as_vector,
)
from mlogb_core.link import jacobian, outcome_probabilities, remainder_constant

SLOPE_BOUND = 0.25
r"""Largest value of :math:`\sigma'` for K = 1, at the logit 0."""

BEND_BOUND = remainder_constant(1)
r"""Largest value of :math:`|\sigma''|` for K = 1, where :math:`\sigma = (1 \pm 1/\sqrt3)/2`."""

ROOT_SLOPE_BOUND = 0.125
r"""Largest slope of :math:`\sqrt{\sigma'}`, that is of :math:`|\sigma''|/(2\sqrt{\sigma'})`, for K = 1."""


class Bonus(NamedTuple):
    """The bonus of n actions.

    Attributes
    ----------
    first, second : (n,) array
        Slope times uncertainty; half of the largest curvature times its square.
    """

    first: Array
    second: Array

    @property
    def total(self) -> Array:
        """Their sum, the bound of the error."""
        return np.asarray(self.first + self.second)


class BinaryTerms(NamedTuple):
    """The three terms of a bound of regret for K = 1, for n rounds.

    Attributes
    ----------
    first, cross, second : (n,) array
        Slope term, change of the slope from the true to the new parameter, curvature term.
    """

    first: Array
    cross: Array
    second: Array

    @property
    def total(self) -> Array:
        """Their sum, the bound of a round's regret."""
        return np.asarray(self.first + self.cross + self.second)


def curvature_constant(n_outcomes: int) -> float:
    r"""The smallest :math:`\gamma_K` with :math:`\pm \nabla^2\sigma(z)[r] \preceq \gamma_K\,\omega(r) I`.

    .. math:: \gamma_1 = \frac{1}{6\sqrt3}, \qquad \gamma_K = \frac{1}{3\sqrt3} \quad (K \ge 2)

    Parameters
    ----------
    n_outcomes : int
        K >= 1.

    Returns
    -------
    float

    Notes
    -----
    Paper: `ineq:second-derivative-sigma-bound` has the constants 1 and 1/2, and :math:`\|r\|_1` in place of
    :math:`\omega(r)`. Proof: notebook ``01_model``.
    """
    return BEND_BOUND * (1.0 if as_integer("n_outcomes", n_outcomes, minimum=1) == 1 else 2.0)


def reward_spread(rewards: ArrayLike) -> float:
    r"""Spread :math:`\omega(r)`, largest minus smallest of :math:`0, r_1, \dots, r_K`.

    No two expected rewards differ by more. It is the largest reward where none is negative.

    Parameters
    ----------
    rewards : (K,) array
        Rewards of the outcomes 1..K; that of outcome 0 is 0.

    Returns
    -------
    float
        In [0, :math:`\|r\|_1`].
    """
    padded = np.append(as_finite("rewards", rewards), 0.0)
    return float(padded.max() - padded.min())


def reward_bonus(
    parameter: ArrayLike,
    actions: ArrayLike,
    rewards: ArrayLike,
    blocks: ArrayLike,
    beta: float,
    *,
    sharp: bool = False,
) -> Bonus:
    r"""Bound of :math:`|r^\top\sigma(W_*x) - r^\top\sigma(W_tx)|` for every :math:`W_*` of an ellipsoid.

    .. math:: b_t(x) = \sqrt{\beta}\,\|v \otimes x\|_{Z^{-1}} + \tfrac12\, c\,\beta\,\|A(x)\|_2,
              \qquad v = \nabla\sigma(W_tx)\,r,

    with :math:`c = \|r\|_1`, or :math:`c = \gamma_K\,\omega(r)` where `sharp`.

    Parameters
    ----------
    parameter : (K, d) array
        :math:`W_t`, the centre of the ellipsoid.
    actions : (n, d) array
        Actions x.
    rewards : (K,) array
        Rewards r of the outcomes 1..K.
    blocks : (n, K, K) array
        :math:`A(x) = (I \otimes x)^\top Z^{-1}(I \otimes x)`, as `inverse_blocks` returns them.
    beta : float
        :math:`\beta \ge 0` with :math:`\|W_* - W_t\|_Z^2 \le \beta`.
    sharp : bool
        Whether the smallest constant replaces the paper's.

    Returns
    -------
    Bonus

    Raises
    ------
    ValueError
        If an argument has the wrong shape, is not finite, or :math:`\beta < 0`.

    Notes
    -----
    Paper: `lem:diff-rwd-upper-bound`. It also holds for K = 1, where the paper does not use it.

    Examples
    --------
    >>> bonus = reward_bonus([[0.0]], [[1.0]], [1.0], [[[1.0]]], beta=1.0)
    >>> bonus.first, bonus.second
    (array([0.25]), array([0.5]))
    """
    beta = as_non_negative("beta", beta)
    parameter = as_finite("parameter", parameter)
    if parameter.ndim != 2:
        raise ValueError(f"parameter must have shape (K, d), got {parameter.shape}")
    K, d = parameter.shape
    (actions, _), rewards = as_actions(actions, d), as_vector("rewards", rewards, K)
    blocks = as_finite("blocks", blocks)
    if blocks.shape != (len(actions), K, K):
        raise ValueError(f"blocks must have shape {(len(actions), K, K)}, got {blocks.shape}")
    slopes = jacobian(outcome_probabilities(actions @ parameter.T)) @ rewards
    squares = np.einsum("ni,nij,nj->n", slopes, blocks, slopes)
    factor = curvature_constant(K) * reward_spread(rewards) if sharp else np.abs(rewards).sum()
    first = np.sqrt(beta * np.maximum(squares, 0.0))
    second = 0.5 * factor * beta * np.linalg.eigvalsh(blocks)[:, -1]
    return Bonus(np.asarray(first), np.asarray(second, dtype=np.float64))


def logit_reach(block: ArrayLike, direction: ArrayLike, beta: float) -> Array:
    r"""The change of the logits :math:`(W - W_t)x`, W in the ellipsoid, that is largest in a direction.

    .. math:: \{(W - W_t)x : \|W - W_t\|_Z^2 \le \beta\} = \{h : h^\top A(x)^{-1} h \le \beta\},
              \qquad \arg\max_h u^\top h = \sqrt{\beta}\,\frac{A(x)u}{\sqrt{u^\top A(x)u}}

    Parameters
    ----------
    block : (K, K) array
        :math:`A(x)`, symmetric positive semidefinite.
    direction : (K,) array
        u. If :math:`A(x)u = 0`, the result is 0.
    beta : float
        :math:`\beta \ge 0`.

    Returns
    -------
    (K,) array
    """
    beta = as_non_negative("beta", beta)
    u = as_finite("direction", direction)
    image = as_matrix("block", block, (u.size, u.size)) @ u
    square = float(u @ image)
    return np.sqrt(beta / square) * image if square > 0.0 else np.zeros_like(u)


def binary_terms(
    slopes: ArrayLike,
    new_slopes: ArrayLike,
    radii: ArrayLike,
    new_radii: ArrayLike,
    squares: ArrayLike,
    new_squares: ArrayLike,
) -> BinaryTerms:
    r"""Bound of the regret of each round for K = 1, with the slope at the true parameter in its first term.

    .. math:: 2\sqrt{\beta_t\,\dot\sigma(w_*^\top x_t)\,\dot\sigma(w_{t+1}^\top x_t)}\,\|x_t\|_{Z_t^{-1}}
              + \tfrac18\sqrt{\beta_t\beta_{t+1}}\,\|x_t\|_{Z_t^{-1}}\|x_t\|_{Z_{t+1}^{-1}}
              + 2\gamma_1\beta_t\,\|x_t\|_{Z_t^{-1}}^2

    Parameters
    ----------
    slopes, new_slopes : (n,) array
        :math:`\dot\sigma(w_*^\top x_t)` and :math:`\dot\sigma(w_{t+1}^\top x_t)`, in [0, 1/4].
    radii, new_radii : (n,) array
        :math:`\beta_t` and :math:`\beta_{t+1}`, which bound :math:`\|w_* - w_t\|_{Z_t}^2` and
        :math:`\|w_* - w_{t+1}\|_{Z_{t+1}}^2`.
    squares, new_squares : (n,) array
        :math:`\|x_t\|_{Z_t^{-1}}^2` and :math:`\|x_t\|_{Z_{t+1}^{-1}}^2`.

    Returns
    -------
    BinaryTerms

    Raises
    ------
    ValueError
        If the arrays differ in shape or a value is negative.

    Notes
    -----
    Paper: proof of `prop:regret-k-eq-1`, with 1/4 in place of 1/8 in the second term and 1 in place of
    :math:`2\gamma_1 \approx 0.19` in the third. When the first term is summed, its factor 2 is lost.
    """
    given = {"slopes": slopes, "new_slopes": new_slopes, "radii": radii, "new_radii": new_radii}
    given |= {"squares": squares, "new_squares": new_squares}
    arrays = [as_finite(name, value) for name, value in given.items()]
    for name, array in zip(given, arrays, strict=True):
        if array.shape != arrays[0].shape:
            raise ValueError(f"{name} must have the shape of slopes, {arrays[0].shape}, got {array.shape}")
        if (array < 0.0).any():
            raise ValueError(f"{name} must be at least 0, got {array.min()}")
    slope, new_slope, beta, new_beta, square, new_square = arrays
    first = 2.0 * np.sqrt(beta * slope * new_slope * square)
    cross = ROOT_SLOPE_BOUND * np.sqrt(beta * new_beta * square * new_square)
    return BinaryTerms(first, cross, 2.0 * BEND_BOUND * beta * square)


def self_bounding(a: float, b: float, c: float) -> float:
    r"""The largest R with :math:`R \le a\sqrt{R + c} + b`.

    .. math:: b + \tfrac12 a^2 + \tfrac12 a\sqrt{a^2 + 4(b + c)}
              \;\le\; a\sqrt c + \tfrac32(a^2 + b)

    Parameters
    ----------
    a, b, c : float
        All >= 0.

    Returns
    -------
    float

    Notes
    -----
    Paper: the last step of `prop:regret-k-eq-1`, with R the regret and
    :math:`c = \sum_t\dot\sigma(w_*^\top x_{*,t})`.

    Examples
    --------
    >>> self_bounding(1.0, 0.0, 2.0)
    2.0
    """
    a, b, c = (as_non_negative(name, value) for name, value in zip("abc", (a, b, c), strict=True))
    return b + 0.5 * a * (a + math.sqrt(a * a + 4.0 * (b + c)))
