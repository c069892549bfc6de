"""A replay of sequences gives back what was added, as long as it is there; and transitions of it."""

from __future__ import annotations

import numpy as np
import pytest

from agents.checks.kept_streams import KeptStreams
from agents.distributed.protocol import Columns, Spec
from agents.distributed.replayed import SequenceReplay, sample_transitions
from agents.distributed.unrolls import Assembler
from config.errors import NoUsableState

LENGTH, SLOTS = 4, 6
FIRST = {"state0": Spec("float32", (2,))}
ROW = {
    "observation": Spec("float32", (1,)), "action": Spec("float32", (1,)),
    "reward": Spec("float32", ()), "terminated": Spec("bool", ()), "begins": Spec("bool", ()),
    "valid": Spec("bool", ()),
}  # fmt: skip
SPECS = {name: Spec(spec.dtype, (LENGTH + 1, *spec.shape)) for name, spec in ROW.items()} | FIRST


def unrolls(count: int, first: int = 0) -> Columns:
    """Unroll r holds r everywhere."""
    numbers = np.arange(first, first + count)
    return {
        name: np.broadcast_to(
            numbers.reshape(-1, *[1] * len(spec.shape)), (count, *spec.shape)
        ).astype(spec.dtype)
        for name, spec in SPECS.items()
    }


def test_the_last_unrolls_are_here_in_their_places() -> None:
    replay = SequenceReplay(SPECS, SLOTS)
    for first in range(0, 16, 4):
        assert replay.add(unrolls(4, first)).tolist() == list(range(first, first + 4))
    assert replay.unrolls == range(10, 16)
    taken = replay.take(np.array([15, 10, 12, 10]))
    for name, spec in SPECS.items():
        if spec.dtype == "float32":
            assert (taken[name].reshape(4, -1) == [[15], [10], [12], [10]]).all()


def kept(replay: SequenceReplay, streams: KeptStreams) -> KeptStreams:
    class Growing:
        def grown(self) -> object:
            return replay.grown()

        def load_streams(self, streams: object) -> None: ...

    streams.take(Growing())
    return streams


@pytest.mark.parametrize("parts", [[3], [3, 0, 2], [4, 5, 1, 6], [6, 6, 6]])
def test_a_stream_brings_back_what_was_there(parts: list[int]) -> None:
    replay, streams, first = SequenceReplay(SPECS, SLOTS), KeptStreams(), 0
    for count in parts:
        replay.add(unrolls(count, first))
        first += count
        kept(replay, streams)
    other = SequenceReplay(SPECS, SLOTS)
    other.load_state_dict(replay.state_dict())
    streams.give(other)
    assert other.unrolls == replay.unrolls and len(other.unrolls) == min(SLOTS, first)
    here = np.array(other.unrolls)
    for name, column in other.take(here).items():
        assert (column == replay.take(here)[name]).all()
    for one in (replay, other):
        one.add(unrolls(2, first))
    rows = [one.grown()["replay"].rows["reward"][:, 0].tolist() for one in (replay, other)]
    assert rows[0] == rows[1] == [first, first + 1]


def test_a_stream_with_less_is_refused() -> None:
    replay = SequenceReplay(SPECS, SLOTS)
    replay.add(unrolls(5))
    other = SequenceReplay(SPECS, SLOTS)
    other.load_state_dict(replay.state_dict())
    with pytest.raises(NoUsableState, match="has 4 unrolls, its checkpoint 5"):
        other.load_streams({"replay": iter([unrolls(4)])})


def episodes() -> tuple[SequenceReplay, dict[float, tuple[float, float]]]:
    """Of one environment: observation t at step t, reward 10 t; every third episode is truncated, and
    its final observation is −t. Observation -> (next observation, discount)."""
    replay, truth = SequenceReplay(SPECS, 50), dict[float, tuple[float, float]]()
    assembler, begins = Assembler(ROW, FIRST, LENGTH, 1), True
    one = np.zeros(1, np.int64)
    for t in range(1, 60):
        truncated, terminated = t % 9 == 0, t % 9 != 0 and t % 3 == 0
        row = {
            "observation": np.array([[t]]), "action": np.array([[t / 100]]),
            "reward": np.array([10 * t]), "terminated": np.array([terminated]),
            "begins": np.array([begins]), "valid": np.array([True]),
        }  # fmt: skip
        assembler.add(one, {**row, "state0": np.zeros((1, 2))})
        truth[t] = (-t if truncated else t + 1, 0.0 if terminated else 0.5)
        begins = truncated or terminated
        if truncated:
            final = {name: np.zeros((1, *spec.shape), spec.dtype) for name, spec in ROW.items()}
            final["observation"] = np.array([[-t]])
            assembler.add(one, {**final, "state0": np.zeros((1, 2))})
    while (columns := assembler.take()) is not None:
        replay.add(columns)
    return replay, truth


def test_transitions_are_those_that_happened() -> None:
    replay, truth = episodes()
    generator = np.random.default_rng(0)
    drawn = sample_transitions(replay, 2000, generator, discount=0.5, clip_rewards=False)
    seen = set[float]()
    for n in np.flatnonzero(drawn.valid):
        t = float(drawn.observation[n, 0])
        follows, discount = truth[t]
        assert drawn.action[n, 0] == pytest.approx(t / 100) and drawn.reward[n] == 10 * t
        assert drawn.discount[n] == discount
        if discount:
            assert drawn.next_observation[n, 0] == follows
        seen.add(t)
    assert set(range(1, 56)) <= seen <= set(truth)
    invalid = drawn.observation[~drawn.valid, 0]
    assert len(invalid) and (invalid < 0).all()  # what would begin with a final observation
    clipped = sample_transitions(replay, 50, generator, discount=0.5, clip_rewards=True)
    assert clipped.reward.max() == 1
