"""The pairs of text and notebook: how they are built and checked."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from batch_project import HEADER, cell, make_project

from compendium.runs import notebooks
from compendium.runs.notebooks import build, check, check_executed
from compendium.system.paths import FailureError, UsageError

PLAIN = cell(
    "import sys\nprint(n_rounds, flush=True)\nprint('x', file=sys.stderr, flush=True)\nprint(2, flush=True)"
)
PLOT = cell("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A project whose notebook was built: its text, and the bytes of the notebook."""
    root = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLOGB_ROOT", str(root))
        patch.setenv("MPLBACKEND", "Agg")
        patch.setenv("MLOGB_RUN_DIR", str(root / "elsewhere"))
        environment = cell(
            'import os; print([os.environ.get(k) for k in ("MLOGB_RUN_DIR", "OMP_NUM_THREADS")])'
        )
        note = '\n+++ {"tags": ["note"]}\n\nMore.\n'
        text = make_project(root, PLAIN, PLOT, environment, note, cell(":tags: [hide-input]\n\n1"))
        (text.parent / "README.md").write_text("# Not a notebook\n")
        assert build() == [text.with_suffix(".ipynb")]
        assert os.environ["MPLBACKEND"] == "Agg"
    return text, text.with_suffix(".ipynb").read_bytes()


@pytest.fixture
def pair(built, tmp_path, monkeypatch):
    """A fresh copy of the built pair: the text and the notebook."""
    text = make_project(tmp_path)
    text.write_bytes(built[0].read_bytes())
    notebook = text.with_suffix(".ipynb")
    notebook.write_bytes(built[1])
    monkeypatch.setenv("MLOGB_ROOT", str(tmp_path))
    return text, notebook


def edit(path: Path, change) -> None:
    notebook = nbformat.read(path, as_version=4)
    change(notebook)
    path.write_text(notebooks.dumps(notebook))


@pytest.mark.slow
def test_building_twice_gives_the_same_bytes(pair):
    first = pair[1].read_bytes()
    pair[1].unlink()
    assert build() == [pair[1]]
    assert pair[1].read_bytes() == first


def test_the_stored_form_of_a_notebook(pair):
    notebook = nbformat.read(pair[1], as_version=4)
    assert [c.id for c in notebook.cells] == [f"cell-{n:02d}" for n in range(1, len(notebook.cells) + 1)]
    assert set(notebook.metadata) == {"kernelspec", "language_info", "jupytext"}
    assert "version" not in notebook.metadata.language_info
    assert [set(c.metadata) for c in notebook.cells if c.metadata] == [{"tags"}] * 2 + [{"jupyter", "tags"}]
    plain, plot, environment = [c for c in notebook.cells if c.cell_type == "code"][1:4]
    assert [(o.name, o.text) for o in plain.outputs] == [("stdout", "10\n2\n"), ("stderr", "x\n")]
    assert any("image/png" in output.get("data", {}) for output in plot.outputs)
    assert environment.outputs[0].text == "[None, '1']\n"


def test_cells_that_the_book_folds_are_collapsed_in_jupyterlab(pair):
    hidden = [c.metadata.get("jupyter") for c in nbformat.read(pair[1], as_version=4).cells]
    assert hidden == [None] * (len(hidden) - 1) + [{"source_hidden": True}]
    assert "source_hidden" not in pair[0].read_text()
    notebook = nbformat.read(pair[1], as_version=4)
    notebook.cells[-1].metadata.pop("jupyter")  # a reader unfolded one cell and folded another
    notebook.cells[2].metadata["jupyter"] = {"source_hidden": True, "outputs_hidden": False}
    assert notebooks.dumps(notebooks.normalise(notebook)) == pair[1].read_text()


def test_a_built_pair_has_no_fault(pair):
    assert check() == []


@pytest.mark.parametrize(
    "target", ["notebooks", "notebooks/tiny.md", "notebooks/tiny.ipynb", "notebooks/tiny"]
)
def test_a_target_is_a_folder_or_either_file_of_a_pair(pair, tmp_path, target):
    edit(pair[1], lambda n: n.cells[-1].update(execution_count=None))
    assert any("was not executed" in fault for fault in check([tmp_path / target]))


def test_an_unknown_target_is_refused(pair, tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        check([tmp_path / "nothing.md"])


@pytest.mark.parametrize("command", [build, check])
def test_a_named_file_that_is_no_notebook_is_refused(pair, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notebooks" / "README.md").write_text("# Not a notebook\n")
    (tmp_path / "notebooks" / "alone.ipynb").touch()
    for name in ("README.md", "alone.ipynb"):
        with pytest.raises(UsageError, match=rf"^notebooks/{name} is no notebook: "):
            command([Path("notebooks", name)])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("# A tiny", "# A small", "notebooks/tiny.md: the text differs from tiny.ipynb"),
        ("# A tiny", cell(":tags: [parameters]\n\nn = 1") + "# A tiny", "more than one cell is tagged"),
        ("format_version: 0.13", "format_version: 0.13\n    jupytext_version: 1.0.0", "jupytext version"),
        ("format_version: 0.13", "format_version: 0.14", None),
    ],
)
def test_a_changed_text_is_found(pair, old, new, message):
    """The version of the format alone does not matter."""
    kept = pair[0].read_text()
    assert old in kept
    pair[0].write_text(kept.replace(old, new))
    found = check()
    assert any(message in fault for fault in found) if message else found == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda n: n.cells[1].metadata.pop("tags"), "cell 2 lost its tag in the notebook: parameters"),
        (lambda n: n.cells[1].metadata.update(tags=["parameters"] * 2), "cell 2 has a tag twice"),
        (lambda n: n.cells[2].metadata.update(tags=["injected-parameters"]), "cell 3 was injected"),
        (lambda n: n.cells[-1].update(execution_count=None), "code cell 5 (1) was not executed"),
        (
            lambda n: n.cells[-1].update(execution_count=9),
            "code cell 5 (1) was executed out of order, as [9]",
        ),
        (lambda n: n.cells[2].update(source="print(3)"), "the text differs"),
        (lambda n: n.metadata.language_info.update(version="3.11.2"), "was not written by"),
        (lambda n: n.cells[-1].metadata.pop("jupyter"), "was not written by"),
        (lambda n: n.cells[2].outputs[0].update(text="<A at 0x7f8a12345678>"), "a memory address"),
        (lambda n: n.cells[2].outputs[0].update(text="/tmp/ipykernel_7/8.py:1: W"), "prints a path"),
        (lambda n: n.cells[2].outputs[0].update(text=os.environ["MLOGB_ROOT"] + "/x.py"), "prints a path"),
    ],
)
def test_a_changed_notebook_is_found(pair, change, message):
    edit(pair[1], change)
    assert any(message in fault for fault in check()), check()


def test_a_missing_file_of_a_pair_is_found(pair):
    text, notebook = pair
    kept = text.read_bytes()
    text.unlink()
    assert check() == ["notebooks/tiny.ipynb: its text tiny.md is missing"]
    text.write_bytes(kept)
    notebook.unlink()
    [fault] = check()
    assert fault.startswith("notebooks/tiny.md: its notebook tiny.ipynb is missing")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("1 / 0", r"tiny\.md: code cell 2 \(1 / 0\) failed: ZeroDivisionError: division by zero"),
        ("import os; os._exit(1)", r"tiny\.md: the kernel died"),
        ("import warnings; warnings.warn('w')", r"code cell 2 .* prints a path of this machine"),
        ("while True: pass", r"tiny\.md: .*timed out"),
    ],
)
def test_a_notebook_that_fails_or_is_not_portable_is_not_written(pair, code, message):
    text, notebook = pair
    before = notebook.read_bytes()
    text.write_text(HEADER + cell(code))
    with pytest.raises(FailureError, match=message):
        build([text], timeout=3)
    assert notebook.read_bytes() == before


def test_execution_counts_must_begin_at_one():
    code = nbformat.v4.new_code_cell
    good = [code("a", execution_count=1), code(" "), code("b", execution_count=2)]
    assert check_executed(nbformat.v4.new_notebook(cells=good)) == []
    shifted = [code("a", execution_count=2), code("b", execution_count=3)]
    assert len(check_executed(nbformat.v4.new_notebook(cells=shifted))) == 2


WITHOUT_SOURCE = (
    '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, '
    '"cells": [{"cell_type": "raw", "id": "a", "metadata": {}}]}'
)


@pytest.mark.parametrize("content", ["{", "[]", "", WITHOUT_SOURCE])
def test_a_file_that_is_no_notebook_is_named(pair, content):
    text, notebook = pair
    notebook.write_text(content)
    (fault,) = check([text])
    assert "is not a notebook" in fault
