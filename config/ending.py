"""The end of a command's process: it comes soon, whatever somebody's environment has left behind."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from typing import NoReturn

PATIENCE_S = 3.0
"""How long threads and processes that were left behind may take to end by themselves."""


def end(code: int) -> NoReturn:
    """End this process with the exit code.

    Python waits at its end for every thread that is no daemon and for every process of
    multiprocessing, without a limit. What is still there after `PATIENCE_S` seconds is named on
    stderr, and the process ends without it. Children of multiprocessing are killed.
    """
    threading.Thread(target=_end_without_waiting, args=(code,), name="end", daemon=True).start()
    sys.exit(code)


def _end_without_waiting(code: int) -> None:
    time.sleep(PATIENCE_S)
    children = multiprocessing.active_children()
    left = [f"thread {thread.name}" for thread in threading.enumerate() if _is_waited_for(thread)]
    left += [f"process {child.pid} ({child.name})" for child in children]
    print(f"ended without waiting for {', '.join(left) or 'an exit function'}", file=sys.stderr)
    for child in children:
        child.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _is_waited_for(thread: threading.Thread) -> bool:
    return not thread.daemon and thread is not threading.main_thread()
