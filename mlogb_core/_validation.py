"""Checks of arguments, with messages that name the argument and what was expected.

What comes from outside is converted here, once: arrays to float64, C-contiguous and finite. What a round
hands from one function to the next is not checked again. The caller's array is never changed, and an input of
another type or layout gives the same result as its contiguous float64 copy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse

Array = NDArray[np.float64]


def as_finite(name: str, value: ArrayLike) -> Array:
    """Return `value` as a contiguous float64 array, or raise if it holds anything but finite numbers."""
    array = value if is_plain(value) else _converted(name, value)
    # A finite sum of squares proves that all numbers are finite; an infinite one may also be an overflow.
    if math.isfinite(np.vdot(array, array)):
        return array
    finite = np.isfinite(array)
    if not finite.all():
        place = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise ValueError(f"{name} must be finite, got {array[place]} at index {place} of shape {array.shape}")
    return array


def is_plain(value: ArrayLike) -> TypeGuard[Array]:
    """Whether the array needs no conversion; skipping it saves most of the time of a check."""
    return (
        type(value) is np.ndarray
        and value.dtype == np.float64
        and value.flags.c_contiguous
        and value.flags.aligned
        and value.ndim > 0
    )


def _converted(name: str, value: ArrayLike) -> Array:
    if is_sparse(value):
        return np.asarray(_canonical(name, value).toarray()).reshape(value.shape)
    if np.ma.is_masked(value):
        raise ValueError(f"{name} must have no masked entries")
    try:
        raw = np.asarray(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be an array of real numbers, got {type(value).__name__}") from None
    if raw.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be an array of real numbers, got dtype {raw.dtype}")
    # Without alignment, the instructions of an old processor end the process.
    return np.require(raw, np.float64, ("C_CONTIGUOUS", "ALIGNED"))


def as_actions(value: ArrayLike, n_features: int) -> tuple[Array, Array]:
    """Return an action set as an (n, d) array with n >= 1, and the squared lengths of its rows.

    The check that all numbers are finite computes these lengths, and a policy needs them as well.
    """
    actions = value if is_plain(value) else _converted("actions", value)
    if actions.ndim != 2 or actions.shape[0] < 1 or actions.shape[1] != n_features:
        hint = " (is the bias column missing?)" if actions.shape[-1:] == (n_features - 1,) else ""
        raise ValueError(
            f"actions must have shape (n, {n_features}) with n >= 1, got {actions.shape}; "
            f"the policy was built with n_features={n_features}{hint}"
        )
    squares = squared_lengths(actions)
    if not math.isfinite(sum(squares.tolist())):
        as_finite("actions", actions)
    return actions, squares


def is_sparse(value: Any) -> TypeGuard[Any]:
    """Whether the value is an array or a matrix of `scipy.sparse`."""
    return bool(issparse(value))


def as_dense(value: ArrayLike | csr_array) -> Array:
    """Return actions in float64, sparse ones as a dense array, without a check."""
    return np.asarray(value.toarray() if is_sparse(value) else value, dtype=np.float64)


def as_sparse_actions(value: ArrayLike | csr_array, n_features: int) -> tuple[csr_array, Array]:
    """Return an action set as an (n, d) CSR array in canonical form, and the squared lengths of its rows.

    Rows with repeated or unsorted indices are put in order in a copy, and entries that are 0 are dropped.
    """
    if not is_sparse(value):
        return _with_squares("actions", csr_array(as_actions(value, n_features)[0]))
    if value.ndim != 2 or value.shape[0] < 1 or value.shape[1] != n_features:
        raise ValueError(
            f"actions must have shape (n, {n_features}) with n >= 1, got {value.shape}; "
            f"the policy was built with n_features={n_features}"
        )
    return _with_squares("actions", value)


def as_sparse_action(value: ArrayLike | csr_array, n_features: int) -> tuple[csr_array, float]:
    """Return one action as a (1, d) CSR array in canonical form, and its squared length."""
    if not is_sparse(value):
        value = csr_array(as_vector("action", value, n_features)[None])
    if value.shape not in ((n_features,), (1, n_features)):
        raise ValueError(f"action must have shape ({n_features},) or (1, {n_features}), got {value.shape}")
    row, squares = _with_squares("action", value)
    return row, float(squares[0])


def _with_squares(name: str, value: Any) -> tuple[csr_array, Array]:
    rows = _canonical(name, value)
    with np.errstate(over="ignore", under="ignore"):
        # The cumulative sum of the squares would round, and `reduceat` does not know empty rows.
        squares = np.zeros(rows.shape[0])
        filled = np.flatnonzero(np.diff(rows.indptr))
        if filled.size:
            squares[filled] = np.add.reduceat(rows.data**2, rows.indptr[filled])
    if not np.isfinite(squares).all():
        _raise_if_not_finite(name, rows)
    return rows, squares


def _raise_if_not_finite(name: str, rows: csr_array) -> None:
    """Raise where an entry is not finite, which its square also is where it overflows."""
    wrong = np.flatnonzero(~np.isfinite(rows.data))
    if wrong.size:
        entry = int(wrong[0])
        place = int(np.searchsorted(rows.indptr, entry, side="right")) - 1, int(rows.indices[entry])
        raise ValueError(
            f"{name} must be finite, got {rows.data[entry]} at index {place} of shape {rows.shape}"
        )


def _canonical(name: str, value: Any) -> csr_array:
    """A sparse array as CSR with float64 data and, in each row, increasing indices without zeros.

    It is the caller's own array where that has this form. A single row may have any format, since a row of a
    CSR array is none itself.
    """
    if value.ndim == 1 or (value.shape[0] == 1 and value.format != "csr"):
        value = value.reshape(1, -1).tocsr()
    if value.format != "csr":
        raise ValueError(
            f"{name} must be an array or a scipy.sparse array in CSR format, got the format "
            f"{value.format!r}; {name}.tocsr() converts it"
        )
    if value.dtype.kind not in "biuf":
        raise ValueError(f"{name} must be an array of real numbers, got dtype {value.dtype}")
    indptr, indices, data = value.indptr, value.indices, value.data
    width = value.shape[-1]
    if indptr[0] != 0 or indptr[-1] > data.size or data.size != indices.size or (np.diff(indptr) < 0).any():
        raise ValueError(f"{name} must be a valid CSR array: its indptr does not fit its {data.size} entries")
    used = indices[: indptr[-1]]
    if used.size and not (used.min() >= 0 and used.max() < width):
        wrong = used.min() if used.min() < 0 else used.max()
        raise ValueError(f"{name} must have indices in 0..{width - 1}, got {wrong}")
    # To make a CSR array takes longer than all the checks here.
    is_whole = type(value) is csr_array and indptr.size == value.shape[0] + 1 and indptr[-1] == data.size
    rows = value if is_whole else csr_array((data, indices, indptr), shape=(len(indptr) - 1, width))
    if not _is_canonical(rows):
        rows = rows.copy()
        rows.has_sorted_indices = rows.has_canonical_format = False
        rows.sum_duplicates()
        rows.eliminate_zeros()
    return rows if rows.dtype == np.float64 else rows.astype(np.float64)


def _is_canonical(rows: csr_array) -> bool:
    starts = np.zeros(rows.indices.size, dtype=bool)
    starts[rows.indptr[:-1][np.diff(rows.indptr) > 0]] = True
    return bool(rows.data.all() and (starts[1:] | (np.diff(rows.indices) > 0)).all())


def squared_lengths(rows: Array) -> Array:
    """Squared lengths of the rows of an (n, d) array, infinite where they overflow."""
    with np.errstate(over="ignore"):
        return np.asarray(np.vecdot(rows, rows))


def as_vector(name: str, value: ArrayLike, size: int) -> Array:
    """Return `value` as a vector of the given size; the only row of a sparse matrix is a vector."""
    vector = as_finite(name, value)
    if is_sparse(value) and vector.shape == (1, size):
        vector = vector[0]
    if vector.shape != (size,):
        raise ValueError(f"{name} must have shape ({size},), got {vector.shape}")
    return vector


def as_matrix(name: str, value: ArrayLike, shape: tuple[int, int]) -> Array:
    """Return `value` as a matrix of the given shape."""
    matrix = as_finite(name, value)
    if matrix.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {matrix.shape}")
    return matrix


def as_rewards(value: ArrayLike) -> Array:
    """Return a copy of the rewards of outcomes 1..K (that of outcome 0 is 0) as a vector."""
    rewards = as_finite("rewards", value).copy()
    if rewards.ndim != 1 or rewards.size < 1:
        raise ValueError(f"rewards must have shape (K,) with K >= 1, got {rewards.shape}")
    if (rewards < 0).any():
        raise ValueError(f"rewards must be at least 0, got {rewards.min()}")
    return rewards


def as_outcome(value: Any, n_outcomes: int) -> int:
    """Return the outcome as an int in 0..K."""
    outcome = as_integer("outcome", value)
    if not 0 <= outcome <= n_outcomes:
        raise ValueError(f"outcome must be in 0..{n_outcomes}, got {outcome}")
    return outcome


def as_integer(name: str, value: Any, minimum: int | None = None) -> int:
    """Return `value` as an int, at least `minimum`; True, 1.5 and "1" are not integers."""
    if type(value) is not int:
        array = np.asarray(value)
        if array.ndim != 0 or array.dtype.kind not in "iu":
            raise ValueError(f"{name} must be an integer, got {value!r}")
    if minimum is not None and value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
    return int(value)


def as_positive(name: str, value: Any) -> float:
    """Return `value` as a finite float > 0."""
    number = as_number(name, value)
    if not number > 0:
        raise ValueError(f"{name} must be positive, got {value}")
    return number


def as_non_negative(name: str, value: Any) -> float:
    """Return `value` as a finite float >= 0."""
    number = as_number(name, value)
    if number < 0:
        raise ValueError(f"{name} must be at least 0, got {value}")
    return number


def as_probability(name: str, value: Any) -> float:
    """Return `value` as a float strictly between 0 and 1."""
    number = as_number(name, value)
    if not 0 < number < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value}")
    return number


def as_share(name: str, value: Any) -> float:
    """Return `value` as a float from 0 to 1."""
    number = as_number(name, value)
    if not 0 <= number <= 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value}")
    return number


def as_flag(name: str, value: Any) -> bool:
    """Return `value` as a bool; 0, 1 and None are not flags."""
    array = np.asarray(value)
    if array.ndim != 0 or array.dtype.kind != "b":
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return bool(array)


def as_margin(name: str, value: Any) -> float:
    """Return `value` as a float >= 0, infinity included."""
    array = np.asarray(value)
    if array.ndim != 0 or array.dtype.kind not in "iuf" or not float(array) >= 0:
        raise ValueError(f"{name} must be a number of at least 0, got {value!r}")
    return float(array)


def as_number(name: str, value: Any) -> float:
    """Return `value` as a finite float, of either sign."""
    array = np.asarray(value)
    if array.ndim != 0 or array.dtype.kind not in "iuf":
        raise ValueError(f"{name} must be a number, got {value!r}")
    number = float(array)
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {value}")
    return number


def take(state: Mapping[str, Any], key: str) -> Any:
    """Return `state[key]`, or raise an error that names the missing key and those present."""
    if key not in state:
        raise ValueError(f"state has no entry {key!r}; it holds {sorted(state)}")
    return state[key]
