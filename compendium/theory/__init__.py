"""The analysis: the paper's bounds and their repaired forms as functions, and the operations of a round.

Imports: nothing of compendium.

Notebooks and tests call these functions; no policy does, so that a change here changes no run.
"""

from compendium.theory.confidence import cancelling_regularization
from compendium.theory.sketch import sketch_factor
from compendium.theory.usable_radius import smallest_step_size

__all__ = ["cancelling_regularization", "sketch_factor", "smallest_step_size"]
