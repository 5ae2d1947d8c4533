"""The machine: its description, one thread for all libraries, and its rates of arithmetic and memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg.blas as blas
from threadpoolctl import threadpool_info, threadpool_limits

from compendium.system import provenance
from compendium.system.paths import FailureError

#: Modules of ``compendium`` that the problems and the timing of a block come from.
PROBLEM_MODULES = (
    "experiments/data.py",
    "experiments/problems",
    "experiments/ratings.py",
    "experiments/timing.py",
)


@contextmanager
def single_thread() -> Iterator[None]:
    """Limit every BLAS and OpenMP pool to one thread, and check that the limit holds.

    Raises
    ------
    FailureError
        If a pool still has more threads.
    """
    with threadpool_limits(limits=1):
        busy = [pool["prefix"] for pool in threadpool_info() if pool["num_threads"] != 1]
        if busy:
            raise FailureError(f"could not be held at one thread: {', '.join(busy)}")
        yield


def record() -> dict[str, Any]:
    """Where the times were measured: processor, libraries, kernels, threads and code."""
    root = provenance.code_root()
    pools = [
        {key: pool.get(key) for key in ("prefix", "internal_api", "version", "architecture", "num_threads")}
        for pool in threadpool_info()
    ]
    return {
        "environment": provenance.environment(jobs=1)
        | {"openblas_coretype": os.environ.get("OPENBLAS_CORETYPE")},
        "thread_pools": pools,
        "code_digest": provenance.code_digest(PROBLEM_MODULES),
        "benchmarks_digest": _own_digest(),
        **provenance.git_state(root if root == Path(__file__).resolve().parents[1] else None),
    }


def gemm_rate(order: int) -> float:
    """Operations a second of a square matrix product, the best of five.

    Parameters
    ----------
    order : int
        Rows and columns.

    Returns
    -------
    float
        Flops per second.
    """
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((2, order, order))
    out = np.empty((order, order))
    return 2.0 * order**3 / _best(lambda: np.matmul(left, right, out=out), repeats=5)


def bandwidth(size: int) -> dict[str, float]:
    """Bytes a second of reading and of updating arrays, the best of many passes, some 0.2 s of them.

    Parameters
    ----------
    size : int
        Bytes of the arrays of one pass, which decide the level of the cache that is measured.

    Returns
    -------
    dict
        `read`: a dot product of one half with the other. `triad`: y += a x, which reads two arrays
        and writes one.
    """
    x = np.ones(max(size // 16, 1))
    y = np.ones_like(x)
    repeats = min(max(3, int(1e9 / max(size, 1))), 2000)  # at 5e9 bytes a second
    read = _best(lambda: blas.ddot(x, y), repeats)
    triad = _best(lambda: blas.daxpy(x, y, a=1e-9), repeats)
    return {"read": 16.0 * x.size / read, "triad": 24.0 * x.size / triad}


def _best(work: Callable[[], object], repeats: int) -> float:
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return max(min(times), 1e-9)


def _own_digest() -> str:
    """One digest of the sources of the benchmarks, names included."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return provenance.sha256("".join(f"{provenance.sha256(path)}  {path.name}\n" for path in files))
