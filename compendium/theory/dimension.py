r"""What the dimension costs under the printed ridge: problems on which the regret grows like the root of d.

The printed theorem asks for :math:`\lambda \ge 24\alpha Kd`, so that the radius is at least :math:`\lambda`
for all time. The estimate is much better than that: with high probability its error is a quarter of the
radius, or less. An index that adds the whole radius therefore makes an action look better than it is until
its Hessian has reached :math:`\lambda/\varrho^2`, and the problems here have m such actions. For them the
policy needs m numbers of each kind only (`play_unit_vectors`). Derivation: notebook
``18_price_of_dimension``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from compendium.theory.self_normalised import potential_slope
from mlogb_core._validation import Array, as_integer, as_non_negative, as_positive, as_probability
from mlogb_core.link import outcome_probabilities
from mlogb_core.radius import exponential_slope, theorem_parameters


class Game(NamedTuple):
    r"""What `play_unit_vectors` found after each of the horizons that were asked for.

    Attributes
    ----------
    wrong : (n,) array
        Number of rounds in which the action was not a best one.
    plays : (n, m) array
        How often each unit vector was played.
    parameter, hessian : (n, m) array
        :math:`w_i` and :math:`g_i = \sum_s \sigma'(w_{s+1,i})` over the plays of the i-th unit vector.
    radius : (n,) array
        :math:`\beta` of the round that follows.
    error_share, floor_share : (n,) array
        The largest :math:`\|w_* - w_t\|_{Z_t}^2` over `error_radius`, and `radius_floor` over
        :math:`\beta_t`, of all rounds t so far.
    """

    wrong: Array
    plays: Array
    parameter: Array
    hessian: Array
    radius: Array
    error_share: Array
    floor_share: Array


def information_bound(n_directions: int, n_rounds: float, regularization: float) -> float:
    r"""Bound of :math:`\sum_i \ln(1 + g_i/\lambda)` over m orthogonal unit vectors and t rounds.

    .. math:: m\ln\Bigl(1 + \frac{t}{4m\lambda}\Bigr)

    Parameters
    ----------
    n_directions : int
        m >= 1.
    n_rounds : float
        t >= 0.
    regularization : float
        :math:`\lambda > 0`.

    Returns
    -------
    float

    Notes
    -----
    Not in the paper. The slopes are at most 1/4, and the logarithm is concave.
    """
    m, lam = (
        as_integer("n_directions", n_directions, minimum=1),
        as_positive("regularization", regularization),
    )
    return m * math.log1p(as_non_negative("n_rounds", n_rounds) / (4.0 * m * lam))


def radius_floor(n_features: int, n_directions: int, n_rounds: int) -> float:
    r"""A lower bound of the printed radius for m orthogonal unit vectors, whatever the outcomes are.

    .. math:: \beta_{t+1} \ge \lambda + \alpha^2\Bigl(\sqrt6\,m\ln\Bigl(1 + \frac{2t}{m\lambda}\Bigr)
              - \frac{\sigma(1)^2\kappa}{8}\,\varphi\,m\ln\Bigl(1 + \frac{t}{4m\lambda}\Bigr)\Bigr)

    for K = S = D = 1, :math:`\lambda = 24\alpha d`, :math:`\eta = \alpha/2`, with
    :math:`\kappa = 1/\sigma'(1)` and :math:`\varphi = g/\ln(1+g)` at :math:`g = 1/(4\lambda)`.

    Parameters
    ----------
    n_features, n_directions : int
        d and m, m <= d.
    n_rounds : int
        t >= 0, the number of updates.

    Returns
    -------
    float
        At least :math:`\lambda`.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Not in the paper. The first term and the first logarithm are those of `eq:cr-beta`; the other one bounds
    its negative last sum, half of the squared lengths of the steps.
    """
    d, m = _sizes(n_features, n_directions)
    t = as_integer("n_rounds", n_rounds, minimum=0)
    lam, eta = theorem_parameters(1, d, norm_bound=1.0)
    top = outcome_probabilities([1.0])
    moved = 0.5 * eta**2 * top[1] ** 2 / (top[0] * top[1]) * potential_slope(0.25 / lam)
    gained = 4.0 * math.sqrt(6.0) * eta**2 * m * math.log1p(2.0 * t / (m * lam))
    return float(lam + gained - moved * information_bound(m, t, lam))


def error_radius(n_features: int, n_directions: int, n_rounds: int, length: float, failure: float) -> float:
    r"""A bound of the squared error that holds for all rounds at once, with the length of the truth in it.

    .. math:: \|w_* - w_{t+1}\|_{Z_{t+1}}^2 \le \lambda\|w_*\|^2 + \alpha\ln\frac1{\delta'}
              + \frac{\chi\varphi}{2}\,\alpha^2\, m\ln\Bigl(1 + \frac{t}{4m\lambda}\Bigr)

    for K = S = D = 1, :math:`\lambda = 24\alpha d`, :math:`\eta = \alpha/2` and m orthogonal unit vectors,
    with :math:`\chi = (e^v - 1)/v` at :math:`v = \alpha/(2\lambda)` and :math:`\varphi` of `radius_floor`.

    Parameters
    ----------
    n_features, n_directions : int
        d and m, m <= d.
    n_rounds : int
        t >= 0.
    length : float
        :math:`\|w_*\|`, in [0, 1].
    failure : float
        :math:`\delta' \in (0, 1)`, the probability with which some round may fail. It belongs to the analysis
        and is not known to the policy.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Not in the paper. It is the radius of notebook ``10_loss_regret`` (`RepairedRadius`) before
    :math:`\|w_*\| \le S` is inserted, with its movement terms, which add up to at most 0, left out.
    """
    d, m = _sizes(n_features, n_directions)
    t = as_integer("n_rounds", n_rounds, minimum=0)
    norm = as_non_negative("length", length)
    if norm > 1.0:
        raise ValueError(f"length must be at most 1, the radius of the ball, got {length}")
    lam, eta = theorem_parameters(1, d, norm_bound=1.0)
    slope = exponential_slope(eta / lam) * potential_slope(0.25 / lam)
    chance = -2.0 * eta * math.log(as_probability("failure", failure))
    return lam * norm**2 + chance + 2.0 * eta**2 * slope * information_bound(m, t, lam)


def hard_truth(n_features: int, n_directions: int, n_rounds: int, *, idle: bool) -> Array:
    r"""The true parameter for which the printed rule loses the root of :math:`\lambda mT`.

    With the action 0 among the actions (`idle`) it is :math:`-\varrho(e_1 + \dots + e_m)`,
    :math:`\varrho^2 = \lambda m/(2T)`; without it :math:`\varrho e_1`,
    :math:`\varrho^2 = \lambda m/T`.

    Parameters
    ----------
    n_features, n_directions : int
        d and m, m <= d, and m >= 2 unless `idle`.
    n_rounds : int
        T, at least :math:`4m^2\lambda` with the action 0 and :math:`156\,m\lambda` without it.
    idle : bool
        Whether the action 0 belongs to the set; it is then the best one.

    Returns
    -------
    (m,) array
        The coordinates along the unit vectors; all others are 0.

    Raises
    ------
    ValueError
        If T is too small or an argument is out of range.
    """
    d, m = _sizes(n_features, n_directions)
    lam, _ = theorem_parameters(1, d, norm_bound=1.0)
    least = 4.0 * m**2 * lam if idle else 156.0 * m * lam
    if not idle and m < 2:
        raise ValueError("n_directions must be at least 2 without the action 0, got 1")
    T = as_integer("n_rounds", n_rounds, minimum=1)
    if least > T:
        raise ValueError(f"n_rounds must be at least {least:.0f} for d={d} and m={m}, got {T}")
    if idle:
        return np.full(m, -math.sqrt(0.5 * lam * m / T))
    truth = np.zeros(m)
    truth[0] = math.sqrt(lam * m / T)
    return truth


def regret_floor(n_features: int, n_directions: int, n_rounds: int, *, idle: bool) -> float:
    r"""What the printed rule loses on `hard_truth`, with probability at least :math:`1 - e^{-3d}`.

    .. math:: T\bigl(\sigma(0) - \sigma(-\varrho)\bigr), \qquad
              \frac{T}{78}\bigl(\sigma(\varrho) - \sigma(0)\bigr),

    the first with the action 0 and the second without it; both are of the order
    :math:`\sqrt{\lambda mT} = \sqrt{24\alpha\,d\,mT}`.

    Parameters
    ----------
    n_features, n_directions, n_rounds, idle
        As in `hard_truth`.

    Returns
    -------
    float
    """
    truth = hard_truth(n_features, n_directions, n_rounds, idle=idle)
    gap = 0.5 * math.tanh(0.5 * float(np.abs(truth).max()))
    return n_rounds * gap / (1.0 if idle else 78.0)


def play_unit_vectors(
    n_features: int,
    truth: Array,
    idle: bool,
    draws: Array,
    horizons: Array,
    confidence: float,
    regularization: float,
    failure: float,
) -> Game:
    r"""Play EOFD-MLogB for K = S = D = 1 on :math:`e_1, \dots, e_m`, with m numbers of each kind.

    All Hessians are diagonal, so that the sketch (of any size from m on) is exact, and the step changes the
    coordinate of the played vector alone:

    .. math:: w_i \leftarrow w_i - \frac{\eta(\sigma(w_i) - y)}{\lambda + g_i + \eta\sigma'(w_i)}, \qquad
              g_i \leftarrow g_i + \sigma'(w_i) .

    Parameters
    ----------
    n_features : int
        d.
    truth : (m,) array
        :math:`w_*` along the unit vectors.
    idle : bool
        Whether the action 0 belongs to the set; it is then the last one, and ties go to the first action.
    draws : (T,) array
        Uniform random numbers; the outcome is 1 where a number is below the probability.
    horizons : (n,) array of int
        Numbers of rounds, increasing and at most T, after which the game is looked at.
    confidence : float
        :math:`\delta` of the printed radius.
    regularization : float
        :math:`\lambda`, for the theorem :math:`24\alpha d`.
    failure : float
        :math:`\delta'` of `error_radius`.

    Returns
    -------
    Game
        With NaN in every entry from the round on at which the estimate leaves the ball, where the projection
        would couple the coordinates.

    Notes
    -----
    The loop has plain numbers only, so that numba compiles it as it stands; that is why it repeats the
    formulas of `TheoremRadius`, `radius_floor` and `error_radius`. The tests compare it with the library's
    policy and with these functions.
    """
    m, d, n = truth.size, n_features, horizons.size
    alpha = 4.0 + math.log(2.0)
    eta, lam = 0.5 * alpha, regularization
    w, g, plays = np.zeros(m), np.zeros(m), np.zeros(m)
    seen_wrong, seen_radius, shares = np.full(n, np.nan), np.full(n, np.nan), np.full((2, n), np.nan)
    seen_plays, seen_w, seen_g = np.full((n, m), np.nan), np.full((n, m), np.nan), np.full((n, m), np.nan)
    top = 1.0 / (1.0 + math.exp(-1.0))
    fine, v = 0.25 / lam, eta / lam
    phi, chi = fine / math.log1p(fine), math.expm1(v) / v
    norm, best = 0.0, max(truth.max(), 0.0) if idle else truth.max()
    for i in range(m):
        norm += truth[i] ** 2
    wrong, moved_logit, moved_hessian, error, floor, place = 0, 0.0, 0.0, 0.0, 0.0, 0
    for t in range(draws.size + 1):
        deviation = 1.25 + 4.0 * math.log(math.sqrt(1.0 + 2.0 * t) / confidence)
        beta = lam + alpha * (1.0 + math.log(2.0) + 2.0 * math.log(2.0 * t + 2.0)) * deviation
        beta += alpha * (2.0 + math.log(2.0))
        gained = math.sqrt(6.0) * eta * lam / (12.0 * d) * m * math.log1p(2.0 * t / (m * lam))
        beta += (
            gained + 0.5 * math.sqrt(6.0) * eta * moved_logit + (24.0 * eta * d / lam - 1.0) * moved_hessian
        )
        information = m * math.log1p(t / (4.0 * m * lam))
        low = lam + gained - 0.5 * eta**2 * top / (1.0 - top) * phi * information
        high = lam * norm - alpha * math.log(failure) + 2.0 * eta**2 * chi * phi * information
        square, length = 0.0, 0.0
        for i in range(m):
            square += (lam + g[i]) * (truth[i] - w[i]) ** 2
            length += w[i] ** 2
        error, floor = max(error, square / high), max(floor, low / beta)
        if place < n and horizons[place] == t:
            seen_wrong[place], seen_radius[place] = wrong, beta
            seen_plays[place], seen_w[place], seen_g[place] = plays, w, g
            shares[0, place], shares[1, place] = error, floor
            place += 1
        if length > 1.0 or t == draws.size:
            break
        played, score = 0, -math.inf
        for i in range(m):
            index = w[i] + math.sqrt(beta / (lam + g[i]))
            if index > score:
                played, score = i, index
        if idle and score < 0.0:
            wrong += best > 0.0
            continue
        wrong += truth[played] < best
        plays[played] += 1.0
        outcome = 1.0 if draws[t] < 1.0 / (1.0 + math.exp(-truth[played])) else 0.0
        p = 1.0 / (1.0 + math.exp(-w[played]))
        z = lam + g[played]
        step = -eta * (p - outcome) / (z + eta * p * (1.0 - p))
        moved_logit += step**2
        moved_hessian += z * step**2
        w[played] += step
        p = 1.0 / (1.0 + math.exp(-w[played]))
        g[played] += p * (1.0 - p)
    return Game(seen_wrong, seen_plays, seen_w, seen_g, seen_radius, shares[0], shares[1])


def _sizes(n_features: int, n_directions: int) -> tuple[int, int]:
    d = as_integer("n_features", n_features, minimum=1)
    m = as_integer("n_directions", n_directions, minimum=1)
    if m > d:
        raise ValueError(f"n_directions must be at most n_features = {d}, got {m}")
    return d, m
