"""RESULTS.md: what the paper reports beside what the committed runs show, every figure computed.

A statement of the paper about regret is *reproduced* when the 95 % interval over trials of the
relative difference (paired: all policies of a trial meet the same random numbers) lies within what
the paper says, *not reproduced* when it lies outside, and *undecided* otherwise. A saving of time is
reproduced when the median over trials reaches it. Where one of several settings or opponents
reproduces a statement and another does not, it is *reproduced under a condition*.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from compendium.report import figures_page
from compendium.report import tables as report
from compendium.report.figures import label
from compendium.runs.run import Run, find_runs
from compendium.system import paths
from compendium.system.paths import FailureError

PAGE = "RESULTS.md"
README_BLOCK = re.compile(r"(<!-- verdicts: begin -->\n).*?(<!-- verdicts: end -->)", re.DOTALL)
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


class Finding(NamedTuple):
    """A statement of the paper and what became of it.

    Attributes
    ----------
    claim : str
        Its number in the registry.
    paper : str
        What the paper says, in our words.
    ours : list of (str, str)
        What the runs show, one line for each setting or opponent, each with its verdict.
    verdict : str
        One of the four.
    runs : list of Run
        Where from.
    """

    claim: str
    paper: str
    ours: list[tuple[str, str]]
    verdict: str
    runs: list[Run]

    @property
    def exception(self) -> str:
        """Where a statement that is reproduced under a condition is not, by what the other lines lack."""
        names: dict[bool, list[str]] = {True: [], False: []}
        for line, verdict in self.ours:
            names[verdict == REPRODUCED].append(line.partition(":")[0])
        places: dict[str, set[str]] = {}
        for place, _, last in (name.rpartition(", ") for name in names[False]):
            places.setdefault(last, set()).add(place)
        everywhere = all(place == next(iter(places.values())) for place in places.values())
        if places and everywhere and not any(name.endswith(tuple(places)) for name in names[True]):
            return " or ".join(places)
        return "; ".join(names[False])


def page() -> str:
    """The page, from the committed runs of the paper profile."""
    found = findings()
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
        lines += [f"- {line} ({verdict})" for line, verdict in f.ours]
        lines += ["", "From " + ", ".join(_link(run) for run in f.runs) + ".", ""]
    lines += ["## What else was found", ""]
    for name in ("parameter_grid", "sketch_size", "radius_scale", "real_data", "scale"):
        for run in find_runs(name, "paper"):
            lines += [f"### {_title(run)}", "", *_said(run), "", f"From {_link(run)}.", ""]
    lines += ["## Lines of evidence", "", "As the registry of claims reads them.", "", "```text"]
    lines += [line for f in found for line in _evidence(f)]
    return "\n".join([*lines, "```"]) + "\n"


def _evidence(finding: Finding) -> Iterator[str]:
    """The lines of the registry: an undecided statement gives none."""
    for line, verdict in finding.ours:
        name, _, figures = line.partition(": ")
        said = {REPRODUCED: "holds", NOT: "refuted"}.get(verdict)
        if said:
            yield f"{finding.claim} {said}: {finding.paper}, {name}: {figures.replace(':', ',')}"


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
    found = [_regret("C33a", "on MNIST about 10 % more regret than OFUL-MLogB", [mnist], -1.0, 0.2)]
    for claim, (case, run) in zip(("C33b", "C33c"), cases.items(), strict=True):
        found.append(
            _regret(claim, f"on the {case} problem regret comparable to OFUL-MLogB's", [run], -0.1, 0.1)
        )
    stated = {"MNIST": (0.8, mnist)} | {
        f"the {case} problem": ({"multinomial": 0.35, "binary": 0.8}[case], run)
        for case, run in cases.items()
    }
    for claim, (name, (saving, run)) in zip(("C32a", "C32b", "C32c"), stated.items(), strict=True):
        found.append(_time(claim, f"on {name} {saving:.0%} of the time of a round saved", saving, run))
    return [*found, _choice(grids)]


def _regret(claim: str, paper: str, runs: list[Run], low: float, high: float) -> Finding:
    lines, verdicts = [], []
    for run in runs:
        for setting, final in _comparisons(run):
            mean, left, right = _relative(final)
            share = _share_of_random(final)
            verdicts.append(
                REPRODUCED if low <= left and right <= high else NOT if left > high else UNDECIDED
            )
            lines.append(
                f"{setting}: {mean:+.1%} of regret against OFUL-MLogB, interval [{left:+.1%}, {right:+.1%}]; "
                f"OFUL-MLogB plays at {share:.0%} of random play"
            )
    return Finding(claim, paper, list(zip(lines, verdicts, strict=True)), _together(verdicts), runs)


def _time(claim: str, paper: str, saving: float, run: Run) -> Finding:
    lines, verdicts = [], []
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
            verdicts.append(REPRODUCED if saved >= saving else NOT)
            said = f"{saved:.0%} saved" if saved >= 0 else f"{-saved:.0%} more time"
            lines.append(f"{name}, against {OPPONENTS[opponent]}: {said}")
    return Finding(claim, paper, list(zip(lines, verdicts, strict=True)), _together(verdicts), [run])


def _choice(runs: list[Run]) -> Finding:
    lines, verdicts = [], []
    for run in runs:
        case = run.record["point"]["case"]
        final = _final(run, 0)
        means = final.groupby(["setting", "policy"])["regret"].mean().unstack("policy")
        for policy in ("eofd", "oful"):
            shares = means[policy] / means["random"]
            name = "l=0.75, e=0.75"
            rank = int((shares < shares[name]).sum()) + 1
            verdicts.append(REPRODUCED if rank <= max(len(shares) // 10, 1) else NOT)
            lines.append(
                f"{case}, {label(policy)}: rank {rank} of {len(shares)} by regret ({shares[name]:.0%} of "
                f"random play; the best pair has {shares.min():.0%})"
            )
    paper = "(l, e) = (0.75, 0.75) is the choice of the validation runs"
    return Finding("C34", paper, list(zip(lines, verdicts, strict=True)), _together(verdicts), runs)


def _together(verdicts: Sequence[str]) -> str:
    kinds = set(verdicts)
    if len(kinds) == 1:
        return kinds.pop()
    return CONDITION if REPRODUCED in kinds else UNDECIDED


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


def short_form() -> str:
    """The table for the README: what the paper says, and the verdict."""
    lines = ["| the paper says | verdict |", "|---|---|"]
    for f in findings():
        condition = f" (not: {f.exception})" if f.verdict == CONDITION else ""
        lines.append(f"| {f.paper} | {f.verdict}{condition} |")
    return "\n".join(lines) + "\n"


def write(check: bool = False) -> None:
    """Write RESULTS.md, its short form in the README and the page of figures, or check them against the runs.

    Raises
    ------
    FailureError
        If a run is missing, the README has no block for it, or a page differs under `check`.
    """
    root = paths.project_root()
    readme = (root / "README.md").read_text(encoding="utf-8")
    if not README_BLOCK.search(readme):
        raise FailureError(
            "README.md has no block between <!-- verdicts: begin --> and <!-- verdicts: end -->"
        )
    table = short_form()
    contents = {
        PAGE: page(),
        "README.md": README_BLOCK.sub(lambda m: m[1] + table + m[2], readme),
        figures_page.PAGE: figures_page.page(root),
    }
    for name, text in contents.items():
        path = root / name
        before = path.read_text(encoding="utf-8") if path.is_file() else None
        if check and before != text:
            raise FailureError(f"{name} is not what the committed runs give: `mlogb results` makes it")
        if before != text:
            paths.write_atomically(path, text)
