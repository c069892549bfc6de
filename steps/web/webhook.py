"""Posts a JSON document to a web address, a few times and not for long."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from config.errors import on_one_line

TIMEOUT_S = 10.0
WAITS_S = (1.0, 4.0)
"""Before the second try and the third, the last one."""
LONGEST_S = 60.0
"""For all tries together: longer than their timeouts."""
AGAIN = (408, 425, 429)
"""Answers after which the same request may succeed later, beside those of a server's own errors."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Answers a redirection as it is: what is posted, and the address's secret, are for one host."""

    def redirect_request(self, *given: Any, **named: Any) -> None:
        """Make no second request."""


def post(address: str, document: Mapping[str, Any]) -> str:
    """Post the document. Returns why that failed in one line, which does not repeat the address; empty if it
    did not fail.
    """
    request = urllib.request.Request(  # noqa: S310 - config.webhook admits http and https alone
        address,
        data=json.dumps(document).encode(),
        headers={"Content-Type": "application/json", "User-Agent": "rl-training-dag"},
        method="POST",
    )
    problem = ""
    for wait_s in (0.0, *WAITS_S):
        time.sleep(wait_s)
        problem, is_final = _once(request)
        if is_final:
            break
    return problem


def _once(request: urllib.request.Request) -> tuple[str, bool]:
    """One try: what went wrong, and whether another one is in vain."""
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(request, timeout=TIMEOUT_S):
            return "", True
    except urllib.error.HTTPError as error:
        error.close()
        return f"it answered {error.code}", error.code < 500 and error.code not in AGAIN
    except urllib.error.URLError as error:
        return on_one_line(error.reason) or type(error).__name__, False
    except (OSError, http.client.HTTPException) as error:
        # Their messages may hold a part of the address.
        return type(error).__name__, False
    except ValueError as error:
        return type(error).__name__, True
