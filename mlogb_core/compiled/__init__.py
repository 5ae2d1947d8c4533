r"""The round in plain loops, compiled by numba: the same algorithm, and the same iterates up to roundoff.

The NumPy form is the one to read; this form is for speed. `eofd`, `oful` and others use it with
`compiled=True`. `policy` holds the class that connects the kernels with policies and curvatures, and `sparse`
the compiled coordinates of sparse actions; only these two are used from outside. `arguments` defines what the
kernels take and return. `choose`, `step`, `dense`, `ridge`, `diagonal`, `projection`, `observed`,
`eigenpair`, `tridiagonal` and `shrink` each hold one part of a round, and `round` joins the step, the
eigenpairs and the shrink; `link`, `vectors` and `algebra` hold what these parts share, and `kernel` says how
they are compiled.

A round over a sketch calls two kernels, the choice and the update, since at small sizes the time between
calls counts. Together they read the basis three times and write it once; a projection reads it once more. The
update is done in parts, some of them by BLAS and LAPACK, where the basis or the core is large, where a shrink
drops more than `LANES` directions or as many as an error allows, and where the radius adds something up.
"""

from mlogb_core.compiled.policy import CompiledPolicy, compile_kernels

__all__ = ["CompiledPolicy", "compile_kernels"]
