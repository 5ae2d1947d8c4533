"""The analysis: the paper's bounds and their repaired forms as functions, and the operations of a round.

Imports: nothing of compendium.

Notebooks and tests call them; no policy does.
"""

from compendium.theory.sketch import sketch_factor

__all__ = ["sketch_factor"]
