"""What describes the project to others: one version, and files that there are."""

from __future__ import annotations

import json
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from packaging.version import Version

from compendium.runs import run as runs
from compendium.system.provenance import project_version

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
CODEMETA = json.loads((ROOT / "codemeta.json").read_text(encoding="utf-8"))
CODECHECK = (ROOT / "codecheck.yml").read_text(encoding="utf-8")
CHECK = yaml.safe_load(CODECHECK)


def test_one_version_everywhere():
    (newest, *_) = re.findall(
        r"^## (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    stated = {
        PROJECT["version"],
        str(CITATION["version"]),
        CODEMETA["version"],
        newest,
        project_version(ROOT),
    }
    assert stated == {PROJECT["version"]}
    assert version(PROJECT["name"]) == PROJECT["version"]


def test_recorded_runs_have_no_later_version():
    """Runs that were recorded before the version was written down do not name one."""
    for run in runs.find_runs(profile="paper"):
        assert Version(run.record.get("version", "0")) <= Version(PROJECT["version"])


def test_a_project_without_a_version_states_none(tmp_path):
    assert project_version(tmp_path) is None
    (tmp_path / "pyproject.toml").write_text("[tool.a]\nb = 1\n")
    assert project_version(tmp_path) is None
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "2.3"\n')
    assert project_version(tmp_path) == "2.3"


def test_the_descriptions_agree():
    (paper,) = CITATION["references"]
    assert CODEMETA["name"] == CITATION["title"]
    licences = {CODEMETA["license"].rsplit("/", 1)[-1], CITATION["license"], CHECK["license"]}
    assert licences == {PROJECT["license"]} == {"BSD-3-Clause"}
    assert (ROOT / "LICENSE").read_text(encoding="utf-8").startswith("BSD 3-Clause License")
    assert CODEMETA["softwareRequirements"] == PROJECT["dependencies"]
    assert CODEMETA["keywords"] == PROJECT["keywords"]
    assert paper["title"] == CODEMETA["referencePublication"]["name"] == CHECK["paper"]["title"]
    authors = [f"{author['given-names']} {author['family-names']}" for author in paper["authors"]]
    assert [author["name"] for author in CHECK["paper"]["authors"]] == authors
    assert paper["url"] == CODEMETA["referencePublication"]["url"] == CHECK["paper"]["reference"]
    (identifier,) = paper["identifiers"]
    assert identifier["value"] == "arXiv:" + paper["url"].rsplit("/", 1)[-1]


def codecheck_problems(text: str, root: Path) -> list[str]:
    """What the rules for version 2.0 of the specification call an error, of what authors write.

    Left out are the ORCIDs, which nobody here knows, and what only a codechecker adds.
    """
    found = [] if re.search(r"\A---\n", text) else ["the document marker is missing"]
    config = yaml.safe_load(text)
    if config.get("version") != "https://codecheck.org.uk/spec/config/2.0/":
        found.append("the version of the specification is not named")
    paper = config.get("paper", {})
    found += [f"paper.{key} is missing" for key in ("title", "authors", "reference") if not paper.get(key)]
    if not isinstance(paper.get("reference"), str) or not paper["reference"].startswith("https://"):
        found.append("paper.reference is not one address")
    manifest = config.get("manifest") or []
    if not manifest:
        found.append("the manifest is empty")
    for item in manifest:
        name = item.get("file", "")
        if not name or Path(name).is_absolute() or ".." in Path(name).parts or not (root / name).is_file():
            found.append(f"manifest: {name!r} is no file below the configuration")
        if not item.get("comment"):
            found.append(f"manifest: {name!r} has no comment")
    if re.search(r"FIXME|TODO|XXXX", text):
        found.append("a placeholder")
    theirs = {"certificate", "codechecker", "report", "summary", "check_time"} & set(config)
    return found + [f"{key} is a codechecker's" for key in sorted(theirs)]


def test_the_codecheck_configuration_keeps_the_rules_of_its_specification():
    assert codecheck_problems(CODECHECK, ROOT) == []
    assert len(CHECK["manifest"]) > 8


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("---\n", "", "document marker"),
        ("spec/config/2.0/", "spec/config/1.0/", "version"),
        ("file: RESULTS.md", "file: /RESULTS.md", "no file below"),
        ("file: RESULTS.md", "file: NOTHING.md", "no file below"),
        ("reference: https://arxiv.org/abs/2606.11968", "reference: FIXME", "not one address"),
        ("manifest:", "certificate: 2026-001\nmanifest:", "codechecker's"),
    ],
)
def test_a_wrong_configuration_is_noticed(old, new, problem):
    assert any(problem in one for one in codecheck_problems(CODECHECK.replace(old, new, 1), ROOT))


def test_commands_of_the_manifest_name_experiments():
    experiments = yaml.safe_load((ROOT / "experiments.yml").read_text(encoding="utf-8"))["experiments"]
    named = re.findall(r"mlogb run (\w+) ", CODECHECK)
    assert len(named) >= 3
    assert set(named) <= set(experiments)
