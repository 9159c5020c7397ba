"""Fixtures for what may be missing: the shared oracles, and programs that are not Python packages."""

import os
import shutil
from pathlib import Path

import pytest

import wormsim  # noqa: F401 - before any package that makes numba compile: its settings come too late otherwise

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of oracles and recordings beside the project, which only its developers have."""
    if not SHARED.is_dir():
        pytest.skip("no folder shared/ beside the project: its oracles are not redistributed")
    return SHARED


@pytest.fixture(scope="session")
def chromium() -> str:
    """Chromium, a system part: missing in CI is a failure, elsewhere a skip."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        missing = pytest.fail if os.environ.get("VPC_SYSTEM_PARTS") == "required" else pytest.skip
        missing("no Chromium: install Debian's package chromium")
    return path
