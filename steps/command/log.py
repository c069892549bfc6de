"""`logs/<task>.log`: everything that the process, its C libraries and its children print. It
reaches the disk first.

Descriptors 1 and 2 become the log file itself, and a thread copies what arrives there to the
original standard output, which the pod shows. So a print never waits for a thread, and a SIGKILL
loses nothing of the log. If the reader of the original output has left or stands still, it misses
the rest, and the step still ends. (`config.streams` makes sure that 1 and 2 are open.)

An environment may print without end. An attempt's part of the file is therefore bounded: of what is
more than LARGEST_BYTES, the beginning and the end stay.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from pathlib import Path

POLL_S = 0.1
DRAIN_S = 5.0
LARGEST_BYTES = 64 * 2**20
FIRST_BYTES = 8 * 2**20
LAST_BYTES = 2**20
"""Of a part that has become too large, so many bytes stay at its beginning and at its end."""


class Log:
    """The log file of a step. Each attempt is appended."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        self._reader = os.open(path, os.O_RDONLY)
        self._begins = os.lseek(self._reader, 0, os.SEEK_END)
        self._ended = threading.Event()
        self._given_up = False
        _flush()
        # Descriptors and not `sys.stdout`: C libraries and child processes print, too.
        self._originals = [os.dup(1), os.dup(2)]
        os.dup2(self._file, 1)
        os.dup2(self._file, 2)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError):
                stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        self._thread = threading.Thread(target=self._follow, name="log", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Print to the original descriptors again. Waits a limited time until they have received
        everything.
        """
        _flush()
        self._ended.set()
        self._thread.join(DRAIN_S)
        if self._thread.is_alive():
            self._give_up_readers()
        for original, descriptor in zip(self._originals, (1, 2), strict=True):
            os.dup2(original, descriptor)
            os.close(original)
        os.close(self._file)

    def _give_up_readers(self) -> None:
        """Stop copying to a reader that does not read: a full pipe would block the next print for
        ever.
        """
        self._given_up = True
        nothing = os.open(os.devnull, os.O_WRONLY)
        for descriptor in (1, 2):
            os.dup2(nothing, descriptor)
        self._originals = [os.dup(nothing), nothing]

    def _follow(self) -> None:
        shown = True
        while True:
            # Looked at before reading: what was printed before the end is then read in this round.
            ended = self._ended.is_set()
            while chunk := os.read(self._reader, 65536):
                shown = shown and not self._given_up and _write(self._originals[0], chunk)
                with contextlib.suppress(OSError):
                    self._bound()
            if ended:
                os.close(self._reader)
                return
            self._ended.wait(POLL_S)

    def _bound(self) -> None:
        """Leave out the middle of what this attempt has written, if it is too large. Others write at
        the end of the file meanwhile: a few of their lines may be lost with the middle.
        """
        end = os.fstat(self._file).st_size
        if end - self._begins <= LARGEST_BYTES:
            return
        last = os.pread(self._reader, LAST_BYTES, end - LAST_BYTES)
        left_out = end - self._begins - FIRST_BYTES - LAST_BYTES
        os.ftruncate(self._file, self._begins + FIRST_BYTES)
        notice = (
            f"\n… {left_out} bytes are left out here: more than {LARGEST_BYTES} were printed …\n"
        )
        os.write(self._file, notice.encode() + last)
        os.lseek(self._reader, 0, os.SEEK_END)


def append_line(path: Path, line: str) -> None:
    """Append one line to a closed log. Errors such as a full disk are ignored, because the line is
    also printed on the terminal.
    """
    with contextlib.suppress(OSError), path.open("a") as file:
        file.write(line + "\n")


def _write(descriptor: int, chunk: bytes) -> bool:
    """Write to the original standard output. Returns False if nobody reads it any more."""
    view = memoryview(chunk)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError:
        return False
    return True


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
