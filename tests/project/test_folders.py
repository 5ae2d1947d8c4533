"""The folders of `compendium`: what each may import, as the sentence at its head says."""

from __future__ import annotations

import ast
import re
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = sorted(path.parent for path in ROOT.glob("compendium/*/__init__.py"))


def imported(path: Path) -> set[str]:
    """The modules that a file imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def arrows(folder: Path) -> set[str]:
    """The other folders of `compendium` that the modules of one import."""
    modules = set().union(*map(imported, folder.rglob("*.py")))
    return {name.split(".")[1] for name in modules if name.startswith("compendium.")} - {folder.name}


def stated(folder: Path) -> set[str]:
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    (names,) = re.findall(r"^Imports: (.*)\.$", text, re.MULTILINE)
    return set() if names == "nothing of compendium" else set(names.split(", "))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_folder_imports_what_it_says(folder):
    assert arrows(folder) == stated(folder)


def test_no_two_folders_import_each_other_not_even_by_way_of_others():
    order = list(TopologicalSorter({folder.name: stated(folder) for folder in FOLDERS}).static_order())
    assert len(order) == len(FOLDERS) > 5


def test_the_library_imports_numpy_and_scipy_alone():
    modules = set().union(*map(imported, ROOT.glob("mlogb_core/**/*.py")))
    foreign = {name.split(".")[0] for name in modules} - sys.stdlib_module_names
    assert foreign == {"mlogb_core", "numpy", "scipy", "numba"}


def test_the_tests_have_the_folders_of_what_they_test():
    names = {path.name for path in ROOT.glob("tests/*/") if any(path.glob("test_*.py"))}
    assert names == {folder.name for folder in FOLDERS} | {"core", "project"}
