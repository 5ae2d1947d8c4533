"""The machine and the project on it: paths, what a kernel starts with, and what records say of both.

Imports: nothing of compendium.

A path or a variable is named here and nowhere else.
"""
