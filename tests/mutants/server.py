"""Runs tests in forks of a process that has imported what is slow to import: torch takes seconds.

    python -P server.py MODULE…

A line of JSON in, `{"tests": […], "limit_s": …}`; a line out: how the tests ended (`HUNG`, or an
exit code of pytest) and what they printed. Nothing of the project may be imported here: the next
mutant would not be.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

HUNG = "hung"
LARGEST_MEMORY = 8 << 30  # of a mutant that never stops to allocate


def main(preloaded: list[str]) -> None:
    """Until there is no further line."""
    for name in preloaded:
        importlib.import_module(name)
    if "hypothesis" in preloaded:
        _stop_at_the_first_failure()
    for line in sys.stdin:
        with tempfile.NamedTemporaryFile() as output:
            started = time.monotonic()
            ended = _run(json.loads(line), Path(output.name))
            seconds = time.monotonic() - started
            text = Path(output.name).read_text("utf-8", "replace")
        print(json.dumps({"ended": ended, "seconds": seconds, "output": text}), flush=True)


def _stop_at_the_first_failure() -> None:
    """Which example fails does not matter; looking for a smaller one takes a minute. Nor does how
    long one takes: the machine is busy."""
    from hypothesis import HealthCheck, Phase, settings

    settings.register_profile(
        "mutants",
        phases=(Phase.explicit, Phase.generate),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("mutants")


def _run(task: dict[str, object], output: Path) -> int | str:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = _test(task, output)
        finally:
            os._exit(code)
    try:
        return _ended(child, time.monotonic() + float(str(task["limit_s"])))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # and what its tests have started


def _ended(child: int, deadline: float) -> int | str:
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    return HUNG


def _test(task: dict[str, object], output: Path) -> int:
    """In the child, which begins a group of its own: its processes end with it."""
    import resource

    import pytest

    os.setsid()
    resource.setrlimit(resource.RLIMIT_DATA, (LARGEST_MEMORY, LARGEST_MEMORY))
    sys.stdin.close()
    with output.open("w") as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
        options = ["-x", "-q", "--tb=line", "-p", "no:cacheprovider", "-o", "timeout=60"]
        ignored = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        return int(pytest.main([*options, *ignored, *map(str, task["tests"])]))  # type: ignore[call-overload]


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where it was ignored before
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[1:])
