"""The manifest ``experiments.yml``: which notebooks are run, and with which parameters.

An experiment consists of a notebook, parameters that all its profiles share, and profiles that differ in
size. The notebook assigns the default values of its parameters in the cell tagged ``parameters``. If a
parameter is not assigned there, papermill only warns, and the run continues with the default; here all names,
types and values are checked before anything starts. Which values a parameter may have is written under
``limits`` in the manifest as a JSON Schema, which has words for ranges, choices, lengths and items, and a
library that validates them.
"""

from __future__ import annotations

import ast
import copy
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from compendium.system import paths
from compendium.system.paths import UsageError

CUSTOM = "custom"  # the kind of runs with overridden parameters, so no profile may have this name
Parameters = dict[str, Any]
_T = TypeVar("_T")

_MERGE = "tag:yaml.org,2002:merge"
#: A code cell of a MyST text: a fence, metadata as a block of YAML or as lines that begin with a colon, the
#: code.
_CODE_CELL = re.compile(
    r"^(?P<fence>`{3,})\{code-cell\}.*\n(?:---\n(?P<yaml>(?:.*\n)*?)---\n|(?P<options>(?::.*\n)+))?"
    r"(?P<source>(?:.*\n)*?)(?P=fence)[ ]*$",
    re.MULTILINE,
)
_LARGEST = 100_000  # values that a YAML text may have, each alias counted in full
_LOCAL_PATH = re.compile(r'"(/|~|[A-Za-z]:\\)')


def _folder_name(name: str) -> str:
    if name == CUSTOM or not re.fullmatch("[a-z0-9][a-z0-9_-]*", name):
        raise ValueError(f"a name is made of a-z, 0-9, - and _, and is not {CUSTOM!r}")
    return name


def _inside(path: str) -> str:
    parts = path.replace("\\", "/").split("/")
    if not path or path.startswith(("/", "~")) or ".." in parts or ":" in path:
        raise ValueError(f"a path inside the project is expected, such as notebooks/name, got {path!r}")
    return path


def _distinct(values: list[Any]) -> list[Any]:
    texts = [json.dumps(value, sort_keys=True, default=str) for value in values]
    if len(set(texts)) != len(texts):
        raise ValueError(f"the values of a grid must differ, got {values}")
    return values


Name = Annotated[str, AfterValidator(_folder_name)]
Limits = dict[str, dict[str, Any]]
DataName = Literal["MNIST", "Fashion-MNIST", "MovieLens-100k", "InstEval"]


class Experiment(BaseModel):
    """One experiment of the manifest. Its limits replace those that all experiments share."""

    model_config = ConfigDict(extra="forbid")

    _name: str = PrivateAttr("")

    title: str
    notebook: Annotated[str, AfterValidator(_inside)]
    data: list[DataName] = []
    parameters: Parameters = {}
    grid: dict[str, Annotated[list[Any], Field(min_length=1), AfterValidator(_distinct)]] = {}
    #: By parameter of the grid, its value and a profile: the parameters of the runs with that value alone.
    per_value: dict[str, dict[str, dict[Name, Parameters]]] = {}
    limits: Limits = {}
    profiles: Annotated[dict[Name, Parameters], Field(min_length=1)]

    @model_validator(mode="after")
    def _one_place_for_a_parameter(self) -> Self:
        for place, names in {"parameters": self.parameters, **self.profiles}.items():
            if both := sorted(set(names) & set(self.grid)):
                raise ValueError(f"{', '.join(both)} cannot be both in the grid and in {place}")
        return self

    @model_validator(mode="after")
    def _values_of_the_grid(self) -> Self:
        for name, values in self.per_value.items():
            for value, profiles in values.items():
                place = f"per_value.{name}.{value}"
                if value not in self.grid.get(name, []):
                    raise ValueError(f"{place} is no value of the grid")
                if unknown := sorted(set(profiles) - set(self.profiles)):
                    raise ValueError(f"{place}.{unknown[0]} is no profile")
                if both := sorted(set().union(*profiles.values()) & set(self.grid)):
                    raise ValueError(f"{', '.join(both)} cannot be both in the grid and in {place}")
        return self

    @property
    def name(self) -> str:
        """Name in the manifest."""
        return self._name

    @property
    def source(self) -> Path:
        """Absolute path of the notebook's text, which may not exist."""
        return paths.project_root() / f"{self.notebook}.md"


class Manifest(BaseModel):
    """All experiments, by name, and the limits of the parameters that they share."""

    model_config = ConfigDict(extra="forbid")

    limits: Limits = {}
    experiments: dict[Name, Experiment]

    @model_validator(mode="after")
    def _complete_the_experiments(self) -> Self:
        for name, experiment in self.experiments.items():
            experiment._name = name
            experiment.limits = {**self.limits, **experiment.limits}
        return self

    def experiment(self, name: str) -> Experiment:
        """Return the experiment of this name, or raise an error that lists the names."""
        return _pick(self.experiments, name, "experiment")


class _Loader(yaml.SafeLoader):
    """A loader of YAML that refuses a repeated key of a mapping, of which the plain loader takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != _MERGE]
        for place, key in enumerate(keys):
            if key in keys[:place]:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key!r} is there twice", node.value[place][0].start_mark
                )
        return super().construct_mapping(node, deep)


def _read_yaml(text: str) -> Any:
    """Read YAML of a size that a person can have meant; what the caller gets is the caller's own.

    With aliases of aliases, a few lines have billions of values, and brackets may be nested more deeply than
    Python can follow.

    Raises
    ------
    yaml.YAMLError
        If the text is not YAML, has too many values or is nested too deeply.
    """
    try:
        return copy.deepcopy(_parsed(text))
    except RecursionError:
        raise yaml.YAMLError("it is nested too deeply") from None


@lru_cache(maxsize=1)
def _parsed(text: str) -> Any:
    """The values of a text, kept, since the manifest is asked for many times and parsing it takes long."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _size(node, {}) > _LARGEST:
            raise yaml.YAMLError(f"it stands for more than {_LARGEST:,} values")
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _size(node: yaml.Node, known: dict[int, float]) -> float:
    """Return how many values a node has, each alias counted in full; infinite if it contains itself."""
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in known:
        known[id(node)] = math.inf
        parts = itertools.chain(*node.value) if isinstance(node, yaml.MappingNode) else node.value
        known[id(node)] = 1 + sum(_size(part, known) for part in parts)
    return known[id(node)]


def load_manifest(path: Path | None = None) -> Manifest:
    """Read and validate the manifest.

    Parameters
    ----------
    path : Path, optional
        The file; ``experiments.yml`` of the project by default.

    Raises
    ------
    UsageError
        If the file is missing, is not YAML, or has missing, unknown or wrongly typed keys.
    """
    path = path or paths.manifest_file()
    try:
        return Manifest.model_validate(_read_yaml(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UsageError(f"{path.name} not found in {path.parent}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{path.name} is not valid YAML: {error}") from None
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()]
        raise UsageError("\n".join([f"{path.name} is not a valid manifest:", *lines])) from None


def notebook_parameters(source: Path) -> Parameters:
    """Return the parameters of a notebook with their defaults, in their order.

    Parameters
    ----------
    source : Path
        The notebook: its MyST text, or the executed ``.ipynb``. Exactly one code cell must be tagged
        ``parameters``, and it may only assign literals to names.

    Notes
    -----
    papermill finds parameters with regular expressions, which miss values over several lines and lines with
    two equal signs, and which do not evaluate. The cell is Python, so here it is parsed as Python. The cells
    are found without jupytext and nbformat, whose import takes seconds, so that a stored run is found within
    a second.
    """
    if not source.is_file():
        raise UsageError(f"the notebook {source} does not exist")
    tagged = [text for tags, text in _code_cells(source) if "parameters" in tags]
    if len(tagged) != 1:
        raise UsageError(f"{source.name} needs exactly one cell tagged 'parameters', it has {len(tagged)}")
    try:
        statements = ast.parse(tagged[0]).body
    except SyntaxError as error:
        raise UsageError(f"{source.name}: the parameters cell is not valid Python: {error}") from None
    defaults: Parameters = {}
    for statement in statements:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case _:
                raise _not_literal(source, statement)
        try:
            defaults[name] = ast.literal_eval(value)
        except ValueError:
            raise _not_literal(source, statement) from None
    return defaults


def _code_cells(source: Path) -> Iterator[tuple[list[str], str]]:
    """Yield tags and source of each code cell of a notebook, which is a MyST text or an ``.ipynb``."""
    try:
        text = source.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{source.name} is not text in UTF-8: {error}") from None
    if source.suffix == ".ipynb":
        for cell in json.loads(text)["cells"]:
            if cell["cell_type"] == "code":
                yield cell["metadata"].get("tags", []), "".join(cell["source"])
        return
    for cell in _CODE_CELL.finditer(text):
        header = cell["yaml"] or re.sub("^:", "", cell["options"] or "", flags=re.MULTILINE)
        yield (yaml.safe_load(header) or {}).get("tags", []), cell["source"]


def parse_override(text: str) -> tuple[str, Any]:
    """Split ``name=value`` from the command line; the value is read as YAML.

    >>> parse_override("sketch_sizes=[5, 10]")
    ('sketch_sizes', [5, 10])
    """
    name, equals, value = text.partition("=")
    if not (equals and name.isidentifier()):
        raise UsageError(f"-p {text}: expected name=value")
    try:
        return name, _read_yaml(value)
    except yaml.YAMLError:
        short = text if len(text) < 100 else f"{text[:100]}..."
        raise UsageError(f"-p {short}: the value is not valid YAML") from None


def expand(experiment: Experiment, overrides: Mapping[str, Any]) -> list[Parameters]:
    """Return the points of an experiment's grid, each of which has the parameters of one run.

    A parameter that is overridden is taken out of the grid. Without a grid there is one point without
    parameters.
    """
    axes = {name: values for name, values in experiment.grid.items() if name not in overrides}
    return [dict(zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]


def sorted_out(
    experiment: Experiment, profile: str, point: Mapping[str, Any], overrides: Mapping[str, Any]
) -> tuple[Parameters, Parameters]:
    """Return the point of the grid and what is overridden, where a user gives values that are no change.

    A value of the grid names a point of it. A value that the profile has anyway overrides nothing.

    Raises
    ------
    UsageError
        As in `resolve`.
    """
    given = resolve(experiment, profile, {**point, **overrides})
    named = {n for n in overrides if n in experiment.grid and given[n] in experiment.grid[n]}
    point = {name: given[name] for name in experiment.grid if name in point or name in named}
    usual = notebook_parameters(experiment.source) | resolve(experiment, profile, point)
    return point, {name: overrides[name] for name in overrides if given[name] != usual[name]}


def resolve(experiment: Experiment, profile: str, overrides: Mapping[str, Any]) -> Parameters:
    """Return the parameters of a run, checked against the notebook.

    Parameters
    ----------
    experiment : Experiment
        The experiment with its parameters and profiles.
    profile : str
        Name of one of its profiles.
    overrides : mapping
        Parameters that replace those of the manifest. A value of the grid among them, which stands here too,
        brings the parameters that the manifest has for it under ``per_value``.

    Returns
    -------
    dict
        The parameters that are passed to the notebook, in the order of its parameters cell. Its other
        parameters keep their defaults.

    Raises
    ------
    UsageError
        If a name is unknown, or a value has another type than the notebook's default or is out of its limits.
    """
    shared = {**experiment.parameters, **_pick(experiment.profiles, profile, "profile")}
    chosen = {**shared, **_of_values(experiment, profile, overrides), **overrides}
    defaults = notebook_parameters(experiment.source)
    for name in chosen:
        _pick(defaults, name, "parameter")
    fitted = {}
    for name, default in defaults.items():
        if name in chosen:
            try:
                fitted[name] = _fit(name, default, chosen[name])
            except UsageError as error:
                if name in overrides:
                    raise
                raise UsageError(f"{_place(experiment, profile, overrides, name)}: {error}") from None
    written = {
        name: f"{_place(experiment, profile, overrides, name)}={_shown(chosen[name])}" for name in fitted
    }
    check_parameters(experiment, fitted, written)
    for name, value in fitted.items():
        if _LOCAL_PATH.search(json.dumps(value)):
            raise UsageError(
                f"parameter {name} names a path of this machine, and a record must not: {value!r}"
            )
    return fitted


def _of_values(experiment: Experiment, profile: str, overrides: Mapping[str, Any]) -> Parameters:
    """Return what the manifest has for the values of the grid among the overrides."""
    found: Parameters = {}
    for name, values in experiment.per_value.items():
        found |= values.get(str(overrides.get(name)), {}).get(profile, {})
    return found


def check_parameters(
    experiment: Experiment, parameters: Parameters, written: Mapping[str, str] | None = None
) -> None:
    """Compare values with the limits of the manifest.

    Parameters
    ----------
    experiment : Experiment
        The experiment with the limits; a parameter without limits may have any value.
    parameters : dict
        The values by name.
    written : mapping, optional
        Where and how each value was written, with which the message begins.

    Raises
    ------
    UsageError
        For the first value that is out of its limits.
    """
    for name, value in parameters.items():
        for error in _validator(experiment, name).iter_errors(value):
            inner = error.json_path.removeprefix("$")
            start = written[name] if written else f"{name}={_shown(value)}"
            raise UsageError(f"{start}: {f'item {inner} ' if inner else ''}{_said(error)}")


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)


def _place(experiment: Experiment, profile: str, overrides: Mapping[str, Any], name: str) -> str:
    """Return where a value was written: on the command line, or at which place in the manifest."""
    if name in overrides and overrides[name] not in experiment.grid.get(name, []):
        return f"-p {name}"
    inner = f"profiles.{profile}" if name in experiment.profiles[profile] else "parameters"
    inner = "per_value" if name in _of_values(experiment, profile, overrides) else inner
    inner = "grid" if name in experiment.grid else inner
    return f"experiments.yml, experiments.{experiment._name}.{inner}: {name}"


def _said(error: Any) -> str:
    """Return what a JSON Schema requires, in words."""
    asked = error.validator_value
    words = {
        "minimum": f"must be at least {asked}",
        "exclusiveMinimum": f"must be greater than {asked}",
        "maximum": f"must be at most {asked}",
        "exclusiveMaximum": f"must be less than {asked}",
        "enum": f"must be one of {asked}",
        "type": f"must be of type {asked}",
        "minItems": f"must have at least {asked} items",
        "maxItems": f"must have at most {asked} items",
        "uniqueItems": "must have each item once",
        "increasing": "must be in increasing order",
        "contains": f"must have an item with {asked}",
    }
    if error.validator not in words:
        return str(error.message)
    return f"{words[error.validator]}, got {json.dumps(error.instance, ensure_ascii=False)}"


def _validator(experiment: Experiment, name: str) -> Any:
    """Return a validator of a parameter's limits: JSON Schema with the keyword `increasing` for lists."""
    import jsonschema

    def increasing(_: Any, wanted: bool, value: Any, __: Any) -> Iterator[Any]:
        if wanted and isinstance(value, list) and any(a >= b for a, b in itertools.pairwise(value)):
            yield jsonschema.ValidationError("must be in increasing order")

    kind = jsonschema.validators.extend(jsonschema.Draft202012Validator, {"increasing": increasing})
    schema = experiment.limits.get(name, {})
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise UsageError(f"experiments.yml, limits.{name} is not a JSON Schema: {error.message}") from None
    return kind(schema)


def _fit(name: str, default: Any, value: Any) -> Any:
    """Return the value in the type of the default, or raise an error that says why it does not fit."""
    if isinstance(default, float) and isinstance(value, int | float | str) and not isinstance(value, bool):
        # YAML 1.1 reads 1e-3 as text and 1 as an integer, where the notebook needs floating-point numbers.
        with suppress(ValueError, OverflowError):
            if math.isfinite(number := float(value)):
                return number
    wanted = list if isinstance(default, tuple) else type(default)
    if default is not None and type(value) is not wanted:
        raise UsageError(
            f"parameter {name} must be {wanted.__name__} (its default is {default!r}), "
            f"got {value!r} ({type(value).__name__})"
        )
    if isinstance(default, list | tuple) and default and not value:
        raise UsageError(f"parameter {name} must not be empty (its default is {default!r})")
    if isinstance(default, list) and default and all(isinstance(item, float) for item in default):
        return [_fit(f"{name}[{i}]", default[0], item) for i, item in enumerate(value)]
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise UsageError(
            f"parameter {name} must be made of plain values (no date, nan or infinity), got {value!r}"
        ) from None
    return value


def _pick(choices: Mapping[str, _T], name: str, kind: str) -> _T:
    """Return the named choice, or an error that lists the valid names."""
    if name not in choices:
        raise UsageError(f"unknown {kind} {name!r}; there are: {', '.join(choices) or 'none'}")
    return choices[name]


def _not_literal(source: Path, statement: ast.stmt) -> UsageError:
    return UsageError(
        f"{source.name}: the parameters cell may only assign literals to names, "
        f"found: {ast.unparse(statement)}"
    )
