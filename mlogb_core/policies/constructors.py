"""The policies by name: a curvature and the policy over it, from their parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mlogb_core._validation import as_rewards
from mlogb_core.curvature import (
    Curvature,
    DenseCurvature,
    FrequentDirections,
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
    """EOFD-MLogB: the optimistic policy over a Frequent Directions sketch of at most m directions.

    Parameters
    ----------
    n_features : int
        d.
    rewards : (K,) array
        Rewards of the outcomes 1..K.
    sketch_size : int
        m >= 1; m >= Kd is exact.
    regularization, step_size, norm_bound : float
        Lambda, eta and S, all positive.
    radius : Radius
        The rule for beta.
    buffer : int
        Rounds between two shrinks of the sketch; 1 is the paper's algorithm.
    compiled : bool
        Whether numba's kernels run the round; the iterates are the same to roundoff.

    Returns
    -------
    OptimisticPolicy

    Raises
    ------
    ImportError
        If numba is asked for and not installed.
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
) -> OptimisticPolicy:
    """EOFD-MLogB over Robust Frequent Directions, which return to the ridge half of what they subtract.

    Parameters as in `eofd`; there is no compiled form.
    """
    rewards = as_rewards(rewards)
    sketch = RobustFrequentDirections(rewards.size, n_features, regularization, sketch_size, buffer)
    return OptimisticPolicy(sketch, rewards, step_size=step_size, norm_bound=norm_bound, radius=radius)


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
    """OFUL-MLogB: the optimistic policy over the full Kd x Kd Hessian; parameters as in `eofd`."""
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
) -> OptimisticPolicy:
    """No curvature: the optimistic policy over lambda I for ever; parameters as in `eofd`."""
    rewards = as_rewards(rewards)
    identity = NoCurvature(rewards.size, n_features, regularization)
    return OptimisticPolicy(identity, rewards, step_size=step_size, norm_bound=norm_bound, radius=radius)


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
    """Thompson sampling over a Frequent Directions sketch, or over the full matrix; parameters as in `eofd`.

    Parameters
    ----------
    rng : numpy.random.Generator
        The stream that it draws from.
    sketch_size : int, optional
        m >= 1; without it the curvature is the full Kd x Kd Hessian.

    Returns
    -------
    ThompsonPolicy
    """
    rewards = as_rewards(rewards)
    sizes = rewards.size, n_features, regularization
    curvature: Curvature[Any] = (
        DenseCurvature(*sizes) if sketch_size is None else FrequentDirections(*sizes, sketch_size, buffer)
    )
    return ThompsonPolicy(
        curvature, rewards, rng=rng, step_size=step_size, norm_bound=norm_bound, radius=radius
    )
