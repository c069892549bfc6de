"""The page of a comparison: what it says for which comparison, its links, and that words stay words."""

from __future__ import annotations

import base64
import dataclasses
import html
import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from config.errors import WrongDirectory
from steps import report_study
from steps.comparison.compared import Decided
from steps.comparison.stored_comparison import write_comparison
from steps.directory.cost import Cost
from steps.directory.study import StudyDirectory
from steps.figures import comparison as figures
from steps.page import comparison as page
from steps.page.media import DARK, LABELLED_DARK, Plots
from tests import synthetic_comparison
from tests.synthetic_comparison import SIX, TWELVE

THREE = {game: SIX[game] for game in list(SIX)[:3]}
ONE = {"cartpole": SIX["cartpole"]}
GRID = {"learning_rate": ("0.0001", "0.001"), "gae_lambda": ("0.9", "0.95")}
HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}'\"&"


@pytest.fixture(scope="module")
def large():
    return synthetic_comparison.comparison(TWELVE, THREE, runs=5)


@pytest.fixture(scope="module")
def small():
    return synthetic_comparison.comparison(("PPO", "A2C"), ONE, runs=3)


@pytest.fixture(scope="module")
def gridded():
    return synthetic_comparison.comparison(("PPO", "A2C"), THREE, runs=3, grid=GRID)


def written(comparison, root: Path, links=None) -> str:
    path = root / "report.html"
    page.write_page(comparison, plots=root / "comparison" / "plots", path=path, links=links or {})
    return path.read_text()


def text_of(content: str) -> str:
    body = re.sub(r"<(style|script)>.*?</\1>", "", content, flags=re.S)
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", body).split()))


class Tags(HTMLParser):
    """Addresses, and the names of all tags."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags: list[str] = []
        self.feed(content)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("href", "src")]


def test_every_number_is_there_with_its_interval_and_its_runs(large, tmp_path):
    said = text_of(written(large, tmp_path))
    for standing in large.standings.values():
        assert standing.iqm is not None
        assert page.number(standing.iqm.value) in said
        assert page.number(standing.mean.low) in said, "the t interval of the mean beside it"
    assert said.count("n = 5 of 5") == 36
    assert "interquartile mean and its 95 % bootstrap interval, slightly too narrow" in said
    assert "score 0 at −500, 1 at −100" in said
    assert page.score(large.overall["DQN"].aggregates.iqm.value) in said
    assert "Complete All planned runs are there" in said
    assert "33 pairs; p after Holm's correction is at most 0.05 in" in said


def test_few_runs_of_one_game_claim_nothing(small, tmp_path):
    content = written(small, tmp_path)
    said = text_of(content)
    assert "bootstrap" not in said
    assert "the mean and its 95 % t interval" in said
    assert "Nothing was tested, and nothing is claimed: 3 runs on a side, a test needs 5" in said
    assert "Holm" not in said and "Hedges" not in said
    assert "Over all games" not in said and 'id="overall"' not in content
    assert 'id="grid"' not in content
    assert "<figure" not in content, "nothing was drawn"


def test_a_grid_has_its_effects_and_its_sensitivity(gridded, tmp_path):
    said = text_of(written(gridded, tmp_path))
    assert "learning_rate label 0.0001 0.001" in said
    assert "Sensitivity" in said and "learning_rate 0.001 0.030" in said
    assert "Without an interval: 3 runs of a game; the bootstrap over 3 games needs 5." in said


def test_what_is_missing_and_unequal_stands_above_all_numbers(gridded, tmp_path):
    one = gridded.standings["A2C", "acrobot"]
    lacking = dataclasses.replace(one, n=2, left_out={"2": "failed: out of memory"})
    comparison = dataclasses.replace(
        gridded,
        standings={**gridded.standings, ("A2C", "acrobot"): lacking},
        missing=["A2C on acrobot: run 2 failed: out of memory"],
        unequal=["PPO has 200 000 steps on cartpole, A2C 100 000"],
    )
    content = written(comparison, tmp_path)
    said = text_of(content)
    assert "Complete" not in said
    assert said.index("out of memory") < said.index("PPO has 200 000") < said.index("Results label")
    assert 'class="few" title="run 2: failed: out of memory">n = 2 of 3</span>' in content


def test_many_shortcomings_are_folded_and_none_is_left_out(small, tmp_path):
    missing = [f"run {index} failed" for index in range(40)]
    content = written(dataclasses.replace(small, missing=missing), tmp_path)
    assert "<summary>40 of them</summary>" in content
    assert all(f"<li>{line}</li>" in content for line in missing)


def test_a_game_that_nobody_trained_says_so(tmp_path):
    comparison = synthetic_comparison.comparison(
        ("PPO", "A2C"), THREE, runs=2, without=[("A2C", "acrobot")]
    )
    said = text_of(written(comparison, tmp_path))
    assert "not trained" in said
    assert "over 2 games, those that have a range and that every label has: cartpole" in said


def test_nothing_at_all_is_a_page(tmp_path):
    said = text_of(written(synthetic_comparison.empty(), tmp_path))
    assert "PPO on cartpole was not begun" in said
    assert "No run has a score yet" in said


def test_costs_are_added_up_and_unknown_ones_are_not_zero(gridded, tmp_path):
    known = Cost(processor_h=2.5, gpu_h=None, preemptions=1, repeated_h=0.25)
    overall = {
        label: dataclasses.replace(one, cost=known if label == "PPO" else Cost())
        for label, one in gridded.overall.items()
    }
    said = text_of(written(dataclasses.replace(gridded, overall=overall), tmp_path))
    assert "PPO 2.5 – 1 0.25 A2C – – – – together 2.5 – 1 0.25" in said
    nothing = {
        label: dataclasses.replace(one, cost=Cost()) for label, one in gridded.overall.items()
    }
    content = written(dataclasses.replace(gridded, overall=nothing), tmp_path)
    assert 'id="cost"' not in content


def test_words_from_outside_stay_words(tmp_path):
    labels = ("PPO", f"A2C {HOSTILE}")
    comparison = dataclasses.replace(
        synthetic_comparison.comparison(labels, ONE, runs=2),
        title=HOSTILE,
        missing=[HOSTILE],
        unequal=[HOSTILE],
        asked={HOSTILE: HOSTILE},
    )
    with figures.look():
        figures.write(
            figures.FIGURES["standings"](comparison), tmp_path / "comparison/plots/standings"
        )
    content = written(comparison, tmp_path)
    tags = Tags(content).tags
    assert tags.count("script") == 1, "our own"
    assert tags.count("img") == 2, "the figure and the empty one that enlarges"
    assert "onerror=alert(2)&gt;{{7*7}}" in content
    svg = (tmp_path / "comparison/plots/standings.svg").read_text()
    assert "<script" not in svg


def test_links_lead_to_the_experiments_and_nothing_leads_out(gridded, tmp_path):
    plots = tmp_path / "comparison" / "plots"
    with figures.look():
        for name in ("standings", "aggregates"):
            figures.write(figures.FIGURES[name](gridded), plots / name, figures.FORMATS)
    (plots.parent / "standings.csv").write_text("label\n")
    links = {}
    for index, key in enumerate(gridded.standings):
        report_html = tmp_path / "experiments" / f"a b:#{index}" / "report.html"
        report_html.parent.mkdir(parents=True)
        report_html.write_text("")
        links[key] = str(report_html.relative_to(tmp_path))
    content = written(gridded, tmp_path, links)
    found = Tags(content).links
    assert sum("experiments/" in link for link in found) == 6
    assert {"comparison/plots/standings.pdf", "comparison/standings.csv"} <= set(found)
    for link in found:
        if link.startswith("#"):
            assert f'id="{link[1:]}"' in content, link
        elif not link.startswith("data:"):
            assert not re.match(r"[a-z]+:|/|\.\.", link), link
            assert (tmp_path / unquote(link)).is_file(), link
    assert "default-src 'none'" in html.unescape(content)
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", content)


def test_a_figure_brings_its_caption(gridded, tmp_path):
    plots = tmp_path / "comparison" / "plots"
    with figures.look():
        figure = figures.FIGURES["standings"](gridded)
        assert figure is not None
        figures.write(figure, plots / "standings", figures.FORMATS)
    said = text_of(written(gridded, tmp_path))
    assert figure.get_label() in said
    assert "n = 3 of 3 runs of each label" in figure.get_label()


def test_on_a_dark_page_no_label_takes_the_colour_of_another(gridded, tmp_path):
    with figures.look():
        figures.write(figures.FIGURES["standings"](gridded), tmp_path / "standings")
    rules = []
    for dark in (DARK, LABELLED_DARK):
        plot = Plots(tmp_path, dark=dark).at(".", "standings")
        assert plot is not None
        svg = base64.b64decode(plot.source.partition(",")[2]).decode()
        rules.append(re.findall(r'\[style\*="(.*?)"\]', svg))
    assert "fill: #0072b2" in rules[0]
    assert rules[1] == [one for one in rules[0] if "#0072b2" not in one] != []


def test_the_same_comparison_gives_the_same_page(gridded, tmp_path):
    pages = [
        written(gridded, tmp_path / name)
        for name in ("a", "b")
        if (tmp_path / name).mkdir() is None
    ]
    assert pages[0] == pages[1]
    before = (tmp_path / "a" / "report.html").stat().st_mtime_ns
    written(gridded, tmp_path / "a")
    assert (tmp_path / "a" / "report.html").stat().st_mtime_ns == before


@pytest.fixture
def compared(small, tmp_path, monkeypatch):
    """A study without experiments, and what compares it and draws the comparison."""
    directory = StudyDirectory(tmp_path)
    calls: list[str] = []

    def compare_study(study: StudyDirectory) -> bool:
        calls.append("compare")
        return write_comparison(small, study.root)

    def draw(comparison, folder: Path) -> None:
        calls.append("draw")
        folder.mkdir()

    monkeypatch.setattr(report_study, "compare_study", compare_study)
    monkeypatch.setattr(figures, "draw", draw)
    return directory, calls


def test_the_study_s_page_is_of_what_lies_there_now(compared):
    directory, calls = compared
    assert report_study.write_comparison(directory) == []
    assert report_study.write_comparison(directory) == []
    assert calls == ["compare", "draw", "compare"], "drawn again only if something has changed"
    content = directory.report_html.read_text()
    assert 'href="experiments/PPO-cartpole/report.html"' in content


def test_a_study_that_cannot_be_compared_says_why(compared, monkeypatch):
    directory, _ = compared

    def damaged(study: StudyDirectory) -> None:
        raise WrongDirectory("a table is damaged")

    monkeypatch.setattr(report_study, "compare_study", damaged)
    assert report_study.write_comparison(directory) == ["no comparison: a table is damaged"]


def test_the_number_of_runs_that_it_took_is_told(small, tmp_path):
    known = Decided(cell="a2c-cartpole", baseline="ppo-cartpole", decision="larger", runs=6)
    said = text_of(written(dataclasses.replace(small, decided=(known,)), tmp_path))
    assert "How many runs it took" in said
    assert "a2c-cartpole ppo-cartpole larger 6" in said
    assert "How many runs it took" not in text_of(written(small, tmp_path))
