"""How kernels are compiled and stored: no round waits, no stored kernel is outdated, numba is optional."""

from __future__ import annotations

import importlib
import itertools
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import run_python

pytest.importorskip("numba", reason="the compiled form is the optional extra [fast]")
from test_compiled import FLAT, GROWING, pair, sets

from mlogb_core.compiled import kernel
from mlogb_core.compiled import policy as compiled_policy

pytestmark = pytest.mark.compiled


def versions():
    """The number of versions of each kernel in this process, compiled or read from the disk."""
    modules = [m for name, m in sys.modules.items() if name.startswith("mlogb_core.compiled.")]
    kernels = {f for module in modules for f in vars(module).values() if hasattr(f, "signatures")}
    return {f"{f.py_func.__module__}.{f.__name__}": len(f.signatures) for f in kernels}


def play_everything():
    """Degenerate rounds with and without BLAS compile no kernel and do not change the caller's arrays."""
    pair("eofd", 1, 9, 4)
    before = versions()
    assert sum(before.values()) > 10
    for limit, kind, (K, m) in itertools.product(
        (0, 10**6), ("eofd", "oful", *GROWING, *FLAT), ((1, 4), (1, 1), (3, 5), (2, 40))
    ):
        compiled_policy.WIDE = limit
        rng = np.random.default_rng(11)
        policy = pair(kind, K, 9, m)[1]
        for t, actions in enumerate(sets(rng, 9, 60)):
            actions *= 10.0 ** -(10 * (t % 7))
            actions.flags.writeable = t % 3 > 0
            copy = actions.copy()
            x = actions[policy.select(actions)] if t % 5 else np.broadcast_to(0.0, 9)
            policy.update(x, int(rng.integers(K + 1)))
            np.testing.assert_array_equal(actions, copy)
    assert {k: v for k, v in versions().items() if v != before[k]} == {}


@pytest.mark.slow
def test_no_round_waits_for_the_compiler():
    """The test needs a new process, since other tests have compiled the kernels in this one."""
    run_python("import test_compiled_build; test_compiled_build.play_everything()")


def test_where_nothing_can_be_cached_on_disk_kernels_are_compiled_all_the_same(monkeypatch):
    import numba

    def compile_without_cache(cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return numba.njit(**options)

    def double(x):
        return 2.0 * x

    monkeypatch.setattr("mlogb_core.compiled.kernel.njit", compile_without_cache)
    assert kernel.kernel(double)(1.5) == 3.0


def test_a_kernel_on_disk_is_that_of_all_the_sources(tmp_path, monkeypatch):
    """A stored kernel is also outdated by a change of a kernel that it calls, which numba does not check."""
    (tmp_path / "caller.py").write_text("def double(x):\n    return 2.0 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    double = importlib.import_module("caller").double

    def is_read_from_disk():
        compiled = kernel.kernel(double)
        assert compiled(1.5) == 3.0
        return sum(compiled.stats.cache_hits.values()) == 1

    assert [is_read_from_disk(), is_read_from_disk()] == [False, True]
    folder = Path(kernel.__file__).parent
    assert kernel._digest(folder) == kernel._SOURCES
    for changed in ("vectors.py", "policy.py"):
        copy = shutil.copytree(folder, tmp_path / changed, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / changed).write_text((folder / changed).read_text() + "\n")
        monkeypatch.setattr(kernel, "_SOURCES", kernel._digest(copy))
        assert [is_read_from_disk(), is_read_from_disk()] == [False, True]


@pytest.mark.parametrize("d", [1, 3, 9])
def test_a_policy_of_any_size_waits_for_the_compiler(d, monkeypatch):
    waited = []
    monkeypatch.setattr(compiled_policy, "compile_kernels", lambda: waited.append(d))
    assert pair("eofd", 1, d, 2)[1].compiled
    assert waited == [d]


def test_without_numba_the_message_says_what_to_install():
    program = (
        "import sys; sys.modules['numba'] = None\n"
        "from mlogb_core import RidgeRadius, oful\n"
        "settings = dict(regularization=1.0, step_size=1.0, norm_bound=1.0, radius=RidgeRadius(1.0))\n"
        "oful(2, [1.0], **settings)\n"
        "try:\n    oful(2, [1.0], compiled=True, **settings)\n"
        "except ImportError as error:\n    print(error)\n"
    )
    assert run_python(program).strip() == 'compiled=True needs numba: pip install ".[fast]"'
