"""Serves a game on a page that only this machine can reach, and only people who know its address.

Scripts of other sites in the same browser cannot play: the address contains a token that they do
not know, `Host` must be this machine's address (otherwise one of their names could be made to point
here), and requests that change the game must come from the page itself (`Origin`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from agents.games.boards import board_of
from config.errors import BadInput, shown
from steps.playing.session import COLOURS, Session
from steps.playing.terminal import ended
from steps.web.token_server import LOCKED, LOOPBACK, TokenRequests, TokenServer

FILES = {
    "": ("game.html", "text/html; charset=utf-8"),
    "game.css": ("game.css", "text/css; charset=utf-8"),
    "game.js": ("game.js", "text/javascript; charset=utf-8"),
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    f"{LOCKED}"
)
LARGEST_REQUEST_BYTES = 1000


class GameServer(TokenServer):
    """Serves one game at a time. `address` is what the person opens."""

    def __init__(self, session: Session) -> None:
        super().__init__(LOOPBACK, 0, _Requests)
        self.session = session
        # The server answers each request in a thread of its own.
        self.lock = threading.Lock()
        self.host = f"{LOOPBACK}:{self.server_port}"
        self.address = f"http://{self.host}/{self.token}/"

    def answer(self, asked: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request of the page, as JSON. Raises `BadInput`."""
        commands: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "state": lambda given: {},
            "play": self._play,
            "undo": self._undo,
            "new": self._new,
            "opinion": self._opinion,
        }
        if asked not in commands:
            raise BadInput(f"no request {shown(asked)}")
        with self.lock:
            further = commands[asked](given)
            return described(self.session) | further

    def _play(self, given: Mapping[str, Any]) -> dict[str, Any]:
        self._check_seen(given)
        self.session.play(_whole(given, "action"))
        return {}

    def _undo(self, given: Mapping[str, Any]) -> dict[str, Any]:
        self._check_seen(given)
        self.session.undo()
        return {}

    def _new(self, given: Mapping[str, Any]) -> dict[str, Any]:
        before = self.session
        person = _whole(given, "person")
        if person not in (0, 1):
            raise BadInput(f"person = {person}; allowed: 0, 1")
        self.session = Session(before.game, before.opponent, person, before.seed + 1)
        return {}

    def _opinion(self, given: Mapping[str, Any]) -> dict[str, Any]:
        self._check_seen(given)
        choices = self.session.opinion()
        opinion: dict[str, Any] = {"action": int(choices.actions[0]), "policy": None, "value": None}
        if choices.policy is not None:
            opinion["policy"] = [float(share) for share in choices.policy[0]]
        if choices.value is not None:
            opinion["value"] = float(choices.value[0])
        return {"opinion": opinion}

    def _check_seen(self, given: Mapping[str, Any]) -> None:
        """Raise `BadInput` if the page shows an older position, as a second window may: the request
        was meant for that position.
        """
        if _whole(given, "plies") != len(self.session.actions):
            raise BadInput("the game has gone on meanwhile: load the page again")


def described(session: Session) -> dict[str, Any]:
    """Everything that the page shows."""
    state = session.state[0]
    board = board_of(session.game, state)
    return {
        "game": session.game.name,
        "opponent": session.opponent.name,
        "person": session.person,
        "colours": COLOURS,
        "legal": session.legal(),
        "moves": [list(one) for one in zip(session.movers, session.actions, strict=True)],
        "board": None if board is None else board.cells.tolist(),
        "in_cells": board is not None and board.cell_actions,
        "in_columns": board is not None and board.column_actions,
        "text": session.game.show(state) if board is None else "",
        "ended": ended(session) if session.is_over else "",
        "opinion": None,
    }


def _whole(given: Mapping[str, Any], name: str) -> int:
    value = given.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput(f"{name} = {shown(value)}; allowed: a whole number")
    return value


class _Requests(TokenRequests):
    server: GameServer
    policy = POLICY

    def do_GET(self) -> None:  # noqa: N802 - the name is http.server's
        """Send the page or one of its two files."""
        name = self._name()
        if name is None or name not in FILES:
            self.send(HTTPStatus.NOT_FOUND, b"not found\n", "text/plain")
            return
        file, kind = FILES[name]
        self.send(HTTPStatus.OK, (Path(__file__).parent / file).read_bytes(), kind)

    def do_POST(self) -> None:  # noqa: N802 - the name is http.server's
        """Answer the page's script."""
        name = self._name()
        size = self.headers.get("Content-Length", "")
        is_own = self.headers.get("Origin") == f"http://{self.server.host}"
        is_json = self.headers.get("Content-Type") == "application/json"
        if name is None or not (is_own and is_json):
            self.send(HTTPStatus.FORBIDDEN, b"not from the page of this game\n", "text/plain")
            return
        if not size.isdecimal() or int(size) > LARGEST_REQUEST_BYTES:
            self.send(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, b"too long\n", "text/plain")
            return
        status = HTTPStatus.OK
        try:
            answer = self.server.answer(name, _json(self.rfile.read(int(size))))
        except BadInput as error:
            status = HTTPStatus.BAD_REQUEST
            answer = {"error": str(error)}
        self.send(status, json.dumps(answer).encode(), "application/json")

    def _name(self) -> str | None:
        """The requested name without the token; None if the token is wrong."""
        _, _, rest = self.path.partition("/")
        token, _, name = rest.partition("/")
        # The host against DNS rebinding: a stranger's name could be made to point to this machine.
        if not self.server.knows(token) or self.headers.get("Host") != self.server.host:
            return None
        return name


def _json(body: bytes) -> dict[str, Any]:
    try:
        given = json.loads(body)
    except ValueError as error:
        raise BadInput("the request is not JSON") from error
    if not isinstance(given, dict):
        raise BadInput("the request is no object")
    return given
