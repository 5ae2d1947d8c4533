"""Objects whose arrays are their own, so that they can be changed in place.

BLAS and compiled kernels write through the read-only flag of an array. Where an object was unpickled, its
arrays may be mapped read-only from a file (joblib does so for a worker's arguments above a size, and on
demand when it loads), or lie in a buffer that others use; after `copy.copy` two objects share them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Self

import numpy as np


class Owned:
    """An object that takes its own copies of the arrays with which it is restored, and none from another.

    Notes
    -----
    `copy.copy` is as deep as `copy.deepcopy`: of two policies that share a curvature each would change
    what the other has learned.
    """

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update({name: _owned(value) for name, value in state.items()})

    def __copy__(self) -> Self:
        return copy.deepcopy(self)


def _owned(value: Any) -> Any:
    """The value with each array, also in tuples, in writable memory of its own, with its axes' order."""
    if isinstance(value, tuple):
        parts = [_owned(part) for part in value]
        return value._make(parts) if hasattr(value, "_make") else tuple(parts)
    if not isinstance(value, np.ndarray):
        return value
    own = type(value) is np.ndarray and value.flags.owndata and value.flags.behaved
    return value if own else np.array(value, order="K")
