"""The lines of evidence: each can fail, and what a notebook holds of it is read back."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import sympy as sp
from scipy.stats import binom

from compendium.claims.evidence import (
    MIME,
    Line,
    bounded,
    caught,
    clopper_pearson,
    covered,
    evidence,
    fitted,
    recorded,
    refuted,
    symbolic,
)


def said(capsys) -> str:
    return capsys.readouterr().out.rstrip("\n")


def test_evidence_prints_the_tolerance_not_the_error(capsys):
    evidence("C1", "a against b", error=3.7e-16, tolerance=1e-13, cases=20)
    assert said(capsys) == "C1 holds: a against b: error below 1e-13 (20 cases)"


@pytest.mark.parametrize(("error", "cases"), [(2e-13, 20), (np.nan, 20), (np.inf, 20), (0.0, 0)])
def test_evidence_can_fail(error, cases):
    with pytest.raises(AssertionError, match="C1 fails"):
        evidence("C1", "a against b", error=error, tolerance=1e-13, cases=cases)


def test_bounded(capsys):
    bounded("C4", "lambda", largest=0.2499999, limit=0.25, cases=5, reached=0.999)
    assert said(capsys) == "C4 holds: lambda: at most 0.25, at least 99.9 % of it reached (5 cases)"
    bounded("C4", "lambda", largest=0.1001, limit=0.25, cases=1, share=True)
    assert said(capsys) == "C4 holds: lambda: at most 0.25, largest found 41 % of it (1 case)"
    for largest, cases in [(0.2501, 5), (0.2, 5), (np.nan, 5), (0.25, 0)]:
        with pytest.raises(AssertionError, match="C4 fails"):
            bounded("C4", "lambda", largest=largest, limit=0.25, cases=cases, reached=0.999)


def test_symbolic(capsys):
    x = sp.Symbol("x")
    symbolic("C5", "a square", residual=sp.expand((x + 1) ** 2 - x**2 - 2 * x - 1))
    symbolic("C5", "a matrix", residual=sp.zeros(2, 2))
    assert said(capsys).splitlines()[1] == "C5 holds: a matrix: exactly, by symbolic computation"
    for residual in (x, sp.Matrix([[0, x]]), []):
        with pytest.raises(AssertionError, match="C5 fails"):
            symbolic("C5", "a square", residual=residual)


def test_covered_demands_what_the_trials_can_show(capsys):
    covered("C24", "coverage", failures=0, trials=200, allowed=0.05)
    assert said(capsys) == (
        "C24 holds: coverage: 0 of 200 trials failed, so the probability is at most 0.034 where 0.05 is "
        "allowed (false alarm 1e-03)"
    )
    for failures, trials in [(0, 50), (9, 200)]:
        with pytest.raises(AssertionError, match="C24 fails"):
            covered("C24", "coverage", failures=failures, trials=trials, allowed=0.05)


@pytest.mark.parametrize(("failures", "trials"), [(0, 30), (3, 30), (30, 30)])
def test_clopper_pearson_inverts_the_binomial_tails(failures, trials):
    lower, upper = clopper_pearson(failures, trials, 0.01)
    if failures < trials:
        assert binom.cdf(failures, trials, upper) == pytest.approx(0.01)
    if failures > 0:
        assert binom.sf(failures - 1, trials, lower) == pytest.approx(0.01)
    with pytest.raises(ValueError, match="failures <= trials"):
        clopper_pearson(31, 30, 0.01)


def test_fitted(capsys):
    fitted("C19", "time in d", interval=(0.95, 1.04), stated=1.0, slack=0.1)
    assert said(capsys) == "C19 holds: time in d: exponent within 0.1 of 1"
    for interval in [(0.85, 1.0), (1.0, 1.2), (np.nan, 1.0)]:
        with pytest.raises(AssertionError, match="C19 fails"):
            fitted("C19", "time in d", interval=interval, stated=1.0, slack=0.1)


def test_refuted_needs_more_than_roundoff(capsys):
    refuted("C12", "rho within the bound", value=1.5, limit=1.0)
    assert said(capsys) == "C12 refuted: rho within the bound: 1.5 where 1 is claimed"
    for value in (1.0, 1.0 + 1e-9, np.nan):
        with pytest.raises(AssertionError, match="not refuted"):
            refuted("C12", "rho within the bound", value=value, limit=1.0)


def test_caught_fails_when_the_variant_passes(capsys):
    caught("C14", "no ridge", error=0.31, tolerance=1e-13)
    assert said(capsys) == "C14 caught: no ridge: 0.31 exceeds 1e-13"
    caught("C14", "no ridge", error=np.inf, tolerance=1e-13)
    assert said(capsys) == "C14 caught: no ridge: a value above 100 exceeds 1e-13"
    for error in (1e-14, np.nan):
        with pytest.raises(AssertionError, match="not caught"):
            caught("C14", "no ridge", error=error, tolerance=1e-13)


def test_a_notebook_holds_the_line_as_data(capsys, monkeypatch):
    """The printed lines are for people: what is read is the output of its own type."""
    outputs = [{"output_type": "stream", "name": "stdout", "text": "C1 holds: not: read"}]
    shell = SimpleNamespace(
        display_pub=SimpleNamespace(publish=lambda data: outputs.append({"data": data, "metadata": {}}))
    )
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    evidence("C14a", "K=1: a: b", error=0.0, tolerance=1e-13, cases=2)
    bounded("C4", "x", largest=0.2499, limit=0.25, cases=5, reached=0.999, share=True)
    bounded("C4", "x", largest=0.0001, limit=0.25, cases=5, share=True)
    refuted("R3", "x", value=2.0, limit=1.0)
    lines = list(recorded(outputs))
    assert [str(line) for line in lines] == said(capsys).splitlines()
    assert all(set(output["data"]) == {MIME} for output in outputs[1:])
    assert lines[0] == Line("C14a", "holds", "K=1: a: b", "error below 1e-13 (2 cases)")
    assert [(line.reached, line.largest) for line in lines] == [
        (None, None),
        (99.9, 100),
        (None, None),
        (None, None),
    ]
    assert "largest found less than 1 % of it" in lines[2].figure


@pytest.mark.parametrize(
    ("claim", "verdict", "statement", "message"),
    [
        ("14", "holds", "a", "claim must look like"),
        ("C14", "holds", "a\nb", "claim must look like"),
        ("C14", "holds", "", "claim must look like"),
        ("C14", "proved", "a", "verdict must be one of holds, refuted, caught, got 'proved'"),
    ],
)
def test_a_line_of_another_form_is_refused(claim, verdict, statement, message):
    with pytest.raises(ValueError, match=message):
        Line(claim, verdict, statement, "b")


def test_a_statement_of_two_lines_is_refused_when_it_is_said():
    with pytest.raises(ValueError, match="claim must look like"):
        evidence("C14", "a\nb", error=0.0, tolerance=1e-13, cases=2)
