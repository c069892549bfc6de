"""The search of a study's file: ranges, rungs and lanes, and a line for everything that is wrong."""

from __future__ import annotations

import math

import pytest

from config.algorithms import find_algorithm
from config.errors import BadInput
from config.presets import preset_parameters
from config.resolve import resolve
from config.strict_yaml import dump
from config.study import Search, Study, read_study
from config.study.search import MOST_TURNS, trial_name, trial_number

EXAMPLE = """\
outdir: results/search
runs: 2
algorithms: [ppo]
games: [cartpole]
parameters: {learning_rate: 1e-5, epochs: 100}
search:
  parameters: {learning_rate: {low: 1e-5, high: 1e-2, scale: log}, gae_lambda: {low: 0.8, high: 1.0}, hidden_sizes: {choices: ["64,64", "256,256"]}}
  sampler: tpe
  trials: 40
  parallel: 4
  objective: {measure: evaluation, over_runs: iqm}
  prune: {rungs: [0.1, 0.3, 1.0], reduction: 3}
  then: {best: 1, runs: 5, seed: 1000}
"""
ALPHAZERO = """\
outdir: results/search
runs: 2
algorithms: [alphazero]
games: [tic-tac-toe]
search:
  parameters: {learning_rate: {low: 1e-5, high: 1e-2, scale: log}}
  trials: 4
"""


def read(text: str, **given: str) -> Study:
    return read_study(text, "study.yaml", given)


def search(text: str) -> Search:
    found = read(text).search
    assert found is not None
    return found


def test_the_example() -> None:
    found = search(EXAMPLE)
    rate, lam, sizes = found.parameters.values()
    assert (rate.low, rate.high, rate.is_log) == (1e-5, 1e-2, True)
    assert (lam.low, lam.high, lam.is_log) == (0.8, 1.0, False)
    assert sizes.choices == ("64,64", "256,256")
    assert found.rung_epochs(100) == [10, 30, 100]
    assert (found.trials, found.parallel, found.then.runs) == (40, 4, 5)


def test_what_was_understood_reads_as_the_same() -> None:
    study = read(EXAMPLE)
    again = read(dump(study.document))
    assert (again.search, again.document) == (study.search, study.document)


def test_a_trial_is_an_experiment_that_its_parameters_resolve() -> None:
    """Every end of every range does, and nothing is drawn or filmed."""
    study = read(EXAMPLE)
    found = search(EXAMPLE)
    cell = found.trial(study.cells[0], 7, {"learning_rate": 1e-5 / 3, "hidden_sizes": "256,256"})
    resolved = resolve(cell.algorithm, cell.given)
    assert resolved.hyperparameters.learning_rate == 1e-5 / 3
    assert resolved.hyperparameters.hidden_sizes == (256, 256)
    assert resolved.experiment.video_episodes == 0
    assert (cell.name, trial_number(cell.name)) == ("trial-0007", 7)
    drawn = search(f"{EXAMPLE}  plots: true\n").trial(study.cells[0], 7, {})
    assert "video_episodes" not in drawn.given


def test_defaults() -> None:
    """The winner is measured again also where the file says nothing of it."""
    found = search(ALPHAZERO)
    assert (found.sampler, found.parallel, found.prune) == ("tpe", 1, None)
    assert (found.then.best, found.then.runs, found.then.seed) == (1, 5, 1000)
    assert found.rung_epochs(17) == [17]


@pytest.mark.parametrize("share", [1 / 3, 0.1, 0.7])
def test_a_rung_is_no_earlier_than_its_share(share: float) -> None:
    found = search(EXAMPLE.replace("[0.1, 0.3, 1.0]", f"[{share}, 1.0]"))
    assert found.rung_epochs(100)[0] == math.ceil(100 * share - 1e-9)


@pytest.mark.parametrize("epochs", [3, 4, 7, 10, 391])
def test_a_trial_of_another_length_has_different_rungs_too(epochs: int) -> None:
    """A searched parameter may change the number of epochs."""
    found = search(EXAMPLE).rung_epochs(epochs)
    assert found == sorted(set(found)) and len(found) == 3
    assert found[0] >= 1 and found[-1] == epochs


def test_fewer_epochs_than_rungs() -> None:
    with pytest.raises(BadInput, match="a training of 2 epochs has no room for 3 rungs"):
        search(EXAMPLE).rung_epochs(2)


def test_what_can_be_searched_is_what_a_presets_file_can_have() -> None:
    """So the winner's parameters are a presets file."""
    for name in preset_parameters(find_algorithm("ppo")):
        text = EXAMPLE.replace("gae_lambda: {low: 0.8, high: 1.0}", f"{name}: {{}}")
        with pytest.raises(BadInput) as refused:
            read(text)
        assert ("unknown" in str(refused.value)) == (name == "steps"), name


BAD = {
    ("gae_lambda:", "gae_lamda:"): (7, "did you mean 'gae_lambda'?"),
    ("gae_lambda:", "seed:"): (7, "unknown parameter to search 'seed'"),
    ("low: 0.8, high: 1.0", "low: 1.0, high: 0.8"): (7, "low 1 is not below high 0.8"),
    ("low: 0.8, high: 1.0", "low: 0.8, high: 0.8"): (7, "low 0.8 is not below high 0.8"),
    ("low: 0.8, high: 1.0", "low: 0.8, high: 1.5"): (7, "allowed: a number from 0 to 1"),
    ("low: 0.8, high: 1.0", "low: 0.8"): (7, "allowed: {low: …, high: …} or {choices: […]}"),
    ("low: 0.8, high: 1.0", "low: 0, high: 1.0, scale: log"): (7, "low 0 has no logarithm"),
    ("scale: log", "scale: logarithmic"): (
        7,
        "unknown scale of search: learning_rate 'logarithmic'",
    ),
    ('"64,64", "256,256"', '"64,64", "wide"'): (7, "'hidden_sizes' cannot be 'wide'"),
    ('"64,64", "256,256"', '"64,64", "64,64"'): (7, "choice '64,64' stands twice"),
    ('choices: ["64,64", "256,256"]', "low: 1, high: 2"): (7, "hidden_sizes has no range"),
    ("[0.1, 0.3, 1.0]", "[0.3, 0.1, 1.0]"): (12, "rungs [0.3, 0.1, 1.0] do not rise"),
    ("[0.1, 0.3, 1.0]", "[0.1, 0.3]"): (12, "rungs end with 0.3"),
    ("[0.1, 0.3, 1.0]", "[0.001, 0.002, 1.0]"): (12, "are the epochs [1, 1, 100]"),
    ("[0.1, 0.3, 1.0]", "[0, 0.3, 1.0]"): (12, "a rung cannot be 0"),
    ("trials: 40", "trials: 0"): (9, "parameter 'trials' cannot be 0"),
    ("trials: 40", "trials: 400"): (9, "allowed: up to 320 trials, or parallel: 5"),
    ("trials: 40", "trials: 3"): (10, "parallel cannot be 4: there are 3 trials"),
    ("sampler: tpe", "sampler: tpa"): (8, "did you mean 'tpe'?"),
    ("sampler: tpe", "sampler: grid"): (7, "grid cannot vary learning_rate"),
    ("sampler: tpe", "sampler: cmaes"): (8, "cmaes cannot vary choices"),
    ("over_runs: iqm", "over_runs: best"): (11, "unknown over_runs of objective 'best'"),
    ("seed: 1000", "seed: 0"): (13, "then: seed cannot be 0, which the trials have"),
    ("reduction: 3", "reduction: 1"): (12, "'reduction' cannot be 1"),
    ("algorithms: [ppo]", "algorithms: [ppo, dqn]"): (6, "a search in a file of 2 experiments"),
    ("runs: 2", "runs: {group: 2, most: 4}"): (2, "runs"),
    ("search:", "grid: {clip: [0.1]}\nsearch:"): (6, "'grid' cannot stand beside 'search'"),
    ("epochs: 100", "evaluate_above: 100"): (6, "a search with the parameter 'evaluate_above'"),
    ("  trials: 40\n", ""): (6, "the search has no trials"),
    ("sampler: tpe", "samples: tpe"): (8, "unknown key of search 'samples'"),
}


@pytest.mark.parametrize(("change", "expected"), BAD.items(), ids=[new for _, new in BAD])
def test_what_is_wrong_is_said_in_one_line_with_its_place(
    change: tuple[str, str], expected: tuple[int, str]
) -> None:
    before, after = change
    line, said = expected
    assert before in EXAMPLE
    with pytest.raises(BadInput) as refused:
        read(EXAMPLE.replace(before, after))
    message = str(refused.value)
    assert said in message
    assert message.startswith(f"study.yaml: line {line}: ")
    assert "\n" not in message


def test_an_objective_that_the_algorithm_lacks() -> None:
    """Both sides of self-play are the same agent, so its training has no curve of its strength."""
    with pytest.raises(BadInput, match=r"line 8: objective training_area: alphazero is judged by"):
        read(f"{ALPHAZERO}  objective: {{measure: training_area}}\n")
    with pytest.raises(BadInput, match=r"line 8: prune: alphazero .* without prune"):
        read(f"{ALPHAZERO}  prune: {{rungs: [0.5, 1.0]}}\n")


def test_a_value_that_does_not_go_with_the_others_is_found_before_a_trial() -> None:
    text = EXAMPLE.replace("gae_lambda: {low: 0.8, high: 1.0}", "minibatches: {choices: [4, 7]}")
    with pytest.raises(BadInput, match=r"line 7: search: minibatches 7: .*minibatches"):
        read(text)


def test_a_searched_parameter_cannot_be_given_to_all() -> None:
    assert read(EXAMPLE, clip="0.1").search
    with pytest.raises(BadInput, match="'gae_lambda' is searched, so -p cannot set it"):
        read(EXAMPLE, gae_lambda="0.9")


def test_the_names_of_trials() -> None:
    assert trial_number(trial_name(MOST_TURNS)) == MOST_TURNS
    with pytest.raises(BadInput, match="'trial-7' is no trial"):
        trial_number("trial-7")


def test_grids() -> None:
    """A grid has a limited number of points, so it has no more trials than that."""
    changed = EXAMPLE.replace("sampler: tpe", "sampler: grid").replace("trials: 40", "trials: 6")
    ranged = changed.replace("learning_rate: {low: 1e-5, high: 1e-2, scale: log}, ", "")
    stepped = ranged.replace("high: 1.0", "high: 1.0, step: 0.1")
    found = search(stepped)
    assert found.parameters["gae_lambda"].values() == pytest.approx([0.8, 0.9, 1.0])
    with pytest.raises(BadInput, match="the grid has 6 points"):
        read(stepped.replace("trials: 6", "trials: 7"))
