"""Run the code cells of a notebook as a script, and tell which of some claims its evidence turns against.

    python tests/claim_evidence.py notebooks/02_woodbury_inverse.md C14 C14a

Prints, as JSON, what failed for each of the claims that noticed something: the message of the first line
of evidence that is untrue, or the error that stopped the notebook.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import sys
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from compendium.claims import evidence

FUNCTIONS = ("evidence", "symbolic", "bounded", "covered", "fitted", "refuted", "caught")


class _AllNoticed(Exception):  # noqa: N818  # ends the run, and is no error
    pass


def noticed(cells: Iterable[str], claims: Iterable[str]) -> dict[str, str]:
    """What failed for each of the claims, by claim; a claim that noticed nothing is left out.

    A line of evidence that is untrue does not stop the run, unless all claims have noticed: the evidence of
    each is asked. Any other error leaves out the rest of its cell, and the later cells run without it. A
    claim whose evidence says nothing then has noticed by the first error, as the notebook could not be
    executed.
    """
    wanted, found, stopped = set(claims), {}, ""
    cell = 0

    def asked(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def call(claim: str, *arguments: Any, **options: Any) -> None:
            try:
                function(claim, *arguments, **options)
            except AssertionError as error:
                if claim in wanted:
                    found.setdefault(claim, f"cell {cell}: {error}")
                if wanted <= found.keys():
                    raise _AllNoticed from None

        return call

    originals = {name: getattr(evidence, name) for name in FUNCTIONS}
    main, module = sys.modules["__main__"], types.ModuleType("__main__")
    sys.modules["__main__"] = module  # where what a notebook defines is looked for
    try:
        for name, function in originals.items():
            setattr(evidence, name, asked(function))
        with contextlib.redirect_stdout(io.StringIO()):
            for cell, source in enumerate(cells, start=1):  # `call` reads it
                try:
                    exec(compile(source, f"<cell {cell}>", "exec"), vars(module))
                except _AllNoticed:
                    raise
                except Exception as error:
                    stopped = stopped or f"cell {cell} stops: {type(error).__name__}: {error}"
    except _AllNoticed:
        pass
    finally:
        sys.modules["__main__"] = main
        for name, function in originals.items():
            setattr(evidence, name, function)
    return found | (dict.fromkeys(wanted - found.keys(), stopped) if stopped else {})


def main(notebook: str, *claims: str) -> None:
    """Print what failed for each of the claims."""
    import jupytext
    import matplotlib as mpl

    mpl.use("Agg")
    path = Path(notebook).resolve()
    cells = [cell.source for cell in jupytext.read(path, fmt="md:myst").cells if cell.cell_type == "code"]
    os.chdir(path.parent)
    print(json.dumps(noticed(cells, claims)))


if __name__ == "__main__":
    main(*sys.argv[1:])
