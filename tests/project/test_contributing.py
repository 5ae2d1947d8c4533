"""CONTRIBUTING.md followed to the letter in a copy of the project: what it says to add works.

Its examples are written to the files that it names, the names to the places that it names, and then the
tests run that an addition of each kind touches.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FOLDERS = ("mlogb_core", "compendium", "notebooks", "book", "tests")
FILES = (
    "claims.yml", "experiments.yml", "pyproject.toml", "jupytext.toml", "conftest.py", "ERRATA.md",
    "RESULTS.md", "CONTRIBUTING.md", "README.md", "CITATION.cff",
)  # fmt: skip


def example(first: str) -> str:
    """The fenced block of CONTRIBUTING.md that begins with some text."""
    blocks = re.findall(r"^(`{3,4})\w+\n(.*?)^\1$", GUIDE, re.DOTALL | re.MULTILINE)
    (found,) = [block for _, block in blocks if block.startswith(first)]
    return found


def inserted(path: Path, after: str, new: str) -> None:
    """Put text behind a place that the file has once, or more often where the first is meant."""
    text = path.read_text(encoding="utf-8")
    assert after in text, f"{path.name} has no {after!r}"
    path.write_text(text.replace(after, after + new, 1), encoding="utf-8")


def add_policy(root: Path) -> None:
    core = root / "mlogb_core"
    (core / "curvature" / "generous.py").write_text(example('r"""Generous Frequent Directions'))
    names = core / "curvature" / "__init__.py"
    inserted(
        names,
        "import FrequentDirections\n",
        "from mlogb_core.curvature.generous import GenerousFrequentDirections\n",
    )
    inserted(names, '    "FrequentDirections",\n', '    "GenerousFrequentDirections",\n')
    constructors = core / "policies" / "constructors.py"
    inserted(constructors, "    FrequentDirections,\n", "    GenerousFrequentDirections,\n")
    with constructors.open("a", encoding="utf-8") as file:
        file.write("\n\n" + example("def generous_eofd("))
    names = core / "policies" / "__init__.py"
    inserted(names, "    first_order,\n", "    generous_eofd,\n")
    inserted(names, '    "first_order",\n', '    "generous_eofd",\n')
    registry = root / "compendium" / "experiments" / "policies.py"
    inserted(registry, "    first_order,\n", "    generous_eofd,\n")
    inserted(registry, "POLICIES: dict[str, Entry] = {\n", example('    "generous-eofd"'))


def add_environment(root: Path) -> None:
    problems = root / "compendium" / "experiments" / "problems"
    (problems / "cube.py").write_text(example('"""Actions at the corners'))
    names = problems / "__init__.py"
    inserted(names, "import Problem, Source\n", "from compendium.experiments.problems.cube import Cube\n")
    inserted(names, "Annotated[", "Cube | ")
    inserted(names, '    "Classes",\n', '    "Cube",\n')
    inserted(
        root / "compendium" / "experiments" / "__init__.py", "_MODULES = {\n", '    "Cube": "problems",\n'
    )


def add_notebooks(root: Path) -> None:
    lemma = example("---\njupytext:")
    (root / "notebooks" / "18_sums.md").write_text(lemma)
    header = lemma[: lemma.index("# The norm")]
    (root / "notebooks" / "experiments" / "corners.md").write_text(
        header + example("# The corners of a cube")
    )
    with (root / "experiments.yml").open("a", encoding="utf-8") as file:
        file.write("\n" + example("  corners:"))
    index, guide = root / "book" / "index.md", root / "notebooks" / "00_reading_guide.md"
    inserted(index, "notebooks/05_projection\n", "notebooks/18_sums\n")
    inserted(index, "notebooks/experiments/scale\n", "notebooks/experiments/corners\n")
    row = "| [18 The norm of a sum](18_sums.ipynb) | 01 | a bound |\n"
    inserted(guide, "| notebook | needs | what you have afterwards |\n|---|---|---|\n", row)
    row = "| [Corners](experiments/corners.ipynb) | 01 | whether the sketch costs regret |\n"
    inserted(guide, "| experiment | needs | what it answers |\n|---|---|---|\n", row)


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """The copy with all four additions, and the environment in which its commands run."""
    root = tmp_path_factory.mktemp("followed") / "project"
    root.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "_build", ".ipynb_checkpoints")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, root)
    for add in (add_policy, add_environment, add_notebooks):
        add(root)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MLOGB_", "PYTEST_"))}
    # As in `make test`, where the kernels are interpreted: the copy would compile all of them anew.
    return root, environment | {"PYTHONPATH": str(root), "MLOGB_ROOT": str(root), "NUMBA_DISABLE_JIT": "1"}


def told(followed, *arguments: str) -> str:
    """What a command in the copy prints; it must succeed."""
    root, environment = followed
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


pytestmark = pytest.mark.slow


def test_the_notebooks_build_and_agree_with_their_texts(followed):
    names = ("00_reading_guide", "18_sums", "experiments/corners")
    texts = [f"notebooks/{name}.md" for name in names]
    assert told(followed, "compendium", "notebooks", "build", *texts).split() == sorted(
        f"notebooks/{name}.ipynb" for name in names
    )
    assert "agree" in told(followed, "compendium", "notebooks", "check")


def test_the_experiment_runs_with_the_policy_and_the_environment(followed):
    assert "corners" in told(followed, "compendium", "list")
    told(followed, "compendium", "run", "corners", "--profile", "smoke")
    (folder,) = (followed[0] / "papermill_runs" / "corners").iterdir()
    assert {"results.parquet", "record.json", "corners.ipynb"} <= {path.name for path in folder.iterdir()}


def test_the_tests_that_the_additions_touch_pass(followed):
    guide = "test_the_reading_guide_is_complete_and_asks_for_what_the_notebooks_ask_for"
    chosen = (
        "tests/runs/test_manifest.py", f"tests/runs/test_lab.py::{guide}", "tests/book/test_statements.py",
        "tests/book/test_notation.py", "tests/project/test_folders.py", "tests/experiments",
        "tests/core/test_policies.py", "tests/core/test_curvature.py",
    )  # fmt: skip
    quiet = ("pytest", "-q", "-p", "no:cacheprovider")
    told(followed, *quiet, "-m", "not slow and not very_slow and not compiled", *chosen)
    told(followed, *quiet, "tests/book/test_derivations.py", "-k", "18_sums")


def test_an_example_that_is_gone_is_noticed():
    with pytest.raises(ValueError, match="not enough values"):
        example("no example begins so")
