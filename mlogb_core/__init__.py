"""The algorithms of EOFD-MLogB and OFUL-MLogB: small, readable, NumPy and SciPy only.

`link` has the multinomial logit model, `curvature` the representations of the accumulated Hessian,
`projection` the ellipsoidal projection, `radius` the confidence radius, `policies` how actions are selected,
`explanation` what a score consists of, `propensity` with which probability an action is played, `batch` the
choices for many contexts, `environments` and `simulation` what policies are tried on, `literal` the paper's
algorithms as they stand, and `printed` the same steps with all actions scored at once, as they are timed.
"""

from mlogb_core.batch import select_many
from mlogb_core.explanation import Explanation
from mlogb_core.policies import (
    OptimisticPolicy,
    RandomPolicy,
    ThompsonPolicy,
    eofd,
    first_order,
    oful,
    robust_eofd,
    thompson,
)
from mlogb_core.propensity import Propensities
from mlogb_core.radius import (
    ConstantRadius,
    RepairedRadius,
    RidgeRadius,
    TheoremRadius,
    radius_from,
    scaled_parameters,
    theorem_parameters,
)

__all__ = [
    "ConstantRadius",
    "Explanation",
    "OptimisticPolicy",
    "Propensities",
    "RandomPolicy",
    "RepairedRadius",
    "RidgeRadius",
    "TheoremRadius",
    "ThompsonPolicy",
    "eofd",
    "first_order",
    "oful",
    "radius_from",
    "robust_eofd",
    "scaled_parameters",
    "select_many",
    "theorem_parameters",
    "thompson",
]
