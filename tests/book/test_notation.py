"""The page of notation: its links lead to sections and to names of the library that there are."""

from __future__ import annotations

import importlib
import re
from functools import reduce
from pathlib import Path

from compendium.claims.registry import headings

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(\.\./([\w/]+)\.(md|py)#([\w.?-]+)\)")


def links() -> list[tuple[str, str, str]]:
    return LINK.findall((ROOT / "book" / "notation.md").read_text(encoding="utf-8"))


def test_every_symbol_has_a_section_that_defines_it():
    page = (ROOT / "book" / "notation.md").read_text(encoding="utf-8")
    rows = [row for row in page.splitlines() if row.startswith("| $")]
    assert len(rows) > 40
    for row in rows:
        (link,) = LINK.findall(row.strip("|").split(" | ")[-1])
        assert link[1] == "md", row
    for name, anchor in [(name, anchor) for name, kind, anchor in links() if kind == "md"]:
        text = (ROOT / f"{name}.md").read_text(encoding="utf-8")
        assert anchor in headings(text), f"{name}.md has no section #{anchor}"


def test_names_in_code_are_documented_names_of_the_library():
    reference = (ROOT / "book" / "api.md").read_text(encoding="utf-8")
    names = {(name.replace("/", "."), path) for name, kind, path in links() if kind == "py"}
    assert len(names) > 30
    for module, path in names:
        assert f"<!-- automodule {module} -->\n" in reference, module
        assert reduce(getattr, path.split("."), importlib.import_module(module)).__doc__, (module, path)
