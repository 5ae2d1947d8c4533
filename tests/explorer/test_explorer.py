"""The explorer: its games, its controls, the page's record, and the page's formulas against the library."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest

from compendium.explorer import games as explorer
from compendium.explorer import grid as explorer_grid
from compendium.explorer.games import Choice, draw, dual_of, play, shadow, summary
from compendium.explorer.grid import GRID, KEYS, N_ROUNDS, Point, points, read, record_file, script
from compendium.runs.notebooks import normalise
from compendium.system import paths
from compendium.system.paths import FailureError
from mlogb_core.curvature import DenseCurvature, FrequentDirections
from mlogb_core.link import jacobian, jacobian_factor, loss_residual, outcome_probabilities

ROOT = Path(__file__).resolve().parents[2]
STATIC = ROOT / "book" / "_static"
PAGE = ROOT / "book" / "explorer.md"
NODE = shutil.which("node")
NEEDS_NODE = pytest.mark.skipif(NODE is None, reason="node is not here to run the page's formulas")

SMALL = Choice(n_outcomes=2, n_features=6, sketch_size=4)


# ---- a game ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def game():
    return play(SMALL, n_rounds=120)


def test_the_recorder_adds_up_what_the_sketch_is_given(game):
    """Z <= H <= Z + rho I for its Hessian."""
    identity = np.eye(SMALL.n_parameters)
    gap = game.hessian + identity - game.sketch.dense()
    assert np.linalg.eigvalsh(gap)[0] > -1e-10
    assert np.linalg.eigvalsh(game.sketch.shrinkage * identity - gap)[0] > -1e-10
    assert game.sketch.shrinkage > 0
    exact = play(SMALL.model_copy(update={"sketch_size": 12}), n_rounds=120)
    np.testing.assert_allclose(exact.hessian + identity, exact.sketch.dense(), atol=1e-10)
    assert exact.trial.policies == explorer.SHOWN
    np.testing.assert_array_equal(exact.trial.action[:, 0], exact.trial.action[:, 1])


def test_the_dual_function_is_that_of_a_step_of_the_game(game):
    dual = game.dual
    np.testing.assert_allclose(dual.value(dual.root), SMALL.norm_bound**2, rtol=1e-12)
    assert dual.value(0.0) > SMALL.norm_bound**2
    assert dual.iterates[0] == 0.0
    assert np.all(np.diff(dual.iterates) > 0)
    assert len(dual.eigenvalues) == SMALL.n_parameters
    assert dual.eigenvalues.min() == pytest.approx(1.0)


def test_the_root_is_the_multiplier_of_the_step(monkeypatch):
    """The multipliers that the policy's own steps had, of which the last is the root of the figure."""
    multipliers, newton_step = [], FrequentDirections.newton_step

    def noted(self, *arguments):
        step = newton_step(self, *arguments)
        multipliers.append(step.multiplier)
        return step

    monkeypatch.setattr(FrequentDirections, "newton_step", noted)
    dual = play(SMALL, n_rounds=120).dual
    assert [nu for nu in multipliers if nu > 0][-1] == pytest.approx(dual.root, rel=1e-9)


def test_a_point_in_the_ball_has_the_root_zero():
    dual = dual_of(np.array([1.0, 2.0]), np.array([0.5, 0.5]), 1.0)
    assert (dual.root, dual.steps) == (0.0, 0)
    assert dual_of(np.ones(2), np.array([3.0, 4.0]), 1.0).iterates == (0.0, pytest.approx(4.0))


def test_the_shadow_is_as_wide_as_the_bonus(game):
    Z, plane = game.sketch.dense(), np.linalg.qr(np.random.default_rng(1).normal(size=(12, 2)))[0]
    reach = shadow(Z, plane, 0.3, n_points=100_001)
    for i in range(2):
        bonus = np.sqrt(0.3 * plane[:, i] @ np.linalg.solve(Z, plane[:, i]))
        assert reach[i].max() == pytest.approx(bonus, rel=1e-6)


def test_figures_of_games_at_the_edge():
    """No confidence region at c = 0, no projection in a wide ball, one parameter alone."""
    for changes in ({"scale": 0.0}, {"norm_bound": 300.0, "scale": 0.0}, {"n_outcomes": 1, "n_features": 2}):
        edge = play(SMALL.model_copy(update=changes), n_rounds=5)
        figure = draw(edge)
        titles = [axis.get_title() for axis in figure.axes]
        assert len(figure.axes) == 6
        assert ("no step left the ball" in " ".join(titles)) == (edge.dual is None)
        assert ("no step left the ball" in summary(edge)) == (edge.dual is None)
        plt.close(figure)
    figure = draw(edge, times=False)
    assert len(figure.axes) == 4
    assert not any("ime" in axis.get_title() for axis in figure.axes)
    assert "ms" not in summary(edge, times=False)
    plt.close(figure)


def test_a_choice_refuses_what_no_policy_takes():
    for wrong in ({"sketch_size": 0}, {"norm_bound": 0.0}, {"scale": -1.0}, {"rounds": 3}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Choice(**wrong)


# ---- the controls ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_controls_react():
    pytest.importorskip("ipywidgets")
    tree = explorer.explorer(SMALL, n_rounds=20)
    box, numbers, picture = tree.children
    controls = {control.description: control for control in box.children}
    assert set(controls) == {
        "outcomes K",
        "features d",
        "sketch size m",
        "decay",
        "length S",
        "scale c of beta",
    }
    changes = {
        "outcomes K": (1, "K = 1,"),
        "features d": (3, "d = 3,"),
        "sketch size m": (1, "m = 1,"),
        "decay": (2.0, "rho = "),
        "length S": (10.0, "beta = 0.1"),
        "scale c of beta": (1.0, "beta = 100"),
    }
    opened = plt.get_fignums()  # by other tests
    for name, (value, shown) in changes.items():
        before = numbers.value, picture.value
        controls[name].value = value
        assert shown in numbers.value, name
        assert numbers.value != before[0], name
        assert picture.value != before[1], name
        assert bytes(picture.value).startswith(b"\x89PNG")
    assert plt.get_fignums() == opened


@pytest.mark.slow
def test_the_controls_are_displayed_in_a_front_end_alone_and_stored_as_text(monkeypatch):
    pytest.importorskip("ipywidgets")
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: shown.append(data))
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    explorer.show_explorer(SMALL)
    monkeypatch.setenv("JPY_SESSION_NAME", "17_explorer.ipynb")
    explorer.show_explorer(SMALL)
    assert shown[0] == {"text/plain": explorer.WITHOUT_FRONT_END}
    assert set(shown[1]) == {"text/plain", "application/vnd.jupyter.widget-view+json"}
    outputs = [nbformat.v4.new_output("display_data", data=data) for data in shown]
    cells = [nbformat.v4.new_code_cell("show_explorer()", outputs=[output]) for output in outputs]
    first, second = normalise(nbformat.v4.new_notebook(cells=cells)).cells
    assert first.outputs == second.outputs


def test_the_stored_notebook_has_no_widget():
    notebook = nbformat.read(ROOT / "notebooks" / "17_explorer.ipynb", as_version=4)
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert kinds == {"image/png", "text/plain"}
    assert {"text/plain": explorer.WITHOUT_FRONT_END} in [output.get("data") for output in outputs]
    assert "widgets" not in notebook.metadata


# ---- the record of the page --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def record():
    return read()


def test_the_record_is_whole_and_says_where_it_comes_from(record):
    assert record_file().stat().st_size < 500_000
    assert record_file().read_text(encoding="utf-8") == script(record)
    assert record["grid"] == {name: list(values) for name, values in GRID.items()}
    assert (record["n_rounds"], record["rounds"][-1]) == (N_ROUNDS, N_ROUNDS)
    grid = list(points())
    for policy, names in KEYS.items():
        assert set(record["regret"][policy]) == {point.key(*names) for point in grid}
    assert set(record["times"]) == {point.key("K", "d", "m") for point in grid}
    assert len({spent["oful"] for key, spent in record["times"].items() if key.startswith("3/300/")}) == 1
    origin = record["provenance"]
    assert re.fullmatch(r"[0-9a-f]{40}", origin["git_commit"])
    assert origin["git_clean"]
    assert {"version", "library_digest", "seed", "environment"} <= set(origin)
    assert origin["environment"]["threads"]["OMP_NUM_THREADS"] == "1"


@pytest.mark.slow
def test_an_entry_is_what_the_library_computes(record):
    point = Point(3, 10, 5, 1, 3, 0.001)
    for policy, entry in explorer_grid.games(point, tuple(KEYS)).items():
        assert entry == record["regret"][policy][point.key(*KEYS[policy])], policy


def test_entries_agree_among_themselves(record):
    """Regret grows, and a sketch of at least Kd directions has that of the full Hessian."""
    for policy, entries in record["regret"].items():
        for key, entry in entries.items():
            curve = np.array(entry["curve"])
            assert len(curve) == len(record["rounds"]), (policy, key)
            assert np.all(np.diff(curve) >= 0), (policy, key)
            assert curve[0] >= 0, (policy, key)
    exact = 0
    for point in points():
        if point.m >= point.K * point.d:
            entry = record["regret"]["eofd"][point.key()]
            full = record["regret"]["oful"][point.key(*KEYS["oful"])]
            assert entry["rho"] == 0
            np.testing.assert_allclose(entry["curve"], full["curve"], rtol=1e-3)
            exact += 1
    assert exact > 100


def test_a_file_that_is_no_record_is_named(tmp_path):
    with pytest.raises(FailureError, match=r"missing\.js cannot be read .* run `make explorer`"):
        read(tmp_path / "missing.js")
    (tmp_path / "other.js").write_text("globalThis.EXPLORER_RECORD = {};\n")
    with pytest.raises(FailureError, match=r"other\.js is not what"):
        read(tmp_path / "other.js")
    (tmp_path / "cut.js").write_text(record_file().read_text(encoding="utf-8")[:300] + ";\n")
    with pytest.raises(FailureError, match=r"cut\.js is not what"):
        read(tmp_path / "cut.js")
    (tmp_path / "bytes.js").write_bytes(b"\xff")
    with pytest.raises(FailureError, match=r"bytes\.js cannot be read"):
        read(tmp_path / "bytes.js")


def test_a_game_with_one_parameter_has_a_figure():
    figure = draw(play(Choice(n_outcomes=1, n_features=1, sketch_size=1), n_rounds=5))
    assert "an interval" in figure.axes[2].get_title()
    plt.close(figure)


# ---- the page ----------------------------------------------------------------------------------------


def test_the_page_has_what_its_script_and_its_reader_need():
    page, program = PAGE.read_text(encoding="utf-8"), (STATIC / "explorer.js").read_text(encoding="utf-8")
    for name in GRID:
        assert f'<label for="explorer-{name}">' in page
        assert len(re.findall(f'id="explorer-{name}"', page)) == 1
    for name in ("spectrum", "dual", "ellipsoid", "regret", "time", "summary", "provenance"):
        assert len(re.findall(f'id="explorer-{name}"', page)) == 1
    assert '<div id="explorer">' in page
    assert 'id="explorer-summary" aria-live="polite"' in page
    for text in (page, program, (STATIC / "explorer_math.js").read_text(encoding="utf-8")):
        assert not re.search(r"\bfetch\(|^\s*import |type=.module|https?://(?!www\.w3\.org/2000/svg)", text)
    for wanted in re.findall(r"data-set='([^']*)'", page):
        for name, value in json.loads(wanted).items():
            assert value in GRID[name], wanted
    scripts = re.findall(r'<script src="_static/([\w.]+)">', page)
    assert scripts == ["explorer_math.js", "explorer_data.js", "explorer.js"]
    assert all((STATIC / name).is_file() for name in [*scripts, "explorer.css"])


def test_what_the_page_says_of_regret_and_time_is_in_the_record(record):
    def regret(policy: str, **changes: float) -> float:
        point = Point(3, 50, 10, 1, 3, 0.001)._replace(**changes)
        return record["regret"][policy][point.key(*KEYS[policy])]["curve"][-1]

    # "Lower m to 1 and the sketch is worth no more than no curvature"
    assert regret("eofd", m=1) > 0.95 * regret("first-order")
    assert regret("eofd") < 0.9 * regret("first-order")
    # "set the scale to 1 and OFUL-MLogB explores nearly as badly as random play", the others less
    assert 0.85 < regret("oful", scale=1) / regret("random") < 1
    risen = {name: regret(name, scale=1) - regret(name) for name in ("eofd", "oful", "first-order")}
    assert risen["first-order"] < risen["oful"] / 2
    assert risen["eofd"] < risen["oful"] / 2
    # "several times as long", "the quicker one"
    for form in ("", "-compiled"):
        large, small = record["times"]["3/300/5"], record["times"]["3/10/5"]
        assert large["oful" + form] > 3 * large["eofd" + form]
        assert small["oful" + form] < small["eofd" + form]


@NEEDS_NODE
def test_what_the_page_says_of_spectrum_and_projection_is_computed():
    def sketches(K: str, d: str, m: str, decay: str, cases: list) -> list:
        call = f"math.sketchOfAxes({K}, {d}, {m}, math.schedule({d}, {decay}, {N_ROUNDS}))"
        return on_page(f"(({{full, kept, rho}}) => [Array.from(full), Array.from(kept), rho])({call})", cases)

    (strong, strong_kept, _), (flat, flat_kept, _) = sketches("3", "50", "10", "x", [2, 0])
    assert max(strong_kept) > 0.8 * max(strong)
    assert max(flat_kept) < 0.12 * max(flat)
    assert np.all(np.diff([rho for _, _, rho in sketches("3", "50", "x", "1", list(GRID["m"]))]) < 0)
    (full, kept, _), (same, exact, _) = sketches("1", "2", "x", "1", [1, 2])
    assert kept != full
    assert exact == same
    points = on_page("math.farthestPoint(3, 50, 1, x, 1, 1)", [1, 10])
    starts = [float(np.square(point).sum()) / S**2 for S, point in zip((1, 10), points, strict=True)]
    assert [round(start, 1) for start in starts] == [5.8, 1.3]


def test_colours_are_those_of_the_figures():
    sheet = (STATIC / "explorer.css").read_text(encoding="utf-8")
    for policy in explorer_grid.TIMED:
        colour = explorer.STYLES[policy].colour.lower()
        assert f"--explorer-{policy}: {colour};" in sheet


def on_page(expression: str, cases: list) -> list:
    """The value of a JavaScript expression in `math` and `x` for every x."""
    program = (
        f"const math = require({json.dumps(str(STATIC / 'explorer_math.js'))});"
        "const cases = JSON.parse(require('fs').readFileSync(0, 'utf8'));"
        f"process.stdout.write(JSON.stringify(cases.map((x) => {expression})));"
    )
    result = subprocess.run(
        [str(NODE), "-e", program], input=json.dumps(cases), capture_output=True, text=True, check=True
    )
    return json.loads(result.stdout)


@NEEDS_NODE
@pytest.mark.parametrize("name", ["explorer.js", "explorer_math.js", "explorer_data.js"])
def test_scripts_are_in_order(name):
    subprocess.run([str(NODE), "--check", STATIC / name], check=True)


@NEEDS_NODE
def test_page_formulas_link_and_features():
    for K, values in zip((1, 2, 5), on_page("math.linkEigenvalues(x)", [1, 2, 5]), strict=True):
        expected = np.linalg.eigvalsh(jacobian(outcome_probabilities(np.zeros(K))))
        np.testing.assert_allclose(np.sort(values), expected, rtol=1e-10)
    cases = [[7, 0.0, 70], [20, 1.5, 400], [3, 3.0, 50]]
    shares = on_page("math.shares(x[0], x[1])", cases)
    axes = on_page("math.schedule(...x)", cases)
    for (d, decay, rounds), share, played in zip(cases, shares, axes, strict=True):
        weights = np.arange(1, d + 1) ** -decay
        np.testing.assert_allclose(share, weights / weights.sum(), rtol=1e-10)
        assert len(played) == rounds
        assert np.abs(np.bincount(played, minlength=d) - rounds * np.array(share)).max() < 1.5


@NEEDS_NODE
def test_page_formulas_sketch():
    """The full sum, the sketch and rho of random streams of axes, against the library's classes."""
    rng, cases = np.random.default_rng(171), []
    for _ in range(40):
        K, d = (int(n) for n in rng.integers(1, [5, 8]))
        cases.append([K, d, int(rng.integers(1, K * d + 3)), rng.integers(0, d, size=60).tolist()])
    found = on_page(
        "(({full, kept, rho}) => [Array.from(full), Array.from(kept), rho])(math.sketchOfAxes(...x))", cases
    )
    shrunk = 0
    for (K, d, m, axes), (full, kept, rho) in zip(cases, found, strict=True):
        sketch, dense = FrequentDirections(K, d, 1.0, m), DenseCurvature(K, d, 1.0)
        factor = jacobian_factor(outcome_probabilities(np.zeros(K)))
        for axis in axes:
            for curvature in (sketch, dense):
                curvature.add(curvature.frame(np.eye(d)[axis]), factor)
        spectrum = np.zeros(K * d)
        spectrum[: sketch.rank] = sketch.spectrum()
        scale = max(full)
        np.testing.assert_allclose(np.sort(full)[::-1], dense.spectrum(), rtol=1e-10, atol=1e-10 * scale)
        np.testing.assert_allclose(np.sort(kept)[::-1], spectrum, rtol=1e-10, atol=1e-10 * scale)
        assert rho == pytest.approx(sketch.shrinkage, rel=1e-10, abs=1e-10)
        shrunk += rho > 0
    assert shrunk > 20


@NEEDS_NODE
def test_page_formulas_projection():
    rng, cases = np.random.default_rng(172), []
    for _ in range(60):
        n = int(rng.integers(1, 12))
        p, y = 10.0 ** rng.uniform(0, 3, size=n), rng.normal(size=n)
        cases.append([p.tolist(), y.tolist(), float(np.linalg.norm(y) / (0.8 + rng.exponential()))])
    roots = on_page("math.dualRoot(...x)", cases)
    values = on_page("math.dualFunction(x[0], x[1], 2.5)", cases)
    inside = 0
    for case, found, value in zip(cases, roots, values, strict=True):
        dual = dual_of(np.array(case[0]), np.array(case[1]), case[2])
        assert found["root"] == pytest.approx(dual.root, rel=1e-10)
        np.testing.assert_allclose(found["iterates"], dual.iterates, rtol=1e-10)
        assert value == pytest.approx(float(dual.value(2.5)), rel=1e-10)
        inside += dual.root == 0.0
    assert 0 < inside < 30


@NEEDS_NODE
def test_page_formulas_point_and_ellipsoid():
    """The farthest point is S + eta sup |u| / lambda long; a half-axis is the bonus of its direction."""
    cases = [[1, 3, 1.0, 2.0, 0.7, 0.5], [3, 4, 0.5, 1.0, 1.0, 2.0]]
    for (K, d, decay, S, eta, ridge), point in zip(
        cases, on_page("math.farthestPoint(...x)", cases), strict=True
    ):
        logits = np.full(K, -60.0)
        logits[0] = 60.0
        largest = max(np.linalg.norm(loss_residual(outcome_probabilities(logits), y)) for y in range(K + 1))
        assert np.linalg.norm(point) == pytest.approx(S + eta * largest / ridge, rel=1e-10)
        squares = np.square(point).reshape(d, K)
        np.testing.assert_allclose(squares, squares[:1] * np.arange(1, d + 1)[:, None] ** -decay, rtol=1e-10)
    Z = FrequentDirections(1, 3, 0.5, 2)
    for axis in (0, 0, 1):
        Z.add(Z.frame(np.eye(3)[axis]), np.eye(1))
    widths = on_page("math.halfAxis(x[0], x[1])", [[0.3, 2.5], [0.3, 1.5], [0.3, 0.5]])
    bonus = np.sqrt(0.3 * Z.inverse_blocks(np.eye(3))[:, 0, 0])
    np.testing.assert_allclose(widths, bonus, rtol=1e-10)


def test_a_misspelt_argument_computes_nothing(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["grid", "time"])
    monkeypatch.setattr(paths, "write_atomically", lambda *_: pytest.fail("the record is written"))
    with pytest.raises(SystemExit, match="the only argument is `times`, got time"):
        runpy.run_path(explorer_grid.__file__, run_name="__main__")
