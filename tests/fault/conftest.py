"""Steps as real processes that can be killed: a fork server that has torch imported starts one in a
tenth of a second."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.fault.child import run_step
from tests.outside import ROOT

TINY = {
    "game": "cartpole",
    "epochs": "40",
    "num_envs": "4",
    "rollout_length": "32",
    "update_epochs": "2",
    "checkpoint_interval": "3",
    "log_interval": "2",
}


@dataclass
class Step:
    """A started step."""

    process: BaseProcess
    output: Path

    def wait_for(self, found: Callable[[], object], timeout_s: float = 600) -> None:
        """Until something is seen; fails if the step ends before."""
        end = time.monotonic() + timeout_s
        while not found():
            assert self.process.is_alive(), f"ended with {self.process.exitcode}: {self.text}"
            assert time.monotonic() < end, f"not seen in {timeout_s} s: {self.text}"
            time.sleep(0.002)

    def wait_for_text(self, text: str) -> None:
        """Until the step has printed something."""
        self.wait_for(lambda: text in self.text)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the whole process group, as Argo does."""
        while self.process.is_alive() and not self.output.exists():
            time.sleep(0.001)  # it leads a process group of its own from then on
        assert self.process.pid is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def end(self, timeout_s: float = 600) -> int:
        """The exit code; negative for a signal."""
        self.process.join(timeout_s)
        assert self.process.exitcode is not None, f"still running: {self.text}"
        return self.process.exitcode

    @property
    def text(self) -> str:
        """What it has printed."""
        return self.output.read_text(errors="replace") if self.output.exists() else ""


Start = Callable[..., Step]


@pytest.fixture(scope="session")
def server() -> multiprocessing.context.ForkServerContext:
    """The fork server."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.fault.preload"])
    return context


@pytest.fixture
def start(server: multiprocessing.context.ForkServerContext, tmp_path: Path) -> Iterator[Start]:
    """`start("steps.train", ["--outdir", …], {"EXPERIMENT_OWNER": …})` -> Step; whatever still runs
    at the end is killed."""
    started: list[Step] = []

    def start_one(
        module: str,
        argv: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        file_size: int | None = None,
        unprivileged: bool = False,
        hostname: str | None = None,
    ) -> Step:
        """hostname: of the node that the step believes to be on."""
        output = tmp_path / f"output-{len(started)}.txt"
        arguments = (
            module, list(argv), dict(environment or {}), str(output), file_size, unprivileged, hostname
        )  # fmt: skip
        process = server.Process(target=run_step, args=arguments)
        process.start()
        started.append(Step(process, output))
        return started[-1]

    yield start_one
    for step in started:
        if step.process.is_alive():
            step.process.kill()
        step.process.join()
        step.process.close()


def assignments(outdir: Path, **changed: object) -> list[str]:
    """Arguments of prepare for a tiny CartPole training."""
    parameters = (
        TINY | {"outdir": str(outdir)} | {name: str(value) for name, value in changed.items()}
    )
    return [
        "--algorithm",
        "ppo",
        *(word for name, value in parameters.items() for word in ("-p", f"{name}={value}")),
    ]


def snapshot(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    """Path -> (inode, time of modification, content) of every file."""
    files = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {
        str(path.relative_to(directory)): (
            path.stat().st_ino,
            path.stat().st_mtime_ns,
            path.read_bytes(),
        )
        for path in files
    }


def assert_counted(steps: Sequence[int], rows: int) -> None:
    """The steps at the end of each epoch of an IMPALA training: no epoch was lost or repeated. Of its
    rows those that only hold the final observation of an episode at the time limit are no steps.
    """
    for epoch, (before, step) in enumerate(zip((0, *steps), steps, strict=False), 1):
        assert before < step <= rows * epoch
    assert steps[-1] > 0.99 * rows * len(steps)
