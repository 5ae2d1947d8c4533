"""The notebooks in JupyterLab: opening and saving one leaves text and notebook as they were.

Nor does JupyterLab change a notebook that it opens, which it would then show as unsaved. JupyterLab reads and
writes through jupytext's contents manager, which these tests call in the same way.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import jupytext
import nbformat
import pytest
from jupyter_client.manager import start_new_kernel

pytest.importorskip("jupyterlab", reason='JupyterLab is missing: pip install ".[compendium]"')

from compendium.runs import lab, notebooks

SLOW_FIXTURES = ("language_of_the_kernel",)
ROOT = Path(__file__).resolve().parents[2]
#: A kernel's description of its language, which JupyterLab writes into every notebook that it opens.
LANGUAGE = {
    "codemirror_mode": {"name": "ipython", "version": 3},
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "nbconvert_exporter": "python",
    "pygments_lexer": "ipython3",
    "version": "3.12.1",
}


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A copy of the project's notebooks, as a fresh clone has them."""
    for name in ("experiments.yml", "jupytext.toml", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    ignored = shutil.ignore_patterns(".ipynb_checkpoints")
    for name in ("notebooks", "papers"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    monkeypatch.setenv("MLOGB_ROOT", str(tmp_path))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))  # which has the trusted notebooks
    return tmp_path


@pytest.fixture
def manager(tree, request):
    """The contents manager of a server after its extensions were loaded, in the order of their names.

    It is jupytext's; with the parameter "plain", Jupyter's own.
    """
    import jupyterlab_jupytext
    from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
    from traitlets.config import Config, LoggingConfigurable

    server = LoggingConfigurable(config=Config({"ContentsManager": {"root_dir": str(tree)}}))
    server.contents_manager_class = AsyncLargeFileManager
    server.contents_manager = AsyncLargeFileManager(parent=server)
    server.session_manager, server.web_app = SimpleNamespace(), SimpleNamespace(settings={})
    lab._load_jupyter_server_extension(server)
    if getattr(request, "param", "jupytext") == "jupytext":
        jupyterlab_jupytext.load_jupyter_server_extension(server)
    asyncio.run(lab._start_jupyter_server_extension(server))
    return server.contents_manager


async def opened_and_saved(manager, name: str, change=lambda content: None):
    """Open a notebook, add what JupyterLab adds when the kernel has answered, change it and save it."""
    model = await manager.get(name, type="notebook", content=True)
    content = model["content"]
    content["metadata"]["language_info"] = LANGUAGE
    for cell in content["cells"]:
        cell["metadata"]["trusted"] = True
    change(content)
    await manager.save({"type": "notebook", "format": "json", "content": content}, name)


def contents(tree: Path) -> dict[str, bytes]:
    files = (path for path in (tree / "notebooks").rglob("*") if path.is_file())
    return {
        path.relative_to(tree).as_posix(): path.read_bytes()
        for path in files
        if ".ipynb_checkpoints" not in path.parts
    }


@pytest.mark.slow
@pytest.mark.parametrize("newer", [".md", ".ipynb"])
def test_saving_without_an_edit_changes_no_byte(tree, manager, newer, caplog):
    """It does not matter which file the clone wrote last, nor which of the two is opened."""
    before = contents(tree)
    for path in (tree / "notebooks").rglob("*.*"):
        when = 2_000_000_000 - (0 if path.suffix == newer else 1000)
        os.utime(path, (when, when))

    async def visit_all():
        for name in sorted(before):
            await opened_and_saved(manager, name)

    asyncio.run(visit_all())
    after = contents(tree)
    assert len(before) >= 50
    assert [name for name in before if after.get(name) != before[name]] == []
    assert set(after) == set(before)
    told = [record.message for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert [text for text in told if "is not trusted" not in text] == []  # each user decides on that
    assert notebooks.check() == []


@pytest.fixture(scope="module")
def language_of_the_kernel():
    """The description of its language that the kernel of the notebooks gives."""
    kernel, client = start_new_kernel(kernel_name=notebooks.KERNEL["name"])
    try:
        return client.kernel_info(reply=True, timeout=60)["content"]["language_info"]
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)


@pytest.mark.parametrize(
    ("manager", "suffix"),
    [("jupytext", ".ipynb"), ("jupytext", ".md"), ("plain", ".ipynb")],
    indirect=["manager"],
)
def test_an_opened_notebook_has_the_language_of_the_kernel(tree, manager, suffix, language_of_the_kernel):
    names = sorted(name for name in contents(tree) if name.endswith(suffix))

    async def opened():
        return [await manager.get(name, type="notebook", content=True) for name in names]

    metadata = [model["content"]["metadata"] for model in asyncio.run(opened())]
    assert len(metadata) >= 25
    assert [dict(each["kernelspec"]) for each in metadata] == [notebooks.KERNEL] * len(names)
    assert [each["language_info"] for each in metadata] == [language_of_the_kernel] * len(names)


@pytest.mark.parametrize("suffix", [".ipynb", ".md"])
def test_cells_that_the_book_folds_are_opened_collapsed(tree, manager, suffix):
    model = asyncio.run(manager.get(f"notebooks/four_lemmas{suffix}", type="notebook", content=True))
    cells = model["content"]["cells"]
    folded = [cell for cell in cells if "hide-input" in cell["metadata"].get("tags", [])]
    assert folded
    assert [cell for cell in cells if cell["metadata"].get("jupyter", {}).get("source_hidden")] == folded


def test_an_edit_reaches_both_files_and_keeps_the_metadata(tree, manager):
    name = "notebooks/experiments/mnist.ipynb"

    def change(content):
        content["cells"][0]["source"] += "\n\nOne more sentence."

    asyncio.run(opened_and_saved(manager, name, change))
    text = jupytext.read(tree / name.replace(".ipynb", ".md"), fmt="md:myst")
    stored = nbformat.read(tree / name, as_version=4)
    original = nbformat.read(ROOT / name, as_version=4)
    assert text.cells[0].source.endswith("One more sentence.")
    assert stored.cells[0].source.endswith("One more sentence.")
    assert [c.metadata for c in stored.cells] == [c.metadata for c in original.cells]
    assert [c.metadata for c in text.cells] == [c.metadata for c in original.cells]
    assert any("parameters" in c.metadata.get("tags", []) for c in text.cells)
    assert notebooks.check([tree / name]) == []


def test_the_notebooks_of_another_paper_are_saved_in_their_form(tree, manager):
    before = {path: path.read_bytes() for path in tree.glob("papers/*/notebooks/*.*")}
    assert len(before) >= 2
    for path in before:
        asyncio.run(opened_and_saved(manager, path.relative_to(tree).as_posix()))
    assert {path: path.read_bytes() for path in before} == before


def test_other_notebooks_are_not_changed(tree, manager):
    alone = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1", id="mine")])
    (tree / "elsewhere.md").write_text("# A text of its own\n")
    for place in ("elsewhere.ipynb", "notebooks/without_text.ipynb"):
        nbformat.write(alone, tree / place)
        model = asyncio.run(manager.get(place, content=True))
        assert "language_info" not in model["content"]["metadata"]
        asyncio.run(manager.save({"type": "notebook", "format": "json", "content": alone}, place))
        stored = nbformat.read(tree / place, as_version=4)
        assert [cell.id for cell in stored.cells] == ["mine"]
        (tree / place).unlink()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_make_lab_prints_an_address_that_opens_the_guide_and_warns_of_nothing(tmp_path):
    """It works for every user, also for root in a container, and takes further arguments."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = ["make", "--dry-run", "--old-file=.venv/installed", "lab", f"ARGS=--no-browser --port {port}"]
    shown = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    command = shown.replace("\\\n", " ").replace(".venv/bin/jupyter", f"{sys.executable} -m jupyter")
    folder = tmp_path / "jupyter_server_config.d"
    folder.mkdir()
    shutil.copy(ROOT / "compendium" / "runs" / "lab.json", folder)  # as `make setup` does
    environment = os.environ | {
        "JUPYTER_CONFIG_DIR": str(tmp_path),
        "JUPYTER_DATA_DIR": str(tmp_path / "data"),
    }
    log = tmp_path / "log"
    with log.open("w") as output:
        server = subprocess.Popen(shlex.split(command), cwd=ROOT, env=environment, stderr=output)
    try:
        address = None
        for _ in range(240):
            address = re.search(r"http://127\.0\.0\.1:\d+/\S+token=\w+", log.read_text())
            if address or server.poll() is not None:
                break
            time.sleep(0.5)
        assert address, log.read_text()
        assert f":{port}/lab/tree/notebooks/00_reading_guide.ipynb?token=" in address[0]
        with urllib.request.urlopen(address[0]) as answer:
            page = answer.read().decode()
        assert "@jupyterlab/apputils-extension:announcements" in page
    finally:
        server.terminate()
        server.wait(60)
    assert "hook" not in log.read_text()


def test_the_server_finds_the_extension():
    from jupyter_server.extension.utils import get_metadata

    settings = json.loads((ROOT / "compendium" / "runs" / "lab.json").read_text())
    ((name, enabled),) = settings["ServerApp"]["jpserver_extensions"].items()
    assert enabled is True
    module, points = get_metadata(name)
    assert module is lab
    assert points == [{"module": "compendium.runs.lab"}]


def test_the_reading_guide_is_complete_and_asks_for_what_the_notebooks_ask_for():
    guide = (ROOT / "notebooks" / "00_reading_guide.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[[^\]]+\]\(([\w/]+)\.ipynb\) \| ([^|]+) \|", guide, re.MULTILINE)
    listed = {ROOT / "notebooks" / f"{name}.md": needs for name, needs in rows}
    texts = {ROOT / name for name in contents(ROOT) if name.endswith(".md")}
    assert set(listed) | {ROOT / "notebooks" / "00_reading_guide.md"} == texts
    for path, needs in listed.items():
        text = path.read_text(encoding="utf-8")
        first = re.search(r"\*Read first:\*(.*?)\*(?:Then|Claims|Code):\*", text, re.DOTALL).group(1)
        named = re.findall(r"\((?:\.\./)?(\d\d)_\w+\.md(?:#[\w-]+)?\)", first)
        assert re.findall(r"\b\d\d\b", needs) == sorted(named), path.name
