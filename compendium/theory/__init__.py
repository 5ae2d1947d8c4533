"""The analysis: the paper's bounds and their repaired forms as functions, and the operations of a round.

Imports: nothing of compendium.

Notebooks, tests and the observers `coverage` and `spectra` of `experiments` call these functions. No policy
does, so that stored trials stay valid; what a run shows can change.
"""

from compendium.theory.confidence import cancelling_regularization
from compendium.theory.sketch import sketch_factor
from compendium.theory.usable_radius import smallest_step_size

__all__ = ["cancelling_regularization", "sketch_factor", "smallest_step_size"]
