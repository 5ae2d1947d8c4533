"""Thresholds that both forms of a round share; where they lie is a question of roundoff or of time."""

from __future__ import annotations

import numpy as np

_EPS = float(np.finfo(np.float64).eps)

#: Relative error at which a root search has ended.
ROUNDOFF = 8.0 * _EPS
#: The share of itself that roundoff may add to a bound that is attained, as it is for actions that were never
#: explored.
SLACK = 1e-12
#: With at least this share of its squared length outside the sketch, an action needs only one projection for
#: an orthonormal frame.
WELL_OUTSIDE = 0.1
#: Products of the basis with fresh directions up to which they count as orthogonal.
OVERLAP = 4.0 * _EPS
#: Squared lengths below which digits are lost to underflow.
SMALLEST_SQUARE = 1e-250
