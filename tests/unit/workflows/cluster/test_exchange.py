"""One request and its answer: what `requests` would do by itself with secrets, redirects, slow and
huge answers (defects B10 and B11 of docs/faults.md)."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from config.errors import BadInput, ExperimentError
from tests.unit.workflows.loopback_argo import NAMESPACE, TOKEN, LoopbackArgo
from tests.unit.workflows.scripted_server import JSON, ScriptedServer
from workflows import submit
from workflows.cluster import exchange, server
from workflows.cluster.server import ArgoServer, LostSight, address

# Hera 7.1 itself calls pydantic's deprecated `json`.
pytestmark = pytest.mark.filterwarnings("ignore:The `json` method is deprecated")
ROOT = Path(__file__).parents[4]
CANARY = "canary-4711-secret"
IMAGES = ("-p=gpu_image=registry.example/rl:1-gpu", "-p=cpu_image=registry.example/rl:1-cpu")
SHORT = ("ppo", "-p", "game=cartpole", "--name", "ppo-1", "--detach", *IMAGES)


def client(where: str, patience_s: float = 0.0, token: str = TOKEN) -> ArgoServer:
    found = address(
        {
            "ARGO_SERVER": where,
            "ARGO_SECURE": "false",
            "ARGO_TOKEN": token,
            "ARGO_NAMESPACE": NAMESPACE,
        },
        None,
    )
    assert found is not None
    return ArgoServer(found, patience_s=patience_s, pause_s=0.02, say=lambda text: None)


def drip(pieces: Iterable[bytes]) -> Callable[[], Iterator[bytes]]:
    """One byte every twentieth of a second."""

    def answer() -> Iterator[bytes]:
        for piece in pieces:
            for byte in piece:
                yield bytes([byte])
                time.sleep(0.05)

    return answer


@pytest.mark.parametrize(
    "token",
    [f"Bearer {CANARY}\n", f"\n  Bearer {CANARY}  \r\n", f"{CANARY}\n"],
    ids=["line break", "blanks", "without Bearer"],
)
def test_b10_what_a_file_of_a_secret_leaves_around_the_token_is_cut_off(token: str) -> None:
    with LoopbackArgo().running() as argo:
        argo.allowed = f"Bearer {CANARY}"
        with pytest.raises(BadInput, match='"ppo-9" not found'):
            client(f"127.0.0.1:{argo.port}", token=token).status("ppo-9")


@pytest.mark.parametrize("inside", ["\n", "\r", "\0", "\x1b[2J", "\t", "ü", "\u2028"])
def test_b10_a_token_with_such_a_character_is_refused_without_showing_it(inside: str) -> None:
    with pytest.raises(
        BadInput,
        match=r"^ARGO_TOKEN cannot hold U\+[0-9A-F]{4}, its character \d+ of \d+; allowed: ",
    ) as refused:
        address(
            {"ARGO_SERVER": "argo:2746", "ARGO_TOKEN": f"Bearer {CANARY}{inside}{CANARY}"},
            "default",
        )
    assert CANARY not in str(refused.value)


def test_b10_the_address_that_is_printed_has_no_token() -> None:
    where = address({"ARGO_SERVER": "argo:2746", "ARGO_TOKEN": f"Bearer {CANARY}"}, "default")
    assert where is not None and where.token == f"Bearer {CANARY}"
    assert CANARY not in repr(where)


@pytest.mark.parametrize(
    ("code", "token"),
    [
        (401, f"Bearer {CANARY}"),
        pytest.param(403, f"Bearer {CANARY}", marks=pytest.mark.slow),
        pytest.param(400, CANARY, marks=pytest.mark.slow),
        pytest.param(503, CANARY, marks=pytest.mark.slow),
        (302, CANARY),
        (401, f"Bearer {CANARY}\nmore"),
    ],
)
def test_case_68_the_token_is_in_no_output(code: int, token: str, tmp_path: Path) -> None:
    """A server that sends back what it was given, and a token that is none: not in the output, not
    in a file."""
    echo = f'{{"message": "no: Authorization: Bearer {CANARY}"}}'
    head = f"HTTP/1.1 {code} No\r\nLocation: https://u:{CANARY}@elsewhere/login?token={CANARY}\r\nConnection: close\r\n\r\n"
    with ScriptedServer(lambda: [(head + echo).encode()]).running() as scripted:
        given = {
            "ARGO_SERVER": scripted.address,
            "ARGO_SECURE": "false",
            "ARGO_TOKEN": token,
            "ARGO_NAMESPACE": NAMESPACE,
        }
        program = (
            "import sys; from workflows import submit; from workflows.cluster import server; server.PAUSE_S = 0.02;"
            "server.ArgoServer.create.__kwdefaults__['patience_s'] = 0.1;"
            "server.ArgoServer.template.__kwdefaults__['patience_s'] = 0.1;"
            "sys.exit(submit.main(sys.argv[1:]))"
        )
        environment = {**os.environ, **given, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", program, *SHORT],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == (1 if code == 503 else 2), done.stderr
    assert done.stderr.startswith(("refused: ", "failed: ")) and done.stderr.count("\n") == 1
    assert CANARY not in done.stdout + done.stderr
    assert not list(tmp_path.iterdir())


def test_b11_the_token_is_ours_and_not_that_of_netrc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    with LoopbackArgo().running() as argo:
        with pytest.raises(BadInput, match='"ppo-9" not found'):
            client(f"127.0.0.1:{argo.port}").status("ppo-9")
        argo.allowed = ""
        with pytest.raises(BadInput, match='"ppo-9" not found'):
            client(f"127.0.0.1:{argo.port}", token="").status("ppo-9")


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_b11_a_redirect_is_refused_and_not_followed(
    code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with LoopbackArgo().running() as other:
        head = f"HTTP/1.1 {code} Moved\r\nLocation: http://127.0.0.1:{other.port}/login?state=1\r\nContent-Length: 0\r\n\r\n"
        with ScriptedServer(lambda: [head.encode()]).running() as scripted:
            for name, value in {**other.environment, "ARGO_SERVER": scripted.address}.items():
                monkeypatch.setenv(name, value)
            assert submit.main(SHORT) == 2
        assert other.requests == []
    said = capsys.readouterr().err
    assert said == (
        f"refused: http://{scripted.address}/ is not the Argo Server itself (ARGO_SERVER, ARGO_SECURE, ARGO_BASE_HREF): "
        f"it redirects to http://127.0.0.1:{other.port}/login\n"
    )


@pytest.mark.parametrize("start", [b"", JSON], ids=["head", "body"])
def test_b11_an_answer_byte_by_byte_is_given_up(
    start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "ANSWER_S", 0.3)

    def answer() -> Iterator[bytes]:
        yield start
        yield from drip([(JSON if not start else b"") + b'{"metadata": {' + b" " * 200])()

    with ScriptedServer(answer).running() as scripted:
        started_s = time.monotonic()
        with pytest.raises(
            ExperimentError, match=r"has not answered for 0 s: no whole answer within 0\.3 s"
        ):
            client(scripted.address).status("ppo-1")
    assert time.monotonic() - started_s < 5


def test_b11_an_answer_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "LARGEST_ANSWER_BYTES", 2**20)

    def answer() -> Iterator[bytes]:
        yield JSON + b'{"metadata": {"name": "'
        while True:
            yield b"x" * 65536

    with ScriptedServer(answer).running() as scripted:
        with pytest.raises(BadInput, match="more than 1 MiB"):
            client(scripted.address).status("ppo-1")
        lost = client(scripted.address)
        lost._answered = True
        with pytest.raises(LostSight, match="more than 1 MiB"):
            lost.status("ppo-1")


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b"[]",
        b"17",
        b'{"status": 3}',
        b"<html>",
        b"\xff\xfe",
        b'{"metadata": [',
        b"",
    ],
)
@pytest.mark.parametrize("code", [200, 500])
def test_b11_an_answer_that_is_not_argos_is_one_line(content: bytes, code: int) -> None:
    head = JSON.replace(b"200", str(code).encode())
    with ScriptedServer(lambda: [head + content]).running() as scripted:
        with pytest.raises(ExperimentError) as raised:
            client(scripted.address).status("ppo-1")
        assert client(scripted.address).last_lines("ppo-1", "pod", 3) == []
    assert "has not answered" in str(raised.value) and "\n" not in str(raised.value)


def test_b14_a_server_does_not_steer_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = b'{"message": "no\\u001b[2J\\u001b]0;title\\u0007 access\\r\\nand more"}'
    with ScriptedServer(
        lambda: [JSON.replace(b"200 OK", b"403 No") + content]
    ).running() as scripted:
        for name, value in (("SERVER", scripted.address), ("SECURE", "false"), ("NAMESPACE", "a")):
            monkeypatch.setenv(f"ARGO_{name}", value)
        assert submit.main(SHORT) == 2
    said = capsys.readouterr().err
    assert (
        r"no\x1b[2J\x1b]0;title\x07 access and more" in said
        and said.count("\n") == 1
        and "\x1b" not in said
    )


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(
        lambda: [JSON + b'{"metadata": {"name": "ppo-1"}, "spec": {}}']
    ).running() as proxy:
        monkeypatch.setenv("http_proxy", f"http://{proxy.address}")
        monkeypatch.setenv("no_proxy", "")
        monkeypatch.setenv("NO_PROXY", "")
        assert client("argo.invalid:2746").status("ppo-1") == {}
    assert proxy.requests[0][0].startswith(
        f"GET http://argo.invalid:2746/api/v1/workflows/{NAMESPACE}/ppo-1"
    )
    assert f"Authorization: {TOKEN}" in proxy.requests[0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ARGO_SERVER", "me:secret@argo:2746"),
        ("ARGO_SERVER", "argo:2746\n"),
        ("ARGO_SERVER", "{name}"),
        ("ARGO_NAMESPACE", "a/../b"),
        ("ARGO_NAMESPACE", "{name}"),
        ("ARGO_BASE_HREF", "{name}"),
        ("ARGO_BASE_HREF", "a?b"),
    ],
)
def test_a_value_that_would_change_the_address_is_refused(name: str, value: str) -> None:
    with pytest.raises(BadInput, match=f"^{name} cannot") as refused:
        address({"ARGO_SERVER": "argo:2746", "ARGO_NAMESPACE": "a", name: value}, None)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("name", ["../../x", "a?fields=b", "{namespace}", "a b", "x" * 254])
def test_a_name_to_follow_that_would_change_the_address_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ARGO_SERVER", "argo.invalid:2746")
    monkeypatch.setenv("ARGO_NAMESPACE", "a")
    assert submit.main(["--follow", name]) == 2
    assert capsys.readouterr().err.startswith("refused: --follow cannot be ")
