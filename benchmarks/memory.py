"""Peak memory of a policy, as NumPy reports its arrays to `tracemalloc`.

The arguments of the policy are made before tracing starts, so that only the arrays which the policy keeps and
its temporary ones are counted. `tracemalloc` does not see the allocations of compiled kernels; the NumPy form
is measured for both.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks import counts
from benchmarks.plan import SEED, Size, problem, settings
from benchmarks.variants import Variant, build

_PLAYED = 5
_MEGABYTE = 1e6


def rows(sizes: Sequence[Size], dense_limit: int = 10_000) -> list[dict[str, Any]]:
    """One row for each size and family.

    Parameters
    ----------
    sizes : sequence of Size
        (K, d, m).
    dense_limit : int
        Largest Kd at which the full matrix is made.

    Returns
    -------
    list of dict
        `held_mb` after a few rounds with a full sketch, `peak_mb` within them, and the count
        8 Kd(m+K), or 8 (Kd)^2 for OFUL; all in 1e6 bytes.
    """
    found = []
    for K, d, m in sizes:
        families = [(Variant("eofd", "numpy", m), counts.eofd_memory(K, d, m))]
        if K * d <= dense_limit:
            families.append((Variant("oful", "numpy"), counts.oful_memory(K, d)))
        for variant, count in families:
            held, peak = measure(variant, Size(K, d, m))
            found.append(
                {
                    "K": K, "d": d, "m": variant.sketch_size or None, "family": variant.family,
                    "held_mb": round(held / _MEGABYTE, 3), "peak_mb": round(peak / _MEGABYTE, 3),
                    "count_mb": round(count / _MEGABYTE, 3), "peak_over_count": float(f"{peak / count:.3g}"),
                }
            )  # fmt: skip
    return found


def measure(variant: Variant, size: Size) -> tuple[int, int]:
    """Bytes held by a policy with a full sketch, and their peak over a few rounds.

    Parameters
    ----------
    variant : Variant
        Which policy.
    size : Size
        (K, d, m); the sketch is full after m/K rounds.

    Returns
    -------
    held, peak : int
    """
    K, d, m = size
    rng = np.random.default_rng(SEED)
    instance = problem("tuned", K, d).instance(rng)
    filling = rng.standard_normal((-(-m // K) + 2 if variant.family == "eofd" else 2, d))
    filling /= np.linalg.norm(filling, axis=1, keepdims=True)
    sets = [instance.actions(rng).features for _ in range(_PLAYED)]
    rewards, arguments = problem("tuned", K, d).rewards, settings("tuned", K, d)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        policy = build(variant, d, rewards, arguments)
        for t, action in enumerate(filling):
            policy.update(action, t % (K + 1))
        tracemalloc.reset_peak()
        for t, actions in enumerate(sets):
            policy.update(actions[policy.select(actions)], t % (K + 1))
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return held - before, peak - before
