"""Runs: the manifest, batches of notebooks, their records, and verification.

Imports: system, experiments.

A change here changes no number, only how it is asked for, kept and checked.
"""
