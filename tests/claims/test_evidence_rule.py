"""Evidence that cannot fail is found, by its notebook, cell and call; the notebooks have none."""

from __future__ import annotations

from pathlib import Path

import evidence_rule
import jupytext
import pytest

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
TYPED, FREE, PAST = (
    "typed numbers by arithmetic alone",
    "a limit that is typed in",
    "printed past the functions",
)
HEAD = """\
import numpy as np
from compendium.claims.checks import relative_error, worst_case
from compendium.claims.evidence import bounded, caught, evidence, fitted, refuted
from mlogb_core import link
"""

CANNOT_FAIL = {
    "02: two typed numbers": ("refuted('C14a', 'columns', value=1 + 1, limit=1 * 1)", TYPED),
    "07: no truncation was played": (
        "truncated = 100 * 0.81\ncaught('C12a', 'truncation', error=truncated, tolerance=link.smoothness(1))",
        TYPED,
    ),
    "13: a unit vector has a length": (
        "angles = np.linspace(0, 6, 100)\ncircle = np.stack((np.cos(angles), np.sin(angles)), axis=1)\n"
        "far = circle[(circle @ np.eye(2)[0]).argmax()]\n"
        "refuted('C29b', 'distance', value=np.linalg.norm(far), limit=0.0)",
        TYPED,
    ),
    "14: a fit to a typed power": (
        "T = np.array([10.0, 100.0])\nslope = np.polyfit(np.log(T), np.log(8 / np.sqrt(T)), 1)[0]\n"
        "fitted('C27g', 'exponent', interval=(slope, slope), stated=-0.5, slack=0.01)",
        TYPED,
    ),
    "14: a local function of typed numbers": (
        "def ratio(T):\n    return 4 * np.log(T) / np.sqrt(T)\n\n"
        "slope = max(ratio(T) for T in (10, 100))\nrefuted('C27g', 'growth', value=slope, limit=0.0)",
        TYPED,
    ),
    "14: a typed change": ("change = 2 / 9 - 3 / 16\nrefuted('C27e', 'a', value=change, limit=0)", TYPED),
    "13: a limit chosen freely": (
        "share = link.smoothness(2)\nbounded('C30f', 'radius', largest=share, limit=120.0, cases=256)",
        FREE,
    ),
    "14: the same through a name": (
        "most = 30.0\nbounded('C24b', 'order', largest=link.smoothness(2), limit=most, cases=2)",
        FREE,
    ),
    "16: a line printed": ("print(f'C19 holds: {3} exponents')", PAST),
    "two typed arrays through a comparison": (
        "evidence('C1', 'a', error=relative_error(np.ones(2), [1.0, 1.0]), tolerance=1e-9, cases=1)",
        TYPED,
    ),
    "a search over a typed function": (
        "top, _ = worst_case(lambda x: -abs(x[0]), lambda rng: np.ones(1), starts=1, polished=0, seed=1)\n"
        "bounded('C1', 'a', largest=top, limit=1.0, cases=1)",
        TYPED,
    ),
    "a sum by NumPy, after one of something computed": (
        "total = 0.0\nnp.add(link.jacobian([0.5, 0.5]), 1.0)\n"
        "evidence('C1', 'a', error=np.sum([total, 1.0]), tolerance=1, cases=1)",
        TYPED,
    ),
    "a name that was computed once": (
        "error = link.smoothness(2)\nerror = 0.0\nevidence('C1', 'a', error=error, tolerance=1, cases=1)",
        TYPED,
    ),
}

CAN_FAIL = {
    "the library's value": "evidence('C1', 'a', error=link.smoothness(1) - 0.25, tolerance=1e-9, cases=1)",
    "the largest of a loop": (
        "worst = 0.0\nfor K in (1, 2):\n    worst = max(worst, link.smoothness(K))\n"
        "bounded('C1', 'a', largest=worst, limit=0.5, cases=2, reached=0.9)"
    ),
    "a list that is filled": (
        "found = []\nfor K in (1, 2):\n    found.append(link.smoothness(K))\n"
        "bounded('C1', 'a', largest=max(found), limit=1.0, cases=2)"
    ),
    "a list that a function fills": (
        "found = []\ndef look(K):\n    found.append(link.smoothness(K))\nlook(1)\n"
        "bounded('C1', 'a', largest=max(found), limit=1.0, cases=2)"
    ),
    "a function of the notebook that asks the library": (
        "def share(K):\n    return link.smoothness(K) / 0.5\n"
        "bounded('C1', 'a', largest=share(1), limit=1, cases=1)"
    ),
    "a game": (
        "rng = np.random.default_rng(1)\nwon = rng.normal()\nrefuted('C1', 'a', value=won, limit=0.0)"
    ),
    "a decomposition": (
        "ends = np.linalg.eigvalsh(np.diag([1.0, -2.0]))\nrefuted('C25c', 'a', value=-ends[0], limit=1.0)"
    ),
    "a typed wrong variant through the check of the right one": (
        "def defect(V):\n    return abs(V.T @ V - np.eye(len(V))).max()\n"
        "evidence('C1', 'a', error=defect(link.jacobian_factor([0.5, 0.5])), tolerance=1, cases=1)\n"
        "caught('C1', 'b', error=defect(np.ones((2, 2))), tolerance=1)"
    ),
    "a limit of which is printed how much was found": (
        "bounded('C1', 'a', largest=link.smoothness(1), limit=0.3, cases=1, share=True)"
    ),
}


@pytest.mark.parametrize("name", CANNOT_FAIL)
def test_evidence_that_cannot_fail_is_refused(name):
    code, told = CANNOT_FAIL[name]
    (problem,) = evidence_rule.refused("01_model", [HEAD, code])
    assert problem.startswith("01_model, code cell 2: ")
    assert told in problem


@pytest.mark.parametrize("name", CAN_FAIL)
def test_evidence_that_can_fail_is_accepted(name):
    assert evidence_rule.refused("01_model", [HEAD, CAN_FAIL[name]]) == []


def test_the_arguments_that_decide_are_those_of_the_functions():
    import inspect

    from compendium.claims import evidence

    for name, argument in evidence_rule.DECIDES.items():
        assert argument in inspect.signature(getattr(evidence, name)).parameters


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.rglob("*.md")), ids=lambda path: path.stem)
def test_no_notebook_has_evidence_that_cannot_fail(path):
    cells = jupytext.read(path, fmt="md:myst").cells
    problems = evidence_rule.refused(path.stem, [cell.source for cell in cells if cell.cell_type == "code"])
    assert not problems, "\n".join(problems)
