"""What is shown of runs: figures, tables, and the page of results.

Imports: system, experiments, runs, claims.

A change here changes how results look.
"""

# Notebooks of recorded runs call these as functions of `compendium.report`, which was one module.
from compendium.report.equal_regret import TOLERANCE, relative_regret, smallest_equal, spread_over_grid
from compendium.report.speed import fit_round_time, obstacle, reach
from compendium.report.tables import (
    comparison_findings,
    curvature_table,
    mnist_findings,
    paired_differences,
    regret_table,
    time_findings,
    time_table,
)

__all__ = [
    "TOLERANCE",
    "comparison_findings",
    "curvature_table",
    "fit_round_time",
    "mnist_findings",
    "obstacle",
    "paired_differences",
    "reach",
    "regret_table",
    "relative_regret",
    "smallest_equal",
    "spread_over_grid",
    "time_findings",
    "time_table",
]
