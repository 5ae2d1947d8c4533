"""The machine and the project on it: paths, locks, configuration of kernels, provenance of results.

Imports: nothing of compendium.

The main folders of the project, and the environment of a kernel, are decided here.
"""
