"""The page on using the library: its examples run, in one session as a reader would type them."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "book" / "api.md"


def session(text: str) -> tuple[doctest.TestResults, str]:
    """Run the examples of a text; how many there were and failed, and what the failures say."""
    told: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    test = doctest.DocTestParser().get_doctest(text, {}, "examples", None, 0)
    return runner.run(test, out=told.append), "".join(told)


def test_the_examples_run():
    result, told = session(PAGE.read_text(encoding="utf-8"))
    assert told == ""
    assert result.attempted > 30


def test_an_example_that_says_something_else_is_noticed():
    result, told = session(">>> 1 + 1\n3\n")
    assert result.failed == 1
    assert "Expected:\n    3" in told


def test_a_module_is_reached_from_what_a_user_does_first():
    text = PAGE.read_text(encoding="utf-8")
    first, reference = text.split("\n## Reference\n")
    rows = re.findall(r"^\| \[[^\]]+\]\(#([\w-]+)\)", first, re.MULTILINE)
    headings = re.findall(r"^## (.+)$", first, re.MULTILINE)
    assert rows == [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]
    assert reference.index("policies.constructors") < reference.index("mlogb_core.link")
