"""The part of W&B's server that its client needs for a run: its history by file stream, resuming, uploads.

Only what the client asks for is answered; everything else is an empty success.
"""

from __future__ import annotations

import contextlib
import gzip
import http.server
import json
import threading
from typing import Any

HISTORY = "wandb-history.jsonl"


class WandbServer:
    """A server on this machine. history: run id -> its rows as JSON. files: run id -> names."""

    def __init__(self) -> None:
        self.history: dict[str, list[str]] = {}
        self.files: dict[str, list[str]] = {}
        handler = type("Handler", (_Handler,), {"server_of": self})
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, query: str, asked: dict[str, Any]) -> dict[str, Any]:
        """The data of a GraphQL request."""
        run = asked.get("name") or asked.get("run")
        if "upsertBucket" in query:
            inserted = run not in self.history
            self.history.setdefault(str(run), [])
            project = {"id": "p", "name": asked["project"], "entity": {"id": "e", "name": "lab"}}
            bucket = {"id": "r", "name": run, "config": "{}", "project": project}
            return {"upsertBucket": {"bucket": bucket, "inserted": inserted}}
        if "createRunFiles" in query:
            listed = [
                {"name": name, "uploadUrl": f"{self.address}/upload/{run}/{name}"}
                for name in asked["files"]
            ]
            return {"createRunFiles": {"runID": run, "uploadHeaders": [], "files": listed}}
        if "RunResumeStatus" in query:
            return {"model": {"id": "p", "name": "p", "bucket": self._bucket(str(run))}}
        return {"viewer": {"id": "u", "entity": "lab", "username": "u", "teams": {"edges": []}}}

    def _bucket(self, run: str) -> dict[str, Any] | None:
        if run not in self.history:
            return None
        rows = self.history[run]
        return {
            "id": "r", "name": run, "displayName": run, "config": "{}", "tags": [], "wandbConfig": '{"t": 1}',
            "historyLineCount": len(rows), "eventsLineCount": 0, "logLineCount": 0,
            "historyTail": json.dumps(rows[-1:]), "eventsTail": "[]", "summaryMetrics": (rows or ["{}"])[-1],
        }  # fmt: skip

    def take(self, path: str, content: bytes) -> None:
        """A part of a run's file stream, or a file."""
        words = path.strip("/").split("/")
        if words[-1] == "file_stream":
            part = (json.loads(content).get("files") or {}).get(HISTORY)
            if part:
                self.history[words[-2]][part["offset"] :] = part["content"]
        elif words[0] == "upload":
            self.files.setdefault(words[1], []).append("/".join(words[2:]))


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of: WandbServer

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            content = gzip.decompress(content)
        found: dict[str, Any] = {}
        if self.path.endswith("/graphql"):
            asked = json.loads(content)
            found = {"data": self.server_of.answer(asked["query"], asked.get("variables") or {})}
        else:
            self.server_of.take(self.path, content)
        answer = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_PUT(self) -> None:
        self.do_POST()

    def do_GET(self) -> None:
        self.do_POST()

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # the client's process was ended
            super().handle()

    def log_message(self, *arguments: object) -> None: ...
