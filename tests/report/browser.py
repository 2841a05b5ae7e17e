"""A headless Chromium of the system's, driven by Playwright, and the checks that a page must pass in it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import axe_playwright_python
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text(encoding="utf-8")
NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = "no Chromium is here: apt-get install chromium (tests of the report run in a real browser)"


def executable() -> str:
    """Its path. Without one a laptop skips, and CI (where CI is set, as every CI system does) fails."""
    found = next((path for path in map(shutil.which, NAMES) if path), None)
    if found is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(MISSING)
    return found


@contextmanager
def started() -> Iterator[Browser]:
    """The browser, closed at the end."""
    path = executable()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Opened:
    """A page, and what it complained about or asked for since it was opened."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    asked_for: list[str] = field(default_factory=list)

    def violations(self) -> list[str]:
        """What axe-core finds, a rule and the first element that breaks it."""
        self.page.evaluate(AXE)
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [f"{rule['id']}: {rule['nodes'][0]['html'][:200]}" for rule in found["violations"]]

    def rows(self) -> list[str]:
        """The claims of the matrix that can be seen."""
        return self.page.locator(".board tbody tr:not(.group) .id:visible").all_inner_texts()


@contextmanager
def opened(browser: Browser, path: Path, *, scheme: str = "light", width: int = 1280, fragment: str = "") -> Iterator[Opened]:
    """The page of a file, in a context of its own."""
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    try:
        page = context.new_page()
        held = Opened(page)
        page.on("console", lambda message: held.complaints.append(message.text))
        page.on("pageerror", lambda error: held.complaints.append(str(error)))
        page.on("request", lambda request: held.asked_for.append(request.url))
        page.goto(path.as_uri() + fragment)
        yield held
    finally:
        context.close()
