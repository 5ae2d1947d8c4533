r"""SOFUL: a linear bandit whose Gram matrix is sketched by Frequent Directions."""

from __future__ import annotations

import math

from mlogb_core.rivals.linear import SketchedLinearBandit


class SOFUL(SketchedLinearBandit):
    r"""Sketched OFUL of Kuzborskij, Cella and Cesa-Bianchi (2019), on the expected reward.

    What it plays and its parameters are those of `SketchedLinearBandit` with c = 0, and

    .. math:: \mathsf b_t = R_n\sqrt{\iota_t}\,\sqrt{1 + \frac\rho\lambda}
              + S\sqrt\lambda\,\Bigl(1 + \frac\rho\lambda\Bigr).

    Notes
    -----
    "Efficient linear bandits through matrix sketching", AISTATS 2019. The width was derived again for this
    project, from :math:`Z \preceq \lambda I + \sum x_sx_s^\top \preceq Z + \rho I`.
    """

    share = 0.0

    def _theory_width(self) -> float:
        ridge = self.curvature.regularization
        loss = 1.0 + self.curvature.shrinkage / ridge
        return self.noise * math.sqrt(loss) + self.norm_bound * math.sqrt(ridge) * loss
