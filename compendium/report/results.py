"""RESULTS.md: what the paper reports beside what the committed runs show, every figure computed.

RESULTS.json has the evidence in it as data, which the registry of claims reads.

Each statement of the paper has a rule that was fixed beforehand, `Finding.rule`, and every setting or
opponent in which it was looked at gets a verdict by that rule. Two things keep a run from saying anything
about a comparable regret: policies that hardly learn, and a sketch that decides nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from compendium.claims.evidence import Line
from compendium.claims.registry import RESULTS
from compendium.report import figures_page, readme
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
REPRODUCED, CONDITION, NOT, UNDECIDED, NOTHING = (
    "reproduced",
    "reproduced under a condition",
    "not reproduced",
    "undecided",
    "says nothing",
)
#: Above this share of random play the full Hessian has hardly learned, and comparing with it says nothing.
LEARNED = 0.9
_RULES = {
    "overhead": (
        "reproduced where the interval of the relative difference lies within 5 % to 20 % more, not where it "
        "lies outside of that; undecided where it overlaps"
    ),
    "comparable": (
        "reproduced where the interval of the relative difference lies within 10 % either way, not where it "
        f"lies above; says nothing where OFUL-MLogB plays at more than {LEARNED:.0%} of random play, so that "
        "nothing was learned, or where EOFD-MLogB has in every trial the regret of OFUL-MLogB or that of "
        "greedy play, or play without any curvature is as near to OFUL-MLogB, so that what the sketch holds "
        "decided nothing"
    ),
    "time": "reproduced where the median over trials of the ratio of median times reaches the saving",
    "choice": (
        "reproduced where the pair is among the best tenth of the grid by the length of the last steps or by "
        "the error at the end; undecided elsewhere, since the paper does not say what it looked at. The rank "
        "by regret is another criterion and decides nothing"
    ),
    "admissible": (
        "reproduced where the smallest λ that the corrected theorem admits, the larger of 2LD² and "
        "4ηγ_K M_K SD³, is at most the one that is used"
    ),
}


#: What a reader of the page has to know of its words.
_WORDS = (
    "The words of this page:",
    "",
    "- *Paper* and *tuned* are settings. The first takes λ and η from the paper's exponents, as",
    "  $(\\sqrt K d)^l$ times a constant and $(\\sqrt K d)^e$ times another, with (l, e) = (0.75, 0.75); the",
    "  second takes them from validation streams, with a much smaller λ. $S$ is the radius of the ball of",
    "  parameters.",
    "- The *multinomial* and the *binary* problem are the paper's synthetic ones, with $(K, d) = (4, 100)$",
    "  and $(1, 400)$. With *decay a* the variance of feature $i$ falls like $i^{-a}$.",
    "- *At 6% of random play*: the regret is 6% of the regret of a policy that picks actions at random.",
    "  It depends on the number of rounds and, on MNIST, on how the features are scaled; these differ",
    "  between the runs.",
    "- *Greedy* play has no bonus (β = 0); *no curvature* keeps the matrix λI for ever.",
    "- *Robust EOFD* adds half of what its shrinks subtract to λ, *compensated EOFD* all of it; *budgeted",
    "  EOFD* lets m grow so that ρ, the sum of what they subtract, stays below ελ. *Diagonal* keeps the",
    "  diagonal of the Hessian, *growing ridge* a multiple of the identity that grows with its trace.",
    "- OFUL-MLogB is computed in three forms: *as printed*, with eigendecompositions of the full matrix, by",
    "  *one Cholesky factor a round*, and the *strongest*, which updates the inverse.",
    "- The same regret in every trial refutes an overhead of 10 %, but says nothing for a regret that is",
    "  comparable: there the sketch decided nothing. Nor does a sketch decide where even play without any",
    "  curvature has a regret that is comparable.",
    "- *Observed*, *observed, plug-in*, *determinants* and *mix loss* are the radii of [notebook",
    "  21](notebooks/21_usable_radius.md), *repaired* is that of [the corrected",
    "  proof](notebooks/10_loss_regret.md#thm-radius), and *printed* the paper's (*its λ*: in games with the",
    "  λ that it asks for). The *scale* multiplies a radius. The *largest share* is the squared distance of",
    "  the truth over the squared radius, at most: above 1 the truth is lost.",
    "- $\\Delta_T = 1 + \\rho_{1:T}/\\lambda$ measures what the sketch has lost: 1 is nothing.",
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
        One of those above but `CONDITION`.
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
    rule : str
        By which rule the verdicts are given.
    """

    claim: str
    paper: str
    ours: list[Comparison]
    runs: list[Run]
    rule: str = ""

    @property
    def verdict(self) -> str:
        """The verdict of all comparisons together; those that say nothing do not count if others do."""
        kinds = {one.verdict for one in self.ours}
        kinds = kinds - {NOTHING} or kinds
        if len(kinds) == 1:
            return kinds.pop()
        return CONDITION if REPRODUCED in kinds else UNDECIDED

    @property
    def remarks(self) -> str:
        """Where the verdict does not hold, and which settings say nothing, as an addition to it."""
        silent = [one.name for one in self.ours if one.verdict == NOTHING]
        parts = [f"not: {self.exception}"] if self.verdict == CONDITION else []
        if silent and self.verdict != NOTHING:
            parts.append(f"nothing is said by: {'; '.join(silent)}")
        return f" ({'. '.join(parts)})" if parts else ""

    @property
    def exception(self) -> str:
        """Where a statement that is reproduced under a condition is not.

        The conditions alone are named where each of them fails in the same settings and is met nowhere.
        """
        failed = [one for one in self.ours if one.verdict not in (REPRODUCED, NOTHING)]
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
        """The lines for the registry: a comparison that is undecided or says nothing gives none."""
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
        "the same actions and the same outcome uniforms. Each verdict stands with the rule that gave it.",
        "",
        *_WORDS,
        "",
        "| claim | the paper | verdict | rule |",
        "|---|---|---|---|",
        *(
            f"| [{f.claim}](book/claims.md#{f.claim.lower()}) | {f.paper} | {f.verdict}{f.remarks} | "
            f"{f.rule} |"
            for f in found
        ),
        "",
    ]
    for f in found:
        lines += [f"## {_title_of(f)}", "", f"*{f.verdict.capitalize()}{f.remarks}.* Rule: {f.rule}.", ""]
        lines += [f"- {one.name}: {one.figures} ({one.verdict})" for one in f.ours]
        lines += ["", "From " + ", ".join(_link(run) for run in f.runs) + ".", ""]
    mnist = readme.only_run("mnist")
    lines += ["## MNIST in numbers", "", report.mnist_block(mnist), f"From {_link(mnist)}.", ""]
    lines += ["## What else was found", ""]
    for name in _OTHERS:
        for run in find_runs(name, "paper"):
            lines += [f"### {_title(run)}", "", *_said(run), "", f"From {_link(run)}.", ""]
    lines += ["## Lines of evidence", "", "As the registry of claims reads them.", "", "```text"]
    lines += [str(line) for f in found for line in f.evidence]
    return "\n".join([*lines, "```"]) + "\n"


_OTHERS = (
    "mnist_normalisation",
    "parameter_grid",
    "convergence",
    "sketch_size",
    "radius_scale",
    "coverage_radius",
    "real_data",
    "scale",
    "equal_regret",
    "adaptive_rank",
    "moonshot",
    "tournament",
)


def _title_of(finding: Finding) -> str:
    return f"{finding.paper[0].upper()}{finding.paper[1:]} ({finding.claim})"


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
    mnist, normalised = readme.only_run("mnist"), readme.only_run("mnist_normalisation")
    cases = {case: readme.only_run("synthetic", case) for case in ("multinomial", "binary")}
    found = [_overhead(mnist, normalised)]
    for claim, (case, run) in zip(("C33b", "C33c"), cases.items(), strict=True):
        paper = f"on the {case} problem regret comparable to OFUL-MLogB's"
        ours = [_compared(name, final, _comparable(final)) for name, final in _comparisons(run)]
        found.append(Finding(claim, paper, ours, [run], _RULES["comparable"]))
    savings = {
        "C32a": ("MNIST", readme.SAVINGS["MNIST"], mnist),
        "C32b": ("the multinomial problem", readme.SAVINGS["multinomial"], cases["multinomial"]),
        "C32c": ("the binary problem", readme.SAVINGS["binary"], cases["binary"]),
    }
    for claim, (name, saving, run) in savings.items():
        paper = f"on {name} {saving:.0%} of the time of a round saved"
        found.append(Finding(claim, paper, _time(run, saving), [run], _RULES["time"]))
    return [*found, _choice(), _admissible(normalised)]


def _overhead(mnist: Run, normalised: Run) -> Finding:
    """The overhead on MNIST, also with the features as the paper's text admits them."""
    parts = [*_comparisons(mnist), *(one for one in _comparisons(normalised) if one[0].startswith("unit"))]
    ours = [_compared(name, final, _about_a_tenth(final)) for name, final in parts]
    paper = "on MNIST about 10 % more regret than OFUL-MLogB"
    return Finding("C33a", paper, ours, [mnist, normalised], _RULES["overhead"])


def _compared(setting: str, final: pd.DataFrame, verdict: str) -> Comparison:
    mean, left, right = _relative(final)
    figures = (
        f"{mean:+.1%} of regret against OFUL-MLogB, interval [{left:+.1%}, {right:+.1%}]; "
        f"OFUL-MLogB plays at {_share_of_random(final):.0%} of random play"
    )
    if (final["eofd"] == final["oful"]).all():
        figures += "; both have the same regret in every trial"
    if "first-order" in final:
        mean, left, right = _relative(final, "first-order")
        figures += f"; without curvature {mean:+.1%}, interval [{left:+.1%}, {right:+.1%}]"
    name, _, condition = setting.partition(", ")  # such as "paper, S = 1"
    return Comparison(name, condition, figures, verdict)


def _about_a_tenth(final: pd.DataFrame) -> str:
    """The verdict on an overhead of about 10 %; a sketch that decides nothing has none."""
    _, left, right = _relative(final)
    if left >= 0.05 and right <= 0.2:
        return REPRODUCED
    return NOT if right < 0.05 or left > 0.2 else UNDECIDED


def _comparable(final: pd.DataFrame) -> str:
    """The verdict on a regret within 10 % of OFUL's either way."""
    idle = any((final["eofd"] == final[other]).all() for other in ("oful", "greedy") if other in final)
    if idle or _share_of_random(final) > LEARNED or ("first-order" in final and _near(final, "first-order")):
        return NOTHING
    if _near(final):
        return REPRODUCED
    return NOT if _relative(final)[1] > 0.1 else UNDECIDED


def _near(final: pd.DataFrame, policy: str = "eofd") -> bool:
    """Whether a policy's regret is certain to lie within 10 % of OFUL's."""
    _, left, right = _relative(final, policy)
    return left >= -0.1 and right <= 0.1


def _choice() -> Finding:
    """The rank of the paper's pair by the convergence of the parameter, and by regret."""
    grids = {case: readme.only_run("parameter_grid", case) for case in ("multinomial", "binary")}
    run = readme.only_run("convergence")
    ours = []
    for row in run.record["study"]["findings"]["ranks"]:
        steps, error, pairs = row["rank by steps"], row["rank by error"], row["pairs"]
        figures = (
            f"rank {steps} of {pairs} by the length of the last steps, which are "
            f"{row['last steps / first']:.2f} times as long as the first; rank {error} by the error, "
            f"{row['error / S']:.3f} S where the least is {row['least error / S']:.3f} S"
        )
        if row["S"] == _grid_norm(grids[row["case"]]):
            figures += f"; {_rank_by_regret(grids[row['case']], row['policy'])}"
        verdict = REPRODUCED if min(steps, error) <= max(pairs // 10, 1) else UNDECIDED
        ours.append(Comparison(row["case"], f"S = {row['S']:g}, {label(row['policy'])}", figures, verdict))
    paper = "(l, e) = (0.75, 0.75) is chosen by the convergence of W"
    return Finding("C34", paper, ours, [run, *grids.values()], _RULES["choice"])


def _grid_norm(run: Run) -> float:
    return float(run.record["study"]["studies"][0]["settings"][0]["norm_bound"])


def _rank_by_regret(run: Run, policy: str) -> str:
    means = _final(run, 0).groupby(["setting", "policy"])["regret"].mean().unstack("policy")
    shares = means[policy] / means["random"]
    share = shares["l=0.75, e=0.75"]
    rank = int((shares < share).sum()) + 1
    return f"rank {rank} by regret ({share:.0%} of random play; the best pair has {shares.min():.0%})"


def _admissible(run: Run) -> Finding:
    """Whether the corrected confidence theorem admits lambda, by how the features are read."""
    ours = [
        Comparison(
            row["features"],
            f"S = {row['S']:g}",
            f"{row['needed / used']:g} times the λ that is used is needed, at actions of norm "
            f"{row['norm']:g}",
            REPRODUCED if row["needed / used"] <= 1.0 else NOT,
        )
        for row in run.record["study"]["findings"]["admissible"]
    ]
    paper = (
        "the tuned λ of the experiments is admissible for the confidence theorem, on MNIST and as corrected"
    )
    return Finding("C24c", paper, ours, [run], _RULES["admissible"])


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


def _relative(table: pd.DataFrame, policy: str = "eofd") -> tuple[float, float, float]:
    """Mean paired difference of a policy to OFUL over OFUL's mean regret, with its interval."""
    difference = table[policy] - table["oful"]
    mean, low, high = report.interval(difference)
    scale = float(table["oful"].mean())
    return mean / scale, low / scale, high / scale


def _share_of_random(table: pd.DataFrame) -> float:
    return float(table["oful"].mean() / table["random"].mean()) if "random" in table else np.nan


def _title(run: Run) -> str:
    point = run.record.get("point") or {}
    ending = f" ({', '.join(map(str, point.values()))})" if point else ""
    return str(run.record["experiment"]).replace("_", " ").capitalize().replace("Mnist", "MNIST") + ending


def _said(run: Run) -> list[str]:
    """The sentences under "What was found" of the executed notebook."""
    import nbformat

    notebook = nbformat.read(_notebook(run), as_version=4)  # type: ignore[no-untyped-call]
    outputs = [o for cell in notebook.cells for o in cell.get("outputs", []) if o.output_type == "stream"]
    lines = [line for output in outputs for line in output.text.splitlines() if line.startswith("- ")]
    return [re.sub(r"\b\d(\.\d+)?e\+\d+", lambda number: f"{float(number[0]):,.0f}", line) for line in lines]


def _notebook(run: Run) -> Path:
    (path,) = run.path.glob("*.ipynb")
    return path


def _link(run: Run) -> str:
    place: str = _notebook(run).relative_to(paths.project_root()).as_posix()
    name = ", ".join([str(run.record["experiment"]), *map(str, (run.record.get("point") or {}).values())])
    return f"[{name}]({place}) ([its record and figures]({figures_page.PAGE}#{figures_page.anchor(run)}))"


def short_form(found: Sequence[Finding]) -> str:
    """The table in short: what the paper says, and the verdict."""
    lines = ["| the paper says | verdict |", "|---|---|"]
    lines += [f"| {f.paper} | {f.verdict}{f.remarks} |" for f in found]
    return "\n".join(lines) + "\n"


def write(check: bool = False) -> None:
    """Write RESULTS.md and its data, the README's results and the page of figures, or check them.

    Raises
    ------
    FailureError
        If a run is missing, or a page differs under `check`.
    UsageError
        If the README has no block for the results.
    """
    root = paths.project_root()
    found = findings()
    contents = {
        PAGE: page(found),
        DATA: data(found),
        "README.md": readme.page(),
        figures_page.PAGE: figures_page.page(root),
    }
    for name, text in contents.items():
        if report.write_if_changed(root / name, text, check):
            raise FailureError(f"{name} is not what the committed runs give: `mlogb results` makes it")
