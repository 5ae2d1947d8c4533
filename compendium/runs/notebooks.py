"""The notebooks: the MyST text is the source, and the paired ``.ipynb`` is built from it and never edited.

``build`` executes a text and writes its notebook; done twice, it writes the same bytes. ``check`` compares
the two without executing anything. ``jupytext --sync`` is not used, because it takes the file with the later
time for the newer one, so that after a clone it may silently replace a text by an older one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from jupytext.config import load_jupytext_config

from compendium.system.kernels import CLIENT_OPTIONS, KERNEL, kernel_environment
from compendium.system.paths import FailureError, UsageError, notebooks_folder, project_root, write_atomically

#: The tag of a cell whose code is folded, in the book and in JupyterLab.
FOLDED = "hide-input"

# Metadata of cells that are not stored. "jupyter" says which cells JupyterLab collapses; `fold` sets it from
# the tags.
_VOLATILE = ("execution", "jupyter", "papermill", "trusted")
_WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
_VARIES = re.compile(r"/ipykernel_\d+/|\bat 0x[0-9a-f]{6,}")
_VERSION_LINE = re.compile(r"^\s+(jupytext_version|format_version):.*\n", re.MULTILINE)
_HEADER = re.compile(r"\A---\n.*?^---\n", re.DOTALL | re.MULTILINE)


def build(targets: Iterable[Path] | None = None, timeout: int = 600) -> list[Path]:
    """Execute notebook texts and write the paired notebooks.

    Parameters
    ----------
    targets : iterable of Path, optional
        Notebooks (either side of the pair) or folders of them; all of ``notebooks/`` by default.
    timeout : int
        Seconds that one cell may take.

    Returns
    -------
    list of Path
        The notebooks that were written.

    Raises
    ------
    FailureError
        If a cell failed, or an output has something that differs between runs or machines. Such a notebook is
        not written; the others are. Also if the text cannot be made again from a notebook that was written.
    """
    written, failures = [], []
    for text in _texts(targets):
        notebook = jupytext.read(text, fmt="md:myst")
        faults = _execute(notebook, text, timeout) or _unportable(notebook)
        if faults:
            failures += [f"{_shown(text)}: {fault}" for fault in faults]
            continue
        pair = text.with_suffix(".ipynb")
        write_atomically(pair, dumps(normalise(notebook)))
        written.append(pair)
        failures += check([pair])  # it finds, for example, a header that jupytext does not keep
    if failures:
        raise FailureError("\n".join(failures))
    return written


def check(targets: Iterable[Path] | None = None) -> list[str]:
    """Return what is wrong with the pairs of text and notebook, without executing or writing anything.

    Parameters
    ----------
    targets : iterable of Path, optional
        As for `build`.

    Returns
    -------
    list of str
        One line per fault, starting with the file.
    """
    faults = []
    for text in _texts(targets):
        faults += [f"{_shown(text)}: {fault}" for fault in _check_pair(text)]
    for pair in _files(targets, ".ipynb"):
        if not pair.with_suffix(".md").is_file():
            faults.append(f"{_shown(pair)}: its text {pair.stem}.md is missing")
    return faults


def check_executed(notebook: Any) -> list[str]:
    """Return which code cells were not executed, not in order, or with an error.

    Parameters
    ----------
    notebook : NotebookNode
        A notebook in format 4.

    Returns
    -------
    list of str
        One line per fault. Empty if the non-empty code cells have the execution counts
        1, 2, 3, ... and no error output.

    Notes
    -----
    The metadata of papermill is not used, because it says "completed" even if the kernel died.
    """
    faults = []
    cells = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    for number, cell in enumerate(cells, start=1):
        errors = [output for output in cell.outputs if output.output_type == "error"]
        if errors:
            faults.append(f"{_named(number, cell)} failed: {errors[0].ename}: {errors[0].evalue}")
        elif cell.execution_count is None:
            faults.append(f"{_named(number, cell)} was not executed")
        elif cell.execution_count != number:
            faults.append(f"{_named(number, cell)} was executed out of order, as [{cell.execution_count}]")
    return faults


def normalise(notebook: Any) -> Any:
    """Return the notebook without anything that differs between two runs or two machines.

    Cell ids become ``cell-01``, ``cell-02``, ... Times, states of widgets, and versions of kernel and
    language are removed; metadata that the text can hold are kept. Of the outputs, the views of widgets are
    removed, since they have another identifier in each execution, and the text beside them is kept. The cells
    that are collapsed in JupyterLab are those with the tag ``hide-input``, which the book folds. So the file
    stays as it was if a reader unfolds a cell and saves.
    """
    notebook = deepcopy(notebook)
    metadata = {
        "kernelspec": KERNEL,
        "language_info": {"name": "python", "pygments_lexer": "ipython3"},
    }
    if "jupytext" in notebook.metadata:
        kept = {key: value for key, value in notebook.metadata.jupytext.items() if key != "default_lexer"}
        kept.get("text_representation", {}).pop("jupytext_version", None)
        metadata["jupytext"] = kept
    cells = []
    for number, cell in enumerate(notebook.cells, start=1):
        kept = {key: value for key, value in cell.metadata.items() if key not in _VOLATILE and value != []}
        fold(kept)
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(_WIDGET_VIEW, None)
        cells.append({**cell, "id": f"cell-{number:02d}", "metadata": kept})
    whole = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return nbformat.from_dict(whole)  # type: ignore[no-untyped-call]


def fold(metadata: dict[str, Any]) -> None:
    """Let JupyterLab collapse a cell that has the tag ``hide-input``.

    Parameters
    ----------
    metadata : dict
        The metadata of the cell, changed in place.
    """
    if FOLDED in metadata.get("tags", []):
        metadata["jupyter"] = {"source_hidden": True}


def dumps(notebook: Any) -> str:
    """Return the JSON text of a notebook in the form in which it is stored."""
    text: str = nbformat.writes(notebook, version=4)  # type: ignore[no-untyped-call]
    return text.rstrip("\n") + "\n"


def _execute(notebook: Any, text: Path, timeout: int) -> list[str]:
    """Execute a notebook in the folder of its text, add the outputs to it, and return what went wrong."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellControlSignal, CellExecutionError, DeadKernelError

    notebook.metadata["kernelspec"] = KERNEL
    client = NotebookClient(
        notebook,
        timeout=timeout,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(text.parent)}},
        **CLIENT_OPTIONS,
    )
    try:
        with kernel_environment():
            client.execute()
    except CellExecutionError:
        pass  # `check_executed` finds the error in the outputs of the cell
    except DeadKernelError:
        return [f"the kernel died ({fault})" for fault in check_executed(notebook)[:1]] or ["the kernel died"]
    except CellControlSignal as error:  # a cell took too long
        return [str(error).strip().splitlines()[0]]
    return check_executed(notebook)[:1]


def _check_pair(text: Path) -> Iterator[str]:
    """Yield what is wrong with one text and its notebook."""
    source = text.read_text(encoding="utf-8")
    header = _HEADER.match(source)
    if header and "jupytext_version:" in header.group():
        yield "the header names a jupytext version, which differs between machines; take the line out"
    pair = text.with_suffix(".ipynb")
    if not pair.is_file():
        yield f"its notebook {pair.name} is missing; run `mlogb notebooks build`"
        return
    stored = pair.read_text(encoding="utf-8")
    try:
        notebook = nbformat.reads(stored, as_version=4)  # type: ignore[no-untyped-call]
        whole = all("source" in cell and "metadata" in cell for cell in notebook.cells)
    except (ValueError, AttributeError):  # among them NotJSONError
        whole = False
    if not whole:
        yield f"{pair.name} is not a notebook; run `mlogb notebooks build`"
        return
    yield from check_executed(notebook)
    yield from _check_tags(jupytext.reads(source, fmt="md:myst"), notebook)
    rebuilt = dumps(normalise(notebook))
    made = jupytext.writes(notebook, fmt="md:myst", config=load_jupytext_config(str(text)))
    if _without_versions(made) != _without_versions(source):
        yield f"the text differs from {pair.name}; edit the text and run `mlogb notebooks build`"
    elif rebuilt != stored:
        yield f"{pair.name} was not written by `mlogb notebooks build`"
    yield from _unportable(notebook)


def _check_tags(source: Any, notebook: Any) -> Iterator[str]:
    """Yield which cells have a repeated tag, a tag of papermill, or a tag in the text alone."""
    for number, cell in enumerate(notebook.cells, start=1):
        tags = cell.metadata.get("tags", [])
        if len(set(tags)) < len(tags):
            yield f"cell {number} has a tag twice: {', '.join(tags)}"
        if "injected-parameters" in tags:
            yield f"cell {number} was injected by papermill"
    if sum("parameters" in cell.metadata.get("tags", []) for cell in source.cells) > 1:
        yield "more than one cell is tagged parameters"
    if len(source.cells) == len(notebook.cells):
        for number, (ours, theirs) in enumerate(zip(source.cells, notebook.cells, strict=True), start=1):
            lost = set(ours.metadata.get("tags", [])) - set(theirs.metadata.get("tags", []))
            if lost:
                yield f"cell {number} lost its tag in the notebook: {', '.join(sorted(lost))}"


def _unportable(notebook: Any) -> list[str]:
    """Return which outputs contain a path of this machine or a memory address."""
    faults = []
    cells = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    for number, cell in enumerate(cells, start=1):
        shown = "\n".join(
            str(part) for output in cell.outputs for part in (output.get("text", ""), output.get("data", {}))
        )
        if str(project_root()) in shown or _VARIES.search(shown):
            faults.append(f"{_named(number, cell)} prints a path of this machine or a memory address")
    return faults


def _texts(targets: Iterable[Path] | None) -> list[Path]:
    """Return the MyST texts that are notebooks: those whose header names a kernel."""
    found = []
    for text in _files(targets, ".md"):
        header = _HEADER.match(text.read_text(encoding="utf-8"))
        if header and re.search(r"^(jupytext|kernelspec):", header.group(), re.MULTILINE):
            found.append(text)
    for target in targets or ():
        text = target.with_suffix(".md")
        if not target.is_dir() and text.resolve() not in found:
            raise UsageError(
                f"{target} is no notebook: {text.name} is missing, or its header names no kernel"
            )
    return found


def _files(targets: Iterable[Path] | None, suffix: str) -> list[Path]:
    """Return the files of one suffix that the targets name, sorted."""
    found: set[Path] = set()
    for asked in [notebooks_folder()] if targets is None else targets:
        target = asked.resolve()
        named = target.with_suffix(suffix)
        if target.is_dir():
            found.update(p for p in target.rglob(f"*{suffix}") if ".ipynb_checkpoints" not in p.parts)
        elif named.is_file():
            found.add(named)
        elif not (target.is_file() or target.with_suffix(".md").is_file()):
            raise UsageError(f"{asked} does not exist")
    return sorted(found)


def _without_versions(text: str) -> str:
    """Remove the versions of jupytext and of its format from the header."""
    return _HEADER.sub(lambda match: _VERSION_LINE.sub("", match.group()), text, count=1)


def _named(number: int, cell: Any) -> str:
    return f"code cell {number} ({cell.source.strip().splitlines()[0][:60]})"


def _shown(path: Path) -> str:
    root = project_root()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)
