"""A small real HTTP server on loopback that answers as Argo Server does: the paths, the codes, the
error documents."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

NAMESPACE, TOKEN = "learning", "Bearer of-the-person"
NOT_FOUND, EXISTS, UNAUTHENTICATED, FORBIDDEN = (404, 5), (409, 6), (401, 16), (403, 7)


class LoopbackArgo:
    """workflows: name -> the created object; statuses: what each GET of the status answers, the
    last for ever after; broken: how many of the next requests are dropped (0), or answered with
    this code; printed: pod -> the lines of its log; templates: the installed workflow templates by
    name.
    """

    def __init__(self, base: str = "") -> None:
        self.base = base
        self.workflows: dict[str, dict[str, Any]] = {}
        self.statuses: list[dict[str, Any]] = [{}]
        self.broken: list[int] = []
        self.printed: dict[str, list[str]] = {}
        self.templates: dict[str, dict[str, Any]] = {}
        self.lost_answers = 0
        self.requests: list[tuple[str, str, dict[str, list[str]]]] = []
        self.bodies: list[Any] = []
        self.stopped: dict[str, str] = {}
        self.after_a_stop: list[dict[str, Any]] = []
        self.allowed = TOKEN
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.port = self._server.server_address[1]

    @property
    def environment(self) -> dict[str, str]:
        return {
            "ARGO_SERVER": f"127.0.0.1:{self.port}",
            "ARGO_SECURE": "false",
            "ARGO_TOKEN": TOKEN,
            "ARGO_NAMESPACE": NAMESPACE,
            "ARGO_BASE_HREF": self.base,
        }

    @contextmanager
    def running(self) -> Iterator[LoopbackArgo]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def _handler(argo) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - `self` is the request here
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                self.answer("GET")

            def do_POST(self) -> None:
                self.answer("POST")

            def do_PUT(self) -> None:
                self.answer("PUT")

            def answer(self, method: str) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                url = urlsplit(self.path)
                argo.requests.append((method, url.path, parse_qs(url.query)))
                if argo.broken:
                    code = argo.broken.pop(0)
                    if code == 0:
                        self.close_connection = True
                        return
                    self.send(code, b"<html>upstream connect error</html>", "text/html")
                    return
                code, document = argo.decide(
                    method,
                    url.path,
                    self.headers.get("Authorization", ""),
                    body,
                    parse_qs(url.query),
                )
                if argo.lost_answers and method == "POST":
                    argo.lost_answers -= 1
                    self.close_connection = True
                    return
                documents = document if isinstance(document, list) else [document]
                self.send(code, "\n".join(map(json.dumps, documents)).encode(), "application/json")

            def send(self, code: int, content: bytes, kind: str) -> None:
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        return Handler

    def decide(
        self, method: str, path: str, token: str, body: bytes, query: dict[str, list[str]]
    ) -> tuple[int, Any]:
        root = f"/{self.base}/" if self.base else "/"
        parts = path.removeprefix(root).split("/") if path.startswith(root) else []
        if parts[:4] == ["api", "v1", "workflow-templates", NAMESPACE] and token == self.allowed:
            if parts[4] in self.templates:
                return 200, self.templates[parts[4]]
            return _error(NOT_FOUND, f'workflowtemplates.argoproj.io "{parts[4]}" not found')
        if parts[2:4] not in (["workflows", NAMESPACE], ["workflow-templates", NAMESPACE]):
            return _error(NOT_FOUND, f"Not Found: {path}")
        if token != self.allowed:
            return _error(
                UNAUTHENTICATED,
                "token not valid. see https://argo-workflows.readthedocs.io/en/latest/faq/",
            )
        if method == "POST":
            self.bodies.append(json.loads(body))
            workflow = self.bodies[-1]["workflow"]
            name = workflow["metadata"]["name"]
            if name in self.workflows:
                return _error(EXISTS, f'workflows.argoproj.io "{name}" already exists')
            workflow["metadata"] |= {
                "uid": "u-1",
                "namespace": NAMESPACE,
                "creationTimestamp": "2026-11-21T12:00:00Z",
            }
            self.workflows[name] = workflow
            return 200, workflow
        name = parts[4]
        if name not in self.workflows:
            return _error(NOT_FOUND, f'workflows.argoproj.io "{name}" not found')
        workflow = self.workflows[name]
        if parts[5:] == ["log"]:
            (pod,), (count,) = query["podName"], query["logOptions.tailLines"]
            lines = self.printed.get(pod, [])[-int(count) :]
            return 200, [
                {"result": ({"content": line} if line else {}) | {"podName": pod}} for line in lines
            ]
        if method == "PUT" and parts[5:] == ["stop"]:
            if not self.after_a_stop:
                return _error(FORBIDDEN, "workflows.argoproj.io is forbidden")
            self.stopped[name] = json.loads(body)["message"]
            self.statuses = self.after_a_stop
            return 200, workflow
        if "fields" in query:
            status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
            known = workflow["spec"]
            spec = {"entrypoint": known["entrypoint"]} if "entrypoint" in known else {}
            return 200, {
                "metadata": {"name": name},
                "spec": spec,
                "status": {**status, "aFieldOfANewerArgo": 1},
            }
        return 200, workflow


def _error(kind: tuple[int, int], message: str) -> tuple[int, Any]:
    return kind[0], {"code": kind[1], "message": message}
