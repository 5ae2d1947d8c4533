"""Rounds for actions with few non-zeros, whose cost does not grow with the number of features."""

from mlogb_core.sparse.features import SparseFeatures
from mlogb_core.sparse.policy import SparsePolicy

__all__ = ["SparseFeatures", "SparsePolicy"]
