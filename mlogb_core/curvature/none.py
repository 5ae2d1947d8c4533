r"""No curvature: :math:`Z = \lambda I` in all rounds, the first-order baseline.

A regret curve beside this one shows whether the accumulated Hessian has an effect.
"""

from __future__ import annotations

from mlogb_core._validation import Array
from mlogb_core.curvature.low_rank import LowRankCurvature, LowRankFrame


class NoCurvature(LowRankCurvature):
    r"""The low-rank curvature whose rank stays 0.

    Parameters
    ----------
    n_outcomes, n_features, regularization
        As in `Curvature`.

    Notes
    -----
    Not in the paper. As in every proximal Newton step here, the step's matrix contains the Hessian of the
    round itself, :math:`\tilde Z = \lambda I + \eta\nabla^2\ell_t(W_t)`; it is not kept for later rounds.
    """

    def add(self, frame: LowRankFrame, factor: Array, coordinates: Array | None = None) -> None:
        """Count the update and keep nothing of it."""
        self.check_order(frame)
        self._end_round()

    def _end_round(self) -> None:
        self.updates += 1
