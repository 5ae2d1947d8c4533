"""Mutation study: deliberate faults in `mlogb_core`, one at a time, which the fast tests must notice.

Each fault of ``mutants.yml`` replaces a piece of text that occurs exactly once. It is applied to a
copy of the project, and the tests of the library run there until the first failure. The table of
what noticed each fault is written to ``mutants.md``. A survivor is a missing test; the exit code is
then 1.

    python tests/mutation.py [--jobs 2] [--only sign-of-the-gradient]
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
import yaml
from joblib import Parallel, delayed
from pydantic import BaseModel, ConfigDict, TypeAdapter

from compendium.system.paths import write_atomically

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TABLE = HERE / "mutants.md"
COPIED = ("mlogb_core", "compendium", "tests", "conftest.py", "pyproject.toml", "experiments.yml")
NO_TESTS = 5  # pytest's exit code
LIMIT = 900.0  # a fault can make a loop endless


class Mutant(BaseModel):
    """A fault: which text of which file becomes what, and what that means."""

    model_config = ConfigDict(extra="forbid")

    name: str
    fault: str
    file: str
    find: str
    replace: str

    def apply(self, root: Path) -> str:
        """The mutated text of the file.

        Raises
        ------
        ValueError
            If the text to replace does not occur exactly once.
        """
        text = (root / self.file).read_text(encoding="utf-8")
        if text.count(self.find) != 1:
            raise ValueError(
                f"{self.name}: occurs {text.count(self.find)} times in {self.file}: {self.find!r}"
            )
        return text.replace(self.find, self.replace)


class Outcome(NamedTuple):
    """What became of a mutant: killed, survived or an error of the run, and by which test."""

    verdict: str
    by: str


def load_mutants(path: Path = HERE / "mutants.yml") -> list[Mutant]:
    """Read the list of faults."""
    return TypeAdapter(list[Mutant]).validate_python(yaml.safe_load(path.read_text(encoding="utf-8")))


def suite() -> list[str]:
    """The fast tests that are about the library, as arguments of pytest."""
    names = (
        "link", "choice", "radius", "curvature", "coordinates", "projection", "environments", "policies",
        "thompson", "simulation", "buffer", "orthogonality", "oracle", "compiled", "compiled_faults",
        "compiled_eigenpair", "stiff",
    )  # fmt: skip
    bounds = sorted(path.name for path in HERE.glob("theory/test_bounds_*.py"))
    return [*(f"tests/core/test_{name}.py" for name in names), *(f"tests/theory/{name}" for name in bounds)]


def run(mutant: Mutant | None) -> Outcome:
    """Run the tests on a copy of the project with the fault, or without one."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(
                    source, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc")
                )
            else:
                shutil.copy2(source, copy / name)
        if mutant is not None:
            (copy / mutant.file).write_text(mutant.apply(ROOT), encoding="utf-8")
        return _judge(copy)


def _judge(copy: Path) -> Outcome:
    """Ask the tests of `make test`, and the slow ones only where those notice nothing."""
    quick = _ask(copy, "not slow and not very_slow and not browser")
    return _ask(copy, "slow", none_is_fine=True) if quick.verdict == "survived" else quick


def _ask(copy: Path, markers: str, none_is_fine: bool = False) -> Outcome:
    own = {"PYTHONPATH": str(copy), "MLOGB_ROOT": str(copy), "HYPOTHESIS_STORAGE_DIRECTORY": str(copy)}
    options = [
        "-x",
        "-q",
        "--no-header",
        "-p",
        "no:cacheprovider",
        "-m",
        markers,
    ]
    command = [sys.executable, "-m", "pytest", *options, *suite()]
    try:
        done = subprocess.run(
            command, cwd=copy, env=os.environ | own, capture_output=True, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return Outcome("killed", "the time limit")
    if done.returncode == 0 or (none_is_fine and done.returncode == NO_TESTS):
        return Outcome("survived", "")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if done.returncode in (1, 2) and failed:
        return Outcome("killed", failed[1].removeprefix("tests/"))
    return Outcome("error", done.stdout[-2000:] + done.stderr[-2000:])


def table(results: list[tuple[Mutant, Outcome]]) -> str:
    """The table of the study, Markdown."""
    killed = sum(outcome.verdict == "killed" for _, outcome in results)
    lines = [
        "# Mutation study",
        "",
        "Made by `make mutants`: each fault is put into a copy of `mlogb_core`, and the fast tests of the",
        "library run until one fails. The faults are in `mutants.yml`.",
        "",
        f"{killed} of {len(results)} faults were noticed.",
        "",
        "| fault | in | result | first test that failed |",
        "|---|---|---|---|",
    ]
    for mutant, outcome in results:
        test = f"`{outcome.by}`" if outcome.verdict == "killed" else ""
        lines.append(
            f"| {mutant.fault} | `{mutant.file}` | {outcome.verdict} | {test} |".replace("|s", "\\|s")
        )
    return "\n".join(lines) + "\n"


def main(
    jobs: Annotated[int, typer.Option(min=1, help="Copies that are tested at once.")] = 2,
    only: Annotated[list[str] | None, typer.Option(help="Names of faults; no table is written.")] = None,
) -> None:
    """Apply every fault in turn and write which test noticed it."""
    mutants = [mutant for mutant in load_mutants() if not only or mutant.name in only]
    if not mutants:
        raise typer.BadParameter(f"no such fault; there are {', '.join(m.name for m in load_mutants())}")
    sound = run(None)
    if sound.verdict != "survived":
        print(f"the tests fail without any fault: {sound.by}", file=sys.stderr)
        raise typer.Exit(1)
    results = []
    work = Parallel(n_jobs=jobs, return_as="generator")(delayed(run)(mutant) for mutant in mutants)
    for mutant, outcome in zip(mutants, work, strict=True):
        print(f"{outcome.verdict}: {mutant.name}: {outcome.by}", flush=True)
        results.append((mutant, outcome))
    if not only:
        write_atomically(TABLE, table(results))
    if any(outcome.verdict != "killed" for _, outcome in results):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
