"""The project's own files agree with each other."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKED = dict(re.findall(r"^([\w.-]+)(?:\[[^]]*])?==([^ ;\\]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("extra", [None, "notebooks", "cluster", "data", "dev"])
def test_the_lock_satisfies_pyproject(extra):
    """All but `connectome`, which is large and only for remaking the tables."""
    wanted = PROJECT["dependencies"] if extra is None else PROJECT["optional-dependencies"][extra]
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(LOCKED[normal(requirement.name)]), requirement


def test_environment_binder_and_pyproject_agree():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert environment["name"] == PROJECT["name"]
    python = next(entry for entry in environment["dependencies"] if entry.startswith("python="))
    assert SpecifierSet(PROJECT["requires-python"]).contains(python.removeprefix("python="))
    # Binder looks only into binder/ when that exists, and may not follow links.
    assert (ROOT / "binder" / "environment.yml").read_text() == (ROOT / "environment.yml").read_text()
    build, start = ((ROOT / "binder" / name).read_text() for name in ("postBuild", "start"))
    assert "--no-deps --require-hashes -r requirements.lock" in build and "--no-deps -e ." in build
    assert re.findall("NUMBA_CPU_.*", build) == re.findall("NUMBA_CPU_.*", start) != []
    assert all((ROOT / "binder" / name).stat().st_mode & 0o111 for name in ("postBuild", "start"))


def test_commands_in_the_readme_exist():
    readme, makefile = (ROOT / "README.md").read_text(), (ROOT / "Makefile").read_text()
    for target in re.findall(r"make (\w+)", readme):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    assert "make demo" in readme and "make test" in readme


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(path):
    cells = json.loads(path.read_text())["cells"]
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)
    assert cells[0]["cell_type"] == "markdown" and cells[0]["source"][0].startswith("# ")


def test_wormsim_stands_alone():
    assert not [path for path in (ROOT / "wormsim").glob("*.py") if re.search(r"^\s*(import|from) vpc", path.read_text(), re.M)]
