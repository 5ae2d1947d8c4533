r"""Sums of self-normalised norms: bounds of the total uncertainty of a stream of actions.

The uncertainty of an action is measured with the matrix of the rounds before it. Each round increases the
logarithm of the matrix' determinant by about that uncertainty, so that the sum telescopes. In the paper's
bounds the sketch costs the factor :math:`\Delta` and a term for all Kd dimensions; bounds from the
determinant of the sketch itself, the sharp ones, need neither. Derivation: notebook ``08_self_normalised``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from compendium.theory.sketch import log_determinant_bound, sketch_factor
from mlogb_core._validation import as_integer, as_non_negative, as_positive
from mlogb_core.link import smoothness


@dataclass(frozen=True)
class Stream:
    r"""The sizes of a problem, and the state of its sketch after t rounds, on which the bounds depend.

    Attributes
    ----------
    n_outcomes, n_features, sketch_size : int
        K, d and m, each >= 1.
    regularization : float
        :math:`\lambda > 0`.
    n_rounds : int
        t >= 0.
    shrinkage : float
        :math:`\rho_{1:t} \ge 0`, of these rounds.
    action_bound : float
        D >= the norm of every action.

    Raises
    ------
    ValueError
        If one is out of range.
    """

    n_outcomes: int
    n_features: int
    sketch_size: int
    regularization: float
    n_rounds: int
    shrinkage: float = 0.0
    action_bound: float = 1.0

    def __post_init__(self) -> None:
        for name in ("n_outcomes", "n_features", "sketch_size"):
            object.__setattr__(self, name, as_integer(name, getattr(self, name), minimum=1))
        object.__setattr__(self, "n_rounds", as_integer("n_rounds", self.n_rounds, minimum=0))
        object.__setattr__(self, "regularization", as_positive("regularization", self.regularization))
        object.__setattr__(self, "shrinkage", as_non_negative("shrinkage", self.shrinkage))
        object.__setattr__(self, "action_bound", as_positive("action_bound", self.action_bound))

    @property
    def n_parameters(self) -> int:
        """Kd."""
        return self.n_outcomes * self.n_features

    @property
    def largest_hessian(self) -> float:
        r""":math:`LD^2`, with the smallest L: no eigenvalue of one Hessian is larger."""
        return smoothness(self.n_outcomes) * self.action_bound**2

    @property
    def largest_trace(self) -> float:
        r""":math:`\tau_K D^2`: no trace of one Hessian is larger."""
        return trace_constant(self.n_outcomes) * self.action_bound**2


def trace_constant(n_outcomes: int) -> float:
    r"""The smallest :math:`\tau_K` with :math:`\operatorname{tr}\nabla\sigma(z) \le \tau_K`.

    .. math:: \tau_1 = \tfrac14, \qquad \tau_K = 1 - \tfrac1K \quad (K \ge 2)

    Parameters
    ----------
    n_outcomes : int
        K >= 1.

    Returns
    -------
    float

    Notes
    -----
    Paper: 1, which is not reached for any K. For K >= 2 the constant is a supremum, approached as the
    reference becomes impossible and the other outcomes equally likely.
    """
    K = as_integer("n_outcomes", n_outcomes, minimum=1)
    return 0.25 if K == 1 else 1.0 - 1.0 / K


def potential_slope(bound: float) -> float:
    r"""Smallest :math:`\varphi` with :math:`v \le \varphi\ln(1+v)` on [0, g]: :math:`g/\ln(1+g)`.

    Parameters
    ----------
    bound : float
        g >= 0.

    Returns
    -------
    float
        At least 1; 1 at g = 0.
    """
    g = as_non_negative("bound", bound)
    return g / math.log1p(g) if g > 0.0 else 1.0


def exact_sum_bound(stream: Stream) -> float:
    r"""Bound of :math:`\sum_{s \le t}\operatorname{tr}(\nabla^2\ell_s(W_{s+1})\,H_s^{-1})`.

    .. math:: Kd\ln\Bigl(1 + \frac{2\rho_{1:t}}\lambda\Bigr)
              + m\ln\Bigl(1 + \frac{2D^2t}{m\lambda}\Bigr), \qquad \lambda \ge 2LD^2

    Parameters
    ----------
    stream : Stream
        The stream; :math:`\rho` is that of a sketch beside the exact H.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If :math:`\lambda < 2LD^2`, where the bound fails in general.

    Notes
    -----
    Paper: `lem:fd-self-origin-norm-t`.

    Examples
    --------
    >>> round(exact_sum_bound(Stream(1, 2, 1, regularization=1.0, n_rounds=1)), 4)  # ln 3
    1.0986
    """
    _check_ridge(stream)
    return log_determinant_bound(
        stream.n_parameters,
        stream.sketch_size,
        stream.regularization / 2.0,
        stream.shrinkage,
        stream.action_bound**2 * stream.n_rounds,
    )


def sketched_sum_bound(stream: Stream, *, printed: bool = False) -> float:
    r"""Bound of :math:`\sum_{s \le t}\operatorname{tr}(\nabla^2\ell_s(W_{s+1})\,Z_s^{-1})`, the paper's.

    With :math:`\Delta = 1 + \rho_{1:t}/\lambda`, its proof gives

    .. math:: \Delta\Bigl(Kd\ln\Bigl(1 + \frac{2\rho_{1:t}}\lambda\Bigr)
              + m\ln\Bigl(1 + \frac{2D^2t}{m\lambda}\Bigr)\Bigr),

    and what is printed is

    .. math:: \Delta\Bigl(Kd\ln 2\Delta + m\ln\Bigl(1 + \frac{D^2t}{m\lambda}\Bigr)\Bigr).

    Parameters
    ----------
    stream : Stream
        The stream, :math:`\lambda \ge 2LD^2`.
    printed : bool
        Whether the second form is returned, and not the first.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If :math:`\lambda < 2LD^2`.

    Notes
    -----
    Paper: `lem:fd-self-norm-t`. Both forms hold, and neither is always the smaller one. `sharp_sum_bound` is
    never larger than the first form.
    """
    _check_ridge(stream)
    factor = sketch_factor(stream.shrinkage, stream.regularization)
    if not printed:
        return factor * exact_sum_bound(stream)
    n = stream.n_parameters
    trace = stream.action_bound**2 * stream.n_rounds
    log_det = log_determinant_bound(n, stream.sketch_size, stream.regularization, stream.shrinkage, trace)
    return factor * (n * math.log(2.0) + log_det)


def sharp_sum_bound(stream: Stream) -> float:
    r"""Bound of :math:`\sum_{s \le t}\operatorname{tr}(\nabla^2\ell_s(W_{s+1})\,Z_s^{-1})` without Kd.

    With :math:`q = \min(m + K, Kd)`, :math:`g = LD^2/\lambda`, :math:`\varphi = g/\ln(1+g)` and
    :math:`\tau = (\tau_KD^2t - (m+1)\rho_{1:t})_+` it is the smallest of

    .. math:: \varphi\Bigl(m\ln\Bigl(1 + \frac{\tau}{m\lambda}\Bigr) + q\,\frac{\rho_{1:t}}\lambda\Bigr),
              \qquad m\ln\Bigl(1 + \frac{\tau}{m\lambda'}\Bigr) + q\,\frac{\rho_{1:t}}{\lambda'},
              \qquad \frac{\tau_KD^2t}{\lambda},

    the second with :math:`\lambda' = \lambda - LD^2`, if that is positive.

    Parameters
    ----------
    stream : Stream
        The stream, for any :math:`\lambda > 0`, with a sketch of buffer 1.

    Returns
    -------
    float

    Notes
    -----
    Not in the paper. It is never larger than `sketched_sum_bound`, and needs no lower bound on
    :math:`\lambda`. The potential is :math:`\ln|Z|`, which a shrink by :math:`\delta` decreases by at most
    :math:`q\,\delta/\lambda`. The bound is attained, in the limit of large :math:`\lambda`, if m + 1
    orthogonal actions are played in turn.

    Examples
    --------
    >>> stream = Stream(1, 785, 78, regularization=88419.0, n_rounds=3000)
    >>> round(sharp_sum_bound(stream), 4), round(sketched_sum_bound(stream), 4)
    (0.0085, 0.0678)
    """
    return smallest_sum(stream, 0.0, lambda ridge: stream.shrinkage / ridge)


def log_det_sum_bound(stream: Stream) -> float:
    r"""Bound of :math:`\sum_{s \le t}\ln\det(I + \nabla\sigma(W_{s+1}x_s)\,A_s)` under the sketch.

    .. math:: m\ln\Bigl(1 + \frac{(\tau_KD^2t - (m+1)\rho_{1:t})_+}{m\lambda}\Bigr)
              + \min(m + K, Kd)\,\frac{\rho_{1:t}}\lambda

    Parameters
    ----------
    stream : Stream
        The stream, for any :math:`\lambda > 0`, with a sketch of buffer 1.

    Returns
    -------
    float

    Notes
    -----
    Each term is the growth of :math:`\ln|Z|` by a round, and the shrinks take away at most the second part.
    `sharp_sum_bound` bounds the traces by a multiple of this.
    """
    lam = stream.regularization
    return potential(stream, lam, 0.0, stream.shrinkage / lam)


def uncertainty_sum_bound(stream: Stream, kappa: float, *, updated: bool = False) -> float:
    r"""Bound of :math:`\sum_{s \le t}\operatorname{tr}((I \otimes x_sx_s^\top)\,Z^{-1})`, the paper's.

    For :math:`Z = Z_s` it is :math:`\kappa` times the first form of `sketched_sum_bound`; for
    :math:`Z = Z_{s+1}` (`updated`) it is

    .. math:: \kappa\,\Delta\Bigl(Kd\ln\Delta + m\ln\Bigl(1 + \frac{D^2t}{m\lambda}\Bigr)\Bigr).

    Parameters
    ----------
    stream : Stream
        The stream; :math:`\lambda \ge 2LD^2` unless `updated`.
    kappa : float
        :math:`\kappa \ge 1/L` with :math:`\nabla\sigma(W_{s+1}x_s) \succeq \kappa^{-1}I` in all rounds.
    updated : bool
        Whether the matrix includes the Hessian of the round itself.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If :math:`\lambda < 2LD^2` and not `updated`, or :math:`\kappa` is not positive.

    Notes
    -----
    Paper: `lem:fd-self-norm-I-xxt-zt` and `lem:fd-self-norm-I-xxt-zt+1`. The second lemma states the
    condition on :math:`\lambda` but does not need it.
    """
    kappa = as_positive("kappa", kappa)
    if not updated:
        return kappa * sketched_sum_bound(stream)
    trace = stream.action_bound**2 * stream.n_rounds
    lam, rho = stream.regularization, stream.shrinkage
    log_det = log_determinant_bound(stream.n_parameters, stream.sketch_size, lam, rho, trace)
    return kappa * sketch_factor(rho, lam) * log_det


def sharp_uncertainty_sum_bound(stream: Stream, kappa: float, *, updated: bool = False) -> float:
    r"""Bound of :math:`\sum_{s \le t}\operatorname{tr}((I \otimes x_sx_s^\top)\,Z^{-1})` without Kd.

    For :math:`Z = Z_s` it is the smaller of :math:`\kappa` times `sharp_sum_bound` and
    :math:`KD^2t/\lambda`. For :math:`Z = Z_{s+1}` (`updated`) the former is replaced by

    .. math:: \kappa\Bigl(1 + \frac{LD^2}\lambda\Bigr)
              \Bigl(m\ln\Bigl(1 + \frac{\tau}{m\lambda}\Bigr) + q\,\frac{\rho_{1:t}}\lambda\Bigr).

    Parameters
    ----------
    stream : Stream
        The stream, for any :math:`\lambda > 0`, with a sketch of buffer 1.
    kappa : float
        As in `uncertainty_sum_bound`.
    updated : bool
        Whether the matrix includes the Hessian of the round itself.

    Returns
    -------
    float

    Notes
    -----
    Not in the paper. In the direction of the action a shrink may subtract more from Z than the round has
    added, so that the sum for :math:`Z_{s+1}` is not always the smaller one.
    """
    kappa, lam = as_positive("kappa", kappa), stream.regularization
    most = stream.n_outcomes * stream.action_bound**2 * stream.n_rounds / lam
    if not updated:
        return min(kappa * sharp_sum_bound(stream), most)
    return min(kappa * (1.0 + stream.largest_hessian / lam) * log_det_sum_bound(stream), most)


def potential(
    stream: Stream, ridge: float, returned: float, cost: float, least_size: int | None = None
) -> float:
    r"""Bound of :math:`\sum_s\ln(|Z_s + G_s|/|Z_s|)` for shrinks that cost a given amount per direction.

    .. math:: m\ln\Bigl(1 + \frac{(\tau_KD^2t - (m_0+1)\rho_{1:t})_+}{m(\lambda + \text{returned})}\Bigr)
              + \min(m + K, Kd)\cdot\text{cost}

    Parameters
    ----------
    stream : Stream
        The stream; its sketch size m is the largest of the run.
    ridge : float
        The ridge at the start, :math:`\lambda` or a smaller one.
    returned : float
        What was given back to the ridge in all.
    cost : float
        A bound of :math:`\sum_s\ln(1 + \rho_s/\lambda_s)`, from the same ridge.
    least_size : int, optional
        :math:`m_0`, the smallest sketch size of the run; m by default.

    Returns
    -------
    float
    """
    n, K, rho = stream.n_parameters, stream.n_outcomes, stream.shrinkage
    m = min(stream.sketch_size, n)
    least = m if least_size is None else min(least_size, m)
    kept = max(stream.largest_trace * stream.n_rounds - (least + 1) * rho, 0.0)
    return m * math.log1p(kept / (m * (ridge + returned))) + min(m + K, n) * cost


def smallest_sum(
    stream: Stream, returned: float, cost: Callable[[float], float], least_size: int | None = None
) -> float:
    r"""The smallest of the three bounds of :math:`\sum_s\operatorname{tr}(G_sZ_s^{-1})` from a potential.

    Parameters
    ----------
    stream, returned, least_size
        As in `potential`.
    cost : callable
        The cost per direction as a function of the ridge at the start.

    Returns
    -------
    float
        The smallest of :math:`\varphi(g)` times `potential`, :math:`\tau_KD^2t/\lambda`, and `potential` at
        the ridge :math:`\lambda - LD^2`, if that is positive.
    """
    lam, g = stream.regularization, stream.largest_hessian
    forms = [
        potential_slope(g / lam) * potential(stream, lam, returned, cost(lam), least_size),
        stream.largest_trace * stream.n_rounds / lam,
    ]
    if lam > g:
        forms.append(potential(stream, lam - g, returned, cost(lam - g), least_size))
    return min(forms)


def _check_ridge(stream: Stream) -> None:
    least = 2.0 * stream.largest_hessian
    if stream.regularization < least * (1.0 - 1e-12):
        raise ValueError(
            f"regularization must be at least 2 L D^2 = {least:.3g}, got {stream.regularization:.3g}"
        )
