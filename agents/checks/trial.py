"""Tries an environment as training will use it: whatever is wrong with it must not cost a GPU pod.

`tried_elsewhere` does so in a process of its own with a time limit, because a person's environment may
print for ever, end the process, or never return.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import IO

import numpy as np

from agents.environments.checked import is_strange
from agents.environments.training import TrainingEnvironments
from config.errors import BadInput, ExperimentError, on_one_line, shown
from config.imports import reason
from config.resolve import Resolved

STEPS = 200
REFUSED = "refused: "
SAID_BYTES = 65536
"""Of what the environment prints, so many bytes are kept, the last ones."""


def needs_a_trial(resolved: Resolved) -> bool:
    """Whether the environment is a stranger's. A board game's rules are tried by `check_playable`."""
    return not resolved.game.is_board and is_strange(resolved.game, resolved.environment)


def try_environment(resolved: Resolved) -> None:
    """Reset with the seeds of two runs, and step until an episode has ended, at most STEPS times, in
    two environments where training has several. Raises `BadInput` for a promise that is broken, and
    what the environment raises.
    """
    settings = resolved.environment.with_count(min(2, resolved.environment.count))
    few = replace(resolved, environment=settings)
    generator = np.random.default_rng(0)
    with contextlib.closing(TrainingEnvironments(few, 1)):
        pass
    with contextlib.closing(TrainingEnvironments(few, 0)) as environments:
        for step in range(STEPS):
            answers = environments.step(_random_actions(environments, generator))
            rewards = np.concatenate([answer.reward for answer in answers])
            if not np.isfinite(rewards).all():
                raise BadInput(
                    f"game {resolved.game.name!r} breaks a promise, rewards are finite numbers: "
                    f"{rewards.tolist()} in step {step + 1}; return finite floats"
                )
            if not np.isfinite(environments.observation).all():
                raise BadInput(
                    f"game {resolved.game.name!r} breaks a promise, observations are finite numbers: "
                    f"one after step {step + 1} is not; return numbers, or bound them by a wrapper"
                )
            if any(len(answer.ended) for answer in answers):
                break


def _random_actions(
    environments: TrainingEnvironments, generator: np.random.Generator
) -> np.ndarray:
    """Actions of a policy that knows nothing, [N] or [N, A], among those that are allowed."""
    spaces = environments.interface
    count = environments.count
    if spaces.continuous:
        return generator.normal(size=(count, spaces.actions)).astype(np.float32)
    scores = generator.random((count, spaces.policy_outputs))
    if environments.masks is not None:
        scores = np.where(environments.masks, scores, -1.0)
    ends = np.cumsum(spaces.choices)[:-1]
    chosen = [part.argmax(axis=1) for part in np.split(scores, ends, axis=1)]
    return chosen[0] if spaces.discrete else np.stack(chosen, axis=1)


def tried_elsewhere(resolved: Resolved, timeout_s: float) -> None:
    """Check in a process of its own that the game can be made, played and stepped. Raises `BadInput`
    with one line.
    """
    command = [sys.executable, "-m", "agents.checks.trial", json.dumps(resolved.as_dict())]
    game = resolved.game.name
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    printed = bytearray()
    reader = threading.Thread(target=_keep_the_end, args=(process.stdout, printed), daemon=True)
    reader.start()
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        raise BadInput(
            f"game {game!r} has not made {STEPS} steps within {timeout_s:g} s; allowed: a faster "
            "environment, or more seconds by -p trial_timeout=…"
        ) from None
    finally:
        _kill(process)
        # What the environment has started is gone, too, unless it has made itself independent.
        reader.join(1)
    said = printed.decode(errors="replace").strip().splitlines() or [""]
    if process.returncode == 0 and said[-1] == "tried":
        return
    if said[-1].startswith(REFUSED):
        raise BadInput(said[-1].removeprefix(REFUSED))
    raise BadInput(
        f"game {game!r} ended the process in which it was tried, with {process.returncode}: "
        f"{shown(said[-1], 300)}; an environment must not end its process"
    )


def _keep_the_end(pipe: IO[bytes] | None, printed: bytearray) -> None:
    """Read the pipe to its end, and keep the last SAID_BYTES of it."""
    if pipe is None:
        return
    with pipe:
        while piece := pipe.read1(SAID_BYTES):  # type: ignore[attr-defined]
            printed += piece
            del printed[:-SAID_BYTES]


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the process with all that the environment has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main(argv: Sequence[str]) -> int:
    """The process of a trial: prints `tried`, or one line that says what is wrong."""
    from agents.checks.playable import check_playable

    resolved = Resolved.from_dict(json.loads(argv[0]))
    try:
        check_playable(resolved)
        if needs_a_trial(resolved):
            try_environment(resolved)
    except ExperimentError as error:
        _say(f"{REFUSED}{on_one_line(error)}")
    except Exception as error:
        traceback.print_exception(error)
        _say(f"{REFUSED}game {resolved.game.name!r} cannot be tried: {reason(error)}")
    else:
        _say("tried")
    # Threads and processes that the environment has left do not keep this process alive.
    os._exit(0)


def _say(line: str) -> None:
    sys.stderr.flush()
    sys.stdout.write(f"\n{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
