"""What a worker plays: one seed, one game; the newest network within one move; what is kept of it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from agents.games.named import load_game
from agents.selfplay.policy import make_network
from agents.selfplay.positions import refusal, unpacked_states
from agents.selfplay.roles import Played, Published
from agents.selfplay.worker import Moves, Worker
from agents.states import FORMAT, to_arrays
from config.resolve import resolve
from config.resolved import Resolved

SMALL = {
    "blocks": "0", "channels": "2", "simulations": "12", "cheap_simulations": "3",
    "games_per_worker": "5", "sampled_plies": "4",
}  # fmt: skip


def resolved(game: str = "tic-tac-toe", **given: str) -> Resolved:
    return resolve("alphazero", {"game": game, **SMALL, **given})


def network(generation: int = 0, game: str = "tic-tac-toe") -> Published:
    made = make_network(
        resolved(game).hyperparameters, load_game(game), torch.Generator().manual_seed(generation)
    )
    return Published(generation, {"format": FORMAT, "average": to_arrays(made.state_dict())})


def only(one: Published) -> Iterator[Published | None]:
    yield one
    yield from itertools.repeat(None)


def games(count: int, experiment: Resolved, *, member: int = 0, attempt: int = 1) -> list[Played]:
    worker = Worker(experiment, run=0, member=member, attempt=attempt)
    given = only(network(0, experiment.game.id))
    found = list[Played]()
    playing = worker.play(lambda: next(given))
    while len(found) < count:
        found += next(playing)
    playing.close()
    return found[:count]


@pytest.mark.parametrize(
    ("gpus", "there", "device"), [("0", True, "cpu"), ("2", True, "cuda"), ("2", False, "cpu")]
)
def test_the_network_is_where_the_worker_has_a_gpu(
    monkeypatch: pytest.MonkeyPatch, gpus: str, there: bool, device: str
) -> None:
    asked = list[str]()

    def load(resolved: Resolved, state: object, where: str) -> Any:
        asked.append(where)
        return SimpleNamespace(evaluate=None)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr("agents.selfplay.worker.load", load)
    worker = Worker(resolved(worker_gpus=gpus), run=0, member=0, attempt=1)
    evaluations = worker._evaluations(network())
    worker._renew(evaluations, network(1))
    assert asked == [device, device]


def same(ones: list[Played], others: list[Played]) -> bool:
    return all(
        one.score == other.score
        and all(np.array_equal(one.rows[name], other.rows[name]) for name in one.rows)
        for one, other in zip(ones, others, strict=True)
    )


def test_one_seed_one_game() -> None:
    first = games(12, resolved())
    assert same(first, games(12, resolved()))
    assert not same(first, games(12, resolved(), member=1))
    assert not same(first, games(12, resolved(), attempt=2)), "a second start plays other games"
    assert not same(first, games(12, resolved(seed="1")))


@pytest.mark.parametrize("name", ["tic-tac-toe", "connect-four", "othello6"])
def test_the_rows_of_a_game_are_its_positions_and_its_end(name: str) -> None:
    """Played again: each row follows from the one before, and has the end with its mover's eyes."""
    game = load_game(name)
    for one in games(6, resolved(name)):
        rows = one.rows
        assert refusal(game, rows) == ""
        states = unpacked_states(game, rows["state"])
        assert np.array_equal(states[:1], game.start(1))
        assert np.array_equal(rows["legal"], game.legal(states))
        for state, after in itertools.pairwise(states):
            actions = np.flatnonzero(game.legal(state[None])[0])
            assert after in game.play(np.repeat(state[None], len(actions)), actions)
        actions = np.flatnonzero(game.legal(states[-1:])[0])
        ends = game.play(np.repeat(states[-1:], len(actions)), actions)
        over, values = game.outcome(ends)
        of_first = np.where(game.mover(ends) == 0, values, -values)[over]
        assert one.score in 50 * (1 + of_first)
        for mover, value in zip(game.mover(states), rows["value"], strict=True):
            assert 50 * (1 + (value if mover == 0 else -value)) == one.score


def test_a_row_is_its_mover_s_where_a_player_moves_twice() -> None:
    """Who closes a box moves again; by plies, later rows would have the other player's sign."""
    pytest.importorskip("pyspiel")
    name = "openspiel:dots_and_boxes(num_rows=1,num_cols=2)"
    game, twice, decided = load_game(name), 0, 0
    for one in games(4, resolved(name)):
        movers = game.mover(unpacked_states(game, one.rows["state"]))
        twice += int((movers[1:] == movers[:-1]).sum())
        of_first = np.where(movers == 0, one.rows["value"], -one.rows["value"])
        assert (50 * (1 + of_first) == one.score).all()
        decided += one.score != 50
    assert twice > 0 and decided > 0


@pytest.mark.slow
def test_only_full_searches_have_a_policy_and_they_are_as_many_as_asked_for() -> None:
    rows = [one.rows for one in games(150, resolved(full_search_share="0.3"))]
    full = np.concatenate([one["full"] for one in rows])
    policies = np.concatenate([one["policy"] for one in rows])
    assert full.mean() == pytest.approx(0.3, abs=4 * np.sqrt(0.3 * 0.7 / len(full)))
    assert np.allclose(policies[full].sum(axis=1), 1)
    assert not policies[~full].any()
    shares = 12 * policies[full]
    assert np.allclose(shares, np.round(shares)), "visits of 12 simulations, not of 3"


def test_cheap_searches_have_no_noise_and_later_moves_no_chance() -> None:
    """Without full searches and without sampled plies all games are one."""
    quiet = resolved(full_search_share="0.01", sampled_plies="0")
    worker = Worker(quiet, run=0, member=0, attempt=1)
    worker.hyper = dataclasses.replace(worker.hyper, full_search_share=0.0)
    given = only(network())
    playing = worker.play(lambda: next(given))
    found = [one for _, ended in zip(range(200), playing, strict=False) for one in ended]
    assert len(found) > 5
    assert len({one.rows["state"].tobytes() for one in found}) == 1


def test_the_newest_network_plays_within_one_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every search that begins after a network was published is by it."""
    begun = list[int]()
    begin = Moves.begin

    def noted(self: Moves, slots: np.ndarray, generation: int) -> None:
        begun.append(generation)
        begin(self, slots, generation)

    monkeypatch.setattr(Moves, "begin", noted)
    published = [network(0)]
    worker = Worker(resolved(), run=0, member=0, attempt=1)
    playing = worker.play(lambda: published.pop() if published else None)
    found = list[Played]()
    for _ in range(30):
        found += next(playing)
    assert set(begun) == {0}
    assert {int(one) for game in found for one in game.rows["generation"]} == {0}
    begun.clear()
    published.append(network(7))
    found = [one for _ in range(60) for one in next(playing)]
    assert set(begun) == {7}
    mixed = [one.rows["generation"] for one in found if 0 in one.rows["generation"]]
    assert 0 < len(mixed) <= 5, "the games in flight"
    assert all((np.diff(one) >= 0).all() for one in mixed)


def test_a_worker_without_a_network_says_so() -> None:
    with pytest.raises(ValueError, match="no network"):
        next(Worker(resolved(), run=0, member=0, attempt=1).play(lambda: None))
