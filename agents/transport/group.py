"""The learners of a run as one group that adds up numbers: PyTorch's process group over gloo, which
connects each of them with each by TCP.

They find each other in a store that the first of them keeps; the others read in a `Place` where it
is. Neither that store nor gloo asks who connects, and nothing is encrypted: both listen at one
address of this machine alone, and who can reach that can spoil the weights, as a network policy must
prevent. No more than that: what travels is numbers, of shapes that are known before. The secret of a
place keeps apart whoever holds the port of an earlier store; it keeps nobody out.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

import torch.distributed
from torch import Tensor

from agents.distributed.peers import PeersLost
from agents.transport.address import MOST_PORTS, from_text
from config.errors import BadInput

pytorch: Any = torch.distributed
"""Its annotations leave out half of what is used here."""
CONNECT_S = 60
"""To connect with all others, once these have said that they are there."""
ANSWER_S = 30
"""Of the store."""
REACH_S = 3
PAUSE_S = 0.1
POLL = timedelta(seconds=0.5)
WHERE = re.compile(r"^(\[[^\]]*\] ?)+")
"""How a message of gloo's begins: with the line of its source."""

Wait = Callable[[], None]
"""Called now and then while others are waited for; raises what ends that."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a run's learners meet. generation: of the first of them. Raises `BadInput`."""

    host: str
    port: int
    secret: str = field(repr=False)
    generation: int

    def __post_init__(self) -> None:
        if not 0 < self.port <= MOST_PORTS or self.generation < 0:
            raise BadInput(f"port {self.port}, generation {self.generation}: out of range")


def place_to_text(place: Place) -> str:
    """JSON on one line, with the secret."""
    return json.dumps(asdict(place))


def place_from_text(text: str) -> Place:
    """Raises `BadInput`, whose message does not show the secret."""
    return from_text(text, Place, "a meeting place of learners")


class Meeting:
    """Kept by the first learner, as long as the group lives."""

    def __init__(self, host: str, generation: int) -> None:
        """host: the address of this machine by which the others reach it, and no other is open."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, 0), family=family) as listener:
            port = listener.getsockname()[1]
            self._store = pytorch.TCPStore(
                host, port, is_master=True, wait_for_workers=False,
                timeout=timedelta(seconds=ANSWER_S), master_listen_fd=listener.detach(),
            )  # fmt: skip
        self.place = Place(
            host=host, port=port, secret=secrets.token_hex(16), generation=generation
        )

    def gather(self, count: int, longest_s: float, wait: Wait) -> Group:
        """As soon as all are there. longest_s: for so long the group waits for one of them, each time
        that they add something up. Raises `PeersLost`, and what `wait` does.
        """
        store = pytorch.PrefixStore(self.place.secret, self._store)
        names = [_name(number) for number in range(1, count)]
        while not store.check(names):
            time.sleep(PAUSE_S)
            wait()
        came = [store.get(name).decode() for name in names]

        def wait_for_them() -> None:
            wait()
            for name, one in zip(names, came, strict=True):
                if store.get(name).decode() != one:
                    raise PeersLost(f"{name} was started again")

        store.set("came", json.dumps(came))
        return Group(store, 0, count, self.place.host, longest_s, wait_for_them)


def take_part(
    place: Place, number: int, count: int, *, host: str, longest_s: float, wait: Wait
) -> Group | None:
    """As a further learner, see `Meeting.gather`; host: the address of this machine, as `Meeting`
    takes it. None: there is no meeting (any more), or it began without this learner.
    """
    try:
        socket.create_connection((place.host, place.port), timeout=REACH_S).close()
        connected = pytorch.TCPStore(
            place.host, place.port, is_master=False, wait_for_workers=False,
            timeout=timedelta(seconds=ANSWER_S),
        )  # fmt: skip
        store, mine = pytorch.PrefixStore(place.secret, connected), secrets.token_hex(8)
        store.set(_name(number), mine)
        while not store.check(["came"]):
            time.sleep(PAUSE_S)
            wait()
        if json.loads(store.get("came"))[number - 1] != mine:
            return None
    except (OSError, pytorch.DistError):
        return None
    return Group(store, number, count, host, longest_s, wait)


class Group:
    """`agents.distributed.peers.Peers`; to be closed."""

    def __init__(
        self, store: Any, number: int, count: int, host: str, longest_s: float, wait: Wait
    ) -> None:
        """Connects; raises `PeersLost`."""
        self.number, self.count, self.wait = number, count, wait
        self._options = pytorch.AllreduceOptions()
        self._options.timeout = timedelta(seconds=longest_s)
        gloo = pytorch.ProcessGroupGloo
        options = gloo._Options()
        options._devices = [gloo.create_device(hostname=host)]
        options._timeout = timedelta(seconds=CONNECT_S)
        with _explained():
            self._gloo = gloo(pytorch.PrefixStore("gloo", store), number, count, options)
        self._store, self._pending = store, None  # the store lives as long as the group

    def sum(self, values: Tensor) -> None:
        """As of `Peers`; raises what `wait` does, too."""
        self._pending = work = self._gloo.allreduce([values], self._options)
        while not work.is_completed():
            with contextlib.suppress(RuntimeError):  # not yet; else the last `wait` says it again
                work.wait(POLL)
                break
            self.wait()
        with _explained():
            work.wait()
        self._pending = None

    def close(self) -> None:
        """End the connections, by which the others notice; may come again."""
        if self._pending is not None and not self._pending.is_completed():
            # gloo would wait for its end, which may not come: this is kept until the process ends
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._gloo))
        self._gloo = self._pending = self._store = None


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """A failure of gloo's, on one line."""
    try:
        yield
    except RuntimeError as error:
        said = WHERE.sub("", str(error)).partition(". ")[0].partition("\n")[0]
        raise PeersLost(f"the learners have lost each other: {said}") from None


def _name(number: int) -> str:
    return f"learner {number}"
