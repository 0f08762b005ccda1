"""What a reader meets in the built book, checked in a browser without network."""

import json
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
AXE = (Path(__file__).parent / "vendor" / "axe" / "axe.min.js").read_text("utf-8")
# The theme's own: its search button's label, and the brand outside a landmark.
THEME_FINDINGS = {"label-content-name-mismatch", "region"}


def _pages() -> list[str]:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    files = [chapter["file"] for part in toc["parts"] for chapter in part["chapters"]]
    return [f"{name}.html" for name in (toc["root"], *files)]


PAGES = _pages()
CHAPTERS = [page for page in PAGES if page.startswith("notebooks/")]


def _axe(page) -> list[str]:
    page.evaluate(AXE)
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{violation['id']}: {node['html'][:160]} ({node['failureSummary'][:300]})"
        for violation in found["violations"]
        if violation["id"] not in THEME_FINDINGS
        for node in violation["nodes"]
    ]


def test_every_page_of_the_contents_is_built(site):
    assert set(PAGES) <= set(site.pages)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_asks_nobody_else_and_reports_no_error(visitor, name: str):
    visit = visitor.open(name)
    visit.page.wait_for_timeout(300)
    assert visit.foreign == []
    assert visit.errors == []
    assert visit.http == []


@pytest.mark.parametrize("name", PAGES)
def test_every_picture_loads_and_says_what_it_shows(visitor, name: str):
    page = visitor.open(name).page
    images = page.evaluate(
        "() => [...document.images].map(i => [i.src.slice(0, 80), i.naturalWidth, i.alt])"
    )
    assert [image for image in images if not image[1] or not image[2]] == []
    figures = page.evaluate(
        """() => [...document.querySelectorAll('figure.fig')].map(f => [f.id,
           [...f.querySelectorAll('svg')].every(s => s.getAttribute('aria-label')),
           f.querySelectorAll('svg').length, f.querySelector('.prov')?.textContent])"""
    )
    assert [figure for figure in figures if not all(figure)] == []
    assert len({figure[0] for figure in figures}) == len(figures)


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_has_a_slider_an_exercise_and_no_traceback(visitor, name: str):
    page = visitor.open(name).page
    assert page.locator("figure.explore").count() >= 1
    assert page.locator(".exercise").count() >= 2
    assert page.locator(".solution").count() == page.locator(".exercise").count()
    assert page.locator(".cell_output .traceback, .cell_output .stderr").count() == 0
    assert page.locator(".cell_output .widget-subarea").count() == 0


@pytest.mark.parametrize("name", PAGES)
def test_mathematics_is_typeset(visitor, name: str):
    page = visitor.open(name).page
    written = page.locator(".bd-article .math").count()
    assert page.locator(".bd-article mjx-container").count() >= written
    text = page.locator(".bd-article").inner_text()
    assert "\\(" not in text
    assert "\\[" not in text


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_slider_obeys_the_keyboard(visitor, name: str):
    page = visitor.open(name).page
    for figure in page.locator("figure.explore").all():
        slider = figure.locator("input[type=range]")
        shown = "[...f.querySelectorAll('.frame')].findIndex(x => !x.hidden)"
        before = figure.evaluate(f"f => {shown}")
        names = json.loads(figure.get_attribute("data-names"))
        assert slider.get_attribute("aria-valuetext") == names[before]
        key, step = ("ArrowLeft", -1) if before == len(names) - 1 else ("ArrowRight", 1)
        slider.focus()
        page.keyboard.press(key)
        assert figure.evaluate(f"f => {shown}") == before + step
        assert slider.get_attribute("aria-valuetext") == names[before + step]
        assert figure.locator("output").inner_text() == names[before + step]
        assert figure.locator(".frame:visible svg").count() == 1


@pytest.mark.parametrize("name", CHAPTERS)
def test_without_scripts_a_slider_is_a_picture(visitor, name: str):
    page = visitor.open(name, script=False).page
    for figure in page.locator("figure.explore").all():
        assert figure.locator(".frame:visible svg").count() == 1
        assert not figure.locator("input").is_visible()


@pytest.mark.parametrize("name", PAGES)
def test_a_phone_never_scrolls_sideways(visitor, name: str):
    page = visitor.open(name, width=390).page
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
    wide = page.evaluate(
        """() => [...document.querySelectorAll('.bd-article figure.fig svg')]
           .filter(s => s.getBoundingClientRect().right > 391).length"""
    )
    assert wide == 0


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing(visitor, name: str, dark: bool):
    page = visitor.open(name, dark=dark).page
    assert page.evaluate("() => document.documentElement.dataset.theme") == (
        "dark" if dark else "light"
    )
    assert _axe(page) == []


def test_the_keyboard_reaches_the_text_first_and_search_finds_the_method(visitor):
    page = visitor.open("book/index.html").page
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.textContent").strip() == (
        "Skip to main content"
    )
    page = visitor.open("search.html?q=GRPO").page
    page.wait_for_selector("ul.search li", timeout=10_000)
    assert page.locator("ul.search li").count() >= 2
