"""A server extension with which JupyterLab saves notebooks as ``mlogb notebooks build`` writes them.

When a notebook is opened and saved, Jupyter stores the versions of kernel and Python in it, and other cell
ids. A text and its notebook would then differ from the commit without an edit. If a notebook is paired with a
text, this extension puts it into its stored form when it is saved. When it is opened, the extension adds the
description of the language that JupyterLab expects: otherwise JupyterLab adds it and shows the notebook as
unsaved. Other notebooks are not changed.

``make setup`` enables the extension by copying ``lab.json`` to where the environment's Jupyter looks for
extensions.
"""

from __future__ import annotations

from copy import deepcopy
from inspect import isawaitable
from pathlib import Path
from typing import Any

import nbformat

from compendium.runs.notebooks import fold, normalise
from compendium.system.paths import notebooks_folder, project_root


def stored_form(model: dict[str, Any], path: str, contents_manager: Any, **_: Any) -> None:
    """Put a notebook that is about to be saved into the form in which it is stored.

    Parameters
    ----------
    model : dict
        Jupyter's model of the file; its content is replaced.
    path : str
        Where it will be saved, relative to the server's root.
    contents_manager : ContentsManager
        The manager that saves the file; its ``root_dir`` is the server's root.
    """
    if not _is_paired(model, path, contents_manager):
        return
    notebook = normalise(nbformat.from_dict(model["content"]))  # type: ignore[no-untyped-call]
    pair = notebook.metadata.setdefault("jupytext", {})
    pair["text_representation"] = {"extension": ".md", "format_name": "myst"}  # jupytext drops it
    model["content"] = notebook


def opened_form(model: dict[str, Any], contents_manager: Any) -> dict[str, Any]:
    """Add the kernel's description of the language to a model that is about to be opened, and collapse cells.

    JupyterLab writes ``language_info`` into the notebook as soon as the kernel has answered, and marks the
    notebook as unsaved if that changes it. It always would, because the stored form has no version of Python.
    Which cells are collapsed follows from their tags, because jupytext reads only the tags from the text.

    Parameters
    ----------
    model : dict
        Jupyter's model of the file, which its ``path`` names; a paired notebook's content is changed.
    contents_manager : ContentsManager
        The manager that read the file; its ``root_dir`` is the server's root.

    Returns
    -------
    dict
        The same model.
    """
    # This import connects the widgets of this process to a kernel, so it is not done before it is needed.
    from ipykernel.ipkernel import IPythonKernel

    if model.get("content") is not None and _is_paired(model, model["path"], contents_manager):
        model["content"]["metadata"]["language_info"] = deepcopy(IPythonKernel.language_info)
        for cell in model["content"]["cells"]:
            fold(cell["metadata"])
    return model


def _is_paired(model: dict[str, Any], path: str, contents_manager: Any) -> bool:
    """Whether a model is a notebook of the project, or of another paper in it, with a text beside it."""
    file = Path(contents_manager.root_dir, path.strip("/")).resolve()
    is_ours = any(file.is_relative_to(place) for place in (notebooks_folder(), project_root() / "papers"))
    return model.get("type") == "notebook" and is_ours and file.with_suffix(".md").is_file()


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "compendium.runs.lab"}]


def without_news(_handler: Any, page_config: dict[str, Any]) -> dict[str, Any]:
    """Switch off the plugin of JupyterLab that asks at the first start whether it may fetch news.

    Parameters
    ----------
    page_config : dict
        The configuration of JupyterLab's page; changed in place.

    Returns
    -------
    dict
        The same dictionary.
    """
    disabled = page_config.get("disabledExtensions", [])
    page_config["disabledExtensions"] = [*disabled, "@jupyterlab/apputils-extension:announcements"]
    return page_config


def _load_jupyter_server_extension(server: Any) -> None:
    server.web_app.settings.setdefault("page_config_hook", without_news)


async def _start_jupyter_server_extension(server: Any) -> None:
    """Register the hook for saving, and replace the method that opens, for which Jupyter has no hook.

    Jupyter calls this after all extensions are loaded. It must not be done earlier, because jupytext's
    extension replaces the manager of contents, and Jupyter warns of a hook that is registered twice.
    """
    manager = server.contents_manager
    manager.register_pre_save_hook(stored_form)
    read = manager.get

    async def awaited(model: Any) -> dict[str, Any]:
        return opened_form(await model, manager)

    def get(*arguments: Any, **options: Any) -> Any:
        model = read(*arguments, **options)
        return awaited(model) if isawaitable(model) else opened_form(model, manager)

    manager.get = get
