"""Environments that step in processes of their own, for those whose step takes longer than asking a
process (measured: 55 µs); knows no torch.

gymnasium's `AsyncVectorEnv`, with what it leaves open: a process that was killed is one line and no
hang, a signal to the whole group reaches only the training, which ends its epoch, and nothing is
left running when the training ends, however it does.
"""

from __future__ import annotations

import atexit
import contextlib
import queue
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import resource_tracker
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import AsyncState, _async_worker

from agents.environments.global_state import global_generators_kept
from agents.environments.masks import allowed_action
from config.control_groups import processors
from config.errors import ExperimentError

CLOSE_S = 5.0
"""An environment that has not closed by then is killed."""
ASKING_S = 1e-4
"""Time that passing a step to another process costs, with some reserve."""
TRIAL_STEPS = 32
TRIAL_S = 0.1
SIGNALS = {signal.SIGINT, signal.SIGTERM}

MakeEnvironment = Callable[[], gymnasium.Env[Any, Any]]


class ParallelEnvironments(AsyncVectorEnv):
    """One process for each environment. Environments never reset by themselves."""

    def __init__(self, makers: Sequence[MakeEnvironment]) -> None:
        self.processes: list[Any] = []
        atexit.register(self._kill)
        # multiprocessing's tracker is started before signals are blocked, because starting it
        # unblocks them.
        resource_tracker.ensure_running()
        with _signals_blocked(), self._one_line():
            super().__init__(
                makers,
                # A forked process would inherit locks that torch's threads held, without the threads
                # that release them.
                context="spawn",
                # An environment may start processes of its own, which a daemon may not.
                daemon=False,
                worker=_work,
                autoreset_mode=AutoresetMode.DISABLED,
            )

    def step(self, actions: Any) -> Any:
        """See `gymnasium.vector.VectorEnv.step`. Raises `ExperimentError` if a process is gone."""
        with self._one_line():
            return super().step(actions)

    def reset(self, **arguments: Any) -> Any:
        """See `gymnasium.vector.VectorEnv.reset`. Raises `ExperimentError` if a process is gone."""
        with self._one_line():
            return super().reset(**arguments)

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """End every process; one that still works, or hangs, is killed."""
        # In any other state an answer is still on its way, and a process would not hear the
        # request.
        if not terminate and self._state is AsyncState.DEFAULT:
            pipes = [pipe for pipe in self.parent_pipes if pipe is not None and not pipe.closed]
            patience_s = CLOSE_S if timeout is None else timeout
            deadline = time.monotonic() + patience_s
            with contextlib.suppress(OSError):
                for pipe in pipes:
                    pipe.send(("close", None))
            for process in self.processes:
                process.join(max(0.0, deadline - time.monotonic()))
        self._kill()
        atexit.unregister(self._kill)

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        """Raise what an environment raised, of several the first one's, without a log of its own."""
        failed = list(successes).count(False)
        if not failed:
            return
        try:
            errors = [self.error_queue.get(timeout=CLOSE_S) for _ in range(failed)]
        except queue.Empty:
            # The environment's exception could not be pickled, so that none arrived.
            raise ExperimentError("an environment's process failed") from None
        raise min(errors, key=lambda error: int(error[0]))[2]

    @contextlib.contextmanager
    def _one_line(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, ConnectionError) as error:
            # A frame in which sending failed holds a view of a buffer. If the garbage collector
            # frees both as parts of a cycle, that is a BufferError, and in Python 3.12.1 a
            # segmentation fault. So the frames are cleared here.
            traceback.clear_frames(error.__traceback__)
            raise ExperimentError(self._gone()) from None

    def _gone(self) -> str:
        for number, process in enumerate(self.processes):
            process.join(CLOSE_S / 10)
            if process.exitcode is not None:
                code = process.exitcode
                ended = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
                self.close(terminate=True)
                return f"the process of environment {number} {ended}"
        self.close(terminate=True)
        return "the process of an environment does not answer"

    def _kill(self) -> None:
        for process in self.processes:
            # The processes ignore SIGINT and SIGTERM: a signal to the whole group is the training's.
            process.kill()
            process.join()


def _work(*arguments: Any) -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # If the training was killed, the pipe is broken and nobody waits for an answer.
    with contextlib.suppress(ConnectionError):
        _async_worker(*arguments)


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Block signals, which processes started meanwhile inherit. Here a signal is delivered
    afterwards.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def cores() -> int:
    """Number of whole processors that this process may use: a pod's limit counts, not its node's cores."""
    return max(1, int(processors()))


def pays(step_s: float, count: int) -> bool:
    """Whether `count` environments whose step takes so long are faster in processes."""
    # How many environments share a core, and so wait for one another.
    together = -(-count // min(count, cores()))
    # Processes must be a fifth faster, because the measured time of a step is uncertain.
    return count * step_s > 1.2 * (together * step_s + count * ASKING_S)


def step_time_s(make: MakeEnvironment) -> float:
    """Seconds of a step of a fresh environment, the median; 0 for one that refuses these actions.
    The global generators, from which it may draw, are put back: it changes no result.
    """
    taken = list[float]()
    with global_generators_kept():
        environment = make()
        try:
            _, info = environment.reset(seed=0)
            environment.action_space.seed(0)
            until = time.perf_counter() + TRIAL_S
            while len(taken) < TRIAL_STEPS and time.perf_counter() < until:
                began = time.perf_counter()
                action = allowed_action(environment.action_space, info)
                _, _, terminated, truncated, info = environment.step(action)
                taken.append(time.perf_counter() - began)
                if terminated or truncated:
                    _, info = environment.reset()
        except Exception:
            return 0.0
        finally:
            environment.close()
    return float(np.median(taken))
