"""The gradients of a loss, by autograd."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor, nn

LossFunction = Callable[..., tuple[Tensor, ...]]
"""Tensors, or None, -> the loss [] and whatever else is to be known."""


class Gradients:
    """`gradients(*inputs)`: every parameter's `grad`, and what the function returns, without a graph."""

    def __init__(self, function: LossFunction, parameters: Iterable[nn.Parameter]) -> None:
        self.function = function
        self._parameters = list(parameters)

    def __call__(self, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        """The function's outputs; gradients are not added to those that are there."""
        for parameter in self._parameters:
            parameter.grad = None
        outputs = self.function(*inputs)
        outputs[0].backward()  # type: ignore[no-untyped-call]
        return tuple(output.detach() for output in outputs)
