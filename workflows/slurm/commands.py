"""Slurm's own commands: each call with a deadline, questions at most once in two seconds.

Source: the manual pages of sbatch, squeue, scancel and scontrol (Slurm 22.05).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from config.errors import on_one_line
from workflows.slurm.errors import SlurmError

BETWEEN_QUESTIONS_S = 2.0
KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")
OF_A_JOB = ("SLURM_", "SBATCH_", "SQUEUE_", "SCANCEL_", "SLURMD_")
"""Variables of a job, or of a person, that would change what a command does."""
FORMAT = "%i|%T|%r|%j"
MOST_IDS = 200
"""Ids in one command line."""
JOB_ID = re.compile(r"(\d+)(;[\w.-]+)?")
EXIT_CODE = re.compile(r"\bExitCode=(\d+):(\d+)")


@dataclass(frozen=True)
class Listed:
    """A job as the queue shows it. reason: why it waits."""

    state: str
    reason: str
    name: str


@dataclass(frozen=True)
class Listing:
    """All jobs of this user that the controller knows, ended ones included. begun_s: when it was asked
    for, on the monotonic clock.
    """

    begun_s: float
    jobs: Mapping[str, Listed]

    def named(self, name: str) -> list[str]:
        """The ids of submissions with this name, the oldest first; an array counts once."""
        ids = {base_of(id_) for id_, job in self.jobs.items() if job.name == name}
        return sorted(ids, key=int)


def base_of(job: str) -> str:
    """The id of a job's submission: `12` of `12_3`."""
    return job.partition("_")[0]


async def call(
    words: Sequence[str], *, answer_s: float, stdin: str = "", merged: bool = False
) -> str:
    """Run a command and return its standard output, and its errors, too, if `merged`. Raises
    `SlurmError` with what it said.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in KEPT or not name.startswith(OF_A_JOB)
    }
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,  # an interrupt in the terminal is the engine's alone
        )
    except OSError as error:
        raise SlurmError(f"{words[0]} cannot be executed: {error.strerror}") from None
    try:
        # Not `wait_for`, which may swallow a cancellation (Python 3.11).
        async with asyncio.timeout(answer_s):
            answer = await process.communicate(stdin.encode())
    except TimeoutError:
        raise SlurmError(f"{words[0]} has not answered for {answer_s:g} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    out, error_text = (part.decode(errors="replace") for part in answer)
    if process.returncode:
        said = on_one_line(error_text) or on_one_line(out) or f"exit code {process.returncode}"
        raise SlurmError(f"{words[0]}: {said}")
    return out + error_text if merged else out


class Controller:
    """Asks and instructs Slurm's controller. answer_s: the deadline of each command."""

    def __init__(self, answer_s: float) -> None:
        self._answer_s = answer_s
        self._asking = asyncio.Lock()
        self._asked_s = float("-inf")

    async def submit(self, options: Sequence[str], script: str) -> str:
        """Submit a job or an array; its id. After a `SlurmError` it may or may not have arrived."""
        out = await call(["sbatch", "--parsable", *options], answer_s=self._answer_s, stdin=script)
        found = JOB_ID.fullmatch(out.strip().splitlines()[-1] if out.strip() else "")
        if found is None:
            raise SlurmError(f"sbatch answered {on_one_line(out)[:200]!r} in place of an id")
        return found[1]

    async def listing(self) -> Listing:
        """What the controller knows of this user's jobs. Raises `SlurmError`."""
        user = f"--user={os.getuid()}"
        words = ["squeue", "--noheader", "--array", "--states=all", user, f"--format={FORMAT}"]
        begun_s, out = await self._ask(words)
        jobs = {}
        for line in out.splitlines():
            id_, state, rest = (*line.split("|", 2), "", "")[:3]
            reason, _, name = rest.rpartition("|")
            jobs[id_.strip()] = Listed(state, reason, name)
        return Listing(begun_s, jobs)

    async def exit_code(self, job: str) -> tuple[int, int] | None:
        """The exit code and the signal of an ended job; None if the controller does not know it."""
        with contextlib.suppress(SlurmError):
            _, out = await self._ask(["scontrol", "show", "job", job])
            if (found := EXIT_CODE.search(out)) is not None:
                return int(found[1]), int(found[2])
        return None

    async def accounted(self, job: str) -> tuple[str, tuple[int, int]] | None:
        """State and exit code of a job that the controller has forgotten, where there is accounting."""
        words = ["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job}"]
        with contextlib.suppress(SlurmError, ValueError):
            _, out = await self._ask([*words, "--format=State,ExitCode"])
            state, _, code = out.splitlines()[-1].partition("|") if out.strip() else ("", "", "")
            if state:
                exit_code, _, number = code.partition(":")
                return state.split()[0], (int(exit_code), int(number))
        return None

    async def terminate(self, jobs: Iterable[str]) -> None:
        """Cancel those that wait, and send SIGTERM to those that run, which may save."""
        for ids in _parts(jobs):
            await self._cancel("--state=PENDING", *ids)
            await self._cancel("--batch", "--signal=TERM", *ids)

    async def kill(self, jobs: Iterable[str]) -> None:
        """End jobs for good."""
        for ids in _parts(jobs):
            await self._cancel("--full", "--signal=KILL", *ids)
            await self._cancel(*ids)

    async def cancel(self, jobs: Iterable[str]) -> None:
        """Cancel jobs as Slurm does it: SIGTERM, and SIGKILL a little later."""
        for ids in _parts(jobs):
            await self._cancel(*ids)

    async def _cancel(self, *words: str) -> None:
        """Run scancel. What it says of jobs that have ended does not matter."""
        try:
            await call(["scancel", "--quiet", *words], answer_s=self._answer_s)
        except SlurmError as error:
            if error.is_without_answer:
                raise

    async def _ask(self, words: Sequence[str]) -> tuple[float, str]:
        """Ask a question, not sooner than two seconds after the last one. Returns also when."""
        async with self._asking:
            await asyncio.sleep(self._asked_s + BETWEEN_QUESTIONS_S - time.monotonic())
            self._asked_s = begun_s = time.monotonic()
            return begun_s, await call(words, answer_s=self._answer_s)


def _parts(jobs: Iterable[str]) -> list[list[str]]:
    listed = sorted(jobs)
    return [listed[begin : begin + MOST_IDS] for begin in range(0, len(listed), MOST_IDS)]
