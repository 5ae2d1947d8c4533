"""The built book in a real browser: complete, quiet, readable, and without any other host."""

from __future__ import annotations

import pytest

pytest.importorskip("sphinx", reason='the book needs Sphinx: pip install ".[compendium]"')
pytest.importorskip("playwright", reason='driving a browser needs Playwright: pip install ".[browser]"')

import reading

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(reading.find_browser() is None, reason="no Chromium or Chrome is installed"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The book, built once; all tests of it are in this module, which one worker gets."""
    from compendium.book import build as book

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
        pytest.param("cut", id="what is wider than its box scrolls on a phone"),
        pytest.param("shrunk", id="formulas keep their size on a phone"),
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


BAD = {
    "console.error": ("noise", "<script>console.error('it went wrong')</script>", "it went wrong"),
    "script": ("noise", "<script>nothing.at.all()</script>", "nothing is not defined"),
    "another host": (
        "noise",
        "<img src='https://example.org/x.png' alt='x'>",
        "asks another host: https://example.org",
    ),
    "missing file": ("noise", "<script src='missing.js'></script>", "missing.js"),
    "formula": ("untypeset", r"<span class='math'>\(x\)</span>", r"\(x\)"),
    "faulty formula": ("untypeset", "<span data-mjx-error='Undefined control sequence'></span>", "Undefined"),
    "source": ("raw", r"<p>With $\lambda \frac12$.</p>", r"\frac12"),
    "directive": ("raw", "<p>:::{prf:lemma} A name</p>", "prf:lemma"),
    "no words": ("wordless", "<img src='data:,x'>", 'alt ""'),
    "a name": ("wordless", "<img src='data:,x' alt='../_images/0a.png'>", "_images/0a.png"),
    "drawing": ("wordless", "<svg role='img' id='plot'></svg>", "svg#plot"),
    "picture": ("broken", "<img src='missing.png' alt='a picture'>", "missing.png"),
    "wide": ("wide", "<div id='broad' style='width: 700px'>wide</div>", "div#broad"),
    "long": ("wide", "<h1>" + "unbroken" * 20 + "</h1>", "h1"),
    "cut": (
        "cut",
        "<article><p style='width: 90px; overflow: hidden'><code style='white-space: nowrap'>"
        "a_long_name_in_code</code></p></article>",
        "a_long_name_in_code",
    ),
    "a formula that is cut": (
        "cut",
        "<article>By <span class='math' style='display: inline-flex; max-width: 90px; overflow: hidden'>"
        "<mjx-container><svg width='300' height='9' style='min-width: 300px'></svg></mjx-container></span>"
        "</article>",
        "300 px in 90",
    ),
    "small": (
        "shrunk",
        "<mjx-container><svg width='300' height='9' style='max-width: 100px'></svg></mjx-container>",
        "mjx-container",
    ),
    "grey": ("faint light", "<main><p style='color: #999'>grey</p></main>", "grey"),
    "black": (
        "faint dark",
        "<style>[data-theme=dark] body { background: #111 }</style><main>night</main>",
        "night",
    ),
    "lines": (
        "unlit dark",
        "<style>[data-theme=dark] body { background: #111 }</style>"
        "<article><img alt='lines' width='9' height='9' src='lines.svg'></article>",
        "lines.svg",
    ),
}


@pytest.mark.parametrize(("problem", "body", "told"), BAD.values(), ids=BAD)
def test_a_visit_notices(tmp_path, browser, problem, body, told):
    """Each kind of check on a page that is wrong in this one way."""
    page = tmp_path / "page.html"
    page.write_text(f"<!DOCTYPE html><html lang='en'><title>A page</title><body>{body}</body></html>")
    (tmp_path / "lines.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>")
    seen = reading.visit(browser, page)
    found = seen.noise if problem == "noise" else seen.found[problem]
    assert told in "; ".join(found)
    others = {name for name, problems in seen.found.items() if problems} - {problem}
    assert others <= {"faint light", "faint dark", "broken", "wordless", "raw"}


def test_a_dead_link_is_noticed(tmp_path, browser):
    links = ["page.html#here", "page.html#there", "other.html", "../outside.html", "https://example.org"]
    body = "<p id='here'>" + "".join(f"<a href='{link}'>{link}</a>" for link in links)
    page = tmp_path / "page.html"
    page.write_text(f"<!DOCTYPE html><title>A page</title>{body}")
    found = list(reading.dead_links(tmp_path, {"page.html": reading.visit(browser, page)}))
    assert len(found) == 3
    for told in ("outside.html", "other.html", "page.html#there"):
        assert sum(told in problem for problem in found) == 1, found


def test_search_finds_a_word(site, browser):
    with reading.opened(browser, site / "search.html", "?q=Woodbury") as page:
        page.wait_for_selector("#search-results ul.search li a")
        page.wait_for_function("/found/.test(document.querySelector('.search-summary')?.textContent)")
        found = page.locator("#search-results ul.search > li a").evaluate_all("all => all.map(a => a.href)")
        assert any("02_woodbury_inverse" in address for address in found), found
        assert page.noise == []


def test_the_table_of_the_claims_filters(site, browser):
    with reading.opened(browser, site / "claims.html") as page:
        rows = page.locator("tr[data-status]")
        count = page.locator("#claims-count")
        shown = page.locator("tr[data-status]:not([hidden])")
        number = rows.count()
        assert number > 90
        assert count.inner_text() == f"{number} of {number} claims"
        page.locator('input[data-status="corrected"]').check()
        corrected = page.locator('tr[data-status="corrected"]').count()
        assert 0 < corrected < number
        assert shown.count() == corrected
        assert count.inner_text() == f"{corrected} of {number} claims"
        assert shown.evaluate_all("rows => rows.every(row => row.dataset.status === 'corrected')")
        assert page.locator("#the-evidence > section:not([hidden])").count() == corrected
        page.locator("#c1").evaluate("section => { location.hash = section.id; }")
        page.locator("#c1").wait_for(state="visible")
        page.locator("#claims-search").fill("newton")
        both = shown.count()
        assert 0 < both < corrected
        assert count.inner_text() == f"{both} of {number} claims"
        page.locator('input[data-status="corrected"]').uncheck()
        assert shown.count() > both
        page.locator("#claims-search").fill("no claim says this")
        assert shown.count() == 0
        page.locator("#claims-search").fill("")
        assert shown.count() == number
        assert page.noise == []


#: Of some tables, the cells that do not end on the screen and the cells and formulas that are cut.
UNREADABLE = """tables => tables.flatMap((table) => [...table.querySelectorAll("td, td span.math")])
  .filter((box) => box.checkVisibility() && (box.getBoundingClientRect().right > innerWidth + 1
    || (box.scrollWidth > box.clientWidth + 1 && getComputedStyle(box).overflowX !== "auto")))
  .map((box) => box.textContent.slice(0, 60))"""


@pytest.mark.parametrize(
    ("file", "table"), [("claims.html", "table"), ("notebooks/02_woodbury_inverse.html", "table.panel")]
)
def test_claims_can_be_read_on_a_phone(site, browser, file, table):
    with reading.opened(browser, site / file, size=reading.PHONE) as page:
        tables = page.locator(table)
        assert tables.locator("td").count() > 5
        assert tables.evaluate_all(UNREADABLE) == []


def test_the_graph_of_the_claims_fits_or_scrolls_within_itself(site, browser):
    for size in (reading.DESKTOP, reading.PHONE):
        with reading.opened(browser, site / "claims.html", size=size) as page:
            graph = page.locator(".claims-graph")
            needed, width = graph.evaluate("box => [box.scrollWidth, box.clientWidth]")
            assert needed <= width + 1 or size == reading.PHONE
            assert graph.evaluate("box => getComputedStyle(box).overflowX") == "auto"


#: What a control of the explorer changes, and what it must leave as it is.
FIGURES = ("spectrum", "dual", "ellipsoid", "regret", "time")
CONTROLS = {
    "K": (FIGURES, ()),
    "d": (FIGURES, ()),
    "m": (("spectrum", "ellipsoid", "regret", "time"), ()),
    "decay": (("spectrum", "dual", "ellipsoid", "regret"), ("time",)),
    "S": (("dual", "ellipsoid", "regret"), ("spectrum", "time")),
    "scale": (("ellipsoid", "regret"), ("spectrum", "dual", "time")),
}


@pytest.mark.parametrize("control", CONTROLS)
def test_the_explorer_answers_its_controls(site, browser, control):
    """By the keyboard alone, which is how some readers use it."""
    with reading.opened(browser, site / "explorer.html") as page:
        page.wait_for_selector("#explorer[data-ready=true]")
        drawn = lambda: {name: page.inner_html(f"#explorer-{name} svg") for name in FIGURES}  # noqa: E731
        told, before = page.inner_text("#explorer-summary"), drawn()
        assert told
        handle = page.locator(f"#explorer-{control}")
        value = handle.input_value()
        handle.focus()
        for key in ("ArrowDown", "ArrowUp", "ArrowUp"):  # one of them leads away from where it started
            if handle.input_value() == value:
                page.keyboard.press(key)
        assert handle.input_value() != value
        after = drawn()
        assert page.inner_text("#explorer-summary") != told
        changed = {name for name in FIGURES if after[name] != before[name]}
        moves, stays = CONTROLS[control]
        assert set(moves) <= changed
        assert not set(stays) & changed
        assert page.noise == []


def the_explorer(page) -> tuple[dict[str, str], str]:
    """What the controls are set to, and the query of the address."""
    page.wait_for_selector("#explorer[data-ready=true]")
    set_to = {name: page.locator(f"#explorer-{name}").input_value() for name in CONTROLS}
    return set_to, page.evaluate("location.search")


def test_the_address_of_the_explorer_holds_what_is_set(site, browser):
    with reading.opened(browser, site / "explorer.html") as page:
        start, query = the_explorer(page)
        assert query == ""
        page.locator("#explorer-K").select_option("1")
        page.locator("#explorer-S").focus()
        page.keyboard.press("ArrowUp")
        chosen, query = the_explorer(page)
        assert "K=1" in query
        assert "S=" in query
        assert "decay" not in query
    with reading.opened(browser, site / "explorer.html", query) as page:
        assert the_explorer(page) == (chosen, query)
        page.locator("#explorer-reset").click()
        assert the_explorer(page) == (start, "")
    with reading.opened(browser, site / "explorer.html", "?K=seven&d=50&x=1&m=") as page:
        assert the_explorer(page) == (start, "")
        assert page.noise == []


def test_a_preset_of_the_explorer_sets_everything(site, browser):
    with reading.opened(browser, site / "explorer.html") as page:
        the_explorer(page)
        presets = page.locator("#explorer button[data-set]")
        assert presets.count() >= 10
        for place in range(presets.count()):
            found = []
            for other in (0, presets.count() - 1):  # whatever was set before
                presets.nth(other).click()
                presets.nth(place).click()
                found.append(the_explorer(page))
            assert found[0] == found[1], presets.nth(place).inner_text()


@pytest.mark.parametrize("size", [reading.DESKTOP, reading.PHONE], ids=["desk", "phone"])
def test_the_controls_of_the_explorer_stay_in_view(site, browser, size):
    with reading.opened(browser, site / "explorer.html", size=size) as page:
        page.wait_for_selector("#explorer[data-ready=true]")
        for name in FIGURES:
            page.locator(f"#explorer-{name}").evaluate("figure => figure.scrollIntoView({block: 'end'})")
            page.wait_for_timeout(100)
            shown = "element => { const box = element.getBoundingClientRect(); return [box.top, box.bottom] }"
            top, bottom = page.locator(".explorer-controls").evaluate(shown)
            begin, end = page.locator(f"#explorer-{name}").evaluate(shown)
            assert top >= 0, name
            assert bottom < size["height"] / 2, name
            assert end - max(begin, bottom) > 0.8 * (end - begin), f"{name} is behind the controls"
