"""Compile the kernels that tests need most, for both widths of blocks side by side: `make test` does so while it lints."""

import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

# In a cache of its own, or it would take the place of what everything else needs.
WIDE = {"WORMSIM_LANES": "32", "NUMBA_CACHE_DIR": str(Path(__file__).parents[2] / "build" / "wide")}
HASH = (
    "import vpc, hashlib; r = vpc.Worm().simulate(0.5, seed=2, n=33, noise=0.1);"
    "print(hashlib.sha256(b''.join(r[k].values.tobytes() for k in ('voltage', 'calcium', 'body', 'muscle'))).hexdigest())"
)


def hashed(**environment: str) -> subprocess.Popen:
    """A process that prints the hash of a run."""
    return subprocess.Popen([sys.executable, "-c", HASH], env=os.environ | environment, stdout=subprocess.PIPE)


def worms() -> None:
    """One worm and many, and each filter."""
    import vpc
    from vpc.experiments import experiment
    from vpc.methods import METHODS

    worm = vpc.Worm()
    worm.simulate(0.1)
    _, seen = experiment("noise", worm, 0, 0.2)
    vpc.impute(worm, seen, particles=40, progress=False)
    for method in METHODS:
        vpc.impute(worm, seen, method, 500, progress=False)


def others() -> None:
    """Bodies alone, summaries of few particles and of many, and each filter of the autoregressive model."""
    import numpy as np

    import wormsim
    from vpc.autoregressive import Autoregressive
    from vpc.methods import METHODS, build
    from vpc.summaries import weighted_mean

    for many in (20_000, 40):
        weighted_mean(np.full(many, 1 / many), np.zeros((many, 30)))
    wormsim.crawl(0.1)
    for bodies in (1, 40):
        wormsim.Body(bodies).step(np.zeros((bodies, 2, 48)))
    model = Autoregressive()
    _, times, y = model.simulate(0)
    for method in METHODS:
        build(method, model, y[:3], times[:3], 100).run()


def main() -> None:
    """All of it in three processes, in which other kernels are compiled for the most part."""
    wide = hashed(**WIDE)
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        for done in [pool.submit(worms), pool.submit(others)]:
            done.result()
    sys.exit(wide.wait())


if __name__ == "__main__":
    main()
