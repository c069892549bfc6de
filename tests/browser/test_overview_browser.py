"""The overview in a real browser: 200 experiments from the file system, and behind the server's token."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from steps import browse, report
from steps.browsing.server import BrowseServer
from tests import synthetic
from tests.browser.chromium import Chromium, find_chromium

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        find_chromium() is None, reason="no Chromium here (apt-get install chromium)"
    ),
]
MANY = 200
SHOWN = "[...document.querySelectorAll('tbody tr')].filter((row) => !row.hidden)"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root: Path = tmp_path_factory.mktemp("lab")
    made = synthetic.experiment(root / "000", ("complete",) * 2)
    synthetic.finish(made, draw=False, films=True)
    assert report.main([f"--outdir={made.root}"]) == 0
    synthetic.experiment(root / "001", ("failed",), game="acrobot")
    for index in range(2, MANY):
        shutil.copytree(root / f"{index % 2:03d}", root / f"{index:03d}")
    synthetic.experiment(root / "<b>hostile</b>", ("absent",))
    return root


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    started = Chromium(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def page(lab: Path, browser: Chromium) -> Chromium:
    assert browse.main([str(lab)]) == 0
    browser.open((lab / "index.html").as_uri())
    return browser


def names(page: Chromium) -> list[str]:
    return list(page.evaluate(f"{SHOWN}.map((row) => row.dataset.name)"))


def typed(page: Chromium, text: str) -> None:
    page.evaluate(
        f"(text => {{ text.value = {text!r}; text.dispatchEvent(new Event('input', {{bubbles: true}})); }})"
        "(document.getElementById('text'))"
    )


def click(page: Chromium, selector: str) -> None:
    page.evaluate(f"document.querySelector({selector!r}).click()")


def test_two_hundred_experiments_are_painted_within_a_second(page: Chromium) -> None:
    assert len(names(page)) == MANY + 1
    page.until("performance.getEntriesByName('first-contentful-paint').length")
    painted_ms = page.evaluate(
        "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    )
    assert painted_ms <= 1000


def test_text_and_state_filter(page: Chromium) -> None:
    typed(page, "acrobot failed 19")
    assert names(page) == ["019", "119", "191", "193", "195", "197", "199"]
    typed(page, "")
    click(page, "[name=state][value=succeeded]")
    assert len(names(page)) == MANY // 2
    assert page.evaluate("document.getElementById('shown').textContent") == "100 of 201 shown"
    page.reload()
    page.until("document.getElementById('shown').textContent")
    assert page.evaluate("document.getElementById('shown').textContent") == "100 of 201 shown"
    click(page, "[name=state][value=succeeded]")
    assert len(names(page)) == MANY + 1


def test_columns_sort_both_ways_and_what_is_unknown_comes_last(page: Chromium) -> None:
    click(page, "[data-key=value]")
    values = page.evaluate(f"{SHOWN}.map((row) => row.dataset.value)")
    known = [float(one) for one in values if one]
    assert known == sorted(known, reverse=True) and values[-1] == ""
    assert page.evaluate("document.querySelector('[aria-sort]').textContent") == "result"
    click(page, "[data-key=name]")
    first = names(page)
    assert first == sorted(first)
    click(page, "[data-key=name]")
    assert names(page) == first[::-1]


def test_a_hostile_name_is_a_name(page: Chromium) -> None:
    assert "<b>hostile</b>" in names(page)
    assert page.evaluate("document.querySelectorAll('b').length") == 0


@pytest.mark.parametrize("width", [390, 1300])
def test_only_the_table_is_wider_than_the_screen(page: Chromium, width: int) -> None:
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500}
    page.send("Emulation.setDeviceMetricsOverride", **size)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.send("Emulation.clearDeviceMetricsOverride")


@pytest.mark.slow
def test_behind_the_token_films_play_and_nothing_is_complained_about(
    lab: Path, page: Chromium
) -> None:
    with BrowseServer(lab, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page.open(server.address)
        page.until("location.search === '' && document.querySelectorAll('tbody tr').length")
        assert len(names(page)) == MANY + 1
        assert page.evaluate("document.cookie") == ""
        page.open(f"http://127.0.0.1:{server.server_port}/000/report.html")
        page.until("document.querySelector('video')")
        page.evaluate("document.querySelector('video').play()")
        page.until("document.querySelector('video').currentTime > 0.1")
        page.open(f"http://127.0.0.1:{server.server_port}/001/report.html")
        page.until("document.title.includes('ACROBOT') || document.body.textContent.length > 500")
        server.shutdown()
    assert page.happened("Runtime.exceptionThrown") == []
    assert [one["entry"]["text"] for one in page.happened("Log.entryAdded")] == []
    asked = [one["request"]["url"] for one in page.happened("Network.requestWillBeSent")]
    assert {url.split(":")[0] for url in asked} <= {"file", "data", "http"}
    assert all("127.0.0.1" in url for url in asked if url.startswith("http"))
