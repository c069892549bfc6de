"""Machine code of small functions over arrays, by numba.

numba keeps machine code as long as the file of the outer function is unchanged, whatever happens to the
files of the inner ones. So what a `compiled` function calls stands in the same file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from agents.machine_code import kept_machine_code

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """The function as machine code, made at its first call and kept for later processes; it does not
    hold Python's lock, so that a network computes beside it.
    """
    made: Function = kept_machine_code(function, nogil=True)
    return made
