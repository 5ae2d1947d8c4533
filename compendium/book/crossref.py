"""Links between prose, code and claims in the book; the sources stay plain.

Inline code in prose that names a public object of `mlogb_core` leads to its entry of the API reference,
and the name of a source file to its listing. In the other direction, a docstring that names a place in
the paper, like `lem:fd-det-origin`, leads to the claims about it and to the sections that check them.

The module is also a Sphinx extension (`setup`): it changes the docstrings, and it numbers statements and
formulas by notebook.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from compendium.book.statements import Label, outside_code, read, to_myst, without_code
from compendium.claims.registry import RESULTS, Claim, Registry, load_registry, slug
from compendium.system import paths
from compendium.system.paths import FailureError

API = "book/api.md"
PACKAGES = (
    "mlogb_core",
    "mlogb_core.curvature",
    "mlogb_core.policies",
    "mlogb_core.environments",
    "compendium.theory",
)

_AUTOMODULE = re.compile(r"^<!-- automodule ([\w.]+) -->$", re.MULTILINE)
_DIRECTIVE = r"```{eval-rst}\n.. automodule:: \1\n   :members:\n```"
_PLACES = r"(?:sec|ssec|eq|ineq|lem|thm|prop|algo|asmp|rmk|fig|proof):[\w-]+\+?1?"
_TOKEN = re.compile(
    r"^#+ [^\n]*|^\$\$$.*?^\$\$[^\n]*|\$[^$]+\$|!?\[[^\]]*\]\([^)]*\)|<[^>\n]*>|`{2,}.*?`{2,}"
    r"|(?<![`}])`(?P<code>[^`\n]+)`",
    re.DOTALL | re.MULTILINE,
)
_NAMED = re.compile(r"([A-Za-z_][\w.]*)(?:\([^<>]*\))?")
_FILE = re.compile(r"mlogb_core/(?!_)[\w/]+\.py")
_PLACE = re.compile(rf"`{_PLACES}`")
_IN_DOCSTRING = re.compile(rf"(?<![`:\w])`(?:(?P<place>{_PLACES})|(?P<object>[A-Za-z_][\w.]*))`(?![`_])")
_NOTEBOOK = re.compile(r"notebooks/(\d+)_\w+")


def modules(api: str) -> list[str]:
    """The modules that the page of the API reference documents."""
    return _AUTOMODULE.findall(api)


def objects(names: Iterable[str]) -> dict[str, str]:
    """What prose may call the public objects of some modules, each with its full name.

    Parameters
    ----------
    names : iterable of str
        Full names of the modules.

    Returns
    -------
    dict
        ``jacobian``, ``link.jacobian`` and ``mlogb_core.link.jacobian`` lead to the last of them. A name
        that two objects share is not there.
    """
    found: dict[str, set[str]] = {}
    full: dict[int, str] = {}
    for module_name in names:
        module = importlib.import_module(module_name)
        found.setdefault(module_name, set()).add(module_name)
        for name, value in _public(module):
            full[id(value)] = f"{module_name}.{name}"
            for path in (name, *(f"{name}.{method}" for method in _methods(value))):
                target = f"{module_name}.{path}"
                parts = target.split(".")
                for start in range(len(parts) - len(path.split(".")) + 1):
                    found.setdefault(".".join(parts[start:]), set()).add(target)
    for package in PACKAGES:
        for name, value in vars(importlib.import_module(package)).items():
            if id(value) in full:
                found.setdefault(f"{package}.{name}", set()).add(full[id(value)])
    return {name: next(iter(targets)) for name, targets in found.items() if len(targets) == 1}


def bound(code: Iterable[str]) -> set[str]:
    """The names that some code binds itself: in prose beside it they need not mean the library's."""
    names: set[str] = set()
    for cell in code:
        for node in ast.walk(ast.parse(cell)):
            match node:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                    names.add(name)
                case ast.Name(id=name, ctx=ast.Store()):
                    names.add(name)
                case ast.ImportFrom(module=module, names=aliases) if module and "mlogb_core" not in module:
                    names.update(alias.asname or alias.name for alias in aliases)
    return names


def link_sources(folder: Path, root: Path) -> None:
    """Give the gathered sources of the book their directives, numbers and links, in place.

    Parameters
    ----------
    folder : Path
        The gathered sources.
    root : Path
        The project.

    Raises
    ------
    FailureError
        If a text of the project is malformed, or names what is not there.
    """
    labels, registry = read(root), load_registry(root)
    known = objects(modules((root / API).read_text(encoding="utf-8")))
    for path in sorted([*folder.rglob("*.md"), *folder.rglob("*.ipynb")]):
        page, text = path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8")
        if path.suffix == ".ipynb":
            notebook = json.loads(text)
            code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
            try:
                own = bound(code)
            except SyntaxError as error:
                raise FailureError(f"{page}: a code cell is not plain Python: {error}") from None
            names = {name: target for name, target in known.items() if name not in own}
            for cell in notebook["cells"]:
                if cell["cell_type"] == "markdown":
                    source = to_myst("".join(cell["source"]), labels)
                    cell["source"] = link_prose(source, page, names, registry)
            text = json.dumps(notebook, indent=1, ensure_ascii=False)
        elif page != "claims.md":  # each of its entries names all of its own
            text = _AUTOMODULE.sub(_DIRECTIVE, link_prose(to_myst(text, labels), page, known, registry))
        path.write_text(text, encoding="utf-8")


def link_prose(text: str, page: str, known: Mapping[str, str], registry: Registry) -> str:
    """Make links of the objects and files of the library and the places of the paper that a text names.

    Parameters
    ----------
    text : str
        MyST Markdown. Code, formulas, headings and the texts of links stay as they are.
    page : str
        Its file in the book, as ``notebooks/01_model.ipynb``.
    known : mapping
        From `objects`.
    registry : Registry
        The claims.

    Raises
    ------
    FailureError
        If inline code looks like a label of the paper and is none.
    """
    up = "../" * page.count("/")

    def inline(code: str) -> str:
        if _FILE.fullmatch(code):
            listing = code.removesuffix(".py").removesuffix("/__init__")
            return f'<a href="{up}_modules/{listing}.html"><code>{code}</code></a>'
        if _PLACE.fullmatch(f"`{code}`"):
            about = _claims_about(code, registry, page)
            return f"[`{code}`]({up}claims.md#{about[0].id.lower()})" if about else f"`{code}`"
        named = _NAMED.fullmatch(code)
        target = known.get(named[1]) if named else None
        return f"{{py:obj}}`{code} <{target}>`" if target else f"`{code}`"

    def link(match: re.Match[str]) -> str:
        return inline(match["code"]) if match["code"] else match[0]

    return outside_code(text, lambda prose: _TOKEN.sub(link, prose))


def implementations(labels: Mapping[str, Label], known: Mapping[str, str]) -> dict[str, list[str]]:
    """The labels of the statements that name an object of the library after *In code:*, by its full name.

    Raises
    ------
    FailureError
        If a statement names something that the library does not have, or has twice.
    """
    found: dict[str, list[str]] = {}
    for label, place in labels.items():
        for name in place.code:
            if name not in known:
                raise FailureError(
                    f"{place.file}:{place.line}: the library has no object {name!r}, or several"
                )
            found.setdefault(known[name], []).append(label)
    return found


def annotate(
    lines: list[str],
    name: str,
    registry: Registry,
    known: Mapping[str, str],
    proved: Mapping[str, str] | None = None,
    titles: Mapping[str, str] | None = None,
) -> None:
    """Make links of what a docstring names, and say where it is proved and checked.

    Parameters
    ----------
    lines : list of str
        The docstring, reStructuredText; changed in place.
    name : str
        Whose it is.
    registry : Registry
        The claims.
    known : mapping
        From `objects`.
    proved : mapping, optional
        The statements that name it: label and title.
    titles : mapping, optional
        What to call a section, by its place as ``01_model#the-jacobian``.

    Raises
    ------
    FailureError
        If it names a label of the paper that ``claims.yml`` does not have.
    """
    places: dict[str, None] = {}

    def link(match: re.Match[str]) -> str:
        if match["object"]:
            target = known.get(match["object"])
            return f":py:obj:`{match['object']} <{target}>`" if target else match[0]
        about = _claims_about(match["place"], registry, f"the docstring of {name}")
        places.update((claim.notebook, None) for claim in about if claim.notebook)
        listed = ", ".join(f"`{claim.id} <claims.html#{claim.id.lower()}>`__" for claim in about)
        where = registry.labels[match["place"]] + (f"; {listed}" if listed else "")
        return f"``{match['place']}`` ({where})"

    lines[:] = [_IN_DOCSTRING.sub(link, line) for line in lines]
    if proved:
        statements = [f":prf:ref:`{label}` ({title})" for label, title in proved.items()]
        lines += ["", f"*Proved about it:* {', '.join(statements)}."]
    if places:
        links = [f"`{(titles or {}).get(place, place)} <{_address(place)}>`__" for place in places]
        lines += ["", f"*Checked in* {'; '.join(links)}."]
    if lines and lines[-1]:
        lines.append("")


def section_titles(root: Path) -> dict[str, str]:
    """The sections that claims may name by their places, each as title of its page and of itself."""
    titles: dict[str, str] = {}
    texts = (p for p in (root / "notebooks").rglob("*.md") if ".ipynb_checkpoints" not in p.parts)
    for path in [*sorted(texts), root / f"{RESULTS}.md"]:
        folder = path.parent if path.stem == RESULTS else root / "notebooks"
        name = path.relative_to(folder).with_suffix("").as_posix()
        text = without_code(path.read_text(encoding="utf-8"))
        titles_here = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
        if not titles_here:
            raise FailureError(f"{path.relative_to(root).as_posix()}: there is no heading, so no title")
        first, *others = titles_here
        titles |= {f"{name}#{slug(title)}": f"{first}: {title}" for title in others}
    return {place: re.sub(r"[`<>$\\]", "", title) for place, title in titles.items()}


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    root = paths.project_root()
    registry = load_registry(root)
    known = objects(modules((root / API).read_text(encoding="utf-8")))
    labels = read(root)
    proved = implementations(labels, known)
    titles = section_titles(root)

    def docstring(_: Any, __: str, name: str, ___: Any, ____: Any, lines: list[str]) -> None:
        about = {label: labels[label].title for label in proved.get(name, ())}
        annotate(lines, name, registry, known, about, titles)

    def numbers(_: Any, env: Any) -> list[str]:
        number_by_notebook(env.toc_fignumbers)
        return []

    app.connect("autodoc-process-docstring", docstring, priority=900)  # numpydoc has sorted its sections
    app.connect("env-get-updated", numbers, priority=900)  # after Sphinx has counted
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def number_by_notebook(numbers: Mapping[str, dict[str, dict[str, tuple[int, ...]]]]) -> None:
    """Number statements and formulas as 5.1, 5.2, ... in the fifth notebook, not through the whole book.

    Parameters
    ----------
    numbers : mapping
        By document, kind and label, as Sphinx keeps them in `toc_fignumbers`; changed in place.
    """
    for document, kinds in numbers.items():
        notebook = _NOTEBOOK.fullmatch(document)
        if notebook is None:
            continue
        for labels in kinds.values():
            for position, label in enumerate(sorted(labels, key=lambda label: labels[label][-1]), start=1):
                labels[label] = int(notebook[1]), position


def _public(module: Any) -> Iterator[tuple[str, Any]]:
    for name, value in vars(module).items():
        own = getattr(value, "__module__", None) == module.__name__
        if own and callable(value) and value.__doc__ and not name.startswith("_"):
            yield name, value


def _methods(value: Any) -> list[str]:
    members = vars(value).items() if inspect.isclass(value) else ()
    return [name for name, member in members if member.__doc__ and not name.startswith("_")]


def _claims_about(label: str, registry: Registry, where: str) -> list[Claim]:
    if label not in registry.labels:
        raise FailureError(f"{where} names {label!r}, which is not a label of the paper in claims.yml")
    return [claim for claim in registry.claims if claim.label == label]


def _address(place: str) -> str:
    name, _, anchor = place.partition("#")
    return f"{'' if name == RESULTS else 'notebooks/'}{name}.html#{anchor}"
