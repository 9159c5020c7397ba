"""Where it runs does not matter: screens, noise profiles and held-out neurons are bitwise the same on every cluster."""

import pickle
from functools import partial

import pytest
import xarray as xr

import vpc
from vpc.branching import branch, moment
from vpc.experiments import experiment
from vpc.initialise import noise_profile
from vpc.screen import screen

WORM = vpc.Worm()
FEW = ["AVAL", "DB1", "SMDVL", "VB2"]
BRIEF = {"seconds": 0.1, "neurons": ["DB1", "AVA"], "kinds": ["clamp up", "ablate"], "progress": False}
MAPS = ("screen of a posterior", "screen of a run", "screen of a worm", "noise profile", "held-out neurons")


@pytest.fixture(scope="module")
def sources():
    """What can be branched from."""
    recording = experiment("noise", WORM, 0, 0.3, neurons=FEW).recording
    posterior = vpc.impute(WORM, recording, particles=20, draws=20, progress=False)
    run = WORM.simulate(0.5, n=6, noise=0.1, every=0.1, progress=False)
    return {"worm": WORM, "run": run, "posterior": posterior, "recording": recording}


@pytest.fixture
def mapped(sources, request):
    """One of the maps, as a function of where it runs."""
    seen = sources["recording"]
    return {
        "screen of a posterior": partial(screen, sources["posterior"], at=0.2, particles=20, **BRIEF),
        "screen of a run": partial(screen, sources["run"], "AVBL", at=0.4, particles=5, **BRIEF),
        "screen of a worm": partial(screen, WORM.ablate("AVAL"), particles=2, **BRIEF),
        "noise profile": partial(noise_profile, WORM, seen, (0.1, 0.3), (0.7, 1.4), particles=20, progress=False),
        "held-out neurons": partial(vpc.held_out, WORM, seen, ["AVAL", "VB"], particles=20, progress=False),
    }[request.param]


@pytest.fixture(scope="module", params=["threads", "local"])  # without one it is serial
def cluster(request):
    with vpc.cluster.connect(request.param, workers=2) as cluster:
        yield cluster


@pytest.mark.parametrize("mapped", MAPS, indirect=True)
def test_where_it_runs_does_not_matter(cluster, mapped):
    xr.testing.assert_identical(mapped(cluster=cluster), mapped())


class Pickling(vpc.cluster.Cluster):
    """One that hands over what must be pickled, and counts the bytes of function and results."""

    def map(self, function, items, progress=False):
        self.size = len(pickle.dumps(function))
        results = [pickle.loads(pickle.dumps(function))(item) for item in pickle.loads(pickle.dumps(items))]
        self.results = max(len(pickle.dumps(result)) for result in results)
        return results


@pytest.mark.parametrize("mapped", MAPS, indirect=True)
def test_tasks_are_small(mapped):
    """A worm is 1.5 MB, by its wiring; neither other frames of a posterior nor runs are handed over."""
    cluster = Pickling()
    xr.testing.assert_identical(mapped(cluster=cluster), mapped())
    assert cluster.size < 2e6 and cluster.results < 500


@pytest.mark.parametrize(
    ("name", "at", "n"), [("worm", None, 3), ("run", 0.4, 6), ("run", 0.2, 2), ("posterior", 0.2, 7), ("posterior", None, None)]
)
def test_a_moment_is_all_that_a_branch_needs(sources, name, at, n):
    source = sources[name]
    settings = {"seconds": 0.1, "particles": n, "seed": 2, "progress": False}
    whole = branch(source, at, vpc.Ablate("DB1"), **settings)
    alone = branch(pickle.loads(pickle.dumps(moment(source, at, n))), None, vpc.Ablate("DB1"), **settings)
    xr.testing.assert_identical(alone, whole)


def test_a_moment_that_there_is_not(sources):
    with pytest.raises(ValueError, match="at must be a moment of the recording, from 0 to 0.5 s, got 1"):
        moment(sources["run"], 1)
