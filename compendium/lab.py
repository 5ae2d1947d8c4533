"""JupyterLab: what it saves of the project's notebooks is what ``mlogb notebooks build`` would write.

Left alone, Jupyter notes the kernel's version, the language's and its own ids in every notebook that is
opened and saved, and the pair of text and notebook is dirty without an edit. This server extension puts a
paired notebook into its stored form on the way to the disk; other notebooks are none of its business.
``make setup`` enables it, by a copy of ``lab.json`` where the environment's Jupyter looks for extensions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat

from compendium.notebooks import normalise
from compendium.paths import notebooks_folder


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
    file = Path(contents_manager.root_dir, path).resolve()
    if model.get("type") != "notebook" or not file.is_relative_to(notebooks_folder()):
        return
    if not file.with_suffix(".md").is_file():
        return
    notebook = normalise(nbformat.from_dict(model["content"]))  # type: ignore[no-untyped-call]
    pair = notebook.metadata.setdefault("jupytext", {})
    pair["text_representation"] = {"extension": ".md", "format_name": "myst"}  # jupytext drops it
    model["content"] = notebook


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "compendium.lab"}]


def _load_jupyter_server_extension(server: Any) -> None:
    server.contents_manager.register_pre_save_hook(stored_form)
    # Loaded after this, jupytext puts a manager of its own in its place, which goes by the settings.
    server.config.ContentsManager.setdefault("pre_save_hook", stored_form)
