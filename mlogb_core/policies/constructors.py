"""One constructor per algorithm: each builds a curvature and the policy over it from their parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mlogb_core._validation import as_rewards
from mlogb_core.curvature import (
    BudgetedFrequentDirections,
    CompensatedFrequentDirections,
    Curvature,
    DenseCurvature,
    DiagonalCurvature,
    DoublingFrequentDirections,
    DyadicFrequentDirections,
    FrequentDirections,
    GrowingRidge,
    NoCurvature,
    RobustFrequentDirections,
)
from mlogb_core.policies.optimistic import OptimisticPolicy, policy_class
from mlogb_core.policies.thompson import ThompsonPolicy
from mlogb_core.radius import Radius


def eofd(
    n_features: int,
    rewards: ArrayLike,
    *,
    sketch_size: int,
    regularization: float,
    step_size: float,
    norm_bound: float,
    radius: Radius,
    buffer: int = 1,
    compiled: bool = False,
) -> OptimisticPolicy:
    r"""EOFD-MLogB: the optimistic policy over a Frequent Directions sketch of at most m directions.

    Parameters
    ----------
    n_features : int
        d.
    rewards : (K,) array
        Rewards of the outcomes 1..K.
    sketch_size : int
        m >= 1; m >= Kd is exact.
    regularization, step_size, norm_bound : float
        :math:`\lambda`, :math:`\eta` and S, all positive.
    radius : Radius
        The rule for :math:`\beta_t`.
    buffer : int
        Rounds between two shrinks of the sketch; 1 is the paper's algorithm.
    compiled : bool
        Whether numba's kernels run the round; the iterates are the same up to roundoff.

    Returns
    -------
    OptimisticPolicy

    Raises
    ------
    ValueError
        If an argument is out of range; the message names it.
    ImportError
        If `compiled` is true and numba is not installed.

    Notes
    -----
    Paper: Algorithm 2 (`algo:fd-oful-mlogb`). How to choose the parameters:

    - `norm_bound`: an upper bound S of the norm of the true parameter; logits stay within S times the
      largest norm of an action.
    - `regularization`, `step_size`: `scaled_parameters` gives the paper's. To learn faster, start from
      1 and 0.5 and compare the regret of some pilot trials.
    - `radius`: `RidgeRadius(c)`, whose c = 1 covers the whole ball; c from 1e-4 to 1e-2 explores less and has
      lower regret in the experiments. `TheoremRadius` is the paper's, with a `scale`.

    The :doc:`API page </api>` of the book (``book/api.md``) works through an example.
    """
    rewards = as_rewards(rewards)
    sketch = FrequentDirections(rewards.size, n_features, regularization, sketch_size, buffer)
    policy = policy_class(compiled)
    return policy(sketch, rewards, step_size=step_size, norm_bound=norm_bound, radius=radius)


def robust_eofd(
    n_features: int,
    rewards: ArrayLike,
    *,
    sketch_size: int,
    regularization: float,
    step_size: float,
    norm_bound: float,
    radius: Radius,
    buffer: int = 1,
    compiled: bool = False,
) -> OptimisticPolicy:
    """EOFD-MLogB over Robust Frequent Directions, which add half of what they subtract to the ridge.

    Parameters
    ----------
    n_features, rewards, sketch_size, regularization, step_size, norm_bound, radius, buffer, compiled
        As in `eofd`.

    Returns
    -------
    OptimisticPolicy

    Raises
    ------
    ValueError
        If an argument is out of range; the message names it.
    ImportError
        If `compiled` is true and numba is not installed.
    """
    rewards = as_rewards(rewards)
    sketch = RobustFrequentDirections(rewards.size, n_features, regularization, sketch_size, buffer)
    policy = policy_class(compiled)
    return policy(sketch, rewards, step_size=step_size, norm_bound=norm_bound, radius=radius)


def compensated_eofd(
    n_features: int,
    rewards: ArrayLike,
    *,
    sketch_size: int,
    regularization: float,
    step_size: float,
    norm_bound: float,
    radius: Radius,
    share: float = 1.0,
    buffer: int = 1,
    compiled: bool = False,
) -> OptimisticPolicy:
    """EOFD-MLogB over a sketch that adds a share of what it subtracts to the ridge, by default all of it.

    Parameters
    ----------
    n_features, rewards, sketch_size, regularization, step_size, norm_bound, radius, buffer, compiled
        As in `eofd`.
    share : float
        c in [0, 1]; 0 is EOFD-MLogB, and 1/2 is `robust_eofd`.

    Returns
    -------
    OptimisticPolicy

    Raises
    ------
    ValueError
        If an argument is out of range; the message names it.
    ImportError
        If `compiled` is true and numba is not installed.
    """
    rewards = as_rewards(rewards)
    sketch = CompensatedFrequentDirections(
        rewards.size, n_features, regularization, sketch_size, buffer, share
    )
    policy = policy_class(compiled)
    return policy(sketch, rewards, step_size=step_size, norm_bound=norm_bound, radius=radius)


def budgeted_eofd(
    n_features: int,
    rewards: ArrayLike,
    *,
    sketch_size: int,
    budget: float,
    horizon: int,
    regularization: float,
    step_size: float,
    norm_bound: float,
    radius: Radius,
    open_ended: bool = False,
    largest_size: int | None = None,
    compensate: bool = False,
    compiled: bool = False,
) -> OptimisticPolicy:
    r"""EOFD-MLogB over a sketch whose size grows where it would lose more than a budget.

    Parameters
    ----------
    n_features, rewards, regularization, step_size, norm_bound, radius, compiled
        As in `eofd`.
    sketch_size : int
        m >= 1 at first.
    budget : float
        :math:`\varepsilon > 0`: the sketch loses at most :math:`\varepsilon\lambda`.
    horizon : int
        T >= 1, the number of rounds, over which the budget is spent evenly.
    open_ended : bool
        Whether T is only a guess of the number of rounds.
    largest_size : int, optional
        The largest m; by default Kd.
    compensate : bool
        Whether, at the largest m, a shrink beyond the budget adds what it subtracts to the ridge.

    Returns
    -------
    OptimisticPolicy

    Raises
    ------
    ValueError
        If an argument is out of range; the message names it.
    ImportError
        If `compiled` is true and numba is not installed.
    """
    rewards = as_rewards(rewards)
    sketch = BudgetedFrequentDirections(
        rewards.size, n_features, regularization, sketch_size, budget, horizon, open_ended, largest_size,
        compensate,
    )  # fmt: skip
    policy = policy_class(compiled)
    return policy(sketch, rewards, step_size=step_size, norm_bound=norm_bound, radius=radius)


def doubling_eofd(
    n_features: int,
    rewards: ArrayLike,
    *,
    sketch_size: int,
    budget: float,
    regularization: float,
    step_size: float,
    norm_bound: float,
    radius: Radius,
    falling: bool = False,
    compiled: bool = False,
) -> OptimisticPolicy:
    r"""EOFD-MLogB over a sketch whose size doubles where a phase would lose more than its budget.

    Parameters
    ----------
    n_features, rewards, regularization, step_size, norm_bound, radius, compiled
        As in `eofd`.
    sketch_size : int
        m >= 1 at first.
    budget : float
        :math:`\varepsilon > 0`; a phase loses at most :math:`\varepsilon\lambda`.
    falling : bool
        Whether the budgets of the phases fall, so that all of them together lose at most
        :math:`\varepsilon\lambda`.

    Returns
    -------
    OptimisticPolicy

    Raises
    ------
    ValueError
        If an argument is out of range; the message names it.
    ImportError
        If `compiled` is true and numba is not installed.
    """
    rewards = as_rewards(rewards)
    sketch = DoublingFrequentDirections(
        rewards.size, n_features, regularization, sketch_size, budget, falling
    )
    policy = policy_class(compiled)
    return policy(sketch, rewards, step_size=step_size, norm_bound=norm_bound, radius=radius)


def dyadic_eofd(
    n_features: int,
    rewards: ArrayLike,
    *,
    sketch_size: int,
    budget: float,
    regularization: float,
    step_size: float,
    norm_bound: float,
    radius: Radius,
    compiled: bool = False,
) -> OptimisticPolicy:
    r"""EOFD-MLogB over sketches of consecutive blocks of the stream, each of twice the size before it.

    Parameters
    ----------
    n_features, rewards, regularization, step_size, norm_bound, radius, compiled
        As in `eofd`.
    sketch_size : int
        Size of the first block, at least 1.
    budget : float
        :math:`\varepsilon > 0`: all blocks together lose at most :math:`\varepsilon\lambda`.

    Returns
    -------
    OptimisticPolicy

    Raises
    ------
    ValueError
        If an argument is out of range; the message names it.
    ImportError
        If `compiled` is true and numba is not installed.
    """
    rewards = as_rewards(rewards)
    sketch = DyadicFrequentDirections(rewards.size, n_features, regularization, sketch_size, budget)
    policy = policy_class(compiled)
    return policy(sketch, rewards, step_size=step_size, norm_bound=norm_bound, radius=radius)


def oful(
    n_features: int,
    rewards: ArrayLike,
    *,
    regularization: float,
    step_size: float,
    norm_bound: float,
    radius: Radius,
    compiled: bool = False,
) -> OptimisticPolicy:
    """OFUL-MLogB: the optimistic policy over the full Kd x Kd Hessian.

    Parameters
    ----------
    n_features, rewards, regularization, step_size, norm_bound, radius, compiled
        As in `eofd`.

    Returns
    -------
    OptimisticPolicy

    Raises
    ------
    ValueError
        If an argument is out of range; the message names it.
    ImportError
        If `compiled` is true and numba is not installed.

    Notes
    -----
    Paper: section `ssec:logistic-bandit-setting`. How to choose the parameters:

    - `norm_bound`: an upper bound S of the norm of the true parameter.
    - `regularization`, `step_size`: `scaled_parameters`, or 1 and 0.5 and a comparison of pilot trials.
    - `radius`: `RidgeRadius(c)` with c from 1e-4 to 1e-2, or `TheoremRadius` with a `scale`.

    `eofd` says why, and the :doc:`API page </api>` of the book (``book/api.md``) works through an example.
    """
    rewards = as_rewards(rewards)
    hessian = DenseCurvature(rewards.size, n_features, regularization)
    policy = policy_class(compiled)
    return policy(hessian, rewards, step_size=step_size, norm_bound=norm_bound, radius=radius)


def first_order(
    n_features: int,
    rewards: ArrayLike,
    *,
    regularization: float,
    step_size: float,
    norm_bound: float,
    radius: Radius,
    compiled: bool = False,
) -> OptimisticPolicy:
    r"""The first-order baseline: the optimistic policy over :math:`Z = \lambda I`, without curvature.

    Parameters
    ----------
    n_features, rewards, regularization, step_size, norm_bound, radius, compiled
        As in `eofd`.

    Returns
    -------
    OptimisticPolicy

    Raises
    ------
    ValueError
        If an argument is out of range; the message names it.
    ImportError
        If `compiled` is true and numba is not installed.
    """
    rewards = as_rewards(rewards)
    identity = NoCurvature(rewards.size, n_features, regularization)
    policy = policy_class(compiled)
    return policy(identity, rewards, step_size=step_size, norm_bound=norm_bound, radius=radius)


def growing_ridge(
    n_features: int,
    rewards: ArrayLike,
    *,
    regularization: float,
    step_size: float,
    norm_bound: float,
    radius: Radius,
    growth: float = 1.0,
    compiled: bool = False,
) -> OptimisticPolicy:
    r"""The first-order policy whose ridge grows with the trace of the Hessians: the control for every sketch.

    Parameters
    ----------
    n_features, rewards, regularization, step_size, norm_bound, radius, compiled
        As in `eofd`.
    growth : float
        c > 0, the multiple of the trace.

    Returns
    -------
    OptimisticPolicy

    Raises
    ------
    ValueError
        If an argument is out of range; the message names it.
    ImportError
        If `compiled` is true and numba is not installed.
    """
    rewards = as_rewards(rewards)
    ridge = GrowingRidge(rewards.size, n_features, regularization, growth)
    policy = policy_class(compiled)
    return policy(ridge, rewards, step_size=step_size, norm_bound=norm_bound, radius=radius)


def diagonal(
    n_features: int,
    rewards: ArrayLike,
    *,
    regularization: float,
    step_size: float,
    norm_bound: float,
    radius: Radius,
    compiled: bool = False,
) -> OptimisticPolicy:
    """The optimistic policy over the diagonal of the Hessian.

    Parameters
    ----------
    n_features, rewards, regularization, step_size, norm_bound, radius, compiled
        As in `eofd`.

    Returns
    -------
    OptimisticPolicy

    Raises
    ------
    ValueError
        If an argument is out of range; the message names it.
    ImportError
        If `compiled` is true and numba is not installed.
    """
    rewards = as_rewards(rewards)
    curvature = DiagonalCurvature(rewards.size, n_features, regularization)
    policy = policy_class(compiled)
    return policy(curvature, rewards, step_size=step_size, norm_bound=norm_bound, radius=radius)


def thompson(
    n_features: int,
    rewards: ArrayLike,
    *,
    rng: np.random.Generator,
    regularization: float,
    step_size: float,
    norm_bound: float,
    radius: Radius,
    sketch_size: int | None = None,
    buffer: int = 1,
) -> ThompsonPolicy:
    """Thompson sampling over a Frequent Directions sketch, or over the full Hessian.

    Parameters
    ----------
    n_features, rewards, regularization, step_size, norm_bound, radius, buffer
        As in `eofd`.
    rng : numpy.random.Generator
        The stream of its draws.
    sketch_size : int, optional
        m >= 1; without it the curvature is the full Kd x Kd Hessian.

    Returns
    -------
    ThompsonPolicy

    Raises
    ------
    ValueError
        If an argument is out of range; the message names it.
    """
    rewards = as_rewards(rewards)
    sizes = rewards.size, n_features, regularization
    curvature: Curvature[Any] = (
        DenseCurvature(*sizes) if sketch_size is None else FrequentDirections(*sizes, sketch_size, buffer)
    )
    return ThompsonPolicy(
        curvature, rewards, rng=rng, step_size=step_size, norm_bound=norm_bound, radius=radius
    )
