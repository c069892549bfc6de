"""`tests.plain_receiver` as a process, for tests that kill, stop or flood it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agents.transport.address import Address
from tests.outside import ROOT
from tests.plain_receiver import read_address
from tests.waiting import until


class LearnerProcess:
    """Listens once it is made; its address is in `folder`."""

    def __init__(self, folder: Path, generation: int = 1) -> None:
        self.folder = folder
        self._errors = folder / f"errors-{generation}.txt"
        with self._errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.plain_receiver", str(folder), str(generation)],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

        def address() -> Address | None:
            assert self.process.poll() is None, self.errors
            found = read_address(folder)
            return found if found is not None and found.generation == generation else None

        found = until(address)
        assert found is not None
        self.address: Address = found

    def seen(self, command: str = "") -> dict[str, Any]:
        """What went through it so far, after `hold` or `go`."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{command}\n")
        self.process.stdin.flush()
        seen: dict[str, Any] = json.loads(self.process.stdout.readline())
        return seen

    @property
    def errors(self) -> str:
        """What it complained about."""
        return self._errors.read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                stream.close()
