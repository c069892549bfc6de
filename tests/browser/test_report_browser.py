"""The report in a real browser, opened from the file system: nothing goes wrong, nothing leaves the
machine, films play."""

from __future__ import annotations

import pytest

from steps import report
from tests import synthetic
from tests.browser.chromium import Chromium, find_chromium

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        find_chromium() is None, reason="no Chromium here (apt-get install chromium)"
    ),
]


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    made = synthetic.experiment(
        tmp_path_factory.mktemp("experiment"), ("complete", "failed", "complete"), min_runs=2
    )
    synthetic.finish(made, films=True)
    assert report.main([f"--outdir={made.root}", "--workflow-status=Succeeded"]) == 0
    return made


@pytest.fixture(scope="module")
def browser(directory, tmp_path_factory):
    started = Chromium(tmp_path_factory.mktemp("profile"))
    started.open(directory.report_html.as_uri())
    yield started
    started.close()


@pytest.mark.slow
def test_films_play_in_place(browser):
    films = browser.evaluate("document.querySelectorAll('video').length")
    assert films == 3
    for index in range(films):
        film = f"document.querySelectorAll('video')[{index}]"
        browser.evaluate(f"{film}.play()")
        browser.until(f"{film}.currentTime > 0.1")
        assert browser.evaluate(
            f"[{film}.videoWidth, {film}.videoHeight, Math.round({film}.duration), {film}.error]"
        ) == [
            540,
            360,
            2,
            None,
        ]


def test_every_plot_is_drawn(browser):
    browser.evaluate("document.querySelectorAll('details').forEach((one) => one.open = true)")
    browser.evaluate("document.querySelectorAll('img').forEach((one) => one.loading = 'eager')")
    images = "[...document.querySelectorAll('figure img')]"
    browser.until(f"{images}.every((one) => one.complete)")
    assert (
        browser.evaluate(f"{images}.map((one) => one.naturalWidth > 300 && one.clientWidth > 300)")
        == [True] * 15
    )


def test_a_plot_enlarges_and_closes(browser):
    browser.evaluate("document.querySelector('.zoom').click()")
    assert browser.evaluate(
        "document.getElementById('lightbox').open && document.querySelector('#lightbox img').clientWidth > 600"
    )
    browser.evaluate("document.querySelector('#lightbox button').click()")
    assert browser.evaluate("document.getElementById('lightbox').open") is False


def test_parameters_can_be_reduced_to_what_differs(browser):
    visible = "[...document.querySelectorAll('#parameters tr')].filter((row) => row.offsetHeight > 0).length"
    everything = browser.evaluate(visible)
    browser.evaluate("document.getElementById('changed-only').click()")
    assert 0 < browser.evaluate(visible) < 8 < everything
    browser.evaluate("document.getElementById('changed-only').click()")


def test_the_page_fits_a_telephone(browser):
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.send("Emulation.setDeviceMetricsOverride", **size)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    browser.send("Emulation.clearDeviceMetricsOverride")


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_words_are_readable_on_their_ground(browser, scheme):
    """WCAG contrast of 4.5 for text."""
    browser.send(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
    )
    low = browser.evaluate("""(() => {
      const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
      const linear = (x) => (x /= 255, x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
      const light = (colour) => { const [r, g, b] = parts(colour).map(linear);
        return .2126 * r + .7152 * g + .0722 * b; };
      const ground = (one) => { for (; one; one = one.parentElement) { const c = getComputedStyle(one).backgroundColor;
        if (parts(c).length < 4 || parts(c)[3] === 1) return c; } return 'rgb(255,255,255)'; };
      return [...document.querySelectorAll('p,td,th,a,h1,h2,li,small,summary,.pill,label,figcaption span')].map((one) => {
        const [a, b] = [light(getComputedStyle(one).color), light(ground(one))].sort((x, y) => y - x);
        return [(a + .05) / (b + .05), one.textContent.trim().slice(0, 40)]; }).filter(([ratio, text]) => text && ratio < 4.5);
    })()""")
    assert low == []


def test_nothing_leaves_the_machine_and_nothing_is_complained_about(browser):
    """Last, so that it sees what all of the above have caused."""
    requested = [one["request"]["url"] for one in browser.happened("Network.requestWillBeSent")]
    assert requested, "the page itself is a request"
    assert {address.split(":")[0] for address in requested} <= {"file", "data"}
    assert browser.happened("Network.webSocketCreated") == []
    assert browser.happened("Runtime.exceptionThrown") == []
    assert [one["args"] for one in browser.happened("Runtime.consoleAPICalled")] == []
    assert [one["entry"]["text"] for one in browser.happened("Log.entryAdded")] == []


def test_negative_the_listener_hears_what_the_page_must_not_do(directory, tmp_path):
    """Without our policy, the same listener sees a request and an error: the test above can
    fail."""
    page = tmp_path / "bad.html"
    page.write_text("<img src='http://127.0.0.1:9/x.png'><script>console.error('heard')</script>")
    other = Chromium(tmp_path / "profile")
    other.open(page.as_uri())
    assert any(
        one["request"]["url"].startswith("http://127.0.0.1:9")
        for one in other.happened("Network.requestWillBeSent")
    )
    assert len(other.happened("Runtime.consoleAPICalled")) == 1
    other.close()


def test_the_policy_forbids_the_network(directory, tmp_path):
    """A foreign address that got into the page all the same is refused by the page's own policy."""
    page = tmp_path / "injected.html"
    page.write_text(
        directory.report_html.read_text().replace(
            "</main>",
            "<img src='http://127.0.0.1:9/x.png'><script>document.title = 'taken'</script></main>",
        )
    )
    other = Chromium(tmp_path / "profile")
    other.open(page.as_uri())
    complaints = [one["entry"]["text"] for one in other.happened("Log.entryAdded")]
    assert any("Content Security Policy" in text and "127.0.0.1" in text for text in complaints), (
        complaints
    )
    assert other.evaluate("document.title") != "taken"
    other.close()
