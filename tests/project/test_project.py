"""The project as a whole: what is committed fits together, and a batch runs end to end."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pandas as pd
import pytest
import yaml
from packaging.requirements import Requirement

from compendium import cli
from compendium.book.statements import without_code
from compendium.experiments.study import Study
from compendium.experiments.trials import Setting, TrialSpec
from compendium.report import readme, results
from compendium.report import tables as report
from compendium.runs import manifest, notebooks
from compendium.runs import run as runs

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def requirements() -> dict[str, Requirement]:
    extras = {name: lines for name, lines in PYPROJECT["optional-dependencies"].items() if name != "peers"}
    lines = [*PYPROJECT["dependencies"], *(d for v in extras.values() for d in v)]
    found = {requirement.name: requirement for requirement in map(Requirement, lines)}
    own = found.pop(PYPROJECT["name"])  # an extra that includes another one
    assert own.extras == {"compendium"}
    return found


def imports(package: str) -> set[str]:
    """Top-level names that the modules of a package import, wherever in the module."""
    found = set()
    for file in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names)


def test_the_library_imports_numpy_and_scipy_alone():
    """Numba is the optional extra: it is imported in one module, which nothing imports at start-up."""
    assert imports("mlogb_core") == {"mlogb_core", "numpy", "scipy", "numba"}
    core = ROOT / "mlogb_core"
    users = [p.relative_to(core).as_posix() for p in core.rglob("*.py") if "numba import" in p.read_text()]
    assert users == ["compiled/kernel.py"]
    program = "import sys, mlogb_core.literal, mlogb_core.simulation; print('numba' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"


def test_the_library_depends_on_numpy_and_scipy_alone():
    """`tests/project/test_install.py` installs it so, where the machine can."""
    assert [Requirement(line).name for line in PYPROJECT["dependencies"]] == ["numpy", "scipy"]


def test_environment_file_equals_pyproject():
    entries = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    listed = {r.name: r for r in map(Requirement, entries)}
    assert str(listed.pop("python").specifier) == PYPROJECT["requires-python"]
    listed.pop("pip")
    assert {k: str(r.specifier) for k, r in listed.items()} == {
        k: str(r.specifier) for k, r in requirements().items()
    }


def test_lock_is_hashed_names_no_host_and_satisfies_pyproject():
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    assert "index" not in text
    pinned = {}
    for entry in re.split(r"\n(?=[a-z0-9])", text.strip()):
        requirement = Requirement(entry.split("\\")[0].strip())
        assert "--hash=sha256:" in entry, f"{requirement.name} has no hash"
        pinned.setdefault(requirement.name, []).append(requirement)
    for name, wanted in requirements().items():
        for locked in pinned[name]:
            (version,) = locked.specifier
            assert wanted.specifier.contains(version.version), f"{locked} does not satisfy {wanted}"


def test_lock_of_the_peers_is_hashed_and_satisfies_its_extra():
    """They are installed beside the locked packages, without what they depend on."""
    entries = re.split(r"\n(?=[a-z0-9])", (ROOT / "requirements-peers.lock").read_text().strip())
    pinned = {r.name: r for r in (Requirement(entry.split("\\")[0].strip()) for entry in entries)}
    assert all("--hash=sha256:" in entry for entry in entries)
    wanted = {r.name: r for r in map(Requirement, PYPROJECT["optional-dependencies"]["peers"])}
    assert set(pinned) == set(wanted)
    for name, locked in pinned.items():
        (version,) = locked.specifier
        assert wanted[name].specifier.contains(version.version)
    assert all(f"'{requirement}'" in (ROOT / "Makefile").read_text() for requirement in wanted.values())


@pytest.mark.skipif(Path(sys.prefix) != ROOT / ".venv", reason="not the environment that make builds")
def test_installed_packages_are_the_locked_ones():
    from importlib.metadata import version

    for entry in (ROOT / "requirements.lock").read_text().splitlines():
        if entry.startswith(("numpy==", "scipy==", "pandas==", "papermill==", "nbval==")):
            locked = Requirement(entry.split("\\")[0].strip())
            if locked.marker is None or locked.marker.evaluate():
                assert locked.specifier.contains(version(locked.name))


def test_the_example_of_the_readme_prints_what_the_readme_says(capsys):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    said = re.findall(r"`(\{'EOFD': [^`]*\})`", text)
    for regularization, line in zip(("1.0", "0.1"), said, strict=True):
        scope: dict[str, object] = {}
        changed = code.replace("regularization=1.0", f"regularization={regularization}")
        exec(changed, scope)
        assert {policy.rounds for policy in scope["policies"].values()} == {1000}
        assert capsys.readouterr().out == f"{line}\n"


def test_links_of_the_pages_lead_somewhere():
    texts = (p for p in (ROOT / "notebooks").rglob("*.md") if ".ipynb_checkpoints" not in p.parts)
    for page in [*ROOT.glob("*.md"), *texts]:
        # Links inside of a block of code are those of a page that a reader is told to write.
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", without_code(page.read_text())):
            if "://" not in target and re.search(r"\.\w+$", target):
                assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"


@pytest.mark.slow
def test_every_profile_of_the_manifest_resolves():
    for experiment in manifest.load_manifest().experiments.values():
        assert {"smoke", "standard", "paper"} <= set(experiment.profiles)
        for profile in experiment.profiles:
            manifest.resolve(experiment, profile, {})


def test_committed_notebooks_are_executed_and_equal_their_text():
    assert notebooks.check() == []


def test_parameters_cell_is_there_in_every_experiment():
    import nbformat

    for experiment in manifest.load_manifest().experiments.values():
        pair = nbformat.read(experiment.source.with_suffix(".ipynb"), as_version=4)
        assert sum("parameters" in cell.metadata.get("tags", []) for cell in pair.cells) == 1


def committed() -> list[runs.Run]:
    return runs.find_runs(profile="paper")


def the_run(experiment: str) -> runs.Run:
    (run,) = runs.find_runs(experiment, "paper")
    return run


def test_every_point_of_every_experiment_has_one_committed_run():
    wanted = [
        (name, json.dumps(point))
        for name, experiment in manifest.load_manifest().experiments.items()
        for point in manifest.expand(experiment, {})
    ]
    found = [(run.record["experiment"], json.dumps(run.record["point"])) for run in committed()]
    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize("run", committed(), ids=lambda run: run.name.removeprefix("papermill_runs/"))
def test_committed_run_is_complete_and_clean(run):
    assert runs.faults(run.path) == []
    assert run.record["git_clean"] is True
    (notebook,) = run.path.glob("*.ipynb")
    import nbformat

    assert notebooks.check_executed(nbformat.read(notebook, as_version=4)) == []


def test_committed_figures_come_from_the_committed_runs():
    names = {run.name: run for run in committed()}
    for file in (ROOT / "figures").glob("*.json"):
        sidecar = json.loads(file.read_text())
        if not file.name.startswith("bench_"):
            run = names[sidecar["run"]]
            drawn = {path.name for path in runs.figures_of(run) if path.parent == ROOT / "figures"}
            assert {f"{file.stem}.{ending}" for ending in ("png", "pdf")} <= drawn
    assert sum(len(run.record["figures"]) for run in committed()) >= 24


@pytest.mark.slow
def test_the_results_page_shows_the_committed_runs():
    results.write(check=True)


def test_readme_shows_the_committed_runs():
    readme.update(check=True)


def test_what_the_readme_says_in_bold_follows_from_the_committed_runs():
    """Its three sentences have computed numbers; the words between them are held to these here."""
    mnist = the_run("mnist")
    paper, tuned = (readme._final(mnist, setting) for setting in ("paper", "tuned"))
    # In the paper's setting what the sketch holds plays no part that the regret shows.
    assert readme._eigenvalue(mnist, "paper") < 1
    assert (paper["eofd"] == paper["oful"]).all()
    for other in ("greedy", "first-order"):
        _, low, high = report.interval(paper[other] - paper["eofd"])
        assert low <= 0 <= high
    # Tuned, the Hessian counts on MNIST at least, and the sentence names the problems where it does.
    assert report.interval(tuned["first-order"] - tuned["oful"])[1] > 0
    counts = readme.sentences()[1].split("**")[1]
    for name, (low, _) in readme.gains_of_curvature().items():
        assert (readme._spoken(name) in counts) == (low > 0)
    # A sketch is faster than the strongest form at large Kd or with a small m, than the printed one always.
    sizes = list(readme._speed_at_sizes(the_run("scale")))
    assert sizes[-1][1] > readme._FASTER
    assert [ratio for _, ratio in sizes] == sorted(ratio for _, ratio in sizes)
    assert readme._small_sketch(mnist)[1] > 1
    for _, experiment, case, setting in readme._ROWS:
        assert readme._ratio(readme.only_run(experiment, case), f"{setting}, timed", "oful-printed") > 2


def test_comparison_uses_what_the_validation_run_chose():
    selection = the_run("mnist_validation").record["study"]["findings"]["selection"]
    experiment = manifest.load_manifest().experiment("mnist")
    parameters = manifest.notebook_parameters(experiment.source) | manifest.resolve(experiment, "paper", {})
    paper, tuned = selection["paper"], selection["tuned"]
    assert parameters["paper_normalisation"] == paper["problem"]["normalisation"]
    assert parameters["paper_norm_bound"] == paper["norm_bound"]
    assert parameters["paper_radius_scale"] == paper["radius"]["scale"]
    for name in ("regularization", "step_size", "norm_bound"):
        assert parameters[f"tuned_{name}"] == tuned[name]
    assert parameters["tuned_radius_scale"] == tuned["radius"]["scale"]
    for name in ("regularization", "step_size", "norm_bound"):
        assert parameters[f"flat_{name}"] == selection["first_order"][name]
    assert parameters["flat_radius_scale"] == selection["first_order"]["radius"]["scale"]


@pytest.mark.parametrize("case", ["multinomial", "binary"])
def test_synthetic_problems_use_what_the_grid_chose(case):
    """The setting with the least regret of OFUL-MLogB on the validation streams of the wider grid."""
    (run,) = (r for r in runs.find_runs("parameter_grid", "paper") if r.record["point"] == {"case": case})
    wide = {setting["name"]: setting for setting in run.record["study"]["studies"][1]["settings"]}
    table = run.results[run.results["setting"].isin(wide) & (run.results["policy"] == "oful")]
    sums = table.groupby("setting", observed=True)["regret"].sum()
    best = wide[str(sums.idxmin())]
    experiment = manifest.load_manifest().experiment("synthetic")
    tuned = manifest.notebook_parameters(experiment.source)["tuned"][case]
    names = ("regularization", "step_size", "norm_bound")
    assert tuned == [*(best[name] for name in names), best["radius"]["scale"]]


@pytest.mark.parametrize("setting", ["paper", pytest.param("tuned", marks=pytest.mark.slow)])
def test_committed_results_come_from_the_code_as_it_is(setting):
    """The first rounds of a stored trial, played again, are the stored ones to the last bit."""
    run = the_run("mnist")
    study = Study.model_validate(
        {k: v for k, v in run.record["study"]["studies"][0].items() if k in Study.model_fields}
    )
    (chosen,) = (s for s in study.settings if s.name == setting)
    rounds = 150
    spec = TrialSpec(
        experiment=study.experiment, setting=Setting.model_validate(chosen.model_dump()),
        n_rounds=rounds, seed=study.seed, trial=3,
    )  # fmt: skip
    played = spec.compute()
    table = run.results
    stored = table[(table["setting"] == setting) & (table["trial"] == 3) & (table["round"] <= rounds)]
    for name in ("round", "policy", "n_actions", "action", "outcome", "reward", "regret"):
        pd.testing.assert_series_equal(
            played[name].astype(stored[name].dtype), stored[name], check_index=False, check_names=False
        )


def test_conclusions_of_the_mnist_notebook_follow_from_the_committed_run():
    """What its last section says in words, held to the numbers."""
    run = the_run("mnist")
    keys = ["setting", "policy", "trial"]
    regret = run.results.groupby(keys, observed=True)["regret"].sum().unstack("trial")
    final = pd.read_parquet(run.path / "final.parquet").set_index(["setting", "policy"])
    scale = {s["name"]: s for s in run.record["study"]["studies"][0]["settings"]}
    eigenvalue = {
        name: final.loc[(name, "oful"), "largest_eigenvalue"] / scale[name]["regularization"]
        for name in ("paper", "tuned")
    }
    assert eigenvalue["paper"].max() < 1
    assert eigenvalue["tuned"].min() > 100
    tuned, paper = regret.loc["tuned"], regret.loc["paper"]
    assert abs(paper.loc["first-order"].mean() / paper.loc["oful"].mean() - 1) < 0.05
    for flat in (tuned.loc["first-order"], regret.loc[("tuned for no curvature", "first-order")]):
        gain = flat - tuned.loc["oful"]
        assert gain.mean() > 2.26 * gain.std(ddof=1) / gain.size**0.5  # Student's t, 9 degrees of freedom
    assert regret.loc[("tuned, m = 5", "eofd")].mean() < 1.2 * tuned.loc["oful"].mean()
    five = final.loc[("tuned, m = 5", "eofd"), "shrinkage"] / scale["tuned, m = 5"]["regularization"]
    assert five.min() > 5
    for setting in (paper, tuned):
        difference = setting.loc["greedy"] - setting.loc["eofd"]
        assert abs(difference.mean()) < 2.26 * difference.std(ddof=1) / difference.size**0.5
    for name in ("paper", "tuned"):
        norms = final.loc[(name, "oful"), "parameter_norm"] / scale[name]["norm_bound"]
        assert norms.min() > 0.9


def test_smoke_batch_end_to_end(tmp_path, monkeypatch, capsys):
    """`mlogb run mnist --profile smoke` in a copy of the project, from nothing to figures."""
    for name in ("experiments.yml", "pyproject.toml", "jupytext.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "notebooks", tmp_path / "notebooks")
    monkeypatch.setenv("MLOGB_ROOT", str(tmp_path))
    with pytest.raises(SystemExit) as stopped:
        cli.main(["run", "mnist", "--profile", "smoke"])
    assert stopped.value.code == 0
    (run,) = runs.find_runs("mnist", "smoke")
    assert runs.faults(run.path) == []
    assert set(run.results["policy"]) == {"eofd", "oful", "first-order", "greedy", "random"}
    assert run.record["study"]["studies"][0]["data"][0]["rows"] in (5000, 70000)
    names = {path.name for path in (tmp_path / "figures" / "local").iterdir()}
    assert {"mnist_regret.png", "mnist_regret.pdf", "mnist_regret.json"} <= names
    assert str(tmp_path) not in (run.path / "record.json").read_text()
    assert "figures/local/mnist_regret.png" in capsys.readouterr().out


def test_no_page_or_source_names_a_machine_path():
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=False
    ).stdout.split()
    for name in listed:
        path = ROOT / name
        if path.is_file() and path.suffix in {".md", ".py", ".yml", ".toml", ".ipynb", ".json", ".lock"}:
            text = path.read_text(encoding="utf-8")
            for place in (str(ROOT), str(Path.home())):
                assert f"{place}/" not in text, f"{name} names {place}"
