"""Entries of saved states that are not numbers: names of classes, and random streams as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from mlogb_core._validation import take

_BIT_GENERATORS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64)
}


def class_name(kind: type) -> str:
    """The name under which a state records a class: with its module, unless the class is the library's.

    The compiled form of a policy has the name of the NumPy form, so that `OptimisticPolicy.from_state` reads
    the states of both.
    """
    if kind.__module__.split(".")[0] != "mlogb_core":
        return f"{kind.__module__}.{kind.__qualname__}"
    return "OptimisticPolicy" if kind.__name__ == "CompiledPolicy" else kind.__qualname__


def as_generator(value: Any) -> np.random.Generator:
    """Return `value` if it is a random generator of NumPy's, or raise."""
    if not isinstance(value, np.random.Generator):
        raise ValueError(f"rng must be a numpy.random.Generator, got {value!r}")
    return value


def generator_state(rng: np.random.Generator) -> str:
    """The state of a stream, as JSON."""
    return json.dumps(rng.bit_generator.state, default=np.ndarray.tolist)


def generator_from(state: Mapping[str, Any]) -> np.random.Generator:
    """The stream of the entry `rng`, for any of NumPy's bit generators."""
    text = str(take(state, "rng"))
    try:
        saved = json.loads(text)
        bits = _BIT_GENERATORS[saved["bit_generator"]]()
        bits.state = _with_arrays_of(bits.state, saved)
    except (ValueError, KeyError, TypeError, OverflowError):
        raise ValueError(
            f"rng must be the state of one of {sorted(_BIT_GENERATORS)} in JSON, got {text[:80]!r}"
        ) from None
    return np.random.Generator(bits)


def _with_arrays_of(like: Any, saved: Any) -> Any:
    """A state read from JSON, with its lists turned into arrays wherever the state `like` holds an array."""
    if isinstance(like, dict):
        return {key: _with_arrays_of(value, saved[key]) for key, value in like.items()}
    if not isinstance(like, np.ndarray):
        return saved
    array = np.array(saved, dtype=like.dtype)
    if array.shape != like.shape:
        raise ValueError(f"shape {array.shape} instead of {like.shape}")
    return array
