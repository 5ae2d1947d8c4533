"""JupyterLab: what it saves of the project's notebooks is what ``mlogb notebooks build`` would write.

Left alone, Jupyter notes the kernel's version, the language's and its own ids in every notebook that is
opened and saved, and the pair of text and notebook is dirty without an edit. This server extension puts a
paired notebook into its stored form on the way to the disk, and gives it what the kernel is about to note on
the way to the page, or the page shows it as unsaved. Other notebooks are none of its business.
``make setup`` enables it, by a copy of ``lab.json`` where the environment's Jupyter looks for extensions.
"""

from __future__ import annotations

from copy import deepcopy
from inspect import isawaitable
from pathlib import Path
from typing import Any

import nbformat

from compendium.runs.notebooks import normalise
from compendium.system.paths import notebooks_folder


def stored_form(model: dict[str, Any], path: str, contents_manager: Any, **_: Any) -> None:
    """Put a notebook that is about to be saved into the form in which it is stored.

    Parameters
    ----------
    model : dict
        Jupyter's model of the file; its content is replaced.
    path : str
        Where it will be saved, relative to the server's root.
    contents_manager : ContentsManager
        The one that saves; its ``root_dir`` is the server's root.
    """
    if not _is_paired(model, path, contents_manager):
        return
    notebook = normalise(nbformat.from_dict(model["content"]))  # type: ignore[no-untyped-call]
    pair = notebook.metadata.setdefault("jupytext", {})
    pair["text_representation"] = {"extension": ".md", "format_name": "myst"}  # jupytext drops it
    model["content"] = notebook


def opened_form(model: dict[str, Any], contents_manager: Any) -> dict[str, Any]:
    """Return a model that is about to be opened, with the language as the kernel describes it.

    JupyterLab writes ``language_info`` into the notebook once its kernel has answered, and marks the notebook
    as unsaved when that is a change. The stored form has no version of Python, so it always would be.

    Parameters
    ----------
    model : dict
        Jupyter's model of the file, which its ``path`` names; a paired notebook's content is changed.
    contents_manager : ContentsManager
        The one that read it; its ``root_dir`` is the server's root.

    Returns
    -------
    dict
        The same model.
    """
    # Not above: the import has widgets of this process talk to a kernel, and the doctests import this module.
    from ipykernel.ipkernel import IPythonKernel

    if model.get("content") is not None and _is_paired(model, model["path"], contents_manager):
        model["content"]["metadata"]["language_info"] = deepcopy(IPythonKernel.language_info)
    return model


def _is_paired(model: dict[str, Any], path: str, contents_manager: Any) -> bool:
    """Whether this is a notebook of the project that has a text."""
    file = Path(contents_manager.root_dir, path.strip("/")).resolve()
    is_ours = model.get("type") == "notebook" and file.is_relative_to(notebooks_folder())
    return is_ours and file.with_suffix(".md").is_file()


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "compendium.runs.lab"}]


def _load_jupyter_server_extension(server: Any) -> None:
    server.contents_manager.register_pre_save_hook(stored_form)
    # Loaded after this, jupytext puts a manager of its own in its place, which goes by the settings.
    server.config.ContentsManager.setdefault("pre_save_hook", stored_form)


async def _start_jupyter_server_extension(server: Any) -> None:
    """Reach the contents manager that stays: this runs after all extensions were loaded.

    Jupyter has hooks around saving, none around opening, hence the wrapped method.
    """
    manager = server.contents_manager
    read = manager.get

    async def awaited(model: Any) -> dict[str, Any]:
        return opened_form(await model, manager)

    def get(*arguments: Any, **options: Any) -> Any:
        model = read(*arguments, **options)
        return awaited(model) if isawaitable(model) else opened_form(model, manager)

    manager.get = get
