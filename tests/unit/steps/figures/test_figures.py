"""The plots: the same bytes from the same numbers, captions that tell the truth, and every number
of runs that can occur."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from config.measures import RETURN
from config.numbers import duration, number, short
from config.resolve import resolve
from steps.figures import averaged_runs, run, style
from steps.figures.style import MOST_POINTS, RUN_COLOURS, look, visible, write
from steps.statistics.curves import curve, equal_parts, mean_of_parts
from steps.statistics.rule import aggregate

HEADING = averaged_runs.Heading(
    title="Training", subtitle="PPO on Nowhere-v0", sample="n = 3 of 4 runs"
)
LINES = {"title": "Run 0: training", "subtitle": "PPO on Nowhere-v0"}


@pytest.fixture(autouse=True)
def _look():
    with look():
        yield


def columns(rows: int = 50, seed: int = 0) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(seed)
    returns = generator.normal(size=rows).cumsum()
    returns[generator.random(rows) < 0.2] = np.nan
    returns[-1] = 1.0
    steps = np.arange(1.0, rows + 1) * 100
    return {
        "epoch": steps,
        "step": steps,
        "episodes": np.ones(rows),
        "return_mean": returns,
        "value_loss": generator.random(rows),
    }


def averaged(runs: int) -> Figure:
    curves = {
        i: curve(one["step"], one["return_mean"]) for i in range(runs) for one in [columns(seed=i)]
    }
    excluded = {runs: curve([100, 200], [0.0, 1.0])}
    figure = averaged_runs.training_curve(
        HEADING, RETURN, curves, excluded, seed=1, frames_per_step=4, solved=None
    )
    assert figure is not None
    return figure


def texts(figure: Figure) -> str:
    legends = [
        text for axes in figure.axes if axes.get_legend() for text in axes.get_legend().get_texts()
    ]
    return " ".join(text.get_text() for text in [*figure.texts, *legends]).replace("\n", " ")


@pytest.mark.parametrize("runs", [1, 2, 4, 5, 9, 10])
def test_the_averaged_curve_says_what_its_band_is(runs, tmp_path):
    figure = averaged(runs)
    said = texts(figure)
    assert "n = 3 of 4 runs" in said
    assert ("no interval" in said) == (runs == 1)
    assert ("t interval of the mean" in said) == (2 <= runs <= 4)
    assert ("bootstrap interval" in said) == (runs >= 5)
    assert ("slightly too narrow" in said) == (5 <= runs <= 9)
    assert ("pointwise" in said) == (runs > 1)
    assert f"not averaged: run {runs}" in said
    assert len(figure.axes[0].collections) == (runs > 1), "a band needs more than one run"
    thin = [line for line in figure.axes[0].lines if line.get_linewidth() < 0.8]
    assert len(thin) == (runs if 2 <= runs <= 9 else 0), "from ten runs on the band alone is drawn"
    write(figure, tmp_path / "training")


def test_the_same_numbers_give_the_same_bytes(tmp_path):
    for name in ("first", "second"):
        write(averaged(3), tmp_path / name)
    for kind in ("png", "svg"):
        assert (tmp_path / f"first.{kind}").read_bytes() == (
            tmp_path / f"second.{kind}"
        ).read_bytes()
    assert b"<dc:date>" not in (tmp_path / "first.svg").read_bytes()


def test_both_formats_are_whole(tmp_path):
    write(averaged(2), tmp_path / "training")
    with Image.open(tmp_path / "training.png") as image:
        image.load()
        assert image.size[0] == 960
    assert (tmp_path / "training.svg").read_text().rstrip().endswith("</svg>")


def test_one_run_that_ended_no_episode_has_no_curve():
    empty = columns(3) | {"return_mean": np.full(3, np.nan)}
    assert run.training_curve(empty, RETURN, **LINES, frames_per_step=1, solved=None) is None
    assert run.training_curve({}, RETURN, **LINES, frames_per_step=1, solved=None) is None
    assert run.losses({"step": np.ones(1)}, RETURN, **LINES, frames_per_step=1) is None
    assert run.resources({"wall_s": np.ones(1), "gpu_percent": np.full(1, np.nan)}, **LINES) is None


def learns_late(rows: int = 80) -> dict[str, np.ndarray]:
    """A learner that has nothing to say in the first half; one metric never has."""
    late = columns(rows) | {"q_mean": np.linspace(0, 30, rows), "empty": np.full(rows, np.nan)}
    late["value_loss"][: rows // 2] = late["q_mean"][: rows // 2] = np.nan
    late["epsilon"] = np.linspace(1, 0.05, rows)
    return late


def test_metrics_that_begin_late_share_the_steps_of_the_others(tmp_path):
    """All panels have one axis of steps, which stands under the last row only, and the smoothing
    that the caption names."""
    figure = run.losses(learns_late(), RETURN, **LINES, frames_per_step=1)
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "value loss",
        "mean Q value",
        "exploration ε",
    ]
    assert {axes.get_xlim() for axes in figure.axes} == {(100 - 79, 8000 + 79)}
    assert "a trailing mean of 2 rows" in texts(figure)
    pale, strong = (line.get_ydata() for line in figure.axes[1].lines)
    assert len(pale) == 40 and np.isfinite(pale).all()
    assert strong[1:] == pytest.approx((pale[1:] + pale[:-1]) / 2)
    write(figure, tmp_path / "losses")


def test_metrics_that_begin_late_share_the_steps_over_all_runs(tmp_path):
    runs = {i: averaged_runs.thin_losses(learns_late(80 + i), RETURN) for i in range(3)}
    figure = averaged_runs.losses(HEADING, runs, frames_per_step=1)
    assert figure.axes[1].get_title(loc="left") == "mean Q value"
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    assert figure.axes[0].get_xlim()[0] < 100
    write(figure, tmp_path / "losses")


@pytest.mark.parametrize(("value", "label"), [(0.00063, "6.3e−4"), (-2.0, "−2"), (0.0, "0")])
def test_what_stays_the_same_has_one_number(value, label):
    """Not three that read alike, nor the rounding of the trailing mean as a curve."""
    constant = columns(400) | {"learning_rate": np.full(400, value)}
    figure = run.losses(constant, RETURN, **LINES, frames_per_step=1)
    assert figure is not None
    figure.canvas.draw()
    loss, learning_rate = figure.axes
    assert [one.get_text() for one in learning_rate.get_yticklabels()] == [label]
    assert np.ptp(learning_rate.get_ylim()) == pytest.approx(2 * abs(value) or 2)
    assert len(loss.get_yticklabels()) > 2
    left = min(one.get_window_extent().x0 for one in learning_rate.get_yticklabels())
    assert loss.get_window_extent().x1 < left


def test_one_row_is_drawn(tmp_path):
    one = {name: values[-1:] for name, values in columns().items()}
    figure = run.training_curve(one, RETURN, **LINES, frames_per_step=1, solved=None)
    assert figure is not None
    assert {line.get_marker() for line in figure.axes[0].lines} == {"o"}, "a line would not be seen"
    write(figure, tmp_path / "training")


@pytest.mark.parametrize("returns", [[500.0] * 20, [3.0], [-21.0, 21.0], [0.0, 1e9]])
def test_evaluations_of_any_spread_are_drawn(returns, tmp_path):
    figure = run.evaluation(returns, RETURN, **LINES, policy="greedy", solved=475)
    assert f"n = {len(returns)} fresh" in texts(figure)
    write(figure, tmp_path / "evaluation")


def test_evaluation_over_runs_names_those_without(tmp_path):
    scores = aggregate(np.array([[1.0], [2.0]]), seed=1, resamples=100)
    episodes = {0: [0.5, 1.5], 2: [2.0, 2.0]}
    figure = averaged_runs.evaluation(
        HEADING, RETURN, episodes, {1: "failed"}, scores, dots="episodes", solved=None
    )
    assert [text.get_text() for text in figure.axes[0].texts] == ["failed"]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == [
        "run 0",
        "run 1",
        "run 2",
        "mean\nof 2 runs",
    ]


def test_atari_says_what_a_step_is():
    assert "(of 4 frames each)" in averaged(2).axes[0].get_xlabel()


def test_a_smoothed_line_is_named_and_an_unsmoothed_one_too():
    long, short_ = (
        run.training_curve(columns(rows), RETURN, **LINES, frames_per_step=1, solved=None)
        for rows in (400, 30)
    )
    assert long is not None
    assert short_ is not None
    assert "a trailing mean of" in texts(long)
    assert "Smoothing: none" in texts(short_)
    shown = [axes.get_legend().get_lines() for axes in (*long.axes, *short_.axes)]
    assert [[line.get_alpha() for line in lines] for lines in shown] == [[0.3, None], [None]]


def test_the_band_of_three_noisy_runs_is_that_of_the_drawn_runs_and_inside_of_the_axes():
    """Of raw rows, the interval of three runs jumps from row to row and leaves the axes."""
    generator = np.random.default_rng(5)
    steps = np.arange(1, 801) * 100
    rising = 500 * steps / steps[-1]
    curves = {i: curve(steps, rising * generator.uniform(0.4, 1.6, 800)) for i in range(3)}
    figure = averaged_runs.training_curve(
        HEADING, RETURN, curves, {}, seed=1, frames_per_step=1, solved=None
    )
    assert figure is not None
    (axes,) = figure.axes
    edge = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert axes.get_ylim()[0] < edge.min() < edge.max() < axes.get_ylim()[1]
    assert "beyond the axes" not in texts(figure)
    assert "Each point is the mean over 1/50 of the steps." in texts(figure)
    thick = max(axes.lines, key=lambda line: line.get_linewidth())
    edges = equal_parts(list(curves.values()))
    values = [mean_of_parts(one, edges) for one in curves.values()]
    assert thick.get_ydata() == pytest.approx(np.mean(values, axis=0))
    thin = [line.get_ydata() for line in axes.lines if line.get_linewidth() < 0.8]
    assert np.array(thin) == pytest.approx(np.array(values))
    middle = axes.collections[0].get_paths()[0].vertices
    at = thick.get_xdata()[25]
    ends = middle[middle[:, 0] == at][:, 1]
    assert (ends.min() + ends.max()) / 2 == pytest.approx(thick.get_ydata()[25])
    one_edge = edge[1 : 1 + len(thick.get_xdata())]
    raw = aggregate(np.array([one.values for one in curves.values()]), seed=1, resamples=10).low
    assert np.abs(np.diff(one_edge)).max() < 0.2 * np.abs(np.diff(raw)).max(), "no comb"


def test_a_band_far_wider_than_the_curves_does_not_flatten_them():
    steps = np.arange(1, 101) * 100
    curves = {0: curve(steps, steps / 100.0), 1: curve(steps, steps / 60.0)}
    figure = averaged_runs.training_curve(
        HEADING, RETURN, curves, {}, seed=1, frames_per_step=1, solved=None
    )
    assert figure is not None
    low, high = figure.axes[0].get_ylim()
    assert -25 < low < 0 and 166 < high < 200
    assert "The band goes beyond the axes" in texts(figure)


@pytest.mark.parametrize("runs", [1, 3, 12])
def test_a_legend_covers_neither_curves_nor_titles(runs):
    figure = averaged(runs)
    (axes,) = figure.axes
    figure.draw_without_rendering()
    legend = axes.get_legend().get_window_extent()
    title, subtitle = (text.get_window_extent() for text in figure.texts[:2])
    assert legend.y0 > axes.get_window_extent().y1
    assert legend.y1 < min(title.y0, subtitle.y0)
    assert legend.x1 < figure.bbox.x1


def test_long_lines_keep_their_peaks():
    values = np.zeros(100_000)
    values[54_321] = 7
    steps, kept = visible(np.arange(100_000.0), values)
    assert len(kept) <= MOST_POINTS
    assert kept.max() == 7
    assert np.all(np.diff(steps) > 0)


def test_colours_of_runs_differ_for_the_colour_blind():
    """Machado et al. 2009, full deuteranopia and protanopia: the colours stay apart."""
    deuteranopia = np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    )
    protanopia = np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    )
    for seen in (deuteranopia, protanopia):
        colours = [seen @ np.array(to_rgb(colour)) for colour in RUN_COLOURS[:4]]
        apart = [np.linalg.norm(a - b) for i, a in enumerate(colours) for b in colours[:i]]
        assert min(apart) > 0.15


def test_numbers_as_people_read_them():
    assert [short(value) for value in (0, 12_000, 2.5e6, 1e9, 0.00025, -0.5, 475)] == [
        "0",
        "12k",
        "2.5M",
        "1G",
        "2.5e−4",
        "−0.5",
        "475",
    ]
    assert [number(value) for value in (487.34, -92.154, 12_340, 500)] == [
        "487.3",
        "−92.15",
        "12\u2009340",
        "500",
    ]
    told = [duration(value) for value in (0.42, 18.34, 119.6, 125, 3599.6, 11_520)]
    assert told == ["0.4 s", "18 s", "2 min 0 s", "2 min 5 s", "1 h 0 min", "3 h 12 min"]


def test_the_title_of_a_single_panel_stands_below_the_figure_s_own():
    tops = []
    for title in ("", "policy loss"):
        figure, (axes,) = style.panels(1, title="Learning", subtitle="REINFORCE on CartPole-v1")
        axes.set_title(title)
        style.arrange(figure, "one run")
        tops.append((1 - figure.subplotpars.top) * figure.get_figheight())
    assert tops == pytest.approx([0.62, 0.85]), "inches below the upper edge"


@pytest.mark.parametrize("lowest", [-1700.0, -19_000.0, -170_000.0, -2.5e7, 0.00025])
def test_the_name_of_the_y_axis_stands_beside_its_numbers(lowest):
    falling = columns() | {"return_mean": np.linspace(lowest, lowest / 4, 50)}
    figure = run.training_curve(falling, RETURN, **LINES, frames_per_step=1, solved=None)
    assert figure is not None
    figure.canvas.draw()
    (axes,) = figure.axes
    name = axes.yaxis.label.get_window_extent()
    numbers = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert name.x0 > 0, "inside the figure"
    assert name.x1 < min(number.x0 for number in numbers)


def test_the_last_number_of_the_x_axis_is_inside_the_figure():
    long = columns() | {"step": np.linspace(1e3, 1e5, 50)}
    figure = run.training_curve(long, RETURN, **LINES, frames_per_step=1, solved=None)
    assert figure is not None
    figure.canvas.draw()
    (axes,) = figure.axes
    shown = [one for one in axes.get_xticklabels() if one.get_position()[0] <= axes.get_xlim()[1]]
    assert shown[-1].get_text() == "100k"
    assert shown[-1].get_window_extent().x1 < figure.bbox.x1 - 5


def test_the_numbers_of_an_axis_are_written_alike_up_to_ten_thousand():
    _, (axes,) = style.panels(1, title="Training", subtitle="PPO on Pendulum-v1")
    write_tick = axes.yaxis.get_major_formatter()
    ticks = [-20_000, -1250, -750, 0, 1012.5, 0.25]
    assert [write_tick(value) for value in ticks] == [
        "−20k", "−1250", "−750", "0", "1012.5", "0.25",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "title"),
    [
        ("pendulum-no-velocity", "pendulum-no-velocity"),
        ("pendulum", "Pendulum-v1"),
        ("my_lab.mazes:Maze", "my_lab.mazes:Maze"),
    ],
)
def test_a_game_is_headed_by_what_people_call_it(given, title):
    line = style.experiment_line(resolve("ppo", {"game": given}))
    assert line.startswith(f"PPO on {title}, ")


@pytest.mark.parametrize("described", [run.RESOURCES, {name: (name, 1.0) for name in run.METRICS}])
def test_no_panel_s_title_runs_into_the_next(described: dict[str, tuple[str, float]]) -> None:
    seconds = np.arange(1.0, 9)
    measured = {"wall_s": seconds, **dict.fromkeys(run.RESOURCES, seconds * 2e6)}
    figure = (
        run.resources(measured, **LINES)
        if described is run.RESOURCES
        else run.losses(
            {"step": seconds, **dict.fromkeys(run.METRICS, seconds)}, RETURN, frames_per_step=1,
            **LINES,
        )
    )  # fmt: skip
    assert figure is not None
    renderer = FigureCanvasAgg(figure).get_renderer()
    titles = [axes.get_title(loc="left") or axes.get_title() for axes in figure.axes]
    assert all(titles) and len(titles) == len(described)
    named = [
        next(t for t in (axes.title, axes._left_title) if t.get_text()).get_window_extent(renderer)  # type: ignore[attr-defined]
        for axes in figure.axes
    ]
    for one in named:
        assert one.x1 < figure.bbox.x1
        assert not any(one.overlaps(other) for other in named if other is not one)


@pytest.mark.parametrize(("solved", "shown"), [(90.0, []), (-0.0057, ["solved: -0.0057"])])
def test_a_goal_that_is_far_away_is_not_drawn(solved, shown, tmp_path):
    """Returns that hardly differ, and a goal of 90: its text would be millions of pixels away, which
    the renderer refuses."""
    scores = aggregate(np.array([[-0.00571], [-0.00575]]), seed=1, resamples=100)
    episodes = {0: [-0.0057, -0.00572], 1: [-0.0058, -0.0057]}
    figure = averaged_runs.evaluation(
        HEADING, RETURN, episodes, {}, scores, dots="episodes", solved=solved
    )
    write(figure, tmp_path / "evaluation")
    texts = [text.get_text().replace("−", "-") for text in figure.axes[0].texts]
    assert texts == shown
