"""Chooses device, precision and number of threads.

`auto` is decided once, by the first training that starts, recorded, and kept by all runs and every
resume. `agents.checks.precision` measures what the decision needs.
"""

from __future__ import annotations

import contextlib
import platform
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from config.parameters import cannot_be

ROWS_PER_THREAD = 8
"""Fewer rows are computed as fast by one thread; and torch's other threads, which wait by spinning,
then leave the emulator alone."""

LEAST_RATIO = 1.15
"""bf16 must be this many times as fast before its rounding is accepted."""


@dataclass(frozen=True, kw_only=True)
class Trials:
    """The probe's measurements: seconds of a forward and backward pass over `rows` observations."""

    rows: int
    threads: int
    fp32_s: tuple[float, ...]
    bf16_s: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """How many times as fast bf16 is: the median; one disturbed trial decides nothing."""
        pairs = zip(self.fp32_s, self.bf16_s, strict=True)
        return statistics.median(fp32 / bf16 for fp32, bf16 in pairs)

    def as_dict(self) -> dict[str, Any]:
        """The measurements for the record."""
        return {
            "rows": self.rows,
            "threads": self.threads,
            "fp32_s": [round(one, 6) for one in self.fp32_s],
            "bf16_s": [round(one, 6) for one in self.bf16_s],
            "ratio": round(self.ratio, 3),
        }


Probe = Callable[[], Trials | None]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Device and precision of a training, with the reason. trials: None if no probe was needed.
    vectorisation: how its environments step together, with the reason.
    """

    device: str
    precision: str
    reason: str
    vectorisation: str
    vectorisation_reason: str
    trials: Trials | None = None


@contextlib.contextmanager
def threads_for(rows: int) -> Iterator[None]:
    """Compute batches of `rows` with no more of torch's threads than pay off.

    Measured (2 cores, Nature CNN, 8 environments): the network takes 10 % longer, the emulator
    beside it 20 % less.
    """
    with threads(max(1, min(torch.get_num_threads(), rows // ROWS_PER_THREAD))):
        yield


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with this many of torch's threads, and put the process's own number back after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def is_accelerator(device: torch.device) -> bool:
    """Whether it computes on its own, so that looking at a number there means to wait for it."""
    return device.type != "cpu"


def on_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the CPU on a device: the same one where that is the CPU.

    A GPU gets it through pinned memory. A copy from pageable memory would wait until the GPU has
    done all that it was asked for before.
    """
    if device.type != "cuda":
        return tensor.to(device, non_blocking=True)
    return tensor.pin_memory().to(device, non_blocking=True)


def copy_into(target: Tensor, source: Tensor) -> None:
    """Copy a tensor of the CPU to where the target is, in the way of `on_device`."""
    if target.is_cuda:
        source = source.pin_memory()
    target.copy_(source, non_blocking=True)


def numbers(found: Mapping[str, float | Tensor]) -> dict[str, float]:
    """Numbers and tensors [] -> numbers. Those of a device come in one copy: it is waited for
    once.
    """
    there = {
        name: one
        for name, one in found.items()
        if isinstance(one, Tensor) and is_accelerator(one.device)
    }
    looked_at = dict[str, float]()
    if there:
        together = torch.stack([one.to(torch.float64) for one in there.values()])
        looked_at = dict(zip(there, together.tolist(), strict=True))
    return {name: looked_at[name] if name in there else float(one) for name, one in found.items()}


def arrays(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    """Tensors of one device as arrays. On the CPU they share their memory; from a GPU all that have
    one type come in one copy, and all are waited for together.
    """
    if not tensors or not is_accelerator(tensors[0].device):
        return [tensor.numpy(force=True) for tensor in tensors]
    found = dict[int, np.ndarray]()
    for dtype in {tensor.dtype for tensor in tensors}:
        places = [place for place, tensor in enumerate(tensors) if tensor.dtype == dtype]
        flat = torch.cat([tensors[place].detach().reshape(-1) for place in places])
        parts = np.split(
            Ferry(flat.device).fetch(flat), np.cumsum([tensors[place].numel() for place in places])
        )
        for place, part in zip(places, parts[:-1], strict=True):
            found[place] = part.reshape(tensors[place].shape)
    return [found[place] for place in range(len(tensors))]


class Ferry:
    """Copies between the CPU and one device, for one group of environments that step together.

    Pinned memory of its own is written again and again; an event says when the copy before has left
    it. On the CPU there is nothing to wait for.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._waits = is_accelerator(device)
        self._out: Tensor | None = None
        self._back: Tensor | None = None
        if self._waits:
            module = torch.get_device_module(device)
            self._sent = module.Event()
            self._came = module.Event()

    def send(self, target: Tensor, source: Tensor) -> None:
        """Copy a tensor of the CPU, always of one shape and type, into one of the device. The source
        may be written again at once.
        """
        if not self._waits:
            target.copy_(source)
            return
        if self._out is None:
            self._out = self._pinned(source)
        else:
            # It was asked for before the actions that the environments have answered since, so that
            # there is never anything to wait for.
            self._sent.synchronize()
        self._out.copy_(source)
        target.copy_(self._out, non_blocking=True)
        self._sent.record()

    def fetch(self, tensor: Tensor) -> np.ndarray:
        """A tensor of the device as an array. This waits for it, and for nothing that is asked for
        later.
        """
        if not self._waits:
            return tensor.numpy(force=True)
        if self._back is None or self._back.shape != tensor.shape:
            self._back = self._pinned(tensor)
        self._back.copy_(tensor, non_blocking=True)
        self._came.record()
        self._came.synchronize()
        # The next copy overwrites this memory, which whoever gets the array may still need.
        return self._back.numpy().copy()

    def _pinned(self, like: Tensor) -> Tensor:
        return torch.empty(like.shape, dtype=like.dtype, pin_memory=self._device.type == "cuda")


def choose_device(requested: str) -> str:
    """`auto` -> "cuda" where there is one, else "cpu"; raises `BadInput` for "cuda" without a
    GPU.
    """
    if requested == "cuda" and not torch.cuda.is_available():
        raise cannot_be(
            "device",
            requested,
            because="this machine has no usable GPU",
            allowed="device=auto, device=cpu",
        )
    if requested == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return requested


def choose_precision(requested: str, device: str, measure: Probe) -> tuple[str, str, Trials | None]:
    """Precision, the reason in words, and the figures behind it.

    Native bf16 arithmetic alone says nothing: of two processors with AVX-512 bf16 one learnt 1.7 x
    as fast as in fp32, the other 0.7 x. So `measure` is asked there; it answers None for a network
    that is computed in fp32 only.
    """
    if requested != "auto":
        return requested, f"{requested} was asked for", None
    if not computes_bf16(device):
        return "fp32", "no native bf16 arithmetic here", None
    trials = measure()
    if trials is None:
        return "fp32", "this network is computed in fp32 only", None
    precision = "bf16" if trials.ratio >= LEAST_RATIO else "fp32"
    found = f"measured: bf16 is {trials.ratio:.2f} x as fast as fp32, taken from {LEAST_RATIO} x on"
    return precision, found, trials


def computes_bf16(device: str) -> bool:
    """Whether bf16 arithmetic is native there."""
    if device == "cuda":
        return torch.cuda.get_device_capability() >= (8, 0)
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def processor_name(device: str) -> str:
    """The name of the GPU, or of the processor as Linux gives it."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
