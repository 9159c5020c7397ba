"""Compiled code follows its sources."""

import subprocess
import sys

KERNEL = """
from wormsim.kernel import kernel
from constants import FACTOR
@kernel
def scaled(x):
    return FACTOR * x
print(scaled(1.0), sum(scaled.stats.cache_hits.values()))
"""


def test_kernels_are_cached_until_any_source_changes(tmp_path):
    """numba alone would go on using the old constant of another file."""

    def run() -> list[str]:
        done = subprocess.run([sys.executable, "kernels.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.split()

    (tmp_path / "kernels.py").write_text(KERNEL)
    (tmp_path / "constants.py").write_text("FACTOR = 2.0")
    assert run() == ["2.0", "0"]
    assert run() == ["2.0", "1"]
    (tmp_path / "constants.py").write_text("FACTOR = 3.0")
    assert run() == ["3.0", "0"]
