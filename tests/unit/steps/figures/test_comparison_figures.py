"""The figures of a comparison: which are drawn, what they say, and that nothing in them overlaps."""

from __future__ import annotations

import dataclasses

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from config.measures import WIN_RATE
from steps import plot_comparison
from steps.comparison.stored_comparison import write_comparison
from steps.figures import comparison as figures
from steps.figures import curves_per_game, grid_effects, labelled, over_games, scores_per_game
from steps.figures.style import look
from tests import synthetic_comparison
from tests.synthetic_comparison import SIX, TWELVE

THREE = {game: SIX[game] for game in list(SIX)[:3]}
ONE = {"cartpole": SIX["cartpole"]}
GRID = {"learning_rate": ("0.0001", "0.0003", "0.001"), "gae_lambda": ("0.9", "0.95")}


@pytest.fixture(autouse=True)
def _look():
    with look():
        yield


@pytest.fixture(scope="module")
def large():
    return synthetic_comparison.comparison(TWELVE, THREE, runs=5)


@pytest.fixture(scope="module")
def small():
    return synthetic_comparison.comparison(("PPO", "A2C"), ONE, runs=3)


@pytest.fixture(scope="module")
def gridded():
    return synthetic_comparison.comparison(("PPO", "A2C"), THREE, runs=3, policy=True, grid=GRID)


def said(figure: Figure | None) -> str:
    assert figure is not None
    return " ".join(text.get_text() for text in figure.texts).replace("\n", " ")


def drawn(comparison) -> list[str]:
    return [name for name, draw in figures.FIGURES.items() if draw(comparison) is not None]


def test_only_what_has_content_is_drawn(large, small, gridded):
    over_all = ["standings", "aggregates", "profiles", "improvement", "efficiency"]
    curves = ["learning-curves", "learning-curves-hours"]
    assert drawn(large) == curves + over_all
    assert drawn(small) == [*curves, "standings"], "one game: nothing is aggregated"
    assert drawn(gridded) == [*curves, "evaluation-curves", *over_all, "grid", "grid-maps"]
    assert drawn(synthetic_comparison.empty()) == []


def test_games_without_a_range_are_not_aggregated(gridded):
    one = dataclasses.replace(gridded, ranges={"cartpole": (0.0, 500.0)}, shared=("cartpole",))
    assert drawn(one)[3:5] == [
        "standings",
        "grid",
    ]


def test_one_game_and_few_runs_show_no_bootstrap(small):
    for draw in figures.FIGURES.values():
        figure = draw(small)
        if figure is not None:
            assert "bootstrap" not in said(figure)
            assert "IQM" not in said(figure) and "interquartile" not in said(figure)
    curves = curves_per_game.against_steps(small)
    assert curves is not None
    assert not curves.axes[0].collections, "no band"
    assert len(curves.axes[0].lines) == 2 * (3 + 1), "every run and the mean"
    assert "n = 3 of 3 runs of each label" in said(curves)
    assert "t interval" in said(scores_per_game.standings(small))


def test_five_runs_have_a_band_that_the_caption_explains(large):
    figure = curves_per_game.against_steps(large)
    assert figure is not None
    assert [len(axes.collections) for axes in figure.axes] == [12] * 3
    text = said(figure)
    assert "interquartile mean and its 95 % bootstrap interval" in text
    assert "slightly too narrow below ten runs" in text
    assert "Each point is the mean over 1/50 of the steps." in text
    assert figure.get_label() in text, "the files' description is the caption"


def test_points_without_an_interval_say_why(gridded):
    text = said(over_games.aggregates(gridded))
    assert "Points without an interval: 3 runs of a game" in text
    assert "95 % intervals (t)" in text


def test_twelve_labels_are_told_apart():
    marks = labelled.marks([f"label {index}" for index in range(labelled.MOST_TOLD_APART)])
    pairs = {(mark.colour, str(mark.line)) for mark in marks.values()}
    assert len(pairs) == labelled.MOST_TOLD_APART >= 12
    points = {(mark.colour, mark.marker) for mark in marks.values()}
    assert len(points) == len(pairs)


def test_a_label_looks_the_same_in_all_figures(gridded):
    without = dataclasses.replace(
        gridded,
        standings={key: one for key, one in gridded.standings.items() if key[0] != "PPO"},
    )
    figure = curves_per_game.against_steps(without)
    assert figure is not None
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["A2C"]
    assert legend.get_lines()[0].get_color() == labelled.marks(gridded.labels)["A2C"].colour


def _in_view(ticks: list[Text], axis: int, limits: tuple[float, float]) -> list[Text]:
    """matplotlib keeps labels of ticks beyond the axes, which it does not draw."""
    low, high = sorted(limits)
    return [
        tick
        for tick in ticks
        if tick.get_text() and tick.get_visible() and low <= tick.get_position()[axis] <= high
    ]


@pytest.mark.parametrize("name", ["learning-curves", "profiles", "standings", "aggregates"])
def test_no_text_of_twelve_labels_covers_another(large, name):
    figure = figures.FIGURES[name](large)
    assert figure is not None
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw(renderer)
    texts = [*figure.texts]
    for legend in figure.legends:
        texts += legend.get_texts()
    for axes in figure.axes:
        texts += [text for text in (axes.title, axes._left_title) if text.get_text()]
        texts += _in_view(axes.get_xticklabels(), 0, axes.get_xlim())
        texts += _in_view(axes.get_yticklabels(), 1, axes.get_ylim())
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts]
    for index, (label, box) in enumerate(boxes):
        assert box.x0 >= 0 and box.x1 <= figure.bbox.x1, label
        assert box.y0 >= 0 and box.y1 <= figure.bbox.y1, label
        for other, another in boxes[:index]:
            # A pixel of two boxes may touch where no ink does.
            inside = another.padded(-1)
            assert not box.padded(-1).overlaps(inside), (label, other)


def test_labels_are_words_and_no_formulas(large):
    figure = curves_per_game.against_steps(large)
    assert figure is not None
    texts = [text for legend in figure.legends for text in legend.get_texts()]
    assert TWELVE[-1] in [text.get_text() for text in texts]
    assert not any(text.get_parse_math() for text in texts)


def test_a_label_that_begins_with_an_underscore_has_its_place():
    comparison = synthetic_comparison.comparison(("_PPO", "A2C"), ONE, runs=2)
    figure = curves_per_game.against_steps(comparison)
    assert figure is not None
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["_PPO", "A2C"]


@pytest.mark.parametrize(
    "name",
    [
        "standings",
        pytest.param("learning-curves-hours", marks=pytest.mark.slow),
        pytest.param("grid-maps", marks=pytest.mark.slow),
    ],
)
def test_the_same_comparison_gives_the_same_bytes(gridded, name, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "FIGURES", {name: figures.FIGURES[name]})
    first, second = (figures.draw(gridded, tmp_path / folder) for folder in ("a", "b"))
    assert [path.name for path in first] == [f"{name}.{kind}" for kind in ("png", "svg", "pdf")]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_a_figure_without_content_does_not_stay(small, tmp_path, monkeypatch):
    stale = tmp_path / "profiles.svg"
    stale.write_text("of a comparison with more games")
    monkeypatch.setattr(figures, "FIGURES", {"profiles": figures.FIGURES["profiles"]})
    figures.draw(small, tmp_path)
    assert not stale.exists()


def test_what_is_missing_has_an_empty_row_that_says_so():
    comparison = synthetic_comparison.comparison(
        ("PPO", "A2C"), THREE, runs=2, without=[("A2C", "acrobot")]
    )
    figure = scores_per_game.standings(comparison)
    assert figure is not None
    texts = [[text.get_text() for text in axes.texts] for axes in figure.axes]
    assert texts == [[], ["none"], []]
    assert drawn(comparison)[3:] == ["aggregates", "profiles", "improvement", "efficiency"]
    assert "each of 2 games" in said(over_games.aggregates(comparison))


def test_panels_name_their_measure_where_games_differ(gridded):
    mixed = dataclasses.replace(gridded, measures={**gridded.measures, "cartpole": WIN_RATE})
    figure = curves_per_game.against_steps(mixed)
    assert figure is not None
    assert figure.axes[0].get_title(loc="left").startswith("cartpole: win rate")


def test_a_grid_has_a_panel_for_each_parameter(gridded):
    figure = grid_effects.slices(gridded)
    assert figure is not None
    assert [axes.get_title(loc="left") for axes in figure.axes] == list(GRID)
    ticks = [[text.get_text() for text in axes.get_xticklabels()] for axes in figure.axes]
    assert ticks == [list(values) for values in GRID.values()]
    maps = grid_effects.maps(gridded)
    assert maps is not None
    assert [axes.get_title(loc="left") for axes in maps.axes] == ["PPO", "A2C"]
    assert [text.get_text() for text in maps.axes[0].texts].count("×") == 1


def test_the_step_draws_what_was_compared(small, tmp_path, capsys):
    assert plot_comparison.main([f"--outdir={tmp_path}"]) == 2
    assert "comparison.json: compare makes it" in capsys.readouterr().err
    write_comparison(small, tmp_path)
    assert plot_comparison.main([f"--outdir={tmp_path}"]) == 0
    assert len(list((tmp_path / "comparison" / "plots").glob("*.pdf"))) == 3
