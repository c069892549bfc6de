"""Training on a device is training on the processor: the same numbers within rounding, the same
states, the same refusals."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from agents.checks.precision import measure
from agents.devices import copy_into, on_device
from agents.evaluation.episodes import evaluate
from agents.interfaces import HasStreams
from agents.load import load_policy
from config.algorithms.descriptor import SELF_PLAY, SINGLE
from config.errors import Diverged
from tests.gpu.trainings import (
    CASES,
    Outcome,
    largest_difference,
    learnt,
    made,
    metrics,
    progress_of,
    trained,
)

pytestmark = pytest.mark.gpu
EVERY = pytest.mark.parametrize("name", CASES)
ALONE = [name for name, one in CASES.items() if one.resolved().descriptor.topology == SINGLE]
PICTURES = [name for name in CASES if "images" in name]
ROUNDING = 1e-3
"""Relative, after a few updates. A float32 has 6e-8; 3e-7 was seen between numpy and torch, and a
GPU adds up in another order."""


@cache
def outcome(name: str, device: str) -> Outcome:
    return trained(CASES[name], device)


def difference(one: Any, other: Any) -> str:
    """Empty within rounding; else what differs, and by how much."""
    largest, where = largest_difference(one, other)
    return "" if largest <= ROUNDING else f"{where} by {largest:.2g}"


@EVERY
def test_the_numbers_are_the_processor_s(name: str, device: str) -> None:
    """Losses, norms and returns of every epoch; weights, optimisers and statistics at the end."""
    here, there = outcome(name, "cpu"), outcome(name, device)
    assert difference(metrics(here.epochs), metrics(there.epochs)) == ""
    assert difference(learnt(here.last), learnt(there.last)) == ""
    assert any(value for value in there.epochs[-1].metrics.values()), "nothing was learnt"


@EVERY
def test_a_checkpoint_is_the_same_bits_on_either_device(name: str, device: str) -> None:
    """Written on the device, read on the processor and written there, read on the device again."""
    resolved, state = CASES[name].resolved(), outcome(name, device).last
    kept = state
    for where in ("cpu", device):
        trainer = made(resolved, where)
        trainer.load_state_dict(kept)
        kept = trainer.state_dict()
        trainer.close()
        assert largest_difference(learnt(kept), learnt(state)) <= (0.0, "~")
    if resolved.descriptor.topology != SELF_PLAY:
        (episode,) = evaluate(load_policy(resolved, kept), resolved, 0, 1, True)
        assert episode.length > 0 and np.isfinite(episode.return_)


@pytest.mark.parametrize("name", ALONE)
def test_a_training_goes_on_where_it_was(name: str, device: str) -> None:
    whole = outcome(name, device)
    trainer = made(CASES[name].resolved(), device)
    trainer.load_state_dict(whole.first)
    if isinstance(trainer, HasStreams):
        whole.kept.give(trainer)
    rest = list(progress_of(trainer))
    trainer.close()
    assert difference(metrics(rest), metrics(whole.epochs[1:])) == ""


@EVERY
def test_what_is_not_finite_is_never_learnt(name: str, device: str) -> None:
    trainer = made(CASES[name].resolved(), device)
    before = [one.detach().clone() for one in trainer.network.parameters()]
    poison_gradients(trainer)
    with pytest.raises(Diverged, match="not finite"):
        for _ in progress_of(trainer):
            pass
    trainer.close()
    after = trainer.network.parameters()
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def poison_gradients(trainer: Any) -> None:
    """Gradients are infinite from the first loss on; machine code would not ask the hooks."""
    trainer.compiled = None
    for parameter in filter(lambda one: one.requires_grad, trainer.network.parameters()):
        parameter.register_hook(lambda gradient: torch.full_like(gradient, float("inf")))


@pytest.mark.parametrize("name", PICTURES)
def test_half_precision_learns(name: str, device: str) -> None:
    if device == "pretended:0":
        pytest.skip("its arithmetic is the CPU's: nothing of bf16 would be seen")
    half = trained(CASES[name], device, "bf16")
    losses = [value for name, value in half.epochs[-1].metrics.items() if name.endswith("loss")]
    assert losses and all(value is not None and np.isfinite(value) for value in losses)
    weights = [one for one in half.last["network"].values() if one.dtype.kind == "f"]
    assert weights and all(one.dtype == np.float32 for one in weights), "weights stay in fp32"


def test_the_probe_of_the_precision_answers(device: str) -> None:
    found = measure(CASES["ppo, images"].resolved(), device)
    assert found is not None and found.ratio > 0
    assert len(found.fp32_s) == len(found.bf16_s) == 3


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.bool_, np.int64])
def test_a_copy_is_what_was_there_when_it_was_asked_for(dtype: type, device: str) -> None:
    """Also where the memory that was copied from is written to again at once."""
    place = torch.device(device)
    target = torch.zeros(1 << 20, dtype=torch.from_numpy(np.zeros(1, dtype)).dtype, device=place)
    source = np.ones(1 << 20, dtype)
    copy = on_device(torch.from_numpy(source), place)
    copy_into(target, torch.from_numpy(source))
    if place.type != "cpu":  # there it is the same memory
        source[:] = 0
    assert copy.device.type == target.device.type == place.type
    assert copy.cpu().numpy().all() and target.cpu().numpy().all()
