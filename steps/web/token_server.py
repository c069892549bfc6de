"""What every page that this project serves has in common: a server behind a random token.

Scripts of other sites in the same browser know no token, and `Host` must be an address that no stranger
could have made to point here (DNS rebinding). Requests are answered by threads.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
import sys
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LOOPBACK = "127.0.0.1"
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
LOCKED = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""The part of a content security policy that holds for every page."""
HOST = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?::[0-9]{0,5})?")
TIMEOUT_S = 30.0
"""How long a request may take to arrive: browsers open connections that they never use."""


class TokenServer(ThreadingHTTPServer):
    """Listens at once. token: what a browser must know."""

    daemon_threads = True

    def __init__(self, host: str, port: int, requests: type[BaseHTTPRequestHandler]) -> None:
        super().__init__((host, port), requests)
        self.token = secrets.token_urlsafe(24)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about a browser that has left, which is no error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def knows(self, token: str) -> bool:
        """Whether this is the token. Compared in constant time: the answer's delay must not tell how
        much of it was right.
        """
        return hmac.compare_digest(token.encode(), self.token.encode())


class TokenRequests(BaseHTTPRequestHandler):
    """Answers the requests of one connection. policy: the content security policy of every answer."""

    server: TokenServer
    server_version = "rl-dag"
    sys_version = ""
    timeout = TIMEOUT_S
    policy = f"default-src 'none'; {LOCKED}"

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing, because a request may contain the token."""

    def send(
        self, status: int, body: bytes, kind: str, further: Mapping[str, str] | None = None
    ) -> None:
        """Send a whole answer."""
        self.send_head(status, kind, {"Content-Length": str(len(body)), **(further or {})})
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_head(self, status: int, kind: str, further: Mapping[str, str]) -> None:
        """Send the status and the headers of an answer."""
        self.send_response(status)
        own = {"Content-Security-Policy": self.policy, "Content-Type": kind}
        for name, value in {**HEADERS, **own, **further}.items():
            self.send_header(name, value)
        self.end_headers()


def is_own_host(host: str, names: frozenset[str]) -> bool:
    """Whether a `Host` header names this machine and cannot be a name that a stranger's DNS server has
    made to point here: an IP address, or one of these names; with any port, which a tunnel may change.
    """
    found = HOST.fullmatch(host)
    if found is None:
        return False
    if found["name"].lower() in names:
        return True
    try:
        ipaddress.ip_address(found["name"].strip("[]"))
    except ValueError:
        return False
    return True
