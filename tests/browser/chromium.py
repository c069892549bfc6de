"""A headless Chromium, driven over its own debugging pipe: no driver, no port, no library.

`--remote-debugging-pipe` reads commands from descriptor 3 and writes answers and events to
descriptor 4, as JSON that ends with NUL: https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--mute-audio", "--hide-scrollbars",
)  # fmt: skip
DEADLINE_S = 60.0


def find_chromium() -> str | None:
    """The browser's command, None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Navigated(AssertionError):
    """The page was replaced by another one before it could answer."""


class Chromium:
    """One browser with one page; everything that the page reports is kept in `events`."""

    def __init__(self, profile: Path, *flags: str) -> None:
        command = find_chromium()
        assert command is not None
        commands, self._out = os.pipe()
        self._in, answers = os.pipe()
        wrapped = [
            "bash",
            "-c",
            f'exec "$@" 3<&{commands} 4>&{answers}',
            "bash",
            command,
            *FLAGS,
            *flags,
        ]
        options = [f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        quiet: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
        }
        self._process = subprocess.Popen(
            [*wrapped, *options], pass_fds=(commands, answers), start_new_session=True, **quiet
        )
        os.close(commands)
        os.close(answers)
        self.events: list[dict[str, Any]] = []
        self._buffer, self._number, self._session = b"", 0, ""
        target = next(
            one for one in self.send("Target.getTargets")["targetInfos"] if one["type"] == "page"
        )
        self._session = self.send(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters} | (
            {"sessionId": self._session} if self._session else {}
        )
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                if answer.get("error", {}).get("message") == "Inspected target navigated or closed":
                    raise Navigated(answer)
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def open(self, address: str) -> None:
        """Load a page and wait until everything in it is loaded."""
        self.send("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def reload(self) -> None:
        """Load the page again and wait until everything in it is loaded."""
        self.evaluate("window.isOld = true")
        self.send("Page.reload")
        self.until("document.readyState === 'complete' && !window.isOld")

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page, promises awaited."""
        answer = self.send(
            "Runtime.evaluate",
            expression=expression,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait for a condition in the page, or in the one that replaces it, with a deadline."""
        end = time.monotonic() + DEADLINE_S
        while not self._is_true(condition):
            assert time.monotonic() < end, f"not true within {DEADLINE_S:g} s: {condition}"
            time.sleep(0.05)

    def _is_true(self, condition: str) -> bool:
        try:
            return bool(self.evaluate(f"Boolean({condition})"))
        except Navigated:
            return False

    def happened(self, method: str) -> list[dict[str, Any]]:
        """The parameters of every event of this name so far."""
        self.evaluate("1")
        return [event["params"] for event in self.events if event.get("method") == method]

    def close(self) -> None:
        """End the browser and everything it started."""
        os.close(self._out)
        os.close(self._in)
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait()

    def _read(self) -> dict[str, Any]:
        end = time.monotonic() + DEADLINE_S
        with selectors.DefaultSelector() as selector:
            selector.register(self._in, selectors.EVENT_READ)
            while b"\0" not in self._buffer:
                assert selector.select(max(0.0, end - time.monotonic())), (
                    "the browser does not answer"
                )
                chunk = os.read(self._in, 1 << 20)
                assert chunk, "the browser has ended"
                self._buffer += chunk
        message, self._buffer = self._buffer.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(message)
        return answer
