"""The former name of `mlogb_core.radius`, under which notebooks of committed runs import it."""

from mlogb_core.radius import ConstantRadius as ConstantRadius
from mlogb_core.radius import Progress as Progress
from mlogb_core.radius import RidgeRadius as RidgeRadius
from mlogb_core.radius import TheoremRadius as TheoremRadius
from mlogb_core.radius import radius_from as radius_from
from mlogb_core.radius import scaled_parameters as scaled_parameters
from mlogb_core.radius import theorem_parameters as theorem_parameters
