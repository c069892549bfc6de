"""A game on the page of `steps.versus --serve`, in a real browser to its end; and who may not play."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.arena.opponents import load_player
from agents.games.named import load_game
from steps.playing.server import GameServer
from steps.playing.session import Session
from tests.browser.chromium import Chromium, find_chromium
from tests.waiting import PATIENCE_S

browsers = [
    pytest.mark.browser,
    pytest.mark.skipif(
        find_chromium() is None, reason="no Chromium here (apt-get install chromium)"
    ),
]


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Iterator[GameServer]:
    """Of the game and opponent that the test names."""
    name, opponent = getattr(request, "param", ("tic-tac-toe", "minimax"))
    game = load_game(name)
    server = GameServer(Session(game, load_player(opponent, game), 0, 0))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def asked(
    server: GameServer, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, str]:
    """One request as the page would send it, but for these headers."""
    usual = {"Host": server.host, "Origin": f"http://{server.host}"}
    usual |= {"Content-Type": "application/json"}
    usual |= {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {name: value for name, value in usual.items() if value}
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    text = body if isinstance(body, str) else json.dumps(body)
    connection.request(method, path, body=text if method == "POST" else None, headers=sent)
    answer = connection.getresponse()
    content = answer.read().decode()
    connection.close()
    return answer.status, content


def test_only_the_page_itself_can_play(served: GameServer) -> None:
    play, move = f"/{served.token}/play", {"action": 0, "plies": 0}
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": ""},
        {"Origin": "null"},
        {"Origin": f"http://localhost:{served.server_port}"},
        {"Content_Type": "text/plain"},
        {"Host": "evil.example"},
        {"Host": f"evil.example:{served.server_port}"},
    ):
        assert asked(served, "POST", play, move, **headers)[0] == 403, headers
    for path in ("/play", "/wrong/play", f"/{served.token[:-1]}/play", "/"):
        assert asked(served, "POST", path, move)[0] == 403
        assert asked(served, "GET", path)[0] == 404
    assert asked(served, "GET", f"/{served.token}/../session.py")[0] == 404
    assert asked(served, "GET", f"/{served.token}/", Host="evil.example")[0] == 404
    assert served.session.actions == []
    assert asked(served, "POST", play, move)[0] == 200 and served.session.actions[0] == 0


def test_what_is_no_request_is_one_line_and_changes_nothing(served: GameServer) -> None:
    for name, body, line in (
        ("play", {"action": 9, "plies": 0}, "9 is not legal"),
        ("play", {"action": "0", "plies": 0}, "allowed: a whole number"),
        ("play", {"action": True, "plies": 0}, "allowed: a whole number"),
        ("play", {"action": 0, "plies": 2}, "the game has gone on"),
        ("undo", {"plies": 0}, "nothing can be taken back"),
        ("new", {"person": 2}, "allowed: 0, 1"),
        ("play", "[1]", "no object"),
        ("play", "{", "not JSON"),
        ("frog", {}, "no request 'frog'"),
    ):
        status, answer = asked(served, "POST", f"/{served.token}/{name}", body)
        assert status == 400 and line in json.loads(answer)["error"]
    assert asked(served, "POST", f"/{served.token}/play", "x" * 1001)[0] == 413
    assert served.session.actions == []


def test_the_command_serves_until_ctrl_c(tmp_path: Path) -> None:
    command = subprocess.Popen(
        [sys.executable, "-m", "steps.versus", "--game=tic-tac-toe", "--serve"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert command.stdout is not None
    line = command.stdout.readline()
    found = re.fullmatch(
        r"Play at http://127\.0\.0\.1:(\d+)/([\w-]{32})/ in a browser.*; Ctrl-C ends\.\n", line
    )
    assert found, line
    connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=20)
    connection.request("GET", f"/{found[2]}/")
    assert connection.getresponse().status == 200
    connection.close()
    command.send_signal(signal.SIGINT)
    _, said = command.communicate(timeout=PATIENCE_S)
    assert (command.returncode, said) == (130, "\nversus: interrupted\n")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    started = Chromium(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture
def page(served: GameServer, browser: Chromium) -> Chromium:
    browser.open(served.address)
    browser.until("typeof state !== 'undefined' && state && !waiting")
    return browser


def click(page: Chromium, selector: str) -> None:
    """Where the person would, and wait for the answer."""
    assert page.evaluate(f"(e => e && !e.disabled && (e.click(), true))({selector})"), selector
    page.until("!waiting")


def text(page: Chromium, name: str) -> str:
    return str(page.evaluate(f"document.getElementById('{name}').textContent"))


def first_move() -> str:
    return "document.querySelector('[data-action]:enabled')"


class TestInABrowser:
    pytestmark = browsers

    def test_tic_tac_toe_to_its_end(self, page: Chromium, served: GameServer) -> None:
        assert text(page, "players") == "You are X, minimax is O."
        while not served.session.is_over:
            assert text(page, "message") == "Your turn."
            click(page, first_move())
        assert re.fullmatch(r"(minimax wins|A draw) after \d plies\.", text(page, "message"))
        stones = "document.querySelectorAll('.cell.x, .cell.o').length"
        moves = page.evaluate("[...document.querySelectorAll('#moves li')].map(e => e.textContent)")
        assert page.evaluate(stones) == len(served.session.actions) == len(moves)
        assert moves[0] == "X 0" and moves[1].startswith("O ")
        assert page.evaluate("document.querySelectorAll('[data-action]:enabled').length") == 0
        click(page, "document.getElementById('undo')")
        assert text(page, "message") == "Your turn."
        click(page, "document.getElementById('second')")
        assert text(page, "players") == "You are O, minimax is X."
        assert served.session.person == 1 and len(served.session.actions) == 1

    @pytest.mark.slow
    @pytest.mark.parametrize("served", [("connect-four", "mcts-30")], indirect=True)
    def test_connect_four_with_hints(self, page: Chromium, served: GameServer) -> None:
        click(page, "document.querySelector('[data-action=\"3\"]')")
        assert served.session.actions[0] == 3
        assert "mcts-30" not in text(page, "opinion")
        click(page, "document.getElementById('hint')")
        assert re.fullmatch(
            r"mcts-30 would play \d\. Value for you: -?\d\.\d\d \(−1 lost … 1 won\)\.",
            text(page, "opinion"),
        )
        shares = page.evaluate(
            "[...document.querySelectorAll('#columns button')].map(e => e.textContent)"
        )
        assert sum(int(one.split()[1]) for one in shares) == pytest.approx(100, abs=4)
        click(page, "document.querySelector('.advised')")
        assert len(served.session.actions) == 4 and text(page, "opinion") == ""
        size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
        page.send("Emulation.setDeviceMetricsOverride", **size)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390

    @pytest.mark.parametrize("served", [("my_lab.games:Nim", "minimax")], indirect=True)
    def test_a_game_without_a_board_has_text_and_buttons(
        self, page: Chromium, served: GameServer
    ) -> None:
        assert text(page, "text").startswith("|" * 10)
        click(page, "document.querySelector('#others button')")
        assert served.session.actions[0] == 0

    def test_a_second_window_that_is_older_is_told_so(
        self, page: Chromium, served: GameServer
    ) -> None:
        served.session.play(0)
        click(page, "document.querySelector('[data-action=\"8\"]')")
        assert "the game has gone on meanwhile" in text(page, "message")
        assert len(served.session.actions) == 2

    def test_nothing_left_this_machine_and_nothing_was_complained_about(
        self, browser: Chromium
    ) -> None:
        """Of all of the above; what was refused is the older window's."""
        requested = [one["request"]["url"] for one in browser.happened("Network.requestWillBeSent")]
        assert len(requested) > 10
        assert {address.partition("?")[0][:17] for address in requested} <= {
            "http://127.0.0.1:",
            "data:,",
        }
        assert browser.happened("Runtime.exceptionThrown") == []
        complaints = [one["entry"]["text"] for one in browser.happened("Log.entryAdded")]
        assert all("status of 400" in one for one in complaints) and len(complaints) == 1

    def test_another_site_s_script_cannot_play(
        self, browser: Chromium, served: GameServer, tmp_path: Path
    ) -> None:
        """Even if it knew the token: a simple request from a page of another origin."""
        other = tmp_path / "other.html"
        other.write_text("<title>other</title>")
        browser.open(other.as_uri())
        browser.until("document.title === 'other'")
        request = "{method: 'POST', mode: 'no-cors', body: '{\"action\": 0, \"plies\": 0}'}"
        for path in ("play", f"{served.token}/play"):
            address = f"http://{served.host}/{path}"
            browser.evaluate(f"fetch('{address}', {request}).then(() => 1, () => 0)")
        assert served.session.actions == []
