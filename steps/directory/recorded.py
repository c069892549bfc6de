"""The file of recorded games that an experiment of self-play begins with (`imitate`)."""

from __future__ import annotations

import os

from config.errors import BadInput, shown
from config.outdir import check_outdir
from config.resolve import Resolved
from steps.directory.files import read_bytes

LARGEST_BYTES = 256 * 2**20


def recorded_games(resolved: Resolved) -> str | None:
    """Its text; None where there is no such file to begin with. Raises `BadInput`."""
    given = getattr(resolved.hyperparameters, "imitate", None)
    if given is None:
        return None
    path = check_outdir(given, os.environ.get("STORAGE") or None, "imitate")
    try:
        return read_bytes(path, LARGEST_BYTES).decode()
    except OSError as error:
        because = error.strerror or "it cannot be read"
    except UnicodeDecodeError:
        because = "it is no text"
    raise BadInput(f"parameter 'imitate' cannot be {shown(given)}: {because}: {path}")
