"""Policies of other papers, for comparison: each file says the formula, its source and how it deviates.

All have the interface `mlogb_core.policies.Policy` and are made in the same way, from the number of features
and the rewards. `scale` multiplies the width of the confidence set of an optimistic policy, and 1 is its
theory; an argument that is None has the value that the theory asks for. Methods for two outcomes (K = 1)
refuse more. An optimistic policy takes a `radius`, a rule of `mlogb_core.radius`, in place of its theory's
width, so that several can be compared at the same one.

OFU-MNL+, OFU-MNL++ and the other policies of the multinomial logit choice model are not here. There the
player offers an assortment of items, one parameter serves all of them, and the outcome is the item that was
bought. Here the player picks one action, and each outcome has a parameter of its own. The two problems have
the link in common, and no policy of one plays the other.
"""

from mlogb_core.rivals.base import Rival
from mlogb_core.rivals.boudart import Boudart
from mlogb_core.rivals.cbscfd import CBSCFD
from mlogb_core.rivals.ecolog import ECOLog
from mlogb_core.rivals.epsilon_greedy import EpsilonGreedy
from mlogb_core.rivals.glb_omd import GLBOMD
from mlogb_core.rivals.mnl_ucb import MNLUCB
from mlogb_core.rivals.mnl_ucb_2 import MNLUCB2
from mlogb_core.rivals.ofuglb import OFUGLB
from mlogb_core.rivals.ol2m import OL2M
from mlogb_core.rivals.rs_mnl import RSMNL
from mlogb_core.rivals.sgd_ts import SGDTS
from mlogb_core.rivals.soful import SOFUL
from mlogb_core.rivals.squarecb import SquareCB

__all__ = [
    "CBSCFD",
    "GLBOMD",
    "MNLUCB",
    "MNLUCB2",
    "OFUGLB",
    "OL2M",
    "RSMNL",
    "SGDTS",
    "SOFUL",
    "Boudart",
    "ECOLog",
    "EpsilonGreedy",
    "Rival",
    "SquareCB",
]
