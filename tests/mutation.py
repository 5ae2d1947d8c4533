"""Mutation study: deliberate faults in the library, one at a time, which must be noticed.

Each fault of ``mutants.yml`` replaces a piece of text that occurs exactly once. It is applied to a
copy of the project, and the tests of the library run there until the first failure. The table of
what noticed each fault is written to ``mutants.md``. A survivor is a missing test; the exit code is
then 1.

With ``--claims`` the faults are those of ``claim_mutants.yml``, each behind one claim or several, and
the judge is the evidence of these claims: the code of their notebooks runs in the copy. A claim whose
evidence survives is not verified. Its table, ``claim_mutants.md``, is written after each fault, and a
row is kept while the fault, the faulty file and the code of the notebooks stay what they were. Two runs
for two notebooks may go side by side, as each reads the table again before it writes.

    python tests/mutation.py [--jobs 2] [--only sign-of-the-gradient]
    python tests/mutation.py --claims [--jobs 2] [--notebook 02] [--only shrink-adds] [--again]
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
import yaml
from joblib import Parallel, delayed
from pydantic import BaseModel, ConfigDict, TypeAdapter

from compendium.claims.registry import Registry, load_registry
from compendium.system.paths import write_atomically

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
TABLE = HERE / "mutants.md"
CLAIM_TABLE = HERE / "claim_mutants.md"
COPIED = ("mlogb_core", "compendium", "tests", "conftest.py", "pyproject.toml", "experiments.yml")
NO_TESTS = 5  # pytest's exit code
LIMIT = 900.0  # a fault can make a loop endless
_STOP = re.compile(r": (?:cell \d+ stops: |the time limit|no run: )")


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


class ClaimMutant(Mutant):
    """A fault behind claims, whose evidence must notice it; or why no function is behind them."""

    claims: list[str]
    file: str = ""
    find: str = ""
    replace: str = ""
    without: str = ""


class Outcome(NamedTuple):
    """What became of a mutant: killed, survived or an error of the run, and by which test."""

    verdict: str
    by: str


def load_mutants(path: Path = HERE / "mutants.yml") -> list[Mutant]:
    """Read the list of faults."""
    return TypeAdapter(list[Mutant]).validate_python(yaml.safe_load(path.read_text(encoding="utf-8")))


def load_claim_mutants(path: Path = HERE / "claim_mutants.yml") -> list[ClaimMutant]:
    """Read the list of the faults behind claims."""
    return TypeAdapter(list[ClaimMutant]).validate_python(yaml.safe_load(path.read_text(encoding="utf-8")))


@cache
def syntax_tree(path: Path) -> str:
    """The syntax tree of a file as text; kept, since many faults are in the same file."""
    return ast.dump(ast.parse(path.read_text(encoding="utf-8")))


def suite() -> list[str]:
    """The fast tests that are about the library, as arguments of pytest."""
    names = (
        "link", "choice", "radius", "curvature", "error_control", "coordinates", "projection", "environments",
        "policies", "thompson", "simulation", "buffer", "orthogonality", "oracle", "compiled",
        "compiled_faults", "compiled_eigenpair", "compiled_tridiagonal", "stiff",
    )  # fmt: skip
    bounds = sorted(path.name for path in HERE.glob("theory/test_bounds_*.py"))
    rivals = sorted(path.name for path in HERE.glob("core/rivals/test_*.py"))
    return [
        *(f"tests/core/test_{name}.py" for name in names),
        *(f"tests/core/rivals/{name}" for name in rivals),
        *(f"tests/theory/{name}" for name in bounds),
    ]


def run(mutant: Mutant | None) -> Outcome:
    """Run the tests on a copy of the project with the fault, or without one."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        return _judge(_copied(Path(folder), mutant))


def _copied(copy: Path, mutant: Mutant | None, more: tuple[str, ...] = ()) -> Path:
    """Fill a folder with what is run, with a fault in it or without one."""
    unneeded = shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc", "*.ipynb")
    for name in (*COPIED, *more):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=unneeded)
        else:
            shutil.copy2(source, copy / name)
    if mutant is not None:
        (copy / mutant.file).write_text(mutant.apply(ROOT), encoding="utf-8")
    return copy


def _judge(copy: Path) -> Outcome:
    """Ask the tests of `make test`, and the slow ones only where those notice nothing."""
    quick = _ask(copy, "not slow and not very_slow and not browser")
    return _ask(copy, "slow", none_is_fine=True) if quick.verdict == "survived" else quick


def _ask(copy: Path, markers: str, none_is_fine: bool = False) -> Outcome:
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
            command, cwd=copy, env=_environment(copy), capture_output=True, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return Outcome("killed", "the time limit")
    if done.returncode == 0 or (none_is_fine and done.returncode == NO_TESTS):
        return Outcome("survived", "")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if done.returncode in (1, 2) and failed:
        return Outcome("killed", failed[1].removeprefix("tests/"))
    return Outcome("error", done.stdout[-2000:] + done.stderr[-2000:])


def _environment(copy: Path) -> dict[str, str]:
    own = {"PYTHONPATH": str(copy), "MLOGB_ROOT": str(copy), "HYPOTHESIS_STORAGE_DIRECTORY": str(copy)}
    return {"HYPOTHESIS_PROFILE": "more"} | os.environ | own


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


def ask_evidence(mutant: ClaimMutant | None, notebooks: dict[str, list[str]]) -> dict[str, str]:
    """What the evidence of each claim said to a fault, or to none; a claim that noticed nothing is left out.

    Parameters
    ----------
    mutant : ClaimMutant, optional
        The fault.
    notebooks : mapping
        By the name of a notebook, the claims whose evidence is asked there.
    """
    found = {}
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = _copied(Path(folder), mutant, ("notebooks", "claims.yml"))
        for name, claims in notebooks.items():
            command = [sys.executable, "tests/claim_evidence.py", f"notebooks/{name}.md", *claims]
            try:
                done = subprocess.run(
                    command, cwd=copy, env=_environment(copy), capture_output=True, text=True, timeout=LIMIT
                )
            except subprocess.TimeoutExpired:
                found |= dict.fromkeys(claims, "the time limit")
                continue
            if done.returncode != 0:
                found |= dict.fromkeys(claims, f"no run: {done.stderr.strip().splitlines()[-1:]}")
                continue
            found |= json.loads(done.stdout.splitlines()[-1])
    return found


def notebooks_of(mutant: ClaimMutant, registry: Registry) -> dict[str, list[str]]:
    """By the name of a notebook, the claims of a fault that are checked there."""
    found: dict[str, list[str]] = {}
    for name in mutant.claims:
        found.setdefault((registry.by_id[name].notebook or "").partition("#")[0], []).append(name)
    return found


def fault_digest(mutant: ClaimMutant) -> str:
    """The fault as the list has it, in eight digits: its claims, its file and both texts."""
    return _digest([*sorted(mutant.claims), mutant.file, mutant.find, mutant.replace])


def code_digest(mutant: ClaimMutant, notebooks: dict[str, list[str]]) -> str:
    """On what the fault was tried, in eight digits: the faulty file and the code of the notebooks."""
    parts = [mutant.apply(ROOT)]
    for name in notebooks:
        text = (ROOT / "notebooks" / f"{name}.md").read_text(encoding="utf-8")
        parts += re.findall(r"^```{code-cell}.*?^```", text, re.DOTALL | re.MULTILINE)
    return _digest(parts)


def _digest(parts: list[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]


def claim_table(rows: dict[str, str], mutants: list[ClaimMutant]) -> str:
    """The table of the faults behind claims, Markdown: the rows that there are, in the order of the list."""
    asked = [mutant for mutant in mutants if not mutant.without]
    there = [rows[mutant.name] for mutant in asked if mutant.name in rows]
    survived = sum("| survived |" in row for row in there)
    halted = [mutant.name for mutant in asked if _STOP.search(rows.get(mutant.name, ""))]
    stopped = (
        f"By an error alone were noticed: {', '.join(halted)}." if halted else "All by a line of evidence."
    )
    lines = [
        "# Faults behind the claims",
        "",
        "Made by `make mutants-claims`: each fault is put into a copy of the library, and the code cells of",
        "the notebooks that check the claims run there, in their order. A claim has noticed the fault if a",
        "line of its own evidence fails, or if an error stops a cell and no line of its evidence says more.",
        "The faults are in `claim_mutants.yml`. The digests are of the fault, and of the faulty file with",
        "the notebooks' code as they were when it was tried; where these have changed, `make mutants-claims`",
        "tries the fault again.",
        "",
        f"{len(there)} of {len(asked)} faults were tried, {survived} of them survived. {stopped}",
        "",
        "| fault | behind | result | what said so first | fault, code |",
        "|---|---|---|---|---|",
        *there,
        "",
        "No function of the library is behind these claims:",
        "",
        *(f"- {', '.join(mutant.claims)}: {mutant.without}" for mutant in mutants if mutant.without),
    ]
    return "\n".join(lines) + "\n"


def claim_row(mutant: ClaimMutant, found: dict[str, str], key: str) -> str:
    """A row of the table; the fault survived if a claim behind which it is did not notice it."""
    silent = [claim for claim in mutant.claims if claim not in found]
    said = "; ".join(f"{claim}: {found[claim]}" for claim in mutant.claims if claim in found)
    said = f"not noticed: {', '.join(silent)}; {said}".rstrip("; ") if silent else said
    cells = [f"`{mutant.name}`: {mutant.fault}", ", ".join(mutant.claims)]
    cells += ["survived" if silent else "noticed", " ".join(said.split())[:400]]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + f" | {key} |"


def _kept_rows(mutants: list[ClaimMutant]) -> dict[str, str]:
    text = CLAIM_TABLE.read_text(encoding="utf-8") if CLAIM_TABLE.is_file() else ""
    rows = {found[1]: found[0] for found in re.finditer(r"^\| `([\w-]+)`: .*$", text, re.MULTILINE)}
    return {
        mutant.name: rows[mutant.name]
        for mutant in mutants
        if f"| {fault_digest(mutant)}, " in rows.get(mutant.name, "")  # a row of another fault says nothing
    }


def _study_of_claims(jobs: int, only: list[str] | None, notebook: str, again: bool) -> bool:
    """Try the faults behind the claims and write the table as rows come; return whether one survived."""
    registry, mutants = load_registry(ROOT), load_claim_mutants()
    rows, work = _kept_rows(mutants), {}
    for mutant in mutants:
        if mutant.without:
            continue
        asked = notebooks_of(mutant, registry)
        key = f"{fault_digest(mutant)}, {code_digest(mutant, asked)}"
        chosen = (not only or mutant.name in only) and any(name.startswith(notebook) for name in asked)
        if chosen and (again or not rows.get(mutant.name, "").endswith(f"| {key} |")):
            work[mutant.name] = mutant, asked, key
    unasked: dict[str, list[str]] = {}
    for _, asked, _ in work.values():
        for name, claims in asked.items():
            unasked.setdefault(name, []).extend(claims)
    tasks = (  # lazy: the first fault that asks a notebook has it run without any fault, too
        delayed(_with_and_without)(
            mutant, asked, {name: unasked.pop(name) for name in asked if name in unasked}
        )
        for mutant, asked, _ in work.values()
    )
    results = Parallel(n_jobs=jobs, return_as="generator")(tasks)
    for (mutant, _, key), found in zip(work.values(), results, strict=True):
        rows = _kept_rows(mutants) | {mutant.name: claim_row(mutant, found, key)}
        print(rows[mutant.name], flush=True)
        write_atomically(CLAIM_TABLE, claim_table(rows, mutants))
    return any("| survived |" in rows[name] for name in work)


def _with_and_without(
    mutant: ClaimMutant, asked: dict[str, list[str]], first: dict[str, list[str]]
) -> dict[str, str]:
    """What the evidence says to a fault; that of the notebooks asked first has to say nothing to none."""
    for name, claims in first.items():
        if found := ask_evidence(None, {name: claims}):
            raise RuntimeError(f"{name} fails without any fault: {found}")
    return ask_evidence(mutant, asked)


def main(
    jobs: Annotated[int, typer.Option(min=1, help="Copies that are tested at once.")] = 2,
    only: Annotated[list[str] | None, typer.Option(help="Names of faults; no table is written.")] = None,
    claims: Annotated[bool, typer.Option("--claims", help="The faults behind the claims.")] = False,
    notebook: Annotated[str, typer.Option(help="Claims of this notebook alone, such as 02.")] = "",
    again: Annotated[bool, typer.Option("--again", help="Also those whose row is up to date.")] = False,
) -> None:
    """Apply every fault in turn and write what noticed it."""
    if claims:
        raise typer.Exit(int(_study_of_claims(jobs, only, notebook, again)))
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
