"""Policies and curvatures own their arrays, since updates change these in place.

An unpickled object may hold arrays that are mapped read-only from a file, as joblib does with large arguments
of workers, or that lie in a buffer which other code uses; and after a shallow copy two objects share their
arrays. BLAS and compiled kernels ignore the read-only flag, so they would write into memory that is not
theirs. `Owned` copies such arrays.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Self

import numpy as np


class Owned:
    """Base class of objects that copy every array which they are given when they are unpickled or copied.

    Notes
    -----
    `copy.copy` makes a deep copy: two policies that shared one curvature would each change what the other
    has learned.
    """

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update({name: _owned(value) for name, value in state.items()})

    def __copy__(self) -> Self:
        return copy.deepcopy(self)


def _owned(value: Any) -> Any:
    """The value with its arrays, also those in tuples, in writable memory of their own, same layout."""
    if isinstance(value, tuple):
        parts = [_owned(part) for part in value]
        return value._make(parts) if hasattr(value, "_make") else tuple(parts)
    if not isinstance(value, np.ndarray):
        return value
    own = type(value) is np.ndarray and value.flags.owndata and value.flags.behaved
    return value if own else np.array(value, order="K")
