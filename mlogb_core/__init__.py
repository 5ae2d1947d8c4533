"""The algorithms of EOFD-MLogB and OFUL-MLogB: small, readable, NumPy and SciPy only.

`link` has the multinomial logit model, `curvature` the representations of the accumulated Hessian,
`projection` the ellipsoidal projection, `confidence` the radius, `policies` the optimistic policy,
`environments` and `simulation` what it is tried on, `literal` the paper's algorithms as they stand,
and `printed` the same steps with all actions scored at once, as they are timed.
"""

from mlogb_core.confidence import ConstantRadius, RidgeRadius, TheoremRadius, radius_from
from mlogb_core.policies import OptimisticPolicy, RandomPolicy, eofd, first_order, oful

__all__ = [
    "ConstantRadius",
    "OptimisticPolicy",
    "RandomPolicy",
    "RidgeRadius",
    "TheoremRadius",
    "eofd",
    "first_order",
    "oful",
    "radius_from",
]
