"""The book: what Sphinx needs to build it from notebooks, pages and the registry.

Imports: system, claims, runs, report.

Nothing else depends on it.
"""
