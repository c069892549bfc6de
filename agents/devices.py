"""Where and how precisely a training computes: decided at a run's first start, recorded, and kept by every resume."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from config.errors import BadInput

ROWS_PER_THREAD = 8
"""Fewer rows are computed as fast by one thread; and torch's other threads, which wait by spinning, then leave the emulator alone."""


@contextlib.contextmanager
def threads_for(rows: int) -> Iterator[None]:
    """Compute batches of `rows` with no more of torch's threads than pay off.

    Measured (2 cores, Nature CNN, 8 environments): the network takes 10 % longer, the emulator beside it 20 % less.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, min(before, rows // ROWS_PER_THREAD)))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def choose_device(requested: str) -> str:
    """`auto` -> "cuda" where there is one, else "cpu"; raises `BadInput` for "cuda" without a GPU."""
    if requested == "cuda" and not torch.cuda.is_available():
        raise BadInput("parameter 'device' cannot be 'cuda': this machine has no usable GPU; allowed: device=auto, device=cpu")
    if requested == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return requested


def choose_precision(requested: str, device: str) -> str:
    """`auto` -> "bf16" where the processor computes in it, else "fp32".

    Seen: with AVX-512 bf16 a convolution is 1.7 x as fast as in fp32; emulated, half as fast. Only convolutional networks
    are computed in it, see `networks.py`.
    """
    if requested != "auto":
        return requested
    return "bf16" if computes_bf16(device) else "fp32"


def computes_bf16(device: str) -> bool:
    """Whether bf16 arithmetic is native there."""
    if device == "cuda":
        return torch.cuda.get_device_capability() >= (8, 0)
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
