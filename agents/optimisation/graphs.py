"""Functions whose work a GPU is asked for in one call: CUDA graphs.

A step of a small batch asks a GPU for some hundred kernels, and each request takes the processor
longer than the GPU needs for the kernel. A graph is a recording of these requests, which is made
with one. It holds addresses, not numbers: its inputs are copied to where they were when it was
recorded, and parameters stay where they are.

Each shape of the inputs is computed as it is at its first call, recorded at its second, and compared
at its third, which has other numbers, with what the function itself does. Where a recording cannot
be made, or does something else, one line says so, and the function is called as it is from then on.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

log = logging.getLogger(__name__)

Function = Callable[..., tuple[Tensor, ...]]
"""Tensors, or None -> tensors. It looks at no number, and everything else that it reads or changes
stays where it is."""
Inputs = tuple[Tensor | None, ...]
MOST_SHAPES = 64
"""Of one function. A minibatch has some rows less where some of a rollout are not learnt from."""
LARGEST_DIFFERENCE = 0.01
"""Between a recording and the function, relative: sums of a GPU are not the same twice."""


class Recorder(Protocol):
    """Records what a device is asked for."""

    def call(self, function: Function, inputs: Inputs) -> tuple[Tensor, ...]:
        """Call it, in the way in which it will be recorded."""

    def record(self, function: Function, inputs: Inputs) -> Callable[[], tuple[Tensor, ...]]:
        """Call it without computing anything. What is returned computes it, with the numbers that
        are in the inputs then; its outputs are the same tensors every time.
        """


class CUDARecorder:
    """CUDA's own, on a stream of its own. All recordings share their memory, as none is used while
    another one computes.
    """

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._memory = torch.cuda.graph_pool_handle()

    def call(self, function: Function, inputs: Inputs) -> tuple[Tensor, ...]:
        """See `Recorder`. Autograd's nodes remember the stream on which they were made."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            outputs = function(*inputs)
        torch.cuda.current_stream().wait_stream(self._stream)
        return outputs

    def record(self, function: Function, inputs: Inputs) -> Callable[[], tuple[Tensor, ...]]:
        """See `Recorder`."""
        graph = torch.cuda.CUDAGraph()
        # Not the whole device, on which another thread may be recording.
        self._stream.synchronize()
        with torch.cuda.stream(self._stream):
            # `torch.cuda.graph` would also collect garbage, which takes longer than all of this.
            # Other threads, which may act for actors, go on with their own work meanwhile.
            graph.capture_begin(pool=self._memory, capture_error_mode="thread_local")
            try:
                outputs = function(*inputs)
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(self._stream)

        def replay() -> tuple[Tensor, ...]:
            graph.replay()
            return outputs

        return replay


RECORDERS: dict[str, Callable[[], Recorder]] = {"cuda": CUDARecorder}
"""By the kind of device."""


class Graphed:
    """`function`, on a GPU as a graph. changed: the tensors that it changes. name: for the log.

    What it returns is valid until the next call.
    """

    def __init__(
        self, function: Function, device: torch.device, name: str, changed: Sequence[Tensor] = ()
    ) -> None:
        self._function = function
        self._name = name
        self._changed = list(changed)
        make = RECORDERS.get(device.type)
        self._recorder = make() if make else None
        self._recordings = OrderedDict[tuple[Any, ...], _Recording | None]()

    def __call__(self, *inputs: Any) -> tuple[Tensor, ...]:
        """The function's outputs."""
        recorder = self._recorder
        if recorder is None or not all(one is None or isinstance(one, Tensor) for one in inputs):
            return self._function(*inputs)
        shapes = tuple(None if one is None else (one.shape, one.dtype) for one in inputs)
        if shapes not in self._recordings:
            self._recordings[shapes] = None
            if len(self._recordings) > MOST_SHAPES:
                self._recordings.popitem(last=False)
            return self._function(*inputs)
        self._recordings.move_to_end(shapes)
        recording = self._recordings[shapes]
        if recording is None:
            return self._record(recorder, shapes, inputs)
        recording.take(inputs)
        if not recording.checked:
            return self._check(recorder, recording)
        return recording.replay()

    def _record(
        self, recorder: Recorder, shapes: tuple[Any, ...], inputs: Inputs
    ) -> tuple[Tensor, ...]:
        """The outputs for these inputs, which are computed before they are recorded."""
        places = tuple(None if one is None else one.clone() for one in inputs)
        outputs = recorder.call(self._function, places)
        after = _copies(self._changed)
        try:
            replay = recorder.record(self._function, places)
        except Exception as error:
            # Whatever it is, the function itself can still be called.
            self._give_up(str(error).partition("\n")[0] or type(error).__name__)
            _put_back(self._changed, after)
        else:
            self._recordings[shapes] = _Recording(places, replay)
        return outputs

    def _check(self, recorder: Recorder, recording: _Recording) -> tuple[Tensor, ...]:
        """The outputs for what is in its places, which both find."""
        before = _copies(self._changed)
        outputs = tuple(_copies(recorder.call(self._function, recording.places)))
        after = _copies(self._changed)
        _put_back(self._changed, before)
        found = recording.replay()
        starts = [*map(torch.zeros_like, outputs), *before]
        recording.checked = _alike((*found, *self._changed), (*outputs, *after), starts)
        if not recording.checked:
            self._give_up("a recording of it computes something else")
            _put_back(self._changed, after)
        return outputs

    def _give_up(self, complaint: str) -> None:
        log.warning("%s is computed without a CUDA graph: %s", self._name, complaint)
        self._recorder = None
        self._recordings.clear()


@dataclass
class _Recording:
    """Of one shape: where its inputs are read, and what computes its outputs. checked: whether it was
    compared with the function.
    """

    places: Inputs
    replay: Callable[[], tuple[Tensor, ...]]
    checked: bool = False

    def take(self, inputs: Inputs) -> None:
        for place, one in zip(self.places, inputs, strict=True):
            if place is not None and one is not None:
                place.copy_(one)


def _copies(tensors: Iterable[Tensor]) -> list[Tensor]:
    return [one.detach().clone() for one in tensors]


@torch.no_grad()
def _put_back(tensors: list[Tensor], copies: list[Tensor]) -> None:
    if tensors:
        torch._foreach_copy_(tensors, copies)


@torch.no_grad()
def _alike(found: Sequence[Tensor], expected: Sequence[Tensor], before: Sequence[Tensor]) -> bool:
    """Whether these are within rounding, compared with how far they are from what was before."""
    for one, other, old in zip(found, expected, before, strict=True):
        here, there, then = (tensor.double() for tensor in (one, other, old))
        difference = torch.linalg.vector_norm(here - there)
        size = torch.linalg.vector_norm(there - then)
        # A comparison with NaN is false: numbers that are not finite prove nothing.
        if not bool(difference <= LARGEST_DIFFERENCE * size + torch.finfo(torch.float32).eps):
            return False
    return True
