"""The command line ``mlogb``, with a function for each of its commands.

An invalid request ends with exit code 2, a failure with exit code 1, both with a few plain lines on standard
error. Each command imports the libraries that it needs itself, so that ``--help`` is fast.
"""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from compendium.system.paths import AbsentDataError, FailureError, UsageError, relative

if TYPE_CHECKING:
    from collections.abc import Sequence

    from compendium.claims.registry import Claim, Registry

#: Exit code of `mlogb verify` if nothing contradicts the runs, but not everything could be checked.
NOT_ALL_CHECKED = 3

app = typer.Typer(
    help="Run the experiments of the companion to the EOFD-MLogB paper and keep their results.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
notebooks_app = typer.Typer(help="Build and check the executed notebooks.", no_args_is_help=True)
app.add_typer(notebooks_app, name="notebooks")

Targets = Annotated[list[Path] | None, typer.Argument(help="Notebooks or folders; all by default.")]


def main(arguments: list[str] | None = None) -> None:
    """Entry point of ``mlogb``, which always raises SystemExit."""
    try:
        app(args=arguments, prog_name="mlogb")
    except UsageError as error:
        _fail(str(error), 2)
    except FailureError as error:
        _fail(str(error), 1)
    except OSError as error:  # a full disk, a folder that may not be written
        _fail(_message(error), 1)


@app.command("list")
def list_experiments() -> None:
    """List the experiments with their profiles and parameters."""
    from compendium.runs.manifest import load_manifest, notebook_parameters

    for name, experiment in load_manifest().experiments.items():
        print(f"{name}: {experiment.title}")
        if experiment.source.is_file():
            print(f"  notebook {experiment.notebook}.md, its parameters and their defaults:")
            print(f"    {_shown(notebook_parameters(experiment.source))}")
        else:
            print(f"  notebook {experiment.notebook}.md does not exist yet")
        print(f"  all profiles: {_shown(experiment.parameters)}")
        if experiment.grid:
            print(f"  a run for each of: {_shown(experiment.grid)}")
        if experiment.per_value:
            print(f"  parameters of some of these runs alone: {_shown(experiment.per_value)}")
        for profile, parameters in experiment.profiles.items():
            print(f"  {profile}: {_shown(parameters)}")


@app.command()
def run(
    experiment: Annotated[str | None, typer.Argument(help="Name in experiments.yml.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Run all experiments, one after the other.")] = False,
    profile: Annotated[str, typer.Option(help="Size of the run: smoke, standard or paper.")] = "standard",
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter", "-p", metavar="NAME=VALUE", help="Change one parameter; may be repeated."
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Worker processes; results do not depend on it.")] = 1,
    again: Annotated[
        bool, typer.Option("--again", "--fresh", help="Execute again, and replace a stored run.")
    ] = False,
    redraw: Annotated[
        bool, typer.Option("--redraw", help="Execute the notebook again on the tables of the stored run.")
    ] = False,
    shard: Annotated[
        str, typer.Option(metavar="I/N", help="Compute the I-th of N parts, for job arrays.")
    ] = "",
    cluster: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Compute on the workers of a Dask scheduler.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be computed and how long it takes, and stop.")
    ] = False,
    timeout: Annotated[
        float | None,
        typer.Option(min=1.0, help="Seconds that a cell may take; by default any number."),
    ] = None,
) -> None:
    """Run an experiment and draw its figures, or show the stored run of the same parameters and data.

    A stored run is shown even if other code made it; it is said which code that was. `mlogb verify` finds out
    whether the present code gives the same numbers, and --again computes the run again. After a change of the
    notebook's text or of a figure, --redraw makes the run's outputs from its stored numbers.
    """
    from compendium.runs.manifest import expand, load_manifest, parse_override, resolve

    given = [parse_override(text) for text in parameter or []]
    overrides = dict(given)
    if len(overrides) < len(given):
        names = [name for name, _ in given]
        raise UsageError(f"-p gives {next(name for name in names if names.count(name) > 1)} twice")
    if shard and cluster:
        raise UsageError("--shard and --cluster are two ways to share the work; choose one")
    if redraw and (again or shard or cluster or dry_run):
        raise UsageError(
            "--redraw computes nothing: it goes with none of --again, --shard, --cluster, --dry-run"
        )
    if (experiment is None) != all_:
        raise UsageError("give the name of an experiment (`mlogb list` has them), or --all for all of them")
    if all_ and overrides:
        raise UsageError("-p changes the parameters of one experiment; with --all give none")
    manifest = load_manifest()
    names = [experiment] if experiment else list(manifest.experiments)
    lacking = [name for name in names if profile not in manifest.experiment(name).profiles]
    if len(lacking) < len(names):  # a profile that no experiment has is an error below
        names = [name for name in names if name not in lacking]
        for name in lacking:
            typer.echo(f"{name}: left out, as it has no profile {profile!r}")
    points = {name: expand(manifest.experiment(name), overrides) for name in names}
    for name in names:  # all of them before the first one starts
        resolved = [resolve(manifest.experiment(name), profile, {**one, **overrides}) for one in points[name]]
        if any(parameters in resolved[:place] for place, parameters in enumerate(resolved)):
            raise UsageError(f"experiments.{name}.grid: two of its points have the same parameters")
    orders = None
    if shard or cluster or dry_run:  # otherwise a stored run is found without this import, which is slow
        from compendium.experiments.execution import Orders, parse_shard

        try:
            part = parse_shard(shard) if shard else None
        except ValueError as error:
            raise UsageError(str(error)) from None
        if cluster and not re.fullmatch(r"(\w+://)?[^/\s]+:\d{1,5}", cluster):
            raise UsageError(f"--cluster must be an address such as tcp://10.0.0.5:8786, got {cluster!r}")
        orders = Orders(jobs=jobs, shard=part, cluster=cluster or None, plan_only=dry_run)
    failures = []
    asked = [(name, point) for name in names for point in points[name]]
    # A part that was left out has no tables to draw again from, and the others have.
    without_tables = (UsageError,) if redraw and len(asked) > 1 else ()
    for one, point in asked:
        if len(asked) > 1:
            print(f"{one}, {_shown(point)}:" if point else f"{one}:", flush=True)
        try:
            _run_point(
                one, profile, overrides, point=point, jobs=jobs, again=again, orders=orders, redraw=redraw,
                timeout=timeout,
            )  # fmt: skip
        except (FailureError, OSError, *without_tables) as error:  # the other experiments and points are run
            if isinstance(error, AbsentDataError) and point:  # a part of the grid that nobody has named
                typer.echo(f"{one}, {_shown(point)}: left out. {_message(error)}")
                continue
            place = ", ".join(text for text in (one * all_, _shown(point) * bool(point)) if text)
            failures.append(f"{place}: {_message(error)}" if place else _message(error))
    if failures:
        raise FailureError("\n".join(failures))


def _run_point(experiment: str, profile: str, overrides: dict[str, Any], **options: Any) -> None:
    """Run one point of an experiment's grid and print the result; the arguments are those of `execute`."""
    from compendium.experiments.progress import Stopped
    from compendium.runs import attestation
    from compendium.runs import run as runs

    try:
        done = runs.execute(experiment, profile, overrides, **options)
    except Stopped as stop:
        print(stop)
        return
    except KeyboardInterrupt:
        _fail("interrupted; finished trials are kept, so the next run goes on from them", 130)
    if done.reused:
        print(f"{done.name} is there already and complete; --again computes it again")
        for line in attestation.history(done.path, done.record):
            print(f"  {line}")
    elif options["redraw"]:
        print(f"{done.name} was drawn again from its tables; `mlogb verify --attest` says what reproduces it")
    else:
        print(f"{done.name} took {done.record['duration_seconds']} s{_trials_took(done.record)}")
    for line in dict.fromkeys(_data_lines(done.record["study"])):
        print(line)
    for name in (name for name, checksum in done.record.get("data", {}).items() if checksum is None):
        print(f"  not on the machine that computed it, and left out where it was asked for: {name}")
    figures = runs.figures_of(done)
    for figure in figures:
        print(f"  {_relative(figure)}")
    if len(figures) < len(done.record["figures"]):
        print("  some of its figures have been replaced by those of a later run; --again draws them again")
    print(f"to look at it: jupyter lab {_relative(done.notebook)}")


def _trials_took(record: dict[str, Any]) -> str:
    """Return how long the trials took together, which is longer than the run if some were stored already."""
    seconds = record["environment"].get("trials_seconds", 0.0)
    return f"; its trials took {seconds:.0f} s in all" if seconds else ""


@app.command()
def status() -> None:
    """Show the runs that are being made, or that were stopped before they were complete."""
    from compendium.experiments import journal

    batches = journal.batches()
    for batch in batches:
        stored = batch.stored()
        trials = "no trial known yet"
        if batch.trials:
            trials = f"{len(stored)} of {len(batch.trials)} trials stored"
        if batch.running:
            doing = "running" + (f" in {batch.running} processes" if batch.running > 1 else "")
        elif batch.unknown:
            doing = "on another machine; whether it still runs cannot be told from here"
            if stored:
                last = datetime.fromtimestamp(max(file.stat().st_mtime for file in stored), UTC)
                doing += f", the last trial was stored {last.isoformat(timespec='seconds')}"
        elif batch.error:
            doing = f"ended with an error, and the same `mlogb run` tries again from there: {batch.error}"
        else:
            doing = "stopped; the same `mlogb run` goes on from there"
        print(f"{batch.experiment}/{batch.run}, since {batch.started}: {trials}; {doing}")
    if not batches:
        print("no batch is under way or was left unfinished; `mlogb runs` lists the finished runs")


@app.command()
def clean(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
) -> None:
    """Remove stored trials that no run refers to, and what killed processes left behind."""
    from compendium.runs import cleaning

    found = cleaning.unneeded()
    for path, size in found.items():
        print(f"{_relative(path)}  {size / 1e6:.1f} MB")
    if not dry_run:
        cleaning.remove(found)
    total = sum(found.values()) / 1e6
    print(f"{len(found)} files or folders, {total:.1f} MB, {'to remove' if dry_run else 'removed'}")


@app.command()
def verify(
    runs_: Annotated[
        list[Path] | None, typer.Argument(metavar="RUN", help="Folders of runs; all by default.")
    ] = None,
    sample: Annotated[int, typer.Option(min=0, help="Trials of each study to compute again.")] = 1,
    all_: Annotated[
        bool, typer.Option("--all", help="Compute all trials again; takes as long as the runs did.")
    ] = False,
    attest: Annotated[
        bool, typer.Option("--attest", help="Write beside each verified run that this code reproduced it.")
    ] = False,
) -> None:
    """Check stored runs: checksums, cells, outputs, figures, and a sample of trials computed again.

    The cells are compared with the text from which the notebook was made, and all outputs with those that the
    cells give when they are executed on the stored tables. By default, one trial of each study is drawn at
    random and computed again. If somebody changed a number of another trial in the tables, and everything
    that follows from it, this is not found; it is said how likely that is. --all computes all trials and
    finds it. Times, memory, and what the record says about the machine, its libraries and the date are not
    measured again. The exit code is 0 if nothing contradicts the record, 3 if nothing does but something
    could not be checked on this machine, which is named, and 1 if something contradicts it.
    """
    from compendium.runs import recomputation, verification
    from compendium.runs import run as runs

    if attest and not (sample or all_):
        raise UsageError("--attest says that trials were reproduced; --sample 0 computes none")
    chosen = [runs.load_run(runs.locate(path)) for path in runs_] if runs_ else runs.find_runs()
    failures = [f"{name}: its record cannot be read" for name in ([] if runs_ else runs.unreadable_runs())]
    unchecked = False
    for run in chosen:
        report = verification.Report(say=lambda line: print(f"  {line}", flush=True))
        found = verification.verify(run, None if all_ else sample, report)
        for line in [*report.notes, *(f"not checked: {gap}" for gap in report.gaps)]:
            print(f"  {line}")
        if report.computed:
            print(f"  {recomputation.what_is_missed(report)}")
        elif not (sample or all_):
            print("  no trial was computed again")
        unchecked |= bool(report.gaps)
        if attest and not found and report.computed:
            print(f"  attested: {verification.attest(run, report)}")
        elif attest and not found:
            print("  not attested: no trial was computed again")
        verdict = "verified, but for what was not checked" if report.gaps else "verified"
        print(f"{run.name}: {verdict if not found else 'NOT as recorded'}", flush=True)
        failures += [f"{run.name}: {fault}" for fault in found]
    if failures:
        raise FailureError("\n".join(failures))
    if unchecked:
        raise SystemExit(NOT_ALL_CHECKED)


@app.command("runs")
def list_runs() -> None:
    """List the finished runs, oldest first."""
    from compendium.runs import attestation
    from compendium.runs.run import faults, find_runs, unreadable_runs

    for name in unreadable_runs():
        print(f"{name}  its record cannot be read")
    for found in find_runs():
        record = found.record
        commit = (record["git_commit"] or "no commit")[:9]
        commit += " with changes" if record["git_clean"] is False else ""
        parameters = _shown(record["overrides"] or record["parameters"])
        print(
            f"{found.name}  {record['started'][:10]}  {record['duration_seconds']} s  {commit}  {parameters}"
        )
        for fault in [*faults(found.path), *attestation.faults(found.path)]:
            print(f"  {fault}")


@app.command()
def data(
    download: Annotated[bool, typer.Option("--download", help="Fetch all 70,000 from OpenML.")] = False,
) -> None:
    """Say which data set is found on this machine, and how many rows it has."""
    from compendium.experiments.data import load_mnist

    try:
        found = load_mnist(download=download)
    except ValueError as error:  # a DataError: missing, damaged, or not what the name says
        raise FailureError(str(error)) from None
    print(found.describe())
    if download and not found.is_full:
        raise FailureError("these are not all 70,000: nothing was downloaded")


@notebooks_app.command("build")
def build_notebooks(targets: Targets = None) -> None:
    """Execute the notebook texts and write the paired notebooks."""
    from compendium.runs.notebooks import build

    for path in build(targets or None):
        print(_relative(path))


@notebooks_app.command("check")
def check_notebooks(targets: Targets = None) -> None:
    """Check that every notebook is its text, executed in order without an error."""
    from compendium.runs.notebooks import check

    if faults := check(targets or None):
        raise FailureError("\n".join(faults))
    print("the notebooks agree with their texts")


@app.command()
def claims(
    status: Annotated[
        str | None, typer.Option(help="verified, corrected, refuted or not checked; claims of this status.")
    ] = None,
    notebook: Annotated[str | None, typer.Option(help="Claims of this notebook, such as 05.")] = None,
    label: Annotated[str | None, typer.Option(help="Claims of this label of the paper.")] = None,
    paper: Annotated[
        Path | None, typer.Option(help="Folder with the registry of another paper, such as papers/rs_mnl.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything on record, as JSON.")] = False,
    write: Annotated[
        bool,
        typer.Option("--write", help="Write the page of the registry, its graph and all panels."),
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Only say whether registry, evidence, errata and page agree.")
    ] = False,
) -> None:
    """Show what the paper claims and what the notebooks found."""
    from compendium.claims import page as claims_page
    from compendium.claims.registry import faults, load_registry

    registry = load_registry(paper)
    chosen = registry.select(status, notebook, label)
    if write and paper is not None:
        raise UsageError("--write makes the page of the book, which is about one paper")
    if check or write:
        if write:
            for path in claims_page.write(registry):
                print(_relative(path))
        if found := faults(registry, paper):
            raise FailureError("\n".join(found))
        if paper is None:
            claims_page.check(registry)
            print("registry, evidence, errata, panels and page agree")
        else:
            print("registry, evidence and errata agree")
    elif as_json:
        print(json.dumps(registry.rows(chosen), indent=2, ensure_ascii=False))
    else:
        _print_claims(registry, chosen)


@app.command()
def results(
    check: Annotated[bool, typer.Option("--check", help="Only say whether it is up to date.")] = False,
) -> None:
    """Write RESULTS.md and its data, the page of figures, the results in README, articles and book."""
    from compendium.report import article, choosing, results, which_one

    results.write(check=check)
    article.write(check=check)
    choosing.write(check=check)
    which_one.write(check=check)


@app.command()
def readme(
    check: Annotated[bool, typer.Option("--check", help="Only say whether it is up to date.")] = False,
) -> None:
    """Write the results in the README, the articles and the page on parameters from the committed runs."""
    from compendium.report import article, choosing, readme, which_one

    readme.update(check=check)
    article.write(check=check)
    choosing.write(check=check)
    which_one.write(check=check)


def _print_claims(registry: Registry, chosen: Sequence[Claim]) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    from compendium.claims.formulas import plain

    console = Console()
    for claim in chosen:
        heading = f"{claim.id}  {registry.verdict(claim)}  ({registry.place(claim)})"
        lines = [plain(claim.statement)]
        lines += [f"Instead: {plain(claim.instead)}"] if claim.instead else []
        lines += [f"Not checked: {claim.reason}"] if claim.reason else []
        lines += [f"See {claim.notebook}"] if claim.notebook else []
        console.print(Text(heading, style="bold"))
        for line in lines:
            console.print(Padding(Text(line), (0, 0, 0, 6), expand=False))
    print(f"{len(chosen)} of {len(registry.claims)} entries")


def _data_lines(study: dict[str, Any]) -> list[str]:
    """Return a line for each data set of a run with its rows, by which 5,000 digits differ from all."""
    sets = [data for one in study.get("studies", []) for data in one.get("data", [])]
    return [f"  data: {data['name']}, {data['rows']:,} rows, from {data['source']}" for data in sets]


def _shown(parameters: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in parameters.items()) or "none"


def _relative(path: Path) -> str:
    """Return a path from the working folder, or the absolute path where that is shorter."""
    return min(relative(path), str(path), key=len)


def _message(error: Exception) -> str:
    if isinstance(error, OSError):
        return ": ".join(str(part) for part in (error.strerror or error, error.filename) if part)
    return str(error)


def _fail(message: str, code: int) -> NoReturn:
    print(message, file=sys.stderr)
    raise SystemExit(code)
