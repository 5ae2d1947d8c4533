"""The command line: measure a plan, write the record, draw the figures.

The exit code is 2 for a wrong request and 1 for a failure. Variants that play different actions are a
failure, which is reported after everything has been written.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import matplotlib as mpl
import typer
from rich.console import Console
from rich.progress import track

from benchmarks import (
    calls,
    figures,
    machine,
    memory,
    plan,
    regret,
    report,
    roofline,
    sparse,
    timing,
    vectors,
)
from benchmarks.variants import FORMS, Variant, missing_forms
from compendium.system.paths import FailureError, UsageError, figures_folder, project_root

Item = TypeVar("Item")
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class Part(StrEnum):
    """What can be measured alone."""

    TABLE = "table"
    CURVE = "curve"
    MAP = "map"
    REGRET = "regret"
    ROOFLINE = "roofline"
    MEMORY = "memory"
    CALLS = "calls"
    SPARSE = "sparse"


def main(arguments: list[str] | None = None) -> None:
    """Entry point; always leaves by SystemExit."""
    try:
        app(args=arguments, prog_name="python -m benchmarks")
    except (UsageError, FailureError) as error:
        print(error, file=sys.stderr)
        raise SystemExit(2 if isinstance(error, UsageError) else 1) from None


@app.command()
def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes: shows that everything runs.")] = False,
    part: Annotated[list[Part] | None, typer.Option(help="Measure only this; may be repeated.")] = None,
    results: Annotated[Path | None, typer.Option(help="Folder of the record and the tables.")] = None,
    pictures: Annotated[Path | None, typer.Option("--figures", help="Folder of the figures.")] = None,
    redraw: Annotated[bool, typer.Option("--redraw", help="Write page and figures from the record.")] = False,
    sizes: Annotated[int | None, typer.Option(min=1, help="Only the first sizes of the table.")] = None,
) -> None:
    """Time all variants side by side, on one thread, and write tables and figures.

    A whole run goes to benchmarks/results and figures, and its page is benchmarks/README.md; one with
    --quick, --part or --sizes goes to the folder `local` inside them, with its page beside the record. The
    part `sparse` has a record of its own: measured alone it takes its place in benchmarks/results, beside a
    record of the other parts that stays as it is.
    """
    mpl.use("Agg")
    parts, record = set(part or Part), None
    if Part.ROOFLINE in parts and Part.TABLE not in parts:
        raise UsageError("--part roofline divides the times of the table: give --part table, too")
    local = quick or bool(parts - {Part.SPARSE} and (part or sizes))
    own = project_root() / "benchmarks" / "results"
    folder = results or (own / "local" if local else own)
    pictures = pictures or figures_folder(local)
    others = parts - {Part.SPARSE}
    few = report.stored_sparse(folder) if redraw or Part.SPARSE not in parts else None
    if redraw or (not others and (folder / report.RECORD).is_file()):
        record = _stored(folder)
    if not redraw:
        with machine.single_thread():
            if Part.SPARSE in parts:
                few = measure_sparse(quick)
            if others:
                chosen = plan.quick() if quick else plan.full()
                record = measure(dataclasses.replace(chosen, table=chosen.table[:sizes]), others, quick)
    readme = (own.parent if folder == own else folder) / "README.md"
    written = report.write(folder, record, readme, pictures, few)
    if record and (others or redraw):
        written += draw(record, folder, pictures)
    for path in written:
        print(path.relative_to(project_root()) if path.is_relative_to(project_root()) else path)
    failures = report.unequal(record["timings"]) if record else []
    if failures := failures + report.unequal_sparse(few):
        raise FailureError("\n".join(failures))


def measure_sparse(quick: bool = False) -> dict[str, Any]:
    """Measure the rounds with sparse actions, and return their record; see `sparse.measure`."""
    started, clock = datetime.now(UTC), time.perf_counter()
    about = {"quick": quick, **machine.record(), "started": started.isoformat(timespec="seconds")}
    found = sparse.measure(sparse.quick() if quick else sparse.SparsePlan())
    for message in found["left_out"]:
        print(f"left out: {message}", file=sys.stderr)
    return about | found | {"duration_seconds": round(time.perf_counter() - clock, 1)}


def measure(chosen: plan.Plan, parts: Iterable[Part], quick: bool = False) -> dict[str, Any]:
    """Carry out a plan and return the record.

    Parameters
    ----------
    chosen : Plan
        What to measure.
    parts : iterable of Part
        Which parts of it. The roofline needs the table.
    quick : bool
        Whether the record says that its numbers are only a test.

    Returns
    -------
    dict
        Plain values: machine, rates, what was left out, and the tables `timings`, `equal_regret`, `roofline`,
        `memory` and `calls`. `narrow` has the rates and the roofline of the small sizes again; see
        `vectors.measure`.
    """
    parts = set(parts)
    started, clock = datetime.now(UTC), time.perf_counter()
    missing = missing_forms()
    for form, reason in missing.items():
        print(f"left out: the {form} form: {reason}", file=sys.stderr)
    forms = tuple(form for form in FORMS if form not in missing)
    record: dict[str, Any] = {
        "quick": quick,
        "parts": sorted(parts),
        **machine.record(),
        "started": started.isoformat(timespec="seconds"),
        "seed": plan.SEED,
        "limits": vars(chosen.limits).copy(),
        "regimes": {name: describe(name) for name in chosen.regimes},
        "left_out": [f"the {form} form: {reason}" for form, reason in missing.items()],
        "timings": [],
    }
    makers: dict[Part, Callable[[plan.Plan, tuple[str, ...]], list[plan.Cell]]] = {
        Part.TABLE: plan.table_cells, Part.CURVE: plan.curve_cells, Part.MAP: plan.map_cells,
    }  # fmt: skip
    cells = [cell for part, make in makers.items() if part in parts for cell in make(chosen, forms)]
    record["timings"] += _timed(cells, chosen.limits)
    if Part.REGRET in parts:
        _add_regret(record, chosen, forms)
    if Part.ROOFLINE in parts and Part.TABLE in parts:
        table = [row for row in record["timings"] if row["part"] == "table"]
        record["rates"] = roofline.rates(table, chosen.gemm_order, chosen.large_megabytes)
        record["roofline"] = roofline.rows(table, record["rates"])
        if chosen.narrow and vectors.has_longer():
            try:
                record["narrow"] = vectors.measure(chosen.narrow, report.RECORD, quick)
            except FailureError as error:  # what has been measured is kept
                print(f"left out: {error}", file=sys.stderr)
                record["left_out"].append(str(error))
    if Part.MEMORY in parts:
        record["memory"] = memory.rows(chosen.table)
    if Part.CALLS in parts and "compiled" not in missing:
        record["calls"] = calls.rows(*(([plan.Size(1, 30, 4)], 5, 20) if quick else ()))
    record["duration_seconds"] = round(time.perf_counter() - clock, 1)
    return record


def draw(record: dict[str, Any], folder: Path, pictures: Path) -> list[Path]:
    """Draw the figures of the parts that were measured, and return their paths."""
    timings = report.frame(record, "timings") if record["timings"] else None
    drawn = []
    for part, name, make in (
        (Part.CURVE, report.TIME_FIGURE, figures.time_against_features),
        (Part.MAP, report.MAP_FIGURE, figures.speedup_map),
    ):
        if timings is None or part not in record["parts"]:
            continue
        path = folder / report.RECORD
        source = (
            path.relative_to(project_root()).as_posix() if path.is_relative_to(project_root()) else path.name
        )
        about = {
            "experiment": "benchmarks", "profile": "quick" if record["quick"] else "full",
            "git_commit": record["git_commit"], "alt": report.ALTERNATIVE_TEXTS[name],
        }  # fmt: skip
        figures.save(make(timings), name, pictures, path, source, about)
        drawn.append(pictures / f"{name}.png")
    return drawn


def describe(regime: str) -> str:
    """A regime's parameters in one line."""
    if regime == "paper":
        return "λ and η by the paper's formulas at the exponents (0.75, 0.75), S = 1, theorem radius × 1e-6"
    chosen = plan.settings(regime, 1, 1)
    lam, eta, S = (chosen[name] for name in ("regularization", "step_size", "norm_bound"))
    return f"λ = {lam:g}, η = {eta:g}, S = {S:g}, ridge radius × {chosen['radius'].scale:g}"


def _timed(cells: Sequence[plan.Cell], limits: plan.Limits) -> list[dict[str, Any]]:
    """The rows of all cells. After all cells, those of the table are played again in further sittings."""
    table = [cell for cell in cells if cell.part == Part.TABLE]
    order = [(cell, 0) for cell in cells]
    order += [(cell, sitting) for sitting in range(1, limits.sittings) for cell in table]
    logs: dict[str, list[Mapping[Variant, timing.Log]]] = {cell.name: [] for cell in cells}
    for cell, sitting in _shown(order, "timing"):
        logs[cell.name].append(timing.play(cell, limits, sitting=sitting))
    return [row for cell in cells for row in timing.rows(cell, logs[cell.name])]


def _add_regret(record: dict[str, Any], chosen: plan.Plan, forms: tuple[str, ...]) -> None:
    problems, messages = regret.problems(chosen.regret)
    record["left_out"] += messages
    record["equal_regret"] = []
    for problem in _shown(problems, "equal regret"):
        regrets, timings = regret.measure(problem, chosen.regret, chosen.limits, forms)
        record["equal_regret"] += regrets
        record["timings"] += timings


def _stored(folder: Path) -> dict[str, Any]:
    import json

    try:
        record: dict[str, Any] = json.loads((folder / report.RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UsageError(f"{folder / report.RECORD} is not there or cannot be read; measure first") from None
    if not isinstance(record, dict) or any(
        not {"sittings", "over_printed"} <= set(row) for row in record.get("timings", [{}])
    ):
        raise UsageError(f"{folder / report.RECORD} is not a record of this version; measure again")
    return record


def _shown(items: list[Item], description: str) -> Iterable[Item]:
    console = Console(stderr=True)
    return track(items, description, console=console, disable=not console.is_terminal, transient=True)
