"""Where modules are now that recorded notebooks import by an earlier name.

A run keeps the text of its notebook, which is executed again when the run is verified, whatever modules have
been moved since. Only kernels that this project starts know these names: code of today uses those of today.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType

#: The modules by their names in runs of November 2026.
MOVED = {
    **{
        f"compendium.{name}": f"compendium.experiments.{name}"
        for name in ("coverage", "data", "memory", "problems", "spectra", "study")
    },
    "compendium.trials": "compendium.experiments.policies",
    "compendium.evidence": "compendium.claims.evidence",
    "compendium.figures": "compendium.report.figures",
    "mlogb_core.bounds": "compendium.theory",
    "mlogb_core.bounds.sketch": "compendium.theory.sketch",
    "mlogb_core.confidence": "mlogb_core.radius",
}


class _Finder(MetaPathFinder, Loader):
    """Gives the module of today for an earlier name."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return spec_from_loader(fullname, self) if fullname in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return importlib.import_module(MOVED[spec.name])

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module has been executed under its own name."""


def install() -> None:
    """Let this process import by the earlier names, where nothing else answers to them."""
    sys.meta_path.append(_Finder())
