"""Chromium pages that note what they complain about and what they ask of the network, from which they are cut off."""

import shutil

import pytest
from playwright.sync_api import sync_playwright
from servers import ARTEFACTS, TOKEN, jupyterlab, run_all

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
]  # fmt: skip


@pytest.fixture(scope="module")
def open_page(chromium):
    """A function that opens a file or an address, with the lists `complaints` and `requests` on the page."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)

        def opened(path, width=960, height=1000):
            page = browser.new_page(viewport={"width": width, "height": height})
            page.complaints, page.requests = [], []
            page.on("console", lambda m: page.complaints.append(m.text) if m.type in ("error", "warning") else None)
            page.on("pageerror", lambda error: page.complaints.append(str(error)))
            page.on("request", lambda request: page.requests.append(request.url))
            page.goto(path if isinstance(path, str) else path.as_uri(), timeout=180_000)  # kernels may have to be compiled
            return page

        yield opened
        browser.close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """The folder and the address of a running JupyterLab."""
    folder = tmp_path_factory.mktemp("lab")
    with jupyterlab(folder) as address:
        yield folder, address


@pytest.fixture(scope="module")
def open_notebook(lab, open_page):
    """A function that opens a notebook in JupyterLab, runs all its cells, and gives the page."""
    folder, address = lab

    def opened(path, width=1400, height=1200):
        shutil.copy(path, folder)
        page = open_page(f"{address}/lab/workspaces/{path.stem}/tree/{path.name}?token={TOKEN}", width, height)
        try:
            run_all(page)
        except BaseException:
            page.screenshot(path=ARTEFACTS / f"{path.stem}_failed.png")
            raise
        return page

    return opened
