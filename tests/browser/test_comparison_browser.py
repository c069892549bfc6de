"""The page of a comparison in a real browser, opened from the file system, wide and on a phone."""

from __future__ import annotations

import pytest

from steps.figures.comparison import FIGURES, FORMATS
from steps.figures.style import look, write
from steps.page.comparison import write_page
from tests import synthetic_comparison
from tests.browser.chromium import Chromium, find_chromium

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(
        find_chromium() is None, reason="no Chromium here (apt-get install chromium)"
    ),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    root = tmp_path_factory.mktemp("comparison")
    comparison = synthetic_comparison.comparison(runs=2)
    plots = root / "comparison" / "plots"
    with look():
        for name in ("aggregates", "standings"):
            figure = FIGURES[name](comparison)
            assert figure is not None
            write(figure, plots / name, FORMATS)
    write_page(comparison, plots=plots, path=root / "report.html", links={})
    started = Chromium(tmp_path_factory.mktemp("profile"))
    started.open((root / "report.html").as_uri())
    yield started
    started.close()


def sized(browser: Chromium, width: int) -> None:
    browser.send(
        "Emulation.setDeviceMetricsOverride",
        width=width, height=900, deviceScaleFactor=1, mobile=width < 700,
    )  # fmt: skip


@pytest.mark.parametrize("width", [1400, 390])
def test_only_tables_and_figures_are_wider_than_the_screen(browser, width):
    sized(browser, width)
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    browser.evaluate("document.querySelectorAll('img').forEach((one) => one.loading = 'eager')")
    browser.until("[...document.querySelectorAll('figure img')].every((one) => one.complete)")
    assert browser.evaluate(
        "[...document.querySelectorAll('figure img')].map((one) => one.clientWidth > 500)"
    ) == [True, True]


def test_on_a_phone_the_labels_stay_while_a_table_scrolls(browser):
    sized(browser, 390)
    table = "document.querySelector('#results .scroll')"
    name = f"{table}.querySelector('tbody th')"
    value = f"{table}.querySelector('tbody td')"
    left = "Math.round({}.getBoundingClientRect().left)"
    before = [browser.evaluate(left.format(one)) for one in (name, value)]
    browser.evaluate(f"{table}.scrollLeft = 200")
    after = [browser.evaluate(left.format(one)) for one in (name, value)]
    assert after == [before[0], before[1] - 200]


def test_captions_are_text_where_the_image_is_too_small_to_read(browser):
    caption = "getComputedStyle(document.querySelector('.said')).display"
    sized(browser, 390)
    assert browser.evaluate(caption) == "block"
    sized(browser, 1400)
    assert browser.evaluate(caption) == "none"


def test_a_figure_enlarges_and_nothing_goes_wrong(browser):
    sized(browser, 1400)
    browser.evaluate("document.querySelector('.zoom').click()")
    assert browser.evaluate("document.getElementById('lightbox').open")
    browser.evaluate("document.querySelector('#lightbox button').click()")
    assert browser.happened("Runtime.exceptionThrown") == []
    assert browser.happened("Log.entryAdded") == []
    asked = [event["request"]["url"] for event in browser.happened("Network.requestWillBeSent")]
    assert asked and all(url.startswith(("file:", "data:")) for url in asked)
