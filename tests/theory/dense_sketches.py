"""Sketches whose size or ridge follows their error, with dense matrices, for the tests of the bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: The size in force, from the eigenvalues before the shrink (falling, one 0 appended).
SizeRule = Callable[[Array], int]


class Moment(NamedTuple):
    """After a round: the sketch, what it is of, what the round subtracted, and the size in force."""

    sketch: Array
    total: Array
    subtracted: float
    size: int


def shrunk(hessians: Iterable[Array], size_of: SizeRule) -> list[Moment]:
    """Frequent Directions by eigendecompositions, for a size that may change from round to round."""
    moments: list[Moment] = []
    for G in hessians:
        n = len(G)
        sketch = moments[-1].sketch if moments else np.zeros((n, n))
        total = moments[-1].total if moments else np.zeros((n, n))
        values, Q = np.linalg.eigh(sketch + G)
        values, Q = np.append(np.maximum(values[::-1], 0.0), 0.0), Q[:, ::-1]
        m = min(size_of(values), n)
        kept = (Q[:, :m] * (values[:m] - values[m])) @ Q[:, :m].T
        moments.append(Moment(kept, total + G, float(values[m]), m))
    return moments


def fixed(size: int) -> SizeRule:
    """One size for all rounds."""
    return lambda values: size


def one_budget(budget: float, first: int = 1) -> SizeRule:
    """The size grows by one while the shrink would bring the sum of all shrinks above the budget."""
    state = {"size": first, "spent": 0.0}

    def size_of(values: Array) -> int:
        while state["size"] < values.size - 1 and state["spent"] + values[state["size"]] > budget:
            state["size"] += 1
        state["spent"] += values[min(state["size"], values.size - 1)]
        return int(state["size"])

    return size_of


def doubling(budget: float, first: int = 1) -> SizeRule:
    """The size doubles while the shrink would bring the sum of the shrinks at this size above the budget."""
    state = {"size": first, "spent": 0.0}

    def size_of(values: Array) -> int:
        n = values.size - 1
        while state["size"] < n and state["spent"] + values[state["size"]] > budget:
            state.update(size=min(2 * int(state["size"]), n), spent=0.0)
        state["spent"] += values[min(int(state["size"]), n)]
        return int(state["size"])

    return size_of
