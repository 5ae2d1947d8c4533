r"""The confidence radius :math:`\beta_t` and the parameters that the theorem asks for.

The theorem's radius is a sum of terms, some of which grow with the steps that the policy has taken. At the
paper's sizes it is far too large for a bonus, and the paper does not say how its experiments scaled it. Here
the radius is therefore an object of its own with a `scale`: the theorem's (`TheoremRadius`), the smaller one
of the theorem as repaired (`RepairedRadius`), the smallest, which adds up what the player observes
(`ObservedRadius`, `LogDetRadius`), a multiple of the first term (`RidgeRadius`), or a constant.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from mlogb_core._validation import as_integer, as_non_negative, as_positive, as_probability, take
from mlogb_core.link import log_losses, remainder_constant, smoothness
from mlogb_core.observed import (
    PlayedRound,
    log_det_surplus,
    mixture_precision,
    normalised_forecast,
    round_surplus,
)


@dataclass(slots=True)
class Progress:
    r"""The state of a policy after t updates, as far as the radius depends on it.

    Attributes
    ----------
    n_outcomes, n_features : int
        K and d.
    rank_bound : int
        m, the largest rank of the curvature's data part (Kd for the full Hessian).
    regularization, step_size, norm_bound : float
        :math:`\lambda`, :math:`\eta` and S.
    rounds : int
        t, the number of updates so far.
    shrinkage : float
        :math:`\rho_{1:t}`.
    logit_movement : float
        :math:`\sum_{s \le t} \|(W_{s+1} - W_s) x_s\|_2^2`; 0 for a rule that needs no movement.
    hessian_movement : float
        :math:`\sum_{s \le t} \|W_{s+1} - W_s\|_{Z_s}^2`; 0 for a rule that needs no movement.
    growth : float
        By how much the ridge of the curvature exceeds :math:`\lambda`; 0 for the paper's sketch.
    surplus : float or None
        The sum of what the radius adds up over the rounds; None if nobody has added it up.
    """

    n_outcomes: int
    n_features: int
    rank_bound: int
    regularization: float
    step_size: float
    norm_bound: float
    rounds: int = 0
    shrinkage: float = 0.0
    logit_movement: float = 0.0
    hessian_movement: float = 0.0
    growth: float = 0.0
    surplus: float | None = None


class Radius(Protocol):
    r"""A rule for the squared radius :math:`\beta_{t+1}` after t updates.

    A rule may have a method `increment(played)` besides, which takes a `PlayedRound` and returns a number;
    the policy adds these numbers up in `Progress.surplus`.
    """

    @property
    def needs_movement(self) -> bool:
        """Whether the rule uses the two movements of `Progress`, which the policy then sums up."""

    def value(self, progress: Progress) -> float:
        r""":math:`\beta_{t+1} \ge 0`."""

    def describe(self) -> dict[str, Any]:
        """The rule and its numbers, for records; `radius_from` reads it back."""


def is_radius(radius: Any) -> bool:
    """Whether this is a `Radius`, and not the class of one, a number or a description."""
    has_parts = callable(getattr(radius, "value", None)) and hasattr(radius, "needs_movement")
    return has_parts and not isinstance(radius, type)


class _Rule:
    """Base class of the library's rules, which gives them their description for records."""

    kind: ClassVar[str]
    needs_movement: ClassVar[bool] = False

    def describe(self) -> dict[str, Any]:
        """The rule and its numbers; a subclass is described by its class name, as it is another rule."""
        own = type(self) is _RADII.get(self.kind)
        kind = self.kind if own else f"{type(self).__module__}.{type(self).__qualname__}"
        numbers: dict[str, Any] = asdict(self)  # type: ignore[call-overload]  # All subclasses are dataclasses.
        return {"kind": kind} | {name: value for name, value in numbers.items() if value is not None}


@dataclass(frozen=True)
class ConstantRadius(_Rule):
    r"""The same squared radius in every round.

    Parameters
    ----------
    beta : float
        :math:`\beta \ge 0`; 0 makes the policy greedy.
    """

    beta: float

    kind = "constant"

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta", as_non_negative("beta", self.beta))

    def value(self, progress: Progress) -> float:
        r"""The constant :math:`\beta`."""
        return self.beta


@dataclass(frozen=True)
class RidgeRadius(_Rule):
    r"""A multiple of the theorem's first term, :math:`\beta = c\,\lambda S^2`.

    Parameters
    ----------
    scale : float
        c >= 0. At round 1 the set of c = 1 is the ball of radius S itself.
    """

    scale: float

    kind = "ridge"

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", as_non_negative("scale", self.scale))

    def value(self, progress: Progress) -> float:
        r""":math:`c\,\lambda S^2`."""
        return self.scale * progress.regularization * progress.norm_bound**2


@dataclass(frozen=True)
class _SumOfTerms(_Rule, ABC):
    """A radius that is a sum of named terms, clamped at 0 and multiplied by a scale."""

    confidence: float
    action_bound: float = 1.0
    scale: float = 1.0
    smoothness: float | None = None

    needs_movement = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "confidence", as_probability("confidence", self.confidence))
        object.__setattr__(self, "action_bound", as_positive("action_bound", self.action_bound))
        object.__setattr__(self, "scale", as_non_negative("scale", self.scale))
        if self.smoothness is not None:
            object.__setattr__(self, "smoothness", as_positive("smoothness", self.smoothness))

    @abstractmethod
    def terms(self, progress: Progress) -> dict[str, float]:
        """The terms of the sum by name, before the scale."""

    def value(self, progress: Progress) -> float:
        r""":math:`\beta_{t+1}`, clamped at 0, times the scale."""
        return self.scale * max(sum(self.terms(progress).values()), 0.0)


@dataclass(frozen=True)
class TheoremRadius(_SumOfTerms):
    r"""The radius of the confidence theorem, every term of it, times a scale.

    .. math::
       \beta_{t+1} = {}& \lambda S^2
       + 2\eta\bigl(DS + \ln(K{+}1) + 2\ln((K{+}1)t + 2)\bigr)
         \Bigl(\tfrac54 + 4\ln\tfrac{\sqrt{1+2t}}{\delta}\Bigr) + 2\eta(2 + \ln(K{+}1)) \\
       &+ \tfrac{\sqrt6\,\eta\lambda}{12Kd}\,\Delta_t^{\lambda}
          \Bigl(Kd\ln\Delta_t^{\lambda/2} + m\ln\bigl(1 + \tfrac{2D^2t}{m\lambda}\bigr)\Bigr) \\
       &+ \sum_{s\le t} 2\sqrt6\,\eta L S\,\|(W_{s+1}-W_s)x_s\|_2^2
         + \bigl(\tfrac{24\eta Kd}{\lambda} - 1\bigr)\|W_{s+1}-W_s\|_{Z_s}^2

    with :math:`\Delta_t^{\lambda} = 1 + \rho_{1:t}/\lambda` and :math:`W_1 = 0`.

    Parameters
    ----------
    confidence : float
        :math:`\delta \in (0, 1)`, the probability of failure.
    action_bound : float
        D >= the norm of every action.
    scale : float
        Factor of the whole sum; 1 is the theorem.
    smoothness : float, optional
        L with :math:`\nabla\sigma \preceq L I`; by default the smallest one, `link.smoothness`.

    Notes
    -----
    Paper: `eq:cr-beta`. At t = 0 the derivation needs only the first term; the formula as printed
    is larger there, hence valid, and is used as it stands. The last sum can be negative when
    :math:`\lambda` is above the theorem's threshold; the whole is clamped at 0.
    """

    kind = "theorem"

    def terms(self, progress: Progress) -> dict[str, float]:
        """The terms of the sum by name, before the scale.

        Parameters
        ----------
        progress : Progress
            Where the policy stands.

        Returns
        -------
        dict
            Keys `ridge`, `martingale`, `smoothing`, `sketch`, `logit_movement`,
            `hessian_movement`, in the order of the formula.
        """
        K, d, t = progress.n_outcomes, progress.n_features, progress.rounds
        lam, eta, S = progress.regularization, progress.step_size, progress.norm_bound
        D, log_K = self.action_bound, math.log(progress.n_outcomes + 1)
        L = smoothness(K) if self.smoothness is None else self.smoothness
        sketch_term = _log_terms(progress, D)
        deviation = 1.25 + 4.0 * math.log(math.sqrt(1.0 + 2.0 * t) / self.confidence)
        return {
            "ridge": lam * S**2,
            "martingale": 2.0 * eta * (D * S + log_K + 2.0 * math.log((K + 1) * t + 2.0)) * deviation,
            "smoothing": 2.0 * eta * (2.0 + log_K),
            "sketch": math.sqrt(6.0) * eta / (12 * K * d) * (lam + progress.shrinkage) * sketch_term,
            "logit_movement": 2.0 * math.sqrt(6.0) * eta * L * S * progress.logit_movement,
            "hessian_movement": (24.0 * eta * K * d / lam - 1.0) * progress.hessian_movement,
        }


@dataclass(frozen=True)
class RepairedRadius(_SumOfTerms):
    r"""The radius of the repaired confidence theorem, without smoothing and for a small :math:`\lambda`.

    .. math::
       \beta_{t+1} = \lambda S^2 + 2\eta\ln\tfrac1\delta + 2\eta^2\chi\,\mathcal{T}_t
       + 2\eta\gamma_KM_K SD\sum_{s\le t}\|(W_{s+1}-W_s)x_s\|_2^2
       - \tfrac12\sum_{s\le t}\|W_{s+1}-W_s\|_{Z_s}^2

    with :math:`\chi = (e^v - 1)/v` at :math:`v = 4\eta LD^2/\lambda`, :math:`\gamma_KM_K` from
    `link.remainder_constant`, and

    .. math:: \mathcal{T}_t = \Delta_t^{\lambda}\Bigl(Kd\ln\Delta_t^{\lambda/2}
              + m\ln\bigl(1 + \tfrac{2D^2t}{m\lambda}\bigr)\Bigr) \ge
              \sum_{s\le t}\operatorname{tr}\bigl(\nabla^2\ell_s(W_{s+1})\,Z_s^{-1}\bigr).

    Parameters
    ----------
    confidence : float
        :math:`\delta \in (0, 1)`, the probability of failure.
    action_bound : float
        D >= the norm of every action.
    scale : float
        Factor of the whole sum; 1 is the theorem.
    smoothness : float, optional
        L with :math:`\nabla\sigma \preceq LI` for all logits; by default the smallest one. A smaller L, valid
        in a ball of parameters only, is not enough.

    Notes
    -----
    Paper: takes the place of `eq:cr-beta`. Derivation: notebook ``10_loss_regret``. It assumes exact steps
    from :math:`W_1 = 0` with :math:`\eta \ge \alpha/2` over the paper's sketch or the full Hessian. Without
    a recorded trace it needs :math:`\lambda \ge 2LD^2`, in place of :math:`24\alpha Kd` in
    `thm:confidence-region`.
    """

    kind = "repaired"

    def terms(self, progress: Progress, trace: float | None = None) -> dict[str, float]:
        r"""The terms of the sum by name, before the scale.

        Parameters
        ----------
        progress : Progress
            Where the policy stands.
        trace : float, optional
            The sum of traces itself, if it was recorded; then :math:`\mathcal{T}_t` is not needed.

        Returns
        -------
        dict
            Keys `ridge`, `martingale`, `sketch`, `logit_movement`, `hessian_movement`.

        Raises
        ------
        ValueError
            If the smoothness is too small, or :math:`\lambda < 2LD^2` and no trace is given.
        """
        K = progress.n_outcomes
        lam, eta, S = progress.regularization, progress.step_size, progress.norm_bound
        D, L = self.action_bound, checked_smoothness(K, self.smoothness)
        if trace is None:
            if lam < 2.0 * L * D**2 * (1.0 - 1e-12):
                raise ValueError(
                    f"regularization must be at least 2 L D^2 = {2.0 * L * D**2:.3g}, got {lam:.3g}; "
                    "below it only a recorded trace gives a radius"
                )
            trace = (1.0 + progress.shrinkage / lam) * _log_terms(progress, D)
        slope = exponential_slope(4.0 * eta * L * D**2 / lam)
        return {
            "ridge": lam * S**2,
            "martingale": -2.0 * eta * math.log(self.confidence),
            "sketch": 2.0 * eta**2 * slope * as_non_negative("trace", trace),
            "logit_movement": 2.0 * eta * remainder_constant(K) * S * D * progress.logit_movement,
            "hessian_movement": -0.5 * progress.hessian_movement,
        }


@dataclass(frozen=True)
class _SumOverRounds(_Rule, ABC):
    r"""A radius :math:`\lambda S^2 + 2\eta\ln\frac1\delta` plus what the rounds add, from `increment`."""

    confidence: float
    scale: float = 1.0

    needs_movement = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "confidence", as_probability("confidence", self.confidence))
        object.__setattr__(self, "scale", as_non_negative("scale", self.scale))

    @abstractmethod
    def increment(self, played: PlayedRound) -> float:
        """What a round adds."""

    def terms(self, progress: Progress) -> dict[str, float]:
        r"""The terms of the sum by name, before the scale.

        Parameters
        ----------
        progress : Progress
            Where the policy stands.

        Returns
        -------
        dict
            Keys `ridge`, `martingale`, `surplus`, and `growth`, which is
            :math:`4S^2(\alpha - \lambda)` for a curvature whose ridge has grown to :math:`\alpha`.

        Raises
        ------
        ValueError
            If the policy does not add up what the rounds add.
        """
        if progress.surplus is None:
            raise ValueError(
                f"radius must not be a {type(self).__name__} for this policy, which does not add up what it "
                "observes; those of eofd, oful and the other constructors of mlogb_core.policies do"
            )
        eta, square = progress.step_size, progress.norm_bound**2
        return {
            "ridge": progress.regularization * square,
            "martingale": -2.0 * eta * math.log(self.confidence),
            "surplus": progress.surplus,
            "growth": 4.0 * square * progress.growth,
        }

    def value(self, progress: Progress) -> float:
        r""":math:`\beta_{t+1}`, clamped at 0, times the scale."""
        return self.scale * max(sum(self.terms(progress).values()), 0.0)


@dataclass(frozen=True)
class ObservedRadius(_SumOverRounds):
    r"""The radius of the confidence theorem in which every term is what the player has observed.

    .. math::
       \beta_{t+1} = \lambda S^2 + 2\eta\ln\tfrac1\delta + \sum_{s\le t}\Bigl[
       2\eta\ln\frac{\sigma_{y_s}(W_{s+1}x_s)}{q_s(y_s)} + 2\eta\hat R_s - \|W_{s+1}-W_s\|_{Z_s}^2\Bigr]

    with the forecast :math:`q_s`, which is made before the outcome, and :math:`\hat R_s` from
    `observed_remainder`.

    Parameters
    ----------
    confidence : float
        :math:`\delta \in (0, 1)`, the probability of failure.
    scale : float
        Factor of the whole sum; 1 is the theorem.
    forecast : {"normalised", "plug-in"}
        :math:`q_s`: `normalised_forecast`, or the model's own probabilities :math:`\sigma(W_sx_s)`.

    Notes
    -----
    Derivation: notebook ``21_usable_radius``. It assumes exact steps from :math:`W_1 = 0`, a true parameter
    of norm at most S, and a step size of at least half the best constant of exp-concavity. There is no
    condition on :math:`\lambda`, and no dimension in the formula. For a curvature whose ridge grows,
    :math:`4S^2` times the growth is added.
    """

    forecast: str = "normalised"

    kind = "observed"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.forecast not in ("normalised", "plug-in"):
            raise ValueError(f"forecast must be 'normalised' or 'plug-in', got {self.forecast!r}")

    def increment(self, played: PlayedRound) -> float:
        """What a round adds: `round_surplus` under the forecast."""
        if self.forecast == "plug-in":
            return round_surplus(played, -log_losses(played.before))
        numbers = played.length, played.step_size, played.norm_bound
        return round_surplus(played, normalised_forecast(played.before, played.block, *numbers))


@dataclass(frozen=True)
class LogDetRadius(_SumOverRounds):
    r"""The radius that adds up determinants: a bound of `ObservedRadius` with a Gaussian mixture as forecast.

    .. math::
       \beta_{t+1} = \lambda S^2 + 2\eta\ln\tfrac1\delta + \sum_{s\le t}\Bigl[
       \eta\ln\det\Bigl(I + \frac{\chi_s}{c_s}\nabla\sigma(W_{s+1}x_s)A_s\Bigr) + 2\eta\hat R_s
       - (1 - \eta c_s)\|W_{s+1}-W_s\|_{Z_s}^2\Bigr]

    with :math:`c_s` from `mixture_precision`, and :math:`\chi_s = (e^v - 1)/v` at
    :math:`v = 2L\|A_s\|_2/c_s`.

    Parameters
    ----------
    confidence : float
        :math:`\delta \in (0, 1)`, the probability of failure.
    scale : float
        Factor of the whole sum; 1 is the theorem.

    Notes
    -----
    Derivation: notebook ``21_usable_radius``; conditions as for `ObservedRadius`.
    """

    kind = "log-det"

    def increment(self, played: PlayedRound) -> float:
        """What a round adds: `log_det_surplus` with the smallest slope that is valid."""
        c = mixture_precision(played)
        largest = float(np.linalg.eigvalsh(played.block)[-1])
        slope = exponential_slope(2.0 * smoothness(played.before.size) * max(largest, 0.0) / c)
        return log_det_surplus(played, c, slope)


_RADII: dict[str, Any] = {
    "constant": ConstantRadius,
    "ridge": RidgeRadius,
    "theorem": TheoremRadius,
    "repaired": RepairedRadius,
    "observed": ObservedRadius,
    "log-det": LogDetRadius,
}


def radius_from(description: Mapping[str, Any]) -> Radius:
    """Build a radius from what `describe` returns.

    Parameters
    ----------
    description : mapping
        `kind` (constant, ridge, theorem, repaired, observed or log-det) and the numbers of that rule.

    Returns
    -------
    Radius

    Raises
    ------
    ValueError
        If the kind or one of its numbers is unknown, missing or out of range.

    Examples
    --------
    >>> radius_from({"kind": "ridge", "scale": 0.001})
    RidgeRadius(scale=0.001)
    """
    if not isinstance(description, Mapping):
        raise ValueError(f"radius must be a mapping with a kind, got {description!r}")
    numbers = dict(description)
    kind = str(take(numbers, "kind"))
    del numbers["kind"]
    if kind not in _RADII:
        raise ValueError(f"radius kind must be one of {sorted(_RADII)}, got {kind!r}")
    try:
        radius: Radius = _RADII[kind](**numbers)
    except TypeError as error:
        raise ValueError(f"radius of kind {kind!r}: {error}") from None
    return radius


def theorem_parameters(
    n_outcomes: int, n_features: int, norm_bound: float, action_bound: float = 1.0
) -> tuple[float, float]:
    r"""The smallest :math:`\lambda` and the :math:`\eta` that the confidence theorem admits.

    .. math:: \alpha = 2(1 + SD) + \ln(K+1), \qquad \eta = \alpha/2, \qquad
              \lambda = \max\{2LD^2, \alpha\max\{2\sqrt6\,SLD^2, 24Kd\}\}

    Parameters
    ----------
    n_outcomes, n_features : int
        K and d.
    norm_bound, action_bound : float
        S and D.

    Returns
    -------
    regularization, step_size : float

    Notes
    -----
    Paper: `thm:confidence-region`.

    Examples
    --------
    >>> regularization, step_size = theorem_parameters(1, 785, norm_bound=1.0)
    >>> round(regularization), round(step_size, 2)
    (88419, 2.35)
    """
    K, d = as_integer("n_outcomes", n_outcomes, 1), as_integer("n_features", n_features, 1)
    S, D = as_positive("norm_bound", norm_bound), as_positive("action_bound", action_bound)
    alpha, L = _alpha(K, S, D), smoothness(K)
    return max(2 * L * D**2, alpha * max(2 * math.sqrt(6) * S * L * D**2, 24 * K * d)), alpha / 2


def scaled_parameters(
    n_outcomes: int,
    n_features: int,
    norm_bound: float,
    exponents: tuple[float, float],
    action_bound: float = 1.0,
) -> tuple[float, float]:
    r"""The :math:`\lambda` and :math:`\eta` of the paper's experiments.

    .. math:: \lambda = (\sqrt K d)^l \sqrt K \alpha S, \qquad
              \eta = (\sqrt K d)^e \Bigl(\frac S2 + \frac{\ln(K+1)}4\Bigr)

    Parameters
    ----------
    n_outcomes, n_features : int
        K and d.
    norm_bound, action_bound : float
        S and D; :math:`\alpha = 2(1 + SD) + \ln(K+1)`.
    exponents : (float, float)
        (l, e); the paper reports its runs at (0.75, 0.75).

    Returns
    -------
    regularization, step_size : float

    Notes
    -----
    Paper: section `sec:experiment`, paragraph Setup.
    """
    S, D = as_positive("norm_bound", norm_bound), as_positive("action_bound", action_bound)
    K, d = as_integer("n_outcomes", n_outcomes, 1), as_integer("n_features", n_features, 1)
    try:
        first, second = (float(exponent) for exponent in exponents)
    except (TypeError, ValueError):
        first = second = math.nan
    if not (abs(first) <= 10 and abs(second) <= 10):
        raise ValueError(f"exponents must be two numbers between -10 and 10, got {exponents!r}")
    base = math.sqrt(K) * d
    regularization = base**first * math.sqrt(K) * _alpha(K, S, D) * S
    return regularization, base**second * (S / 2 + math.log(K + 1) / 4)


def exponential_slope(bound: float) -> float:
    r"""Smallest :math:`\varphi` with :math:`e^v \le 1 + \varphi v` on [0, v_max]: :math:`(e^{v}-1)/v` there.

    Parameters
    ----------
    bound : float
        v_max >= 0.

    Returns
    -------
    float
        At least 1; 1 at v_max = 0.
    """
    v = as_non_negative("bound", bound)
    return math.expm1(v) / v if v > 0 else 1.0


def checked_smoothness(n_outcomes: int, value: float | None) -> float:
    r"""L with :math:`\nabla\sigma \preceq LI` for all logits: the given one, or the smallest.

    Parameters
    ----------
    n_outcomes : int
        K >= 1.
    value : float or None
        L; None stands for `link.smoothness`.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If the given one is too small.
    """
    smallest = smoothness(as_integer("n_outcomes", n_outcomes, minimum=1))
    if value is None:
        return smallest
    if as_positive("smoothness", value) < smallest:
        raise ValueError(f"smoothness must be at least {smallest} for K={n_outcomes}, got {value}")
    return value


def _log_terms(progress: Progress, action_bound: float) -> float:
    r""":math:`Kd\ln\Delta_t^{\lambda/2} + m\ln\bigl(1 + \tfrac{2D^2t}{m\lambda}\bigr)`."""
    K, d, m, t = progress.n_outcomes, progress.n_features, progress.rank_bound, progress.rounds
    lam = progress.regularization
    rank_term = m * math.log1p(2.0 * action_bound**2 * t / (m * lam)) if m else 0.0
    return K * d * math.log1p(2.0 * progress.shrinkage / lam) + rank_term


def _alpha(n_outcomes: int, norm_bound: float, action_bound: float) -> float:
    return 2.0 * (1.0 + norm_bound * action_bound) + math.log(n_outcomes + 1)
