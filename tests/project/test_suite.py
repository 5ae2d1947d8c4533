"""The suite itself: what `make test` leaves out, and what is said of the targets."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from compendium.claims.registry import load_registry

ROOT = Path(__file__).resolve().parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
MARKS = ("slow", "very_slow", "browser", "each_value", "sparse_kernels", "compiled")


@pytest.mark.parametrize(("own", "kept"), [(None, ""), ("/one:/other", ":/one:/other")])
def test_the_tests_see_the_own_path_of_the_user(own, kept):
    """What is left out for the tests stands before it, and no folder is added where there is none."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MAKEFLAGS", "MFLAGS")}
    environment |= {} if own is None else {"PYTHONPATH": own}
    asked = {"cwd": ROOT, "env": environment, "capture_output": True, "text": True, "check": True}
    recipe = subprocess.run(["make", "-n", "test"], **asked).stdout
    [setting] = re.findall(r"^(.*) \S+/python -m pytest", recipe, re.MULTILINE)
    seen = subprocess.run(["sh", "-c", f"{setting} printenv PYTHONPATH"], **asked).stdout
    assert seen.strip() == f"{ROOT}/.ci/without{kept}"


@pytest.mark.slow
def test_each_test_is_in_one_part(tmp_path):
    """A grid, a slow fixture, an experiment and marked tests, told apart by the rules of this suite."""
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    markers = "\n".join(f"    {name}" for name in MARKS)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nmarkers =\n{markers}\n")
    (tmp_path / "test_a.py").write_text("""
import pytest
SLOW_FIXTURES = ("costly",)
@pytest.fixture
def costly(): pass
@pytest.fixture(params=["p", "q"])
def kind(request): pass
@pytest.mark.each_value
@pytest.mark.parametrize(("x", "y"), [(1, 1), (2, 1)])
@pytest.mark.parametrize("z", ["a", "b", [], "d"])
def test_grid(x, y, z): pass
@pytest.mark.each_value
@pytest.mark.parametrize("v", [1, 2])
def test_kinds(kind, v): pass
@pytest.mark.each_value
@pytest.mark.parametrize("form", [0, pytest.param(1, marks=pytest.mark.sparse_kernels)])
@pytest.mark.parametrize("w", ["e", "f"])
def test_forms(w, form): pass
@pytest.mark.each_value
@pytest.mark.parametrize("policy", ["oful", "oful compiled"])
@pytest.mark.parametrize("u", ["g", "h"])
def test_policies(u, policy): pass
@pytest.mark.compiled
def test_compiled(): pass
def test_costly(costly): pass
def test_plain(): pass
@pytest.mark.slow
def test_slow(): pass
@pytest.mark.browser
def test_browser(): pass
@pytest.mark.very_slow
def test_very_slow(): pass
""")
    (tmp_path / "notebooks" / "experiments").mkdir(parents=True)
    (tmp_path / "notebooks" / "experiments" / "test_b.py").write_text("def test_experiment(): pass\n")
    (tmp_path / "notebooks" / "18_price_of_dimension.py").write_text("def test_derivation(): pass\n")
    expressions = re.findall(r'\$\(PYTEST\).* -m (?:"([^"]+)"|(\w+))$', MAKEFILE, re.MULTILINE)
    parts = []
    for expression in map("".join, expressions):
        options = ("--collect-only", "-q", "-p", "no:cacheprovider", "-m", expression)
        listed = subprocess.run(
            [sys.executable, "-m", "pytest", *options, "-o", "python_files=test_*.py 18_*.py"],
            cwd=tmp_path, capture_output=True, text=True, check=True,
            env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        ).stdout  # fmt: skip
        parts.append(set(re.findall(r"::(.+)$", listed, re.MULTILINE)))
    # One case for each value of the longer parameter shows the others as well, as often as they can.
    assert parts == [
        {"test_grid[a-1-1]", "test_grid[b-2-1]", "test_grid[z2-1-1]", "test_grid[d-2-1]"}
        | {"test_kinds[p-1]", "test_kinds[q-2]", "test_forms[e-0]", "test_forms[f-0]", "test_plain"}
        | {"test_policies[g-oful]", "test_policies[h-oful]"},
        {"test_grid[a-2-1]", "test_grid[b-1-1]", "test_grid[z2-2-1]", "test_grid[d-1-1]"}
        | {
            "test_forms[e-1]",
            "test_forms[f-1]",
            "test_kinds[p-2]",
            "test_kinds[q-1]",
            "test_policies[g-oful compiled]",
            "test_policies[h-oful compiled]",
            "test_compiled",
            "test_browser",
            "test_costly",
            "test_derivation",
            "test_experiment",
            "test_slow",
        },
        {"test_very_slow"},
    ]


def test_slow_notebooks_are_there_and_none_is_about_a_statement_of_the_paper():
    spec = importlib.util.spec_from_file_location("settings_of_the_suite", ROOT / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    texts = {path.stem: path.read_text() for path in (ROOT / "notebooks").glob("*.md")}
    assert texts.keys() >= module.SLOW_NOTEBOOKS
    claims = load_registry(ROOT).claims
    about_the_paper = {claim.notebook.partition("#")[0] for claim in claims if claim.label and claim.notebook}
    assert len(about_the_paper) > 10
    assert not about_the_paper & module.SLOW_NOTEBOOKS
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    assert all(f"notebooks/{name}.md" in contributing for name in module.SLOW_NOTEBOOKS)


def test_targets_that_the_pages_name_are_there():
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    (phony,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert set(phony.split()) == targets
    for page in [
        *ROOT.glob("*.md"),
        *ROOT.glob("book/*.md"),
        ROOT / "pyproject.toml",
        *ROOT.glob(".github/*/*"),
    ]:
        # At the start of a line, in code, or as a step of the workflow: "make sure" is none.
        named = re.findall(r"(?:^|`|run: )make ([a-z-]+)", page.read_text(), re.MULTILINE)
        assert set(named) <= targets, page.name


@pytest.mark.parametrize(
    ("code", "closing"),
    [
        (0, "==== 3727 passed, 12 skipped in 950.60s ===="),
        (2, "== 1 failed, 240 passed, 9 skipped in 700.50s (0:11:40) =="),
    ],
)
def test_the_last_line_of_ci_is_a_closing_line(tmp_path, code, closing):
    """Of the sum of the parts, or of the part that failed."""
    failed = "1 failed, " if code else ""
    lines = ("== 3487 passed, 3 skipped in 250.10s (0:04:10) ==", "in 3 parts",
             f"== {failed}240 passed, 9 skipped in 700.50s (0:11:40) ==")  # fmt: skip
    for name, program in (
        ("make", f"printf '%s\\n' {' '.join(map(repr, lines))}; exit {code}"),
        ("chromium", ""),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / name).chmod(0o755)
    path = os.pathsep.join((str(tmp_path), os.environ["PATH"]))
    done = subprocess.run(
        [ROOT / ".ci" / "run"], env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (code, closing)
    assert not done.stderr


@pytest.mark.slow
def test_nbval_executes_with_the_configuration_of_a_batch(tmp_path):
    """None of a user's variables reaches a notebook that is compared with its stored outputs."""
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    seen = "import os\nprint('HOSTILE' in os.environ, os.environ['OMP_NUM_THREADS'])"
    output = nbformat.v4.new_output("stream", text="False 1\n")
    cell = nbformat.v4.new_code_cell(seen, execution_count=1, outputs=[output])
    notebook = nbformat.v4.new_notebook(cells=[cell])
    nbformat.write(notebook, tmp_path / "a.ipynb")
    hostile = {"HOSTILE": "1", "OMP_NUM_THREADS": "2", "MLOGB_ROOT": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--nbval", "--nbval-current-env", "-p", "no:cacheprovider"],
        cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ | hostile,
    )  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout
