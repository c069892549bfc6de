"""The learners of a run as one group that adds up numbers: PyTorch's process group over gloo, which
connects each of them with each by TCP; and over NCCL, from GPU to GPU, what lies on GPUs, where each
learner has one of its own.

They find each other in a store that the first of them keeps; the others read in a `Place` where it
is. Neither that store nor gloo nor NCCL asks who connects, and nothing is encrypted: the first two
listen at one address of this machine alone, and who can reach that can spoil the weights, as a network policy must
prevent. No more than that: what travels is numbers, of shapes that are known before. The secret of a
place keeps apart whoever holds the port of an earlier store; it keeps nobody out.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import logging
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from agents.distributed.protocol import PeersLost
from agents.transport.address import MOST_PORTS, from_text
from config.errors import BadInput

log = logging.getLogger(__name__)
pytorch: Any = torch.distributed
"""torch.distributed as Any, because its annotations leave out half of what is used here."""
CONNECT_S = 60
"""To connect with all others, once these have said that they are there."""
ANSWER_S = 30
"""Time limit for an answer of the store."""
REACH_S = 3
PAUSE_S = 0.1
POLL = timedelta(seconds=0.5)
NCCL = {
    # By default PyTorch ends the whole process when a sum is late. Here it raises `PeersLost`.
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    # By default nothing bounds how long NCCL connects.
    "TORCH_NCCL_USE_COMM_NONBLOCKING": "1",
    "TORCH_NCCL_NONBLOCKING_TIMEOUT": str(CONNECT_S),
}
"""PyTorch's settings of NCCL, which it reads when the group is made."""
WHERE = re.compile(r"^(\[[^\]]*\] ?)+")
"""How a message of gloo's begins: with the line of its source."""

Wait = Callable[[], None]
"""Called now and then while others are waited for; raises what ends that."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a run's learners meet. generation: that of the first of them. Raises `BadInput`."""

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
        # PyTorch's store would listen at all addresses of the machine: it gets a listener for one.
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
        """Form the group as soon as all are there. longest_s: how long the group waits for one of
        them each time they add something up. Raises `PeersLost`, and what `wait` raises.
        """
        store = pytorch.PrefixStore(self.place.secret, self._store)
        names = [_name(number) for number in range(1, count)]
        while not store.check(names):
            time.sleep(PAUSE_S)
            wait()
        came = [store.get(name).decode() for name in names]

        def wait_for_them() -> None:
            wait()
            # A learner that was started again has written another number.
            for name, one in zip(names, came, strict=True):
                if store.get(name).decode() != one:
                    raise PeersLost(f"{name} was started again")

        store.set("came", json.dumps(came))
        return Group(store, 0, count, self.place.host, longest_s, wait_for_them)


def take_part(
    place: Place, number: int, count: int, *, host: str, longest_s: float, wait: Wait
) -> Group | None:
    """Join as a further learner, see `Meeting.gather`. host: the address of this machine, as for
    `Meeting`. Returns None if there is no meeting (any more), or it began without this learner.
    """
    try:
        # PyTorch's store would wait 30 s for an address where nobody listens.
        socket.create_connection((place.host, place.port), timeout=REACH_S).close()
        connected = pytorch.TCPStore(
            place.host, place.port, is_master=False, wait_for_workers=False,
            timeout=timedelta(seconds=ANSWER_S),
        )  # fmt: skip
        store = pytorch.PrefixStore(place.secret, connected)
        mine = secrets.token_hex(8)
        store.set(_name(number), mine)
        while not store.check(["came"]):
            time.sleep(PAUSE_S)
            wait()
        # Another process with this learner's number came after it, or the group began without it.
        if json.loads(store.get("came"))[number - 1] != mine:
            return None
    except (OSError, pytorch.DistError):
        return None
    return Group(store, number, count, host, longest_s, wait)


class Group:
    """`agents.distributed.protocol.Peers`; to be closed."""

    _gpus: GroupOfGPUs | None = None
    _asked_for_gpus = False

    def __init__(
        self, store: Any, number: int, count: int, host: str, longest_s: float, wait: Wait
    ) -> None:
        """Connects; raises `PeersLost`."""
        self.number = number
        self.count = count
        self.wait = wait
        self._options = pytorch.AllreduceOptions()
        self._options.timeout = timedelta(seconds=longest_s)
        gloo = pytorch.ProcessGroupGloo
        options = gloo._Options()
        options._devices = [gloo.create_device(hostname=host)]
        options._timeout = timedelta(seconds=CONNECT_S)
        with _explained():
            self._gloo = gloo(pytorch.PrefixStore("gloo", store), number, count, options)
        # The store must live as long as the group.
        self._store = store
        self._pending = None

    @property
    def has_gpus(self) -> bool:
        """Whether numbers go from GPU to GPU; False before the first sum of numbers on one."""
        return self._gpus is not None

    def sum(self, values: Tensor) -> None:
        """See `Peers.sum`. Also raises what `wait` raises."""
        if values.device.type == "cpu":
            self._sum_on_cpu(values)
            return
        if not self._asked_for_gpus:
            self._gpus = self._connect_gpus(values.device)
            self._asked_for_gpus = True
        if self._gpus is None:
            on_cpu = values.cpu()
            self._sum_on_cpu(on_cpu)
            values.copy_(on_cpu)
            return
        # NCCL waits for ever for a learner that has died, gloo notices it. So all learners meet in a
        # sum over gloo before each sum over NCCL.
        self._sum_on_cpu(torch.zeros(1))
        self._gpus.sum(values)

    def _connect_gpus(self, device: torch.device) -> GroupOfGPUs | None:
        """Connect the learners' GPUs with NCCL. Returns None if two learners share a GPU, which
        NCCL refuses, or if it cannot connect them; all learners get the same answer.
        """
        identities = torch.zeros(self.count, dtype=torch.int64)
        identities[self.number] = gpu_identity(device)
        self._sum_on_cpu(identities)
        # 0 stands for "no GPU". Equal numbers are one GPU that two learners share.
        different = set(identities.tolist()) - {0}
        if len(different) < self.count:
            return None
        connected = torch.ones(1)
        made: GroupOfGPUs | None = None
        try:
            made = GroupOfGPUs(self._store, self.number, self.count)
            made.sum(torch.zeros(1, device=device))
        except (RuntimeError, PeersLost) as error:
            log.warning("gradients go by way of the CPU: NCCL says %s", _line(error))
            connected.zero_()
        # All use NCCL or none: one that could not connect keeps the others from waiting for it.
        self._sum_on_cpu(connected)
        return made if connected == self.count else None

    def _sum_on_cpu(self, values: Tensor) -> None:
        self._pending = work = self._gloo.allreduce([values], self._options)
        while not work.is_completed():
            # A RuntimeError means "not yet". A real failure completes the work, and the `wait`
            # after the loop raises it again.
            with contextlib.suppress(RuntimeError):
                work.wait(POLL)
                break
            self.wait()
        with _explained():
            work.wait()
        self._pending = None

    def close(self) -> None:
        """End the connections, by which the others notice; may come again."""
        if self._pending is not None and not self._pending.is_completed():
            # Freeing the group waits until the sum under way has ended, which may never happen. One
            # reference too many keeps the group until the process ends.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._gloo))
        if self._gpus is not None:
            self._gpus.close()
        self._gloo = self._pending = self._store = self._gpus = None


class GroupOfGPUs:
    """Sums over GPUs, by NCCL; to be closed."""

    def __init__(self, store: Any, number: int, count: int) -> None:
        """Connects at the first sum; raises `RuntimeError`."""
        os.environ |= NCCL
        options = pytorch.ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=CONNECT_S)
        prefixed = pytorch.PrefixStore("nccl", store)
        self._nccl = pytorch.ProcessGroupNCCL(prefixed, number, count, options)

    def sum(self, values: Tensor) -> None:
        """Add up in place; raises `PeersLost` where a GPU does not answer, `RuntimeError` where none
        could be reached.
        """
        work = self._nccl.allreduce([values])
        end = time.monotonic() + ANSWER_S
        while not work.is_completed():
            if time.monotonic() > end:
                raise PeersLost(f"the GPU of another learner did not answer for {ANSWER_S} s")
            # Gives other threads Python's lock. A longer pause would delay every sum.
            time.sleep(0)
        with _explained():
            work.wait()

    def close(self) -> None:
        """End the connections, whatever is under way."""
        self._nccl.abort()


def gpu_identity(device: torch.device) -> int:
    """A number that no other GPU has, on this machine or on another; 0 for what is no GPU."""
    if device.type != "cuda":
        return 0
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    # Seven bytes fit into int64; odd, so that it is never 0.
    return int.from_bytes(hashlib.sha256(uuid.encode()).digest()[:7], "big") | 1


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """A failure of gloo's or NCCL's, on one line."""
    try:
        yield
    except RuntimeError as error:
        raise PeersLost(f"the learners have lost each other: {_line(error)}") from None


def _line(error: Exception) -> str:
    """The first sentence of what PyTorch says."""
    return WHERE.sub("", str(error)).partition(". ")[0].partition("\n")[0]


def _name(number: int) -> str:
    return f"learner {number}"
