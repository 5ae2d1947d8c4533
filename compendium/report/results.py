"""RESULTS.md: what the paper reports beside what the committed runs show, every figure computed.

RESULTS.json has the evidence in it as data, which the registry of claims reads.

A statement of the paper about regret is *reproduced* when the 95 % interval over trials of the
relative difference (paired: all policies of a trial meet the same random numbers) lies within what
the paper says, *not reproduced* when it lies outside, and *undecided* otherwise. A saving of time is
reproduced when the median over trials reaches it. Where one of several settings or opponents
reproduces a statement and another does not, it is *reproduced under a condition*.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from compendium.claims.evidence import Line
from compendium.claims.registry import RESULTS
from compendium.report import figures_page
from compendium.report import tables as report
from compendium.report.figures import label
from compendium.runs.run import Run, find_runs
from compendium.system import paths
from compendium.system.paths import FailureError

PAGE, DATA = f"{RESULTS}.md", f"{RESULTS}.json"
OPPONENTS = {
    "oful-printed": "OFUL-MLogB as printed",
    "oful-cholesky": "OFUL-MLogB by one Cholesky factor a round",
    "oful": "the strongest form of OFUL-MLogB",
}  # whose times are compared
REPRODUCED, CONDITION, NOT, UNDECIDED = (
    "reproduced",
    "reproduced under a condition",
    "not reproduced",
    "undecided",
)


class Comparison(NamedTuple):
    """What the runs show of a statement in one setting, or against one opponent.

    Attributes
    ----------
    setting, condition : str
        Where: the setting or problem, and what is special in it, such as the opponent.
    figures : str
        What was found.
    verdict : str
        One of the four.
    """

    setting: str
    condition: str
    figures: str
    verdict: str

    @property
    def name(self) -> str:
        """Where it was found."""
        return f"{self.setting}, {self.condition}" if self.condition else self.setting


class Finding(NamedTuple):
    """A statement of the paper and what became of it.

    Attributes
    ----------
    claim : str
        Its number in the registry.
    paper : str
        What the paper says, in our words.
    ours : list of Comparison
        What the runs show.
    runs : list of Run
        Where from.
    """

    claim: str
    paper: str
    ours: list[Comparison]
    runs: list[Run]

    @property
    def verdict(self) -> str:
        """One of the four."""
        kinds = {one.verdict for one in self.ours}
        if len(kinds) == 1:
            return kinds.pop()
        return CONDITION if REPRODUCED in kinds else UNDECIDED

    @property
    def exception(self) -> str:
        """Where a statement that is reproduced under a condition is not.

        The conditions alone are named where each of them fails in the same settings and is met nowhere.
        """
        failed = [one for one in self.ours if one.verdict != REPRODUCED]
        settings: dict[str, set[str]] = {}
        for one in failed:
            settings.setdefault(one.condition, set()).add(one.setting)
        met = {one.condition for one in self.ours if one.verdict == REPRODUCED}
        same = all(where == next(iter(settings.values())) for where in settings.values())
        if settings and "" not in settings and same and not met & set(settings):
            return " or ".join(settings)
        return "; ".join(one.name for one in failed)

    @property
    def evidence(self) -> Iterator[Line]:
        """The lines for the registry: an undecided comparison gives none."""
        said = {REPRODUCED: "holds", NOT: "refuted"}
        for one in self.ours:
            if one.verdict in said:
                yield Line(self.claim, said[one.verdict], f"{self.paper}, {one.name}", one.figures)


def page(found: Sequence[Finding]) -> str:
    """The page, from what `findings` gives and the committed runs of the paper profile."""
    lines = [
        "# Results: what the paper reports and what the recorded runs show",
        "",
        "Made by `mlogb results` from the runs in `papermill_runs/`; no figure here is typed in. Intervals",
        "are 95 % intervals of Student's t over trials, of paired differences: all policies of a trial meet",
        "the same actions and the same outcome uniforms. A statement about regret is reproduced when the",
        'interval lies within what the paper says (at most 20 % more for "about 10 %", 10 % either way for',
        '"comparable"), one about time when the median over trials reaches the saving.',
        "",
        "| claim | the paper | verdict |",
        "|---|---|---|",
        *(f"| [{f.claim}](book/claims.md#{f.claim.lower()}) | {f.paper} | {f.verdict} |" for f in found),
        "",
    ]
    for f in found:
        lines += [f"## {f.paper[0].upper()}{f.paper[1:]} ({f.claim})", "", f"*{f.verdict.capitalize()}.*", ""]
        lines += [f"- {one.name}: {one.figures} ({one.verdict})" for one in f.ours]
        lines += ["", "From " + ", ".join(_link(run) for run in f.runs) + ".", ""]
    lines += ["## What else was found", ""]
    for name in ("parameter_grid", "sketch_size", "radius_scale", "real_data", "scale"):
        for run in find_runs(name, "paper"):
            lines += [f"### {_title(run)}", "", *_said(run), "", f"From {_link(run)}.", ""]
    lines += ["## Lines of evidence", "", "As the registry of claims reads them.", "", "```text"]
    lines += [str(line) for f in found for line in f.evidence]
    return "\n".join([*lines, "```"]) + "\n"


def data(found: Sequence[Finding]) -> str:
    """The evidence as JSON, one line each."""
    lines = [json.dumps(line.fields, ensure_ascii=False) for f in found for line in f.evidence]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def findings() -> list[Finding]:
    """The statements of the paper's experiments, with what the runs show.

    Raises
    ------
    FailureError
        If a run is missing.
    """
    mnist = _one("mnist")
    cases = {case: _one("synthetic", case) for case in ("multinomial", "binary")}
    grids = [_one("parameter_grid", case) for case in ("multinomial", "binary")]
    found = [
        Finding("C33a", "on MNIST about 10 % more regret than OFUL-MLogB", _regret(mnist, -1.0, 0.2), [mnist])
    ]
    for claim, (case, run) in zip(("C33b", "C33c"), cases.items(), strict=True):
        paper = f"on the {case} problem regret comparable to OFUL-MLogB's"
        found.append(Finding(claim, paper, _regret(run, -0.1, 0.1), [run]))
    savings = {
        "C32a": ("MNIST", 0.8, mnist),
        "C32b": ("the multinomial problem", 0.35, cases["multinomial"]),
        "C32c": ("the binary problem", 0.8, cases["binary"]),
    }
    for claim, (name, saving, run) in savings.items():
        paper = f"on {name} {saving:.0%} of the time of a round saved"
        found.append(Finding(claim, paper, _time(run, saving), [run]))
    paper = "(l, e) = (0.75, 0.75) is the choice of the validation runs"
    return [*found, Finding("C34", paper, [one for run in grids for one in _choice(run)], grids)]


def _regret(run: Run, low: float, high: float) -> list[Comparison]:
    found = []
    for setting, final in _comparisons(run):
        mean, left, right = _relative(final)
        figures = (
            f"{mean:+.1%} of regret against OFUL-MLogB, interval [{left:+.1%}, {right:+.1%}]; "
            f"OFUL-MLogB plays at {_share_of_random(final):.0%} of random play"
        )
        verdict = REPRODUCED if low <= left and right <= high else NOT if left > high else UNDECIDED
        name, _, condition = setting.partition(", ")  # such as "paper, S = 1"
        found.append(Comparison(name, condition, figures, verdict))
    return found


def _time(run: Run, saving: float) -> list[Comparison]:
    found = []
    timings = run.timings
    for setting in [s for s in timings["setting"].astype(str).unique() if s.endswith("timed")]:
        name = setting.partition(", timed")[0]
        played = set(timings.loc[timings["setting"].astype(str) == setting, "policy"].astype(str))
        if missing := sorted({"eofd", *OPPONENTS} - played):
            raise FailureError(
                f"{PAGE} needs the times of {', '.join(missing)} in {setting} of {run.path.name}"
            )
        for opponent in OPPONENTS:
            saved = 1.0 - 1.0 / report.time_ratio(timings, setting, opponent, "eofd")
            figures = f"{saved:.0%} saved" if saved >= 0 else f"{-saved:.0%} more time"
            verdict = REPRODUCED if saved >= saving else NOT
            found.append(Comparison(name, f"against {OPPONENTS[opponent]}", figures, verdict))
    return found


def _choice(run: Run) -> Iterator[Comparison]:
    means = _final(run, 0).groupby(["setting", "policy"])["regret"].mean().unstack("policy")
    for policy in ("eofd", "oful"):
        shares = means[policy] / means["random"]
        share = shares["l=0.75, e=0.75"]
        rank = int((shares < share).sum()) + 1
        figures = (
            f"rank {rank} of {len(shares)} by regret ({share:.0%} of random play; the best pair has "
            f"{shares.min():.0%})"
        )
        verdict = REPRODUCED if rank <= max(len(shares) // 10, 1) else NOT
        yield Comparison(run.record["point"]["case"], label(policy), figures, verdict)


def _one(experiment: str, case: str | None = None) -> Run:
    runs = [
        r for r in find_runs(experiment, "paper") if case in (None, r.record.get("point", {}).get("case"))
    ]
    if len(runs) != 1:
        raise FailureError(
            f"{PAGE} needs exactly one run of {experiment} {case or ''} (profile paper), found {len(runs)}"
        )
    return runs[0]


def _final(run: Run, study: int) -> pd.DataFrame:
    """Regret at the end of every trial of one study of a run."""
    names = [setting["name"] for setting in run.record["study"]["studies"][study]["settings"]]
    table = run.results[run.results["setting"].isin(names)].astype({"setting": str, "policy": str})
    return table.groupby(["setting", "policy", "trial"], sort=False)["regret"].sum().reset_index()


def _comparisons(run: Run) -> list[tuple[str, pd.DataFrame]]:
    """The settings in which both algorithms and random play took part, with their regret."""
    final = _final(run, 0)
    parts = [
        (name, part.pivot(index="trial", columns="policy", values="regret"))
        for name, part in final.groupby("setting", sort=False)
    ]
    return [(str(name), part) for name, part in parts if {"eofd", "oful"} <= set(part.columns)]


def _relative(table: pd.DataFrame) -> tuple[float, float, float]:
    """Mean paired difference over OFUL's mean regret, with its interval."""
    difference = table["eofd"] - table["oful"]
    mean, low, high = report.interval(difference)
    scale = float(table["oful"].mean())
    return mean / scale, low / scale, high / scale


def _share_of_random(table: pd.DataFrame) -> float:
    return float(table["oful"].mean() / table["random"].mean()) if "random" in table else np.nan


def _title(run: Run) -> str:
    point = run.record.get("point") or {}
    ending = f" ({', '.join(map(str, point.values()))})" if point else ""
    return str(run.record["experiment"]).replace("_", " ").capitalize() + ending


def _said(run: Run) -> list[str]:
    """The sentences that the executed notebook printed under "What was found"."""
    import nbformat

    notebook = nbformat.read(_notebook(run), as_version=4)  # type: ignore[no-untyped-call]
    outputs = [o for cell in notebook.cells for o in cell.get("outputs", []) if o.output_type == "stream"]
    return [line for output in outputs for line in output.text.splitlines() if line.startswith("- ")]


def _notebook(run: Run) -> Path:
    (path,) = run.path.glob("*.ipynb")
    return path


def _link(run: Run) -> str:
    place: str = _notebook(run).relative_to(paths.project_root()).as_posix()
    name = ", ".join([str(run.record["experiment"]), *map(str, (run.record.get("point") or {}).values())])
    return f"[{name}]({place}) ([its record and figures]({figures_page.PAGE}#{figures_page.anchor(run)}))"


def short_form(found: Sequence[Finding]) -> str:
    """The table for the README: what the paper says, and the verdict."""
    lines = ["| the paper says | verdict |", "|---|---|"]
    for f in found:
        condition = f" (not: {f.exception})" if f.verdict == CONDITION else ""
        lines.append(f"| {f.paper} | {f.verdict}{condition} |")
    return "\n".join(lines) + "\n"


def write(check: bool = False) -> None:
    """Write RESULTS.md and its data, the short form in the README and the page of figures, or check them.

    Raises
    ------
    FailureError
        If a run is missing, or a page differs under `check`.
    UsageError
        If the README has no block for the short form.
    """
    root = paths.project_root()
    found = findings()
    contents = {
        PAGE: page(found),
        DATA: data(found),
        "README.md": report.with_block(root / "README.md", "verdicts", short_form(found)),
        figures_page.PAGE: figures_page.page(root),
    }
    for name, text in contents.items():
        if report.write_if_changed(root / name, text, check):
            raise FailureError(f"{name} is not what the committed runs give: `mlogb results` makes it")
