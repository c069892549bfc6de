"""Forward and backward through networks of linear layers with ReLU between them, as
`agents.networks.torsos.Layers` under a head and `agents.networks.twin_critics.Perceptrons` are.

The networks of one `Network` are alike and take turns; a row goes through one of them at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    relu,
    relu_backward,
    turn,
)
from agents.compiled.lanes import LANES, pointer
from agents.compiled.parts import part


class Network(NamedTuple):
    """Where the parameters lie in a flat array of several networks', each at a multiple of 16.

    networks: K; layers: L; sizes [L + 1]: of an input, then of each layer; strides [L + 1]:
    the distance of two rows between the layers; weights, biases [L]: of [K, in, out], or [K, out, in] if
    `outputs_first`, and [K, out].
    """

    parameters: int
    networks: int
    layers: int
    sizes: Ints
    strides: Ints
    weights: Ints
    biases: Ints
    outputs_first: bool


class Memory(NamedTuple):
    """What `CHUNK` rows have between the layers, each matrix at a multiple of `room`.

    hidden [slots (L + 1) matrices]: of each chunk that is kept for `backward` the inputs, then each layer's
    outputs; deltas [2 matrices]; turned: the transposed weights, where the weights are in the flat array; slopes: likewise
    the gradients of weights that are summed as transposed ones.
    """

    room: int
    hidden: Floats
    deltas: Floats
    turned: Floats
    slopes: Floats


def make_network(
    sizes: Sequence[int],
    weights: Sequence[int],
    biases: Sequence[int],
    *,
    parameters: int,
    networks: int,
    outputs_first: bool,
) -> Network:
    """The layout of networks of these sizes, whose parameters begin at these places."""
    # An odd number of lines of the cache: rows at a distance of a power of two would displace each other.
    strides = [-(-size // (2 * LANES)) * 2 * LANES + LANES for size in sizes]
    return Network(
        parameters, networks, len(sizes) - 1, np.array(sizes), np.array(strides), np.array(weights),
        np.array(biases), outputs_first,
    )  # fmt: skip


def make_memory(network: Network, slots: int = 1) -> Memory:
    """Memory for these networks, and so many chunks at a time."""
    room = CHUNK * int(max(network.strides))
    hidden = np.zeros(slots * (network.layers + 1) * room, np.float32)
    turned = np.zeros(network.parameters, np.float32)
    return Memory(room, hidden, np.zeros(2 * room, np.float32), turned, turned.copy())


@part
def network_by_pointers(network: Network) -> Network:
    """The layout as all that is below takes it."""
    return Network(
        network.parameters, network.networks, network.layers, pointer(network.sizes),
        pointer(network.strides), pointer(network.weights), pointer(network.biases),
        network.outputs_first,
    )  # fmt: skip


@part
def memory_by_pointers(memory: Memory) -> Memory:
    """Likewise."""
    return Memory(
        memory.room, pointer(memory.hidden), pointer(memory.deltas), pointer(memory.turned),
        pointer(memory.slopes),
    )  # fmt: skip


@part
def inputs_at(network: Network, memory: Memory, slot: int) -> int:
    """Where the inputs of a chunk lie in `memory.hidden`."""
    return slot * (network.layers + 1) * memory.room


@part
def outputs_at(network: Network, memory: Memory, slot: int) -> int:
    """Where its outputs lie."""
    return (slot * (network.layers + 1) + network.layers) * memory.room


@part
def see(
    network: Network, memory: Memory, slot: int, column: int, source: Floats, first: int, rows: int,
    columns: int,
) -> None:  # fmt: skip
    """Write so many rows of `source` [..., columns], from row `first` on, to a chunk's inputs, from this column
    on.
    """
    place = inputs_at(network, memory, slot) + column
    for row in range(rows):
        for one in range(columns):
            memory.hidden[place + one] = source[(first + row) * columns + one]
        place += network.strides[0]


@part
def forward(
    network: Network, parameters: Floats, memory: Memory, which: int, slot: int, rows: int
) -> None:
    """The first rows of a chunk's inputs -> its outputs by one of the networks, after `turn_weights`."""
    forth = parameters
    back = memory.turned
    if network.outputs_first:
        forth = memory.turned
        back = parameters
    for layer in range(network.layers):
        inputs = network.sizes[layer]
        outputs = network.sizes[layer + 1]
        stride = network.strides[layer + 1]
        weight = network.weights[layer] + which * inputs * outputs
        bias = network.biases[layer] + which * outputs
        source = inputs_at(network, memory, slot) + layer * memory.room
        place = source + memory.room
        fill_rows(memory.hidden, place, stride, parameters, bias, rows, outputs)
        if outputs >= LANES:
            add_product(
                memory.hidden, place, stride, memory.hidden, source, network.strides[layer], NEXT,
                forth, weight, outputs, rows, outputs, inputs,
            )  # fmt: skip
        else:
            for row in range(rows):
                row0 = source + row * network.strides[layer]
                for one in range(outputs):
                    memory.hidden[place + row * stride + one] += dot(
                        memory.hidden, row0, back, weight + one * inputs, inputs
                    )
        if layer + 1 < network.layers:
            relu(memory.hidden, place, rows * stride)


@part
def turn_weights(network: Network, parameters: Floats, memory: Memory, backward: bool) -> None:
    """Transpose the weights that the next `forward` needs so, and `backward` if that follows."""
    for layer in range(network.layers):
        inputs = network.sizes[layer]
        outputs = network.sizes[layer + 1]
        narrow = outputs < LANES
        if network.outputs_first == narrow and not (
            backward and layer > 0 and not network.outputs_first
        ):
            continue
        rows = inputs
        columns = outputs
        if network.outputs_first:
            rows = outputs
            columns = inputs
        for which in range(network.networks):
            place = network.weights[layer] + which * inputs * outputs
            turn(memory.turned, parameters, place, rows, columns)


@part
def _is_turned(network: Network, layer: int) -> bool:
    """Whether the gradient of a layer's weights is summed as the transposed one, whose rows are long
    enough for vectors.
    """
    rows = network.sizes[layer]
    columns = network.sizes[layer + 1]
    if network.outputs_first:
        rows = network.sizes[layer + 1]
        columns = network.sizes[layer]
    return bool(columns < LANES <= rows)


@part
def clear_gradients(network: Network, gradients: Floats, memory: Memory) -> None:
    """Before the first chunk."""
    clear(gradients, START, network.parameters)
    for layer in range(network.layers):
        if _is_turned(network, layer):
            count = network.networks * network.sizes[layer] * network.sizes[layer + 1]
            clear(memory.slopes, network.weights[layer], count)


@part
def complete_gradients(network: Network, gradients: Floats, memory: Memory) -> None:
    """After the last chunk."""
    for layer in range(network.layers):
        if not _is_turned(network, layer):
            continue
        inputs = network.sizes[layer]
        outputs = network.sizes[layer + 1]
        rows = outputs
        columns = inputs
        if network.outputs_first:
            rows = inputs
            columns = outputs
        for which in range(network.networks):
            place = network.weights[layer] + which * inputs * outputs
            turn(gradients, memory.slopes, place, rows, columns)


@part
def _add_gradient(
    network: Network, gradients: Floats, memory: Memory, which: int, slot: int, layer: int, behind: int,
    rows: int,
) -> None:  # fmt: skip
    """Of one layer, from the derivatives by its outputs at `behind`."""
    inputs = network.sizes[layer]
    outputs = network.sizes[layer + 1]
    weight = network.weights[layer] + which * inputs * outputs
    bias = network.biases[layer] + which * outputs
    source = inputs_at(network, memory, slot) + layer * memory.room
    stride = network.strides[layer + 1]
    add_sums(gradients, bias, memory.deltas, behind, stride, rows, outputs)
    is_turned = _is_turned(network, layer)
    target = gradients
    if is_turned:
        target = memory.slopes
    if network.outputs_first == is_turned:
        add_product(
            target, weight, outputs, memory.hidden, source, NEXT, network.strides[layer],
            memory.deltas, behind, stride, inputs, outputs, rows,
        )  # fmt: skip
    else:
        add_product(
            target, weight, inputs, memory.deltas, behind, NEXT, stride, memory.hidden, source,
            network.strides[layer], outputs, inputs, rows,
        )  # fmt: skip


@part
def backward(
    network: Network, parameters: Floats, gradients: Floats, memory: Memory, which: int, slot: int,
    rows: int, learns: bool,
) -> int:  # fmt: skip
    """From the derivatives by a network's outputs, which are the first of `memory.deltas`, to those by
    its first layer's outputs before the ReLU, whose place is returned; if it learns, add to the
    gradients what follows from them. After `forward`.
    """
    back = memory.turned
    if network.outputs_first:
        back = parameters
    behind = START
    for layer in range(network.layers - 1, -1, -1):
        if learns:
            _add_gradient(network, gradients, memory, which, slot, layer, behind, rows)
        if layer == 0:
            break
        inputs = network.sizes[layer]
        outputs = network.sizes[layer + 1]
        weight = network.weights[layer] + which * inputs * outputs
        stride = network.strides[layer]
        place = inputs_at(network, memory, slot) + layer * memory.room
        ahead = memory.room - behind
        clear(memory.deltas, ahead, rows * stride)
        add_product(
            memory.deltas, ahead, stride, memory.deltas, behind, network.strides[layer + 1], NEXT,
            back, weight, inputs, rows, inputs, outputs,
        )  # fmt: skip
        relu_backward(memory.deltas, ahead, memory.hidden, place, rows * stride)
        behind = ahead
    return behind


@part
def by_inputs(
    network: Network, parameters: Floats, memory: Memory, which: int, rows: int, behind: int,
    first: int, found: Floats, found0: int,
) -> None:  # fmt: skip
    """Write to `found`, from found0 on, [rows, inputs − first], the derivatives by the inputs from `first`
    on, from what `backward` left at `behind`. Not for networks with `outputs_first`.
    """
    inputs = network.sizes[0]
    width = network.sizes[1]
    weight = network.weights[0] + which * inputs * width
    for row in range(rows):
        for one in range(first, inputs):
            found[found0 + row * (inputs - first) + one - first] = dot(
                memory.deltas, behind + row * network.strides[1], parameters,
                weight + one * width, width,
            )  # fmt: skip
