"""For all tests: they begin as in a terminal, also when `nohup` or `&` started them with signals
ignored, and none inherits what another one has done to them. Property tests have no deadline: on a
loaded machine an example takes as long as it takes.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
if settings.get_current_profile_name() == "default":  # not the one of CI or of the mutants
    settings.load_profile("patient")


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """A workflow that was stopped by a signal leaves them ignored: its process is to end next."""
    before = {number: signal.getsignal(number) for number in STOPPING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
