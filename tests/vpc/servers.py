"""JupyterLab and Voilà as their users start them, on the loopback and without the users' own settings."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page

ARTEFACTS = Path(__file__).parents[2] / "artefacts"
TOKEN = "a-test"
SETTINGS = {
    "labconfig/page_config.json": '{"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": true}}',
    "lab/user-settings/@jupyterlab/notebook-extension/tracker.jupyterlab-settings": '{"windowingMode": "none"}',
}  # no news from the network; all cells in the page, not only those in sight
PROMPTS = "[...document.querySelectorAll('.jp-CodeCell .jp-InputArea-prompt')].map(prompt => prompt.textContent)"
ERRORS = """[...document.querySelectorAll('[data-mime-type="application/vnd.jupyter.stderr"]')]
  .map(output => output.textContent).filter(text => text.includes("Traceback"))"""


@contextmanager
def served(name: str, folder: Path, *command: str) -> Iterator[str]:
    """The address of a server while it runs: a module of this Python, in a folder; its log is kept in artefacts/.

    A `{port}` in the command becomes a free one.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {
        key: str(folder / ".jupyter" / key)
        for key in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    }
    for path, text in SETTINGS.items():
        setting = Path(own["JUPYTER_CONFIG_DIR"], path)
        setting.parent.mkdir(parents=True, exist_ok=True)
        setting.write_text(text)
    ARTEFACTS.mkdir(exist_ok=True)
    log = ARTEFACTS / f"{name}.log"
    arguments = [sys.executable, "-m", *(part.replace("{port}", str(port)) for part in command)]
    with log.open("w") as out:
        server = subprocess.Popen(arguments, cwd=folder, env=os.environ | own, stdout=out, stderr=subprocess.STDOUT)
    try:
        while not _answers(port):
            if server.poll() is not None:
                raise RuntimeError(f"{name} has ended: {log.read_text()}")
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@contextmanager
def jupyterlab(folder: Path) -> Iterator[str]:
    """The address of a JupyterLab in a folder, while it runs."""
    options = ("--allow-root", "--no-browser", "--ip=127.0.0.1", "--port={port}", f"--IdentityProvider.token={TOKEN}")
    with served("jupyterlab", folder, "jupyterlab", *options, f"--ServerApp.root_dir={folder}") as address:
        yield address


def run_all(page: Page, seconds: float = 300) -> None:
    """Run all cells of the notebook that is open, and wait for the last one. None may fail."""
    page.get_by_text("| Idle").wait_for(timeout=60_000)  # of the kernel, in the status bar
    unrun = page.evaluate(PROMPTS)
    for _ in range(10):  # a click just after opening can be lost
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        page.wait_for_timeout(2000)
        if page.evaluate(PROMPTS) != unrun:
            break
    page.wait_for_function(f"{PROMPTS}.every(prompt => /\\d/.test(prompt)) || {ERRORS}.length", timeout=1000 * seconds)
    assert not (errors := page.evaluate(ERRORS)), errors[0]
