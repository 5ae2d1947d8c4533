"""The page of figures: each with its run, and each run with its record."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from compendium.claims.registry import headings, slug
from compendium.report import figures_page
from compendium.runs import attestation, replay
from compendium.runs import run as runs
from compendium.system.paths import FailureError
from compendium.system.provenance import publish_figures, sha256
from compendium.system.provenance import sidecar as sidecar_text

ROOT = Path(__file__).resolve().parents[2]
SIDECARS = {file.stem: json.loads(file.read_text()) for file in (ROOT / "figures").glob("*.json")}


@pytest.fixture(scope="module")
def page() -> str:
    return figures_page.page(ROOT)


def test_every_committed_figure_is_there_with_its_sidecar(page):
    for name, sidecar in SIDECARS.items():
        heading, seen = figures_page.WORDS[name]
        section = page.partition(f"\n### {heading}\n")[2].partition("\n##")[0]
        assert f"*What to see.* {seen}" in section
        assert f"![{sidecar['alt']}](../figures/{name}.png)" in section
        assert f"`{sidecar['results_sha256']}`" in section
        for digest in sidecar["sha256"].values():
            assert f"`{digest}`" in section
        source = page.partition(f"\n### {heading}\n")[0].rpartition("\n## ")[2]
        assert f"[{sidecar['run']}]" in source
        assert f"commit `{sidecar['git_commit']}`" in source


def test_every_committed_run_has_a_section_with_its_record(page):
    for run in runs.find_runs(profile="paper"):
        assert figures_page.anchor(run) in headings(page)
        section = page.partition(f"\n## {figures_page._title(run)}\n")[2].partition("\n## ")[0]
        assert f"| code | commit `{run.record['git_commit']}`, clean work tree" in section
        assert f"numpy {run.record['environment']['numpy']}" in section
        for name, value in run.record["parameters"].items():
            assert f"`{name} = {value}`" in section
        for entry in attestation.read(run.path):
            assert attestation.describe(entry) in section


def test_links_lead_to_files_and_sections(page):
    for target, anchor in re.findall(r"\]\(\.\./([^)#]+)(?:#([^)]*))?\)", page):
        assert (ROOT / target).exists(), target
        if anchor:
            assert anchor in headings((ROOT / target).read_text(encoding="utf-8")), (target, anchor)
    for anchor in re.findall(r"\]\(#([^)]+)\)", page):
        assert anchor in headings(page)
    drawn = re.findall(r"^- Drawn in: \[(.*?)\]", page, re.MULTILINE)
    assert len(drawn) == len(SIDECARS)
    assert "the notebook" not in drawn


def test_what_a_figure_shows_is_kept_when_it_is_drawn_again(tmp_path):
    record = {
        "experiment": "a", "profile": "paper", "git_commit": None, "files": {"results.parquet": "0"},
        "figures": {"b.png": "1"},
    }  # fmt: skip
    drawn, figures = tmp_path / "run", tmp_path / "figures"
    for alt in ("", "Regret against the round, β = 0"):
        drawn.mkdir()
        (drawn / "b.png").write_bytes(b"1")
        if alt:
            sidecar = json.loads((figures / "b.json").read_text(encoding="utf-8"))
            (figures / "b.json").write_text(json.dumps(sidecar | {"alt": alt}), encoding="utf-8")
        publish_figures(drawn, figures, "papermill_runs/a/paper-1", record)
        text = (figures / "b.json").read_text(encoding="utf-8")
        assert json.loads(text).get("alt", "") == alt
        assert text == sidecar_text("b", "papermill_runs/a/paper-1", record, alt)


@pytest.mark.parametrize("run", runs.find_runs(profile="paper"), ids=lambda run: run.path.name)
def test_a_sidecar_with_words_is_as_the_run_left_it(run):
    assert list(replay.figure_faults(run)) == []


def test_headings_are_words_and_lead_to_one_place():
    titles = [figures_page._title(run) for run in runs.find_runs(profile="paper")]
    titles += [heading for heading, _ in figures_page.WORDS.values()]
    assert len({slug(title) for title in titles}) == len(titles)
    for title in titles:
        assert len(title.split()) >= 3
        assert not re.search(r"[0-9a-f]{6}|_", title), title


def test_every_heading_is_of_a_figure():
    assert set(figures_page.WORDS) == set(SIDECARS)


def test_every_figure_that_is_described_is_drawn_somewhere():
    texts = [*(ROOT / "notebooks/experiments").glob("*.md"), ROOT / "benchmarks/README.md"]
    for name in SIDECARS:
        assert any(figures_page._drawn_in(text.read_text(encoding="utf-8"), name) for text in texts), name


def test_every_figure_that_a_notebook_saves_is_described():
    """An experiment that has not been recorded has not drawn any."""
    for text in (ROOT / "notebooks/experiments").glob("*.md"):
        if not runs.find_runs(text.stem, "paper"):
            continue
        for written in re.findall(r'figures\.save\(.*"(.+)"\)', text.read_text(encoding="utf-8")):
            assert any(figures_page._matches(written, name) for name in SIDECARS), written


def test_a_figure_is_found_where_it_is_saved_or_shown():
    saved = '## First\n```\n## not a heading\nfigures.save(figure, f"grid_{case}")\n```\n'
    text = f"{saved}## Second\n![x](../figures/b.png)\n"
    assert figures_page._drawn_in(text, "grid_binary") == "First"
    assert figures_page._drawn_in(text, "b") == "Second"
    assert figures_page._drawn_in(text, "grid_") == ""


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("scale", {"alt": ""}, "figures/scale.json: add an entry `alt` that says what the figure shows"),
        ("scale", {"run": "papermill_runs/x"}, "figures/scale.json names papermill_runs/x, which is no"),
    ],
)
def test_a_figure_without_description_or_run_is_refused(tmp_path, name, change, message):
    (tmp_path / "figures").mkdir()
    shutil.copy(ROOT / "figures" / "scale.json", tmp_path / "figures" / f"{name}.json")
    file = tmp_path / "figures" / f"{name}.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(FailureError, match=message):
        figures_page.page(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"), [("{", "is not valid JSON"), ('{"alt": "a"}', "names None, which is no")]
)
def test_a_damaged_sidecar_is_named(tmp_path, text, message):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "scale.json").write_text(text)
    with pytest.raises(FailureError, match=rf"figures/scale\.json {message}"):
        figures_page.page(tmp_path)


@pytest.mark.parametrize("name", SIDECARS)
def test_a_committed_picture_is_the_one_of_its_sidecar_and_of_its_run(name):
    """A picture that was replaced, also one of the benchmarks, which are no run that `verify` checks."""
    sidecar = SIDECARS[name]
    for kind, digest in sidecar["sha256"].items():
        assert sha256(ROOT / "figures" / f"{name}.{kind}") == digest
    source = ROOT / sidecar["run"]
    results = source if source.is_file() else source / "results.parquet"
    assert sha256(results) == sidecar["results_sha256"]
