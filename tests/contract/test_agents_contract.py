"""Every kind of environment, registered or a user's own, and every algorithm: trains, resumes exactly
in a new process, evaluates."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from agents.checks.kept_streams import KeptStreams
from agents.distributed.local import LocalLink
from agents.distributed.protocol import Ack, Actor, Learner, Receiver, Unreachable, Unrolls
from agents.distributed.queues import WAITING
from agents.evaluation.episodes import Acting, evaluate
from agents.evaluation.rendering import Replay
from agents.interfaces import HasStreams, Progress, State, Trainer
from agents.load import load_policy, make_actor, make_learner, make_trainer
from agents.states import policy_state
from config.algorithms import ALGORITHMS, find_algorithm
from config.algorithms.descriptor import FAMILIES, SINGLE
from config.described import parameters
from config.games import USUAL, find_game, own_presets, playable
from config.parameters import declared
from config.resolve import resolve
from config.resolved import Resolved
from config.suites import BOX2D_ID, ENVPOOL, SUITES

SHORT = {
    "epochs": "5", "num_envs": "2", "rollout_length": "32", "update_epochs": "1", "minibatches": "2",
    "epoch_steps": "64", "learning_starts": "64", "train_every": "4", "updates": "2",
    "batch_size": "32", "epoch_updates": "2", "unroll_length": "5", "burn_in": "2",
}  # fmt: skip
"""As far as an algorithm has them."""
OWN = (
    "tests.own_games:Picture",
    "tests.own_games:Square",
    "tests.own_games:Registered-v0",
    "CliffWalking-v1",
)
OF_SUITES = {
    "mujoco": "inverted-pendulum",
    "minatar": "minatar-breakout",
    "minigrid": "minigrid-empty",
    "dm_control": "cheetah-run",
    "envpool": "envpool:FrozenLake-v1",
}
"""A quick game of each suite but Atari's."""
HAS_BOX2D = importlib.util.find_spec("Box2D") is not None  # it has no wheel for Python 3.14
LIKE_OTHERS = ("carracing", "humanoid", "swimmer")
"""Their environments take seconds to make, and what they show and take is shown and taken by others
here."""
GAMES = (
    *(
        game
        for game in playable(FAMILIES, own_presets())
        if game not in LIKE_OTHERS and (HAS_BOX2D or not BOX2D_ID.fullmatch(find_game(game).id))
    ),
    *(OF_SUITES[suite.name] for suite in (*SUITES[1:], ENVPOOL) if not suite.missing()),
    *OWN,
)
STRANGER = "my_lab.reinforce:ALGORITHM"
PAIRS = [("ppo", game) for game in GAMES] + [
    (algorithm, USUAL[family])
    for algorithm in (*ALGORITHMS, STRANGER)
    for family in find_algorithm(algorithm).families
    if algorithm != "ppo" and family in USUAL and find_algorithm(algorithm).topology == SINGLE
]
"""PPO plays every kind of environment, every other algorithm a game of each of its families."""
WITH_ACTORS = [
    (algorithm, USUAL[family])
    for algorithm in (*ALGORITHMS, "my_lab.crowd:ALGORITHM")
    for family in find_algorithm(algorithm).families
    if family in USUAL and find_algorithm(algorithm).has_actors
]
"""Those whose experience comes from other processes, here from threads."""

ONE_OF_EACH = list(
    {algorithm: (algorithm, game) for algorithm, game in (*PAIRS, *WITH_ACTORS)}.values()
)


def short(algorithm: str, game: str, **others: str) -> Resolved:
    known = {info.name for info in parameters(algorithm)}
    given = {name: text for name, text in {**SHORT, **others}.items() if name in known}
    return resolve(algorithm, {"game": game, **given})


def flat(state: State, path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in state.items():
        found |= flat(value, f"{path}{name}/") if isinstance(value, dict) else {path + name: value}
    return found


def nested(leaves: dict[str, Any]) -> State:
    state: State = {}
    for path, value in leaves.items():
        *parents, name = path.split("/")
        place = state
        for parent in parents:
            place = place.setdefault(parent, {})
        place[name] = value
    return state


def digest(state: State) -> str:
    """Of every bit of the state."""
    found = hashlib.sha256()
    for path, value in sorted(flat(state).items()):
        found.update(
            path.encode()
            + (value.tobytes() if isinstance(value, np.ndarray) else json.dumps(value).encode())
        )
    return found.hexdigest()


def save(folder: Path, state: State) -> None:
    leaves = flat(state)
    save_file(
        {path: value for path, value in leaves.items() if isinstance(value, np.ndarray)},
        folder / "arrays.safetensors",
    )
    (folder / "rest.json").write_text(
        json.dumps(
            {path: value for path, value in leaves.items() if not isinstance(value, np.ndarray)}
        )
    )


def load(folder: Path) -> State:
    return nested(
        json.loads((folder / "rest.json").read_text()) | load_file(folder / "arrays.safetensors")
    )


Outcome = tuple[list[str], str]


def place(folder: Path, pair: tuple[str, str]) -> Path:
    return folder / str(PAIRS.index(pair))


def finish(folder: Path) -> None:
    """In a new process: continue every training from its saved state, and print what came out."""
    for pair in PAIRS:
        trainer = make_trainer(short(*pair), run=1, device="cpu", precision="fp32")
        trainer.load_state_dict(load(place(folder, pair)))
        streams = sorted(place(folder, pair).glob("*.stream"))
        if isinstance(trainer, HasStreams):
            trainer.load_streams({path.stem: iter([load_file(path)]) for path in streams})
        rows = [repr(one) for one, _ in epochs_of(trainer)]
        trainer.close()
        print(json.dumps({"pair": pair, "rows": rows, "digest": digest(trainer.state_dict())}))


def epochs_of(trainer: Trainer) -> Iterator[tuple[Progress, KeptStreams]]:
    """As the steps train: what has grown is asked for after every epoch."""
    kept = KeptStreams()
    for progress in trainer.train():
        kept.take(trainer)
        yield progress, kept


@pytest.fixture(scope="module")
def outcomes(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[tuple[str, str], tuple[Outcome, Outcome]]:
    """Algorithm and game -> rows after epoch 3 and the final digest, undisturbed and resumed; one
    new process for all."""
    folder = tmp_path_factory.mktemp("states")
    undisturbed: dict[tuple[str, str], Outcome] = {}
    for pair in PAIRS:
        place(folder, pair).mkdir()
        trainer = make_trainer(short(*pair), run=1, device="cpu", precision="fp32")
        rows = []
        for one, kept in epochs_of(trainer):
            rows.append(repr(one))
            if one.epoch == 3:
                save(place(folder, pair), trainer.state_dict())
                for name in kept.names:
                    save_file(kept.rows(name), place(folder, pair) / f"{name}.stream")
                assert one.metrics
                assert one.frame == one.step * short(*pair).game.frames_per_step
        undisturbed[pair] = rows[3:], digest(trainer.state_dict())
        trainer.close()
    root = Path(__file__).parents[2]
    command = [
        sys.executable,
        "-c",
        f"from tests.contract.test_agents_contract import *; finish(Path({str(folder)!r}))",
    ]
    finished = subprocess.run(
        command,
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'tests' / 'stranger'}"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert finished.returncode == 0, finished.stderr
    answers = [json.loads(line) for line in finished.stdout.splitlines() if line.startswith("{")]
    resumed = {tuple(one["pair"]): (one["rows"], one["digest"]) for one in answers}
    return {pair: (undisturbed[pair], resumed[pair]) for pair in PAIRS}


@pytest.mark.parametrize("pair", PAIRS, ids=" on ".join)
def test_a_training_resumes_exactly_in_a_new_process(
    pair: tuple[str, str], outcomes: dict[tuple[str, str], tuple[Outcome, Outcome]]
) -> None:
    undisturbed, resumed = outcomes[pair]
    assert len(undisturbed[0]) == 2
    assert resumed == undisturbed


TIED = {
    "anneal_learning_rate": ("false", "true"),
    "anneal_clip": ("false", "true"),
    "exploration_fraction": ("0", "0.5"),
    "importance_exponent": ("1", "0.4"),
}
"""The hyperparameters that can tie a training to its length: a value that does not, and one that does."""
GROWN = [
    (name, next(USUAL[family] for family in algorithm.families if family in USUAL))
    for name, algorithm in ALGORITHMS.items()
    if algorithm.topology == SINGLE
] + [(STRANGER, "cartpole")]


def untied(algorithm: str) -> dict[str, str]:
    """Every other switch is on."""
    switches = declared(find_algorithm(algorithm).hyperparameters).values()
    on = {one.name: "true" for one in switches if one.kind is bool}
    return on | {name: without for name, (without, _) in TIED.items()}


def digest_after(resolved: Resolved, first: Resolved | None = None) -> str:
    """Of a whole training; first: the shorter one that it goes on from."""
    trainer = make_trainer(resolved, run=1, device="cpu", precision="fp32")
    if first is not None:
        shorter = make_trainer(first, run=1, device="cpu", precision="fp32")
        *_, (_, kept) = epochs_of(shorter)
        trainer.load_state_dict(shorter.state_dict())
        shorter.close()
        kept.give(trainer)
    for _ in epochs_of(trainer):
        pass
    trainer.close()
    return digest(trainer.state_dict())


@pytest.mark.parametrize("pair", GROWN, ids=" on ".join)
def test_a_training_that_may_grow_ends_as_one_that_was_that_long(pair: tuple[str, str]) -> None:
    given = untied(pair[0])
    shorter, longer = (short(*pair, **given, epochs=epochs) for epochs in ("3", "6"))
    assert shorter.tied_to_length == longer.tied_to_length == ()
    assert shorter.identity_hash == longer.identity_hash
    assert digest_after(longer, first=shorter) == digest_after(longer)


@pytest.mark.parametrize(
    ("pair", "name"),
    [
        (pair, name)
        for pair in GROWN
        for name in TIED
        if name in declared(find_algorithm(pair[0]).hyperparameters)
    ],
    ids=str,
)
def test_what_ties_a_training_to_its_length_is_named(pair: tuple[str, str], name: str) -> None:
    # So small a clip range is reached in the first updates.
    given = untied(pair[0]) | {name: TIED[name][1], "clip": "0.001"}
    shorter, longer = (short(*pair, **given, epochs=epochs) for epochs in ("3", "6"))
    assert shorter.tied_to_length == (name,)
    assert shorter.identity_hash != longer.identity_hash
    assert digest_after(longer, first=shorter) != digest_after(longer)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_says_what_ties_it_to_its_length(algorithm: str) -> None:
    known = declared(find_algorithm(algorithm).hyperparameters)
    on = {name: value for name, (_, value) in TIED.items() if name in known}
    tied = resolve(algorithm, on | ({"prioritised": "true"} if "prioritised" in known else {}))
    # R2D2's importance exponent is a constant.
    assert set(tied.tied_to_length or ()) == set(on) - (
        {"importance_exponent"} if algorithm == "r2d2" else set()
    )
    off = {name: value for name, (value, _) in TIED.items() if name in known}
    assert resolve(algorithm, off).tied_to_length == ()


@pytest.mark.parametrize("pair", PAIRS, ids=" on ".join)
def test_a_policy_acts_in_the_environment_s_own_terms(pair: tuple[str, str]) -> None:
    resolved = short(*pair)
    trainer = make_trainer(resolved, run=0, device="cpu", precision="fp32")
    policy = load_policy(resolved, trainer.state_dict())
    trainer.close()
    if resolved.game.kind == "atari":  # a beginner's whole episodes take minutes: see the next test
        return
    (episode,) = evaluate(policy, resolved, 0, 1, True)
    assert episode.length > 0 and np.isfinite(episode.return_)


def after_one_epoch(algorithm: str, game: str) -> tuple[Resolved, Any]:
    """A training whose statistics of observations are no longer those of its start."""
    resolved = short(algorithm, game)
    if find_algorithm(algorithm).has_actors:
        learner = make_learner(resolved, run=1, device="cpu", precision="fp32")
        learn(learner, resolved, 1, 1, KeptStreams())
        return resolved, learner
    trainer = make_trainer(resolved, run=0, device="cpu", precision="fp32")
    next(epochs_of(trainer))
    trainer.close()
    return resolved, trainer


@pytest.mark.parametrize("pair", ONE_OF_EACH, ids=" on ".join)
def test_the_policy_of_a_snapshot_acts_as_that_of_the_checkpoint(pair: tuple[str, str]) -> None:
    resolved, trainer = after_one_epoch(*pair)
    whole, part = trainer.state_dict(), policy_state(trainer)
    seeds = np.random.default_rng(0)
    policies = [load_policy(resolved, state) for state in (whole, part)]
    shape = (3, *policies[0].spaces.environment_shape)
    observations = seeds.normal(size=shape).astype(np.float32)
    if policies[0].spaces.image:
        observations = seeds.integers(0, 256, shape).astype(np.uint8)
    taken = []
    for policy in policies:
        policy.seed(range(3))
        acting = Acting(policy, 3)
        taken.append([acting.act(observations, sample=sample) for sample in (False, True)])
    np.testing.assert_array_equal(taken[0], taken[1])
    if pair[0] in ALGORITHMS:
        assert len(flat(part)) < len(flat(whole)), "not the whole training"


@pytest.mark.slow
def test_atari_film_shows_the_evaluated_episode() -> None:
    resolved = short("ppo", "breakout")
    trainer = make_trainer(resolved, run=0, device="cpu", precision="fp32")
    policy = load_policy(resolved, trainer.state_dict())
    trainer.close()
    (episode,) = evaluate(policy, resolved, 0, 1, True)
    frames = list(Replay(resolved, episode.seed, episode.actions).frames())
    assert episode.return_ == int(episode.return_) >= 0
    assert 2 * episode.length - 1 <= len(frames) <= 2 * episode.length + 1
    assert frames[0].shape == (420, 320, 3) and frames[0].dtype == np.uint8
    assert len({frame.tobytes() for frame in frames}) > episode.length / 2


class Until(LocalLink):
    """To a learner that is there until it has gone."""

    def __init__(self, receiver: Receiver, gone: threading.Event) -> None:
        super().__init__(receiver)
        self.gone = gone

    def send(self, unrolls: Unrolls) -> list[Ack]:
        if self.gone.is_set():
            raise Unreachable
        return super().send(unrolls)


def act(actor: Actor) -> None:
    with contextlib.closing(actor), contextlib.suppress(Unreachable):
        for _ in actor.act():
            pass


def learn(
    learner: Learner, resolved: Resolved, generation: int, epochs: int, kept: KeptStreams
) -> list[Progress]:
    """So many epochs, with two actors; what grows is kept as the steps keep it."""
    receiver, gone = learner.receiver(generation), threading.Event()
    threads = list[threading.Thread]()
    for member in (0, 1):
        actor = make_actor(resolved, run=1, member=member, link=Until(receiver, gone))
        threads.append(threading.Thread(target=act, args=(actor,)))
        threads[-1].start()
    rows = list[Progress]()
    for progress in itertools.islice(filter(None, learner.train()), epochs):
        kept.take(learner)
        rows.append(progress)
    gone.set()
    learner.close()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return rows


@pytest.mark.parametrize("pair", WITH_ACTORS, ids=" on ".join)
def test_a_training_with_actors_goes_on_where_it_was(pair: tuple[str, str], tmp_path: Path) -> None:
    """No two are equal; but nothing that is counted goes back."""
    resolved = short(*pair)
    first, second = (
        make_learner(resolved, run=1, device="cpu", precision="fp32") for _ in range(2)
    )
    kept = KeptStreams()
    rows = learn(first, resolved, 1, 3, kept)
    save(tmp_path, first.state_dict())
    second.load_state_dict(load(tmp_path))
    kept.give(second)
    assert (second.epoch, second.step) == (3, rows[-1].step)
    rows += learn(second, resolved, 2, 2, kept)
    assert [one.epoch for one in rows] == [1, 2, 3, 4, 5]
    planned = [resolved.warm_up_steps + resolved.steps_per_epoch * n for n in range(1, 6)]
    steps = [one.step for one in rows]
    assert steps == sorted(set(steps))
    assert all(step <= most for step, most in zip(steps, planned, strict=True))
    assert all(one.metrics.keys() == rows[0].metrics.keys() for one in rows)
    policy = load_policy(resolved, second.state_dict())
    (episode,) = evaluate(policy, resolved, 0, 1, True)
    assert episode.length > 0 and np.isfinite(episode.return_)


@pytest.mark.parametrize(
    "pair", list({pair[0]: pair for pair in WITH_ACTORS}.values()), ids=" on ".join
)
def test_a_training_with_actors_that_has_ended_can_grow(pair: tuple[str, str]) -> None:
    first, second = (
        make_learner(
            short(*pair, anneal_learning_rate="false", epochs=epochs),
            run=1,
            device="cpu",
            precision="fp32",
        )
        for epochs in ("3", "5")
    )
    kept = KeptStreams()
    rows = learn(first, short(*pair, anneal_learning_rate="false", epochs="3"), 1, 4, kept)
    second.load_state_dict(first.state_dict())
    kept.give(second)
    rows += learn(second, short(*pair, anneal_learning_rate="false"), 2, 4, kept)
    assert [one.epoch for one in rows] == [1, 2, 3, 4, 5]


EPISODE_STEPS = 5


def truncated(algorithm: str, game: str) -> Resolved:
    """A training whose episodes are all cut off after EPISODE_STEPS steps."""
    return short(
        algorithm, game, epochs="40", env_options=f"max_episode_steps={EPISODE_STEPS}",
        learning_starts="64", envs_per_actor="2", batch_size="8", epoch_updates="8",
    )  # fmt: skip


@pytest.mark.parametrize(
    "pair", [pair for pair in PAIRS if pair[1] in ("cartpole", "pendulum")], ids=" on ".join
)
def test_a_step_is_a_step_of_an_environment(pair: tuple[str, str]) -> None:
    resolved = truncated(*pair)
    trainer = make_trainer(resolved, run=0, device="cpu", precision="fp32")
    rows = [progress for progress, _ in itertools.islice(epochs_of(trainer), 5)]
    trainer.close()
    ended = sum(sum(one.lengths) for one in rows)
    in_flight = rows[-1].step - ended
    assert 0 <= in_flight < EPISODE_STEPS * resolved.environment.count


def rows_elsewhere(resolved: Resolved) -> float:
    """Number of steps that two actors may have made and the learner does not count yet."""
    hyper = resolved.hyperparameters
    unfinished = 2 * resolved.environment.count * (EPISODE_STEPS + hyper.unroll_length)
    waiting = (WAITING + 1) * hyper.batch_size * hyper.unroll_length
    if resolved.algorithm != "impala":
        waiting = hyper.ratio.slack / hyper.ratio.ratio
    return float(unfinished + waiting)


@pytest.mark.slow
@pytest.mark.parametrize(
    "pair", [pair for pair in WITH_ACTORS if pair[0] in ALGORITHMS], ids=" on ".join
)
def test_a_step_of_an_actor_is_a_step_of_an_environment(pair: tuple[str, str]) -> None:
    """A row more for each episode that is cut off would be a step more in six."""
    resolved = truncated(*pair)
    learner = make_learner(resolved, run=0, device="cpu", precision="fp32")
    rows = learn(learner, resolved, 1, resolved.epochs, KeptStreams())
    assert not learner.counters()["stale"]
    ended = sum(sum(one.lengths) for one in rows)
    elsewhere = rows_elsewhere(resolved)
    assert elsewhere < rows[-1].step / 7
    assert abs(rows[-1].step - ended) <= elsewhere
