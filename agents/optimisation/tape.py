"""The gradients of a small network: autograd finds them once, then its operations are repeated.

On a few hundred rows of a small network most of the time goes into building a graph and walking
through it, not into arithmetic. So the operations that autograd performs are written down while it
performs them, as lines of Python that call the same kernels, and these lines are run from then on.
The numbers are the same to the last bit, which is checked with others than those of the recording:
where they are not, autograd goes on. Measured on CartPole's network (256 rows, one thread, loss and
gradients): 0.61 ms by autograd, 0.36 by its tape.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

log = logging.getLogger(__name__)

LossFunction = Callable[..., tuple[Tensor, ...]]
"""Tensors, or None, -> the loss [] and whatever else is to be known, with a fixed order of
operations: no `if` may look at a number."""
FORGOTTEN = ("aten::alias", "aten::detach")
"""Autograd's way to keep what it has seen; there is no graph to keep it from here."""
CONSTANT = ("aten::ones_like", "aten::scalar_tensor")
"""With these autograd begins: what follows from them alone is the same for all inputs."""
METHODS = {"expand": Tensor.expand, "view": Tensor.view}
"""Operations that torch offers only as methods of a tensor."""


@dataclass
class _Replay:
    """Repeats the recorded operations, gradients first. checked: whether it was compared with other
    numbers than those it was recorded with.
    """

    function: LossFunction
    checked: bool = False


class GradientTape:
    """`tape(*inputs)`: every parameter's `grad`, as after `function(*inputs)[0].backward()`, and
    what the function returns, without a graph.

    recorded: True for parameters that stay the same objects, on the CPU; False is autograd at each
    call. Each shape of the inputs is recorded at its first call, checked at its second against what
    autograd finds there, and replayed from the third on.
    """

    def __init__(
        self, function: LossFunction, parameters: Iterable[nn.Parameter], *, recorded: bool
    ) -> None:
        self._function = function
        self._parameters = list(parameters)
        self._recorded = recorded
        self._replays = dict[tuple[Any, ...], _Replay | None]()

    def __call__(self, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        """The function's outputs; gradients are not added to those that are there."""
        if not self._recorded:
            return self._by_autograd(inputs)
        # Recorded operations hold sizes as constants, so that every combination of shapes needs a
        # tape.
        shapes = tuple(None if one is None else one.shape for one in inputs)
        if shapes not in self._replays:
            outputs, self._replays[shapes] = self._record(inputs)
            return outputs
        replay = self._replays[shapes]
        if replay is None:
            return self._by_autograd(inputs)
        if not replay.checked:
            replay.checked, outputs = self._check(replay, inputs)
            if not replay.checked:
                self._replays[shapes] = None
            return outputs
        with torch.no_grad():
            found = replay.function(*inputs)
        count = len(self._parameters)
        # The first outputs of a tape are the gradients, then come the function's own.
        for parameter, gradient in zip(self._parameters, found[:count], strict=True):
            parameter.grad = gradient
        return found[count:]

    def _by_autograd(self, inputs: tuple[Tensor | None, ...]) -> tuple[Tensor, ...]:
        for parameter in self._parameters:
            parameter.grad = None
        outputs = self._function(*inputs)
        outputs[0].backward()  # type: ignore[no-untyped-call]
        return tuple(output.detach() for output in outputs)

    def _record(
        self, inputs: tuple[Tensor | None, ...]
    ) -> tuple[tuple[Tensor, ...], _Replay | None]:
        """The outputs, and what is to repeat them; None where that cannot be written down."""
        with _Recorder() as recorder:
            outputs = self._function(*inputs)
            gradients = torch.autograd.grad(outputs[0], self._parameters, allow_unused=True)
            found = (*gradients, *(output.detach() for output in outputs))
        try:
            replay = _Replay(written(recorder.calls, inputs, found))
        except Exception:
            # An operation of a kind that this module does not know. Autograd goes on without a
            # tape.
            log.debug("the operations cannot be written down", exc_info=True)
            replay = None
        # The recorder sees gradients as values; this call leaves them in `parameter.grad`, as every
        # other.
        return self._by_autograd(inputs), replay

    def _check(
        self, replay: _Replay, inputs: tuple[Tensor | None, ...]
    ) -> tuple[bool, tuple[Tensor, ...]]:
        """Whether it finds what autograd finds, to the last bit, in the same layout; and that."""
        outputs = self._by_autograd(inputs)
        expected = (*(parameter.grad for parameter in self._parameters), *outputs)
        try:
            with torch.no_grad():
                found = replay.function(*inputs)
            equal = all(map(_equal, found, expected))
        except Exception:
            # This version of torch does not accept the calls as they were written down.
            log.debug("the operations cannot be repeated", exc_info=True)
            equal = False
        return equal, outputs


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    # None is the gradient of a parameter that the loss does not depend on: the tape has no line that
    # would give one.
    if one is None or other is None:
        return False
    return one.stride() == other.stride() and torch.equal(one, other)


@dataclass(frozen=True)
class Call:
    """One recorded operation."""

    operation: Any
    arguments: tuple[Any, ...]
    named: Mapping[str, Any]
    result: Any

    @property
    def name(self) -> str:
        """The operation's name, such as `aten::mul`."""
        return str(self.operation._schema.name)

    @property
    def changes_something(self) -> bool:
        """Whether it works in place."""
        return bool(self.operation._schema.is_mutable)

    def inputs(self) -> list[Tensor]:
        """All tensors among its arguments."""
        return _tensors((*self.arguments, *self.named.values()))


class _Recorder(TorchDispatchMode):
    """Keeps all that is performed, and so every tensor alive: each has an `id` of its own."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: nothing is compiled here, and telling torch's compiler so would import it, which
        takes 2 s.
        """
        return False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls = list[Call]()

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = operation(*args, **(kwargs or {}))
        self.calls.append(Call(operation, args, kwargs or {}, result))
        return result


def written(
    calls: Iterable[Call], inputs: tuple[Tensor | None, ...], outputs: tuple[Tensor | None, ...]
) -> LossFunction:
    """A function of the inputs that performs those calls which the outputs need."""
    lines = _Lines(inputs)
    for call in calls:
        lines.add(call)
    return lines.function(outputs)


@dataclass
class _Line:
    """`name = text`, or `text` alone where it changes a tensor in place; used: the names in it."""

    name: str
    text: str
    used: set[str]

    def __str__(self) -> str:
        return f"{self.name} = {self.text}" if self.name else self.text


class _Lines:
    """The source of a function, and what it refers to: weights, kernels, numbers."""

    def __init__(self, inputs: tuple[Tensor | None, ...]) -> None:
        self._arguments = [f"input{number}" for number in range(len(inputs))]
        self._names = {
            id(one): name
            for one, name in zip(inputs, self._arguments, strict=True)
            if one is not None
        }
        self._lines = list[_Line]()
        self._objects = dict[str, Any]()
        self._constants = set[int]()

    def add(self, call: Call) -> None:
        """The next operation, unless its result is known already."""
        inputs = call.inputs()
        if call.name in FORGOTTEN:
            self._names[id(call.result)] = self._text(inputs[0])
            if id(inputs[0]) in self._constants:
                self._constants.add(id(call.result))
            return
        # The result of constants alone is the same at every call: it is kept, not computed again.
        known = call.name in CONSTANT or (inputs and {*map(id, inputs)} <= self._constants)
        if known and not call.changes_something and isinstance(call.result, Tensor):
            self._constants.add(id(call.result))
            return
        arguments = [self._text(one) for one in call.arguments]
        arguments += [f"{name}={self._text(one)}" for name, one in call.named.items()]
        text = f"{self._kept(_kernel(call))}({', '.join(arguments)})"
        used = {self._text(one).partition("[")[0] for one in inputs}
        if call.changes_something:
            self._lines.append(_Line("", text, used))
            return
        name = f"step{len(self._lines)}"
        self._lines.append(_Line(name, text, used))
        if isinstance(call.result, Tensor):
            self._names[id(call.result)] = name
        else:
            # An operation with several results returns a tuple: each is known by its place in it.
            self._names |= {id(one): f"{name}[{place}]" for place, one in enumerate(call.result)}

    def function(self, outputs: tuple[Tensor | None, ...]) -> LossFunction:
        """Compiled; a name is let go after the last line that uses it."""
        answer = ", ".join(self._text(one) for one in outputs)
        needed = {self._text(one).partition("[")[0] for one in outputs}
        source = list[str]()
        # The lines are walked from the last one back: a line is needed if a later one uses its
        # name. The first use that is met is the last one in time, after which the name's memory can
        # be freed.
        for line in reversed(self._lines):
            if line.name and line.name not in needed:
                continue
            last = sorted(name for name in line.used - needed if name.startswith("step"))
            source += [f"    {name} = None" for name in last] + [f"    {line}"]
            needed |= line.used
        head = f"def replay({', '.join(self._arguments)}):"
        body = "\n".join([head, *reversed(source), f"    return {answer},"])
        exec(compile(body, "<tape>", "exec"), self._objects)  # noqa: S102 - written here
        replay: LossFunction = self._objects["replay"]
        return replay

    def _text(self, value: Any) -> str:
        """The text of a value in a line."""
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(self._text, value))}]"
        if isinstance(value, Tensor) and id(value) in self._names:
            return self._names[id(value)]
        if value is None or isinstance(value, bool | int):
            return repr(value)
        return self._kept(value)

    def _kept(self, value: Any) -> str:
        """The name of something that is the same every time."""
        name = f"kept{len(self._objects)}"
        self._objects[name] = value
        if isinstance(value, Tensor):
            self._names[id(value)] = name
        return name


def _kernel(call: Call) -> Any:
    """The function to call for an operation. Functions of torch itself are faster to call than the
    operation, but take no list with None.
    """
    if any(isinstance(one, list) and None in one for one in call.arguments):
        return call.operation
    name = call.name.partition("::")[2]
    return getattr(torch, name, None) or METHODS.get(name) or call.operation


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    """All in these, also those in lists."""
    found = list[Tensor]()
    for value in values:
        if isinstance(value, list | tuple):
            found += _tensors(value)
        elif isinstance(value, Tensor):
            found.append(value)
    return found
