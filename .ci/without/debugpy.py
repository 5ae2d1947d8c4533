"""In place of a package that every kernel imports, for a tenth of a second, and which ipykernel does without.

It serves a debugger, which no test starts.
"""

raise ImportError("left out, since no test debugs a kernel")
