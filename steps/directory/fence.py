"""Of several attempts of one task, only the one that started last writes.

A workflow owns a directory (`owner.py`), but a lost node or a pod that was deleted by force leaves
its process running while Argo starts the next attempt elsewhere, with the same workflow. So each
attempt writes a name of its own into `status/.<task>.attempt`, once, before anything else, and
never again: an older attempt that still lives, or wakes up later, finds another name there, writes
nothing more and ends with 4. It cannot take the file back. What it was writing at that very moment
is lost with it, because every growing file is a new one for each attempt (`tables.Table`), and a
checkpoint that counts on rows of another attempt is none.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from config.errors import WrongDirectory
from steps.directory.files import read_bytes, write_atomically

NAME_LIMIT_BYTES = 256


class Fence:
    """The right of one attempt to write. path: where the name of the newest attempt stands."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._name = secrets.token_hex(16).encode()

    def claim(self) -> None:
        """Become the newest attempt: from now on all older ones are shut out. To be called once.

        One of those may just be beginning, and sweep the temporary away.
        """
        try:
            write_atomically(self._path, self._name)
        except FileNotFoundError:
            write_atomically(self._path, self._name)

    def check(self) -> None:
        """Raise `WrongDirectory` if a newer attempt has started, and the usual `OSError`s."""
        if self._newest() != self._name:
            raise WrongDirectory(
                f"another attempt of this step has started since and writes here now ({self._path})"
            )

    def _newest(self) -> bytes | None:
        try:
            return read_bytes(self._path, NAME_LIMIT_BYTES)
        except FileNotFoundError:
            return None
