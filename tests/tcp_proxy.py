"""A TCP proxy on loopback that a test can cut or freeze: what a network does to a connection."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self


class Proxy:
    """Forwards to 127.0.0.1:`target`. frozen: nothing goes through any more, nothing is closed."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.forwarding = threading.Event()
        self.forwarding.set()
        self.connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Every connection; new ones are served."""
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def freeze(self) -> None:
        self.forwarding.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        self.forwarding.set()
        for connection in self.connections:
            connection.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.connections.append(near)
                far = socket.create_connection(("127.0.0.1", self.target))
                self.connections.append(far)
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._forward, args=(one, other), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while received := source.recv(65536):
                self.forwarding.wait()
                target.sendall(received)
            target.shutdown(socket.SHUT_RDWR)
