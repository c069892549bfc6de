"""For all tests: they begin as in a terminal, also when `nohup` or `&` started them with signals
ignored, and none inherits what another one has done to them.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """A workflow that was stopped by a signal leaves them ignored: its process is to end next."""
    before = {number: signal.getsignal(number) for number in STOPPING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
