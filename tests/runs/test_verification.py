"""Verification: a run passes as it was made, and does not if one digit of it is changed."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import matplotlib.image
import nbformat
import numpy as np
import pandas as pd
import pytest
from batch_project import git, make_real_project

from compendium import cli
from compendium.experiments import trials
from compendium.experiments.trials import TrialSpec
from compendium.report import figures_page
from compendium.runs import attestation, recomputation, replay, verification
from compendium.runs import run as runs
from compendium.runs.verification import Report, verify
from compendium.system import paths, provenance

pytestmark = pytest.mark.slow  # The run that all of them change is made by a kernel.

FILES = (
    "record.json", "study.json", "tiny.ipynb", "results.parquet", "timings.parquet", "final.parquet",
    "SHA256SUMS",
)  # fmt: skip
FIGURES = ("tiny_regret.png", "tiny_regret.pdf", "tiny_regret.json")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A project with one run of the profile `paper`."""
    root = tmp_path_factory.mktemp("made")
    make_real_project(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLOGB_ROOT", str(root))
        runs.execute("tiny", "paper")
    return root


@pytest.fixture
def run(made, tmp_path, monkeypatch):
    """The run in a copy of the project, in which a test may change files."""
    root = tmp_path / "project"
    shutil.copytree(made, root)
    monkeypatch.setenv("MLOGB_ROOT", str(root))
    [run] = runs.find_runs()
    return run


def leave_out(monkeypatch, *checks):
    """Let these checks of a verification find nothing."""
    for name in checks:
        monkeypatch.setattr(verification, name, lambda *_: [])


@pytest.fixture
def without_kernel(monkeypatch):
    """Leave out the checks that execute the notebook or compute trials again."""
    leave_out(monkeypatch, "replay_faults", "trial_faults")


@pytest.mark.slow
def test_a_run_is_drawn_again_from_its_tables(run, monkeypatch):
    """Outputs and figures are new. The tables, and the code that computed them, are those of the run."""
    tables = {name: (run.path / name).read_bytes() for name in ("results.parquet", "final.parquet")}
    shutil.rmtree(paths.trials_folder())
    (run.path / "attestations.json").write_text("[]")
    text = paths.project_root() / run.record["notebook"]
    text.write_text(text.read_text().replace("round(4)", "round(1)"))
    monkeypatch.setattr(runs.provenance, "git_state", lambda _: {"git_commit": "c" * 40, "git_clean": None})
    monkeypatch.setattr(runs.provenance, "code_digest", lambda: "new")
    drawn = runs.execute("tiny", "paper", redraw=True)
    assert drawn.path == run.path
    assert not drawn.reused
    assert not paths.trials_folder().exists()
    assert not (run.path / "attestations.json").exists()
    assert {name: (drawn.path / name).read_bytes() for name in tables} == tables
    before, now = run.record, drawn.record
    assert now["files"]["tiny.ipynb"] != before["files"]["tiny.ipynb"]
    for key in ("started", "duration_seconds", "environment", "study", "parameters"):
        assert now[key] == before[key]
    origin = {key: before[key] for key in ("git_commit", "git_clean", "code_digest")}
    assert (now["git_commit"], now["code_digest"], now["computed_by"]) == ("c" * 40, "new", origin)
    assert runs.execute("tiny", "paper", redraw=True).record["computed_by"] == origin
    said = list(attestation.history(drawn.path, drawn.record))
    assert said[1] == "drawn from its tables by commit ccccccccc"


@pytest.mark.slow
def test_a_run_with_data_that_are_not_here_is_drawn_again_in_its_place(run):
    """Only the tables are needed, and neither the name of the run nor its record of the data changes."""
    record = run.record | {"data": {"MNIST": None, "InstEval": "a" * 64}}
    (run.path / "record.json").write_text(json.dumps(record))
    (run.path / "SHA256SUMS").write_text(provenance.checksums(run.path, record["files"]))
    elsewhere = run.path.with_name("paper-0000aaaa")
    run.path.rename(elsewhere)
    drawn = runs.execute("tiny", "paper", redraw=True)
    assert drawn.path == elsewhere
    assert [path.name for path in elsewhere.parent.iterdir()] == [elsewhere.name]
    assert drawn.record["data"] == record["data"]


@pytest.mark.slow
def test_only_tables_that_the_notebook_asks_for_are_drawn_again(run):
    with pytest.raises(paths.UsageError, match="is not there, so there are no tables to draw it from"):
        runs.execute("tiny", "smoke", redraw=True)
    text = paths.project_root() / run.record["notebook"]
    text.write_text(text.read_text().replace("seed=3", "seed=4"))
    before = (run.path / "record.json").read_bytes()
    with pytest.raises(paths.FailureError, match="holds no study 'tiny' with these parameters"):
        runs.execute("tiny", "paper", redraw=True)
    assert (run.path / "record.json").read_bytes() == before


def test_trials_that_are_computed_again_are_drawn_at_random():
    specs = [SimpleNamespace(setting=SimpleNamespace(name=n), trial=t) for n in "abc" for t in range(40)]
    draws = [recomputation._sampled(specs, 3) for _ in range(20)]
    assert all({spec.setting.name for spec in draw} == {"a", "b", "c"} for draw in draws)
    assert len({spec.trial for draw in draws for spec in draw}) > 20
    assert len(recomputation._sampled(specs, 500)) == 120


@pytest.mark.parametrize(("computed", "chance"), [(1, "0.9"), (10, "0.33"), (22, "0.073")])
def test_the_report_says_what_a_sample_can_miss(computed, chance):
    report = Report(computed=["x"] * computed, trials=100)
    assert recomputation.what_is_missed(report) == (
        f"{computed} of 100 trials were computed again, drawn at random: if 10 of them were forged, this "
        f"finds none of them with probability {chance}"
    )
    assert "all 3 trials" in recomputation.what_is_missed(Report(computed=["x"] * 3, trials=3))


@pytest.mark.slow
def test_a_run_passes_as_it_was_made_and_no_file_is_changed(run, monkeypatch):
    computed, compute = [], trials.TrialSpec.compute

    def note(spec, *arguments):
        computed.append(spec.key)
        return compute(spec, *arguments)

    monkeypatch.setattr(trials.TrialSpec, "compute", note)
    before = {path: path.read_bytes() for path in paths.project_root().rglob("*") if path.is_file()}
    assert verify(run, sample=2) == []
    assert len(set(computed)) == len(computed) == 2
    assert {path: path.read_bytes() for path in paths.project_root().rglob("*") if path.is_file()} == before


def places_of(content):
    """The places of the first byte, the last byte and some between."""
    steps = range(0, len(content), max(len(content) // 12, 1))
    return sorted({0, len(content) - 1, *steps})


@pytest.mark.parametrize(
    "name",
    [
        *FILES[:4],
        f"figures/{FIGURES[0]}",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (*FILES[4:], *(f"figures/{name}" for name in FIGURES[1:]))
        ),
    ],
)
def test_a_flipped_bit_is_found(run, without_kernel, name):
    assert verify(run) == []
    path = paths.figures_folder() / Path(name).name if name.startswith("figures/") else run.path / name
    content = path.read_bytes()
    for place in places_of(content):
        for bit in (1, 2, 32, 128):
            spoilt = bytearray(content)
            spoilt[place] ^= bit
            path.write_bytes(spoilt)
            try:
                found = verify(runs.load_run(run.path))
            except paths.UsageError:  # the record cannot be read
                found = ["unreadable"]
            assert found, (name, place, bit)
    path.write_bytes(content)
    assert verify(run) == []


def test_every_digit_of_the_list_of_checksums_counts(run, without_kernel):
    path = run.path / "SHA256SUMS"
    text = path.read_text()
    for place, letter in enumerate(text):
        path.write_text(text[:place] + ("1" if letter == "0" else "0") + text[place + 1 :])
        assert verify(run), place
    for spoilt in (text.replace("\n", "\r\n"), text.rstrip("\n"), text + "\n", "", text.upper()):
        path.write_bytes(spoilt.encode())
        assert verify(run), spoilt
    path.unlink()
    assert verify(run) == ["record.json or SHA256SUMS was changed: they do not agree"]


def test_sha256sum_reads_the_list_of_checksums(run):
    tool = shutil.which("sha256sum")
    if tool is None:
        pytest.skip("there is no sha256sum here")
    subprocess.run([tool, "--quiet", "--strict", "-c", "SHA256SUMS"], cwd=run.path, check=True)


def test_a_missing_file_and_a_foreign_file_are_found(run, without_kernel):
    (run.path / "more.txt").touch()
    assert verify(run) == ["more.txt is not of the run"]
    (run.path / "more.txt").unlink()
    (run.path / "final.parquet").unlink()
    assert verify(run) == ["final.parquet is missing"]


def forge(run, **files):
    """Change files of a run and all checksums with them, as a skilled forger would."""
    for name, content in files.items():
        (run.path / name).write_bytes(content)
    record = json.loads((run.path / "record.json").read_text())
    record["study"] = json.loads((run.path / "study.json").read_text())
    record["files"] = {name: provenance.sha256(run.path / name) for name in record["files"]}
    write_record(run, record)
    return runs.load_run(run.path)


def write_record(run, record):
    (run.path / "record.json").write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    kept = record["files"] | {"record.json": provenance.sha256(run.path / "record.json")}
    (run.path / "SHA256SUMS").write_text("".join(f"{kept[name]}  {name}\n" for name in sorted(kept)))


def changed_table(run, name, column, row=0, by=1e-9):
    table = pd.read_parquet(run.path / name)
    table[column] = table[column].astype(float)
    table.loc[row, column] += by
    stream = io.BytesIO()
    table.to_parquet(stream, compression="zstd", index=False)
    return stream.getvalue()


@pytest.mark.slow
def test_forged_outputs_are_found_by_executing_again(run):
    """Digits in a text and a table, a pixel and a finding are changed, and all checksums with them."""
    notebook = json.loads((run.path / "tiny.ipynb").read_text())
    outputs = [output for one in notebook["cells"] for output in one.get("outputs", [])]
    printed = next(output for output in outputs if output["output_type"] == "stream")
    text = "".join(printed["text"])
    digit = next(letter for letter in reversed(text) if letter.isdecimal())
    printed["text"] = text[::-1].replace(digit, str((int(digit) + 1) % 10), 1)[::-1]
    table = next(output for output in outputs if "text/html" in output.get("data", {}))
    table["data"]["text/html"] = "".join(table["data"]["text/html"]).replace("<td>", "<td>1", 1)
    picture = next(output for output in outputs if "image/png" in output.get("data", {}))
    pixels = matplotlib.image.imread(io.BytesIO(base64.b64decode(picture["data"]["image/png"])))
    pixels = np.array(pixels)
    pixels[5, 5, :3] = 0.5
    stream = io.BytesIO()
    matplotlib.image.imsave(stream, pixels, format="png")
    picture["data"]["image/png"] = base64.b64encode(stream.getvalue()).decode()
    study = json.loads((run.path / "study.json").read_text())
    study["findings"]["regret"] += 1e-9
    forged = {"tiny.ipynb": json.dumps(notebook).encode(), "study.json": json.dumps(study).encode()}
    found = "\n".join(verify(forge(run, **forged), sample=0))
    for message in (
        "the text differs from the stored one", "the text/html output differs",
        "the picture differs from the stored one", "study.json: the notebook hands over another one",
    ):  # fmt: skip
        assert message in found
    assert len(found.splitlines()) == 4


@pytest.mark.slow
@pytest.mark.parametrize("together", [500, 3])
def test_forged_tables_are_found_by_the_trials(run, monkeypatch, together):
    """The notebook prints the forged numbers, since it reads the tables, but the trials give others."""
    leave_out(monkeypatch, "replay_faults")
    monkeypatch.setattr(recomputation, "_TOGETHER", together)
    kept = {
        name: (run.path / name).read_bytes()
        for name in ("results.parquet", "final.parquet", "timings.parquet")
    }
    columns = {
        "results.parquet": "regret",
        "final.parquet": "parameter_norm",
        "timings.parquet": "total_mean_ms",
    }

    def found(spoilt, sample):
        # The sidecar of the figure has the checksum of the table, so that the change is found there too.
        return [line for line in verify(spoilt, sample) if not line.startswith("figures: tiny_regret.json")]

    for name, column in columns.items():
        spoilt = forge(run, **{name: changed_table(run, name, column)})
        assert found(spoilt, sample=0) == [
            f"tiny, small, trial 0: the stored trial gives other rows of {name}"
        ]
        forge(run, **kept)
    shutil.rmtree(paths.trials_folder())  # as in a clone
    for name in ("results.parquet", "final.parquet"):
        spoilt = forge(run, **{name: changed_table(run, name, columns[name], by=1e-6)})
        assert found(spoilt, sample=0) == []
        assert found(spoilt, sample=8) == [
            f"tiny, small, trial 0: computed again, it gives other rows of {name}"
        ]
        forge(run, **kept)
    assert verify(run, sample=8) == []


def test_a_record_that_contradicts_its_run_is_found(run, without_kernel):
    record = run.record
    for change, message in (
        (
            {"parameters": {"n_rounds": 31, "n_trials": 4}},
            "parameters are not those that the notebook was given",
        ),
        ({"parameters": {"n_rounds": 31}}, "what it says was asked for belongs in tiny/paper-"),
        ({"data": {"MNIST": "0"}}, "what it says was asked for belongs in tiny/paper-"),
        ({"profile": "smoke"}, "what it says was asked for belongs in tiny/smoke-"),
        ({"study": {"studies": [], "findings": {}}}, "the record has another one"),
    ):
        write_record(run, record | change)
        assert message in "\n".join(verify(runs.load_run(run.path)))


def test_a_cell_that_was_executed_out_of_order_is_found(run, monkeypatch):
    leave_out(monkeypatch, "trial_faults")
    notebook = json.loads((run.path / "tiny.ipynb").read_text())
    codes = [one for one in notebook["cells"] if one["cell_type"] == "code"]
    codes[1]["execution_count"] = codes[1]["execution_count"] + 5
    found = verify(forge(run, **{"tiny.ipynb": json.dumps(notebook).encode()}))
    assert len(found) == 1
    assert "out of order" in found[0]


def test_a_missing_figure_is_a_fault_and_one_of_a_later_run_is_not(run, without_kernel, made):
    later = run.path.with_name("paper-99999999")
    shutil.copytree(run.path, later)
    folder = paths.figures_folder()
    sidecar = json.loads((folder / "tiny_regret.json").read_text())
    (folder / "tiny_regret.json").write_text(
        json.dumps(sidecar | {"run": "papermill_runs/tiny/paper-99999999"})
    )
    assert verify(run) == []
    shutil.rmtree(later)  # the later run no longer exists
    assert verify(run) == ["figures: tiny_regret.json is not as the run left it"]
    for path in folder.iterdir():
        path.unlink()
    assert len(verify(run)) == 3


def test_figures_that_are_drawn_again_are_compared(run, tmp_path):
    drawn = tmp_path / "drawn"
    drawn.mkdir()
    original = paths.figures_folder() / "tiny_regret.png"
    pixels = np.array(matplotlib.image.imread(original))

    def found(image, pdf=b"as another version writes it"):
        matplotlib.image.imsave(drawn / "tiny_regret.png", image)
        (drawn / "tiny_regret.pdf").write_bytes(pdf)
        report = verification.Report()
        found = list(replay._picture_faults(run, drawn, report))
        assert len(report.gaps) == (found == [])
        return found

    assert found(pixels) == []  # other bytes, the same picture
    kept = original.read_bytes()
    shutil.copy(original, drawn)
    (drawn / "tiny_regret.pdf").write_bytes(b"another picture in lines")
    [line] = replay._picture_faults(run, drawn, verification.Report())
    assert line.endswith(
        "tiny_regret.pdf drawn again differs from the one of the run, and tiny_regret.png does not"
    )
    assert original.read_bytes() == kept
    spoilt = pixels.copy()
    spoilt[10, 10, :3] = 0.0
    assert len(found(spoilt)) == 2
    (drawn / "other.png").touch()
    (drawn / "tiny_regret.pdf").unlink()
    assert list(replay._picture_faults(run, drawn, verification.Report()))[:2] == [
        "figures: other.png is drawn only now",
        "figures: tiny_regret.pdf is not drawn again",
    ]


def test_a_check_that_fails_is_a_fault_of_the_run(run, monkeypatch):
    def breaks(*_):
        raise KeyError("settings")

    for name in ("replay_faults", "trial_faults"):
        monkeypatch.setattr(verification, name, breaks)
    assert verify(run) == ["cannot be checked: KeyError: 'settings'"] * 2


@pytest.mark.slow
def test_what_reproduced_a_run_is_written_beside_it(run, monkeypatch):
    """An attestation says how many trials which code computed, and changes no file of the run."""
    leave_out(monkeypatch, "replay_faults")
    before = {path: path.read_bytes() for path in run.path.iterdir()}

    def attested(sample):
        report = verification.Report()
        assert verify(run, sample, report) == []
        return verification.attest(run, report)

    day = datetime.now(UTC).date().isoformat()
    assert re.fullmatch(rf"c.+ reproduced 1 of 8 trials (exactly|up to 1e-09) on {day}", attested(1))
    assert re.fullmatch(rf"c.+ reproduced 8 of 8 trials (exactly|up to 1e-09) on {day}", attested(None))
    assert "reproduced 8 of 8" in attested(1)  # the earlier attestation by the same code still holds
    [second] = attestation.read(run.path)
    assert (second["computed"], second["trials"]) == ("all", 8)
    assert second["tolerances"]["results"] == 0.0
    assert second["tolerances"]["final"] in (0.0, 1e-9)
    assert (second["code_digest"], second["not_checked"]) == (provenance.code_digest(), [])
    assert second["computed_on"]["blas"] == provenance.blas_pools()
    monkeypatch.setattr(provenance, "code_digest", lambda: "another")
    assert "reproduced 1 of 8" in attested(1)
    assert {len(one["computed"]) for one in attestation.read(run.path)} == {1, len("all")}
    for _ in range(20):  # one trial a time, drawn at random
        attested(1)
    assert len(attestation.read(run.path)[-1]["computed"]) > 1
    assert len(attestation.read(run.path)) == 2
    assert {path: path.read_bytes() for path in before} == before
    assert verify(run, 0) == []
    with pytest.raises(paths.UsageError, match="no trial was computed again"):
        attested(0)
    said = list(attestation.history(run.path, run.record))
    assert said[0].startswith("computed by c")
    assert said[1].endswith(" (the present code)")
    facts = dict(figures_page._facts(figures_page._of_run(run).record))
    assert "reproduced 8 of 8 trials" in facts["reproduced"]


def test_an_attestation_of_another_record_is_found(run, without_kernel):
    attestation.add(run.path, ["tiny, small, trial 0"], 8, {"results": 0.0}, [])
    assert verify(run) == []
    record = run.record | {"duration_seconds": 1.0}
    write_record(run, record)
    assert verify(runs.load_run(run.path)) == [
        "attestations.json cannot be used: it belongs to another record"
    ]


@pytest.mark.parametrize("content", ["{", "3", "{}", "[3]", '[{"computed": "all"}]', "\xff"])
def test_damaged_attestations_are_a_fault_and_hide_no_run(run, without_kernel, capsys, content):
    """A run is shown and listed with them, and is not made again."""
    (run.path / "attestations.json").write_bytes(content.encode("latin-1"))
    fault = "attestations.json cannot be used: "
    (line,) = verify(run)
    assert line.startswith(fault)
    for arguments in (["runs"], ["run", "tiny", "--profile", "paper"]):
        with pytest.raises(SystemExit) as left:
            cli.main(arguments)
        assert not left.value.code
        out = capsys.readouterr().out
        assert f"  {fault}" in out
        assert " took " not in out


@pytest.mark.slow
@pytest.mark.parametrize("version", ["the same", "another"])
def test_only_the_final_states_may_differ_in_last_digits(run, monkeypatch, version):
    """The actions must be the same in another version of the library too."""
    leave_out(monkeypatch, "replay_faults")
    shutil.rmtree(paths.trials_folder())
    if version == "another":
        monkeypatch.setattr(recomputation.trials, "library_digest", lambda: version)
    kept = {name: (run.path / name).read_bytes() for name in ("results.parquet", "final.parquet")}

    def found(name, column, by):
        spoilt = forge(run, **{name: changed_table(run, name, column, by=by)})
        lines = [line for line in verify(spoilt, 8) if "computed again" in line]
        forge(run, **kept)
        return lines

    assert found("final.parquet", "parameter_norm", 1e-12) == []
    for name, column, by in (("final.parquet", "parameter_norm", 1e-6), ("results.parquet", "regret", 1e-12)):
        (line,) = found(name, column, by)
        assert line.endswith(name if version == "the same" else f"{name} (the library has changed since)")


def forged_notebook(run, change):
    """Change the cells of the executed notebook, and all checksums with them."""
    notebook = json.loads((run.path / "tiny.ipynb").read_text())
    change(notebook["cells"])
    return forge(run, **{"tiny.ipynb": json.dumps(notebook).encode()})


def test_forged_cells_are_found_by_comparison_with_the_text(run, monkeypatch):
    """A formula, a sentence and the injected cell are changed so that all outputs stay the same."""
    leave_out(monkeypatch, "replay_faults", "trial_faults", "figure_faults")
    assert verify(run) == []
    stored = (run.path / "tiny.ipynb").read_bytes()

    def found(change):
        lines = verify(forged_notebook(run, change))
        forge(run, **{"tiny.ipynb": stored})
        return lines

    def in_cell(word, old, new):
        def change(cells):
            [one] = [one for one in cells if word in "".join(one["source"])]
            one["source"] = "".join(one["source"]).replace(old, new)

        return change

    text, given = "is not that of the text (notebooks/tiny.md)", "are not those that the notebook was given"
    for word, old, new, message in (
        ("Synthetic(", "norm_bound=2.0", "norm_bound=4.0 / 2", text),
        ("# A tiny experiment", "tiny", "great", text),
        ("# Parameters", "n_trials = 4", "n_trials = 4\nn_rounds += 0", given),
    ):
        [line] = found(in_cell(word, old, new))
        assert message in line
    [line] = found(lambda cells: cells.pop(0))
    assert "cells where its text" in line
    [line] = found(lambda cells: cells[-1]["metadata"].update(tags=["hide-input"]))
    assert "is not that of the text" in line


def test_the_text_is_found_at_the_commit_of_the_run_or_named_as_not_found(run, monkeypatch):
    leave_out(monkeypatch, "replay_faults", "trial_faults", "figure_faults")
    root = paths.project_root()
    for arguments in (["init", "-q"], ["add", "notebooks"], ["commit", "-qm", "x"]):
        git(root, *arguments)
    commit = git(root, "rev-parse", "HEAD")
    text = root / "notebooks" / "tiny.md"
    text.write_text(text.read_text() + "\nMore.\n")

    def checked(**changes):
        report = verification.Report()
        write_record(run, run.record | {"git_commit": commit, "git_clean": True} | changes)
        return verify(runs.load_run(run.path), report=report), report.gaps + report.notes

    place = f"notebooks/tiny.md at commit {commit[:9]}"
    assert checked() == ([], [f"notebooks/tiny.md has changed since; the run has the text of {place}"])
    found, _ = checked(notebook_sha256=provenance.sha256("another"))
    assert found == [
        f"record.json: notebooks/tiny.md at commit {commit[:9]} is not the text that the record names"
    ]
    for changes in ({"git_clean": False}, {"git_commit": None, "git_clean": None}):
        [line], gaps = checked(**changes)
        assert "cells where its text (notebooks/tiny.md, which has changed since" in line
        assert gaps == []
    found, [gap] = checked(git_commit="0" * 40)
    assert found == ["record.json: commit 000000000 is not in this repository, which is complete"]
    assert "commit 000000000 is not in this repository" in gap
    (root / ".git" / "shallow").write_text(f"{commit}\n")
    found, [gap] = checked(git_commit="0" * 40)
    assert found == []
    (root / ".git" / "shallow").unlink()
    (root / "requirements.lock").write_text("numpy==1\n")
    for arguments in (["add", "requirements.lock"], ["commit", "-qm", "y"]):
        git(root, *arguments)
    [line], _ = checked(git_commit=git(root, "rev-parse", "HEAD"), lock_sha256="0" * 64)
    assert "its lock_sha256 is not that of requirements.lock" in line


def test_outputs_that_were_removed_or_renamed_are_found():
    """Two outputs also differ if kinds of content, stream or metadata differ."""
    picture = base64.b64encode(b"a").decode()
    shown = nbformat.v4.new_output("display_data", data={"text/plain": "x", "image/png": picture})
    said = nbformat.v4.new_output("stream", name="stdout", text="x")
    assert list(replay._output_faults([shown, said], [shown, said])) == []
    bare = nbformat.v4.new_output("display_data", data={"text/plain": "x"})
    assert list(replay._output_faults([bare], [shown])) == ["the image/png output is not stored"]
    assert list(replay._output_faults([shown], [bare])) == [
        "the image/png output is stored and not made again"
    ]
    loud = nbformat.v4.new_output("stream", name="stderr", text="x")
    [line] = replay._output_faults([loud], [said])
    assert line == "the name of an output is 'stdout' where 'stderr' is stored"
    wide = nbformat.v4.new_output("display_data", data=shown.data, metadata={"width": 1})
    [line] = replay._output_faults([wide], [shown])
    assert line.startswith("the metadata of an output is")


def test_margins_are_compared_up_to_the_roundoff_of_scores():
    table = pd.DataFrame({"smallest_margin": [1e-10, np.inf], "parameter_norm": [1.0, 1.0]})
    for by, same in ((1e-14, True), (1e-11, False)):
        other = table.assign(smallest_margin=table["smallest_margin"] + by)
        assert (recomputation.differences(table, other, 1e-9) == []) == same
    assert recomputation.differences(table, table.assign(smallest_margin=np.nan), 1e-9)
    absent = table.assign(smallest_margin=pd.Series([1e-10, None], dtype=object))
    assert recomputation.differences(absent, absent.copy(), 1e-9) == []


def test_all_trials_find_what_a_sample_misses(run, monkeypatch):
    """A number outside the sample, a margin and the data are changed, and all checksums with them."""
    leave_out(monkeypatch, "replay_faults", "figure_faults")
    # The same sample twice, since another one might hit the trial that is changed.
    first = SimpleNamespace(sample=lambda items, number: list(items)[:number])
    monkeypatch.setattr(recomputation, "_RANDOM", first)
    shutil.rmtree(paths.trials_folder())  # as in a clone
    said = []
    assert verify(run, 1, verification.Report(said.append)) == []
    assert len(said) == 1
    sampled = said[0].split("computed again: tiny, ")[1].split(" (1 of 1")[0]
    table = pd.read_parquet(run.path / "results.parquet")
    names = table["setting"].astype(str) + ", trial " + table["trial"].astype(str)
    outside = next(i for i, name in enumerate(names) if name != sampled)
    kept = {name: (run.path / name).read_bytes() for name in ("results.parquet", "study.json")}
    forged = forge(run, **{"results.parquet": changed_table(run, "results.parquet", "regret", outside, 0.25)})
    assert verify(forged, 1) == []
    said = []
    (line,) = verify(forged, None, verification.Report(said.append))
    assert line == f"tiny, {names[outside]}: computed again, it gives other rows of results.parquet"
    assert len(said) == 8
    forge(run, **kept)
    study = json.loads((run.path / "study.json").read_text())
    study["studies"][0]["smallest_margin"][0]["after_round_1"] *= 2
    study["studies"][0]["data"] = [{"name": "MNIST", "rows": 70000, "source": "x", "sha256": "0"}]
    found = verify(forge(run, **{"study.json": json.dumps(study).encode()}), None)
    assert found[0] == "study.json: it used other data of the name MNIST than were asked for"
    assert found[1] == "study.json: tiny names other data than those of its problems"
    assert found[2].startswith("study.json: tiny, ")
    assert found[2].endswith("computed again, its margin differs")
    assert len(found) == 3
    more = pd.concat([table, table.assign(trial=np.int32(9))], ignore_index=True)
    stream = io.BytesIO()
    more.to_parquet(stream, index=False)
    forge(run, **kept)
    found = verify(forge(run, **{"results.parquet": stream.getvalue()}))
    assert "results.parquet: small, trial 9, is of no study" in found


def test_a_run_is_read_back_without_its_data(run, monkeypatch, tmp_path):
    """The run describes its data, and the trials that cannot be computed without them are named."""
    from compendium.experiments.problems import Classes, Rated, Synthetic
    from compendium.experiments.study import Study, measured

    setting = trials.Setting(
        name="rated", problem=Rated(source="insteval"), sketch_size=2, regularization=1.0, step_size=1.0,
        norm_bound=1.0, radius={"kind": "ridge", "scale": 0.1}, policies=("random",),
    )  # fmt: skip
    plain = setting.model_copy(update={
        "name": "plain", "problem": Synthetic(dimension=3, rewards=(1.0,), parameter_norm=1.0)
    })  # fmt: skip
    study = Study(experiment="x", settings=(setting, plain), n_rounds=2, n_trials=2, seed=1)
    data = {"name": "InstEval", "rows": 7, "n_features": 11, "sha256": "0" * 64}
    content = {"studies": [{"data": [data]}], "findings": {"peak": [1.5]}}
    (run.path / "study.json").write_text(json.dumps(content))
    monkeypatch.chdir(run.path)
    assert setting.problem.data() == data
    assert setting.problem.n_features == 11
    assert study.specs()[0].identity()["data"] == "0" * 64
    with pytest.raises(ValueError, match="Fashion-MNIST is not on this machine"):  # the run did not have it
        Classes(source="fashion").data()
    assert measured("peak", lambda: pytest.fail("measured again")) == [1.5]
    with pytest.raises(ValueError, match="holds no measurement 'other'"):
        measured("other", lambda: 1)
    monkeypatch.chdir(tmp_path)
    assert measured("peak", lambda: 2) == 2
    assert list(measured("absent", lambda: {"b": 1, "a": 2})) == ["a", "b"]  # as it is read back

    def absent(self):
        raise recomputation.DataError("needs a package")

    monkeypatch.setattr(Rated, "found", absent)
    known, gaps = recomputation._with_their_data(study.specs(), {})
    assert [spec.setting.name for spec in known] == ["plain", "plain"]
    assert gaps == ["2 trials of x cannot be computed again: needs a package"]
    monkeypatch.setattr(Rated, "found", lambda self: data | {"sha256": "1" * 64})
    known, gaps = recomputation._with_their_data(study.specs(), {"InstEval": "0" * 64})
    why = "the run had other data of the name InstEval than this machine"
    assert gaps == [f"2 trials of x cannot be computed again: {why}"]
    [line] = recomputation._data_faults(study, [data | {"rows": 8, "sha256": "1" * 64}])
    assert line == "study.json: x does not describe InstEval as it is"


def test_a_run_is_verified_with_the_digits_that_it_used(run, monkeypatch):
    """A run used the shipped digits, and on this machine the variable names a folder with others."""
    monkeypatch.setenv("MLOGB_MNIST", "/nowhere")
    record = {"study": {"studies": [{"data": [
        {"name": "MNIST", "sha256": "0", "source": verification.SHIPPED_SOURCE}
    ]}]}}  # fmt: skip
    with verification._recorded_digits(runs.Run(run.path, record)):
        assert os.environ["MLOGB_MNIST"] == verification.SHIPPED
    assert os.environ["MLOGB_MNIST"] == "/nowhere"


def test_a_run_behind_a_symbolic_link(run, without_kernel, tmp_path, capsys, monkeypatch):
    """The folder of the runs may be a link to a larger disk, and the project may be reached by a link."""
    folder = paths.runs_folder()
    shutil.move(folder, tmp_path / "disk")
    folder.symlink_to(tmp_path / "disk")
    (tmp_path / "way").symlink_to(paths.project_root())
    inside = run.path.relative_to(folder)
    for place in (run.path, tmp_path / "disk" / inside, tmp_path / "way" / "papermill_runs" / inside):
        with pytest.raises(SystemExit) as stopped:
            cli.main(["verify", str(place)])
        assert (stopped.value.code, capsys.readouterr().out) == (0, f"{run.name}: verified\n")
    shutil.copytree(tmp_path / "disk" / inside, tmp_path / "copy")
    with pytest.raises(SystemExit) as stopped:
        cli.main(["verify", str(tmp_path / "copy")])
    assert stopped.value.code == 2
    assert "copy is not in the project at" in capsys.readouterr().err


def test_trials_whose_package_is_not_installed_are_said_and_not_computed(monkeypatch):
    setting = {
        "name": "peers",
        "problem": {"kind": "synthetic", "dimension": 3, "rewards": (1.0,), "parameter_norm": 1.0},
        "regularization": 1.0, "step_size": 1.0, "sketch_size": 1, "norm_bound": 1.0,
        "radius": {"kind": "theorem", "confidence": 0.1},
    }  # fmt: skip
    specs = [
        TrialSpec(experiment="e", setting=setting | {"policies": policies}, n_rounds=2, seed=0, trial=0)
        for policies in (("random",), ("random", "vw-cover"))
    ]
    monkeypatch.setattr(recomputation, "find_spec", lambda _: None)
    known, gaps = recomputation._with_their_data(specs, {})
    assert known == specs[:1]
    assert gaps == [
        "1 trials of e cannot be computed again: vowpalwabbit is not installed: `make peers` brings it"
    ]
    monkeypatch.setattr(recomputation, "find_spec", lambda _: object())
    assert recomputation._with_their_data(specs, {}) == (specs, [])
