"""The address that is told how a workflow ended. It may contain a secret, so no message repeats it."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

NOTIFY = "notify"
"""The parameter of every workflow."""
ADDRESS_VARIABLE = "NOTIFY_ADDRESS"
"""The variable with the address: arguments of a process can be read by every user of its machine."""
HELP = (
    "web address that is told by a POST of JSON how the workflow ended (docs/browsing.md); kept out "
    "of experiment.yaml and of logs; empty: nobody is told"
)
FORM = "an address that begins with http:// or https://, without a user, spaces or a fragment"


def checked(text: str) -> str:
    """The address as it is. Raises `ValueError` for one that cannot be told anything."""
    _split(text)
    return text


def host_of(text: str) -> str:
    """The part of an address that messages may name. Raises `ValueError`."""
    return _split(text).hostname or ""


def _split(text: str) -> SplitResult:
    parts = urlsplit(text)
    _ = parts.port  # raises for one that is no number
    has_user = parts.username is not None or parts.password is not None
    if parts.scheme not in ("http", "https") or not parts.hostname or has_user:
        raise ValueError("it is no web address")
    if parts.fragment or not text.isascii() or any(one.isspace() for one in text):
        raise ValueError("it has characters that no request can have")
    return parts
