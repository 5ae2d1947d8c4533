"""The built book in a real browser: complete, quiet, readable, and without any other host."""

from __future__ import annotations

import pytest

pytest.importorskip("sphinx", reason="the book needs Sphinx: pip install .[book]")
pytest.importorskip("playwright", reason="driving a browser needs Playwright: pip install .[browser]")

import reading

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(reading.find_browser() is None, reason="no Chromium or Chrome is installed"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The book, built once; all tests of it are in this module, which one worker gets."""
    from compendium import book

    return book.build(tmp_path_factory.mktemp("book") / "html").parent


@pytest.fixture(scope="module")
def browser():
    with reading.launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def visits(site, browser):
    return {path.relative_to(site).as_posix(): reading.visit(browser, path) for path in reading.pages(site)}


def listed(found: dict[str, list[str]]) -> str:
    """Problems by page, as a text that is empty when there are none."""
    return "\n".join(f"{page}: {'; '.join(problems[:5])}" for page, problems in found.items() if problems)


def test_every_page_loads_without_an_error_or_another_host(visits):
    assert len(visits) > 50
    assert listed({name: seen.noise for name, seen in visits.items()}) == ""


@pytest.mark.parametrize(
    "problem",
    [
        pytest.param("untypeset", id="formulas are typeset"),
        pytest.param("raw", id="no source shows"),
        pytest.param("wordless", id="pictures have words"),
        pytest.param("broken", id="pictures load"),
        pytest.param("wide", id="fits a phone"),
        pytest.param("faint light", id="text stands out"),
        pytest.param("faint dark", id="text stands out in the dark"),
        pytest.param("unlit dark", id="pictures stand out in the dark"),
    ],
)
def test_every_page(visits, problem):
    assert listed({name: seen.found[problem] for name, seen in visits.items()}) == ""


def test_links_inside_the_book_lead_somewhere(site, visits):
    assert sum(len(seen.links) for seen in visits.values()) > 1000
    assert "\n".join(reading.dead_links(site, visits)) == ""


def test_search_finds_a_word(site, browser):
    with reading.opened(browser, site / "search.html", "?q=Woodbury") as page:
        page.wait_for_selector("#search-results ul.search li a")
        page.wait_for_function("/found/.test(document.querySelector('.search-summary')?.textContent)")
        found = page.locator("#search-results ul.search > li a").evaluate_all("all => all.map(a => a.href)")
        assert any("02_woodbury_inverse" in address for address in found), found
        assert page.noise == []
