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
from compendium.experiments.tournament import PROBLEMS
from compendium.runs import attestation
from compendium.runs.manifest import load_manifest
from compendium.runs.run import Run, find_runs
from compendium.system import paths
from compendium.system.paths import FailureError

PAGE = "book/figures.md"

_HEAD = """\
# Figures and their runs

Made by `mlogb results` from the sidecars in `figures/` and the records of the runs; no number here is
typed in. A figure is drawn when a notebook is executed as a recorded run, and its sidecar (the file
`figures/NAME.json`) names the run, the results and the checksums. `mlogb verify` recomputes trials of the
runs and checks every checksum; `mlogb run EXPERIMENT --profile paper --again` makes a run again.

| figure | run | commit | date |
|---|---|---|---|
"""


#: For each figure its heading, and what a reader should see in it.
WORDS: dict[str, tuple[str, str]] = {
    "bench_map": (
        "Where sketching pays",
        "To the right of the white line a round of EOFD-MLogB is faster than one of the strongest "
        "OFUL-MLogB, by a factor that grows with Kd; a smaller m moves the line to the left.",
    ),
    "bench_time": (
        "Time of a round against d",
        "The forms of OFUL-MLogB that factor the full matrix leave the others early; the strongest form "
        "stays with the sketch up to some hundreds of features and then rises about as d², where the sketch "
        "rises by less than d.",
    ),
    "convergence": (
        "Convergence of the parameter on the grid",
        "But for OFUL-MLogB at the smallest λ, steps are as long at the end as at the beginning (the grey "
        "dashes); the ringed pair of the paper is neither where they are shortest nor where the error is "
        "least.",
    ),
    "adaptive_rank": (
        "Rank and ridge of the adaptive sketches",
        "Within a budget the rank rises early and ends at the fixed size that the spectral tail guarantees "
        "in hindsight; a ridge that gets back what is lost grows the less the faster the spectrum decays.",
    ),
    "equal_regret_synthetic": (
        "Regret against memory on the synthetic problems",
        "The ring is the smallest memory of each kind with the full Hessian's regret; the single symbols at "
        "the left hold one number.",
    ),
    "equal_regret_real": (
        "Regret against memory on real data",
        "The ring is the smallest memory of each kind with the full Hessian's regret; the single symbols at "
        "the left hold one number.",
    ),
    "equal_regret_lectures": (
        "Regret against memory on ratings of lectures",
        "The ring is the smallest memory of each kind with the full Hessian's regret; the single symbols at "
        "the left hold one number.",
    ),
    "equal_regret_grid_synthetic": (
        "Regret over the grid on the synthetic problems",
        "How far the symbols of a line lie apart is how much depends on the tuning.",
    ),
    "equal_regret_grid_real": (
        "Regret over the grid on real data",
        "How far the symbols of a line lie apart is how much depends on the tuning.",
    ),
    "equal_regret_grid_lectures": (
        "Regret over the grid on ratings of lectures",
        "How far the symbols of a line lie apart is how much depends on the tuning.",
    ),
    "moonshot": (
        "Speed at equal regret",
        "A symbol in the band and above the line has reached the goal at its size.",
    ),
    "grid_binary": (
        "Regret on the grid, binary problem",
        "Cells with the same ratio of the two parameters play alike; the paper's pair, in the full frame, "
        "is one of many, and the least regret, in the dashed frame, is elsewhere.",
    ),
    "grid_multinomial": (
        "Regret on the grid, multinomial problem",
        "Cells with the same ratio of the two parameters play alike; the paper's pair, in the full frame, "
        "is one of many, and the least regret, in the dashed frame, is elsewhere.",
    ),
    "mnist_regret": (
        "Regret on MNIST",
        "All that is compared lies in a strip at the foot of the upper panels. In the lower ones a policy "
        "whose band holds zero cannot be told from the full Hessian: in the paper's setting all, tuned "
        "all but those without curvature and, barely, the sketch of five directions.",
    ),
    "radius_scale": (
        "Regret beside coverage, by the scale of the radius",
        "With a small λ the regret is least without a bonus, where nothing is covered, and comes near that "
        "of random play at the theorem's scale; with the theorem's λ the scale hardly matters.",
    ),
    "real_data_regret": (
        "Regret on real data",
        "The policy without curvature leaves zero on the digits, on the lectures and, by less than 1 % of "
        "the regret, on the films; nobody else does.",
    ),
    "scale": (
        "Time and memory against Kd",
        "The lines of OFUL-MLogB and of the sketch part from where they cross; OFUL-MLogB ends where its "
        "matrix was no longer played.",
    ),
    "sketch_size_cost": (
        "What the sketch discards, and its time",
        "The paper's λ keeps the factor of the bound near one whatever is discarded; the tuned one does "
        "not. A sketch is faster than the strongest OFUL-MLogB only where Kd is large or m a small share "
        "of it.",
    ),
    "sketch_size_regret": (
        "Regret against the size of the sketch",
        "With the paper's parameters nothing depends on the sketch; with tuned ones the regret comes down "
        "to that of the full Hessian at once, at a tenth of Kd or only at Kd, as the spectrum decays.",
    ),
    "sketch_size_spectrum": (
        "The sketching error and its bound",
        "The bound is close to the error, so the tail of the spectrum tells what is lost.",
    ),
    "synthetic_binary_regret": (
        "Regret on the binary problem",
        "Above, whether anything was learned; below, that nobody's band leaves zero.",
    ),
    "synthetic_multinomial_regret": (
        "Regret on the multinomial problem",
        "Above, whether anything was learned; below, that tuned the sketch plays as if it had no "
        "curvature, and the full Hessian better.",
    ),
}


WORDS |= {
    f"tournament_{name}": (
        f"Regret against time: {title}",
        "Who lies on the line, and how far above it the others are; the numbers are those of the table in "
        "the run's notebook.",
    )
    for name, title in PROBLEMS.items()
} | {
    f"tournament_grid_{name}": (
        f"Regret over the grid: {title}",
        "A policy with a short line needs no tuning.",
    )
    for name, title in PROBLEMS.items()
}


class Source(NamedTuple):
    """What figures are made from: a recorded run, or the benchmark.

    Attributes
    ----------
    title, name : str
        Heading of its section, in words, and its path from the project root.
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
        if name not in WORDS:
            raise FailureError(
                f"figures/{name}.json: add the figure's heading to `WORDS` in {Path(__file__).name}"
            )
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
    """The title of its experiment, with what tells it from the experiment's other runs."""
    known = load_manifest().experiments.get(run.record["experiment"])
    title = known.title if known else str(run.record["experiment"])
    point = run.record.get("point") or {}
    return f"{title}: {', '.join(map(str, point.values()))}" if point else title


def _of_run(run: Run) -> Source:
    record = run.record | {"reproduced": [attestation.describe(one) for one in attestation.read(run.path)]}
    return Source(_title(run), run.name, f"{run.name}/{run.notebook.name}", record["notebook"], record)


def _bench(root: Path) -> Iterator[Source]:
    name = "benchmarks/results/bench.json"
    if (root / name).is_file():
        record = _read(root / name) | {"experiment": "benchmarks", "profile": "full"}
        yield Source("Benchmarks", name, name, "benchmarks/README.md", record)


def _row(name: str, sidecar: Mapping[str, Any], source: Source) -> str:
    cells = [
        f"[{WORDS[name][0]}](#{slug(WORDS[name][0])})",
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
        heading, seen = WORDS[name]
        lines += ["", f"### {heading}", "", f"![{sidecar['alt']}](../figures/{name}.png)", ""]
        lines += [f"*What to see.* {seen}", ""]
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
