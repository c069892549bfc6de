"""`retryStrategy`: what happens after a failed attempt, in the controller's order (docs/argo.md).

Source: Argo `processNodeRetries`: stop or deadline, longest duration, backoff (before anything else
is checked), policy, limit, expression.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workflows.local.errors import WorkflowError
from workflows.local.language.quantities import duration_s, integer
from workflows.local.language.tags import evaluate_condition
from workflows.local.status import Node

LONGEST_WAIT_S = 292 * 365.25 * 86400  # Go's longest duration


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """limit: number of retries after the first attempt, None for any number. Waits are in seconds.
    factor 0: every wait is the same.
    """

    limit: int | None
    on_failed: bool
    on_error: bool
    expression: str
    wait_s: float | None
    factor: int
    cap_s: float | None
    longest_s: float | None


def read(fields: Mapping[str, Any]) -> Strategy:
    """Read a strategy from the manifest. The policy is Always with an expression, else OnFailure.
    Raises `WorkflowError`.
    """
    expression = fields.get("expression") or ""
    policy = fields.get("retryPolicy") or ("Always" if expression else "OnFailure")
    backoff = fields.get("backoff")
    if backoff is not None and not backoff.get("duration"):
        raise WorkflowError("no base duration specified for retryStrategy")
    backoff = backoff or {}
    return Strategy(
        limit=None
        if fields.get("limit") is None
        else integer(fields["limit"], "retryStrategy.limit"),
        on_failed=policy in ("Always", "OnFailure"),
        on_error=policy in ("Always", "OnError"),
        expression=expression,
        wait_s=duration_s(backoff["duration"]) if backoff else None,
        factor=integer(backoff["factor"], "retryStrategy.backoff.factor")
        if backoff.get("factor") is not None
        else 0,
        cap_s=duration_s(backoff["cap"]) if backoff.get("cap") else None,
        longest_s=duration_s(backoff["maxDuration"]) if backoff.get("maxDuration") else None,
    )


def wait_s(strategy: Strategy, attempts: int) -> float:
    """Seconds from the end of the last of these attempts to the next one. There is no wait without
    a limit, or after the last attempt.
    """
    if strategy.wait_s is None or strategy.limit is None or attempts > strategy.limit:
        return 0.0
    return _backoff_s(strategy, attempts)


def out_of_time(strategy: Strategy, attempts: list[Node]) -> str | None:
    """Why the longest duration forbids another attempt, or None."""
    if strategy.longest_s is None:
        return None
    left_s = strategy.longest_s - (time.monotonic() - attempts[0].started_s)
    if left_s < 0:
        return "Max duration limit exceeded"
    waiting_s = _backoff_s(strategy, len(attempts)) - attempts[-1].since_end_s
    return "Backoff would exceed max duration limit" if waiting_s > left_s else None


def _backoff_s(strategy: Strategy, attempts: int) -> float:
    base_s = strategy.wait_s or 0.0
    try:
        if strategy.factor > 0:
            waiting_s = base_s * float(strategy.factor) ** (attempts - 1)
        else:
            waiting_s = base_s
    except OverflowError:
        waiting_s = LONGEST_WAIT_S
    return min(waiting_s, LONGEST_WAIT_S if strategy.cap_s is None else strategy.cap_s)


def gives_up(strategy: Strategy, attempts: list[Node]) -> str | None:
    """Why there is no other attempt (the message of the Retry node), or None. Raises `TagError` for
    a broken expression.
    """
    last = attempts[-1]
    if not (strategy.on_error if last.phase == "Error" else strategy.on_failed):
        return last.message
    if strategy.limit is not None and len(attempts) > strategy.limit:
        return "No more retries left"
    if strategy.expression and not evaluate_condition(
        strategy.expression, last_retry(attempts, missing_code="-1")
    ):
        return "retryStrategy.expression evaluated to false"
    return None


def last_retry(attempts: list[Node], *, missing_code: str) -> dict[str, str]:
    """The tags `retries` and `lastRetry.*` after these attempts. Before the first attempt they have
    harmless values.
    """
    last = attempts[-1] if attempts else None
    code = None if last is None else last.exit_code
    return {
        "retries": str(max(0, len(attempts) - 1)),
        "lastRetry.exitCode": missing_code if code is None else str(code),
        "lastRetry.status": "" if last is None else last.phase,
        "lastRetry.duration": "0"
        if last is None
        else str(round(last.duration_s)),  # whole seconds, as Kubernetes writes times
        "lastRetry.message": "" if last is None else last.message,
    }
