"""The explorer: one game under sliders, in a notebook and, played beforehand, on a page of the book.

Imports: system, experiments, report.

Nothing else depends on it.
"""
