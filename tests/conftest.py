"""For all tests: they begin as in a terminal, also when `nohup` or `&` started them with signals
ignored."""

from __future__ import annotations

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
