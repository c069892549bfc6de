"""`Graphed` with a recorder that stands in for CUDA's: it calls the function again, and leaves what it
gives where it was the first time, as a graph does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from agents.optimisation import graphs
from agents.optimisation.graphs import Function, Graphed, Inputs

CPU = torch.device("cpu")


class Repeats:
    """What is recorded changes nothing until it is replayed."""

    recorded = 0

    def call(self, function: Function, inputs: Inputs) -> tuple[Tensor, ...]:
        return function(*inputs)

    def record(self, function: Function, inputs: Inputs) -> Callable[[], tuple[Tensor, ...]]:
        Repeats.recorded += 1
        outputs = list[Tensor]()

        def replay() -> tuple[Tensor, ...]:
            found = function(*inputs)
            if not outputs:
                outputs.extend(found)
            for place, one in zip(outputs, found, strict=True):
                place.copy_(one)
            return tuple(outputs)

        return replay


class Refuses(Repeats):
    def record(self, function: Function, inputs: Inputs) -> Callable[[], tuple[Tensor, ...]]:
        function(*inputs)  # it has changed something already
        raise RuntimeError("operation not permitted when stream is capturing\nmore of it")


class Forgets(Repeats):
    """Replays what was in the inputs when it was recorded."""

    def record(self, function: Function, inputs: Inputs) -> Callable[[], tuple[Tensor, ...]]:
        kept = [one if one is None else one.clone() for one in inputs]
        return lambda: function(*kept)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Callable[[type], None]:
    Repeats.recorded = 0
    return lambda kind: monkeypatch.setattr(graphs, "RECORDERS", {"cpu": kind})


class Adding:
    """A sum that is kept, as an optimiser keeps moments."""

    def __init__(self) -> None:
        self.total, self.calls = torch.zeros(2), 0
        self.graphed = Graphed(self.add, CPU, "adding", [self.total])

    def add(self, one: Tensor, factor: Tensor | None, *others: Any) -> tuple[Tensor, ...]:
        self.calls += 1
        self.total += one.sum(dim=0) * (1 if factor is None else factor)
        return self.total * 2, one.sum()


def test_every_call_does_what_the_function_does(recorder: Any) -> None:
    recorder(Repeats)
    adding, expected = Adding(), torch.zeros(2)
    for number in range(1, 7):
        rows, factor = torch.full((3, 2), float(number)), torch.tensor(0.5)
        expected += 1.5 * number
        doubled, total = adding.graphed(rows, factor)
        assert torch.equal(doubled, 2 * expected) and float(total) == 6 * number
        assert torch.equal(adding.total, expected)
    assert Repeats.recorded == 1


def test_every_shape_is_recorded_at_its_second_call_and_few_are_kept(
    recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder(Repeats)
    monkeypatch.setattr(graphs, "MOST_SHAPES", 2)
    adding = Adding()
    recorded = list[int]()
    for rows in (3, 3, 3, 4, 4, 3, 5, 5, 4, 4):
        adding.graphed(torch.ones(rows, 2), None)
        recorded.append(Repeats.recorded)
    assert recorded == [0, 1, 1, 1, 2, 2, 2, 3, 3, 4]
    assert adding.total.tolist() == [38.0, 38.0]


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Refuses, "operation not permitted when stream is capturing"),
        (Forgets, "a recording of it computes something else"),
    ],
)
def test_what_cannot_be_recorded_is_called_and_one_line_says_so(
    kind: type, complaint: str, recorder: Any, caplog: pytest.LogCaptureFixture
) -> None:
    recorder(kind)
    adding = Adding()
    for number in (1.0, 2.0, 3.0, 4.0):
        doubled, _ = adding.graphed(torch.full((3, 2), number), None)
    assert adding.total.tolist() == [30.0, 30.0] and doubled.tolist() == [60.0, 60.0]
    assert [one.message for one in caplog.records] == [
        f"adding is computed without a CUDA graph: {complaint}"
    ]


def test_inputs_that_are_no_tensors_are_never_recorded(recorder: Any) -> None:
    recorder(Repeats)
    adding = Adding()
    for _ in range(3):
        adding.graphed(torch.ones(3, 2), None, (torch.ones(1),))
    assert Repeats.recorded == 0 and adding.calls == 3


def test_a_processor_records_nothing() -> None:
    adding = Adding()
    for _ in range(3):
        adding.graphed(torch.ones(3, 2), None)
    assert adding.calls == 3 and adding.total.tolist() == [9.0, 9.0]
