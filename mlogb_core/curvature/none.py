r"""No curvature: :math:`Z = \lambda I` for ever, the first-order reference line.

Beside every regret curve this one tells whether the accumulated Hessian is doing anything.
"""

from __future__ import annotations

from mlogb_core._validation import Array
from mlogb_core.curvature.low_rank import LowRankCurvature, LowRankFrame


class NoCurvature(LowRankCurvature):
    r"""The low-rank curvature whose rank stays 0.

    Parameters
    ----------
    n_outcomes, n_features : int
        K >= 1 and d >= 1.
    regularization : float
        :math:`\lambda > 0`.

    Notes
    -----
    Not in the paper. The step still contains the current round's Hessian,
    :math:`\tilde Z = \lambda I + \eta\nabla^2\ell_t(W_t)`, as in every proximal Newton step here;
    nothing of it is kept.
    """

    def add(self, frame: LowRankFrame, factor: Array, coordinates: Array | None = None) -> None:
        """Keep nothing."""
        self.check_order(frame)
        self.updates += 1
