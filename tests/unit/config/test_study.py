"""A study's file: its experiments, what overrides what, and a line for everything that is wrong."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.errors import BadInput
from config.measures import ELO, RETURN
from config.resolve import resolve
from config.resolved import Resolved
from config.strict_yaml import dump, load
from config.study import AdaptiveRuns, Baseline, Cell, Study, read_study

EXAMPLE = """\
outdir: results/gae
runs: 5
algorithms: [ppo, a2c, {ppo: {gae_lambda: 1}, label: "PPO, λ = 1"}]
games: [cartpole, acrobot, lunarlander]
parameters: {normalise_rewards: true}          # of all
grid: {learning_rate: [0.0003, 0.001]}
compare: {baseline: ppo, scores: {lunarlander: [-200, 250]}}
"""
WITHOUT_GRID = EXAMPLE.replace("grid: {learning_rate: [0.0003, 0.001]}\n", "")
FULL = """\
outdir: results/full
runs: {group: 3, most: 18, until: decided, error: 0.05}
parallel_experiments: 4
algorithms:
  - ppo
  - {ppo: {clip: 0.1}, label: "PPO (narrow)"}
  - dqn
games:
  - cartpole
  - {CartPole-v1-like: {}}
variants:
  wide: {hidden_sizes: [128, 128]}
  as it is: {}
grid:
  discount: [0.9, 0.99]
  hidden_sizes: [[32], [64, 64], null]
exclude:
  - {algorithm: dqn, discount: 0.9}
  - {label: "ppo, wide", hidden_sizes: [32]}
compare: {baseline: "ppo, as it is"}
""".replace("{CartPole-v1-like: {}}", "{minatar-breakout: {evaluation_episodes: 50}}")
SHORT = "outdir: out\nruns: 3\nalgorithms: [ppo, dqn]\ngames: [cartpole]\n"


def study(text: str, **over: str) -> Study:
    return read_study(text, "study.yaml", over)


def cell(found: Study, name: str) -> Cell:
    return next(one for one in found.cells if one.name == name)


def test_the_example_without_its_grid_has_nine_experiments() -> None:
    found = study(WITHOUT_GRID)
    assert [one.name for one in found.cells] == [
        "ppo-cartpole", "ppo-acrobot", "ppo-lunarlander",
        "a2c-cartpole", "a2c-acrobot", "a2c-lunarlander",
        "ppo-1-cartpole", "ppo-1-acrobot", "ppo-1-lunarlander",
    ]  # fmt: skip
    assert found.outdir == "results/gae"
    assert found.runs == 5
    assert found.baseline == Baseline(label="ppo")
    assert found.parallel_experiments is None
    assert found.cells[7] == Cell(
        name="ppo-1-acrobot",
        label="PPO, λ = 1",
        algorithm="ppo",
        game="acrobot",
        given={"game": "acrobot", "runs": "5", "normalise_rewards": "true", "gae_lambda": "1"},
        settings={},
    )


def test_the_example_has_eighteen_experiments() -> None:
    found = study(EXAMPLE)
    assert [one.name for one in found.cells] == [
        f"{label}-{game}-{value}"
        for label in ("ppo", "a2c", "ppo-1")
        for game in ("cartpole", "acrobot", "lunarlander")
        for value in ("0p0003", "0p001")
    ]
    one = cell(found, "a2c-lunarlander-0p0003")
    assert one.settings == {"learning_rate": "0.0003"}
    assert one.given["learning_rate"] == "0.0003"


def test_a_baseline_may_be_one_experiment() -> None:
    """By the name of its directory; it stands for its label and its values on every game."""
    found = study(EXAMPLE.replace("baseline: ppo,", "baseline: ppo-acrobot-0p001,"))
    baseline = found.baseline
    assert baseline is not None and str(baseline) == "ppo-acrobot-0p001"
    fitting = [one.name for one in found.cells if baseline.fits(one.label, one.settings)]
    assert fitting == ["ppo-cartpole-0p001", "ppo-acrobot-0p001", "ppo-lunarlander-0p001"]
    assert read_study(dump(found.document), "again") == found
    of_label = study(EXAMPLE).baseline
    assert of_label is not None
    assert sum(of_label.fits(one.label, one.settings) for one in found.cells) == 6


def test_the_only_label_may_be_compared_with_one_of_its_settings() -> None:
    text = EXAMPLE.replace(', a2c, {ppo: {gae_lambda: 1}, label: "PPO, λ = 1"}', "")
    text = text.replace("runs: 5", "runs: {group: 3, most: 9}")
    with pytest.raises(BadInput, match="need a second label"):
        study(text)
    assert study(text.replace("baseline: ppo", "baseline: ppo-acrobot-0p001")).baseline


def test_an_experiment_is_what_the_same_parameters_make_of_it_alone() -> None:
    one = cell(study(EXAMPLE), "ppo-1-lunarlander-0p001")
    alone = resolve(
        "ppo",
        {
            "game": "lunarlander",
            "runs": "5",
            "normalise_rewards": "true",
            "gae_lambda": "1.0",
            "learning_rate": "1e-3",
        },
    )
    assert resolve(one.algorithm, one.given) == alone


LEVELS = {
    "presets": ("", {}, None),
    "parameters": ("parameters: {discount: 0.91}\n", {}, "0.91"),
    "the game's own": ("games: [{cartpole: {discount: 0.92}}]\n", {}, "0.92"),
    "the algorithm's own": ("algorithms: [{ppo: {discount: 0.93}}]\n", {}, "0.93"),
    "variants": ("variants: {v: {discount: 0.94}}\n", {}, "0.94"),
    "-p": ("", {"discount": "0.95"}, "0.95"),
}


@pytest.mark.parametrize("last", range(len(LEVELS)))
def test_precedence(last: int) -> None:
    """All levels up to one of them: that one decides."""
    lines = {"algorithms": "algorithms: [ppo]\n", "games": "games: [cartpole]\n"}
    over: dict[str, str] = {}
    expected = None
    for text, given_texts, expected in list(LEVELS.values())[: last + 1]:  # noqa: B007
        over |= given_texts
        if text:
            lines[text.partition(":")[0]] = text
    found = study("outdir: x\nruns: 1\n" + "".join(lines.values()), **over)
    assert [one.given.get("discount") for one in found.cells] == [expected]


def test_the_grid_decides_over_variants() -> None:
    found = study(SHORT + "variants: {v: {discount: 0.94}}\ngrid: {discount: [0.95, 0.96]}")
    assert [one.given["discount"] for one in found.cells] == ["0.95", "0.96"] * 2


def test_an_empty_value_is_the_preset_s() -> None:
    text = SHORT + "parameters: {discount: 0.9}\nvariants: {a: {}, b: {discount: }}"
    values = [one.given["discount"] for one in study(text).cells]
    assert values == ["0.9", "", "0.9", ""]


def test_what_is_given_holds_for_all_and_replaces_the_study_s_own() -> None:
    found = study(EXAMPLE, outdir="elsewhere", runs="2", gae_lambda="0.5", seed="7")
    assert (found.outdir, found.runs) == ("elsewhere", 2)
    for one in found.cells:
        assert one.given | {"runs": "2", "gae_lambda": "0.5", "seed": "7"} == one.given


def test_an_empty_value_of_the_command_line_means_the_file_s() -> None:
    assert study(EXAMPLE, outdir="", runs="", gae_lambda="", seed="") == study(EXAMPLE)


def test_outdir_and_runs_may_be_given_by_the_command_line_alone() -> None:
    text = "algorithms: [ppo]\ngames: [cartpole]"
    assert study(text, outdir="out", runs="4").runs == 4


@pytest.mark.parametrize(
    ("over", "reason"),
    [
        ({"game": "pong"}, "the study's games are listed under 'games'"),
        ({"learning_rate": "1"}, "'learning_rate' is an axis of the study's grid"),
        ({"lerning_rate": ""}, "did you mean 'learning_rate'"),
        ({"runs": "0"}, "parameter 'runs' cannot be '0'"),
        ({"outdir": "../x"}, "parameter 'outdir' cannot be '../x'"),
        ({"epochs": "0"}, "parameter 'epochs' cannot be '0'"),
    ],
)
def test_wrong_values_of_the_command_line(over: dict[str, str], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        study(EXAMPLE, **over)


def test_the_command_line_gives_what_all_algorithms_have() -> None:
    with pytest.raises(BadInput, match=r"^parameter 'clip' is unknown to dqn; allowed here"):
        study(SHORT, clip="0.1")


def test_variants_append_their_label_and_exclusions_leave_cells_out() -> None:
    found = study(FULL)
    labels = list(dict.fromkeys(one.label for one in found.cells))
    assert labels == [
        f"{label}, {variant}"
        for label in ("ppo", "PPO (narrow)", "dqn")
        for variant in ("wide", "as it is")
    ]
    # 3 labels × 2 variants × 2 games × 6 points, without half of dqn's and 4 of the first label's.
    assert len(found.cells) == 72 - 12 - 4
    assert found.runs == AdaptiveRuns(group=3, most=18, error=0.05)
    assert found.cells[0].given["runs"] == "3"
    one = cell(found, "ppo-narrow-wide-minatar-breakout-0p9-64x64")
    assert one.given["clip"] == "0.1"
    assert one.given["evaluation_episodes"] == "50"
    assert one.settings == {"discount": "0.9", "hidden_sizes": "64,64"}
    assert cell(found, "dqn-as-it-is-cartpole-0p99-preset").given["hidden_sizes"] == ""


def test_a_variant_may_be_for_some_algorithms_if_the_others_are_excluded() -> None:
    text = SHORT + "variants: {a: {}, b: {clip: 0.1}}\n"
    with pytest.raises(BadInput, match="line 5: parameter 'clip' is unknown to dqn"):
        study(text)
    found = study(text + 'exclude: [{label: "dqn, b"}]')
    assert [one.name for one in found.cells] == [
        "ppo-a-cartpole", "ppo-b-cartpole", "dqn-a-cartpole",
    ]  # fmt: skip


def test_a_game_has_its_short_name_however_it_is_written() -> None:
    text = SHORT.replace("cartpole", "CartPole-v1") + "compare: {scores: {CartPole-v1: [9, 500]}}"
    found = study(text)
    assert found.cells[0].game == found.cells[0].given["game"] == "cartpole"
    assert found.scores == {"cartpole": (9, 500)}


def test_given_ranges_of_scores_replace_known_ones() -> None:
    text = EXAMPLE.replace("{lunarlander: [-200, 250]}", "{cartpole: [20, 500]}")
    scores = study(text).scores
    assert scores["cartpole"] == (20, 500)
    assert scores["acrobot"] == (-500, -100)
    assert study(SHORT.replace("cartpole", "minatar-freeway")).scores == {}
    board = "outdir: x\nruns: 1\nalgorithms: [alphazero]\ngames: [connect-four]"
    assert study(board).scores == {"connect-four": (0, 100)}


def test_experiments_of_a_game_have_one_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    measure = property(lambda self: RETURN if self.algorithm == "ppo" else ELO)
    monkeypatch.setattr(Resolved, "measure", measure)
    with pytest.raises(BadInput, match=r"line 4: .*ppo by the return, dqn by the Elo rating"):
        study(SHORT)


@pytest.mark.parametrize("text", [EXAMPLE, WITHOUT_GRID, FULL, SHORT])
@pytest.mark.parametrize("over", [{}, {"runs": "4", "discount": "0.5"}, {"seed": "3"}])
def test_the_document_is_the_same_study(text: str, over: dict[str, str]) -> None:
    if "discount:" in text:
        over = {name: value for name, value in over.items() if name != "discount"}
    found = study(text, **over)
    assert read_study(dump(found.document), "again") == found


@pytest.mark.slow
def test_ten_thousand_cells_are_read_in_seconds_and_one_more_is_refused_at_once() -> None:
    values = ", ".join(str(number / 10**6) for number in range(1, 5001))
    text = f"{SHORT}grid: {{learning_rate: [{values}]}}"
    start = time.process_time()
    assert len(study(text).cells) == 10_000
    assert time.process_time() - start < 20
    games = text.replace("[cartpole]", "[cartpole, not-even-a-game]")
    start = time.process_time()
    with pytest.raises(BadInput, match=r"line 5: the study has 20000 cells .* allowed: 10000"):
        study(games)
    assert time.process_time() - start < 10


def replaced(old: str, new: str, text: str = EXAMPLE) -> str:
    assert old in text
    return text.replace(old, new)


WRONG = {
    "nothing": ("", "the study: a mapping is expected, this is empty"),
    "no mapping": ("[ppo]", "line 1: the study: a mapping is expected, this is a list"),
    "no YAML": ("outdir: [", "line 1"),
    "a missing key": ("outdir: x", "the study has no runs and no algorithms and no games"),
    "an unknown key": (replaced("games:", "game:"), "line 4: unknown key .* 'games'"),
    "a key twice": (EXAMPLE + "runs: 3", "line 8: key 'runs' stands twice"),
    "a template": (replaced("results/gae", "'{{x}}'"), "line 1: '{{' is not allowed"),
    "a variable": (EXAMPLE + "# $(HOME)", r"line 8: '\$\(' is not allowed"),
    "two dollars": (EXAMPLE + "# $$", r"line 8: '\$\$' is not allowed"),
    "a hidden template": (replaced("PPO, λ", r"\x7b\x7bλ"), "line 3: label cannot be"),
    "too large": (EXAMPLE + "#" * 2**16, "allowed: 65536"),
    "an escaping outdir": (replaced("results/", "../"), "line 1: parameter 'outdir' cannot be"),
    "an outdir that is a number": (replaced("results/gae", "3"), "line 1: outdir cannot be 3"),
    "no runs": (replaced("runs: 5", "runs: 0"), "line 2: .* an integer from 1 to 256"),
    "runs of text": (replaced("runs: 5", "runs: many"), "line 2: parameter 'runs' cannot be"),
    "no algorithm": (
        "outdir: x\nruns: 1\nalgorithms: []\ngames: [pong]",
        "line 3: algorithms: an empty list",
    ),
    "no list": (replaced("[cartpole, acrobot, lunarlander]", "pong"), "line 4: games: a list is"),
    "an unknown algorithm": (replaced("a2c", "pppo"), "line 3: unknown algorithm 'pppo'.*'ppo'"),
    "an algorithm that is a number": (replaced("a2c", "2"), "line 3: an algorithm cannot be 2"),
    "two names in one entry": (
        replaced("{ppo: {gae_lambda: 1}, label", "{ppo: {gae_lambda: 1}, a2c: {}, label"),
        "line 3: an algorithm has 2 names; allowed: one",
    ),
    "an algorithm twice": (replaced("a2c", "ppo"), "line 3: label 'ppo' stands twice"),
    "a long label": (replaced("λ = 1", "λ" * 70), "line 3: label cannot be .* 60 printable"),
    "a control character": (replaced("λ = 1", r"\x07"), "line 3: label cannot be"),
    "a label of other letters": (replaced("PPO, λ = 1", "λ"), "line 3: .* at least one of a-z"),
    "a label of two lines": (replaced("λ = 1", r"\n"), "line 3: label cannot be"),
    "a label with a variant's": (
        replaced("λ = 1", "λ" * 50) + "variants: {with another name: {}}",
        "line 3: label cannot be .* 60 printable",
    ),
    "equal directories": (
        replaced("PPO, λ = 1", "A2C!"),
        "'a2c' on cartpole.* and 'A2C!' on cartpole.* would have the same directory, a2c-cartpole",
    ),
    "an unknown game": (replaced("acrobot", "akrobot"), "line 4: unknown game 'akrobot'.*'acrobot'"),
    "a game twice": (replaced("acrobot", "CartPole-v1"), "line 4: game 'CartPole-v1' stands twice"),
    "a game that is not played": (
        "outdir: x\nruns: 1\nalgorithms: [ppo, dqn]\ngames:\n  - cartpole\n  - pendulum",
        "line 6: cell 'dqn-pendulum': dqn cannot play pendulum",
    ),
    "an unknown parameter": (
        replaced("normalise_rewards", "normalize_reward"),
        "line 5: unknown parameter 'normalize_reward'; did you mean 'normalise_rewards'",
    ),
    "another library's name": (replaced("gae_lambda", "lambda"), "line 3: .* 'gae_lambda'"),
    "a parameter of some": (
        SHORT + "parameters:\n  discount: 0.9\n  clip: 0.2",
        "line 7: parameter 'clip' is unknown to dqn; allowed here: parameters that all have",
    ),
    "an axis of some": (
        SHORT + "grid: {clip: [0.1, 0.2]}",
        "line 5: parameter 'clip' is unknown to dqn",
    ),
    "a game's parameter of some": (
        SHORT.replace("cartpole", "cartpole: {clip: 0.2}"),
        "line 4: parameter 'clip' is unknown to dqn",
    ),
    "a value out of range": (
        replaced("0.001]", "-1]"),
        "line 6: parameter 'learning_rate' cannot be -1",
    ),
    "values that do not go together": (
        replaced("normalise_rewards: true", "video_episodes: 9, evaluation_episodes: 2"),
        "line 5: cell 'ppo-cartpole-0p0003': parameter 'video_episodes' cannot be 9",
    ),
    "runs of an algorithm": (
        replaced("gae_lambda: 1", "runs: 1"),
        "line 3: parameter 'runs' cannot be given to experiments",
    ),
    "games of all": (
        replaced("normalise_rewards: true", "game: pong"),
        "line 5: parameter 'game' .* listed under 'games'",
    ),
    "a claim of all": (
        replaced("normalise_rewards: true", "claim: x"),
        "line 5: parameter 'claim' .* which -p claim=… names",
    ),
    "a directory of all": (replaced("normalise_rewards: true", "outdir: x"), "line 5: .*'outdir'"),
    "a seed of an algorithm": (replaced("gae_lambda", "seed"), "line 3: parameter 'seed' is the"),
    "seeds in the grid": (
        replaced("learning_rate: [0.0003, 0.001]", "seed: [1, 2]"),
        "line 6: parameter 'seed' is the same for all",
    ),
    "two lengths": (
        replaced("normalise_rewards: true", "epochs: 3, steps: 1e5"),
        "line 5: parameters: 'epochs' and 'steps' stand together",
    ),
    "two lengths in two places": (
        replaced("gae_lambda: 1", "epochs: 3").replace("normalise_rewards: true", "steps: 1e5"),
        "line [35]: cell 'ppo-1-cartpole-0p0003': parameters 'epochs' and 'steps' cannot be",
    ),
    "an empty grid": (replaced("{learning_rate: [0.0003, 0.001]}", "{}"), "line 6: grid: an empty"),
    "an empty axis": (replaced("[0.0003, 0.001]", "[]"), "line 6: grid 'learning_rate': an empty"),
    "an axis that is no list": (replaced("[0.0003, 0.001]", "1"), "line 6: grid .*: a list is"),
    "a value twice": (replaced("0.0003, 0.001", "0.001, 1e-3"), "line 6: .*'0.001' stands twice"),
    "an empty section": (EXAMPLE + "variants:", "line 8: variants: a mapping is expected"),
    "a variant of text": (EXAMPLE + "variants: {a: b}", "line 8: variant 'a': a mapping is"),
    "an exclusion of nothing": (EXAMPLE + "exclude: [{}]", "line 8: exclude: an empty mapping"),
    "an exclusion that matches none": (
        EXAMPLE + "exclude:\n  - {algorithm: a2c}\n  - {algorithm: a2c, label: ppo}",
        "line 10: exclude: no cell has {'algorithm': 'a2c', 'label': 'ppo'}",
    ),
    "an exclusion of all": (
        EXAMPLE + "exclude: [{algorithm: a2c}, {algorithm: ppo}]",
        "line 8: exclude: no cell is left",
    ),
    "an unknown exclusion": (EXAMPLE + "exclude: [{games: pong}]", "line 8: .*'game'"),
    "an excluded game of others": (EXAMPLE + "exclude: [{game: pong}]", "line 8: .*game.*'pong'"),
    "an excluded value of no axis": (
        EXAMPLE + "exclude: [{learning_rate: 0.5}]",
        "line 8: exclude: learning_rate cannot be '0.5'; allowed: 0.0003, 0.001",
    ),
    "an unknown baseline": (replaced("baseline: ppo", "baseline: pppo"), "line 7: .*'ppo'"),
    "an unknown experiment as baseline": (
        replaced("baseline: ppo", "baseline: ppo-acrobot-0p01"),
        "line 7: unknown label or experiment of a baseline 'ppo-acrobot-0p01'; did you mean "
        "'ppo-acrobot-0p001'",
    ),
    "an excluded baseline": (
        EXAMPLE + "exclude: [{label: ppo}]",
        "line 7: unknown label or experiment of a baseline 'ppo'",
    ),
    "scores of another game": (
        replaced("{lunarlander: [", "{lunarlandr: ["),
        "line 7: unknown game of the study in scores 'lunarlandr'; did you mean 'lunarlander'",
    ),
    "equal scores": (replaced("[-200, 250]", "[250, 250.0]"), "line 7: .* are equal"),
    "scores that are no numbers": (replaced("-200", ".nan"), "line 7: .* cannot be '.nan'"),
    "one score": (replaced("-200, 250", "250"), "line 7: scores of lunarlander: 1 numbers"),
    "a large score": (replaced("250]", "1e300]"), "line 7: scores of lunarlander cannot be"),
    "groups of one": (replaced("runs: 5", "runs: {group: 1, most: 4}"), "line 2: .*'group' cannot"),
    "no most": (replaced("runs: 5", "runs: {group: 3}"), "line 2: runs: most missing"),
    "half a group": (
        replaced("runs: 5", "runs: {group: 3, most: 10}"),
        "line 2: runs: most cannot be 10; allowed: a multiple of group, 3",
    ),
    "no error": (
        replaced("runs: 5", "runs: {group: 3, most: 9, error: 0}"),
        "line 2: runs: error cannot be 0.0",
    ),
    "until when": (
        replaced("runs: 5", "runs: {group: 3, most: 9, until: sunday}"),
        "line 2: runs: until cannot be 'sunday'; allowed: decided",
    ),
    "undecidable": (
        replaced("runs: 5", "runs: {group: 3, most: 9}").replace("baseline: ppo, ", ""),
        "line 2: runs until decided need 'compare: {baseline: …}'",
    ),
    "nothing to decide": (
        replaced("runs: 3", "runs: {group: 3, most: 9}", SHORT).replace(", dqn", "")
        + "compare: {baseline: ppo}",
        "line 2: runs until decided need a second label",
    ),
    "no experiment at once": (
        EXAMPLE + "parallel_experiments: 0",
        "line 8: parameter 'parallel_experiments' cannot be 0",
    ),
    "quotes": (replaced("gae_lambda: 1", "network: a'b\"c"), "line 3: parameter 'network'"),
    "too many cells": (
        EXAMPLE + "variants: {" + ", ".join(f"v{number}: {{}}" for number in range(600)) + "}",
        "line 6: the study has 10800 cells",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_in_one_line(name: str) -> None:
    text, reason = WRONG[name]
    with pytest.raises(BadInput, match=reason) as refusal:
        study(text)
    message = str(refusal.value)
    assert message.startswith("study.yaml: ")
    assert message.isprintable()


def places(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values below the root."""
    if not isinstance(document, dict | list):
        return [path]
    keys = document if isinstance(document, dict) else range(len(document))
    return [path] * bool(path) + [
        one for key in keys for one in places(document[key], (*path, key))
    ]


WORDS = (
    "ppo", "a2c", "dqn", "sac", "impala", "alphazero", "cartpole", "pendulum", "pong", "connect-four",
    "label", "algorithm", "game", "runs", "seed", "steps", "epochs", "discount", "learning_rate",
    "hidden_sizes", "clip", "gpus", "device", "", "x", "λ", "../x", "1e9", "64,64", "true", "decided",
)  # fmt: skip
SCALARS = (
    st.none() | st.booleans() | st.integers(-3, 300) | st.floats(-1e9, 1e9) | st.sampled_from(WORDS)
)
JUNK = st.recursive(
    SCALARS | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(WORDS), inner, max_size=3)
        | st.dictionaries(st.sampled_from(WORDS), SCALARS, min_size=1, max_size=1)
    ),
    max_leaves=6,
)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A sound study in which a few values are replaced or removed."""
    document = copy.deepcopy(load(draw(st.sampled_from((EXAMPLE, FULL, SHORT))), "sound"))
    for _ in range(draw(st.integers(1, 3))):
        *path, last = draw(st.sampled_from(places(document)))
        holder = document
        for key in path:
            holder = holder[key]
        if draw(st.booleans()) and len(holder) > 1:
            del holder[last]
        elif path and isinstance(holder, dict) and draw(st.booleans()):
            holder[draw(st.sampled_from(WORDS))] = draw(JUNK)
        else:
            holder[last] = draw(JUNK)
    return dump(document)


@given(mutated())
def test_a_mutated_study_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        found = study(text)
    except BadInput as refusal:
        assert str(refusal).isprintable()
    else:
        assert found.cells
        assert len({one.name for one in found.cells}) == len(found.cells)
        assert read_study(dump(found.document), "again") == found


@settings(max_examples=50)
@given(st.integers(0, len(FULL)), st.integers(0, 9), st.text(max_size=3))
def test_a_mutated_text_is_read_or_refused_in_one_line(at: int, gone: int, new: str) -> None:
    try:
        study(FULL[:at] + new + FULL[at + gone :])
    except BadInput as refusal:
        assert str(refusal).isprintable()
