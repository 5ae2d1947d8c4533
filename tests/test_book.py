"""The book: its sources fit together, and what it quotes is what the code says."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_quoted_lines_are_in_the_files_that_are_named():
    page = (ROOT / "book" / "algorithm.md").read_text()
    literal = (ROOT / "mlogb_core" / "literal.py").read_text()
    rows = [row for row in page.splitlines() if row.startswith("|") and "`" in row and "---" not in row]
    quoted = 0
    for row in rows:
        cells = row.strip("|").split(" | ")
        for cell in cells:
            code = re.findall(r"`([^`]+)`", cell)
            if len(code) == 2 and code[0].endswith(".py"):
                assert code[1] in (ROOT / code[0]).read_text(), code
                quoted += 1
            elif len(code) == 1 and not code[0].endswith(".py"):
                assert code[0] in literal, code
                quoted += 1
    assert quoted == 32
