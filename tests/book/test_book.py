"""The book: its sources fit together, and what it quotes is what the code says."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from pathlib import Path

import pytest

from compendium.system.paths import FailureError, UsageError

pytest.importorskip("sphinx", reason='the book needs Sphinx: pip install ".[compendium]"')

from compendium.book.extension import LITERAL, line_of, name_lines

ROOT = Path(__file__).resolve().parents[2]


def test_quoted_lines_are_in_the_files_that_are_named():
    page = (ROOT / "book" / "algorithm.md").read_text()
    rows = [row for row in page.splitlines() if row.startswith("|") and "`" in row and "---" not in row]
    quoted = 0
    for row in rows:
        cells = row.strip("|").split(" | ")
        for cell in cells:
            code = re.findall(r"`([^`]+)`", cell)
            if len(code) == 2 and code[0].endswith(".py"):
                quoted += line_of(code[1], code[0], (ROOT / code[0]).read_text()) > 0
            elif len(code) == 1 and not code[0].endswith(".py"):
                quoted += line_of(code[0], LITERAL, (ROOT / LITERAL).read_text()) > 0
    assert quoted == 32


def test_a_quoted_line_is_found_or_named():
    assert line_of("b = 2", "some.py", "a = 1\nb = 2\n") == 2
    with pytest.raises(FailureError, match=r"`c = 3`, and no line of some\.py has it"):
        line_of("c = 3", "some.py", "a = 1\nb = 2\n")
    assert line_of(" = ", "some.py", "\na = 1\nb = 2\n") == 2


def test_listings_have_anchors_of_lines():
    context = {"body": '<pre><span class="linenos"> 9</span>x\n<span class="linenos">10</span>y</pre>'}
    name_lines(None, "_modules/a", "page.html", context, None)
    assert context["body"].count('id="L9"> 9<') == context["body"].count('id="L10">10<') == 1
    before = dict(context)
    name_lines(None, "algorithm", "page.html", context, None)
    assert context == before


def test_mathjax_is_the_bundle_that_browsers_run(tmp_path):
    """The package has a module of imports under the same name, with which no formula is typeset."""
    from compendium.book import build as book

    program = (book.gather(tmp_path / "source") / "_static" / book.MATHJAX).read_text()
    assert len(program) > 1_000_000
    assert not program.startswith("import ")


@pytest.mark.parametrize("failure", [FailureError("no Sphinx"), UsageError("no project")])
def test_a_failure_is_said_in_one_line(failure, monkeypatch):
    from compendium.book import build as book

    def fail():
        raise failure

    monkeypatch.setattr(book, "build", fail)
    with pytest.raises(SystemExit, match=f"^{failure}$"):
        book.main()


def test_two_builds_at_once_wait_for_each_other(tmp_path, monkeypatch):
    """Each empties the folder in which the sources are gathered."""
    pytest.importorskip("sphinx", reason='the book needs Sphinx: pip install ".[compendium]"')
    from compendium.book import build as book

    inside, seen = [], []

    def gather(folder):
        inside.append(folder)
        seen.append(len(inside))
        time.sleep(0.2)
        inside.pop()
        raise FailureError("gathered")

    def one_build():
        with contextlib.suppress(FailureError):
            book.build()

    (tmp_path / "experiments.yml").touch()
    monkeypatch.setenv("MLOGB_ROOT", str(tmp_path))
    monkeypatch.setattr(book, "gather", gather)
    builds = [threading.Thread(target=one_build) for _ in range(3)]
    for build in builds:
        build.start()
    for build in builds:
        build.join()
    assert seen == [1, 1, 1]
