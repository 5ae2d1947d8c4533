r"""CBSCFD: a linear bandit whose Gram matrix is sketched with spectral compensation."""

from __future__ import annotations

import math

from mlogb_core.rivals.linear import SketchedLinearBandit


class CBSCFD(SketchedLinearBandit):
    r"""CBSCFD of Chen, Luo, Zhang, Zhang, Xu and Wen (2020), on the expected reward.

    What it plays and its parameters are those of `SketchedLinearBandit` with c = 1, and

    .. math:: \mathsf b_t = R_n\sqrt{\iota_t} + S\sqrt{\lambda + \rho}.

    Notes
    -----
    "Efficient and robust high-dimensional linear contextual bandits", IJCAI 2020. The public code takes
    decimal logarithms, leaves the factor S out and multiplies the width by 0.01; here the width is the one
    that follows from :math:`\sum x_sx_s^\top \preceq Z - \lambda I`, and `scale` is the user's.
    """

    share = 1.0

    def _theory_width(self) -> float:
        return self.noise + self.norm_bound * math.sqrt(self.curvature.ridge)
