"""A server extension of JupyterLab, which then saves notebooks as ``mlogb notebooks build`` writes them.

When a notebook is opened and saved, Jupyter stores in it the versions of the kernel and of Python and ids of
its own. A text and its notebook would then differ from the commit without an edit. This extension puts a
notebook that has a text into its stored form when it is saved. When one is opened, it adds what JupyterLab
expects to find about the language: JupyterLab would add it and show the notebook as unsaved. All other
notebooks are left alone.

``make setup`` enables it, by a copy of ``lab.json`` where the environment's Jupyter looks for extensions.
"""

from __future__ import annotations

from copy import deepcopy
from inspect import isawaitable
from pathlib import Path
from typing import Any

import nbformat

from compendium.runs.notebooks import fold, normalise
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
    """Return a model that is about to be opened, with the language as the kernel describes it, and folded.

    JupyterLab writes ``language_info`` into the notebook as soon as its kernel has answered, and marks the
    notebook as unsaved if that is a change. It would always be one: the stored form has no version of Python.
    Which cells are collapsed follows from their tags, which is all that jupytext takes from the text.

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
    # Imported here because the import connects the widgets of this process to a kernel.
    from ipykernel.ipkernel import IPythonKernel

    if model.get("content") is not None and _is_paired(model, model["path"], contents_manager):
        model["content"]["metadata"]["language_info"] = deepcopy(IPythonKernel.language_info)
        for cell in model["content"]["cells"]:
            fold(cell["metadata"])
    return model


def _is_paired(model: dict[str, Any], path: str, contents_manager: Any) -> bool:
    """Whether a model is a notebook of the project with a text beside it."""
    file = Path(contents_manager.root_dir, path.strip("/")).resolve()
    is_ours = model.get("type") == "notebook" and file.is_relative_to(notebooks_folder())
    return is_ours and file.with_suffix(".md").is_file()


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "compendium.runs.lab"}]


def without_news(_handler: Any, page_config: dict[str, Any]) -> dict[str, Any]:
    """Switch off the plugin of JupyterLab that asks at the first start whether it may fetch news.

    Parameters
    ----------
    page_config : dict
        What JupyterLab's page is told; changed in place.

    Returns
    -------
    dict
        The same.
    """
    disabled = page_config.get("disabledExtensions", [])
    page_config["disabledExtensions"] = [*disabled, "@jupyterlab/apputils-extension:announcements"]
    return page_config


def _load_jupyter_server_extension(server: Any) -> None:
    server.web_app.settings.setdefault("page_config_hook", without_news)


async def _start_jupyter_server_extension(server: Any) -> None:
    """Change what is saved and opened.

    This runs after all extensions were loaded: the one of jupytext replaces the manager of contents, and a
    hook that is set twice is warned about. Jupyter has hooks for saving but none for opening, so the method
    that opens is replaced.
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
