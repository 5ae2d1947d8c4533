"""The fast numerical tests under every OpenBLAS kernel that this processor can run: `make test-kernels`.

OpenBLAS chooses its kernel by the processor, and roundoff differs between them: what is decided by roundoff
alone shows as a test that passes on one machine and fails on another. OPENBLAS_CORETYPE asks for
a kernel when the library is loaded, for NumPy's and SciPy's at once. It starts also one whose instructions
the processor does not have, and the first product then ends the process; so flags decide first, and
the kernel that really runs is read back.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What each kernel needs, from the oldest to the newest.
NEEDS = {
    "Prescott": {"pni"},
    "Nehalem": {"sse4_2"},
    "Sandybridge": {"avx"},
    "Haswell": {"avx2", "fma"},
    "Zen": {"avx2", "fma"},
    "SkylakeX": {"avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512cd"},
    "Cooperlake": {"avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512cd", "avx512_bf16"},
    "Sapphirerapids": {"avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512_bf16", "amx_bf16", "amx_tile"},
}
TESTS = (
    (
        "test_compiled.py test_compiled_eigenpair.py test_compiled_tridiagonal.py",
        "degenerate_streams or a_buffer or bottom_pair or either_form or the_same_play_with",
    ),
    (
        "test_degenerate.py test_extreme_settings.py test_ownership.py",
        "buffered_sketch or outside_the_ball or not_aligned or play_the_literal and (span or axes or zero)",
    ),
    (
        "test_buffer.py test_choice.py test_compiled_faults.py test_coordinates.py test_curvature.py "
        "test_error_control.py test_orthogonality.py test_policies.py test_printed.py test_projection.py "
        "test_roundoff.py test_sparse.py test_stiff.py test_thompson.py",
        "",
    ),
)
PROBE = (
    "import numpy, scipy.linalg, threadpoolctl\n"
    "print(*[i.get('architecture') for i in threadpoolctl.threadpool_info() if i['user_api'] == 'blas'])"
)


def environment(kernel: str) -> dict[str, str]:
    """The environment that asks for a kernel, with one thread."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {"HYPOTHESIS_PROFILE": "more"} | os.environ | threads | {"OPENBLAS_CORETYPE": kernel}


def processor_flags() -> set[str]:
    """The instruction sets of the processor, as Linux names them; none where that cannot be read."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return set(found.group(1).split()) if found else set()


def running(kernel: str) -> set[str]:
    """The kernels that NumPy's and SciPy's libraries run where this one is asked for."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env=environment(kernel), capture_output=True, text=True, check=False
    )
    return set(done.stdout.split()) if done.returncode == 0 else set()


def kernels() -> dict[str, str]:
    """The kernels to test by the name that asks for them, and the name that both libraries then report.

    A name whose kernel is the same as that of another one, or that a library was built without, is left out.
    """
    flags, found = processor_flags(), dict[str, str]()
    for kernel, needs in NEEDS.items():
        names = running(kernel) if needs <= flags else set()
        if len(names) == 1 and not names & set(found.values()):
            found[kernel] = names.pop()
    return found


def own() -> set[str]:
    """The kernels of the two libraries that are not asked for one, under which all other tests run."""
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def chosen() -> str:
    """The expression by which pytest selects from every file what has the words that stand beside it."""
    parts = []
    for names, words in TESTS:
        files = " or ".join(names.split())
        parts.append(f"({files}) and ({words})" if words else files)
    return " or ".join(f"({part})" for part in parts)


def run(kernel: str) -> int:
    """The tests under one kernel; the exit code."""
    print(f"== {kernel}", flush=True)
    start = time.monotonic()
    call = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    call += [f"tests/core/{name}" for names, _ in TESTS for name in names.split()]
    call += ["-m", "(not slow or sparse_kernels) and not very_slow", "-k", chosen()]
    code = subprocess.run(call, cwd=ROOT, env=environment(kernel), check=False).returncode
    print(f"== {kernel}: {'passed' if code == 0 else 'FAILED'}, {time.monotonic() - start:.0f} s", flush=True)
    return code


def main() -> int:
    """Run the tests under every kernel, or under those named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "kernel", nargs="*", help="names as OpenBLAS writes them; all that can run by default"
    )
    parser.add_argument("--others", action="store_true", help="leave out that of all other tests")
    arguments = parser.parse_args()
    asked, found = arguments.kernel, kernels()
    if arguments.others:
        left_out = own()
        found = {kernel: name for kernel, name in found.items() if {name} != left_out}
    if unknown := set(asked) - set(found):
        raise SystemExit(f"{', '.join(sorted(unknown))} cannot run here; {', '.join(found) or 'none'} can")
    if not found:
        print(f"no kernel of OpenBLAS can be asked for on this {platform.machine()}: nothing to test")
        return 0
    print("kernels:", *(f"{name} ({found[name]})" for name in asked or found), flush=True)
    return max(run(kernel) for kernel in asked or found)


if __name__ == "__main__":
    sys.exit(main())
