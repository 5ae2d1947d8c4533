"""The articles: their numbers are those of the records, what they cite is there, nobody is invented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from compendium.book import citations
from compendium.report import article
from compendium.system.paths import FailureError

ROOT = Path(__file__).resolve().parents[2]
TEXTS = {name: (ROOT / name).read_text(encoding="utf-8") for name in article.PAGES}
ENTRIES = citations.read_entries(ROOT / "article" / "paper.bib")


def by_hand(text: str) -> str:
    return re.sub(r"<!-- (\w+): begin -->.*?<!-- \1: end -->", "", text, flags=re.DOTALL)


def test_the_numbers_are_those_of_the_records():
    article.write(check=True, root=ROOT)


@pytest.mark.slow
def test_a_number_that_somebody_typed_is_noticed(tmp_path):
    (tmp_path / "article").mkdir()
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text.replace("verified", "proved", 1))
    with pytest.raises(FailureError, match="run `make readme`"):
        article.write(check=True, root=tmp_path)
    article.write(root=tmp_path)
    assert {name: (tmp_path / name).read_text() for name in TEXTS} == {
        name: text.replace("verified", "proved", 1) if "verified" in by_hand(text) else text
        for name, text in TEXTS.items()
    }


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_written_by_hand_has_no_result_in_it(name):
    assert re.findall(r"<!-- \w+: begin -->\n(?!<!--)", TEXTS[name])
    assert not re.findall(r"\d+(?:\.\d+)?\s?(?:%|ms\b|seconds)", by_hand(TEXTS[name]))


@pytest.mark.parametrize("name", TEXTS)
def test_citations_become_words_and_a_list(name):
    shown = citations.resolved(TEXTS[name], ENTRIES)
    assert "[@" not in shown
    assert "(He et al., 2026)" in shown
    assert "(Zhang and Sugiyama, 2023)" in shown
    cited = set(re.findall(r"\[@([\w-]+)\]", TEXTS[name]))
    assert len(re.findall(r"^- .*\(\d{4}\)\. .*[*>]", shown, re.MULTILINE)) == len(cited) >= 3
    assert "{" not in shown.partition("## References")[2]


def test_every_entry_is_cited_and_what_is_not_there_is_refused():
    assert set(ENTRIES) == set(re.findall(r"\[@([\w-]+)\]", "".join(TEXTS.values())))
    assert all({"title", "author", "year"} <= set(entry) for entry in ENTRIES.values())
    with pytest.raises(FailureError, match="not in the bibliography: nobody2026"):
        citations.resolved("As shown [@nobody2026].", ENTRIES)


def test_an_entry_of_one_author_and_a_preprint_are_written_out():
    entries = {"a": {"author": "Lovelace, Ada", "title": "Notes", "year": "1843", "eprint": "1.2"}}
    assert citations.resolved("So [@a].\n", entries) == (
        "So (Lovelace, 1843).\n\n- Lovelace, Ada (1843). Notes. *arXiv:1.2*.\n"
    )


def test_software_without_a_paper_is_named_by_its_contributors_and_linked():
    entries = {"a": {"author": "{a contributors}", "title": "a", "year": "2026", "url": "https://a.example"}}
    assert citations.resolved("So [@a].\n", entries) == (
        "So (a contributors, 2026).\n\n- a contributors (2026). a. <https://a.example>.\n"
    )


def test_the_state_of_the_field_names_the_libraries_and_claims_no_comparison():
    _, _, field = TEXTS["article/paper.md"].partition("## State of the field")
    field = " ".join(field.partition("## Quality")[0].split())
    peers = (
        "Vowpal Wabbit",
        "contextualbandits",
        "MABWiser",
        "bayesianbandits",
        "SMPyBandits",
        "Open Bandit Pipeline",
    )
    assert all(peer in field for peer in peers)
    assert "We have compared none of these libraries by regret or time." in field


def test_what_a_person_has_to_fill_in_is_on_one_list():
    page = (ROOT / "article" / "TO_FILL_IN.md").read_text(encoding="utf-8")
    for name, text in TEXTS.items():
        assert "TO_FILL_IN.md" in text
        assert name in page
        assert not re.search(r"TODO|FIXME|XXXX|0000-000", text)
        assert "authors:" not in text, "the header names authors: take them off the list"
    named = set(re.findall(r"`([\w./-]+\.\w+)`", page))
    assert all((ROOT / name).is_file() for name in named)
