"""Load what people bring by import path: `package.module:Name`.

A user's module may raise anything when it is imported, or end the process. That becomes one line of
`BadInput`, never a traceback.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

from config.errors import BadInput, shown
from config.own_packages import PACKAGES, refuse_hidden, top_level

MODULE = r"[A-Za-z_][A-Za-z0-9_]{0,63}(?:\.[A-Za-z_][A-Za-z0-9_]{0,63}){0,15}"
NAME = r"[A-Za-z_][A-Za-z0-9_]{0,63}"
IMPORT_PATH = re.compile(rf"{MODULE}:{NAME}")
LONGEST_REASON = 300
NO_VERSION = "no version"
"""The version of a module that belongs to no installed package, such as a file in the working
directory.
"""


def is_import_path(text: str) -> bool:
    """Whether a text has the form `package.module:Name`. Nothing is imported."""
    return IMPORT_PATH.fullmatch(text) is not None


def imported(path: str, what: str) -> Any:
    """Import the object of an import path.

    what: how a message calls it, such as `algorithm`. Raises `BadInput` with one line if the path
    has another form or the import fails.
    """
    if not is_import_path(path):
        raise BadInput(f"{what} {shown(path)} is no import path; allowed: package.module:Name")
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:
        raise BadInput(f"{what} {path!r} cannot be imported: {reason(error)}") from error


def lies_in(path: str, folder: Path) -> bool:
    """Whether the module of an import path would be imported from inside a folder. Nothing is
    imported.
    """
    top = top_level(path)
    if top in sys.modules:
        module = sys.modules[top]
        # A namespace package has no file of its own.
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    else:
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError):
            return False
        if spec is None:
            return False
        places = [spec.origin, *(spec.submodule_search_locations or ())]
    inside = folder.resolve()
    return any(Path(place).resolve().is_relative_to(inside) for place in places if place)


def reason(error: BaseException) -> str:
    """An error of a user's code on one line: `ValueError: map=9 is too large`."""
    text = " ".join(str(error).split())[:LONGEST_REASON]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def package_versions(paths: list[str]) -> dict[str, str]:
    """The versions of the packages that these import paths belong to, for the identity of an
    experiment.

    This project's own packages are left out, because the source commit is recorded. Nothing is
    imported. Raises `BadInput` for a module that is hidden by one of this project's.
    """
    refuse_hidden(paths)
    modules = {top_level(path) for path in paths}
    versions: dict[str, str] = {}
    for module in sorted(modules - set(PACKAGES)):
        for package in _packages().get(module, [module]):
            versions[package] = _version(package)
    return versions


@functools.cache
def _packages() -> dict[str, list[str]]:
    """Top-level module -> the names of the installed packages that contain it."""
    found = importlib.metadata.packages_distributions()
    return {module: sorted(set(packages)) for module, packages in found.items()}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return NO_VERSION
