"""What both ends of a gRPC connection agree on: names of calls, deadlines, keepalive, and the settings
of the C libraries beneath, which must be made before gRPC is used.

Pulling 40 MB of weights over a local socket on two cores takes 38 ms with gRPC's defaults, 34 ms with
its event-engine experiments off, and 28 ms if glibc also keeps freed memory.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

SERVICE = "rl_training_dag.Learner"
KEEPALIVE_S = 20.0
"""Seconds between two pings, and the longest wait for the answer to one."""
JOIN_S = 20.0
WEIGHTS_S = 300.0
STREAM_S = 3600.0
"""Deadlines of the three kinds of calls. A stream that reaches its deadline is opened again."""
LONGEST_CALL_S = STREAM_S + 60
"""The learner refuses calls with a later deadline or none, because they could hold a thread for ever."""
AUTHORIZATION = "authorization"
INCARNATION = "incarnation"
"""Keys of the calls' metadata."""

Options = list[tuple[str, Any]]


def method(name: str) -> str:
    """The path of a call: `/service/name`."""
    return f"/{SERVICE}/{name}"


def bearer(token: str) -> str:
    """The value of the `authorization` metadata."""
    return f"Bearer {token}"


def connection_options(keepalive_s: float) -> Options:
    """Options for either end: ping after `keepalive_s` seconds, and give the connection up if no
    answer comes within another `keepalive_s`.

    Each end must allow the other's pings: by default gRPC treats pings more often than every five
    minutes as an attack. `ping_timeout_ms` must be set too: while it is longer (a minute by default),
    the keepalive timeout has no effect (seen with gRPC 1.85).
    """
    milliseconds = int(1000 * keepalive_s)
    return [
        ("grpc.keepalive_time_ms", milliseconds),
        ("grpc.keepalive_timeout_ms", milliseconds),
        ("grpc.http2.ping_timeout_ms", milliseconds),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", milliseconds // 2),
    ]


ENVIRONMENT = {
    # These experiments are off, so that a waiting thread does its own I/O instead of handing it to
    # one of gRPC's threads.
    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener",
    # gRPC would log every lost connection; the actor reports it once, in its own words.
    "GRPC_VERBOSITY": "ERROR",
}
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
"""Parameters of glibc's `mallopt`."""
LARGEST_KEPT_BYTES = 32 * 2**20
"""The largest mmap threshold that glibc accepts."""
KEPT_BYTES = 64 * 2**20


def settle() -> None:
    """Apply gRPC's environment variables, unless they are set already, and make glibc keep freed memory.

    By default glibc returns the memory of large messages to the system, and every further message
    of a megabyte faults it in again page by page.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # Other C libraries (musl, macOS's) have no mallopt.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
