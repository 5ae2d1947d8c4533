"""How a function becomes a kernel, and when a kernel that numba keeps on disk is still valid.

numba compares a kernel on disk with the file of that kernel alone. A kernel contains the code of all kernels
that it calls, and those live in other files; so here it is compared with all files of this folder. What a
kernel needs from outside the folder, a threshold for instance, is therefore an argument and no global name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

try:
    from numba import njit
except ImportError as error:
    raise ImportError("compiled=True needs numba: pip install .[fast]") from error

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile; sums may be reordered and fused, infinities and NaN keep their meaning."""
    return _compile(function, {"reassoc", "contract"})


def exact_kernel(function: Function) -> Function:
    """Compile with each operation rounded as it is written: a fused sum would round one product of two."""
    return _compile(function, set())


def _compile(function: Function, fastmath: set[str]) -> Function:
    options: dict[str, Any] = {"fastmath": fastmath, "error_model": "numpy"}
    try:
        compiled = njit(cache=True, **options)(function)
    except RuntimeError:  # neither the package's folder nor the user's can be written
        return cast(Function, njit(**options)(function))
    on_disk = getattr(compiled, "_cache", None)  # there is none with NUMBA_DISABLE_JIT=1
    if on_disk is not None:
        on_disk._cache_file._source_stamp = _SOURCES
    return cast(Function, compiled)


def _digest(folder: Path) -> str:
    """The digest of all modules in a folder."""
    sources = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        sources.update(path.read_bytes())
    return sources.hexdigest()


_SOURCES = _digest(Path(__file__).parent)
