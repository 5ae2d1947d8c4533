"""What is shown of runs: figures, tables, and the page of results.

Imports: system, experiments, runs, claims.

A change here changes how results look.
"""
