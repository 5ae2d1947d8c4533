"""Evidence for a claim, written by the notebooks and read by the registry.

Each function prints one line that names the claim, the verdict, what was looked at and the figure that
decided it:

    C14 holds: Woodbury inverse against a dense solve: error below 1e-11 (200 cases)
    C12 refuted: rho of a block update within the vector bound: 1.5 where 1 is claimed
    C14 caught: no ridge in the small inverse: 0.31 exceeds 1e-11

In a notebook the same is also an output of the type `MIME`, which no front end shows: JSON with the
fields of `Line`. The registry reads that and never the sentence.

`holds` is evidence for the claim as printed, or, where a line says `refuted`, for its corrected form.
`caught` shows that the check can fail: a wrong variant went through it and was rejected. A function
raises where its line would be untrue, so a notebook that was executed to its end holds what it says.

Roundoff differs between machines in every digit, so an error is never printed, only the tolerance
that it stayed below. Figures that are found by a search are rounded to what the search supports.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import betaincinv

VERDICTS = ("holds", "refuted", "caught")
CLAIM = r"[CR]\d+[a-z]?"
#: The probability with which the interval of `covered` may miss.
FALSE_ALARM = 1e-3
MIME = "application/vnd.mlogb.evidence+json"


@dataclass(frozen=True)
class Line:
    """One line of evidence.

    Attributes
    ----------
    claim : str
        Identifier such as C14.
    verdict : str
        One of `VERDICTS`.
    statement : str
        What was looked at; for `caught`, what was made wrong.
    figure : str
        What decided it.
    reached : float, optional
        For a bound, the percentage of it that was reached at least: no much smaller bound holds.
    largest : int, optional
        For a bound, the percentage of it that the largest value found has.

    Raises
    ------
    ValueError
        If the claim has another form, the verdict is none of the three, or a text is empty or has
        several lines.
    """

    claim: str
    verdict: str
    statement: str
    figure: str
    reached: float | None = None
    largest: int | None = None

    def __post_init__(self) -> None:
        texts = (self.statement, self.figure)
        if not re.fullmatch(CLAIM, self.claim) or any(len(text.splitlines()) != 1 for text in texts):
            raise ValueError(
                f"claim must look like C14 or C14a and text have one line, got {self.claim!r}: "
                f"{self.statement!r}"
            )
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict must be one of {', '.join(VERDICTS)}, got {self.verdict!r}")

    def __str__(self) -> str:
        return f"{self.claim} {self.verdict}: {self.statement}: {self.figure}"

    @property
    def fields(self) -> dict[str, Any]:
        """What there is of it, for JSON; ``Line(**fields)`` is the line again."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def recorded(outputs: Iterable[Mapping[str, Any]]) -> Iterator[Line]:
    """Yield the evidence among the outputs of a cell."""
    for output in outputs:
        if MIME in output.get("data", {}):
            yield Line(**output["data"][MIME])


def evidence(claim: str, statement: str, *, error: float, tolerance: float, cases: int) -> None:
    """Print that an identity held in all cases, or raise.

    Parameters
    ----------
    claim : str
        Identifier of the claim, such as C1.
    statement : str
        What was compared with what.
    error : float
        Largest error over the cases. It is compared, and printed only when it is too large.
    tolerance : float
        What the error must not exceed.
    cases : int
        Number of cases.

    Raises
    ------
    AssertionError
        If the error is above the tolerance or not a number, or there was no case.
    """
    if not (error <= tolerance and cases > 0):
        raise AssertionError(
            f"{claim} fails: {statement}: error {error:.2g}, tolerance {tolerance:.0e} ({cases} cases)"
        )
    _say(Line(claim, "holds", statement, f"error below {tolerance:.0e} ({_counted(cases)})"))


def symbolic(claim: str, statement: str, *, residual: Any) -> None:
    """Print that a symbolic identity holds, or raise.

    Parameters
    ----------
    claim, statement : str
        As for `evidence`.
    residual : sympy expression or matrix, or a list of them
        Left side minus right side, simplified by the caller as far as needed.

    Raises
    ------
    AssertionError
        If the residual, or an entry of it, is not the symbol zero.
    """
    parts = list(np.ravel(np.array(residual, dtype=object)))
    if not parts or any(part != 0 for part in parts):
        raise AssertionError(f"{claim} fails: {statement}: residual {residual}")
    _say(Line(claim, "holds", statement, "exactly, by symbolic computation"))


def bounded(
    claim: str,
    statement: str,
    *,
    largest: float,
    limit: float,
    cases: int,
    reached: float | None = None,
    share: bool = False,
) -> None:
    """Print that an inequality held in all cases, or raise.

    Parameters
    ----------
    claim, statement : str
        As for `evidence`.
    largest : float
        Largest value that was found.
    limit : float
        What it must not exceed, up to a relative 1e-9 of roundoff.
    cases : int
        Number of cases.
    reached : float, optional
        Share of the limit that must have been found: says that no much smaller limit holds.
    share : bool, optional
        Print which share of a positive limit was found, rounded up to a whole percentage: the margin.

    Raises
    ------
    AssertionError
        If the largest value exceeds the limit or falls short of the share, or there was no case.
    """
    tight = reached is None or largest >= reached * limit
    if not (largest <= limit + 1e-9 * abs(limit) and tight and cases > 0):
        raise AssertionError(
            f"{claim} fails: {statement}: largest {largest:.6g}, limit {limit:.6g}, reached {reached}"
        )
    percentages: dict[str, Any] = {}
    ending = ""
    if reached is not None:
        percentages["reached"] = float(f"{100 * reached:g}")
        ending = f", at least {100 * reached:g} % of it reached"
    if share:
        found = largest / limit
        percentages["largest"] = int(np.ceil(100.0 * found - 1e-6)) if found >= 0.005 else None
        shown = "less than 1 %" if percentages["largest"] is None else f"{percentages['largest']} %"
        ending += f", largest found {shown} of it"
    figure = f"at most {limit:.3g}{ending} ({_counted(cases)})"
    _say(Line(claim, "holds", statement, figure, **percentages))


def covered(claim: str, statement: str, *, failures: int, trials: int, allowed: float) -> None:
    """Print that a probability of failure is at most what is claimed, or raise.

    The trials decide by the one-sided Clopper-Pearson interval: its upper limit, which a probability
    exceeds in one of 1,000 experiments at most, must not be above the claim.

    Parameters
    ----------
    claim, statement : str
        As for `evidence`.
    failures, trials : int
        How often it failed, of how many independent trials.
    allowed : float
        The claimed bound on the probability of failure.

    Raises
    ------
    AssertionError
        If the upper limit is above the claim.
    """
    upper = clopper_pearson(failures, trials, FALSE_ALARM)[1]
    if not upper <= allowed:
        raise AssertionError(
            f"{claim} fails: {statement}: {failures} of {trials} trials failed, the probability may be "
            f"{upper:.3g}, allowed {allowed:.3g}"
        )
    figure = (
        f"{failures} of {trials} trials failed, so the probability is at most {upper:.2g} where "
        f"{allowed:.2g} is allowed (false alarm {FALSE_ALARM:.0e})"
    )
    _say(Line(claim, "holds", statement, figure))


def clopper_pearson(failures: int, trials: int, false_alarm: float) -> tuple[float, float]:
    """The one-sided limits of a probability, each missed with probability `false_alarm` at most.

    Parameters
    ----------
    failures, trials : int
        Counts, 0 <= failures <= trials, trials >= 1.
    false_alarm : float
        In (0, 1).

    Returns
    -------
    lower, upper : float
    """
    if not (0 <= failures <= trials and trials >= 1 and 0.0 < false_alarm < 1.0):
        raise ValueError(
            f"0 <= failures <= trials is needed, got {failures} of {trials}, level {false_alarm}"
        )
    lower = 0.0 if failures == 0 else float(betaincinv(failures, trials - failures + 1, false_alarm))
    level = 1.0 - false_alarm
    upper = 1.0 if failures == trials else float(betaincinv(failures + 1, trials - failures, level))
    return lower, upper


def fitted(claim: str, statement: str, *, interval: tuple[float, float], stated: float, slack: float) -> None:
    """Print that a fitted exponent, with its interval, is the stated one up to a slack, or raise.

    Parameters
    ----------
    claim, statement : str
        As for `evidence`.
    interval : (float, float)
        Ends of the interval of the exponent.
    stated : float
        The exponent of the claim.
    slack : float
        How far the interval may reach from it; what a wrong exponent would exceed.

    Raises
    ------
    AssertionError
        If the interval reaches further.
    """
    low, high = interval
    if not (stated - slack <= low <= high <= stated + slack):
        raise AssertionError(
            f"{claim} fails: {statement}: exponent in [{low:.3g}, {high:.3g}], {stated:g} +- {slack:g} stated"
        )
    _say(Line(claim, "holds", statement, f"exponent within {slack:g} of {stated:g}"))


def refuted(claim: str, statement: str, *, value: float, limit: float) -> None:
    """Print that a printed statement is contradicted by an example, or raise.

    Parameters
    ----------
    claim : str
        Identifier of the claim.
    statement : str
        The statement as printed, in a few words.
    value : float
        What the example gives.
    limit : float
        What the statement allows at most; write an equation as the size of its difference, limit 0.

    Raises
    ------
    AssertionError
        If the example does not exceed the limit by clearly more than roundoff.
    """
    if not value > limit + 1e-6 * max(abs(limit), abs(value)):
        raise AssertionError(f"{claim} is not refuted: {statement}: {value:.6g} is within {limit:.6g}")
    _say(Line(claim, "refuted", statement, f"{_shown(value)} where {limit:.3g} is claimed"))


def caught(claim: str, variant: str, *, error: float, tolerance: float) -> None:
    """Print that a check rejects a wrong variant, or raise.

    Parameters
    ----------
    claim : str
        The claim whose check it is.
    variant : str
        What was made wrong.
    error, tolerance : float
        The figures of the check that the right version passes.

    Raises
    ------
    AssertionError
        If the check accepts the variant.
    """
    if not error > tolerance:  # an error that is not a number rejects nothing
        raise AssertionError(
            f"{claim}, not caught: {variant}: error {error:.2g} is within the tolerance {tolerance:.2g}"
        )
    _say(Line(claim, "caught", variant, f"{_shown(error)} exceeds {tolerance:.3g}"))


def _say(line: Line) -> None:
    from IPython import get_ipython

    print(line)
    shell = get_ipython()
    if shell is not None:
        shell.display_pub.publish({MIME: line.fields})


def _shown(value: float) -> str:
    return f"{value:.2g}" if value < 100.0 else "a value above 100"


def _counted(cases: int) -> str:
    return f"{cases} case" if cases == 1 else f"{cases} cases"
