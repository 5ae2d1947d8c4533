"""Policies: they select an action in each round and learn from its outcome."""

from mlogb_core.policies.base import Policy
from mlogb_core.policies.constructors import (
    budgeted_eofd,
    compensated_eofd,
    diagonal,
    doubling_eofd,
    dyadic_eofd,
    eofd,
    first_order,
    growing_ridge,
    oful,
    robust_eofd,
    thompson,
)
from mlogb_core.policies.newton import NewtonPolicy, movement
from mlogb_core.policies.optimistic import OptimisticPolicy
from mlogb_core.policies.random import RandomPolicy
from mlogb_core.policies.thompson import ThompsonPolicy

__all__ = [
    "NewtonPolicy",
    "OptimisticPolicy",
    "Policy",
    "RandomPolicy",
    "ThompsonPolicy",
    "budgeted_eofd",
    "compensated_eofd",
    "diagonal",
    "doubling_eofd",
    "dyadic_eofd",
    "eofd",
    "first_order",
    "growing_ridge",
    "movement",
    "oful",
    "robust_eofd",
    "thompson",
]
