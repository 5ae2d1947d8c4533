"""The manifest: what it accepts, and the errors for everything else."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import jupytext
import pytest
from batch_project import HEADER, MANIFEST, ROOT, make_project

from compendium.runs import manifest
from compendium.runs.manifest import (
    check_parameters,
    expand,
    load_manifest,
    notebook_parameters,
    parse_override,
    resolve,
    sorted_out,
)
from compendium.system import paths
from compendium.system.paths import UsageError


@pytest.fixture(autouse=True)
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLOGB_ROOT", str(tmp_path))
    return make_project(tmp_path)


def resolved(profile: str = "smoke", **overrides: object) -> dict[str, object]:
    return resolve(load_manifest().experiment("tiny"), profile, overrides)


def test_profiles_and_overrides_replace_parameters():
    assert resolved() == {"n_rounds": 3, "step_size": 2.0}
    assert resolved("paper", n_rounds=7, label="x") == {"n_rounds": 7, "step_size": 2.0, "label": "x"}


def test_parameters_are_in_the_order_of_the_notebook():
    assert list(resolved(quick=True, label="x")) == ["n_rounds", "step_size", "label", "quick"]


def test_defaults_are_read_with_their_values(text):
    assert notebook_parameters(text) == {
        "n_rounds": 10, "step_size": 0.5, "label": "none", "sizes": [1, 2], "quick": False, "extra": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"n_round": 5}, r"unknown parameter 'n_round'; there are: n_rounds, step_size, label"),
        ({"n_rounds": 2.5}, r"n_rounds must be int \(its default is 10\), got 2.5 \(float\)"),
        ({"n_rounds": True}, r"n_rounds must be int .* got True \(bool\)"),
        ({"step_size": True}, r"step_size must be float .* got True"),
        ({"step_size": "big"}, r"step_size must be float .* got 'big'"),
        ({"quick": 1}, r"quick must be bool"),
        ({"label": 3}, r"label must be str"),
        ({"sizes": 3}, r"sizes must be list"),
        ({"sizes": None}, r"sizes must be list"),
        ({"extra": object()}, r"extra must be made of plain values"),
        ({"step_size": float("nan")}, r"step_size must be made of plain values \(no date, nan or infinity\)"),
        ({"step_size": "inf"}, r"step_size must be float .* got 'inf'"),
        ({"step_size": 10**400}, r"step_size must be float"),
        ({"extra": [1.0, float("inf")]}, r"extra must be made of plain values"),
        ({"sizes": []}, r"sizes must not be empty \(its default is \[1, 2\]\)"),
        ({"label": "/home/me/data"}, r"label names a path of this machine"),
        ({"extra": ["~/data"]}, r"extra names a path of this machine"),
    ],
)
def test_values_that_do_not_fit_are_refused(overrides, message):
    with pytest.raises(UsageError, match=message):
        resolved(**overrides)


@pytest.mark.parametrize("value", [1, 1.5, "a", [1], {"a": 1}, True, None])
def test_default_none_accepts_anything(value):
    assert resolved(extra=value)["extra"] == value


def test_integers_and_text_are_accepted_as_floats():
    for text, value in [("step_size=1", 1.0), ("step_size=1e-3", 1e-3), ("step_size=.5", 0.5)]:
        name, given = parse_override(text)
        result = resolved(**{name: given})["step_size"]
        assert (result, type(result)) == (value, float)


def test_every_code_cell_is_found_as_jupytext_finds_it(monkeypatch):
    """Tags and code are the same, in texts and in notebooks, in whatever form the metadata are written."""
    monkeypatch.setenv("MLOGB_ROOT", str(ROOT))
    folder = paths.notebooks_folder()
    for source in [*folder.rglob("*.md"), *folder.rglob("*.ipynb")]:
        cells = jupytext.read(source, fmt="md:myst" if source.suffix == ".md" else "ipynb").cells
        expected = [
            (cell.metadata.get("tags", []), cell.source) for cell in cells if cell.cell_type == "code"
        ]
        assert [(tags, code.strip("\n")) for tags, code in manifest._code_cells(source)] == expected, source


@pytest.mark.parametrize("text", ["n_rounds", "=3", "a b=3", "x=[1"])
def test_a_malformed_override_is_refused(text):
    with pytest.raises(UsageError, match="-p "):
        parse_override(text)


def test_unknown_names_list_the_valid_ones():
    with pytest.raises(UsageError, match=r"unknown experiment 'minst'; there are: tiny"):
        load_manifest().experiment("minst")
    with pytest.raises(UsageError, match=r"unknown profile 'large'; there are: smoke, paper"):
        resolved("large")


def added(line):
    """The change of the manifest that adds a line to the experiment."""
    return "    parameters:", f"    {line}\n    parameters:"


#: A short text of nested lists, each of which has ten aliases of the one before.
TENFOLD = [f"&{b} [{', '.join([f'*{a}'] * 10)}]" for a, b in pairwise("abcdefghij")]
BOMB = f"[&a [x], {', '.join(TENFOLD)}]"


def of_a(values):
    """The change of the manifest that adds a grid of one value and the parameters of its values."""
    return added(f"grid: {{label: [a]}}\n    per_value: {{label: {{{values}}}}}")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title:", "titel:", r"experiments.tiny.titel: Extra inputs"),
        (*added("data: [mnist]"), r"experiments.tiny.data.0: Input should be 'MNIST'"),
        ("    title: A tiny experiment\n", "", r"experiments.tiny.title: Field required"),
        ("smoke:", "custom:", r"experiments.tiny.profiles.custom"),
        ("tiny:", "../tiny:", r"experiments.../tiny"),
        ("{n_rounds: 3}", "3", r"experiments.tiny.profiles.smoke: Input should be a valid dictionary"),
        ("{n_rounds: 3}", "{n_rounds: 3", r"not valid YAML"),
        pytest.param(
            "{n_rounds: 3}",
            "[" * 5000,
            r"not valid YAML: it is nested too deeply",
            marks=pytest.mark.slow,
        ),
        ("{n_rounds: 3}", BOMB, r"not valid YAML: it stands for more than 100,000 values"),
        ("{n_rounds: 3}", "&self {n_rounds: *self}", r"it stands for more than 100,000 values"),
        ("notebook: notebooks/", "notebook: ../", r"tiny.notebook: .* a path inside the project is expected"),
        ("notebook: notebooks/", "notebook: /", r"tiny.notebook: .* a path inside the project is expected"),
        ("{n_rounds: 3}", "{n_rounds: 3, n_rounds: 4}", r"'n_rounds' is there twice"),
        ("      paper:", "      smoke:", r"'smoke' is there twice"),
        (*added("grid: {label: []}"), r"grid.label: List should have at least 1"),
        (*added("grid: {label: x}"), r"grid.label: Input should be a valid list"),
        (*added("grid: {label: [a, b, a]}"), r"the values of a grid must differ"),
        (*added("grid: {label: [2026-01-01, 2026-01-01]}"), r"must differ"),
        (*added("grid: {step_size: [1]}"), r"both in the grid and in parameters"),
        (*added("grid: {n_rounds: [1]}"), r"both in the grid and in smoke"),
        (*added("per_value: {label: {a: {smoke: {quick: true}}}}"), r"per_value.label.a is no value of the"),
        (*of_a("b: {smoke: {quick: true}}"), r"per_value.label.b is no value of the grid"),
        (*of_a("a: {big: {quick: true}}"), r"per_value.label.a.big is no profile"),
        (*of_a("a: {smoke: {label: b}}"), r"label cannot be both in the grid and in per_value.label.a"),
    ],
)
def test_an_invalid_manifest_is_refused(tmp_path, old, new, message):
    assert old in MANIFEST
    (tmp_path / "experiments.yml").write_text(MANIFEST.replace(old, new, 1))
    with pytest.raises(UsageError, match=message):
        load_manifest()


def test_a_notebook_that_is_not_utf_8_is_named(tmp_path, text):
    text.write_bytes(text.read_bytes() + b"\xff")
    with pytest.raises(UsageError, match=r"tiny.md is not text in UTF-8: .* position \d+"):
        resolved("smoke")


@pytest.mark.parametrize(
    "value",
    [pytest.param("[" * 5000 + "]" * 5000, marks=pytest.mark.slow), BOMB],
    ids=["deep", "bomb"],
)
def test_a_value_that_is_too_deep_or_too_large_is_refused(value):
    with pytest.raises(UsageError, match=r"^-p n_rounds=\[.{1,100}: the value is not valid YAML$"):
        parse_override(f"n_rounds={value}")


def test_a_missing_notebook_is_an_error_when_it_is_needed(text):
    text.unlink()
    experiment = load_manifest().experiment("tiny")
    with pytest.raises(UsageError, match=r"tiny\.md does not exist"):
        resolve(experiment, "smoke", {})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (":tags: [parameters]\n", "", "exactly one cell tagged 'parameters', it has 0"),
        ("n_rounds = 10", "n_rounds = 5 * 2", r"only assign literals to names, found: n_rounds = 5 \* 2"),
        ("n_rounds = 10", "import os", "found: import os"),
        ("n_rounds = 10", "n_rounds = (", "not valid Python"),
    ],
)
def test_an_invalid_parameters_cell_is_refused(text, old, new, message):
    assert old in HEADER
    text.write_text(HEADER.replace(old, new, 1))
    with pytest.raises(UsageError, match=message):
        notebook_parameters(text)


def test_root_is_found_upwards_and_named_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("MLOGB_ROOT")
    inside = tmp_path / "notebooks"
    monkeypatch.chdir(inside)
    assert paths.project_root() == Path(paths.__file__).parents[2]  # tmp_path is not yet the project
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "{paths.PROJECT_NAME}"\n')
    assert paths.project_root() == tmp_path
    monkeypatch.setenv("MLOGB_ROOT", str(inside))
    with pytest.raises(UsageError, match=r"no experiments\.yml"):
        paths.project_root()


def test_the_manifest_of_this_project_is_valid(monkeypatch):
    monkeypatch.setenv("MLOGB_ROOT", str(ROOT))
    assert {"smoke", "standard", "paper"} <= set(load_manifest().experiment("mnist").profiles)


def with_grid(root, grid):
    (root / "experiments.yml").write_text(
        MANIFEST.replace("    parameters:", f"    grid: {grid}\n    parameters:")
    )
    return load_manifest().experiment("tiny")


def test_a_grid_has_a_point_for_each_combination(tmp_path):
    experiment = with_grid(tmp_path, "{label: [a, b], sizes: [[1], [1, 2]]}")
    points = expand(experiment, {})
    assert points == [
        {"label": "a", "sizes": [1]}, {"label": "a", "sizes": [1, 2]},
        {"label": "b", "sizes": [1]}, {"label": "b", "sizes": [1, 2]},
    ]  # fmt: skip
    assert resolve(experiment, "smoke", points[3])["sizes"] == [1, 2]
    assert expand(experiment, {"label": "c"}) == [{"sizes": [1]}, {"sizes": [1, 2]}]
    assert expand(experiment, {"label": "c", "sizes": [3]}) == [{}]


def test_values_that_are_no_change_override_nothing(own_manifest):
    def of(experiment, **overrides):
        return sorted_out(own_manifest.experiment(experiment), "paper", {}, overrides)

    assert of("mnist", n_trials=10) == ({}, {})  # of the profile
    assert of("mnist", n_trials=11, seed=20261127) == ({}, {"n_trials": 11})
    assert of("mnist", sketch_size=78) == ({}, {})  # the notebook's default
    assert of("tournament", problem="fixed", n_trials=20) == ({"problem": "fixed"}, {})
    # The profile has other rounds for this point of the grid.
    assert of("equal_regret", case="lectures", lecture_rounds=300) == ({"case": "lectures"}, {})
    assert of("equal_regret", case="real", lecture_rounds=300) == ({"case": "real"}, {"lecture_rounds": 300})


def test_without_a_grid_there_is_one_point():
    assert expand(load_manifest().experiment("tiny"), {"label": "c"}) == [{}]


def test_a_key_that_replaces_a_merged_one_is_no_repeated_key(tmp_path):
    text = MANIFEST.replace("smoke: {n_rounds: 3}", "smoke: &small {n_rounds: 3}")
    (tmp_path / "experiments.yml").write_text(text.replace("{n_rounds: 4}", "{<<: *small, n_rounds: 4}"))
    assert resolved("paper")["n_rounds"] == 4


@pytest.fixture
def own_manifest(monkeypatch):
    monkeypatch.setenv("MLOGB_ROOT", str(ROOT))
    return load_manifest()


def test_every_parameter_of_this_project_has_limits_that_its_values_keep(own_manifest):
    for name, experiment in own_manifest.experiments.items():
        defaults = notebook_parameters(experiment.source)
        assert set(defaults) <= set(experiment.limits), (name, set(defaults) - set(experiment.limits))
        check_parameters(experiment, defaults)
        for profile in experiment.profiles:
            for point in expand(experiment, {}):
                resolve(experiment, profile, point)
    used = set().union(*(notebook_parameters(one.source) for one in own_manifest.experiments.values()))
    assert set().union(*(one.limits for one in own_manifest.experiments.values())) == used


@pytest.mark.parametrize(
    ("experiment", "parameter", "values"),
    [
        ("mnist", "n_rounds", [0, -5, 10**12]),
        ("mnist", "n_trials", [0, -1]),
        ("mnist", "seed", [-1]),
        ("mnist", "timing_rounds", [-1]),
        ("mnist", "exponents", [[0.75], [0.75, 0.75, 0.75], [0.75, 300.0]]),
        ("mnist", "paper_normalisation", ["units"]),
        ("mnist", "tuned_regularization", [0.0, -0.1, 1e-300, 1e300]),
        ("mnist", "paper_norm_bound", [0.0, 1e-100]),
        ("mnist", "paper_radius_scale", [-1e-9]),
        ("mnist_validation", "shortlist", [0]),
        ("mnist_validation", "norm_bounds", [[], [1.0, 0.0], [1.0, 1.0]]),
        ("parameter_grid", "case", ["trinomial"]),
        ("parameter_grid", "exponents", [[], [0.5, 0.5]]),
        ("synthetic", "tuned", [{}, {"multinomial": [1.0, 1.0, 1.0, 0.0]},
                                {"multinomial": [1.0, 1.0, 1.0], "binary": [1.0, 1.0, 1.0, 0.0]},
                                {"multinomial": [0.0, 1.0, 1.0, 0.0], "binary": [1.0, 1.0, 1.0, 0.0]}]),
        ("sketch_size", "sketch_sizes", [[], [0, 1], [5, 1], [1, 1], [1.5]]),
        ("sketch_size", "decays", [[-1.0]]),
        ("sketch_size", "dimension", [0]),
        ("radius_scale", "confidence", [0.0, 1.0]),
        ("radius_scale", "scales", [[0.0], [1.0, 0.1]]),
        ("scale", "problems", [[[1]], [[1, 0]], [[1, 2, 3]], [3], [["1", 2]], [[1, 2], [1, 2]]]),
        ("scale", "sketch_size", [0]),
        ("real_data", "sources", [["digit"], ["digits", "digits"]]),
        ("real_data", "step_size", [0.0]),
    ],
)  # fmt: skip
def test_values_out_of_their_limits_are_refused(own_manifest, experiment, parameter, values):
    chosen = own_manifest.experiment(experiment)
    for value in values:
        with pytest.raises(UsageError, match=f"{parameter}"):
            resolve(chosen, "smoke", {parameter: value})


def test_limits_that_are_no_schema_are_named(tmp_path):
    (tmp_path / "experiments.yml").write_text("limits: {n_rounds: {minimum: one}}\n" + MANIFEST)
    with pytest.raises(UsageError, match=r"experiments\.yml, limits\.n_rounds is not a JSON Schema"):
        resolved()


def test_a_value_of_the_grid_brings_its_own_parameters(tmp_path):
    grid = "{label: [a, b]}\n    per_value: {label: {b: {smoke: {n_rounds: 7, quick: true}}}}"
    experiment = with_grid(tmp_path, grid)
    first, second = expand(experiment, {})
    assert resolve(experiment, "smoke", first) == {"n_rounds": 3, "step_size": 2.0, "label": "a"}
    assert resolve(experiment, "smoke", second) == {
        "n_rounds": 7, "step_size": 2.0, "label": "b", "quick": True
    }  # fmt: skip
    assert resolve(experiment, "paper", second)["n_rounds"] == 4
    assert resolve(experiment, "smoke", {**second, "n_rounds": 9})["n_rounds"] == 9


def test_a_parameter_of_a_value_is_named_as_such(tmp_path):
    grid = "{label: [a]}\n    per_value: {label: {a: {smoke: {n_rounds: 0.5}}}}"
    place = r"experiments\.yml, experiments\.tiny\.per_value: n_rounds: parameter n_rounds must be int"
    with pytest.raises(UsageError, match=place):
        resolve(with_grid(tmp_path, grid), "smoke", {"label": "a"})


def test_a_value_of_the_grid_is_named_as_such(tmp_path):
    experiment = with_grid(tmp_path, "{label: [a, b]}")
    experiment.limits["label"] = {"enum": ["a"]}
    with pytest.raises(
        UsageError, match=r"experiments\.yml, experiments\.tiny\.grid: label=b: must be one of"
    ):
        resolve(experiment, "smoke", {"label": "b"})
