"""Chromium pages that note what they complain about and what they ask of the network, from which they are cut off."""

import pytest
from playwright.sync_api import sync_playwright

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
]  # fmt: skip


@pytest.fixture(scope="module")
def open_page(chromium):
    """A function that opens a file, with the lists `complaints` and `requests` on the page."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)

        def opened(path, width=960, height=1000):
            page = browser.new_page(viewport={"width": width, "height": height})
            page.complaints, page.requests = [], []
            page.on("console", lambda m: page.complaints.append(m.text) if m.type in ("error", "warning") else None)
            page.on("pageerror", lambda error: page.complaints.append(str(error)))
            page.on("request", lambda request: page.requests.append(request.url))
            page.goto(path.as_uri())
            return page

        yield opened
        browser.close()
