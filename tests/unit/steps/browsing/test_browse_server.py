"""The server of the overview: who is let in, what is served, and that nothing outside of it is."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from steps.browsing.served_files import part_of
from steps.browsing.server import BrowseServer
from steps.directory import owner
from steps.directory.files import write_atomically
from steps.directory.owner import Owner
from steps.web.token_server import is_own_host
from tests import synthetic
from tests.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root: Path = tmp_path_factory.mktemp("served") / "root"
    synthetic.experiment(root / "one", ("unfinished",))
    (root / "one/runs/0/learner.json").write_text('{"token": "secret"}')
    (root / "one/runs/0/videos").mkdir()
    (root / "one/runs/0/videos/episode-0.mp4").write_bytes(bytes(range(100)))
    (root / ".hidden").write_text("secret")
    (root.parent / "outside.txt").write_text("secret")
    (root / "out").symlink_to(root.parent / "outside.txt")
    (root / "harmless.txt").symlink_to(root / "one/runs/0/learner.json")
    (root / "in.csv").symlink_to(root / "one/runs/0/train.csv")
    return root


@pytest.fixture(scope="module")
def served(lab: Path) -> Iterator[BrowseServer]:
    with BrowseServer(lab, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(
    server: BrowseServer, path: str, *, method: str = "GET", known: bool = True, **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if known:
        named["Cookie"] = f"other=1; {server.cookie}={server.token}"
    connection.request(method, path, headers=named)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer, body


def test_the_token_becomes_a_cookie_and_leaves_the_address(served: BrowseServer) -> None:
    answer, _ = ask(served, f"/one/?token={served.token}", known=False)
    assert (answer.status, answer.getheader("Location")) == (303, "/one/")
    cookie = answer.getheader("Set-Cookie") or ""
    assert cookie.startswith(f"{served.cookie}={served.token};")
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert answer.getheader("Referrer-Policy") == "no-referrer"
    elsewhere, _ = ask(served, f"//evil.example/?token={served.token}", known=False)
    assert not (elsewhere.getheader("Location") or "").startswith("//")


@pytest.mark.parametrize("path", ["/", "/one/report.html", "/one/experiment.yaml", "/?token=wrong"])
def test_nobody_else_is_let_in(served: BrowseServer, path: str) -> None:
    answer, body = ask(served, path, known=False)
    assert answer.status == 403 and body.startswith(b"refused: ") and len(body) < 100
    wrong, _ = ask(served, "/", known=False, Cookie=f"{served.cookie}=wrong")
    assert wrong.status == 403


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "localhost.evil"])
def test_a_strangers_name_for_this_machine_is_refused(served: BrowseServer, host: str) -> None:
    answer, _ = ask(served, "/", Host=host)
    assert answer.status == 403


def test_names_of_this_machine() -> None:
    names = frozenset({"localhost"})
    for host in ("127.0.0.1:8000", "localhost", "LOCALHOST:9", "[::1]:8000", "10.1.2.3"):
        assert is_own_host(host, names), host
    for host in ("", ":80", "evil", "[::1", "127.0.0.1:80:80", "127.0.0.1:http", "[evil]:1"):
        assert not is_own_host(host, names), host


@pytest.mark.parametrize(
    "path",
    ["/../outside.txt", "/%2e%2e/outside.txt", "/one/../../outside.txt", "/out", "/.hidden",
     "/one/runs/0/learner.json", "/harmless.txt", "/none", "/%00", "/one/experiment.yaml/x",
     "/" + "a" * 300],
)  # fmt: skip
def test_what_is_outside_or_secret_is_not_found(served: BrowseServer, path: str) -> None:
    answer, body = ask(served, path)
    assert answer.status == 404 and b"secret" not in body


def test_folders_list_what_may_be_seen(served: BrowseServer) -> None:
    answer, _ = ask(served, "/one/runs/0")
    assert (answer.status, answer.getheader("Location")) == (301, "/one/runs/0/")
    _, body = ask(served, "/one/runs/0/")
    assert b'href="./videos/"' in body and b"learner.json" not in body


def test_files_have_their_type_and_may_run_no_script(served: BrowseServer) -> None:
    for path, kind in (
        ("/one/experiment.yaml", "text/plain; charset=utf-8"),
        ("/in.csv", "text/plain; charset=utf-8"),
        ("/one/runs/0/videos/episode-0.mp4", "video/mp4"),
        ("/one/status/prepare.json", "application/json"),
    ):
        answer, body = ask(served, path)
        assert (answer.status, answer.getheader("Content-Type")) == (200, kind) and body
        policy = answer.getheader("Content-Security-Policy") or ""
        assert "script-src 'sha256-" in policy and "unsafe-inline'; img" in policy
        assert answer.getheader("X-Content-Type-Options") == "nosniff"


def test_films_are_sent_in_parts(served: BrowseServer) -> None:
    path = "/one/runs/0/videos/episode-0.mp4"
    answer, body = ask(served, path, Range="bytes=10-19")
    assert (answer.status, body) == (206, bytes(range(10, 20)))
    assert answer.getheader("Content-Range") == "bytes 10-19/100"
    answer, body = ask(served, path, Range="bytes=-5")
    assert (answer.status, body) == (206, bytes(range(95, 100)))
    answer, body = ask(served, path, Range="bytes=100-")
    assert (answer.status, answer.getheader("Content-Range")) == (416, "bytes */100")
    answer, body = ask(served, path, method="HEAD")
    assert (answer.status, answer.getheader("Content-Length"), body) == (200, "100", b"")


def test_ranges_by_their_rules() -> None:
    def ends(size: int, header: str | None) -> tuple[int, int] | None:
        part = part_of(size, header)
        return None if part is None else (part.first, part.last)

    assert ends(10, None) == ends(10, "lines=1-2") == ends(10, "bytes=0-1,3-4") == (0, 9)
    assert ends(10, "bytes=5-2") == ends(10, "bytes=-") == (0, 9)
    assert ends(10, "bytes=3-") == ends(10, "bytes=3-99") == ends(10, "bytes=-7") == (3, 9)
    assert ends(10, "bytes=-99") == (0, 9)
    assert ends(10, "bytes=10-12") is ends(10, "bytes=-0") is ends(0, "bytes=0-") is None
    assert part_of(0, None) is not None


def test_a_running_experiment_has_a_page_that_follows_it_and_nothing_is_written(
    served: BrowseServer, lab: Path
) -> None:
    owner.claim(lab / "one/owner.json", Owner(uid="u", workflow="w"))
    before = sorted(path for path in lab.rglob("*"))
    _, first = ask(served, "/one/report.html")
    assert b"Running" in first and b"preempted at step" in first
    _, again = ask(served, "/one/report.html")
    assert again == first
    synthetic.status(lab / "one/runs/0/status/train.json", state="running", reason="seen at last")
    _, later = ask(served, "/one/report.html")
    assert b"seen at last" in later
    assert sorted(path for path in lab.rglob("*")) == before
    _, page = ask(served, "/")
    assert b'href="./one/report.html"' in page and b"data-served" in page
    (lab / "one/owner.json").unlink()


def test_a_damaged_experiment_is_one_line(served: BrowseServer, lab: Path) -> None:
    write_atomically(lab / "bad/experiment.yaml", "[")
    answer, body = ask(served, "/bad/report.html")
    assert answer.status == 200 and body.startswith(b"damaged: ") and body.count(b"\n") == 1
    _, page = ask(served, "/")
    assert b"damaged" in page


def test_a_name_that_is_no_text_is_served_all_the_same(served: BrowseServer, lab: Path) -> None:
    name = b"caf\xe9 100%.txt"
    (lab / os.fsdecode(name)).write_text("here")
    assert ask(served, "/" + quote(name))[1] == b"here"


def test_the_command_serves_until_ctrl_c(lab: Path) -> None:
    command = subprocess.Popen(
        [sys.executable, "-m", "steps.browse", str(lab), "--serve"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert command.stdout is not None
    address = command.stdout.readline().split()[1]
    port, _, path = address.removeprefix("http://127.0.0.1:").partition("/")
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=20)
    connection.request("GET", "/" + path)
    assert connection.getresponse().status == 303
    connection.close()
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=PATIENCE_S)
    assert (command.returncode, said) == (130, "\nbrowse: interrupted\n")
