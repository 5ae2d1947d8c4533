"""Playing: data, problems, policies by name, trials, and how many trials are obtained at once.

Imports: system, theory.

A change here can change numbers, and stored trials are then computed again.
"""
