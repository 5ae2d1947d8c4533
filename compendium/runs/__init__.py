"""Runs: the manifest, the execution of notebooks, the records of runs, and their verification.

Imports: system, experiments.

A change here changes no number, only how numbers are requested, stored and checked.
"""
