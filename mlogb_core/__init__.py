"""The algorithms of EOFD-MLogB and OFUL-MLogB: small, readable, NumPy and SciPy only.

`link` is the multinomial logit model, `curvature` holds the representations of the accumulated Hessian,
`projection` is the ellipsoidal projection, `radius` the confidence radius and `observed` what a radius can
compute after a round. `policies` selects actions and learns from outcomes; `choice` has the rule for ties,
and `sparse` plays actions with few non-zeros among many features. `explanation` says what a score consists
of, `propensity` with which probability an action is selected, and `batch` decides in many contexts at once.
`rivals` has policies of other papers, for comparison. `environments` and `simulation` are the problems and
the trials that policies play.
`literal` follows the paper line by line and is the oracle of the tests; `printed` takes the same steps with
all actions scored at once and is what the benchmarks time. `compiled` is the round in numba (optional).
"""

from mlogb_core.batch import select_many
from mlogb_core.explanation import Explanation
from mlogb_core.policies import (
    OptimisticPolicy,
    RandomPolicy,
    ThompsonPolicy,
    budgeted_eofd,
    compensated_eofd,
    diagonal,
    doubling_eofd,
    dyadic_eofd,
    eofd,
    first_order,
    growing_ridge,
    oful,
    robust_eofd,
    thompson,
)
from mlogb_core.propensity import Propensities
from mlogb_core.radius import (
    ConstantRadius,
    LogDetRadius,
    ObservedRadius,
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
    "LogDetRadius",
    "ObservedRadius",
    "OptimisticPolicy",
    "Propensities",
    "RandomPolicy",
    "RepairedRadius",
    "RidgeRadius",
    "TheoremRadius",
    "ThompsonPolicy",
    "budgeted_eofd",
    "compensated_eofd",
    "diagonal",
    "doubling_eofd",
    "dyadic_eofd",
    "eofd",
    "first_order",
    "growing_ridge",
    "oful",
    "radius_from",
    "robust_eofd",
    "scaled_parameters",
    "select_many",
    "theorem_parameters",
    "thompson",
]
