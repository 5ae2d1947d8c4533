"""Settings of the whole suite: one BLAS thread, Hypothesis without a clock."""

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

from hypothesis import settings  # noqa: E402  the threads come first

# The same examples in every run, so that a failure is the commit's and not the day's; search for new
# ones with `HYPOTHESIS_PROFILE=search`.
settings.register_profile("fixed", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("search", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
