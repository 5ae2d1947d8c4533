"""What the sections of the page share: tables, and where a record comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table in Markdown, with numbers aligned to the right.

    Examples
    --------
    >>> print(markdown([{"name": "a", "value": "1"}]))
    | name | value |
    |---|---:|
    | a | 1 |
    """
    names = list(rows[0])
    rule = [
        "---" if any(c.isalpha() for row in rows for c in str(row[name])) else "---:" for name in names
    ]  # fmt: skip
    lines = [names, rule, *([str(row[name]) for name in names] for row in rows)]
    cells = ["| " + " | ".join(line) + " |" for line in lines]
    cells[1] = "|" + "|".join(rule) + "|"
    return "\n".join(cells)


def origin(record: Mapping[str, Any]) -> str:
    """How long the run of a record took, and of which code."""
    minutes = f"The run took {record['duration_seconds'] / 60:.0f} minutes"
    commit = record.get("git_commit")
    if not commit:
        return f"{minutes}."
    return f"{minutes}, of the code at commit {commit[:7]}{'' if record['git_clean'] else ' with changes'}."
