"""The page of the claims in the book: its graph can be clicked, and every link leads somewhere."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from compendium.claims import page as claims_page
from compendium.claims.formulas import plain
from compendium.claims.graph import BOX, LOOKS, graph
from compendium.claims.registry import STATUSES, errata, headings, load_registry

ROOT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def registry():
    return load_registry(ROOT)


@pytest.fixture(scope="module")
def page(registry) -> str:
    return claims_page.page(registry, ROOT)


@pytest.fixture(scope="module")
def drawing(registry) -> ET.Element:
    return ET.fromstring(graph(registry))


def section(page: str, name: str) -> str:
    return page.partition(f"\n### {name}\n")[2].partition("\n### ")[0]


def test_the_statuses_of_the_script_and_of_the_styles_are_those_of_the_registry():
    script = (ROOT / "book/_static/claims.js").read_text(encoding="utf-8")
    styles = (ROOT / "book/_static/site.css").read_text(encoding="utf-8")
    (listed,) = re.findall(r"STATUSES = \[(.*?)\]", script)
    assert tuple(re.findall(r'"(.*?)"', listed)) == STATUSES == tuple(LOOKS)
    for status in STATUSES:
        assert f'[data-status="{status}"]' in styles


def test_the_script_finds_the_table_by_its_columns(page):
    script = (ROOT / "book/_static/claims.js").read_text(encoding="utf-8")
    (listed,) = re.findall(r"COLUMNS = \[(.*?)\]", script)
    columns = re.findall(r'"(.*?)"', listed)
    assert f"| {' | '.join(columns)} |" in page


def test_no_style_or_script_asks_for_anything():
    for file in (ROOT / "book/_static").glob("*.*"):
        assert not re.search(
            r"https?://(?!www\.w3\.org/)|@import|fetch\(|XMLHttpRequest", file.read_text(encoding="utf-8")
        )


def test_each_box_leads_to_its_claim_and_says_what_it_states(registry, page, drawing):
    boxes = drawing.findall(f"{SVG}a")
    assert [box.get("data-claim") for box in boxes] == [claim.id for claim in registry.claims]
    anchors = headings(page)
    for box, claim in zip(boxes, registry.claims, strict=True):
        assert box.get("href", "").lstrip("#") in anchors
        assert box.get("data-status") == registry.status(claim)
        title = box.find(f"{SVG}title")
        assert title is not None
        assert title.text.startswith(f"{claim.id}, {registry.status(claim)}")
        assert plain(claim.statement) in title.text
        assert plain(claim.instead or "") in title.text


def test_each_arrow_is_a_use_and_points_to_the_right(registry, drawing):
    arrows = drawing.findall(f"{SVG}g[@class='arrows']/{SVG}path")
    assert {(a.get("data-from"), a.get("data-to")) for a in arrows} == set(registry.graph().edges)
    for arrow in arrows:
        x, *_, to_x, _ = map(float, re.findall(r"[\d.]+", arrow.get("d")))
        assert to_x > x


def test_boxes_do_not_overlap_and_lie_in_the_picture(drawing):
    places = [
        (float(frame.get("x")), float(frame.get("y")))
        for box in drawing.findall(f"{SVG}a")
        for frame in box.findall(f"{SVG}rect")
    ]
    width, height = float(drawing.get("width")), float(drawing.get("height"))
    assert all(0 <= x <= width - BOX[0] and 0 <= y <= height - BOX[1] for x, y in places)
    for place, (x, y) in enumerate(places):
        for other_x, other_y in places[:place]:
            assert abs(x - other_x) >= BOX[0] or abs(y - other_y) >= BOX[1]


def test_statuses_differ_without_colour():
    assert len({look.mark for look in LOOKS.values()}) == len({look.dashes for look in LOOKS.values()}) == 4


def test_sections_say_what_a_claim_uses_and_what_uses_it(registry, page):
    for claim in registry.claims:
        text = section(page, claim.id)
        users = [other.id for other in registry.claims if claim.id in other.depends_on]
        for name, ids in (("Uses", claim.depends_on), ("Used by", users)):
            (line,) = re.findall(rf"^- {name}: (.*)$", text, re.MULTILINE) or [""]
            assert re.findall(r"\[(\w+)\]\(#(\w+)\)", line) == [(i, i.lower()) for i in ids]


def test_links_of_the_page_lead_to_sections(page):
    targets = re.findall(r"\]\(\.\./([\w/.]+\.md)#([^)]+)\)", page)
    assert len(targets) > 200
    anchors = {name: headings((ROOT / name).read_text(encoding="utf-8")) for name in {n for n, _ in targets}}
    for name, anchor in targets:
        assert anchor in anchors[name], f"{name}#{anchor}"


def test_corrected_claims_lead_to_their_erratum(registry, page):
    titles = errata(ROOT)
    assert len(titles) > 30
    for claim in registry.claims:
        assert ("- Erratum: [" in section(page, claim.id)) == (claim.id in titles)
