"""Experiments: data, bandit problems, the registry of policies, trials and studies of many trials.

Imports: system, theory.

A change here can change numbers, and stored trials are then computed again.

A notebook of an experiment imports the names below from this package, never from one of its modules:
recorded runs hold the text of their notebooks and are executed again years later, so these names stay
where they are when modules are split or renamed.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: The module of each name. It is imported when the name is first asked for: the command line uses light
#: modules of this package, and should not wait for pandas.
_MODULES = {
    "COMPARISON": "policies",
    "Classes": "problems",
    "DataError": "data",
    "Decaying": "problems",
    "Digits": "problems",
    "ENTRANTS": "tournament",
    "FORMS": "policies",
    "Fixed": "problems",
    "Group": "tuning",
    "PROBLEMS": "tournament",
    "Played": "timing",
    "Point": "tuning",
    "PooledClasses": "problems",
    "REFERENCE": "tournament",
    "Rated": "problems",
    "Setting": "setting",
    "Study": "study",
    "Synthetic": "problems",
    "Tournament": "tournament",
    "by_group": "tuning",
    "candidates": "tuning",
    "charged": "tournament",
    "compiled_forms": "policies",
    "curvature_bytes": "memory",
    "held_after": "memory",
    "held_bytes": "memory",
    "measured": "study",
    "movements": "convergence",
    "play_regret": "games",
    "problem_of": "tournament",
    "publish": "study",
    "radius_terms": "coverage",
    "round_times": "timing",
    "run_each": "study",
    "sparse_beside_dense": "sparse_games",
    "track_curvature": "spectra",
    "track_sketch": "spectra",
    "tuned": "tuning",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
