"""Where numba keeps the machine code of this program's functions for later processes."""

from __future__ import annotations

import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

INSTALLED = Path(sysconfig.get_path("purelib"))
OUTSIDE = "UserProvidedCacheLocator,UserWideCacheLocator"
"""numba's names of the folder in NUMBA_CACHE_DIR and that in the user's cache."""


def kept_machine_code(function: Callable[..., Any], **options: Any) -> Any:
    """`numba.njit` of a function, compiled at its first call and kept: beside its module, or, where that
    is an installed package, in the user's cache, so that pip can remove the package without a trace. Not
    kept where numba finds no folder: the image is read-only, and its user has no home.
    """
    before = numba.config.CACHE_LOCATOR_CLASSES
    if Path(function.__code__.co_filename).is_relative_to(INSTALLED):
        numba.config.CACHE_LOCATOR_CLASSES = before or OUTSIDE
    try:
        return numba.njit(function, cache=True, **options)
    except RuntimeError:
        return numba.njit(function, **options)
    finally:
        numba.config.CACHE_LOCATOR_CLASSES = before
