"""The Sphinx extension of the book: plain sources become pages with numbers, links and tooltips.

The methods of `Book` are the handlers of Sphinx's events, in the order in which Sphinx emits them. While
a source is read, its statements become directives and its links lead to pages of the book. In the parsed
page, inline code that names an object of the library, a place of the paper or a source file becomes a
link, and so does a mention of a claim. A docstring that names a place of the paper leads to the claims
about it and to the sections that check them. When all pages are known, statements and formulas are
numbered by notebook, and each link gets the name of what it leads to as its tooltip.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import ReferenceRole

from compendium.book import parts
from compendium.book.build import PAGES
from compendium.book.statements import Label, outside_code, read, to_myst
from compendium.claims.evidence import CLAIM
from compendium.claims.graph import described
from compendium.claims.page import GRAPH
from compendium.claims.registry import RESULTS, Claim, claims_in, load_registry
from compendium.system import paths
from compendium.system.paths import FailureError

API = "book/api.md"
#: The file whose lines the page of the algorithm quotes without a name.
LITERAL = "mlogb_core/literal.py"

_AUTOMODULE = re.compile(r"^<!-- automodule ([\w.]+) -->$", re.MULTILINE)
_DIRECTIVE = r"```{eval-rst}\n.. automodule:: \1\n   :members:\n```"
_PART = re.compile(r"<!-- book: (\w+) -->")
_LINK = re.compile(r"(!?)\[([^\[\]]*)\]\(([\w./-]+)(#[^)\s]*)?\)")
_PLACES = r"(?:sec|ssec|eq|ineq|lem|thm|prop|algo|asmp|rmk|fig|proof):[\w-]+\+?1?"
_IN_DOCSTRING = re.compile(rf"(?<![`:\w])`(?:(?P<place>{_PLACES})|(?P<object>[A-Za-z_][\w.]*))`(?![`_])")
_MENTION = re.compile(rf"(?<![\w/.-])({CLAIM})(?![\w/-]|\.\w)")
_NAMED = re.compile(r"([A-Za-z_][\w.]*)(?:\([^<>]*\))?")
_FILE = re.compile(r"mlogb_core/(?!_)[\w/]+\.py")
_NOTEBOOK = re.compile(r"notebooks/(?:(\d+)_)?\w+")
_LINE_NUMBER = re.compile(r'<span class="linenos">( *)(\d+)</span>')
_NOT_PROSE = (
    nodes.title, nodes.reference, nodes.literal, nodes.FixedTextElement, nodes.math, nodes.comment,
    addnodes.pending_xref, addnodes.download_reference, addnodes.desc,
)  # fmt: skip
_LONGEST = 300  # characters of a tooltip


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    book = Book(paths.project_root())
    app.add_role("page", PageRole())
    app.connect("source-read", book.read_source)
    app.connect("autodoc-process-docstring", book.docstring, priority=900)  # numpydoc has sorted its sections
    app.connect("doctree-read", book.link_prose, priority=400)  # before images are collected
    app.connect("doctree-read", book.collect_names)
    app.connect("env-get-updated", book.number, priority=900)  # after Sphinx has counted
    app.connect("doctree-resolved", book.add_tooltips, priority=900)
    app.connect("html-page-context", name_lines)
    return {"parallel_read_safe": False, "parallel_write_safe": False}


class PageRole(ReferenceRole):
    """A link to a page of the book or, as ``:page:`notebooks/01_model#the-jacobian```, to a section of it."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Return the link, with the section's title where no text is given."""
        return [to_page(self.env.docname, self.target, self.title if self.has_explicit_title else "")], []


def to_page(docname: str, target: str, text: str = "") -> addnodes.pending_xref:
    """A link from one page to a place of another, as MyST makes and checks it.

    Parameters
    ----------
    docname, target : str
        The page with the link, and ``page`` or ``page#anchor``.
    text : str
        The title of the page or section by default.
    """
    page, _, anchor = target.partition("#")
    return addnodes.pending_xref(
        "", nodes.inline(text, text, classes=["xref", "myst"]),
        refdoc=docname, refdomain="doc", reftype="myst", reftarget=page, reftargetid=anchor or None,
        refexplicit=bool(text),
    )  # fmt: skip


class Book:
    """What the pages of the book refer to, and the handlers of Sphinx's events.

    Parameters
    ----------
    root : Path
        The project.

    Raises
    ------
    FailureError
        If a source is malformed, or a statement names something that the library does not have.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.registry = load_registry(root)
        self.labels = read(root)
        self.objects = objects(modules((root / API).read_text(encoding="utf-8")))
        self.statements = implementations(self.labels, self.objects)
        self._bound: dict[str, set[str]] = {}  # by page, the names that its code binds itself
        self._names: dict[str, dict[str, Any]] = {}  # by page and identifier, what a tooltip says

    # ---- the sources -----------------------------------------------------------------------------------

    def read_source(self, app: Sphinx, docname: str, source: list[str]) -> None:
        """Give a source its directives, computed parts and links."""
        if Path(app.env.doc2path(docname)).suffix != ".ipynb":
            source[0] = self.prepared(docname, source[0])
            return
        notebook = json.loads(source[0])
        code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
        try:
            self._bound[docname] = bound(code)
        except SyntaxError as error:
            raise FailureError(f"{docname}: a code cell is not plain Python: {error}") from None
        prose = [cell for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
        if docname.startswith("notebooks/experiments/") and (
            said := parts.recorded_runs(posixpath.basename(docname))
        ):
            cell = {"cell_type": "markdown", "id": "recorded-runs", "metadata": {}, "source": said}
            notebook["cells"].insert(notebook["cells"].index(prose[0]) + 1, cell)
            prose.append(cell)
        for cell in prose:
            cell["source"] = self.prepared(docname, "".join(cell["source"]))
        if number := _numbered(docname):
            prose[0]["source"] = re.sub(
                r"^# ", f"# {number} · ", prose[0]["source"], count=1, flags=re.MULTILINE
            )
        source[0] = json.dumps(notebook)

    def prepared(self, docname: str, text: str) -> str:
        """A Markdown text of a page as Sphinx is to read it.

        Raises
        ------
        FailureError
            If it asks for a part that there is not, or links to a file that is not there.
        """
        text = _AUTOMODULE.sub(_DIRECTIVE, _PART.sub(self._part, text))
        text = to_myst(text, self.labels)
        return outside_code(text, lambda prose: _LINK.sub(lambda found: self._link(docname, found), prose))

    def _part(self, found: re.Match[str]) -> str:
        if found[1] not in parts.PARTS:
            raise FailureError(f"the book has no part {found[1]!r}; there are {', '.join(parts.PARTS)}")
        return parts.PARTS[found[1]](self.root)

    def _link(self, docname: str, found: re.Match[str]) -> str:
        """A link or picture as the book has it; what is no page of the book becomes plain text."""
        image, words, path, anchor = found[1], found[2], found[3], found[4] or ""
        in_book = (self.root / "book" / f"{docname}.md").is_file()
        home = posixpath.dirname(f"book/{docname}" if in_book else docname)
        file = posixpath.normpath(posixpath.join(home, path))
        if not (self.root / file).exists():
            if "." not in posixpath.basename(path):  # brackets and parentheses of a formula
                return found[0]
            raise FailureError(f"{docname} links to {file}, which is not there")
        if file.endswith(".py") and anchor:
            return f"[{words}](#{file.removesuffix('.py').replace('/', '.')}.{anchor[1:]})"
        pair = f"{file.removesuffix('.md')}.ipynb"
        if file.startswith("notebooks/") and (self.root / pair).is_file():
            file = pair
        elif file.startswith("book/"):
            file = file.removeprefix("book/")
        elif file not in PAGES and not file.startswith(("notebooks/", "figures/")):
            return words
        return f"{image}[{words}]({posixpath.relpath(file, posixpath.dirname(docname) or '.')}{anchor})"

    # ---- the docstrings --------------------------------------------------------------------------------

    def docstring(
        self, _app: Any, _what: str, name: str, _object: Any, _options: Any, lines: list[str]
    ) -> None:
        """Make links of what a docstring names, and say where it is proved and checked."""
        places: dict[str, None] = {}

        def link(match: re.Match[str]) -> str:
            if match["object"]:
                target = self.objects.get(match["object"])
                return f":py:obj:`{match['object']} <{target}>`" if target else match[0]
            about = self.claims_about(match["place"], f"the docstring of {name}")
            places.update((claim.notebook, None) for claim in about if claim.notebook)
            listed = ", ".join(f":page:`{claim.id} <claims#{claim.id.lower()}>`" for claim in about)
            where = self.registry.labels[match["place"]] + (f"; {listed}" if listed else "")
            return f"``{match['place']}`` ({where})"

        lines[:] = [_IN_DOCSTRING.sub(link, line) for line in lines]
        if proved := self.statements.get(name):
            listed = ", ".join(f":prf:ref:`{label}` ({self.labels[label].title})" for label in proved)
            lines += ["", f"*Proved about it:* {listed}."]
        if places:
            sections = []
            for place in places:
                page, _, _ = target = place.partition("#")
                folder = "" if page == RESULTS else "notebooks/"
                sections.append(f":page:`{folder}{page}`: :page:`{folder}{''.join(target)}`")
            lines += ["", f"*Checked in* {'; '.join(sections)}."]
        if lines and lines[-1]:
            lines.append("")

    def claims_about(self, label: str, where: str) -> list[Claim]:
        """The claims with a label of the paper.

        Raises
        ------
        FailureError
            If ``claims.yml`` does not have the label.
        """
        if label not in self.registry.labels:
            raise FailureError(f"{where} names {label!r}, which is not a label of the paper in claims.yml")
        return [claim for claim in self.registry.claims if claim.label == label]

    # ---- the parsed pages ------------------------------------------------------------------------------

    def link_prose(self, app: Sphinx, doctree: nodes.document) -> None:
        """Make links of what the prose of a page names."""
        docname = app.env.docname
        if docname == "claims":  # each of its entries names all of its own
            self._set_graph_in(doctree)
            return
        if docname == "algorithm":
            self._link_lines(doctree)
        for literal in list(_in_prose(doctree, nodes.literal)):
            if not literal.rawsource.startswith("``") and (link := self.link_to(docname, literal.astext())):
                literal.replace_self(link)
        if docname == "ERRATA" or docname.startswith("notebooks/"):
            for text in list(_in_prose(doctree, nodes.Text)):
                text.parent.replace(text, list(self._mentions(docname, text.astext())))
        if docname == "ERRATA":
            self._link_headings(docname, doctree)
        _mark_panels(doctree)
        _mark_symbols(doctree)

    def link_to(self, docname: str, code: str) -> nodes.Element | None:
        """A link in place of inline code that names an object, a source file or a place of the paper.

        Raises
        ------
        FailureError
            If the code looks like a label of the paper and is none.
        """
        shown = nodes.literal(code, code)
        if _FILE.fullmatch(code):
            if not (self.root / code).is_file():  # one that a reader is told to write
                return None
            listing = code.removesuffix(".py").removesuffix("/__init__")
            up = "../" * docname.count("/")
            return nodes.reference("", "", shown, refuri=f"{up}_modules/{listing}.html", internal=True)
        if re.fullmatch(_PLACES, code):
            about = self.claims_about(code, docname)
            if not about:
                return None
            link = to_page(docname, f"claims#{about[0].id.lower()}", code)
            link[0].children = [shown]
            return link
        named = _NAMED.fullmatch(code)
        target = self.objects.get(named[1]) if named else None
        if target is None or named is None or named[1] in self._bound.get(docname, ()):
            return None
        shown["classes"] = ["xref", "py", "py-obj"]
        return addnodes.pending_xref(
            "", shown, refdoc=docname, refdomain="py", reftype="obj", reftarget=target, refexplicit=True
        )

    def _link_lines(self, doctree: nodes.document) -> None:
        """Link each line of code that a table quotes to that line in the listing of its file."""
        for cell in doctree.findall(nodes.entry):
            file = LITERAL
            for literal in list(cell.findall(nodes.literal)):
                if _FILE.fullmatch(literal.astext()):
                    file = literal.astext()
                    continue
                code = literal.astext()
                number = line_of(code, file, (self.root / file).read_text(encoding="utf-8"))
                listing = f"_modules/{file.removesuffix('.py')}.html#L{number}"
                link = nodes.reference("", "", literal.deepcopy(), refuri=listing, internal=True)
                link["reftitle"] = f"{file}, line {number}"
                literal.replace_self(link)

    def _mentions(self, docname: str, text: str) -> Iterator[nodes.Node]:
        """A text with links in place of the claims that it mentions."""
        for place, piece in enumerate(_MENTION.split(text)):
            if place % 2 and piece in self.registry.by_id:
                yield to_page(docname, f"claims#{piece.lower()}", piece)
            elif piece:
                yield nodes.Text(piece)

    def _link_headings(self, docname: str, doctree: nodes.document) -> None:
        """Add a line of links below each heading that names claims in its last parenthesis."""
        for title in list(doctree.findall(nodes.title)):
            named = re.search(r"\(([^()]*)\)$", title.astext())
            known = [name for name in claims_in(named[1]) if name in self.registry.by_id] if named else []
            if known:
                line = nodes.paragraph("", "", nodes.emphasis("", "In the registry:"), nodes.Text(" "))
                for name in known:
                    line += [to_page(docname, f"claims#{name.lower()}", name), nodes.Text(", ")]
                line[-1] = nodes.Text(".")
                title.parent.insert(title.parent.index(title) + 1, line)

    def _set_graph_in(self, doctree: nodes.document) -> None:
        """Set the graph of the claims into its page in place of its picture, so that its links work."""
        (image,) = [
            image for image in doctree.findall(nodes.image) if image["uri"] == posixpath.basename(GRAPH)
        ]
        svg = (self.root / GRAPH).read_text(encoding="utf-8")
        figure = f'<figure class="claims-graph">\n{svg}</figure>'
        image.parent.replace_self(nodes.raw("", figure, format="html"))

    # ---- when all pages are known ----------------------------------------------------------------------

    def collect_names(self, app: Sphinx, doctree: nodes.document) -> None:
        """Note what the places of a page are called: sections, claims, statements, entries of the API."""
        names = self._names.setdefault(app.env.docname, {})
        for section in doctree.findall(nodes.section):
            if isinstance(section[0], nodes.title):
                names |= dict.fromkeys(section["ids"], section[0].astext())
        for entry in doctree.findall(addnodes.desc):
            content = entry.next_node(addnodes.desc_content)
            if content is not None and content.children and isinstance(content[0], nodes.paragraph):
                names |= dict.fromkeys(entry[0]["ids"], content[0].astext())
        for statement in doctree.findall(lambda node: isinstance(node, nodes.Element) and "realtype" in node):
            names |= dict.fromkeys(statement["ids"], statement)
        if app.env.docname == "claims":
            names |= {claim.id.lower(): described(self.registry, claim) for claim in self.registry.claims}

    def number(self, _app: Any, env: Any) -> list[str]:
        """Number statements and formulas by notebook."""
        number_by_notebook(env.toc_fignumbers)
        return []

    def add_tooltips(self, app: Sphinx, doctree: nodes.document, docname: str) -> None:
        """Give each link to a place in the book what the place is called."""
        for link in doctree.findall(nodes.reference):
            page, _, anchor = link.get("refuri", f"#{link.get('refid', '')}").partition("#")
            if page and not link.get("internal"):
                continue
            home = posixpath.join(posixpath.dirname(docname), page.removesuffix(".html"))
            target = posixpath.normpath(home) if page else docname
            name = self._names.get(target, {}).get(anchor, "")
            if isinstance(name, nodes.Element):
                number = app.env.toc_fignumbers[target][name["countertype"]][anchor]
                name = f"{name['realtype'].title()} {'.'.join(map(str, number))} {name[0].astext().strip()}"
            title = tooltip(name, link.astext(), link.get("reftitle", ""), anchor)
            if title:
                link["reftitle"] = title


def _numbered(docname: str) -> str:
    """The number of a notebook as other pages name it, such as ``05``; empty if it has none."""
    notebook = _NOTEBOOK.fullmatch(docname)
    return (notebook[1] or "") if notebook else ""


def tooltip(name: str, shown: str, given: str, anchor: str) -> str:
    """What the tooltip of a link says; empty where it keeps what it has.

    Parameters
    ----------
    name : str
        What the target is called.
    shown, given : str
        The text of the link, and the tooltip that it has.
    anchor : str
        The identifier of the target. A tooltip that is the identifier, which Sphinx gives to names of
        functions, is kept and continued.
    """
    name, shown = " ".join(name.split()), " ".join(shown.split())
    if len(name) > _LONGEST:
        name = name[:_LONGEST].rsplit(" ", 1)[0] + " …"
    if not name or name == shown or given not in ("", anchor):
        return ""
    return f"{given}: {name}" if given else name


def line_of(code: str, file: str, text: str) -> int:
    """The number of the first line of a file that holds some code.

    Raises
    ------
    FailureError
        If no line holds it.
    """
    for number, line in enumerate(text.splitlines(), start=1):
        if code in line:
            return number
    raise FailureError(f"the page of the algorithm quotes `{code}`, and no line of {file} has it")


def name_lines(_app: Any, page: str, _template: str, context: dict[str, Any], _doctree: Any) -> None:
    """Give the lines of a listing of source code the anchors ``L1``, ``L2``, ... of code-hosting pages."""
    if page.startswith("_modules/"):
        context["body"] = _LINE_NUMBER.sub(r'<span class="linenos" id="L\2">\1\2</span>', context["body"])


def number_by_notebook(numbers: Mapping[str, dict[str, dict[str, tuple[int, ...]]]]) -> None:
    """Number statements and formulas as 5.1, 5.2, ... in the fifth notebook, not through the whole book.

    A notebook without a number counts its own from 1.

    Parameters
    ----------
    numbers : mapping
        By document, kind and label, as Sphinx keeps them in `toc_fignumbers`; changed in place.
    """
    for document, kinds in numbers.items():
        notebook = _NOTEBOOK.fullmatch(document)
        for labels in kinds.values() if notebook else ():
            for position, label in enumerate(sorted(labels, key=lambda label: labels[label][-1]), start=1):
                labels[label] = (int(notebook[1]), position) if notebook[1] else (position,)  # type: ignore[index]


def modules(api: str) -> list[str]:
    """The modules that the page of the API reference documents."""
    return _AUTOMODULE.findall(api)


def objects(names: Iterable[str]) -> dict[str, str]:
    """What prose may call the public objects of some modules, each with its full name.

    Returns
    -------
    dict
        ``jacobian``, ``link.jacobian`` and ``mlogb_core.link.jacobian`` lead to the last of them. A name
        that two objects share is not there.
    """
    found: dict[str, set[str]] = defaultdict(set)
    full: dict[int, str] = {}
    packages: dict[str, None] = {}
    for module in names:
        packages[module.rpartition(".")[0]] = None
        found[module].add(module)
        for path, value in _documented(importlib.import_module(module)):
            target = f"{module}.{path}"
            if "." not in path:
                full[id(value)] = target
            pieces = target.split(".")
            for start in range(len(pieces) - path.count(".")):
                found[".".join(pieces[start:])].add(target)
    for package in filter(None, packages):  # which pass on objects of their modules
        for name, value in vars(importlib.import_module(package)).items():
            if id(value) in full:
                found[f"{package}.{name}"].add(full[id(value)])
    return {name: next(iter(targets)) for name, targets in found.items() if len(targets) == 1}


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


def _mark_panels(doctree: nodes.document) -> None:
    """Give the table that opens a derivation a class, by which a phone shows its rows one below the other."""
    for node in doctree.findall(lambda node: isinstance(node, nodes.comment | nodes.raw)):
        if node.astext().strip(" <!->\n") == "panel: begin":
            table = node.next_node(nodes.table, siblings=True, descend=False)
            if table is not None:
                table["classes"].append("panel")


def _mark_symbols(doctree: nodes.document) -> None:
    """Give the tables of symbols a class, by which a phone shows what a letter means below the letter."""
    for table in doctree.findall(nodes.table):
        if (head := next(table.findall(nodes.thead), None)) and head.astext().startswith("symbol"):
            table["classes"].append("symbols")


def _in_prose(doctree: nodes.document, kind: type[Any]) -> Iterator[Any]:
    """The nodes of a kind that are no part of code, a formula, a heading, a link or an entry of the API."""
    for node in doctree.findall(kind):
        above = node.parent
        while above is not None and not isinstance(above, _NOT_PROSE):
            above = above.parent
        if above is None:
            yield node


def _documented(module: Any) -> Iterator[tuple[str, Any]]:
    """The functions and classes of a module that have a docstring, and the methods of these classes."""
    for name, value in vars(module).items():
        own = getattr(value, "__module__", None) == module.__name__
        if own and callable(value) and value.__doc__ and not name.startswith("_"):
            yield name, value
            for method, member in vars(value).items() if inspect.isclass(value) else ():
                if member.__doc__ and not method.startswith("_"):
                    yield f"{name}.{method}", member
