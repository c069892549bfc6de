"""`--presets FILE` of `workflows.submit`: a person's own presets become parameters when they are
submitted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from config.resolve import resolve
from workflows import submit

FILE = """
ppo:
  steps: 20000
  num_envs: 4
  rollout_length: 64
  minibatches: 2
  learning_rate: 0.5e-3
  normalise_rewards: true
  hidden_sizes: [32, 16]
  env_options: max_episode_steps=99
my_lab.ddqn:ALGORITHM: {whatever: 3}
"""


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ARGO_SERVER", raising=False)


def submission(*given: str, text: str = FILE) -> submit.Submission:
    Path("mine.yaml").write_text(text)
    parameters = [part for one in given for part in ("-p", one)]
    options = submit.parse(["ppo", "--presets", "mine.yaml", *parameters])
    return submit._checked(options, submit.load_cluster(None), local=True)


def arguments(found: submit.Submission) -> dict[str, str]:
    entries = found.manifest["spec"]["arguments"]["parameters"]
    return {one["name"]: one["value"] for one in entries if "value" in one}


def test_the_pods_are_given_what_the_file_says() -> None:
    found = submission("game=cartpole", "num_envs=8", "learning_rate=")
    expected = {
        "num_envs": "8", "rollout_length": "64", "minibatches": "2", "learning_rate": "0.0005",
        "normalise_rewards": "true", "hidden_sizes": "32,16", "env_options": "max_episode_steps=99",
        "steps": "20000",
    }  # fmt: skip
    assert arguments(found).items() >= expected.items()
    again = resolve("ppo", {**arguments(found), "outdir": found.resolved.experiment.outdir})
    assert again.identity_hash == found.resolved.identity_hash
    assert (again.epochs, found.resolved.environment.options) == (40, {"max_episode_steps": 99})


def test_the_length_that_is_given_wins_over_the_file_s_steps() -> None:
    for given, (epochs, steps) in {"epochs=7": ("7", ""), "steps=5e3": ("", "5e3")}.items():
        found = arguments(submission(given))
        assert (found["epochs"], found["steps"]) == (epochs, steps)
    whole = submission(text="ppo: {steps: 1.6e4, num_envs: 8, rollout_length: 64, minibatches: 2}")
    assert (arguments(whole)["steps"], whole.resolved.epochs) == ("16000", 32)


def test_dry_run_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    submission()
    assert submit.main(["ppo", "--presets", "mine.yaml", "-p", "num_envs=8", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    names = "rollout_length, minibatches, learning_rate, normalise_rewards, hidden_sizes"
    assert re.search(rf"^presets +mine.yaml: steps, {names}, env_options$", shown, re.MULTILINE)
    assert re.search(r"^  \* env_options +max_episode_steps=99$", shown, re.MULTILINE)
    assert re.search(r"^    epochs +40$", shown, re.MULTILINE)
    assert re.search(r"^  \* steps +20480$", shown, re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ppo: {clipp: 0.2}", "unknown parameter in a preset 'clipp'; did you mean 'clip'?"),
        (
            "ppo: {n_timesteps: 1e6}",
            "unknown parameter in a preset 'n_timesteps'; did you mean 'steps', which counts",
        ),
        ("ppo: {clip: 7}", "parameter 'clip' cannot be 7; allowed: a number from 0.001 to 1"),
        (
            "ppo: {env_options: map}",
            "parameter 'env_options' cannot be 'map': 'map' is no name=val",
        ),
        ("ppo: {steps: 0}", "parameter 'steps' cannot be 0"),
        ("ppo: {game: pong}", "unknown parameter in a preset 'game'"),
        ("dqn: {clip: 0.2}", "no section 'ppo' of names and values; sections: dqn"),
        ("ppo: 3", "no section 'ppo' of names and values; sections: ppo"),
        (
            "game: {id: CartPole-v1}\nppo: {}",
            "a section 'game' is not allowed; the game is given by",
        ),
        ("[1]", "a mapping is expected"),
    ],
)
def test_a_mistake_names_the_file_and_the_parameter(
    text: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.yaml").write_text(text)
    assert submit.main(["ppo", "--presets", "mine.yaml"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"refused: mine.yaml: {reason}") and said.count("\n") == 1
    assert [path.name for path in Path().iterdir()] == ["mine.yaml"]


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert submit.main(["ppo", "--presets", "none.yaml"]) == 2
    assert capsys.readouterr().err.startswith("refused: cannot read none.yaml: No such file")
