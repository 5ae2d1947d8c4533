r"""Frequent Directions that give back what a shrink subtracts: a share c of it is added to the ridge.

Frequent Directions loses what a shrink subtracts, so that :math:`Z \preceq H \preceq Z + \rho I` for the full
Hessian H. With :math:`c\rho` in the ridge,

.. math:: Z - c\rho I \preceq H \preceq Z + (1 - c)\rho I .

With c = 1/2 Z lies in the middle of these bounds: Robust Frequent Directions. With c = 1 no Hessian of the
stream exceeds Z, and Z never decreases.
"""

from __future__ import annotations

from mlogb_core._validation import as_share
from mlogb_core.curvature.frequent_directions import FrequentDirections


class CompensatedFrequentDirections(FrequentDirections):
    r"""Sketch :math:`Z = (\lambda + c\rho) I + B^\top C B`.

    Parameters
    ----------
    n_outcomes, n_features, regularization, sketch_size, buffer
        As in `FrequentDirections`, which has the same basis, core and shrinkage on the same stream.
    share : float
        c in [0, 1]; 0 is Frequent Directions.

    Notes
    -----
    Not in the paper. c = 1 is spectral compensation (Chen et al. 2020), and c = 1/2 the proposal of Luo et
    al. (2019). For every c

    .. math:: \frac{\lambda}{\lambda + c\rho} Z \preceq H \preceq \frac{\lambda + \rho}{\lambda + c\rho} Z .

    For c < 1 a shrink may decrease Z. `TheoremRadius` is derived for the sketch of the paper and is not a
    confidence radius for this one.
    """

    arguments = (*FrequentDirections.arguments, "share")

    def __init__(
        self,
        n_outcomes: int,
        n_features: int,
        regularization: float,
        sketch_size: int,
        buffer: int = 1,
        share: float = 1.0,
    ) -> None:
        super().__init__(n_outcomes, n_features, regularization, sketch_size, buffer)
        self.share = as_share("share", share)

    @property
    def ridge(self) -> float:
        r""":math:`\lambda + c\rho`."""
        return self.regularization + self.share * self.shrinkage
