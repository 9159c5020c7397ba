"""The connectome tables against what their sources report, and what can be done with them."""

import importlib
import importlib.util

import numpy as np
import pytest

from vpc.connectome import GABAERGIC, KATO_NEURONS, NEURONS, SOURCES, Connectome, UnknownNeuron, find, index
from vpc.tables.make import READERS

# Connected neurons, chemical connections, synapses, gap pairs, gap junctions (None: not reported).
COUNTS = {
    "openworm": (299, 2279, 6465, 552, None),
    "varshney2011": (279, 2194, 6394, 514, 887),
    "cook2019": (302, 3709, None, 1091, None),
}


@pytest.mark.parametrize("name", COUNTS)
def test_published_counts(name):
    c = Connectome.load(name)
    connected = (c.chemical.any(0) | c.chemical.any(1) | c.gap.any(0)).sum()
    found = (connected, np.count_nonzero(c.chemical), c.chemical.sum(), np.count_nonzero(c.gap) // 2, c.gap.sum() // 2)
    for measured, reported in zip(found, COUNTS[name], strict=True):
        assert reported is None or measured == reported


@pytest.mark.parametrize("name", SOURCES)
def test_gap_junctions_are_symmetric_and_between_two(name):
    c = Connectome.load(name)
    assert (c.gap == c.gap.T).all() and not c.gap.diagonal().any()
    assert c.chemical.any() and c.citation and name in repr(c)


@pytest.mark.parametrize("name", SOURCES)
def test_equal_to_cect(name):
    """Entry by entry what the package `cect` reads from the published files, where it is installed."""
    if importlib.util.find_spec("cect") is None:
        pytest.skip("cect is not installed: pip install virtual-patch-clamp[connectome]")
    data = importlib.import_module(f"cect.readers.{READERS[name]}").get_instance(from_cache=True)
    c = Connectome.load(name)
    for kind, matrix in data.connections.items():
        if kind == "Generic_GJ":
            gap = np.asarray(matrix)
    chemical = sum(np.asarray(matrix) for kind, matrix in data.connections.items() if kind != "Generic_GJ")
    kept = [(str(node), i) for i, node in enumerate(data.nodes) if str(node) in NEURONS]
    places, rows = index([node for node, _ in kept]), [i for _, i in kept]
    assert (c.chemical[np.ix_(places, places)] == chemical[np.ix_(rows, rows)]).all()
    both = np.maximum(gap, gap.T)[np.ix_(rows, rows)]
    np.fill_diagonal(both, 0)
    assert (c.gap[np.ix_(places, places)] == both).all()


def test_neurons():
    assert len(NEURONS) == 302 and len({n.neuron_class for n in NEURONS.values()}) == 118
    assert len(GABAERGIC) == 26 and all(NEURONS[name].sign == -1 and "GABA" in NEURONS[name].transmitters for name in GABAERGIC)
    assert len(KATO_NEURONS) == 49 == len(index(KATO_NEURONS))
    assert all(0 <= n.position <= 1 for n in NEURONS.values())
    assert NEURONS["DB2"].position < NEURONS["DB1"].position < NEURONS["DB7"].position
    assert (
        NEURONS["IL1DL"].neuron_class == "IL1" and NEURONS["AVL"].neuron_class == "AVL" and NEURONS["VB11"].neuron_class == "VB"
    )


def test_isolated_in_the_default():
    c = Connectome.load()
    connected = c.chemical.any(0) | c.chemical.any(1) | c.gap.any(0)
    alone = [name for name, there in zip(NEURONS, connected, strict=True) if not there]
    assert alone == ["CANL", "CANR", "VC6"]


def test_finding_neurons():
    assert find("AVA") == ("AVAL", "AVAR") and find("AVAL") == ("AVAL",) and len(find("motor")) == 123
    assert set(GABAERGIC) < set(find("GABA"))
    with pytest.raises(UnknownNeuron, match="'AVAX' is not one of the 302 neurons; did you mean 'AVAL'"):
        index("AVAX")
    with pytest.raises(UnknownNeuron, match="did you mean 'motor'"):
        find("motors")


def test_ablation_subset_and_cut():
    c = Connectome.load()
    i, j = index(["AVAL", "AVAR"])
    ablated = c.ablate("AVAL")
    assert not ablated.chemical[i].any() and not ablated.chemical[:, i].any() and not ablated.gap[i].any()
    assert ablated.chemical[j].any() and c.chemical[i].any(), "a new one; the old one is as it was"
    small = c.subset(["AVAL", "AVAR"])
    assert small.gap[i, j] == c.gap[i, j] > 0 and small.gap.sum() == 2 * c.gap[i, j]
    assert not c.cut("AVAL", "AVAR", kind="gap").gap[[i, j], [j, i]].any()
    pre, post = (list(NEURONS)[k] for k in np.argwhere(c.chemical)[0])
    assert np.count_nonzero(c.cut(pre, post).chemical) == np.count_nonzero(c.chemical) - 1
    with pytest.raises(ValueError, match="there is no chemical connection from CANL to CANR"):
        c.cut("CANL", "CANR")
    with pytest.raises(ValueError, match="kind must be"):
        c.cut("AVAL", "AVAR", kind="hormonal")
    with pytest.raises(ValueError, match="connectome must be one of .* did you mean 'cook2019'"):
        Connectome.load("cook")
    with pytest.raises(ValueError, match="read-only"):
        c.chemical[0, 0] = 1


def test_shuffles_keep_degrees():
    c = Connectome.load("varshney2011")
    null, same, other = c.shuffle(1), c.shuffle(1), c.shuffle(2)
    assert (null.chemical == same.chemical).all() and not (null.chemical == other.chemical).all()
    for matrix, mixed in ((c.chemical, null.chemical), (c.gap, null.gap)):
        for axis in (0, 1):
            assert (np.count_nonzero(matrix, axis) == np.count_nonzero(mixed, axis)).all()
        assert np.mean((matrix > 0) & (mixed > 0)) < 0.3 * np.mean(matrix > 0), "most connections are new"
    assert (c.chemical.sum(1) == null.chemical.sum(1)).all()
    assert (null.gap == null.gap.T).all() and not null.gap.diagonal().any()
