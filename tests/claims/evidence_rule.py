"""The rule that evidence must be able to fail, read off the code of a notebook without running it.

What a line of evidence decides by has to be computed: by the library, by a game (which draws random
numbers), or by an independent computation (SciPy, SymPy, mpmath, decimals, a matrix decomposition, an
iteration that runs until it has converged). A number that is typed in, or follows from typed numbers by
arithmetic, says nothing about the code. A wrong variant may be typed in, if it goes through a function that
elsewhere judges something computed. Nor does a limit say anything that is chosen freely: it has to follow
from something, or the line has to print how much of it was found.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from compendium.claims.evidence import CLAIM

#: The functions of `compendium.claims.evidence`, each with the argument that decides.
DECIDES = {
    "evidence": "error", "symbolic": "residual", "bounded": "largest", "covered": "failures",
    "fitted": "interval", "refuted": "value", "caught": "error",
}  # fmt: skip

_COMPUTING = {"mlogb_core", "compendium", "scipy", "sympy", "mpmath", "decimal", "fractions", "random"}
_COMPARING = {"relative_error", "entrywise_error", "worst_case", *DECIDES, "clopper_pearson"}
_COMPUTING_PARTS = re.compile(r"(np|numpy)\.(random\.\w+|linalg\.(?!norm|matrix_power|multi_dot)\w+)(\.\w+)*")
_FREE = {0.0, 1.0}
_PAST = re.compile(rf"\b{CLAIM} (holds|refuted|caught)\b")


def refused(notebook: str, cells: Iterable[str]) -> list[str]:
    """The calls of a notebook that the rule refuses, one line each.

    Parameters
    ----------
    notebook : str
        Its name, for the messages.
    cells : iterable of str
        The code of its cells, in order.
    """
    reader = _Reader()
    found = []
    for number, code in enumerate(cells, start=1):
        reader.problems.clear()
        reader.run(ast.parse(code).body)
        found += [f"{notebook}, code cell {number}: {problem}" for problem in reader.problems.values()]
    return found


class _Reader:
    """Follows which names hold something computed, in the order in which the cells run.

    A name of a function counts as computed if its body uses something computed; so does a loop's
    variable if what it runs over is, and a list to which something computed is appended. Where a path
    is not certain to be taken, what a name held before may remain.
    """

    def __init__(self) -> None:
        self.problems: dict[int, str] = {}  # by the call's node, since a loop is read twice
        self._computed: set[str] = set()
        self._functions: dict[str, ast.AST] = {}
        self._values: dict[str, ast.expr] = {}  # what a name was last assigned
        self._modules: set[str] = set()
        self._judges: set[str] = set()  # functions of the notebook that were given something computed

    def run(self, body: Iterable[ast.stmt], certain: bool = True) -> None:
        """Read some statements; without `certain`, they may be skipped."""
        for statement in body:
            self._statement(statement, certain)

    def _statement(self, statement: ast.stmt, certain: bool) -> None:
        self._note_judges(statement)
        match statement:
            case ast.Import(names=names):
                for alias in names:
                    name = alias.asname or alias.name.partition(".")[0]
                    self._set(name, self._is_source(alias.name))
                    self._modules.add(name)
            case ast.ImportFrom(module=module, names=names):
                for alias in names:
                    source = self._is_source(module or "") and alias.name not in _COMPARING
                    self._set(alias.asname or alias.name, source)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                self._computed.discard(name)
                self._functions[name] = statement
                if self.is_computed(statement):  # it may fill a list that lives outside of it
                    filled = {outer for call in ast.walk(statement) for outer in _changed_by(call)}
                    self._computed |= filled - _own_names(statement) - self._modules
            case ast.Assign(targets=targets, value=value):
                self._look_at(value)
                for target in targets:
                    self._assign(target, value, certain)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, value, certain)
            case ast.AugAssign(target=target, value=value):
                self._assign(target, value, certain=False)
            case ast.For(target=target, iter=over, body=body, orelse=other):
                self._look_at(over)
                self._assign(target, over, certain)
                for _ in range(2):
                    self.run(body, certain=False)
                self.run(other, certain=False)
            case ast.While(body=body, orelse=other):
                for _ in range(2):
                    self.run(body, certain=False)
                self.run(other, certain=False)
            case ast.If(body=body, orelse=other):
                self.run(body, certain=False)
                self.run(other, certain=False)
            case ast.With(items=items, body=body):
                for item in items:
                    if item.optional_vars is not None:
                        self._assign(item.optional_vars, item.context_expr, certain)
                self.run(body, certain)
            case ast.Expr(value=value):
                self._look_at(value)
                self._note_changed(value)

    def _is_source(self, module: str) -> bool:
        return module.partition(".")[0] in _COMPUTING

    def _set(self, name: str, computed: bool, certain: bool = True) -> None:
        if certain:
            self._functions.pop(name, None)
            self._computed.discard(name)
        if computed:
            self._computed.add(name)

    def _assign(self, target: ast.expr, value: ast.expr, certain: bool) -> None:
        """Note what the names of a target hold now."""
        if isinstance(target, ast.Tuple | ast.List):
            parts = value.elts if isinstance(value, ast.Tuple | ast.List) else []
            paired = len(parts) == len(target.elts) and not any(isinstance(p, ast.Starred) for p in parts)
            for place, part in enumerate(target.elts):
                self._assign(part, parts[place] if paired else value, certain)
        elif isinstance(target, ast.Name):
            if isinstance(value, ast.Lambda):
                self._computed.discard(target.id)
                self._functions[target.id] = value
                return
            self._set(target.id, self.is_computed(value), certain)
            self._values[target.id] = value
        else:  # an entry or an attribute: the whole holds it
            base = target
            while isinstance(base, ast.Subscript | ast.Attribute | ast.Starred):
                base = base.value
            if isinstance(base, ast.Name):
                self._set(base.id, self.is_computed(value), certain=False)

    def _note_changed(self, value: ast.expr) -> None:
        """What a method is called on, such as a list's `append`, holds its arguments."""
        if isinstance(value, ast.Call) and any(self.is_computed(argument) for argument in value.args):
            self._computed |= set(_changed_by(value)) - self._modules

    def _note_judges(self, statement: ast.stmt) -> None:
        inside = isinstance(statement, ast.FunctionDef) and self.is_computed(statement)
        for call in ast.walk(statement):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                given = [*call.args, *(keyword.value for keyword in call.keywords)]
                if call.func.id in self._functions and (inside or any(map(self.is_computed, given))):
                    self._judges.add(call.func.id)

    def _is_judged(self, node: ast.expr) -> bool:
        """Whether an expression goes through a function that elsewhere judges something computed."""
        return any(isinstance(part, ast.Name) and part.id in self._judges for part in ast.walk(node))

    def is_computed(self, node: ast.AST, seen: frozenset[str] = frozenset()) -> bool:
        """Whether an expression or the body of a function uses something computed."""
        own = _own_names(node)
        for part in ast.walk(node):
            if isinstance(part, ast.While):
                return True
            if isinstance(part, ast.Attribute) and _COMPUTING_PARTS.fullmatch(ast.unparse(part)):
                return True
            if not (isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)) or part.id in own:
                continue
            if part.id in self._computed:
                return True
            function = self._functions.get(part.id)
            if function is not None and part.id not in seen and self.is_computed(function, seen | {part.id}):
                return True
        return False

    def _look_at(self, value: ast.expr) -> None:
        """Judge the lines of evidence within an expression."""
        for call in ast.walk(value):
            if isinstance(call, ast.Constant) and isinstance(call.value, str) and _PAST.search(call.value):
                self.problems[id(call)] = f"{call.value!r} is printed past the functions of evidence"
            if not (
                isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in DECIDES
            ):
                continue
            arguments = {keyword.arg: keyword.value for keyword in call.keywords}
            decisive = arguments.get(DECIDES[call.func.id])
            if decisive is None:
                continue
            shown = ", ".join(ast.unparse(part) for part in call.args)
            decides = f"{DECIDES[call.func.id]}={ast.unparse(decisive)}"
            self.problems.pop(id(call), None)
            judged = call.func.id == "caught" and self._is_judged(decisive)
            if not (self.is_computed(decisive) or judged):
                self.problems[id(call)] = (
                    f"{call.func.id}({shown}, {decides}): follows from typed numbers by arithmetic alone; "
                    "let the library, a game or an independent computation decide"
                )
            elif call.func.id == "bounded" and not {"reached", "share"} & arguments.keys():
                limit = self._typed_number(arguments["limit"])
                if limit is not None and min(abs(limit - free) for free in _FREE) > 1e-6:
                    self.problems[id(call)] = (
                        f"bounded({shown}, limit={ast.unparse(arguments['limit'])}): a limit that is typed in"
                        " says nothing, unless the line prints how much of it was found (reached= or share=)"
                    )

    def _typed_number(self, node: ast.expr) -> float | None:
        """The value of an expression of numbers, also through a name; None for anything else."""
        if isinstance(node, ast.Name) and node.id in self._values and node.id not in self._computed:
            node = self._values[node.id]
        allowed = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
        if not all(isinstance(part, allowed) for part in ast.walk(node)):
            return None
        return float(eval(compile(ast.Expression(node), "limit", "eval")))  # literals only, see above


def _own_names(node: ast.AST) -> set[str]:
    """The parameters of a function, what its body assigns, and the variables of comprehensions."""
    return set(_bound_in(node)) if isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef) else set()


def _changed_by(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=name), attr="append" | "extend" | "add" | "update")
        ):
            yield name


def _bound_in(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        match part:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name
