"""How a function becomes a kernel, and when a compiled kernel that numba has stored on disk is still valid.

numba recompiles a stored kernel if the file that defines it has changed. But a kernel contains the code of
all kernels that it calls, which live in other files of this folder. Here a stored kernel is therefore valid
only as long as no file of the folder changes. For the same reason a kernel takes what it needs from outside
the folder, a threshold for instance, as an argument and not as a global name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

try:
    from numba import njit
except ImportError as error:
    raise ImportError('compiled=True needs numba: pip install ".[fast]"') from error

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile a function. The compiler may reorder and fuse sums; infinities and NaN keep their meaning."""
    return _compile(function, {"reassoc", "contract"})


def exact_kernel(function: Function) -> Function:
    """Compile a function with every operation rounded as written, so that `p * x + q * y` is not fused."""
    return _compile(function, set())


def _compile(function: Function, fastmath: set[str]) -> Function:
    # No kernel is called from C; leaving out that entry saves a fifth of the time of the compilation.
    options: dict[str, Any] = {"fastmath": fastmath, "error_model": "numpy", "no_cfunc_wrapper": True}
    try:
        compiled = njit(cache=True, **options)(function)
    except RuntimeError:  # numba can write neither to the package's folder nor to the user's.
        return cast(Function, njit(**options)(function))
    on_disk = getattr(compiled, "_cache", None)  # With NUMBA_DISABLE_JIT=1 there is no cache.
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
