"""Machine code of small functions over arrays, by numba.

numba keeps machine code as long as the file of the outer function is unchanged, whatever happens to the
files of the inner ones. So what a `compiled` function calls stands in the same file, or in one that it
names.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """The function as machine code, made at its first call and kept for later processes; it does not
    hold Python's lock, so that a network computes beside it.
    """
    return _kept(function, {})


def compiled_from(*modules: ModuleType) -> Callable[[Function], Function]:
    """`compiled`, for a function of `part`s that stand in these modules; its machine code is made anew
    when one of their files changes.
    """

    def decorate(function: Function) -> Function:
        made: Any = _kept(
            function, {"error_model": "numpy", "no_cfunc_wrapper": True, "_nrt": False}
        )
        files = sorted(str(module.__file__) for module in modules)
        if hasattr(made._cache, "_cache_file"):
            # Time and size of a file are what numba itself looks at.
            stamps = [(Path(file).stat().st_mtime, Path(file).stat().st_size) for file in files]
            cache_file = made._cache._cache_file
            cache_file._source_stamp = (cache_file._source_stamp, *stamps)
        kept: Function = made
        return kept

    return decorate


def part(function: Function) -> Function:
    """A function that only compiled functions call. It has no entry for Python, which would take as long
    to compile as the function itself, and divides by 0 as numpy does.
    """
    made: Function = numba.njit(
        function,
        nogil=True,
        error_model="numpy",
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
        _nrt=False,
    )
    return made


def inlined(function: Function) -> Function:
    """A `part` with one caller, which it is compiled with and not before."""
    made: Function = numba.njit(function, inline="always")
    return made


def _kept(function: Function, options: dict[str, Any]) -> Function:
    try:
        made: Function = numba.njit(function, cache=True, nogil=True, **options)
    except RuntimeError:
        # numba finds no folder to keep machine code in: the image is read-only, and its user has no
        # home.
        made = numba.njit(function, nogil=True, **options)
    return made
