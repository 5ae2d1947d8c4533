"""Policies of other papers, for comparison: each file says the formula, its source and how it deviates.

All have the interface `mlogb_core.policies.Policy` and are made in the same way, from the number of features and
the rewards. `scale` multiplies the width of the confidence set of an optimistic one, and 1 is its theory; an
argument that is None has the value that the theory asks for. Methods for two outcomes (K = 1) refuse more.

OFU-MNL+, OFU-MNL++ and the other policies of the multinomial logit choice model are not here. There the player
offers an assortment of items, one parameter is shared by all items, and the outcome is the item that was bought.
Here the player picks one action, and each outcome has a parameter of its own: the two problems have the link in
common, and no policy of one plays the other.
"""

from mlogb_core.rivals.base import Rival

__all__ = ["Rival"]
