"""Representations of the accumulated Hessian: one interface, `Curvature`, and one file for each."""

from mlogb_core.curvature.base import Curvature
from mlogb_core.curvature.budgeted import BudgetedFrequentDirections
from mlogb_core.curvature.compensated import CompensatedFrequentDirections
from mlogb_core.curvature.dense import DenseCurvature
from mlogb_core.curvature.diagonal import DiagonalCurvature
from mlogb_core.curvature.doubling import DoublingFrequentDirections
from mlogb_core.curvature.dyadic import DyadicFrequentDirections
from mlogb_core.curvature.frequent_directions import FrequentDirections
from mlogb_core.curvature.growing_ridge import GrowingRidge
from mlogb_core.curvature.low_rank import LowRankCurvature
from mlogb_core.curvature.none import NoCurvature
from mlogb_core.curvature.robust import RobustFrequentDirections

__all__ = [
    "BudgetedFrequentDirections",
    "CompensatedFrequentDirections",
    "Curvature",
    "DenseCurvature",
    "DiagonalCurvature",
    "DoublingFrequentDirections",
    "DyadicFrequentDirections",
    "FrequentDirections",
    "GrowingRidge",
    "LowRankCurvature",
    "NoCurvature",
    "RobustFrequentDirections",
]
