"""Thresholds of a round, all but one of which its NumPy and its compiled form share.

They separate cases that give the same result up to roundoff, so that their values affect accuracy in the last
digits and time, and nothing else.
"""

from __future__ import annotations

import numpy as np

_EPS = float(np.finfo(np.float64).eps)

#: Relative error at which a root search has ended.
ROUNDOFF = 8.0 * _EPS
#: Relative slack of an upper bound of a score. The bound is attained for actions in unexplored directions,
#: and there roundoff alone may place the score above it.
SLACK = 1e-12
#: If more than this share of an action's squared length lies outside the span of the basis, one projection
#: gives an orthonormal frame. Below it the frame takes a rank decision.
WELL_OUTSIDE = 0.1
#: In place of that, the compiled form projects a second time down to this share. That removes what the first
#: projection has left: four of sixteen digits.
OUTSIDE = 1e-4
#: Fresh directions count as orthogonal to the basis if no product with one of its rows exceeds this.
OVERLAP = 4.0 * _EPS
#: Below this squared length of an action, products lose digits to underflow.
SMALLEST_SQUARE = 1e-250
