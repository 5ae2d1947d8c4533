"""The built book in a reader's browser: every page is visited once, and what is wrong with it is noted.

The pages are loaded as files, as a reader of an unpacked book has them. The browser is the system's
Chromium or Chrome; none is downloaded. What is read off a page is in ``reading.js``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

CHECKS = Path(__file__).with_name("reading.js").read_text(encoding="utf-8")
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
#: The least contrast of text that WCAG 2 calls readable (level AA).
CONTRAST = 4.5

#: Chromium asks its maker's hosts for this and that at the start; here it shall ask nobody.
_QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
_LOCAL = ("file:", "data:", "blob:", "about:")


def find_browser() -> str | None:
    """Path of an installed Chromium or Chrome, if there is one."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    return next(filter(None, map(shutil.which, names)), None)


@contextmanager
def launched() -> Iterator[Any]:
    """The browser, for as long as the block lasts."""
    from playwright.sync_api import sync_playwright

    root = hasattr(os, "geteuid") and os.geteuid() == 0  # whom Chromium refuses its sandbox
    options = [*_QUIET, "--no-sandbox"] if root else _QUIET
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_browser(), args=options)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Any, file: Path, query: str = "", size: dict[str, int] = DESKTOP) -> Iterator[Any]:
    """A page in a window of its own, with all its formulas typeset; its noise is in ``page.noise``."""
    context = browser.new_context(viewport=size)
    context.set_default_timeout(120_000)  # milliseconds; for machines with other things to do
    page = context.new_page()
    page.noise = noise = []
    page.on("console", lambda line: noise.append(f"console: {line.text}") if line.type == "error" else None)
    page.on("pageerror", lambda error: noise.append(f"script: {error}"))
    page.on("requestfailed", lambda request: noise.append(f"not loaded: {request.url} ({request.failure})"))

    def gate(route: Any) -> None:
        if route.request.url.startswith(_LOCAL):
            route.continue_()
        else:
            noise.append(f"asks another host: {route.request.url}")
            route.abort()

    context.route("**/*", gate)
    try:
        page.goto(file.as_uri() + query)
        page.evaluate("async () => { await window.MathJax?.startup?.promise }")
        yield page
    finally:
        context.close()


@dataclass
class Visit:
    """What a visit of one page found; empty lists where nothing is wrong."""

    noise: list[str]
    links: list[str]
    anchors: set[str]
    found: dict[str, list[str]] = field(default_factory=dict)


def visit(browser: Any, file: Path) -> Visit:
    """Load a page once and look at it on a desk, on a phone and in the dark."""
    with opened(browser, file) as page:
        checks = page.evaluate_handle(CHECKS)
        look = lambda name, *given: checks.evaluate(f"(c, given) => c.{name}(...given)", list(given))  # noqa: E731
        seen = Visit([], look("links"), set(look("anchors")))
        for name in ("untypeset", "raw", "wordless", "broken"):
            seen.found[name] = look(name)
        page.set_viewport_size(PHONE)
        for name in ("wide", "cut", "shrunk"):
            seen.found[name] = look(name)
        for theme in ("light", "dark"):
            page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
            seen.found[f"faint {theme}"] = look("faint", CONTRAST)
            seen.found[f"unlit {theme}"] = look("unlit")
        seen.noise = list(page.noise)
    return seen


def pages(site: Path) -> list[Path]:
    """The pages of a built site, without what its theme brings along."""
    return sorted(path for path in site.rglob("*.html") if "_static" not in path.parts)


def dead_links(site: Path, visits: dict[str, Visit]) -> Iterator[str]:
    """Links inside the site without a file, or with a fragment that the page does not have."""
    for name, seen in visits.items():
        for link in sorted(set(seen.links)):
            address, fragment = urldefrag(link)
            target = Path(unquote(urlsplit(address).path))
            fragment = unquote(fragment)
            if not target.is_relative_to(site):
                yield f"{name} leads out of the site, to {link}"
                continue
            shown = target.relative_to(site).as_posix()
            if not target.is_file():
                yield f"{name} links to {shown}, which is not there"
            elif fragment and target.suffix == ".html" and fragment not in visits[shown].anchors:
                yield f"{name} links to {shown}#{fragment}, and that page has no such place"
