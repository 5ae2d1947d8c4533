"""Settings of the suite: Hypothesis without a clock, and no trace of a `make` that started the tests."""

from __future__ import annotations

import os

from hypothesis import settings

# The same examples in every run, so that a failure is the commit's and not the day's. `make test-all` draws
# more of them with `HYPOTHESIS_PROFILE=more`; `HYPOTHESIS_PROFILE=search` searches for new ones.
settings.register_profile("fixed", deadline=None, derandomize=True, print_blob=True, max_examples=30)
settings.register_profile("more", deadline=None, derandomize=True, print_blob=True, max_examples=100)
settings.register_profile("search", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

# `make test` hands these on, and a `make` that a test starts would take itself for a part of it and say so in
# its output.
for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES"):
    os.environ.pop(name, None)
