"""Forward and backward through the two towers and both heads of `agents.networks.towers`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from agents.compiled.dense import (
    CHUNK,
    NEXT,
    START,
    Floats,
    Ints,
    add_product,
    add_sums,
    clear,
    dot,
    fill_rows,
    tanh,
    tanh_backward,
    turn,
)
from agents.compiled.lanes import LANES, pointer
from agents.compiled.parts import part


class Layout(NamedTuple):
    """Where the parameters lie in a flat array of all, each at a multiple of 16.

    parameters: how many numbers it has; layers: L; sizes [L + 1]: of an observation, then of the hidden layers; weights, biases [L]: of [2, in, out]
    and [2, out], the policy's first; policy_weight [A, F], policy_bias [A], value_weight [F],
    value_bias [1]; log_std [A]: −1 for discrete actions, whose `components`, C, have `choices` [C] logits.
    """

    parameters: int
    layers: int
    sizes: Ints
    weights: Ints
    biases: Ints
    outputs: int
    policy_weight: int
    policy_bias: int
    value_weight: int
    value_bias: int
    log_std: int
    components: int
    choices: Ints


class Scratch(NamedTuple):
    """What `CHUNK` rows have between the layers, each matrix at a multiple of `room`.

    seen [CHUNK, O]; hidden [2 L matrices], the first tower's layers first; deltas [2 matrices]; output
    [CHUNK, A] of the policy's head, value [CHUNK]; d_output, d_value: derivatives by these. turned: the
    transposed weights, where the weights are in the flat array.
    """

    room: int
    seen: Floats
    hidden: Floats
    deltas: Floats
    output: Floats
    value: Floats
    d_output: Floats
    d_value: Floats
    turned: Floats


def make_scratch(layout: Layout) -> Scratch:
    """Memory for this network."""
    layers = layout.layers
    room = CHUNK * int(max(layout.sizes)) + LANES

    def zeros(count: int) -> Floats:
        return np.zeros(count, np.float32)

    return Scratch(
        room, zeros(room), zeros(2 * layers * room), zeros(2 * room),
        zeros(CHUNK * layout.outputs), zeros(CHUNK), zeros(CHUNK * layout.outputs), zeros(CHUNK),
        zeros(layout.parameters),
    )  # fmt: skip


@part
def by_pointers(layout: Layout, scratch: Scratch) -> tuple[Layout, Scratch]:
    """Both as all that is below takes them."""
    return (
        Layout(
            layout.parameters, layout.layers, pointer(layout.sizes), pointer(layout.weights),
            pointer(layout.biases), layout.outputs, layout.policy_weight, layout.policy_bias,
            layout.value_weight, layout.value_bias, layout.log_std, layout.components,
            pointer(layout.choices),
        ),
        Scratch(
            scratch.room, pointer(scratch.seen), pointer(scratch.hidden), pointer(scratch.deltas),
            pointer(scratch.output), pointer(scratch.value), pointer(scratch.d_output),
            pointer(scratch.d_value), pointer(scratch.turned),
        ),
    )  # fmt: skip


@part
def forward(layout: Layout, parameters: Floats, scratch: Scratch, rows: int) -> None:
    """`scratch.seen` -> all that lies behind it, for the first rows of a chunk."""
    layers = layout.layers
    features = layout.sizes[layers]
    for tower in range(2):
        source = scratch.seen
        source0 = START
        for layer in range(layers):
            inputs = layout.sizes[layer]
            outputs = layout.sizes[layer + 1]
            weight = layout.weights[layer] + tower * inputs * outputs
            bias = layout.biases[layer] + tower * outputs
            place = (tower * layers + layer) * scratch.room
            fill_rows(scratch.hidden, place, outputs, parameters, bias, rows, outputs)
            add_product(
                scratch.hidden, place, outputs, source, source0, inputs, NEXT, parameters, weight,
                outputs, rows, outputs, inputs,
            )  # fmt: skip
            tanh(scratch.hidden, place, rows * outputs)
            source = scratch.hidden
            source0 = place
    of_policy = (layers - 1) * scratch.room
    of_value = (2 * layers - 1) * scratch.room
    for row in range(rows):
        for one in range(layout.outputs):
            place = layout.policy_weight + one * features
            scratch.output[row * layout.outputs + one] = parameters[layout.policy_bias + one] + dot(
                scratch.hidden, of_policy + row * features, parameters, place, features
            )
        scratch.value[row] = parameters[layout.value_bias] + dot(
            scratch.hidden, of_value + row * features, parameters, layout.value_weight, features
        )


@part
def turn_weights(layout: Layout, parameters: Floats, scratch: Scratch) -> None:
    """Transpose the weights through which derivatives go back, before the first `backward`."""
    for layer in range(1, layout.layers):
        inputs = layout.sizes[layer]
        outputs = layout.sizes[layer + 1]
        for tower in range(2):
            place = layout.weights[layer] + tower * inputs * outputs
            turn(scratch.turned, parameters, place, inputs, outputs)


@part
def backward(
    layout: Layout, parameters: Floats, gradients: Floats, scratch: Scratch, rows: int
) -> None:
    """Add to the gradients what follows from `d_output` and `d_value`, after `forward`."""
    layers = layout.layers
    features = layout.sizes[layers]
    for tower in range(2):
        d_head = scratch.d_output
        outputs = layout.outputs
        head_weight = layout.policy_weight
        head_bias = layout.policy_bias
        if tower == 1:
            d_head = scratch.d_value
            outputs = NEXT
            head_weight = layout.value_weight
            head_bias = layout.value_bias
        last = (tower * layers + layers - 1) * scratch.room
        add_sums(gradients, head_bias, d_head, START, outputs, rows, outputs)
        add_product(
            gradients, head_weight, features, d_head, START, NEXT, outputs, scratch.hidden, last, features,
            outputs, features, rows,
        )  # fmt: skip
        # The two matrices of `deltas` take turns.
        behind = START
        clear(scratch.deltas, behind, rows * features)
        add_product(
            scratch.deltas, behind, features, d_head, START, outputs, NEXT, parameters, head_weight,
            features, rows, features, outputs,
        )  # fmt: skip
        for layer in range(layers - 1, -1, -1):
            inputs = layout.sizes[layer]
            width = layout.sizes[layer + 1]
            weight = layout.weights[layer] + tower * inputs * width
            bias = layout.biases[layer] + tower * width
            place = (tower * layers + layer) * scratch.room
            tanh_backward(scratch.deltas, behind, scratch.hidden, place, rows * width)
            add_sums(gradients, bias, scratch.deltas, behind, width, rows, width)
            source = scratch.seen
            source0 = START
            if layer > 0:
                source = scratch.hidden
                source0 = place - scratch.room
            add_product(
                gradients, weight, width, source, source0, NEXT, inputs, scratch.deltas, behind, width,
                inputs, width, rows,
            )  # fmt: skip
            if layer > 0:
                ahead = scratch.room - behind
                clear(scratch.deltas, ahead, rows * inputs)
                add_product(
                    scratch.deltas, ahead, inputs, scratch.deltas, behind, width, NEXT, scratch.turned,
                    weight, inputs, rows, inputs, width,
                )  # fmt: skip
                behind = ahead
