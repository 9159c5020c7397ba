"""The wiring: 302 neurons of the adult hermaphrodite, their chemical synapses and gap junctions, as published counts.

Every data set is a matrix over the same 302 neurons in the same order, so that they can be exchanged; neurons that a data set
does not hold are isolated in it. The tables beside this module are made by `vpc.tables.make`.
"""

import csv
import difflib
import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Literal

import numpy as np

__all__ = ["GABAERGIC", "KATO_NEURONS", "NEURONS", "SOURCES", "Connectome", "Neuron", "UnknownNeuron", "find", "index"]

SOURCES = {
    "openworm": "OpenWorm's CElegansNeuronTables, after White et al. 1986, Varshney et al. 2011 and others",
    "varshney2011": "Varshney, Chen, Paniagua, Hall & Chklovskii 2011, PLoS Comput. Biol. 7:e1001066",
    "cook2019": "Cook et al. 2019, Nature 571:63 (hermaphrodite); counts are electron-microscope sections, not synapses",
    "white1986": "White, Southgate, Thomson & Brenner 1986, Phil. Trans. R. Soc. B 314:1",
    **{
        f"witvliet2021-{stage}": f"Witvliet et al. 2021, Nature 596:257, data set {stage} of 8, head only"
        for stage in range(1, 9)
    },
}

# The 26 neurons that release GABA and are taken to inhibit (McIntire et al. 1993, Nature 364:334).
GABAERGIC = (
    *(f"DD{i}" for i in range(1, 7)),
    *(f"VD{i}" for i in range(1, 14)),
    *("RMED", "RMEL", "RMER", "RMEV", "RIS", "AVL", "DVB"),
)

# The 49 neurons whose calcium is observed in Warrington, Spencer & Wood, after Kato et al. 2015, Cell 163:656.
KATO_NEURONS = (
    "AIBL", "AIBR", "ALA", "AS1", "ASKL", "ASKR", "AVAL", "AVAR", "AVBL", "AVBR", "AVEL", "AVER",
    "AVFL", "AVFR", "DA1", "DB1", "OLQDL", "OLQDR", "OLQVL", "RIBL", "RIBR", "RID", "RIFR", "RIML",
    "RIMR", "RIS", "RIVL", "RIVR", "RMED", "RMEL", "RMER", "RMEV", "SABD", "SABVL", "SABVR", "SIBVL",
    "SMBDL", "SMBDR", "SMDVL", "SMDVR", "URADL", "URADR", "URYDL", "URYDR", "URYVL", "URYVR", "VA1", "VB1",
    "VB2",
)  # fmt: skip


class UnknownNeuron(ValueError):
    """A name that is not one of the 302."""


@dataclass(frozen=True)
class Neuron:
    """What is known of one neuron.

    The transmitters are those of Wang et al. 2024 (eLife 13:RP95402), the type is Cook et al.'s, the soma in um is that of
    c302's cells (x to the left, y from head to tail, z dorsal), the position is the arc length along OpenWorm's spine, from
    head (0) to tail (1), known for the motor neurons of the cord and interpolated between them by y for the others.
    """

    name: str
    neuron_class: str
    type: Literal["sensory", "inter", "motor", "polymodal", "unknown"]
    transmitters: tuple[str, ...]
    soma: tuple[float, float, float]
    position: float

    @property
    def sign(self) -> int:
        """-1 for the canonical GABAergic neurons, 1 for all others."""
        return -1 if self.name in GABAERGIC else 1


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word most like another; the first in the alphabet of several."""
    return max(sorted(known), key=lambda other: difflib.SequenceMatcher(None, str(word), other).ratio())


def _table(name: str) -> list[dict[str, str]]:
    with (files("vpc.tables") / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def _read_neurons() -> dict[str, Neuron]:
    return {
        row["name"]: Neuron(
            name=row["name"],
            neuron_class=row["class"],
            type=row["type"],  # type: ignore[arg-type]
            transmitters=tuple(filter(None, row["transmitters"].split("|"))),
            soma=(float(row["x"]), float(row["y"]), float(row["z"])),
            position=float(row["position"]),
        )
        for row in _table("neurons")
    }


NEURONS = _read_neurons()
_INDEX = {name: i for i, name in enumerate(NEURONS)}


def index(names: str | Iterable[str]) -> np.ndarray:
    """Places of some neurons in every matrix, or an error that suggests the nearest name."""
    places = []
    for name in [names] if isinstance(names, str) else names:
        if not isinstance(name, str) or name not in _INDEX:
            raise UnknownNeuron(f"{name!r} is not one of the 302 neurons; did you mean {nearest(str(name).upper(), _INDEX)!r}?")
        places.append(_INDEX[name])
    return np.array(places, dtype=int)


def find(what: str) -> tuple[str, ...]:
    """All neurons by a name ("AVAL"), a class ("AVA"), a type ("motor"), a transmitter ("GABA"), or simply "all"."""
    found = tuple(n.name for n in NEURONS.values() if what in _keys(n))
    if not found:
        known = {key for n in NEURONS.values() for key in _keys(n)}
        raise UnknownNeuron(f"{what!r} is no neuron, class, type or transmitter; did you mean {nearest(what, known)!r}?")
    return found


def _keys(neuron: Neuron) -> tuple[str, ...]:
    return (neuron.name, neuron.neuron_class, neuron.type, *neuron.transmitters, "all")


@dataclass(frozen=True, eq=False)
class Connectome:
    """Counts of chemical synapses (from, to) and, symmetrically, of gap junctions between the 302 neurons of `NEURONS`."""

    name: str
    chemical: np.ndarray
    gap: np.ndarray
    changes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not np.array_equal(self.gap, self.gap.T):
            raise ValueError("gap must be symmetric: a gap junction conducts both ways")

    @property
    def label(self) -> str:
        """The name of the data set, and what has been done to it."""
        return ", ".join((self.name, *self.changes))

    @classmethod
    def load(cls, name: str = "openworm") -> "Connectome":
        """One of the published data sets; `SOURCES` lists and cites them."""
        if name not in SOURCES:
            known = ", ".join(SOURCES)
            raise ValueError(f"connectome must be one of {known}, got {name!r}; did you mean {nearest(name, SOURCES)!r}?")
        return _load(name)

    @property
    def citation(self) -> str:
        """Where the counts come from."""
        return SOURCES[self.name]

    def ablate(self, *neurons: str) -> "Connectome":
        """Without all connections of some neurons."""
        places = index(neurons)
        chemical, gap = self.chemical.copy(), self.gap.copy()
        for matrix in (chemical, gap):
            matrix[places] = 0
            matrix[:, places] = 0
        return self._with(
            chemical, gap, f"without {' '.join(neurons)}" if len(neurons) < 10 else f"without {len(neurons)} neurons"
        )

    def subset(self, neurons: Iterable[str]) -> "Connectome":
        """With only the connections among some neurons."""
        kept = set(index(neurons))
        return self.ablate(*(name for name, place in _INDEX.items() if place not in kept))

    def cut(self, pre: str, post: str, kind: Literal["chemical", "gap"] = "chemical") -> "Connectome":
        """Without the synapses from one neuron to another, or without the gap junctions between them."""
        if kind not in ("chemical", "gap"):
            raise ValueError(f"kind must be 'chemical' or 'gap', got {kind!r}")
        i, j = index([pre, post])
        matrix = getattr(self, kind).copy()
        if not matrix[i, j]:
            raise ValueError(f"there is no {kind} connection from {pre} to {post} in {self.name} to cut")
        matrix[i, j] = 0
        if kind == "gap":
            matrix[j, i] = 0
        return self._with(
            **{"chemical": self.chemical, "gap": self.gap, kind: matrix}, change=f"without {kind} {pre} to {post}"
        )

    def shuffle(self, seed: int) -> "Connectome":
        """A null model: every neuron keeps its numbers of partners (in, out, gap) and its outgoing counts, but not whom.

        Pairs of connections exchange their targets, ten times for each, unless that made a self-connection or a double one
        (Maslov & Sneppen 2002, Science 296:910).
        """
        rng = np.random.default_rng(seed)
        chemical = _rewire(self.chemical, rng, directed=True)
        return self._with(chemical, _rewire(self.gap, rng, directed=False), f"shuffled with seed {seed}")

    def _with(self, chemical: np.ndarray, gap: np.ndarray, change: str) -> "Connectome":
        chemical.flags.writeable = gap.flags.writeable = False
        return replace(self, chemical=chemical, gap=gap, changes=(*self.changes, change))

    def __repr__(self) -> str:
        return (
            f"<Connectome {self.label}: {np.count_nonzero(self.chemical)} chemical connections "
            f"({self.chemical.sum()} synapses), {np.count_nonzero(self.gap) // 2} gap-junction pairs "
            f"({self.gap.sum() // 2} junctions)>"
        )


@functools.cache
def _load(name: str) -> Connectome:
    chemical, gap = np.zeros((2, len(NEURONS), len(NEURONS)), dtype=int)
    for row in _table(name):
        i, j = _INDEX[row["pre"]], _INDEX[row["post"]]
        if row["kind"] == "chemical":
            chemical[i, j] = int(row["count"])
        else:
            gap[i, j] = gap[j, i] = int(row["count"])
    chemical.flags.writeable = gap.flags.writeable = False
    return Connectome(name, chemical, gap)


def _rewire(matrix: np.ndarray, rng: np.random.Generator, directed: bool) -> np.ndarray:
    """Exchange the targets of random pairs of edges; edges keep their counts."""
    result = matrix.copy()
    edges = np.argwhere(matrix if directed else np.triu(matrix))
    for first, second in rng.integers(len(edges), size=(10 * len(edges), 2)) if len(edges) else ():
        (a, b), (c, d) = edges[first], edges[second]
        if not directed and rng.random() < 0.5:
            c, d = d, c
        if a == d or c == b or result[a, d] or result[c, b]:
            continue
        for i, j, k in ((a, b, d), (c, d, b)):
            count, result[i, j] = result[i, j], 0
            result[i, k] = count
            if not directed:
                result[j, i], result[k, i] = 0, count
        edges[first], edges[second] = (a, d), (c, b)
    return result
