"""The search against its twin of objects, against the formulas by hand, and against the rules of the
games."""

from __future__ import annotations

import math

import numpy as np
import pytest

from agents.games.connect_four import ConnectFour
from agents.games.named import load_game
from agents.games.othello6 import Othello6
from agents.games.rules import Game, States
from agents.games.tic_tac_toe import TicTacToe
from agents.search import kernels
from agents.search.evaluator import Searched, SearchSettings
from agents.search.gumbel import choose, visit_policy
from agents.search.tree_search import Search, search_all
from agents.selfplay.worker import Alternation
from config.errors import Diverged
from tests.search_reference import Hashed, Mirrored, Node, Reference

GAMES = ["tic-tac-toe", "connect-four", "othello6"]


def uniform(states: States, legal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(legal.shape, np.float32), np.zeros(len(states), np.float32)


def positions(game: Game, count: int, seed: int, longest: int | None = None) -> States:
    """Of random games that are not over, at every stage."""
    draws, found = np.random.default_rng(seed), []
    while len(found) < count:
        states = game.start(1)
        for _ in range(int(draws.integers(longest or game.longest))):
            legal = np.flatnonzero(game.legal(states)[0])
            after = game.play(states, draws.choice(legal, 1))
            if game.outcome(after)[0][0]:
                break
            states = after
        found.append(states)
    return np.concatenate(found)


def searched(
    game: Game, states: States, simulations: int, evaluate=None, seeds=None, **settings
) -> tuple[Searched, Search]:
    search = Search(game, len(states), SearchSettings(**settings))
    generators = [
        None if seeds is None else np.random.default_rng(seed) for seed in seeds or states
    ]
    budget = np.full(len(states), simulations)
    return search_all(search, states, evaluate or Hashed(game), budget, generators), search


def same_tree(search: Search, slot: int, number: int, node: Node) -> int:
    """Compare node by node; how many there are."""
    trees, nodes = search.trees, 1
    assert (trees.mover[slot, number], trees.over[slot, number]) == (node.mover, node.over)
    assert trees.value[slot, number] == node.value
    if node.over:
        return nodes
    first = trees.first[slot, number]
    edges = range(first, first + trees.breadth[slot, number])
    assert [trees.action[slot, edge] for edge in edges] == list(node.edges)
    for edge, (action, expected) in zip(edges, node.edges.items(), strict=True):
        assert trees.tries[slot, edge] == expected.visits, f"{action} at depth {nodes}"
        assert trees.total[slot, edge] == pytest.approx(expected.total, abs=1e-9)
        assert trees.prior[slot, edge] == pytest.approx(expected.prior, rel=1e-9)
        if expected.child is None:
            assert trees.child[slot, edge] == -1
        else:
            nodes += same_tree(search, slot, trees.child[slot, edge], expected.child)
    return nodes


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("gumbel", [False, True])
def test_the_trees_are_those_of_the_twin_node_by_node(name: str, gumbel: bool) -> None:
    game = load_game(name)
    states = positions(game, 8, seed=1)
    settings = {"gumbel": gumbel, "considered": 4, "c_base": 40.0, "c_visit": 2.0, "c_scale": 0.5}
    _, search = searched(game, states, 60, seeds=range(8), **settings)
    reference = Reference(game, Hashed(game), SearchSettings(**settings))
    nodes = 0
    for slot in range(8):
        legal = np.flatnonzero(game.legal(states[slot : slot + 1])[0])
        draws = np.random.default_rng(slot)
        noise = draws.gumbel(size=len(legal)) if gumbel else draws.dirichlet([1.0] * len(legal))
        given = dict(zip(legal.tolist(), noise.tolist(), strict=True))
        root = reference.search(states[slot : slot + 1], 60, given)
        nodes += same_tree(search, slot, 0, root)
    assert nodes > 100


def test_the_published_formula_by_hand() -> None:
    # P = (.5, .3, .2), N = (1, 2, 0), W = (.2, .6, 0), c = 1.25, Σ over the root's counts
    scores = [
        kernels.score(prior, tries, total, 1.25 * math.sqrt(3))
        for prior, tries, total in ((0.5, 1, 0.2), (0.3, 2, 0.6), (0.2, 0, 0.0))
    ]
    assert scores == pytest.approx([0.741266, 0.516506, 0.433013], abs=1e-6)


def test_before_the_first_visit_the_prior_decides() -> None:
    game = ConnectFour()
    logits = np.array([[0, 1, 0, 0, 5, 0, 0]], np.float32)
    answer = lambda states, legal: (  # noqa: E731
        np.repeat(logits, len(states), 0),
        np.zeros(len(states), np.float32),
    )
    result, _ = searched(game, game.start(1), 1, answer)
    assert result.visits[0].tolist() == [0, 0, 0, 0, 1, 0, 0]


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("gumbel", [False, True])
def test_visits_sum_to_the_simulations_and_only_legal_actions_have_any(
    name: str, gumbel: bool
) -> None:
    game = load_game(name)
    states = positions(game, 40, seed=2)
    search = Search(game, 40, SearchSettings(gumbel=gumbel))
    budget = np.arange(1, 41)
    result = search_all(search, states, Hashed(game), budget, [np.random.default_rng(0)] * 40)
    assert result.visits.sum(axis=1).tolist() == budget.tolist()
    legal = game.legal(states)
    assert not result.visits[~legal].any() and not result.policy[~legal].any()
    assert result.policy.sum(axis=1) == pytest.approx(1)
    assert legal[np.arange(40), result.action].all()
    assert np.abs(result.value).max() <= 1


@pytest.mark.parametrize("name", GAMES)
def test_mirrored_positions_have_mirrored_visits(name: str) -> None:
    game, tried = load_game(name), 0
    for seed in range(4):
        draws, symmetries = np.random.default_rng(seed), game.symmetries()
        states = game.start(len(symmetries))
        for _ in range(5):
            action = int(draws.choice(np.flatnonzero(game.legal(states)[0])))
            there = [int(np.argsort(actions)[action]) for _, actions in symmetries]
            states = game.play(states, np.array(there))
        result, _ = searched(game, states, 80, Mirrored(game))
        for row, (_, actions) in enumerate(symmetries):
            assert result.visits[row].tolist() == result.visits[0][actions].tolist()
            tried += row > 0 and result.visits[row].tolist() != result.visits[0].tolist()
    assert tried


def test_a_games_search_does_not_depend_on_the_games_beside_it() -> None:
    game = ConnectFour()
    states = positions(game, 12, seed=3)
    together, _ = searched(game, states, 50, seeds=range(12))
    for row in range(12):
        alone, _ = searched(game, states[row : row + 1], 50, seeds=[row])
        assert alone.visits[0].tolist() == together.visits[row].tolist()


def play(game: Game, seeds: list[int], halves: int, plies: int) -> list[list[int]]:
    """Self-play with noise, temperature, and numbers of simulations that differ: what a worker
    does."""
    searches = [Search(game, len(seeds) // halves, SearchSettings()) for _ in range(halves)]
    draws = {seed: np.random.default_rng(seed) for seed in seeds}
    moves: dict[int, list[int]] = {seed: [] for seed in seeds}
    states = dict(zip(seeds, game.start(len(seeds)).reshape(-1, 1), strict=True))
    of_half = np.array(seeds).reshape(halves, -1)

    def begin(half: int, slots: np.ndarray) -> None:
        chosen = of_half[half, slots].tolist()
        going = [
            row
            for row, seed in enumerate(chosen)
            if len(moves[seed]) < plies and not game.outcome(states[seed])[0][0]
        ]
        if not going:
            return
        chosen = [chosen[row] for row in going]
        simulations = np.array([48 if draws[seed].random() < 0.25 else 8 for seed in chosen])
        noise = [
            draws[seed] if count == 48 else None
            for seed, count in zip(chosen, simulations, strict=True)
        ]
        given = np.concatenate([states[seed] for seed in chosen])
        searches[half].begin(slots[going], given, simulations, noise)

    for half in range(halves):
        begin(half, np.arange(len(seeds) // halves))
    for search in Alternation(searches, Hashed(game)).rounds():
        half, slots = searches.index(search), search.finished()
        if not len(slots):
            continue
        result = search.results(slots)
        chosen = of_half[half, slots].tolist()
        played = np.array([len(moves[seed]) for seed in chosen])
        for seed, action in zip(
            chosen, choose(result, played, 4, [draws[seed] for seed in chosen]), strict=True
        ):
            moves[seed].append(int(action))
            states[seed] = game.play(states[seed], np.array([action]))
        begin(half, slots)
    return [moves[seed] for seed in seeds]


def test_one_seed_is_one_game_in_whichever_half_and_company() -> None:
    game = ConnectFour()
    games = play(game, [1, 2, 3, 4, 5, 6], halves=2, plies=9)
    assert games == play(game, [1, 2, 3, 4, 5, 6], halves=2, plies=9)
    assert games[::-1] == play(game, [6, 5, 4, 3, 2, 1], halves=2, plies=9)
    assert games[3:4] == play(game, [4], halves=1, plies=9)
    assert all(len(moves) == 9 for moves in games)
    assert len({tuple(moves) for moves in games}) == 6


def test_batches_stay_as_large_as_there_are_slots() -> None:
    """A slot with few simulations begins anew; if all waited for the one with most, half of the slots
    would be empty on average."""
    game = TicTacToe()
    search, network = Search(game, 32, SearchSettings()), Hashed(game)
    states, rounds = positions(game, 32, seed=5, longest=4), 0
    draws = np.random.default_rng(0)

    def begin(slots: np.ndarray) -> None:
        search.begin(slots, states[slots], draws.integers(2, 30, len(slots)), [None] * len(slots))

    begin(np.arange(32))
    while rounds < 60:
        search.receive(*network(*search.leaves()))
        slots = search.finished()
        if len(slots):
            search.results(slots)
            begin(slots)
        rounds += 1
    assert np.mean(network.batches) > 0.9 * 32 and min(network.batches) >= 0.75 * 32


def test_noise_is_for_the_root_its_legal_actions_and_its_game_alone() -> None:
    game = ConnectFour()
    moves = [3, 3, 3, 3, 3, 3, 0]
    full = game.start(1)
    for move in moves:
        full = game.play(full, np.array([move]))
    states = np.concatenate([full, game.start(1)])
    _, plain = searched(game, states, 40)
    generators = [np.random.default_rng(5), None]
    search = Search(game, 2, SearchSettings(noise_fraction=0.25, dirichlet_alpha=1.0))
    search_all(search, states, Hashed(game), np.array([40, 40]), generators)
    legal = np.flatnonzero(game.legal(states)[0])
    drawn = np.random.default_rng(5).dirichlet([1.0] * len(legal))
    count = len(legal)
    expected = 0.75 * plain.trees.prior[0, :count] + 0.25 * drawn
    assert search.trees.prior[0, :count] == pytest.approx(expected)
    assert search.trees.action[0, :count].tolist() == legal.tolist()
    same = same_tree(
        search, 1, 0, Reference(game, Hashed(game), SearchSettings()).search(states[1:], 40)
    )
    assert same > 20, "the game without a generator is searched without noise"
    child = search.trees.child[0, int(np.argmax(search.trees.tries[0, :count]))]
    first = search.trees.first[0, child]
    priors = search.trees.prior[0, first : first + search.trees.breadth[0, child]]
    inner = game.play(states[:1], np.array([legal[np.argmax(search.trees.tries[0, :count])]]))
    logits, _ = Hashed(game)(inner, game.legal(inner))
    weights = np.exp(logits[0, game.legal(inner)[0]].astype(float))
    assert len(priors) == 6
    assert priors == pytest.approx(weights / weights.sum()), "no noise at inner nodes"


def test_a_win_in_one_is_found_and_a_loss_in_one_prevented_without_a_network() -> None:
    game = ConnectFour()
    rows = ". . . . . . .\n" * 5
    wins = game.parse(rows + "X X X . O O O\nX to move")
    threatened = game.parse(". . . . . . .\n" * 4 + "X . . . . . .\nX O O O . . X\nX to move")
    states = np.array([wins, threatened], game.state_dtype)
    result, _ = searched(game, states, 400, uniform)
    assert result.action.tolist() == [3, 4]
    assert result.value[0] > 0.5


def minimax(game: Game) -> dict[bytes, int]:
    """The value for the mover of every position of tic-tac-toe."""
    values: dict[bytes, int] = {}

    def value(state: States) -> int:
        key = state.tobytes()
        if key not in values:
            over, outcome = game.outcome(state)
            actions = np.flatnonzero(game.legal(state)[0])
            values[key] = (
                int(outcome[0])
                if over[0]
                else max(-value(game.play(state, np.array([action]))) for action in actions)
            )
        return values[key]

    value(game.start(1))
    return values


def test_with_a_uniform_network_growing_searches_reach_the_minimax_value() -> None:
    game = TicTacToe()
    values = minimax(game)
    assert len(values) == 5478 and values[game.start(1).tobytes()] == 0
    states = np.array([np.frombuffer(key, game.state_dtype)[0] for key in values])
    states = states[game.legal(states).any(axis=1)][::40]
    exact = np.array([values[state.tobytes()] for state in states])
    errors = []
    for simulations in (30, 300, 3000):
        result, _ = searched(game, states, simulations, uniform)
        errors.append(float(np.abs(result.value - exact).mean()))
    after = game.play(states, result.action)
    assert [-values[state.tobytes()] for state in after] == exact.tolist(), "and its moves keep it"
    assert errors[0] > errors[1] > errors[2] and errors[2] < 0.05


def test_values_belong_to_the_mover_where_players_do_not_alternate() -> None:
    """Who closes a box moves again; by plies, values would change sides."""
    pytest.importorskip("pyspiel")
    game = load_game("openspiel:dots_and_boxes(num_rows=1,num_cols=2)")
    states = np.concatenate([game.start(1), positions(game, 6, seed=0)])
    result, search = searched(game, states, 1500, uniform)
    exact: dict[bytes, float] = {}

    def value(state: States) -> float:
        key = state.tobytes()
        if key not in exact:
            over, outcome = game.outcome(state)
            mover, best = game.mover(state)[0], -2.0
            for action in np.flatnonzero(game.legal(state)[0]):
                after = game.play(state, np.array([action]))
                sign = 1 if game.mover(after)[0] == mover else -1
                best = max(best, sign * value(after))
            exact[key] = float(outcome[0]) if over[0] else best
        return exact[key]

    expected = [value(states[row : row + 1]) for row in range(len(states))]
    assert result.value == pytest.approx(expected, abs=0.25)
    trees = search.trees
    parents = trees.parent[0, 1 : trees.nodes[0]]
    assert (trees.mover[0, 1 : trees.nodes[0]] == trees.mover[0, parents]).any(), "moved twice"


def test_temperatures() -> None:
    visits = np.array([[10, 30, 60], [0, 5, 5]], np.int32)
    assert visit_policy(visits, 1.0)[0] == pytest.approx([0.1, 0.3, 0.6])
    assert visit_policy(visits, 0.5)[0] == pytest.approx([0.0217, 0.1957, 0.7826], abs=1e-4)
    assert visit_policy(visits, 0.001)[0] == pytest.approx([0, 0, 1]), "no overflow"
    assert visit_policy(visits, 0).tolist() == [[0, 0, 1], [0, 1, 0]]
    assert visit_policy(visits, 1.0)[1].tolist() == [0, 0.5, 0.5]


def test_moves_are_drawn_by_visits_at_first_and_are_the_best_later() -> None:
    visits = np.array([[10, 30, 60]] * 4000, np.int32)
    given = Searched(visits, visits * 0.0, visits / 100, visits.argmax(axis=1), visits[:, 0] * 0.0)
    generator = np.random.default_rng(0)
    moves = choose(given, np.repeat([3, 4], 2000), 4, [generator] * 4000)
    assert np.bincount(moves[:2000]) / 2000 == pytest.approx([0.1, 0.3, 0.6], abs=0.04)
    assert (moves[2000:] == 2).all()


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("of_logits", [True, False])
def test_what_is_not_finite_ends_the_search(wrong: float, of_logits: bool) -> None:
    game = TicTacToe()
    search = Search(game, 2, SearchSettings())
    search.begin(np.arange(2), game.start(2), np.array([5, 5]), [None, None])
    logits, values = Hashed(game)(*search.leaves())
    (logits if of_logits else values)[1] = wrong
    with pytest.raises(Diverged, match="not finite"):
        search.receive(logits, values)


def test_questions_and_answers_take_turns() -> None:
    game = TicTacToe()
    search = Search(game, 1, SearchSettings())
    search.begin(np.arange(1), game.start(1), np.array([5]), [None])
    answer = Hashed(game)(*search.leaves())
    with pytest.raises(ValueError, match="wait for their answer"):
        search.leaves()
    with pytest.raises(ValueError, match=r"logits \[1, 9\] and values \[2\]"):
        search.receive(answer[0], np.zeros(2, np.float32))
    search.receive(*answer)
    with pytest.raises(ValueError, match="no leaves wait"):
        search.receive(*answer)


class Stuck(TicTacToe):
    """Has no legal action once the middle is taken."""

    def legal(self, states: States) -> np.ndarray:
        return super().legal(states) & (states["cells"][:, 4:5] == 0)


def test_a_game_that_leaves_nothing_to_do_before_its_end_is_refused() -> None:
    with pytest.raises(ValueError, match="not over has no legal action"):
        searched(Stuck(), TicTacToe().start(1), 30)


def test_a_game_that_is_over_cannot_be_searched() -> None:
    game = Othello6()
    over = game.parse("X X X X X X\n" * 6 + "O to move")
    with pytest.raises(ValueError, match="over"):
        Search(game, 1, SearchSettings()).begin(
            np.arange(1), np.asarray(over).reshape(1), np.array([5]), [None]
        )
