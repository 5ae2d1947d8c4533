"""Same actions and results on other BLAS kernels, other SIMD instructions and other thread counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from helpers import run_python
from numpy._core._multiarray_umath import __cpu_features__
from variants import make

from mlogb_core import RidgeRadius

# Kind, K, d, m and number of rounds. OpenBLAS shares only large products among threads; the last two cases
# are large enough for that.
CASES = {
    "eofd 2,8,6": ("eofd", 2, 8, 6, 2000),
    "eofd 4,20,8": ("eofd", 4, 20, 8, 2000),
    "eofd 1,200,40": ("eofd", 1, 200, 40, 2000),
    "oful 2,8": ("oful", 2, 8, 0, 2000),
    "oful 1,40": ("oful", 1, 40, 0, 2000),
    "eofd 4,300,90": ("eofd", 4, 300, 90, 150),
    "oful 2,150": ("oful", 2, 150, 0, 150),
}
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
SLOW_FIXTURES = ("here",)  # every case in a process of its own
KERNELS = {"Nehalem": "SSE42", "Haswell": "AVX2", "SkylakeX": "AVX512_SKX"}  # and what they need


def play(directory):
    """The child program: every policy plays on data that no kernel has computed.

    Actions are integers over a power of two, and outcomes follow from them, so that the input has the same
    bits with every kernel. Actions, scores and parameters are written, and kernels and threads printed.
    """
    from threadpoolctl import threadpool_info

    for name, (kind, K, d, m, rounds) in CASES.items():
        policy = make(kind, K, d, m, norm_bound=4.0, radius=RidgeRadius(0.1))
        rng = np.random.default_rng(K * d)
        unit = 2.0 ** -np.ceil(np.log2(512 * np.sqrt(d / 3)))
        chosen, scores, parameters = [], [], []
        for _ in range(rounds):
            actions = rng.integers(-512, 513, size=(6, d)) * unit
            draws = rng.integers(K + 1, size=2)
            scores.append(policy.scores(actions))
            chosen.append(policy.select(actions))
            x = actions[chosen[-1]]
            policy.update(x, int(draws.max() if x[0] > 0.0 else draws.min()))
            parameters.append(policy.parameter.copy())
        np.savez(
            Path(directory) / f"{name}.npz",
            actions=chosen,
            scores=scores,
            parameters=parameters[49::50],
            margin=policy.smallest_margin,
        )
    blas = [p for p in threadpool_info() if p["user_api"] == "blas"]
    kernels, threads = [p.get("architecture") for p in blas], [p["num_threads"] for p in blas]
    print(json.dumps({"kernels": kernels, "threads": threads}))


class Played(NamedTuple):
    """Kernels and threads of a child process, and the folder of its results."""

    kernels: list
    threads: list
    directory: Path


def in_a_child(directory, **variables):
    """Run the child program with environment variables."""
    directory.mkdir(exist_ok=True)
    threads = dict.fromkeys(THREADS, "1")
    program = f"import test_portability; test_portability.play({str(directory)!r})"
    printed = run_python(program, ("OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES"), **threads | variables)
    ran = json.loads(printed.splitlines()[-1])
    return Played(ran["kernels"], ran["threads"], directory)


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The results of this machine's own kernel on one thread."""
    return in_a_child(tmp_path_factory.mktemp("here"))


def assert_same_play(here, there):
    """Actions are equal, W agrees to 1e-10, and no difference of scores comes near a decision margin."""
    for name in CASES:
        left, right = (np.load(ran.directory / f"{name}.npz") for ran in (here, there))
        np.testing.assert_array_equal(left["actions"], right["actions"], err_msg=name)
        np.testing.assert_allclose(left["parameters"], right["parameters"], rtol=0, atol=1e-10, err_msg=name)
        scale = np.abs(left["scores"]).max(axis=1, keepdims=True)
        difference = float((np.abs(left["scores"] - right["scores"]) / scale).max())
        margin = float(min(left["margin"], right["margin"]))
        print(f"{name}: smallest decision margin {margin:.0e}, largest difference of scores {difference:.0e}")
        # Perturbations of the scores below a quarter of the margin cannot change a choice.
        assert difference < margin / 4.0, name
        assert len(np.unique(left["actions"])) == 6


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_blas_kernel_does_not_change_the_play(kernel, here, tmp_path):
    if set(here.kernels) == {kernel}:
        pytest.skip(f"{kernel} is this processor's own kernel")
    if not __cpu_features__.get(KERNELS[kernel], True):
        pytest.skip(f"this processor has no {KERNELS[kernel]}")
    there = in_a_child(tmp_path, OPENBLAS_CORETYPE=kernel)
    if kernel not in there.kernels:
        pytest.skip(f"{kernel} is not to be had here: {there.kernels}")
    assert_same_play(here, there)


def test_the_number_of_threads_does_not_change_the_play(here, tmp_path):
    there = in_a_child(tmp_path, **dict.fromkeys(THREADS, "2"))
    if there.threads == here.threads:
        pytest.skip(f"no second thread to be had: {there.threads}")
    assert_same_play(here, there)


def test_numpys_own_instructions_do_not_change_the_play(here, tmp_path):
    """NumPy's exp, sums and products are computed without the processor's widest registers."""
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    if not found:
        pytest.skip("NumPy uses no instructions beyond its baseline here")
    there = in_a_child(tmp_path, NPY_DISABLE_CPU_FEATURES=" ".join(found))
    assert_same_play(here, there)


def test_the_comparison_can_fail(here, tmp_path):
    """It notices one changed action, a change of W by 2e-10, and a margin as small as the differences."""
    for name in CASES:
        with np.load(here.directory / f"{name}.npz") as stored:
            results = dict(stored)
        for key, changed in (
            ("actions", np.concatenate((results["actions"][:-1], [(results["actions"][-1] + 1) % 6]))),
            ("parameters", results["parameters"] + 2e-10),
            ("scores", results["scores"] * (1.0 + np.eye(6)[0] * results["margin"])),
        ):
            for other in CASES:
                np.savez(tmp_path / f"{other}.npz", **dict(np.load(here.directory / f"{other}.npz")))
            np.savez(tmp_path / f"{name}.npz", **(results | {key: changed}))
            with pytest.raises(AssertionError):
                assert_same_play(here, here._replace(directory=tmp_path))
