"""What `throughput.Worker` talks to: a process that works for a segment when told to.

Needs nothing but Python, because the workers of others run in environments of their own, as programs
that find this file beside them. Each line
"SECONDS" on standard input starts a segment of at least so many seconds. Its answer is a line with the
environment steps and with how long they took by both clocks.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

Work = Callable[[], int]
"""Does some, and says how many environment steps of a training it belongs to."""


def serve(work: Work, **ready: float) -> None:
    """Serve segments until standard input ends. ready: what the line that says "ready" tells besides."""
    print(json.dumps({"ready": True} | ready), flush=True)
    for line in sys.stdin:
        steps, started, computed = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - started < float(line):
            steps += work()
        print(
            json.dumps(
                {
                    "steps": steps,
                    "seconds": time.perf_counter() - started,
                    "cpu_seconds": time.process_time() - computed,
                }
            ),
            flush=True,
        )
