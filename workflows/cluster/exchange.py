"""One request to the Argo Server and its whole answer, bounded in time and size. The token is sent
to this server only.

Plain `requests` would wait for ever for an answer that arrives byte by byte (its timeout starts
again with every byte), read an answer of any size, prefer a password in `~/.netrc` to the token,
and repeat a redirected POST as a GET. Proxies from the environment apply.
"""

from __future__ import annotations

import queue
import threading
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.exceptions import ConnectionError, RequestException, Timeout
from urllib3.exceptions import HTTPError

LARGEST_ANSWER_BYTES = 64 * 2**20
"""A workflow with 256 runs and several attempts of each task takes about 15 MiB."""
CHUNK_BYTES = 65536


class Elsewhere(RequestException):
    """The answer is a redirect to a server that the user did not name."""


class TooLarge(RequestException):
    """The answer is larger than any workflow."""


class _Token(requests.auth.AuthBase):
    """Leaves the header as it is. Its presence keeps `requests` from looking into `~/.netrc`."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request


class Session(requests.Session):
    """Requests that each end within a time limit, whatever the server does."""

    def __init__(self, connect_s: float, whole_s: float) -> None:
        super().__init__()
        self.auth = _Token()
        self._connect_s = connect_s
        self._whole_s = whole_s

    def request(  # type: ignore[override]
        self, method: Any, url: Any, *, whole_s: float | None = None, **options: Any
    ) -> requests.Response:
        """Return the answer with its content. Raises `RequestException`.

        Each exchange runs in a thread of its own, because a slow name server, or a header that
        arrives byte by byte, cannot be interrupted otherwise.
        """
        limit_s = self._whole_s if whole_s is None else whole_s
        ended: queue.SimpleQueue[requests.Response | Exception] = queue.SimpleQueue()
        given_up = threading.Event()

        def exchange() -> None:
            try:
                ended.put(
                    self._exchange(
                        method, url, given_up, {**options, "timeout": (self._connect_s, limit_s)}
                    )
                )
            except Exception as error:
                ended.put(error)

        threading.Thread(target=exchange, name="exchange with the Argo Server", daemon=True).start()
        try:
            answer = ended.get(timeout=limit_s)
        except queue.Empty:
            raise Timeout(f"no whole answer within {limit_s:g} s") from None
        finally:
            given_up.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _exchange(
        self, method: Any, url: Any, given_up: threading.Event, options: dict[str, Any]
    ) -> requests.Response:
        with super().request(
            method, url, stream=True, allow_redirects=False, **options
        ) as response:
            if 300 <= response.status_code < 400:
                raise Elsewhere(f"it redirects to {_place(response.headers.get('Location', ''))}")
            try:
                response._content = _content(response, given_up)
            except HTTPError as error:
                raise ConnectionError(error) from error
        return response


def _content(response: requests.Response, given_up: threading.Event) -> bytes:
    """The decompressed body. It is read in single reads, because `iter_content` waits until a chunk
    is full.
    """
    content = bytearray()
    while not given_up.is_set() and (chunk := response.raw.read1(CHUNK_BYTES, decode_content=True)):
        content += chunk
        if len(content) > LARGEST_ANSWER_BYTES:
            raise TooLarge(f"its answer has more than {LARGEST_ANSWER_BYTES // 2**20} MiB")
    return bytes(content)


def _place(location: str) -> str:
    """The URL without query and user name, which may be secrets."""
    parts = urlsplit(location)
    if parts.netloc:
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return parts.path or "nowhere"
