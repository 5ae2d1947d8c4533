"""The registry of claims: what the paper says, and what the committed notebooks show about it.

``claims.yml`` says what is claimed and where; what became of it is not typed in. The executed
notebooks hold evidence as JSON (`compendium.claims.evidence`), CI executes them again and compares, and
the status of a claim follows from it: nobody can call a claim verified that no cell verified.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Literal

import networkx as nx
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from compendium.claims import formulas
from compendium.claims.evidence import CLAIM, Line, recorded
from compendium.system import paths
from compendium.system.paths import UsageError

VERIFIED, CORRECTED, REFUTED, NOT_CHECKED = "verified", "corrected", "refuted", "not checked"
STATUSES = (VERIFIED, CORRECTED, REFUTED, NOT_CHECKED)

RESULTS = "RESULTS"  # the page of the recorded runs, whose evidence counts as a notebook's

_ERRATUM = re.compile(r"^### (.*\(([^()]*)\))$", re.MULTILINE)

Identifier = Annotated[str, Field(pattern=rf"^{CLAIM}$")]
Text = Annotated[str, Field(min_length=1)]


class Claim(BaseModel):
    """An entry of ``claims.yml``.

    Attributes
    ----------
    id : str
        C for a claim of the paper, R for a result of this project.
    label : str, optional
        Where in the paper; a result of this project has none.
    statement : str
        As printed: prose with formulas between dollars.
    assumptions : list of str
        What it needs.
    kind : str
        identity, inequality, probability, rate or experiment.
    notebook : str, optional
        Notebook and section with the check, as ``02_name#section``.
    tests : list of str
        Test functions that bear on it, as ``tests/file.py::function``.
    depends_on : list of str
        Claims that its proof uses.
    instead : str, optional
        What holds instead, where the printed statement does not.
    reason : str, optional
        Why it is not checked.
    """

    model_config = ConfigDict(extra="forbid")

    id: Identifier
    label: Text | None = None
    statement: Text
    assumptions: list[Text] = []
    kind: Literal["identity", "inequality", "probability", "rate", "experiment"]
    notebook: Text | None = None
    tests: list[Text] = []
    depends_on: list[Identifier] = []
    instead: Text | None = None
    reason: Text | None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    labels: dict[str, str]
    claims: list[Claim]


@dataclass(frozen=True)
class Found:
    """A line of evidence and the notebook that printed it (its path without the ending)."""

    line: Line
    notebook: str


@dataclass(frozen=True)
class Registry:
    """The claims with their evidence.

    Attributes
    ----------
    claims : list of Claim
        In the order of the file.
    labels : mapping
        The labels of the paper, each with the place that it names.
    found : list of Found
        All evidence of the committed notebooks.
    """

    claims: Sequence[Claim]
    labels: Mapping[str, str]
    found: Sequence[Found]

    @cached_property
    def by_id(self) -> dict[str, Claim]:
        """The claims by identifier."""
        return {claim.id: claim for claim in self.claims}

    def evidence(self, claim: Claim, verdict: str | None = None) -> list[Found]:
        """The lines of a claim, all or those of one verdict."""
        return [f for f in self.found if f.line.claim == claim.id and verdict in (None, f.line.verdict)]

    def place(self, claim: Claim) -> str:
        """Where in the paper a claim is."""
        return self.labels.get(claim.label or "", "this project")

    def status(self, claim: Claim) -> str:
        """One of `STATUSES`, from the evidence alone.

        A claim whose printed form has a counterexample is refuted; if the notebook also shows a form
        that holds, it is corrected. A claim without a line is not checked.
        """
        verdicts = {found.line.verdict for found in self.evidence(claim)}
        if "refuted" in verdicts:
            return CORRECTED if "holds" in verdicts else REFUTED
        return VERIFIED if "holds" in verdicts else NOT_CHECKED

    def margin(self, claim: Claim) -> str:
        """How close the bound of an inequality was approached, in words; empty if it was not measured."""
        lines = [found.line for found in self.evidence(claim, "holds")]
        reached = [line.reached for line in lines if line.reached is not None]
        largest = [line.largest for line in lines if line.largest is not None]
        if reached:
            return f"attained to {max(reached):g} %"
        left = 100 - max(largest, default=100)
        return f"with a margin of {left} %" if left else "with a margin below 1 %" if largest else ""

    def verdict(self, claim: Claim) -> str:
        """The status with the margin of an inequality that holds as printed."""
        status = self.status(claim)
        margin = self.margin(claim) if status == VERIFIED else ""
        return f"{status}, {margin}" if margin.startswith("attained") else f"{status} {margin}".rstrip()

    def select(
        self, status: str | None = None, notebook: str | None = None, label: str | None = None
    ) -> list[Claim]:
        """The claims of a status, of a notebook (by the start of its name), of a label.

        Raises
        ------
        UsageError
            If there is no such status, notebook or label.
        """
        if status is not None and status not in STATUSES:
            raise UsageError(f"status must be one of {', '.join(STATUSES)}, got {status!r}")
        if label is not None and label not in self.labels:
            raise UsageError(f"the paper has no label {label!r}; `mlogb claims` shows those with a claim")
        names = {_notebook(claim) for claim in self.claims if claim.notebook}
        if notebook is not None and not any(name.startswith(notebook) for name in names):
            raise UsageError(
                f"no claim is checked in a notebook {notebook!r}; there are {', '.join(sorted(names))}"
            )
        return [
            claim
            for claim in self.claims
            if (status is None or self.status(claim) == status)
            and (notebook is None or _notebook(claim).startswith(notebook))
            and (label is None or claim.label == label)
        ]

    def graph(self) -> nx.DiGraph[str]:
        """What depends on what: an edge from each claim to those whose proof uses it."""
        graph: nx.DiGraph[str] = nx.DiGraph()
        graph.add_nodes_from(claim.id for claim in self.claims)
        graph.add_edges_from((used, claim.id) for claim in self.claims for used in claim.depends_on)
        return graph

    def rows(self, claims: Iterable[Claim]) -> list[dict[str, object]]:
        """One mapping per claim, for JSON."""
        return [
            {
                "id": claim.id,
                "label": claim.label,
                "place": self.place(claim),
                "statement": claim.statement,
                "assumptions": claim.assumptions,
                "kind": claim.kind,
                "status": self.status(claim),
                "verdict": self.verdict(claim),
                "instead": claim.instead,
                "reason": claim.reason,
                "notebook": claim.notebook,
                "tests": claim.tests,
                "depends_on": claim.depends_on,
                "evidence": [
                    found.line.fields | {"notebook": found.notebook} for found in self.evidence(claim)
                ],
            }
            for claim in claims
        ]


def load_registry(root: Path | None = None) -> Registry:
    """Read ``claims.yml`` and the evidence in the executed notebooks.

    Parameters
    ----------
    root : Path, optional
        The project; found from the working folder by default.

    Raises
    ------
    UsageError
        When the file is missing, is not YAML, or has missing, unknown or wrongly typed keys.
    """
    root = root or paths.project_root()
    path = root / "claims.yml"
    try:
        file = _File.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UsageError(f"{path.name} not found in {path.parent}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path.name} is not valid YAML: {error}") from None
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()]
        raise UsageError("\n".join([f"{path.name} is not a valid registry:", *lines])) from None
    return Registry(file.claims, file.labels, [*_read_evidence(root / "notebooks"), *_read_results(root)])


def faults(registry: Registry, root: Path | None = None) -> list[str]:
    """Everything in which registry, evidence, notebooks, tests and errata disagree, one line each.

    Parameters
    ----------
    registry : Registry
        As `load_registry` returns it.
    root : Path, optional
        The project; found from the working folder by default.
    """
    root = root or paths.project_root()
    found = [fault for claim in registry.claims for fault in _faults_of(registry, claim, root)]
    identifiers = [claim.id for claim in registry.claims]
    found += [
        f"{name} is there twice" for name in sorted({n for n in identifiers if identifiers.count(n) > 1})
    ]
    unknown = {(f.line.claim, f.notebook) for f in registry.found if f.line.claim not in registry.by_id}
    found += [f"{name}: evidence in {notebook}, but no entry" for name, notebook in sorted(unknown)]
    graph = registry.graph()
    if not nx.is_directed_acyclic_graph(graph):
        found.append(f"depends_on goes in a circle: {' -> '.join(a for a, _ in nx.find_cycle(graph))}")
    return found + _errata_faults(registry, root)


def _faults_of(registry: Registry, claim: Claim, root: Path) -> Iterable[str]:
    status = registry.status(claim)
    if claim.id.startswith("C") and claim.label not in registry.labels:
        yield f"{claim.id}: the paper has no label {claim.label!r}"
    if claim.id.startswith("R") and claim.label is not None:
        yield f"{claim.id}: a result of this project has no label of the paper"
    if claim.reason is None and status == NOT_CHECKED:
        yield f"{claim.id}: no evidence, and no reason why it is not checked"
    if claim.reason is not None and status != NOT_CHECKED:
        yield f"{claim.id}: a reason why it is not checked, but there is evidence"
    experiment = claim.kind == "experiment"
    if (claim.instead is None) == (status in (CORRECTED, REFUTED)):
        yield f"{claim.id}: {status}, but the entry " + (
            "does not say what holds instead" if claim.instead is None else "says that something else holds"
        )
    for text in (claim.statement, claim.instead or "", *claim.assumptions):
        yield from (f"{claim.id}: {fault}: {text[:60]}" for fault in formulas.faults(text))
    if registry.evidence(claim, "holds") and not registry.evidence(claim, "caught") and not experiment:
        yield f"{claim.id}: no wrong variant was caught, so nothing shows that the check can fail"
    yield from (
        f"{claim.id}: depends on {name}, which has no entry"
        for name in claim.depends_on
        if name not in registry.by_id
    )
    yield from (f"{claim.id}: {test} does not exist" for test in claim.tests if not _test_exists(root, test))
    if status != NOT_CHECKED:
        yield from _place_problems(registry, claim, root)


def _place_problems(registry: Registry, claim: Claim, root: Path) -> Iterable[str]:
    if claim.notebook is None:
        yield f"{claim.id}: evidence, but no notebook"
        return
    name, _, anchor = claim.notebook.partition("#")
    source = root / f"{RESULTS}.md" if name == RESULTS else root / "notebooks" / f"{name}.md"
    if not source.is_file():
        yield f"{claim.id}: the notebook {name} does not exist"
    elif anchor not in headings(source.read_text(encoding="utf-8")):
        yield f"{claim.id}: {name} has no section #{anchor}"
    elif name not in {found.notebook for found in registry.evidence(claim)}:
        yield f"{claim.id}: {name} has no evidence for it"


def _errata_faults(registry: Registry, root: Path) -> list[str]:
    # A heading like "... (C5, C6, lem:a)" is of a counterexample, one like "... (lem:a; claim C5)" is not.
    listed = {
        name
        for named in errata_headings(root).values()
        for name in takewhile(partial(re.fullmatch, CLAIM), named.split(", "))
    }
    wrong = {
        claim.id
        for claim in registry.claims
        if registry.status(claim) in (CORRECTED, REFUTED) and claim.kind != "experiment"
    }
    return [
        f"{name}: {registry.status(registry.by_id[name])}, but ERRATA.md has no section on it"
        for name in sorted(wrong - listed)
    ] + [
        f"{name}: a section of ERRATA.md, but no counterexample is on record"
        for name in sorted(listed - wrong)
    ]


def errata(root: Path | None = None) -> dict[str, str]:
    """The titles of the sections of ERRATA.md, by the claims that they name."""
    headings = errata_headings(root or paths.project_root())
    return {name: title for title, named in headings.items() for name in claims_in(named)}


def errata_headings(root: Path) -> dict[str, str]:
    """The titles of the sections of ERRATA.md, each with what its last parenthesis names."""
    path = root / "ERRATA.md"
    return dict(_ERRATUM.findall(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def claims_in(text: str) -> list[str]:
    """What looks like the identifier of a claim in a text."""
    return re.findall(rf"\b{CLAIM}\b", text)


def headings(text: str) -> set[str]:
    """The anchors of the headings of a Markdown text, as code-hosting pages and MyST make them."""
    titles = re.findall(
        r"^#+ +(.+?) *$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    )
    return {slug(title) for title in titles}


def slug(title: str) -> str:
    """The anchor of a heading."""
    kept = re.sub(r"[^\w\- ]", "", title.strip().lower())
    return kept.replace(" ", "-")


def _read_evidence(folder: Path) -> Iterable[Found]:
    for path in sorted(folder.rglob("*.ipynb")):
        if ".ipynb_checkpoints" in path.parts:
            continue
        name = path.relative_to(folder).with_suffix("").as_posix()
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            yield from (Found(line, name) for line in recorded(cell.get("outputs", [])))


def _read_results(root: Path) -> Iterable[Found]:
    """What the recorded runs say about the paper's experiments, as `mlogb results` writes it."""
    file = root / f"{RESULTS}.json"
    if file.is_file():
        for fields in json.loads(file.read_text(encoding="utf-8")):
            yield Found(Line(**fields), RESULTS)


def _test_exists(root: Path, test: str) -> bool:
    file, _, name = test.partition("::")
    path = root / file
    return (
        path.is_file()
        and re.search(rf"^def {name}\(", path.read_text(encoding="utf-8"), re.MULTILINE) is not None
    )


def _notebook(claim: Claim) -> str:
    return (claim.notebook or "").partition("#")[0]
