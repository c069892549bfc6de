"""Several learners learn as one: each has its share of the actors and of every batch, and all apply
the same update, which is the one that a single learner would make of the whole batch.

All that they do together is to add up numbers. A loss is a mean over valid rows, of which the shares
of a batch have different numbers: so gradients are added with the weights of their rows, and divided
by the rows of all. Where a learner is lost, none of the others applies what it did not bring
anything to: everything here raises `PeersLost` before it has changed anything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from agents.distributed.exchange import Exchange
from agents.distributed.protocol import Peers, PeersLost
from agents.environments.normalisation import ObservationNormaliser
from agents.interfaces import State


def gathered(peers: Peers, row: Sequence[float] | np.ndarray) -> np.ndarray:
    """Rows [n] of all learners, float64 [count, n]; n is the same for all."""
    rows = np.zeros((peers.count, len(row)))
    rows[peers.number] = row
    peers.sum(torch.from_numpy(rows))
    return rows


def of_the_first(peers: Peers, state: State) -> State:
    """The first learner's numbers and arrays, to the last bit, in a state that has the same names
    and shapes for all.
    """
    leaves = [np.ascontiguousarray(leaf) for leaf in _leaves(state)]
    # All entries travel as bytes: the first learner's bytes plus zeros are these bytes, whatever
    # their types are.
    packed = np.concatenate([leaf.reshape(-1).view(np.uint8) for leaf in leaves])
    if peers.number:
        packed[:] = 0
    peers.sum(torch.from_numpy(packed))
    parts = np.split(packed, np.cumsum([leaf.nbytes for leaf in leaves])[:-1])
    found = (
        part.view(leaf.dtype).reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)
    )
    shared: State = _with_leaves(state, found)
    return shared


def with_the_first(
    peers: Peers, exchange: Exchange[Any], state: State, shared: Sequence[str]
) -> State:
    """A new learner's state with the first one's entries of these names; its exchange has begun
    nothing yet, and will give its actors numbers that no other gives.
    """
    entries = {**{name: state[name] for name in shared}, "joined": exchange.counters()["joined"]}
    first = of_the_first(peers, entries)
    exchange.share(peers.number, peers.count)
    exchange.number_from(first.pop("joined"))
    return {**state, **first, "exchange": exchange.state_dict()}


def average_gradients(
    peers: Peers, parameters: Sequence[Tensor], loss: Tensor, rows: int, steps: int
) -> tuple[Tensor, Tensor]:
    """Put the gradients of the loss over the rows of all learners in the place of those of this one's
    loss [], a mean over so many rows. Returns that loss [] and the number of steps of all learners
    []; both are the same for all, and stay on the device.
    """
    gradients = [one.grad for one in parameters if one.grad is not None]
    # Gradients, loss and number of rows travel in one sum: a call for each would cost a round trip.
    parts = [*(one.reshape(-1) for one in gradients), loss.reshape(1), loss.new_ones(1)]
    # The ones, multiplied by the rows, add up to the rows of all; steps are added as they are.
    sums = torch.cat([torch.cat(parts) * rows, loss.new_full((1,), steps)])
    peers.sum(sums)
    means = sums[:-1] / sums[-2].clamp(min=1)
    *averages, joint, _ = torch.split_with_sizes(means, [part.numel() for part in parts])
    shaped = [one.view(gradient.shape) for one, gradient in zip(averages, gradients, strict=True)]
    # Gradients are copied in place, so that they keep the strides of their parameters.
    torch._foreach_copy_(gradients, shaped)
    return joint.squeeze(0), sums[-1]


def learn_statistics(
    normaliser: ObservationNormaliser, rows: np.ndarray, peers: Peers | None
) -> None:
    """Learn from these rows [B, ...], and from those of the other learners."""
    if peers is None:
        normaliser.update(rows)
        return
    exact = rows.astype(np.float64)
    moments = np.zeros((2, *rows.shape[1:]))
    if len(rows):
        moments = np.stack((exact.mean(axis=0), exact.var(axis=0)))
    # Blocks are merged in the order of the learners' numbers, so that all get equal bits.
    for count, *block in gathered(peers, [len(rows), *moments.reshape(-1)]):
        mean, variance = np.array(block).reshape(moments.shape)
        normaliser.merge(mean, variance, count)


@contextlib.contextmanager
def whole_update(peers: Peers | None, normaliser: ObservationNormaliser | None) -> Iterator[None]:
    """Inside, an update is made by all learners or by none: where one is lost, the statistics of
    observations go back to what they were.
    """
    if peers is None or normaliser is None:
        yield
        return
    before = normaliser.state_dict()
    try:
        yield
    except PeersLost:
        normaliser.load_state_dict(before)
        raise


def epoch_of_all(
    peers: Peers | None, exchange: Exchange[Any], measured: np.ndarray
) -> tuple[list[float], list[int], np.ndarray]:
    """Returns and lengths of the episodes that were received since this was last called, and what was
    measured of each update [n, metrics], of all learners; their actors' numbers go on from the same.
    """
    returns, lengths = exchange.ended_episodes()
    if peers is None:
        return returns, lengths, measured
    try:
        episodes = _rows_of_all(peers, np.array([returns, lengths]).T.reshape(-1, 2))
        measured = _rows_of_all(peers, measured)
        joined = gathered(peers, [exchange.counters()["joined"]]).max()
    except PeersLost:
        # The learner saves what it has and ends: these episodes must be in its checkpoint.
        exchange.put_back(returns, lengths)
        raise
    exchange.number_from(int(joined))
    return episodes[:, 0].tolist(), episodes[:, 1].astype(int).tolist(), measured


def _rows_of_all(peers: Peers, rows: np.ndarray) -> np.ndarray:
    """Rows [n, ...] -> [all n, ...], of one learner after the other."""
    counts = gathered(peers, [len(rows)]).astype(int).reshape(-1)
    # A sum needs equal shapes: shorter lists are filled up with zeros, and cut afterwards.
    room = np.zeros((counts.max(), *rows.shape[1:]))
    room[: len(rows)] = rows
    found = gathered(peers, room.reshape(-1)).reshape(peers.count, *room.shape)
    return np.concatenate([own[:count] for own, count in zip(found, counts, strict=True)])


def wait_for_all(peers: Peers | None) -> None:
    """Wait until every learner has finished its work or is gone."""
    if peers is not None:
        with contextlib.suppress(PeersLost):
            peers.sum(torch.zeros(1))


def _leaves(tree: Any) -> Iterator[np.ndarray]:
    if isinstance(tree, Mapping):
        for entry in tree.values():
            yield from _leaves(entry)
    else:
        yield np.asarray(tree)


def _with_leaves(tree: Any, leaves: Iterator[np.ndarray]) -> Any:
    if isinstance(tree, Mapping):
        return {name: _with_leaves(entry, leaves) for name, entry in tree.items()}
    leaf = next(leaves)
    return leaf if isinstance(tree, np.ndarray) else leaf.item()
