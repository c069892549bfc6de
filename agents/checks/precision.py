"""The probe behind `precision: auto`: the experiment's convolutions, timed in both precisions here.

It leaves no trace: the network is a throw-away with a generator of its own, the global generators,
from which an environment may draw when it is made, are put back, and the threads are those that
the training has set.
"""

from __future__ import annotations

import math
import time

import numpy as np
import torch
from torch import Tensor

from agents.devices import Trials
from agents.environments.game_check import check_game
from agents.environments.global_state import global_generators_kept
from agents.networks.images import NatureCNN
from config.resolved import Resolved

TRIALS = 3
TRIAL_S = 0.1
"""A trial repeats passes that are shorter than this: a GPU's take a millisecond."""
LARGEST_BYTES = 512 * 4 * 84 * 84
"""Largest size of observations in one pass: more rows are not faster, and would take minutes on one
core.
"""


def measure(resolved: Resolved, device: str) -> Trials | None:
    """Forward and backward over a minibatch, alternately in fp32 and bf16.

    None for a network that is computed in fp32 only.
    """
    hyper = resolved.hyperparameters
    with global_generators_kept():
        spaces = check_game(resolved)
        if not spaces.image or hyper.network is not None:
            return None
        torso = NatureCNN(spaces, "fp32", torch.Generator().manual_seed(0)).to(device)
    encoded = _observations(torso, _minibatch(resolved)).to(device)
    passes = _warm_up(torso, encoded)
    fp32_s = list[float]()
    bf16_s = list[float]()
    # The precisions alternate, because their ratio is taken pair by pair.
    for _ in range(TRIALS):
        fp32_s.append(_pass_s(torso, encoded, "fp32", passes))
        bf16_s.append(_pass_s(torso, encoded, "bf16", passes))
    rows = len(encoded)
    threads = torch.get_num_threads()
    return Trials(rows=rows, threads=threads, fp32_s=tuple(fp32_s), bf16_s=tuple(bf16_s))


def _minibatch(resolved: Resolved) -> int:
    """The rows of one update: a part of a rollout, what is drawn from a replay, or unrolls."""
    hyper = resolved.hyperparameters
    size: int | None = getattr(hyper, "batch_size", None)
    if size is None:
        return resolved.steps_per_epoch // int(hyper.minibatches)
    return size * int(getattr(hyper, "unroll_length", 1))


def _observations(torso: NatureCNN, minibatch: int) -> Tensor:
    """A minibatch as the rollout stores it; its pixels are anything but equal."""
    spaces = torso.spaces
    rows = max(1, min(minibatch, LARGEST_BYTES // spaces.observation_size))
    channels, height, width = spaces.observation_shape
    shape = (height, width, channels) if spaces.channels_last else (channels, height, width)
    pixels = np.resize(np.arange(251, dtype=np.uint8), (rows, *shape))
    return torso.encode(torch.from_numpy(pixels))


def _warm_up(torso: NatureCNN, encoded: Tensor) -> int:
    """Both precisions once, since first passes compile; then how many passes make a trial."""
    _pass_s(torso, encoded, "bf16", 1)
    _pass_s(torso, encoded, "fp32", 1)
    return max(1, min(100, math.ceil(TRIAL_S / _pass_s(torso, encoded, "fp32", 1))))


def _pass_s(torso: NatureCNN, encoded: Tensor, precision: str, passes: int) -> float:
    """Seconds of one forward and backward pass, averaged."""
    torso.precision = precision
    started = time.perf_counter()
    for _ in range(passes):
        torso.zero_grad()
        torso.rows(encoded).mean().backward()  # type: ignore[no-untyped-call]
    if encoded.is_cuda:
        # Calls to a GPU return before they are done.
        torch.cuda.synchronize()
    return (time.perf_counter() - started) / passes
