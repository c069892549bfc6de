"""Allocates this machine's processors and GPUs to pods by their requests.

Pods are served in order of arrival, but a pod that fits may pass one that waits for something else,
so that pods without a GPU go on while others wait for one. A GPU belongs to one pod, or is shared
by as many pods as all of its pods allow; one GPU is filled before the next, so that whole GPUs stay
free. Memory is not allocated: a pod requests what the largest game of its algorithm needs, and most
trainings use a small part of that.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from config.control_groups import processors
from config.memory import limit_bytes

TOLERANCE = 1e-6


@dataclass(frozen=True)
class Resources:
    """What a pod requests: processors, number of GPUs, memory. `gpu_name` is the resource's name,
    `pods_per_gpu` how many such pods may share a GPU.
    """

    cpus: float = 0.0
    gpus: int = 0
    pods_per_gpu: int = 1
    gpu_name: str = "nvidia.com/gpu"
    memory_bytes: float = 0.0


@dataclass(frozen=True)
class Capacity:
    """What a machine has: processors (may be fractional under a quota), GPUs by the names that CUDA
    understands, memory.
    """

    cpus: float
    gpus: tuple[str, ...] = ()
    memory_bytes: float = math.inf


@dataclass
class Grant:
    """What a pod holds. `release` may be called more than once."""

    slots: Slots
    asked: Resources
    gpus: tuple[str, ...]
    held: bool = True

    def release(self) -> None:
        """Return the resources."""
        if self.held:
            self.held = False
            self.slots.give_back(self)


@dataclass
class Slots:
    """The free part of a capacity, and the requests that wait for it."""

    capacity: Capacity
    waiting: list[tuple[Resources, asyncio.Future[Grant]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free_cpus = self.capacity.cpus
        self._of_holders: dict[str, list[int]] = {gpu: [] for gpu in self.capacity.gpus}

    def cut(self, asked: Resources) -> Resources:
        """The request reduced to what this machine has at most."""
        return replace(
            asked,
            cpus=min(asked.cpus, self.capacity.cpus),
            gpus=min(asked.gpus, len(self.capacity.gpus)),
            memory_bytes=min(asked.memory_bytes, self.capacity.memory_bytes),
        )

    async def acquire(self, asked: Resources) -> Grant:
        """Wait until a request (from `cut`) can be granted."""
        future: asyncio.Future[Grant] = asyncio.get_running_loop().create_future()
        self.waiting.append((asked, future))
        self._hand_out()
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                future.result().release()
            raise

    def give_back(self, grant: Grant) -> None:
        """Return a grant's resources; called by `Grant.release`."""
        self.free_cpus += grant.asked.cpus
        for gpu in grant.gpus:
            self._of_holders[gpu].remove(grant.asked.pods_per_gpu)
        self._hand_out()

    def _hand_out(self) -> None:
        self.waiting = [waiter for waiter in self.waiting if not waiter[1].done()]
        for waiter in list(self.waiting):
            asked, future = waiter
            gpus = self._with_room(asked.pods_per_gpu)[: asked.gpus]
            if asked.cpus <= self.free_cpus + TOLERANCE and len(gpus) == asked.gpus:
                self.waiting.remove(waiter)
                self.free_cpus -= asked.cpus
                for gpu in gpus:
                    self._of_holders[gpu].append(asked.pods_per_gpu)
                future.set_result(Grant(self, asked, tuple(gpus)))

    def _with_room(self, pods_per_gpu: int) -> list[str]:
        """GPUs with room for one more pod, the fullest first."""
        holders = self._of_holders
        found = [gpu for gpu in holders if len(holders[gpu]) < min([pods_per_gpu, *holders[gpu]])]
        return sorted(found, key=lambda gpu: -len(holders[gpu]))


@dataclass
class Limit:
    """Admits at most `most` holders at a time; None means any number (`parallelism`)."""

    most: int | None

    def __post_init__(self) -> None:
        self.semaphore = asyncio.Semaphore(self.most) if self.most else None

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Hold one place."""
        if self.semaphore is None:
            yield
            return
        async with self.semaphore:
            yield


def detect() -> Capacity:
    """Count this machine's processors (as far as this process may use them) and GPUs
    (`CUDA_VISIBLE_DEVICES` limits them).
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        gpus = tuple(
            name.strip() for name in visible.split(",") if name.strip() and name.strip() != "-1"
        )
    else:
        gpus = tuple(str(index) for index in range(len(list(Path("/dev").glob("nvidia[0-9]*")))))
    return Capacity(processors(), gpus, limit_bytes())
