"""What both ends of a connection agree on: the calls' names, their deadlines, and how a connection
that carries nothing any more is noticed.
"""

from __future__ import annotations

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
