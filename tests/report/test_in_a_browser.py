"""Every page as a browser sees it: what it shows, what it asks for, what it complains about."""

from pathlib import Path

import pytest

from aorta.report.building import page_of
from aorta.report.html import document
from support.report_runs import HOSTILE, LONG, MAKERS, reduce_dir, run_dir
from support.services.chromium import Chromium, Tab, tab

pytestmark = pytest.mark.xdist_group("chromium")
WIDTHS = (390, 1280)
TEXTS = {"plain": "", "hostile": HOSTILE, "long": LONG}


def check_hostile_text(shown: str) -> None:
    """It is there, as text, and cannot turn the direction of what stands around it."""
    assert "</script><script>alert(1)</script>" in shown
    assert "مرحبا بالعالم" in shown
    assert "\N{FIRE}" in shown
    assert "\u202e" not in shown


def page_file(run: Path) -> Path:
    file = run / "report.html"
    file.write_text(document(page_of(run)), "utf-8")
    return file


@pytest.mark.parametrize("verb", MAKERS)
def test_a_page_renders_at_every_width_without_a_complaint_or_a_request(
    verb: str, tmp_path: Path, browser: Chromium
) -> None:
    with tab(browser, WIDTHS[0], dark=True) as page:
        for text, planted in TEXTS.items():
            (place := tmp_path / text).mkdir()
            file = page_file(MAKERS[verb](place, planted))
            assert file.stat().st_size < 1_000_000
            page.open(file.as_uri())
            for width in WIDTHS:
                page.show_at(width, dark=width == WIDTHS[0])
                assert page.evaluate("document.documentElement.scrollWidth") == width
                check_page(page)
                if text == "hostile":
                    check_hostile_text(page.evaluate("document.body.textContent"))
                if text == "plain":
                    check_that_it_can_be_heard(page)
            assert page.complaints == []
            assert page.requests == [file.as_uri()]


def check_page(page: Tab) -> None:
    assert page.evaluate("document.querySelectorAll('script, iframe, object, img').length") == 0
    assert page.evaluate("document.querySelectorAll('h1').length") == 1
    assert page.evaluate("document.querySelector('figure svg').getBoundingClientRect().width >= 0")


def check_that_it_can_be_heard(page: Tab) -> None:
    """Pictures have words, tables have heads, regions that scroll can be reached by keyboard and
    have names.
    """
    assert page.evaluate("document.documentElement.lang") == "en"
    pictures = "[...document.querySelectorAll('figure > div > svg')]"
    assert page.evaluate(f"{pictures}.length") > 0
    assert page.evaluate(f"{pictures}.every(s => s.getAttribute('aria-label').length > 8)")
    assert page.evaluate("[...document.querySelectorAll('th')].every(h => h.scope === 'col')")
    regions = "[...document.querySelectorAll('[role=region]')]"
    assert page.evaluate(f"{regions}.every(r => r.tabIndex === 0 && r.getAttribute('aria-label'))")


def test_a_page_follows_the_light_and_the_dark(tmp_path: Path, browser: Chromium) -> None:
    file = page_file(run_dir(tmp_path))
    seen = []
    with tab(browser, 1280) as page:
        page.open(file.as_uri())
        for dark in (False, True):
            page.show_at(1280, dark=dark)
            seen.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(set(seen)) == 2


def test_on_paper_it_is_light_whole_and_not_the_phone_s(tmp_path: Path, browser: Chromium) -> None:
    file = page_file(reduce_dir(tmp_path))
    with tab(browser, 700, dark=True, media="print") as page:
        page.open(file.as_uri())
        assert (
            page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        )
        assert page.evaluate("getComputedStyle(document.querySelector('.log')).maxHeight") == "none"
        assert page.evaluate("document.querySelector('.wide').checkVisibility()")
        assert not page.evaluate("document.querySelector('.narrow').checkVisibility()")
        assert (
            page.evaluate(
                "document.querySelector('main > details table').getBoundingClientRect().height"
            )
            > 100
        )


def test_outcomes_differ_without_colour(tmp_path: Path, browser: Chromium) -> None:
    file = page_file(run_dir(tmp_path))
    with tab(browser, 1280) as page:
        page.open(file.as_uri())
        marks = page.evaluate(
            "[...document.querySelectorAll('.wide path.mark')].map(p => [p.classList[1],"
            " p.getAttribute('d').replace(/M[-0-9. ]+/g, ''), getComputedStyle(p).fill !== 'none'])"
        )
    shapes = {(kind, shape[:12], filled) for kind, shape, filled in marks}
    assert {kind for kind, _, _ in shapes} == {"reproduced", "clean", "other", "error"}
    assert len({(shape, filled) for _, shape, filled in shapes}) == 4


def test_five_thousand_trials_are_one_page_under_a_megabyte(
    tmp_path: Path, browser: Chromium
) -> None:
    file = page_file(run_dir(tmp_path, trials=5000))
    assert file.stat().st_size < 1_000_000
    with tab(browser, 1280) as page:
        page.open(file.as_uri())
        assert page.complaints == []
        assert "All 5000 trials" in page.evaluate("document.body.textContent")
