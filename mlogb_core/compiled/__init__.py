r"""The round in plain loops, compiled by numba: the same algorithm, and the same iterates up to roundoff.

The NumPy form is the one to read; this form is for speed. `eofd`, `oful` and others use it with
`compiled=True`. `policy` holds the class that connects the kernels with policies and curvatures, and only it
is used from outside. `arguments` defines what the kernels take and return. `choose`, `step`, `dense`,
`ridge`, `diagonal`, `projection`, `eigenpair` and `shrink` each hold one part of a round, and `round` joins
three of them; `link`, `vectors` and `algebra` hold what these parts share, and `kernel` says how they are
compiled.

A round over a sketch calls two kernels for K = 1, the choice and the update, since at small sizes the time
between calls counts. For K > 1 the update is the step, eigenpairs by LAPACK, and the shrink. Together they
read the basis three times and write it once; a projection reads it once more.
"""

from mlogb_core.compiled.policy import CompiledPolicy, compile_kernels

__all__ = ["CompiledPolicy", "compile_kernels"]
