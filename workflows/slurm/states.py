"""What the states of jobs mean, and what is made of a pod's end.

Source: the manual page of squeue (Slurm 22.05), "JOB STATE CODES"; docs/argo.md, "How a pod ends".
"""

from __future__ import annotations

import re

from workflows.local.running_pod import DEADLINE_MESSAGE
from workflows.slurm.records import Said, Verdict

RUNNING = ("RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING", "COMPLETING")
ENDED = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT",
    "LAUNCH_FAILED", "RECONFIG_FAIL",
)  # fmt: skip
"""Every other state is one of waiting, also of a job that Slurm begins again, or that another cluster of a
federation has begun (REVOKED).
"""
HELD = re.compile(r"requeued.held|JobHoldMaxRequeue", re.IGNORECASE)
"""Reasons to wait of a job that could not be launched and that Slurm will not begin again by itself."""
NEVER_RAN = ("CANCELLED", "NODE_FAIL", "BOOT_FAIL", "DEADLINE")
"""Ends of jobs that may not even have started, and then leave nothing."""
PREEMPTED = 75
OUT_OF_MEMORY = 137
TERMINATED = 143
CANNOT_EXECUTE = 64
LAUNCH_FAILED_SIGNAL = 53
"""With exit code 0: the job could not be started on its node."""


def is_final(said: Said) -> bool:
    """Whether a pod ended by itself. After a signal Slurm may begin the same job again, and a death by
    SIGKILL may be one for lack of memory: then Slurm's own word decides.
    """
    return not said.terminated and not said.warned and said.code != OUT_OF_MEMORY


def judge(
    state: str | None, said: Said | None, exit_code: tuple[int, int] | None = None
) -> Verdict:
    """What an end means. state: of the job; None if Slurm does not know it any more. said: what the job
    left. exit_code: Slurm's own record of exit code and signal, where the job left nothing.
    """
    if state == "OUT_OF_MEMORY" and (said is None or said.code):
        at = None if said is None else said.at
        return Verdict("ended", OUT_OF_MEMORY, f"OOMKilled (exit code {OUT_OF_MEMORY})", at)
    if said is not None:
        return _of_said(state, said)
    if state in ("TIMEOUT", "PREEMPTED"):
        return Verdict("ended", PREEMPTED, _message(PREEMPTED, f"Slurm: {state}, without a save"))
    if state == "DEADLINE":
        return Verdict("ended", TERMINATED, DEADLINE_MESSAGE)
    if state == "FAILED" and exit_code is not None:
        code, signal_number = exit_code
        if signal_number == LAUNCH_FAILED_SIGNAL:
            return Verdict("lost", message="Slurm could not start the job on its node")
        code = code or (128 + signal_number if signal_number else 0)
        if code:
            return Verdict("ended", code, _message(code, "Slurm: FAILED, before the pod's own end"))
    if state is None:
        return Verdict("lost", message="Slurm does not know the job any more, and it left no end")
    return Verdict("lost", message=f"Slurm: {state}; the job left no end")


def _of_said(state: str | None, said: Said) -> Verdict:
    if said.error:
        return Verdict("ended", said.code, _message(said.code, said.error), said.at)
    if said.code == PREEMPTED and (said.warned or state == "TIMEOUT"):
        return Verdict("next", said.code, at=said.at)
    unusual = state not in (None, "COMPLETED", "FAILED") and said.code
    return Verdict(
        "ended", said.code, _message(said.code, f"Slurm: {state}") if unusual else "", said.at
    )


def _message(code: int, reason: str) -> str:
    return f"main: Error (exit code {code}): {reason}"
