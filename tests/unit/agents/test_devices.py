"""Copies to and from a device that does what it was asked for later, as a GPU does."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import pytest
import torch

from agents import devices
from agents.devices import Ferry, numbers


class Later:
    """The module of such a device: only an event that is waited for makes what was asked for."""

    asked: ClassVar[list[Any]]
    waited: ClassVar = Counter[str]()

    class Event:
        def __init__(self) -> None:
            self.before = list[Any]()

        def record(self) -> None:
            self.before += Later.asked
            Later.asked = []

        def synchronize(self) -> None:
            for copy in self.before:
                copy()
            Later.waited["event"] += bool(self.before)
            self.before = []


@pytest.fixture
def ferry(monkeypatch: pytest.MonkeyPatch) -> Ferry:
    Later.asked = []
    Later.waited.clear()
    original = torch.Tensor.copy_

    def copy(target: Any, source: Any, non_blocking: bool = False) -> Any:
        if not non_blocking:
            return original(target, source)
        Later.asked.append(lambda: original(target, source))
        return target

    monkeypatch.setattr(torch.Tensor, "copy_", copy)
    monkeypatch.setattr(devices, "is_accelerator", lambda _: True)
    monkeypatch.setattr(torch, "get_device_module", lambda _: Later)
    return Ferry(torch.device("cpu"))


def test_a_row_may_be_written_again_at_once(ferry: Ferry) -> None:
    """Nothing is written to the memory between before the copy has left it."""
    row, places = torch.zeros(3), torch.full((2, 3), -1.0)
    for number in range(2):
        row[:] = number
        ferry.send(places[number], row)
        row[:] = 77
    assert places.tolist() == [[0, 0, 0], [-1, -1, -1]]
    ferry._sent.synchronize()
    assert places.tolist() == [[0, 0, 0], [1, 1, 1]]


def test_what_comes_back_was_waited_for_and_stays(ferry: Ferry) -> None:
    first = ferry.fetch(torch.tensor([1, 2]))
    second = ferry.fetch(torch.tensor([3, 4]))
    assert first.tolist() == [1, 2] and second.tolist() == [3, 4]
    assert Later.waited["event"] == 2


def test_numbers_are_what_they_were() -> None:
    found = numbers({"a": 0.1, "b": torch.tensor(0.1), "c": torch.tensor(3)})
    assert found == {"a": 0.1, "b": float(torch.tensor(0.1)), "c": 3.0}
    assert list(found) == ["a", "b", "c"]
