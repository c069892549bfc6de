"""Serves the overview and the files below a folder to whoever knows the token.

The first visit brings it in the address (`?token=…`) and is led on to the address without it, with a
cookie that scripts cannot read and that no other site's request carries. Nothing is ever written: the
report of an experiment that still runs is made in memory.
"""

from __future__ import annotations

import io
import os
import secrets
import socket
import threading
from collections import OrderedDict
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote_to_bytes, urlsplit

from config.errors import BadInput, ExperimentError, printable
from steps.browsing.overview import Overview, Signature, signature
from steps.browsing.places import kind_of
from steps.browsing.rows import LIVE_STATUS
from steps.browsing.served_files import entries, located, open_below, part_of, type_of
from steps.directory.experiment import read_experiment
from steps.directory.layout import ExperimentDirectory
from steps.page.facts import read_facts
from steps.page.overview import render, render_folder, script_policies
from steps.page.render import render as render_report
from steps.page.verdict import shortcomings
from steps.web.token_server import LOCKED, LOOPBACK, TokenRequests, TokenServer, is_own_host

HOST = LOOPBACK
HTML = "text/html; charset=utf-8"
TEXT = "text/plain; charset=utf-8"
REPORT = "report.html"
CHUNK_BYTES = 2**18
MOST_REPORTS = 16
"""Pages of running experiments that are kept in memory."""
POLICY = (
    f"default-src 'none'; script-src {script_policies()}; style-src 'unsafe-inline'; "
    f"img-src data: 'self'; media-src 'self'; {LOCKED}"
)
"""Also of files: a page that lies among the results may run no script but those of this program."""


class BrowseServer(TokenServer):
    """Serves one folder. `address` is what the person opens."""

    def __init__(self, root: Path, host: str, port: int) -> None:
        try:
            super().__init__(host, port, _Requests)
        except (OSError, OverflowError) as error:
            raise BadInput(f"cannot listen on {host}, port {port}: {error}") from None
        self.root = root
        self.overview = Overview(root)
        self.reports = LiveReports(root)
        # Cookies of one machine know no ports: two servers must not replace each other's.
        self.cookie = f"browse-{secrets.token_hex(4)}"
        self.names = frozenset({"localhost", host.lower(), socket.gethostname().lower()})
        named = LOOPBACK if host in ("", "0.0.0.0", "::") else host  # noqa: S104 - compared only
        self.address = f"http://{named}:{self.server_port}/?token={self.token}"


class LiveReports:
    """The reports of experiments that have none yet, or that still run."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: OrderedDict[Path, tuple[Signature, str]] = OrderedDict()
        self._lock = threading.Lock()

    def page(self, path: Path) -> str:
        """The report as the files are now. Raises `ExperimentError` for a damaged experiment."""
        with self._lock:
            now = signature(path)
            made = self._made.pop(path, None)
            if made is None or made[0] != now:
                made = (now, self._make(path))
            self._made[path] = made
            while len(self._made) > MOST_REPORTS:
                self._made.popitem(last=False)
            return made[1]

    def _make(self, path: Path) -> str:
        directory = ExperimentDirectory(path)
        record = read_experiment(directory, self._root)
        facts = read_facts(directory, record, LIVE_STATUS)
        return render_report(facts, shortcomings(facts))


class _Requests(TokenRequests):
    server: BrowseServer
    policy = POLICY

    def do_HEAD(self) -> None:  # noqa: N802 - the name is http.server's
        """The same as a GET, without its body."""
        self.do_GET()

    def do_GET(self) -> None:  # noqa: N802 - the name is http.server's
        """Check who asks, then answer."""
        if not is_own_host(self.headers.get("Host", ""), self.server.names):
            self._refuse("this address does not name this machine")
            return
        asked = urlsplit(self.path)
        tokens = parse_qs(asked.query).get("token")
        if tokens:
            self._let_in(tokens[0], asked.path)
        elif not self._is_known():
            self._refuse("open the address that the command has printed, with its token")
        else:
            self._answer(os.fsdecode(unquote_to_bytes(asked.path)))

    def _let_in(self, token: str, path: str) -> None:
        """Replace the token in the address by a cookie."""
        if not self.server.knows(token):
            self._refuse("the token is another one")
            return
        cookie = f"{self.server.cookie}={token}; Path=/; HttpOnly; SameSite=Strict"
        # One slash: two would begin the address of another site.
        clean = "/" + quote(unquote_to_bytes(path)).lstrip("/")
        self.send(HTTPStatus.SEE_OTHER, b"", TEXT, {"Location": clean, "Set-Cookie": cookie})

    def _is_known(self) -> bool:
        try:
            cookies = SimpleCookie(self.headers.get("Cookie", ""))
        except CookieError:
            return False
        own = cookies.get(self.server.cookie)
        return own is not None and self.server.knows(own.value)

    def _refuse(self, why: str) -> None:
        self.send(HTTPStatus.FORBIDDEN, f"refused: {why}\n".encode(), TEXT)

    def _answer(self, asked: str) -> None:
        root = self.server.root
        if asked == "/":
            page = render(self.server.overview.rows(), root, is_served=True)
            self.send(HTTPStatus.OK, page.encode(), HTML)
            return
        try:
            if asked.endswith(f"/{REPORT}") and self._send_live(asked):
                return
            relative = located(root, asked)
            if not (root / relative).is_dir():
                self._send_file(relative)
            elif not asked.endswith("/"):
                place = quote(os.fsencode("/" + asked.strip("/") + "/"))
                self.send(HTTPStatus.MOVED_PERMANENTLY, b"", TEXT, {"Location": place})
            else:
                page = render_folder(entries(root, relative), relative)
                self.send(HTTPStatus.OK, page.encode(), HTML)
        except OSError:
            self.send(HTTPStatus.NOT_FOUND, b"not found\n", TEXT)

    def _send_live(self, asked: str) -> bool:
        """Send the report of an experiment that still runs or has none yet. Returns whether it did."""
        root = self.server.root
        path = root / located(root, asked.removesuffix(REPORT))
        if kind_of(path) != "experiment":
            return False
        row = self.server.overview.row(path)
        if row.report and row.state != "running":
            return False
        try:
            page = self.server.reports.page(path)
        except ExperimentError as error:
            self.send(HTTPStatus.OK, f"damaged: {printable(str(error))}\n".encode(), TEXT)
            return True
        self.send(HTTPStatus.OK, page.encode(), HTML)
        return True

    def _send_file(self, relative: Path) -> None:
        with open_below(self.server.root, relative) as file:
            size_bytes = os.fstat(file.fileno()).st_size
            part = part_of(size_bytes, self.headers.get("Range"))
            if part is None:
                status = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
                self.send(status, b"", TEXT, {"Content-Range": f"bytes */{size_bytes}"})
                return
            headers = {"Content-Length": str(part.length), "Accept-Ranges": "bytes"}
            if not part.is_whole:
                headers["Content-Range"] = f"bytes {part.first}-{part.last}/{size_bytes}"
            status = HTTPStatus.OK if part.is_whole else HTTPStatus.PARTIAL_CONTENT
            self.send_head(status, type_of(relative), headers)
            if self.command != "HEAD":
                self._copy(file, part.first, part.length)

    def _copy(self, file: io.BufferedReader, first: int, length: int) -> None:
        """Send this many bytes and no more, also of a file that grows; of one that was cut meanwhile, close
        the connection, so that nobody takes it for whole.
        """
        file.seek(first)
        while length and (chunk := file.read(min(CHUNK_BYTES, length))):
            self.wfile.write(chunk)
            length -= len(chunk)
        self.close_connection = bool(length) or self.close_connection
