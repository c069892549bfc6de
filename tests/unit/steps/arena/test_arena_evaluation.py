"""The evaluation of self-play: who meets whom, one seed, one arena, games that are what they say."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import agents.arena.minimax
import steps.arena.play_matches
from agents.arena.matches import after, opening_lines, openings, play_games
from agents.arena.minimax import Minimax, value_kept
from agents.arena.opponents import load_player, trained
from agents.games.connect_four import ConnectFour
from agents.games.rules import Booleans, Floats, Game
from agents.games.tic_tac_toe import TicTacToe
from agents.search.evaluator import Evaluate, SearchSettings
from config.cluster import load_cluster
from config.errors import BadInput, Preempted
from config.ladder import LADDER, agent_of, read_opponents, with_directories
from config.resolve import resolve
from steps import evaluate
from steps.arena.entrants import (
    agent_directory,
    arena_seed,
    earlier_generations,
    entrants,
    who_meets_whom,
)
from steps.arena.games import Played, read_all, read_games, write_arena
from steps.arena.standing import rating_of, tournament, won_against
from steps.directory import checkpoints
from steps.directory.layout import ExperimentDirectory
from steps.directory.self_play import write_generation
from steps.directory.status import read_status
from steps.directory.usable import usability
from steps.policy import load_policy_of
from steps.prepare import main as prepare
from tests import arena_runs, synthetic
from workflows import submit

TABLES = ("evaluation.csv", "arena.csv")


@pytest.fixture(scope="module", autouse=True)
def _short_rollouts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        arena_runs.hasty_ladder(patch)
        yield


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> ExperimentDirectory:
    """One run of tic-tac-toe, evaluated, with two further opponents."""
    root = tmp_path_factory.mktemp("arena")
    other = arena_runs.experiment(root / "other", seed=7)
    directory = arena_runs.experiment(
        root / "one", opponents=f"my_lab.players:Middle,{other.root}:0"
    )
    assert evaluate.main([f"--outdir={directory.root}", "--run=0"]) == 0
    return directory


class Knowing(NamedTuple):
    """A policy whose network is minimax: it knows every value."""

    game: Game
    evaluate: Evaluate
    settings: SearchSettings
    simulations: int


def knowing(game: Game) -> Knowing:
    minimax = Minimax(game)

    def evaluate(encoded: Floats, legal: Booleans) -> tuple[Floats, Floats]:
        logits, values = np.zeros(legal.shape, np.float32), np.zeros(len(legal), np.float32)
        for row, (own, other) in enumerate(encoded.reshape(len(encoded), 2, -1)):
            stones = int(own.sum() + other.sum())
            state = game.start(1)
            state["cells"] = (1 + stones % 2) * own + (2 - stones % 2) * other
            worth = minimax.exact(state)
            assert worth is not None
            values[row] = worth.max()
            logits[row] = np.where(worth == worth.max(), 5, 0)
        return logits, values

    return Knowing(game, evaluate, SearchSettings(), 30)


@pytest.mark.slow
def test_of_two_perfect_players_each_opening_gives_one_point() -> None:
    """Colours are paired: whoever has the better side of an opening wins with it, and loses without;
    seen from either of them.
    """
    game = TicTacToe()
    one, other = trained("agent", knowing(game)), load_player("minimax", game)
    starts = openings(game, 30, np.random.default_rng(0))
    for players in ((one, other), (other, one)):
        scores = play_games(game, *players, starts, 0).scores
        assert scores.sum(axis=1).tolist() == [1] * 30
        assert 5 < (scores[:, 0] != 0.5).sum() < 30, "some openings decide, others do not"


def test_who_knows_everything_loses_no_game_and_keeps_every_value() -> None:
    game = TicTacToe()
    player, weak = trained("agent", knowing(game)), load_player("random", game)
    games = play_games(game, player, weak, game.start(20), 0)
    assert games.scores.min() >= 0.5 and games.scores.mean() > 0.9
    moves = [moves_of(game, actions, number % 2) for number, actions in enumerate(games.actions)]
    states, actions = (np.concatenate(one) for one in zip(*moves, strict=True))
    assert (known := value_kept(game, states, actions)).share == 1 and known.positions > 15
    random = play_games(game, weak, weak_again(game), game.start(20), 0)
    moves = [moves_of(game, actions, 0) for actions in random.actions]
    states, actions = (np.concatenate(one) for one in zip(*moves, strict=True))
    share = value_kept(game, states, actions).share
    assert share is not None and 0.3 < share < 0.8


def test_of_very_many_positions_some_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third of nine, and equal ones once; without a position nothing is known."""
    game, tried = TicTacToe(), list[int]()
    states = after(game, np.array([[0, action] for action in range(1, 9)]))
    states = np.concatenate([game.start(3), states])

    def noting(self: Minimax, state: np.ndarray) -> None:
        tried.append(int(np.flatnonzero((states == state).ravel())[0]))

    monkeypatch.setattr(Minimax, "exact", noting)
    monkeypatch.setattr(agents.arena.minimax, "MOST_TRIED", 4)
    assert value_kept(game, states, np.zeros(len(states), np.int64)) == (0, 0)
    assert tried == [0, 5, 8]
    assert value_kept(game, game.start(0), np.zeros(0, np.int64)).share is None


def weak_again(game: Game) -> Any:
    player = load_player("random", game)
    player.name = "another"
    return player


def moves_of(game: Game, actions: np.ndarray, colour: int) -> tuple[np.ndarray, np.ndarray]:
    state, states, own = game.start(1), [game.start(0)], []
    for action in actions:
        if game.mover(state)[0] == colour:
            states.append(state)
            own.append(action)
        state = game.play(state, np.array([action]))
    return np.concatenate(states), np.array(own, np.int64)


def test_minimax_says_what_it_knows_and_nothing_else() -> None:
    game, four = TicTacToe(), ConnectFour()
    worth = Minimax(game).exact(after(game, np.array([[0, 3, 1, 4]])))
    assert worth is not None and worth[[0, 1, 3, 4]].tolist() == [-math.inf] * 4
    assert worth[[2, 5, 6, 7, 8]].tolist() == [1, 0, -1, -1, -1], "won, prevented, lost"
    assert Minimax(four).exact(four.start(1)) is None
    assert Minimax(game, 3).exact(game.start(1)) is None


def test_lines_lead_to_openings() -> None:
    game = ConnectFour()
    lines = opening_lines(game, 9, np.random.default_rng(3))
    assert lines.shape == (9, 2)
    assert (after(game, lines) == openings(game, 9, np.random.default_rng(3))).all()


def test_everybody_meets_the_ladder_and_the_agent_meets_everybody() -> None:
    names = ["agent", *LADDER, "minimax", "generation 2", "my_lab.players:Middle"]
    pairings = who_meets_whom(names)
    met = {frozenset(pair) for pair in pairings}
    assert len(met) == len(pairings) and all(len(pair) == 2 for pair in met)
    assert pairings[:4] == [("agent", name) for name in LADDER]
    for name in names:
        assert {frozenset((name, other)) for other in ("agent", *LADDER) if other != name} <= met
    assert frozenset(("generation 2", "minimax")) not in met


def test_tables_hold_whole_games(arena: ExperimentDirectory) -> None:
    """Played again move by move they are legal, begin with their opening and end as the row says."""
    game, run = TicTacToe(), arena.run(0)
    games = read_all(run)
    for one in games:
        state = game.start(1)
        for action in one.actions:
            state = game.play(state, np.array([action]))
        over, value = game.outcome(state)
        mover = int(game.mover(state)[0])
        of_player = value[0] if ("X", "O")[mover] == one.colour else -value[0]
        assert over[0] and one.points == 50 + 50 * of_player
    by_match: dict[tuple[str, str], list[Played]] = {}
    for one in games:
        by_match.setdefault((one.player, one.opponent), []).append(one)
    for match in by_match.values():
        assert [(one.opening, one.colour) for one in match] == [
            (0, "X"), (0, "O"), (1, "X"), (1, "O")
        ]  # fmt: skip
        assert match[0].actions[0] == match[1].actions[0] != match[2].actions[0]
    assert list(by_match) == who_meets_whom(
        ["agent", *LADDER, "minimax", "generation 0", "generation 2", "my_lab.players:Middle",
         f"{arena.root.parent}/other:0"]
    )  # fmt: skip
    assert [one for one in games if one.is_judged] == read_games(run.root / "evaluation.csv")


def test_the_status_says_what_the_tables_say(arena: ExperimentDirectory) -> None:
    run = arena.run(0)
    status = read_status(run.status / "evaluate.json")
    judged = read_games(run.root / "evaluation.csv")
    assert status is not None and status.details["episodes"] == len(judged) == 4 * len(LADDER)
    assert status.number("win_rate_mean") == sum(one.points for one in judged) / len(judged)
    assert status.number("elo") == rating_of(read_all(run), "agent")
    assert status.details["simulations"] == 8 and status.details["value_known_positions"] > 5
    assert set(won_against(judged)) == set(LADDER)
    assert usability(run, synthetic.resolved_of(arena))


def test_a_game_that_is_missing_makes_the_run_unusable(tmp_path: Path) -> None:
    directory = arena_runs.experiment(tmp_path)
    assert evaluate.main([f"--outdir={tmp_path}", "--run=0"]) == 0
    path = directory.run(0).root / "evaluation.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    reason = usability(directory.run(0), synthetic.resolved_of(directory)).reason
    assert reason == "evaluation.csv has 15 of 16 episodes: evaluate makes it"


def test_runs_have_arenas_of_their_own(arena: ExperimentDirectory) -> None:
    """Else the ladder's luck would be the same in all of them, and no interval would know."""
    resolved = synthetic.resolved_of(arena)
    assert len({arena_seed(resolved, run) for run in range(20)}) == 20
    assert {one.seed for one in read_all(arena.run(0))} == {arena_seed(resolved, 0)}


def test_matches_of_another_arena_are_not_continued(tmp_path: Path) -> None:
    directory = arena_runs.experiment(tmp_path, evaluation_episodes=2)
    run = directory.run(0)
    stale = run.root / ".arena-0123456789abcdef.csv"
    write_arena(stale, [Played("agent", "mcts-1000", 0, one, 5, 100, (0,)) for one in "XO"])
    assert evaluate.main([f"--outdir={tmp_path}", "--run=0"]) == 0
    assert not stale.exists() and read_games(run.root / "evaluation.csv")[0].seed != 5


@pytest.mark.slow
def test_a_stopped_arena_goes_on_and_is_the_same(
    arena: ExperimentDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same parameters and networks, without the further opponents: theirs are other games."""
    whole, again = (arena_runs.experiment(tmp_path / name) for name in ("whole", "again"))
    counted = list[str]()

    def counting(*arguments: Any, **options: Any) -> Any:
        if len(counted) == 5:
            counted.append("stopped")
            raise Preempted("stop")
        counted.append(arguments[1].name)
        return play_games(*arguments, **options)

    monkeypatch.setattr(steps.arena.play_matches, "play_games", counting)
    step = ["--outdir=" + str(again.root), "--run=0"]
    assert evaluate.main(step) == 75 and not (again.run(0).root / "arena.csv").exists()
    assert [path.name for path in again.run(0).root.glob(".arena-*.csv")] != []
    stopped = counted.index("stopped")
    assert evaluate.main(step) == 0
    assert stopped == 5 and len(counted) - 1 == 25, "no match is played twice"
    monkeypatch.undo()
    arena_runs.hasty_ladder(monkeypatch)
    assert evaluate.main(["--outdir=" + str(whole.root), "--run=0"]) == 0
    for name in TABLES:
        content = (whole.run(0).root / name).read_bytes()
        assert content == (again.run(0).root / name).read_bytes()
    assert list(again.run(0).root.glob(".arena-*")) == []
    without = {(one.player, one.opponent): one for one in read_all(whole.run(0))}
    with_more = {(one.player, one.opponent): one for one in read_all(arena.run(0))}
    assert without.items() <= with_more.items(), "further opponents change no other game"


def test_the_rating_is_that_of_the_closed_form(tmp_path: Path) -> None:
    """Against the anchor alone: 6 of 8 points and one drawn game before, 400 log₁₀ (6.5 / 2.5)."""
    points = [100, 100, 100, 50, 50, 0, 100, 100]
    games = [
        Played("agent", "random", number // 2, "XO"[number % 2], 5, points[number], (0, 1))
        for number in range(8)
    ]
    assert rating_of(games, "agent") == pytest.approx(400 * math.log10(6.5 / 2.5))
    write_arena(tmp_path / "games.csv", games)
    assert read_games(tmp_path / "games.csv") == games
    assert tournament(games).scores.mean() == 0.75
    with pytest.raises(BadInput, match="not every match"):
        tournament(games[:-1])
    with pytest.raises(BadInput, match="no game of random"):
        rating_of([Played("agent", "lookahead", 0, one, 5, 50, (0,)) for one in "XO"], "agent")


@pytest.mark.slow
def test_a_damaged_table_is_one_line_and_made_again(tmp_path: Path) -> None:
    directory = arena_runs.experiment(tmp_path)
    step, path = [f"--outdir={tmp_path}", "--run=0"], directory.run(0).root / "arena.csv"
    assert evaluate.main(step) == 0
    before = path.read_bytes()
    path.write_bytes(before.replace(b",X,", b",Z,", 1))
    with pytest.raises(BadInput, match=r"arena\.csv is no table of games \(a game of 'Z'"):
        read_games(path)
    assert evaluate.main(step) == 0 and path.read_bytes() == before


def test_of_many_generations_some_play_from_the_first_to_the_last(tmp_path: Path) -> None:
    directory = arena_runs.experiment(tmp_path, epochs=40)
    run, resolved = directory.run(0), synthetic.resolved_of(directory)
    for generation in range(40):
        write_generation(run, generation, arena_runs.state(resolved, 0), resolved.identity())
    assert earlier_generations(run, resolved) == [0, 13, 26, 39]


def test_a_damaged_network_of_an_earlier_generation_is_named_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = arena_runs.experiment(tmp_path, epochs=40)
    run, resolved = directory.run(0), synthetic.resolved_of(directory)
    whole = set(entrants(run, resolved))
    damaged = earlier_generations(run, resolved)[0]
    assert f"generation {damaged}" in whole
    capsys.readouterr()
    path = next(run.network(damaged).glob("*.safetensors"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert set(entrants(run, resolved)) == whole - {f"generation {damaged}"}
    said = capsys.readouterr().out
    begins = f"warning: generation {damaged} does not play: {path.parent} cannot be read"
    assert said.startswith(begins) and said.count("\n") == 1


def test_an_unfit_network_of_an_earlier_generation_is_named_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its checksums are right: another program wrote it."""
    directory = arena_runs.experiment(tmp_path, epochs=40)
    run, resolved = directory.run(0), synthetic.resolved_of(directory)
    whole = set(entrants(run, resolved))
    unfit = earlier_generations(run, resolved)[0]
    state = arena_runs.state(resolved, 0)
    weights = dict(state["average"])
    weights.pop(next(iter(weights)))
    for wrong in ({}, {**state, "average": weights}, {**state, "average": [1]}):
        capsys.readouterr()
        write_generation(run, unfit, wrong, resolved.identity())
        assert set(entrants(run, resolved)) == whole - {f"generation {unfit}"}
        said = capsys.readouterr().out
        begins = f"warning: generation {unfit} does not play: {run.network(unfit)} does not hold"
        assert said.startswith(begins) and said.count("\n") == 1


def test_an_unfit_final_checkpoint_is_one_line_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = arena_runs.experiment(tmp_path)
    run, resolved = directory.run(0), synthetic.resolved_of(directory)
    final = checkpoints.load_final(run, resolved)
    record = {name: value for name, value in final.record.items() if name != "identity"}
    checkpoints.save(run, step=final.step, state={}, identity=resolved.identity(), record=record)
    assert evaluate.main([f"--outdir={tmp_path}", "--run=0"]) == 4
    assert f"{final.path} does not hold what this training saves" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "wrong"),
    {
        "minimax-4,": "a name between two commas is empty",
        "random": "'random' is met anyway",
        "generation 3": "'generation 3' is met anyway",
        "minimax-4,minimax-4": "'minimax-4' is given twice",
        "results/x:one": "'results/x:one' is no DIRECTORY[:run]",
        "mcts-50, minimax": "spaces around it",
    }.items(),
)
def test_opponents_that_are_none(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong.replace("[", r"\[")):
        read_opponents(text)
    with pytest.raises(BadInput, match="parameter 'opponents' cannot be"):
        resolve("alphazero", {"game": "tic-tac-toe", "opponents": text})


def test_an_opponent_lies_below_the_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pod; by hand it may lie anywhere."""
    arena_runs.experiment(tmp_path / "x")
    assert agent_directory(f"{tmp_path}/x:0")[0].index == 0
    monkeypatch.setenv("STORAGE", str(tmp_path / "storage"))
    with pytest.raises(BadInput, match=r"'opponents' cannot be .*; allowed: a directory below"):
        agent_directory(f"{tmp_path}/x:0")


def test_agents_and_their_directories() -> None:
    assert agent_of("results/x:12") == ("results/x", 12) and agent_of("/a/x") == ("/a/x", 0)
    assert agent_of("a:b/x") == ("a:b/x", 0)
    changed = with_directories("minimax-4,x/y:2,my_lab.players:Middle,./z", "/storage/{}".format)
    assert changed == "minimax-4,/storage/x/y:2,my_lab.players:Middle,/storage/./z:0"


def test_directories_of_opponents_are_those_that_pods_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On this machine below the same folder as the results; for a cluster below its mount."""
    monkeypatch.chdir(tmp_path)
    given = ["alphazero", "-p", "game=tic-tac-toe", "-p", "outdir=results/b", "--local"]
    options = submit.parse([*given, "-p", "opponents=results/a:1,minimax-2"])
    made = submit._checked(options, load_cluster(), local=True)
    assert made.resolved.workers.opponents == "/storage/a:1,minimax-2"
    refused = [*given, "-p", "opponents=elsewhere/a"]
    assert submit.main(refused) == 2
    assert "parameter 'opponents' cannot be 'elsewhere/a'; allowed: a directory below" in (
        capsys.readouterr().err
    )
    on_cluster = ["alphazero", "-p", "game=tic-tac-toe", "--manifest", "-p", "opponents=results/a"]
    assert submit.main(on_cluster) == 2
    assert "'opponents' cannot be 'results/a'; allowed: a directory below /storage" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("given", "wrong"),
    {
        "opponents=mcst-50": "unknown player 'mcst-50'; did you mean",
        "opponents=my_lab.players:Nobody": "player 'my_lab.players:Nobody' cannot be imported",
        "opponents=my_lab.players:Cheat": "player 'my_lab.players:Cheat' plays -1; allowed: [0, 1,",
        "opponents={root}/none": "cannot play: {root}/none holds no experiment",
        "opponents={root}/other:1": "cannot play: it has the runs 0 to 0",
        "opponents={root}/ppo": "cannot play: its algorithm, ppo, is not trained by self-play",
        "opponents={root}/four": "cannot play: it plays 'connect-four', not 'tic-tac-toe'",
        "evaluation_episodes=5": "'evaluation_episodes' cannot be 5: each opening is played with both",
        "evaluation_episodes=9998": "'evaluation_episodes' cannot be 9998: game 'tic-tac-toe' has no 4999",
        "evaluation_policy=sample": "parameter 'evaluation_policy' cannot be 'sample'",
    }.items(),
)
def test_the_door_refuses_what_no_arena_can_do(
    given: str, wrong: str, tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    root = tmp_path_factory.getbasetemp() / "others"
    if not root.exists():
        arena_runs.experiment(root / "other")
        arena_runs.experiment(root / "four", game="connect-four")
        synthetic.experiment(root / "ppo", ("complete",))
    parameters = ["game=tic-tac-toe", f"outdir={root}/new", given.format(root=root)]
    assert prepare(["--algorithm=alphazero", *(f"-p{one}" for one in parameters)]) == 2
    assert wrong.format(root=root) in capsys.readouterr().err and not (root / "new").exists()


def test_a_network_computes_with_the_threads_of_its_experiment(tmp_path: Path) -> None:
    """Never with those of the machine: sums in another order are other numbers."""
    directory, before = arena_runs.experiment(tmp_path, threads=3), torch.get_num_threads()
    try:
        load_policy_of(directory.run(0), synthetic.resolved_of(directory))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
