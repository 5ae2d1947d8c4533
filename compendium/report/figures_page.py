"""The page of figures: each beside the run that drew it, and each run with its record.

Runs are folders of the project, not pages of the book, so what a reader wants to know of them is copied
here from their records: parameters, data, code, libraries, machine, checksums. The alternative text of a
figure is the entry `alt` of its sidecar.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from compendium.claims.registry import slug
from compendium.runs import attestation
from compendium.runs.run import Run, find_runs
from compendium.system import paths
from compendium.system.paths import FailureError

PAGE = "book/figures.md"

_HEAD = """\
# Figures and their runs

Made by `mlogb results` from the sidecars in `figures/` and the records of the runs; no figure here is
typed in. A figure is drawn when a notebook is executed as a recorded run, and its sidecar (the file
`figures/NAME.json`) names the run, the results and the checksums. `mlogb verify` recomputes trials of the
runs and checks every checksum; `mlogb run EXPERIMENT --profile paper --again` makes a run again.

| figure | run | commit | date |
|---|---|---|---|
"""


class Source(NamedTuple):
    """What figures are made from: a recorded run, or the benchmark.

    Attributes
    ----------
    title, name : str
        Heading of its section, and its path from the project root.
    files : str
        Path of what a reader opens first.
    notebook : str
        Path of the text that draws the figures.
    record : dict
        As `compendium.system.provenance` writes it; ``reproduced`` has a line for each attestation.
    """

    title: str
    name: str
    files: str
    notebook: str
    record: dict[str, Any]


def page(root: Path | None = None) -> str:
    """The page, Markdown.

    Raises
    ------
    FailureError
        If a sidecar has no alternative text, or names no recorded run.
    """
    root = root or paths.project_root()
    sources = {source.name: source for source in [*map(_of_run, find_runs(profile="paper")), *_bench(root)]}
    sidecars = {file.stem: _read(file) for file in sorted((root / "figures").glob("*.json"))}
    for name, sidecar in sidecars.items():
        if not sidecar.get("alt"):
            raise FailureError(f"figures/{name}.json: add an entry `alt` that says what the figure shows")
        if sidecar.get("run") not in sources:
            raise FailureError(f"figures/{name}.json names {sidecar.get('run')}, which is no committed run")
    lines = [_row(name, sidecar, sources[sidecar["run"]]) for name, sidecar in sidecars.items()]
    for source in sources.values():
        drawn = {name: sidecar for name, sidecar in sidecars.items() if sidecar["run"] == source.name}
        lines += ["", *_section(source, drawn, root)]
    return _HEAD + "\n".join(lines) + "\n"


def anchor(run: Run) -> str:
    """The anchor of a run's section on the page."""
    return slug(_title(run))


def _title(run: Run) -> str:
    return f"{run.record['experiment']}, {run.path.name}"


def _of_run(run: Run) -> Source:
    record = run.record | {"reproduced": [attestation.describe(one) for one in attestation.read(run.path)]}
    return Source(_title(run), run.name, f"{run.name}/{run.notebook.name}", record["notebook"], record)


def _bench(root: Path) -> Iterator[Source]:
    name = "benchmarks/results/bench.json"
    if (root / name).is_file():
        record = _read(root / name) | {"experiment": "benchmarks", "profile": "full"}
        yield Source("benchmarks", name, name, "benchmarks/README.md", record)


def _row(name: str, sidecar: Mapping[str, Any], source: Source) -> str:
    cells = [
        f"[{name}](#{name}). {sidecar['alt']}",
        f"[{source.title}](#{slug(source.title)})",
        f"`{sidecar['git_commit'][:8]}`" if sidecar["git_commit"] else "not known",
        source.record["started"][:10],
    ]
    return f"| {' | '.join(cells)} |"


def _section(source: Source, figures: Mapping[str, Mapping[str, Any]], root: Path) -> list[str]:
    lines = [f"## {source.title}", ""]
    lines += [f"[{source.name}](../{source.files}), drawn by [{source.notebook}](../{source.notebook}).", ""]
    lines += ["| record | |", "|---|---|"]
    lines += [f"| {name} | {text} |" for name, text in _facts(source.record) if text]
    for name, sidecar in figures.items():
        lines += ["", f"### {name}", "", f"![{sidecar['alt']}](../figures/{name}.png)", ""]
        place = _drawn_in((root / source.notebook).read_text(encoding="utf-8"), name)
        fragment = f"#{slug(place)}" if place else ""
        lines += [f"- Drawn in: [{place or 'the notebook'}](../{source.notebook}{fragment})"]
        lines += [f"- From results with SHA-256 `{sidecar['results_sha256']}`"]
        lines += [
            f"- SHA-256 of the {kind.upper()}: `{digest}`" for kind, digest in sidecar["sha256"].items()
        ]
    return lines


def _facts(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    machine = record["environment"]
    took = f", {record['duration_seconds']:.0f} s" if "duration_seconds" in record else ""
    yield "started", f"{record['started']}{took} on {machine['jobs']} process{'es' * (machine['jobs'] > 1)}"
    yield "profile", f"{record['profile']}"
    yield "parameters", ", ".join(f"`{k} = {v}`" for k, v in record.get("parameters", {}).items())
    yield "data", "; ".join(dict.fromkeys(_data(record)))
    clean = "clean work tree" if record["git_clean"] else "changed work tree"
    commit = f"commit `{record['git_commit']}`, {clean}" if record["git_commit"] else "commit not known"
    yield "code", f"{commit}; digest `{record['code_digest']}`"
    if computed_by := record.get("computed_by"):
        before = f"commit `{computed_by['git_commit']}`" if computed_by["git_commit"] else "commit not known"
        yield "code that computed the tables", f"{before}; digest `{computed_by['code_digest']}`"
    yield "reproduced", "; ".join(record.get("reproduced", []))
    yield "lock file", f"SHA-256 `{record['lock_sha256']}`" if record.get("lock_sha256") else ""
    versions = {name: machine[name] for name in ("python", "numpy", "scipy", "numba") if name in machine}
    yield "versions", ", ".join(f"{name} {version}" for name, version in versions.items())
    pools = sorted({f"{p['internal_api']} {p['version']} ({p['architecture']})" for p in machine["blas"]})
    yield "BLAS", ", ".join(pools)
    yield "machine", f"{machine['cpu']}, {machine['system']}"
    yield "threads", ", ".join(f"`{name}={value}`" for name, value in machine["threads"].items())


def _data(record: Mapping[str, Any]) -> Iterator[str]:
    for study in record.get("study", {}).get("studies", []):
        for data in study.get("data") or []:
            part = f" of {data['full_rows']:,}" if data.get("full_rows", data["rows"]) != data["rows"] else ""
            rows = f"{data['rows']:,}{part} rows"
            yield f"{data['name']}, {rows} ({data['source']}), SHA-256 `{data['sha256']}`"


def _drawn_in(text: str, figure: str) -> str:
    """The heading under which a text saves a figure, or shows it; empty if it does neither."""
    heading, fenced = "", False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        if line.startswith("## ") and not fenced:
            heading = line[3:].strip()
        saved = re.search(r'figures\.save\(.*"(.+)"\)', line)
        if f"/{figure}.png" in line or (saved and _matches(saved[1], figure)):
            return heading
    return ""


def _matches(written: str, figure: str) -> bool:
    """Whether a name in a notebook is the figure's, where braces stand for anything."""
    parts = [re.escape(part) for part in re.split(r"\{[^}]*\}", written)]
    return re.fullmatch(".+".join(parts), figure) is not None


def _read(file: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FailureError(f"{file.parent.name}/{file.name} is not valid JSON: {error}") from None
    return content
