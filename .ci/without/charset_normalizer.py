"""In place of a package that SciPy's imports reach through `numpy.f2py`, which does without if it is absent.

Its import takes a tenth of a second, and the tests start many processes and kernels that import SciPy. The
package requests does without it too, and warns: no test reads a page of unknown encoding.
"""

raise ImportError("left out, since no test guesses an encoding")
