"""A server on loopback that says what a script says, byte for byte, whatever it is asked: for
answers that no Argo Server gives."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"


class ScriptedServer:
    """answer: gives the pieces of one answer, sent as they come; requests: the first line and the
    headers of what was asked."""

    def __init__(self, answer: Callable[[], Iterable[bytes]]) -> None:
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.ended = threading.Event()
        self.requests: list[list[str]] = []
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"

    @contextmanager
    def running(self) -> Iterator[ScriptedServer]:
        thread = threading.Thread(target=self._serve)
        thread.start()
        try:
            yield self
        finally:
            self.ended.set()
            socket.create_connection(self._listening.getsockname()).close()
            thread.join()
            self._listening.close()

    def _serve(self) -> None:
        workers: list[threading.Thread] = []
        while not self.ended.is_set():
            connection, _ = self._listening.accept()
            workers.append(threading.Thread(target=self._speak, args=(connection,)))
            workers[-1].start()
        for worker in workers:
            worker.join()

    def _speak(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(5)
            heard = b""
            while b"\r\n\r\n" not in heard:
                if not (more := connection.recv(65536)):
                    return
                heard += more
            self.requests.append(heard.partition(b"\r\n\r\n")[0].decode().split("\r\n"))
            for piece in self._answer():
                if self.ended.is_set():
                    return
                connection.sendall(piece)
