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

LONGEST_WAIT_S = 292 * 365.25 * 86400
"""Go's longest duration: 63 bits of nanoseconds."""


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
        limit=_integer(fields, "limit", "retryStrategy.limit"),
        on_failed=policy in ("Always", "OnFailure"),
        on_error=policy in ("Always", "OnError"),
        expression=expression,
        wait_s=_seconds(backoff, "duration"),
        factor=_integer(backoff, "factor", "retryStrategy.backoff.factor") or 0,
        cap_s=_seconds(backoff, "cap"),
        longest_s=_seconds(backoff, "maxDuration"),
    )


def _integer(fields: Mapping[str, Any], field: str, where: str) -> int | None:
    if fields.get(field) is None:
        return None
    return integer(fields[field], where)


def _seconds(backoff: Mapping[str, Any], field: str) -> float | None:
    if not backoff.get(field):
        return None
    return duration_s(backoff[field])


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
    if waiting_s > left_s:
        return "Backoff would exceed max duration limit"
    return None


def _backoff_s(strategy: Strategy, attempts: int) -> float:
    waiting_s = strategy.wait_s or 0.0
    if strategy.factor > 0:
        # A float overflows after a thousand doublings, and a strategy may have more attempts.
        try:
            waiting_s *= float(strategy.factor) ** (attempts - 1)
        except OverflowError:
            waiting_s = LONGEST_WAIT_S
    if strategy.cap_s is None:
        return min(waiting_s, LONGEST_WAIT_S)
    return min(waiting_s, strategy.cap_s)


def gives_up(strategy: Strategy, attempts: list[Node]) -> str | None:
    """Why there is no other attempt (the message of the Retry node), or None. Raises `TagError` for
    a broken expression.
    """
    # The controller's order: policy, limit, expression.
    last = attempts[-1]
    is_retried = strategy.on_failed
    if last.phase == "Error":
        is_retried = strategy.on_error
    if not is_retried:
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
    tags = {
        "retries": str(max(0, len(attempts) - 1)),
        "lastRetry.exitCode": missing_code,
        "lastRetry.status": "",
        "lastRetry.duration": "0",
        "lastRetry.message": "",
    }
    if not attempts:
        return tags
    last = attempts[-1]
    tags["lastRetry.status"] = last.phase
    tags["lastRetry.message"] = last.message
    # Kubernetes writes times in whole seconds, so their differences are whole, too.
    tags["lastRetry.duration"] = str(round(last.duration_s))
    if last.exit_code is not None:
        tags["lastRetry.exitCode"] = str(last.exit_code)
    return tags
