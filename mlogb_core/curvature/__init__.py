"""Representations of the accumulated Hessian: one interface, `Curvature`, and one file for each."""

from mlogb_core.curvature.base import Curvature
from mlogb_core.curvature.dense import DenseCurvature
from mlogb_core.curvature.frequent_directions import FrequentDirections
from mlogb_core.curvature.low_rank import LowRankCurvature
from mlogb_core.curvature.none import NoCurvature
from mlogb_core.curvature.robust import RobustFrequentDirections

__all__ = [
    "Curvature",
    "DenseCurvature",
    "FrequentDirections",
    "LowRankCurvature",
    "NoCurvature",
    "RobustFrequentDirections",
]
