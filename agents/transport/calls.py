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
"""Between two pings, and the longest wait for an answer to one."""
JOIN_S = 20.0
WEIGHTS_S = 300.0
STREAM_S = 3600.0
"""Deadlines. A stream of unrolls that reaches its own is opened again."""
LONGEST_CALL_S = STREAM_S + 60
"""A learner refuses calls with a later deadline, or none: they would hold a thread for ever."""
AUTHORIZATION = "authorization"
INCARNATION = "incarnation"
"""Names of metadata."""

Options = list[tuple[str, Any]]


def method(name: str) -> str:
    """As it stands in the request's path."""
    return f"/{SERVICE}/{name}"


def bearer(token: str) -> str:
    """The value of the metadata that shows the token."""
    return f"Bearer {token}"


def connection_options(keepalive_s: float) -> Options:
    """Of either end: it sends a ping after so long, and gives the connection up after as long
    again without an answer. Each end allows the other's pings, which gRPC takes for an attack by
    default when they come more often than every five minutes. The timeout of a keepalive has no
    effect while that of pings, a minute by default, is longer (seen with gRPC 1.85).
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
    # By default threads of gRPC's own read and write for those who wait; so whoever waits does.
    "GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener",
    # A learner that ends is no news: the actor says what became of it.
    "GRPC_VERBOSITY": "ERROR",
}
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Of glibc's `mallopt`."""
LARGEST_KEPT_BYTES = 32 * 2**20
"""The most that glibc accepts for one block."""
KEPT_BYTES = 64 * 2**20


def settle() -> None:
    """For this process: gRPC's settings, and freed memory that is used again. glibc would give it
    back to the system, and get it anew page by page for every message of a megabyte.
    """
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc's alone
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
