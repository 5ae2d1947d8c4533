"""The distance from the limit with vectors of 256 bits, on a processor whose vectors have 512.

Longer vectors double the rate of a large matrix product, from which the limit of a round is computed. They do
little for a round at a small size, which waits for one short operation after another. How many times its
limit such a round takes therefore depends on the processor. On one with AVX-512 a second process measures the
small sizes again, with a BLAS and compiled kernels that keep to the instructions of AVX2.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info

from compendium.system.paths import FailureError

#: Kernels of OpenBLAS that use vectors of 512 bits.
LONGER = ("SkylakeX", "Cooperlake", "SapphireRapids")
#: Variables that keep OpenBLAS and numba to the instructions of AVX2.
AVX2 = {"OPENBLAS_CORETYPE": "Haswell", "NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma"}

#: In a quick run the kernels are interpreted: to compile them for these instructions takes over a minute.
INTERPRETED = {"NUMBA_DISABLE_JIT": "1"}


def has_longer() -> bool:
    """Whether a BLAS of this process uses vectors of 512 bits, and the process was not told to do without.

    An OpenBLAS that was built for one processor does not listen to that.
    """
    longer = any(pool.get("architecture") in LONGER for pool in threadpool_info())
    return longer and not AVX2.items() <= os.environ.items()


def measure(n_sizes: int, record: str, quick: bool = False) -> dict[str, Any]:
    """Measure the first sizes of the table in a process that keeps to vectors of 256 bits.

    Parameters
    ----------
    n_sizes : int
        Number of sizes.
    record : str
        Name of the file in which the other process leaves its record.
    quick : bool
        Whether the sizes are the tiny ones of a test.

    Returns
    -------
    dict
        `rates` and `roofline` as in the record of a whole run, and `architecture`, the kernel of OpenBLAS.

    Raises
    ------
    FailureError
        If the other process fails, with the last line of what it wrote, or its BLAS keeps to longer vectors.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks", "--part", "table", "--part", "roofline"]
        command += ["--sizes", str(n_sizes), "--results", folder, "--figures", folder]
        command += ["--quick"] if quick else []
        variables = os.environ | AVX2 | (INTERPRETED if quick else {})
        process = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        if process.returncode:
            last = process.stderr.strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
            raise FailureError(f"the small sizes with vectors of 256 bits: {last[0]}")
        found = json.loads((Path(folder) / record).read_text(encoding="utf-8"))
    kernels = {pool["architecture"] for pool in found["thread_pools"] if pool["internal_api"] == "openblas"}
    if longer := kernels & set(LONGER):
        raise FailureError(f"the small sizes with vectors of 256 bits: OpenBLAS keeps to {min(longer)}")
    return {name: found[name] for name in ("rates", "roofline")} | {
        "architecture": ", ".join(sorted(kernels))
    }
