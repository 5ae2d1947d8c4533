r"""Robust Frequent Directions: a shrink adds half of what it subtracts to the ridge."""

from __future__ import annotations

from mlogb_core.curvature.compensated import CompensatedFrequentDirections
from mlogb_core.curvature.frequent_directions import FrequentDirections


class RobustFrequentDirections(CompensatedFrequentDirections):
    r"""Sketch :math:`Z = (\lambda + \rho/2) I + B^\top C B`.

    Parameters
    ----------
    n_outcomes, n_features, regularization, sketch_size, buffer
        As in `FrequentDirections`.

    Notes
    -----
    Not in the paper; proposed by Luo et al. (2019). It is `CompensatedFrequentDirections` with the share 1/2:
    :math:`Z - \tfrac\rho2 I \preceq H \preceq Z + \tfrac\rho2 I` for the full Hessian H.
    """

    arguments = FrequentDirections.arguments

    def __init__(
        self, n_outcomes: int, n_features: int, regularization: float, sketch_size: int, buffer: int = 1
    ) -> None:
        super().__init__(n_outcomes, n_features, regularization, sketch_size, buffer, share=0.5)
