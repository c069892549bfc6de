"""Long short-term memory (Hochreiter & Schmidhuber 1997; forget gates: Gers et al. 2000) over
sequences in which episodes begin.

    i, f, o = σ(z)    g = tanh(z)    z = x + U h    x: what is seen, its weights applied
    c ← f c + i g     h ← o tanh(c)                 where an episode begins, h = c = 0 before

K of them are computed side by side, each with its own weights. Their gates lie beside one another,
[..., 4 H], in the order i, f, o, g.

On the CPU the steps are numpy's, whose calls take a fifth of torch's time on a few rows, and their
derivative is written by hand. Measured (CartPole's two LSTMs of 64 units, 32 steps of 8 rows, one
thread; forward and backward): 1.2 ms; the loop by autograd 4.4 ms; two `torch.nn.LSTM` 1.6 ms where
no episode begins, and 3.4 ms where 13 do and each begins a sequence of its own, padded to the
longest.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def lstm(
    inputs: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor, keep: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """L steps of S rows; hidden and cell [K, S, H]: before the first one, constant.

    inputs [K, L, S, 4 H]: x; weight [K, H, 4 H]: U; keep, bool [L, S]: False where row t begins an
    episode. Returns h of every step [K, L, S, H], and hidden and cell after the last one.
    """
    if inputs.device.type == "cpu" and not torch.compiler.is_exporting():
        hiddens, last_cell = _ByHand.apply(inputs, weight, hidden, cell, keep)
    else:
        hiddens, last_cell = unrolled(inputs, weight, hidden, cell, keep)
    return hiddens, hiddens[:, -1], last_cell


def unrolled(
    inputs: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor, keep: Tensor
) -> tuple[Tensor, Tensor]:
    """The formulas step by step, for any device: h of every step, and c after the last one."""
    size = weight.shape[1]
    kept = keep.unsqueeze(2).to(inputs.dtype)
    hiddens = []
    for t in range(inputs.shape[1]):
        hidden = hidden * kept[t]
        cell = cell * kept[t]
        # All four gates in one product: x + U h.
        gates = torch.baddbmm(inputs[:, t], hidden, weight)
        i, f, o = gates[..., : 3 * size].sigmoid().chunk(3, dim=-1)
        cell = f * cell + i * gates[..., 3 * size :].tanh()
        hidden = o * cell.tanh()
        hiddens.append(hidden)
    return torch.stack(hiddens, dim=1), cell


def halved(gates: np.ndarray) -> np.ndarray:
    """A copy in which i, f and o are halved, for `step`: σ(z) = ½ tanh(½ z) + ½, so that one tanh
    serves all gates.
    """
    copy = gates.copy()
    copy[..., : 3 * gates.shape[-1] // 4] *= 0.5
    return copy


class Step(NamedTuple):
    """The results of one step, or of all: gates [..., 4 H] after σ and tanh, c, tanh(c) and h [...,
    H].
    """

    gates: np.ndarray
    cell: np.ndarray
    squashed: np.ndarray
    hidden: np.ndarray

    @staticmethod
    def allocate(gates: np.ndarray) -> Step:
        """Allocate for gates of this shape."""
        shape = (*gates.shape[:-1], gates.shape[-1] // 4)
        return Step(np.empty_like(gates), *(np.empty(shape, gates.dtype) for _ in range(3)))


def step(
    inputs: np.ndarray, weight: np.ndarray, hidden: np.ndarray, cell: np.ndarray, left: Step
) -> None:
    """Compute one step into `left`. inputs [K, S, 4 H] and weight [K, H, 4 H] must be `halved`."""
    gates = left.gates
    size = hidden.shape[-1]
    np.matmul(hidden, weight, out=gates)
    gates += inputs
    # i, f and o were halved, so that their sigmoids follow from the same tanh: σ(z) = ½ tanh(½ z) +
    # ½.
    np.tanh(gates, out=gates)
    sigmoids = gates[..., : 3 * size]
    sigmoids *= 0.5
    sigmoids += 0.5
    # c = f c + i g, with `left.hidden` as scratch memory; then h = o tanh(c).
    np.multiply(gates[..., size : 2 * size], cell, out=left.cell)
    np.multiply(gates[..., :size], gates[..., 3 * size :], out=left.hidden)
    np.add(left.cell, left.hidden, out=left.cell)
    np.tanh(left.cell, out=left.squashed)
    np.multiply(gates[..., 2 * size : 3 * size], left.squashed, out=left.hidden)


class _ByHand(torch.autograd.Function):
    """`unrolled`, and its derivative after inputs and weight."""

    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> tuple[Tensor, Tensor]:
        """The arguments of `lstm`."""
        inputs, weight, hidden, cell = (one.detach().numpy() for one in given[:4])
        keep: np.ndarray = given[4].numpy()[..., None]
        ctx.weight = weight
        # Most sequences have no begin inside, and then nothing needs to be multiplied by `keep`.
        ctx.keep = None if keep.all() else keep.astype(inputs.dtype)
        ctx.before = hidden, cell
        ctx.left = left = Step.allocate(inputs)
        # Views of each step's results are made once, and `step` writes into them.
        each = [Step(*(column[:, t] for column in left)) for t in range(inputs.shape[1])]
        begins = (~given[4]).any(dim=1).tolist()
        inputs = halved(inputs)
        weight = halved(weight)
        for t, now in enumerate(each):
            if begins[t]:
                hidden = hidden * keep[t]
                cell = cell * keep[t]
            step(inputs[:, t], weight, hidden, cell, now)
            hidden = now.hidden
            cell = now.cell
        # The state after a sequence is a constant for whoever goes on from it: gradients end with
        # the sequence (truncated backpropagation through time).
        last_cell = torch.from_numpy(cell.copy())
        ctx.mark_non_differentiable(last_cell)
        return torch.from_numpy(left.hidden), last_cell

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_hidden: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of inputs [K, L, S, 4 H] and weight [K, H, 4 H]: back from the last step."""
        hidden_before = _before(ctx.before[0], ctx.left.hidden, ctx.keep)
        cell_before = _before(ctx.before[1], ctx.left.cell, ctx.keep)
        # Everything that does not depend on a later step is computed for all steps at once: the
        # derivative of each gate, of h by c, and of c by the cell before it.
        gradient = _slopes(ctx.left, cell_before)
        size = ctx.weight.shape[1]
        count, length, rows, _ = gradient.shape
        by_gate = gradient.reshape(count, length, rows, 4, size)
        forget = ctx.left.gates[..., size : 2 * size]
        output = ctx.left.gates[..., 2 * size : 3 * size]
        into_cell = output - output * ctx.left.squashed**2
        kept_cell = forget if ctx.keep is None else forget * ctx.keep
        transposed = np.ascontiguousarray(ctx.weight.transpose(0, 2, 1))
        hidden = np.zeros_like(into_cell[:, 0])
        cell = np.zeros_like(into_cell[:, 0])
        outside = of_hidden.numpy()
        for t in range(length - 1, -1, -1):
            # `hidden` and `cell` are the loss's derivatives by h_t and c_t: from the loss itself,
            # and from the step after it.
            hidden += outside[:, t]
            cell += hidden * into_cell[:, t]
            gates = by_gate[:, t]
            # i, f and g act through c, o through h alone.
            gates[:, :, :2] *= cell[:, :, None]
            gates[:, :, 2] *= hidden
            gates[:, :, 3] *= cell
            cell *= kept_cell[:, t]
            np.matmul(gradient[:, t], transposed, out=hidden)
            if ctx.keep is not None:
                hidden *= ctx.keep[t]
        found = torch.from_numpy(gradient)
        seen = torch.from_numpy(hidden_before).flatten(1, 2)
        return found, torch.bmm(seen.mT, found.flatten(1, 2)), None, None, None


def _before(first: np.ndarray, each: np.ndarray, keep: np.ndarray | None) -> np.ndarray:
    """The state before every step, [K, L, S, H]: that after the previous step, or 0."""
    before = np.empty_like(each)
    before[:, 0] = first
    before[:, 1:] = each[:, :-1]
    if keep is not None:
        before *= keep
    return before


def _slopes(left: Step, cell_before: np.ndarray) -> np.ndarray:
    """dc/dz of i, f and g, and dh/dz of o where c stays, [K, L, S, 4 H]."""
    size = cell_before.shape[-1]
    i = left.gates[..., :size]
    g = left.gates[..., 3 * size :]
    # σ' = σ (1 − σ) for i, f and o; tanh' = 1 − tanh² for g.
    slopes: np.ndarray = left.gates - left.gates * left.gates
    slopes[..., :size] *= g
    slopes[..., size : 2 * size] *= cell_before
    slopes[..., 2 * size : 3 * size] *= left.squashed
    slopes[..., 3 * size :] = i - i * g * g
    return slopes
