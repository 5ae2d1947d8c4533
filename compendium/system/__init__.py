"""The machine and the project on it: paths, locks, configuration of kernels, provenance of results.

Imports: nothing of compendium.

A path of the project and an environment variable of a kernel are named here and nowhere else.
"""
