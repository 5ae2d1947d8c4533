r"""The round in plain loops, compiled by numba: the same algorithm, the same iterates to roundoff.

The NumPy form is the one to read; this one is for speed, and `policies.eofd` and `policies.oful`
take it with `compiled=True`. `policy` has the class that faces policies and curvatures; everything else here
is its own: `arguments` what kernels take and give, `choose`, `step`, `dense`, `projection`, `eigenpair` and
`shrink` one part of a round each, `link`, `vectors` and `algebra` what those share, `kernel` how they are
compiled.

A round over a sketch has five kernels: the Cholesky factor, the choice, the step, for K = 1 the smallest
eigenpair, and the shrink. They read the basis three times and write it once; a projection reads it once more.
"""

from mlogb_core.compiled.policy import CompiledPolicy, compile_kernels

__all__ = ["CompiledPolicy", "compile_kernels"]
