r"""Robust Frequent Directions: a shrink adds half of what it subtracts to the ridge.

Frequent Directions loses what a shrink subtracts, so that :math:`Z \preceq H \preceq Z + \rho I` for the full
Hessian H. With half of it in the ridge, Z lies in the middle of these bounds:
:math:`Z - \tfrac\rho2 I \preceq H \preceq Z + \tfrac\rho2 I`.
"""

from __future__ import annotations

from mlogb_core.curvature.frequent_directions import FrequentDirections


class RobustFrequentDirections(FrequentDirections):
    r"""Sketch :math:`Z = (\lambda + \rho/2) I + B^\top C B`.

    Parameters
    ----------
    n_outcomes, n_features, regularization, sketch_size, buffer
        As in `FrequentDirections`, which has the same basis, core and shrinkage on the same stream.

    Notes
    -----
    Not in the paper; proposed by Luo et al. (2019). `TheoremRadius` is derived for the sketch of the paper
    and is not a confidence radius for this one.
    """

    @property
    def ridge(self) -> float:
        r""":math:`\lambda + \rho/2`."""
        return self.regularization + 0.5 * self.shrinkage
