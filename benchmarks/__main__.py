"""Entry point of `python -m benchmarks`; threads are set before NumPy is loaded."""

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1", NUMBA_NUM_THREADS="1")

from benchmarks.cli import main

if __name__ == "__main__":
    main()
